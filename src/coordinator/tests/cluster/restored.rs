//! Replicas restored from a backup, and what the others remember of them.

use super::super::convergence::{behind_a_purge, catch_up, ends_with, planted, read, restart, two};
use super::*;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::write::spread::merge_into;
use crate::coordinator::{RepairOperations, WriteOperations, replica::repair, replica::sync_points};
use crate::limits;
use crate::shard::{Pace, ShardReplica};

/// Cuts all records of purges of a node's replica.
async fn cut_records(cluster: &Cluster, at: usize) -> ShardReplica {
    let own = replica(cluster, at).await;
    own.compact(0, Pace::new(&cluster.nodes[at].world.env, 1000)).await.unwrap();
    let state = own.state().await.unwrap();
    assert!(state.purge_floor == state.purge_seq && state.purge_seq > 0, "{state:?}");
    own
}

/// Has every node read the replicas of all others.
async fn in_sync(cluster: &Cluster) {
    for at in 0..cluster.nodes.len() {
        for other in (0..cluster.nodes.len()).filter(|other| *other != at) {
            let node: Arc<str> = cluster.network.names[other].as_str().into();
            eventually(|| async { cluster.db(at).pulls().pull_from(&node, false).await.is_ok() }).await;
        }
    }
}

/// Starts a node on data that it had before.
async fn restored(cluster: &mut Cluster, at: usize, data: tempfile::TempDir) {
    let node = &mut cluster.nodes[at];
    node.world = World::open(data, Engine::Redb).await;
    node.coordinator = node.world.join(&node.end).await;
}

/// A document that was purged was there again: its first write was held up on its way to one of the replicas, and the
/// purge was not.
#[tokio::test]
async fn a_write_that_reaches_a_replica_after_the_purge_of_its_revision_brings_nothing_back() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    let own = cluster.db(0).replicas().own_replica(0).await.unwrap().unwrap();
    let late = planted("a", &[&first.to_string()], false);
    let merge = || {
        let source = RemoteReplica::new(&cluster.db(0).target, 0, &cluster.network.names[1].as_str().into());
        let (replica, late) = (RangeReplica::Own(own.clone()), late.clone());
        async move { merge_into(&replica, &[late], &source).await.unwrap().stored }
    };
    assert_eq!(merge().await, [true], "it came twice");
    cluster.db(1).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    assert_eq!(merge().await, [false]);
    in_sync(&cluster).await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, Vec::<String>::new(), "node {at}");
    }
    // The other replica, which has not heard of the purge, is to purge it first.
    plant(&replica(&cluster, 1).await, "b", &["1-b"], false).await;
    own.shard.purge(vec![(id("b"), vec![rev("1-b")])]).await.unwrap();
    let source = RemoteReplica::new(&cluster.db(0).target, 0, &cluster.network.names[1].as_str().into());
    let stored = merge_into(&RangeReplica::Own(own.clone()), &[planted("b", &["1-b"], false)], &source).await;
    assert_eq!(stored.unwrap().stored, [false]);
}

/// Else a write of the same words would be held by one replica until the others were brought in sync.
#[tokio::test]
async fn what_was_purged_and_is_written_again_is_stored_by_all_replicas_at_once() {
    for is_cut in [false, true] {
        let cluster = Cluster::new(3).await;
        cluster.create(0, 1, 3).await.unwrap();
        let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
        cluster.db(1).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
        if is_cut {
            // The primary has no record of the purge any more; it has heard of it from the others.
            in_sync(&cluster).await;
            let layout = cluster.db(0).layout();
            let primary = layout.primaries(0, &cluster.nodes[0].end.own.as_str().into()).remove(0);
            cut_records(&cluster, cluster.network.names.iter().position(|name| **name == *primary).unwrap()).await;
        }
        let again = write(&cluster.db(2), "a", "{}", Some(3)).await.unwrap();
        assert_eq!((again.rev, again.written, again.replicas), (first, Written::Quorum, 3), "cut: {is_cut}");
    }
}

/// They did them again, and lost what was written since: their own records of them were gone.
#[tokio::test]
async fn purges_of_a_restored_replica_are_not_done_again_by_those_who_heard_of_them() {
    let mut cluster = Cluster::of(3, Engine::Redb).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.db(0).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    in_sync(&cluster).await;
    let backup = cluster.nodes[1].world.copy_of_data();
    assert_eq!(write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev, first);
    in_sync(&cluster).await;
    for at in [0, 2] {
        cut_records(&cluster, at).await;
    }
    cluster.cut(&[1]);
    restored(&mut cluster, 1, backup).await;
    cluster.heal().await;
    in_sync(&cluster).await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, [first.to_string()], "node {at}");
    }
}

