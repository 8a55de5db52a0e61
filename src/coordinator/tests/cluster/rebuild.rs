//! Replicas whose store file is damaged.

use std::path::PathBuf;

use super::*;
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::topology::seq::SeqEntry;
use crate::coordinator::{ReadOperations, RebalanceOperations, RepairOperations, WriteOperations};
use crate::storage::MissingFiles;

/// Shards get files of their own soon.
fn options() -> StorageOptions {
    let missing_files = MissingFiles::Rebuild;
    StorageOptions { flush_at_bytes: 16_000, own_file_bytes: 4_000, missing_files, ..StorageOptions::default() }
}

/// Of the replica of the only range.
fn shard(cluster: &Cluster, at: usize) -> u64 {
    cluster.db(at).layout().placed.shard(0).unwrap()
}

fn own_file(shard: u64) -> String {
    format!("s{shard:016x}.redb")
}

fn store_file(world: &World, shard: u64) -> PathBuf {
    world.dir.path().join("store").join(own_file(shard))
}

/// Three nodes with a replica each of a database whose replicas have files of their own; then a few documents that are
/// in no file yet.
async fn with_files(nodes: usize) -> Cluster {
    let cluster = Cluster::with(nodes, options()).await;
    cluster.create(0, 1, nodes as u32).await.unwrap();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(300));
    let mut written = 0;
    while !(0..nodes).all(|at| store_file(&cluster.nodes[at].world, shard(&cluster, at)).exists()) {
        write(&cluster.db(0), &format!("d{written:04}"), &text, Some(nodes as u32)).await.unwrap();
        written += 1;
        assert!(written < 2_000, "a file of its own is made sooner");
    }
    cluster
}

/// What is in the store files of a data directory.
fn store_files(dir: &tempfile::TempDir) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(dir.path().join("store")).unwrap().map(Result::unwrap);
    let files = entries.filter(|entry| entry.path().is_file());
    files.map(|entry| (entry.file_name().into(), std::fs::read(entry.path()).unwrap())).collect()
}

/// Starts a node anew on what it has stored, with its replica's file changed by `spoil`.
async fn restart(cluster: &mut Cluster, at: usize, spoil: impl Fn(Vec<u8>) -> Vec<u8>) {
    let damaged = shard(cluster, at);
    let node = &mut cluster.nodes[at];
    let (mut before, mut dir) = (node.world.copy_of_data(), node.world.copy_of_data());
    // While a flush runs they differ.
    while store_files(&before) != store_files(&dir) {
        (before, dir) = (dir, node.world.copy_of_data());
    }
    let file = dir.path().join("store").join(own_file(damaged));
    if let Ok(bytes) = std::fs::read(&file) {
        std::fs::write(&file, spoil(bytes)).unwrap();
    }
    node.world = World::open_with(dir, options()).await;
    node.coordinator = node.world.join(&node.end).await;
}

/// A bit of every block flips.
fn all_blocks(mut bytes: Vec<u8>) -> Vec<u8> {
    (100..bytes.len()).step_by(4_096).for_each(|at| bytes[at] ^= 1);
    bytes
}

async fn replaced(cluster: &Cluster, at: usize, damaged: u64) {
    let coordinator = &cluster.nodes[at].coordinator;
    eventually(|| async { coordinator.damage().replaced() == 1 && shard(cluster, at) != damaged }).await;
}

