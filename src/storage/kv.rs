//! The ordered store's interface: keys and values are bytes, keys are ordered as bytes, batches are atomic and durable.
//!
//! Engines implement [`StoreFile`] and pass `suite_tests.rs`; each is a [`Store`], too. All calls block: make them
//! inside `Env::blocking`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::{ControlFlow, Deref};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::journal::Lost;
use super::reserved;
use crate::world::lacks_files;

/// An ordered map of bytes on disk.
pub trait Store: Send + Sync + 'static {
    /// A frozen picture of what is committed. It must live for one bounded step only: engines keep the old pages of an
    /// open view, so that a forgotten one lets the file grow without bound.
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError>;
    /// The view on which the one writer builds: of all that was committed, whatever bug is planted in those of readers.
    fn writer_view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.view()
    }
    /// Applies all of `batch` or nothing; on return it is durable. After an error the outcome is unknown.
    fn commit(&self, batch: &Batch) -> Result<(), StorageError>;
    /// Makes ready for a commit, before what is to be committed is decided. [`StorageError::NoFiles`]: nothing was
    /// written, and nothing may be committed now; it may be tried again. Other errors the commit tells.
    fn prepare(&self) -> Result<(), StorageError> {
        Ok(())
    }
    /// Size of the store's files in bytes.
    fn file_bytes(&self) -> u64;
    /// Whether work behind earlier commits has failed, so that the next commit will.
    fn has_failed(&self) -> bool {
        false
    }
    /// Whether the store can take writes to `shard` (`None`: to any) without outgrowing its memory or its journal. Jobs
    /// of the committer wait meanwhile.
    fn has_room(&self, _shard: Option<u64>) -> bool {
        true
    }
    /// Why jobs that write to a shard are refused, and those of others are not: its own file is damaged, so that
    /// nothing can be flushed to it, and it has used up its room.
    fn refuses(&self, _shard: u64) -> Option<StorageError> {
        None
    }
    /// Changes whenever there may be room again.
    fn room(&self) -> Option<watch::Receiver<u64>> {
        None
    }
    /// The number of the last commit, for [`Store::shrink`].
    fn position(&self) -> u64 {
        0
    }
    /// Makes the file of a shard smaller when much of it is free; see [`StoreFile::shrink`]. `Busy` also while commits
    /// up to `position` are not in the file: it asks for their flush.
    fn shrink(&self, _shard: u64, _position: u64) -> Result<Shrunk, StorageError> {
        Ok(Shrunk::NotDue)
    }
    /// As [`Store::view`], of what is not in any store file yet alone: all that is left of shards whose file cannot
    /// even be opened.
    fn unflushed_view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.view()
    }
    /// The shards whose own store files were found damaged, each with what was found first.
    fn damaged_shards(&self) -> BTreeMap<u64, String> {
        BTreeMap::new()
    }
    /// What could not be read when it was opened to take over what is whole.
    fn lost(&self) -> Vec<Lost> {
        Vec::new()
    }
    /// Bytes that the page caches of open store files may take, and how many files are open.
    fn open_store_files(&self) -> (u64, u64) {
        (0, 0)
    }
    /// Changes when there is another such shard.
    fn damage_news(&self) -> Option<watch::Receiver<u64>> {
        None
    }
    /// Puts the own file of a shard away, with a text beside it, and forgets what was to be written to it; the shard is
    /// to be cleared next. Answers the name that the file has then, `None` when there is no such file. Fails while the
    /// file is being written.
    fn quarantine(&self, _shard: u64, _told: &str) -> Result<Option<String>, StorageError> {
        Ok(None)
    }
    /// Shards with the same number may wait for the same disk.
    fn read_permit(&self, _shard: u64) -> usize {
        0
    }
}

/// A file, or whatever an engine keeps, that holds an ordered map of bytes.
pub trait StoreFile: Send + Sync + 'static {
    /// A frozen picture of what is in it, for one bounded step: see [`Store::view`].
    fn snapshot(&self) -> Result<Box<dyn View>, StorageError>;
    /// Removes all keys of `cleared`, then applies `rows`, which come in key order: all or nothing. On return it is
    /// durable; after an error the outcome is unknown.
    fn apply(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError>;
    /// Its size in bytes.
    fn disk_bytes(&self) -> u64;
    /// How often what all else in it hangs on was written, durably: it grows with each [`StoreFile::apply`], as long
    /// as the file is the same one. 0: it does not tell.
    fn root_writes(&self) -> u64 {
        0
    }
    /// Gives free space back to the file system, in place, when more than half of the file is free. `Busy`, and nothing
    /// done, while a view is open; a reader that wants one waits until it ends. A crash leaves what was committed.
    fn shrink(&self) -> Result<Shrunk, StorageError> {
        Ok(Shrunk::NotDue)
    }
}

