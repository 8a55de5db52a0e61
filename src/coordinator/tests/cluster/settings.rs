//! Settings of a database that reach some of the nodes.

use super::*;
use crate::coordinator::WriteOperations;

#[tokio::test]
async fn a_setting_that_only_this_node_has_is_of_unknown_outcome_and_spreads() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    let names = ["n2@h", "n3@h"];
    cluster.network.mute.lock().unwrap().insert(names[0].to_owned());
    cluster.deafen(&names);
    let error = cluster.db(0).settings().set_revs_limit(5).await;
    assert!(matches!(error, Err(SettingError::Undecided { answered: 1, replicas: 3 })), "{error:?}");
    assert_eq!((cluster.db(0).revs_limit(), cluster.db(1).revs_limit()), (5, 1000));
    cluster.network.mute.lock().unwrap().clear();
    cluster.deafen(&[]);
    cluster.cut(&[0]);
    assert_eq!(cluster.db(1).revs_limit(), 1000);
    cluster.heal().await;
    for at in 0..3 {
        eventually(|| async { cluster.db(at).revs_limit() == 5 }).await;
    }
}

#[tokio::test]
async fn how_long_tombstones_are_kept_is_the_same_on_all_nodes() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    cluster.cut(&[2]);
    cluster.db(0).settings().set_retention(kept_for("3_mon")).await.unwrap();
    cluster.db(1).settings().set_revs_limit(7).await.unwrap();
    cluster.heal().await;
    for at in 0..3 {
        eventually(|| async { cluster.db(at).known.auto_purge().as_deref() == Some("3_mon") }).await;
        assert_eq!(cluster.db(at).revs_limit(), 7);
    }
}
