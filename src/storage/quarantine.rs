//! Quarantine of damaged store files of single shards: the record of what is damaged, and the removal of the file.
//!
//! Damage of a file is found when the file is opened, read or flushed to. A damaged file of a single shard is recorded
//! here, so that a rebuild can make the shard again from other replicas and have the file quarantined. Until then the
//! file is read as far as that is possible, and writes to it stay in memory and in the journal: no flush to it
//! succeeds. Once the shard has used up its own room, writes to it are refused as damage; the node's writes stop only
//! when the writes that are held back leave no memory for other shards. In the journal they make room (`carry.rs`).

use std::collections::BTreeMap;
use std::sync::PoisonError;

use tokio::sync::watch;

use super::kv::StorageError;
use super::layered::LayeredStore;
use super::layout::FileId;
use crate::world::sync::{Mutex, MutexGuard};

/// The files of single shards in which damage was found since the store was opened.
pub(super) struct Suspects {
    /// What was found first, by shards.
    found: Mutex<BTreeMap<u64, String>>,
    news: watch::Sender<u64>,
}

impl Default for Suspects {
    fn default() -> Suspects {
        Suspects { found: Mutex::default(), news: watch::Sender::new(0) }
    }
}

impl Suspects {
    fn found(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a file that failed because of damage; other errors, and files of many shards, are nothing to it.
    pub(super) fn note(&self, file: FileId, error: &StorageError) {
        let (FileId::Own(shard), StorageError::Corrupt(what)) = (file, error) else { return };
        let is_new = self.found().insert(shard, what.clone()).is_none();
        if is_new {
            tracing::error!(file = file.name(), what, "the store file of a shard is damaged");
            self.news.send_modify(|n| *n += 1);
        }
    }

    /// [`Suspects::note`] for an outcome, which is handed on.
    pub(super) fn noted<T>(&self, file: FileId, outcome: Result<T, StorageError>) -> Result<T, StorageError> {
        if let Err(error) = &outcome {
            self.note(file, error);
        }
        outcome
    }

    /// Forgets a file that is not there any more.
    pub(super) fn forget(&self, shard: u64) {
        self.found().remove(&shard);
    }

    pub(super) fn all(&self) -> BTreeMap<u64, String> {
        self.found().clone()
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

impl LayeredStore {
    /// Puts the file of a shard away with a text beside it that says why; see
    /// [`Store::quarantine`](super::kv::Store::quarantine).
    pub(super) fn quarantine_own(&self, shard: u64, told: &str) -> Result<Option<String>, StorageError> {
        let file = FileId::Own(shard);
        {
            let mut tables = self.tables();
            if tables.home(shard) == file {
                if tables.is_working_on(file) {
                    return Err(StorageError::Io(format!("{} is being flushed", file.name())));
                }
                tables.forget_own(shard);
            }
        }
        let quarantined = self.store_files.quarantine(file, told)?;
        self.suspects.forget(shard);
        // No flush may come to do so.
        if let Err(error) = self.release_segments() {
            tracing::warn!(%error, "journal segments stay that a damaged file has held back");
        }
        // What it held back may go on.
        self.room.send_modify(|n| *n += 1);
        self.freeze_due();
        Ok(quarantined)
    }
}
