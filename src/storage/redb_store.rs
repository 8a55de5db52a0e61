//! The default engine: one redb file over the `Disk` seam.
//!
//! A new file is made under a temporary name, committed once, closed, renamed, and its directory synced: a redb file
//! that loses power while it is being created can never be opened again. Quick-repair is on, at the price of one more
//! sync per commit: without it a restart after a kill walks the whole file.
//!
//! Nothing damaged is served: blocks are checksummed below redb (`redb_file.rs`); a lookup or scan that would need what
//! is gone fails with [`StorageError::Corrupt`], all others go on.

use std::iter::Peekable;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use redb::{Builder, CompactionError, Database, ReadOnlyTable, ReadableDatabase, Table, TableDefinition};

use super::blocks::BLOCK_BYTES;
use super::kv::{Direction, KeyRange, LastingView, Rows, Shrunk, StorageError, StoreFile, View, Visit};
use super::overlay::bounds;
use super::planted::Planted;
use super::redb_file::{Pages, RedbFile};
use super::snapshot_cache::SnapshotCache;
use crate::limits;
use crate::world::Disk;
use crate::world::buggify::{buggify, sometimes};
use crate::world::sync::Mutex;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("0");
const TEMPORARY: &str = "new";

/// An open database.
struct Running {
    database: Database,
    replaced: Arc<AtomicBool>,
}

/// The table as it was committed at some time.
struct Reading {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
    _running: Arc<Running>,
}

/// See the module head.
pub struct RedbStore {
    /// `None` once the file is damaged where the engine cannot do without it.
    running: Mutex<Option<Arc<Running>>>,
    reading: SnapshotCache<Reading>,
    pages: Arc<Pages>,
    cache_bytes: usize,
    /// More than half of the file was found free, and nothing was written since.
    mostly_free: AtomicBool,
}

impl RedbStore {
    /// Opens the file at `path`, making it when it is missing. `cache_bytes` bounds the memory of redb's page cache.
    /// Blocks; after a kill it takes about a millisecond.
    pub fn open(disk: &dyn Disk, path: &Path, cache_bytes: usize, planted: Planted) -> Result<Self, StorageError> {
        if !disk.exists(path)? {
            RedbStore::create(disk, path, cache_bytes, &mut |_| Ok(()))?;
        }
        let pages = Pages::open(disk, path, planted)?;
        let store = RedbStore::over(pages, cache_bytes)?;
        store.pages.contain(true);
        Ok(store)
    }

    fn over(pages: Arc<Pages>, cache_bytes: usize) -> Result<Self, StorageError> {
        let running = Mutex::new(Some(Arc::new(start(&pages, cache_bytes)?)));
        let (reading, mostly_free) = (SnapshotCache::default(), AtomicBool::new(false));
        Ok(RedbStore { running, reading, pages, cache_bytes, mostly_free })
    }

    /// Makes the file at `path` with what `fill` puts into it. A crash leaves all of it or no file of that name.
    fn create(disk: &dyn Disk, path: &Path, cache_bytes: usize, fill: Fill<'_>) -> Result<(), StorageError> {
        RedbStore::create_named(disk, path, cache_bytes, fill)?;
        if let Some(parent) = path.parent() {
            disk.sync_dir(parent)?;
        }
        Ok(())
    }

    /// [`RedbStore::create`], but that a power loss may take the file until its directory is synced.
    pub(super) fn create_named(
        disk: &dyn Disk,
        path: &Path,
        cache_bytes: usize,
        fill: Fill<'_>,
    ) -> Result<(), StorageError> {
        let temporary = path.with_extension(TEMPORARY);
        if disk.exists(&temporary)? {
            disk.remove(&temporary)?;
        }
        let pages = Pages::create(disk, &temporary)?;
        let store = RedbStore::over(Arc::clone(&pages), cache_bytes)?;
        store.apply(&[], Box::new(std::iter::empty()))?;
        fill(&store)?;
        drop(store);
        pages.file().sync()?;
        Ok(disk.rename(&temporary, path)?)
    }

