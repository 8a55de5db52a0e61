//! Purges that meet what a replica lacks, and edits that come long after they were sent.

use super::late::{ask_as, decide};
use super::*;
use crate::coordinator::replica::message::{EditRefusal, WireError, decode};
use crate::coordinator::{RepairOperations, WriteOperations};
use crate::shard::AcceptedEdit;

async fn purge(db: &Arc<Database>, name: &str, rev: &Revision) {
    db.maintenance().purge(vec![(id(name), vec![rev.clone()])]).await.unwrap();
}

/// Nothing of the document is left on any node, and stays away.
async fn is_gone(cluster: &Cluster, nodes: usize, name: &str) {
    for _ in 0..2 {
        for at in 0..nodes {
            eventually(|| async { own_leaves(&cluster.db(at), name).await.is_empty() }).await;
        }
        in_sync(cluster).await;
    }
}

async fn in_sync(cluster: &Cluster) {
    for at in 0..cluster.nodes.len() {
        for other in cluster.network.names.iter().filter(|name| **name != cluster.network.names[at]) {
            let _ = cluster.db(at).pulls().pull_from(&other.as_str().into(), true).await;
        }
    }
}

/// It was stored: the purged document was back.
#[tokio::test]
async fn an_edit_that_is_worked_off_after_the_purge_of_its_revision_is_not_stored() {
    type DecidedBy = Result<Vec<Result<AcceptedEdit, EditRefusal>>, WireError>;
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let done = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    purge(&cluster.db(0), "a", &done).await;
    for (number, (from, at)) in [(0, 1), (1, 2), (2, 0)].into_iter().enumerate() {
        // Of a call that its node has given up.
        let answer = ask_as(&cluster, (from, at), 0, 900 + number as u64, decide(&["a", "other"])).await;
        let Ok(Ok(decided)) = decode::<DecidedBy>(&answer) else { panic!("no decision: {answer:?}") };
        assert!(matches!(decided[0], Err(EditRefusal::Unavailable(_))), "{:?}", decided[0]);
        assert!(decided[1].is_ok() || number > 0, "{:?}", decided[1]);
    }
    is_gone(&cluster, 3, "a").await;
    // Who writes it again waits for the answer.
    for at in 0..3 {
        let again = write(&cluster.db(at), "a", "{}", Some(3)).await.unwrap();
        assert_eq!((again.rev.clone(), again.replicas), (done.clone(), 3), "by node {at}");
        purge(&cluster.db(at), "a", &done).await;
    }
    is_gone(&cluster, 3, "a").await;
}

/// The replica kept the ancestor that it had, as a leaf, and the others took it from there.
#[tokio::test]
async fn a_purged_leaf_takes_its_ancestors_along_where_only_they_are() {
    for told_at_once in [false, true] {
        let cluster = Cluster::new(3).await;
        cluster.create(0, 1, 3).await.unwrap();
        let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
        let kept = write(&cluster.db(0), "kept", "{}", Some(3)).await.unwrap().rev;
        cluster.cut(&[2]);
        let second = write(&cluster.db(0), "a", &format!(r#"{{"_rev":"{first}","v":2}}"#), None).await.unwrap().rev;
        write(&cluster.db(0), "kept", &format!(r#"{{"_rev":"{kept}","v":2}}"#), None).await.unwrap();
        purge(&cluster.db(0), "a", &second).await;
        if told_at_once {
            // The replica purges what it does not have, and has that on record.
            replica(&cluster, 2).await.purge(vec![(id("a"), vec![second.clone()])]).await.unwrap();
        }
        assert_eq!(own_leaves(&cluster.db(2), "a").await, [first.to_string()]);
        cluster.heal().await;
        is_gone(&cluster, 3, "a").await;
        assert_eq!(own_leaves(&cluster.db(2), "kept").await.len(), 1);
        let told = cluster.db(2).maintenance().purge_infos().await.unwrap();
        assert!(told.iter().all(|info| info.revs == [second.clone()]), "{told:?}");
        let again = write(&cluster.db(2), "a", "{}", Some(3)).await.unwrap();
        assert_eq!((again.rev, again.replicas), (first, 3));
        in_sync(&cluster).await;
        for at in 0..3 {
            assert_eq!(own_leaves(&cluster.db(at), "a").await.len(), 1, "node {at}");
        }
    }
}
