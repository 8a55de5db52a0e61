//! How replicas that differ become the same again, and what that costs when they do not differ.

use std::sync::atomic::Ordering;

use futures_util::future::try_join_all;

use super::cluster::late::{ask_as, decide};
use super::cluster::{Cluster, eventually, own_leaves, write};
use super::*;
use crate::coordinator::replica::message::SyncPoint;
use crate::coordinator::replica::sync_points;
use crate::coordinator::topology::seq::SeqEntry;
use crate::coordinator::{FeedOperations, RebalanceOperations, RepairOperations, WriteOperations};
use crate::document::draft::PreparedBody;
use crate::document::rev_tree::RevPath;
use crate::shard::{Edit, EditOp, ShardReplica};

/// The states of the replicas of the only range as a node sees them, by node.
async fn states(cluster: &Cluster, from: usize) -> Vec<&'static str> {
    let table = cluster.db(from).pulls().replica_table().await;
    let state = |name: &String| {
        let row = table[0].replicas.iter().find(|row| row.node == *name).expect("a row for each node");
        row.state.as_str()
    };
    cluster.network.names.iter().map(state).collect()
}

#[tokio::test]
async fn the_table_of_replicas_tells_which_one_lacks_what_and_why() {
    let cluster = two(5).await;
    eventually(|| async { states(&cluster, 0).await == ["in_sync", "in_sync"] }).await;
    let table = cluster.db(1).pulls().replica_table().await;
    let holds: Vec<u64> = table[0].replicas.iter().map(|row| row.holds.expect("an answer").documents).collect();
    assert_eq!((table.len(), holds), (1, vec![5, 5]));
    let order = cluster.db(0).layout().primaries(0, &cluster.db(0).context.node);
    let first = cluster.network.names.iter().position(|name| **name == *order[0]).unwrap();
    plant(&replica(&cluster, 1 - first).await, "late", &["1-a"], false).await;
    assert_eq!(states(&cluster, 0).await[first], "in_sync");
    assert_eq!(states(&cluster, 1).await[1 - first], "differs");
    catch_up(&cluster, first, 1 - first, false).await;
    assert_eq!(states(&cluster, first).await, ["in_sync", "in_sync"]);
    cluster.cut(&[1]);
    assert_eq!(states(&cluster, 0).await[1], "away");
}

/// This node's replica of the only range.
pub(super) async fn replica(cluster: &Cluster, at: usize) -> ShardReplica {
    cluster.db(at).replicas().own_replica(0).await.unwrap().unwrap().shard.clone()
}

/// Brings one node in sync with another; answers how many bytes that took.
pub(super) async fn catch_up(cluster: &Cluster, at: usize, with: usize, thoroughly: bool) -> u64 {
    cluster.network.bytes.store(0, Ordering::Relaxed);
    let node: Arc<str> = cluster.network.names[with].as_str().into();
    cluster.nodes[at].coordinator.catch_up_with(&node, thoroughly).await.unwrap();
    cluster.network.bytes.load(Ordering::Relaxed)
}

/// A revision with its ancestors, as one replica takes it in from another.
pub(super) fn planted(name: &str, revs: &[&str], deleted: bool) -> Edit {
    let revs: Vec<Revision> = revs.iter().map(|text| rev(text)).collect();
    let path = RevPath { start: revs[0].pos, ids: revs.into_iter().map(|rev| rev.hash).collect() };
    let body = Arc::new(PreparedBody::from_text(bytes::Bytes::from_static(b"{}")).unwrap());
    let op = EditOp::Merge { path };
    Edit { id: id(name), op, deleted, body, attachments: Vec::new(), revs_limit: 1000 }
}

/// Puts a revision into one replica only.
pub(super) async fn plant(replica: &ShardReplica, name: &str, revs: &[&str], deleted: bool) {
    replica.edit(vec![planted(name, revs, deleted)]).await.unwrap().pop().unwrap().unwrap();
}

