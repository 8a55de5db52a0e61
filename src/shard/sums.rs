//! Queries of the summaries: sums over ranges of ids, ranks, positions, and parts to compare with another replica.
//!
//! Each answer comes from one view. To find the documents in which two replicas differ: compare
//! [`ShardReplica::summary`] over all ids; where the digests differ, [`ShardReplica::split`] the range on one replica
//! and ask the other for the summary of each part; once a part is small, compare [`ShardReplica::digests`]. With d
//! differences among n documents that takes about d log n parts.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::keys::{self, Kind};
use super::levels::{Levels, after};
use super::list::bounded_scan;
use super::record::{DocHead, Header};
use super::summary::Summary;
use super::{Revision, ShardError, ShardId, ShardReplica};
use crate::document::id::DocId;
use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// A range of ids with the summary of its documents.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdRangeSummary {
    /// Least id.
    pub start: Bound<DocId>,
    /// Greatest id.
    pub end: Bound<DocId>,
    /// The summary of its documents.
    pub summary: Summary,
}

/// What a document adds to a digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentDigest {
    /// The document.
    pub id: DocId,
    /// Its digest, see [`Summary::digest`].
    pub digest: u128,
    /// All leaves, winner first; true = tombstone.
    pub leaves: Vec<(Revision, bool)>,
    /// Sequence of its last change within this shard.
    pub local_seq: u64,
}

/// The ids of a range: from the first one up to, not including, the second.
type Ids = (Vec<u8>, Option<Vec<u8>>);

fn ids_of(start: &Bound<DocId>, end: &Bound<DocId>) -> Ids {
    let at = |id: &DocId| id.as_str().as_bytes().to_vec();
    let start = match start {
        Bound::Included(id) => at(id),
        Bound::Excluded(id) => after(id.as_str().as_bytes()),
        Bound::Unbounded => Vec::new(),
    };
    let end = match end {
        Bound::Included(id) => Some(after(id.as_str().as_bytes())),
        Bound::Excluded(id) => Some(at(id)),
        Bound::Unbounded => None,
    };
    (start, end)
}

/// The levels of a shard as one view shows them.
struct Sums<'v> {
    view: &'v dyn View,
    levels: Levels,
    total: Summary,
}

impl<'v> Sums<'v> {
    fn new(view: &'v dyn View, shard: ShardId) -> Result<Sums<'v>, StorageError> {
        let header = Header::read(view, shard)?;
        Ok(Sums { view, levels: Levels::of(shard, &header), total: header.total })
    }

    /// The sum over all ids before `at`; `None`: over all.
    fn before(&self, at: Option<&[u8]>) -> Result<Summary, StorageError> {
        match at {
            None => Ok(self.total),
            Some(b"") => Ok(Summary::default()),
            Some(at) => self.levels.before(self.view, at),
        }
    }

    fn over(&self, (start, end): &Ids) -> Result<Summary, StorageError> {
        if end.as_ref().is_some_and(|end| end <= start) {
            return Ok(Summary::default());
        }
        Ok(self.before(end.as_deref())?.minus(self.before(Some(start))?))
    }

    fn select(&self, place: u64, weight: fn(&Summary) -> u64) -> Result<Option<DocId>, StorageError> {
        self.levels.select(self.view, place, weight)?.map(|id| doc_id(&id)).transpose()
    }

    fn split(&self, start: Bound<DocId>, end: Bound<DocId>, parts: usize) -> Result<Vec<IdRangeSummary>, StorageError> {
        let ids = ids_of(&start, &end);
        let first = self.before(Some(&ids.0))?;
        let documents = self.over(&ids)?.documents();
        let parts = (parts.min(limits::SUMMARY_PARTS_MAX) as u64).min(documents).max(1);
        let (mut out, mut from, mut sum) = (Vec::new(), start, first);
        for part in 1..parts {
            let place = first.documents().wrapping_add(documents / parts * part + documents % parts * part / parts);
            let Some(cut) = self.select(place, Summary::documents)? else { break };
            let upto = self.before(Some(cut.as_str().as_bytes()))?;
            let end = Bound::Excluded(cut.clone());
            out.push(IdRangeSummary { start: from, end, summary: upto.minus(sum) });
            (from, sum) = (Bound::Included(cut), upto);
        }
        let last = if documents == 0 { sum } else { self.before(ids.1.as_deref())? };
        out.push(IdRangeSummary { start: from, end, summary: last.minus(sum) });
        Ok(out)
    }
}

fn doc_id(bytes: &[u8]) -> Result<DocId, StorageError> {
    let text = std::str::from_utf8(bytes);
    text.map(DocId::new).map_err(|_| StorageError::Corrupt("a document's key does not end in an id".into()))
}

impl ShardReplica {
    /// The summary of the documents with ids in a range. Reads some 40 records per level, of all documents the header
    /// alone.
    pub async fn summary(&self, start: Bound<DocId>, end: Bound<DocId>) -> Result<Summary, ShardError> {
        let ids = ids_of(&start, &end);
        self.read(move |view, shard| Sums::new(view, shard)?.over(&ids)).await
    }

