//! Calls between nodes are bounded by bytes, whatever the size of documents.

use super::super::convergence::{catch_up, planted};
use super::*;
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::document::draft::PreparedBody;
use crate::limits;
use crate::shard::{Edit, LocalDocument};

/// A document of about so many bytes, as one replica takes it in from another.
fn large(name: &str, rev: &str, bytes: usize) -> Edit {
    let text = format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
    let body = Arc::new(PreparedBody::from_text(Bytes::from(text)).unwrap());
    Edit { body, ..planted(name, &[rev], false) }
}

async fn plant_all(cluster: &Cluster, at: usize, edits: Vec<Edit>) {
    for edit in edits {
        replica(cluster, at).await.edit(vec![edit]).await.unwrap().pop().unwrap().unwrap();
    }
}

/// Two nodes with one range; the largest answer and body are counted from then on.
async fn two() -> Cluster {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    cluster
}

fn largest(cluster: &Cluster) -> usize {
    cluster.network.largest.load(Ordering::Relaxed) as usize
}

async fn is_same(cluster: &Cluster) -> bool {
    let states = (replica(cluster, 0).await.state().await.unwrap(), replica(cluster, 1).await.state().await.unwrap());
    states.0.total.digest == states.1.total.digest
}

/// 16 of them and more were asked for at once: beyond 64 MB the peer panicked and was asked again for ever.
#[tokio::test]
async fn large_documents_that_a_replica_missed_come_few_at_a_time() {
    let cluster = two().await;
    let bytes = limits::PULL_BYTES * 3 / 4;
    plant_all(&cluster, 0, (0..24).map(|n| large(&format!("d{n}"), "1-a", bytes)).collect()).await;
    catch_up(&cluster, 1, 0, false).await;
    assert!(is_same(&cluster).await);
    assert!(largest(&cluster) < limits::PULL_BYTES + (64 << 10), "{} bytes", largest(&cluster));
}

#[tokio::test]
async fn a_document_that_is_larger_than_what_is_pulled_at_a_time_comes_alone_and_its_leaves_one_by_one() {
    let cluster = two().await;
    let bytes = limits::PULL_BYTES * 3 / 2;
    let leaves = ["1-a", "1-b", "1-c"].map(|rev| large("leaves", rev, bytes));
    plant_all(&cluster, 0, leaves.into_iter().chain([large("d", "1-a", bytes), large("e", "1-a", bytes)]).collect())
        .await;
    catch_up(&cluster, 1, 0, false).await;
    assert!(is_same(&cluster).await);
    assert_eq!(own_leaves(&cluster.db(1), "leaves").await.len(), 3);
    assert!(largest(&cluster) < bytes + (64 << 10), "{} bytes", largest(&cluster));
}

#[tokio::test]
async fn large_documents_come_from_a_node_of_the_version_before_this_one() {
    let cluster = two().await;
    plant_all(&cluster, 0, (0..40).map(|n| large(&format!("d{n}"), "1-a", 10_000)).collect()).await;
    cluster.network.older.store(true, Ordering::Relaxed);
    catch_up(&cluster, 1, 0, false).await;
    assert!(is_same(&cluster).await);
}

/// All of them were one message.
#[tokio::test]
async fn large_local_documents_that_a_replica_missed_come_few_at_a_time() {
    let cluster = two().await;
    let bytes = limits::STEP_BYTES / 3;
    for n in 0..12 {
        let document = LocalDocument { rev: 1, body: format!("{{\"text\":\"{}\"}}", "x".repeat(bytes)).into() };
        replica(&cluster, 0).await.local_set(&id(&format!("_local/{n}")), Some(document), 1, true).await.unwrap();
    }
    catch_up(&cluster, 1, 0, false).await;
    for n in 0..12 {
        assert!(replica(&cluster, 1).await.local_get(&id(&format!("_local/{n}"))).await.unwrap().is_some());
    }
    assert!(largest(&cluster) < limits::STEP_BYTES + bytes + (64 << 10), "{} bytes", largest(&cluster));
}

/// With the terms of their revisions they were twice as large as the request.
#[tokio::test]
async fn a_large_bulk_request_goes_to_other_nodes_in_steps() {
    let cluster = two().await;
    let text = format!("{{\"text\":\"{}\"}}", "x".repeat(limits::EDIT_BYTES_PER_STEP / 4));
    let requests = (0..20).map(|n| super::super::request(&format!("d{n}"), &text)).collect();
    let options = WriteOptions { w: Some(2), ..WriteOptions::default() };
    for done in cluster.db(1).writer().write(requests, options).await.unwrap() {
        assert_eq!(done.unwrap().written, Written::Quorum);
    }
    assert!(is_same(&cluster).await);
    assert!(largest(&cluster) < 3 * limits::EDIT_BYTES_PER_STEP, "{} bytes", largest(&cluster));
}

#[tokio::test]
async fn a_read_of_many_large_documents_ends_where_they_have_the_bytes_that_it_has_room_for() {
    let cluster = two().await;
    let bytes = 100_000;
    plant_all(&cluster, 0, (0..20).map(|n| large(&format!("d{n:02}"), "1-a", bytes)).collect()).await;
    catch_up(&cluster, 1, 0, false).await;
    let wants: Vec<_> = (0..20).map(|n| (id(&format!("d{n:02}")), Want::Winner)).collect();
    for (at, r) in [(0, Some(1)), (1, Some(2))] {
        let (mut left, mut reads) = (wants.as_slice(), 0);
        while !left.is_empty() {
            let found = cluster.db(at).documents().fetch_first(left, r, 5 * bytes).await.unwrap();
            assert!((1..=5).contains(&found.len()), "{}", found.len());
            assert!(found.iter().all(|found| found.as_ref().is_some_and(|found| found.bytes() > bytes)));
            (left, reads) = (&left[found.len()..], reads + 1);
        }
        assert_eq!(reads, 5);
        // One that is larger than that comes all the same.
        assert_eq!(cluster.db(at).documents().fetch_first(&wants, r, 10).await.unwrap().len(), 1);
    }
}

/// The comparison ended there, and began anew a second later.
#[tokio::test]
async fn a_database_that_cannot_be_compared_keeps_no_other_from_it() {
    let cluster = two().await;
    let options = CreateOptions { q: Some(1), n: Some(2), ..CreateOptions::default() };
    cluster.nodes[0].coordinator.create_database("awry", options).await.unwrap();
    let bad = cluster.nodes[0].coordinator.database("awry").unwrap();
    bad.replicas()
        .own_replica(0)
        .await
        .unwrap()
        .unwrap()
        .shard
        .edit(vec![planted("d", &["1-a"], false)])
        .await
        .unwrap();
    plant_all(&cluster, 0, vec![planted("d", &["1-a"], false)]).await;
    *cluster.network.refused.lock().unwrap() = Some("awry");
    let node: Arc<str> = cluster.network.names[0].as_str().into();
    let done = cluster.nodes[1].coordinator.catch_up_by_pages(&node, false, 1).await;
    assert!(done.is_err(), "it is told");
    assert_eq!(own_leaves(&cluster.db(1), "d").await, ["1-a"]);
    *cluster.network.refused.lock().unwrap() = None;
    cluster.nodes[1].coordinator.catch_up_by_pages(&node, false, 1).await.unwrap();
    let bad = cluster.nodes[1].coordinator.database("awry").unwrap();
    assert_eq!(own_leaves(&bad, "d").await, ["1-a"]);
}
