//! Nodes that never come back, and moves that cannot end because of them.

use super::super::convergence::{plant, replica};
use super::moves::still;
use super::*;
use crate::coordinator::rebalance::moves::MapEdit;
use crate::coordinator::rebalance::reshard::JobRequest;
use crate::coordinator::replica::jobs::{JobState, Resharding};
use crate::coordinator::topology::record::{MapRecord, Move};
use crate::coordinator::{ReadOperations, RebalanceOperations};
use crate::shard::{Pace, ShardError};

const WHOLE: &str = "00000000-ffffffff";

/// A database of one range on a cluster, the nodes that hold its replicas in order, and those that do not.
async fn one_range(nodes: usize, n: u32) -> (Cluster, Vec<usize>, Vec<usize>) {
    let cluster = Cluster::new(nodes).await;
    cluster.create(0, 1, n).await.unwrap();
    let holders = cluster.db(0).shards().remove(0).1;
    let at = |name: &String| cluster.network.names.iter().position(|own| own == name).unwrap();
    let holders: Vec<usize> = holders.iter().map(at).collect();
    let others = (0..nodes).filter(|at| !holders.contains(at)).collect();
    (cluster, holders, others)
}

fn of(cluster: &Cluster, from: usize, to: usize) -> Move {
    let name = |at: usize| Some(cluster.network.names[at].clone());
    Move { range: 0, from: name(from), to: name(to), leaving: false }
}

/// Begins a move of the only range, asked of the node `at`.
async fn begin(cluster: &Cluster, at: usize, (from, to): (usize, usize)) {
    cluster.nodes[at].coordinator.begin_move(&cluster.db(at), &of(cluster, from, to)).await.unwrap();
}

fn names(cluster: &Cluster, nodes: &[usize]) -> BTreeSet<String> {
    nodes.iter().map(|at| cluster.network.names[*at].clone()).collect()
}

/// Waits until no replica is on its way and the only range is held by just these nodes, as the first of them sees it.
async fn held_by(cluster: &Cluster, nodes: &[usize]) {
    let db = cluster.db(nodes[0]);
    eventually(|| async {
        let held: BTreeSet<String> = db.shards().remove(0).1.into_iter().collect();
        db.own_replicas().moves().is_empty() && held == names(cluster, nodes)
    })
    .await;
}

/// An edit of the map as it is known on a node, which leaves all replicas of its only range where they are.
fn edit_of(db: &Arc<Database>) -> MapEdit {
    let (range, nodes) = db.shards().remove(0);
    let replicas = [(range, nodes.into_iter().collect())].into();
    MapEdit { version: db.map_version().0, replicas, moves: None }
}

#[tokio::test]
async fn a_range_with_more_replicas_than_the_others_waits_for_a_majority_of_its_own() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    for node in ["n2@h", "n3@h"] {
        let less = Move { range: 0, from: Some(node.to_owned()), to: None, leaving: false };
        cluster.nodes[0].coordinator.begin_move(&cluster.db(0), &less).await.unwrap();
        still(&cluster).await;
    }
    let db = cluster.db(0);
    assert_eq!(db.info().await.unwrap().cluster.n, 1);
    let mut names = (0..).map(|n| format!("d{n}")).filter(|name| db.range_of(&id(name)) == 1);
    let name = names.next().unwrap();
    let done = write(&db, &name, "{}", None).await.unwrap();
    assert!(done.written == Written::Quorum && done.replicas >= 2, "{done:?}");
    // Two of three have it now; a read that asks the third before it has it finds that the two differ.
    eventually(|| async {
        let wants = vec![(id(&name), Want::Winner)];
        let (_, agreed) = db.documents().fetch_counted((&db.layout(), 1), wants, None).await.unwrap();
        agreed == [2]
    })
    .await;
    cluster.cut(&[1, 2]);
    assert_eq!(write(&db, &names.next().unwrap(), "{}", None).await.unwrap().written, Written::Accepted);
}

