//! `_find` and `_explain`: this module reads requests and writes answers; `index::mango` makes the plan and
//! `coordinator::read::find` reads the documents.

use std::sync::Arc;

use http::StatusCode;

use super::find_text;
use super::partition;
use crate::auth::access::Class;
use crate::coordinator::{Database, FindIndex, FindQuery, Hit, Hits, ReadOperations};
use crate::document::collate::Collator;
use crate::document::id::check_partition;
use crate::document::json::{self, JsonError, Object, Value};
use crate::document::selector::{FieldRange, Subject};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::mango::bookmark::{Bookmark, NIL};
use crate::index::mango::candidates::Indexes;
use crate::index::mango::catalogue::FieldIndex;
use crate::index::mango::explain::{ExplainContext, explain as explained};
use crate::index::mango::groups::{GroupBy, Groups};
use crate::index::mango::planner::{Partitioning, Plan, plan, warning};
use crate::index::mango::request::FindRequest;
use crate::index::mango::text::TextIndex;
use crate::limits;
use crate::observe::metrics::{Counter, Histogram};
use crate::script::Program;
use crate::world::{Env, Instant};

/// A query, and the indexes that may answer it.
pub struct FindContext {
    pub db: Arc<Database>,
    pub request: FindRequest,
    pub partition: Option<String>,
    /// The design documents that the indexes were found in.
    pub programs: Arc<[Program]>,
    pub indexes: Vec<FieldIndex>,
    pub texts: Vec<TextIndex>,
}

async fn read(ctx: &Context, request: &mut Request, db: &str, partition: Option<&str>) -> Result<FindContext> {
    let db = ctx.open(db, request, Class::Member)?;
    if let Some(name) = partition {
        partition::check(&db, name)?;
    }
    request.require_json()?;
    let body = request.query_object().await?;
    let size = usize::try_from(request.body.read_bytes()).unwrap_or(usize::MAX);
    let request = request.body.lasting(size, move || FindRequest::parse(&body)).await?;
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
        if !db.map().partitioned {
            return Err(Problem::query_parse("`partition` parameter is not supported on this db"));
        }
        check_partition(name)?;
    }
    let programs = db.design_docs().programs().await?;
    let (indexes, texts) = indexes(ctx, &db, &programs);
    Ok(FindContext { db, request, partition: own.or(partition.map(str::to_owned)), programs, indexes, texts })
}

/// The indexes of a database by its design documents: those over fields by design document and name, and those over
/// texts.
pub fn indexes(ctx: &Context, db: &Database, programs: &[Program]) -> (Vec<FieldIndex>, Vec<TextIndex>) {
    let of = |program: &Program| FieldIndex::all(program.id().as_str(), program.body(), db.map().partitioned);
    let mut indexes: Vec<FieldIndex> = programs.iter().flat_map(of).collect();
    indexes.sort_by(|a, b| (&a.ddoc, &a.name).cmp(&(&b.ddoc, &b.name)));
    (indexes, find_text::text_indexes(ctx, db, programs))
}

impl FindContext {
    pub fn plan(&self, collator: &Collator) -> std::result::Result<Plan, crate::index::mango::MangoError> {
        plan(&self.request, &self.indexes, self.partitioning(), collator)
    }

    pub fn partitioning(&self) -> Partitioning {
        Partitioning { database: self.db.map().partitioned, query: self.partition.is_some() }
    }

    /// The design document of one of its indexes.
    pub fn program(&self, ddoc: &str) -> Program {
        // Invariant: indexes were found in these.
        self.programs.iter().find(|program| program.id().as_str() == ddoc).expect("its design document").clone()
    }
}

/// POST `/{db}/_explain`, also of a partition. With `?range=true` the answer has a member `range`, which CouchDB 3.5
/// has not and its documentation has.
///
/// # Errors
/// As [`find`], but for a sort that no index has.
pub async fn explain(ctx: &Context, mut request: Request, db: &str, partition: Option<&str>) -> Result<Reply> {
    let asked = read(ctx, &mut request, db, partition).await?;
    if let Some(chosen) = find_text::chosen(&asked)? {
        return Ok(find_text::explain(&asked, &asked.texts, &chosen, &ctx.collator));
    }
    let choice = match asked.plan(&ctx.collator) {
        Ok(plan) => Ok(plan.index),
        Err(error) if error.name == "no_usable_index" => Err(()),
        Err(error) => return Err(error.into()),
    };
    let about = ExplainContext {
        database: &asked.db.name,
        partitioned: asked.db.map().partitioned,
        partition: asked.partition.as_deref(),
        with_range: request.query.flag("range"),
    };
    let indexes = Indexes { fields: &asked.indexes, texts: &asked.texts, chosen: None };
    let answer = explained(&asked.request, &choice, indexes, about, &ctx.collator);
    Ok(Reply::json(StatusCode::OK, answer.to_vec()))
}

