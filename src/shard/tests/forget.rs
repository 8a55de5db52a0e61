//! What a copy forgets, and what it keeps of that.

use super::super::{Basis, Horizon, Proposal, Round, Tombstone, check};
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

async fn forget(world: &World, number: u64, tombstones: Vec<Tombstone>) -> Horizon {
    let proposal = Proposal { round: round(number), tombstones };
    assert!(world.shard.propose(BY, proposal).await.unwrap());
    let done = world.shard.told().await.unwrap().promised;
    world.shard.forget(&done).await.unwrap().horizon
}

async fn is_there(world: &World, id: &str) -> bool {
    world.shard.fetch(vec![(DocId::new(id), Want::Tree)]).await.unwrap()[0].is_some()
}

#[tokio::test]
async fn a_tombstone_is_forgotten_with_its_history_and_stays_so() {
    let world = World::new().await;
    world.put("stays", None, "{}").await.unwrap();
    let before = world.shard.state().await.unwrap();
    let tombstone = buried(&world, "a").await;
    let horizon = forget(&world, 1, vec![tombstone]).await;
    let world = world.reopen().await;
    let state = world.shard.state().await.unwrap();
    assert!(!is_there(&world, "a").await);
    assert_eq!((state.total, state.rounds, state.shadows), (before.total, 1, 1), "nothing is counted of it");
    assert_eq!(world.shard.told().await.unwrap().done, horizon);
    let blobs = world.storage.blobs().clone();
    let checked = world.storage.read(move |view| Ok(check(view, &blobs, SHARD))).await.unwrap();
    assert_eq!(checked.findings, Vec::<String>::new());
}

/// Else the same words would make the revision that is deleted where it is still known.
#[tokio::test]
async fn who_writes_it_again_builds_upon_what_was_forgotten_until_all_have_forgotten_it() {
    let world = World::new().await;
    let (one, other) = (buried(&world, "a").await, buried(&world, "b").await);
    let horizon = forget(&world, 1, vec![one, other]).await;
    assert_eq!(world.delete("a", None).await, Err(EditError::Conflict));
    assert_eq!(world.put("a", None, "{}").await.unwrap().pos, 3);
    let others = || vec!["n2@h".to_owned(), "n3@h".to_owned()];
    world.shard.note_taken("n2@h", &horizon, others()).await.unwrap();
    world.shard.note_taken("n3@h", &Horizon::default(), others()).await.unwrap();
    assert_eq!(world.shard.state().await.unwrap().shadows, 2, "the third has not forgotten it");
    world.shard.note_taken("n3@h", &horizon, others()).await.unwrap();
    assert_eq!(world.shard.state().await.unwrap().shadows, 0);
    assert_eq!(world.put("b", None, "{}").await.unwrap().pos, 1);
}

#[tokio::test]
async fn only_what_is_known_here_and_only_the_next_round_is_written_down() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    let propose = |number, tombstone: &Tombstone| {
        let proposal = Proposal { round: round(number), tombstones: vec![tombstone.clone()] };
        world.shard.propose(BY, proposal)
    };
    let unknown = (DocId::new("b"), tombstone.1.clone());
    assert!(!propose(1, &unknown).await.unwrap() && !propose(2, &tombstone).await.unwrap());
    assert!(propose(1, &tombstone).await.unwrap());
    // It was not done.
    let elsewhere = Horizon::default().with("n2@h", round(1));
    assert_eq!(world.shard.forget(&elsewhere).await.unwrap().rounds, 0);
    assert!(is_there(&world, "a").await);
}

#[tokio::test]
async fn a_document_that_was_written_again_is_not_forgotten() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    let proposal = Proposal { round: round(1), tombstones: vec![tombstone] };
    assert!(world.shard.propose(BY, proposal).await.unwrap());
    let again = world.put("a", None, r#"{"v":2}"#).await.unwrap();
    let done = world.shard.told().await.unwrap().promised;
    world.shard.forget(&done).await.unwrap();
    assert_eq!(world.winner("a").await.map(|stored| stored.rev), Some(again));
}

#[tokio::test]
async fn what_was_read_before_something_was_forgotten_comes_too_late() {
    let world = World::new().await;
    let tombstone = buried(&world, "a").await;
    let old = merge("a", path(&["1-abc"]), false, "{}");
    let (seen, rounds) = world.shard.purged_and_forgotten().await.unwrap();
    forget(&world, 1, vec![tombstone]).await;
    let seen_now = world.shard.purged_and_forgotten().await.unwrap().0;
    let basis = Basis::Purges { seen: seen_now, rounds, is_early: false };
    assert!(seen < world.shard.purged_and_forgotten().await.unwrap().0, "indexes hear of it");
    let late = world.shard.edit_validated(vec![(old, basis)]).await.unwrap().remove(0);
    assert_eq!(late, Err(EditError::BasisChanged));
}

#[tokio::test]
async fn a_copy_put_back_gives_up_leaves_and_counts_rounds_as_done() {
    let world = World::new().await;
    let live = world.put("a", None, "{}").await.unwrap();
    world.shard.give_up(vec![(DocId::new("a"), live)]).await.unwrap();
    assert!(!is_there(&world, "a").await);
    let done = Horizon::default().with(BY, round(3));
    let forgotten = world.shard.adopt(&done).await.unwrap();
    assert!(forgotten.horizon.covers(&done) && forgotten.rounds == 2);
    assert_eq!(world.shard.state().await.unwrap().shadows, 0);
}

#[tokio::test]
async fn heirs_have_forgotten_what_their_copy_had() {
    let world = World::new().await;
    let horizon = forget_some(&world).await;
    let heirs = [ShardId(30), ShardId(31)];
    let sorter: super::super::Sorter = Arc::new(move |id: &DocId| heirs[usize::from(id.as_str() == "b")]);
    let open = |shard| ShardCopy::open(&world.storage, shard);
    let copies = [open(heirs[0]).await.unwrap(), open(heirs[1]).await.unwrap()];
    assert!(world.shard.hand_over(copies.clone(), sorter, |_| Ok(Ok(()))).await.unwrap());
    for copy in &copies {
        let state = copy.state().await.unwrap();
        assert_eq!((state.rounds, state.shadows), (1, 1));
        assert_eq!(copy.told().await.unwrap().done, horizon);
    }
    let again = copies[1].edit(vec![interactive("b", None, false, "{}")]).await.unwrap().remove(0).unwrap();
    assert_eq!(again.pos, 3);
}

async fn forget_some(world: &World) -> Horizon {
    let (one, other) = (buried(world, "a").await, buried(world, "b").await);
    forget(world, 1, vec![one, other]).await
}
