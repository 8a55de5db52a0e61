//! Answers to calls of other nodes that must not be done twice: a call that is sent again, for its first answer was
//! lost, gets that answer, or waits for it.
//!
//! In memory and bounded: after a restart, or many calls later, a repeated call is a new one. The caller says in it
//! that it is repeated, and a judge does not take a conflict with itself for one (`judge::resolve_doubt`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tokio::sync::OnceCell;

use crate::limits;
use crate::world::buggify::sometimes;

/// A call: who sent it, and its number there.
type CallId = (Arc<str>, u64);

/// See the module head.
#[derive(Default)]
pub(super) struct Answered(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    answers: BTreeMap<CallId, Arc<OnceCell<Bytes>>>,
    /// Oldest first.
    order: VecDeque<CallId>,
}

impl Answered {
    /// The answer to a call, which is done when it comes for the first time.
    pub async fn once(&self, from: &str, id: u64, answer: impl Future<Output = Bytes>) -> Bytes {
        let cell = self.cell((from.into(), id));
        cell.get_or_init(|| answer).await.clone()
    }

    fn cell(&self, call: CallId) -> Arc<OnceCell<Bytes>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = kept.answers.get(&call) {
            sometimes("cluster: a call was answered a second time");
            return Arc::clone(cell);
        }
        let oldest = if kept.order.len() < limits::ANSWERS_KEPT { None } else { kept.order.pop_front() };
        if let Some(oldest) = oldest {
            kept.answers.remove(&oldest);
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
