//! Damage in a store's file: every answer is right or refused, and undamaged records are served.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::*;
use crate::storage::blocks::{self, BLOCK_BYTES, BlockFile, Kind};
use crate::storage::store_blocks::place;
use crate::storage::{Batch, Store};
use crate::world::OpenMode;

const ROWS: u32 = 700;

fn disk() -> Arc<dyn Disk> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone()).disk()
}

fn open(path: &Path) -> Result<RedbStore, StorageError> {
    RedbStore::open(disk().as_ref(), path, 1 << 20, Planted::none())
}

fn key(n: u32) -> Vec<u8> {
    format!("key {n:06}").into_bytes()
}

/// A closed store of rows on several levels of pages; every third key was removed again.
fn filled(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let store = open(path).unwrap();
    let (mut batch, mut model) = (Batch::new(), BTreeMap::new());
    for n in 0..ROWS {
        let value = format!("{n} ").repeat(1 + n as usize % 60).into_bytes();
        model.insert(key(n), value.clone());
        batch.put(key(n), value);
    }
    store.commit(&batch).unwrap();
    let mut removals = Batch::new();
    (0..ROWS).filter(|n| n % 3 == 0).for_each(|n| {
        model.remove(&key(n));
        removals.delete(key(n));
    });
    store.commit(&removals).unwrap();
    model
}

/// Reads everything in every way; answers how many answers were refused. Panics on a wrong one.
fn check(store: &RedbStore, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> usize {
    let Ok(view) = store.view() else { return 1 };
    let mut refused = 0;
    for n in 0..ROWS {
        match view.get(&key(n)) {
            Ok(found) => assert_eq!(found.as_ref(), model.get(&key(n)), "key {n}"),
            Err(StorageError::Corrupt(_)) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    for direction in [Direction::Forward, Direction::Reverse] {
        for part in 0..ROWS / 50 {
            let range = KeyRange::new(key(part * 50), key(part * 50 + 50));
            let mut rows = Vec::new();
            let scanned = view.scan(&range, direction, &mut |k, v| {
                rows.push((k.to_vec(), v.to_vec()));
                ControlFlow::Continue(())
            });
            let mut expected: Vec<_> = model.range(key(part * 50)..key(part * 50 + 50)).collect();
            if direction == Direction::Reverse {
                expected.reverse();
            }
            let rows: Vec<_> = rows.iter().map(|(k, v)| (k, v)).collect();
            match scanned {
                Ok(()) => assert_eq!(rows, expected, "{direction:?} {part}"),
                Err(_) => {
                    refused += 1;
                    assert!(expected.starts_with(&rows), "{direction:?} {part}");
                }
            }
        }
    }
    refused
}

#[test]
fn a_flipped_bit_in_any_block_never_changes_an_answer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let model = filled(&path);
    assert_eq!(check(&open(&path).unwrap(), &model), 0);
    let whole = std::fs::read(&path).unwrap();
    let mut contained = 0;
    // Of the blocks that were never used there are many.
    let used = |at: &usize| whole[*at..][..BLOCK_BYTES].iter().any(|byte| *byte != 0);
    // All pages: head, sums and blocks.
    for at in (0..whole.len()).step_by(BLOCK_BYTES).filter(used) {
        let mut bytes = whole.clone();
        bytes[at + (at / 4096 * 37) % 500] ^= 4;
        // Found damaged when it is opened, and damaged while it is open and nothing is cached.
        std::fs::write(&path, &bytes).unwrap();
        match open(&path) {
            Ok(store) => drop(check(&store, &model)),
            Err(error) => assert!(matches!(error, StorageError::Corrupt(_)), "{error}"),
        }
        std::fs::write(&path, &whole).unwrap();
        let store = RedbStore::open(disk().as_ref(), &path, 0, Planted::none()).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let refused = check(&store, &model);
        if refused > 0 {
            assert!(matches!(store.commit(&Batch::new()), Err(StorageError::Corrupt(_))));
            contained += usize::from(refused < ROWS as usize / 4);
        }
    }
    assert!(contained > 10, "{contained}");
}

#[test]
fn a_file_that_is_cut_short_is_refused_or_answers_right() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let model = filled(&path);
    let whole = std::fs::read(&path).unwrap();
    for part in 0..12 {
        let cut = whole.len() * part / 12 / BLOCK_BYTES * BLOCK_BYTES + 512 * usize::from(part % 2 == 0);
        let damaged = dir.path().join(format!("{part}.redb"));
        std::fs::write(&damaged, &whole[..cut]).unwrap();
        match open(&damaged) {
            Ok(store) => assert!(check(&store, &model) > 0, "cut at {cut}"),
            Err(error) => assert!(matches!(error, StorageError::Corrupt(_)), "{error}"),
        }
    }
}

#[test]
fn a_lost_write_never_brings_back_what_was_there_before() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let mut model = filled(&path);
    let before = std::fs::read(&path).unwrap();
    let mut batch = Batch::new();
    for n in (0..ROWS).filter(|n| n % 50 < 5) {
        let value = format!("again {n} ").repeat(20).into_bytes();
        model.insert(key(n), value.clone());
        batch.put(key(n), value);
    }
    open(&path).unwrap().commit(&batch).unwrap();
    let after = std::fs::read(&path).unwrap();
    assert!(before.len() >= after.len());
    let (mut found, mut harmless) = (0, 0);
    for at in (0..after.len()).step_by(512).filter(|at| before[*at..][..512] != after[*at..][..512]) {
        // Sectors before the blocks are written one by one, blocks as a whole.
        let len = if at < place(0) as usize + 512 { 512 } else { BLOCK_BYTES };
        if !at.is_multiple_of(len) {
            continue;
        }
        let mut bytes = after.clone();
        bytes[at..at + len].copy_from_slice(&before[at..at + len]);
        std::fs::write(&path, &bytes).unwrap();
        match open(&path) {
            Ok(store) if check(&store, &model) == 0 => harmless += 1,
            Ok(_) => found += 1,
            Err(error) => {
                assert!(matches!(error, StorageError::Corrupt(_)), "{error}");
                found += 1;
            }
        }
    }
    // Roots and sums have a second copy; some of the blocks were of use to an older commit only.
    assert!(found > 15 && harmless > 3, "{found} {harmless}");
}