    fn running(&self) -> Result<Arc<Running>, StorageError> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).clone();
        running.ok_or_else(|| self.pages.damage())
    }

    /// Whether making the file smaller is worth its price; see the limits. Reads all that is live, while readers go on.
    fn is_mostly_free(&self, bytes: u64) -> Result<bool, StorageError> {
        let least = if buggify("shrink: a small file, too") { 0 } else { limits::SHRINK_FILE_MIN_BYTES };
        let size_fits = (least..=limits::SHRINK_FILE_MAX_BYTES).contains(&bytes);
        if self.pages.has_damage() || !size_fits {
            return Ok(false);
        }
        if self.mostly_free.load(Ordering::SeqCst) {
            return Ok(true);
        }
        let running = self.running()?;
        let live = guarded(&self.pages, || live_bytes(&running.database))?;
        if self.pages.has_damage() {
            return Err(self.pages.damage());
        }
        let free = live <= limits::SHRINK_LIVE_BYTES && live < bytes / 2;
        self.mostly_free.store(free, Ordering::SeqCst);
        Ok(free)
    }

    /// The engine gives up after a failed read: a fresh one serves what is whole, read only.
    fn start_again(&self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = running.take() {
            before.replaced.store(true, Ordering::SeqCst);
        }
        *running = start(&self.pages, self.cache_bytes).ok().map(Arc::new);
        drop(running);
        self.reading.let_go();
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // Closing writes, by records of free pages that may be damaged: the engine can panic over them.
        self.pages.contain(false);
        let _alone = self.reading.alone();
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        // A file that cannot be closed is looked through at the next start.
        let _ = guarded(&self.pages, || {
            drop(running);
            Ok(())
        });
    }
}

/// Puts the first rows into a new store.
pub(super) type Fill<'f> = &'f mut dyn FnMut(&dyn StoreFile) -> Result<(), StorageError>;

fn start(pages: &Arc<Pages>, cache_bytes: usize) -> Result<Running, StorageError> {
    let replaced = Arc::new(AtomicBool::new(false));
    let backend = RedbFile { pages: Arc::clone(pages), replaced: Arc::clone(&replaced) };
    let cached = cache_bytes / limits::CACHED_PAGE_COST_BYTES;
    let open = || Builder::new().set_cache_size(cached * BLOCK_BYTES).create_with_backend(backend).map_err(engine);
    Ok(Running { database: guarded(pages, open)?, replaced })
}

fn write(database: &Database, cleared: &[KeyRange], rows: Rows<'_>, pages: &Pages) -> Result<(), StorageError> {
    let mut transaction = database.begin_write().map_err(engine)?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(TABLE).map_err(engine)?;
        for range in cleared {
            table.retain_in::<&[u8], _>(bounds(range), |_, _| false).map_err(engine)?;
        }
        put_rows(&mut table, rows)?;
    }
    if pages.has_damage() {
        // The tree may have been changed where a page is missing: nothing of it may get to the file.
        transaction.abort().map_err(engine)?;
        return Err(pages.damage());
    }
    transaction.commit().map_err(engine)
}

/// Rows that are written one by one before a run is tried again.
const SINGLES: usize = 64;
/// Rows from which on a run is worth the cursor.
const RUN: usize = 8;

/// Writes rows in key order. Bodies and sequences come in runs of new keys between which nothing is stored: a cursor
/// fills page after page with them, for half of what it takes to walk down the tree for each.
fn put_rows(table: &mut Table<'_, &'static [u8], &'static [u8]>, rows: Rows<'_>) -> Result<(), StorageError> {
    let mut rows = rows.inspect(|(key, _)| assert!(!key.is_empty(), "the empty key stands for damage")).peekable();
    let mut singles = 0;
    while let Some((key, value)) = rows.next() {
        match value {
            None => drop(table.remove(key).map_err(engine)?),
            Some(value) if singles > 0 => {
                singles -= 1;
                table.insert(key, value).map_err(engine)?;
            }
            Some(value) if put_run(table, (key, value), &mut rows)? < RUN => singles = SINGLES,
            Some(_) => {}
        }
    }
    Ok(())
}

