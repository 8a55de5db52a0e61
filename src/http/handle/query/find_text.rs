//! `_find` and `_explain` with a text index: the index finds candidates, and the selector filters them.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::StatusCode;
use settee_search::search::{Request as SearchRequest, Row, Sort, nouveau};

use super::find::FindContext;
use crate::coordinator::{
    Database, DatabaseSearch, FindQuery, Hits, ReadOperations, SearchFailure, SearchQuery, TypedQuery,
};
use crate::document::collate::Collator;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::selector::Selector;
use crate::http::handle::nouveau::is_enabled;
use crate::http::handle::search::sorts;
use crate::http::{ChunkSink, Context, Problem, Reply, Result};
use crate::index::mango::MangoError;
use crate::index::mango::bookmark::NIL;
use crate::index::mango::candidates::Indexes;
use crate::index::mango::explain::{ExplainContext, explain_text};
use crate::index::mango::planner::{has_usable, names_index};
use crate::index::mango::request::FindRequest;
use crate::index::mango::text::{TextIndex, TextKind, TextQuery, several, sort_of, text_query};
use crate::limits;
use crate::script::Program;
use crate::world::{Env, Instant};

/// A text index that is to answer, and what it is asked.
pub struct Chosen {
    index: TextIndex,
    query: TextQuery,
    sort: Vec<String>,
}

/// The text indexes of a database; those with types where there are such indexes.
pub fn text_indexes(ctx: &Context, db: &Database, programs: &[Program]) -> Vec<TextIndex> {
    let typed = is_enabled(&ctx.config).then_some(TextKind::Typed);
    let kinds: Vec<TextKind> = [TextKind::Plain].into_iter().chain(typed).collect();
    let of = |program: &Program| {
        let all = |kind: &TextKind| TextIndex::all(*kind, program.id().as_str(), program.body(), db.map().partitioned);
        kinds.iter().flat_map(all).collect::<Vec<_>>()
    };
    programs.iter().flat_map(of).collect()
}

