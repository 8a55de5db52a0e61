//! What searches and merges of a node take together: shares of memory, turns, what stays open.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use super::*;
use crate::index::search::open::Bounds;

/// Polls of others after which what does not wait would have ended.
const YIELDS: usize = 200;
const KB: usize = 1 << 10;

impl Fixture {
    /// With other bounds than a node has.
    async fn bounded(bounds: Bounds) -> Fixture {
        let fixture = Fixture::new(Engine::Memory).await;
        let open = Arc::new(OpenIndexes::new(bounds));
        let indexes = Indexes { open, ..Indexes::new(fixture.storage.env()) };
        Fixture { indexes, ..fixture }
    }

    /// Documents of 64 KB each, all of which have the word `apple`; built.
    async fn large(&self, documents: u64) -> SearchIndex {
        for n in 0..documents {
            let words: Vec<String> = (0..8_000).map(|w| format!("{:07x}", (n * 8_000 + w) * 7_919)).collect();
            self.put(&format!("d{n:02}"), &format!("apple {}", words.join(" ")), None).await;
        }
        let index = self.index();
        index.update().await.unwrap();
        index
    }
}

fn all() -> Request {
    Request { query: "apple".to_owned(), limit: 200, ..Request::default() }
}

/// Polls once.
async fn is_done<T>(work: &mut (impl Future<Output = T> + Unpin)) -> bool {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context).is_ready())).await
}

/// Whether something has not ended when others had time.
async fn waits<T>(work: &mut (impl Future<Output = T> + Unpin)) -> bool {
    for _ in 0..YIELDS {
        if is_done(work).await {
            return false;
        }
        tokio::task::yield_now().await;
    }
    true
}

#[tokio::test]
async fn a_search_that_is_too_large_for_a_small_share_takes_a_large_one() {
    let bounds = Bounds { small: 300 * KB, ..Bounds::of(limits::MEMORY_MB) };
    let fixture = Fixture::bounded(bounds).await;
    let index = fixture.large(40).await;
    assert!(index.header().await.unwrap().unwrap().bytes() > limits::SEARCH_READ_WHOLE_BYTES);
    fixture.indexes.open.forget(index.cache_key());
    // While another one is on its turn, it waits.
    let turn = fixture.indexes.open.turn(Share::Large).await;
    let mut asked = Box::pin(index.search(all()));
    assert!(waits(&mut asked).await);
    drop(turn);
    assert_eq!(asked.await.unwrap().unwrap().rows.len(), 40);
}

#[tokio::test]
async fn a_search_that_is_too_large_for_a_large_share_is_refused() {
    let bounds = Bounds { small: 300 * KB, large: 600 * KB, ..Bounds::of(limits::MEMORY_MB) };
    let fixture = Fixture::bounded(bounds).await;
    let index = fixture.large(40).await;
    fixture.indexes.open.forget(index.cache_key());
    let refused = index.search(all()).await.unwrap().unwrap_err();
    let SearchError::TooCostly(reason) = refused else { panic!("{refused:?}") };
    assert_eq!(reason, "The search reads more than 0 MB of a shard's index.");
    let nothing = Request { query: "pear".to_owned(), ..all() };
    assert_eq!(index.search(nothing).await.unwrap().unwrap().total, 0, "one that reads less is answered");
}

#[tokio::test]
async fn one_search_more_than_there_are_turns_waits() {
    let fixture = Fixture::new(Engine::Memory).await;
    fixture.put("a", "apple", None).await;
    let index = fixture.index();
    index.update().await.unwrap();
    let open = Arc::clone(&fixture.indexes.open);
    let mut turns = Vec::new();
    for _ in 0..16 {
        turns.push(open.turn(Share::Small).await);
    }
    let mut asked = Box::pin(found(&index, "apple"));
    assert!(waits(&mut asked).await, "the seventeenth waits");
    turns.pop();
    assert_eq!(asked.await, ["a"]);
}

#[tokio::test]
async fn merges_take_turns_and_searches_do_not_wait_for_them() {
    let fixture = Fixture::new(Engine::Memory).await;
    let index = fixture.index();
    let open = Arc::clone(&fixture.indexes.open);
    let mut turns = Vec::new();
    for _ in 0..limits::SEARCH_MERGES {
        turns.push(open.merge_turn().await);
    }
    for n in 1..limits::SEARCH_MERGE_SEGMENTS {
        fixture.put(&format!("d{n:02}"), "apple", None).await;
        index.update().await.unwrap();
    }
    fixture.put("z", "apple", None).await;
    let mut built = Box::pin(index.update());
    while index.header().await.unwrap().unwrap().segments.len() < limits::SEARCH_MERGE_SEGMENTS {
        assert!(!is_done(&mut built).await);
    }
    assert!(waits(&mut built).await);
    assert_eq!(found(&index, "apple").await.len(), limits::SEARCH_MERGE_SEGMENTS);
    turns.pop();
    built.await.unwrap();
    assert_eq!(index.header().await.unwrap().unwrap().segments.len(), 1);
}

#[test]
fn what_is_open_and_the_turns_follow_the_memory_of_the_node() {
    let of = |memory_mb: u64| (Bounds::of(memory_mb).open >> 20, Bounds::of(memory_mb).at_once);
    assert_eq!(of(160), (128, 16));
    assert_eq!((of(0), of(32)), ((25, 3), (25, 3)));
    assert_eq!((of(1_000), of(u64::MAX).1), ((800, 64), 64));
}

#[tokio::test]
async fn what_was_used_longest_ago_is_given_up() {
    let fixture = Fixture::bounded(Bounds { open: 100 * KB, ..Bounds::of(limits::MEMORY_MB) }).await;
    for n in 0..20 {
        fixture.put(&format!("d{n:02}"), &format!("apple {}", "word ".repeat(500)), None).await;
    }
    let indexes: Vec<SearchIndex> = (0..20).map(|n| fixture.index_of(&definition(&format!("f{n}")))).collect();
    for index in &indexes {
        index.update().await.unwrap();
        assert_eq!(found(index, "apple").await.len(), 20);
    }
    let is_open = |index: &SearchIndex| fixture.indexes.open.is_open(index.cache_key());
    assert!(!is_open(&indexes[0]) && is_open(&indexes[19]));
    assert_eq!(found(&indexes[0], "apple").await.len(), 20);
}
