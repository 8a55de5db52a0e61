//! Ranges that are split and replicas that are moved while all nodes write.

use super::*;
use crate::coordinator::FeedOperations;
use crate::coordinator::rebalance::moves::MapEdit;
use crate::coordinator::rebalance::plan::RebalanceRequest;
use crate::coordinator::rebalance::reshard::JobRequest;
use crate::coordinator::replica::jobs::JobState;
use crate::coordinator::topology::record::Move;

/// Writes `count` documents through each node in turn.
async fn fill(cluster: &Cluster, prefix: &str, count: usize) {
    fill_from(cluster, cluster.nodes.len(), prefix, count).await;
}

/// As [`fill`], through the first nodes.
async fn fill_from(cluster: &Cluster, nodes: usize, prefix: &str, count: usize) {
    for n in 0..count {
        write(&cluster.db(n % nodes), &format!("{prefix}{n}"), "{}", None).await.unwrap();
    }
}

fn nodes(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

async fn has_all(cluster: &Cluster, prefix: &str, count: usize) {
    for at in 0..cluster.nodes.len() {
        for n in 0..count {
            assert_eq!(body(&cluster.db(at), &format!("{prefix}{n}")).await, "{}", "{prefix}{n} on node {at}");
        }
    }
}

/// Waits until no replica is on its way, as all nodes see it.
pub(super) async fn still(cluster: &Cluster) {
    eventually(|| async { cluster.nodes.iter().all(|node| node.coordinator.moves_under_way().is_empty()) }).await;
}

fn holders(cluster: &Cluster, at: usize) -> Vec<Vec<String>> {
    cluster.db(at).shards().into_iter().map(|(_, nodes)| nodes).collect()
}

#[tokio::test]
async fn a_range_with_three_replicas_is_split_on_all_nodes_under_writes() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    fill(&cluster, "a", 60).await;
    let since = Since::Seq(cluster.db(2).update_seq().await.unwrap());
    let request = JobRequest { db: "db".to_owned(), ..JobRequest::default() };
    let made = cluster.nodes[1].coordinator.reshard(&request).await.unwrap();
    assert!(made.len() == 3 && made.iter().all(|job| job.made.is_ok()), "{made:?}");
    fill(&cluster, "b", 60).await;
    eventually(|| async {
        let jobs = cluster.nodes[0].coordinator.reshard_jobs().await;
        jobs.len() == 3 && jobs.iter().all(|job| job.state == JobState::Completed)
    })
    .await;
    eventually(|| async { (0..3).all(|at| cluster.db(at).map().q() == 2) }).await;
    fill(&cluster, "c", 60).await;
    for prefix in ["a", "b", "c"] {
        has_all(&cluster, prefix, 60).await;
    }
    for at in 0..3 {
        let info = cluster.db(at).info().await.unwrap();
        assert_eq!((info.cluster.q, info.cluster.n, info.doc_count), (2, 3, 180));
    }
    // The token is of another node's replica and of the time before the split.
    let mut feed = cluster.db(2).feeds().changes(ChangesQuery { since, ..ChangesQuery::default() }).await.unwrap();
    let mut rows = 0;
    while let Some(page) = feed.next().await.unwrap() {
        rows += page.len();
    }
    assert_eq!(rows, 120);
}

#[tokio::test]
async fn a_node_that_was_away_divides_its_replicas_when_it_returns() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    fill(&cluster, "a", 30).await;
    cluster.cut(&[2]);
    let request = JobRequest { db: "db".to_owned(), ..JobRequest::default() };
    cluster.nodes[0].coordinator.reshard(&request).await.unwrap();
    eventually(|| async { (0..2).all(|at| cluster.db(at).map().q() == 2) }).await;
    write(&cluster.db(0), "late", "{}", None).await.unwrap();
    assert_eq!(cluster.db(2).map().q(), 1);
    cluster.heal().await;
    eventually(|| async { cluster.db(2).map().q() == 2 }).await;
    eventually(|| async { own_leaves(&cluster.db(2), "late").await.len() == 1 }).await;
    has_all(&cluster, "a", 30).await;
}

