//! The layered store at every step of freeze, flush, move, clear, release and restart, against a model.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::storage::kv::{Direction, KeyRange, Rows, StoreFile};
use crate::storage::layout::Layout;
use crate::storage::memory::MemoryStore;
use crate::storage::redb_store::Fill;
use crate::storage::reserved;

pub(super) fn env() -> Env {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone())
}

/// Files in memory, which outlive the store. A broken one panics when it is written, as a damaged file makes some do.
#[derive(Clone, Default)]
pub(super) struct MemoryStoreFiles {
    files: Arc<Mutex<BTreeMap<FileId, Arc<MemoryFile>>>>,
    opened: Arc<Mutex<Vec<FileId>>>,
    broken: Arc<AtomicBool>,
    disk: Arc<SlowDisk>,
}

/// Writes to files wait while somebody holds the lock, and tell that they do.
#[derive(Default)]
struct SlowDisk {
    free: Mutex<()>,
    asked: AtomicBool,
}

#[derive(Default)]
struct MemoryFile {
    store: MemoryStore,
    broken: Arc<AtomicBool>,
    /// Refuses what is written to it.
    damaged: AtomicBool,
    disk: Arc<SlowDisk>,
}

impl StoreFile for MemoryFile {
    fn snapshot(&self) -> Result<Box<dyn View>, StorageError> {
        self.store.snapshot()
    }

    fn apply(&self, cleared: &[KeyRange], rows: Rows<'_>) -> Result<(), StorageError> {
        assert!(!self.broken.load(Ordering::SeqCst), "damaged");
        if self.damaged.load(Ordering::SeqCst) {
            return Err(StorageError::Corrupt("a block".to_owned()));
        }
        self.disk.asked.store(true, Ordering::SeqCst);
        drop(self.disk.free.lock().unwrap());
        self.store.apply(cleared, rows)
    }

    fn disk_bytes(&self) -> u64 {
        self.store.disk_bytes()
    }
}

impl MemoryStoreFiles {
    fn find(&self, id: FileId) -> Option<Arc<MemoryFile>> {
        self.files.lock().unwrap().get(&id).cloned()
    }

    fn rows(&self, id: FileId) -> usize {
        let file = self.find(id).unwrap();
        all(file.snapshot().unwrap().as_ref(), Direction::Forward).iter().filter(|(k, _)| k[0] != 0xff).count()
    }
}

impl StoreFiles for MemoryStoreFiles {
    fn layout(&self) -> Layout {
        Layout { common: 2, old: 0 }
    }

    fn list(&self) -> Result<Vec<FileId>, StorageError> {
        Ok(self.files.lock().unwrap().keys().copied().collect())
    }

    fn open(&self, id: FileId) -> Result<Option<Arc<dyn StoreFile>>, StorageError> {
        self.opened.lock().unwrap().push(id);
        Ok(self.find(id).map(|file| file as Arc<dyn StoreFile>))
    }

    fn make(&self, id: FileId) -> Result<Arc<dyn StoreFile>, StorageError> {
        let (broken, disk) = (Arc::clone(&self.broken), Arc::clone(&self.disk));
        let new = || Arc::new(MemoryFile { broken, disk, ..MemoryFile::default() });
        Ok(Arc::clone(self.files.lock().unwrap().entry(id).or_insert_with(new)) as Arc<dyn StoreFile>)
    }

    fn make_filled(&self, id: FileId, fill: Fill<'_>) -> Result<(), StorageError> {
        let file = MemoryFile::default();
        fill(&file)?;
        self.files.lock().unwrap().insert(id, Arc::new(file));
        Ok(())
    }

    fn sync_names(&self) -> Result<(), StorageError> {
        Ok(())
    }

    fn remove(&self, id: FileId) -> Result<(), StorageError> {
        self.files.lock().unwrap().remove(&id);
        Ok(())
    }

    fn quarantine(&self, id: FileId, _told: &str) -> Result<Option<String>, StorageError> {
        Ok(self.files.lock().unwrap().remove(&id).map(|_| id.name()))
    }

    fn allow(&self, _position: u64) {}

    fn bytes(&self) -> u64 {
        0
    }
}

fn open(dir: &Path, store_files: &MemoryStoreFiles, flush_at_bytes: usize) -> LayeredStore {
    let options = LayeredOptions {
        flush_at_bytes,
        own_file_bytes: 1 << 30,
        missing_files: MissingFiles::Refuse,
        planted: Planted::none(),
    };
    LayeredStore::open(&env(), dir, Arc::new(store_files.clone()), options).unwrap()
}

