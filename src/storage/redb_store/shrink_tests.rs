//! Shrinking of a file that is mostly free: its content reads the same before, during and after, and after a kill.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicI64;

use super::*;
use crate::storage::store_blocks::place;
use crate::storage::{Batch, Store};
use crate::world::{File, OpenMode, lock};

const ROWS: u32 = 8000;

fn disk() -> Arc<dyn Disk> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone()).disk()
}

fn open(path: &Path) -> RedbStore {
    RedbStore::open(disk().as_ref(), path, 1 << 20, Planted::none()).unwrap()
}

/// 8 MB of rows, of which each tenth is left.
fn mostly_free(path: &Path) -> RedbStore {
    let store = open(path);
    let (mut batch, mut removals) = (Batch::new(), Batch::new());
    (0..ROWS).for_each(|n| batch.put(n.to_be_bytes().to_vec(), vec![n as u8; 1000]));
    (0..ROWS).filter(|n| n % 10 != 0).for_each(|n| removals.delete(n.to_be_bytes().to_vec()));
    store.commit(&batch).unwrap();
    assert_eq!(StoreFile::shrink(&store).unwrap(), Shrunk::NotDue);
    store.commit(&removals).unwrap();
    store
}

fn check(store: &RedbStore) {
    let view = store.view().unwrap();
    for n in 0..ROWS {
        let left = (n % 10 == 0).then(|| vec![n as u8; 1000]);
        assert_eq!(view.get(&n.to_be_bytes()).unwrap(), left, "row {n}");
    }
}

fn len(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_file_of_which_nine_tenths_were_deleted_gets_smaller_under_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let store = mostly_free(&path);
    let full = len(&path);
    assert!(full > 8_000_000, "{full}");
    let view = store.view().unwrap();
    assert_eq!(StoreFile::shrink(&store).unwrap(), Shrunk::Busy);
    assert_eq!(view.get(&10u32.to_be_bytes()).unwrap(), Some(vec![10; 1000]));
    drop(view);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                check(&store);
            }
        });
        while StoreFile::shrink(&store).unwrap() == Shrunk::Busy {
            std::thread::yield_now();
        }
        done.store(true, Ordering::SeqCst);
    });
    assert!(len(&path) < full / 2, "{} of {full}", len(&path));
    check(&store);
    drop(store);
    check(&open(&path));
}

#[test]
fn reads_between_two_commits_share_a_handle_that_holds_back_no_page() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let store = open(&path);
    for n in 0..40u8 {
        let mut batch = Batch::new();
        batch.put(b"key".to_vec(), vec![n; 1_000_000]);
        store.commit(&batch).unwrap();
        let [one, other] = [store.view().unwrap(), store.view().unwrap()];
        let kept = store.reading.get(|| Err(StorageError::NoRoom)).expect("one is kept");
        assert_eq!(Arc::strong_count(&kept), 4);
        assert_eq!(one.get(b"key").unwrap(), Some(vec![n; 1_000_000]));
        assert_eq!(other.get(b"key").unwrap(), Some(vec![n; 1_000_000]));
    }
    assert!(len(&path) < 16_000_000, "{}", len(&path));
}

/// A file whose process is killed after some more changes: nothing gets to it any more.
#[derive(Debug)]
struct Stopping {
    file: Arc<dyn File>,
    left: Arc<AtomicI64>,
    /// After how many changes, from the last ones on, the root was written.
    roots: Arc<Mutex<Vec<i64>>>,
}

impl Stopping {
    fn step(&self) -> io::Result<()> {
        match self.left.fetch_sub(1, Ordering::SeqCst) > 0 {
            true => Ok(()),
            false => Err(io::Error::other("killed")),
        }
    }
}

impl File for Stopping {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step()?;
        if offset == place(0) {
            lock(&self.roots).push(self.left.load(Ordering::SeqCst));
        }
        self.file.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step()?;
        self.file.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.step()?;
        self.file.sync()
    }
}

/// Shrinks the file at `path` until it was changed `changes` times; answers whether it came to an end, and after how
/// many changes it wrote the root.
fn shrink_until_killed(path: &Path, changes: i64) -> (bool, Vec<i64>) {
    let raw = disk().open(path, OpenMode::Write).unwrap();
    let (left, roots) = (Arc::new(AtomicI64::new(i64::MAX)), Arc::default());
    let stopping = Arc::new(Stopping { file: raw, left: Arc::clone(&left), roots: Arc::clone(&roots) });
    let blocks = crate::storage::store_blocks::open(stopping, Planted::none()).unwrap();
    let store = RedbStore::over(Pages::of_blocks(blocks, path), 1 << 20).unwrap();
    left.store(changes, Ordering::SeqCst);
    lock(&roots).clear();
    let shrunk = StoreFile::shrink(&store);
    let roots = lock(&roots).iter().map(|left| changes - left).collect();
    left.fetch_min(0, Ordering::SeqCst);
    (matches!(shrunk, Ok(Shrunk::By(_))), roots)
}

#[test]
fn a_kill_at_any_moment_of_it_leaves_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    drop(mostly_free(&path));
    let before = std::fs::read(&path).unwrap();
    let (mut changes, mut kills) = (0, 0);
    loop {
        std::fs::write(&path, &before).unwrap();
        let (done, _) = shrink_until_killed(&path, changes);
        check(&open(&path));
        if done {
            break;
        }
        kills += 1;
        // The first ones one by one, since each step begins with few large writes.
        changes += 1 + changes / 6;
    }
    assert!(kills > 10, "{kills}");
}

/// The engine wrote a root before the blocks that it refers to.
#[test]
fn a_kill_behind_any_root_that_it_writes_leaves_every_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    drop(mostly_free(&path));
    let before = std::fs::read(&path).unwrap();
    let (done, roots) = shrink_until_killed(&path, i64::MAX);
    assert!(done && roots.len() > 3, "{roots:?}");
    for written in roots {
        for changes in written..written + 4 {
            std::fs::write(&path, &before).unwrap();
            shrink_until_killed(&path, changes);
            check(&open(&path));
        }
    }
}
