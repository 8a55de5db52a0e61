//! The records of a shard: what stands in the values of the keys of `keys.rs`.

use crate::document::rev_tree::RevValue;

/// What the revision tree of a document keeps for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevData {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The number of its body record; 0 when compaction has removed the body.
    pub body: u64,
    /// Stored bytes of body and attachments.
    pub active: u64,
    /// The same before compression.
    pub external: u64,
}

impl RevData {
    /// Whether the body can still be read; a revision without is shown as `missing`.
    pub fn is_available(&self) -> bool {
        self.body != 0
    }
}

impl RevValue for RevData {
    fn is_deleted(&self) -> bool {
        self.deleted
    }
}