/// Flushes until nothing is frozen.
fn flush_all(store: &LayeredStore) {
    loop {
        let Some(file) = store.tables().next_flush() else { return };
        store.flush(file);
    }
}

/// Shards of two common files, and a database's neighbours.
pub(super) const A: u64 = 16;
pub(super) const A2: u64 = 17;
const B: u64 = 24;

pub(super) fn key(shard: u64, rest: u8) -> Vec<u8> {
    [shard.to_be_bytes().as_slice(), &[rest]].concat()
}

fn put(shard: u64, rest: u8, value: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(key(shard, rest), value.to_le_bytes().to_vec());
    batch
}

fn all(view: &dyn View, direction: Direction) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    view.scan(&KeyRange::prefix(b""), direction, &mut |k, v| {
        out.push((k.to_vec(), v.to_vec()));
        ControlFlow::Continue(())
    })
    .unwrap();
    out
}

#[test]
fn a_view_keeps_its_picture_of_a_shard_through_a_freeze_and_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &MemoryStoreFiles::default(), 1);
    store.commit(&put(A, 1, 1)).unwrap();
    let view = store.view().unwrap();
    assert_eq!(view.get(&key(A, 2)).unwrap(), None);
    flush_all(&store);
    store.commit(&put(A, 1, 2)).unwrap();
    flush_all(&store);
    store.commit(&put(A, 2, 3)).unwrap();
    assert_eq!(view.get(&key(A, 1)).unwrap(), Some(1u64.to_le_bytes().to_vec()));
    assert_eq!(view.get(&key(A, 2)).unwrap(), None);
    assert_eq!(all(store.view().unwrap().as_ref(), Direction::Forward).len(), 2);
}

#[test]
fn readers_get_in_between_the_shards_of_a_large_group_and_no_flush_does() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &MemoryStoreFiles::default(), 1);
    let mut group = Batch::new();
    [A, A2, B].iter().for_each(|shard| (0..200).for_each(|rest| group.put(key(*shard, rest), vec![1])));
    let mut parts = tables::parts(&group);
    let position = store.tables().last + 1;
    store.tables().apply(position, parts.next().unwrap());
    let count = |shard: u64| {
        let mut rows = 0;
        let view = store.view().unwrap();
        let range = reserved::range_of(shard);
        view.scan(&range, Direction::Forward, &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        rows
    };
    assert_eq!([A, A2, B].map(count), [200, 200, 0], "shards are taken in as a whole");
    let home = store.tables().home(A);
    assert!(!store.freeze_due() && !store.tables().begin_shrink(home, position));
    assert_eq!(store.tables().next_flush(), None, "the file would be known to hold all of the group");
    parts.for_each(|part| store.tables().apply(position, part));
    store.tables().end_group(position, 0);
    assert_eq!([A, A2, B].map(count), [200; 3]);
    assert!(store.freeze_due());
}

#[test]
fn a_slow_file_holds_back_its_own_shards_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &MemoryStoreFiles::default(), 4000);
    while store.has_room(Some(A)) {
        store.commit(&put(A, 1, 1)).unwrap();
        (0..100).for_each(|rest| store.commit(&put(A, rest, 1)).unwrap());
    }
    assert!(store.has_room(Some(B)) && store.has_room(None));
    let stalled = store.tables().next_flush().unwrap();
    assert_eq!(stalled, store.tables().home(A));
    store.flush(stalled);
    assert!(store.has_room(Some(A)));
}

#[test]
fn reads_and_writes_go_on_while_the_disk_of_a_file_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open(dir.path(), &store_files, 1);
    [put(A, 1, 1), put(B, 1, 2)].iter().for_each(|batch| store.commit(batch).unwrap());
    flush_all(&store);
    store.commit(&put(A, 2, 3)).unwrap();
    store_files.disk.asked.store(false, Ordering::SeqCst);
    let stalled = store_files.disk.free.lock().unwrap();
    let file = store.tables().next_flush().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| store.flush(file));
        while !store_files.disk.asked.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        store.commit(&put(A, 3, 4)).unwrap();
        store.commit(&put(B, 2, 5)).unwrap();
        let view = store.view().unwrap();
        let values = [(A, 1), (A, 2), (A, 3), (B, 1), (B, 2)].map(|(shard, rest)| view.get(&key(shard, rest)).unwrap());
        assert_eq!(values, [1u64, 3, 4, 2, 5].map(|value| Some(value.to_le_bytes().to_vec())));
        drop(stalled);
    });
    assert!(!store.has_failed());
}

