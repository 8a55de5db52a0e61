//! Flushes: frozen memtables are written into their files, and shards that have grown move into files of their own.
//!
//! A shard that outgrows its common file is copied into a new file, which gets its name only when it is complete and
//! durable. From that moment on the shard is read from that file alone, also after a crash, and its rest in the common
//! file is removed. The size of a shard is estimated by sampling: each flush adds a sixteenth of the limit with a
//! probability in proportion to the bytes that it wrote. So small shards cost neither memory nor a write for the count;
//! before a shard moves it is measured.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use super::held::Held;
use super::journal::Position;
use super::kv::{Direction, KeyRange, StorageError, StoreFile, View};
use super::layered::LayeredStore;
use super::layout::FileId;
use super::planted::Bug;
use super::reserved;
use super::tables::Layer;
use crate::limits;
use crate::observe::metrics::{Counter, Histogram};
use crate::observe::workers::Worker;
use crate::world::buggify::{Mutation, PAUSE, buggify, mutated};
use crate::world::{Env, Pool};

/// Lots that a shard must win to be measured: sixteenths of the limit.
const LOTS: u64 = 16;

/// Rows of the store's own that go into a file with a flush.
type OwnRows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

impl LayeredStore {
    /// Starts the task that flushes frozen memtables; it ends when the store is dropped.
    pub fn start_flushing(self: &Arc<Self>, env: &Env) {
        let (own, work, store) = (env.clone(), Arc::clone(&self.work), Arc::downgrade(self));
        env.spawn_worker("flush", "a frozen memtable", move |me| {
            flush_when_asked(own.clone(), Arc::clone(&work), store.clone(), me)
        });
        // What a restart has replayed may be due at once.
        self.freeze_due();
    }

    /// Writes the frozen memtable of a file that [`Tables::next_flush`](super::tables::Tables::next_flush) answered.
    /// Answers whether it is to be called again, after a pause: for want of descriptors it could not begin, or not end
    /// what follows the flush; the file stays marked until then. Blocks for as long as the engine's commit takes.
    pub(super) fn flush(&self, file: FileId) -> bool {
        // Also when the engine panics: writers that wait for room must not wait for ever.
        let failed = Some(StorageError::Io("the engine panicked".into()));
        let mut outcome = FlushOutcome { store: self, file, error: failed };
        outcome.error = self.settle(file).err();
        matches!(outcome.error, Some(StorageError::NoFiles(_)))
    }

    fn settle(&self, file: FileId) -> Result<(), StorageError> {
        let (layer, swept) = {
            let mut tables = self.tables();
            let table = tables.file(file);
            (table.frozen.clone(), table.swept)
        };
        let Some(layer) = layer else {
            // It was written before, and what follows was not done.
            self.store_files.sync_names()?;
            return self.release_segments();
        };
        if self.planted.has(Bug::CheckpointFirst) {
            self.tables().file(file).position = layer.last;
            self.checkpoint_now()?;
        }
        self.store_files.allow(layer.last);
        let grown = match file {
            FileId::Own(shard) if layer.cleared.contains(&shard) => {
                // In this order: what is frozen asks for it again. Readers see that the shard was cleared.
                self.store_files.remove(file)?;
                self.tables().forget_own(shard);
                self.suspects.forget(shard);
                Vec::new()
            }
            _ => self.write(file, &layer, swept)?,
        };
        for shard in grown {
            self.move_grown(file, shard)?;
        }
        self.release_segments()
    }

    /// Writes a frozen memtable to its file; answers the shards that seem to have outgrown it.
    fn write(&self, file: FileId, layer: &Layer, swept: bool) -> Result<Vec<u64>, StorageError> {
        let engine = self.store_files.make(file)?;
        let mut own = OwnRows::new();
        let mut cleared: Vec<KeyRange> = Vec::new();
        for shard in &layer.cleared {
            cleared.push(reserved::range_of(*shard));
            own.insert(reserved::size_key(*shard), None);
        }
        let mut grown = Vec::new();
        if let FileId::Common(_) = file {
            let view = engine.snapshot()?;
            if !swept {
                cleared.extend(self.left_behind(file, view.as_ref())?);
            }
            self.draw_lots(layer, view.as_ref(), &mut own, &mut grown)?;
        }
        own.insert(reserved::POSITION_KEY.to_vec(), Some(layer.last.to_be_bytes().to_vec()));
        let own_rows = own.iter().map(|(key, value)| (key.as_slice(), value.as_deref()));
        engine.apply(&cleared, Box::new(layer.rows.all().chain(own_rows))).map_err(StorageError::begun)?;
        let held = Held { position: layer.last, root_writes: engine.root_writes() };
        self.tables().flushed(file, held);
        self.room.send_modify(|n| *n += 1);
        Ok(grown)
    }

