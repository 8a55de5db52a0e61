//! The open files of a data directory: each opened once when it is needed, shared by its users, closed when too many
//! are open.
//!
//! A file's lock is held while it is opened, closed or removed, so that it is never open twice: an engine would find
//! its own lock on the file, or write beside itself. A file that somebody uses is never closed: its engine is counted,
//! and the count grows under the file's lock only, or while it is above one.
//!
//! Each open file takes a share of the page caches' budget, fixed when it is opened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kv::StorageError;
use crate::limits;
use crate::world::buggify::weigh;
use crate::world::sync::{Mistake, Mutex, MutexGuard, mistaken};
use crate::world::{lock, waiting};

/// See the module head. `I` names a file, `E` is what is opened.
pub(super) struct OpenFiles<I, E: ?Sized> {
    slots: Mutex<BTreeMap<I, Arc<Slot<E>>>>,
    cache: Cache,
    uses: AtomicU64,
    /// Files above this number are closed once they are idle.
    most: usize,
    /// Files that stay open.
    stays: fn(&I) -> bool,
}

struct Slot<E: ?Sized> {
    /// `None`: closed. An error: it is damaged.
    open: Mutex<Opened<E>>,
    used: AtomicU64,
}

impl<E: ?Sized> Default for Slot<E> {
    fn default() -> Self {
        Slot { open: Mutex::default(), used: AtomicU64::default() }
    }
}

type Opened<E> = Option<Result<Open<E>, StorageError>>;

struct Open<E: ?Sized> {
    engine: Arc<E>,
    cache_bytes: usize,
}

/// The budget for page caches, and what open files have of it.
struct Cache {
    bytes: usize,
    given: Mutex<Given>,
}

#[derive(Default)]
struct Given {
    bytes: usize,
    files: usize,
}

impl Cache {
    fn new(bytes: usize) -> Cache {
        Cache { bytes, given: Mutex::default() }
    }

    /// An eighth of what is left: the first files opened get most, and there is always something for one more, which is
    /// beyond the budget where nothing is left.
    fn take(&self) -> usize {
        let mut given = lock(&self.given);
        let share = (self.bytes.saturating_sub(given.bytes) / 8).max(limits::STORE_FILE_CACHE_BYTES);
        given.bytes += share;
        given.files += 1;
        weigh("page caches", given.bytes, self.bytes + given.files * limits::STORE_FILE_CACHE_BYTES);
        share
    }

    fn give_back(&self, bytes: usize) {
        let mut given = lock(&self.given);
        given.bytes -= bytes;
        given.files -= 1;
    }
}

impl<I: Copy + Ord, E: ?Sized> OpenFiles<I, E> {
    pub(super) fn new(cache_bytes: usize, most: usize, stays: fn(&I) -> bool) -> Self {
        OpenFiles { slots: Mutex::default(), cache: Cache::new(cache_bytes), uses: AtomicU64::new(0), most, stays }
    }

    /// Bytes that the page caches of open files may take, and how many files are open.
    pub(super) fn given(&self) -> (u64, u64) {
        let given = lock(&self.cache.given);
        (given.bytes as u64, given.files as u64)
    }

    fn slot(&self, id: I) -> Arc<Slot<E>> {
        Arc::clone(lock(&self.slots).entry(id).or_default())
    }

    /// Refuses a file from now on as one that is damaged.
    pub(super) fn refuse(&self, id: I, why: StorageError) {
        *lock(&self.slot(id).open) = Some(Err(why));
    }

    /// The file; where it is closed and `exists`, what `open` makes of it with so many bytes of page cache. One that
    /// `open` finds damaged is refused from then on.
    pub(super) fn get(
        &self,
        id: I,
        exists: impl FnOnce() -> Result<bool, StorageError>,
        open: impl FnOnce(usize) -> Result<Arc<E>, StorageError>,
    ) -> Result<Option<Arc<E>>, StorageError> {
        let slot = self.slot(id);
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let opened = lock(&slot.open);
        match opened.as_ref() {
            Some(Ok(open)) => return Ok(Some(Arc::clone(&open.engine))),
            Some(Err(refused)) => return Err(refused.clone()),
            None => {}
        }
        if !exists()? {
            return Ok(None);
        }
        waiting(|| self.open_slot(opened, open)).map(Some)
    }

    /// Opens a file whose slot is locked, and closes others in its place.
    fn open_slot(
        &self,
        mut opened: MutexGuard<'_, Opened<E>>,
        open: impl FnOnce(usize) -> Result<Arc<E>, StorageError>,
    ) -> Result<Arc<E>, StorageError> {
        let cache_bytes = self.cache.take();
        let engine = match open(cache_bytes) {
            Ok(engine) => engine,
            Err(error) => {
                self.cache.give_back(cache_bytes);
                *opened = matches!(error, StorageError::Corrupt(_)).then(|| Err(error.clone()));
                return Err(error);
            }
        };
        *opened = Some(Ok(Open { engine: Arc::clone(&engine), cache_bytes }));
        drop(opened);
        self.close_idle();
        Ok(engine)
    }

