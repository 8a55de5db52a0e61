//! `_all_docs`, `_design_docs` and `_local_docs`: an ordered merge over the ranges, page by page.
//!
//! A list holds one page per range and reads on as rows are asked for, so its memory does not grow with the database.
//! Every page reads what is committed at its time: a row that does not change while the list is read appears once.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::documents::{RowDoc, local_revision};
use crate::coordinator::read::{Lists, ReadOperations};
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::span::{DocSource, KeyBounds, Span, spans};
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::rev_tree::RevValue;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Fetched, ListPage, ListRow, LocalDocument, Want};
use crate::storage::Direction;
use crate::world::buggify::{Mutation, fewer, mutated};
use crate::world::cost;

impl Default for KeyBounds {
    /// All.
    fn default() -> KeyBounds {
        KeyBounds::Range { start: None, end: None, inclusive_end: true }
    }
}

/// A request for a list; by default of all documents.
#[derive(Clone, Debug, Default)]
pub struct AllDocsQuery {
    /// Which documents.
    pub source: DocSource,
    /// Which keys.
    pub keys: KeyBounds,
    /// From the last to the first.
    pub descending: bool,
    /// How many rows to leave out at first.
    pub skip: u64,
    /// How many rows at most.
    pub limit: Option<u64>,
    /// Give the documents along.
    pub include_docs: bool,
    /// Give the conflicts of included documents along.
    pub conflicts: bool,
    /// Tell the update sequence.
    pub update_seq: bool,
}

/// A row of a list.
#[derive(Clone, Debug)]
pub enum AllDocsRow {
    /// A document; `deleted` only in answers to keys.
    Found {
        /// Its id, which is also the key.
        id: DocId,
        /// Its winning revision.
        rev: Revision,
        /// Whether that is a tombstone.
        deleted: bool,
        /// `None`: not asked for; `Some(None)`: null, as for tombstones.
        doc: Option<Option<Box<RowDoc>>>,
    },
    /// A key without a document: `{"key":..,"error":"not_found"}`.
    Missing {
        /// The key as given.
        key: Value,
    },
}

/// A row of a range, read together with its document where that is wanted.
struct Head {
    rev: Revision,
    doc: Option<Box<RowDoc>>,
}

/// The list of one range.
struct RangeCursor {
    rest: Span,
    rows: VecDeque<(DocId, Head)>,
    done: bool,
}

enum Source {
    Keys(VecDeque<Value>),
    Lanes(Vec<(usize, RangeCursor)>),
}

/// A list being read.
pub struct AllDocs {
    /// Documents that the source has in all; `None` is null.
    pub total_rows: Option<u64>,
    /// Rows before the first one in the direction of reading; `None` is null.
    pub offset: Option<u64>,
    /// `None`: not asked for; `Some(None)`: null.
    pub update_seq: Option<Option<String>>,
    database: Arc<Database>,
    query: AllDocsQuery,
    source: Source,
    /// Rows still to be left out.
    skip: u64,
    /// Rows still to be given out.
    left: u64,
}

impl AllDocs {
    /// The next page, of at least one row; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<AllDocsRow>>, ReadError> {
        loop {
            let (rows, more) = match &mut self.source {
                Source::Keys(keys) => {
                    let step: Vec<Value> = keys.iter().take(self.query.page_rows()).cloned().collect();
                    let more = !step.is_empty();
                    let rows = self.database.lists().rows_of_keys(&self.query, step).await?;
                    keys.drain(..rows.len());
                    (rows, more)
                }
                Source::Lanes(_) if self.left == 0 => (Vec::new(), false),
                Source::Lanes(_) => {
                    let heads = self.merge().await?;
                    let more = !heads.is_empty();
                    (rows_of_heads(&self.query, heads), more)
                }
            };
            if !rows.is_empty() || !more {
                return Ok((!rows.is_empty()).then_some(rows));
            }
        }
    }

    /// Takes the next rows off the range cursors in order.
    async fn merge(&mut self) -> Result<Vec<(DocId, Head)>, ReadError> {
        let Source::Lanes(range_cursors) = &mut self.source else { return Ok(Vec::new()) };
        let (page, descending) = (self.query.page_rows(), self.query.descending);
        let last = descending || mutated(Mutation::RowsUnsorted);
        let mut out = Vec::new();
        let mut heads: BTreeMap<DocId, usize> = BTreeMap::new();
        fill(&self.database, &self.query, range_cursors, self.skip.saturating_add(self.left)).await?;
        for (at, (_, range_cursor)) in range_cursors.iter().enumerate() {
            heads.extend(range_cursor.rows.front().map(|(id, _)| (id.clone(), at)));
        }
        while out.len() < page && self.left > 0 {
            let next = if last { heads.pop_last() } else { heads.pop_first() };
            let Some((_, at)) = next else { break };
            // Invariant: the range cursor stands in `heads` for its first row.
            let row = range_cursors[at].1.rows.pop_front().expect("a first row");
            if self.skip > 0 {
                self.skip -= 1;
            } else {
                self.left -= 1;
                out.push(row);
            }
            if range_cursors[at].1.rows.is_empty() {
                fill(&self.database, &self.query, range_cursors, self.skip.saturating_add(self.left)).await?;
            }
            heads.extend(range_cursors[at].1.rows.front().map(|(id, _)| (id.clone(), at)));
        }
        Ok(out)
    }
}