#[tokio::test]
async fn a_replica_whose_file_is_damaged_is_made_anew_with_what_it_alone_held() {
    let mut cluster = with_files(3).await;
    let purged = write(&cluster.db(0), "purged", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[0]);
    let alone = write(&cluster.db(0), "alone", r#"{"v":1}"#, Some(1)).await.unwrap();
    assert_eq!(alone.replicas, 1);
    write(&cluster.db(0), "_local/alone", r#"{"v":1}"#, Some(1)).await.unwrap();
    cluster.db(1).maintenance().purge(vec![(id("purged"), vec![purged])]).await.unwrap();
    write(&cluster.db(1), "meanwhile", "{}", None).await.unwrap();
    let damaged = shard(&cluster, 0);
    restart(&mut cluster, 0, all_blocks).await;
    cluster.heal().await;
    replaced(&cluster, 0, damaged).await;
    for at in 0..3 {
        let db = cluster.db(at);
        eventually(|| async { own_leaves(&db, "alone").await.len() == 1 }).await;
        for (name, leaves) in [("meanwhile", 1), ("d0000", 1), ("purged", 0)] {
            assert_eq!(own_leaves(&db, name).await.len(), leaves, "{name} on node {at}");
        }
        let replica = db.replicas().own_replica(0).await.unwrap().unwrap().shard;
        eventually(|| async { replica.local_get(&id("_local/alone")).await.unwrap().is_some() }).await;
    }
    let aside = cluster.nodes[0].world.dir.path().join("quarantine").join(own_file(damaged));
    assert!(aside.exists() && !store_file(&cluster.nodes[0].world, damaged).exists());
    let told = std::fs::read_to_string(aside.with_extension("redb.txt")).unwrap();
    assert!(told.contains("\"db\"") && told.contains(&format!("shard {damaged};")), "{told}");
    assert_eq!(check(&cluster.nodes[0].world.storage).await.unwrap().findings, Vec::<String>::new());
}

#[tokio::test]
async fn a_replica_whose_file_is_of_an_earlier_time_is_made_anew() {
    let mut cluster = with_files(3).await;
    let damaged = shard(&cluster, 0);
    let older = std::fs::read(store_file(&cluster.nodes[0].world, damaged)).unwrap();
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(300));
    // The journal has given up what is missing in the older file, and has not room for as much while the damaged file
    // cannot be flushed to.
    for n in 0..600 {
        write(&cluster.db(0), &format!("later{n:04}"), &text, Some(3)).await.unwrap();
    }
    restart(&mut cluster, 0, |_| older.clone()).await;
    let found = cluster.nodes[0].world.storage.damaged_shards();
    assert!(found.get(&damaged).is_some_and(|what| what.contains("older")), "{found:?}");
    cluster.heal().await;
    replaced(&cluster, 0, damaged).await;
    for name in ["d0000", "later0000", "later0599"] {
        eventually(|| async { own_leaves(&cluster.db(0), name).await.len() == 1 }).await;
    }
    assert!(cluster.nodes[0].world.dir.path().join("quarantine").join(own_file(damaged)).exists());
}

#[tokio::test]
async fn a_reader_of_a_replica_that_was_made_anew_misses_nothing() {
    let mut cluster = with_files(3).await;
    let before = cluster.db(0).replicas().own_replica(0).await.unwrap().unwrap().replica_position();
    let damaged = shard(&cluster, 0);
    restart(&mut cluster, 0, all_blocks).await;
    cluster.heal().await;
    let db = cluster.db(0);
    replaced(&cluster, 0, damaged).await;
    let replica = db.replicas().own_replica(0).await.unwrap().unwrap();
    let ReplicaPosition { shard, epoch, position, .. } = before;
    assert_ne!((replica.replica_position().shard, replica.replica_position().epoch), (shard, epoch));
    let end = db.map().range(0).end;
    let from = replica.resume(&[SeqEntry { end, shard, epoch, position }]).await.unwrap();
    assert_eq!(from, 0, "its numbers are others");
}

#[tokio::test]
async fn no_replica_is_made_anew_while_another_one_is_away_or_damaged_too() {
    let mut cluster = with_files(3).await;
    let (damaged, other) = (shard(&cluster, 0), shard(&cluster, 1));
    cluster.cut(&[2]);
    restart(&mut cluster, 0, all_blocks).await;
    cluster.cut(&[2]);
    eventually(|| async {
        cluster.db(0).replicas().own_replica(0).await.is_err()
            && !cluster.nodes[0].coordinator.rebuild_all().await.is_empty()
    })
    .await;
    assert_eq!(shard(&cluster, 0), damaged, "a node is away");
    restart(&mut cluster, 1, all_blocks).await;
    cluster.cut(&[]);
    for at in [0, 1] {
        let coordinator = &cluster.nodes[at].coordinator;
        eventually(|| async {
            cluster.db(at).replicas().own_replica(0).await.is_err() && !coordinator.rebuild_all().await.is_empty()
        })
        .await;
    }
    assert_eq!((shard(&cluster, 0), shard(&cluster, 1)), (damaged, other), "two are damaged");
}

#[tokio::test]
async fn the_only_replica_is_never_made_anew() {
    let mut cluster = with_files(1).await;
    let damaged = shard(&cluster, 0);
    restart(&mut cluster, 0, all_blocks).await;
    assert!(cluster.db(0).replicas().own_replica(0).await.is_err());
    assert!(cluster.nodes[0].coordinator.rebuild_all().await.is_empty(), "there is nothing to wait for");
    assert_eq!(shard(&cluster, 0), damaged);
    assert!(store_file(&cluster.nodes[0].world, damaged).exists());
}

#[tokio::test]
async fn a_replica_that_is_not_filled_answers_nobody_and_is_filled_after_a_restart() {
    let mut cluster = with_files(3).await;
    let damaged = shard(&cluster, 0);
    restart(&mut cluster, 0, all_blocks).await;
    cluster.cut(&[]);
    // As soon as it is begun the others are gone.
    let is_replaced = || cluster.nodes[0].world.storage.damage().replaced() == 1;
    eventually(|| async {
        let begun = cluster.db(0).replicas().own_replica(0).await.is_err() && shard(&cluster, 0) != damaged;
        if begun {
            cluster.cut(&[1, 2]);
        }
        begun || is_replaced()
    })
    .await;
    // Else it was filled before they were gone.
    let waits = !is_replaced() && cluster.db(0).replicas().own_replica(0).await.is_err();
    restart(&mut cluster, 0, |bytes| bytes).await;
    if waits && cluster.db(0).replicas().own_replica(0).await.is_err() {
        assert!(
            cluster.db(0).documents().fetch(&id("d0000"), Want::Winner).await.is_err(),
            "it would say that there is none"
        );
        cluster.heal().await;
        replaced(&cluster, 0, damaged).await;
    }
    cluster.heal().await;
    assert_eq!(own_leaves(&cluster.db(0), "d0000").await.len(), 1);
}

#[tokio::test]
async fn what_can_be_read_is_taken_and_the_rest_is_named() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let purged = write(&cluster.db(0), "purged", "{}", Some(3)).await.unwrap().rev;
    for name in ["a", "b", "c"] {
        write(&cluster.db(0), name, "{}", Some(3)).await.unwrap();
    }
    let (db, Node { world, coordinator, .. }) = (cluster.db(0), &cluster.nodes[0]);
    let from = db.replicas().own_replica(0).await.unwrap().unwrap().shard;
    let keys = keys_of(world, &db, b'd').await;
    spoil(world, keys[1].clone(), Some(vec![0xff; 3])).await;
    let fresh = crate::shard::allocate(&world.storage, 1).await.unwrap()[0];
    let fresh = crate::shard::ShardReplica::open(&world.storage, fresh).await.unwrap();
    let own = crate::coordinator::replica::range_replica::OwnReplica::of(fresh.clone(), &coordinator.context().epochs)
        .await
        .unwrap();
    fresh.purge(vec![(id("purged"), vec![purged])]).await.unwrap();
    let recovered = db.replica_rebuild().recover(0, &from, &own).await.unwrap();
    assert_eq!(recovered.taken, 2, "{recovered:?}");
    assert!(recovered.told.iter().all(|line| line == "document b: nobody has it"), "{recovered:?}");
    for (name, there) in [("a", true), ("b", false), ("c", true), ("purged", false)] {
        let found = fresh.fetch(vec![(id(name), Want::Tree)]).await.unwrap();
        assert_eq!(found[0].is_some(), there, "{name}");
    }
}

