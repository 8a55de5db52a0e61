//! Tombstones are collected, and nothing comes back: not from a replica that was away, nor from one restored.

use super::moves::still;
use super::*;
use crate::config::Setting;
use crate::coordinator::anti_entropy::tombstone_collection::sweep;
use crate::coordinator::rebalance::moves::MapEdit;
use crate::coordinator::replica::calls::Info;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{Origin, merge_missing};
use crate::coordinator::{RepairOperations, WriteOperations};
use crate::document::draft::PreparedBody;
use crate::document::rev_tree::RevPath;
use crate::shard::{Edit, EditOp};

const AGE: Duration = Duration::from_millis(1);

/// Three nodes with a replica each, a document that stays and one that is deleted by all.
async fn with_tombstone(engine: Engine) -> Cluster {
    let cluster = Cluster::of(3, engine).await;
    cluster.create(0, 1, 3).await.unwrap();
    write(&cluster.db(0), "stays", "{}", Some(3)).await.unwrap();
    bury(&cluster, 0, "a").await;
    cluster
}

async fn bury(cluster: &Cluster, at: usize, name: &str) {
    let rev = write(&cluster.db(at), name, r#"{"v":1}"#, Some(3)).await.unwrap().rev;
    delete(cluster, at, name, &rev, Some(3)).await;
}

async fn delete(cluster: &Cluster, at: usize, name: &str, rev: &Revision, w: Option<u32>) {
    let gone = format!(r#"{{"_rev":"{rev}","_deleted":true}}"#);
    write(&cluster.db(at), name, &gone, w).await.unwrap();
}

/// All nodes look for what is to be collected.
async fn look(cluster: &Cluster) {
    for node in &cluster.nodes {
        sweep(&Arc::downgrade(&node.coordinator), Some(AGE)).await;
        tokio::time::sleep(2 * AGE).await;
    }
}

async fn all_lack(cluster: &Cluster, name: &str) -> bool {
    lack(cluster, 0..cluster.nodes.len(), name).await
}

async fn lack(cluster: &Cluster, nodes: impl IntoIterator<Item = usize>, name: &str) -> bool {
    for at in nodes {
        if !own_leaves(&cluster.db(at), name).await.is_empty() {
            return false;
        }
    }
    true
}

/// Until no replica has a trace of a document.
async fn collected(cluster: &Cluster, name: &str) {
    eventually(|| async {
        look(cluster).await;
        all_lack(cluster, name).await
    })
    .await;
}

async fn replica_at(cluster: &Cluster, at: usize) -> crate::shard::ShardReplica {
    cluster.db(at).replicas().own_replica(0).await.unwrap().unwrap().shard
}

async fn markers(cluster: &Cluster) -> u64 {
    let mut sum = 0;
    for at in 0..cluster.nodes.len() {
        sum += replica_at(cluster, at).await.state().await.unwrap().markers;
    }
    sum
}

/// A revision that was made elsewhere.
fn merge(name: &str, made: &str) -> Edit {
    let path = RevPath::single(rev(made));
    let body = Arc::new(PreparedBody::from_text("{}".into()).unwrap());
    let (op, attachments) = (EditOp::Merge { path }, Vec::new());
    Edit { id: id(name), op, deleted: false, body, attachments, revs_limit: 10 }
}

/// Starts a node anew on what a directory has; tombstones are to be collected there.
async fn restart_on(cluster: &mut Cluster, at: usize, dir: tempfile::TempDir) {
    let node = &mut cluster.nodes[at];
    node.world = World::open_with(dir, StorageOptions { engine: Engine::Redb, ..StorageOptions::default() }).await;
    let env = node.world.env.clone();
    let peers: Arc<dyn Peers> = Arc::<End>::clone(&node.end);
    let (section, key, value) = ("settee".to_owned(), "tombstone_days".to_owned(), "10".to_owned());
    let setting = Setting { section, key, value };
    let config = Config::in_memory(&env, vec![setting]);
    let options = Options { node: node.end.own.clone(), peers: Some(peers), system_databases: false };
    node.coordinator = Coordinator::open(env, config, node.world.storage.clone(), options).await.unwrap();
}

#[tokio::test]
async fn all_replicas_collect_a_tombstone_and_a_document_begins_anew_when_they_have() {
    let cluster = with_tombstone(Engine::Memory).await;
    collected(&cluster, "a").await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "stays").await.len(), 1);
        assert_eq!(replica_at(&cluster, at).await.info().await.unwrap().doc_del_count, 0);
        assert_eq!(cluster.db(at).maintenance().purge_infos().await.unwrap(), Vec::new(), "it was no purge");
    }
    eventually(|| async {
        look(&cluster).await;
        markers(&cluster).await == 0
    })
    .await;
    let again = write(&cluster.db(1), "a", r#"{"v":1}"#, Some(3)).await.unwrap();
    assert_eq!(again.rev.pos, 1);
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, [again.rev.to_string()]);
    }
}

