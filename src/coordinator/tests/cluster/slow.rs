//! Nodes that are up and in sync, and slow.

use super::*;

/// A read that asked such a node is overtaken, and those behind it ask others.
#[tokio::test]
async fn reads_ask_a_node_that_keeps_them_waiting_no_more() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    let db = cluster.db(0);
    let readers = db.replicas().readers(&db.layout(), 0).await.unwrap();
    let second = readers[1].node().unwrap().to_string();
    *cluster.network.stalled.lock().unwrap() = Some(second);
    for _ in 0..40 {
        db.documents().fetch(&id("a"), Want::Winner).await.unwrap().unwrap();
    }
    let asked = cluster.network.stalled_reads.load(Ordering::Relaxed);
    // Each of the forty asked it, before. It is tried again after some seconds.
    assert!((1..30).contains(&asked), "{asked} reads waited for it");
}
