//! The layered store under threads that commit, flush, move shards and read: a model of all interleavings.

use shuttle::thread;

use super::tests::{A, A2, MemoryStoreFiles, env, key};
use super::*;
use crate::world::model::{check, check_finds};
use crate::world::scratch::scratch;
use crate::world::sync::Mistake;

// Of one shard a group has a large part, which is put together beside readers.
const _: () = assert!(u8::MAX as usize + 1 >= limits::MEMTABLE_PART_WRITES);
/// Groups that the scene commits.
const GROUPS: u64 = 3;

/// A store whose journal is in memory, which freezes each group and moves shard A to a file of its own.
fn open() -> Arc<LayeredStore> {
    let missing_files = MissingFiles::Refuse;
    let options = LayeredOptions { flush_at_bytes: 1, own_file_bytes: 1, missing_files, planted: Planted::none() };
    let env = scratch(&env());
    let store_files = Arc::new(MemoryStoreFiles::default());
    Arc::new(LayeredStore::open(&env, Path::new("journal"), store_files, options).unwrap())
}

/// A group adds row `number` to shard A and says so in row 0; the rest of it makes it a large part.
fn group(number: u64) -> Batch {
    let mut group = Batch::new();
    group.put(key(A, 0), vec![number as u8]);
    group.put(key(A, number as u8), vec![number as u8]);
    (0..=u8::MAX).for_each(|row| group.put([key(A, u8::MAX), vec![row]].concat(), vec![number as u8]));
    group.put(key(A2, 0), vec![number as u8]);
    group
}

fn number(view: &dyn View, shard: u64, row: u8) -> u64 {
    view.get(&key(shard, row)).unwrap().map_or(0, |value| u64::from(value[0]))
}

fn flush_some(store: &LayeredStore) {
    for _ in 0..3 {
        let next = store.tables().next_flush();
        match next {
            Some(file) => assert!(!store.flush(file)),
            None => thread::yield_now(),
        }
    }
}

fn commits_beside_flushes_and_reads() {
    let (store, answered) = (open(), Arc::new(Mutex::new(0_u64)));
    let committer = {
        let (store, answered) = (Arc::clone(&store), Arc::clone(&answered));
        thread::spawn(move || {
            for number in 1..=GROUPS {
                store.commit(&group(number)).unwrap();
                *lock(&answered) = number;
            }
        })
    };
    let flushers: Vec<_> = (0..2)
        .map(|_| {
            let store = Arc::clone(&store);
            thread::spawn(move || flush_some(&store))
        })
        .collect();
    for _ in 0..3 {
        let before = *lock(&answered);
        let view = store.view().unwrap();
        let first = number(view.as_ref(), A, 0);
        assert!(first >= before, "a read shows group {first} and began after {before} was answered");
        let rows = (1..=GROUPS).filter(|row| number(view.as_ref(), A, *row as u8) > 0).count() as u64;
        assert_eq!(rows, first, "a view is of one moment");
        assert!(number(view.as_ref(), A2, 0) >= before);
    }
    committer.join().unwrap();
    flushers.into_iter().for_each(|flusher| flusher.join().unwrap());
    while let Some(file) = { store.tables().next_flush() } {
        assert!(!store.flush(file));
    }
    assert!(!store.has_failed());
    let view = store.view().unwrap();
    let rows = (0..=GROUPS).map(|row| number(view.as_ref(), A, row as u8));
    assert_eq!(rows.collect::<Vec<_>>(), [GROUPS, 1, 2, 3], "nothing is lost");
    assert_eq!(number(view.as_ref(), A2, 0), GROUPS);
}

#[test]
fn reads_show_whole_groups_and_all_that_was_answered_whatever_threads_do() {
    check(commits_beside_flushes_and_reads);
}

#[test]
fn the_model_of_memtables_finds_a_picture_that_its_file_got_ahead_of() {
    check_finds(Mistake::FileAheadOfMemtables, commits_beside_flushes_and_reads);
}

#[test]
fn the_model_of_memtables_finds_rows_that_moved_while_a_part_was_put_together() {
    check_finds(Mistake::MovesNotSeen, commits_beside_flushes_and_reads);
}
