//! Reading a journal after a restart: what is whole is handed on, a torn tail is cut, damage is reported.

use std::ops::Range;
use std::path::Path;

use super::frame::{self, END_BYTES, HEADER_BYTES, Head, Header};
use super::{Position, Replay, Segment, path_of};
use crate::storage::kv::{Batch, StorageError};
use crate::storage::planted::{Bug, Planted};
use crate::world::buggify::{Mutation, mutated};
use crate::world::{Disk, OpenMode};

/// What is left of a journal.
pub(super) struct Found {
    /// Segments that hold positions above what all store files have.
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
    /// Segments that do not end with the mark of their end, and the last whole position before that.
    pub torn_at: Vec<(u64, Position)>,
    /// What a planted bug takes for the last group.
    torn: Option<Batch>,
}

fn corrupt(number: u64, what: impl std::fmt::Display) -> StorageError {
    StorageError::Corrupt(format!("journal segment {number:016x}: {what}"))
}

pub(super) fn read(
    disk: &dyn Disk,
    dir: &Path,
    flushed: Position,
    planted: Planted,
    each: &mut Replay<'_>,
) -> Result<Found, StorageError> {
    let numbers = numbers(disk, dir)?;
    let (segments, spares, torn_at) = (vec![], vec![], vec![]);
    let mut found = Found { segments, spares, end: flushed, next: 0, next_number: 1, torn_at, torn: None };
    let mut before: Option<Position> = None;
    for number in &numbers {
        found.next_number = number + 1;
        let bytes = contents(disk, dir, *number)?;
        let header = match begun(&bytes, *number)? {
            Begun::Written(header) => header,
            Begun::Spare => {
                found.spares.push(*number);
                continue;
            }
            Begun::Blank => {
                found.torn_at.push((*number, before.unwrap_or(flushed)));
                disk.remove(&path_of(dir, *number))?;
                continue;
            }
        };
        if header.previous > flushed && before != Some(header.previous) {
            let what =
                format!("follows position {}, found before it: {before:?}; the engine has {flushed}", header.previous);
            return Err(corrupt(*number, what));
        }
        let whole = frames(&bytes, *number, header, flushed, each)?;
        if !bytes.get(whole.tail.end..).is_some_and(|rest| rest.starts_with(&whole.end_mark(header))) {
            found.torn_at.push((*number, whole.last));
        }
        if planted.has(Bug::AcceptTornTail) {
            let position = header.first.max(whole.last + 1);
            found.torn = frame::torn_at(&bytes, header.salt, whole.tail.end, position);
        }
        settle(disk, dir, (*number, header), &bytes, &whole)?;
        before = Some(whole.last);
        if whole.last > flushed {
            found.segments.push(Segment { number: *number, last: whole.last, bytes: bytes.len() as u64 });
        } else {
            found.spares.push(*number);
        }
    }
    if let Some(end) = before {
        if end < flushed {
            return Err(StorageError::Corrupt(format!("the journal ends with {end}, the engine has {flushed}")));
        }
        found.end = end;
    }
    if let Some(torn) = found.torn.take() {
        torn.writes().iter().for_each(|(key, value)| each(found.end + 1, key, value.as_deref()));
    }
    found.next = found.end + 2;
    Ok(found)
}

/// How far a segment's file had come.
enum Begun {
    /// A new file that was to become the next segment when the node died: nothing of its header is there.
    Blank,
    /// A spare that was to become the next segment, with the header of its last life.
    Spare,
    Written(Header),
}

/// How far a segment had come. A header is written within one sector, and with the mark behind it synced before
/// anything else: so what is neither whole nor of before that sync is damage, and a longer file of zeros is, too.
fn begun(bytes: &[u8], number: u64) -> Result<Begun, StorageError> {
    match Header::decode(bytes) {
        Head::Whole(header) if header.number == number => Ok(Begun::Written(header)),
        Head::Whole(_) => Ok(Begun::Spare),
        Head::Blank if bytes.len() <= HEADER_BYTES + END_BYTES && bytes.iter().all(|b| *b == 0) => Ok(Begun::Blank),
        Head::Blank => Err(corrupt(number, "its header is gone")),
        Head::Newer(version) => Err(corrupt(number, format!("of version {version}, which this settee does not know"))),
        Head::Damaged => Err(corrupt(number, "its header is damaged")),
    }
}

pub(super) fn numbers(disk: &dyn Disk, dir: &Path) -> Result<Vec<u64>, StorageError> {
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

/// What is good of a segment.
struct Whole {
    /// The last position in it, or before it.
    last: Position,
    /// Where its last frame begins (the header, when there is none), and where it ends.
    tail: Range<usize>,
}

impl Whole {
    fn end_mark(&self, header: Header) -> [u8; frame::END_BYTES] {
        frame::end_mark(header.salt, self.last)
    }
}

/// Hands on the frames of a segment.
fn frames(
    bytes: &[u8],
    number: u64,
    header: Header,
    flushed: Position,
    each: &mut Replay<'_>,
) -> Result<Whole, StorageError> {
    let mut whole = Whole { last: header.previous, tail: 0..HEADER_BYTES };
    let mut expected = header.first;
    while let Some(frame) = frame::frame_at(bytes, header.salt, whole.tail.end).filter(|f| f.position == expected) {
        if frame.position > flushed {
            let one = &mut |key: &[u8], value: Option<&[u8]>| each(frame.position, key, value);
            frame::visit(&bytes[frame.payload], one).map_err(|e| corrupt(number, e))?;
        }
        whole = Whole { last: frame.position, tail: whole.tail.end..frame.next };
        expected = frame.position + 1;
    }
    let above = whole.last.max(flushed);
    if let Some(later) = frame::later_frame(bytes, header.salt, whole.tail.end, above) {
        return Err(corrupt(number, format!("damaged between positions {} and {}", whole.last, later.position)));
    }
    Ok(whole)
}

/// Makes what was read of a segment durable before anything is built on it. Its last frame may be in the system's cache
/// only: a process that died, or a sync that failed, leaves it readable and not on the disk, and a second sync would
/// not write it. So it is written again. The mark of the end goes over what stands behind it: that can never be taken
/// for a frame.
fn settle(
    disk: &dyn Disk,
    dir: &Path,
    (number, header): (u64, Header),
    bytes: &[u8],
    whole: &Whole,
) -> Result<(), StorageError> {
    if mutated(Mutation::KilledTailTrusted) {
        return Ok(());
    }
    let file = disk.open(&path_of(dir, number), OpenMode::Write)?;
    let end = whole.tail.end.min(bytes.len());
    file.write_at(0, &bytes[..HEADER_BYTES])?;
    let mut tail = bytes[whole.tail.start..end].to_vec();
    // Of the padding the end may be cut off.
    tail.resize(whole.tail.len(), 0);
    tail.extend(whole.end_mark(header));
    file.write_at(whole.tail.start as u64, &tail)?;
    file.sync()?;
    Ok(())
}
