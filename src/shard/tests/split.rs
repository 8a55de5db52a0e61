//! A replica is split while clients write to it.

use std::sync::Arc;

use super::super::{LocalDocument, ShardError, Sorter, check};
use super::*;
use crate::storage::Direction;

const CHILDREN: [ShardId; 2] = [ShardId(30), ShardId(31)];

fn sorter() -> Sorter {
    Arc::new(|id: &DocId| CHILDREN[usize::from(id.as_str().ends_with(['1', '3', '5', '7', '9']))])
}

async fn children(world: &World) -> [ShardReplica; 2] {
    [
        ShardReplica::open(&world.storage, CHILDREN[0]).await.unwrap(),
        ShardReplica::open(&world.storage, CHILDREN[1]).await.unwrap(),
    ]
}

/// Takes over one page; answers whether it was the last one.
async fn page(world: &World, children: &[ShardReplica; 2]) -> bool {
    let since = children[0].inherited().await.unwrap().min(children[1].inherited().await.unwrap());
    let legacy = Arc::new(world.shard.legacy(since).await.unwrap());
    for child in children {
        child.inherit(Arc::clone(&legacy), sorter()).await.unwrap();
    }
    legacy.is_last
}

async fn local(replica: &ShardReplica, name: &str) -> bool {
    replica.local_get(&DocId::new(name)).await.unwrap().is_some()
}

async fn set_local(replica: &ShardReplica, name: &str, there: bool) {
    let document = there.then(|| LocalDocument { rev: 1, body: "{}".into() });
    replica.local_set(&DocId::new(name), document, 1, false).await.unwrap();
}

async fn feed(replica: &ShardReplica, since: u64) -> Vec<(u64, String)> {
    let page = replica.changes(since, Direction::Forward, 10_000).await.unwrap();
    page.rows.into_iter().map(|row| (row.seq, row.id.as_str().to_owned())).collect()
}

#[tokio::test]
async fn both_child_shards_have_between_them_what_the_replica_had_under_the_same_sequences() {
    let world = World::new().await;
    let mut revs = Vec::new();
    for n in 0..250 {
        revs.push(world.put(&format!("d{n}"), None, &format!(r#"{{"n":{n}}}"#)).await.unwrap());
    }
    set_local(&world.shard, "_local/a0", true).await;
    set_local(&world.shard, "_local/a1", true).await;
    let children = children(&world).await;
    world.shard.mirror_locals(Some(sorter()));
    assert!(!page(&world, &children).await);
    // What changes behind, before and far ahead of the pages.
    world.put("d3", Some(&revs[3]), r#"{"n":"new"}"#).await.unwrap();
    world.delete("d240", Some(&revs[240])).await.unwrap();
    world
        .shard
        .purge(vec![(DocId::new("d5"), vec![revs[5].clone()]), (DocId::new("d200"), vec![revs[200].clone()])])
        .await
        .unwrap();
    world.shard.leave_locals(&children).await.unwrap();
    set_local(&world.shard, "_local/a0", false).await;
    set_local(&world.shard, "_local/b1", true).await;
    while !page(&world, &children).await {}
    world.put("d4", Some(&revs[4]), r#"{"n":"last"}"#).await.unwrap();

    let before = feed(&world.shard, 0).await;
    let done = world.shard.hand_over(children.clone(), sorter(), |_| Ok(Ok(()))).await;
    assert_eq!(done, Ok(true));
    let mut after = [feed(&children[0], 0).await, feed(&children[1], 0).await].concat();
    after.sort();
    assert_eq!(after, before);
    assert!(feed(&children[0], 0).await.iter().all(|(_, id)| sorter()(&DocId::new(id)) == CHILDREN[0]));
    assert_eq!(feed(&children[1], 250).await.iter().map(|(_, id)| id.as_str()).collect::<Vec<_>>(), ["d3"]);
    let there = [
        local(&children[0], "_local/a0").await,
        local(&children[1], "_local/a1").await,
        local(&children[1], "_local/b1").await,
    ];
    assert_eq!(there, [false, true, true]);
    for child in &children {
        let (id, blobs) = (child.id(), world.storage.blobs().clone());
        assert_eq!(child.inherited().await, world.shard.inherited().await);
        let checked = world.storage.read(move |view| Ok(check(view, &blobs, id))).await.unwrap();
        assert_eq!(checked.findings, Vec::<String>::new());
    }
    for (child, purged) in children.iter().zip(["d200", "d5"]) {
        let log = child.purge_infos(0, 9).await.unwrap();
        assert_eq!(log.iter().map(|info| info.id.as_str()).collect::<Vec<_>>(), [purged]);
        assert_eq!(child.state().await.unwrap().purge_floor, 0, "nothing was cut, others have purges for its own");
    }
    let late = world.shard.edit(vec![interactive("d9", Some(&revs[9]), false, "{}")]).await;
    assert_eq!(late, Err(ShardError::Moved));
    assert!(world.winner("d9").await.is_some(), "it can still be read");
}

/// A child shard hears of purges from the log of the old replica only.
#[tokio::test]
async fn a_document_purged_and_compacted_during_a_split_does_not_come_back() {
    let world = World::new().await;
    let mut revs = Vec::new();
    for n in 0..150 {
        revs.push(world.put(&format!("d{n}"), None, "{}").await.unwrap());
    }
    let purge = async |n: usize| world.shard.purge(vec![(DocId::new(&format!("d{n}")), vec![revs[n].clone()])]).await;
    purge(149).await.unwrap();
    purge(148).await.unwrap();
    world.compact(1).await;
    let children = children(&world).await;
    world.shard.mirror_locals(Some(sorter()));
    assert!(!page(&world, &children).await);
    for n in [1, 2, 3, 4] {
        purge(n).await.unwrap();
    }
    world.compact(1).await;
    while !page(&world, &children).await {}
    assert_eq!(world.shard.hand_over(children.clone(), sorter(), |_| Ok(Ok(()))).await, Ok(true));
    for child in &children {
        let names: Vec<String> = feed(child, 0).await.into_iter().map(|(_, id)| id).collect();
        assert!(["d1", "d2", "d3", "d4"].iter().all(|gone| !names.iter().any(|id| id == gone)), "{names:?}");
        assert_eq!(child.state().await.unwrap().purge_floor, 1, "what the old replica has no record of");
    }
}

#[tokio::test]
async fn a_replica_with_much_left_is_not_ended() {
    let world = World::new().await;
    for n in 0..150 {
        world.put(&format!("d{n}"), None, "{}").await.unwrap();
    }
    let children = children(&world).await;
    let done = world.shard.hand_over(children.clone(), sorter(), |_| Ok(Ok(()))).await;
    assert_eq!(done, Ok(false));
    assert_eq!(children[0].inherited().await, Ok((0, 0)));
    world.put("later", None, "{}").await.unwrap();
    let refused =
        world.shard.hand_over(children, sorter(), |_| Ok(Err(ShardError::NotExecuted("no".to_owned())))).await;
    assert_eq!(refused, Ok(false));
}