    /// Closes files that nobody uses, those first that were used longest ago, while too many are open.
    fn close_idle(&self) {
        let mut slots: Vec<(u64, Arc<Slot<E>>)> = lock(&self.slots)
            .iter()
            .filter(|(id, _)| !(self.stays)(id))
            .map(|(_, slot)| (slot.used.load(Ordering::Relaxed), Arc::clone(slot)))
            .collect();
        let is_open = |slot: &Slot<E>| slot.open.try_lock().map_or(true, |open| matches!(*open, Some(Ok(_))));
        slots.retain(|(_, slot)| is_open(slot));
        slots.sort_by_key(|(used, _)| *used);
        let mut surplus = slots.len().saturating_sub(self.most);
        for (_, slot) in slots {
            if surplus == 0 {
                return;
            }
            // One that is being opened or closed is in use.
            let Ok(mut open) = slot.open.try_lock() else { continue };
            let is_idle = |open: &Open<E>| Arc::strong_count(&open.engine) == 1 || mistaken(Mistake::UsedFileClosed);
            if matches!(&*open, Some(Ok(open)) if is_idle(open))
                && let Some(Ok(closed)) = open.take()
            {
                // Within the slot's lock: it must not be opened again before it is closed.
                let held = (!mistaken(Mistake::LockEndsBeforeClose)).then_some(open);
                drop(closed.engine);
                drop(held);
                self.cache.give_back(closed.cache_bytes);
                surplus -= 1;
            }
        }
    }

    /// Does what needs a file closed, which nobody opens meanwhile. Its users keep what they have of it.
    pub(super) fn with_closed<T>(
        &self,
        id: I,
        work: impl FnOnce() -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let slot = self.slot(id);
        let mut open = lock(&slot.open);
        if let Some(Ok(closed)) = open.take() {
            self.cache.give_back(closed.cache_bytes);
        }
        work()
    }

    /// Visits the files that are open, but for those that are being opened or closed.
    pub(super) fn each_open(&self, mut visit: impl FnMut(I, &E)) {
        let slots: Vec<(I, Arc<Slot<E>>)> = lock(&self.slots).iter().map(|(id, s)| (*id, Arc::clone(s))).collect();
        for (id, slot) in slots {
            if let Ok(open) = slot.open.try_lock()
                && let Some(Ok(open)) = open.as_ref()
            {
                visit(id, &open.engine);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use shuttle::thread;

    use super::*;
    use crate::world::model::{check, check_finds};

    #[test]
    fn page_caches_of_files_that_were_opened_beyond_the_budget_do_not_make_it_larger() {
        let least = limits::STORE_FILE_CACHE_BYTES;
        let cache = Cache::new(16 * least);
        let first = cache.take();
        cache.give_back(first);
        for _ in 0..20 {
            let given: Vec<usize> = (0..100).map(|_| cache.take()).collect();
            assert!(
                given.iter().sum::<usize>() <= 16 * least + 100 * least && given.iter().all(|share| *share >= least)
            );
            given.into_iter().for_each(|share| cache.give_back(share));
        }
        assert_eq!(cache.take(), first);
    }

    /// How many engines of each of three files there are.
    type Engines = Arc<[Mutex<u32>; 3]>;

    /// An engine that takes a moment to open and to close, and must be the only one of its file meanwhile.
    struct Engine {
        file: usize,
        engines: Engines,
    }

    impl Engine {
        fn open(file: usize, engines: &Engines) -> Arc<Engine> {
            let mut open = lock(&engines[file]);
            assert_eq!(*open, 0, "file {file} is open twice");
            *open += 1;
            drop(open);
            Arc::new(Engine { file, engines: Arc::clone(engines) })
        }
    }

    impl Drop for Engine {
        fn drop(&mut self) {
            *lock(&self.engines[self.file]) -= 1;
        }
    }

    const CACHE: usize = 64 << 20;

    /// Three threads use three files of which one may be open while it is idle.
    fn few_open_files() {
        let files: Arc<OpenFiles<usize, Engine>> = Arc::new(OpenFiles::new(CACHE, 1, |_| false));
        let engines = Engines::default();
        let users = (0..3).map(|user| {
            let (files, engines) = (Arc::clone(&files), Arc::clone(&engines));
            thread::spawn(move || {
                for round in 0..2 {
                    let file = (user + round) % 3;
                    let open = |_| Ok(Engine::open(file, &engines));
                    let engine = files.get(file, || Ok(true), open).unwrap().expect("it is there");
                    assert_eq!(*lock(&engines[file]), 1, "it is open while it is used");
                    assert_eq!(engine.file, file);
                }
            })
        });
        users.collect::<Vec<_>>().into_iter().for_each(|user| user.join().unwrap());
        let mut open = 0;
        files.each_open(|_, _| open += 1);
        assert!(open >= 1);
        for file in 0..3 {
            files.with_closed(file, || Ok(())).unwrap();
            assert_eq!(*lock(&engines[file]), 0);
        }
        assert_eq!(lock(&files.cache.given).bytes, 0, "each file gave back its share of the page caches");
    }

    #[test]
    fn a_file_is_open_once_and_never_closed_while_it_is_used_whatever_threads_do() {
        check(few_open_files);
    }

    #[test]
    fn the_model_of_open_files_finds_a_used_file_that_is_closed() {
        check_finds(Mistake::UsedFileClosed, few_open_files);
    }

    #[test]
    fn the_model_of_open_files_finds_a_lock_that_ends_before_the_file_is_closed() {
        check_finds(Mistake::LockEndsBeforeClose, few_open_files);
    }
}
