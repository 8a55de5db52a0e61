//! The number of the last journal segment that was begun, kept outside the journal's directory.
//!
//! A journal whose last segments were removed, or all of them, looks like one that ended earlier. This record tells
//! them apart: after it was written, a segment with at least its number exists at every moment.
//!
//! ```text
//!   "settee-e" | crc u32 | zeros 4 | number u64      twice: at byte 0 for even numbers, at 4,096 for odd ones
//! ```
//!
//! It is written after the segment's header is durable, and before anything in the segment is acknowledged. A crash can
//! tear one of the two places only, and the other one holds the number before.

use std::path::Path;
use std::sync::Arc;

use crate::storage::kv::StorageError;
use crate::world::{Disk, File, OpenMode};

const MAGIC: &[u8; 8] = b"settee-e";
const BYTES: usize = 24;
const PLACES: [u64; 2] = [0, 4096];

/// See the module head.
#[derive(Debug)]
pub(in crate::storage) struct LastSegment {
    file: Arc<dyn File>,
    /// The number that was read; `None` where none was ever written.
    pub(super) number: Option<u64>,
    /// Whether neither place could be read and one of them is not blank.
    pub(super) damaged: bool,
}

impl LastSegment {
    /// Opens the record at `path`, durably made when missing.
    pub(in crate::storage) fn open(disk: &dyn Disk, path: &Path) -> Result<LastSegment, StorageError> {
        if !disk.exists(path)? {
            disk.open(path, OpenMode::Create)?;
            disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
        }
        let file = disk.open(path, OpenMode::Write)?;
        let (mut number, mut is_blank, len) = (None, true, file.len()?);
        for place in PLACES.into_iter().filter(|place| place + BYTES as u64 <= len) {
            let mut bytes = [0; BYTES];
            file.read_at(place, &mut bytes)?;
            number = number.max(decode(&bytes));
            is_blank &= bytes.iter().all(|b| *b == 0);
        }
        Ok(LastSegment { file, number, damaged: number.is_none() && !is_blank })
    }

    /// Notes that a segment was begun; durable on return.
    pub(super) fn note(&mut self, number: u64) -> Result<(), StorageError> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[16..].copy_from_slice(&number.to_le_bytes());
        let crc = crc32fast::hash(&bytes[16..]).to_le_bytes();
        bytes[8..12].copy_from_slice(&crc);
        self.file.write_at(PLACES[(number % 2) as usize], &bytes)?;
        self.file.sync()?;
        self.number = Some(number);
        Ok(())
    }
}

fn decode(bytes: &[u8; BYTES]) -> Option<u64> {
    let is_whole = bytes.starts_with(MAGIC) && bytes[8..12] == crc32fast::hash(&bytes[16..]).to_le_bytes();
    is_whole.then(|| bytes[16..].try_into().map(u64::from_le_bytes).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_is_read_whichever_place_is_damaged() {
        let (runtime, dir) =
            (tokio::runtime::Builder::new_current_thread().build().unwrap(), tempfile::tempdir().unwrap());
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let path = dir.path().join("journal-end");
        let read = || LastSegment::open(disk.as_ref(), &path).map(|last| (last.number, last.damaged)).unwrap();
        assert_eq!(read(), (None, false));
        let mut last = LastSegment::open(disk.as_ref(), &path).unwrap();
        last.note(6).unwrap();
        assert_eq!(read(), (Some(6), false));
        last.note(7).unwrap();
        assert_eq!(read(), (Some(7), false));
        let whole = std::fs::read(&path).unwrap();
        for (at, expected) in [(20, (Some(7), false)), (4096 + 20, (Some(6), false))] {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            std::fs::write(&path, &flipped).unwrap();
            assert_eq!(read(), expected, "{at}");
        }
        let mut flipped = whole;
        (flipped[20], flipped[4096 + 20]) = (9, 9);
        std::fs::write(&path, &flipped).unwrap();
        assert_eq!(read(), (None, true));
    }
}
