//! Journal, memtables and store files as one store: a commit is one journal sync; the files follow in large flushes.
//!
//! Writes go to the journal, then into the active memtable of the shard's file. A memtable that is due is frozen; a
//! background step writes it to its file in key order, as one durable transaction together with its position
//! (`flush.rs`), and only then is it dropped. A journal segment is released once every file holds what is in it. Files
//! flush in parallel: a slow file delays its own shards, and the others only when memory or journal are used up. A view
//! is an image of memtables over a snapshot of the file (`view.rs`). Recovery replays the journal into the memtables
//! without opening a file, and serves at once.
//!
//! The lack of file descriptors ends nothing. A flush that could not open its file is tried again after a pause: its
//! data is in its memtable and in the journal, and it had not begun. The same holds for the start of a journal segment
//! (`journal/mod.rs`). Every other error, and this one where something had been written, stops writes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use tokio::sync::{Notify, watch};

use super::journal::{self, Journal, Lost, Notes, Opening, Position};
use super::kv::{Batch, Shrunk, StorageError, Store, View};
use super::layout::FileId;
use super::manifest::MissingFiles;
use super::planted::Planted;
use super::quarantine::Suspects;
use super::store_files::{StoreFiles, position_of};
use super::tables::{self, Budget, Part, Tables};
use super::view::LayeredView;
use crate::limits;
use crate::world::buggify::{Mutation, mutated, weigh};
use crate::world::sync::{Mutex, MutexGuard};
use crate::world::{Env, lock};

/// See the module head.
pub struct LayeredStore {
    pub(super) store_files: Arc<dyn StoreFiles>,
    /// Locked before `tables`, never after.
    journal: Mutex<Journal>,
    tables: Mutex<Tables>,
    /// Wakes the flusher; also when the store is dropped.
    pub(super) work: Arc<Notify>,
    pub(super) room: watch::Sender<u64>,
    pub(super) budget: Budget,
    /// A shard above this many bytes gets a file of its own.
    pub(super) own_file_bytes: u64,
    pub(super) env: Env,
    /// Files in which damage was found.
    pub(super) suspects: Arc<Suspects>,
    pub(super) planted: Planted,
    /// What could not be read when it was opened to take over what is whole.
    lost: Vec<Lost>,
}

/// How a [`LayeredStore`] behaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayeredOptions {
    /// Bytes at which a memtable is frozen; the other limits of memory and journal follow from it.
    pub flush_at_bytes: usize,
    /// A shard above this many bytes gets a file of its own.
    pub own_file_bytes: u64,
    pub missing_files: MissingFiles,
    pub planted: Planted,
}

