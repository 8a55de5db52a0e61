//! Stand-ins for types of the layers below until those are delivered.

use crate::document::render::StoredRevision;
use crate::document::rev_tree::{RevTree, RevValue};
use crate::document::revision::Revision;

/// A node's open data directory.
#[derive(Clone, Debug)]
pub struct Storage;

/// What the tree keeps per revision.
#[derive(Clone, Debug)]
pub struct RevData {
    /// Whether it is a tombstone.
    pub deleted: bool,
}

impl RevValue for RevData {
    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

/// A shard's failure.
#[derive(Clone, Debug)]
pub enum ShardError {
    /// The shard copy was dropped.
    Dropped,
}

/// What a read wants of a document.
#[derive(Clone, Debug)]
pub enum Want {
    /// The winning revision with its body, tombstone or not.
    Winner,
    /// One revision with its body.
    Revision(Revision),
    /// All leaves with their bodies, best first.
    Leaves,
    /// Revisions by name.
    Revisions {
        /// The names.
        revs: Vec<Revision>,
        /// Answer the leaves below each instead.
        latest: bool,
    },
    /// The revision tree only.
    Tree,
}

/// What a read found of a known document.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// The whole revision tree.
    pub tree: RevTree<RevData>,
    /// Sequence of the document's last change within this shard.
    pub local_seq: u64,
    /// The wanted revisions in the wanted order; `None` where the body is not there (unknown, or known by name only).
    pub found: Vec<(Revision, Option<StoredRevision>)>,
}
