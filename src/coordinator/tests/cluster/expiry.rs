//! Documents that end, on several nodes.

use super::super::expiry::ends;
use super::*;
use crate::coordinator::anti_entropy::expiry::expire;

async fn expiring(nodes: usize, q: u32) -> Cluster {
    let cluster = Cluster::new(nodes).await;
    cluster.create(0, q, nodes as u32).await.unwrap();
    cluster.db(0).settings().set_retention(ends()).await.unwrap();
    for at in 0..nodes {
        eventually(|| async { cluster.db(at).known.expires_at().as_deref() == Some("ends") }).await;
    }
    cluster
}

async fn look(cluster: &Cluster) {
    for node in &cluster.nodes {
        expire(&Arc::downgrade(&node.coordinator)).await;
    }
}

#[tokio::test]
async fn what_has_ended_is_gone_on_all_replicas_without_a_conflict() {
    let cluster = expiring(3, 2).await;
    for n in 0..10 {
        write(&cluster.db(n % 3), &format!("d{n}"), r#"{"ends":1}"#, Some(3)).await.unwrap();
    }
    let all = cluster.nodes.iter().map(|node| Arc::downgrade(&node.coordinator)).collect::<Vec<_>>();
    futures_util::future::join_all(all.iter().map(expire)).await;
    for n in 0..10 {
        let name = format!("d{n}");
        for at in 0..3 {
            eventually(|| async { body(&cluster.db(at), &name).await == "-" }).await;
            eventually(|| async {
                let leaves = own_leaves(&cluster.db(at), &name).await;
                leaves.len() == 1 && leaves[0].starts_with("2-")
            })
            .await;
        }
    }
}

#[tokio::test]
async fn without_a_majority_nothing_is_deleted_and_the_reason_is_told() {
    let cluster = expiring(3, 1).await;
    write(&cluster.db(0), "a", r#"{"ends":1}"#, Some(3)).await.unwrap();
    cluster.cut(&[1, 2]);
    look(&cluster).await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await.len(), 1);
        assert!(own_leaves(&cluster.db(at), "a").await[0].starts_with("1-"));
    }
    let outlook = cluster.db(0).expiry().outlook(true).await.unwrap().unwrap();
    let away = |at: usize| ("node_away", Some(cluster.network.names[at].clone()));
    assert_eq!(outlook.held_back_by[&away(1)], ["00000000-ffffffff"]);
    assert_eq!(outlook.held_back_by[&away(2)], ["00000000-ffffffff"]);
    cluster.cut(&[2]);
    eventually(|| async {
        look(&cluster).await;
        body(&cluster.db(0), "a").await == "-" && body(&cluster.db(1), "a").await == "-"
    })
    .await;
    eventually(|| async {
        let outlook = cluster.db(0).expiry().outlook(true).await.unwrap().unwrap();
        (outlook.held_back_by.len(), outlook.next, outlook.counted) == (0, None, Some((0, 0)))
    })
    .await;
    cluster.heal().await;
    eventually(|| async { own_leaves(&cluster.db(2), "a").await[0].starts_with("2-") }).await;
}

/// The node that acts went on deleting until it had heard of the change.
#[tokio::test]
async fn nothing_is_deleted_once_a_majority_knows_that_documents_do_not_end() {
    let cluster = expiring(3, 1).await;
    write(&cluster.db(0), "a", r#"{"ends":1}"#, Some(3)).await.unwrap();
    let settings = |at: usize| cluster.db(at).known.settings();
    let was: Vec<_> = (0..3).map(settings).collect();
    for acting in 0..3 {
        for at in (0..3).filter(|at| *at != acting) {
            cluster.db(at).known.set_settings(Default::default());
        }
        expire(&Arc::downgrade(&cluster.nodes[acting].coordinator)).await;
        assert!(own_leaves(&cluster.db(acting), "a").await[0].starts_with("1-"), "node {acting}");
        let outlook = cluster.db(acting).expiry().outlook(true).await.unwrap().unwrap();
        for at in (0..3).filter(|at| *at != acting) {
            let why = ("node_has_no_member", Some(cluster.network.names[at].clone()));
            assert_eq!(outlook.held_back_by[&why], ["00000000-ffffffff"], "node {at} as {acting} sees it");
        }
        for (at, settings) in was.iter().enumerate() {
            cluster.db(at).known.set_settings(settings.clone().into());
        }
    }
    look(&cluster).await;
    eventually(|| async { body(&cluster.db(0), "a").await == "-" }).await;
}

#[tokio::test]
async fn a_setting_and_a_later_one_reach_a_node_that_was_away() {
    let cluster = expiring(3, 1).await;
    cluster.cut(&[2]);
    cluster.db(0).settings().set_retention(AutoPurge::default()).await.unwrap();
    cluster.heal().await;
    eventually(|| async { cluster.db(2).known.expires_at().is_none() }).await;
}
