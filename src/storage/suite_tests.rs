//! What every engine must do: each passes these tests, the property test against a `BTreeMap` among them.

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
            Some(value) => model.insert(key.clone(), value.clone()),
            None => model.remove(key),
        };
    }
}

fn compare(view: &dyn View, model: &Model, range: &KeyRange, limit: usize) {
    for direction in [Direction::Forward, Direction::Reverse] {
        assert_eq!(rows(view, range, direction, limit), expected(model, range, direction, limit));
    }
    for key in model.keys().chain([&range.start]) {
        assert_eq!(view.get(key).unwrap().as_ref(), model.get(key));
    }
}

/// A view keeps its picture while the store moves on.
fn views_are_frozen(store: &dyn Store) {
    let mut batch = Batch::new();
    batch.put(b"k".to_vec(), b"old".to_vec());
    store.commit(&batch).unwrap();
    let view = store.view().unwrap();
    batch.put(b"k".to_vec(), b"new".to_vec());
    store.commit(&batch).unwrap();
    assert_eq!(view.get(b"k").unwrap(), Some(b"old".to_vec()));
    assert_eq!(store.view().unwrap().get(b"k").unwrap(), Some(b"new".to_vec()));
}

#[test]
fn views_are_frozen_in_every_engine() {
    views_are_frozen(&MemoryStore::new());
    views_are_frozen(&redb(&tempfile::tempdir().unwrap()));
}

#[test]
fn what_was_committed_is_there_after_reopening_and_leftovers_of_creation_are_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.new"), b"half a file").unwrap();
    let mut batch = Batch::new();
    batch.put(vec![7], vec![8; 100_000]);
    redb(&dir).commit(&batch).unwrap();
    let again = redb(&dir);
    assert_eq!(again.view().unwrap().get(&[7]).unwrap(), Some(vec![8; 100_000]));
    assert!(!dir.path().join("0.new").exists());
    assert!(again.file_bytes() > 100_000);
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
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn engines_and_write_views_equal_a_model(
        batches in prop::collection::vec(batch(), 1..5),
        group in batch(),
        own in batch(),
        range in range(),
        limit in 1usize..20,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryStore::new();
        let mut disk = redb(&dir);
        let mut model = Model::new();
        for batch in &batches {
            memory.commit(batch).unwrap();
            disk.commit(batch).unwrap();
            apply(&mut model, batch);
        }
        drop(disk);
        disk = redb(&dir);
        let stores: [&dyn Store; 2] = [&memory, &disk];
        for store in stores {
            let base = store.view().unwrap();
            compare(base.as_ref(), &model, &range, limit);
            let mut top = WriteView::new(base.as_ref(), &group);
            for (key, value) in own.writes() {
                match value {
                    Some(value) => top.put(key.clone(), value.clone()),
                    None => top.delete(key.clone()),
                }
            }
            let mut on_top = model.clone();
            apply(&mut on_top, &group);
            apply(&mut on_top, &own);
            compare(&top, &on_top, &range, limit);
        }
    }
}
