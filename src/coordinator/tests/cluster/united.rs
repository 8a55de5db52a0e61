//! Two databases of one name: what was acknowledged in either is in the one that stays.

use super::super::check::{keys_of, spoil};
use super::super::convergence::{plant, replica};
use super::*;
use crate::coordinator::backup::{self, BackupError, Extent, LeftOut, dump, snapshot_node};
use crate::coordinator::topology::record::{self, Record};
use crate::coordinator::{ReadOperations, RepairOperations, WriteOperations};
use crate::shard::{LocalDocument, LocalRegister, ShardError, Stamp};
use crate::storage::StorageError;

/// The name of the database that all tests make.
const DB: &str = "db";

impl Cluster {
    /// The record of a database that is older than the one of its name on a node, with the same replicas.
    fn older(&self, at: usize) -> Record {
        let known = self.nodes[at].coordinator.known(DB).expect("a database");
        let mut record = known.shared(&self.nodes[at].coordinator.context().node);
        record.instance = format!("{:032x}", 7);
        record.created_s -= 60;
        record
    }

    fn instance(&self, at: usize) -> Option<String> {
        self.nodes[at].coordinator.known(DB).map(|known| known.instance.clone())
    }

    async fn are_superseded(&self, at: usize) -> usize {
        self.nodes[at].coordinator.superseded(DB).await.unwrap().len()
    }

    /// Waits until the replica of every node holds a document, and no instance is superseded.
    async fn united(&self, document: &str) {
        for at in 0..self.nodes.len() {
            eventually(|| async {
                self.are_superseded(at).await == 0 && !own_leaves(&self.db(at), document).await.is_empty()
            })
            .await;
        }
        self.settle().await;
    }
}

/// Seen in the simulator: one of two that made a database at the same time, behind a split that nobody had noticed yet,
/// took it back when it heard of the other, with what had been written to it by way of another node.
#[tokio::test]
async fn what_was_written_to_a_database_that_gives_way_while_it_is_made_is_kept() {
    let cluster = Cluster::new(3).await;
    cluster.deafen(&["n3@h"]);
    assert_eq!(cluster.create(0, 1, 3).await.unwrap(), Written::Quorum);
    let (instance, older) = (cluster.instance(0).unwrap(), cluster.older(0));
    assert_eq!(write(&cluster.db(1), "d", "{}", None).await.unwrap().written, Written::Quorum);
    cluster.nodes[2].coordinator.install(DB, older.clone(), None).await.unwrap();
    cluster.deafen(&[]);
    let made = cluster.nodes[0].coordinator.create_elsewhere(DB, &instance).await;
    assert!(matches!(made, Err(DatabaseError::Exists)), "{made:?}");
    assert_eq!(cluster.instance(0), Some(older.instance.clone()));
    cluster.nodes[2].coordinator.create_elsewhere(DB, &older.instance).await.unwrap();
    cluster.united("d").await;
}

/// The mark of a database that became part of another one was taken for that of a deletion by the one that heard of it.
#[tokio::test]
async fn what_a_node_wrote_alone_is_kept_where_the_others_gave_its_database_up() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[2]);
    assert_eq!(write(&cluster.db(2), "d", "{}", None).await.unwrap().written, Written::Accepted);
    let older = cluster.older(0);
    for at in [0, 1] {
        cluster.nodes[at].coordinator.adopt(DB, older.clone()).await.unwrap();
    }
    cluster.heal().await;
    cluster.united("d").await;
    assert_eq!(cluster.instance(2), Some(older.instance));
}

