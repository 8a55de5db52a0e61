//! The revision tree of a document: union on merge, a pure winner, stemming, purging.
//!
//! A tree is a set of revisions and of parent links, each revision with a value (its content is here) or by name only.
//! Merging is the union of both sets, so that the order in which edits and replicated histories arrive does not matter.
//! A history that does not meet the tree becomes a second root; a later history that closes the gap joins the two.
//! Parents are exactly one generation older; a name that claims two parents (only made-up hashes can) keeps both links.
//! Every leaf has a value. All walks are loops over nodes sorted by revision, never recursion.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::codec::{CodecError, Reader, put_bytes, put_varint};
use crate::revision::{RevHash, Revision};

/// A revision with its ancestors as far as they are known: `start` is the generation of the first of `ids`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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

/// A value that is written in bytes, so that its trees can be sent: as [`RevTree::encode`] writes them.
pub trait EncodedValue: RevValue {
    /// Appends the value.
    fn append(&self, out: &mut Vec<u8>);

    /// Reads what [`EncodedValue::append`] wrote.
    ///
    /// # Errors
    /// What is wrong with the bytes.
    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError>;
}

impl<T: EncodedValue> Serialize for RevTree<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut out = Vec::new();
        self.encode(&mut out, T::append);
        to.serialize_bytes(&out)
    }
}

impl<'de, T: EncodedValue> Deserialize<'de> for RevTree<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = Bytes::deserialize(from)?;
        RevTree::decode(&mut Reader::new(&bytes), T::read).map_err(D::Error::custom)
    }
}

/// A revision tree. Every revision is known with its value or by name only; every leaf has a value.
#[derive(Clone, PartialEq, Debug)]
pub struct RevTree<T> {
    /// Sorted by revision, so that parents stand before children.
    nodes: Vec<Node<T>>,
}

#[derive(Clone, PartialEq, Debug)]
struct Node<T> {
    rev: Revision,
    /// The parent; of several, the one with the highest hash.
    parent: Option<u32>,
    /// Further parents, ascending.
    others: Vec<u32>,
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
    /// Leaves of a lower generation than one of the missing, worst first.
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

impl<T> Node<T> {
    fn new(rev: Revision, value: Option<T>) -> Node<T> {
        Node { rev, parent: None, others: Vec::new(), value }
    }

    fn parents(&self) -> impl Iterator<Item = usize> {
        self.others.iter().chain(&self.parent).map(|at| *at as usize)
    }

    fn parent(&self) -> Option<usize> {
        self.parent.map(|at| at as usize)
    }

    /// Links to a parent, whatever the order. True when the link is new.
    fn link(&mut self, parent: usize) -> bool {
        // Invariant: a tree of four billion revisions does not fit a document's record.
        let parent = u32::try_from(parent).expect("fewer than 2^32 nodes");
        if self.parent == Some(parent) || self.others.contains(&parent) {
            return false;
        }
        self.others.extend(self.parent.replace(parent));
        true
    }

