//! Journal, memtables and engine as one store: a commit is one journal sync; the engine follows in large flushes.
//!
//! Writes go to the journal, then into the active memtable. A memtable that is full is frozen and its journal segment
//! closed; a background step writes it to the engine in key order, as one durable transaction together with its
//! position, and only then it is dropped and its segments are released. A view is a picture of both memtables
//! (persistent maps, so taking it copies nothing) over an engine view that was opened under the same lock. Recovery
//! replays the journal into the active memtable and serves at once.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use imbl::OrdMap;
use tokio::sync::{Notify, watch};

use super::journal::{Journal, Position};
use super::kv::{Batch, Direction, KeyRange, StorageError, Store, View, Visit};
use super::overlay::Overlay;
use super::planted::{Bug, Planted};
use crate::limits;
use crate::world::{Env, Pool};

/// Where the engine keeps the position up to which it holds everything: above all shard numbers in use.
const FLUSHED_KEY: &[u8] = &[0xff; 9];

/// Committed writes that the engine does not have yet; `None` is a removal.
pub(super) type Memtable = OrdMap<Arc<[u8]>, Option<Arc<[u8]>>>;

struct Frozen {
    table: Memtable,
    /// The last position in it.
    last: Position,
}

#[derive(Default)]
struct Tables {
    active: Memtable,
    active_bytes: usize,
    last: Position,
    frozen: Option<Frozen>,
    /// Why flushing has ended for good.
    failed: Option<StorageError>,
    /// For the planted bug `HalfBatch`: the active memtable in the middle of the last group, and views since.
    half: Option<Memtable>,
    views: u32,
}

/// See the module head.
pub struct LayeredStore {
    engine: Arc<dyn Store>,
    journal: Mutex<Journal>,
    tables: Mutex<Tables>,
    /// Wakes the flusher; also when the store is dropped.
    work: Arc<Notify>,
    full: watch::Sender<bool>,
    flush_at_bytes: usize,
    planted: Planted,
}

impl LayeredStore {
    /// Opens the journal in `dir` over `engine` and replays it. Memtables freeze at `flush_at_bytes`. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when acknowledged groups cannot be read any more.
    pub fn open(
        env: &Env,
        dir: &Path,
        engine: Arc<dyn Store>,
        flush_at_bytes: usize,
        planted: Planted,
    ) -> Result<LayeredStore, StorageError> {
        let flushed = flushed_position(engine.as_ref())?;
        let mut tables = Tables { last: flushed, ..Tables::default() };
        let journal = Journal::open(env, dir, flushed, planted, &mut |position, batch| tables.apply(position, &batch))?;
        let full = watch::Sender::new(false);
        let (journal, tables) = (Mutex::new(journal), Mutex::new(tables));
        let work = Arc::new(Notify::new());
        Ok(LayeredStore { engine, journal, tables, work, full, flush_at_bytes, planted })
    }

    /// Starts the task that flushes frozen memtables; it ends when the store is dropped.
    pub fn start_flushing(self: &Arc<Self>, env: &Env) {
        let (work, store) = (Arc::clone(&self.work), Arc::downgrade(self));
        env.spawn(flush_when_asked(env.clone(), work, store));
    }

    /// Writes the frozen memtable, if there is one, to the engine. Blocks for as long as the engine's commit takes.
    fn flush(&self) {
        let Some((table, last)) = self.lock().frozen.as_ref().map(|f| (f.table.clone(), f.last)) else { return };
        // Also when the engine panics: writers that wait for room must not wait for ever.
        let mut outcome = FlushOutcome { store: self, error: Some(StorageError::Io("the engine panicked".into())) };
        outcome.error = self.write_to_engine(&table, last).err();
    }

    fn write_to_engine(&self, table: &Memtable, last: Position) -> Result<(), StorageError> {
        let mut batch = Batch::new();
        for (key, value) in table {
            match value {
                Some(value) => batch.put(key.to_vec(), value.to_vec()),
                None => batch.delete(key.to_vec()),
            }
        }
        let mut position = Batch::new();
        position.put(FLUSHED_KEY.to_vec(), last.to_be_bytes().to_vec());
        if self.planted.has(Bug::CheckpointFirst) {
            self.engine.commit(&position)?;
        } else {
            batch.append(position);
        }
        self.engine.commit(&batch)?;
        self.lock().frozen = None;
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(journal.release(last)?)
    }

    /// Closes the active memtable when it is full and the one before is in the engine.
    fn freeze_if_full(&self, journal: &mut Journal) -> Result<(), StorageError> {
        let mut tables = self.lock();
        if tables.active_bytes < self.flush_at_bytes {
            return Ok(());
        }
        if tables.frozen.is_some() {
            let wait = tables.active_bytes >= self.flush_at_bytes * limits::MEMTABLE_STALL_FACTOR;
            self.full.send_replace(wait && tables.failed.is_none());
            return Ok(());
        }
        drop(tables);
        // Only the committer's one thread comes here, so nothing is added between the two locks.
        journal.rotate()?;
        tables = self.lock();
        if self.planted.has(Bug::DropSegmentEarly) {
            journal.release(tables.last)?;
        }
        let table = std::mem::take(&mut tables.active);
        (tables.active_bytes, tables.half) = (0, None);
        tables.frozen = Some(Frozen { table, last: tables.last });
        drop(tables);
        self.work.notify_one();
        Ok(())
    }