/// Lets a node forget how far it has read another one.
async fn forget(cluster: &Cluster, at: usize, of: usize) {
    replica(cluster, at).await.meta_put(&format!("pulled {}", cluster.network.names[of]), None).await.unwrap();
}

/// Two nodes with one range and as many documents.
pub(super) async fn two(documents: usize) -> Cluster {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    for n in 0..documents {
        write(&cluster.db(0), &format!("d{n:04}"), "{}", Some(2)).await.unwrap();
    }
    for at in 0..2 {
        catch_up(&cluster, at, 1 - at, false).await;
    }
    cluster
}

/// The third node has the first one primary an edit and brings the result to nobody.
#[tokio::test]
async fn what_a_coordinator_that_is_gone_had_decided_comes_to_the_other_replicas_at_once() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let started = tokio::time::Instant::now();
    ask_as(&cluster, (2, 0), 0, 1, decide(&["before"])).await;
    cluster.cut(&[2]);
    eventually(|| async { !own_leaves(&cluster.db(1), "before").await.is_empty() }).await;
    // The call was on its way when the connection was lost.
    ask_as(&cluster, (2, 0), 0, 2, decide(&["after"])).await;
    eventually(|| async { !own_leaves(&cluster.db(1), "after").await.is_empty() }).await;
    assert!(started.elapsed() < crate::limits::SYNC_PERIOD, "nobody waits for the next look at all databases");
}

#[tokio::test]
async fn where_nothing_differs_one_small_message_is_all() {
    let cluster = two(200).await;
    let bytes = catch_up(&cluster, 0, 1, true).await;
    assert!(bytes < 100, "{bytes} bytes");
    write(&cluster.db(0), "_local/l", "{}", Some(1)).await.unwrap();
    eventually(|| async { catch_up(&cluster, 1, 0, false).await < 100 }).await;
    let local = replica(&cluster, 1).await.local_get(&id("_local/l")).await.unwrap();
    assert!(local.is_some(), "local documents are compared, too");
}

#[tokio::test]
async fn one_difference_among_many_documents_is_narrowed_down() {
    let cluster = two(1500).await;
    plant(&replica(&cluster, 1).await, "d0700", &["2-f"], false).await;
    plant(&replica(&cluster, 1).await, "new", &["3-e"], true).await;
    plant(&replica(&cluster, 0).await, "mine", &["1-a"], false).await;
    forget(&cluster, 0, 1).await;
    let bytes = catch_up(&cluster, 0, 1, false).await;
    assert!(bytes < 60_000, "{bytes} bytes");
    assert_eq!(own_leaves(&cluster.db(0), "d0700").await.len(), 2, "a branch, nothing replaced");
    assert_eq!(own_leaves(&cluster.db(0), "new").await, ["3-e"]);
    catch_up(&cluster, 1, 0, false).await;
    assert_eq!(own_leaves(&cluster.db(1), "mine").await, ["1-a"]);
    let states = (replica(&cluster, 0).await.state().await.unwrap(), replica(&cluster, 1).await.state().await.unwrap());
    assert_eq!(states.0.total.digest, states.1.total.digest);
}

/// Each few of them were asked for by a call of their own.
#[tokio::test]
async fn where_half_of_the_documents_are_missing_they_are_not_looked_for_one_by_one() {
    let cluster = two(1).await;
    for (at, step) in [(0, 2), (1, 1)] {
        let edits = (0..4400).step_by(step).map(|n| planted(&format!("d{n:04}x"), &["1-a"], false));
        replica(&cluster, at).await.edit(edits.collect()).await.unwrap();
    }
    forget(&cluster, 0, 1).await;
    cluster.network.calls.store(0, Ordering::Relaxed);
    catch_up(&cluster, 0, 1, false).await;
    let calls = cluster.network.calls.load(Ordering::Relaxed);
    assert!(calls < 200, "{calls} calls");
    assert_eq!(own_leaves(&cluster.db(0), "d4399x").await, ["1-a"]);
}

