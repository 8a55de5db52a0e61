//! The bytes of a journal segment: a header, then frames; pure functions.
//!
//! ```text
//!   header  "settee-j" | version u32 | crc u32 | number u64 | previous u64 | first u64 | salt u64   (48 bytes)
//!   frame   "sttf" | length u32 | crc u32 | salt u32 | position u64 | payload, padded to 8 bytes    (24 bytes + payload)
//!   end     "stte" | crc u32 | position u64                                                         (16 bytes)
//! ```
//!
//! Numbers are little endian. A header's crc covers what follows it; a frame's covers salt, position and payload.
//! `previous` is the last position before the segment, `first` the first that it may hold. The salt is drawn for each
//! segment: stored documents may hold bytes that look like frames, but not like frames of this segment. One frame is
//! one group of writes that was synced as a whole before the next was written: so a good frame proves every frame
//! before it. The mark of the end goes with the header and with each frame in one write, and the next frame goes over
//! it: where it is missing behind the last good frame, something stood there. Its crc covers salt and position.

use std::ops::Range;

use crate::limits;
use crate::storage::kv::{Batch, Written};
use crate::wire::codec::{CodecError, Reader, put_bytes, put_varint};

/// Bytes of a segment's header.
pub(super) const HEADER_BYTES: usize = 48;
/// Bytes of a frame before its payload.
pub(super) const FRAME_HEAD_BYTES: usize = 24;
/// Bytes of the mark behind the last frame.
pub(super) const END_BYTES: usize = 16;
const SEGMENT_MAGIC: &[u8; 8] = b"settee-j";
const FRAME_MAGIC: &[u8; 4] = b"sttf";
const END_MAGIC: &[u8; 4] = b"stte";
const VERSION: u32 = 1;
const ALIGN: usize = 8;

/// What the head of a segment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// The segment's number, as in its file name.
    pub number: u64,
    /// The last position written before it.
    pub previous: u64,
    /// The first position that it may hold.
    pub first: u64,
    /// What all its frames carry.
    pub salt: u64,
}

/// What stands at the start of a segment's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Nothing was ever written there.
    Blank,
    /// Written by a settee that came later; carries its version.
    Newer(u32),
    /// Something that is no whole header.
    Damaged,
    /// A header.
    Whole(Header),
}

impl Header {
    pub(super) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..8].copy_from_slice(SEGMENT_MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.number.to_le_bytes());
        out[24..32].copy_from_slice(&self.previous.to_le_bytes());
        out[32..40].copy_from_slice(&self.first.to_le_bytes());
        out[40..48].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32fast::hash(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads the start of a segment.
    pub(super) fn decode(segment: &[u8]) -> Head {
        let head = &segment[..segment.len().min(HEADER_BYTES)];
        if head.iter().all(|b| *b == 0) {
            return Head::Blank;
        }
        let version = u32_at(head, 8).filter(|_| head.starts_with(SEGMENT_MAGIC));
        match version {
            Some(VERSION) if head.len() == HEADER_BYTES && u32_at(head, 12) == Some(crc32fast::hash(&head[16..])) => {
                let number = |at| u64_at(head, at).unwrap_or_default();
                Head::Whole(Header { number: number(16), previous: number(24), first: number(32), salt: number(40) })
            }
            Some(version) if version > VERSION => Head::Newer(version),
            _ => Head::Damaged,
        }
    }
}

/// A whole frame found in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub position: u64,
    /// Where its payload lies.
    pub payload: Range<usize>,
    /// Where the next frame begins.
    pub next: usize,
}

/// A part of a frame. Large values are not copied into it.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Made(Vec<u8>),
    Value(&'a [u8]),
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Piece::Made(bytes) => bytes,
            Piece::Value(bytes) => bytes,
        }
    }
}

