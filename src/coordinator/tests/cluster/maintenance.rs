//! Maintenance mode, entered and left.

use super::*;
use crate::coordinator::NotCompared;
use crate::observe::metrics::Counter;

async fn set_maintenance(node: &Node, on: bool) {
    let config = &node.coordinator.context().config;
    config.set(("couchdb", "maintenance_mode"), if on { "true" } else { "false" }, false).await.unwrap();
}

#[tokio::test]
async fn a_node_that_leaves_maintenance_is_not_in_sync_before_it_has_met_all_others_again() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let node = &cluster.nodes[2];
    let (context, others) = (node.coordinator.context(), node.coordinator.context().others());
    let before: Vec<_> = others.iter().map(|other| context.status.in_sync.begin(other)).collect();
    set_maintenance(node, true).await;
    eventually(|| async { !context.own_state().in_sync }).await;
    write(&cluster.db(0), "a", "{}", None).await.unwrap();
    // They are up, and tell it nothing.
    cluster.deafen(&["n1@h", "n2@h"]);
    set_maintenance(node, false).await;
    eventually(|| async { context.rank(&context.node) == Some(1) }).await;
    // What was compared before it left does not count, and one of the others is not enough.
    assert!(others.iter().zip(before).all(|(other, begun)| !context.compared(other, begun)));
    eventually(|| async { context.status.in_sync.begin(&others[0]) == context.status.in_sync.begin(&others[1]) }).await;
    assert!(!context.compared(&others[0], context.status.in_sync.begin(&others[0])));
    assert_eq!(context.rank(&context.node), Some(1));
    cluster.deafen(&[]);
    cluster.settle().await;
    assert_eq!(own_leaves(&cluster.db(2), "a").await.len(), 1);
}

/// What the worker `nodes` of a node failed with last.
fn last_error(coordinator: &Coordinator) -> Option<String> {
    let workers = coordinator.env().metrics().workers().states();
    workers.into_iter().find(|worker| worker.name == "nodes").and_then(|worker| worker.last_error)
}

#[tokio::test]
async fn a_node_that_is_not_in_sync_tells_with_which_nodes_it_has_yet_to_be_compared_and_why() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let (node, coordinator) = (&cluster.nodes[2], &cluster.nodes[2].coordinator);
    assert_eq!(coordinator.own_status().await.not_compared, []);
    set_maintenance(node, true).await;
    eventually(|| async { !coordinator.own_status().await.in_sync }).await;
    cluster.deafen(&["n1@h"]);
    set_maintenance(node, false).await;
    let expected = NotCompared {
        node: "n1@h".to_owned(),
        is_up: true,
        databases: vec!["db".to_owned()],
        last_error: Some("n1@h is down".to_owned()),
    };
    eventually(|| async { coordinator.own_status().await.not_compared == std::slice::from_ref(&expected) }).await;
    assert_eq!(last_error(coordinator).as_deref(), Some("comparison with n1@h: n1@h is down"));
    cluster.deafen(&[]);
    cluster.settle().await;
    assert_eq!(coordinator.own_status().await.not_compared, []);
    cluster.cut(&[0, 1]);
    eventually(|| async { !coordinator.own_status().await.in_sync }).await;
    let told = coordinator.own_status().await.not_compared;
    let nodes: Vec<(&str, bool)> = told.iter().map(|other| (other.node.as_str(), other.is_up)).collect();
    assert_eq!(nodes, [("n1@h", false), ("n2@h", false)], "it lacks the majority");
}

#[tokio::test]
async fn a_database_that_cannot_be_compared_lags_and_counts_as_failed() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let coordinator = &cluster.nodes[2].coordinator;
    let count = |counter: Counter| coordinator.env().metrics().counted(counter);
    *cluster.network.refused.lock().unwrap() = Some("db");
    let before = count(Counter::DatabaseSyncsFailed);
    coordinator.context().pull_soon("db");
    eventually(|| async { count(Counter::DatabaseSyncsFailed) > before + 1 }).await;
    assert_eq!(coordinator.own_status().await.lagging, ["db"]);
    assert_eq!(coordinator.replica_counts().lagging, 1);
    let before = count(Counter::DatabaseSyncs);
    *cluster.network.refused.lock().unwrap() = None;
    eventually(|| async { coordinator.own_status().await.lagging.is_empty() }).await;
    assert!(count(Counter::DatabaseSyncs) > before);
}
