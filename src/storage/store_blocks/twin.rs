//! A sector that is stored twice: for the data that a store file cannot do without, and that its blocks are checked
//! against.
//!
//! ```text
//!   content 500 bytes | times written u64 | crc u32       512 bytes; the crc covers the sector's number and the rest
//! ```
//!
//! The copies lie in different pages and are written by two writes. A lost or misplaced write, or a flipped bit,
//! damages one copy: of the intact copies the one counts that was written more often, and the other one is written
//! again. Assumes that the disk writes a sector whole or not at all, so that power loss leaves of each copy the old or
//! the new state.

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

/// One of the copies of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    First = 0,
    Second = 1,
}

/// A sector that was read.
pub(super) struct Loaded {
    pub(super) sector: Twin,
    /// The copy that is damaged or older than the other one: as long as it is, one more fault takes the sector.
    pub(super) behind: Option<Which>,
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

    /// How often it was changed.
    pub(super) fn times(&self) -> u64 {
        self.times
    }

    /// Reads the copies at `places`, which a sector that was never written has left zero; `InvalidData` when neither
    /// is good.
    pub(super) fn load(file: &dyn File, number: u64, places: [u64; 2]) -> io::Result<Loaded> {
        let (first, second) = (found(file, number, places[0])?, found(file, number, places[1])?);
        let is_damaged = matches!((&first, &second), (Found::Bad, _) | (_, Found::Bad));
        let (sector, behind) = match (first, second) {
            (Found::Good(a), Found::Good(b)) if a.times == b.times => (*a, None),
            (Found::Good(a), Found::Good(b)) if a.times < b.times => (*b, Some(Which::First)),
            (Found::Good(a), _) => (*a, Some(Which::Second)),
            (_, Found::Good(b)) => (*b, Some(Which::First)),
            (Found::Blank, Found::Blank) => (Twin::blank(number), None),
            _ => return Err(invalid(&format!("both copies of {} are damaged", super::name_of(number)))),
        };
        if is_damaged {
            let what = super::name_of(number);
            tracing::warn!(
                ?file,
                what,
                "one of two copies is damaged; the next sync writes it anew from the other one"
            );
        }
        Ok(Loaded { sector, behind })
    }

    /// Counts a change; all that is written from now on is newer than what was.
    pub(super) fn change(&mut self) {
        self.times += 1;
    }

    /// What a copy of it looks like in the file.
    pub(super) fn encoded(&self) -> [u8; SECTOR_BYTES] {
        let mut sector = [0; SECTOR_BYTES];
        sector[..CONTENT_BYTES].copy_from_slice(&self.content);
        sector[CONTENT_BYTES..CRC].copy_from_slice(&self.times.to_le_bytes());
        let crc = crc(self.number, &sector);
        sector[CRC..].copy_from_slice(&crc.to_le_bytes());
        sector
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