/// It took back what it had purged since it was restored from a backup: the other one had heard of as many purges as it
/// had done.
#[tokio::test]
async fn purges_that_were_heard_of_before_a_replica_was_restored_are_not_taken_for_those_since() {
    let mut cluster = Cluster::of(2, Engine::Redb).await;
    cluster.create(0, 1, 2).await.unwrap();
    for name in ["before", "since"] {
        write(&cluster.db(0), name, "{}", Some(2)).await.unwrap();
    }
    in_sync(&cluster).await;
    let backup = cluster.nodes[0].world.copy_of_data();
    let purge = async |cluster: &Cluster, at: usize, name: &str| {
        let leaf = rev(&own_leaves(&cluster.db(at), name).await[0]);
        replica(cluster, at).await.purge(vec![(id(name), vec![leaf])]).await.unwrap();
    };
    purge(&cluster, 0, "before").await;
    in_sync(&cluster).await;
    cluster.cut(&[0]);
    restored(&mut cluster, 0, backup).await;
    purge(&cluster, 0, "since").await;
    // The other one does not hear of it at first.
    cluster.deafen(&["n1@h"]);
    cluster.cut(&[]);
    let early = cluster.db(0).pulls().pull_from(&"n2@h".into(), true).await;
    assert!(early.is_err() && own_leaves(&cluster.db(0), "since").await.is_empty(), "{early:?}");
    cluster.deafen(&[]);
    cluster.heal().await;
    in_sync(&cluster).await;
    for (at, name) in [(0, "before"), (1, "before"), (0, "since"), (1, "since")] {
        assert!(own_leaves(&cluster.db(at), name).await.is_empty(), "{name} on node {at}");
    }
}

/// What was purged while its source was read came back in a replica that was being filled, for good.
#[tokio::test]
async fn what_a_source_purged_after_it_told_how_it_stands_was_not_written_again() {
    let cluster = two(1).await;
    for at in 0..2 {
        replica(&cluster, at).await.purge(vec![(id("a"), vec![rev("1-a")])]).await.unwrap();
    }
    let source = RemoteReplica::new(&cluster.db(0).target, 0, &"n2@h".into());
    let origin = repair::Origin::Replica { rounds: 0, heard: 0 };
    for (until, taken) in [(0, 0), (1, 1)] {
        let edits = vec![planted("a", &["1-a"], false)];
        let own = replica(&cluster, 0).await;
        assert_eq!(repair::merge_written_again(&own, edits, &source, (origin, until)).await, Ok(taken));
    }
}

/// Where the rest could not be read the point named an epoch of which nothing was known: told to the replica, when that
/// was restored from a backup, it meant that nobody had read it.
#[tokio::test]
async fn no_point_is_noted_in_an_epoch_that_was_not_told() {
    let mut cluster = two(1).await;
    restart(&mut cluster, 1).await;
    cluster.settle().await;
    let edits = (0..=limits::PAGE_ROWS).map(|n| planted(&format!("e{n:04}"), &["1-a"], false)).collect();
    replica(&cluster, 1).await.edit(edits).await.unwrap();
    let last = keys_of(&cluster.nodes[1].world, &cluster.db(1), b'd').await.pop().unwrap();
    spoil(&cluster.nodes[1].world, last, Some(vec![0xff; 3])).await;
    drop(cluster.db(0).pulls().pull_from(&"n2@h".into(), false).await);
    let own = replica(&cluster, 0).await;
    let point = sync_points::pulled(&own, "n2@h").await.unwrap().unwrap();
    let replica_position = cluster.db(1).replicas().own_replica(0).await.unwrap().unwrap().replica_position();
    assert_eq!(point.from_epoch, replica_position.epoch, "the first page");
    assert!(point.from < replica_position.position, "and not the second");
    let told = sync_points::epochs_of(&own, "n2@h").await.unwrap();
    assert!(told.iter().any(|(epoch, _)| *epoch == point.from_epoch), "{told:?}");
}