/// Whether CouchDB sees before it reads that nothing can be found: a combination of nothing, or conditions that
/// contradict each other on what the index has first. Its answer then has `docs` alone, and no bookmark is looked at.
fn is_pointless(request: &FindRequest, index: Option<&FieldIndex>, collator: &Collator) -> bool {
    let first = index.map_or(Some("_id"), |index| index.names().first().copied());
    let is_empty = |field: &str| request.selector.field_range(field, collator) == FieldRange::Empty;
    request.selector.is_empty_combination() || first.is_some_and(is_empty)
}

/// POST `/{db}/_find`, also of a partition. Documents are streamed while they are found.
///
/// # Errors
/// 400 for what is wrong with the request or has no index, 500 when rows cannot be read.
pub async fn find(ctx: &Context, mut request: Request, db: &str, partition: Option<&str>) -> Result<Reply> {
    let asked = read(ctx, &mut request, db, partition).await?;
    if !asked.request.selector.is_empty_combination()
        && let Some(chosen) = find_text::chosen(&asked)?
    {
        return find_text::find(ctx, asked, chosen).await;
    }
    let plan = asked.plan(&ctx.collator)?;
    let found_in = |fields: FieldIndex| FindIndex { program: asked.program(&fields.ddoc), fields };
    let index = plan.index.clone().map(found_in);
    let FindContext { db, request, partition, .. } = asked;
    let is_extended = request.count || request.groups.is_some();
    if !is_extended && is_pointless(&request, plan.index.as_ref(), &ctx.collator) {
        return Ok(Reply::json(StatusCode::OK, "{\"docs\":[\n]}"));
    }
    let after = request.after()?;
    if plan.index.is_some() && after.as_ref().is_some_and(|bookmark| bookmark.key.is_none()) {
        return Err(Problem::invalid("invalid_bookmark", "The bookmark is of another index."));
    }
    let (env, started) = (ctx.env.clone(), ctx.env.now());
    if plan.index.is_none() {
        env.metrics().count(Counter::FindScans);
    }
    let request = Arc::new(request);
    let collator = ctx.collator.clone();
    let (skip, left, last) = (request.skip, request.limit, after.clone());
    let query = FindQuery { request: Arc::clone(&request), after, index, partition, collator };
    let hits = db.queries().find(query).await?;
    let database = db.name.clone();
    let mut finder =
        Finder { env, database, plan, started, hits, skip, left, last, figures: Figures::default(), request };
    if let Some(by) = finder.request.groups.clone() {
        return finder.groups(ctx, &by).await;
    }
    let mut page = finder.next().await?;
    Ok(Reply::generate(move |mut sink| async move {
        sink.write(b"{\"docs\":[").await?;
        let mut separator: &[u8] = b"\n";
        while let Some(docs) = page {
            sink.page(docs.iter().map(Vec::len).sum());
            for doc in docs {
                sink.write(separator).await?;
                sink.write(&doc).await?;
                separator = b",\n";
            }
            sink.room(true).await?;
            page = finder.next().await?;
        }
        sink.page(0);
        sink.write(b"\n],\n").await?;
        sink.write(&finder.tail()).await?;
        sink.flush().await
    }))
}

/// What a query cost and gave so far.
#[derive(Default)]
struct Figures {
    keys: u64,
    docs: u64,
    results: u64,
    /// Matches, given out or not.
    matches: u64,
}

/// A query being answered.
struct Finder {
    env: Env,
    database: String,
    request: Arc<FindRequest>,
    plan: Plan,
    started: Instant,
    hits: Hits,
    skip: u64,
    left: u64,
    /// The last document given, or where the page before ended.
    last: Option<Bookmark>,
    figures: Figures,
}

