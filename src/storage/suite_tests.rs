//! Tests that every engine must pass, among them the property test against a `BTreeMap`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use proptest::prelude::*;

use super::memory::MemoryStore;
use super::overlay::WriteView;
use super::planted::Planted;
use super::redb_store::RedbStore;
use super::{Batch, Direction, KeyRange, Store, View};
use crate::world::Disk;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// The disk below a test's temporary directory, through the seam.
fn disk() -> Arc<dyn Disk> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone()).disk()
}

fn redb(dir: &tempfile::TempDir) -> RedbStore {
    RedbStore::open(disk().as_ref(), &dir.path().join("0.redb"), 1 << 20, Planted::none()).unwrap()
}

#[cfg(feature = "sled")]
fn sled(dir: &tempfile::TempDir) -> super::sled_store::SledStore {
    super::sled_store::SledStore::open(disk(), dir.path().join("sled"), 1 << 20).unwrap()
}

/// Runs a test on every engine, each in a directory of its own.
fn on_every_engine(test: impl Fn(&dyn Store)) {
    test(&MemoryStore::new());
    test(&redb(&tempfile::tempdir().unwrap()));
    #[cfg(feature = "sled")]
    test(&sled(&tempfile::tempdir().unwrap()));
}

/// Runs a test on every engine that keeps files: the function opens the same one again each time.
fn on_every_engine_with_files(test: impl Fn(&dyn Fn() -> Box<dyn Store>)) {
    let dir = tempfile::tempdir().unwrap();
    test(&|| Box::new(redb(&dir)));
    #[cfg(feature = "sled")]
    test(&|| Box::new(sled(&dir)));
}

fn rows(view: &dyn View, range: &KeyRange, direction: Direction, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        out.push((key.to_vec(), value.to_vec()));
        if out.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    view.scan(range, direction, &mut visit).unwrap();
    out
}

fn expected(model: &Model, range: &KeyRange, direction: Direction, limit: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let inside = |k: &[u8]| k >= range.start.as_slice() && range.end.as_deref().is_none_or(|e| k < e);
    let mut out: Vec<_> = model.iter().filter(|(k, _)| inside(k)).map(|(k, v)| (k.clone(), v.clone())).collect();
    if direction == Direction::Reverse {
        out.reverse();
    }
    out.truncate(limit);
    out
}

fn apply(model: &mut Model, batch: &Batch) {
    for (key, value) in batch.writes() {
        match value {
            Some(value) => model.insert(key.clone(), value.to_vec()),
            None => model.remove(key),
        };
    }
}

fn compare(view: &dyn View, model: &Model, range: &KeyRange, limit: usize) {
    for direction in [Direction::Forward, Direction::Reverse] {
        let model = expected(model, range, direction, limit);
        assert_eq!(view.first(range, direction).unwrap().as_ref(), model.first());
        assert_eq!(rows(view, range, direction, limit), model);
    }
    for key in model.keys().chain([&range.start]) {
        assert_eq!(view.get(key).unwrap().as_ref(), model.get(key));
    }
}

fn put(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key.to_vec(), value.to_vec());
    batch
}

#[test]
fn a_view_keeps_its_picture_while_the_store_moves_on() {
    on_every_engine(|store| {
        let all = KeyRange::prefix(b"");
        store.commit(&put(b"k", b"old")).unwrap();
        let view = store.view().unwrap();
        store.commit(&put(b"k", b"new")).unwrap();
        store.commit(&put(b"j", b"later")).unwrap();
        let newer = store.view().unwrap();
        let mut last = put(b"k", b"last");
        last.delete(b"j".to_vec());
        store.commit(&last).unwrap();
        let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
        for direction in [Direction::Forward, Direction::Reverse] {
            assert_eq!(rows(view.as_ref(), &all, direction, 9), [row(b"k", b"old")]);
            assert_eq!(rows(newer.as_ref(), &all, direction, 9).len(), 2);
        }
        assert_eq!(view.get(b"k").unwrap(), Some(b"old".to_vec()));
        assert_eq!(newer.get(b"k").unwrap(), Some(b"new".to_vec()));
        assert_eq!(newer.get(b"j").unwrap(), Some(b"later".to_vec()));
        assert_eq!(rows(store.view().unwrap().as_ref(), &all, Direction::Forward, 9), [row(b"k", b"last")]);
    });
}

