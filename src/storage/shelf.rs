//! The store files of a node: opened when they are needed, closed again when too many are open.
//!
//! Each redb file has a page cache of its own, fixed when it is opened; a file gets a share of what is left of the
//! node's budget then. A file that somebody reads or writes is never closed: its engine is counted, and only the last
//! holder may let it go. A file that was found damaged when it was opened is refused from then on and not opened again:
//! sled reads all of its log, or copies of it, before it says so.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::kv::{StorageError, StoreFile, View};
use super::layout::{FileId, Layout};
use super::planted::Planted;
use super::redb_store::{Fill, RedbStore};
use super::reserved;
use crate::limits;
use crate::world::buggify::{Mutation, mutated};
use crate::world::{Disk, OpenMode, lock, waiting};

/// Where the files of a [`LayeredStore`](super::layered::LayeredStore) come from. All calls block.
pub(super) trait Shelf: Send + Sync + 'static {
    /// How shards are spread over files.
    fn layout(&self) -> Layout;
    /// The files that there are.
    fn list(&self) -> Result<Vec<FileId>, StorageError>;
    /// Opens a file; `None` when it is not there.
    fn open(&self, id: FileId) -> Result<Option<Arc<dyn StoreFile>>, StorageError>;
    /// Opens a file to be written, making it when it is not there. Its name is durable then, and so are those of all
    /// files made before.
    fn make(&self, id: FileId) -> Result<Arc<dyn StoreFile>, StorageError>;
    /// Makes a file with what `fill` puts into it: as a whole, or not at all. Until [`Shelf::sync_names`] a power loss
    /// may take it.
    fn make_filled(&self, id: FileId, fill: Fill<'_>) -> Result<(), StorageError>;
    /// Makes the names durable of all files that were made, and the end of those that were removed. Where it fails with
    /// [`StorageError::NoFiles`] it may be tried again.
    fn sync_names(&self) -> Result<(), StorageError>;
    /// Removes a file, durably.
    fn remove(&self, id: FileId) -> Result<(), StorageError>;
    /// Renames a file aside, durably, with a text beside it; answers its name below the data directory.
    fn park(&self, id: FileId, told: &str) -> Result<Option<String>, StorageError>;
    /// No file that is opened from now on may be ahead of this position; it only grows.
    fn allow(&self, position: u64);
    /// Size of all files in bytes.
    fn bytes(&self) -> u64;
}

/// The position up to which a file holds everything.
pub(super) fn position_of(view: &dyn View) -> Result<u64, StorageError> {
    view.get(reserved::POSITION_KEY)?.map_or(Ok(0), |bytes| reserved::number(&bytes))
}

/// The directory beside that of the store files for those that were put away.
const QUARANTINE: &str = "quarantine";
/// Before anything is known of the journal.
const ANY: u64 = u64::MAX;

/// The shelf of a data directory.
pub(super) struct DiskShelf {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    layout: Layout,
    planted: Planted,
    slots: Mutex<BTreeMap<FileId, Arc<Slot>>>,
    cache: Cache,
    uses: AtomicU64,
    allowed: AtomicU64,
    sizes: Mutex<BTreeMap<FileId, u64>>,
    /// A name has come or gone since the directory was synced.
    unsynced: Mutex<bool>,
    /// The directory's lock. A second process must not open the files before the last engine is gone: those are held by
    /// this shelf or by its users.
    _lock: Box<dyn Send + Sync>,
}

#[derive(Default)]
struct Slot {
    /// `None`: closed. An error: it is damaged.
    open: Mutex<Opened>,
    used: AtomicU64,
}

type Opened = Option<Result<Open, StorageError>>;

struct Open {
    engine: Arc<dyn StoreFile>,
    cache_bytes: usize,
}

/// What is left of the budget for page caches.
struct Cache(Mutex<usize>);

impl Cache {
    /// An eighth of what is left: the first files opened get most, and there is always something for one more.
    fn take(&self) -> usize {
        let mut left = lock(&self.0);
        let share = (*left / 8).max(limits::STORE_FILE_CACHE_BYTES);
        *left = left.saturating_sub(share);
        share
    }

    fn give_back(&self, bytes: usize) {
        *lock(&self.0) += bytes;
    }
}

