//! Execution of declarative queries: rows of an index or all documents, matched as the client asks for them.
//!
//! All documents are matched in place ([`crate::coordinator::read::filter_scan`]). Rows of an index lead to documents,
//! which are read a few at a time and matched in their present form; where the index alone holds what the query asks
//! for, its rows are matched instead of documents.

use std::ops::Bound as End;
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::read::filter_scan::{FilterQuery, FilterRows};
use crate::coordinator::read::view::{Update, ViewError, ViewKeys, ViewQuery, ViewRows};
use crate::coordinator::read::{Queries, ReadOperations};
use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::error::ReadError;
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::document::json::JsonError;
use crate::document::render::{RenderOptions, StoredRevision, render};
use crate::document::revision::Revision;
use crate::document::selector::{FieldPath, FieldRange, RangeRules, Seen, StoredDocument, Subject};
use crate::index::Row;
use crate::index::mango::CoveredRow;
use crate::index::mango::bookmark::Bookmark;
use crate::index::mango::catalogue::FieldIndex;
use crate::index::mango::planner::is_covering;
use crate::index::mango::request::FindRequest;
use crate::index::mango::spans::spans;
use crate::limits;
use crate::script::Program;
use crate::shard::{Fetched, Matched, Want, live_conflicts};
use crate::storage::StorageError;
use crate::storage::planted::Bug;
use crate::world::Pool;
use crate::world::buggify::{Mutation, fewer, mutated};

/// An index, and the design document that it was found in.
#[derive(Clone)]
pub struct FindIndex {
    /// The index.
    pub fields: FieldIndex,
    /// The design document.
    pub program: Program,
}

/// A query.
#[derive(Clone)]
pub struct FindQuery {
    /// As the client gave it.
    pub request: Arc<FindRequest>,
    /// Where the page before ended, as the request says.
    pub after: Option<Bookmark>,
    /// The index to use; `None`: all documents.
    pub index: Option<FindIndex>,
    /// Only documents of this partition.
    pub partition: Option<String>,
    /// Compares values.
    pub collator: Collator,
}

/// A document that matches.
#[derive(Debug)]
pub struct Hit {
    /// Its id.
    pub id: DocId,
    /// The key of the row that led to it, as JSON text.
    key: Option<Bytes>,
    /// `None`: the row stands for it.
    stored: Option<StoredRevision>,
    conflicts: Vec<Revision>,
}

/// Matches and what they cost.
#[derive(Debug, Default)]
pub struct HitPage {
    /// The matches in order, perhaps none.
    pub hits: Vec<Hit>,
    /// Rows looked at.
    pub keys: u64,
    /// Documents looked at.
    pub docs: u64,
}

/// A query being answered.
pub struct Hits {
    database: Arc<Database>,
    query: FindQuery,
    columns: Arc<[FieldPath]>,
    covering: bool,
    source: Source,
    /// Rows whose documents are to be read yet.
    unread: Vec<Row>,
}

enum Source {
    None,
    All(Box<FilterRows>),
    Index(Box<ViewRows>),
}

