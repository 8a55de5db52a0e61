//! Members that come and go, and voters about maps meanwhile.

use super::*;
use crate::coordinator::replica::node_calls::BallotCall;
use crate::coordinator::topology::ballot::{Ask, Ballot, Vote};
use crate::coordinator::topology::record::{MapRecord, Move};

/// Waits until nodes agree that they are the voters, and may vote; answers the version.
async fn agreed(cluster: &Cluster, nodes: &[usize]) -> u64 {
    let names: BTreeSet<String> = nodes.iter().map(|at| cluster.network.names[*at].clone()).collect();
    for at in nodes {
        let coordinator = &cluster.nodes[*at].coordinator;
        let is_settled = || async { matches!(coordinator.mind_voters().await, Ok(true)) };
        eventually(|| async { coordinator.electorate().names == names && is_settled().await }).await;
    }
    let versions: BTreeSet<u64> = nodes.iter().map(|at| cluster.nodes[*at].coordinator.electorate().voters).collect();
    assert_eq!(versions.len(), 1, "{versions:?}");
    versions.into_iter().next().unwrap()
}

fn less(cluster: &Cluster, at: usize) -> Move {
    let from = cluster.db(at).shards()[0].1[0].clone();
    Move { range: 0, from: Some(from), to: None, leaving: false }
}

#[tokio::test]
async fn the_voters_follow_the_members_where_a_majority_of_them_is_there() {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = agreed(&cluster, &[0, 1, 2, 3]).await;
    cluster.remove(&[3]);
    assert!(agreed(&cluster, &[0, 1, 2]).await > first);
    let coordinator = &cluster.nodes[0].coordinator;
    assert_eq!(coordinator.may_change_members(), Ok(()));
    // The others know nothing of this one's change, and it does not reach a majority.
    let before = coordinator.electorate();
    cluster.keep_from(&[1, 2]);
    cluster.remove(&[1]);
    cluster.cut(&[1, 2, 3]);
    assert_eq!(coordinator.context().member_names().len(), 2);
    assert!(matches!(coordinator.mind_voters().await, Ok(false)));
    assert_eq!(coordinator.electorate(), before, "two members of three never agreed on being all");
    let refused = MapError::NoMajority { answered: 1, members: 3 };
    assert_eq!(coordinator.may_change_members(), Err(refused.clone()));
    assert_eq!(coordinator.begin_move(&cluster.db(0), &less(&cluster, 0)).await, Err(refused));
}

/// Has nodes accept the split of the only range, by way of a proposer that stops before it tells anybody.
async fn accept_split(cluster: &Cluster, voters: u64, nodes: &[usize]) {
    let split = cluster.db(0).map_record().with_split(0).unwrap();
    for value in [None, Some(split)] {
        for at in nodes {
            let vote = cluster.nodes[*at].coordinator.vote(ballot(cluster, voters, value.clone())).await.unwrap();
            assert_eq!(vote, Vote::Yes { accepted: None });
        }
    }
}

/// A question about the first map of the only database, to which those vote whom the first node knows.
fn ballot(cluster: &Cluster, voters: u64, value: Option<MapRecord>) -> BallotCall {
    let (ballot, names) = (Ballot { counter: 1, by: 1 }, cluster.nodes[0].coordinator.electorate().names);
    let ask = Ask { ballot, version: 1, value, before: None, voters, names };
    BallotCall { name: "db".to_owned(), instance: cluster.db(0).instance().to_owned(), ask }
}