    /// [`ShardReplica::summary`] of several replicas of this node, read in one job.
    pub async fn summaries(
        replicas: Vec<ShardReplica>,
        start: &Bound<DocId>,
        end: &Bound<DocId>,
    ) -> Vec<Result<Summary, ShardError>> {
        let ids = Arc::new(ids_of(start, end));
        let read = |replica: ShardReplica| {
            let ids = Arc::clone(&ids);
            (replica, move |view: &dyn View, shard: ShardId| Sums::new(view, shard)?.over(&ids))
        };
        ShardReplica::read_records_of(replicas.into_iter().map(read).collect(), true).await
    }

    /// How many live documents have ids in the range (for `offset`). Costs as [`ShardReplica::summary`].
    pub async fn count(&self, start: Bound<DocId>, end: Bound<DocId>) -> Result<u64, ShardError> {
        Ok(self.summary(start, end).await?.live)
    }

    /// The live document of a range that has `place` live ones before it in the direction of reading. Costs as
    /// [`ShardReplica::summary`].
    pub async fn select(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        direction: Direction,
        place: u64,
    ) -> Result<Option<DocId>, ShardError> {
        let ids = ids_of(&start, &end);
        self.read(move |view, shard| {
            let sums = Sums::new(view, shard)?;
            let live = sums.over(&ids)?.live;
            if place >= live {
                return Ok(None);
            }
            let place = if direction == Direction::Forward { place } else { live - 1 - place };
            sums.select(sums.before(Some(&ids.0))?.live.wrapping_add(place), |summary| summary.live)
        })
        .await
    }

    /// Cuts a range into at most `parts` (and at most [`limits::SUMMARY_PARTS_MAX`]) of about as many documents each,
    /// tombstones counted. The parts cover the range without a gap, in order.
    pub async fn split(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        parts: usize,
    ) -> Result<Vec<IdRangeSummary>, ShardError> {
        self.read(move |view, shard| Sums::new(view, shard)?.split(start, end, parts)).await
    }

    /// The digests of the documents of a range in order, at most `limit`; fewer mean that the range has no more.
    pub async fn digests(
        &self,
        start: Bound<DocId>,
        end: Bound<DocId>,
        limit: usize,
    ) -> Result<Vec<DocumentDigest>, ShardError> {
        let mut rest = Some(keys::ids(self.0.shard, Kind::Document, &start, &end));
        let mut out: Vec<DocumentDigest> = Vec::new();
        while let (true, Some(range)) = (out.len() < limit, rest.take()) {
            let left = limit - out.len();
            let (found, next) = self.read(move |view, _| digest_step(view, range, left)).await?;
            out.extend(found);
            rest = next;
        }
        Ok(out)
    }
}

fn digest_step(
    view: &dyn View,
    range: KeyRange,
    left: usize,
) -> Result<(Vec<DocumentDigest>, Option<KeyRange>), StorageError> {
    let mut out = Vec::new();
    let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
        let DocHead { digest, leaves, seq: local_seq, .. } = DocHead::decode(value)?;
        out.push(DocumentDigest { id: keys::id_of(key)?, digest, leaves, local_seq });
        Ok(if out.len() == left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((out, rest))
}
