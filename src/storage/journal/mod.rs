//! The node's journal: every group of writes, in order, one sync per group; authoritative until the store files have
//! it.
//!
//! Assumes one writer and never two unsynced groups. Promises: what [`Journal::append`] answered survives any crash. At
//! a restart a torn last group is cut and logged, because damage may look like it. Any other defect (a bad frame before
//! a good one, a gap between segments, a missing segment) is reported as damage, and nothing is served. Segments whose
//! positions all store files hold durably are reused, because overwriting written blocks syncs in half the time of
//! growing a file.
//!
//! The journal does not retry: after an error of a write or a sync it accepts nothing more, from commits or from
//! flushes. The lack of file descriptors is an exception: it shows before anything of a new segment is written, and
//! leaves the journal as it was ([`Journal::rotate`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::kv::{Batch, StorageError};
use super::planted::{Bug, Planted};
use crate::limits;
use crate::observe::metrics::{Counter, Histogram};
use crate::world::buggify::{Mutation, mutated};
use crate::world::{Disk, Env, File, OpenMode, lacks_files};

mod frame;
mod last;
mod lost;
mod notes;
mod recovery;

use frame::{HEADER_BYTES, Header, Piece};
pub(super) use last::LastSegment;
pub use lost::Lost;
pub(super) use notes::{Notes, read as read_notes};

/// Names a group of writes; grows by at least one from group to group and is never used again.
pub(super) type Position = u64;

/// Is called with the writes of all groups that are left, in order; `None` is a removal.
pub(super) type Replay<'r> = dyn FnMut(Position, &[u8], Option<&[u8]>) + 'r;

struct Segment {
    number: u64,
    /// The last position in it; its `first` minus one while it holds none.
    last: Position,
    bytes: u64,
}

/// The open journal.
pub(super) struct Journal {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Arc<dyn File>,
    /// From the oldest that is needed to the one that is written.
    segments: Vec<Segment>,
    /// Numbers of files that may be overwritten.
    spares: Vec<u64>,
    at: u64,
    /// Bytes of the notes that the segment that is written begins with.
    notes_bytes: u64,
    next: Position,
    /// Of the segment that is written.
    salt: u64,
    /// Why nothing is written any more.
    failed: Option<StorageError>,
    env: Env,
    planted: Planted,
    /// Where the number of the segment that is written is noted.
    last: Option<LastSegment>,
}

/// How a journal is opened.
pub(super) struct Opening<'o> {
    /// What the journal notes about the store files.
    pub notes: &'o Notes,
    pub planted: Planted,
    /// The record of the last segment, where there is one.
    pub last: Option<LastSegment>,
    /// Where to tell of what cannot be read; `None`: that is an error.
    pub lost: Option<&'o mut Vec<Lost>>,
}

impl Journal {
    /// Opens the journal in `dir` (made when missing), gives every group above what the notes say is settled to `each`
    /// in order, and starts a new segment. Blocks for as long as reading the journal takes.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when something that was acknowledged cannot be read any more.
    pub(super) fn open(
        env: &Env,
        dir: &Path,
        opening: Opening<'_>,
        each: &mut Replay<'_>,
    ) -> Result<Journal, StorageError> {
        let Opening { notes, planted, mut last, lost } = opening;
        let disk = env.disk();
        disk.create_dir_all(dir)?;
        let found = recovery::read(disk.as_ref(), dir, (notes.settled, planted, last.as_ref()), lost, each)?;
        for (number, position) in &found.torn_at {
            let what = "what stood behind it a crash cut off before it was acknowledged, or it is damaged and lost";
            tracing::warn!("journal segment {number:016x} ends torn behind position {position}: {what}");
        }
        let number = found.next_number;
        let salt = env.random_u64();
        let header = Header { number, previous: found.end, first: found.next, salt };
        let file = disk.open(&path_of(dir, number), OpenMode::CreateNew)?;
        disk.sync_dir(dir)?;
        begin(file.as_ref(), header)?;
        if let Some(last) = &mut last {
            last.note(number)?;
        }
        let mut segments = found.segments;
        segments.push(Segment { number, last: found.next - 1, bytes: HEADER_BYTES as u64 });
        let mut journal = Journal {
            disk,
            dir: dir.to_path_buf(),
            file,
            segments,
            spares: found.spares,
            at: HEADER_BYTES as u64,
            notes_bytes: 0,
            next: found.next,
            salt,
            failed: None,
            env: env.clone(),
            planted,
            last,
        };
        journal.append(&notes.batch())?;
        journal.notes_bytes = journal.at - HEADER_BYTES as u64;
        Ok(journal)
    }

    /// Writes `batch` as one frame and syncs it; answers its position.
    pub(super) fn append(&mut self, batch: &Batch) -> Result<Position, StorageError> {
        self.change(|journal| journal.write_group(batch))
    }

    /// Changes the journal unless an earlier change failed: what that one wrote may be there or not, so that a frame or
    /// a segment behind it could contradict it. Flushes go on for a while after a commit has failed.
    fn change<T>(&mut self, change: impl FnOnce(&mut Journal) -> Result<T, StorageError>) -> Result<T, StorageError> {
        self.check()?;
        // Whatever it was, something may have been written.
        let done = change(self).map_err(StorageError::begun);
        self.failed = done.as_ref().err().cloned();
        done
    }

