//! The second engine: sled 0.34, over the operating system's files and not over the `Disk` seam.
//!
//! sled has neither snapshots nor a flush that reaches the drive. Both are made here. Before a change, the old values
//! of what it touches are kept under the number of the state that they belong to, for as long as views of that state or
//! an older one are open: a view reads sled first and then lets the kept values correct it. After a change, sled is
//! asked to write, and then each of its files and their directory are synced through descriptors of our own, before the
//! change counts as durable. One writer at a time; sled's own threads never write on their own account.
//!
//! Each value is followed by a checksum of it and its key: what sled hands out is what was written under that key, or
//! damage. sled takes damage in its log for the end of the log and goes back in time, or loses rows as a whole: beside
//! its files stands what they were last synced with (`sled_seal.rs`), against which all that it recovers is held when
//! it is opened. That reads every row once.

use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use super::kv::{Direction, KeyRange, Rows, StorageError, StoreFile, View, Visit};
use super::overlay::{Overlay, bounds};
use super::reserved;
use super::sled_seal::{Seal, Sum};
use super::store_files::position_of;
use crate::limits;
use crate::world::sync::Mutex;
use crate::world::{Disk, OpenMode, RealDir, lock, waiting};

type Old = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The tree with checksums; sled's first tree has what an older settee wrote without.
const TREE: &str = "1";
const CRC_BYTES: usize = 4;
/// The extension of the file with the seal.
const SEAL: &str = "seal";

/// See the module head.
pub struct SledStore {
    db: sled::Db,
    tree: sled::Tree,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    seal: PathBuf,
    /// What is in the tree; held by the one who changes it.
    writing: Mutex<Seal>,
    states: Arc<States>,
    /// Dropped last: fields go in this order.
    _guard: Box<dyn Send + Sync>,
}

/// What views need of states that have passed.
#[derive(Default)]
struct States {
    /// What the change of each state into the next one replaced.
    kept: RwLock<BTreeMap<u64, Arc<Old>>>,
    views: Mutex<Views>,
}

#[derive(Default)]
struct Views {
    now: u64,
    /// The states of open views, and how many there are of each.
    open: BTreeMap<u64, usize>,
}

fn engine(error: sled::Error) -> StorageError {
    match error {
        sled::Error::Corruption { .. } => StorageError::Corrupt(error.to_string()),
        other => StorageError::Io(other.to_string()),
    }
}

/// Runs a call of sled, which panics over some damage that it does not look for.
fn guarded<T>(call: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
    caught(call).unwrap_or_else(|_| Err(senseless()))
}

fn caught<T>(call: impl FnOnce() -> T) -> Result<T, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(call))
}

fn senseless() -> StorageError {
    StorageError::Corrupt("sled cannot make sense of its files".into())
}

/// Whether a panic of sled says that it walked a tree up and down a million times without getting anywhere.
fn has_lost_its_way(panic: &(dyn Any + Send)) -> bool {
    let text = panic.downcast_ref::<String>().map_or("", String::as_str);
    ["tree traversal", "cannot find pid"].iter().any(|part| text.contains(part))
}

impl SledStore {
    /// Opens what sled keeps in `dir`, making it when it is missing. `cache_bytes` bounds sled's page cache. Blocks.
    ///
    /// # Errors
    /// Also where `disk` has no directories of the operating system: sled would go past it.
    pub fn open(disk: Arc<dyn Disk>, dir: PathBuf, cache_bytes: usize) -> Result<SledStore, StorageError> {
        let real = disk.real_dir(&dir)?;
        let real = real.ok_or_else(|| StorageError::Io("sled needs files of the operating system".into()))?;
        guarded(|| SledStore::open_at(disk, real, dir.with_extension(SEAL), cache_bytes))
    }