/// Writes `first` and the rows behind it up to a removal or the next key that is stored; answers how many.
fn put_run<'r>(
    table: &mut Table<'_, &'static [u8], &'static [u8]>,
    first: (&[u8], &[u8]),
    rows: &mut Peekable<impl Iterator<Item = (&'r [u8], Option<&'r [u8]>)>>,
) -> Result<usize, StorageError> {
    let mut cursor = table.lower_bound_mut(Bound::Included(first.0)).map_err(engine)?;
    let stored = cursor.peek_next().map_err(engine)?.map(|(key, _)| key.value().to_vec());
    if stored.as_deref() == Some(first.0) {
        drop(cursor);
        table.insert(first.0, first.1).map_err(engine)?;
        return Ok(1);
    }
    cursor.insert_before(first.0, first.1).map_err(engine)?;
    let mut count = 1;
    let is_in_gap = |key: &[u8]| stored.as_deref().is_none_or(|stored| key < stored);
    while let Some((key, Some(value))) = rows.next_if(|(key, value)| value.is_some() && is_in_gap(key)) {
        cursor.insert_before(key, value).map_err(engine)?;
        count += 1;
    }
    cursor.close().map_err(engine)?;
    Ok(count)
}

/// Bytes of all rows and of what the engine keeps about them, without what is free in pages.
fn live_bytes(database: &Database) -> Result<u64, StorageError> {
    let transaction = database.begin_write().map_err(engine)?;
    let stats = transaction.stats().map_err(engine)?;
    transaction.abort().map_err(engine)?;
    Ok(stats.stored_bytes() + stats.metadata_bytes())
}

/// Moves pages to the front and cuts the file: each of the engine's steps is a durable commit, and it cuts after the
/// header that does without the rest is durable. `false` while somebody uses it.
fn compact(database: &mut Database, pages: &Pages) -> Result<bool, StorageError> {
    match database.compact() {
        Ok(_) => {}
        Err(CompactionError::TransactionInProgress) => return Ok(false),
        Err(error) => return Err(engine(error)),
    }
    sometimes("shrink: a file was made smaller");
    // It leaves no record of free pages: without one a restart after a kill would walk the file.
    write(database, &[], Box::new(std::iter::empty()), pages)?;
    Ok(true)
}

fn engine(error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Corrupted(text) => StorageError::Corrupt(text),
        redb::Error::Io(error) => error.into(),
        other => StorageError::Io(other.to_string()),
    }
}

/// Runs a call of the engine, which panics on some damage that it does not look for.
fn guarded<T>(pages: &Pages, call: impl FnOnce() -> Result<T, StorageError>) -> Result<T, StorageError> {
    match catch_unwind(AssertUnwindSafe(call)) {
        // An engine that was replaced fails in other words; the reason is the same.
        Ok(Err(_)) if pages.has_damage() => Err(pages.damage()),
        Ok(done) => done,
        Err(_) => {
            pages.note(u64::MAX, &"the engine cannot make sense of its file");
            Err(pages.damage())
        }
    }
}

impl StoreFile for RedbStore {
    fn snapshot(&self) -> Result<Box<dyn View>, StorageError> {
        let begin = || -> Result<Reading, StorageError> {
            let running = self.running()?;
            let open = || running.database.begin_read().map_err(engine)?.open_table(TABLE).map_err(engine);
            Ok(Reading { table: guarded(&self.pages, open)?, _running: running })
        };
        Ok(Box::new(RedbView { reading: self.reading.get(begin)?, pages: Arc::clone(&self.pages) }))
    }