impl DiskShelf {
    /// The shelf of `dir`, which must exist and is locked by `guard`. Reads the layout, or settles it for a new
    /// directory with `common` common files; one of format 1 keeps its shards in file 0.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        common: u64,
        cache_bytes: usize,
        planted: Planted,
        guard: Box<dyn Send + Sync>,
    ) -> Result<DiskShelf, StorageError> {
        // What a process before this one renamed may be in the system's memory alone. It counts from here on: what the
        // files hold is given up elsewhere, in other files and in the journal.
        let aside = dir.with_file_name(QUARANTINE);
        if disk.exists(&aside)? {
            disk.sync_dir(&aside)?;
        }
        disk.sync_dir(&dir)?;
        for entry in disk.list(&dir)? {
            if entry.name.ends_with(".new") {
                disk.remove(&dir.join(&entry.name))?;
            }
        }
        let layout = match Layout::read(disk.as_ref(), &dir)? {
            Some(layout) => layout,
            None => {
                let old = first_new_shard(disk.as_ref(), &dir.join(FileId::Common(0).name()), planted)?;
                let layout = Layout { common, old };
                layout.write(disk.as_ref(), &dir)?;
                layout
            }
        };
        let (slots, sizes) = (Mutex::default(), Mutex::default());
        let (uses, allowed) = (AtomicU64::new(0), AtomicU64::new(ANY));
        let cache = Cache(Mutex::new(cache_bytes));
        let unsynced = Mutex::new(false);
        Ok(DiskShelf { disk, dir, layout, planted, slots, cache, uses, allowed, sizes, unsynced, _lock: guard })
    }

    fn path(&self, id: FileId) -> PathBuf {
        self.dir.join(id.name())
    }

    fn get(&self, id: FileId, make: bool) -> Result<Option<Arc<dyn StoreFile>>, StorageError> {
        let slot = Arc::clone(lock(&self.slots).entry(id).or_default());
        slot.used.store(self.uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        let open = lock(&slot.open);
        match open.as_ref() {
            Some(Ok(open)) => return Ok(Some(Arc::clone(&open.engine))),
            Some(Err(refused)) => return Err(refused.clone()),
            None => {}
        }
        if !make && !self.disk.exists(&self.path(id))? {
            return Ok(None);
        }
        waiting(|| self.open_slot(id, open)).map(Some)
    }

    /// Opens a file whose slot is locked, and closes others in its place.
    fn open_slot(&self, id: FileId, mut open: MutexGuard<'_, Opened>) -> Result<Arc<dyn StoreFile>, StorageError> {
        let cache_bytes = self.cache.take();
        let engine = match self.open_engine(id, cache_bytes) {
            Ok(engine) => engine,
            Err(error) => {
                self.cache.give_back(cache_bytes);
                *open = matches!(error, StorageError::Corrupt(_)).then(|| Err(error.clone()));
                return Err(error);
            }
        };
        lock(&self.sizes).insert(id, engine.disk_bytes());
        *open = Some(Ok(Open { engine: Arc::clone(&engine), cache_bytes }));
        drop(open);
        self.close_idle();
        Ok(engine)
    }

    fn open_engine(&self, id: FileId, cache_bytes: usize) -> Result<Arc<dyn StoreFile>, StorageError> {
        let engine: Arc<dyn StoreFile> = match id {
            FileId::Sled => open_sled(&self.disk, self.path(id), cache_bytes)?,
            _ => {
                let path = self.path(id);
                if !self.disk.exists(&path)? {
                    RedbStore::create_named(self.disk.as_ref(), &path, cache_bytes, &mut |_| Ok(()))?;
                    self.names_changed();
                    self.sync_names()?;
                }
                Arc::new(RedbStore::open(self.disk.as_ref(), &path, cache_bytes, self.planted)?)
            }
        };
        let (position, allowed) = (position_of(engine.snapshot()?.as_ref())?, self.allowed.load(Ordering::SeqCst));
        if position > allowed {
            let text = format!("{} has position {position}, the journal ends with {allowed}", id.name());
            return Err(StorageError::Corrupt(text));
        }
        Ok(engine)
    }

    fn names_changed(&self) {
        *lock(&self.unsynced) = true;
    }

    /// Closes files that nobody uses, those first that were used longest ago, while too many are open. sled stays: it
    /// is read as a whole when it is opened.
    fn close_idle(&self) {
        let mut slots: Vec<(u64, Arc<Slot>)> = lock(&self.slots)
            .iter()
            .filter(|(id, _)| **id != FileId::Sled)
            .map(|(_, slot)| (slot.used.load(Ordering::Relaxed), Arc::clone(slot)))
            .collect();
        let is_open = |slot: &Slot| slot.open.try_lock().map_or(true, |open| matches!(*open, Some(Ok(_))));
        slots.retain(|(_, slot)| is_open(slot));
        slots.sort_by_key(|(used, _)| *used);
        let mut surplus = slots.len().saturating_sub(limits::STORE_FILES_OPEN);
        for (_, slot) in slots {
            if surplus == 0 {
                return;
            }
            // One that is being opened or closed is in use.
            let Ok(mut open) = slot.open.try_lock() else { continue };
            if matches!(&*open, Some(Ok(open)) if Arc::strong_count(&open.engine) == 1)
                && let Some(Ok(closed)) = open.take()
            {
                // Within the slot's lock: it must not be opened again before it is closed.
                drop(closed.engine);
                self.cache.give_back(closed.cache_bytes);
                surplus -= 1;
            }
        }
    }
}

