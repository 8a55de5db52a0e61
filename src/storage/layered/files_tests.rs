//! Too many open files: whatever fails for that reason, nothing is lost and writes continue. A failed sync stops
//! writes.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;

use super::*;
use crate::storage::store_files::DiskStoreFiles;
use crate::world::with_disk::with_disk;
use crate::world::{Disk, Entry, File, OpenMode};

const EIO: i32 = 5;
const EMFILE: i32 = 24;

/// What goes wrong.
#[derive(Debug, Default)]
struct Faults {
    /// Operations on names that succeed first, and then how many fail.
    names: Mutex<(usize, usize)>,
    /// The error of all syncs of files.
    sync: Mutex<Option<i32>>,
    /// Directories in which a name has come by a rename since they were synced.
    unsynced: Mutex<BTreeSet<PathBuf>>,
}

impl Faults {
    fn fail(&self, after: usize, count: usize) {
        *self.names.lock().unwrap() = (after, count);
    }

    /// The next operation on names.
    fn pass(&self) -> io::Result<()> {
        let mut names = self.names.lock().unwrap();
        match *names {
            (0, 0) => Ok(()),
            (0, count) => {
                names.1 = count - 1;
                Err(io::Error::from_raw_os_error(EMFILE))
            }
            (after, _) => {
                names.0 = after - 1;
                Ok(())
            }
        }
    }
}

struct FewFiles {
    below: Arc<dyn Disk>,
    faults: Arc<Faults>,
}

