//! Shrinking of store files: they return free space to the file system after a compaction asked for it.
//!
//! Deleted rows leave free pages, which later writes use; a file that is mostly free is made smaller in place, without
//! a second copy. For the memtables a shrink counts as a flush: no other flush runs on the file, commits continue, and
//! readers wait while the engine moves pages (`limits::SHRINK_LIVE_BYTES` bounds that). A failure that is not damage
//! stops writes like a failed flush.

use super::flush::FlushOutcome;
use super::journal::Position;
use super::kv::{Shrunk, StorageError};
use super::layered::LayeredStore;
use crate::limits;

impl LayeredStore {
    /// Makes the file that a shard lives in smaller; see [`Store::shrink`](super::kv::Store::shrink). Blocks.
    pub(super) fn shrink_home(&self, shard: u64, position: Position) -> Result<Shrunk, StorageError> {
        let file = self.tables().home(shard);
        let Some(engine) = self.store_files.open(file)? else { return Ok(Shrunk::NotDue) };
        if engine.disk_bytes() < limits::SHRINK_FILE_MIN_BYTES {
            return Ok(Shrunk::NotDue);
        }
        {
            let mut tables = self.tables();
            // The file may have gone meanwhile, or its shard have moved into another.
            if tables.failed.is_some() || tables.home(shard) != file {
                return Ok(Shrunk::NotDue);
            }
            if !tables.begin_shrink(file, position) {
                drop(tables);
                self.work.notify_one();
                return Ok(Shrunk::Busy);
            }
        }
        let mut outcome = FlushOutcome { store: self, file, error: None };
        let shrunk = engine.shrink();
        match &shrunk {
            Err(StorageError::Corrupt(_)) | Ok(Shrunk::Busy | Shrunk::NotDue) => {}
            Err(error) => outcome.error = Some(error.clone().begun()),
            Ok(Shrunk::By(bytes)) => tracing::info!(file = file.name(), bytes, "a store file has given space back"),
        }
        shrunk
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::storage::kv::{Batch, Store};
    use crate::storage::layered::LayeredOptions;
    use crate::storage::manifest::MissingFiles;
    use crate::storage::planted::Planted;
    use crate::storage::store_files::DiskStoreFiles;

    const SHARD: u64 = 16;

    fn key(n: u32) -> Vec<u8> {
        [SHARD.to_be_bytes().as_slice(), &n.to_be_bytes()].concat()
    }

    fn open(dir: &std::path::Path) -> LayeredStore {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        let store_files = DiskStoreFiles::open(
            env.disk(),
            dir.into(),
            (1, MissingFiles::Refuse),
            1 << 20,
            Planted::none(),
            Box::new(()),
        )
        .unwrap();
        let options = LayeredOptions {
            flush_at_bytes: 1 << 30,
            own_file_bytes: 1 << 30,
            missing_files: MissingFiles::Refuse,
            planted: Planted::none(),
        };
        LayeredStore::open(&env, &dir.join("journal"), Arc::new(store_files), options).unwrap()
    }

    /// What the background does: flushes when asked for, and tries again.
    fn shrink(store: &LayeredStore) -> Shrunk {
        let position = store.position();
        loop {
            match store.shrink(SHARD, position).unwrap() {
                Shrunk::Busy => {}
                done => return done,
            }
            let file = store.tables().next_flush().expect("busy without a flush that is due");
            store.flush(file);
        }
    }

    #[test]
    fn rows_deleted_a_moment_ago_leave_the_file_with_a_flush_and_their_space_goes_back() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let (mut batch, mut removals) = (Batch::new(), Batch::new());
        (0..8000).for_each(|n| batch.put(key(n), vec![n as u8; 1000]));
        (0..8000).filter(|n| n % 10 != 0).for_each(|n| removals.delete(key(n)));
        store.commit(&batch).unwrap();
        assert_eq!(shrink(&store), Shrunk::NotDue);
        store.tables().begin_shrink(crate::storage::layout::FileId::Common(0), u64::MAX);
        let file = store.tables().next_flush().unwrap();
        store.flush(file);
        let full = store.store_files.bytes();
        assert!(full > 8_000_000, "{full}");
        store.commit(&removals).unwrap();
        let shrunk = shrink(&store);
        assert!(matches!(shrunk, Shrunk::By(bytes) if bytes > full / 2), "{shrunk:?} of {full}");
        assert!(store.store_files.bytes() < full / 2 && !store.has_failed());
        store.commit(&batch).unwrap();
        let view = store.view().unwrap();
        assert!((0..8000).all(|n| view.get(&key(n)).unwrap() == Some(vec![n as u8; 1000])));
    }
}
