//! Maintenance mode, entered and left.

use super::*;

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
