//! Stored sums equal those of the rows after any changes and any number of restarts.

use super::*;
use crate::index::keys::{self, Part};
use crate::index::stored::FORM;
use crate::storage::{KeyRange, WriteView};

/// Waits until nothing is under way on an index.
async fn settled(index: &ViewIndex) {
    // It and the list of all indexes hold it.
    while Arc::strong_count(&index.slot) > 2 {
        tokio::task::yield_now().await;
    }
}

/// The index as it is after another start.
async fn restarted(storage: &Storage, replica: &ShardReplica, index: ViewIndex) -> (Indexes, ViewIndex) {
    settled(&index).await;
    let (indexes, mapper) = (Indexes::new(storage.env()), Arc::new(Keys) as Arc<dyn Mapper>);
    let index = indexes.view(replica, &index.definition, &mapper, Subject::default());
    (indexes, index)
}

/// An index of so many rows, of which all sums are stored.
async fn stored(dir: &tempfile::TempDir, rows: u64) -> (Storage, ShardReplica, Indexes, ViewIndex) {
    let storage = storage(dir, Engine::Memory).await;
    let (indexes, replica, index) = view(&storage, &definition("a")).await;
    for n in 0..rows {
        put(&replica, &format!("d{n}"), &format!(r#"{{"keys":[{n}]}}"#), None, false).await;
    }
    index.update().await.unwrap();
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), rows);
    index.store_sums().await.unwrap();
    settled(&index).await;
    assert_eq!(index.header().await.unwrap().sums, FORM);
    (storage, replica, indexes, index)
}

/// Writes past the index, as a version that does not know of sums, or a crash.
async fn meddle(replica: &ShardReplica, work: impl FnOnce(&mut WriteView<'_>) + Send + 'static) {
    let done = replica.write_records(move |view| {
        work(view);
        Ok(Ok::<_, ()>(()))
    });
    done.await.unwrap().unwrap();
}

#[tokio::test]
async fn sums_after_a_restart_are_those_of_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (mut indexes, replica, mut index) = view(&storage, &definition("a")).await;
    let (mut dice, mut revs, mut kept) = (Dice(11), vec![None; 60], 0);
    for round in 0..300 {
        change_some(&replica, &mut revs, &mut dice).await;
        // What is written before a query, after one, or not at all.
        if dice.below(3) > 0 {
            index.update().await.unwrap();
        }
        match dice.below(4) {
            0 => {
                (indexes, index) = restarted(&storage, &replica, index).await;
                kept += u32::from(index.header().await.unwrap().sums == FORM);
            }
            1 => index.store_sums().await.unwrap(),
            _ => {}
        }
        if dice.below(2) == 0 {
            reduce_some(&index, &mut dice, round).await;
        }
    }
    assert!(kept > 30, "{kept} restarts found sums of {indexes:?}");
}

#[tokio::test]
async fn the_first_reduction_after_a_start_reads_what_was_stored() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, replica, _indexes, index) = stored(&dir, 200).await;
    // The one that looked for rows would find none.
    let rows = keys::key(replica.id(), index.definition.signature, Part::Row, b"");
    replica.remove_records(KeyRange::prefix(&rows)).await.unwrap();
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 200);
}

#[tokio::test]
async fn sums_that_an_older_version_left_are_void() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, replica, _indexes, index) = stored(&dir, 50).await;
    let (header, first) = (index.header().await.unwrap(), rows_between(&index, &Places::all(b"")).await.remove(0));
    let key = |part, rest: &[u8]| keys::key(replica.id(), index.definition.signature, part, rest);
    let (head, row) = (key(Part::Header, b""), key(Part::Row, &first.place));
    meddle(&replica, move |view| {
        view.delete(row);
        view.put(head, Header { sums: 0, rows: 49, ..header }.encode());
    })
    .await;
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 49);
    index.store_sums().await.unwrap();
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!((index.header().await.unwrap().sums, index.count(Places::all(b"")).await.unwrap()), (FORM, 49));
}

#[tokio::test]
async fn sums_of_an_index_whose_removal_was_cut_off_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, replica, _indexes, index) = stored(&dir, 50).await;
    let gone = rows_between(&index, &Places::all(b"")).await;
    let key = |part, rest: &[u8]| keys::key(replica.id(), index.definition.signature, part, rest);
    let mut keys: Vec<Vec<u8>> = gone[..20].iter().map(|row| key(Part::Row, &row.place)).collect();
    keys.push(key(Part::Header, b""));
    meddle(&replica, move |view| keys.into_iter().for_each(|key| view.delete(key))).await;
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 30);
    index.update().await.unwrap();
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 50);
}

#[tokio::test]
async fn a_sum_that_cannot_be_read_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (storage, replica, _indexes, index) = stored(&dir, 50).await;
    let bad = keys::key(replica.id(), index.definition.signature, Part::Sum, b"\x02\x00");
    meddle(&replica, move |view| view.put(bad, b"\x07".to_vec())).await;
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 50);
    put(&replica, "more", r#"{"keys":[1]}"#, None, false).await;
    index.update().await.unwrap();
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 51);
    index.store_sums().await.unwrap();
    let (_indexes, index) = restarted(&storage, &replica, index).await;
    assert_eq!((index.header().await.unwrap().sums, index.count(Places::all(b"")).await.unwrap()), (FORM, 51));
}