    fn open_at(
        disk: Arc<dyn Disk>,
        real: RealDir,
        seal: PathBuf,
        cache_bytes: usize,
    ) -> Result<SledStore, StorageError> {
        let RealDir { path: dir, guard } = real;
        let config = sled::Config::new().path(&dir).cache_capacity(cache_bytes as u64).flush_every_ms(None);
        let db = open_db(&config)?;
        let tree = db.open_tree(TREE).map_err(engine)?;
        let (writing, states) = (Mutex::default(), Arc::default());
        let store = SledStore { db, tree, disk, dir, seal, writing, states, _guard: guard };
        store.take_over()?;
        let found = store.found()?;
        found.check(store.disk.as_ref(), &store.seal)?;
        *lock(&store.writing) = found;
        store.sync()?;
        // From here on it is told what is lost of that, also before the next write.
        found.write(store.disk.as_ref(), &store.seal)?;
        if let Some(parent) = store.seal.parent() {
            store.disk.sync_dir(parent)?;
        }
        Ok(store)
    }

    /// What is in the tree, by reading all of it.
    fn found(&self) -> Result<Seal, StorageError> {
        let mut sum = Sum::default();
        for row in self.tree.iter() {
            let (_, stored) = row.map_err(engine)?;
            sum = sum.plus(sum_of(&stored)?);
        }
        Ok(Seal { position: position_of(self.snapshot()?.as_ref())?, sum: Some(sum) })
    }

    /// Gives checksums to what an older settee wrote. A crash on the way begins it again: nothing is written before.
    fn take_over(&self) -> Result<(), StorageError> {
        for row in self.db.iter() {
            let (key, value) = row.map_err(engine)?;
            self.tree.insert(&key, sealed(&key, &value)).map_err(engine)?;
        }
        if !self.db.is_empty() {
            self.sync()?;
            self.db.clear().map_err(engine)?;
        }
        Ok(())
    }

    /// Makes what sled has written durable: its own flush does not reach the drive.
    fn sync(&self) -> Result<(), StorageError> {
        self.db.flush().map_err(engine)?;
        sync_below(self.disk.as_ref(), &self.dir)
    }

    /// See [`StoreFile::apply`].
    fn write(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError> {
        let mut written = lock(&self.writing);
        let before = *written;
        let (mut position, mut sum) = (before.position, before.sum.unwrap_or_default());
        let mut batch = sled::Batch::default();
        let mut touched = BTreeSet::new();
        for range in cleared {
            for key in self.tree.range::<&[u8], _>(bounds(range)).keys() {
                let key = key.map_err(engine)?;
                batch.remove(&*key);
                touched.insert(key.to_vec());
            }
        }
        for (key, value) in rows {
            if key == reserved::POSITION_KEY {
                position = value.map_or(Ok(0), reserved::number)?;
            }
            match value {
                Some(value) => {
                    let stored = sealed(key, value);
                    sum = sum.plus(sum_of(&stored)?);
                    batch.insert(key, stored);
                }
                None => batch.remove(key),
            }
            touched.insert(key.to_vec());
        }
        let (old, gone) = self.old_values(touched)?;
        let seal = Seal { position, sum: Some(sum.minus(gone)) };
        if position == before.position {
            // Nothing else would tell the rows before this change from those after it.
            Seal { position, sum: None }.write(self.disk.as_ref(), &self.seal)?;
        }
        let state = lock(&self.states.views).now;
        // Before sled changes: the one that reads the new value finds the old one here.
        self.states.kept_mut().insert(state, Arc::new(old));
        self.tree.apply_batch(batch).map_err(engine)?;
        *written = seal;
        let synced = self.sync().and_then(|()| seal.write(self.disk.as_ref(), &self.seal));
        lock(&self.states.views).now = state + 1;
        self.states.forget();
        synced
    }

    /// A view of what is committed.
    fn now(&self) -> SledView {
        let mut views = lock(&self.states.views);
        let state = views.now;
        *views.open.entry(state).or_default() += 1;
        let (tree, states) = (self.tree.clone(), Arc::clone(&self.states));
        SledView { tree, state, states, lost: Cell::new(0) }
    }

    /// The values that `keys` have now, and the sum of those rows.
    fn old_values(&self, keys: BTreeSet<Vec<u8>>) -> Result<(Old, Sum), StorageError> {
        let (mut old, mut sum) = (Old::new(), Sum::default());
        for key in keys {
            let stored = self.tree.get(&key).map_err(engine)?;
            let value = stored.as_ref().map(|stored| unsealed(&key, stored).map(<[u8]>::to_vec)).transpose()?;
            if let Some(stored) = stored {
                sum = sum.plus(sum_of(&stored)?);
            }
            old.insert(key, value);
        }
        Ok((old, sum))
    }
}

/// sled's threads hold its lock for a moment after the last handle has gone: an earlier one of this process may be on
/// its way out. Another process has none, since the node's own lock is on the directory.
fn open_db(config: &sled::Config) -> Result<sled::Db, StorageError> {
    for _ in 0..limits::SLED_LOCK_ATTEMPTS {
        match config.open() {
            Err(sled::Error::Io(error)) if error.to_string().contains("could not acquire lock") => {}
            opened => return opened.map_err(engine),
        }
    }
    config.open().map_err(engine)
}

fn checksum(key: &[u8], value: &[u8]) -> [u8; CRC_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&(key.len() as u64).to_le_bytes());
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

/// A value as sled gets it.
fn sealed(key: &[u8], value: &[u8]) -> Vec<u8> {
    [value, &checksum(key, value)].concat()
}

/// The sum of a row, by the checksum that it carries.
fn sum_of(stored: &[u8]) -> Result<Sum, StorageError> {
    let crc = stored.last_chunk().ok_or_else(|| StorageError::Corrupt("sled: a value without its checksum".into()))?;
    Ok(Sum::of(*crc))
}

/// The value of a row of sled.
fn unsealed<'s>(key: &[u8], stored: &'s [u8]) -> Result<&'s [u8], StorageError> {
    let whole = stored.split_last_chunk().filter(|(value, crc)| **crc == checksum(key, value));
    whole.map(|(value, _)| value).ok_or_else(|| StorageError::Corrupt("sled: a value does not fit its checksum".into()))
}