#[tokio::test]
async fn a_move_to_a_node_that_was_removed_is_called_off() {
    let (cluster, holders, others) = one_range(3, 1).await;
    let (at, dead) = (holders[0], others[0]);
    write(&cluster.db(at), "a", "{}", None).await.unwrap();
    cluster.cut(&[dead]);
    begin(&cluster, at, (at, dead)).await;
    assert_eq!(cluster.db(at).own_replicas().moves().len(), 1);
    cluster.remove(&[dead]);
    held_by(&cluster, &[at]).await;
    assert_eq!(write(&cluster.db(others[1]), "b", "{}", None).await.unwrap().written, Written::Quorum);
}

#[tokio::test]
async fn a_replica_that_was_leaving_comes_back_when_the_new_one_is_gone() {
    let (cluster, holders, others) = one_range(3, 1).await;
    let (at, dead) = (holders[0], others[0]);
    write(&cluster.db(at), "a", "{}", None).await.unwrap();
    cluster.remove(&[dead]);
    let leaving = Move { leaving: true, ..of(&cluster, at, dead) };
    let by_range = Some(vec![vec![cluster.network.names[dead].clone()]]);
    let arrived = MapRecord { moves: vec![leaving], by_range, version: 2, moved: 2, ..cluster.db(at).map_record() };
    for node in [at, others[1]] {
        cluster.db(node).follow(arrived.clone()).await.unwrap();
    }
    held_by(&cluster, &[at]).await;
    let other = cluster.db(others[1]);
    eventually(|| async { other.map_record() == cluster.db(at).map_record() }).await;
    assert_eq!(body(&other, "a").await, "{}");
}

#[tokio::test]
async fn an_administrator_calls_a_move_off_by_the_map_that_it_is_in() {
    let (cluster, holders, others) = one_range(3, 1).await;
    let (at, away) = (holders[0], others[0]);
    let (db, coordinator) = (cluster.db(at), &cluster.nodes[at].coordinator);
    let before = edit_of(&db);
    cluster.cut(&[away]);
    begin(&cluster, at, (at, away)).await;
    let mut edit = edit_of(&db);
    assert_eq!(coordinator.edit_map(&db, &edit).await, Ok(1), "moves go on that are not spoken of");
    edit.moves = Some([WHOLE.to_owned()].into());
    assert_eq!(coordinator.edit_map(&db, &edit).await, Ok(1));
    edit.moves = Some(BTreeSet::new());
    let old = MapEdit { moves: edit.moves.clone(), ..before };
    assert_eq!(coordinator.edit_map(&db, &old).await, Err(MapError::Contended));
    assert_eq!(coordinator.edit_map(&db, &edit).await, Ok(2));
    held_by(&cluster, &[at]).await;
    cluster.heal().await;
    assert_eq!(write(&cluster.db(others[1]), "b", "{}", None).await.unwrap().written, Written::Quorum);
}

#[tokio::test]
async fn an_edited_map_is_taken_as_a_whole_or_not_at_all() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 1).await.unwrap();
    let (db, coordinator) = (cluster.db(0), &cluster.nodes[0].coordinator);
    let other = |now: &str| cluster.network.names.iter().find(|name| *name != now).unwrap().clone();
    let moved = |(range, nodes): (String, Vec<String>)| (range, BTreeSet::from([other(&nodes[0])]));
    let replicas: BTreeMap<String, BTreeSet<String>> = db.shards().into_iter().map(moved).collect();
    let edit = MapEdit { version: 0, replicas, moves: None };
    let mut wrong = edit.clone();
    *wrong.replicas.last_entry().unwrap().get_mut() = ["x@h".to_owned()].into();
    let refused = Err(MapError::Refused("x@h is no member of the cluster".to_owned()));
    assert_eq!(coordinator.edit_map(&db, &wrong).await, refused);
    assert_eq!((db.map_version().0, db.own_replicas().moves().len()), (0, 0));
    assert_eq!(coordinator.edit_map(&db, &edit).await, Ok(1), "both moves begin in one version");
    assert_eq!(coordinator.edit_map(&db, &edit).await, Err(MapError::Contended));
    still(&cluster).await;
    assert!(
        cluster.db(1).shards().into_iter().all(|(range, nodes)| edit.replicas[&range] == nodes.into_iter().collect())
    );
}

