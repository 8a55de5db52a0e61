//! What each store file is known to hold, by which one that was restored from an earlier time is told.
//!
//! The journal notes it at the start of each segment, for every file that was ever flushed to: so before it releases
//! what only those flushes hold, and with the same sync. A file holds at least what is noted of it at every moment, a
//! crash included, because it is noted after the flush is durable. A file that holds less is an older one: what was
//! written since is in no journal any more.
//!
//! ```text
//!   for each file: kind u8 (0 common, 1 of one shard, 2 sled), number varint, position varint, root writes varint
//! ```
//!
//! The position is in the file as a row, for which its engine has to open it. How often the root of a block file was
//! written is read from its first pages: a start looks at that of many files, and the position is compared when a file
//! is opened.

use std::collections::BTreeMap;

use super::kv::StorageError;
use super::layout::FileId;
use super::manifest::MissingFiles;
use super::store_blocks;
use super::store_files::{DiskStoreFiles, Older, StoreFiles, position_of};
use crate::limits;
use crate::wire::codec::{CodecError, Reader, put_varint};
use crate::world::buggify::{Mutation, mutated};
use crate::world::{OpenMode, lock};

/// What a file holds durably.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    /// The position of its last flush.
    pub position: u64,
    /// How often its root was written by then; 0: not known.
    pub root_writes: u64,
}

/// What is known of the files of a directory.
pub(super) type HeldFiles = BTreeMap<FileId, Held>;

impl Held {
    /// Why a file that holds `found` is older than one that holds this.
    pub(super) fn is_missing_from(self, found: Held) -> Option<String> {
        let what = match (found.position < self.position, found.root_writes < self.root_writes) {
            (true, _) => format!("it holds position {}, and held {}", found.position, self.position),
            (_, true) => format!("its root was written {} times, and had been {}", found.root_writes, self.root_writes),
            _ => return None,
        };
        Some(format!("is older than what was written to it: {what}"))
    }

    /// The later of two that were noted of one file.
    pub(super) fn later(self, other: Held) -> Held {
        let root_writes = self.root_writes.max(other.root_writes);
        Held { position: self.position.max(other.position), root_writes }
    }
}

/// As the journal notes it.
pub(super) fn encode(files: &HeldFiles) -> Vec<u8> {
    let mut out = Vec::with_capacity(files.len() * 12);
    for (file, held) in files {
        let (kind, number) = match file {
            FileId::Common(number) => (0, *number),
            FileId::Own(shard) => (1, *shard),
            FileId::Sled => (2, 0),
        };
        out.push(kind);
        [number, held.position, held.root_writes].into_iter().for_each(|number| put_varint(&mut out, number));
    }
    out
}

/// What [`encode`] has made.
pub(super) fn decode(bytes: &[u8]) -> Result<HeldFiles, StorageError> {
    let senseless = |_: CodecError| StorageError::Corrupt("the journal's record of what store files hold".into());
    let (mut reader, mut files) = (Reader::new(bytes), HeldFiles::new());
    while !reader.is_empty() {
        let (kind, number) = (reader.u8().map_err(senseless)?, reader.varint().map_err(senseless)?);
        let (position, root_writes) = (reader.varint().map_err(senseless)?, reader.varint().map_err(senseless)?);
        let file = match kind {
            0 => FileId::Common(number),
            1 => FileId::Own(number),
            2 => FileId::Sled,
            // Of a later settee.
            _ => continue,
        };
        files.insert(file, Held { position, root_writes });
    }
    Ok(files)
}

impl DiskStoreFiles {
    /// See [`StoreFiles::hold_against`].
    pub(super) fn find_older(&self, held: &HeldFiles, missing_files: MissingFiles) -> Result<Older, StorageError> {
        if mutated(Mutation::OlderFileTrusted) {
            return Ok(Older::new());
        }
        let missing = self.missing();
        let there = held.iter().filter(|(file, _)| !missing.contains(file));
        let takes_over = missing_files == MissingFiles::TakeOver;
        let looked_at = if takes_over { usize::MAX } else { limits::STORE_FILES_LOOKED_AT };
        let mut older = Older::new();
        for (file, held) in there.take(looked_at) {
            let found = if takes_over { self.held_by(*file) } else { self.shown_by(*file, *held) };
            older.extend(held.is_missing_from(found).map(|why| (*file, why)));
        }
        if takes_over {
            return Ok(older);
        }
        let may_stay =
            missing_files == MissingFiles::Rebuild && older.keys().all(|file| matches!(file, FileId::Own(_)));
        if !older.is_empty() && !may_stay {
            let told: Vec<String> = older.iter().map(|(file, why)| format!("store/{} {why}", file.name())).collect();
            return Err(StorageError::Corrupt(format!("{}; put the newer one back", told.join(", "))));
        }
        for (file, why) in &older {
            self.files.refuse(*file, StorageError::Corrupt(format!("store file {} {why}", file.name())));
        }
        *lock(&self.held) = held.clone();
        Ok(older)
    }

    /// What a closed file shows without its engine, and otherwise what it is to hold.
    fn shown_by(&self, file: FileId, held: Held) -> Held {
        let look = || store_blocks::root_writes_of(self.disk.open(&self.path(file), OpenMode::Read)?.as_ref());
        // What cannot be read is told by those who open it.
        let shown = if file == FileId::Sled { None } else { look().ok().flatten() };
        Held { root_writes: shown.unwrap_or(held.root_writes), ..held }
    }

    /// What a file holds; one that cannot be opened is told of elsewhere.
    fn held_by(&self, file: FileId) -> Held {
        let any = Held { position: u64::MAX, root_writes: u64::MAX };
        let Ok(Some(engine)) = self.open(file) else { return any };
        let position = engine.snapshot().and_then(|view| position_of(view.as_ref()));
        position.map_or(any, |position| Held { position, root_writes: engine.root_writes() })
    }
}

#[cfg(test)]
mod tests;