/// A store whose shard A has a file of its own, which is damaged: what was to be flushed to it is not.
fn with_a_damaged_file(dir: &Path) -> LayeredStore {
    with_a_damaged_file_of(dir, &MemoryStoreFiles::default())
}

fn with_a_damaged_file_of(dir: &Path, store_files: &MemoryStoreFiles) -> LayeredStore {
    let (store, own) = before_the_flush_that_meets_damage(dir, store_files);
    store.flush(own);
    store
}

/// Before the flush that comes upon the damage, with the file that it is of.
fn before_the_flush_that_meets_damage(dir: &Path, store_files: &MemoryStoreFiles) -> (LayeredStore, FileId) {
    let options = LayeredOptions {
        flush_at_bytes: 4_000,
        own_file_bytes: 20,
        missing_files: MissingFiles::Refuse,
        planted: Planted::none(),
    };
    let store = LayeredStore::open(&env(), dir, Arc::new(store_files.clone()), options).unwrap();
    let fill = || {
        for rest in (0..=255).cycle() {
            store.commit(&put(A, rest, 1)).unwrap();
            if let Some(file) = store.tables().next_flush() {
                return file;
            }
        }
        unreachable!("a memtable becomes full")
    };
    let common = fill();
    store.flush(common);
    assert_eq!(store.tables().home(A), FileId::Own(A));
    store_files.find(FileId::Own(A)).unwrap().damaged.store(true, Ordering::SeqCst);
    let own = fill();
    assert_eq!(own, FileId::Own(A));
    (store, own)
}

#[test]
fn a_damaged_file_of_one_shard_holds_nothing_else_back_and_can_be_put_away() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_a_damaged_file(dir.path());
    assert!(!store.has_failed() && store.has_room(None));
    assert_eq!(store.damaged_shards().into_keys().collect::<Vec<_>>(), [A]);
    assert!(matches!(store.quarantine(A, ""), Ok(Some(_))));
    assert!(store.damaged_shards().is_empty());
    assert_eq!(store.tables().home(A), store.store_files.layout().shared_home(A));
    let mut cleared = Batch::new();
    cleared.clear_shard(A);
    store.commit(&cleared).unwrap();
    store.commit(&put(B, 1, 2)).unwrap();
    let view = store.view().unwrap();
    assert_eq!(view.get(&key(A, 1)).unwrap(), None);
    drop(view);
    drop(store);
    let store = open(dir.path(), &MemoryStoreFiles::default(), 4_000);
    let view = store.view().unwrap();
    assert_eq!(view.get(&key(A, 1)).unwrap(), None, "what the journal still had of it went, too");
    assert_eq!(view.get(&key(B, 1)).unwrap(), Some(2u64.to_le_bytes().to_vec()));
}

/// The rebuild of a large shard writes more than the journal has room for, while the damaged file is still there.
#[test]
fn a_damaged_file_without_room_refuses_its_own_shard_and_others_go_on_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = with_a_damaged_file_of(dir.path(), &store_files);
    let mut writes = 0;
    while store.refuses(A).is_none() {
        assert!(store.has_room(Some(A)), "a job that waits would wait for ever");
        store.commit(&put(A, (writes % 256) as u8, writes)).unwrap();
        writes += 1;
        assert!(writes < 100_000);
    }
    assert!(!store.has_room(Some(A)) && !store.has_failed());
    let values = |store: &LayeredStore| {
        let view = store.view().unwrap();
        (0..=255).map(|rest| view.get(&key(A, rest)).unwrap()).collect::<Vec<_>>()
    };
    // Of frames of 50 bytes and more: the journal's room twenty times.
    let (before, written) = (values(&store), store.budget.journal / 2);
    for n in 0..written {
        // As before each job, of the one and of the other.
        if !store.has_room(Some(B)) {
            assert!(!store.carry_forward() && store.tables().journal_bytes < store.budget.journal);
        }
        assert!(store.has_room(Some(B)) && store.refuses(B).is_none());
        store.commit(&put(B, (n % 256) as u8, n)).unwrap();
        flush_all(&store);
    }
    assert!(!store.has_failed() && store.position() > written);
    assert_eq!(values(&store), before);
    drop(store);
    let again = open(dir.path(), &store_files, 4_000);
    assert!(again.position() >= written);
    assert_eq!(values(&again), before, "all that waited for the file is replayed");
}