    fn apply(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError> {
        if self.pages.has_damage() {
            return Err(self.pages.damage());
        }
        self.mostly_free.store(false, Ordering::SeqCst);
        let _writing = self.reading.write();
        self.pages.contain(false);
        let written = self
            .running()
            .and_then(|running| guarded(&self.pages, || write(&running.database, cleared, rows, &self.pages)));
        if self.pages.has_damage() {
            self.start_again();
        }
        self.pages.contain(true);
        written
    }

    fn disk_bytes(&self) -> u64 {
        self.pages.file().len().unwrap_or(0)
    }

    fn root_writes(&self) -> u64 {
        self.pages.root_writes()
    }

    fn shrink(&self) -> Result<Shrunk, StorageError> {
        let before = self.disk_bytes();
        if !self.is_mostly_free(before)? {
            return Ok(Shrunk::NotDue);
        }
        let _alone = self.reading.alone();
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        // Views hold the engine, too. From here on new ones wait.
        let Some(alone) = running.as_mut().and_then(Arc::get_mut) else { return Ok(Shrunk::Busy) };
        self.pages.contain(false);
        let moved = guarded(&self.pages, || compact(&mut alone.database, &self.pages));
        drop(running);
        if self.pages.has_damage() {
            self.start_again();
        }
        self.pages.contain(true);
        self.mostly_free.store(false, Ordering::SeqCst);
        Ok(if moved? { Shrunk::By(before.saturating_sub(self.disk_bytes())) } else { Shrunk::Busy })
    }
}

struct RedbView {
    reading: Arc<Reading>,
    pages: Arc<Pages>,
}

impl RedbView {
    /// Refuses to answer when the page that would hold `key`, or the one before it, is damaged: it reads as a pair
    /// with an empty key (`redb_file.rs`).
    fn check_around(&self, key: &[u8]) -> Result<(), StorageError> {
        if !self.pages.has_damage() {
            return Ok(());
        }
        let before = guarded(&self.pages, || {
            let up_to: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Unbounded, Bound::Included(key));
            let last =
                self.reading.table.range::<&[u8]>(up_to).map_err(engine)?.next_back().transpose().map_err(engine)?;
            Ok(last.is_some_and(|(found, _)| found.value().is_empty()))
        })?;
        if before { Err(self.pages.damage()) } else { Ok(()) }
    }
}

impl View for RedbView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        let found =
            guarded(&self.pages, || Ok(self.reading.table.get(key).map_err(engine)?.map(|v| v.value().to_vec())))?;
        if found.is_none() {
            self.check_around(key)?;
        }
        Ok(found)
    }

    fn lasting(&self, _range: &KeyRange) -> Result<Option<LastingView>, StorageError> {
        let view = RedbView { reading: Arc::clone(&self.reading), pages: Arc::clone(&self.pages) };
        Ok(Some(LastingView { view: Box::new(view), bytes: 0 }))
    }

    /// The range's far end is looked for here, not by redb: a damaged page must be met wherever it lies.
    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = match direction {
            Direction::Forward => (Bound::Included(&range.start), Bound::Unbounded),
            Direction::Reverse => (Bound::Unbounded, end),
        };
        let mut rows = guarded(&self.pages, || self.reading.table.range::<&[u8]>(bounds).map_err(engine))?;
        let mut first = direction == Direction::Forward;
        loop {
            let row = guarded(&self.pages, || {
                let row = match direction {
                    Direction::Forward => rows.next(),
                    Direction::Reverse => rows.next_back(),
                };
                row.transpose().map_err(engine)
            })?;
            if std::mem::take(&mut first) {
                self.check_around(&range.start)?;
            }
            let Some((key, value)) = row else { return Ok(()) };
            if key.value().is_empty() {
                return Err(self.pages.damage());
            }
            let outside = match direction {
                Direction::Forward => range.end.as_deref().is_some_and(|end| key.value() >= end),
                Direction::Reverse => key.value() < range.start.as_slice(),
            };
            if outside || visit(key.value(), value.value()).is_break() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod shrink_tests;
#[cfg(test)]
mod tests;
