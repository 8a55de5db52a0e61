//! The documents of a feed's rows, for filters and `include_docs`.
//!
//! A document is read from the replica that gave its row, so it is never older than the row. A replica that lags behind
//! the row cannot tell whether a filter passes it, and has nothing to show. Where the row's replica fails, the document
//! comes from another one that has the revisions of the row. Where no replica in reach has them, the row stays unread
//! and its range cursor moves to another replica.
//!
//! Promises: a row is left out only for the state of its document at the row's sequence or for a later state, which
//! comes with a later row; and a row that is sent with its document shows the revision that it lists.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::{Candidate, Changes, ChangesFilter, Style};
use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::documents::RowDoc;
use crate::coordinator::replica::message::ChangesCall;
use crate::coordinator::topology::error::ChangesError;
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{Fetched, ShardChange, ShardError, Want};
use crate::storage::Direction;
use crate::world::buggify::{Mutation, mutated};

/// A change and the number of its range cursor.
pub(super) type Row = (usize, ShardChange);

/// What a feed gives out of a row.
#[derive(Default)]
pub(super) struct Listed {
    /// The leaves to list; none when the row is left out.
    pub revs: Vec<Revision>,
    /// Whether the winner is a tombstone.
    pub deleted: bool,
    /// The winner, where the feed includes documents.
    pub doc: Option<Box<RowDoc>>,
}

/// The document of a row.
enum Document {
    /// It is not needed: an id alone decides, and the row is sent without it.
    Unread,
    /// It was purged since the row was read.
    Purged,
    /// As the replica has it, not older than the row.
    Found(Fetched),
}

impl Document {
    fn body_bytes(&self) -> usize {
        let Document::Found(fetched) = self else { return 0 };
        fetched.found.iter().filter_map(|(_, stored)| stored.as_ref()).map(|stored| stored.body.len()).sum()
    }
}

impl Changes {
    /// Whether the feed reads the documents of its rows.
    pub(super) fn reads_documents(&self) -> bool {
        self.query.include_docs || matches!(self.query.filter, ChangesFilter::Rows(_))
    }

    /// What to give out of the first rows of a batch. Where that is not all of them, the documents before took
    /// `limits::CHANGES_PAGE_BYTES`, or those of the rows behind cannot be read for now, and the range cursors whose
    /// replica is the reason are told, too: they have to move.
    pub(super) async fn list(&self, batch: &[Row]) -> Result<(Vec<Listed>, BTreeSet<usize>), ChangesError> {
        if !self.reads_documents() {
            return Ok((batch.iter().map(|(_, row)| self.by_id(row, Document::Unread)).collect(), BTreeSet::new()));
        }
        let mut out = Vec::with_capacity(batch.len());
        let (mut unread, mut count, mut bytes) = (batch, limits::CHANGES_FIRST_DOCS, 0);
        while !unread.is_empty() && bytes < limits::CHANGES_PAGE_BYTES {
            let (rows, rest) = unread.split_at(unread.len().min(count));
            unread = rest;
            let (mut documents, mut lost) = (Vec::with_capacity(rows.len()), BTreeSet::new());
            for ((at, _), document) in rows.iter().zip(self.documents(rows).await?) {
                match document {
                    Ok(document) if lost.is_empty() => documents.push(document),
                    Ok(_) => {}
                    Err(error) if self.can_go_on(*at, &error) && !self.query.descending => drop(lost.insert(*at)),
                    Err(error) => return Err(error.into()),
                }
            }
            bytes += documents.iter().map(Document::body_bytes).sum::<usize>();
            out.extend(self.filtered(&rows[..documents.len()], documents).await?);
            if !lost.is_empty() {
                return Ok((out, lost));
            }
            // As many as are expected to take a quarter of the page.
            let typical = (bytes / out.len().max(1)).max(1);
            count = (limits::CHANGES_PAGE_BYTES / 4 / typical).clamp(1, limits::DOCS_PER_FETCH);
        }
        Ok((out, BTreeSet::new()))
    }

