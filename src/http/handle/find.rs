//! `_find` and `_explain`: the plan is made by `index::mango`, rows come from an index or from all documents, and the
//! selector judges each document.

use std::sync::Arc;

use http::StatusCode;

use crate::auth::access::Class;
use crate::coordinator::{
    AllDocs, AllDocsQuery, AllDocsRow, Database, DocSource, KeyBound, KeyBounds, KeySpan, RowDoc, Update, ViewKeys,
    ViewQuery, ViewRows,
};
use crate::document::collate::Collator;
use crate::document::id::{DocId, check_partition};
use crate::document::json::{self, JsonError, Object, Value};
use crate::document::selector::{FieldRange, IndexRange, document_value};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::mango::bookmark::{Bookmark, NIL};
use crate::index::mango::catalogue::FieldIndex;
use crate::index::mango::explain::{Subject, explain as explained};
use crate::index::mango::planner::{Partitioning, Plan, is_covering, plan, warning};
use crate::index::mango::request::FindRequest;
use crate::world::{Env, Instant, Pool};

/// The name of a member that sorts after all others: such an object ends a range of keys.
const GREATEST_NAME: &str = "\u{ffff}";

struct Asked {
    db: Arc<Database>,
    request: FindRequest,
    partition: Option<String>,
    indexes: Vec<FieldIndex>,
}

async fn read(ctx: &Context, mut request: Request, db: &str, partition: Option<&str>) -> Result<Asked> {
    let db = ctx.open(db, &request.user, Class::Member)?;
    if let Some(name) = partition {
        if !db.map.partitioned {
            return Err(Problem::bad_request("database is not partitioned"));
        }
        check_partition(name)?;
    }
    request.require_json()?;
    let body = request.json_object().await?;
    let request = FindRequest::parse(&body)?;
    let own = match &request.partition {
        None => None,
        Some(Value::String(name)) if name.is_empty() => None,
        Some(Value::String(name)) => Some(name.clone()),
        Some(_) => return Err(Problem::invalid("illegal_partition", "Partition must be a string")),
    };
    if own.is_some() && partition.is_some() {
        return Err(Problem::bad_request("The partition is named in the path already."));
    }
    if let Some(name) = &own {
        if !db.map.partitioned {
            return Err(Problem::query_parse("`partition` parameter is not supported on this db"));
        }
        check_partition(name)?;
    }
    let indexes = indexes(&db).await?;
    Ok(Asked { db, request, partition: own.or(partition.map(str::to_owned)), indexes })
}

/// The indexes of a database by design document and name.
///
/// # Errors
/// When the node cannot read.
pub async fn indexes(db: &Database) -> Result<Vec<FieldIndex>> {
    let programs = db.programs().await?;
    let of =
        |program: &crate::script::Program| FieldIndex::all(program.id().as_str(), program.body(), db.map.partitioned);
    let mut indexes: Vec<FieldIndex> = programs.iter().flat_map(of).collect();
    indexes.sort_by(|a, b| (&a.ddoc, &a.name).cmp(&(&b.ddoc, &b.name)));
    Ok(indexes)
}

impl Asked {
    fn plan(&self) -> std::result::Result<Plan, crate::index::mango::MangoError> {
        let partitioning = Partitioning { database: self.db.map.partitioned, query: self.partition.is_some() };
        plan(&self.request, &self.indexes, partitioning)
    }
}