/// Three nodes with a replica each of a database of `q` ranges. Nothing is rebuilt here but what a test asks for.
async fn three(q: u32) -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.create(0, q, 3).await.unwrap();
    cluster
}

/// Has the first node's replica of a range rebuilt.
async fn begin(cluster: &Cluster, range: usize) {
    let db = cluster.db(0);
    let shard = db.layout().placed.shard(range).unwrap();
    cluster.nodes[0].coordinator.begin_rebuild(shard, "a test").await.unwrap();
    assert!(db.replicas().own_replica(range).await.is_err(), "it is not filled");
}

async fn filled(cluster: &Cluster) {
    eventually(|| async { cluster.nodes[0].coordinator.rebuild_all().await.is_empty() }).await;
}

async fn split(cluster: &Cluster, by: usize) {
    let change = |places: &crate::coordinator::topology::record::MapRecord| Ok(places.with_split(0)?);
    cluster.nodes[by].coordinator.change_map(&cluster.db(by), change).await.unwrap();
}

/// The node went on with the map of before for good: the others had no such range any more to fill its replica from.
#[tokio::test]
async fn a_range_that_is_split_before_its_replica_is_filled_gets_two_halves_that_are_filled() {
    let cluster = three(1).await;
    let names: Vec<String> = (0..12).map(|n| format!("d{n}")).collect();
    for name in &names {
        write(&cluster.db(0), name, "{}", Some(3)).await.unwrap();
    }
    plant(&replica(&cluster, 0).await, "alone", &["1-aa"], false).await;
    begin(&cluster, 0).await;
    split(&cluster, 1).await;
    for at in 0..3 {
        eventually(|| async { cluster.db(at).map().numbers() == 3 }).await;
    }
    assert!(
        cluster.db(0).replicas().own_replica(1).await.is_err()
            && cluster.db(0).replicas().own_replica(2).await.is_err()
    );
    filled(&cluster).await;
    for name in names.iter().map(String::as_str).chain(["alone"]) {
        assert_eq!(own_leaves(&cluster.db(0), name).await.len(), 1, "{name}");
    }
    assert_eq!(cluster.nodes[0].coordinator.damage().replaced(), 1, "of one file");
}