impl Disk for FewFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.faults.pass()?;
        Ok(Arc::new(OneFile { below: self.below.open(path, mode)?, faults: Arc::clone(&self.faults) }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.below.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.below.rename(from, to)?;
        self.faults.unsynced.lock().unwrap().extend(to.parent().map(Path::to_path_buf));
        Ok(())
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.below.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.below.remove_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.faults.pass()?;
        self.below.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.faults.pass()?;
        self.below.exists(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.faults.pass()?;
        self.below.sync_dir(path)?;
        self.faults.unsynced.lock().unwrap().remove(path);
        Ok(())
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}

#[derive(Debug)]
struct OneFile {
    below: Arc<dyn File>,
    faults: Arc<Faults>,
}

impl File for OneFile {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.below.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        match *self.faults.sync.lock().unwrap() {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => self.below.sync(),
        }
    }
}

fn open(dir: &Path, faults: &Arc<Faults>, flush_at_bytes: usize) -> LayeredStore {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let env = crate::world::tokio_host::env(runtime.handle().clone());
    let disk = Arc::new(FewFiles { below: env.disk(), faults: Arc::clone(faults) });
    let env = with_disk(&env, disk);
    let (store, none) = (dir.join("store"), Planted::none());
    std::fs::create_dir_all(&store).unwrap();
    let store_files =
        DiskStoreFiles::open(env.disk(), store, (2, MissingFiles::Refuse), 1 << 20, none, Box::new(())).unwrap();
    let options =
        LayeredOptions { flush_at_bytes, own_file_bytes: 400, missing_files: MissingFiles::Refuse, planted: none };
    LayeredStore::open(&env, &dir.join("journal"), Arc::new(store_files), options).unwrap()
}

/// Shards of two common files, and one that grows.
const GROWS: u64 = 16;
const GOES: u64 = 17;
const STAYS: u64 = 24;

fn put(shard: u64, rest: u8) -> Batch {
    let mut batch = Batch::new();
    batch.put(key(shard, rest), vec![rest; 60]);
    batch
}

fn key(shard: u64, rest: u8) -> Vec<u8> {
    [shard.to_be_bytes().as_slice(), &[rest]].concat()
}

/// Commits as the committer does, and flushes as the flusher does.
fn commit(dir: &Path, store: &LayeredStore, faults: &Faults, batch: &Batch) {
    let mut tries = 0;
    while let Err(error) = store.prepare() {
        tries += 1;
        assert!(matches!(error, StorageError::NoFiles(_)) && tries < 5, "{error}");
    }
    store.commit(batch).unwrap();
    loop {
        let Some(file) = store.tables().next_flush() else { break };
        while store.flush(file) {
            tries += 1;
            assert!(tries < 9 && !store.has_failed());
        }
        assert!(!store.has_failed(), "after a flush of {}", file.name());
        let unsynced = faults.unsynced.lock().unwrap();
        assert!(!unsynced.contains(&dir.join("store")), "a power loss takes what was flushed");
    }
}

#[test]
fn every_operation_on_names_may_lack_a_descriptor_and_nothing_is_lost() {
    let mut moved = 0;
    for failing in 0.. {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
        let store = open(dir.path(), &faults, 200);
        faults.fail(failing, 2);
        let history = (0..8).flat_map(|n| [put(GROWS, n), put(GOES, n)]).chain((0..4).map(|n| put(STAYS, n)));
        history.for_each(|batch| commit(dir.path(), &store, &faults, &batch));
        moved += usize::from(store.tables().home(GROWS) == FileId::Own(GROWS));
        let mut clear = Batch::new();
        clear.clear_shard(GOES);
        commit(dir.path(), &store, &faults, &clear);
        (8..11).for_each(|n| commit(dir.path(), &store, &faults, &put(GROWS, n)));
        let was_enough = faults.names.lock().unwrap().1 > 0;
        faults.fail(0, 0);
        drop(store);
        let store = open(dir.path(), &faults, 200);
        let view = store.view().unwrap();
        assert!((0..11).all(|n| view.get(&key(GROWS, n)).unwrap() == Some(vec![n; 60])), "{failing}");
        assert!((0..4).all(|n| view.get(&key(STAYS, n)).unwrap() == Some(vec![n; 60])), "{failing}");
        assert!((0..8).all(|n| view.get(&key(GOES, n)).unwrap().is_none()), "{failing}");
        if was_enough {
            assert!(failing > 30 && moved > failing / 2, "{failing} {moved}");
            return;
        }
    }
}

#[test]
fn without_descriptors_writes_go_on_for_a_while_then_wait_and_go_on_when_there_are_some() {
    let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
    let store = open(dir.path(), &faults, 1000);
    faults.fail(0, usize::MAX);
    let mut written = 0;
    while store.prepare().is_ok() {
        store.commit(&put(STAYS, written)).unwrap();
        written += 1;
        assert!(written < 100, "a segment without end");
    }
    assert!(written > 1 && matches!(store.prepare(), Err(StorageError::NoFiles(_))));
    let file = store.tables().next_flush().unwrap();
    assert!((0..3).all(|_| store.flush(file)) && !store.has_failed());
    assert!(store.tables().next_flush().is_none(), "it is tried again by the one that began it");
    faults.fail(0, 0);
    assert!(!store.flush(file) && store.prepare().is_ok());
    store.commit(&put(STAYS, written)).unwrap();
    let view = store.view().unwrap();
    assert!((0..=written).all(|n| view.get(&key(STAYS, n)).unwrap() == Some(vec![n; 60])));
    drop(view);
    drop(store);
    let store = open(dir.path(), &faults, 1000);
    let view = store.view().unwrap();
    assert!((0..=written).all(|n| view.get(&key(STAYS, n)).unwrap() == Some(vec![n; 60])));
}

#[test]
fn a_failed_sync_stops_writes_for_good_whatever_error_it_gives() {
    for (code, in_flush) in [(EIO, false), (EMFILE, false), (EIO, true)] {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
        let store = open(dir.path(), &faults, 200);
        (0..3).for_each(|n| store.commit(&put(STAYS, n)).unwrap());
        *faults.sync.lock().unwrap() = Some(code);
        if in_flush {
            let file = store.tables().next_flush().unwrap();
            assert!(!store.flush(file) && store.has_failed(), "{code}");
        } else {
            assert!(matches!(store.commit(&put(STAYS, 9)), Err(StorageError::Io(_))), "{code}");
        }
        *faults.sync.lock().unwrap() = None;
        assert!(store.commit(&put(STAYS, 9)).is_err(), "{code} {in_flush}");
    }
}

#[test]
fn a_file_that_was_put_away_for_a_part_is_put_away_in_the_end() {
    for failing in 0..8 {
        let (dir, faults) = (tempfile::tempdir().unwrap(), Arc::new(Faults::default()));
        let store = open(dir.path(), &faults, 200);
        (0..9).for_each(|n| commit(dir.path(), &store, &faults, &put(GROWS, n)));
        let name = format!("quarantine/{}", FileId::Own(GROWS).name());
        faults.fail(failing, 1);
        let mut quarantined = store.quarantine(GROWS, "why");
        if quarantined.is_err() {
            quarantined = store.quarantine(GROWS, "why");
        }
        assert_eq!(quarantined, Ok(Some(name.clone())), "{failing}");
        assert!(dir.path().join(&name).exists());
        let unsynced = faults.unsynced.lock().unwrap();
        assert!(["store", "quarantine"].iter().all(|name| !unsynced.contains(&dir.path().join(name))), "{failing}");
    }
}
