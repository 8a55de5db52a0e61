//! Rules of edits, and the state that an edit leaves (`conformance/cases/documents`).

use super::*;
use crate::shard::{Basis, LocalDocument, LocalRegister, PurgeInfo, Stamp, allocate, drop_shard, resume_drops};
use std::ops::Bound;

#[tokio::test]
async fn a_parent_must_be_a_leaf_and_revisions_are_those_of_the_reference() {
    let w = World::new().await;
    assert_eq!(w.put("a", Some(&rev("1-967a00dff5e02add41819138abb3284d")), "{}").await, Err(EditError::Conflict));
    let first = w.put("a", None, "{}").await.unwrap();
    assert_eq!(first.to_string(), "1-967a00dff5e02add41819138abb3284d");
    assert_eq!(w.put("a", None, "{}").await, Err(EditError::Conflict));
    assert_eq!(w.put("a", Some(&rev("1-00000000000000000000000000000000")), "{}").await, Err(EditError::Conflict));
    let second = w.put("a", Some(&first), r#"{"v":1}"#).await.unwrap();
    assert_eq!(second.pos, 2);
    assert_eq!(w.put("a", Some(&first), r#"{"v":1}"#).await, Err(EditError::Conflict));
    assert_eq!(w.winner("a").await.unwrap().body, r#"{"v":1}"#);
}

#[tokio::test]
async fn a_deleted_document_is_written_again_only_without_a_revision() {
    let w = World::new().await;
    let first = w.put("a", None, "{}").await.unwrap();
    let gone = w.delete("a", Some(&first)).await.unwrap();
    assert_eq!(gone.to_string(), "2-eec205a9d413992850a6e32678485900");
    for parent in [None, Some(&gone), Some(&first)] {
        assert_eq!(w.delete("a", parent).await, Err(EditError::Conflict));
    }
    assert_eq!(w.put("a", Some(&gone), "{}").await, Err(EditError::Conflict));
    let again = w.put("a", None, "{}").await.unwrap();
    assert_eq!(again.pos, 3);
    let tree = w.shard.fetch(vec![(DocId::new("a"), Want::Tree)]).await.unwrap().remove(0).unwrap().tree;
    assert_eq!(tree.path_to(&again).unwrap().ids, [again.hash, gone.hash, first.hash]);
    assert_eq!(w.delete("never", None).await.unwrap().to_string(), "1-de715bf126efc93d225d9e3f8e8eb81a");
}

#[tokio::test]
async fn edits_of_one_call_and_of_many_callers_see_each_other() {
    let w = World::new().await;
    let twice = w.shard.edit(vec![interactive("a", None, false, "{}"); 2]).await.unwrap();
    assert!(twice[0].is_ok());
    assert_eq!(twice[1], Err(EditError::Conflict));
    let racing = (0..20).map(|n| w.shard.edit(vec![interactive("b", None, false, &format!("{{\"n\":{n}}}"))]));
    let won = futures_util::future::join_all(racing).await;
    assert_eq!(won.iter().filter(|r| r.as_ref().unwrap()[0].is_ok()).count(), 1);
}

#[tokio::test]
async fn losing_leaves_can_be_edited_and_deleted() {
    let w = World::new().await;
    let (high, low) = ("1-ffffffffffffffffffffffffffffffff", "1-00000000000000000000000000000001");
    for name in [low, high] {
        w.edit(merge("a", path(&[name]), false, "{}")).await.unwrap();
    }
    assert_eq!(w.winner("a").await.unwrap().rev, rev(high));
    let edited = w.put("a", Some(&rev(low)), "{}").await.unwrap();
    assert_eq!(w.winner("a").await.unwrap().rev, edited);
    w.delete("a", Some(&edited)).await.unwrap();
    assert_eq!(w.winner("a").await.unwrap().rev, rev(high));
    let row = &w.shard.changes(0, crate::storage::Direction::Forward, 10).await.unwrap().rows[0];
    assert_eq!(row.leaves.iter().map(|l| l.1).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn merges_are_a_union_and_known_revisions_have_no_effect() {
    let w = World::new().await;
    let names = ["3-cc", "2-bb", "1-aa"];
    w.edit(merge("a", path(&names), false, r#"{"n":3}"#)).await.unwrap();
    let before = w.shard.info().await.unwrap();
    w.edit(merge("a", path(&names), false, r#"{"other":true}"#)).await.unwrap();
    assert_eq!(w.shard.info().await.unwrap(), before);
    assert_eq!(w.winner("a").await.unwrap().body, r#"{"n":3}"#);
    let middle = Want::Revision(rev("2-bb"));
    let read = async || w.shard.fetch(vec![(DocId::new("a"), middle.clone())]).await.unwrap().remove(0).unwrap().found;
    assert_eq!(read().await, [(rev("2-bb"), None)]);
    w.edit(merge("a", path(&["2-bb", "1-aa"]), false, r#"{"n":2}"#)).await.unwrap();
    assert_eq!(read().await[0].1.as_ref().unwrap().body, r#"{"n":2}"#);
    assert_eq!(w.winner("a").await.unwrap().rev, rev("3-cc"));
    assert_eq!(w.shard.info().await.unwrap().doc_count, 1);
}

#[tokio::test]
async fn a_history_that_claims_too_much_does_no_harm() {
    let w = World::new().await;
    w.edit(merge("a", path(&["1-a", "1-b", "1-c", "1-d"]), false, "{}")).await.unwrap();
    assert_eq!(w.winner("a").await.unwrap().rev, rev("1-a"));
    assert!(w.put("b", None, "{}").await.is_ok());
}

#[tokio::test]
async fn old_bodies_stay_until_they_are_stemmed_or_compacted() {
    let w = World::new().await;
    let mut revs = vec![w.put("a", None, r#"{"n":0}"#).await.unwrap()];
    for n in 1..6 {
        let edit = interactive("a", revs.last(), false, &format!("{{\"n\":{n}}}"));
        revs.push(w.edit(Edit { revs_limit: 4, ..edit }).await.unwrap());
    }
    let want = Want::Revisions { revs: revs.clone(), latest: false };
    let there = async |w: &World| {
        let found = w.shard.fetch(vec![(DocId::new("a"), want.clone())]).await.unwrap().remove(0).unwrap().found;
        found.into_iter().map(|(_, stored)| stored.is_some()).collect::<Vec<_>>()
    };
    assert_eq!(there(&w).await, [false, false, true, true, true, true]);
    let before = w.shard.info().await.unwrap();
    w.compact(1000).await;
    assert_eq!(there(&w).await, [false, false, false, false, false, true]);
    let after = w.shard.info().await.unwrap();
    assert_eq!(after.update_seq, before.update_seq);
    assert_eq!(after.sizes.active, before.sizes.active);
    assert!(after.sizes.file < before.sizes.file && after.sizes.file >= after.sizes.active);
    let w = w.reopen().await;
    assert_eq!(w.winner("a").await.unwrap().body, r#"{"n":5}"#);
}

#[tokio::test]
async fn purged_leaves_go_with_their_changes_and_are_logged() {
    let w = World::new().await;
    let first = w.put("a", None, "{}").await.unwrap();
    w.put("b", None, "{}").await.unwrap();
    let items = vec![
        (DocId::new("a"), vec![first.clone(), rev("9-x")]),
        (DocId::new("b"), vec![rev("1-none")]),
        (DocId::new("c"), vec![rev("1-none")]),
    ];
    assert_eq!(w.shard.purge(items).await.unwrap(), [vec![first.clone()], vec![], vec![]]);
    let info = w.shard.info().await.unwrap();
    assert_eq!((info.doc_count, info.update_seq, info.purge_seq), (1, 3, 3));
    let page = w.shard.changes(0, crate::storage::Direction::Forward, 10).await.unwrap();
    assert_eq!(page.rows.iter().map(|r| r.id.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(w.put("a", None, "{}").await.unwrap().pos, 1);
    let log = w.shard.purge_infos(0, 10).await.unwrap();
    assert_eq!(log.iter().map(|i| (i.purge_seq, i.id.as_str())).collect::<Vec<_>>(), [(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(log[0].revs, [first, rev("9-x")], "as asked for");
    w.compact(0).await;
    assert_eq!(w.shard.purge_infos(0, 10).await.unwrap(), []);
}

#[tokio::test]
async fn what_a_replica_gives_up_is_on_record_for_itself_only() {
    let w = World::new().await;
    let mut revs = Vec::new();
    for name in ["a", "b", "c", "d"] {
        revs.push(w.put(name, None, "{}").await.unwrap());
    }
    let item = |at: usize| (DocId::new(["a", "b", "c", "d"][at]), vec![revs[at].clone()]);
    w.shard.discard(vec![item(0)]).await.unwrap();
    w.shard.purge(vec![item(1)]).await.unwrap();
    w.shard.discard(vec![item(2)]).await.unwrap();
    w.shard.discard(vec![item(3)]).await.unwrap();
    assert!(w.winner("a").await.is_none() && w.winner("d").await.is_none());
    let revs = |infos: Vec<PurgeInfo>| infos.into_iter().map(|info| info.revs.len()).collect::<Vec<_>>();
    assert_eq!(revs(w.shard.purge_infos(0, 9).await.unwrap()), [1, 1, 1, 1]);
    assert_eq!(revs(w.shard.purges_to_tell(0, 9).await.unwrap()), [0, 1, 0, 0], "their numbers are told");
    assert_eq!(revs(w.shard.purges_to_tell(1, 2).await.unwrap()), [1, 0]);
}

/// The replica of a range that is being filled hears of a purge before it has the document.
#[tokio::test]
async fn what_was_purged_on_its_way_to_a_replica_is_not_stored() {
    let w = World::new().await;
    let brought = async |seen| {
        let edit = merge("a", path(&["1-a"]), false, "{}");
        w.shard
            .edit_validated(vec![(edit, Basis::Purges { seen, rounds: 0, is_early: false })])
            .await
            .unwrap()
            .remove(0)
    };
    let seen = w.shard.info().await.unwrap().purge_seq;
    w.shard.purge(vec![(DocId::new("a"), vec![rev("1-a")])]).await.unwrap();
    assert_eq!(brought(seen).await, Err(EditError::BasisChanged));
    assert!(w.winner("a").await.is_none());
    assert_eq!(brought(seen + 1).await, Ok(rev("1-a")), "somebody wrote it again");
}

#[tokio::test]
async fn listeners_hear_of_a_sequence_when_it_can_be_read() {
    let w = World::new().await;
    let mut seen = w.shard.watch();
    w.put("a", None, "{}").await.unwrap();
    seen.changed().await.unwrap();
    assert_eq!(*seen.borrow_and_update(), 1);
    assert_eq!(w.put("a", None, "{}").await, Err(EditError::Conflict));
    assert!(!seen.has_changed().unwrap());
    let w = w.reopen().await;
    assert_eq!(*w.shard.watch().borrow(), 1);
    w.put("b", None, "{}").await.unwrap();
    assert_eq!(w.shard.info().await.unwrap().update_seq, 2);
}

#[tokio::test]
async fn local_documents_and_values_stand_beside() {
    let w = World::new().await;
    let id = |n: &str| DocId::new(&format!("_local/{n}"));
    let document = |rev: u64| LocalDocument { rev, body: "{}".into() };
    for n in ["a", "b", "c"] {
        w.shard.local_set(&id(n), Some(document(1)), 9, true).await.unwrap();
    }
    let stamp = |counter| Stamp { counter, by: 9 };
    assert_eq!(w.shard.local_set(&id("b"), Some(document(7)), 9, true).await, Ok(stamp(2)));
    assert_eq!(w.shard.local_set(&id("a"), None, 9, true).await, Ok(stamp(2)));
    let late = LocalRegister { stamp: Stamp { counter: 1, by: 10 }, document: Some(document(3)) };
    let merged = w.shard.local_merge(vec![(id("a"), late)]).await;
    assert_eq!(merged, Ok(vec![stamp(2)]), "what was set before the deletion does not come back");
    w.shard.meta_put("security", Some(b"{}".to_vec())).await.unwrap();
    let w = w.reopen().await;
    assert_eq!(w.shard.local_get(&id("b")).await.unwrap(), Some(document(7)));
    assert_eq!(w.shard.local_get(&id("a")).await.unwrap(), None);
    let list = |direction| w.shard.local_list(Bound::Unbounded, Bound::Unbounded, direction, 1);
    assert_eq!(list(crate::storage::Direction::Reverse).await.unwrap(), [(id("c"), document(1))]);
    assert_eq!(w.shard.meta_get("security").await.unwrap(), Some(b"{}".to_vec()));
    assert_eq!(w.shard.info().await.unwrap().doc_count, 0);
}

#[tokio::test]
async fn shard_numbers_are_never_given_twice_and_dropped_shards_leave_nothing() {
    let w = World::new().await;
    let numbers = allocate(&w.storage, 3).await.unwrap();
    assert_eq!(numbers, [ShardId(16), ShardId(17), ShardId(18)]);
    let w = w.reopen().await;
    assert_eq!(allocate(&w.storage, 1).await.unwrap(), [ShardId(19)]);
    w.put("a", None, "{}").await.unwrap();
    w.shard.close();
    assert_eq!(w.shard.info().await, Err(crate::shard::ShardError::Dropped));
    drop_shard(&w.storage, SHARD).await.unwrap();
    resume_drops(&w.storage).await.unwrap();
    let fresh = ShardReplica::open(&w.storage, SHARD).await.unwrap();
    let gone = async || fresh.info().await.unwrap().update_seq == 0;
    while !gone().await {
        tokio::task::yield_now().await;
    }
    let row = fresh.fetch(vec![(DocId::new("a"), Want::Tree)]).await.unwrap();
    assert!(row[0].is_none());
}

#[cfg(feature = "sim")]
#[tokio::test]
async fn the_planted_bug_loses_a_conflicting_leaf() {
    use crate::storage::planted::{Bug, Planted};
    let dir = tempfile::tempdir().unwrap();
    let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
    let planted = Planted::none().with(Bug::LoseSibling);
    let options = StorageOptions { planted, ..Default::default() };
    let storage = Storage::open(env, dir.path(), options).await.unwrap();
    let shard = ShardReplica::open(&storage, SHARD).await.unwrap();
    for name in ["1-aa", "1-bb"] {
        shard.edit(vec![merge("a", path(&[name]), false, "{}")]).await.unwrap();
    }
    let tree = shard.fetch(vec![(DocId::new("a"), Want::Tree)]).await.unwrap().remove(0).unwrap().tree;
    assert_eq!(tree.leaves().len(), 1);
}