    /// What shards that have moved out left in a file because of a crash.
    fn left_behind(&self, file: FileId, view: &dyn View) -> Result<Vec<KeyRange>, StorageError> {
        let moved = self.tables().moved_out_of(file);
        let mut left = Vec::new();
        for range in moved.into_iter().map(reserved::range_of) {
            let mut any = false;
            view.scan(&range, Direction::Forward, &mut |_, _| {
                any = true;
                ControlFlow::Break(())
            })?;
            if any {
                left.push(range);
            }
        }
        Ok(left)
    }

    /// Counts what a flush adds to each shard; see the module head.
    fn draw_lots(
        &self,
        layer: &Layer,
        view: &dyn View,
        own: &mut OwnRows,
        grown: &mut Vec<u64>,
    ) -> Result<(), StorageError> {
        let lot = (self.own_file_bytes / LOTS).max(1);
        let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for (key, value) in layer.rows.all() {
            *bytes.entry(reserved::shard_of(key)).or_default() += (key.len() + value.map_or(0, <[u8]>::len)) as u64;
        }
        for (shard, bytes) in bytes {
            let won = bytes / lot + u64::from(self.env.random_u64() % lot < bytes % lot);
            if won == 0 {
                continue;
            }
            let key = reserved::size_key(shard);
            let before = view.get(&key)?.map_or(Ok(0), |bytes| reserved::number(&bytes))?;
            if before + won >= LOTS {
                grown.push(shard);
            }
            own.insert(key, Some((before + won).to_be_bytes().to_vec()));
        }
        Ok(())
    }

    /// Gives a shard a file of its own if it is as large as its count says.
    fn move_grown(&self, from: FileId, shard: u64) -> Result<(), StorageError> {
        let engine = self.store_files.make(from)?;
        let view = engine.snapshot()?;
        let range = reserved::range_of(shard);
        let bytes = size_of(view.as_ref(), &range)?;
        let size_key = reserved::size_key(shard);
        if bytes < self.own_file_bytes {
            let count = (bytes / (self.own_file_bytes / LOTS).max(1)).to_be_bytes();
            let rows = [(size_key.as_slice(), Some(count.as_slice()))];
            return engine.apply(&[], Box::new(rows.into_iter())).map_err(StorageError::begun);
        }
        let position = self.tables().file(from).position;
        self.store_files.make_filled(FileId::Own(shard), &mut |own| copy(view.as_ref(), &range, own, position))?;
        drop(view);
        self.tables().move_out(shard, from);
        if let Err(error) = self.store_files.sync_names() {
            // A power loss may still take the new file: what it holds stays in this one, too, and no file is written
            // before the name is durable (`StoreFiles::make`). Then the rows here go with the next flush.
            self.tables().file(from).swept = false;
            return Err(error);
        }
        engine.apply(&[range], Box::new([(size_key.as_slice(), None)].into_iter())).map_err(StorageError::begun)
    }
}

/// Bytes of keys and values in a range.
fn size_of(view: &dyn View, range: &KeyRange) -> Result<u64, StorageError> {
    let mut bytes = 0;
    view.scan(range, Direction::Forward, &mut |key, value| {
        bytes += (key.len() + value.len()) as u64;
        ControlFlow::Continue(())
    })?;
    Ok(bytes)
}