impl Queries<'_> {
    /// Begins a query; brings its index up to date.
    ///
    /// # Errors
    /// As of views.
    pub async fn find(self, query: FindQuery) -> Result<Hits, ViewError> {
        let request = &query.request;
        let wants_some = request.limit > 0 || request.count || request.groups.is_some() || request.execution_stats;
        let columns = match &query.index {
            Some(index) => index.fields.names().into_iter().filter_map(|name| FieldPath::parse(name).ok()).collect(),
            None => Arc::default(),
        };
        let source = match &query.index {
            _ if request.selector.is_empty_combination() || !wants_some => Source::None,
            None => self.all(&query),
            Some(index) => self.rows(&query, index).await?,
        };
        // Rows of one replica's index are no documents of several.
        let covering = request.r <= 1 && query.index.as_ref().is_some_and(|index| is_covering(request, &index.fields));
        Ok(Hits { database: Arc::clone(self.database), query, columns, covering, source, unread: Vec::new() })
    }

    /// A query whose matches something else finds, see [`Hits::matches_of`].
    pub fn matches_only(self, query: FindQuery) -> Hits {
        let (database, columns) = (Arc::clone(self.database), Arc::default());
        Hits { database, query, columns, covering: false, source: Source::None, unread: Vec::new() }
    }

    /// All documents, from one id to another where the selector says so.
    fn all(self, query: &FindQuery) -> Source {
        let request = &query.request;
        let FieldRange::Between(low, high) = request.selector.field_range("_id", &query.collator) else {
            return Source::None;
        };
        // Ids are behind all values that are no text: none is below such a bound, and nothing is read; all are above.
        if high.as_ref().is_some_and(|bound| bound.value.as_str().is_none()) {
            return Source::None;
        }
        let end = |bound: Option<crate::document::selector::Bound>| match bound.as_ref().and_then(|b| b.value.as_str())
        {
            Some(text) => End::Included(DocId::new(text)),
            None => End::Unbounded,
        };
        let (mut start, mut end) = (end(low), end(high));
        if let Some(bookmark) = &query.after {
            let behind = End::Excluded(DocId::new(&bookmark.id));
            if request.sort.descending { end = behind } else { start = behind }
        }
        Source::All(Box::new(self.filter_scan(FilterQuery {
            partition: query.partition.clone(),
            start,
            end,
            descending: request.sort.descending,
            selector: Arc::new(request.selector.clone()),
            collator: query.collator.clone(),
            conflicts: request.conflicts,
        })))
    }

    async fn rows(self, query: &FindQuery, index: &FindIndex) -> Result<Source, ViewError> {
        let request = &query.request;
        let planted = self.context.storage.planted();
        let rules =
            RangeRules { narrow_on_ne: planted.has(Bug::RangeNarrowedOnNe), ..RangeRules::new(&query.collator) };
        let spans = spans(request, query.after.as_ref(), &index.fields, rules);
        if spans.is_empty() {
            return Ok(Source::None);
        }
        let wanted = request.limit.saturating_add(request.skip);
        let asked = ViewQuery {
            keys: ViewKeys::Spans(spans),
            descending: request.sort.descending,
            skip: 0,
            limit: u64::MAX,
            likely: usize::try_from(wanted).unwrap_or(usize::MAX),
            grouping: None,
            include_docs: false,
            conflicts: false,
            totals: false,
            update_seq: false,
            update: if request.update && !request.stale { Update::Before } else { Update::Never },
            stable: request.stable,
            partition: query.partition.clone(),
        };
        let view = self.view_in(&index.program, &index.fields.name).await?;
        Ok(Source::Index(Box::new(view.begin(asked).await?)))
    }
}

impl Hits {
    /// Whether the index alone answers the query.
    pub fn is_covering(&self) -> bool {
        self.covering
    }

