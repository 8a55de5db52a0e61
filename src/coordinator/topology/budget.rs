//! Budgets of bytes in memory that tasks share: documents that are answered to other nodes, and those that are pulled
//! from them.

use tokio::sync::Mutex;

use crate::limits;
use crate::world::memory::{Memory, Share};

/// Bytes in which they are counted.
const UNIT_BYTES: usize = 1 << 10;

/// The budgets of a node.
pub(in crate::coordinator) struct Budgets {
    /// Of answers to other nodes with one document that is not large.
    small_answers: Memory,
    /// Of all others.
    answers: Memory,
    /// Of documents that are pulled from other nodes.
    pub pulled: Memory,
    /// Each held while a large document of one of its shards is pulled.
    large: [Mutex<()>; 16],
}

impl Default for Budgets {
    fn default() -> Budgets {
        let memory = |what, bytes| Memory::between_nodes(what, bytes, UNIT_BYTES);
        Budgets {
            small_answers: memory("memory of small answers to nodes", limits::ANSWERS_SMALL_BYTES),
            answers: memory("memory of answers to nodes", limits::ANSWERS_BYTES),
            pulled: memory("memory of pulled documents", limits::PULLED_BYTES),
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
    pub async fn answer(&self, bytes: usize) -> Share {
        match bytes <= limits::FETCH_DOC_BYTES {
            true => self.small_answers.take(bytes).await,
            false => self.answers.take(bytes).await,
        }
    }
}