    /// A view of `active` and what lies below it. The tables' lock is held: a flush that ended between the pictures of
    /// memtable and engine would be in neither or in both.
    fn view_with(&self, tables: &Tables, active: Memtable) -> Result<Box<dyn View + '_>, StorageError> {
        let frozen = tables.frozen.as_ref().map(|f| f.table.clone()).unwrap_or_default();
        let engine = EngineView(self.engine.view()?);
        Ok(Box::new(LayeredView { active, frozen, engine }))
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells what came of a flush when it is dropped.
struct FlushOutcome<'a> {
    store: &'a LayeredStore,
    error: Option<StorageError>,
}

impl Drop for FlushOutcome<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.error.take() {
            tracing::error!(%error, "a flush failed: this node takes no more writes until it is restarted");
            self.store.lock().failed = Some(error);
        }
        self.store.full.send_replace(false);
    }
}

impl Drop for LayeredStore {
    fn drop(&mut self) {
        self.work.notify_one();
    }
}

async fn flush_when_asked(env: Env, work: Arc<Notify>, store: Weak<LayeredStore>) {
    loop {
        work.notified().await;
        let Some(store) = store.upgrade() else { return };
        env.blocking(Pool::Background, move || store.flush()).await;
    }
}

fn flushed_position(engine: &dyn Store) -> Result<Position, StorageError> {
    match engine.view()?.get(FLUSHED_KEY)? {
        None => Ok(0),
        Some(bytes) => {
            let bytes = bytes.as_slice().try_into();
            bytes.map(u64::from_be_bytes).map_err(|_| StorageError::Corrupt("the engine's position".into()))
        }
    }
}

impl Tables {
    fn apply(&mut self, position: Position, batch: &Batch) {
        assert!(position > self.last, "groups are applied in order, each once");
        self.last = position;
        for (n, (key, value)) in batch.writes().iter().enumerate() {
            if cfg!(feature = "sim") && n == batch.writes().len() / 2 {
                self.half = Some(self.active.clone());
            }
            self.active_bytes += key.len() + value.as_ref().map_or(0, Vec::len) + limits::MEMTABLE_ENTRY_BYTES;
            self.active.insert(key.as_slice().into(), value.as_deref().map(Into::into));
        }
    }

    /// What a planted bug shows to every eighth reader.
    fn half_of_a_group(&mut self, planted: Planted) -> Option<Memtable> {
        if !planted.has(Bug::HalfBatch) {
            return None;
        }
        self.views += 1;
        self.half.clone().filter(|_| self.views.is_multiple_of(8))
    }
}

impl Store for LayeredStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        let mut tables = self.lock();
        let half = tables.half_of_a_group(self.planted);
        let active = half.unwrap_or_else(|| tables.active.clone());
        self.view_with(&tables, active)
    }

    fn writer_view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        let tables = self.lock();
        self.view_with(&tables, tables.active.clone())
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        if let Some(error) = &self.lock().failed {
            return Err(error.clone());
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let position = journal.append(batch)?;
        self.lock().apply(position, batch);
        self.freeze_if_full(&mut journal)
    }

    fn file_bytes(&self) -> u64 {
        let journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        self.engine.file_bytes() + journal.bytes()
    }

    fn has_failed(&self) -> bool {
        self.lock().failed.is_some()
    }

    fn full(&self) -> Option<watch::Receiver<bool>> {
        Some(self.full.subscribe())
    }
}

struct LayeredView<'a> {
    active: Memtable,
    frozen: Memtable,
    engine: EngineView<'a>,
}

impl View for LayeredView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        match self.active.get(key).or_else(|| self.frozen.get(key)) {
            Some(value) => Ok(value.as_deref().map(<[u8]>::to_vec)),
            None => self.engine.get(key),
        }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        let below = Overlay { base: &self.engine, top: &self.frozen };
        Overlay { base: &below, top: &self.active }.scan(range, direction, visit)
    }
}

/// The engine without the key that is the store's own.
struct EngineView<'a>(Box<dyn View + 'a>);

impl View for EngineView<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
        if key == FLUSHED_KEY { Ok(None) } else { self.0.get(key) }
    }

    fn scan(&self, range: &KeyRange, direction: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
        self.0.scan(range, direction, &mut |key, value| {
            if key == FLUSHED_KEY { ControlFlow::Continue(()) } else { visit(key, value) }
        })
    }
}

#[cfg(test)]
mod tests;