/// Reads a page into each range cursor that ran empty; `wanted` rows are enough.
async fn fill(
    database: &Arc<Database>,
    query: &AllDocsQuery,
    range_cursors: &mut [(usize, RangeCursor)],
    wanted: u64,
) -> Result<(), ReadError> {
    let most = fewer("list: a range read row by row", query.page_rows());
    let asked = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, most);
    let empty = range_cursors
        .iter()
        .enumerate()
        .filter(|(_, (_, range_cursor))| range_cursor.rows.is_empty() && !range_cursor.done);
    let (places, asks): (Vec<usize>, Vec<(usize, &Span)>) =
        empty.map(|(at, (range, range_cursor))| (at, (*range, &range_cursor.rest))).unzip();
    let pages = database.lists().pages(asks, query, asked).await?;
    cost::read(pages.len(), pages.iter().map(|page| page.len()).sum());
    for (at, rows) in places.into_iter().zip(pages) {
        let range_cursor = &mut range_cursors[at].1;
        // A page with documents, as of local ones all are, may be cut anywhere.
        range_cursor.done =
            if query.include_docs || query.source == DocSource::Local { rows.is_empty() } else { rows.len() < asked };
        if let Some((last, _)) = rows.last() {
            let beyond = Bound::Excluded(last.clone());
            if query.descending { range_cursor.rest.high = beyond } else { range_cursor.rest.low = beyond }
        }
        range_cursor.rows = rows.into();
    }
    Ok(())
}

impl AllDocsQuery {
    fn page_of(&self, span: &Span, limit: usize) -> ListPage {
        let (start, end) = (span.low.clone(), span.high.clone());
        ListPage { start, end, descending: self.descending, limit, bodies: self.include_docs }
    }

    fn page_rows(&self) -> usize {
        if self.include_docs { limits::DOCS_PER_FETCH } else { limits::PAGE_ROWS }
    }
}

/// What lies before a span in the direction of reading.
fn outside(span: &Span, descending: bool) -> Span {
    let turned = |bound: &Bound<DocId>| match bound {
        Bound::Included(id) => Bound::Excluded(id.clone()),
        Bound::Excluded(id) => Bound::Included(id.clone()),
        Bound::Unbounded => Bound::Excluded(DocId::new("")),
    };
    match descending {
        false => Span { low: Bound::Unbounded, high: turned(&span.low) },
        true => Span { low: turned(&span.high), high: Bound::Unbounded },
    }
}