/// The periodic comparison finds what positions do not tell.
#[tokio::test]
async fn a_difference_behind_what_was_taken_in_is_found_by_comparing() {
    let cluster = two(100).await;
    let point = {
        let (from, to) = (replica(&cluster, 1).await, cluster.network.names[1].clone());
        plant(&from, "lost", &["1-a"], false).await;
        let known = sync_points::pulled(&replica(&cluster, 0).await, &to).await.unwrap().unwrap();
        SyncPoint { from: from.state().await.unwrap().position, ..known }
    };
    sync_points::set_pulled(&replica(&cluster, 0).await, &cluster.network.names[1], point, None).await.unwrap();
    catch_up(&cluster, 0, 1, false).await;
    assert!(own_leaves(&cluster.db(0), "lost").await.is_empty());
    catch_up(&cluster, 0, 1, true).await;
    assert_eq!(own_leaves(&cluster.db(0), "lost").await, ["1-a"]);
}

/// A document that was purged and written again is another matter than one that was to be purged.
#[tokio::test]
async fn a_document_written_again_after_a_purge_stays_and_reaches_a_node_that_missed_both() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[2]);
    cluster.db(0).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    let again = write(&cluster.db(0), "a", "{}", None).await.unwrap().rev;
    assert_eq!(again, first, "the same words make the same revision");
    cluster.heal().await;
    for at in 0..3 {
        let db = cluster.db(at);
        eventually(|| async { own_leaves(&db, "a").await == [first.to_string()] }).await;
    }
}

/// A replica that never held what was purged keeps the record, so that it does not take it from one that has yet to
/// purge.
#[tokio::test]
async fn what_was_purged_elsewhere_is_not_taken_from_a_third_replica() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    for at in 0..2 {
        plant(&replica(&cluster, at).await, "a", &["1-a"], false).await;
    }
    replica(&cluster, 0).await.purge(vec![(id("a"), vec![rev("1-a")])]).await.unwrap();
    catch_up(&cluster, 2, 0, false).await;
    let node: Arc<str> = cluster.network.names[1].as_str().into();
    let early = cluster.nodes[2].coordinator.catch_up_with(&node, false).await;
    assert!(early.is_err() && own_leaves(&cluster.db(2), "a").await.is_empty(), "{early:?}");
    catch_up(&cluster, 1, 0, false).await;
    catch_up(&cluster, 2, 1, false).await;
    for at in 0..3 {
        assert!(own_leaves(&cluster.db(at), "a").await.is_empty(), "node {at}");
    }
}

/// One point overwrote another, and readers of the replica that had told it were told again what they had seen.
#[tokio::test]
async fn replicas_that_tell_at_the_same_moment_how_far_they_are_are_all_remembered() {
    let cluster = two(1).await;
    let own = replica(&cluster, 0).await;
    let epochs = 1..=16;
    let point = |to_epoch| SyncPoint { from: 9, to_shard: 99, to_epoch, to: 5, ..SyncPoint::default() };
    let tell = |epoch| sync_points::note(&own, point(epoch));
    try_join_all(epochs.clone().map(tell)).await.unwrap();
    for epoch in epochs {
        let entry = SeqEntry { end: u32::MAX, shard: 99, epoch, position: 5 };
        assert_eq!(sync_points::resume(&own, &entry).await, Ok(9), "that of epoch {epoch}");
    }
}

