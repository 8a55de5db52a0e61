//! The default engine: one redb file over the `Disk` seam.
//!
//! A new file is made under a temporary name, committed once, closed, renamed, and its directory synced: a redb file
//! that loses power while it is being created can never be opened again. Quick-repair is on, at the price of one more
//! sync per commit: without it a restart after a kill walks the whole file.

use std::io;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use redb::{Builder, Database, ReadOnlyTable, ReadableDatabase, StorageBackend, TableDefinition};

use super::kv::{Batch, Direction, KeyRange, StorageError, Store, View, Visit};
use super::planted::{Bug, Planted};
use crate::world::{Disk, File, OpenMode};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("0");
const TEMPORARY: &str = "new";

/// See the module head.
pub struct RedbStore {
    database: Database,
    file: Arc<dyn File>,
}

impl RedbStore {
    /// Opens the file at `path`, making it when it is missing. `cache_bytes` bounds redb's page cache. Blocks; after a
    /// kill it takes about a millisecond.
    pub fn open(disk: &dyn Disk, path: &Path, cache_bytes: usize, planted: Planted) -> Result<Self, StorageError> {
        let temporary = path.with_extension(TEMPORARY);
        if disk.exists(&temporary)? {
            disk.remove(&temporary)?;
        }
        if !disk.exists(path)? {
            create(disk, path, &temporary, cache_bytes)?;
        }
        let file = disk.open(path, OpenMode::Write)?;
        let skip_sync = planted.has(Bug::SkipFsync);
        let backend = RedbFile { file: Arc::clone(&file), skip_sync };
        let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(engine)?;
        Ok(RedbStore { database, file })
    }
}

fn create(disk: &dyn Disk, path: &Path, temporary: &Path, cache_bytes: usize) -> Result<(), StorageError> {
    let file = disk.open(temporary, OpenMode::CreateNew)?;
    let backend = RedbFile { file: Arc::clone(&file), skip_sync: false };
    let database = Builder::new().set_cache_size(cache_bytes).create_with_backend(backend).map_err(engine)?;
    write(&database, &Batch::new())?;
    drop(database);
    file.sync()?;
    disk.rename(temporary, path)?;
    if let Some(parent) = path.parent() {
        disk.sync_dir(parent)?;
    }
    Ok(())
}

fn write(database: &Database, batch: &Batch) -> Result<(), StorageError> {
    let mut transaction = database.begin_write().map_err(engine)?;
    transaction.set_quick_repair(true);
    {
        let mut table = transaction.open_table(TABLE).map_err(engine)?;
        for (key, value) in batch.writes() {
            match value {
                Some(value) => table.insert(key.as_slice(), value.as_slice()).map_err(engine)?,
                None => table.remove(key.as_slice()).map_err(engine)?,
            };
        }
    }
    transaction.commit().map_err(engine)
}

fn engine(error: impl Into<redb::Error>) -> StorageError {
    match error.into() {
        redb::Error::Corrupted(text) => StorageError::Corrupt(text),
        other => StorageError::Io(other.to_string()),
    }
}

impl Store for RedbStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        let table = self.database.begin_read().map_err(engine)?.open_table(TABLE).map_err(engine)?;
        Ok(Box::new(RedbView(table)))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        write(&self.database, batch)
    }

    fn file_bytes(&self) -> u64 {
        self.file.len().unwrap_or(0)
    }
}

struct RedbView(ReadOnlyTable<&'static [u8], &'static [u8]>);

impl View for RedbView {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(redb::ReadableTable::get(&self.0, key).map_err(engine)?.map(|v| v.value().to_vec()))
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        if range.is_empty() {
            return Ok(());
        }
        let end = range.end.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        let bounds: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Included(&range.start), end);
        let mut rows = self.0.range::<&[u8]>(bounds).map_err(engine)?;
        loop {
            let row = match direction {
                Direction::Forward => rows.next(),
                Direction::Reverse => rows.next_back(),
            };
            let Some(row) = row else { return Ok(()) };
            let (key, value) = row.map_err(engine)?;
            if visit(key.value(), value.value()).is_break() {
                return Ok(());
            }
        }
    }
}

/// redb's file, forwarded to the seam.
#[derive(Debug)]
struct RedbFile {
    file: Arc<dyn File>,
    skip_sync: bool,
}

impl StorageBackend for RedbFile {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.skip_sync { Ok(()) } else { self.file.sync() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }
}