/// Copies a range into a new file, a bounded number of bytes at a time, and then the position that it stands for.
fn copy(view: &dyn View, range: &KeyRange, to: &dyn StoreFile, position: Position) -> Result<(), StorageError> {
    let mut rest = Some(range.clone());
    while let Some(range) = rest.take() {
        let (mut rows, mut bytes) = (Vec::new(), 0);
        view.scan(&range, Direction::Forward, &mut |key, value| {
            if bytes > limits::MOVE_STEP_BYTES {
                rest = Some(KeyRange { start: key.to_vec(), end: range.end.clone() });
                return ControlFlow::Break(());
            }
            bytes += key.len() + value.len();
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        to.apply(&[], Box::new(rows.iter().map(|(key, value)| (key.as_slice(), Some(value.as_slice())))))?;
    }
    let position = position.to_be_bytes();
    to.apply(&[], Box::new([(reserved::POSITION_KEY, Some(position.as_slice()))].into_iter()))
}

/// Tells what came of a flush, or of other work on a file marked as being flushed, when it is dropped.
pub(super) struct FlushOutcome<'a> {
    pub(super) store: &'a LayeredStore,
    pub(super) file: FileId,
    pub(super) error: Option<StorageError>,
}

impl Drop for FlushOutcome<'_> {
    fn drop(&mut self) {
        let mut tables = self.store.tables();
        let error = self.error.take();
        if let (Some(error @ StorageError::Corrupt(_)), FileId::Own(shard)) = (&error, self.file) {
            // The file stays marked, too. The shard may be rebuilt; until then its writes are in the journal.
            if tables.set_stuck(shard, error.clone()) {
                self.store.suspects.note(self.file, error);
            }
        } else if matches!(error, Some(StorageError::NoFiles(_))) && !mutated(Mutation::NoFilesEndsWrites) {
            // The file stays marked until the flush is tried again.
        } else if let Some(error) = error {
            // The file stays marked: nothing is flushed to it again.
            tracing::error!(%error, "a flush failed: this node takes no more writes until it is restarted");
            tables.failed = Some(error);
        } else {
            tables.flush_ended(self.file);
        }
        drop(tables);
        self.store.freeze_due();
        // Another frozen memtable may wait for this flush to end.
        self.store.work.notify_one();
        self.store.room.send_modify(|n| *n += 1);
    }
}

async fn flush_when_asked(env: Env, work: Arc<Notify>, store: Weak<LayeredStore>, worker: Arc<Worker>) {
    loop {
        work.notified().await;
        let Some(store) = store.upgrade() else { return };
        let _run = worker.begin();
        loop {
            carry_what_holds_back(&env, &work, &store).await;
            let Some(file) = store.tables().next_flush() else { break };
            env.spawn(flush_until_done(env.clone(), Arc::clone(&store), file));
        }
    }
}

/// Carries forward what holds the journal back. Where that lacks descriptors it is tried again after a pause: flushes
/// meanwhile may give some back.
async fn carry_what_holds_back(env: &Env, work: &Arc<Notify>, store: &Arc<LayeredStore>) {
    if store.tables().holds_back(&store.budget).is_none() {
        return;
    }
    let carrying = Arc::clone(store);
    if env.blocking(Pool::Background, move || carrying.carry_forward()).await {
        let (paused, work) = (env.clone(), Arc::clone(work));
        env.spawn(async move {
            paused.sleep(limits::NO_FILES_PAUSE).await;
            work.notify_one();
        });
    }
}

/// Flushes a file; as long as it cannot be opened for want of descriptors, again after a pause.
async fn flush_until_done(env: Env, mut store: Arc<LayeredStore>, file: FileId) {
    if buggify("flush: a pause between freeze and flush") {
        env.sleep(PAUSE).await;
    }
    let mut told = false;
    loop {
        let (flushed, begun) = (Arc::clone(&store), env.now());
        if !env.blocking(Pool::Background, move || flushed.flush(file)).await {
            env.metrics().record_ms(Histogram::FlushTime, env.now().since(begun));
            return;
        }
        env.metrics().count(Counter::FlushesFailed);
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(file = file.name(), "too many open files: a flush waits until there are fewer");
        }
        // The directory may be closed meanwhile: its journal has what is not flushed.
        let waiting = Arc::downgrade(&store);
        drop(store);
        env.sleep(limits::NO_FILES_PAUSE).await;
        let Some(again) = waiting.upgrade() else { return };
        store = again;
    }
}