/// A backup of a node that had stopped in order shows its old epoch and fewer changes than others have read.
#[tokio::test]
async fn positions_given_again_after_a_restored_backup_are_of_another_epoch() {
    let cluster = two(10).await;
    let db = cluster.db(0);
    let own = db.replicas().own_replica(0).await.unwrap().unwrap();
    let before = own.replica_position();
    let name = cluster.network.names[0].clone();
    let known = sync_points::pulled(&replica(&cluster, 1).await, &name).await.unwrap().unwrap();
    // What the other node has read of it is gone.
    plant(&replica(&cluster, 1).await, "gone", &["1-a"], false).await;
    let more = SyncPoint { from: before.position + 5, ..known };
    sync_points::set_pulled(&replica(&cluster, 1).await, &name, more, None).await.unwrap();
    let entry = SeqEntry { end: u32::MAX, shard: before.shard, epoch: before.epoch, position: before.position + 3 };
    catch_up(&cluster, 0, 1, false).await;
    assert_ne!(own.replica_position().epoch, before.epoch);
    assert!(own.resume(&[entry]).await.unwrap() <= before.position, "a reader gets what has its number now");
    let renewed = own.replica_position().epoch;
    catch_up(&cluster, 1, 0, false).await;
    catch_up(&cluster, 0, 1, false).await;
    assert_eq!(own.replica_position().epoch, renewed, "once");
}

/// The replica of a node's data is as good as an orderly stop leaves it, and newer than all that other nodes have read.
#[tokio::test]
async fn a_feed_leaves_nothing_out_after_a_replica_of_a_stopped_node_is_restored() {
    let mut cluster = Cluster::of(2, Engine::Redb).await;
    cluster.create(0, 1, 2).await.unwrap();
    for n in 0..10 {
        write(&cluster.db(0), &format!("d{n}"), "{}", Some(2)).await.unwrap();
    }
    for at in 0..2 {
        catch_up(&cluster, at, 1 - at, false).await;
    }
    let node = &mut cluster.nodes[1];
    let backup = node.world.copy_of_data();
    node.coordinator = node.world.join(&node.end).await;
    cluster.settle().await;
    for n in 0..8 {
        write(&cluster.db(0), &format!("m{n}"), "{}", Some(2)).await.unwrap();
    }
    let since = cluster.db(1).update_seq().await.unwrap();
    cluster.cut(&[0]);
    let node = &mut cluster.nodes[1];
    node.world = World::open(backup, Engine::Redb).await;
    node.coordinator = node.world.join(&node.end).await;
    // It gets the position that another one had.
    plant(&replica(&cluster, 1).await, "after", &["1-a"], false).await;
    cluster.heal().await;
    catch_up(&cluster, 1, 0, false).await;
    let query = ChangesQuery { since: Since::Seq(since), ..ChangesQuery::default() };
    let mut feed = cluster.db(1).feeds().changes(query).await.unwrap();
    let mut seen = Vec::new();
    while let Some(rows) = feed.next().await.unwrap() {
        seen.extend(rows.into_iter().map(|row| row.id));
    }
    assert!(seen.contains(&id("after")), "{seen:?}");
}

/// Three replicas; the first one has purged `old` and has no record of that any more, those of `behind` hold it still,
/// as a backup would. They are cut off.
pub(super) async fn behind_a_purge(behind: &[usize]) -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    for at in 0..3 {
        plant(&replica(&cluster, at).await, "stays", &["1-c"], false).await;
        plant(&replica(&cluster, at).await, "old", &["1-a"], false).await;
    }
    for (at, with) in [(0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1)] {
        read(&cluster, at, with).await;
    }
    cluster.cut(behind);
    let own = replica(&cluster, 0).await;
    own.purge(vec![(id("old"), vec![rev("1-a")])]).await.unwrap();
    for at in [1, 2].into_iter().filter(|at| !behind.contains(at)) {
        catch_up(&cluster, at, 0, false).await;
        assert!(own_leaves(&cluster.db(at), "old").await.is_empty());
    }
    // Those behind confirmed it before they were restored from a backup.
    own.compact(0, crate::shard::Pace::new(&cluster.nodes[0].world.env, 1000)).await.unwrap();
    assert_eq!(own.state().await.unwrap().purge_floor, 1);
    cluster
}