    /// Renames the parents after the nodes moved, and puts the highest first. `None`: the parent is gone.
    fn relink(&mut self, moved: &[Option<u32>]) {
        let mut parents: Vec<u32> = self.parents().filter_map(|at| moved[at]).collect();
        parents.sort_unstable();
        self.parent = parents.pop();
        self.others = parents;
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

    /// Adds a revision with its history. A value that is already there stays. The path must not be empty nor reach
    /// below generation 0.
    pub fn merge(&mut self, path: &RevPath, value: T) -> Merged {
        assert!(!path.ids.is_empty() && path.ids.len() as u64 - 1 <= path.start, "a path from generation 0 up at most");
        let before = self.nodes.len();
        let found: Vec<Option<usize>> = revisions(path).map(|(pos, hash)| self.find(pos, hash)).collect();
        let meets = found.iter().flatten().next().copied();
        let meets_leaf = meets.is_some_and(|at| found[0].is_none() && !self.has_child(at));
        let mut changed = false;
        let mut child: Option<usize> = None;
        for (at, (pos, hash)) in found.iter().zip(revisions(path)) {
            let at = at.unwrap_or_else(|| {
                self.nodes.push(Node::new(Revision::new(pos, hash.clone()), None));
                changed = true;
                self.nodes.len() - 1
            });
            if let Some(child) = child {
                changed |= self.nodes[child].link(at);
            }
            child = Some(at);
        }
        // A head that was not known is the first node that was added.
        let head = &mut self.nodes[found[0].unwrap_or(before)];
        let filled = head.value.is_none();
        if filled {
            head.value = Some(value);
        }
        if changed {
            self.sort();
        }
        match found[0] {
            None if before == 0 || meets_leaf => Merged::NewLeaf,
            None => Merged::NewBranch,
            Some(_) if filled => Merged::Filled,
            Some(_) if changed => Merged::Joined,
            Some(_) => Merged::Known,
        }
    }

    /// Adds the histories of the leaves of another tree, and its values of all that is known then.
    pub fn unite(&mut self, other: &RevTree<T>) {
        for leaf in other.leaves() {
            if let Some(path) = other.path_to(&leaf.rev) {
                self.merge(&path, leaf.value.clone());
            }
        }
        for (rev, value) in other.revisions() {
            if let (Some(at), Some(value)) = (self.at(rev), value) {
                self.nodes[at].value.get_or_insert_with(|| value.clone());
            }
        }
    }

    fn find(&self, pos: u64, hash: &RevHash) -> Option<usize> {
        self.nodes.binary_search_by(|n| n.rev.pos.cmp(&pos).then_with(|| n.rev.hash.cmp(hash))).ok()
    }

    fn at(&self, rev: &Revision) -> Option<usize> {
        self.find(rev.pos, &rev.hash)
    }

    /// Children stand behind their parent, one generation on.
    fn has_child(&self, at: usize) -> bool {
        let newest = self.nodes[at].rev.pos.saturating_add(1);
        self.nodes[at + 1..].iter().take_while(|n| n.rev.pos <= newest).any(|n| n.parents().any(|p| p == at))
    }

    /// Puts the nodes in order again, with their links.
    fn sort(&mut self) {
        let is_sorted = self.nodes.windows(2).all(|w| w[0].rev < w[1].rev);
        let mut moved: Vec<Option<u32>> = (0..self.nodes.len() as u32).map(Some).collect();
        if !is_sorted {
            let mut order: Vec<usize> = (0..self.nodes.len()).collect();
            order.sort_by(|a, b| self.nodes[*a].rev.cmp(&self.nodes[*b].rev));
            for (to, from) in order.iter().enumerate() {
                moved[*from] = Some(to as u32);
            }
            self.nodes.sort_by(|a, b| a.rev.cmp(&b.rev));
        } else if self.nodes.iter().all(|n| n.others.is_empty()) {
            return;
        }
        for node in &mut self.nodes {
            node.relink(&moved);
        }
    }

    /// For each node, whether it has no child.
    fn leaf_flags(&self) -> Vec<bool> {
        let mut is_leaf = vec![true; self.nodes.len()];
        for node in &self.nodes {
            for parent in node.parents() {
                is_leaf[parent] = false;
            }
        }
        is_leaf
    }

    /// The chosen leaves, best first.
    fn leaves_where(&self, chosen: impl Fn(usize) -> bool) -> Vec<Leaf<'_, T>> {
        let is_leaf = self.leaf_flags();
        let nodes = self.nodes.iter().enumerate().rev().filter(|(at, _)| is_leaf[*at] && chosen(*at));
        let mut leaves: Vec<Leaf<'_, T>> =
            nodes.filter_map(|(_, n)| n.value.as_ref().map(|value| Leaf { rev: n.rev.clone(), value })).collect();
        // Stable: within live and deleted ones the order of revisions stays.
        leaves.sort_by_key(|leaf| leaf.value.is_deleted());
        leaves
    }

    /// All leaves, best first: live before deleted, then the higher generation, then the higher hash.
    pub fn leaves(&self) -> Vec<Leaf<'_, T>> {
        self.leaves_where(|_| true)
    }