#[tokio::test]
async fn a_range_that_is_split_while_its_replica_is_damaged_gets_two_halves_that_are_filled() {
    let mut cluster = with_files(3).await;
    cluster.cut(&[0]);
    let damaged = shard(&cluster, 0);
    restart(&mut cluster, 0, all_blocks).await;
    cluster.cut(&[0]);
    split(&cluster, 1).await;
    for at in 1..3 {
        eventually(|| async { cluster.db(at).map().numbers() == 3 }).await;
    }
    cluster.heal().await;
    eventually(|| async { cluster.nodes[0].coordinator.damage().replaced() == 1 }).await;
    assert_eq!(cluster.db(0).map().numbers(), 3);
    assert_eq!(own_leaves(&cluster.db(0), "d0000").await.len(), 1);
    let aside = cluster.nodes[0].world.dir.path().join("quarantine").join(own_file(damaged));
    let told = std::fs::read_to_string(aside.with_extension("redb.txt")).unwrap();
    assert!(told.contains("range 1, ") && told.contains("range 2, "), "{told}");
}

/// The fill waited for good: the others do not hear from a replica that is not filled that they purged it.
#[tokio::test]
async fn what_was_purged_and_written_again_with_its_revision_is_filled_in() {
    let cluster = three(1).await;
    let first = write(&cluster.db(1), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.db(1).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    for at in 0..3 {
        eventually(|| async { own_leaves(&cluster.db(at), "a").await.is_empty() }).await;
    }
    assert_eq!(write(&cluster.db(1), "a", "{}", Some(3)).await.unwrap().rev, first);
    begin(&cluster, 0).await;
    filled(&cluster).await;
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 1);
}

/// As above: the others are to purge it, and hear of that only when the replica is filled.
#[tokio::test]
async fn what_the_damaged_replica_alone_had_purged_keeps_it_from_nothing_and_is_purged_by_all() {
    let cluster = three(1).await;
    let first = write(&cluster.db(1), "a", "{}", Some(3)).await.unwrap().rev;
    replica(&cluster, 0).await.purge(vec![(id("a"), vec![first])]).await.unwrap();
    begin(&cluster, 0).await;
    filled(&cluster).await;
    for at in 0..3 {
        eventually(|| async { own_leaves(&cluster.db(at), "a").await.is_empty() }).await;
    }
}

/// It was done again, for the damaged replica did not know yet that all had heard of it, and took what was written
/// since.
#[tokio::test]
async fn a_purge_that_the_others_have_taken_in_is_not_done_again_when_its_replica_is_made_anew() {
    let cluster = three(1).await;
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.db(0).maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    for at in [1, 2] {
        eventually(|| async { cluster.db(at).pulls().pull_from(&"n1@h".into(), false).await.is_ok() }).await;
        let own = replica(&cluster, at).await;
        own.compact(0, crate::shard::Pace::new(&cluster.nodes[at].world.env, 1000)).await.unwrap();
        assert_eq!(own.purge_infos(0, 9).await.unwrap(), []);
    }
    assert_eq!(write(&cluster.db(1), "a", "{}", Some(3)).await.unwrap().rev, first);
    begin(&cluster, 0).await;
    filled(&cluster).await;
    cluster.settle().await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, [first.to_string()], "node {at}");
    }
}