#[tokio::test]
async fn nothing_is_collected_while_a_replica_is_away() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[2]);
    delete(&cluster, 0, "a", &rev, Some(2)).await;
    for _ in 0..4 {
        look(&cluster).await;
    }
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 1, "the third holds it alive");
    cluster.heal().await;
    collected(&cluster, "a").await;
}

/// A document that stays and one that is deleted and collected; node 2, cut off, has the disk of before.
async fn with_old_replica() -> Cluster {
    let mut cluster = Cluster::of(3, Engine::Redb).await;
    cluster.create(0, 1, 3).await.unwrap();
    for name in ["a", "stays"] {
        write(&cluster.db(0), name, "{}", Some(3)).await.unwrap();
    }
    let backup = cluster.nodes[2].world.copy_of_data();
    bury(&cluster, 0, "b").await;
    let first = rev(&own_leaves(&cluster.db(0), "a").await[0]);
    delete(&cluster, 0, "a", &first, Some(3)).await;
    collected(&cluster, "a").await;
    cluster.cut(&[2]);
    restart_on(&mut cluster, 2, backup).await;
    assert_eq!(own_leaves(&cluster.db(2), "a").await.len(), 1, "it is an old one");
    cluster
}

#[tokio::test]
async fn a_restored_replica_does_not_bring_back_what_was_collected_and_keeps_what_it_stored_since() {
    let cluster = with_old_replica().await;
    write(&cluster.db(2), "alone", "{}", Some(1)).await.unwrap();
    cluster.heal().await;
    eventually(|| async { all_lack(&cluster, "a").await }).await;
    for at in 0..3 {
        let db = cluster.db(at);
        for (name, leaves) in [("alone", 1), ("stays", 1), ("b", 0)] {
            eventually(|| async { own_leaves(&db, name).await.len() == leaves }).await;
        }
    }
    assert!(all_lack(&cluster, "a").await);
    // And it takes part again, with the period of the others.
    let config = cluster.nodes[2].coordinator.config();
    config.set(("settee", "tombstone_days"), "0.00002", false).await.unwrap();
    bury(&cluster, 1, "c").await;
    collected(&cluster, "c").await;
}

/// The document's last change is new, and only one of its leaves.
#[tokio::test]
async fn a_restored_replica_gives_up_old_leaves_beside_new_ones() {
    let cluster = with_old_replica().await;
    let edit = merge("a", "1-00000000000000000000000000000abc");
    replica_at(&cluster, 2).await.edit(vec![edit]).await.unwrap().remove(0).unwrap();
    assert_eq!(own_leaves(&cluster.db(2), "a").await.len(), 2);
    cluster.heal().await;
    for at in 0..3 {
        let db = cluster.db(at);
        eventually(|| async { own_leaves(&db, "a").await == ["1-00000000000000000000000000000abc"] }).await;
    }
}

