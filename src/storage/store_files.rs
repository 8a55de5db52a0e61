//! The store files of a node: opened when they are needed, closed again when too many are open.
//!
//! `open_files.rs` tracks which files are open. A file that was found damaged when it was opened is refused from then
//! on and not opened again, because sled reads all of its log, or copies of it, before it reports damage.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::held::{Held, HeldFiles};
use super::journal::LastSegment;
use super::kv::{StorageError, StoreFile, View};
use super::layout::{FileId, Layout};
use super::manifest::{self, MissingFiles, Names};
use super::open_files::OpenFiles;
use super::planted::Planted;
use super::redb_store::{Fill, RedbStore};
use super::reserved;
use crate::limits;
use crate::world::buggify::{Mutation, mutated};
use crate::world::sync::Mutex;
use crate::world::{Disk, OpenMode, lock};

/// Where the files of a [`LayeredStore`](super::layered::LayeredStore) come from. All calls block.
pub(super) trait StoreFiles: Send + Sync + 'static {
    /// How shards are spread over files.
    fn layout(&self) -> Layout;
    /// Bytes that the page caches of open files may take, and how many files are open.
    fn page_caches(&self) -> (u64, u64) {
        (0, 0)
    }
    /// The files that there are.
    fn list(&self) -> Result<Vec<FileId>, StorageError>;
    /// Opens a file; `None` when it is not there.
    fn open(&self, id: FileId) -> Result<Option<Arc<dyn StoreFile>>, StorageError>;
    /// Opens a file to be written, making it when it is not there. Its name is durable then, and so are those of all
    /// files made before.
    fn make(&self, id: FileId) -> Result<Arc<dyn StoreFile>, StorageError>;
    /// Makes a file with what `fill` puts into it: as a whole, or not at all. Until [`StoreFiles::sync_names`] a power
    /// loss may take it.
    fn make_filled(&self, id: FileId, fill: Fill<'_>) -> Result<(), StorageError>;
    /// Makes the names durable of all files that were made, and the end of those that were removed. Where it fails with
    /// [`StorageError::NoFiles`] it may be tried again.
    fn sync_names(&self) -> Result<(), StorageError>;
    /// Removes a file, durably.
    fn remove(&self, id: FileId) -> Result<(), StorageError>;
    /// Renames a file aside, durably, with a text beside it; answers its name below the data directory.
    fn quarantine(&self, id: FileId, told: &str) -> Result<Option<String>, StorageError>;
    /// No file that is opened from now on may be ahead of this position; it only grows.
    fn allow(&self, position: u64);
    /// Size of all files in bytes.
    fn bytes(&self) -> u64;
    /// Files that should be there and are not; each counts as damaged.
    fn missing(&self) -> BTreeSet<FileId> {
        BTreeSet::new()
    }
    /// Holds the files against what the journal says that they hold, now or when they are opened. Answers those that
    /// are older, each with what shows it, where `missing_files` lets the directory be opened all the same.
    fn hold_against(&self, _held: &HeldFiles, _missing_files: MissingFiles) -> Result<Older, StorageError> {
        Ok(Older::new())
    }
    /// The record of the last journal segment, where one is kept.
    fn last_segment(&self) -> Result<Option<LastSegment>, StorageError> {
        Ok(None)
    }
}

/// Files that are older than they should be, each with what shows it.
pub(super) type Older = BTreeMap<FileId, String>;

/// The position up to which a file holds everything.
pub(super) fn position_of(view: &dyn View) -> Result<u64, StorageError> {
    view.get(reserved::POSITION_KEY)?.map_or(Ok(0), |bytes| reserved::number(&bytes))
}

/// The directory beside that of the store files for those that were put away.
const QUARANTINE: &str = "quarantine";
/// The record of the last journal segment.
const LAST_SEGMENT: &str = "journal-end";
/// Before anything is known of the journal.
const ANY: u64 = u64::MAX;

/// The store files of a data directory.
pub(super) struct DiskStoreFiles {
    pub(super) disk: Arc<dyn Disk>,
    dir: PathBuf,
    layout: Layout,
    planted: Planted,
    pub(super) files: OpenFiles<FileId, dyn StoreFile>,
    allowed: AtomicU64,
    /// What the files held when the directory was opened: they hold at least as much.
    pub(super) held: Mutex<HeldFiles>,
    sizes: Mutex<BTreeMap<FileId, u64>>,
    names: Mutex<Names>,
    /// The directory's lock. A second process must not open the files before the last engine is gone: those are held by
    /// these store files or by its users.
    _lock: Box<dyn Send + Sync>,
}

