//! Budgets of bytes in memory that tasks share: documents that are answered to other nodes, and those that are pulled
//! from them.
//!
//! A task takes the bytes before it reads them and holds them as long as they are in memory. It waits in turn until so
//! many are left, and holds nothing of the same budget then. One that needs more than there is takes all.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// Bytes of one permit: a semaphore counts to four billion of them in one request.
const UNIT_BYTES: usize = 1 << 10;

/// So many bytes.
pub(super) struct Budget {
    units: Arc<Semaphore>,
    all: usize,
}

/// Bytes that were taken; dropping it gives them back.
#[derive(Debug)]
pub(super) struct Held {
    _units: Option<OwnedSemaphorePermit>,
}

impl Budget {
    pub fn new(bytes: usize) -> Budget {
        let all = bytes / UNIT_BYTES;
        Budget { units: Arc::new(Semaphore::new(all)), all }
    }

    /// Waits until so many bytes are left, or all of them for more than there are.
    pub async fn take(&self, bytes: usize) -> Held {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES).min(self.all)).unwrap_or(u32::MAX);
        // A budget is never closed.
        Held { _units: Arc::clone(&self.units).acquire_many_owned(units).await.ok() }
    }
}

impl Held {
    /// The same bytes, held as long as anybody has them.
    pub fn with(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Holding { bytes, _held: self })
    }
}

struct Holding {
    bytes: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Holding {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The budgets of a node.
pub(super) struct Budgets {
    /// Of answers to other nodes with one document that is not large.
    small_answers: Budget,
    /// Of all others.
    answers: Budget,
    /// Of documents that are pulled from other nodes.
    pub pulled: Budget,
    /// Each held while a large document of one of its shards is pulled.
    large: [Mutex<()>; 16],
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets {
            small_answers: Budget::new(limits::ANSWERS_SMALL_BYTES),
            answers: Budget::new(limits::ANSWERS_BYTES),
            pulled: Budget::new(limits::PULLED_BYTES),
            large: Default::default(),
        }
    }
}

impl Budgets {
    /// What is held while a large document of a shard is pulled, before its bytes are taken.
    pub fn large_of(&self, shard: u64) -> &Mutex<()> {
        &self.large[shard as usize % self.large.len()]
    }

    /// Takes the bytes of an answer to another node.
    pub async fn answer(&self, bytes: usize) -> Held {
        match bytes <= limits::FETCH_DOC_BYTES {
            true => self.small_answers.take(bytes).await,
            false => self.answers.take(bytes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn who_needs_more_than_there_is_waits_until_nobody_else_has_any() {
        let budget = Budget::new(8 * UNIT_BYTES);
        let some = budget.take(5 * UNIT_BYTES).await;
        assert!(budget.take(4 * UNIT_BYTES).now_or_never().is_none());
        let text = budget.take(3 * UNIT_BYTES).await.with(Bytes::from_static(b"text"));
        let mut large = Box::pin(budget.take(100 * UNIT_BYTES));
        drop(some);
        let part = text.slice(1..);
        drop(text);
        assert!(large.as_mut().now_or_never().is_none(), "a part of the text is held");
        assert_eq!(part, b"ext"[..]);
        drop(part);
        assert!(large.now_or_never().is_some());
    }
}