/// What came of the wish to make a file smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrunk {
    /// Not tried: too little of the file is free, or its engine cannot.
    NotDue,
    /// Not tried: the file is in use right now.
    Busy,
    /// It has so many bytes fewer.
    By(u64),
}

impl<E: StoreFile> Store for E {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.snapshot()
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        let cleared: Vec<KeyRange> = batch.cleared().map(reserved::range_of).collect();
        let rows = batch.writes().iter().filter(|(key, _)| reserved::cleared_shard(key).is_none());
        self.apply(&cleared, Box::new(rows.map(|(key, value)| (key.as_slice(), value.as_deref()))))
            .map_err(StorageError::begun)
    }

    fn file_bytes(&self) -> u64 {
        self.disk_bytes()
    }
}

/// Writes in key order; `None` is a removal.
pub type Rows<'r> = Box<dyn Iterator<Item = (&'r [u8], Option<&'r [u8]>)> + 'r>;

/// Something that can be read: a committed state, or a state with queued writes on top.
pub trait View {
    /// The value of `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError>;
    /// Calls `visit` with each key and value of `range` in `direction` until it breaks.
    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError>;
    /// The first row of `range` in `direction`: what a scan would begin with, at a lower price where layers lie upon
    /// each other.
    fn first(&self, range: &KeyRange, direction: Direction) -> Result<Option<Row>, StorageError> {
        let mut found = None;
        self.scan(range, direction, &mut |key, value| keep_first(&mut found, key, value))?;
        Ok(found)
    }
    /// The same picture of the keys of `range`, which outlives the step. `None`: the engine would have to keep in
    /// memory whatever is written meanwhile, or the view is no picture of what is committed.
    fn lasting(&self, _range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        Ok(None)
    }
}

/// A picture of some keys that stays as it is. While it lives the store file grows, because it cannot use the space
/// again of what was changed since, and is not closed or made smaller: its holder bounds how long.
pub struct LastingView {
    /// To be read within the keys that were asked for.
    pub view: Box<dyn View + Send + Sync>,
    /// Bytes of memory that it takes, about.
    pub bytes: usize,
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// Ends a scan with its first row.
pub(super) fn keep_first(found: &mut Option<Row>, key: &[u8], value: &[u8]) -> ControlFlow<()> {
    *found = Some((key.to_vec(), value.to_vec()));
    ControlFlow::Break(())
}

/// Is called with each key and value of a scan.
pub type Visit<'v> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'v;

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

impl Direction {
    /// Whether a scan meets `one` before `other`.
    pub fn meets_first(self, one: &[u8], other: &[u8]) -> bool {
        match self {
            Direction::Forward => one < other,
            Direction::Reverse => one > other,
        }
    }
}

/// Keys from `start` up to, not including, `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First key of the range.
    pub start: Vec<u8>,
    /// First key behind the range; `None` = to the last key.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// The keys from `start` up to, not including, `end`.
    pub fn new(start: Vec<u8>, end: Vec<u8>) -> Self {
        KeyRange { start, end: Some(end) }
    }

    /// All keys that begin with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        KeyRange { start: prefix.to_vec(), end: after_prefix(prefix) }
    }

    /// Whether `key` lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether no key can be in it.
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The least key above all keys that begin with `prefix`; `None` when there is none.
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let keep = prefix.iter().rposition(|b| *b != 0xff)?;
    let mut out = prefix[..=keep].to_vec();
    out[keep] += 1;
    Some(out)
}

/// A value on its way into the store. Read it as bytes.
#[derive(Clone)]
pub enum Written {
    /// Bytes of its own.
    Own(Vec<u8>),
    /// A part of something larger that is in memory anyway: it is written from there, and never copied.
    Shared(Bytes),
}

impl Deref for Written {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Written::Own(bytes) => bytes,
            Written::Shared(bytes) => bytes,
        }
    }
}

impl PartialEq for Written {
    fn eq(&self, other: &Written) -> bool {
        **self == **other
    }
}

impl Eq for Written {}

