//! `/_node/_local/_dbs`: the places of the replicas of each database, as documents like those of CouchDB.
//!
//! A document can be edited: a range can get a replica on another node, lose one, or have one moved. That is done step
//! by step and by majority (`coordinator/rebalance/moves`); the answer tells that it began. While replicas move the
//! document has a field `moves`; a move that is taken out of the list is called off, none without the field.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use crate::coordinator::rebalance::moves::MoveRequest;
use crate::coordinator::{Database, MapEdit, NamesQuery, RebalanceOperations};
use crate::document::json::{Object, Value};
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};

/// `path` is what stands behind `_dbs`.
///
/// # Errors
/// 404 for unknown databases, 409 for another revision than the present one, 400 for replicas that cannot be so.
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
            let etag = format!("\"{}\"", rev(&database, database.map_version().0));
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
            let rev = rev(&database, database.map_version().0);
            rows.push(json!({"id": name, "key": name, "value": {"rev": rev}}));
        }
    }
    Ok(Reply::value(StatusCode::OK, &json!({"total_rows": rows.len(), "offset": 0, "rows": rows})))
}

/// The revision of the document that shows a version of the map.
fn rev(database: &Arc<Database>, version: u64) -> String {
    let hash = blake3::hash(format!("{} {version}", database.instance()).as_bytes());
    format!("{}-{}", version + 1, &hash.to_hex()[..32])
}

fn strings<'s>(list: impl IntoIterator<Item = &'s String>) -> Value {
    Value::Array(list.into_iter().map(|text| Value::String(text.clone())).collect())
}

fn shown(moved: &MoveRequest) -> Value {
    let name = |node: &Option<String>| node.as_ref().map_or(Value::Null, |node| Value::String(node.clone()));
    let mut out = Object::new();
    out.push("range", moved.range.as_str());
    out.push("from", name(&moved.from));
    out.push("to", name(&moved.to));
    Value::Object(out)
}

fn document(database: &Arc<Database>) -> Object {
    // First: what it shows may be of a later version, not of an earlier one.
    let (version, created_s) = database.map_version();
    let ranges = database.shards();
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
    out.push("_rev", rev(database, version).as_str());
    out.push("shard_suffix", Value::Array(suffix.bytes().map(|byte| Value::Int(byte.into())).collect()));
    out.push("changelog", Value::Array(log));
    out.push("by_node", Value::Object(nodes));
    out.push("by_range", Value::Object(by_range));
    let moves = database.own_replicas().moves();
    if !moves.is_empty() {
        out.push("moves", Value::Array(moves.iter().map(shown).collect()));
    }
    let mut props = Object::new();
    if database.map().partitioned {
        props.push("partitioned", true);
    }
    out.push("props", Value::Object(props));
    out
}

/// Begins to bring the replicas to where the document wants them, and calls off the moves that it does not list.
async fn edit(ctx: &Context, mut request: Request, name: &str) -> Result<Reply> {
    let database = open(ctx, name)?;
    let (version, _) = database.map_version();
    let body = request.query_object().await?;
    let given = body.get("_rev").and_then(Value::as_str).or(request.query.get("rev"));
    if given != Some(rev(&database, version).as_str()) {
        return Err(Problem::conflict());
    }
    let wanted = body.get("by_range").and_then(Value::as_object);
    let wanted = wanted.ok_or_else(|| Problem::bad_request("`by_range` must be an object"))?;
    let nodes = |nodes: &Value| -> Option<BTreeSet<String>> {
        nodes.as_array()?.iter().map(|node| node.as_str().map(str::to_owned)).collect()
    };
    let replicas = wanted.iter().map(|(range, listed)| Some((range.to_owned(), nodes(listed)?))).collect::<Option<_>>();
    let replicas = replicas.ok_or_else(|| Problem::bad_request("`by_range` must list the nodes of each range"))?;
    let range = |moved: &Value| moved.as_object()?.get("range")?.as_str().map(str::to_owned);
    let moves = match body.get("moves") {
        None => None,
        Some(listed) => {
            let listed = listed.as_array().and_then(|moves| moves.iter().map(range).collect::<Option<_>>());
            Some(listed.ok_or_else(|| Problem::bad_request("`moves` must list moves, each with its `range`"))?)
        }
    };
    let version = ctx.coordinator.edit_map(&database, &MapEdit { version, replicas, moves }).await?;
    let body = json!({"ok": true, "id": name, "rev": rev(&database, version)});
    Ok(Reply::value(StatusCode::CREATED, &body))
}