#[tokio::test]
async fn superseded_instances_stays_until_a_majority_has_it_and_over_a_restart() {
    let mut cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    let db = cluster.db(0);
    for name in ["d", "e", "_local/l"] {
        assert_eq!(write(&db, name, r#"{"v":1}"#, None).await.unwrap().written, Written::Accepted);
    }
    let older = cluster.older(0);
    cluster.nodes[0].coordinator.adopt(DB, older.clone()).await.unwrap();
    assert!(cluster.nodes[0].coordinator.merge_all_superseded().await.is_err());
    assert_eq!(cluster.are_superseded(0).await, 1);
    cluster.nodes[0].coordinator = cluster.nodes[0].world.join(&cluster.nodes[0].end).await;
    assert!(cluster.nodes[0].coordinator.merge_all_superseded().await.is_err());
    assert_eq!(cluster.are_superseded(0).await, 1);
    cluster.heal().await;
    cluster.united("d").await;
    cluster.united("e").await;
    let db = cluster.db(2);
    assert_eq!(
        db.documents().get_local_by(&db.layout(), &id("_local/l"), None).await.unwrap().unwrap().body,
        r#"{"v":1}"#
    );
}

fn is_damaged(merged: Result<(), WriteError>) -> bool {
    matches!(merged, Err(WriteError::Unavailable(ShardError::Storage(StorageError::Corrupt(_)))))
}

/// Nothing was written of any superseded instance, and the node was taken for one that is in sync.
#[tokio::test]
async fn superseded_instances_under_a_record_that_cannot_be_read_keeps_nothing_else_from_being_written() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    let (world, coordinator) = (&cluster.nodes[0].world, &cluster.nodes[0].coordinator);
    write(&cluster.db(0), "d", "{}", None).await.unwrap();
    spoil(world, record::superseded_key(DB, &"0".repeat(32)), Some(b"{".to_vec())).await;
    coordinator.adopt(DB, cluster.older(0)).await.unwrap();
    assert!(!is_damaged(coordinator.merge_all_superseded().await), "nobody else is there");
    cluster.cut(&[]);
    eventually(|| async { is_damaged(coordinator.merge_all_superseded().await) }).await;
    assert_eq!(cluster.are_superseded(0).await, 1, "the one that cannot be read");
    eventually(|| async { coordinator.context().rank(&coordinator.context().node) == Some(0) }).await;
    assert_eq!(body(&cluster.db(0), "d").await, "{}");
}

/// Sets a database aside in which a record of a kind cannot be read: it stays, and all else of it is written.
async fn stays_with_damage(kind: u8, value: &[u8]) -> Cluster {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    let (world, coordinator) = (&cluster.nodes[0].world, &cluster.nodes[0].coordinator);
    write(&cluster.db(0), "bad", r#"{"v":1}"#, None).await.unwrap();
    plant(&replica(&cluster, 0).await, "bad", &["1-b"], false).await;
    for name in ["good", "_local/bad", "_local/good"] {
        write(&cluster.db(0), name, "{}", None).await.unwrap();
    }
    let keys = keys_of(world, &cluster.db(0), kind).await;
    spoil(world, keys[0].clone(), Some(value.to_vec())).await;
    coordinator.adopt(DB, cluster.older(0)).await.unwrap();
    cluster.cut(&[]);
    eventually(|| async { is_damaged(coordinator.merge_all_superseded().await) }).await;
    assert_eq!(cluster.are_superseded(0).await, 1);
    // All that can be read is written: it is in sync all the same.
    eventually(|| async { coordinator.context().rank(&coordinator.context().node) == Some(0) }).await;
    for name in ["bad", "good"] {
        assert_ne!(body(&cluster.db(0), name).await, "!", "{name}");
    }
    cluster
}

async fn local(cluster: &Cluster, name: &str) -> Option<LocalDocument> {
    let db = cluster.db(0);
    db.documents().get_local_by(&db.layout(), &id(name), None).await.unwrap()
}

/// Neither it nor any behind it was written.
#[tokio::test]
async fn superseded_instances_stays_with_a_local_document_that_cannot_be_read() {
    let cluster = stays_with_damage(b'l', &[0xff; 3]).await;
    assert!(local(&cluster, "_local/bad").await.is_none() && local(&cluster, "_local/good").await.is_some());
}

/// The leaf was passed over, and the superseded instance was dropped with it.
#[tokio::test]
async fn superseded_instances_stays_with_a_leaf_that_cannot_be_read() {
    let cluster = stays_with_damage(b'b', b"\x01\x00{x}").await;
    assert!(local(&cluster, "_local/bad").await.is_some());
}

/// Nothing behind the row was written.
#[tokio::test]
async fn superseded_instances_with_a_row_of_changes_that_cannot_be_read_is_found_by_its_ids() {
    let cluster = stays_with_damage(b's', &[0xff; 3]).await;
    assert!(local(&cluster, "_local/good").await.is_some());
}

/// Each leaf was a round of calls of its own.
#[tokio::test]
async fn the_leaves_of_a_document_go_over_together_and_alone_where_one_is_damaged() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let Node { world, coordinator, .. } = &cluster.nodes[0];
    let options = CreateOptions { q: Some(1), n: Some(3), ..CreateOptions::default() };
    coordinator.create_database("other", options).await.unwrap();
    let other = coordinator.database("other").unwrap();
    attach(&other, "attached", &Bytes::from(vec![7; 600_000])).await;
    let from = other.replicas().own_replica(0).await.unwrap().unwrap().shard;
    plant(&from, "attached", &["1-a"], false).await;
    for n in 0..100 {
        plant(&from, "many", &[&format!("1-{n:032x}")], false).await;
    }
    let mut file = world.dir.path().join("blobs");
    while file.is_dir() {
        let mut entries = std::fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().path());
        file = entries.find(|path| !path.ends_with("tmp")).unwrap();
    }
    let mut damaged = std::fs::read(&file).unwrap();
    damaged[400_000] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    cluster.network.calls.store(0, Ordering::Relaxed);
    let merged = cluster.db(0).superseded_merge().merge_superseded(&from).await;
    assert!(is_damaged(merged));
    let calls = cluster.network.calls.load(Ordering::Relaxed);
    assert!(calls < 100, "{calls} calls");
    assert_eq!(own_leaves(&cluster.db(0), "many").await.len(), 100);
    assert_eq!(own_leaves(&cluster.db(0), "attached").await, ["1-a"]);
}