/// POST `/{db}/_explain`, also of a partition.
///
/// # Errors
/// As [`find`], but for a sort that no index has.
pub async fn explain(ctx: &Context, request: Request, db: &str, partition: Option<&str>) -> Result<Reply> {
    let asked = read(ctx, request, db, partition).await?;
    let choice = match asked.plan() {
        Ok(plan) => Ok(plan.index),
        Err(error) if error.name == "no_usable_index" => Err(()),
        Err(error) => return Err(error.into()),
    };
    let subject = Subject { database: &asked.db.name, partition: asked.partition.as_deref() };
    let answer = explained(&asked.request, &choice, &asked.indexes, subject, &ctx.collator);
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// POST `/{db}/_find`, also of a partition.
///
/// # Errors
/// 400 for what is wrong with the request or has no index, 500 when rows cannot be read.
pub async fn find(ctx: &Context, request: Request, db: &str, partition: Option<&str>) -> Result<Reply> {
    let asked = read(ctx, request, db, partition).await?;
    let plan = asked.plan()?;
    let started = ctx.env.now();
    let rows = begin(ctx, &asked, &plan).await?;
    let Asked { request, .. } = asked;
    let (skip, left) = (request.skip, request.limit);
    let last = request.bookmark.clone();
    let (env, collator) = (ctx.env.clone(), ctx.collator.clone());
    let request = Arc::new(request);
    let mut finder = Finder { env, collator, request, rows, skip, left, last, keys: 0, docs: 0, results: 0 };
    let mut page = finder.next().await?;
    Ok(Reply::generate(move |mut sink| async move {
        sink.write(b"{\"docs\":[").await?;
        let mut separator: &[u8] = b"\n";
        while let Some(docs) = page {
            for doc in docs {
                sink.write(separator).await?;
                sink.write(&doc).await?;
                separator = b",\n";
            }
            page = finder.next().await?;
        }
        sink.write(&finder.tail(&plan, started)).await?;
        sink.flush().await
    }))
}

enum Rows {
    None,
    All(AllDocs),
    Index(ViewRows),
}

async fn begin(ctx: &Context, asked: &Asked, plan: &Plan) -> Result<Rows> {
    let request = &asked.request;
    if request.selector.is_empty_combination() || request.limit == 0 {
        return Ok(Rows::None);
    }
    match &plan.index {
        None => scan(ctx, asked).await,
        Some(index) => {
            let names = index.names();
            let IndexRange::Keys { start, mut end } = request.selector.index_range(&names, &ctx.collator) else {
                return Ok(Rows::None);
            };
            end.push(Value::Object(Object::from_iter([(GREATEST_NAME.to_owned(), Value::Null)])));
            let (mut start, mut end) = (bound(Value::Array(start)), bound(Value::Array(end)));
            if request.sort.descending {
                std::mem::swap(&mut start, &mut end);
            }
            if let Some(bookmark) = &request.bookmark {
                let refused = || Problem::invalid("invalid_bookmark", "The bookmark is of another index.");
                let key = bookmark.key.clone().ok_or_else(refused)?;
                start = KeyBound { key: Some(key), id: Some(bookmark.id.clone()) };
            }
            let query = ViewQuery {
                keys: ViewKeys::Span(KeySpan { start, end, inclusive_end: true }),
                descending: request.sort.descending,
                skip: 0,
                limit: u64::MAX,
                grouping: None,
                include_docs: true,
                conflicts: request.conflicts,
                totals: false,
                update_seq: false,
                update: if request.update && !request.stale { Update::Before } else { Update::Never },
                partition: asked.partition.clone(),
            };
            let view = asked.db.view(&DocId::new(&index.ddoc), &index.name).await?;
            Ok(Rows::Index(view.begin(query).await?))
        }
    }
}

fn bound(key: Value) -> KeyBound {
    KeyBound { key: Some(key), id: None }
}

/// Reads all documents, from one id to another where the selector says so.
async fn scan(ctx: &Context, asked: &Asked) -> Result<Rows> {
    let request = &asked.request;
    let FieldRange::Between(low, high) = request.selector.field_range("_id", &ctx.collator) else {
        return Ok(Rows::None);
    };
    // What is no text bounds no id here; the selector still judges.
    let text = |bound: Option<crate::document::selector::Bound>| {
        bound.map(|bound| bound.value).filter(|value| value.as_str().is_some())
    };
    let (mut start, mut end) = (text(low), text(high));
    if request.sort.descending {
        std::mem::swap(&mut start, &mut end);
    }
    if let Some(bookmark) = &request.bookmark {
        start = Some(bookmark.id.as_str().into());
    }
    let query = AllDocsQuery {
        source: asked.partition.clone().map_or(DocSource::All, DocSource::Partition),
        keys: KeyBounds::Range { start, end, inclusive_end: true },
        descending: request.sort.descending,
        skip: 0,
        limit: None,
        include_docs: true,
        conflicts: request.conflicts,
        update_seq: false,
    };
    Ok(Rows::All(asked.db.all_docs(query).await?))
}

/// A row that may match: the key's text in an index, and the document.
type Candidate = (Option<Vec<u8>>, Box<RowDoc>);

/// A query being answered.
struct Finder {
    env: Env,
    collator: Collator,
    request: Arc<FindRequest>,
    rows: Rows,
    skip: u64,
    left: u64,
    /// The last document given, or where the page before ended.
    last: Option<Bookmark>,
    keys: u64,
    docs: u64,
    results: u64,
}

impl Finder {
    /// The next documents as JSON texts, perhaps none; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        if self.left == 0 {
            return Ok(None);
        }
        let Some(page) = self.candidates().await? else { return Ok(None) };
        let (request, collator) = (Arc::clone(&self.request), self.collator.clone());
        let judged = self.env.blocking(Pool::Foreground, move || judge(&request, &collator, page)).await;
        let damaged = |JsonError| Problem::internal("A stored document is damaged.");
        let mut texts = Vec::new();
        for matched in judged {
            self.docs += 1;
            let Some((bookmark, text)) = matched.map_err(damaged)? else { continue };
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            self.left -= 1;
            self.results += 1;
            self.last = Some(bookmark);
            texts.push(text);
            if self.left == 0 {
                break;
            }
        }
        Ok(Some(texts))
    }

    async fn candidates(&mut self) -> Result<Option<Vec<Candidate>>> {
        let mut page: Vec<Candidate> = Vec::new();
        match &mut self.rows {
            Rows::None => return Ok(None),
            Rows::All(rows) => {
                let Some(found) = rows.next().await? else { return Ok(None) };
                for row in found {
                    if let AllDocsRow::Found { id, doc: Some(Some(doc)), .. } = row
                        && !id.is_design()
                    {
                        page.push((None, doc));
                    }
                }
            }
            Rows::Index(rows) => {
                let Some(found) = rows.next().await? else { return Ok(None) };
                for row in found {
                    if let Some(Some(doc)) = row.doc {
                        page.push((Some(row.row.key.to_vec()), doc));
                    }
                }
            }
        }
        self.keys += page.len() as u64;
        if let Some(bookmark) = &self.request.bookmark {
            let key = bookmark.key.as_ref().map(Value::to_vec);
            let is_it = |(at, doc): &Candidate| doc.id.as_str() == bookmark.id && (at.is_none() || *at == key);
            page.retain(|candidate| !is_it(candidate));
        }
        Ok(Some(page))
    }

    /// What follows the documents.
    fn tail(&self, plan: &Plan, started: Instant) -> Vec<u8> {
        let covering = plan.index.as_ref().is_some_and(|index| is_covering(&self.request, index));
        let examined = if covering { 0 } else { self.docs };
        let mut tail = Object::new();
        tail.push("bookmark", self.last.as_ref().map_or(NIL.to_owned(), Bookmark::encode));
        if self.request.execution_stats {
            let by_quorum = self.request.r > 1;
            let mut stats = Object::new();
            stats.push("total_keys_examined", self.keys);
            stats.push("total_docs_examined", if by_quorum { 0 } else { examined });
            stats.push("total_quorum_docs_examined", if by_quorum { examined } else { 0 });
            stats.push("results_returned", self.results);
            let spent_ms = self.env.now().since(started).as_secs_f64() * 1000.0;
            let number = format!("{spent_ms:.3}");
            stats.push("execution_time_ms", json::parse(number.as_bytes()).unwrap_or(Value::Null));
            tail.push("execution_stats", stats);
        }
        if let Some(text) = warning(plan, examined, self.results) {
            tail.push("warning", text);
        }
        let mut out = b"\n],\n".to_vec();
        out.extend_from_slice(&tail.to_vec()[1..]);
        out.push(b'\n');
        out
    }
}

type Judged = std::result::Result<Option<(Bookmark, Vec<u8>)>, JsonError>;

/// For each candidate its text when it matches.
fn judge(request: &FindRequest, collator: &Collator, page: Vec<Candidate>) -> Vec<Judged> {
    let one = |(key, doc): Candidate| {
        let mut document = document_value(doc.id.as_str(), &doc.stored)?;
        if !request.selector.matches(&document, collator) {
            return Ok(None);
        }
        if let (Value::Object(object), false) = (&mut document, doc.conflicts.is_empty()) {
            let conflicts = doc.conflicts.iter().map(|rev| Value::String(rev.to_string()));
            object.push("_conflicts", conflicts.collect::<Vec<_>>());
        }
        let key = key.map(|text| json::parse(&text)).transpose()?;
        let bookmark = Bookmark { key, id: doc.id.as_str().to_owned() };
        Ok(Some((bookmark, request.fields.cut(&document).to_vec())))
    };
    page.into_iter().map(one).collect()
}