#[test]
fn a_shard_that_is_cleared_while_its_file_turns_out_damaged_is_gone_and_its_file_too() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let (store, file) = before_the_flush_that_meets_damage(dir.path(), &store_files);
    let mut cleared = Batch::new();
    cleared.clear_shard(A);
    store.commit(&cleared).unwrap();
    store.flush(file);
    assert!(store.damaged_shards().is_empty() && !store.has_failed());
    let end = store.position();
    store.tables().begin_shrink(file, end);
    flush_all(&store);
    assert!(store_files.find(FileId::Own(A)).is_none());
    assert_eq!(store.view().unwrap().get(&key(A, 1)).unwrap(), None);
}

#[test]
fn a_damaged_file_that_leaves_no_memory_ends_the_writes_of_all() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_a_damaged_file(dir.path());
    let mut large = Batch::new();
    large.put(key(A, 1), vec![7; 40_000]);
    store.commit(&large).unwrap();
    for n in 0..100_000 {
        if !store.has_room(Some(B)) || store.has_failed() {
            break;
        }
        store.commit(&put(B, (n % 256) as u8, n)).unwrap();
        flush_all(&store);
    }
    assert!(store.has_failed() && store.commit(&put(B, 1, 1)).is_err());
}

#[test]
fn a_damaged_file_that_is_put_away_gives_the_journal_back_without_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = with_a_damaged_file(dir.path());
    let mut writes = 0;
    while store.tables().journal_bytes < store.budget.journal {
        store.commit(&put(B, (writes % 256) as u8, writes)).unwrap();
        flush_all(&store);
        writes += 1;
    }
    assert!(matches!(store.quarantine(A, ""), Ok(Some(_))));
    assert!(store.tables().journal_bytes < store.budget.journal / 2 && store.has_room(None));
}

#[test]
fn a_panic_of_the_engine_stops_writes_and_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open(dir.path(), &store_files, 1);
    store_files.broken.store(true, Ordering::SeqCst);
    store.commit(&put(A, 1, 1)).unwrap();
    store.commit(&put(A, 2, 2)).unwrap();
    assert!(!store.has_room(Some(A)));
    let file = store.tables().next_flush().unwrap();
    let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.flush(file)));
    assert!(flushed.is_err() && store.has_failed());
    assert!(store.has_room(Some(A)));
    assert!(store.commit(&put(A, 3, 3)).is_err());
}

#[test]
fn a_restart_replays_without_opening_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open(dir.path(), &store_files, 1);
    store.commit(&put(B, 1, 5)).unwrap();
    flush_all(&store);
    drop(store);
    open(dir.path(), &store_files, 1 << 20).commit(&put(A, 1, 7)).unwrap();
    store_files.opened.lock().unwrap().clear();
    let again = open(dir.path(), &store_files, 1 << 20);
    assert_eq!(*store_files.opened.lock().unwrap(), []);
    let view = again.view().unwrap();
    assert_eq!(view.get(&key(A, 1)).unwrap(), Some(7u64.to_le_bytes().to_vec()));
    assert_eq!(*store_files.opened.lock().unwrap(), [again.tables().home(A)]);
    assert_eq!(view.get(&key(B, 1)).unwrap(), Some(5u64.to_le_bytes().to_vec()));
}

#[test]
fn a_segment_goes_only_when_every_file_holds_what_is_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open(dir.path(), &store_files, 300);
    store.commit(&put(B, 1, 1)).unwrap();
    let before = store.tables().home(B);
    for round in 0..100 {
        store.commit(&put(A, 1, round)).unwrap();
        // An idle neighbour is never flushed for its size: only the half full journal asks for it.
        flush_all(&store);
        let journal = store.tables().journal_bytes;
        assert!(journal < store.budget.journal, "{journal}");
    }
    assert!(store_files.find(before).is_some(), "the journal's cap flushes what holds it back");
    drop(store);
    let again = open(dir.path(), &store_files, 300);
    assert_eq!(again.view().unwrap().get(&key(B, 1)).unwrap(), Some(1u64.to_le_bytes().to_vec()));
    assert_eq!(again.view().unwrap().get(&key(A, 1)).unwrap(), Some(99u64.to_le_bytes().to_vec()));
}