/// Its halves count their bodies anew, but go on with its sequences.
#[tokio::test]
async fn a_restored_replica_to_before_its_range_was_split_brings_nothing_back() {
    let mut cluster = Cluster::of(3, Engine::Redb).await;
    cluster.create(0, 1, 3).await.unwrap();
    let names: Vec<String> = (0..6).map(|n| format!("a{n}")).collect();
    for name in &names {
        write(&cluster.db(0), name, "{}", Some(3)).await.unwrap();
    }
    let backup = cluster.nodes[2].world.copy_of_data();
    let change = |places: &crate::coordinator::topology::record::MapRecord| Ok(places.with_split(0)?);
    cluster.nodes[0].coordinator.change_map(&cluster.db(0), change).await.unwrap();
    eventually(|| async { (0..3).all(|at| cluster.db(at).map().q() == 2) }).await;
    for name in &names[1..] {
        let first = rev(&own_leaves(&cluster.db(0), name).await[0]);
        delete(&cluster, 0, name, &first, Some(3)).await;
    }
    for name in &names[1..] {
        collected(&cluster, name).await;
    }
    cluster.cut(&[2]);
    restart_on(&mut cluster, 2, backup).await;
    cluster.heal().await;
    for name in &names[1..] {
        eventually(|| async { all_lack(&cluster, name).await }).await;
    }
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), &names[0]).await.len(), 1);
    }
    for name in &names[1..] {
        assert!(all_lack(&cluster, name).await, "{name}");
    }
}

/// The replica that was moved is none of those who know; the one in its place never read the old one as it was.
#[tokio::test]
async fn a_restored_replica_to_before_another_one_was_moved_brings_nothing_back() {
    let mut cluster = Cluster::of(4, Engine::Redb).await;
    cluster.create(0, 1, 3).await.unwrap();
    for name in ["a", "stays"] {
        write(&cluster.db(0), name, "{}", Some(3)).await.unwrap();
    }
    let names = cluster.network.names.clone();
    let (range, held) = cluster.db(0).shards().remove(0);
    let (there, spare): (Vec<usize>, Vec<usize>) = (0..4).partition(|at| held.contains(&names[*at]));
    let (old, holders) = (there[1], [there[1], there[2], spare[0]]);
    let backup = cluster.nodes[old].world.copy_of_data();
    let replicas = [(range, holders.iter().map(|at| names[*at].clone()).collect())].into();
    let edit = MapEdit { version: cluster.db(old).map_version().0, replicas, moves: None };
    cluster.nodes[old].coordinator.edit_map(&cluster.db(old), &edit).await.unwrap();
    let is_moved = |at: usize| cluster.db(at).shards()[0].1.contains(&names[spare[0]]);
    eventually(|| async { (0..4).all(is_moved) }).await;
    still(&cluster).await;
    let first = rev(&own_leaves(&cluster.db(old), "a").await[0]);
    delete(&cluster, old, "a", &first, Some(3)).await;
    eventually(|| async {
        look(&cluster).await;
        lack(&cluster, holders, "a").await
    })
    .await;
    cluster.cut(&[old]);
    restart_on(&mut cluster, old, backup).await;
    cluster.heal().await;
    eventually(|| async { lack(&cluster, holders, "a").await }).await;
    for at in holders {
        assert_eq!(own_leaves(&cluster.db(at), "stays").await.len(), 1);
    }
    assert!(lack(&cluster, holders, "a").await);
}

/// Whether a replica holds a document, also one that is not filled yet.
async fn is_taken_in(cluster: &Cluster, at: usize, name: &str) -> bool {
    let Ok(database) = cluster.nodes[at].coordinator.database("db") else { return false };
    let Ok(Some(own)) = database.replicas().own_replica_to_fill(&database.layout(), 0).await else { return false };
    own.shard.fetch(vec![(id(name), Want::Tree)]).await.unwrap()[0].is_some()
}

/// One of them is of the time before the document, or empty, and takes it in from the other one before it meets the
/// third. What it was given there is no younger than the other one's.
async fn old_replicas_meet(is_empty: bool) {
    let mut cluster = Cluster::of(3, Engine::Redb).await;
    cluster.create(0, 1, 3).await.unwrap();
    write(&cluster.db(0), "stays", "{}", Some(3)).await.unwrap();
    let older = cluster.nodes[1].world.copy_of_data();
    let older = if is_empty { tempfile::tempdir().unwrap() } else { older };
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    let old = cluster.nodes[2].world.copy_of_data();
    delete(&cluster, 0, "a", &first, Some(3)).await;
    collected(&cluster, "a").await;
    cluster.cut(&[0, 1, 2]);
    restart_on(&mut cluster, 1, older).await;
    restart_on(&mut cluster, 2, old).await;
    cluster.cut(&[0]);
    eventually(|| is_taken_in(&cluster, 1, "a")).await;
    cluster.heal().await;
    eventually(|| async { all_lack(&cluster, "a").await }).await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "stays").await.len(), 1);
    }
    assert!(all_lack(&cluster, "a").await);
}