impl Lists<'_> {
    /// Begins a list. Totals and offset are of this moment; the rows are read as they are asked for.
    pub async fn all_docs(self, query: AllDocsQuery) -> Result<AllDocs, ReadError> {
        self.replicas().by_layout(|_| self.try_all_docs(query.clone())).await
    }

    async fn try_all_docs(self, query: AllDocsQuery) -> Result<AllDocs, ReadError> {
        let all = Span::of(&query.source);
        let (listed, before) = spans(&query.keys, query.descending);
        let is_keys = matches!(query.keys, KeyBounds::Keys(_));
        let total_rows = self.total_rows(&query.source).await?;
        let offset = match total_rows {
            Some(total) if !is_keys => {
                let mut before = self.count_span(&query.source, &before.and(&all)).await?;
                if query.source == DocSource::Design {
                    // As CouchDB counts it: other documents stand before them, too.
                    before = before
                        .saturating_add(self.count_span(&DocSource::All, &outside(&all, query.descending)).await?);
                }
                Some(before.saturating_add(query.skip).min(total))
            }
            _ => None,
        };
        let update_seq = match query.update_seq {
            true if is_keys || query.source == DocSource::Local => Some(None),
            true => Some(Some(self.update_seq().await?.to_string())),
            false => None,
        };
        let mut left = query.limit.unwrap_or(u64::MAX);
        let (source, skip) = match &query.keys {
            KeyBounds::Keys(keys) => {
                let keys = chosen_keys(keys, &query);
                left = left.min(keys.len() as u64);
                (Source::Keys(keys), 0)
            }
            KeyBounds::Range { .. } => {
                let (rest, skip) = self.skip_rows(&query, listed.and(&all)).await?;
                (Source::Lanes(self.range_cursors(&query.source, rest)), skip)
            }
        };
        Ok(AllDocs { total_rows, offset, update_seq, database: Arc::clone(self.database), query, source, skip, left })
    }

    /// The ranges that can hold documents of a source.
    pub(in crate::coordinator) fn ranges_of(self, source: &DocSource) -> Vec<usize> {
        match source {
            DocSource::Partition(name) => vec![self.map().index_of_partition(name)],
            DocSource::All | DocSource::Design | DocSource::Local => self.ranges(),
        }
    }

    fn range_cursors(self, source: &DocSource, span: Span) -> Vec<(usize, RangeCursor)> {
        let done = span.is_empty();
        let range_cursor = |range| (range, RangeCursor { rest: span.clone(), rows: VecDeque::new(), done });
        self.ranges_of(source).into_iter().map(range_cursor).collect()
    }

    async fn total_rows(self, source: &DocSource) -> Result<Option<u64>, ReadError> {
        match source {
            DocSource::Local => Ok(None),
            DocSource::Partition(_) => Ok(Some(self.count_span(source, &Span::of(source)).await?)),
            DocSource::All | DocSource::Design => {
                let infos = self.replicas().infos(&self.ranges()).await?;
                let is_design = *source == DocSource::Design;
                Ok(Some(infos.iter().map(|(i, _)| if is_design { i.design_count } else { i.doc_count }).sum()))
            }
        }
    }

    pub(in crate::coordinator) async fn count_span(self, source: &DocSource, span: &Span) -> Result<u64, ReadError> {
        if span.is_empty() {
            return Ok(0);
        }
        Ok(self.replicas().counts(&self.ranges_of(source), span).await?.into_iter().sum())
    }

    /// The next rows of some ranges from where each stands.
    async fn pages(
        self,
        asks: Vec<(usize, &Span)>,
        query: &AllDocsQuery,
        limit: usize,
    ) -> Result<Vec<Vec<(DocId, Head)>>, ReadError> {
        let is_alone = asks.len() == 1 || asks.iter().any(|(_, span)| span.is_empty());
        if query.source == DocSource::Local || query.include_docs || is_alone {
            let page = |(range, span)| async move {
                match query.source {
                    DocSource::Local => self.local_page(range, span, query.descending, limit).await,
                    _ => self.page(range, span, query, limit).await,
                }
            };
            return try_join_all(asks.into_iter().map(page)).await;
        }
        let (ranges, pages): (Vec<usize>, Vec<ListPage>) =
            asks.into_iter().map(|(range, span)| (range, query.page_of(span, limit))).unzip();
        let rows = self.replicas().lists(&ranges, &pages).await?;
        let heads = |rows: Vec<ListRow>| rows.into_iter().map(|row| head_of(row, query.conflicts)).collect();
        Ok(rows.into_iter().map(heads).collect())
    }

    async fn page(
        self,
        range: usize,
        span: &Span,
        query: &AllDocsQuery,
        limit: usize,
    ) -> Result<Vec<(DocId, Head)>, ReadError> {
        if span.is_empty() {
            return Ok(Vec::new());
        }
        let page = query.page_of(span, limit);
        let list = |replica: RangeReplica| {
            let page = page.clone();
            async move { replica.list(page).await }
        };
        let rows = self.replicas().on_one(range, list).await?;
        Ok(rows.into_iter().map(|row| head_of(row, query.conflicts)).collect())
    }

    async fn local_page(
        self,
        range: usize,
        span: &Span,
        descending: bool,
        limit: usize,
    ) -> Result<Vec<(DocId, Head)>, ReadError> {
        if span.is_empty() {
            return Ok(Vec::new());
        }
        let direction = if descending { Direction::Reverse } else { Direction::Forward };
        let list = |replica: RangeReplica| async move {
            replica.local_list(span.low.clone(), span.high.clone(), direction, limit).await
        };
        let rows = self.replicas().on_one(range, list).await?;
        let head = |(id, document): (DocId, LocalDocument)| {
            let stored = local_revision(document);
            let rev = stored.rev.clone();
            let doc = Box::new(RowDoc { id: id.clone(), stored, conflicts: Vec::new() });
            (id, Head { rev, doc: Some(doc) })
        };
        Ok(rows.into_iter().map(head).collect())
    }

    /// The rows of the first keys; with documents only as many as may be in memory together, one at least.
    async fn rows_of_keys(self, query: &AllDocsQuery, keys: Vec<Value>) -> Result<Vec<AllDocsRow>, ReadError> {
        let is_local = query.source == DocSource::Local;
        let want = if query.include_docs { Want::Winner } else { Want::Tree };
        let id_of = |key: &Value| key.as_str().map(DocId::new).filter(|id| id.is_local() == is_local);
        let ids: Vec<Option<DocId>> = keys.iter().map(id_of).collect();
        let wants: Vec<(DocId, Want)> = ids.iter().flatten().map(|id| (id.clone(), want.clone())).collect();
        let mut found = self.documents().fetch_first(&wants, Some(1), limits::FETCH_BYTES).await?.into_iter();
        let mut rows = Vec::with_capacity(keys.len());
        for (key, id) in keys.into_iter().zip(ids) {
            let row = match id {
                Some(id) => {
                    let Some(fetched) = found.next() else { break };
                    fetched.and_then(|fetched| row_of_key(query, id, fetched))
                }
                None => None,
            };
            rows.push(row.unwrap_or(AllDocsRow::Missing { key }));
        }
        Ok(rows)
    }
}