/// The answer was 404, though the primary had stored it.
#[tokio::test]
async fn a_write_whose_database_gives_way_behind_a_silent_primary_is_not_answered_as_if_nothing_was_written() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let primaries = cluster.db(0).replicas().nodes_of(0);
    let writer = cluster.network.names.iter().position(|name| **name == *primaries[1]).unwrap();
    cluster.network.mute.lock().unwrap().insert(primaries[0].to_string());
    let db = cluster.db(writer);
    // So it is closed when it goes.
    replica(&cluster, writer).await.close();
    let unknown = write(&db, "d", "{}", None).await;
    assert!(matches!(unknown, Err(WriteError::Unknown)), "{unknown:?}");
    assert_eq!(write(&db, "_local/l", "{}", None).await.unwrap().written, Written::Accepted);
}

/// The answer was 404 or, where replicas had moved, a conflict with the very edit that was stored.
#[tokio::test]
async fn what_others_hold_counts_where_the_replica_of_the_node_that_was_asked_is_gone() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let document = Some(LocalDocument { rev: 1, body: Bytes::from_static(b"{}") });
    let register = LocalRegister { stamp: Stamp { counter: 1, by: 1 }, document };
    let db = cluster.db(0);
    db.mark_gone();
    assert_eq!(db.locals().merge_local(&id("_local/l"), register).await, (Some(Written::Quorum), 2));
}

/// A snapshot of all databases left out one whose name went over to another one meanwhile, or took what was not filled.
#[tokio::test]
async fn a_snapshot_of_a_node_has_no_database_without_superseded_instances_for_it() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let Node { world, coordinator, .. } = &cluster.nodes[0];
    let folder = tempfile::tempdir().unwrap();
    write(&cluster.db(0), "d", "{}", Some(3)).await.unwrap();
    cluster.cut(&[1, 2]);
    coordinator.adopt(DB, cluster.older(0)).await.unwrap();
    let refused = snapshot_node(&world.env, coordinator, folder.path(), Extent::Added).await;
    assert!(matches!(&refused, Err(BackupError::Unfilled(name)) if name == DB), "{refused:?}");
    cluster.heal().await;
    cluster.united("d").await;
    // Its handle is gone, and the name leads nowhere else.
    cluster.db(0).mark_gone();
    assert!(snapshot_node(&world.env, coordinator, folder.path(), Extent::Added).await.is_err());
    coordinator.delete_database(DB).await.unwrap();
    assert!(snapshot_node(&world.env, coordinator, folder.path(), Extent::Added).await.unwrap().databases.is_empty());
}

/// One database with a range elsewhere made the snapshot of all fail with an error that told nothing.
#[tokio::test]
async fn a_snapshot_of_a_node_names_the_databases_with_a_range_that_is_elsewhere() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 1).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (mut holders, mut others) = (0, 0);
    for (at, node) in cluster.nodes.iter().enumerate() {
        let taken = snapshot_node(&node.world.env, &node.coordinator, folder.path(), Extent::Added).await.unwrap();
        let own = backup::snapshot(&node.world.env, &cluster.db(at), folder.path(), Extent::Added).await;
        match taken.left_out.as_slice() {
            [] => {
                holders += 1;
                assert!(own.is_ok() && taken.databases.iter().any(|(name, _)| name == DB));
            }
            left_out => {
                others += 1;
                assert_eq!(left_out, [DB]);
                assert!(matches!(own, Err(BackupError::Elsewhere(name)) if name == DB));
            }
        }
    }
    assert_eq!((holders, others), (1, 2));
}