/// Has one node read the replica of another, whether they differ or not.
pub(super) async fn read(cluster: &Cluster, at: usize, other: usize) {
    let node: Arc<str> = cluster.network.names[other].as_str().into();
    cluster.db(at).pulls().pull_from(&node, false).await.unwrap();
}

pub(super) async fn restart(cluster: &mut Cluster, at: usize) {
    let node = &mut cluster.nodes[at];
    node.coordinator = node.world.join(&node.end).await;
}

/// All replicas come to hold these documents, and `old` no more.
pub(super) async fn ends_with(cluster: &Cluster, documents: &[(&str, &str)]) {
    for at in 0..3 {
        let db = cluster.db(at);
        for (name, rev) in documents {
            eventually(|| async { own_leaves(&db, name).await == [*rev] }).await;
        }
        eventually(|| async { own_leaves(&db, "old").await.is_empty() }).await;
    }
}

/// An old backup holds what was purged since, and nobody has the records of that any more.
#[tokio::test]
async fn a_restored_replica_discards_what_was_purged_since() {
    let mut cluster = behind_a_purge(&[2]).await;
    restart(&mut cluster, 2).await;
    plant(&replica(&cluster, 2).await, "new", &["1-d"], false).await;
    cluster.heal().await;
    ends_with(&cluster, &[("new", "1-d"), ("stays", "1-c")]).await;
}

/// Each waited for the other to be in sync first.
#[tokio::test]
async fn two_restored_replicas_do_not_wait_for_each_other() {
    let mut cluster = behind_a_purge(&[1, 2]).await;
    for at in [1, 2] {
        restart(&mut cluster, at).await;
    }
    plant(&replica(&cluster, 1).await, "new", &["1-d"], false).await;
    cluster.heal().await;
    ends_with(&cluster, &[("new", "1-d"), ("stays", "1-c")]).await;
}

/// Each waited for the other to be in sync first: one to read it, the other to see what was removed.
#[tokio::test]
async fn a_restored_replica_does_not_wait_for_nodes_that_started_just_now() {
    let mut cluster = behind_a_purge(&[2]).await;
    cluster.cut(&[0, 1, 2]);
    for at in 0..3 {
        restart(&mut cluster, at).await;
    }
    cluster.heal().await;
    ends_with(&cluster, &[("stays", "1-c")]).await;
}

/// What it acknowledged was taken for old: when it was in the backup and nobody had read it; when it was restored from
/// a backup and started once more; and when it had applied a replica that has a record of the purge, since.
#[tokio::test]
async fn a_restored_replica_keeps_what_it_acknowledged_and_nobody_has_read() {
    let mut cluster = behind_a_purge(&[1]).await;
    plant(&replica(&cluster, 1).await, "before", &["1-e"], false).await;
    restart(&mut cluster, 1).await;
    plant(&replica(&cluster, 1).await, "new", &["1-d"], false).await;
    restart(&mut cluster, 1).await;
    // Nobody reads it until it has read the others.
    cluster.deafen(&["n2@h"]);
    cluster.cut(&[]);
    for other in [2, 0] {
        read(&cluster, 1, other).await;
    }
    assert_eq!(own_leaves(&cluster.db(1), "new").await, ["1-d"]);
    assert_eq!(own_leaves(&cluster.db(1), "before").await, ["1-e"]);
    assert!(own_leaves(&cluster.db(1), "old").await.is_empty());
    cluster.deafen(&[]);
    cluster.heal().await;
    ends_with(&cluster, &[("new", "1-d"), ("before", "1-e"), ("stays", "1-c")]).await;
}

/// A replica that was not read up to there may hold what was purged at a place that nobody has read.
#[tokio::test]
async fn a_purge_is_on_record_until_the_replica_that_has_heard_of_it_was_read_up_to_there() {
    let cluster = two(1).await;
    let (own, other) = (replica(&cluster, 0).await, cluster.network.names[1].clone());
    plant(&own, "a", &["1-a"], false).await;
    own.purge(vec![(id("a"), vec![rev("1-a")])]).await.unwrap();
    read(&cluster, 1, 0).await;
    assert_eq!(sync_points::purges_taken(&own, &other).await.unwrap(), 0);
    read(&cluster, 0, 1).await;
    assert_eq!(sync_points::purges_taken(&own, &other).await.unwrap(), 1);
}

