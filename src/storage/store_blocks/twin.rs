//! A sector that is kept twice: what a store file cannot do without, and what its blocks are judged by.
//!
//! ```text
//!   content 500 bytes | times written u64 | crc u32       512 bytes; the crc covers the sector's number and the rest
//! ```
//!
//! The copies lie in different pages and are written by two writes. One that is lost or goes elsewhere, or a bit that
//! flips, takes one copy: of those that are good the one counts that was written more often. Assumes that the disk
//! writes a sector whole or not at all, so that power loss leaves of each copy the old one or the new one.

use std::io;

use crate::storage::blocks::invalid;
use crate::world::File;

/// Bytes of a copy.
pub(super) const SECTOR_BYTES: usize = 512;
/// Bytes of a sector that its user has.
pub(super) const CONTENT_BYTES: usize = 500;
/// Where the checksum begins.
const CRC: usize = SECTOR_BYTES - 4;

/// See the module head.
#[derive(Clone, Debug)]
pub(super) struct Twin {
    /// Which sector of its file it is: part of the checksum.
    number: u64,
    times: u64,
    pub(super) content: [u8; CONTENT_BYTES],
}

/// What was found in the place of a copy.
enum Found {
    Blank,
    Good(Box<Twin>),
    Bad,
}

impl Twin {
    /// A sector that was never written.
    pub(super) fn blank(number: u64) -> Twin {
        Twin { number, times: 0, content: [0; CONTENT_BYTES] }
    }

    /// Whether it was never written.
    pub(super) fn is_blank(&self) -> bool {
        self.times == 0
    }

    /// Reads the copies at `places`, which a sector that was never written has left zero; `InvalidData` when neither
    /// is good.
    pub(super) fn load(file: &dyn File, number: u64, places: [u64; 2]) -> io::Result<Twin> {
        match (found(file, number, places[0])?, found(file, number, places[1])?) {
            (Found::Good(a), Found::Good(b)) => Ok(if b.times > a.times { *b } else { *a }),
            (Found::Good(twin), other) | (other, Found::Good(twin)) => {
                if matches!(other, Found::Bad) {
                    let what = super::name_of(number);
                    tracing::warn!(?file, what, "one of two copies is damaged; the other one is used");
                }
                Ok(*twin)
            }
            (Found::Blank, Found::Blank) => Ok(Twin::blank(number)),
            _ => Err(invalid(&format!("both copies of {} are damaged", super::name_of(number)))),
        }
    }

    /// Counts a change; all that is written from now on is newer than what was.
    pub(super) fn change(&mut self) {
        self.times += 1;
    }

    /// Writes the copy at `place`.
    pub(super) fn write(&self, file: &dyn File, place: u64) -> io::Result<()> {
        let mut sector = [0; SECTOR_BYTES];
        sector[..CONTENT_BYTES].copy_from_slice(&self.content);
        sector[CONTENT_BYTES..CRC].copy_from_slice(&self.times.to_le_bytes());
        let crc = crc(self.number, &sector);
        sector[CRC..].copy_from_slice(&crc.to_le_bytes());
        file.write_at(place, &sector)
    }
}

fn found(file: &dyn File, number: u64, place: u64) -> io::Result<Found> {
    let mut sector = [0; SECTOR_BYTES];
    file.read_at(place, &mut sector)?;
    if sector == [0; SECTOR_BYTES] {
        return Ok(Found::Blank);
    }
    if sector[CRC..] != crc(number, &sector).to_le_bytes() {
        return Ok(Found::Bad);
    }
    let mut twin = Twin::blank(number);
    twin.content.copy_from_slice(&sector[..CONTENT_BYTES]);
    let mut times = [0; 8];
    times.copy_from_slice(&sector[CONTENT_BYTES..CRC]);
    twin.times = u64::from_le_bytes(times);
    Ok(Found::Good(Box::new(twin)))
}

fn crc(number: u64, sector: &[u8; SECTOR_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&sector[..CRC]);
    hasher.finalize()
}