/// It decided by what it had, and made a conflict with a write that the others had acknowledged.
#[tokio::test]
async fn a_replica_that_was_made_anew_is_the_last_to_primary_until_it_has_what_was_written_meanwhile() {
    let cluster = three(1).await;
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    begin(&cluster, 0).await;
    let (coordinator, node) = (&cluster.nodes[0].coordinator, Arc::clone(&cluster.nodes[0].coordinator.context().node));
    eventually(|| async { coordinator.rebuild_begun().await.is_empty() }).await;
    assert!(cluster.db(0).replicas().own_replica(0).await.is_ok(), "it counts");
    for other in &cluster.nodes {
        assert_eq!(other.coordinator.context().rank(&node), Some(1));
    }
    for at in [1, 2] {
        plant(&replica(&cluster, at).await, "late", &["1-aa"], false).await;
    }
    let late = write(&cluster.db(0), "late", "{}", None).await;
    assert!(matches!(late, Err(WriteError::Conflict)), "{late:?}");
    eventually(|| async { coordinator.rebuild_late().await.is_empty() }).await;
    assert_eq!(own_leaves(&cluster.db(0), "late").await.len(), 1);
    cluster.settle().await;
}

/// It waited for one of none.
#[tokio::test]
async fn a_replica_whose_others_were_all_taken_out_is_filled_with_what_is_left_of_the_damaged_one() {
    let cluster = three(1).await;
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    begin(&cluster, 0).await;
    cluster.remove(&[1, 2]);
    filled(&cluster).await;
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 1);
}

/// Neither could be filled from the other, for good, and the first answered nothing of what could be read of it.
#[tokio::test]
async fn a_range_gets_its_damaged_replica_back_where_another_one_is_damaged_while_it_is_filled() {
    let cluster = three(1).await;
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    let damaged = shard(&cluster, 0);
    begin(&cluster, 0).await;
    for key in keys_of(&cluster.nodes[1].world, &cluster.db(1), b'h').await {
        spoil(&cluster.nodes[1].world, key, Some(vec![0xff; 3])).await;
    }
    let waiting = cluster.nodes[0].coordinator.rebuild_all().await;
    assert!(waiting.iter().any(|why| why.starts_with("db, range 0: ")), "it waits: {waiting:?}");
    assert_eq!(shard(&cluster, 0), damaged);
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 1);
    assert!(cluster.nodes[0].coordinator.rebuild_all().await.is_empty(), "nothing is begun");
}

/// What the first file alone had was given up: the replica in its place was taken for the one to be recovered.
#[tokio::test]
async fn a_replica_that_is_damaged_before_it_is_filled_makes_way_for_another_one() {
    let cluster = three(1).await;
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    plant(&replica(&cluster, 0).await, "alone", &["1-aa"], false).await;
    begin(&cluster, 0).await;
    let first = shard(&cluster, 0);
    begin(&cluster, 0).await;
    assert_ne!(shard(&cluster, 0), first);
    filled(&cluster).await;
    for name in ["a", "alone"] {
        assert_eq!(own_leaves(&cluster.db(0), name).await.len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_replica_that_is_away_keeps_those_of_other_ranges_from_no_compaction_and_no_index() {
    let cluster = three(2).await;
    let db = cluster.db(0);
    let design = r#"{"views":{"v":{"map":"function(doc) { emit(doc._id, 1); }"}}}"#;
    write(&db, "_design/d", design, Some(3)).await.unwrap();
    let ranges = db.ranges();
    let name = (0..).map(|n| format!("d{n}")).find(|name| db.map().index_of(&id(name)) == ranges[1]).unwrap();
    let old = write(&db, &name, "{}", Some(3)).await.unwrap().rev;
    write(&db, &name, &format!(r#"{{"_rev":"{old}","v":2}}"#), Some(3)).await.unwrap();
    begin(&cluster, ranges[0]).await;
    db.compaction().compact_all().await.unwrap();
    let replica = db.replicas().own_replica(ranges[1]).await.unwrap().unwrap().shard;
    let found = replica.fetch(vec![(id(&name), Want::Revision(old))]).await.unwrap().pop().flatten().unwrap();
    assert!(found.found[0].1.is_none(), "its body is gone");
    let view = db.queries().view(&id("_design/d"), "v").await.unwrap();
    assert_eq!(view.own_indexes().await.unwrap().len(), 1);
}