    /// The best leaf: the document's current revision. `None` for an empty tree.
    pub fn winner(&self) -> Option<Leaf<'_, T>> {
        self.leaves().into_iter().next()
    }

    /// `None`: unknown. `Some(None)`: known by name only.
    pub fn get(&self, rev: &Revision) -> Option<Option<&T>> {
        self.at(rev).map(|at| self.nodes[at].value.as_ref())
    }

    /// The value of a revision, to be changed. `None` when there is none.
    pub fn value_mut(&mut self, rev: &Revision) -> Option<&mut T> {
        let at = self.at(rev)?;
        self.nodes[at].value.as_mut()
    }

    /// The revision with all its known ancestors. `None` when unknown.
    pub fn path_to(&self, rev: &Revision) -> Option<RevPath> {
        let from = self.at(rev)?;
        Some(RevPath { start: rev.pos, ids: self.ancestry(from).map(|n| n.rev.hash.clone()).collect() })
    }

    /// A node, its parent, and so on to the root.
    fn ancestry(&self, from: usize) -> impl Iterator<Item = &Node<T>> {
        std::iter::successors(Some(&self.nodes[from]), |n| n.parent().map(|at| &self.nodes[at]))
    }

    /// True when the revision is known and has no successor.
    pub fn is_leaf(&self, rev: &Revision) -> bool {
        self.at(rev).is_some_and(|at| !self.has_child(at))
    }

    /// The leaves that descend from a revision (itself, when it is one), best first; none when it is unknown.
    pub fn leaves_below(&self, rev: &Revision) -> Vec<Leaf<'_, T>> {
        let Some(from) = self.at(rev) else { return Vec::new() };
        let mut below = vec![false; self.nodes.len()];
        below[from] = true;
        for (at, node) in self.nodes.iter().enumerate().skip(from + 1) {
            below[at] = node.parents().any(|parent| below[parent]);
        }
        self.leaves_where(|at| below[at])
    }

    /// Forgets every revision that is `limit` or more steps above all leaves: of each branch, `limit` revisions stay
    /// (at least one). Answers the values dropped.
    pub fn stem(&mut self, limit: u64) -> Vec<T> {
        let limit = limit.max(1);
        let (Some(oldest), Some(newest)) = (self.nodes.first(), self.nodes.last()) else { return Vec::new() };
        if newest.rev.pos - oldest.rev.pos < limit {
            return Vec::new();
        }
        // Steps to the nearest leaf, found from the newest to the oldest.
        let mut steps = vec![u64::MAX; self.nodes.len()];
        for (at, node) in self.nodes.iter().enumerate().rev() {
            let own = if steps[at] == u64::MAX { 0 } else { steps[at] };
            steps[at] = own;
            for parent in node.parents() {
                steps[parent] = steps[parent].min(own + 1);
            }
        }
        self.retain(|at| steps[at] < limit)
    }

    /// Keeps the chosen nodes with the links among them. Answers the values of the others.
    fn retain(&mut self, keep: impl Fn(usize) -> bool) -> Vec<T> {
        let mut moved = Vec::with_capacity(self.nodes.len());
        let mut dropped = Vec::new();
        let mut kept = Vec::with_capacity(self.nodes.len());
        for (at, node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            if keep(at) {
                moved.push(Some(kept.len() as u32));
                kept.push(node);
            } else {
                moved.push(None);
                dropped.extend(node.value);
            }
        }
        self.nodes = kept;
        for node in &mut self.nodes {
            node.relink(&moved);
        }
        dropped
    }

    /// Removes those of `revs` that are leaves, with the ancestors that no other leaf has. Answers the leaves
    /// removed and all values dropped.
    pub fn purge(&mut self, revs: &[Revision]) -> (Vec<Revision>, Vec<T>) {
        let is_leaf = self.leaf_flags();
        let mut keep = is_leaf.clone();
        let mut purged = Vec::new();
        for rev in revs {
            if let Some(at) = self.at(rev).filter(|at| keep[*at]) {
                keep[at] = false;
                purged.push(rev.clone());
            }
        }
        if purged.is_empty() {
            return (purged, Vec::new());
        }
        for (at, node) in self.nodes.iter().enumerate().rev() {
            if keep[at] {
                node.parents().for_each(|parent| keep[parent] = true);
            }
        }
        let dropped = self.retain(|at| keep[at]);
        (purged, dropped)
    }

    /// Which of `revs` the tree does not know, in the order in which CouchDB tells them: by generation, then by hash.
    pub fn missing(&self, revs: &[Revision]) -> Missing {
        let mut missing: Vec<Revision> = revs.iter().filter(|rev| self.at(rev).is_none()).cloned().collect();
        missing.sort_by(|a, b| a.pos.cmp(&b.pos).then_with(|| a.hash.as_bytes().cmp(b.hash.as_bytes())));
        let Some(highest) = missing.iter().map(|rev| rev.pos).max() else { return Missing::default() };
        let leaves = self.leaves().into_iter().rev().map(|leaf| leaf.rev);
        Missing { missing, possible_ancestors: leaves.filter(|rev| rev.pos < highest).collect() }
    }

    /// From that revision to its root; empty when it is unknown.
    pub fn revs_info(&self, rev: &Revision) -> Vec<(Revision, Option<&T>)> {
        let Some(from) = self.at(rev) else { return Vec::new() };
        self.ancestry(from).map(|n| (n.rev.clone(), n.value.as_ref())).collect()
    }

    /// Every revision with its value, oldest generation first.
    pub fn revisions(&self) -> impl Iterator<Item = (&Revision, Option<&T>)> {
        self.nodes.iter().map(|n| (&n.rev, n.value.as_ref()))
    }

    /// Every value in the tree, oldest generation first.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().filter_map(|n| n.value.as_ref())
    }

    /// Appends the tree; `value` appends one value. Per node: flags, generation (if it is not one above the node
    /// before), hash, distances to the parents (if it is not just the node before), value.
    pub fn encode(&self, out: &mut Vec<u8>, mut value: impl FnMut(&T, &mut Vec<u8>)) {
        out.push(ENCODING);
        put_varint(out, self.nodes.len() as u64);
        let mut pos = 0u64;
        for (at, node) in self.nodes.iter().enumerate() {
            let next = pos.checked_add(1) == Some(node.rev.pos);
            let chained = node.others.is_empty() && at > 0 && node.parent() == Some(at - 1);
            let flag = |is: bool, bit: u8| if is { bit } else { 0 };
            let text = matches!(node.rev.hash, RevHash::Text(_));
            out.push(
                flag(node.value.is_some(), HAS_VALUE)
                    | flag(next, NEXT_POS)
                    | flag(chained, CHAINED)
                    | flag(node.parent.is_none(), ROOT)
                    | flag(text, TEXT_HASH),
            );
            if !next {
                put_varint(out, node.rev.pos - pos);
            }
            pos = node.rev.pos;
            match &node.rev.hash {
                RevHash::Md5(bytes) => out.extend_from_slice(bytes),
                RevHash::Text(text) => put_bytes(out, text.as_bytes()),
            }
            if !chained && node.parent.is_some() {
                put_varint(out, node.parents().count() as u64);
                node.parents().for_each(|parent| put_varint(out, (at - parent) as u64));
            }
            if let Some(content) = &node.value {
                value(content, out);
            }
        }
    }

    /// Reads what [`RevTree::encode`] wrote; `value` reads one value. Bytes that break a rule of trees are an error.
    pub fn decode<'a>(
        reader: &mut Reader<'a>,
        mut value: impl FnMut(&mut Reader<'a>) -> Result<T, CodecError>,
    ) -> Result<RevTree<T>, CodecError> {
        reader.version(ENCODING)?;
        let count = reader.varint_usize()?;
        // A node takes two bytes at least: a wrong count cannot make us reserve more than the record is long.
        let mut nodes: Vec<Node<T>> = Vec::with_capacity(count.min(reader.rest().len() / 2));
        let mut pos = 0u64;
        for at in 0..count {
            let flags = reader.u8()?;
            let step = if flags & NEXT_POS != 0 { 1 } else { reader.varint()? };
            pos = pos.checked_add(step).ok_or(CodecError::Overflow)?;
            let hash = match flags & TEXT_HASH {
                0 => RevHash::Md5(reader.array()?),
                _ => RevHash::Text(reader.str()?.into()),
            };
            let mut node = Node::new(Revision::new(pos, hash), None);
            if flags & CHAINED != 0 {
                node.parent = Some(at.checked_sub(1).ok_or(BAD_PARENT)? as u32);
            } else if flags & ROOT == 0 {
                for _ in 0..reader.varint_usize()? {
                    let parent = at.checked_sub(reader.varint_usize()?).filter(|p| *p < at).ok_or(BAD_PARENT)?;
                    node.link(parent);
                }
            }
            if flags & HAS_VALUE != 0 {
                node.value = Some(value(reader)?);
            }
            let in_order = nodes.last().is_none_or(|last| last.rev < node.rev);
            let linked = node.parents().all(|p| nodes[p].rev.pos.checked_add(1) == Some(pos));
            if !in_order || !linked {
                return Err(BAD_PARENT);
            }
            nodes.push(node);
        }
        let tree = RevTree { nodes };
        let whole = tree.leaf_flags().iter().zip(&tree.nodes).all(|(leaf, node)| !leaf || node.value.is_some());
        if whole { Ok(tree) } else { Err(CodecError::Invalid("leaf of a revision tree")) }
    }
}

/// The generations and hashes of a path, newest first.
fn revisions(path: &RevPath) -> impl Iterator<Item = (u64, &RevHash)> {
    path.ids.iter().enumerate().map(|(n, hash)| (path.start - n as u64, hash))
}

/// Version of the stored form. Flags of a node are kept stable: they are on disk.
const ENCODING: u8 = 1;
const HAS_VALUE: u8 = 1;
const NEXT_POS: u8 = 2;
const CHAINED: u8 = 4;
const ROOT: u8 = 8;
const TEXT_HASH: u8 = 16;
const BAD_PARENT: CodecError = CodecError::Invalid("link of a revision tree");