    /// The matches among the first of these documents, as they are now: as many as may be in memory together, one at
    /// least. Answers how many documents there were, too, and how many of the ids that was.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn matches_of(&self, ids: &[DocId]) -> Result<(Vec<Hit>, u64, usize), ViewError> {
        let most = ids.len().min(limits::FIND_DOCS_PER_FETCH);
        self.match_docs(ids[..most].iter().map(|id| (id.clone(), None)).collect()).await
    }

    /// The next matches, at most `wanted`; `None` at the end.
    ///
    /// # Errors
    /// When the node cannot read.
    pub async fn next(&mut self, wanted: usize) -> Result<Option<HitPage>, ViewError> {
        match &mut self.source {
            Source::None => Ok(None),
            Source::All(rows) => {
                let Some(page) = rows.next(wanted.clamp(1, limits::PAGE_ROWS)).await? else { return Ok(None) };
                let with_conflicts = self.query.request.conflicts;
                let hits = match self.r() {
                    1 => page.rows.into_iter().map(|row| Hit::of(row, with_conflicts)).collect(),
                    _ => self.match_all(page.rows).await?,
                };
                Ok(Some(HitPage { hits, keys: page.examined, docs: page.examined }))
            }
            Source::Index(rows) => {
                let most = if self.covering { limits::PAGE_ROWS } else { limits::FIND_DOCS_PER_FETCH };
                let most = fewer("find: a page of one row", most);
                let mut rows = match self.unread.is_empty() {
                    true => rows.take(wanted.clamp(1, most)).await?,
                    false => std::mem::take(&mut self.unread),
                };
                if rows.is_empty() {
                    return Ok(None);
                }
                if let Some(Bookmark { key: Some(key), id }) = &self.query.after {
                    let key = key.to_vec();
                    let skips = mutated(Mutation::BookmarkSkips);
                    rows.retain(|row| (row.id.as_str() != id && !skips) || row.key != key);
                }
                // The row of the bookmark was counted on its own page.
                let mut keys = rows.len() as u64;
                let hits = match self.covering {
                    true => self.match_rows(rows).await?,
                    false => {
                        let docs = rows.iter().map(|row| (row.id.clone(), Some(row.key.clone()))).collect();
                        let (hits, docs, read) = self.match_docs(docs).await?;
                        self.unread = rows.split_off(read);
                        keys -= self.unread.len() as u64;
                        (hits, docs)
                    }
                };
                Ok(Some(HitPage { hits: hits.0, keys, docs: hits.1 }))
            }
        }
    }

    async fn match_rows(&self, rows: Vec<Row>) -> Result<(Vec<Hit>, u64), ViewError> {
        let (query, columns) = (self.query.clone(), Arc::clone(&self.columns));
        let matcher = move || {
            let mut hits = Vec::with_capacity(rows.len());
            for row in rows {
                let covered = CoveredRow::read(&columns, &row.key, row.id.as_str())?;
                if query.request.selector.matches_subject(&covered, &query.collator)? {
                    hits.push(Hit { id: row.id, key: Some(row.key), stored: None, conflicts: Vec::new() });
                }
            }
            Ok((hits, 0))
        };
        self.matching(matcher).await
    }

    /// Replicas to read each document from.
    fn r(&self) -> u32 {
        u32::try_from(self.query.request.r).unwrap_or(u32::MAX)
    }

    /// Matches documents of single replicas as several have them.
    async fn match_all(&self, rows: Vec<Matched>) -> Result<Vec<Hit>, ViewError> {
        let mut rows: Vec<(DocId, Option<Bytes>)> = rows.into_iter().map(|row| (row.id, None)).collect();
        let mut hits = Vec::new();
        while !rows.is_empty() {
            let (some, _, read) = self.match_docs(rows.clone()).await?;
            hits.extend(some);
            rows.drain(..read);
        }
        Ok(hits)
    }

    /// Matches documents as they are now, with the keys of the rows that led to them: the first ones, as many as may be
    /// in memory together, one at least. Answers how many documents there were, and how many rows that was.
    async fn match_docs(&self, rows: Vec<(DocId, Option<Bytes>)>) -> Result<(Vec<Hit>, u64, usize), ViewError> {
        let wants: Vec<(DocId, Want)> = rows.iter().map(|(id, _)| (id.clone(), Want::Winner)).collect();
        let found = match &self.source {
            Source::Index(rows) if self.r() <= 1 => rows.first_documents(&wants, limits::FETCH_BYTES).await?,
            _ => self.database.documents().fetch_first(&wants, Some(self.r()), limits::FETCH_BYTES).await?,
        };
        let read = found.len();
        let query = self.query.clone();
        let matcher = move || {
            let (mut hits, mut docs) = (Vec::with_capacity(rows.len()), 0);
            for ((id, key), fetched) in rows.into_iter().zip(found) {
                let Some((fetched, stored)) = fetched.and_then(live) else { continue };
                docs += 1;
                let wanted = query.request.conflicts;
                let conflicts = if wanted { fetched.conflicts(&stored.rev).0 } else { Vec::new() };
                let document = StoredDocument::of(id.as_str(), &stored).with_conflicts(&conflicts);
                if query.request.selector.matches_subject(&document, &query.collator)? {
                    hits.push(Hit { id, key, stored: Some(stored), conflicts });
                }
            }
            Ok((hits, docs, read))
        };
        self.matching(matcher).await
    }

    async fn matching<T: Send + 'static>(
        &self,
        matcher: impl FnOnce() -> Result<T, JsonError> + Send + 'static,
    ) -> Result<T, ViewError> {
        let matched = self.database.context.env.blocking(Pool::Foreground, matcher).await;
        matched.map_err(|JsonError| {
            let error = StorageError::Corrupt("the text of a document or row".to_owned());
            ReadError::Unavailable(error.into()).into()
        })
    }

    /// Matches by what a hit shows and makes the texts of documents, in the order of the hits.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub async fn texts(&self, hits: Vec<Hit>) -> Result<Vec<Vec<u8>>, ViewError> {
        let (query, columns) = (self.query.clone(), Arc::clone(&self.columns));
        self.matching(move || hits.iter().map(|hit| hit.text(&query.request, &columns)).collect()).await
    }

    /// Looks at each hit as at a document.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub async fn each<T: Send + 'static>(
        &self,
        hits: Vec<Hit>,
        mut into: T,
        take: impl Fn(&mut T, &dyn Subject) -> Result<(), JsonError> + Send + 'static,
    ) -> Result<T, ViewError> {
        let columns = Arc::clone(&self.columns);
        self.matching(move || {
            for hit in &hits {
                match hit.covered(&columns)? {
                    Some(row) => take(&mut into, &row)?,
                    None => take(&mut into, hit)?,
                }
            }
            Ok(into)
        })
        .await
    }
}