fn head_of(row: ListRow, with_conflicts: bool) -> (DocId, Head) {
    let rev = row.rev().clone();
    let others = row.leaves.into_iter().skip(1).filter(|(_, deleted)| with_conflicts && !deleted);
    let conflicts = others.map(|(rev, _)| rev).collect();
    let doc = row.winner.map(|stored| Box::new(RowDoc { id: row.id.clone(), stored, conflicts }));
    (row.id, Head { rev, doc })
}

fn rows_of_heads(query: &AllDocsQuery, heads: Vec<(DocId, Head)>) -> Vec<AllDocsRow> {
    let row = |(id, head): (DocId, Head)| {
        let doc = query.include_docs.then_some(head.doc);
        AllDocsRow::Found { id, rev: head.rev, deleted: false, doc }
    };
    heads.into_iter().map(row).collect()
}

/// The row of a key whose document was found. `None` when it has no revision.
fn row_of_key(query: &AllDocsQuery, id: DocId, mut fetched: Fetched) -> Option<AllDocsRow> {
    let (rev, deleted) = match fetched.tree.winner() {
        Some(leaf) => (leaf.rev, leaf.value.is_deleted()),
        // A local document has no tree.
        None => (fetched.found.first()?.0.clone(), false),
    };
    if !query.include_docs {
        return Some(AllDocsRow::Found { id, rev, deleted, doc: None });
    }
    let stored = fetched.take_one().filter(|_| !deleted);
    let conflicts = if query.conflicts { fetched.conflicts(&rev).0 } else { Vec::new() };
    let doc = stored.map(|stored| Box::new(RowDoc { id: id.clone(), stored, conflicts }));
    Some(AllDocsRow::Found { id, rev, deleted, doc: Some(doc) })
}

/// The keys that get rows: backwards when descending, after skip and limit, and without those that the source leaves
/// out silently. As in CouchDB, skip and limit count the ones left out of a kind of documents, but not those left out
/// of a partition.
fn chosen_keys(keys: &[Value], query: &AllDocsQuery) -> VecDeque<Value> {
    let belongs = |key: &&Value| match (&query.source, key.as_str()) {
        (DocSource::All, _) => true,
        (DocSource::Local, text) => text.is_some_and(|id| id.starts_with("_local/")),
        (DocSource::Design, text) => text.is_some_and(|id| id.starts_with("_design/")),
        (DocSource::Partition(name), text) => {
            text.and_then(|id| id.split_once(':')).is_some_and(|(partition, _)| partition == name)
        }
    };
    let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let counted = |key: &&Value| !matches!(query.source, DocSource::Partition(_)) || belongs(key);
    let own = keys.iter().filter(counted);
    match query.descending {
        false => own.skip(skip).take(limit).filter(belongs).cloned().collect(),
        true => own.rev().skip(skip).take(limit).filter(belongs).cloned().collect(),
    }
}