impl LayeredStore {
    /// Opens the journal in `dir` over the files of `store_files` and replays it. Blocks.
    ///
    /// # Errors
    /// [`StorageError::Corrupt`] when acknowledged groups cannot be read any more.
    pub(super) fn open(
        env: &Env,
        dir: &Path,
        store_files: Arc<dyn StoreFiles>,
        options: LayeredOptions,
    ) -> Result<LayeredStore, StorageError> {
        let LayeredOptions { flush_at_bytes, own_file_bytes, missing_files, planted } = options;
        env.disk().create_dir_all(dir)?;
        let takes_over = missing_files == MissingFiles::TakeOver;
        let (last, mut lost) = (store_files.last_segment()?, Vec::new());
        let mut notes = match journal::read_notes(env.disk().as_ref(), dir)? {
            Some(notes) => notes,
            None => Notes::new(settled_of_format_1(store_files.as_ref())?, std::iter::empty()),
        };
        let files = store_files.list()?;
        let there: BTreeSet<FileId> = files.iter().copied().collect();
        // Some of them were removed since.
        notes.held.retain(|file, _| there.contains(file));
        let older = store_files.hold_against(&notes.held, missing_files)?;
        let mut tables = Tables::new(store_files.layout(), &files, &notes);
        let opening = Opening { notes: &notes, planted, last, lost: takes_over.then_some(&mut lost) };
        let mut journal = Journal::open(env, dir, opening, &mut |position, key, value| {
            tables.replay(position, key, value, &notes);
        })?;
        if !takes_over {
            store_files.allow(journal.end());
        }
        let suspects = Arc::new(Suspects::default());
        for file in store_files.missing() {
            lost.push(Lost::new(format_args!("store/{} is missing, with all that it held", file.name())));
            suspects.note(file, &StorageError::Corrupt("it is missing".into()));
        }
        for (file, why) in older {
            lost.push(Lost::new(format_args!("store/{} {why}, and lacks what came since", file.name())));
            if !takes_over {
                suspects.note(file, &StorageError::Corrupt(why));
            }
        }
        tables.last = journal.end();
        let budget = Budget::new(flush_at_bytes);
        if journal.segments() > limits::JOURNAL_SEGMENTS_AT_START || journal.closed_bytes() >= budget.journal / 2 {
            // Many starts one after the other, each of which begins a segment; or segments that nothing needs any more
            // and no flush would come to release.
            journal.rotate(&tables.notes(tables.settled(journal.end(), planted)))?;
        }
        tables.journal_bytes = journal.closed_bytes();
        Ok(LayeredStore {
            store_files,
            journal: Mutex::new(journal),
            tables: Mutex::new(tables),
            work: Arc::new(Notify::new()),
            room: watch::Sender::new(0),
            budget,
            own_file_bytes,
            env: env.clone(),
            suspects,
            planted,
            lost,
        })
    }

    pub(super) fn tables(&self) -> MutexGuard<'_, Tables> {
        lock(&self.tables)
    }

    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a new journal segment and releases those that no file needs any more.
    pub(super) fn checkpoint(&self, journal: &mut Journal) -> Result<(), StorageError> {
        let notes = {
            let tables = self.tables();
            tables.notes(tables.settled(journal.end(), self.planted))
        };
        journal.rotate(&notes)?;
        self.tables().journal_bytes = journal.closed_bytes();
        Ok(())
    }

    /// [`LayeredStore::checkpoint`], if a segment can go.
    pub(super) fn release_segments(&self) -> Result<(), StorageError> {
        let mut journal = self.journal();
        let settled = self.tables().settled(journal.end(), self.planted);
        if journal.can_release(settled) { self.checkpoint(&mut journal) } else { Ok(()) }
    }

    /// [`LayeredStore::checkpoint`] in any case.
    pub(super) fn checkpoint_now(&self) -> Result<(), StorageError> {
        self.checkpoint(&mut self.journal())
    }

    /// Begins a new journal segment when the open one is full. While no more files can be open the open one takes more,
    /// which needs none, up to twice its size.
    fn next_segment(&self, journal: &mut Journal) -> Result<(), StorageError> {
        if journal.open_bytes() < self.budget.segment {
            return Ok(());
        }
        match self.checkpoint(journal) {
            Err(StorageError::NoFiles(_)) if journal.open_bytes() < self.budget.segment * 2 => return Ok(()),
            done => done?,
        }
        // What was closed can make a flush due, and nothing else asks for it when no job of the group writes.
        if self.freeze_due() && self.planted.has(super::planted::Bug::DropSegmentEarly) {
            self.checkpoint(journal)?;
        }
        Ok(())
    }

    /// Takes a part of a group into the memtables. Readers wait for their lock: where it held for all of a large part,
    /// from the build of a view for one, they waited for milliseconds.
    fn apply_part(&self, position: Position, part: Part) {
        let mut tables = self.tables();
        let Some(mut aside) = tables.aside(&part) else { return tables.apply(position, part) };
        drop(tables);
        aside.apply(position, &part);
        let before = self.tables().replace(position, aside, part);
        drop(before);
    }

    /// Freezes what is due and wakes the flusher for it.
    pub(super) fn freeze_due(&self) -> bool {
        let frozen = self.tables().freeze(&self.budget);
        if frozen {
            self.work.notify_one();
        }
        frozen
    }
}