/// The text index that answers a query; `None`: none does, or one over fields comes first.
///
/// # Errors
/// `multiple_text_indexes`, and what is wrong with the query for such an index.
pub fn chosen(asked: &FindContext) -> Result<Option<Chosen>> {
    let (request, all) = (&asked.request, &asked.texts);
    if all.is_empty() || request.selector == Selector::Everything {
        return Ok(None);
    }
    for kind in [TextKind::Plain, TextKind::Typed] {
        let of_kind: Vec<&TextIndex> = all.iter().filter(|index| index.kind == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        let query = text_query(&request.selector, kind).map_err(MangoError::from)?;
        let Some(index) = index_for(asked, &of_kind, &query)? else { continue };
        let sort = sort_of(&request.sort, &request.selector).map_err(MangoError::from)?;
        let sort = match kind {
            TextKind::Plain => sort,
            // Fields know their types.
            TextKind::Typed => sort.iter().map(|part| part.split('<').next().unwrap_or(part).to_owned()).collect(),
        };
        return Ok(Some(Chosen { index, query, sort }));
    }
    Ok(None)
}

/// The one of the indexes of a kind that answers a query.
fn index_for(asked: &FindContext, all: &[&TextIndex], query: &TextQuery) -> Result<Option<TextIndex>> {
    let (request, partitioning) = (&asked.request, asked.partitioning());
    let fits = |index: &&&TextIndex| {
        // One with types answers for each partition and for all of them.
        let is_of = index.kind == TextKind::Typed || index.partitioned == partitioning.query;
        is_of && index.is_usable(query)
    };
    let named: Vec<&&TextIndex> =
        all.iter().filter(fits).filter(|index| names_index(request, &index.ddoc, &index.name)).collect();
    let usable = match named.is_empty() {
        false => named,
        true if has_usable(request, &asked.indexes, partitioning) => return Ok(None),
        true => all.iter().filter(fits).filter(|index| !index.is_partial()).collect(),
    };
    match usable[..] {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        [one, ..] => Err(MangoError::from(several(one.kind)).into()),
    }
}

/// POST `/{db}/_explain`.
pub fn explain(asked: &FindContext, texts: &[TextIndex], chosen: &Chosen, collator: &Collator) -> Reply {
    let about = ExplainContext {
        database: &asked.db.name,
        partitioned: asked.db.map().partitioned,
        partition: asked.partition.as_deref(),
        with_range: false,
    };
    let what = (&chosen.index, &chosen.query, &chosen.sort[..]);
    let indexes = Indexes { fields: &asked.indexes, texts, chosen: Some(&chosen.index) };
    Reply::json(StatusCode::OK, explain_text(&asked.request, what, indexes, about, collator).to_vec())
}

/// POST `/{db}/_find`. Documents are streamed while they are found.
///
/// # Errors
/// As of searches; 400 `invalid_bookmark`.
pub async fn find(ctx: &Context, asked: FindContext, chosen: Chosen) -> Result<Reply> {
    let (program, name) = (asked.program(&chosen.index.ddoc), chosen.index.name.as_str());
    let FindContext { db, request, partition, .. } = asked;
    let (index, order) = match chosen.index.kind {
        TextKind::Typed => (db.queries().typed_search_in(&program, name).await?, Order::Typed(chosen.sort)),
        TextKind::Plain => {
            let sort: Vec<Value> = chosen.sort.iter().map(|part| part.as_str().into()).collect();
            let sort = if sort.is_empty() { Vec::new() } else { sorts(&Value::Array(sort))? };
            (db.queries().search_in(&program, name).await?, Order::Plain(sort))
        }
    };
    let request = Arc::new(request);
    let (asked, collator) = (Arc::clone(&request), ctx.collator.clone());
    let query = FindQuery { request: asked, after: None, index: None, partition: partition.clone(), collator };
    let limit = request.limit.min(limits::FIND_TEXT_DOCS);
    let mut finder = Finder {
        env: ctx.env.clone(),
        started: ctx.env.now(),
        hits: db.queries().matches_only(query),
        index,
        search: (chosen.query.text, order, partition),
        bookmark: request.bookmark.clone().filter(|text| text != NIL),
        skip: request.skip,
        left: limit,
        found: Vec::new(),
        seen: BTreeSet::new(),
        examined: 0,
        results: 0,
        request,
    };
    // What is wrong with the query is told before anything is written.
    finder.page().await?;
    Ok(Reply::generate(move |mut sink| async move {
        sink.write(b"{\"docs\":[").await?;
        let mut separator: &[u8] = b"\n";
        loop {
            finder.write_found(&mut sink, &mut separator).await?;
            if finder.left == 0 || !finder.page().await? {
                break;
            }
        }
        sink.write(b"\n],\n").await?;
        sink.write(&finder.tail()).await?;
        sink.flush().await
    }))
}

/// The order that an index is asked for, which has types or not.
#[derive(Clone)]
enum Order {
    Plain(Vec<Sort>),
    Typed(Vec<String>),
}

/// A query being answered.
struct Finder {
    env: Env,
    started: Instant,
    hits: Hits,
    index: DatabaseSearch,
    /// Query, order and partition.
    search: (String, Order, Option<String>),
    request: Arc<FindRequest>,
    /// Where the last page ended.
    bookmark: Option<String>,
    skip: u64,
    left: u64,
    /// Documents that the index found and that the selector has not seen yet.
    found: Vec<DocId>,
    /// Documents that the index found: one that is written meanwhile is found again on a later page.
    seen: BTreeSet<DocId>,
    examined: u64,
    results: u64,
}

impl Finder {
    /// Asks the index for as many documents as are still wanted: all of them are looked at, so that its bookmark is
    /// that of the answer. Whether there were some.
    async fn page(&mut self) -> Result<bool> {
        let wanted = match self.left {
            0 => 0,
            left => self.skip.saturating_add(left).min(limits::FIND_TEXT_DOCS),
        };
        let limit = usize::try_from(wanted).unwrap_or(usize::MAX);
        let (rows, bookmark) = self.ask(limit).await.map_err(|failure| match failure {
            SearchFailure::Bookmark | SearchFailure::BookmarkOrder => {
                let given = Value::from(self.bookmark.as_deref().unwrap_or_default()).to_vec();
                let reason = format!("Invalid bookmark value: {}", String::from_utf8_lossy(&given));
                Problem::invalid("invalid_bookmark", reason)
            }
            failure => failure.into(),
        })?;
        self.bookmark = Some(bookmark);
        let ids = rows.iter().map(|row| DocId::new(&row.id));
        self.found = ids.filter(|id| self.seen.insert(id.clone())).collect();
        Ok(!rows.is_empty())
    }

    /// The next rows of the index and where they end.
    async fn ask(&self, limit: usize) -> std::result::Result<(Vec<Row>, String), SearchFailure> {
        let (query, order, partition) = self.search.clone();
        let update = self.request.update && !self.request.stale;
        let bookmark = self.bookmark.clone();
        match order {
            Order::Plain(sort) => {
                let include_fields = Some(Vec::new());
                let request =
                    SearchRequest { query, limit, sort, partition, include_fields, ..SearchRequest::default() };
                let page = self.index.ask(SearchQuery { request, bookmark, update }).await?;
                Ok((page.answer.rows, page.bookmark))
            }
            Order::Typed(sort) => {
                let request = nouveau::Request { query, limit, sort, partition, ..nouveau::Request::default() };
                let page = self.index.ask_typed(TypedQuery { request, bookmark, update }).await?;
                Ok((page.answer.rows, page.bookmark))
            }
        }
    }

    async fn write_found(&mut self, sink: &mut ChunkSink, separator: &mut &'static [u8]) -> Result<()> {
        while !self.found.is_empty() {
            let (mut hits, docs, read) = self.hits.matches_of(&self.found).await?;
            self.found.drain(..read);
            self.examined += docs;
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(hits.len());
            hits.drain(..skipped);
            hits.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.skip -= skipped as u64;
            self.left -= hits.len() as u64;
            self.results += hits.len() as u64;
            for text in self.hits.texts(hits).await? {
                sink.write(separator).await?;
                sink.write(&text).await?;
                *separator = b",\n";
            }
        }
        Ok(())
    }

    /// The members behind the documents, with the last brace and a line end.
    fn tail(&self) -> Vec<u8> {
        let mut tail = Object::new();
        tail.push("bookmark", self.bookmark.as_deref().unwrap_or(NIL));
        if self.request.execution_stats {
            let mut stats = Object::new();
            // As in CouchDB: the cursor of indexes with types counts none.
            let keys = if matches!(self.search.1, Order::Plain(_)) { self.examined } else { 0 };
            stats.push("total_keys_examined", keys);
            stats.push("total_docs_examined", self.examined);
            stats.push("total_quorum_docs_examined", 0_u64);
            stats.push("results_returned", self.results);
            let spent_ms = self.env.now().since(self.started).as_secs_f64() * 1000.0;
            let number = format!("{spent_ms:.3}");
            stats.push("execution_time_ms", json::parse(number.as_bytes()).unwrap_or(Value::Null));
            tail.push("execution_stats", stats);
        }
        let mut out = tail.to_vec();
        out.remove(0);
        out.push(b'\n');
        out
    }
}