/// A check took its shards for strangers, and a dump said nothing of what it left out.
#[tokio::test]
async fn superseded_instances_is_checked_with_its_database_and_named_by_a_dump() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    write(&cluster.db(0), "d", "{}", None).await.unwrap();
    cluster.nodes[0].coordinator.adopt(DB, cluster.older(0)).await.unwrap();
    assert!(cluster.nodes[0].coordinator.merge_all_superseded().await.is_err(), "nobody else is there");
    let report = check(&cluster.nodes[0].world.storage).await.unwrap();
    assert_eq!((report.databases, report.findings), (1, Vec::new()));
    assert!(report.documents >= 1, "{}", report.documents);
    let (mut out, mut left_out) = (Vec::new(), Vec::new());
    dump(&cluster.db(0), &mut out, &mut |what| left_out.push(what)).await.unwrap();
    assert_eq!(left_out, [LeftOut::Superseded]);
}

/// What was left of the range that was split brought it back.
#[tokio::test]
async fn what_was_purged_behind_a_split_does_not_come_back_from_superseded_instances() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    let purged = write(&cluster.db(0), "purged", "{}", Some(2)).await.unwrap().rev;
    let split = cluster.db(0).map_record().with_split(0).unwrap();
    for at in [0, 1] {
        cluster.db(at).follow(split.clone()).await.unwrap();
    }
    assert_eq!(cluster.db(0).maintenance().purge(vec![(id("purged"), vec![purged])]).await.unwrap().1, Written::Quorum);
    write(&cluster.db(0), "d", "{}", Some(2)).await.unwrap();
    let older = cluster.older(0);
    for node in &cluster.nodes {
        node.coordinator.adopt(DB, older.clone()).await.unwrap();
    }
    cluster.united("d").await;
    assert_eq!(body(&cluster.db(0), "purged").await, "!");
}

/// A third database took the name while the replicas of the second one were being filled, and was taken for filled.
#[tokio::test]
async fn a_node_whose_replicas_begin_anew_while_they_are_filled_is_not_in_sync() {
    let cluster = Cluster::new(1).await;
    let context = cluster.nodes[0].coordinator.context();
    context.status.begins_anew(DB);
    let began = context.status.unfilled()[DB];
    context.status.begins_anew(DB);
    context.status.is_filled(DB, began);
    assert!(!context.own_state().in_sync);
    context.status.is_filled(DB, began + 1);
    assert!(context.own_state().in_sync);
}

#[tokio::test]
async fn a_node_is_not_in_sync_while_an_instance_is_superseded() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    write(&cluster.db(0), "d", "{}", Some(3)).await.unwrap();
    let (older, context) = (cluster.older(0), cluster.nodes[0].coordinator.context());
    // The others know the older one already, and cannot be reached.
    cluster.deafen(&["n2@h", "n3@h"]);
    cluster.nodes[0].coordinator.adopt(DB, older).await.unwrap();
    assert!(cluster.nodes[0].coordinator.merge_all_superseded().await.is_err());
    assert_eq!((context.rank(&context.node), context.status.in_sync.is(context.env.now())), (Some(1), true));
    cluster.deafen(&[]);
    cluster.united("d").await;
    assert_eq!(context.rank(&context.node), Some(0));
}

#[tokio::test]
async fn superseded_instances_goes_with_its_own_database_or_the_one_of_its_name_and_no_other() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    let (first, older, coordinator) = (cluster.instance(0).unwrap(), cluster.older(0), &cluster.nodes[0].coordinator);
    write(&cluster.db(0), "d", "{}", None).await.unwrap();
    coordinator.adopt(DB, older.clone()).await.unwrap();
    for stranger in ["0", "f"] {
        assert!(coordinator.remove(DB, Some(&stranger.repeat(32))).await.unwrap().is_empty());
        assert_eq!(cluster.are_superseded(0).await, 1);
    }
    coordinator.remove(DB, Some(&first)).await.unwrap();
    assert_eq!((cluster.are_superseded(0).await, cluster.instance(0)), (0, Some(older.instance.clone())));
    let second = Record { instance: "5".repeat(32), created_s: older.created_s - 60, ..older.clone() };
    write(&cluster.db(0), "e", "{}", None).await.unwrap();
    coordinator.adopt(DB, second.clone()).await.unwrap();
    assert_eq!(cluster.are_superseded(0).await, 1);
    assert_eq!(coordinator.remove(DB, Some(&second.instance)).await.unwrap(), [second.instance]);
    assert_eq!((cluster.are_superseded(0).await, cluster.instance(0)), (0, None));
}