/// The position of the one store file of a directory of format 1, whose journal notes nothing; 0 for a new directory.
fn settled_of_format_1(store_files: &dyn StoreFiles) -> Result<u64, StorageError> {
    match store_files.open(FileId::Common(0))? {
        Some(file) => position_of(file.snapshot()?.as_ref()),
        None => Ok(0),
    }
}

impl Drop for LayeredStore {
    fn drop(&mut self) {
        self.work.notify_one();
    }
}

impl Store for LayeredStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        Ok(Box::new(LayeredView::new(self, Some(self.planted))))
    }

    fn unflushed_view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        Ok(Box::new(LayeredView::unflushed(self)))
    }

    fn writer_view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        Ok(Box::new(LayeredView::new(self, None)))
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        if let Some(error) = &self.tables().failed {
            return Err(error.clone());
        }
        let mut journal = self.journal();
        match self.next_segment(&mut journal) {
            // It was refused before the group was put together, or the last descriptor went since: one more fits.
            Err(StorageError::NoFiles(_)) => {}
            done => done?,
        }
        let position = journal.append(batch)?;
        for part in tables::parts(batch) {
            self.apply_part(position, part);
        }
        let held = {
            let mut tables = self.tables();
            tables.end_group(position, journal.closed_bytes());
            tables.bytes()
        };
        // What cannot be flushed has as much again, and a group begins while there is any room.
        weigh("memory of writes that wait for their file", held, 2 * self.budget.memtables + 8 * batch.bytes());
        if self.freeze_due() && self.planted.has(super::planted::Bug::DropSegmentEarly) {
            self.checkpoint(&mut journal)?;
        }
        Ok(())
    }

    fn prepare(&self) -> Result<(), StorageError> {
        self.next_segment(&mut self.journal())
    }

    fn file_bytes(&self) -> u64 {
        self.store_files.bytes() + self.journal().bytes()
    }

    fn has_failed(&self) -> bool {
        self.tables().failed.is_some()
    }

    fn has_room(&self, shard: Option<u64>) -> bool {
        let mut tables = self.tables();
        let is_full = !tables.has_room(shard, &self.budget) && !tables.gives_up(&self.budget);
        if is_full && tables.holds_back(&self.budget).is_some() {
            self.work.notify_one();
        }
        !is_full || mutated(Mutation::FullMemoryIgnored)
    }

    fn refuses(&self, shard: u64) -> Option<StorageError> {
        self.tables().refuses(shard, &self.budget)
    }

    fn room(&self) -> Option<watch::Receiver<u64>> {
        Some(self.room.subscribe())
    }

    fn position(&self) -> u64 {
        self.tables().last
    }

    fn shrink(&self, shard: u64, position: u64) -> Result<Shrunk, StorageError> {
        self.shrink_home(shard, position)
    }

    fn damaged_shards(&self) -> BTreeMap<u64, String> {
        self.suspects.all()
    }

    fn lost(&self) -> Vec<Lost> {
        self.lost.clone()
    }

    fn open_store_files(&self) -> (u64, u64) {
        self.store_files.page_caches()
    }

    fn damage_news(&self) -> Option<watch::Receiver<u64>> {
        Some(self.suspects.watch())
    }

    fn quarantine(&self, shard: u64, told: &str) -> Result<Option<String>, StorageError> {
        self.quarantine_own(shard, told)
    }

    fn read_permit(&self, shard: u64) -> usize {
        // Tasks ask, and must not wait for a group that is applied. Meanwhile a file of a shard's own counts as the
        // one that it would share: never do more reads wait for a file than a read permit lets in.
        match self
            .tables
            .try_lock()
            .map_or_else(|_| self.store_files.layout().shared_home(shard), |tables| tables.home(shard))
        {
            FileId::Common(number) => number as usize,
            FileId::Own(shard) => shard as usize,
            FileId::Sled => usize::MAX,
        }
    }
}

#[cfg(test)]
mod files_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads_tests;
