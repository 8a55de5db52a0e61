//! `/_node/_local/_nodes`: the documents of the cluster's members, as the database that they are in CouchDB.

use http::StatusCode;
use serde_json::json;

use crate::cluster::Record;
use crate::document::draft;
use crate::document::json::{Object, Value};
use crate::http::handle::document::checked_id;
use crate::http::handle::document::write::named_revision;
use crate::http::handle::document::write_options::parent_revision;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};

/// `path` is what stands behind `_nodes`.
pub async fn handle(ctx: &Context, request: Request, path: &[&str]) -> Result<Reply> {
    match (path, request.verb) {
        ([], Verb::Get) => Ok(info(ctx)),
        (["_all_docs"], Verb::Get) => all_docs(ctx, &request),
        ([] | ["_all_docs"], _) => Err(Problem::method_not_allowed("GET,HEAD")),
        ([name], Verb::Get) => get(ctx, name),
        ([name], Verb::Put) => put(ctx, request, name).await,
        ([name], Verb::Delete) => delete(ctx, &request, name).await,
        ([_], _) => Err(Problem::method_not_allowed("DELETE,GET,HEAD,PUT")),
        _ => Err(Problem::missing()),
    }
}

/// Whether there is a document of that name of which this holds.
fn is_there(ctx: &Context, name: &str, holds: impl Fn(&Record) -> bool) -> bool {
    ctx.cluster.records().get(name).is_some_and(|record| !record.deleted && holds(record))
}

fn info(ctx: &Context) -> Reply {
    let records = ctx.cluster.records();
    let removed = records.values().filter(|record| record.deleted).count();
    let body = json!({
        "db_name": "_nodes",
        "doc_count": records.len() - removed,
        "doc_del_count": removed,
        "compact_running": false,
        "instance_start_time": "0",
    });
    Reply::value(StatusCode::OK, &body)
}

fn all_docs(ctx: &Context, request: &Request) -> Result<Reply> {
    let with_docs = request.query.boolean("include_docs")? == Some(true);
    let records = ctx.cluster.records();
    let live = records.iter().filter(|(_, record)| !record.deleted);
    let rows: Vec<Value> = live.map(|(name, record)| row(name, record, with_docs)).collect();
    let mut out = Object::new();
    out.push("total_rows", rows.len() as u64);
    out.push("offset", 0u64);
    out.push("rows", Value::Array(rows));
    Ok(Reply::json(StatusCode::OK, out.to_vec()))
}

fn row(name: &str, record: &Record, with_doc: bool) -> Value {
    let mut value = Object::new();
    value.push("rev", record.rev.as_str());
    let mut row = Object::new();
    row.push("id", name);
    row.push("key", name);
    row.push("value", Value::Object(value));
    if with_doc {
        row.push("doc", Value::Object(document(name, record)));
    }
    Value::Object(row)
}

fn document(name: &str, record: &Record) -> Object {
    let mut out = Object::new();
    out.push("_id", name);
    out.push("_rev", record.rev.as_str());
    for (field, value) in record.body().iter() {
        out.push(field, value.clone());
    }
    out
}

fn get(ctx: &Context, name: &str) -> Result<Reply> {
    match ctx.cluster.records().get(name) {
        None => Err(Problem::missing()),
        Some(record) if record.deleted => Err(Problem::not_found("deleted")),
        Some(record) => {
            let etag = format!("\"{}\"", record.rev);
            Ok(Reply::json(StatusCode::OK, document(name, record).to_vec()).etag(&etag))
        }
    }
}

/// The body may be left out: then it is an empty document.
///
/// # Errors
/// 400 for what is no document, as anywhere else; and for a tombstone or attachments, which no member has.
async fn put(ctx: &Context, mut request: Request, name: &str) -> Result<Reply> {
    checked_id(ctx, name)?;
    let empty = request.body.length() == Some(0);
    let draft = draft::parse(if empty { Value::Object(Object::new()) } else { request.json_body().await? })?;
    let rev = parent_revision(draft.rev.as_ref(), request.query.get("rev"), request.header("if-match"))?;
    if draft.deleted || !draft.attachments.is_empty() {
        let field = if draft.deleted { "_deleted" } else { "_attachments" };
        return Err(Problem::invalid("doc_validation", format!("Bad special document member: {field}")));
    }
    if !is_there(ctx, name, |_| true) {
        ctx.coordinator.may_change_members()?;
    }
    let record = ctx.cluster.put_member(name, draft.body, rev.map(|rev| rev.to_string())).await?;
    Ok(changed(StatusCode::CREATED, name, &record))
}

/// With `force` also where fewer than a majority of the voters are in reach: those that are left vote from then on.
async fn delete(ctx: &Context, request: &Request, name: &str) -> Result<Reply> {
    let rev = named_revision(request)?.map(|rev| rev.to_string());
    if rev.is_none() && ctx.config.follows_couchdb() {
        return Err(Problem::conflict());
    }
    let (force, old) = (request.query.flag("force"), ctx.cluster.records().get(name).cloned());
    let counts = |record: &Record| if record.deleted { force } else { record.joined };
    let allowed = match old.as_ref().is_some_and(counts) {
        true => ctx.coordinator.may_change_members(),
        false => Ok(()),
    };
    // Where the others are lost for good nobody else can say so.
    let is_forced = allowed.is_err() && force;
    if !is_forced {
        allowed?;
    }
    let record = match old {
        // It was broken off before the voters were named.
        Some(record) if is_forced && record.deleted => record,
        _ => ctx.cluster.delete_member(name, rev).await?,
    };
    if is_forced {
        ctx.coordinator.force_voters().await?;
    }
    Ok(changed(StatusCode::OK, name, &record))
}

fn changed(status: StatusCode, name: &str, record: &Record) -> Reply {
    let etag = format!("\"{}\"", record.rev);
    Reply::value(status, &json!({"ok": true, "id": name, "rev": record.rev})).etag(&etag)
}