#[tokio::test]
async fn replicas_restored_to_different_times_that_meet_bring_nothing_back() {
    old_replicas_meet(false).await;
}

#[tokio::test]
async fn a_restored_replica_and_one_that_lost_its_disk_bring_nothing_back() {
    old_replicas_meet(true).await;
}

/// Who reads the feed of that replica has not seen them yet.
#[tokio::test]
async fn tombstones_that_came_late_to_a_replica_are_not_collected_before_they_are_old_there() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[2]);
    delete(&cluster, 0, "a", &first, Some(2)).await;
    look(&cluster).await;
    look(&cluster).await;
    cluster.heal().await;
    eventually(|| async { own_leaves(&cluster.db(2), "a").await != [first.to_string()] }).await;
    for _ in 0..4 {
        for node in &cluster.nodes[..2] {
            sweep(&Arc::downgrade(&node.coordinator), Some(AGE)).await;
        }
    }
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await.len(), 1, "the third has no mark behind it");
    }
    collected(&cluster, "a").await;
}

/// It waits for the one that is away; the other one is in sync, and asks it for nothing.
#[tokio::test]
async fn a_restored_replica_that_waits_keeps_nobody_out_of_step() {
    let cluster = with_old_replica().await;
    cluster.cut(&[1]);
    let old: Arc<str> = cluster.network.names[2].as_str().into();
    let context = cluster.nodes[0].coordinator.context();
    eventually(|| async { context.rank(&old).is_some() }).await;
    cluster.db(0).pulls().pull_from(&old, false).await.unwrap();
    assert_eq!(context.rank(&context.node), Some(0));
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 0);
    assert_eq!(own_leaves(&cluster.db(2), "a").await.len(), 1, "it may be what the one that is away knows");
    cluster.heal().await;
    eventually(|| async { all_lack(&cluster, "a").await }).await;
}

/// Else it would bring back what was collected of that.
#[tokio::test]
async fn what_another_replica_had_taken_in_is_not_taken_out_of_a_damaged_one_where_something_was_collected() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    cluster.db(1).pulls().pull_replica(0, &cluster.network.names[0].as_str().into()).await.unwrap();
    let (db, Node { world, coordinator, .. }) = (cluster.db(0), &cluster.nodes[0]);
    for (forgot, taken) in [(true, 0), (false, 1)] {
        let fresh = crate::shard::allocate(&world.storage, 1).await.unwrap()[0];
        let fresh = crate::shard::ShardReplica::open(&world.storage, fresh).await.unwrap();
        if forgot {
            let done = crate::shard::Horizon::default().with("n9@h", crate::shard::Round { number: 1, id: 1 });
            fresh.adopt(&done).await.unwrap();
        }
        let own = crate::coordinator::replica::range_replica::OwnReplica::of(fresh, &coordinator.context().epochs)
            .await
            .unwrap();
        assert_eq!(db.replica_rebuild().recover(0, &replica_at(&cluster, 0).await, &own).await.unwrap().taken, taken);
    }
}

#[tokio::test]
async fn a_replica_that_collected_something_takes_nothing_from_reads() {
    let cluster = with_tombstone(Engine::Memory).await;
    collected(&cluster, "a").await;
    let own = cluster.db(0).replicas().own_replica(0).await.unwrap().unwrap();
    let source = RemoteReplica::new(&cluster.db(0).target, 0, &cluster.network.names[1].as_str().into());
    let edit = merge("a", "1-0123456789abcdef0123456789abcdef");
    let merge = |origin| {
        let (replica, edits) = (RangeReplica::Own(own.clone()), vec![edit.clone()]);
        let source = source.clone();
        async move { merge_missing(&replica, edits, &source, origin).await }
    };
    assert!(merge(Origin::Anywhere).await.is_err());
    assert_eq!(own_leaves(&cluster.db(0), "a").await.len(), 0);
    assert_eq!(merge(Origin::Anew).await.unwrap(), 1);
}

