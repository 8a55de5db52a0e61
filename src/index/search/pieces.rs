//! The bytes of a segment, stored in pieces in the ordered store and cached in memory as far as they were read.
//!
//! The engine reads within a job that cannot wait for the store. If a piece is not in memory, the job fails and the
//! piece is noted; the caller reads the piece and runs the job again ([`super::open`]). Each time a segment lacks a
//! piece, more pieces behind it are read, so that a job runs only a few times whatever it reads.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use settee_search::segment::{SegmentError, Source};

use crate::limits;
use crate::world::lock;
use crate::world::sync::Mutex;

/// What the engine is told of a piece that is not in memory.
const NOT_READ: &str = "a piece is not read yet";

/// The pieces of one segment.
pub(super) struct Pieces {
    bytes: u64,
    piece: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    pieces: BTreeMap<u32, Bytes>,
    missing: BTreeSet<u32>,
    /// Pieces to be read behind a missing one.
    ahead: u32,
    /// Reads that were refused.
    refused: u64,
    memory: usize,
}

impl Pieces {
    /// Of a segment of so many bytes, in pieces of so many.
    pub fn new(bytes: u64, piece: usize) -> Pieces {
        Pieces { bytes, piece, held: Mutex::default() }
    }

    fn count(&self) -> u32 {
        u32::try_from(self.bytes.div_ceil(self.piece as u64)).unwrap_or(u32::MAX)
    }

    /// The pieces that were asked for in vain, and some behind them.
    pub fn take_missing(&self) -> BTreeSet<u32> {
        let mut held = lock(&self.held);
        let missing = std::mem::take(&mut held.missing);
        if missing.is_empty() {
            return missing;
        }
        let ahead = match self.bytes <= limits::SEARCH_READ_WHOLE_BYTES {
            true => u32::MAX,
            false => held.ahead,
        };
        held.ahead = (held.ahead * 2 + 1).min(limits::SEARCH_READ_AHEAD);
        let wanted = missing.into_iter().flat_map(|piece| piece..=piece.saturating_add(ahead).min(self.count() - 1));
        wanted.filter(|piece| !held.pieces.contains_key(piece)).collect()
    }

    /// Reads that were refused so far. Several jobs run at a time: what one lacked another may take to read.
    pub fn refused(&self) -> u64 {
        lock(&self.held).refused
    }

    /// Keeps a piece.
    pub fn put(&self, piece: u32, bytes: Bytes) {
        let mut held = lock(&self.held);
        held.memory += bytes.len();
        if let Some(before) = held.pieces.insert(piece, bytes) {
            held.memory -= before.len();
        }
    }

    /// Bytes in memory.
    pub fn memory(&self) -> usize {
        lock(&self.held).memory
    }
}

impl Source for Pieces {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn read(&self, range: Range<u64>) -> Result<Bytes, SegmentError> {
        if range.start > range.end || range.end > self.bytes {
            return Err(SegmentError::Damaged("range"));
        }
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let piece = self.piece as u64;
        let (first, last) = ((range.start / piece) as u32, ((range.end - 1) / piece) as u32);
        let mut held = lock(&self.held);
        let missing: Vec<u32> = (first..=last).filter(|at| !held.pieces.contains_key(at)).collect();
        if !missing.is_empty() {
            held.missing.extend(missing);
            held.refused += 1;
            return Err(SegmentError::Source(NOT_READ.to_owned()));
        }
        let part = |at: u32| {
            let (begin, bytes) = (u64::from(at) * piece, held.pieces.get(&at)?);
            let start = range.start.saturating_sub(begin) as usize;
            let end = (range.end - begin).min(piece) as usize;
            (end <= bytes.len()).then(|| bytes.slice(start..end))
        };
        let short = || SegmentError::Damaged("a piece is cut short");
        if first == last {
            return part(first).ok_or_else(short);
        }
        let mut out = BytesMut::with_capacity((range.end - range.start) as usize);
        for at in first..=last {
            out.extend_from_slice(&part(at).ok_or_else(short)?);
        }
        Ok(out.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_read_is_noted_and_then_there() {
        let bytes = Bytes::from((0..=255).collect::<Vec<u8>>());
        let pieces = Pieces::new(256, 10);
        assert!(pieces.read(0..257).is_err() && pieces.take_missing().is_empty(), "beyond the end");
        assert!(pieces.read(5..25).is_err());
        let missing = pieces.take_missing();
        assert_eq!(missing.iter().copied().collect::<Vec<_>>(), (0..26).collect::<Vec<u32>>(), "small: as a whole");
        for at in missing {
            let start = at as usize * 10;
            pieces.put(at, bytes.slice(start..(start + 10).min(256)));
        }
        for range in [0..256, 5..25, 9..10, 10..20, 250..256, 7..7] {
            assert_eq!(pieces.read(range.start..range.end).unwrap(), bytes[range.start as usize..range.end as usize]);
        }
        assert_eq!((pieces.memory(), pieces.refused()), (256, 1));
    }

    #[test]
    fn more_is_read_ahead_each_time() {
        let pieces = Pieces::new(limits::SEARCH_READ_WHOLE_BYTES + 1, 16);
        let mut counts = Vec::new();
        for at in [0_u64, 1000, 2000] {
            assert!(pieces.read(at * 16..at * 16 + 1).is_err());
            counts.push(pieces.take_missing().len());
        }
        assert_eq!(counts, [1, 2, 4]);
    }
}
