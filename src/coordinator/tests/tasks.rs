//! Long work stands in the node's list of tasks while it runs, and no longer.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use super::convergence::{catch_up, plant, replica, two};
use super::*;
use crate::coordinator::RebalanceOperations;
use crate::coordinator::anti_entropy::tombstone_collection::sweep;
use crate::coordinator::backup::{self, BackupError, Extent};
use crate::observe::tasks::{Subject, TaskKind, TaskState};

/// Does some work; answers the last state of each task that it listed and that has ended, in the order of their
/// beginnings.
async fn listed<T>(env: &Env, work: impl Future<Output = T>) -> (T, Vec<TaskState>) {
    let metrics = env.metrics();
    metrics.tasks().take_ended();
    let out = work.await;
    let mut ended = metrics.tasks().take_ended();
    ended.sort_by_key(|task| task.number);
    (out, ended)
}

/// The task of that kind, of which there is one.
fn only(seen: &[TaskState], kind: TaskKind) -> &TaskState {
    let found: Vec<&TaskState> = seen.iter().filter(|task| task.subject.kind == kind).collect();
    assert_eq!(found.len(), 1, "{seen:?}");
    found[0]
}

async fn filled(database: &Arc<Database>) {
    for n in 0..20 {
        put(database, &format!("d{n}"), "{}").await;
    }
}

#[tokio::test]
async fn a_compaction_is_listed() {
    let (world, _coordinator, database) = database(1).await;
    filled(&database).await;
    let (done, seen) = listed(&world.env, database.compaction().compact_all()).await;
    done.unwrap();
    let task = only(&seen, TaskKind::DatabaseCompaction);
    assert_eq!(task.subject, Subject::new(TaskKind::DatabaseCompaction, "db").range("00000000-ffffffff"));
    assert_eq!((task.done, task.total, task.progress()), (20, Some(20), Some(100)));
}

#[tokio::test]
async fn the_filling_of_child_shards_is_listed() {
    let (world, _coordinator, database) = database(1).await;
    filled(&database).await;
    let (done, seen) = listed(&world.env, database.own_replicas().prepare(0, &|_| {})).await;
    done.unwrap();
    let task = only(&seen, TaskKind::Resharding);
    assert_eq!((task.done, task.total), (20, Some(20)));
    assert!(task.phase.is_some());
}

#[tokio::test]
async fn snapshots_and_restores_are_listed_also_those_that_fail() {
    let (world, coordinator, database) = database(2).await;
    filled(&database).await;
    let folder = tempfile::tempdir().unwrap();
    let work = backup::snapshot(&world.env, &database, folder.path(), Extent::Added);
    let (snapshot, seen) = listed(&world.env, work).await;
    let task = only(&seen, TaskKind::Snapshot);
    assert_eq!((task.subject.database.as_str(), task.done, task.total), ("db", 20, Some(20)));
    let list = folder.path().join(snapshot.unwrap().file);
    let from = |name| backup::restore(&world.env, &coordinator, (folder.path(), &list), Some(name));
    let (restored, seen) = listed(&world.env, from("again")).await;
    restored.unwrap();
    let task = only(&seen, TaskKind::Restore);
    assert_eq!((task.subject.database.as_str(), task.total), ("again", Some(20)));
    remove_objects(&folder.path().join("objects"));
    let (failed, seen) = listed(&world.env, from("third")).await;
    assert!(matches!(failed, Err(BackupError::Damaged(_))), "{failed:?}");
    only(&seen, TaskKind::Restore);
}

fn remove_objects(folder: &Path) {
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn a_look_for_old_tombstones_is_listed() {
    let (world, coordinator, _database) = database(1).await;
    let weak = Arc::downgrade(&coordinator);
    let ((), seen) = listed(&world.env, sweep(&weak, Some(Duration::from_secs(3600)))).await;
    let task = only(&seen, TaskKind::TombstoneCollection);
    assert_eq!(task.total, Some(3), "the database, and those of the system");
}

#[tokio::test]
async fn what_a_node_reads_from_another_is_listed() {
    let cluster = two(50).await;
    for n in 0..10 {
        plant(&replica(&cluster, 1).await, &format!("new{n}"), &["1-a"], false).await;
    }
    let env = cluster.nodes[0].world.env.clone();
    let (_, seen) = listed(&env, catch_up(&cluster, 0, 1, false)).await;
    let sync = seen.iter().find(|task| task.subject.kind == TaskKind::NodeSync).expect("a comparison");
    assert_eq!((sync.subject.peer.as_str(), sync.total), (&*cluster.network.names[1], Some(1)));
    let pull = seen.iter().find(|task| task.subject.kind == TaskKind::ReplicaPull).expect("a pull");
    assert_eq!((pull.subject.database.as_str(), pull.total), ("db", Some(10)));
}
