//! Free disk space: the check before writes that add data.
//!
//! A full disk stops a node for good: the journal cannot be synced, and the state of the last write is unknown. So
//! writes that add data are refused before that, while a reserve is left: for the journal, for flushes of acknowledged
//! writes, and for deletions, purges and compaction, which free space.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use super::kv::StorageError;
use super::reserve;
use crate::world::Disk;
use crate::world::buggify::{Mutation, mutated};

/// What was found when the disk was looked at last. Until then there is room.
#[derive(Debug, Default)]
pub(super) struct Room {
    dir: PathBuf,
    scarce: AtomicBool,
}

impl Room {
    pub(super) fn new(dir: PathBuf) -> Room {
        Room { dir, scarce: AtomicBool::new(false) }
    }

    /// Looks at the disk: less than `reserve` free bytes are too few. A disk that cannot tell has room. Answers the
    /// free bytes. Blocks.
    pub(super) fn measure(&self, disk: &dyn Disk, reserve: u64) -> u64 {
        let free = match disk.free_bytes(&self.dir) {
            Ok(free) => free,
            Err(error) => {
                tracing::debug!(%error, "the disk does not say how much room it has");
                u64::MAX
            }
        };
        let scarce = free < reserve;
        match (self.scarce.swap(scarce, Ordering::SeqCst), scarce) {
            (false, true) => tracing::warn!(free, reserve, "the disk is nearly full: only deletions are accepted"),
            (true, false) => tracing::info!(free, "the disk has room again"),
            _ => {}
        }
        reserve::follow(disk, &self.dir, free, reserve);
        free
    }

    /// The free bytes; `None` where the disk does not tell. Blocks.
    pub(super) fn free(&self, disk: &dyn Disk) -> Option<u64> {
        disk.free_bytes(&self.dir).ok().filter(|free| *free != u64::MAX)
    }

    pub(super) fn is_left(&self) -> bool {
        !self.scarce.load(Ordering::SeqCst) || mutated(Mutation::RoomIgnored)
    }

    /// Fails with [`StorageError::NoRoom`] when there is none.
    pub(super) fn check(&self) -> Result<(), StorageError> {
        if self.is_left() { Ok(()) } else { Err(StorageError::NoRoom) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn there_is_room_until_less_than_the_reserve_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let disk = crate::world::tokio_host::env(tokio::runtime::Handle::current()).disk();
        let room = Room::new(dir.path().to_path_buf());
        assert_eq!(room.check(), Ok(()));
        room.measure(disk.as_ref(), u64::MAX);
        assert_eq!(room.check(), Err(StorageError::NoRoom));
        room.measure(disk.as_ref(), 1);
        assert!(room.is_left());
        let gone = Room::new(dir.path().join("missing"));
        gone.measure(disk.as_ref(), u64::MAX - 1);
        assert!(gone.is_left());
    }
}