#[tokio::test]
async fn a_split_waits_for_a_majority_and_ends_when_it_is_there() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    fill(&cluster, "a", 5).await;
    cluster.cut(&[1, 2]);
    let request = JobRequest { db: "db".to_owned(), node: Some("n1@h".to_owned()), ..JobRequest::default() };
    let coordinator = &cluster.nodes[0].coordinator;
    assert_eq!(coordinator.reshard(&request).await.unwrap().len(), 1);
    let is_ready = |job: &crate::coordinator::replica::jobs::Job| job.split_state == "update_shardmap";
    eventually(|| async { coordinator.reshard_jobs().await.iter().all(is_ready) }).await;
    assert_eq!(cluster.db(0).map().q(), 1);
    cluster.heal().await;
    eventually(|| async { (0..3).all(|at| cluster.db(at).map().q() == 2) }).await;
    eventually(|| async { coordinator.reshard_jobs().await.iter().all(|job| job.state == JobState::Completed) }).await;
    has_all(&cluster, "a", 5).await;
}

#[tokio::test]
async fn a_drain_that_nobody_can_take_over_leaves_the_replicas_and_a_later_node_gets_them() {
    let cluster = Cluster::new(4).await;
    cluster.remove(&[3]);
    cluster.create(0, 2, 3).await.unwrap();
    fill_from(&cluster, 3, "a", 20).await;
    let coordinator = &cluster.nodes[0].coordinator;
    let drain = RebalanceRequest { drain: ["n3@h".to_owned()].into(), ..RebalanceRequest::default() };
    assert!(coordinator.plan_rebalance(&drain).await.is_empty());
    let edit = MapEdit {
        version: cluster.db(0).map_version().0,
        replicas: cluster
            .db(0)
            .shards()
            .into_iter()
            .map(|(range, _)| (range, nodes(&["n1@h", "n2@h", "n4@h"])))
            .collect(),
        moves: None,
    };
    let refused = coordinator.edit_map(&cluster.db(0), &edit).await;
    assert_eq!(refused, Err(MapError::Refused("n4@h is no member of the cluster".to_owned())));
    cluster.bring_back(&[3]).await;
    cluster.cut(&[3]);
    assert!(coordinator.plan_rebalance(&drain).await.is_empty(), "the new one is down");
    let refused = coordinator.edit_map(&cluster.db(0), &edit).await;
    assert_eq!(refused, Err(MapError::Refused("n4@h is down and cannot be given a replica".to_owned())));
    cluster.heal().await;
    coordinator.rebalance(drain.clone());
    let own = || async { coordinator.rebalances().await };
    assert!(own().await.iter().all(|running| running.node == "n1@h" && running.drain == drain.drain));
    eventually(|| async { own().await.is_empty() && coordinator.plan_rebalance(&drain).await.is_empty() }).await;
    still(&cluster).await;
    assert!(holders(&cluster, 1).iter().all(|held| held.len() == 3 && !held.contains(&"n3@h".to_owned())));
    has_all(&cluster, "a", 20).await;
}

#[tokio::test]
async fn a_rebalance_is_shown_and_ended_on_any_node() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 1).await.unwrap();
    // What the replicas are to be moved off is not reached, so that the request does not end by itself.
    let holder = (0..3).find(|at| holders(&cluster, 0)[0][0] == cluster.network.names[*at]).unwrap();
    let asked = (holder + 1) % 3;
    cluster.cut(&[holder]);
    let drain = RebalanceRequest { drain: [cluster.network.names[holder].clone()].into(), ..Default::default() };
    cluster.nodes[asked].coordinator.rebalance(drain.clone());
    let other = &cluster.nodes[(holder + 2) % 3].coordinator;
    eventually(|| async { other.rebalances().await.iter().any(|running| running.begun == 1) }).await;
    assert_eq!(other.rebalances().await[0].drain, drain.drain);
    let ended = other.end_rebalances().await;
    assert_eq!(ended.iter().map(|ended| ended.node.as_str()).collect::<Vec<_>>(), [&cluster.network.names[asked]]);
    assert!(cluster.nodes[asked].coordinator.rebalances().await.is_empty());
    // What began goes on.
    eventually(|| async { other.moves_under_way().len() == 1 }).await;
}

/// It purged alone, the replica that counts never heard of that, and the move never ended.
#[tokio::test]
async fn a_replica_that_is_being_filled_purges_nothing_by_itself() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 1).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", None).await.unwrap().rev;
    let holder = (0..3).find(|at| holders(&cluster, 0)[0][0] == cluster.network.names[*at]).unwrap();
    cluster.cut(&[holder]);
    let drain = RebalanceRequest { drain: [cluster.network.names[holder].clone()].into(), ..Default::default() };
    let others = [(holder + 1) % 3, (holder + 2) % 3];
    cluster.nodes[others[0]].coordinator.rebalance(drain);
    for at in others {
        eventually(|| async { cluster.nodes[at].coordinator.moves_under_way().len() == 1 }).await;
        let refused = cluster.db(at).maintenance().purge(vec![(id("a"), vec![rev.clone()])]).await;
        assert!(refused.is_err(), "{refused:?}");
    }
    cluster.heal().await;
    eventually(|| async { cluster.nodes[others[0]].coordinator.rebalances().await.is_empty() }).await;
    still(&cluster).await;
    assert!(cluster.db(others[0]).documents().fetch(&id("a"), Want::Winner).await.unwrap().is_some());
    let purged = cluster.db(others[0]).maintenance().purge(vec![(id("a"), vec![rev.clone()])]).await.unwrap();
    assert_eq!(purged.0, [(id("a"), vec![rev])]);
}

