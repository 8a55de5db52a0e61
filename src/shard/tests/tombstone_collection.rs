//! What a replica collects, and what it keeps of the collected tombstones.

use super::super::{Basis, Horizon, Proposal, ProposalOutcome, Round, Tombstone, check};
use super::*;

const BY: &str = "n1@h";

/// A tombstone of a document.
async fn buried(world: &World, id: &str) -> Tombstone {
    let first = world.put(id, None, "{}").await.unwrap();
    (DocId::new(id), world.delete(id, Some(&first)).await.unwrap())
}

fn round(number: u64) -> Round {
    Round { number, id: 7 }
}

async fn propose(world: &World, number: u64, tombstones: Vec<Tombstone>) -> ProposalOutcome {
    world.shard.propose(BY, Proposal::new(round(number), tombstones), u64::MAX).await.unwrap()
}

async fn collect(world: &World, number: u64, tombstones: Vec<Tombstone>) -> Horizon {
    assert_eq!(propose(world, number, tombstones).await, ProposalOutcome::Done);
    let done = world.shard.told().await.unwrap().promised;
    world.shard.collect(&done, &[]).await.unwrap().horizon
}

async fn is_there(world: &World, id: &str) -> bool {
    world.shard.fetch(vec![(DocId::new(id), Want::Tree)]).await.unwrap()[0].is_some()
}

#[tokio::test]
async fn a_tombstone_is_collected_with_its_history_and_stays_so() {
    let world = World::new().await;
    world.put("stays", None, "{}").await.unwrap();
    let before = world.shard.state().await.unwrap();
    let tombstone = buried(&world, "a").await;
    let horizon = collect(&world, 1, vec![tombstone]).await;
    let world = world.reopen().await;
    let state = world.shard.state().await.unwrap();
    assert!(!is_there(&world, "a").await);
    assert_eq!((state.total, state.rounds, state.markers), (before.total, 2, 1), "nothing is counted of it");
    assert_eq!(world.shard.told().await.unwrap().done, horizon);
    let blobs = world.storage.blobs().clone();
    let checked = world.storage.read(move |view| Ok(check(view, &blobs, SHARD))).await.unwrap();
    assert_eq!(checked.findings, Vec::<String>::new());
}

/// Else the same words would make the revision that is deleted where it is still known.
#[tokio::test]
async fn who_writes_it_again_builds_upon_what_was_forgotten_until_all_have_collected_it() {
    let world = World::new().await;
    let (one, other) = (buried(&world, "a").await, buried(&world, "b").await);
    let horizon = collect(&world, 1, vec![one, other]).await;
    assert_eq!(world.delete("a", None).await, Err(EditError::Conflict));
    assert_eq!(world.put("a", None, "{}").await.unwrap().pos, 3);
    let others = || vec!["n2@h".to_owned(), "n3@h".to_owned()];
    world.shard.note_taken("n2@h", &horizon, others()).await.unwrap();
    world.shard.note_taken("n3@h", &Horizon::default(), others()).await.unwrap();
    assert_eq!(world.shard.state().await.unwrap().markers, 2, "the third has not forgotten it");
    world.shard.note_taken("n3@h", &horizon, others()).await.unwrap();
    assert_eq!(world.shard.state().await.unwrap().markers, 0);
    assert_eq!(world.put("b", None, "{}").await.unwrap().pos, 1);
}

#[tokio::test]
async fn only_what_is_known_here_and_only_the_next_round_is_written_down() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    let unknown = (DocId::new("b"), tombstone.1.clone());
    assert_eq!(propose(&world, 1, vec![unknown]).await, ProposalOutcome::Refused);
    assert_eq!(propose(&world, 2, vec![tombstone.clone()]).await, ProposalOutcome::Refused);
    assert_eq!(propose(&world, 1, vec![tombstone]).await, ProposalOutcome::Done);
    // It was not done.
    let elsewhere = Horizon::default().with("n2@h", round(1));
    assert!(world.shard.collect(&elsewhere, &[]).await.unwrap().horizon.is_empty());
    assert!(is_there(&world, "a").await);
}

/// Who reads its feed may not have seen it yet.
#[tokio::test]
async fn a_tombstone_that_came_here_late_is_not_written_down() {
    let world = World::new().await;
    let (old, late) = (buried(&world, "a").await, buried(&world, "b").await);
    let proposal = Proposal::new(round(1), vec![old.clone(), late]);
    assert_eq!(world.shard.propose(BY, proposal, 2).await.unwrap(), ProposalOutcome::NotOldEnough);
    let proposal = Proposal::new(round(1), vec![old]);
    assert_eq!(world.shard.propose(BY, proposal, 2).await.unwrap(), ProposalOutcome::Done);
}