/// The winner of a document that lives.
fn live(mut fetched: Fetched) -> Option<(Fetched, StoredRevision)> {
    let stored = fetched.take_one().filter(|stored| !stored.deleted)?;
    Some((fetched, stored))
}

impl Hit {
    fn of(row: Matched, with_conflicts: bool) -> Hit {
        let conflicts = live_conflicts(&row.leaves, with_conflicts);
        Hit { id: row.id, key: None, stored: Some(row.stored), conflicts }
    }

    /// Where the next page begins after it.
    pub fn bookmark(&self) -> Bookmark {
        let key = self.key.as_ref().and_then(|text| crate::document::json::parse(text).ok());
        Bookmark { key, id: self.id.as_str().to_owned() }
    }

    fn covered<'a>(&'a self, columns: &'a [FieldPath]) -> Result<Option<CoveredRow<'a>>, JsonError> {
        match (&self.stored, &self.key) {
            (None, Some(key)) => CoveredRow::read(columns, key, self.id.as_str()).map(Some),
            _ => Ok(None),
        }
    }

    fn text(&self, request: &FindRequest, columns: &[FieldPath]) -> Result<Vec<u8>, JsonError> {
        if let Some(row) = self.covered(columns)? {
            return Ok(request.fields.cut_subject(&row)?.to_vec());
        }
        match &self.stored {
            Some(stored) if request.fields.is_all() => {
                let options = RenderOptions { conflicts: &self.conflicts, ..RenderOptions::default() };
                Ok(render(self.id.as_str(), stored, &options))
            }
            _ => Ok(request.fields.cut_subject(self)?.to_vec()),
        }
    }
}

/// A hit with a document: that document, with its conflicts where they are wanted.
impl Subject for Hit {
    fn see(&self, path: &FieldPath) -> Result<Seen<'_>, JsonError> {
        match &self.stored {
            Some(stored) => StoredDocument::of(self.id.as_str(), stored).with_conflicts(&self.conflicts).look(path),
            None => Ok(Seen::Absent),
        }
    }
}