/// Encodes a batch as the frame of `position` in the segment of `salt`: one piece, but for batches with large values,
/// which are pieces of their own.
pub(super) fn encode(salt: u64, position: u64, batch: &Batch) -> Vec<Piece<'_>> {
    let large = |value: &[u8]| value.len() >= limits::JOURNAL_LARGE_VALUE_BYTES;
    let apart: usize = batch.writes().values().flatten().filter(|value| large(value)).map(|value| value.len()).sum();
    let mut out = vec![0; FRAME_HEAD_BYTES];
    out.reserve(batch.bytes() - apart + 16 * batch.writes().len());
    put_varint(&mut out, batch.writes().len() as u64);
    let mut pieces = Vec::new();
    for (key, value) in batch.writes() {
        put_bytes(&mut out, key);
        out.push(u8::from(value.is_some()));
        match value {
            Some(value) if large(value) => {
                put_varint(&mut out, value.len() as u64);
                pieces.push(Piece::Made(std::mem::take(&mut out)));
                pieces.push(Piece::Value(value));
            }
            Some(value) => put_bytes(&mut out, value),
            None => {}
        }
    }
    pieces.push(Piece::Made(out));
    let end: usize = pieces.iter().map(|piece| piece.bytes().len()).sum();
    if let Some(Piece::Made(head)) = pieces.first_mut() {
        // Invariant: the committer's groups are bounded far below 4 GB.
        let length = u32::try_from(end - FRAME_HEAD_BYTES).expect("a group fits a frame");
        head[..4].copy_from_slice(FRAME_MAGIC);
        head[4..8].copy_from_slice(&length.to_le_bytes());
        head[12..16].copy_from_slice(&(salt as u32).to_le_bytes());
        head[16..24].copy_from_slice(&position.to_le_bytes());
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(&salt.to_le_bytes());
    for (nth, piece) in pieces.iter().enumerate() {
        crc.update(&piece.bytes()[if nth == 0 { 12 } else { 0 }..]);
    }
    let crc = crc.finalize();
    if let Some(Piece::Made(head)) = pieces.first_mut() {
        head[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    if let Some(Piece::Made(tail)) = pieces.last_mut() {
        tail.resize(tail.len() + end.next_multiple_of(ALIGN) - end, 0);
    }
    pieces
}

/// What stands behind the frame of `position` while it is the last one of the segment of `salt`; behind the header
/// while there is none, with the position before the segment.
pub(super) fn end_mark(salt: u64, position: u64) -> [u8; END_BYTES] {
    let mut out = [0; END_BYTES];
    out[..4].copy_from_slice(END_MAGIC);
    out[8..].copy_from_slice(&position.to_le_bytes());
    let crc = checksum(salt, &out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out
}

fn checksum(salt: u64, covered: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&salt.to_le_bytes());
    hasher.update(covered);
    hasher.finalize()
}

/// The frame of the segment of `salt` that begins at `at`; `None` when there is no whole one.
pub(super) fn frame_at(segment: &[u8], salt: u64, at: usize) -> Option<Frame> {
    let head = segment.get(at..at + FRAME_HEAD_BYTES)?;
    if &head[..4] != FRAME_MAGIC || u32_at(head, 12)? != salt as u32 {
        return None;
    }
    let end = (at + FRAME_HEAD_BYTES).checked_add(u32_at(head, 4)? as usize)?;
    let covered = segment.get(at + 12..end)?;
    if u32_at(head, 8)? != checksum(salt, covered) {
        return None;
    }
    let payload = at + FRAME_HEAD_BYTES..end;
    Some(Frame { position: u64_at(head, 16)?, payload, next: end.next_multiple_of(ALIGN) })
}

/// The first whole frame behind `at` whose position is above `above`: proof that what stands at `at` was once good.
pub(super) fn later_frame(segment: &[u8], salt: u64, at: usize, above: u64) -> Option<Frame> {
    let from = (at + ALIGN).next_multiple_of(ALIGN);
    (from..segment.len().saturating_sub(FRAME_HEAD_BYTES))
        .step_by(ALIGN)
        .filter(|at| segment[*at..].starts_with(FRAME_MAGIC))
        .find_map(|at| frame_at(segment, salt, at).filter(|f| f.position > above))
}

/// Decodes a frame's payload.
pub(super) fn decode(payload: &[u8]) -> Result<Batch, CodecError> {
    let mut batch = Batch::new();
    visit(payload, &mut |key, value| batch.set(key.to_vec(), value.map(|value| Written::Own(value.to_vec()))))?;
    Ok(batch)
}

/// Is called with each key and the value written to it.
pub(super) type VisitWrite<'v> = dyn FnMut(&[u8], Option<&[u8]>) + 'v;

/// Calls `each` with the writes of a frame's payload, `None` being a removal.
pub(super) fn visit(payload: &[u8], each: &mut VisitWrite<'_>) -> Result<(), CodecError> {
    let mut reader = Reader::new(payload);
    for _ in 0..reader.varint()? {
        let key = reader.bytes()?;
        let value = if reader.bool()? { Some(reader.bytes()?) } else { None };
        each(key, value);
    }
    reader.finish()
}

/// The length of the payload of the frame that begins with `head`, whole or not.
pub(super) fn payload_length(head: &[u8]) -> Option<usize> {
    u32_at(head, 4).filter(|_| head.starts_with(FRAME_MAGIC)).map(|length| length as usize)
}

/// As much of the frame of `position` at `at` as can be decoded, whatever its checksum says: what the planted bug
/// `AcceptTornTail` takes for a group.
pub(super) fn torn_at(segment: &[u8], salt: u64, at: usize, position: u64) -> Option<Batch> {
    let head = segment.get(at..at + FRAME_HEAD_BYTES).filter(|head| head.starts_with(FRAME_MAGIC))?;
    if (u32_at(head, 12)?, u64_at(head, 16)?) != (salt as u32, position) {
        return None;
    }
    let start = at + FRAME_HEAD_BYTES;
    let end = start.saturating_add(u32_at(head, 4)? as usize).min(segment.len());
    let mut batch = Batch::new();
    let _ = visit(&segment[start..end], &mut |key, value| {
        batch.set(key.to_vec(), value.map(|value| Written::Own(value.to_vec())))
    });
    Some(batch)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(value: &[u8]) -> Batch {
        let mut batch = Batch::new();
        batch.put(b"key".to_vec(), value.to_vec());
        batch.delete(b"gone".to_vec());
        batch
    }

    const SALT: u64 = 0x1234_5678_9abc_def0;

    fn whole(position: u64, batch: &Batch) -> Vec<u8> {
        encode(SALT, position, batch).iter().flat_map(|piece| piece.bytes().to_vec()).collect()
    }

    #[test]
    fn headers_and_frames_come_back_as_they_went() {
        let header = Header { number: 3, previous: 7, first: 9, salt: SALT };
        assert_eq!(Header::decode(&header.encode()), Head::Whole(header));
        let large = vec![b'x'; limits::JOURNAL_LARGE_VALUE_BYTES];
        for (value, pieces) in [(b"value".as_slice(), 1), (large.as_slice(), 3)] {
            assert_eq!(encode(SALT, 9, &batch(value)).len(), pieces);
            let frame = whole(9, &batch(value));
            assert_eq!(frame.len() % ALIGN, 0);
            let found = frame_at(&frame, SALT, 0).unwrap();
            assert_eq!((found.position, found.next), (9, frame.len()));
            assert_eq!(decode(&frame[found.payload]), Ok(batch(value)));
        }
    }

    #[test]
    fn a_header_is_whole_or_blank_or_damage() {
        let head = Header { number: 3, previous: 7, first: 9, salt: SALT }.encode();
        assert_eq!(Header::decode(&[]), Head::Blank);
        assert_eq!(Header::decode(&[0; 100]), Head::Blank);
        for bit in 0..head.len() * 8 {
            let mut flipped = head;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Header::decode(&flipped), Head::Damaged | Head::Newer(_)), "bit {bit}");
        }
        assert_eq!(Header::decode(&head[..20]), Head::Damaged);
    }

    #[test]
    fn no_flipped_bit_and_no_cut_passes_for_a_frame() {
        let frame = whole(9, &batch(b"some value"));
        let end = frame_at(&frame, SALT, 0).unwrap().payload.end;
        for bit in 0..end * 8 {
            let mut torn = frame.clone();
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(frame_at(&torn, SALT, 0), None, "bit {bit}");
        }
        assert!((0..end).all(|len| frame_at(&frame[..len], SALT, 0).is_none()));
    }

    #[test]
    fn a_good_frame_behind_a_bad_one_is_found_and_a_stale_one_is_not() {
        let mut segment = whole(4, &batch(b"a"));
        let second = segment.len();
        segment.extend(whole(5, &batch(b"b")));
        segment[20] ^= 1;
        assert_eq!(later_frame(&segment, SALT, 0, 4).map(|f| f.position), Some(5));
        assert_eq!(later_frame(&segment, SALT, 0, 5), None);
        assert_eq!(later_frame(&segment, SALT, second, 4), None);
        assert_eq!(later_frame(&segment, SALT + 1, 0, 4), None);
    }
}