impl DiskStoreFiles {
    /// The store files of `dir`, which must exist and is locked by `guard`. Reads the layout, or settles it for a new
    /// directory with `common` common files; one of format 1 keeps its shards in file 0. All files that are listed must
    /// be there, or `missing_files` says what is done.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        (common, missing_files): (u64, MissingFiles),
        cache_bytes: usize,
        planted: Planted,
        guard: Box<dyn Send + Sync>,
    ) -> Result<DiskStoreFiles, StorageError> {
        // What a process before this one renamed may be in the system's memory alone. It counts from here on: what the
        // files hold is released elsewhere, in other files and in the journal.
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
        // sled is read as a whole when it is opened.
        let files = OpenFiles::new(cache_bytes, limits::STORE_FILES_OPEN, |id| *id == FileId::Sled);
        let (sizes, allowed, names) = (Mutex::default(), AtomicU64::new(ANY), Mutex::default());
        let held = Mutex::default();
        let store_files =
            DiskStoreFiles { disk, dir, layout, planted, files, allowed, held, sizes, names, _lock: guard };
        store_files.check_files(missing_files)?;
        Ok(store_files)
    }

    /// Holds the files that are there against the list of them, which is made where there is none.
    fn check_files(&self, missing_files: MissingFiles) -> Result<(), StorageError> {
        let there: BTreeSet<FileId> = self.list()?.into_iter().collect();
        let listed = manifest::read(self.disk.as_ref(), &self.dir)?;
        if listed.is_none() && missing_files != MissingFiles::TakeOver && self.last_segment_exists()? {
            return Err(StorageError::Corrupt("store/files, the list of the store files, is missing".into()));
        }
        let is_alone = |file: &FileId| matches!(file, FileId::Own(_));
        let missing: BTreeSet<FileId> = listed.iter().flatten().filter(|file| !there.contains(file)).copied().collect();
        let is_taken = match missing_files {
            MissingFiles::Refuse => missing.is_empty(),
            MissingFiles::Rebuild => missing.iter().all(is_alone),
            MissingFiles::TakeOver => true,
        };
        if !is_taken {
            return Err(StorageError::Corrupt(format!("missing: {}", manifest::told(&missing))));
        }
        for file in &missing {
            let gone = StorageError::Corrupt(format!("store file {}: it is missing", file.name()));
            self.files.refuse(*file, gone);
        }
        let all: BTreeSet<FileId> = there.union(&missing).copied().collect();
        lock(&self.names).missing = missing;
        if listed.as_ref() != Some(&all) {
            manifest::write(self.disk.as_ref(), &self.dir, &all)?;
        }
        Ok(())
    }

    fn last_segment_exists(&self) -> Result<bool, StorageError> {
        Ok(self.disk.exists(&self.dir.join(LAST_SEGMENT))?)
    }

    /// Takes a file out of the list before it goes.
    fn unlist(&self, id: FileId) -> Result<(), StorageError> {
        let mut names = lock(&self.names);
        names.leaving.insert(id);
        names.missing.remove(&id);
        self.write_list(&names)
    }

    /// Lists the files that are there, whose names are durable.
    fn write_list(&self, names: &Names) -> Result<(), StorageError> {
        let found = self.disk.list(&self.dir)?;
        let mut there: BTreeSet<FileId> = found.iter().filter_map(|entry| FileId::by_name(&entry.name)).collect();
        self.disk.sync_dir(&self.dir)?;
        there.extend(&names.missing);
        there.retain(|file| !names.leaving.contains(file));
        manifest::write(self.disk.as_ref(), &self.dir, &there)
    }

    pub(super) fn path(&self, id: FileId) -> PathBuf {
        self.dir.join(id.name())
    }

    fn get(&self, id: FileId, make: bool) -> Result<Option<Arc<dyn StoreFile>>, StorageError> {
        let exists = || Ok(make || self.disk.exists(&self.path(id))?);
        self.files.get(id, exists, |cache_bytes| {
            let engine = self.open_engine(id, cache_bytes)?;
            lock(&self.sizes).insert(id, engine.disk_bytes());
            Ok(engine)
        })
    }

    fn open_engine(&self, id: FileId, cache_bytes: usize) -> Result<Arc<dyn StoreFile>, StorageError> {
        let engine: Arc<dyn StoreFile> = match id {
            FileId::Sled => {
                if !self.disk.exists(&self.path(id))? {
                    self.names_changed(id);
                }
                open_sled(&self.disk, self.path(id), cache_bytes)?
            }
            _ => {
                let path = self.path(id);
                if !self.disk.exists(&path)? {
                    RedbStore::create_named(self.disk.as_ref(), &path, cache_bytes, &mut |_| Ok(()))?;
                    self.names_changed(id);
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
        let least = lock(&self.held).get(&id).copied().unwrap_or_default();
        match least.is_missing_from(Held { position, root_writes: engine.root_writes() }) {
            Some(why) => Err(StorageError::Corrupt(format!("store/{} {why}", id.name()))),
            None => Ok(engine),
        }
    }

    /// A file has come or gone.
    fn names_changed(&self, id: FileId) {
        let mut names = lock(&self.names);
        names.unsynced = true;
        names.leaving.remove(&id);
    }

    /// Renames a file that is closed aside, durably.
    fn put_away(&self, id: FileId, told: &str) -> Result<Option<String>, StorageError> {
        let (name, path) = (id.name(), self.path(id));
        let aside = self.dir.with_file_name(QUARANTINE);
        if !self.disk.exists(&path)? {
            if lock(&self.names).missing.contains(&id) {
                self.unlist(id)?;
            }
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
        self.unlist(id)?;
        self.disk.rename(&path, &aside.join(&name))?;
        self.disk.sync_dir(&aside)?;
        self.disk.sync_dir(&self.dir)?;
        lock(&self.names).leaving.remove(&id);
        Ok(Some(format!("{QUARANTINE}/{name}")))
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

impl StoreFiles for DiskStoreFiles {
    fn layout(&self) -> Layout {
        self.layout
    }

    fn page_caches(&self) -> (u64, u64) {
        self.files.given()
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
        found.extend(&lock(&self.names).missing);
        Ok(found)
    }

    fn open(&self, id: FileId) -> Result<Option<Arc<dyn StoreFile>>, StorageError> {
        match self.get(id, false) {
            Err(StorageError::NoFiles(_)) if mutated(Mutation::UnopenedFileAbsent) => Ok(None),
            found => found,
        }
    }

    fn make(&self, id: FileId) -> Result<Arc<dyn StoreFile>, StorageError> {
        let engine = self.get(id, true)?;
        // Also where an earlier attempt could not.
        self.sync_names()?;
        engine.ok_or_else(|| StorageError::Io(format!("{} cannot be made", id.name())))
    }

    fn make_filled(&self, id: FileId, fill: Fill<'_>) -> Result<(), StorageError> {
        RedbStore::create_named(self.disk.as_ref(), &self.path(id), limits::STORE_FILE_CACHE_BYTES, fill)?;
        self.names_changed(id);
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        let mut names = lock(&self.names);
        if names.unsynced {
            let synced = self.write_list(&names);
            if !mutated(Mutation::FailedDirSyncTrusted) {
                synced?;
            }
            names.unsynced = false;
        }
        Ok(())
    }

    fn remove(&self, id: FileId) -> Result<(), StorageError> {
        self.files.with_closed(id, || {
            if self.disk.exists(&self.path(id))? {
                self.unlist(id)?;
                self.disk.remove(&self.path(id))?;
                self.names_changed(id);
            } else if lock(&self.names).missing.contains(&id) {
                self.unlist(id)?;
            }
            lock(&self.sizes).remove(&id);
            self.sync_names()
        })
    }

    fn quarantine(&self, id: FileId, told: &str) -> Result<Option<String>, StorageError> {
        self.files.with_closed(id, || {
            lock(&self.sizes).remove(&id);
            self.put_away(id, told)
        })
    }

    fn missing(&self) -> BTreeSet<FileId> {
        lock(&self.names).missing.clone()
    }

    fn last_segment(&self) -> Result<Option<LastSegment>, StorageError> {
        LastSegment::open(self.disk.as_ref(), &self.dir.join(LAST_SEGMENT)).map(Some)
    }

    fn hold_against(&self, held: &HeldFiles, missing_files: MissingFiles) -> Result<Older, StorageError> {
        self.find_older(held, missing_files)
    }

    fn allow(&self, position: u64) {
        let later = |allowed| if allowed == ANY { position } else { position.max(allowed) };
        // Invariant: the closure always answers.
        let _ = self.allowed.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |allowed| Some(later(allowed)));
    }

    fn bytes(&self) -> u64 {
        let mut sizes = lock(&self.sizes);
        // One that is being opened keeps its last known size.
        self.files.each_open(|id, engine| {
            sizes.insert(id, engine.disk_bytes());
        });
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
            DiskStoreFiles::open(
                Arc::clone(&disk),
                dir,
                (2, MissingFiles::Refuse),
                cache,
                Planted::none(),
                Box::new(()),
            )
            .unwrap()
        };
        let id = FileId::Common(1);
        open().make(id).unwrap();
        let file = dir.path().join(id.name());
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..100]).unwrap();

        let store_files = open();
        let refused = store_files.open(id).err();
        assert!(matches!(refused, Some(StorageError::Corrupt(_))), "{refused:?}");
        // The one that opened it now would find it whole.
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(store_files.open(id).err(), refused);
        assert_eq!(store_files.make(id).err(), refused);
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
            DiskStoreFiles::open(
                Arc::<Forgetful>::clone(&disk),
                dir,
                (2, MissingFiles::Refuse),
                cache,
                Planted::none(),
                Box::new(()),
            )
            .unwrap()
        };
        // Killed when a file of a shard has its name and before the directory was synced.
        let id = FileId::Own(0x1_0000);
        open().make_filled(id, &mut |_| Ok(())).unwrap();
        let store_files = open();
        assert_eq!(store_files.list().unwrap(), [id]);
        drop(store_files.make(id).unwrap());
        drop(store_files);
        disk.lose_power().unwrap();
        assert_eq!(open().list().unwrap(), [id]);
    }

    #[test]
    fn a_file_that_is_listed_and_missing_is_refused_or_counts_as_damaged_until_it_is_given_up() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let dir = tempfile::tempdir().unwrap();
        let open = |missing| {
            let (store, cache) = (dir.path().join("store"), limits::STORE_FILE_CACHE_BYTES);
            disk.create_dir_all(&store).unwrap();
            DiskStoreFiles::open(Arc::clone(&disk), store, (2, missing), cache, Planted::none(), Box::new(()))
        };
        let (own, common) = (FileId::Own(0x1_0000), FileId::Common(1));
        let path = |id: FileId| dir.path().join("store").join(id.name());
        let store_files = open(MissingFiles::Refuse).unwrap();
        store_files.make_filled(own, &mut |_| Ok(())).unwrap();
        drop(store_files.make(common).unwrap());
        drop(store_files);
        std::fs::remove_file(path(own)).unwrap();
        assert!(open(MissingFiles::Refuse).is_err());
        for _ in 0..2 {
            // Not released: the next start finds it missing, too.
            let store_files = open(MissingFiles::Rebuild).unwrap();
            assert_eq!(store_files.missing(), [own].into());
            assert!(store_files.list().unwrap().contains(&own));
            assert!(matches!(store_files.open(own), Err(StorageError::Corrupt(_))));
        }
        let store_files = open(MissingFiles::Rebuild).unwrap();
        assert_eq!(store_files.quarantine(own, "made anew").unwrap(), None);
        drop(store_files);
        drop(open(MissingFiles::Refuse).unwrap());
        std::fs::remove_file(path(common)).unwrap();
        assert!(open(MissingFiles::Rebuild).is_err(), "it held many shards");
        assert!(open(MissingFiles::TakeOver).unwrap().open(common).is_err());
    }

    #[cfg(feature = "sled")]
    #[test]
    fn sled_stays_open_however_many_files_are_used_after_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        let dir = tempfile::tempdir().unwrap();
        let cache = limits::STORE_FILE_CACHE_BYTES;
        let store_files = DiskStoreFiles::open(
            disk,
            dir.path().to_path_buf(),
            (80, MissingFiles::Refuse),
            cache,
            Planted::none(),
            Box::new(()),
        )
        .unwrap();
        drop(store_files.make(FileId::Sled).unwrap());
        let files = limits::STORE_FILES_OPEN as u64 + 2;
        (0..files).for_each(|n| drop(store_files.make(FileId::Common(n)).unwrap()));
        let is_open = |id: FileId| {
            let mut found = false;
            store_files.files.each_open(|open, _| found |= open == id);
            found
        };
        assert!(is_open(FileId::Sled) && !is_open(FileId::Common(0)) && is_open(FileId::Common(files - 1)));
    }
}
