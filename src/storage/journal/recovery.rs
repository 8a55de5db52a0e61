//! Reading a journal after a restart: what is whole is handed on, a torn tail is cut, damage is reported.

use std::path::Path;

use super::frame::{self, FRAME_HEAD_BYTES, HEADER_BYTES, Header};
use super::{Position, Segment, path_of};
use crate::storage::kv::{Batch, StorageError};
use crate::world::{Disk, OpenMode};

/// What is left of a journal.
pub(super) struct Found {
    /// Segments that hold positions above what the engine has.
    pub segments: Vec<Segment>,
    /// Files that may be overwritten.
    pub spares: Vec<u64>,
    /// The last whole position.
    pub end: Position,
    /// The position to go on with. One is left out, so that the frame that was cut, should its sectors ever show up
    /// again, is not taken for a good one.
    pub next: Position,
    /// The number of the segment to go on in.
    pub next_number: u64,
}

fn corrupt(number: u64, what: impl std::fmt::Display) -> StorageError {
    StorageError::Corrupt(format!("journal segment {number:016x}: {what}"))
}

pub(super) fn read(
    disk: &dyn Disk,
    dir: &Path,
    flushed: Position,
    each: &mut dyn FnMut(Position, Batch),
) -> Result<Found, StorageError> {
    let numbers = numbers(disk, dir)?;
    let mut found = Found { segments: vec![], spares: vec![], end: flushed, next: 0, next_number: 1 };
    let mut before: Option<Position> = None;
    for number in numbers {
        found.next_number = number + 1;
        let bytes = contents(disk, dir, number)?;
        let Some(header) = Header::decode(&bytes).filter(|h| h.number == number) else {
            // A file that was to become the next segment when the power went.
            found.spares.push(number);
            continue;
        };
        if header.previous > flushed && before != Some(header.previous) {
            let what =
                format!("follows position {}, found before it: {before:?}; the engine has {flushed}", header.previous);
            return Err(corrupt(number, what));
        }
        let (end, rest) = frames(&bytes, number, header, flushed, each)?;
        erase(disk, dir, number, rest, bytes.len())?;
        before = Some(end);
        if end > flushed {
            found.segments.push(Segment { number, last: end, bytes: bytes.len() as u64 });
        } else {
            found.spares.push(number);
        }
    }
    if let Some(end) = before {
        if end < flushed {
            return Err(StorageError::Corrupt(format!("the journal ends with {end}, the engine has {flushed}")));
        }
        found.end = end;
    }
    found.next = found.end + 2;
    Ok(found)
}

fn numbers(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, StorageError> {
    let names = disk.list(dir)?;
    let number = |name: &str| u64::from_str_radix(name.strip_suffix(".log")?, 16).ok();
    let mut numbers: Vec<u64> = names.iter().filter_map(|e| number(&e.name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

fn contents(disk: &dyn Disk, dir: &Path, number: u64) -> Result<Vec<u8>, StorageError> {
    let file = disk.open(&path_of(dir, number), OpenMode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Hands on the frames of a segment; answers its last position and where it ends.
fn frames(
    bytes: &[u8],
    number: u64,
    header: Header,
    flushed: Position,
    each: &mut dyn FnMut(Position, Batch),
) -> Result<(Position, usize), StorageError> {
    let mut at = HEADER_BYTES;
    let mut end = header.previous;
    let mut expected = header.first;
    while let Some(frame) = frame::frame_at(bytes, at).filter(|f| f.position == expected) {
        if frame.position > flushed {
            let batch = frame::decode(&bytes[frame.payload]).map_err(|e| corrupt(number, e))?;
            each(frame.position, batch);
        }
        end = frame.position;
        expected = end + 1;
        at = frame.next;
    }
    if let Some(later) = frame::later_frame(bytes, at, end.max(flushed)) {
        return Err(corrupt(number, format!("damaged between positions {end} and {}", later.position)));
    }
    Ok((end, at))
}

/// Overwrites the head of whatever stands behind the last whole frame, so that it can never be taken for one.
fn erase(disk: &dyn Disk, dir: &Path, number: u64, at: usize, end: usize) -> Result<(), StorageError> {
    let len = end.saturating_sub(at).min(FRAME_HEAD_BYTES);
    if len > 0 {
        let file = disk.open(&path_of(dir, number), OpenMode::Write)?;
        file.write_at(at as u64, &vec![0; len])?;
        file.sync()?;
    }
    Ok(())
}