#[tokio::test]
async fn what_is_done_elsewhere_is_collected_once_all_others_were_read_since_all_wrote_it_down() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    propose(&world, 1, vec![tombstone]).await;
    let done = world.shard.told().await.unwrap().promised;
    let others = ["n2@h".to_owned(), "n3@h".to_owned()];
    world.shard.note_read("n2@h", world.shard.confirmed(&Horizon::default()).await.unwrap().0).await.unwrap();
    let (confirmed, _) = world.shard.confirmed(&done).await.unwrap();
    assert_eq!(confirmed.len(), 1, "it is done: all have written it down");
    world.shard.note_read("n3@h", confirmed.clone()).await.unwrap();
    assert!(!world.shard.collect(&done, &others).await.unwrap().horizon.covers(&done), "n2 was read before");
    world.shard.note_read("n2@h", confirmed).await.unwrap();
    assert!(world.shard.collect(&done, &others).await.unwrap().horizon.covers(&done));
    assert!(!is_there(&world, "a").await);
}

/// Nobody tells of the decision again: the replica that decided it may be read for the next time much later.
#[tokio::test]
async fn what_was_decided_before_the_last_other_replica_was_read_is_collected_when_that_replica_was_read() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    propose(&world, 1, vec![tombstone]).await;
    let (done, nothing) = (world.shard.told().await.unwrap().promised, Horizon::default());
    let others = ["n2@h".to_owned(), "n3@h".to_owned()];
    assert!(world.shard.confirm_round(BY, round(1)).await.unwrap());
    let (confirmed, is_news) = world.shard.confirmed(&done).await.unwrap();
    assert!(is_news, "the decision, not that all have written it down");
    world.shard.note_read("n2@h", confirmed).await.unwrap();
    assert!(!world.shard.collect(&done, &others).await.unwrap().horizon.covers(&done), "n3 was not read");
    let world = world.reopen().await;
    let (confirmed, is_news) = world.shard.confirmed(&nothing).await.unwrap();
    assert!(!is_news);
    world.shard.note_read("n3@h", confirmed).await.unwrap();
    assert!(world.shard.collect(&nothing, &others).await.unwrap().horizon.covers(&done));
    assert!(!is_there(&world, "a").await);
}

/// It has the same name: the same words were written and deleted again.
#[tokio::test]
async fn a_tombstone_that_was_stored_since_it_was_written_down_stays() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    propose(&world, 1, vec![tombstone.clone()]).await;
    world.shard.purge(vec![(tombstone.0.clone(), vec![tombstone.1.clone()])]).await.unwrap();
    assert_eq!(buried(&world, "a").await, tombstone);
    let done = world.shard.told().await.unwrap().promised;
    assert!(world.shard.collect(&done, &[]).await.unwrap().horizon.covers(&done));
    assert!(is_there(&world, "a").await);
}

#[tokio::test]
async fn a_large_round_is_collected_in_steps() {
    let world = World::new().await;
    let mut tombstones = Vec::new();
    for n in 0..crate::limits::COLLECTION_STEP + 3 {
        tombstones.push(buried(&world, &format!("d{n}")).await);
    }
    let horizon = collect(&world, 1, tombstones).await;
    let state = world.shard.state().await.unwrap();
    assert_eq!(state.total.documents(), 0);
    assert_eq!(state.markers as usize, crate::limits::COLLECTION_STEP + 3);
    world.shard.note_taken("n2@h", &Horizon::default(), vec!["n2@h".to_owned()]).await.unwrap();
    assert!(world.shard.state().await.unwrap().markers > 0, "each part waits for the whole round");
    world.shard.note_taken("n2@h", &horizon, vec!["n2@h".to_owned()]).await.unwrap();
    assert_eq!(world.shard.state().await.unwrap().markers, 0);
}

#[tokio::test]
async fn a_replica_that_comes_later_takes_over_what_is_written_down() {
    let (world, other) = (World::new().await, World::new().await);
    let tombstone = buried(&world, "a").await;
    propose(&world, 1, vec![tombstone.clone()]).await;
    let open = world.shard.open_proposals().await.unwrap();
    other.shard.take_over(open.clone()).await.unwrap();
    assert_eq!(other.shard.told().await.unwrap().promised, Horizon::default(), "the tombstone is not here");
    assert_eq!(buried(&other, "a").await, tombstone);
    other.shard.take_over(open).await.unwrap();
    let told = other.shard.told().await.unwrap();
    assert_eq!((told.done.is_empty(), told.promised), (true, world.shard.told().await.unwrap().promised));
}

