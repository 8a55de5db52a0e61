//! Recovery of a journal after a restart: complete groups are handed on, a torn tail is cut, damage is reported.

use std::ops::Range;
use std::path::Path;

use super::frame::{self, END_BYTES, FRAME_HEAD_BYTES, HEADER_BYTES, Head, Header};
use super::{LastSegment, Lost, Position, Replay, Segment, path_of};
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

/// Where to tell of what cannot be read, if that is no error.
type Losses<'l> = Option<&'l mut Vec<Lost>>;

/// An error, or where losses are told one of them.
fn lose(losses: &mut Losses<'_>, error: StorageError) -> Result<(), StorageError> {
    match (losses, error) {
        (Some(losses), StorageError::Corrupt(what)) => {
            losses.push(Lost::new(what));
            Ok(())
        }
        (_, error) => Err(error),
    }
}

/// Reads what stands above `flushed`. `last` is the record of the last segment that was begun.
pub(super) fn read(
    disk: &dyn Disk,
    dir: &Path,
    (flushed, planted, last): (Position, Planted, Option<&LastSegment>),
    mut losses: Losses<'_>,
    each: &mut Replay<'_>,
) -> Result<Found, StorageError> {
    let numbers = numbers(disk, dir)?;
    let (segments, spares, torn_at) = (vec![], vec![], vec![]);
    let mut found = Found { segments, spares, end: flushed, next: 0, next_number: 1, torn_at, torn: None };
    let (mut before, mut written): (Option<Position>, Option<u64>) = (None, None);
    for number in &numbers {
        found.next_number = number + 1;
        let bytes = contents(disk, dir, *number)?;
        let header = match begun(&bytes, *number).or_else(|error| mended(&bytes, *number, error, &mut losses)) {
            Ok(Begun::Written(header)) => header,
            Ok(Begun::Spare) => {
                found.spares.push(*number);
                continue;
            }
            Ok(Begun::Blank) => {
                found.torn_at.push((*number, before.unwrap_or(flushed)));
                disk.remove(&path_of(dir, *number))?;
                continue;
            }
            Err(error) => {
                lose(&mut losses, error)?;
                continue;
            }
        };
        written = Some(*number);
        if header.previous > flushed && before != Some(header.previous) {
            let what =
                format!("follows position {}, found before it: {before:?}; the engine has {flushed}", header.previous);
            lose(&mut losses, corrupt(*number, format!("{what}: a segment before it is missing")))?;
        }
        let whole = frames(&bytes, *number, header, flushed, (each, &mut losses))?;
        if !bytes.get(whole.tail.end..).is_some_and(|rest| rest.starts_with(&whole.end_mark(header))) {
            found.torn_at.push((*number, whole.last));
            note_torn(&mut losses, *number, whole.last, bytes.get(whole.tail.end..).unwrap_or_default());
        }
        if planted.has(Bug::AcceptTornTail) {
            let position = header.first.max(whole.last + 1);
            found.torn = frame::torn_at(&bytes, header.salt, whole.tail.end, position);
        }
        if losses.is_none() {
            settle(disk, dir, (*number, header), &bytes, &whole)?;
        }
        before = Some(whole.last);
        if whole.last > flushed {
            found.segments.push(Segment { number: *number, last: whole.last, bytes: bytes.len() as u64 });
        } else {
            found.spares.push(*number);
        }
    }
    finish(&mut found, (flushed, before), (last, written), &mut losses)?;
    if let Some(torn) = found.torn.take() {
        torn.writes().iter().for_each(|(key, value)| each(found.end + 1, key, value.as_deref()));
    }
    Ok(found)
}

/// Notes the rest of a segment that ends torn, where losses are noted.
fn note_torn(losses: &mut Losses<'_>, number: u64, last: Position, rest: &[u8]) {
    if let Some(losses) = losses {
        let what = format!("journal segment {number:016x} ends torn behind position {last}");
        losses.push(Lost::frames(what, rest));
    }
}