impl fmt::Debug for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// Writes that become visible and durable together; the last write to a key wins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    writes: BTreeMap<Vec<u8>, Option<Written>>,
    bytes: usize,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Batch::default()
    }

    /// Sets `key` to `value`.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.set(key, Some(Written::Own(value)));
    }

    /// As [`Batch::put`], of a value that stays where it is.
    pub fn put_shared(&mut self, key: Vec<u8>, value: Bytes) {
        self.set(key, Some(Written::Shared(value)));
    }

    /// Removes `key`; fine when it is missing.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.set(key, None);
    }

    pub(super) fn set(&mut self, key: Vec<u8>, value: Option<Written>) {
        self.bytes += key.len() + value.as_ref().map_or(0, |value| value.len());
        self.writes.insert(key, value);
    }

    /// Makes all that was written to a shard up to and with this batch void.
    pub(super) fn clear_shard(&mut self, shard: u64) {
        self.put(reserved::cleared_key(shard), Vec::new());
    }

    /// The shards of which nothing stays.
    pub(super) fn cleared(&self) -> impl Iterator<Item = u64> + '_ {
        // The marks are the only keys of the store's own that batches have.
        self.writes.range(reserved::lowest(reserved::SHARD)..).filter_map(|(key, _)| reserved::cleared_shard(key))
    }

    /// The writes in key order; `None` is a removal.
    pub fn writes(&self) -> &BTreeMap<Vec<u8>, Option<Written>> {
        &self.writes
    }

    /// Puts all writes of `later` on top.
    pub fn append(&mut self, later: Batch) {
        self.bytes += later.bytes;
        self.writes.extend(later.writes);
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Bytes written so far, overwritten ones included: an upper bound of its size.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// What can go wrong below the documents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageError {
    /// The disk or the engine failed; carries the message of the system.
    Io(String),
    /// Stored bytes are not what was written; carries what was found.
    Corrupt(String),
    /// Another node said so of its own; carries its words.
    CorruptThere(String),
    /// No more files can be open, of the process or of the system, so that one could not be opened; carries the message
    /// of the system. Only where nothing was written yet: see [`StorageError::begun`].
    NoFiles(String),
    /// The disk is nearly full: what adds data is refused, and has no effect.
    NoRoom,
}

/// How damage is told, from node to node, too.
const DAMAGED: &str = "damaged data: ";
/// The same of files that cannot be opened for now.
const NO_FILES: &str = "too many open files: ";

impl StorageError {
    /// Whether stored bytes are not what was written, here or, as it told, on another node.
    pub fn is_damage(&self) -> bool {
        match self {
            StorageError::Corrupt(_) | StorageError::CorruptThere(_) => true,
            StorageError::Io(_) | StorageError::NoFiles(_) | StorageError::NoRoom => false,
        }
    }

    /// What another node told: the text of an error of its storage, of whatever version it is.
    pub fn told(text: String) -> StorageError {
        match text.strip_prefix(NO_FILES) {
            _ if text.starts_with(DAMAGED) => StorageError::CorruptThere(text),
            Some(why) => StorageError::NoFiles(why.to_owned()),
            None => StorageError::Io(text),
        }
    }

    /// The error of something that had begun to write: whatever it was, nobody knows what reached the disk, and it must
    /// not be taken for one after which all is as before.
    #[must_use]
    pub fn begun(self) -> StorageError {
        match self {
            StorageError::NoFiles(text) => StorageError::Io(text),
            other => other,
        }
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StorageError::Io(text) => write!(f, "disk error: {text}"),
            StorageError::Corrupt(text) => write!(f, "{DAMAGED}{text}"),
            StorageError::CorruptThere(text) => f.write_str(text),
            StorageError::NoFiles(text) => write!(f, "{NO_FILES}{text}"),
            StorageError::NoRoom => f.write_str("the disk is nearly full"),
        }
    }
}

impl std::error::Error for StorageError {}

impl From<io::Error> for StorageError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            _ if lacks_files(&error) => StorageError::NoFiles(error.to_string()),
            // Bytes that do not fit their checksum, and a file that ends too early.
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => StorageError::Corrupt(error.to_string()),
            _ => StorageError::Io(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_damage_however_many_nodes_hand_it_on() {
        let mut error = StorageError::Corrupt("a disk error: no".to_owned());
        for _ in 0..2 {
            error = StorageError::told(error.to_string());
            assert!(error.is_damage() && matches!(error, StorageError::CorruptThere(_)));
        }
        let failed =
            StorageError::told(StorageError::Io("damaged data: of a file of that name".to_owned()).to_string());
        assert!(!failed.is_damage() && !StorageError::Io("damaged data: x".to_owned()).is_damage());
    }

    #[test]
    fn too_few_descriptors_are_told_apart_as_long_as_nothing_was_written() {
        let full = io::Error::from_raw_os_error(24);
        let found: StorageError = crate::world::reworded(&full, format!("some file: {full}")).into();
        assert!(matches!(&found, StorageError::NoFiles(text) if text.starts_with("some file")), "{found:?}");
        assert_eq!(StorageError::from(io::Error::from_raw_os_error(23)).to_string().find(NO_FILES), Some(0));
        assert_eq!(StorageError::told(found.to_string()), found);
        assert!(matches!(found.begun(), StorageError::Io(_)));
        assert!(matches!(StorageError::from(io::Error::from_raw_os_error(5)), StorageError::Io(_)));
    }

    #[test]
    fn the_end_of_a_prefix_range_skips_bytes_that_cannot_grow() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(b"a\xff\xff"), Some(b"b".to_vec()));
        assert_eq!(after_prefix(b"\xff"), None);
        assert_eq!(after_prefix(b""), None);
    }
}