    /// The documents of rows, in their order.
    async fn documents(&self, rows: &[Row]) -> Result<Vec<Result<Document, ShardError>>, ChangesError> {
        let mut out: Vec<Result<Document, ShardError>> = rows.iter().map(|_| Ok(Document::Unread)).collect();
        let mut by_range_cursor: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, (at, row)) in rows.iter().enumerate() {
            if self.passes_id(&row.id) {
                by_range_cursor.entry(*at).or_default().push(place);
            }
        }
        let reads = by_range_cursor.into_iter().map(|(at, places)| async move {
            let rows: Vec<&ShardChange> = places.iter().map(|place| &rows[*place].1).collect();
            let documents = self.documents_of(at, &rows).await?;
            Ok::<_, ChangesError>(places.into_iter().zip(documents))
        });
        for read in join_all(reads).await {
            read?.for_each(|(place, document)| out[place] = document);
        }
        Ok(out)
    }

    fn wants(&self, rows: &[&ShardChange]) -> Vec<(DocId, Want)> {
        let all = self.query.style == Style::AllDocs && matches!(self.query.filter, ChangesFilter::Rows(_));
        let want = if all { Want::Leaves } else { Want::Winner };
        rows.iter().map(|row| (row.id.clone(), want.clone())).collect()
    }

    /// The documents of rows of one range cursor.
    async fn documents_of(
        &self,
        at: usize,
        rows: &[&ShardChange],
    ) -> Result<Vec<Result<Document, ShardError>>, ChangesError> {
        let purged = |fetched: Option<Fetched>| fetched.map_or(Document::Purged, Document::Found);
        if mutated(Mutation::FeedJoinsLaggingReplica) {
            let found = self.documents_furthest_behind(at, rows).await?;
            return Ok(found.into_iter().map(|fetched| Ok(purged(fetched))).collect());
        }
        self.database.context.env.metrics().add(Counter::DatabaseReads, rows.len() as u64);
        let (range_cursor, layout) = (&self.range_cursors[at], self.database.layout());
        let found = match range_cursor.replica.fetch(self.wants(rows)).await {
            Ok(found) => found,
            Err(error @ ShardError::Dropped) => return Err(error.into()),
            Err(ShardError::Moved) => {
                self.database.moved_from(&layout).await;
                return Ok(rows.iter().map(|_| Err(ShardError::Moved)).collect());
            }
            Err(error) => return Ok(self.documents_elsewhere(rows, &error).await),
        };
        let is_older = |(row, fetched): (&&ShardChange, &Option<Fetched>)| {
            fetched.as_ref().is_none_or(|fetched| fetched.local_seq < row.seq)
        };
        if !rows.iter().zip(&found).any(is_older) {
            return Ok(found.into_iter().map(|fetched| Ok(purged(fetched))).collect());
        }
        // Within its epoch a replica goes back behind no row that it gave: then the document was purged.
        let same_epoch = ChangesCall {
            since: range_cursor.cursor,
            direction: Direction::Forward,
            limit: 0,
            epoch: range_cursor.replica_position.epoch,
        };
        let failed = range_cursor.replica.changes(same_epoch).await.err();
        let older =
            || failed.clone().unwrap_or_else(|| ShardError::NotExecuted("the replica is behind its row".to_owned()));
        let document = |(row, fetched): (&&ShardChange, Option<Fetched>)| match fetched {
            Some(fetched) if fetched.local_seq >= row.seq => Ok(Document::Found(fetched)),
            None if failed.is_none() => Ok(Document::Purged),
            _ => Err(older()),
        };
        Ok(rows.iter().zip(found).map(document).collect())
    }

    /// The documents of rows whose replica failed with `error`, of all replicas in reach.
    async fn documents_elsewhere(
        &self,
        rows: &[&ShardChange],
        error: &ShardError,
    ) -> Vec<Result<Document, ShardError>> {
        let found = self.database.documents().fetch_many(self.wants(rows), Some(u32::MAX)).await;
        let found = found.unwrap_or_else(|_| rows.iter().map(|_| None).collect());
        let has_all =
            |fetched: &Fetched, row: &ShardChange| row.leaves.iter().all(|(rev, _)| fetched.tree.get(rev).is_some());
        let document = |(row, fetched): (&&ShardChange, Option<Fetched>)| {
            let fetched = fetched.filter(|fetched| has_all(fetched, row));
            fetched.map(Document::Found).ok_or_else(|| error.clone())
        };
        rows.iter().zip(found).map(document).collect()
    }

    /// Of the planted bug: the documents of rows of one range cursor, from the replica that lacks the most of these
    /// rows among those that answer.
    async fn documents_furthest_behind(
        &self,
        at: usize,
        rows: &[&ShardChange],
    ) -> Result<Vec<Option<Fetched>>, ChangesError> {
        let (range, layout) = (self.range_cursors[at].range, self.database.layout());
        let replicas = self.database.replicas().all_readers(&layout, range).await?;
        let answers = join_all(replicas.iter().map(|replica| replica.fetch(self.wants(rows)))).await;
        let lacks = |(row, fetched): (&&ShardChange, &Option<Fetched>)| {
            let tree = fetched.as_ref().map(|fetched| &fetched.tree);
            row.leaves.iter().any(|(rev, _)| tree.is_none_or(|tree| tree.get(rev).is_none()))
        };
        let lacking = |found: &Vec<Option<Fetched>>| rows.iter().zip(found).filter(|pair| lacks(*pair)).count();
        let furthest = answers.into_iter().flatten().max_by_key(lacking);
        Ok(furthest.ok_or(ShardError::NoReplica { replicas: replicas.len() })?)
    }

    /// Whether the filter may pass a document of that id.
    fn passes_id(&self, id: &DocId) -> bool {
        match &self.query.filter {
            ChangesFilter::None | ChangesFilter::Rows(_) => true,
            ChangesFilter::Design => id.is_design(),
            ChangesFilter::DocIds(ids) => ids.contains(id),
        }
    }

    /// What to give out of rows, by what the filter says of their documents.
    async fn filtered(&self, rows: &[Row], documents: Vec<Document>) -> Result<Vec<Listed>, ChangesError> {
        let ChangesFilter::Rows(filter) = &self.query.filter else {
            return Ok(rows.iter().zip(documents).map(|((_, row), document)| self.by_id(row, document)).collect());
        };
        let mut candidates = Vec::with_capacity(rows.len());
        let candidate = |((_, row), document): (&Row, Document)| {
            let Document::Found(fetched) = document else { return None };
            let shows = self.query.conflicts && self.query.style == Style::MainOnly;
            let conflicts = match fetched.tree.winner().filter(|_| shows) {
                Some(winner) => fetched.conflicts(&winner.rev).0,
                None => Vec::new(),
            };
            let Fetched { tree, local_seq, found } = fetched;
            let leaves = found.into_iter().filter_map(|(_, stored)| stored).collect();
            candidates.push(Candidate { id: row.id.clone(), leaves, conflicts });
            Some(Fetched { tree, local_seq, found: Vec::new() })
        };
        let found: Vec<Option<Fetched>> = rows.iter().zip(documents).map(candidate).collect();
        let passed = if candidates.is_empty() { Vec::new() } else { filter.pass(&candidates).await? };
        assert_eq!(passed.len(), candidates.len(), "a filter decides about each candidate");
        let mut passed_rows = candidates.into_iter().zip(passed);
        let listed = |fetched: Option<Fetched>| {
            let Some((mut fetched, (candidate, passed))) = fetched.and_then(|f| Some((f, passed_rows.next()?))) else {
                return Listed::default();
            };
            let Candidate { id, leaves, .. } = candidate;
            let revs: Vec<Revision> =
                leaves.iter().zip(passed).filter(|(_, pass)| *pass).map(|(leaf, _)| leaf.rev.clone()).collect();
            fetched.found = leaves.into_iter().map(|leaf| (leaf.rev.clone(), Some(leaf))).collect();
            self.listed(id, revs, fetched)
        };
        Ok(found.into_iter().map(listed).collect())
    }

    /// What to give out of a row whose id alone decides.
    fn by_id(&self, row: &ShardChange, document: Document) -> Listed {
        let count = if self.query.style == Style::AllDocs { usize::MAX } else { 1 };
        match document {
            _ if !self.passes_id(&row.id) => Listed::default(),
            Document::Purged => Listed::default(),
            Document::Unread => {
                let revs = row.leaves.iter().take(count).map(|(rev, _)| rev.clone()).collect();
                let deleted = row.leaves.first().is_some_and(|(_, deleted)| *deleted);
                Listed { revs, deleted, doc: None }
            }
            Document::Found(fetched) => {
                let revs = fetched.tree.leaves().into_iter().take(count).map(|leaf| leaf.rev).collect();
                self.listed(row.id.clone(), revs, fetched)
            }
        }
    }

    /// A row as its document is: that may have changed since the row was read.
    fn listed(&self, id: DocId, revs: Vec<Revision>, mut fetched: Fetched) -> Listed {
        let Some(winner) = fetched.tree.winner() else { return Listed::default() };
        let deleted = winner.value.is_deleted();
        let place = fetched.found.iter().position(|(rev, _)| *rev == winner.rev);
        let stored = place.filter(|_| self.query.include_docs).and_then(|place| fetched.found.swap_remove(place).1);
        let doc = stored.filter(|_| !revs.is_empty()).map(|stored| {
            let conflicts = if self.query.conflicts { fetched.conflicts(&stored.rev).0 } else { Vec::new() };
            Box::new(RowDoc { id, stored, conflicts })
        });
        Listed { revs, deleted, doc }
    }
}
