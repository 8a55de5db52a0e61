//! Summaries of a shard's documents in levels over the order of their ids.
//!
//! Level 0 is the documents. A node of level k stands under the id of a document and holds the [`Summary`] of all
//! documents from there up to the next node of its level. Which ids have a node at level k is a matter of their hash
//! alone (`FANOUT_BITS` zero bits for each level), so that no balancing is ever needed: a new document seldom splits a
//! node, a purged one seldom joins two. The first node of a level stands under the empty id. Level k exists once the
//! shard has had 2^(FANOUT_BITS * k) documents; small shards have none.
//!
//! Costs, with 2^5 children per node on average: a change reads and writes one node per level, and one transaction
//! writes each node once; a sum over a range, a rank or a selection reads about 20 rows per level. The hash is salted
//! for each shard, so that no client can choose ids that make one node large.
//!
//! All functions work on one view. The nodes change in the batch of the documents they stand for.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::ShardId;
use super::keys::{self, Kind, PREFIX};
use super::record::{self, Header};
use super::summary::Summary;
use crate::document::id::DocId;
use crate::storage::{Direction, KeyRange, StorageError, View, WriteView};
use crate::wire::codec::Reader;

/// Children of a node: 2 to this, on average. Half a node is read at each level of a query, a node is about 60 bytes.
pub(super) const FANOUT_BITS: u32 = 5;

const VERSION: u8 = 1;

/// What a transaction did to a document.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Change {
    /// Whether there was one before.
    pub was: bool,
    /// Whether there is one now.
    pub is: bool,
    /// What it is now without what it was.
    pub delta: Summary,
}

/// The levels of one shard as its header describes them.
#[derive(Clone, Copy)]
pub(super) struct Levels {
    pub shard: ShardId,
    /// The number of levels above the documents.
    pub height: u8,
    pub salt: u64,
}

impl Levels {
    pub(super) fn of(shard: ShardId, header: &Header) -> Levels {
        Levels { shard, height: header.height, salt: header.salt }
    }

    /// How many levels a shard of so many documents has.
    pub(super) fn height_for(documents: u64) -> u8 {
        (documents.checked_ilog2().unwrap_or(0) / FANOUT_BITS) as u8
    }

    /// The highest level at which an id has a node.
    fn top_of(&self, id: &[u8]) -> u8 {
        if id.is_empty() {
            return u8::MAX;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.salt.to_le_bytes()).update(id);
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        (u64::from_le_bytes(bytes).trailing_zeros() / FANOUT_BITS) as u8
    }

    /// The key of the node of a level that stands under `id`; at level 0 that of the document.
    fn key(&self, level: u8, id: &[u8]) -> Vec<u8> {
        if level == 0 {
            return keys::key(self.shard, Kind::Document, id);
        }
        let mut key = keys::key(self.shard, Kind::Level, &[level]);
        key.extend_from_slice(id);
        key
    }

    /// What stands at a level under ids from `start` up to, not including, `end` (`None`: to the last).
    pub(super) fn range(&self, level: u8, start: &[u8], end: Option<&[u8]>) -> KeyRange {
        let end = match end {
            Some(end) => Some(self.key(level, end)),
            None => KeyRange::prefix(&self.key(level, b"")).end,
        };
        KeyRange { start: self.key(level, start), end }
    }