#[test]
fn a_segment_that_is_closed_for_jobs_that_write_nothing_asks_for_the_flush_that_it_waits_for() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &MemoryStoreFiles::default(), 4000);
    store.commit(&put(B, 1, 1)).unwrap();
    let mut large = Batch::new();
    large.put(key(A, 1), vec![1; limits::JOURNAL_FLUSHES * 4000]);
    store.commit(&large).unwrap();
    flush_all(&store);
    store.prepare().unwrap();
    assert!(!store.has_room(None), "the closed segment holds what the idle neighbour has not flushed");
    flush_all(&store);
    assert!(store.has_room(None));
}

/// A store whose shards move out at a few hundred bytes.
fn open_growing(dir: &Path, store_files: &MemoryStoreFiles) -> LayeredStore {
    let options = LayeredOptions {
        flush_at_bytes: 1,
        own_file_bytes: 500,
        missing_files: MissingFiles::Refuse,
        planted: Planted::none(),
    };
    LayeredStore::open(&env(), dir, Arc::new(store_files.clone()), options).unwrap()
}

#[test]
fn a_shard_that_grows_gets_a_file_and_is_served_from_there_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open_growing(dir.path(), &store_files);
    for rest in 0..100 {
        store.commit(&put(A, rest, 1)).unwrap();
        flush_all(&store);
    }
    store.commit(&put(A2, 1, 1)).unwrap();
    flush_all(&store);
    assert_eq!(store.tables().home(A), FileId::Own(A));
    assert_eq!(store_files.rows(FileId::Own(A)), 100);
    let common = store.tables().home(A2);
    assert_eq!(store_files.rows(common), 1, "nothing of it stays in the common file");
    // What a crash may leave there is not served, and goes with the next flush after a start.
    let left = store_files.find(common).unwrap();
    left.apply(&[], Box::new([(key(A, 200).as_slice(), Some(b"old".as_slice()))].into_iter())).unwrap();
    drop(store);
    let again = open_growing(dir.path(), &store_files);
    assert_eq!(again.view().unwrap().get(&key(A, 200)).unwrap(), None);
    assert_eq!(all(again.view().unwrap().as_ref(), Direction::Reverse).len(), 101);
    again.commit(&put(A2, 2, 1)).unwrap();
    flush_all(&again);
    assert_eq!(store_files.rows(common), 2);
    // A dropped one takes its file along.
    let mut clear = Batch::new();
    clear.clear_shard(A);
    again.commit(&clear).unwrap();
    flush_all(&again);
    assert!(store_files.find(FileId::Own(A)).is_none());
    assert_eq!(all(again.view().unwrap().as_ref(), Direction::Forward).len(), 2);
}

/// What may happen to a store.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(usize, u8, Option<u64>)>),
    Clear(usize),
    Flush,
    Restart,
}

const SHARDS: [u64; 5] = [1, A, A2, B, 300];

fn step() -> impl Strategy<Value = Step> {
    let writes = prop::collection::vec((0..SHARDS.len(), 0u8..6, prop::option::of(any::<u64>())), 1..6);
    prop_oneof![
        8 => writes.prop_map(Step::Commit),
        1 => (0..SHARDS.len()).prop_map(Step::Clear),
        3 => Just(Step::Flush),
        1 => Just(Step::Restart),
    ]
}

