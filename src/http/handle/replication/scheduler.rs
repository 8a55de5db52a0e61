//! `_scheduler`: running replications, and the documents that configure replications.
//!
//! Each node knows its own replications; the node that is asked collects those of all nodes that are up.

use std::collections::BTreeMap;

use http::StatusCode;

use crate::coordinator::{AllDocsQuery, AllDocsRow, Database, KeyBounds, ReadOperations, Want};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::http::forward;
use crate::http::handle::query::view_query::ViewArgs;
use crate::http::query::{self, Query};
use crate::http::response::encode_segment;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::replicate::documents::{DocumentState, is_replicator_database, without_credentials};
use crate::replicate::{Event, Job, Origin, ReplicateError, State};
use crate::wire::iso_time::iso_time;

/// Jobs that one request without `limit` is shown.
const JOBS: u64 = 100;
/// The same of documents, which are gathered here. CouchDB has no such limit.
const DOCUMENTS: u64 = 10_000;
/// The states of documents, as CouchDB 3.5 lists them.
const STATES: [&str; 7] = ["initializing", "error", "running", "pending", "crashing", "completed", "failed"];

/// `GET /_scheduler/..`
///
/// # Errors
/// 404 for unknown jobs, documents and paths; 400 for parameters that make no sense.
pub async fn scheduler(ctx: &Context, request: &Request, rest: &[String]) -> Result<Reply> {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["jobs"] => jobs(ctx, request).await,
        ["jobs", id] => {
            // A plus sign in a path may be taken for a space on the way.
            let id = Value::from(id.replace(' ', "+"));
            let job = all_jobs(ctx, request).await.into_iter().find(|job| job.get("id") == Some(&id));
            Ok(Reply::json(StatusCode::OK, job.ok_or_else(Problem::missing)?.to_vec()))
        }
        ["docs"] => documents(ctx, request, "_replicator").await,
        ["docs", rest @ ..] => {
            let (database, id) = named(rest)?;
            match id {
                None => documents(ctx, request, &database).await,
                Some(id) => document(ctx, request, &database, &id).await,
            }
        }
        _ => Ok(Reply::json(StatusCode::NOT_FOUND, r#"{"error":"not found"}"#)),
    }
}

/// Database and document of a path, in which the slash of `X/_replicator` may be escaped or not.
fn named(parts: &[&str]) -> Result<(String, Option<String>)> {
    let invalid = || Problem::bad_request("Invalid path");
    let last = parts.iter().position(|part| is_replicator_database(part)).ok_or_else(invalid)?;
    let id = parts[last + 1..].join("/");
    Ok((parts[..=last].join("/"), Some(id).filter(|id| !id.is_empty())))
}

/// A number of the list of jobs, which words its refusals in its own way.
fn number(request: &Request, name: &str, default: u64) -> Result<u64> {
    let Some(text) = request.query.get(name) else { return Ok(default) };
    let number = query::integer(text).map_err(|_| Problem::query_parse(format!("{name} must be an integer")))?;
    u64::try_from(number).map_err(|_| Problem::query_parse(format!("{name} not in range of [0,infinity]")))
}

fn size(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// `GET /_node/_local/_scheduler/..`: what this node has of it, for the others.
///
/// # Errors
/// 404 for unknown paths.
pub fn here(ctx: &Context, parts: &[&str]) -> Result<Reply> {
    let of_jobs = |told: fn(&Context, &Job) -> Object, wanted: &dyn Fn(&Job) -> bool| {
        let jobs = ctx.replicator.jobs().into_iter().filter(|job| wanted(job));
        let told: Vec<Value> = jobs.map(|job| Value::Object(told(ctx, &job))).collect();
        Reply::json(StatusCode::OK, Value::Array(told).to_vec())
    };
    match parts {
        ["jobs"] => Ok(of_jobs(described, &|_| true)),
        ["docs", database] => {
            let wanted = |job: &Job| job.origin.as_ref().is_some_and(|origin| origin.database == *database);
            Ok(of_jobs(active, &wanted))
        }
        _ => Err(Problem::missing()),
    }
}

/// What the other nodes have at a path of [`here`].
async fn elsewhere(ctx: &Context, request: &Request, below: &str) -> Vec<Object> {
    let answers = forward::ask_others(ctx, request, &format!("_scheduler/{below}")).await;
    let listed = answers.into_iter().flat_map(|answer| match answer {
        Value::Array(listed) => listed,
        _ => Vec::new(),
    });
    listed.filter_map(|told| if let Value::Object(told) = told { Some(told) } else { None }).collect()
}

/// The jobs of all nodes, by id.
async fn all_jobs(ctx: &Context, request: &Request) -> Vec<Object> {
    let mut jobs: Vec<Object> = ctx.replicator.jobs().iter().map(|job| described(ctx, job)).collect();
    jobs.extend(elsewhere(ctx, request, "jobs").await);
    jobs.sort_by_cached_key(|job| job.get("id").and_then(Value::as_str).map(str::to_owned));
    jobs
}

async fn jobs(ctx: &Context, request: &Request) -> Result<Reply> {
    let (limit, skip) = (number(request, "limit", JOBS)?, number(request, "skip", 0)?);
    let jobs = all_jobs(ctx, request).await;
    let total = jobs.len() as u64;
    let shown = jobs.into_iter().skip(size(skip)).take(size(limit)).map(Value::Object);
    Ok(page(total, skip, "jobs", shown.collect()))
}

fn page(total: u64, skip: u64, name: &str, items: Vec<Value>) -> Reply {
    let mut out = Object::new();
    out.push("total_rows", total);
    out.push("offset", skip.min(total));
    out.push(name, Value::Array(items));
    Reply::json(StatusCode::OK, out.to_vec())
}

/// The states that are asked for; `None`: all.
fn states(request: &Request) -> Result<Option<Vec<String>>> {
    let text = request.query.get("states").unwrap_or_default();
    let asked: Vec<String> = text.split(',').filter(|state| !state.is_empty()).map(str::to_ascii_lowercase).collect();
    if asked.is_empty() {
        return Ok(None);
    }
    if asked.iter().any(|state| !STATES.contains(&state.as_str())) {
        let reason = format!("States must be one or more of [{}]", STATES.join(","));
        return Err(Problem::query_parse(reason));
    }
    Ok(Some(asked))
}

fn open(ctx: &Context, name: &str) -> Result<std::sync::Arc<Database>> {
    Ok(ctx.coordinator.database(name)?)
}

async fn documents(ctx: &Context, request: &Request, database: &str) -> Result<Reply> {
    // The parameters of `_all_docs`, but that nothing is reduced whatever is said.
    request.query.boolean("reduce")?;
    let others = request.query.iter().filter(|(name, _)| *name != "reduce");
    let pairs = others.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let args = ViewArgs::from_query(&Query::from_pairs(pairs))?;
    let (limit, skip) = (args.limit.min(DOCUMENTS), args.skip);
    let states = states(request)?;
    let db = open(ctx, database)?;
    let others = Others::of(ctx, request, database).await;
    let keys = KeyBounds::Range { start: args.start_key, end: args.end_key, inclusive_end: args.inclusive_end };
    let wanted = AllDocsQuery { keys, descending: args.descending, include_docs: true, ..AllDocsQuery::default() };
    let mut rows = db.lists().all_docs(wanted).await?;
    // All documents of the database, as CouchDB counts them.
    let (total, before) = (rows.total_rows.unwrap_or(0), rows.offset.unwrap_or(0));
    let (mut passed, mut shown) = (0, Vec::new());
    while (shown.len() as u64) < limit
        && let Some(page) = rows.next().await?
    {
        for row in page {
            let AllDocsRow::Found { id, doc: Some(Some(doc)), .. } = row else { continue };
            if id.is_design() {
                continue;
            }
            let Ok(Value::Object(body)) = json::parse(&doc.stored.body) else { continue };
            let told = told(ctx, &others, database, id.as_str(), &body);
            let state = told.get("state").and_then(Value::as_str).unwrap_or_default();
            if states.as_ref().is_some_and(|asked| !asked.iter().any(|wanted| wanted == state)) {
                continue;
            }
            passed += 1;
            if passed > skip && (shown.len() as u64) < limit {
                shown.push(Value::Object(told));
            }
        }
    }
    Ok(page(total, before.saturating_add(skip), "docs", shown))
}

async fn document(ctx: &Context, request: &Request, database: &str, id: &str) -> Result<Reply> {
    let db = open(ctx, database)?;
    let found = db.documents().fetch_one(&DocId::new(id), Want::Winner).await?;
    let stored = found.filter(|stored| !stored.deleted).ok_or_else(Problem::missing)?;
    let Ok(Value::Object(body)) = json::parse(&stored.body) else { return Err(Problem::missing()) };
    let others = Others::of(ctx, request, database).await;
    Ok(Reply::json(StatusCode::OK, told(ctx, &others, database, id, &body).to_vec()))
}

/// What other nodes tell of the documents of a database that they work for, by id.
struct Others(BTreeMap<String, Object>);

impl Others {
    async fn of(ctx: &Context, request: &Request, database: &str) -> Others {
        let below = format!("docs/{}", encode_segment(database));
        let by_id = |told: Object| Some((told.get("doc_id")?.as_str()?.to_owned(), told));
        Others(elsewhere(ctx, request, &below).await.into_iter().filter_map(by_id).collect())
    }
}

/// What is told of a document.
fn told(ctx: &Context, others: &Others, database: &str, id: &str, body: &Object) -> Object {
    let origin = Origin { database: database.to_owned(), doc_id: id.to_owned() };
    let mut out = Object::new();
    out.push("database", database);
    out.push("doc_id", id);
    match (ctx.replicator.document_state(&origin, body), others.0.get(id)) {
        (DocumentState::Active(job), _) => return active(ctx, &job),
        (DocumentState::Settled, _) => settled(body, &mut out),
        (DocumentState::Initializing, Some(told)) => return told.clone(),
        (DocumentState::Initializing, None) => {
            out.push("id", Value::Null);
            endpoints(body, &mut out);
            out.push("state", "initializing");
            out.push("error_count", 0_u64);
            out.push("info", Value::Null);
            out.push("start_time", Value::Null);
            out.push("last_updated", Value::Null);
        }
    }
    out
}

/// A document whose job is on this node.
fn active(ctx: &Context, job: &Job) -> Object {
    let health = job.health();
    let failure = health.error.filter(|_| health.state == State::Crashing);
    // Without its filter it is not known which replication it is.
    let unfit = matches!(failure, Some(ReplicateError::NoFilter(_)));
    let info = match failure {
        Some(error) => std::iter::once(("error".to_owned(), Value::from(error.text()))).collect(),
        None => job.info(),
    };
    let mut out = Object::new();
    let origin = job.origin.as_ref();
    out.push("database", text_or_null(origin.map(|origin| origin.database.as_str())));
    out.push("doc_id", text_or_null(origin.map(|origin| origin.doc_id.as_str())));
    out.push("id", text_or_null(Some(job.id.as_str()).filter(|_| !unfit)));
    out.push("node", ctx.node_name.as_str());
    out.push("source", job.source.as_str());
    out.push("target", job.target.as_str());
    out.push("source_proxy", text_or_null(job.source_proxy.as_deref()));
    out.push("target_proxy", text_or_null(job.target_proxy.as_deref()));
    out.push("state", if unfit { "error" } else { health.state.name() });
    out.push("error_count", health.errors);
    out.push("info", info);
    out.push("start_time", iso_time(job.started));
    out.push("last_updated", iso_time(job.progress().updated.max(job.started)));
    out
}

/// A document that says itself what came of it.
fn settled(body: &Object, out: &mut Object) {
    let state = body.get("_replication_state").and_then(Value::as_str).unwrap_or("completed");
    let time = body.get("_replication_state_time").cloned().unwrap_or(Value::Null);
    let mut info = body.get("_replication_stats").and_then(Value::as_object).cloned().unwrap_or_default();
    let start = info.remove("start_time").unwrap_or_else(|| time.clone());
    if let Some(reason) = body.get("_replication_state_reason") {
        info.push("error", reason.clone());
    }
    out.push("id", Value::Null);
    endpoints(body, out);
    out.push("state", state);
    out.push("error_count", u64::from(state == "failed"));
    out.push("info", info);
    out.push("start_time", start);
    out.push("last_updated", time);
}

/// Source and target without credentials, with a slash at the end.
fn endpoints(body: &Object, out: &mut Object) {
    let bare = without_credentials(body.clone());
    for side in ["source", "target"] {
        let url = match bare.get(side) {
            Some(Value::String(url)) => Some(url.as_str()),
            Some(Value::Object(endpoint)) => endpoint.get("url").and_then(Value::as_str),
            _ => None,
        };
        out.push(side, url.map_or(Value::Null, |url| Value::from(format!("{}/", url.trim_end_matches('/')))));
    }
}

fn text_or_null(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

/// A job as `_scheduler/jobs` shows it.
fn described(ctx: &Context, job: &Job) -> Object {
    let event = |event: Event| {
        let mut out = Object::new();
        out.push("timestamp", iso_time(event.at));
        out.push("type", event.kind);
        if let Some(reason) = event.reason {
            out.push("reason", reason);
        }
        Value::Object(out)
    };
    let origin = job.origin.as_ref();
    let mut out = Object::new();
    out.push("database", text_or_null(origin.map(|origin| origin.database.as_str())));
    out.push("id", job.id.as_str());
    out.push("pid", pid(job));
    out.push("source", job.source.as_str());
    out.push("target", job.target.as_str());
    out.push("user", text_or_null(job.user.as_deref()));
    out.push("doc_id", text_or_null(origin.map(|origin| origin.doc_id.as_str())));
    out.push("info", job.info());
    out.push("history", Value::Array(job.events().into_iter().map(event).collect()));
    out.push("node", ctx.node_name.as_str());
    out.push("start_time", iso_time(job.started));
    out
}

/// A job as `_active_tasks` shows it.
pub fn task(ctx: &Context, job: &Job) -> Object {
    let origin = job.origin.as_ref();
    let mut out = Object::new();
    out.push("type", "replication");
    out.push("pid", pid(job));
    out.push("node", ctx.node_name.as_str());
    out.push("replication_id", job.id.as_str());
    out.push("database", text_or_null(origin.map(|origin| origin.database.as_str())));
    out.push("doc_id", text_or_null(origin.map(|origin| origin.doc_id.as_str())));
    out.push("user", text_or_null(job.user.as_deref()));
    out.push("source", job.source.as_str());
    out.push("target", job.target.as_str());
    out.push("continuous", job.continuous);
    out.push("checkpoint_interval", job.checkpoint_interval.as_millis() as u64);
    out.push("started_on", job.started.as_secs());
    out.push("updated_on", job.progress().updated.max(job.started).as_secs());
    for (name, value) in job.info() {
        out.push(name, value);
    }
    out
}

/// In the place of a process, which there is none of.
fn pid(job: &Job) -> String {
    format!("<0.{}.0>", job.number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_a_database_and_a_document() {
        let of = |parts: &[&str]| named(parts).ok();
        let some = |db: &str, id: Option<&str>| Some((db.to_owned(), id.map(str::to_owned)));
        assert_eq!(of(&["_replicator"]), some("_replicator", None));
        assert_eq!(of(&["_replicator", "a/b"]), some("_replicator", Some("a/b")));
        assert_eq!(of(&["x/_replicator", "a"]), some("x/_replicator", Some("a")));
        assert_eq!(of(&["x", "_replicator", "a"]), some("x/_replicator", Some("a")));
        assert_eq!(of(&["other"]), None);
    }
}