#[tokio::test]
async fn one_of_two_replicas_is_replaced_when_its_node_is_gone() {
    let (cluster, holders, others) = one_range(3, 2).await;
    let (at, dead, new) = (holders[0], holders[1], others[0]);
    assert_eq!(write(&cluster.db(at), "a", "{}", Some(2)).await.unwrap().written, Written::Quorum);
    cluster.remove(&[dead]);
    begin(&cluster, at, (dead, new)).await;
    held_by(&cluster, &[at, new]).await;
    eventually(|| async { own_leaves(&cluster.db(new), "a").await.len() == 1 }).await;
    assert_eq!(write(&cluster.db(new), "b", "{}", None).await.unwrap().written, Written::Quorum);
}

/// The records of purges are gone from the replicas that are left: the new one was empty and misses none of them.
#[tokio::test]
async fn a_replica_is_replaced_where_records_of_purges_are_gone() {
    let (cluster, holders, others) = one_range(4, 3).await;
    let [first, second, dead] = holders[..] else { panic!("three replicas") };
    for at in [first, second] {
        let own = replica(&cluster, at).await;
        plant(&own, "stays", &["1-c"], false).await;
        plant(&own, "b", &["1-b"], false).await;
        own.purge(vec![(id("b"), vec![rev("1-b")])]).await.unwrap();
        own.compact(0, Pace::new(&cluster.nodes[at].world.env, 1000)).await.unwrap();
        assert_eq!(own.state().await.unwrap().purge_floor, 1);
    }
    cluster.remove(&[dead]);
    begin(&cluster, first, (dead, others[0])).await;
    held_by(&cluster, &[first, second, others[0]]).await;
    assert_eq!(own_leaves(&cluster.db(others[0]), "stays").await, ["1-c"]);
}

#[tokio::test]
async fn a_range_is_not_split_while_one_of_its_replicas_moves() {
    let (cluster, holders, others) = one_range(3, 1).await;
    let (at, away) = (holders[0], others[0]);
    let (db, coordinator) = (cluster.db(at), &cluster.nodes[at].coordinator);
    write(&db, "a", "{}", None).await.unwrap();
    cluster.cut(&[away]);
    begin(&cluster, at, (at, away)).await;
    let request = JobRequest { db: "db".to_owned(), ..JobRequest::default() };
    assert!(coordinator.reshard(&request).await.unwrap().iter().all(|job| job.made.is_ok()));
    eventually(|| async { coordinator.reshard_jobs().await[0].split_state == "update_shardmap" }).await;
    assert!(db.map_record().with_split(0).is_err());
    // The map of the move is the last one still.
    let off = MapEdit { moves: Some(BTreeSet::new()), ..edit_of(&db) };
    assert_eq!((off.version, coordinator.edit_map(&db, &off).await), (1, Ok(2)));
    eventually(|| async { coordinator.reshard_jobs().await[0].state == JobState::Completed }).await;
    assert_eq!((db.map().q(), db.map_version().0), (2, 3));
    assert_eq!(body(&db, "a").await, "{}");
}

#[tokio::test]
async fn a_job_of_a_node_that_does_not_answer_is_not_taken_for_none() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    let coordinator = &cluster.nodes[0].coordinator;
    coordinator.set_resharding(Resharding { stopped: Some("test".to_owned()) }).await.unwrap();
    let request = JobRequest { db: "db".to_owned(), node: Some("n2@h".to_owned()), ..JobRequest::default() };
    let id = coordinator.reshard(&request).await.unwrap().remove(0).made.unwrap();
    cluster.cut(&[1]);
    let no_answer = |error: DatabaseError| {
        let DatabaseError::Unavailable(ShardError::NotExecuted(why)) = error else { panic!("{error:?}") };
        assert_eq!(why, "n2@h did not answer");
    };
    no_answer(coordinator.reshard_job(&id).await.unwrap_err());
    no_answer(coordinator.set_reshard_job(&id, None).await.unwrap_err());
    no_answer(coordinator.delete_reshard_job(&id).await.unwrap_err());
    no_answer(coordinator.set_resharding(Resharding::default()).await.unwrap_err());
    assert_eq!(coordinator.resharding().stopped, None, "it holds where it was taken");
    cluster.heal().await;
    assert!(coordinator.delete_reshard_job(&id).await.unwrap());
    assert!(!coordinator.delete_reshard_job(&id).await.unwrap());
}