    fn check(&self) -> Result<(), StorageError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    fn write_group(&mut self, batch: &Batch) -> Result<Position, StorageError> {
        let position = self.next;
        let mut frame = frame::encode(self.salt, position, batch);
        let bytes: u64 = frame.iter().map(|piece| piece.bytes().len() as u64).sum();
        // Invariant: the last piece is made here, and the only one of most frames: they are one write.
        let Some(Piece::Made(last)) = frame.last_mut() else { unreachable!("a frame without an end") };
        last.extend(frame::end_mark(self.salt, position));
        let mut at = self.at;
        for piece in &frame {
            self.file.write_at(at, piece.bytes())?;
            at += piece.bytes().len() as u64;
        }
        let begun = self.env.now();
        if !self.planted.has(Bug::SkipFsync) {
            self.file.sync()?;
        }
        let metrics = self.env.metrics();
        metrics.record(Histogram::SyncTime, self.env.now().since(begun).as_secs_f64() * 1e6);
        metrics.add(Counter::JournalBytes, bytes);
        self.at += bytes;
        self.next += 1;
        let at = self.at;
        if let Some(open) = self.segments.last_mut() {
            assert!(open.last < position, "positions grow");
            open.last = position;
            open.bytes = at;
        }
        Ok(position)
    }

    /// Goes on in a fresh segment that begins with `notes`, and releases the segments that they make superfluous.
    ///
    /// # Errors
    /// [`StorageError::NoFiles`]: it goes on in the old one as before, and this may be tried again. After any other
    /// error it takes nothing more.
    pub(super) fn rotate(&mut self, notes: &Notes) -> Result<(), StorageError> {
        self.check()?;
        let number = self.segments.last().map_or(1, |s| s.number + 1);
        match self.fresh_file(number) {
            Err(error @ StorageError::NoFiles(_)) => Err(error),
            file => self.change(|journal| journal.begin_segment(number, file?, notes)),
        }
    }

    /// The file of the next segment, under its name durably and with nothing of that segment in it: a restart takes it
    /// for a spare, or for a new file, however long groups go to the segment before it.
    fn fresh_file(&mut self, number: u64) -> Result<Arc<dyn File>, StorageError> {
        let path = path_of(&self.dir, number);
        let file = match self.spares.last_mut() {
            Some(spare) => {
                // It has its new name where an attempt got no further.
                if *spare != number {
                    self.disk.rename(&path_of(&self.dir, *spare), &path)?;
                    *spare = number;
                }
                self.disk.open(&path, OpenMode::Write)?
            }
            None => {
                let file = self.disk.open(&path, OpenMode::CreateNew)?;
                self.spares.push(number);
                file
            }
        };
        let synced = self.disk.sync_dir(&self.dir);
        if !mutated(Mutation::FailedDirSyncTrusted) {
            synced?;
        }
        self.spares.pop();
        Ok(file)
    }

    fn begin_segment(&mut self, number: u64, file: Arc<dyn File>, notes: &Notes) -> Result<(), StorageError> {
        let salt = self.env.random_u64();
        let header = Header { number, previous: self.next - 1, first: self.next, salt };
        begin(file.as_ref(), header)?;
        if let Some(last) = &mut self.last {
            last.note(number)?;
        }
        self.salt = salt;
        self.segments.push(Segment { number, last: self.next - 1, bytes: HEADER_BYTES as u64 });
        self.file = file;
        (self.at, self.notes_bytes) = (HEADER_BYTES as u64, 0);
        self.write_group(&notes.batch())?;
        self.notes_bytes = self.at - HEADER_BYTES as u64;
        Ok(self.release(notes.settled)?)
    }

    /// Gives up the segments that hold nothing above `settled`. That position must be noted durably: a restart takes a
    /// segment that is missing above it for damage.
    fn release(&mut self, settled: Position) -> io::Result<()> {
        let open = self.segments.len() - 1;
        let keep = self.segments[..open].iter().position(|s| s.last > settled).unwrap_or(open);
        for segment in self.segments.drain(..keep) {
            if self.spares.len() >= limits::JOURNAL_SPARE_SEGMENTS {
                match self.disk.remove(&path_of(&self.dir, segment.number)) {
                    // One spare too many does no harm.
                    Err(error) if lacks_files(&error) => {}
                    removed => {
                        removed?;
                        continue;
                    }
                }
            }
            self.spares.push(segment.number);
        }
        if self.planted.has(Bug::DropSegmentEarly) {
            // Else the file would stay readable until it is written again, and the bug without effect.
            self.spares.drain(..).try_for_each(|spare| self.disk.remove(&path_of(&self.dir, spare)))?;
        }
        Ok(())
    }

    /// Whether a segment could be released once everything up to `settled` is durable elsewhere.
    pub(super) fn can_release(&self, settled: Position) -> bool {
        self.segments.len() > 1 && self.segments[0].last <= settled
    }

    /// How many segments are needed.
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The last position given out.
    pub(super) fn end(&self) -> Position {
        self.next - 1
    }

    /// Bytes of the segment that is written, but for its notes: those of many files would fill a small one.
    pub(super) fn open_bytes(&self) -> u64 {
        self.at - self.notes_bytes
    }

    /// Bytes of the segments behind the one that is written: what waits for flushes.
    pub(super) fn closed_bytes(&self) -> u64 {
        let closed = &self.segments[..self.segments.len() - 1];
        closed.iter().map(|s| s.bytes).sum()
    }

    /// Bytes of all segments that are needed.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.bytes).sum()
    }
}

/// Makes a segment's header durable before anything is written behind it; its name is.
fn begin(file: &dyn File, header: Header) -> Result<(), StorageError> {
    let end = frame::end_mark(header.salt, header.previous);
    file.write_at(0, &[header.encode().as_slice(), &end].concat())?;
    file.sync()?;
    Ok(())
}

fn path_of(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:016x}.log"))
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
pub(super) use fuzz_tests::fuzz_recovery;
#[cfg(test)]
mod tests;