/// Records of purges stay until every replica has them, whatever the limit says.
#[tokio::test]
async fn a_purge_is_kept_on_record_until_all_replicas_know_it() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let mut revs = Vec::new();
    for name in ["a", "b", "c"] {
        revs.push((id(name), write(&cluster.db(0), name, "{}", Some(3)).await.unwrap().rev));
    }
    cluster.db(0).settings().set_purged_infos_limit(1).await.unwrap();
    cluster.cut(&[2]);
    for (id, rev) in revs {
        cluster.db(0).maintenance().purge(vec![(id, vec![rev])]).await.unwrap();
    }
    cluster.db(0).compaction().compact_all().await.unwrap();
    assert_eq!(replica(&cluster, 0).await.purge_infos(0, 9).await.unwrap().len(), 3);
    cluster.heal().await;
    for name in ["a", "b", "c"] {
        let db = cluster.db(2);
        eventually(|| async { own_leaves(&db, name).await.is_empty() }).await;
    }
    for (at, other) in [(1, 0), (2, 0), (0, 1), (0, 2)] {
        read(&cluster, at, other).await;
    }
    cluster.db(0).compaction().compact_all().await.unwrap();
    assert_eq!(replica(&cluster, 0).await.purge_infos(0, 9).await.unwrap().len(), 1);
}

/// What the log may lose was counted when a compaction began, and counted off what there was at its end: purges that
/// came meanwhile pushed out others that a replica lacked.
#[tokio::test]
async fn purges_that_come_while_a_compaction_goes_on_push_none_off_the_record() {
    let cluster = two(1).await;
    let (db, own) = (cluster.db(0), replica(&cluster, 0).await);
    db.settings().set_purged_infos_limit(1).await.unwrap();
    for name in ["a", "b", "c", "d"] {
        plant(&own, name, &["1-a"], false).await;
    }
    let purge = |name: &'static str| own.purge(vec![(id(name), vec![rev("1-a")])]);
    purge("a").await.unwrap();
    let info = own.info().await.unwrap();
    let last_purge = db.compaction().last_dispensable_purge((0, &own), &info).await.unwrap();
    for name in ["b", "c", "d"] {
        purge(name).await.unwrap();
    }
    assert!(db.compaction().compact_replica((0, &own), &info, last_purge, None).await.unwrap());
    let told: Vec<String> = own.purge_infos(0, 9).await.unwrap().iter().map(|info| info.id.to_string()).collect();
    assert_eq!(told, ["a", "b", "c", "d"], "the other replica has none of them");
}

#[tokio::test]
async fn replicas_of_many_databases_are_compared_page_by_page() {
    let cluster = Cluster::new(2).await;
    let names = ["a", "b", "c", "d", "e"];
    let both = || CreateOptions { q: Some(1), n: Some(2), ..CreateOptions::default() };
    for name in names {
        cluster.nodes[0].coordinator.create_database(name, both()).await.unwrap();
    }
    let db = |at: usize, name: &str| cluster.nodes[at].coordinator.database(name).unwrap();
    for name in ["a", "d", "e"] {
        let own = db(0, name).replicas().own_replica(0).await.unwrap().unwrap();
        plant(&own.shard, "x", &["1-a"], false).await;
    }
    for limit in [2, 1] {
        cluster.nodes[1].coordinator.catch_up_by_pages(&"n1@h".into(), false, limit).await.unwrap();
        for name in names {
            let expected: &[&str] = if ["a", "d", "e"].contains(&name) { &["1-a"] } else { &[] };
            assert_eq!(own_leaves(&db(1, name), "x").await, expected, "{name}");
        }
    }
}