/// The first number above all shards that a directory of format 1 has; 0 for a new directory.
fn first_new_shard(disk: &dyn Disk, file: &std::path::Path, planted: Planted) -> Result<u64, StorageError> {
    if !disk.exists(file)? {
        return Ok(0);
    }
    let engine = RedbStore::open(disk, file, limits::STORE_FILE_CACHE_BYTES, planted)?;
    let mut last = None;
    let shards = super::KeyRange::new(Vec::new(), reserved::lowest(reserved::SHARD));
    engine.snapshot()?.scan(&shards, super::Direction::Reverse, &mut |key, _| {
        last = Some(reserved::shard_of(key));
        std::ops::ControlFlow::Break(())
    })?;
    Ok(last.map_or(0, |last| last + 1))
}

#[cfg(feature = "sled")]
fn open_sled(disk: &Arc<dyn Disk>, dir: PathBuf, cache_bytes: usize) -> Result<Arc<dyn StoreFile>, StorageError> {
    Ok(Arc::new(super::sled_store::SledStore::open(Arc::clone(disk), dir, cache_bytes)?))
}

#[cfg(not(feature = "sled"))]
fn open_sled(_disk: &Arc<dyn Disk>, dir: PathBuf, _cache_bytes: usize) -> Result<Arc<dyn StoreFile>, StorageError> {
    Err(StorageError::Io(format!("{}: this settee was built without the engine sled", dir.display())))
}

impl Shelf for DiskShelf {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn list(&self) -> Result<Vec<FileId>, StorageError> {
        let mut found = Vec::new();
        let mut sizes = lock(&self.sizes);
        for entry in self.disk.list(&self.dir)? {
            if let Some(id) = FileId::by_name(&entry.name) {
                found.push(id);
                sizes.insert(id, entry.len);
            }
        }
        Ok(found)
    }

    fn open(&self, id: FileId) -> Result<Option<Arc<dyn StoreFile>>, StorageError> {
        self.get(id, false)
    }

    fn make(&self, id: FileId) -> Result<Arc<dyn StoreFile>, StorageError> {
        let engine = self.get(id, true)?;
        // Also where an earlier attempt could not.
        self.sync_names()?;
        engine.ok_or_else(|| StorageError::Io(format!("{} cannot be made", id.name())))
    }

    fn make_filled(&self, id: FileId, fill: Fill<'_>) -> Result<(), StorageError> {
        RedbStore::create_named(self.disk.as_ref(), &self.path(id), limits::STORE_FILE_CACHE_BYTES, fill)?;
        self.names_changed();
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        let mut unsynced = lock(&self.unsynced);
        if *unsynced {
            let synced = self.disk.sync_dir(&self.dir);
            if !mutated(Mutation::FailedDirSyncTrusted) {
                synced?;
            }
            *unsynced = false;
        }
        Ok(())
    }

    fn remove(&self, id: FileId) -> Result<(), StorageError> {
        let slot = Arc::clone(lock(&self.slots).entry(id).or_default());
        let mut open = lock(&slot.open);
        if let Some(Ok(closed)) = open.take() {
            self.cache.give_back(closed.cache_bytes);
        }
        if self.disk.exists(&self.path(id))? {
            self.disk.remove(&self.path(id))?;
            self.names_changed();
        }
        lock(&self.sizes).remove(&id);
        self.sync_names()
    }