/// What is asked of a replica that has collected the same is refused by one that was restored from a backup meanwhile.
#[tokio::test]
async fn a_replica_that_has_not_collected_the_same_is_not_read() {
    let cluster = with_tombstone(Engine::Memory).await;
    collected(&cluster, "a").await;
    let done = replica_at(&cluster, 0).await.told().await.unwrap().done;
    let remote = RemoteReplica::new(&cluster.db(0).target, 0, &cluster.network.names[1].as_str().into());
    assert!(remote.clone().behind(&done).ask(Info).await.is_ok());
    let more = done.with("n9@h", crate::shard::Round { number: 1, id: 1 });
    assert!(remote.behind(&more).ask(Info).await.is_err());
}

#[tokio::test]
async fn a_database_that_keeps_its_tombstones_does_so_whatever_the_nodes_say() {
    let cluster = with_tombstone(Engine::Memory).await;
    cluster.db(1).settings().set_retention(kept_for("infinity")).await.unwrap();
    for _ in 0..5 {
        look(&cluster).await;
    }
    assert!(!lack(&cluster, [0], "a").await && !lack(&cluster, [2], "a").await);
    let retention = cluster.db(2).collection().retention(true).await.unwrap();
    assert_eq!((retention.age, retention.setting.as_deref(), retention.tombstones), (None, Some("infinity"), 1));
    assert_eq!(retention.held_back_by.keys().map(|(reason, _)| *reason).collect::<Vec<_>>(), ["no_period"]);
    cluster.db(2).settings().set_retention(AutoPurge::default()).await.unwrap();
    collected(&cluster, "a").await;
}

#[tokio::test]
async fn a_dry_run_tells_what_the_next_round_takes_and_what_holds_it_back() {
    let cluster = with_tombstone(Engine::Memory).await;
    let bad = cluster.db(0).settings().set_retention(kept_for("3")).await;
    assert!(matches!(bad, Err(SettingError::IllegalPeriod)));
    cluster.db(0).settings().set_retention(kept_for("1_s")).await.unwrap();
    cluster.cut(&[2]);
    let retention = cluster.db(0).collection().retention(true).await.unwrap();
    assert_eq!((retention.age, retention.collectable), (Some(Duration::from_secs(1)), Some((0, true))));
    let away = ("node_away", Some(cluster.network.names[2].clone()));
    assert_eq!(retention.held_back_by[&away], ["00000000-ffffffff"]);
    cluster.heal().await;
    let sweep_all = || async {
        for node in &cluster.nodes {
            sweep(&Arc::downgrade(&node.coordinator), None).await;
        }
    };
    // All replicas note where they stand; once that is a second ago, the round is due.
    eventually(|| async {
        let told = cluster.db(1).collection().retention(true).await.unwrap();
        if told.held_back_by.is_empty() {
            assert_eq!(told.collectable, Some((1, true)));
            return true;
        }
        assert!(!all_lack(&cluster, "a").await, "{told:?}");
        for at in 0..3 {
            let own = cluster.db(at).replicas().own_replica(0).await.unwrap().unwrap();
            cluster.db(at).collection().aged_up_to(&own, true).await.unwrap();
        }
        false
    })
    .await;
    eventually(|| async {
        sweep_all().await;
        all_lack(&cluster, "a").await
    })
    .await;
}

#[tokio::test]
async fn where_nothing_is_to_be_collected_nothing_is_kept_about_it() {
    let cluster = with_tombstone(Engine::Memory).await;
    cluster.heal().await;
    let replica = replica_at(&cluster, 0).await;
    assert_eq!(replica.state().await.unwrap().rounds, 0);
    assert!(
        replica.meta_get("horizon").await.unwrap().is_none() && replica.meta_get("forgetting").await.unwrap().is_none()
    );
    assert_eq!(crate::coordinator::replica::context::age(&cluster.nodes[0].coordinator.context().config), None);
}
