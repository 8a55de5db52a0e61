//! The layered store at every step of freeze, flush, release and restart, against a model.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::storage::memory::MemoryStore;

fn env() -> Env {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone())
}

fn open(dir: &Path, engine: &Arc<MemoryStore>, flush_at_bytes: usize) -> LayeredStore {
    LayeredStore::open(&env(), dir, Arc::clone(engine) as Arc<dyn Store>, flush_at_bytes, Planted::none()).unwrap()
}

fn put(key: u8, value: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(vec![key], value.to_le_bytes().to_vec());
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
fn a_view_keeps_its_picture_through_a_freeze_and_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(MemoryStore::new());
    let store = open(dir.path(), &engine, 1);
    store.commit(&put(1, 1)).unwrap();
    let view = store.view().unwrap();
    store.flush();
    store.commit(&put(1, 2)).unwrap();
    store.flush();
    store.commit(&put(2, 3)).unwrap();
    assert_eq!(all(view.as_ref(), Direction::Forward), [(vec![1], 1u64.to_le_bytes().to_vec())]);
    assert_eq!(all(store.view().unwrap().as_ref(), Direction::Forward).len(), 2);
}

#[test]
fn writers_are_told_to_wait_while_the_flush_lags_and_released_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Arc::new(MemoryStore::new()), 1);
    store.commit(&put(1, 1)).unwrap();
    let full = store.full().unwrap();
    assert!(!*full.borrow());
    store.commit(&put(2, 2)).unwrap();
    assert!(*full.borrow());
    store.flush();
    assert!(!*full.borrow());
}

/// An engine whose commits panic, as a damaged file makes some do.
struct Panicking(MemoryStore);

impl Store for Panicking {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.0.view()
    }

    fn commit(&self, _batch: &Batch) -> Result<(), StorageError> {
        panic!("damaged")
    }

    fn file_bytes(&self) -> u64 {
        0
    }
}

#[test]
fn a_panic_of_the_engine_stops_writes_and_keeps_nobody_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(Panicking(MemoryStore::new()));
    let store = LayeredStore::open(&env(), dir.path(), engine, 1, Planted::none()).unwrap();
    store.commit(&put(1, 1)).unwrap();
    store.commit(&put(2, 2)).unwrap();
    assert!(*store.full().unwrap().borrow());
    let flushed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.flush()));
    assert!(flushed.is_err() && store.has_failed());
    assert!(!*store.full().unwrap().borrow());
    assert!(store.commit(&put(3, 3)).is_err());
}

#[test]
fn what_the_journal_holds_is_there_after_a_restart_without_any_flush() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Arc::new(MemoryStore::new());
    open(dir.path(), &engine, 1 << 20).commit(&put(1, 7)).unwrap();
    assert_eq!(engine.view().unwrap().get(&[1]).unwrap(), None);
    let again = open(dir.path(), &engine, 1 << 20);
    assert_eq!(again.view().unwrap().get(&[1]).unwrap(), Some(7u64.to_le_bytes().to_vec()));
}

/// What may happen to a store.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u8, Option<u64>)>),
    Flush,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let writes = prop::collection::vec((0u8..12, prop::option::of(any::<u64>())), 1..6);
    prop_oneof![6 => writes.prop_map(Step::Commit), 2 => Just(Step::Flush), 1 => Just(Step::Restart)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_order_of_commits_flushes_and_restarts_equals_the_model(steps in prop::collection::vec(step(), 1..40)) {
        let dir = tempfile::tempdir().unwrap();
        let engine = Arc::new(MemoryStore::new());
        let mut store = open(dir.path(), &engine, 300);
        let mut model = BTreeMap::new();
        for step in steps {
            match step {
                Step::Commit(writes) => {
                    let mut batch = Batch::new();
                    for (key, value) in writes {
                        match value {
                            Some(value) => {
                                batch.put(vec![key], value.to_le_bytes().to_vec());
                                model.insert(vec![key], value.to_le_bytes().to_vec());
                            }
                            None => {
                                batch.delete(vec![key]);
                                model.remove(&vec![key]);
                            }
                        }
                    }
                    store.commit(&batch).unwrap();
                }
                Step::Flush => store.flush(),
                Step::Restart => {
                    drop(store);
                    store = open(dir.path(), &engine, 300);
                }
            }
            let view = store.view().unwrap();
            let rows: Vec<_> = model.clone().into_iter().collect();
            prop_assert_eq!(all(view.as_ref(), Direction::Forward), rows.clone());
            prop_assert_eq!(all(view.as_ref(), Direction::Reverse), rows.into_iter().rev().collect::<Vec<_>>());
            for key in 0u8..12 {
                prop_assert_eq!(view.get(&[key]).unwrap(), model.get(&vec![key]).cloned());
            }
        }
    }
}