    fn park(&self, id: FileId, told: &str) -> Result<Option<String>, StorageError> {
        let slot = Arc::clone(lock(&self.slots).entry(id).or_default());
        let mut open = lock(&slot.open);
        if let Some(Ok(closed)) = open.take() {
            self.cache.give_back(closed.cache_bytes);
        }
        lock(&self.sizes).remove(&id);
        let (name, path) = (id.name(), self.path(id));
        let aside = self.dir.with_file_name(QUARANTINE);
        if !self.disk.exists(&path)? {
            if !self.disk.exists(&aside.join(&name))? {
                return Ok(None);
            }
            // An attempt got no further: a power loss could still bring it back.
            self.disk.sync_dir(&aside)?;
            self.disk.sync_dir(&self.dir)?;
            return Ok(Some(format!("{QUARANTINE}/{name}")));
        }
        self.disk.create_dir_all(&aside)?;
        if let Some(root) = self.dir.parent() {
            self.disk.sync_dir(root)?;
        }
        let text = self.disk.open(&aside.join(format!("{name}.txt")), OpenMode::Create)?;
        text.set_len(0)?;
        text.write_at(0, told.as_bytes())?;
        text.sync()?;
        self.disk.rename(&path, &aside.join(&name))?;
        self.disk.sync_dir(&aside)?;
        self.disk.sync_dir(&self.dir)?;
        Ok(Some(format!("{QUARANTINE}/{name}")))
    }

    fn allow(&self, position: u64) {
        let later = |allowed| if allowed == ANY { position } else { position.max(allowed) };
        // Invariant: the closure always answers.
        let _ = self.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |allowed| Some(later(allowed)));
    }

    fn bytes(&self) -> u64 {
        let open: Vec<(FileId, Arc<Slot>)> = lock(&self.slots).iter().map(|(id, s)| (*id, Arc::clone(s))).collect();
        let mut sizes = lock(&self.sizes);
        for (id, slot) in open {
            // One that is being opened keeps its last known size.
            if let Ok(open) = slot.open.try_lock()
                && let Some(Ok(open)) = open.as_ref()
            {
                sizes.insert(id, open.engine.disk_bytes());
            }
        }
        sizes.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::forgetful::Forgetful;

    #[test]
    fn a_store_file_that_is_damaged_is_opened_once_and_not_for_every_read() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let dir = tempfile::tempdir().unwrap();
        let open = || {
            let (dir, cache) = (dir.path().to_path_buf(), limits::STORE_FILE_CACHE_BYTES);
            DiskShelf::open(Arc::clone(&disk), dir, 2, cache, Planted::none(), Box::new(())).unwrap()
        };
        let id = FileId::Common(1);
        open().make(id).unwrap();
        let file = dir.path().join(id.name());
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..100]).unwrap();

        let shelf = open();
        let refused = shelf.open(id).err();
        assert!(matches!(refused, Some(StorageError::Corrupt(_))), "{refused:?}");
        // Whoever opened it now would find it whole.
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(shelf.open(id).err(), refused);
        assert_eq!(shelf.make(id).err(), refused);
        assert!(open().open(id).unwrap().is_some());
    }

    #[test]
    fn names_that_a_process_gave_before_it_was_killed_survive_a_power_loss_after_the_next_start() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let below = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let dir = tempfile::tempdir().unwrap();
        let disk = Forgetful::over(below);
        let open = || {
            let (dir, cache) = (dir.path().to_path_buf(), limits::STORE_FILE_CACHE_BYTES);
            DiskShelf::open(Arc::<Forgetful>::clone(&disk), dir, 2, cache, Planted::none(), Box::new(())).unwrap()
        };
        // Killed when a file of a shard has its name and before the directory was synced.
        let id = FileId::Own(0x1_0000);
        open().make_filled(id, &mut |_| Ok(())).unwrap();
        let shelf = open();
        assert_eq!(shelf.list().unwrap(), [id]);
        drop(shelf.make(id).unwrap());
        drop(shelf);
        disk.lose_power().unwrap();
        assert_eq!(open().list().unwrap(), [id]);
    }

    #[cfg(feature = "sled")]
    #[test]
    fn sled_stays_open_however_many_files_are_used_after_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let dir = tempfile::tempdir().unwrap();
        let cache = limits::STORE_FILE_CACHE_BYTES;
        let shelf = DiskShelf::open(disk, dir.path().to_path_buf(), 80, cache, Planted::none(), Box::new(())).unwrap();
        drop(shelf.make(FileId::Sled).unwrap());
        let files = limits::STORE_FILES_OPEN as u64 + 2;
        (0..files).for_each(|n| drop(shelf.make(FileId::Common(n)).unwrap()));
        let is_open = |id: FileId| lock(&lock(&shelf.slots)[&id].open).is_some();
        assert!(is_open(FileId::Sled) && !is_open(FileId::Common(0)) && is_open(FileId::Common(files - 1)));
    }
}