    /// Calls `visit` with the id and the summary of all that stands in a range of a level, in order.
    pub(super) fn scan(
        &self,
        view: &dyn View,
        (level, start, end): (u8, &[u8], Option<&[u8]>),
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], Summary) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let range = self.range(level, start, end);
        let mut failed = None;
        if range.is_empty() {
            return Ok(());
        }
        view.scan(&range, direction, &mut |key, value| match entry(level, key, value) {
            Ok((id, summary)) => visit(id, summary),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// The first that stands in a range of a level.
    fn first(
        &self,
        view: &dyn View,
        range: (u8, &[u8], Option<&[u8]>),
        direction: Direction,
    ) -> Result<Option<(Vec<u8>, Summary)>, StorageError> {
        let (level, start, end) = range;
        let found = view.first(&self.range(level, start, end), direction)?;
        found.map(|(key, value)| entry(level, &key, &value).map(|(id, sum)| (id.to_vec(), sum))).transpose()
    }

    /// The sum of what stands in a range of a level.
    fn sum(&self, view: &dyn View, range: (u8, &[u8], Option<&[u8]>)) -> Result<Summary, StorageError> {
        let mut sum = Summary::default();
        self.scan(view, range, Direction::Forward, &mut |_, summary| {
            sum = sum.plus(summary);
            ControlFlow::Continue(())
        })?;
        Ok(sum)
    }

    /// The sum over all documents whose ids come before `at`.
    pub(super) fn before(&self, view: &dyn View, at: &[u8]) -> Result<Summary, StorageError> {
        let mut sum = Summary::default();
        let mut from = Vec::new();
        for level in (1..=self.height).rev() {
            let mut last: Option<(Vec<u8>, Summary)> = None;
            self.scan(view, (level, &from, Some(at)), Direction::Forward, &mut |id, summary| {
                // A node counts once another begins before `at`; the last one is taken apart below.
                if let Some((_, whole)) = last.replace((id.to_vec(), summary)) {
                    sum = sum.plus(whole);
                }
                ControlFlow::Continue(())
            })?;
            match last {
                Some((id, _)) => from = id,
                None => return Ok(sum),
            }
        }
        Ok(sum.plus(self.sum(view, (0, &from, Some(at)))?))
    }

    /// The id of the document that has `place` documents before it, counted with `weight` (0 or 1 for a document).
    pub(super) fn select(
        &self,
        view: &dyn View,
        mut place: u64,
        weight: fn(&Summary) -> u64,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let mut from = Vec::new();
        for level in (0..=self.height).rev() {
            let mut found = None;
            self.scan(view, (level, &from, None), Direction::Forward, &mut |id, summary| {
                let own = weight(&summary);
                if place < own {
                    found = Some(id.to_vec());
                    return ControlFlow::Break(());
                }
                place -= own;
                ControlFlow::Continue(())
            })?;
            match found {
                Some(id) => from = id,
                None => return Ok(None),
            }
        }
        Ok(Some(from))
    }

    /// Brings all nodes in step with the documents of `view`, of which `changes` tells what is new.
    pub(super) fn apply(
        &self,
        view: &mut WriteView<'_>,
        changes: &BTreeMap<DocId, Change>,
    ) -> Result<(), StorageError> {
        let moved = changes.iter().filter(|(_, change)| change.was != change.is);
        let moved: Vec<(&DocId, bool, u8)> =
            moved.map(|(id, change)| (id, change.is, self.top_of(id.as_str().as_bytes()))).collect();
        for level in 1..=self.height {
            self.add(view, level, changes)?;
            // From here on the level below is as it will be.
            for (id, is, _) in moved.iter().filter(|(_, _, top)| *top >= level) {
                let id = id.as_str().as_bytes();
                if *is { self.split(view, level, id)? } else { self.join(view, level, id)? }
            }
        }
        Ok(())
    }

    /// Adds the changes to the nodes of a level, reading and writing each once.
    fn add(&self, view: &mut WriteView<'_>, level: u8, changes: &BTreeMap<DocId, Change>) -> Result<(), StorageError> {
        let mut open: Option<Open> = None;
        for (id, change) in changes {
            let id = id.as_str().as_bytes();
            if let Some(node) = &mut open
                && self.reaches(view, level, node, id)?
            {
                node.sum = node.sum.plus(change.delta);
                continue;
            }
            let next = match open.as_mut().and_then(|node| node.found.take()) {
                Some(next) => next,
                None => self.node_of(view, level, id)?,
            };
            if let Some(node) = open.take() {
                self.put(view, level, &node.start, node.sum);
            }
            let (start, sum) = next;
            open = Some(Open { start, sum: sum.plus(change.delta), end: None, found: None });
        }
        if let Some(node) = open {
            self.put(view, level, &node.start, node.sum);
        }
        Ok(())
    }

    /// Whether a node applies `id`, which comes behind its last one. When it does, the end of the node is looked up,
    /// so that documents side by side need no further reads; when it does not, the node that does is remembered.
    fn reaches(&self, view: &dyn View, level: u8, node: &mut Open, id: &[u8]) -> Result<bool, StorageError> {
        if let Some(end) = &node.end {
            return Ok(end.as_deref().is_none_or(|end| id < end));
        }
        let (behind, through) = (after(&node.start), after(id));
        node.found = self.first(view, (level, &behind, Some(&through)), Direction::Reverse)?;
        if node.found.is_some() {
            return Ok(false);
        }
        node.end = Some(self.first(view, (level, &through, None), Direction::Forward)?.map(|(start, _)| start));
        Ok(true)
    }

    /// The node of a level that applies `id`.
    fn node_of(&self, view: &dyn View, level: u8, id: &[u8]) -> Result<(Vec<u8>, Summary), StorageError> {
        let found = self.first(view, (level, b"", Some(&after(id))), Direction::Reverse)?;
        found.ok_or_else(|| StorageError::Corrupt(format!("shard {} has no summaries at level {level}", self.shard.0)))
    }

    /// Makes a node under `id`, taking what it holds from the one before it.
    fn split(&self, view: &mut WriteView<'_>, level: u8, id: &[u8]) -> Result<(), StorageError> {
        let (start, whole) = self.node_of(view, level, id)?;
        if start == id {
            return Ok(());
        }
        let end = self.first(view, (level, &after(id), None), Direction::Forward)?.map(|(end, _)| end);
        let own = self.sum(view, (level - 1, id, end.as_deref()))?;
        self.put(view, level, id, own);
        self.put(view, level, &start, whole.minus(own));
        Ok(())
    }

    /// Removes the node under `id`, giving what it holds to the one before it.
    fn join(&self, view: &mut WriteView<'_>, level: u8, id: &[u8]) -> Result<(), StorageError> {
        let (start, own) = self.node_of(view, level, id)?;
        if start != id || id.is_empty() {
            return Ok(());
        }
        view.delete(self.key(level, id));
        let (start, sum) = self.node_of(view, level, id)?;
        self.put(view, level, &start, sum.plus(own));
        Ok(())
    }

    /// Adds levels until there are as many as so many documents need. Reads one small level for each.
    pub(super) fn raise(&mut self, view: &mut WriteView<'_>, documents: u64) -> Result<(), StorageError> {
        while self.height < Levels::height_for(documents) {
            let mut builder = Builder::new(*self, self.height + 1);
            self.scan(view, (self.height, b"", None), Direction::Forward, &mut |id, summary| {
                builder.push(id, summary);
                ControlFlow::Continue(())
            })?;
            builder.finish().into_iter().for_each(|(key, value)| view.put(key, value));
            self.height += 1;
        }
        Ok(())
    }

    fn put(&self, view: &mut WriteView<'_>, level: u8, id: &[u8], summary: Summary) {
        view.put(self.key(level, id), encode(&summary));
    }
}

/// A node that is being changed.
struct Open {
    start: Vec<u8>,
    sum: Summary,
    /// Where the next one begins, once that is known; inner `None`: there is none.
    end: Option<Option<Vec<u8>>>,
    /// The node of the next document, when a look for the end of this one came upon it.
    found: Option<(Vec<u8>, Summary)>,
}

/// Makes the nodes of a level of what stands at the level below, given in order.
pub(super) struct Builder {
    levels: Levels,
    level: u8,
    open: (Vec<u8>, Summary),
    done: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Builder {
    pub(super) fn new(levels: Levels, level: u8) -> Builder {
        Builder { levels, level, open: (Vec::new(), Summary::default()), done: Vec::new() }
    }

    pub(super) fn push(&mut self, id: &[u8], summary: Summary) {
        if self.levels.top_of(id) >= self.level && !id.is_empty() {
            self.close();
            self.open.0 = id.to_vec();
        }
        self.open.1 = self.open.1.plus(summary);
    }

    fn close(&mut self) {
        let (id, sum) = std::mem::take(&mut self.open);
        self.done.push((self.levels.key(self.level, &id), encode(&sum)));
    }

    /// The nodes that are complete: records to be stored.
    pub(super) fn take(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        std::mem::take(&mut self.done)
    }

    pub(super) fn finish(mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.close();
        self.done
    }
}

/// The least id behind `id`.
pub(super) fn after(id: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(id.len() + 1);
    out.extend_from_slice(id);
    out.push(0);
    out
}

/// The id and the summary of what stands at a level.
pub(super) fn entry<'k>(level: u8, key: &'k [u8], value: &[u8]) -> Result<(&'k [u8], Summary), StorageError> {
    if level == 0 {
        let id = key.get(PREFIX..).ok_or_else(|| StorageError::Corrupt("a document's key is cut short".into()))?;
        return Ok((id, record::summary_of(id, value)?));
    }
    let id = key.get(PREFIX + 1..).ok_or_else(|| StorageError::Corrupt("a summary's key is cut short".into()))?;
    Ok((id, decode(value)?))
}

/// The record of a node, of this order or of that of sequences.
pub(super) fn encode(summary: &Summary) -> Vec<u8> {
    let mut out = Vec::with_capacity(1 + Summary::BYTES);
    out.push(VERSION);
    summary.encode(&mut out);
    out
}

/// Reads [`encode`].
pub(super) fn decode(bytes: &[u8]) -> Result<Summary, StorageError> {
    let read = || {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let summary = Summary::read(&mut reader)?;
        reader.finish()?;
        Ok(summary)
    };
    read().map_err(record::damaged("summary"))
}