/// They went on for ever: each brought back what the other one had moved away.
#[tokio::test]
async fn of_two_nodes_that_are_asked_to_empty_each_other_the_one_that_was_asked_later_goes_on() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 8, 1).await.unwrap();
    let drain = |node: &str| RebalanceRequest { drain: [node.to_owned()].into(), ..Default::default() };
    cluster.nodes[1].coordinator.rebalance(drain("n1@h"));
    cluster.nodes[0].coordinator.rebalance(drain("n2@h"));
    eventually(|| async { cluster.nodes[2].coordinator.rebalances().await.is_empty() }).await;
    still(&cluster).await;
    let drained = |name: &str| holders(&cluster, 0).iter().all(|held| !held.contains(&name.to_owned()));
    assert!(drained("n1@h") != drained("n2@h"), "{:?}", holders(&cluster, 0));
    cluster.nodes[1].coordinator.rebalance(drain("n3@h"));
    eventually(|| async { cluster.nodes[2].coordinator.rebalances().await.is_empty() }).await;
    still(&cluster).await;
    assert!(drained("n3@h"), "{:?}", holders(&cluster, 0));
}

#[tokio::test]
async fn no_map_is_changed_without_a_majority() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.cut(&[1, 2]);
    let db = cluster.db(0);
    let less = Move { range: 0, from: Some("n3@h".to_owned()), to: None, leaving: false };
    let refused = cluster.nodes[0].coordinator.begin_move(&db, &less).await;
    assert_eq!(refused, Err(MapError::NoMajority { answered: 1, members: 3 }));
    cluster.heal().await;
    assert_eq!(db.map_version().0, 0);
}

#[tokio::test]
async fn replicas_move_to_other_nodes_while_documents_are_written() {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 4, 2).await.unwrap();
    fill(&cluster, "a", 80).await;
    let drained = "n1@h".to_owned();
    let request = RebalanceRequest { drain: [drained.clone()].into(), ..RebalanceRequest::default() };
    assert!(!cluster.nodes[2].coordinator.plan_rebalance(&request).await.is_empty());
    cluster.nodes[2].coordinator.rebalance(request.clone());
    fill(&cluster, "b", 80).await;
    eventually(|| async { cluster.nodes[2].coordinator.plan_rebalance(&request).await.is_empty() }).await;
    still(&cluster).await;
    fill(&cluster, "c", 40).await;
    for (prefix, count) in [("a", 80), ("b", 80), ("c", 40)] {
        has_all(&cluster, prefix, count).await;
    }
    eventually(|| async { (0..4).all(|at| holders(&cluster, at) == holders(&cluster, 2)) }).await;
    assert!(holders(&cluster, 0).iter().all(|nodes| nodes.len() == 2 && !nodes.contains(&drained)));
    let report = check(&cluster.nodes[0].world.storage).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(cluster.db(0).info().await.unwrap().doc_count, 200);
}

#[tokio::test]
async fn a_system_database_of_one_node_gets_replicas_on_those_that_join() {
    let cluster = Cluster::new(3).await;
    let one = CreateOptions { q: Some(2), n: Some(1), ..CreateOptions::default() };
    cluster.nodes[0].coordinator.create_database("_users", one).await.unwrap();
    let users = |at: usize| cluster.nodes[at].coordinator.database("_users").unwrap();
    write(&users(0), "org.couchdb.user:a", "{}", None).await.unwrap();
    // Each meeting of nodes asks for what is missing; a range gets one replica at a time.
    for _ in 0..4 {
        for node in &cluster.nodes {
            node.coordinator.spread_system_databases().await;
        }
        still(&cluster).await;
    }
    assert!(users(0).shards().iter().all(|(_, nodes)| nodes.len() == 3), "{:?}", users(0).shards());
    assert_eq!(users(1).info().await.unwrap().cluster.n, 3);
    assert_eq!(own_leaves(&users(2), "org.couchdb.user:a").await.len(), 1);
}
