//! Connections that break and are there again.

use super::*;

/// At both looks it was connected, so what had been compared over the connection before still counted.
#[tokio::test]
async fn a_connection_that_breaks_and_is_back_between_two_looks_counts_as_lost() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.settle().await;
    let context = cluster.nodes[2].coordinator.context();
    let others = context.others();
    let before: Vec<_> = others.iter().map(|other| context.status.in_sync.begin(other)).collect();
    cluster.break_connections(&others[0]);
    eventually(|| async { context.status.in_sync.begin(&others[0]) != before[0] }).await;
    assert_eq!(context.status.in_sync.begin(&others[1]), before[1]);
    assert!(!context.compared(&others[0], before[0]), "a comparison that began before does not count");
    cluster.settle().await;
    assert_eq!(context.rank(&context.node), Some(0));
}