/// Compares where the journal ends with what the engine has and with the segment that was begun last.
fn finish(
    found: &mut Found,
    (flushed, before): (Position, Option<Position>),
    (last, written): (Option<&LastSegment>, Option<u64>),
    losses: &mut Losses<'_>,
) -> Result<(), StorageError> {
    if let Err(error) = check_last(last, written) {
        lose(losses, error)?;
    }
    found.next_number = found.next_number.max(last.and_then(|last| last.number).map_or(0, |number| number + 1));
    if let Some(end) = before {
        if end < flushed {
            let what = format!("the journal ends with {end}, the engine has {flushed}");
            lose(losses, StorageError::Corrupt(what))?;
        }
        found.end = end.max(flushed);
    }
    found.next = found.end + 2;
    Ok(())
}

/// A segment with at least the number of the last one that was begun is there, unless somebody removed it: it holds
/// groups that no store file needs to have.
fn check_last(last: Option<&LastSegment>, written: Option<u64>) -> Result<(), StorageError> {
    let Some(last) = last else { return Ok(()) };
    match (last.number, written) {
        (Some(begun), found) if found.is_none_or(|found| found < begun) => {
            let found = found.map_or("none is there".to_owned(), |found| format!("the last one there is {found:016x}"));
            Err(corrupt(begun, format!("it is missing, with all that it held: {found}")))
        }
        (None, None) if last.damaged => {
            Err(StorageError::Corrupt("the journal is missing, and the record of its last segment is damaged".into()))
        }
        (None, Some(found)) if last.damaged => {
            tracing::warn!("the record of the journal's last segment was damaged; the last one is {found:016x}");
            Ok(())
        }
        _ => Ok(()),
    }
}

/// The header of a segment, of which one byte is damaged, where losses are told: the checksum says which one.
fn mended(bytes: &[u8], number: u64, error: StorageError, losses: &mut Losses<'_>) -> Result<Begun, StorageError> {
    let (Some(losses), Some(head)) = (losses, bytes.get(..HEADER_BYTES)) else { return Err(error) };
    let mut head = head.to_vec();
    for at in 0..HEADER_BYTES {
        let was = head[at];
        for byte in 0..=u8::MAX {
            head[at] = byte;
            if let Head::Whole(header) = Header::decode(&head)
                && header.number == number
            {
                let what = format!("journal segment {number:016x}: a byte of its header was damaged and is mended");
                losses.push(Lost::new(what));
                return Ok(Begun::Written(header));
            }
        }
        head[at] = was;
    }
    Err(error)
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

/// Hands on the frames of a segment; where losses are told, also those behind damage.
fn frames(
    bytes: &[u8],
    number: u64,
    header: Header,
    flushed: Position,
    (each, losses): (&mut Replay<'_>, &mut Losses<'_>),
) -> Result<Whole, StorageError> {
    let mut whole = Whole { last: header.previous, tail: 0..HEADER_BYTES };
    let mut expected = header.first;
    loop {
        while let Some(frame) = frame::frame_at(bytes, header.salt, whole.tail.end).filter(|f| f.position == expected) {
            if frame.position > flushed {
                let one = &mut |key: &[u8], value: Option<&[u8]>| each(frame.position, key, value);
                frame::visit(&bytes[frame.payload], one).map_err(|e| corrupt(number, e))?;
            }
            whole = Whole { last: frame.position, tail: whole.tail.end..frame.next };
            expected = frame.position + 1;
        }
        let above = whole.last.max(flushed);
        let Some(later) = frame::later_frame(bytes, header.salt, whole.tail.end, above) else { return Ok(whole) };
        let what = format!("damaged between positions {} and {}", whole.last, later.position);
        let Some(losses) = losses else { return Err(corrupt(number, what)) };
        let begin = later.payload.start - FRAME_HEAD_BYTES;
        let what = format!("journal segment {number:016x}: {what}");
        losses.push(Lost::frames(what, &bytes[whole.tail.end..begin]));
        (whole.tail.end, expected) = (begin, later.position);
    }
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