#[tokio::test]
async fn a_map_that_the_old_voters_accepted_is_not_lost_to_the_new_ones() {
    let cluster = Cluster::new(5).await;
    cluster.remove(&[3, 4]);
    let voters = agreed(&cluster, &[0, 1, 2]).await;
    cluster.create(0, 1, 3).await.unwrap();
    accept_split(&cluster, voters, &[0, 1]).await;
    let late = ballot(&cluster, voters, None);
    cluster.bring_back(&[3, 4]).await;
    agreed(&cluster, &[0, 1, 2, 3, 4]).await;
    let late = cluster.nodes[0].coordinator.vote(late).await.unwrap();
    assert_eq!(late, Vote::Elsewhere, "those before decide nothing any more");
    cluster.cut(&[0, 1]);
    let refused = cluster.nodes[2].coordinator.begin_move(&cluster.db(2), &less(&cluster, 2)).await;
    assert_eq!(refused, Err(MapError::Refused("the range was split".to_owned())));
    assert_eq!((cluster.db(2).map_version().0, cluster.db(2).map().q()), (1, 2));
}

#[tokio::test]
async fn an_administrator_names_the_voters_where_a_majority_is_lost_for_good() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = agreed(&cluster, &[0, 1, 2]).await;
    cluster.remove(&[1, 2]);
    let coordinator = &cluster.nodes[0].coordinator;
    let gone = Move { from: Some("n2@h".to_owned()), ..less(&cluster, 0) };
    let refused = coordinator.begin_move(&cluster.db(0), &gone).await;
    assert_eq!(refused, Err(MapError::NoMajority { answered: 1, members: 3 }));
    coordinator.force_voters().await.unwrap();
    assert_eq!(agreed(&cluster, &[0]).await, first + 1);
    assert_eq!(coordinator.begin_move(&cluster.db(0), &gone).await, Ok(()));
}

/// It was only logged: what that node had accepted was lost.
#[tokio::test]
async fn voters_are_not_named_while_one_that_is_there_does_not_hand_over_what_it_accepted() {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = agreed(&cluster, &[0, 1, 2, 3]).await;
    let coordinator = &cluster.nodes[0].coordinator;
    cluster.remove(&[2, 3]);
    cluster.network.deaf.lock().unwrap().insert("n2@h".to_owned());
    let refused = coordinator.force_voters().await;
    assert!(matches!(&refused, Err(ShardError::Indeterminate(why)) if why.contains("n2@h")), "{refused:?}");
    assert_eq!(coordinator.voters().0, first);
    cluster.network.deaf.lock().unwrap().clear();
    coordinator.force_voters().await.unwrap();
    assert!(agreed(&cluster, &[0, 1]).await > first);
}

/// Of those who voted for the map one is left, of whom the others need not hear: another map took its place.
#[tokio::test]
async fn a_map_that_only_one_of_those_left_accepted_is_not_lost_to_the_voters_that_an_administrator_names() {
    let cluster = Cluster::new(6).await;
    cluster.create(0, 1, 3).await.unwrap();
    let voters = agreed(&cluster, &[0, 1, 2, 3, 4, 5]).await;
    accept_split(&cluster, voters, &[1, 3, 4, 5]).await;
    cluster.remove(&[3, 4, 5]);
    let coordinator = &cluster.nodes[0].coordinator;
    coordinator.force_voters().await.unwrap();
    agreed(&cluster, &[0, 1, 2]).await;
    cluster.cut(&[1, 3, 4, 5]);
    let refused = coordinator.begin_move(&cluster.db(0), &less(&cluster, 0)).await;
    assert_eq!(refused, Err(MapError::Refused("the range was split".to_owned())));
}

#[tokio::test]
async fn a_map_that_a_node_was_told_of_is_voted_for_before_the_node_has_gone_over_to_it() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let voters = agreed(&cluster, &[0, 1, 2]).await;
    let (db, coordinator) = (cluster.db(0), &cluster.nodes[0].coordinator);
    let told = db.map_record().with_split(0).unwrap();
    coordinator.keep_decided("db", db.instance(), told.clone()).await.unwrap();
    let ballot = Ballot { counter: 7, by: 7 };
    let ask = Ask { ballot, version: 1, value: None, before: None, voters, names: coordinator.electorate().names };
    let call = BallotCall { name: "db".to_owned(), instance: db.instance().to_owned(), ask };
    assert_eq!(coordinator.vote(call).await.unwrap(), Vote::Decided(told));
    assert_eq!(db.map().q(), 1);
}
