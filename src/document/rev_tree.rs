//! The revision tree of a document: union on merge, a pure winner, stemming, purging.

use crate::document::revision::{RevHash, Revision};
use crate::wire::codec::{CodecError, Reader};

/// A revision with its ancestors as far as they are known: `start` is the generation of the first of `ids`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevPath {
    /// Generation of the newest revision.
    pub start: u64,
    /// Hashes, newest first; at most `start + 1` of them, never empty in a merge.
    pub ids: Vec<RevHash>,
}

/// What a tree keeps for a revision whose content it has.
pub trait RevValue: Clone {
    /// True when the revision is a tombstone.
    fn is_deleted(&self) -> bool;
}

/// A revision tree. Every revision is known with its value or by name only; every leaf has a value.
#[derive(Clone, PartialEq, Debug)]
pub struct RevTree<T> {
    nodes: Vec<Node<T>>,
}

#[derive(Clone, PartialEq, Debug)]
struct Node<T> {
    rev: Revision,
    value: Option<T>,
}

/// What a merge did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merged {
    /// The revision extends a former leaf, or is the first of the tree.
    NewLeaf,
    /// The revision is a new leaf beside the former ones: a conflict.
    NewBranch,
    /// The revision was known by name only and has its value now.
    Filled,
    /// The revision was there with its value; the path told ancestors or a connection that were not known.
    Joined,
    /// Nothing changed.
    Known,
}

/// A revision without successors.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf<'a, T> {
    /// The revision.
    pub rev: Revision,
    /// What the tree keeps for it.
    pub value: &'a T,
}

/// Which of some revisions a tree does not know.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Missing {
    /// Those neither available nor known by name, in the order asked.
    pub missing: Vec<Revision>,
    /// Leaves of a lower generation than one of the missing.
    pub possible_ancestors: Vec<Revision>,
}

impl RevPath {
    /// The newest revision. The path must not be empty.
    pub fn head(&self) -> Revision {
        Revision::new(self.start, self.ids[0].clone())
    }

    /// A path of one revision without known ancestors.
    pub fn single(rev: Revision) -> RevPath {
        RevPath { start: rev.pos, ids: vec![rev.hash] }
    }
}

impl<T> Default for RevTree<T> {
    fn default() -> RevTree<T> {
        RevTree { nodes: Vec::new() }
    }
}

impl<T: RevValue> RevTree<T> {
    /// A tree without revisions.
    pub fn new() -> RevTree<T> {
        RevTree::default()
    }

    /// True without revisions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Adds a revision with its history. A value that is already there stays.
    pub fn merge(&mut self, _path: &RevPath, _value: T) -> Merged {
        todo!()
    }

    /// All leaves, best first: live before deleted, then the higher generation, then the higher hash.
    pub fn leaves(&self) -> Vec<Leaf<'_, T>> {
        todo!()
    }

    /// The best leaf: the document's current revision. `None` for an empty tree.
    pub fn winner(&self) -> Option<Leaf<'_, T>> {
        todo!()
    }

    /// `None`: unknown. `Some(None)`: known by name only.
    pub fn get(&self, _rev: &Revision) -> Option<Option<&T>> {
        todo!()
    }

    /// The value of a revision, to be changed. `None` when there is none.
    pub fn value_mut(&mut self, _rev: &Revision) -> Option<&mut T> {
        todo!()
    }

    /// The revision with all its known ancestors. `None` when unknown.
    pub fn path_to(&self, _rev: &Revision) -> Option<RevPath> {
        todo!()
    }

    /// True when the revision is known and has no successor.
    pub fn is_leaf(&self, _rev: &Revision) -> bool {
        todo!()
    }

    /// The leaves that descend from a revision (itself, when it is one), best first; none when it is unknown.
    pub fn leaves_below(&self, _rev: &Revision) -> Vec<Leaf<'_, T>> {
        todo!()
    }

    /// Forgets every revision more than `limit` steps (the leaf being the first) above all leaves.
    /// Answers the values dropped.
    pub fn stem(&mut self, _limit: u64) -> Vec<T> {
        todo!()
    }

    /// Removes those of `revs` that are leaves, with the ancestors that no other leaf has. Answers the leaves removed and
    /// all values dropped.
    pub fn purge(&mut self, _revs: &[Revision]) -> (Vec<Revision>, Vec<T>) {
        todo!()
    }

    /// Which of `revs` the tree does not know.
    pub fn missing(&self, _revs: &[Revision]) -> Missing {
        todo!()
    }

    /// From that revision to its root; empty when it is unknown.
    pub fn revs_info(&self, _rev: &Revision) -> Vec<(Revision, Option<&T>)> {
        todo!()
    }

    /// Every value in the tree, oldest generation first.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|n| n.value.as_ref())
    }

    /// Appends the tree; `value` appends one value.
    pub fn encode(&self, _out: &mut Vec<u8>, _value: impl FnMut(&T, &mut Vec<u8>)) {
        todo!()
    }

    /// Reads what [`RevTree::encode`] wrote; `value` reads one value.
    pub fn decode<'a>(
        _reader: &mut Reader<'a>,
        _value: impl FnMut(&mut Reader<'a>) -> Result<T, CodecError>,
    ) -> Result<RevTree<T>, CodecError> {
        todo!()
    }
}