/// Their records stayed for ever in a database that nobody changed any more.
#[tokio::test]
async fn purges_that_all_replicas_did_by_themselves_are_confirmed_when_all_are_compared() {
    let cluster = two(1).await;
    for at in 0..2 {
        let own = replica(&cluster, at).await;
        plant(&own, "a", &["1-a"], false).await;
        own.purge(vec![(id("a"), vec![rev("1-a")])]).await.unwrap();
    }
    read(&cluster, 0, 1).await;
    read(&cluster, 1, 0).await;
    let own = replica(&cluster, 0).await;
    assert_eq!(sync_points::purges_taken(&own, "n2@h").await.unwrap(), 0, "it had not heard of it when it was read");
    catch_up(&cluster, 0, 1, true).await;
    assert_eq!(sync_points::purges_taken(&own, "n2@h").await.unwrap(), 1);
}

/// As after an upgrade from a version that kept none.
#[tokio::test]
async fn epochs_that_were_never_told_are_asked_for_when_all_are_compared() {
    let cluster = two(1).await;
    let own = replica(&cluster, 0).await;
    own.meta_put("epochs of n2@h", None).await.unwrap();
    catch_up(&cluster, 0, 1, false).await;
    assert_eq!(sync_points::epochs_of(&own, "n2@h").await.unwrap(), [], "nothing differs");
    catch_up(&cluster, 0, 1, true).await;
    assert_eq!(sync_points::epochs_of(&own, "n2@h").await.unwrap().len(), 1);
}

/// What was purged came back through it: it had no record of that, for it was filled when nobody had one any more, and
/// read the restored replica as any other.
#[tokio::test]
async fn a_replica_filled_when_records_of_purges_were_gone_knows_one_that_missed_them() {
    let mut cluster = behind_a_purge(&[2]).await;
    let world = World::new().await;
    let coordinator = world.join(&cluster.nodes[1].end).await;
    (cluster.nodes[1].world, cluster.nodes[1].coordinator) = (world, coordinator);
    cluster.cut(&[2]);
    eventually(|| async {
        cluster.nodes[1].coordinator.has_database("db") && own_leaves(&cluster.db(1), "stays").await == ["1-c"]
    })
    .await;
    let filled = replica(&cluster, 1).await;
    let heard = sync_points::heard(&filled).await.unwrap();
    assert!(heard.iter().any(|heard| heard.node == "n1@h" && heard.floor == 1), "{heard:?}");
    assert_eq!(filled.state().await.unwrap().purge_floor, 0, "none of its own");
    restart(&mut cluster, 2).await;
    // Those two only: nobody is there who could tell the restored replica by a record of its own.
    cluster.cut(&[0]);
    let early = cluster.db(1).pulls().pull_from(&"n3@h".into(), false).await;
    assert!(early.is_err() && own_leaves(&cluster.db(1), "old").await.is_empty(), "{early:?}");
    cluster.heal().await;
    ends_with(&cluster, &[("stays", "1-c")]).await;
}

/// It failed to read that one, and that one waited for it to be in sync before it was rebuilt.
#[tokio::test]
async fn a_restored_replica_does_not_ask_one_that_is_damaged() {
    let mut cluster = behind_a_purge(&[2]).await;
    restart(&mut cluster, 2).await;
    for kind in [b'd', b'h'] {
        for key in keys_of(&cluster.nodes[1].world, &cluster.db(1), kind).await {
            spoil(&cluster.nodes[1].world, key, Some(vec![0xff; 3])).await;
        }
    }
    cluster.cut(&[]);
    eventually(|| async { own_leaves(&cluster.db(2), "old").await.is_empty() }).await;
    assert_eq!(own_leaves(&cluster.db(2), "stays").await, ["1-c"]);
}

/// The others purged it when they heard that it was discarded: they had no record any more of the purge that it was
/// discarded for.
#[tokio::test]
async fn what_is_written_again_while_a_restored_replica_gives_it_up_stays() {
    let mut cluster = behind_a_purge(&[2]).await;
    cut_records(&cluster, 1).await;
    restart(&mut cluster, 2).await;
    // Nobody reads it meanwhile.
    cluster.deafen(&["n3@h"]);
    cluster.cut(&[]);
    eventually(|| async { own_leaves(&cluster.db(2), "old").await.is_empty() }).await;
    for at in 0..2 {
        plant(&replica(&cluster, at).await, "old", &["1-a"], false).await;
    }
    cluster.deafen(&[]);
    cluster.heal().await;
    in_sync(&cluster).await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "old").await, ["1-a"], "node {at}");
    }
}