#[test]
fn a_cleared_shard_is_empty_and_its_neighbours_are_not() {
    on_every_engine(|store| {
        let key = |shard: u64, rest: u8| [shard.to_be_bytes().as_slice(), &[rest]].concat();
        let mut batch = Batch::new();
        for shard in [254, 255, 256] {
            (0..200).for_each(|rest| batch.put(key(shard, rest), vec![rest]));
        }
        store.commit(&batch).unwrap();
        let mut clear = put(&key(254, 0), b"changed");
        clear.clear_shard(255);
        store.commit(&clear).unwrap();
        let left = rows(store.view().unwrap().as_ref(), &KeyRange::prefix(b""), Direction::Forward, 1000);
        assert_eq!(left.len(), 400);
        assert!(left.iter().all(|(key, _)| key[7] != 255));
    });
}

#[test]
fn what_was_committed_is_there_after_reopening() {
    on_every_engine_with_files(|open| {
        open().commit(&put(&[7], &vec![8; 100_000])).unwrap();
        let again = open();
        assert_eq!(again.view().unwrap().get(&[7]).unwrap(), Some(vec![8; 100_000]));
        assert!(again.file_bytes() > 0);
    });
}

#[test]
fn leftovers_of_the_creation_of_a_redb_file_go() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.new"), b"half a file").unwrap();
    redb(&dir).commit(&put(&[7], &[8])).unwrap();
    assert!(!dir.path().join("0.new").exists());
}

fn short_key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x7f, 0xff]), 1..4)
}

fn batch() -> impl Strategy<Value = Batch> {
    let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..5));
    prop::collection::vec((short_key(), value), 0..12).prop_map(|writes| {
        let mut batch = Batch::new();
        for (key, value) in writes {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        batch
    })
}

fn range() -> impl Strategy<Value = KeyRange> {
    (short_key(), prop::option::of(short_key())).prop_map(|(start, end)| KeyRange { start, end })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn engines_and_write_views_equal_a_model(
        batches in prop::collection::vec(batch(), 1..5),
        group in batch(),
        own in batch(),
        range in range(),
        limit in 1usize..20,
    ) {
        let memory = MemoryStore::new();
        let mut model = Model::new();
        for batch in &batches {
            memory.commit(batch).unwrap();
            apply(&mut model, batch);
        }
        compare_all(&memory, &model, &group, &own, &range, limit);
        on_every_engine_with_files(|open| {
            let store = open();
            batches.iter().for_each(|batch| store.commit(batch).unwrap());
            drop(store);
            compare_all(open().as_ref(), &model, &group, &own, &range, limit);
        });
    }
}

/// Sorted runs of new keys of that many rows, old keys among them, and removals.
fn runs() -> impl Strategy<Value = Batch> {
    let run = (0u8..6, 0u16..500, 1u16..200, prop::option::of(any::<bool>()));
    prop::collection::vec(run, 1..8).prop_map(|runs| {
        let mut batch = Batch::new();
        for (n, (kind, from, count, what)) in runs.into_iter().enumerate() {
            for number in from..from + count {
                let key = [&[kind], number.to_be_bytes().as_slice()].concat();
                match what {
                    // Every third one: rows one by one.
                    Some(true) if number % 3 == 0 => batch.put(key, vec![n as u8; 200]),
                    Some(true) => {}
                    Some(false) => batch.delete(key),
                    None => batch.put(key, vec![n as u8; usize::from(number) % 300]),
                }
            }
        }
        batch
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn long_runs_of_new_and_old_keys_equal_a_model(batches in prop::collection::vec(runs(), 1..4)) {
        let mut model = Model::new();
        batches.iter().for_each(|batch| apply(&mut model, batch));
        on_every_engine(|store| {
            batches.iter().for_each(|batch| store.commit(batch).unwrap());
            compare(store.view().unwrap().as_ref(), &model, &KeyRange::prefix(b""), usize::MAX);
        });
    }
}

/// Compares a store with a model, and again with writes of others and of a job on top of both.
fn compare_all(store: &dyn Store, model: &Model, group: &Batch, own: &Batch, range: &KeyRange, limit: usize) {
    let base = store.view().unwrap();
    compare(base.as_ref(), model, range, limit);
    let mut top = WriteView::new(base.as_ref(), group);
    for (key, value) in own.writes() {
        match value {
            Some(value) => top.put(key.clone(), value.to_vec()),
            None => top.delete(key.clone()),
        }
    }
    let mut on_top = model.clone();
    apply(&mut on_top, group);
    apply(&mut on_top, own);
    compare(&top, &on_top, range, limit);
}
