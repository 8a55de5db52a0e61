//! Large answers of other servers: their values are made a few at a time.
//!
//! A small JSON text can make a large tree of values, and a server can answer anything. So the values of an answer have
//! a limit, and those of a large one are made and used in turn. A turn lasts while this node computes, never while it
//! waits for a server: so no server can keep others from theirs.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::limits;

/// The turns of a node.
#[derive(Clone, Debug)]
pub struct LargeAnswers(Arc<Semaphore>);

/// Held while the values of a large answer are in memory.
pub type Turn = OwnedSemaphorePermit;

impl Default for LargeAnswers {
    fn default() -> LargeAnswers {
        LargeAnswers(Arc::new(Semaphore::new(limits::REPLICATION_LARGE_ANSWERS)))
    }
}

impl LargeAnswers {
    /// Waits for a turn.
    pub async fn turn(&self) -> Turn {
        // Invariant: the semaphore is never closed.
        Arc::clone(&self.0).acquire_owned().await.expect("an open semaphore")
    }
}
