//! `/_node/_local/_dbs`: where the copies of each database are, as the documents that they are in CouchDB.
//!
//! A document can be edited: a range can get a copy on another node, lose one, or have one moved. That is done step by
//! step and by majority (`coordinator/moves`); the answer tells that it began.

use std::collections::{BTreeMap, BTreeSet};

use http::StatusCode;
use serde_json::json;

use super::super::request::Verb;
use super::super::{Context, Problem, Reply, Request, Result};
use crate::coordinator::{Database, NamesQuery};
use crate::document::json::{Object, Value};

/// `path` is what stands behind `_dbs`.
///
/// # Errors
/// 404 for unknown databases, 409 for another revision than the present one, 400 for copies that cannot be so.
pub async fn handle(ctx: &Context, request: Request, path: &[&str]) -> Result<Reply> {
    match (path, request.verb) {
        ([], Verb::Get) => {
            let count = ctx.coordinator.database_names(&NamesQuery::default()).len();
            Ok(Reply::value(StatusCode::OK, &json!({"db_name": "_dbs", "doc_count": count, "doc_del_count": 0})))
        }
        (["_all_docs"], Verb::Get) => all_docs(ctx),
        ([] | ["_all_docs"], _) => Err(Problem::method_not_allowed("GET,HEAD")),
        (name, Verb::Get) => {
            let database = open(ctx, &name.join("/"))?;
            let etag = format!("\"{}\"", rev(&database));
            Ok(Reply::json(StatusCode::OK, document(&database).to_vec()).etag(&etag))
        }
        (name, Verb::Put) => edit(ctx, request, &name.join("/")).await,
        _ => Err(Problem::method_not_allowed("GET,HEAD,PUT")),
    }
}

fn open(ctx: &Context, name: &str) -> Result<std::sync::Arc<Database>> {
    ctx.coordinator.database(name).map_err(|_| Problem::missing())
}

fn all_docs(ctx: &Context) -> Result<Reply> {
    let mut rows = Vec::new();
    for name in ctx.coordinator.database_names(&NamesQuery::default()) {
        // One that is deleted meanwhile is left out.
        if let Ok(database) = ctx.coordinator.database(&name) {
            rows.push(json!({"id": name, "key": name, "value": {"rev": rev(&database)}}));
        }
    }
    Ok(Reply::value(StatusCode::OK, &json!({"total_rows": rows.len(), "offset": 0, "rows": rows})))
}

fn rev(database: &Database) -> String {
    let (version, _) = database.map_version();
    let hash = blake3::hash(format!("{} {version}", database.instance()).as_bytes());
    format!("{}-{}", version + 1, &hash.to_hex()[..32])
}

fn strings<'s>(list: impl IntoIterator<Item = &'s String>) -> Value {
    Value::Array(list.into_iter().map(|text| Value::String(text.clone())).collect())
}

fn document(database: &Database) -> Object {
    let ranges = database.shards();
    let (_, created_s) = database.map_version();
    let suffix = format!(".{created_s}");
    let mut by_node: BTreeMap<&String, Vec<&String>> = BTreeMap::new();
    let (mut log, mut by_range, mut nodes) = (Vec::new(), Object::new(), Object::new());
    for (range, holders) in &ranges {
        by_range.push(range, strings(holders));
        for node in holders {
            by_node.entry(node).or_default().push(range);
            log.push(strings([&"add".to_owned(), range, node]));
        }
    }
    by_node.into_iter().for_each(|(node, ranges)| nodes.push(node, strings(ranges)));
    let mut out = Object::new();
    out.push("_id", database.name.as_str());
    out.push("_rev", rev(database).as_str());
    out.push("shard_suffix", Value::Array(suffix.bytes().map(|byte| Value::Int(byte.into())).collect()));
    out.push("changelog", Value::Array(log));
    out.push("by_node", Value::Object(nodes));
    out.push("by_range", Value::Object(by_range));
    let mut props = Object::new();
    if database.map().partitioned {
        props.push("partitioned", true);
    }
    out.push("props", Value::Object(props));
    out
}

/// Begins to bring the copies to where the document wants them.
async fn edit(ctx: &Context, mut request: Request, name: &str) -> Result<Reply> {
    let database = open(ctx, name)?;
    let body = request.json_object().await?;
    let given = body.get("_rev").and_then(Value::as_str).or(request.query.get("rev"));
    if given != Some(rev(&database).as_str()) {
        return Err(Problem::conflict());
    }
    let wanted = body.get("by_range").and_then(Value::as_object);
    let wanted = wanted.ok_or_else(|| Problem::bad_request("`by_range` must be an object"))?;
    let mut steps = Vec::new();
    let ranges = database.shards();
    if wanted.iter().count() != ranges.len() {
        return Err(Problem::bad_request("Ranges are changed by _reshard only"));
    }
    for (range, nodes) in &ranges {
        let listed = wanted.get(range).and_then(Value::as_array);
        let listed = listed.ok_or_else(|| Problem::bad_request("Ranges are changed by _reshard only"))?;
        let names: Option<BTreeSet<String>> = listed.iter().map(|node| node.as_str().map(str::to_owned)).collect();
        let names = names.ok_or_else(|| Problem::bad_request("Nodes must be strings"))?;
        steps.extend(step(ctx, range, &nodes.iter().cloned().collect(), &names)?);
    }
    for (range, from, to) in steps {
        ctx.coordinator.move_copy(&database, &range, from, to).await?;
    }
    let body = json!({"ok": true, "id": name, "rev": rev(&database)});
    Ok(Reply::value(StatusCode::CREATED, &body))
}

type Step = (String, Option<String>, Option<String>);

/// What is to become of one range.
fn step(ctx: &Context, range: &str, now: &BTreeSet<String>, wanted: &BTreeSet<String>) -> Result<Option<Step>> {
    let (lost, new): (Vec<&String>, Vec<&String>) =
        (now.difference(wanted).collect(), wanted.difference(now).collect());
    if wanted.is_empty() {
        return Err(Problem::bad_request(format!("The range {range} needs a copy")));
    }
    if lost.len() > 1 || new.len() > 1 {
        return Err(Problem::bad_request(format!("One copy of the range {range} can be moved at a time")));
    }
    let is_member = |name: &&String| ctx.cluster.members().iter().any(|member| member.name.as_str() == name.as_str());
    if let Some(stranger) = new.iter().find(|name| !is_member(name)) {
        return Err(Problem::bad_request(format!("{stranger} is no member of the cluster")));
    }
    let (from, to) = (lost.first().map(|name| (*name).clone()), new.first().map(|name| (*name).clone()));
    Ok((from.is_some() || to.is_some()).then(|| (range.to_owned(), from, to)))
}