#[tokio::test]
async fn a_replica_that_comes_later_builds_upon_what_was_collected_too() {
    let (world, other) = (World::new().await, World::new().await);
    let horizon = collect_some(&world).await;
    other.put("b", None, r#"{"v":2}"#).await.unwrap();
    let markers = world.shard.markers(None, 1).await.unwrap();
    assert_eq!((markers.len(), markers[0].0.as_str()), (1, "a"));
    let rest = world.shard.markers(Some(DocId::new("a")), 9).await.unwrap();
    assert_eq!((rest.len(), rest[0].0.as_str()), (1, "b"));
    other.shard.keep_markers(&horizon, markers.into_iter().chain(rest).collect()).await.unwrap();
    assert_eq!(other.shard.state().await.unwrap().markers, 1, "the second document is there");
    assert_eq!(other.put("a", None, "{}").await.unwrap().pos, 3);
}

#[tokio::test]
async fn what_is_taken_in_before_all_others_were_met_is_told_apart() {
    let world = World::new().await;
    let others = ["n2@h".to_owned(), "n3@h".to_owned()];
    let apply = async |name: &str| {
        let (seen, rounds) = world.shard.purged_and_collected().await.unwrap();
        let basis = Basis::Purges { seen, rounds, is_early: world.shard.is_early() };
        let edit = merge(name, path(&["1-abc"]), false, "{}");
        world.shard.edit_validated(vec![(edit, basis)]).await.unwrap().remove(0).unwrap();
    };
    apply("a").await;
    world.shard.note_early();
    world.put("b", None, "{}").await.unwrap();
    apply("c").await;
    world.put("d", None, "{}").await.unwrap();
    world.shard.meet("n2@h", &others).await.unwrap();
    apply("e").await;
    let taken = world.shard.applied_early().await.unwrap();
    let early: Vec<u64> = (1..=5).filter(|body| taken.has(*body, 0)).collect();
    assert_eq!(early, [3, 5]);
    world.shard.meet("n3@h", &others).await.unwrap();
    assert!(world.shard.applied_early().await.unwrap().is_empty() && !world.shard.is_early());
}

#[tokio::test]
async fn a_document_that_was_written_again_is_not_collected() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    assert_eq!(propose(&world, 1, vec![tombstone]).await, ProposalOutcome::Done);
    let again = world.put("a", None, r#"{"v":2}"#).await.unwrap();
    let done = world.shard.told().await.unwrap().promised;
    world.shard.collect(&done, &[]).await.unwrap();
    assert_eq!(world.winner("a").await.map(|stored| stored.rev), Some(again));
}

#[tokio::test]
async fn what_was_read_before_something_was_collected_comes_too_late() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    let old = merge("a", path(&["1-abc"]), false, "{}");
    let (seen, rounds) = world.shard.purged_and_collected().await.unwrap();
    collect(&world, 1, vec![tombstone]).await;
    let seen_now = world.shard.purged_and_collected().await.unwrap().0;
    let basis = Basis::Purges { seen: seen_now, rounds, is_early: false };
    assert!(seen < world.shard.purged_and_collected().await.unwrap().0, "indexes hear of it");
    let late = world.shard.edit_validated(vec![(old, basis)]).await.unwrap().remove(0);
    assert_eq!(late, Err(EditError::BasisChanged));
}

#[tokio::test]
async fn a_restored_replica_gives_up_leaves_and_counts_rounds_as_done() {
    let world = World::new().await;
    let live = world.put("a", None, "{}").await.unwrap();
    world.shard.drop_leaves(vec![(DocId::new("a"), live)]).await.unwrap();
    assert!(!is_there(&world, "a").await);
    let done = Horizon::default().with(BY, round(3));
    let collected = world.shard.adopt(&done).await.unwrap();
    assert!(collected.horizon.covers(&done) && collected.rounds == 2);
    assert_eq!(world.shard.state().await.unwrap().markers, 0);
}

#[tokio::test]
async fn child_shards_have_collected_what_their_replica_had() {
    let world = World::new().await;
    let horizon = collect_some(&world).await;
    let children = [ShardId(30), ShardId(31)];
    let sorter: super::super::Sorter = Arc::new(move |id: &DocId| children[usize::from(id.as_str() == "b")]);
    let open = |shard| ShardReplica::open(&world.storage, shard);
    let replicas = [open(children[0]).await.unwrap(), open(children[1]).await.unwrap()];
    assert!(world.shard.hand_over(replicas.clone(), sorter, |_| Ok(Ok(()))).await.unwrap());
    for replica in &replicas {
        let state = replica.state().await.unwrap();
        assert_eq!((state.rounds, state.markers), (2, 1));
        assert_eq!(replica.told().await.unwrap().done, horizon);
    }
    let again = replicas[1].edit(vec![interactive("b", None, false, "{}")]).await.unwrap().remove(0).unwrap();
    assert_eq!(again.pos, 3);
}

async fn collect_some(world: &World) -> Horizon {
    let (one, other) = (buried(world, "a").await, buried(world, "b").await);
    collect(world, 1, vec![one, other]).await
}