fn batch_of(writes: Vec<(usize, u8, Option<u64>)>, model: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Batch {
    let mut batch = Batch::new();
    for (shard, rest, value) in writes {
        let key = key(SHARDS[shard], rest);
        match value {
            Some(value) => {
                batch.put(key.clone(), value.to_le_bytes().to_vec());
                model.insert(key, value.to_le_bytes().to_vec());
            }
            None => {
                batch.delete(key.clone());
                model.remove(&key);
            }
        }
    }
    batch
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_order_of_commits_flushes_moves_and_restarts_equals_the_model(
        steps in prop::collection::vec(step(), 1..40),
        own_file_bytes in prop::sample::select(vec![20u64, 100, 1 << 20]),
        flush_at_bytes in prop::sample::select(vec![100usize, 400]),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let store_files = MemoryStoreFiles::default();
        let missing_files = MissingFiles::Refuse;
        let options = LayeredOptions { flush_at_bytes, own_file_bytes, missing_files, planted: Planted::none() };
        let open = || LayeredStore::open(&env(), dir.path(), Arc::new(store_files.clone()), options).unwrap();
        let mut store = open();
        let mut model = BTreeMap::new();
        let mut gone = Vec::new();
        for step in steps {
            match step {
                Step::Commit(mut writes) => {
                    writes.retain(|(shard, _, _)| !gone.contains(shard));
                    let batch = batch_of(writes, &mut model);
                    store.commit(&batch).unwrap();
                }
                Step::Clear(shard) => {
                    let mut batch = Batch::new();
                    batch.clear_shard(SHARDS[shard]);
                    store.commit(&batch).unwrap();
                    model.retain(|key, _| reserved::shard_of(key) != SHARDS[shard]);
                    gone.push(shard);
                }
                Step::Flush => flush_all(&store),
                Step::Restart => {
                    drop(store);
                    store = open();
                }
            }
            let view = store.view().unwrap();
            let rows: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(all(view.as_ref(), Direction::Forward), rows.clone());
            prop_assert_eq!(all(view.as_ref(), Direction::Reverse), rows.into_iter().rev().collect::<Vec<_>>());
            for (shard, rest) in SHARDS.into_iter().flat_map(|shard| (0u8..6).map(move |rest| (shard, rest))) {
                prop_assert_eq!(view.get(&key(shard, rest)).unwrap(), model.get(&key(shard, rest)).cloned());
                let range = KeyRange::new(key(shard, rest), key(shard, 6));
                let mut inside = model.range(range.start.clone()..key(shard, 6)).map(|(k, v)| (k.clone(), v.clone()));
                prop_assert_eq!(view.first(&range, Direction::Forward).unwrap(), inside.next());
                let last = inside.next_back().or_else(|| view.first(&range, Direction::Forward).unwrap());
                prop_assert_eq!(view.first(&range, Direction::Reverse).unwrap(), last);
            }
        }
    }
}

#[test]
fn a_lasting_view_shows_what_there_was_whatever_is_written_flushed_moved_or_cleared_since() {
    let dir = tempfile::tempdir().unwrap();
    let store_files = MemoryStoreFiles::default();
    let store = open_growing(dir.path(), &store_files);
    (0..20).for_each(|rest| store.commit(&put(A, rest, 1)).unwrap());
    flush_all(&store);
    // In a memtable alone, with a removal of what the file has.
    let mut unflushed = put(A, 20, 1);
    unflushed.delete(key(A, 3));
    unflushed.append(put(A2, 1, 1));
    store.commit(&unflushed).unwrap();
    let range = KeyRange { start: key(A, 2), end: Some(key(A, 100)) };
    let (lasting, expected) = {
        let view = store.view().unwrap();
        let inside = all(view.as_ref(), Direction::Forward).into_iter().filter(|(key, _)| range.contains(key));
        (view.lasting(&range).unwrap().expect("a picture"), inside.collect::<Vec<_>>())
    };
    assert_eq!(expected.len(), 18, "without the first two and the one that was removed");
    assert!(lasting.bytes > 0 && lasting.bytes < 1000, "{} bytes of two rows", lasting.bytes);
    let shown = |direction: Direction| {
        let mut rows = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        };
        lasting.view.scan(&range, direction, &mut visit).unwrap();
        rows
    };
    let check = |when: &str| {
        assert_eq!(shown(Direction::Forward), expected, "{when}");
        assert!(shown(Direction::Reverse).iter().rev().eq(&expected), "{when}, backwards");
        assert_eq!(lasting.view.first(&range, Direction::Forward).unwrap().as_ref(), expected.first(), "{when}");
        assert_eq!(lasting.view.get(&key(A, 3)).unwrap(), None, "{when}");
    };
    check("at once");
    (0..100).for_each(|rest| store.commit(&put(A, rest, 2)).unwrap());
    check("written over");
    flush_all(&store);
    assert_eq!(store.tables().home(A), FileId::Own(A));
    check("flushed, and moved to a file of its own");
    let mut clear = Batch::new();
    clear.clear_shard(A);
    store.commit(&clear).unwrap();
    flush_all(&store);
    check("dropped");
    let across = KeyRange { start: key(A, 0), end: Some(key(A2, 5)) };
    assert!(store.view().unwrap().lasting(&across).unwrap().is_none(), "of one shard alone");
}
