//! The seal beside sled's files: the position at which they were last synced, and a sum of what they held then.
//!
//! ```text
//!   position u64 | rows u64 | sum u64 | crc u32        28 bytes; before 2026-11-22: position u64 | crc u32
//! ```
//!
//! Numbers are little endian; the crc covers what stands before it. sled can lose damaged rows as a whole without an
//! error: the number of rows, and the sum of their checksums, show that. A crash can leave sled ahead of its seal,
//! never behind it: by a position, or, while rows are removed without a new position, by a seal without a sum (`rows`
//! is the highest number then). The state that a start finds then becomes the next seal.

use std::path::Path;

use super::kv::StorageError;
use crate::world::{Disk, OpenMode};

const CRC_BYTES: usize = 4;
const BYTES: usize = 24 + CRC_BYTES;
/// The length of those of an older settee.
const OLD_BYTES: usize = 8 + CRC_BYTES;

/// All rows of sled together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    rows: u64,
    sum: u64,
}

impl Sum {
    /// That of one row with this checksum.
    pub(super) fn of(crc: [u8; CRC_BYTES]) -> Sum {
        Sum { rows: 1, sum: u32::from_le_bytes(crc).into() }
    }

    /// That of these rows and others.
    #[must_use]
    pub(super) fn plus(self, other: Sum) -> Sum {
        Sum { rows: self.rows.wrapping_add(other.rows), sum: self.sum.wrapping_add(other.sum) }
    }

    /// That of these rows without others of them.
    #[must_use]
    pub(super) fn minus(self, other: Sum) -> Sum {
        Sum { rows: self.rows.wrapping_sub(other.rows), sum: self.sum.wrapping_sub(other.sum) }
    }
}

/// See the module head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seal {
    pub position: u64,
    /// `None`: rows are being changed.
    pub sum: Option<Sum>,
}

/// What stands for the sum of a seal without one.
const NO_SUM: Sum = Sum { rows: u64::MAX, sum: 0 };

impl Seal {
    /// Writes the seal at `path`; durable on return, but for the file's name.
    pub(super) fn write(self, disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
        let file = disk.open(path, OpenMode::Create)?;
        file.write_at(0, &self.encode())?;
        Ok(file.sync()?)
    }

    /// Fails when `self`, which was found in sled's files, is not what the seal at `path` says; one that is missing is
    /// made.
    pub(super) fn check(self, disk: &dyn Disk, path: &Path) -> Result<(), StorageError> {
        let Some((position, sum)) = read(disk, path)? else { return Ok(()) };
        let found = self.position;
        if found < position {
            let text = format!("sled has gone back to position {found}, it was synced with {position}");
            return Err(StorageError::Corrupt(text));
        }
        match (self.sum, sum) {
            (Some(left), Some(sum)) if found == position && sum != left => {
                let text = format!("sled has lost rows: {} are left, it was synced with {}", left.rows, sum.rows);
                Err(StorageError::Corrupt(text))
            }
            _ => Ok(()),
        }
    }

    fn encode(self) -> [u8; BYTES] {
        let (mut bytes, sum) = ([0; BYTES], self.sum.unwrap_or(NO_SUM));
        bytes[..8].copy_from_slice(&self.position.to_le_bytes());
        bytes[8..16].copy_from_slice(&sum.rows.to_le_bytes());
        bytes[16..24].copy_from_slice(&sum.sum.to_le_bytes());
        let crc = crc32fast::hash(&bytes[..24]);
        bytes[24..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// What a seal says; `None` for one that was never written.
fn read(disk: &dyn Disk, path: &Path) -> Result<Option<(u64, Option<Sum>)>, StorageError> {
    let file = disk.open(path, OpenMode::Create)?;
    let mut bytes = vec![0; file.len()?.min(BYTES as u64 + 1) as usize];
    if bytes.is_empty() {
        return Ok(None);
    }
    file.read_at(0, &mut bytes)?;
    let numbers = bytes.split_last_chunk().filter(|(told, crc)| u32::from_le_bytes(**crc) == crc32fast::hash(told));
    let number = |at: usize| bytes.get(at..)?.first_chunk().map(|number| u64::from_le_bytes(*number));
    match (bytes.len(), numbers, number(0)) {
        (BYTES, Some(_), Some(position)) => {
            let sum = Sum { rows: number(8).unwrap_or_default(), sum: number(16).unwrap_or_default() };
            Ok(Some((position, Some(sum).filter(|sum| *sum != NO_SUM))))
        }
        (OLD_BYTES, Some(_), Some(position)) => Ok(Some((position, None))),
        _ => Err(StorageError::Corrupt("sled: the seal beside its files does not fit its checksum".into())),
    }
}
