//! Table of answers to calls of other nodes that must not be done twice: a call that is sent again because its first
//! answer was lost gets that answer, or waits for it.
//!
//! In memory and bounded: after a restart, or many calls later, a repeated call is a new one. The call says that it is
//! repeated, so that a primary does not report a conflict of an edit with itself (`primary::resolve_in_doubt`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::limits;
use crate::world::buggify::{sometimes, weigh};

/// A call: who sent it, and its number there.
type CallId = (Arc<str>, u64);

/// See the module head.
#[derive(Default)]
pub(in crate::coordinator) struct Answered(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    answers: BTreeMap<CallId, Arc<OnceCell<Bytes>>>,
    /// Oldest first.
    order: VecDeque<CallId>,
    /// What was counted of the answers, and of them all.
    sizes: BTreeMap<CallId, usize>,
    bytes: usize,
}

impl Kept {
    fn drop_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        self.answers.remove(&oldest);
        self.bytes -= self.sizes.remove(&oldest).unwrap_or(0);
    }

    /// Counts an answer that is there now: others go for it.
    fn count(&mut self, call: CallId, bytes: usize) {
        if !self.answers.contains_key(&call) || self.sizes.contains_key(&call) {
            return;
        }
        self.sizes.insert(call, bytes);
        self.bytes += bytes;
        while self.bytes > limits::ANSWERS_KEPT_BYTES && self.order.len() > 1 {
            self.drop_oldest();
        }
        let several = if self.order.len() > 1 { self.bytes } else { 0 };
        weigh("memory of answers that are kept for calls", several, limits::ANSWERS_KEPT_BYTES);
    }
}

impl Answered {
    /// The answer to a call, which is done when it comes for the first time.
    pub async fn once(&self, from: &str, id: u64, answer: impl Future<Output = Bytes>) -> Bytes {
        let call: CallId = (from.into(), id);
        let answer = self.cell(call.clone()).get_or_init(|| answer).await.clone();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count(call, answer.len());
        answer
    }

    fn cell(&self, call: CallId) -> Arc<OnceCell<Bytes>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = kept.answers.get(&call) {
            sometimes("cluster: a call was answered a second time");
            return Arc::clone(cell);
        }
        if kept.order.len() >= limits::ANSWERS_KEPT {
            kept.drop_oldest();
        }
        kept.order.push_back(call.clone());
        Arc::clone(kept.answers.entry(call).or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_repeated_call_is_done_once_and_old_answers_go() {
        let (answered, done) = (Answered::default(), AtomicU32::new(0));
        let ask = |from: &'static str, id: u64| {
            answered.once(from, id, async { Bytes::from(done.fetch_add(1, Ordering::Relaxed).to_string()) })
        };
        assert_eq!((ask("a", 1).await, ask("b", 1).await, ask("a", 1).await), ("0".into(), "1".into(), "0".into()));
        for id in 2..=limits::ANSWERS_KEPT as u64 + 1 {
            ask("a", id).await;
        }
        let before = done.load(Ordering::Relaxed);
        ask("a", 1).await;
        assert_eq!(done.load(Ordering::Relaxed), before + 1, "the oldest is forgotten");
    }

    #[tokio::test]
    async fn large_answers_are_kept_as_far_as_they_have_a_number_of_bytes() {
        let (answered, done) = (Answered::default(), AtomicU32::new(0));
        let large = Bytes::from(vec![0; limits::ANSWERS_KEPT_BYTES / 3]);
        let ask = |id: u64| {
            answered.once("a", id, async {
                done.fetch_add(1, Ordering::Relaxed);
                large.clone()
            })
        };
        for id in [1, 2, 3, 4, 4, 3, 2, 1] {
            ask(id).await;
        }
        assert_eq!(done.load(Ordering::Relaxed), 5, "the first one was forgotten");
    }

    #[tokio::test]
    async fn a_call_that_comes_again_while_it_is_done_waits_for_it() {
        let (answered, go) = (Answered::default(), tokio::sync::Notify::new());
        let first = answered.once("a", 1, async {
            go.notified().await;
            Bytes::from_static(b"done")
        });
        let second = async {
            go.notify_one();
            answered.once("a", 1, async { Bytes::from_static(b"twice") }).await
        };
        assert_eq!(tokio::join!(first, second), (Bytes::from_static(b"done"), Bytes::from_static(b"done")));
    }
}