/// Syncs every file below a directory, then the directory.
fn sync_below(disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
    for entry in disk.list(dir)? {
        let path = dir.join(&entry.name);
        if entry.is_dir {
            sync_below(disk, &path)?;
        } else {
            match disk.open(&path, OpenMode::Read) {
                Ok(file) => file.sync()?,
                // sled removes old snapshots and large values from a thread of its own.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(disk.sync_dir(dir)?)
}

impl StoreFile for SledStore {
    fn snapshot(&self) -> Result<Box<dyn View>, StorageError> {
        Ok(Box::new(self.now()))
    }

    fn apply(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError> {
        guarded(|| self.write(cleared, rows))
    }

    fn disk_bytes(&self) -> u64 {
        self.db.size_on_disk().unwrap_or(0)
    }
}

impl States {
    fn kept_mut(&self) -> std::sync::RwLockWriteGuard<'_, BTreeMap<u64, Arc<Old>>> {
        self.kept.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets go what no open view can ask for.
    fn forget(&self) {
        let oldest = {
            let views = lock(&self.views);
            views.open.keys().next().copied().unwrap_or(views.now)
        };
        self.kept_mut().retain(|state, _| *state >= oldest);
    }

    /// What changes since `state` replaced, the latest first.
    fn since(&self, state: u64) -> Vec<Arc<Old>> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        kept.range(state..).rev().map(|(_, old)| Arc::clone(old)).collect()
    }
}

struct SledView {
    tree: sled::Tree,
    state: u64,
    states: Arc<States>,
    /// How many reads have lost their way in a damaged tree, each after seconds.
    lost: Cell<usize>,
}

impl Drop for SledView {
    fn drop(&mut self) {
        let mut views = lock(&self.states.views);
        if let Some(open) = views.open.get_mut(&self.state) {
            *open -= 1;
            if *open == 0 {
                views.open.remove(&self.state);
            }
        }
    }
}

/// Rows that were read from sled, for the kept values to lie upon.
struct Chunk(Vec<Row>);

impl View for Chunk {
    fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }

    fn scan(&self, _range: &KeyRange, _direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        for (key, stored) in &self.0 {
            if visit(key, unsealed(key, stored)?).is_break() {
                break;
            }
        }
        Ok(())
    }
}

type Row = (sled::IVec, sled::IVec);

/// What a scan has read at once.
struct Part {
    rows: Chunk,
    /// What of the range `rows` are all rows of.
    covered: KeyRange,
    /// What lies behind them, or why it cannot be read; `None`: nothing.
    behind: Option<Result<KeyRange, StorageError>>,
}

impl SledView {
    /// Reads from sled. A view in which that has lost its way often enough refuses what is left.
    fn read<T>(&self, call: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
        if self.lost.get() >= limits::SLED_LOST_READS {
            return Err(senseless());
        }
        caught(call).unwrap_or_else(|panic| {
            self.lost.set(self.lost.get() + usize::from(has_lost_its_way(panic.as_ref())));
            Err(senseless())
        })
    }

    /// The next rows of a range in scan order, at most `limits::SLED_CHUNK_ROWS`, and why there are not more.
    fn rows(&self, range: &KeyRange, direction: Direction) -> (Vec<Row>, Result<(), StorageError>) {
        let mut rows = Vec::new();
        let read = self.read(|| {
            let mut iter = self.tree.range::<&[u8], _>(bounds(range));
            while rows.len() < limits::SLED_CHUNK_ROWS {
                let row = match direction {
                    Direction::Forward => iter.next(),
                    Direction::Reverse => iter.next_back(),
                };
                match row {
                    Some(row) => rows.push(row.map_err(engine)?),
                    None => break,
                }
            }
            Ok(())
        });
        (rows, read)
    }

    /// The next part of a range in scan order.
    ///
    /// # Errors
    /// Why not even its first row can be read.
    fn part(&self, range: &KeyRange, direction: Direction) -> Result<Part, StorageError> {
        let (rows, read) = self.rows(range, direction);
        let last = match rows.last() {
            Some((key, _)) if read.is_err() || rows.len() == limits::SLED_CHUNK_ROWS => key.to_vec(),
            _ => return read.map(|()| Part { rows: Chunk(rows), covered: range.clone(), behind: None }),
        };
        let (covered, rest) = match direction {
            Direction::Forward => {
                let behind = [last.as_slice(), &[0]].concat();
                let covered = KeyRange { start: range.start.clone(), end: Some(behind.clone()) };
                (covered, KeyRange { start: behind, end: range.end.clone() })
            }
            Direction::Reverse => {
                let covered = KeyRange { start: last.clone(), end: range.end.clone() };
                (covered, KeyRange { start: range.start.clone(), end: Some(last) })
            }
        };
        Ok(Part { rows: Chunk(rows), covered, behind: Some(read.map(|()| rest)) })
    }
}

impl View for SledView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let now = waiting(|| self.read(|| self.tree.get(key).map_err(engine)))?;
        // The oldest change counts: it replaced what this view's state had.
        let kept = self.states.since(self.state).into_iter().rev().find_map(|old| old.get(key).cloned());
        match (kept, now) {
            (Some(kept), _) => Ok(kept),
            (None, now) => now.map(|stored| unsealed(key, &stored).map(<[u8]>::to_vec)).transpose(),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let mut rest = Some(range.clone()).filter(|range| !range.is_empty());
        while let Some(range) = rest.take() {
            let Part { rows, covered, behind } = waiting(|| self.part(&range, direction))?;
            let mut stopped = false;
            let mut one = |key: &[u8], value: &[u8]| {
                let flow = visit(key, value);
                stopped = flow.is_break();
                flow
            };
            corrected(&rows, &self.states.since(self.state), &covered, direction, &mut one)?;
            rest = behind.filter(|_| !stopped).transpose()?.filter(|range| !range.is_empty());
        }
        Ok(())
    }
}

/// Scans `base` with the values of `kept` on top, the last of them topmost.
fn corrected(
    base: &dyn View,
    kept: &[Arc<Old>],
    range: &KeyRange,
    direction: Direction,
    visit: &mut Visit<'_>,
) -> Result<(), StorageError> {
    match kept.split_first() {
        None => base.scan(range, direction, visit),
        Some((latest, older)) => corrected(&Overlay { base, top: latest.as_ref() }, older, range, direction, visit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn try_open(dir: &Path) -> Result<SledStore, StorageError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        SledStore::open(disk, dir.to_path_buf(), 1 << 20)
    }

    fn open(dir: &Path) -> SledStore {
        try_open(dir).unwrap()
    }

    #[test]
    fn sled_that_went_back_in_time_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (files, seal) = (dir.path().join("sled"), dir.path().join("sled.seal"));
        let at = |store: &SledStore, position: u64| {
            let value = position.to_be_bytes();
            store.apply(&[], Box::new([(reserved::POSITION_KEY, Some(value.as_slice()))].into_iter()))
        };
        at(&open(&files), 5).unwrap();
        let sealed = std::fs::read(&seal).unwrap();
        at(&open(&files), 7).unwrap();
        let ahead = std::fs::read(&seal).unwrap();
        // A crash between sled's sync and that of the position.
        std::fs::write(&seal, &sealed).unwrap();
        at(&open(&files), 6).unwrap();
        std::fs::write(&seal, &ahead).unwrap();
        let refused = |opened: Result<SledStore, StorageError>| matches!(opened, Err(StorageError::Corrupt(_)));
        assert!(refused(try_open(&files)));
        for place in [0, 11] {
            let mut damaged = sealed.clone();
            damaged[place] ^= 1;
            std::fs::write(&seal, damaged).unwrap();
            assert!(refused(try_open(&files)));
        }
        std::fs::write(&seal, &sealed[..4]).unwrap();
        assert!(refused(try_open(&files)));
        std::fs::write(&seal, "").unwrap();
        open(&files);
        // Of before there were sums.
        let old = [6_u64.to_le_bytes().as_slice(), &crc32fast::hash(&6_u64.to_le_bytes()).to_le_bytes()].concat();
        std::fs::write(&seal, old).unwrap();
        open(&files);
    }

    /// A database goes, and the node dies before the seal says so.
    #[test]
    fn a_crash_while_rows_go_that_no_position_tells_of_is_no_damage() {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("sled");
        let position = 1_u64.to_be_bytes();
        let rows = [(b"k".as_slice(), Some(b"v".as_slice())), (reserved::POSITION_KEY, Some(position.as_slice()))];
        open(&files).apply(&[], Box::new(rows.into_iter())).unwrap();
        let store = open(&files);
        let seal = store.seal.clone();
        let begun = Seal { position: 1, sum: None };
        begun.write(store.disk.as_ref(), &seal).unwrap();
        drop(store);
        let store = open(&files);
        store.apply(&[KeyRange::prefix(b"k")], Box::new(std::iter::empty())).unwrap();
        let done = std::fs::read(&seal).unwrap();
        begun.write(store.disk.as_ref(), &seal).unwrap();
        drop(store);
        drop(open(&files));
        std::fs::write(&seal, done).unwrap();
        assert_eq!(open(&files).snapshot().unwrap().get(b"k"), Ok(None));
    }

    #[test]
    fn rows_that_sled_lost_are_missed_when_it_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let files = dir.path().join("sled");
        let put = |store: &SledStore, position: u64, key: &[u8], value: Option<&[u8]>| {
            let position = position.to_be_bytes();
            let rows = [(key, value), (reserved::POSITION_KEY, Some(position.as_slice()))];
            store.apply(&[], Box::new(rows.into_iter())).unwrap();
        };
        put(&open(&files), 1, b"k", Some(b"old"));
        put(&open(&files), 2, b"gone", Some(b"too"));
        put(&open(&files), 3, b"k", Some(b"value"));
        put(&open(&files), 4, b"gone", None);
        let store = open(&files);
        let lost = store.tree.remove(b"k").unwrap().unwrap();
        store.sync().unwrap();
        drop(store);
        let refused = try_open(&files).err();
        assert!(matches!(refused, Some(StorageError::Corrupt(_))), "{refused:?}");

        let seal = std::fs::read(dir.path().join("sled.seal")).unwrap();
        std::fs::write(dir.path().join("sled.seal"), "").unwrap();
        let store = open(&files);
        store.tree.insert(b"k", lost).unwrap();
        store.sync().unwrap();
        drop(store);
        std::fs::write(dir.path().join("sled.seal"), seal).unwrap();
        assert_eq!(open(&files).snapshot().unwrap().get(b"k"), Ok(Some(b"value".to_vec())));
    }

    /// A crash left sled ahead of its seal: what is lost after the start is missed all the same.
    #[test]
    fn rows_that_sled_lost_after_a_start_without_a_write_are_missed() {
        let dir = tempfile::tempdir().unwrap();
        let (files, seal) = (dir.path().join("sled"), dir.path().join("sled.seal"));
        let position = 1_u64.to_be_bytes();
        let rows = [(b"k".as_slice(), Some(b"v".as_slice())), (reserved::POSITION_KEY, Some(position.as_slice()))];
        open(&files).apply(&[], Box::new(rows.into_iter())).unwrap();
        let store = open(&files);
        Seal { position: 1, sum: None }.write(store.disk.as_ref(), &seal).unwrap();
        drop(store);
        drop(open(&files));
        let store = open(&files);
        store.tree.remove(b"k").unwrap().unwrap();
        store.sync().unwrap();
        drop(store);
        let refused = try_open(&files).err();
        assert!(matches!(refused, Some(StorageError::Corrupt(_))), "{refused:?}");
    }

    #[test]
    fn a_value_that_sled_changed_or_moved_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("sled"));
        let rows: [(&[u8], Option<&[u8]>); 2] = [(b"k", Some(b"value")), (b"l", Some(b""))];
        store.apply(&[], Box::new(rows.into_iter())).unwrap();
        let mut stored = store.tree.get(b"k").unwrap().unwrap().to_vec();
        store.tree.insert(b"j", stored.as_slice()).unwrap();
        stored[0] ^= 1;
        store.tree.insert(b"k", stored).unwrap();
        let view = store.snapshot().unwrap();
        assert_eq!(view.get(b"l"), Ok(Some(Vec::new())));
        for key in [b"j", b"k"] {
            assert!(matches!(view.get(key), Err(StorageError::Corrupt(_))));
        }
        let scanned = view.first(&KeyRange::prefix(b""), Direction::Forward);
        assert!(matches!(scanned, Err(StorageError::Corrupt(_))), "{scanned:?}");
    }

    #[test]
    fn a_view_in_which_sled_loses_its_way_again_and_again_refuses_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("sled"));
        store.apply(&[], Box::new([(b"k".as_slice(), Some(b"value".as_slice()))].into_iter())).unwrap();
        let view = store.now();
        let fail = |text: &str| view.read::<()>(|| panic!("{text}{}", 5));
        for _ in 0..limits::SLED_LOST_READS {
            assert!(fail("another fault").is_err());
            assert!(view.get(b"k").is_ok());
            assert!(fail("cannot find pid ").is_err());
        }
        assert!(matches!(view.get(b"k"), Err(StorageError::Corrupt(_))));
        assert!(matches!(view.first(&KeyRange::prefix(b""), Direction::Forward), Err(StorageError::Corrupt(_))));
        assert_eq!(store.now().get(b"k"), Ok(Some(b"value".to_vec())));
    }

    #[test]
    fn what_was_written_without_checksums_gets_them() {
        let dir = tempfile::tempdir().unwrap();
        let old = sled::open(dir.path().join("sled")).unwrap();
        old.insert(b"k", b"value").unwrap();
        drop(old);
        for _ in 0..2 {
            let store = open(&dir.path().join("sled"));
            assert_eq!(store.snapshot().unwrap().get(b"k"), Ok(Some(b"value".to_vec())));
            assert!(store.db.is_empty());
        }
    }
}