impl Finder {
    /// The next matches, at most `wanted`; `None` at the end.
    async fn page(&mut self, wanted: u64) -> Result<Option<Vec<Hit>>> {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        let Some(page) = self.hits.next(wanted).await? else { return Ok(None) };
        self.env.metrics().add(Counter::FindDocuments, page.docs);
        self.figures.keys += page.keys;
        self.figures.docs += page.docs;
        self.figures.matches += page.hits.len() as u64;
        Ok(Some(page.hits))
    }

    /// The next documents as JSON texts, perhaps none; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        if self.left == 0 {
            // Only counted any more.
            while self.request.count && self.page(u64::MAX).await?.is_some() {}
            self.look_ahead().await?;
            return Ok(None);
        }
        let Some(mut hits) = self.page(self.skip.saturating_add(self.left)).await? else { return Ok(None) };
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(hits.len());
        if let Some(last) = hits.drain(..skipped).next_back() {
            self.last = Some(last.bookmark());
        }
        hits.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
        self.skip -= skipped as u64;
        self.left -= hits.len() as u64;
        self.figures.results += hits.len() as u64;
        self.env.metrics().add(Counter::FindResults, hits.len() as u64);
        if let Some(last) = hits.last() {
            self.last = Some(last.bookmark());
        }
        Ok(Some(self.hits.texts(hits).await?))
    }

    /// With `execution_stats`, reads on to the first match behind the last result: CouchDB has examined that one, too,
    /// and those that are skipped even where none is wanted.
    async fn look_ahead(&mut self) -> Result<()> {
        if !self.request.execution_stats || self.request.count {
            return Ok(());
        }
        let mut left = self.skip.saturating_add(1);
        while left > 0 {
            let Some(hits) = self.page(left).await? else { break };
            left -= (hits.len() as u64).min(left);
        }
        Ok(())
    }

    /// The whole answer of a query with `group_by`.
    async fn groups(mut self, ctx: &Context, by: &GroupBy) -> Result<Reply> {
        let mut groups = Groups::new(by, &ctx.collator);
        while let Some(hits) = self.page(u64::MAX).await? {
            let take =
                |groups: &mut Groups, hit: &dyn Subject| -> std::result::Result<(), JsonError> { groups.add(hit) };
            groups = self.hits.each(hits, groups, take).await?;
            if groups.is_too_many() {
                let reason = format!("The query makes more than {} groups.", limits::FIND_GROUPS_MAX);
                return Err(Problem::invalid("too_many_groups", reason));
            }
        }
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let shown: Vec<Value> = groups.finish().skip(number(self.skip)).take(number(self.left)).collect();
        self.figures.results = shown.len() as u64;
        let mut out = b"{\"groups\":".to_vec();
        Value::Array(shown).write(&mut out);
        out.push(b',');
        out.extend_from_slice(&self.tail());
        out.pop();
        Ok(Reply::json(StatusCode::OK, out))
    }

    /// The members behind the documents, with the last brace and a line end.
    fn tail(&self) -> Vec<u8> {
        let figures = &self.figures;
        let examined = if self.hits.is_covering() { 0 } else { figures.docs };
        let took = self.env.now().since(self.started);
        self.env.metrics().record_ms(Histogram::FindTime, took);
        let mut tail = Object::new();
        tail.push("bookmark", self.last.as_ref().map_or(NIL.to_owned(), Bookmark::encode));
        if self.request.count {
            tail.push("count", figures.matches);
        }
        if self.request.execution_stats {
            let by_quorum = self.request.r > 1;
            let mut stats = Object::new();
            stats.push("total_keys_examined", figures.keys);
            stats.push("total_docs_examined", if by_quorum { 0 } else { examined });
            stats.push("total_quorum_docs_examined", if by_quorum { examined } else { 0 });
            stats.push("results_returned", figures.results);
            let spent_ms = took.as_secs_f64() * 1000.0;
            let number = format!("{spent_ms:.3}");
            stats.push("execution_time_ms", json::parse(number.as_bytes()).unwrap_or(Value::Null));
            tail.push("execution_stats", stats);
        }
        let all = self.request.groups.is_some() || self.request.count;
        let results = if all { figures.matches } else { figures.results };
        if let Some(text) = warning(&self.plan, &self.request, &self.database, examined, results) {
            tail.push("warning", text);
        }
        let mut out = tail.to_vec();
        out.remove(0);
        out.push(b'\n');
        out
    }
}