#[tokio::test]
async fn a_deletion_ends_what_became_part_of_the_database_on_nodes_that_were_away_too() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[2]);
    let older = cluster.older(0);
    for at in [0, 1] {
        cluster.nodes[at].coordinator.adopt(DB, older.clone()).await.unwrap();
    }
    assert_eq!(cluster.nodes[0].coordinator.delete_database(DB).await.unwrap(), Written::Accepted);
    cluster.heal().await;
    for at in 0..3 {
        eventually(|| async { cluster.instance(at).is_none() }).await;
    }
}

/// They were decided where they were written: a function of the other database refused them, and they were dropped.
#[tokio::test]
async fn no_validation_function_drops_what_was_acknowledged() {
    let cluster = Cluster::new(3).await;
    cluster.deafen(&["n3@h"]);
    cluster.create(0, 1, 3).await.unwrap();
    assert_eq!(write(&cluster.db(0), "d", "{}", None).await.unwrap().written, Written::Quorum);
    let (older, coordinator) = (cluster.older(0), &cluster.nodes[2].coordinator);
    coordinator.install(DB, older.clone(), None).await.unwrap();
    let never = r#"{"validate_doc_update":"function(){throw({forbidden:'no'})}"}"#;
    cluster.deafen(&["n1@h", "n2@h"]);
    write(&cluster.db(2), "_design/v", never, None).await.unwrap();
    cluster.deafen(&[]);
    coordinator.create_elsewhere(DB, &older.instance).await.unwrap();
    cluster.united("d").await;
    cluster.united("_design/v").await;
}

/// Writes a document with an attachment, unites its database with one of other replicas, and reads it everywhere.
async fn attachment_goes_over(replicas: impl Fn(&Cluster, &[String]) -> Vec<String>) {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 1, 3).await.unwrap();
    let (db, content) = (cluster.db(0), Bytes::from(vec![7; 300_000]));
    let options = UploadOptions { name: "f".to_owned(), content_type: "image/png".to_owned(), gzip: false, md5: None };
    let mut upload = db.attachments().upload(&id("d"), options).await.unwrap();
    upload.write(content.clone()).await.unwrap();
    let staged = upload.finish().await.unwrap();
    let options = WriteOptions { w: Some(3), ..WriteOptions::default() };
    db.attachments().put_attachment(&id("d"), "f", None, staged, options).await.unwrap();
    let mut older = cluster.older(0);
    let nodes = replicas(&cluster, &older.by_range.as_ref().unwrap()[0]);
    (older.n, older.by_range) = (nodes.len() as u32, Some(vec![nodes.clone()]));
    for node in &cluster.nodes {
        node.coordinator.adopt(DB, older.clone()).await.unwrap();
    }
    for (at, name) in cluster.network.names.iter().enumerate() {
        eventually(|| async { cluster.are_superseded(at).await == 0 }).await;
        if nodes.contains(name) {
            eventually(|| async { own_leaves(&cluster.db(at), "d").await.len() == 1 }).await;
        }
    }
    for at in 0..4 {
        let db = cluster.db(at);
        let found = db.documents().fetch(&id("d"), Want::Winner).await.unwrap().unwrap();
        let attachment = found.found[0].1.as_ref().unwrap().attachments[0].clone();
        assert_eq!(db.documents().attachment_bytes(&id("d"), &attachment, true).await.unwrap(), content);
    }
}

#[tokio::test]
async fn attachments_go_over_to_replicas_on_the_same_nodes() {
    attachment_goes_over(|_, held| held.to_vec()).await;
}

#[tokio::test]
async fn attachments_go_over_to_a_replica_on_another_node() {
    let other = |cluster: &Cluster, held: &[String]| {
        cluster.network.names.iter().filter(|name| !held.contains(name)).cloned().collect()
    };
    attachment_goes_over(other).await;
}