#[test]
fn a_block_file_of_version_1_is_still_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let raw = disk().open(&path, OpenMode::CreateNew).unwrap();
    let old = BlockFile::create(Arc::clone(&raw), Kind::Store).unwrap();
    let (mut batch, mut more) = (Batch::new(), Batch::new());
    (0..ROWS).for_each(|n| batch.put(key(n), vec![n as u8; 300]));
    more.put(b"new".to_vec(), b"too".to_vec());
    RedbStore::over(Pages::new(Arc::new(old), &path), 1 << 20).unwrap().commit(&batch).unwrap();
    open(&path).unwrap().commit(&more).unwrap();
    let store = open(&path).unwrap();
    let view = store.view().unwrap();
    assert!((0..ROWS).all(|n| view.get(&key(n)).unwrap() == Some(vec![n as u8; 300])));
    assert_eq!(view.get(b"new").unwrap(), Some(b"too".to_vec()));
    assert_eq!(blocks::version(raw.as_ref(), Kind::Store).unwrap(), 1);
}

#[test]
fn a_file_without_checksums_of_format_1_is_still_read_and_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    {
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(TABLE).unwrap().insert(b"old".as_slice(), b"value".as_slice()).unwrap();
        transaction.commit().unwrap();
    }
    let store = open(&path).unwrap();
    let mut batch = Batch::new();
    batch.put(b"new".to_vec(), b"too".to_vec());
    store.commit(&batch).unwrap();
    let view = store.view().unwrap();
    assert_eq!(view.get(b"old").unwrap(), Some(b"value".to_vec()));
    assert_eq!(view.get(b"new").unwrap(), Some(b"too".to_vec()));
}

#[test]
fn a_commit_that_meets_damage_fails_and_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("0.redb");
    let model = filled(&path);
    let store = RedbStore::open(disk().as_ref(), &path, 0, Planted::none()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let blocks = bytes.len() / BLOCK_BYTES;
    // The first half: leaves of the table, and none of what the engine needs to open.
    (4..blocks as u64 / 2).step_by(4).for_each(|block| bytes[place(block) as usize + 9] ^= 1);
    std::fs::write(&path, &bytes).unwrap();
    let mut batch = Batch::new();
    (0..ROWS).step_by(10).for_each(|n| batch.put(key(n), b"never seen".to_vec()));
    assert!(matches!(store.commit(&batch), Err(StorageError::Corrupt(_))));
    let refused = check(&store, &model);
    assert!(refused > 0, "{refused}");
    assert!(matches!(store.commit(&batch), Err(StorageError::Corrupt(_))));
}
