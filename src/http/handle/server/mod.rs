//! Endpoints of the server: welcome, health, identifiers, lists of databases.

pub mod node;
pub mod not_yet;
pub mod session;
pub mod utils;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::StatusCode;
use http::header::{CACHE_CONTROL, EXPIRES, PRAGMA};
use serde_json::json;

use crate::coordinator::{Coordinator, NamesQuery, ReadError, ShardError};
use crate::document::json::Value;
use crate::http::handle::query::view_query::ViewArgs;
use crate::http::handle::{database, nouveau};
use crate::http::request::Verb;
use crate::http::response::state_etag;
use crate::http::{Context, Problem, Query, Reply, Request, Result};
use crate::limits;

/// The interface level that clients test for; settee's own version stands in `vendor`.
const INTERFACE_VERSION: &str = "3.5.0";
const FEATURES: [&str; 6] =
    ["quickjs", "access-ready", "partitioned", "pluggable-storage-engines", "reshard", "scheduler"];

/// `GET /`
pub fn welcome(ctx: &Context) -> Reply {
    let nouveau = nouveau::is_enabled(&ctx.config).then_some("nouveau");
    let features: Vec<&str> = ["search"].into_iter().chain(nouveau).chain(FEATURES).collect();
    let body = json!({
        "couchdb": "Welcome",
        "version": INTERFACE_VERSION,
        "git_sha": option_env!("SETTEE_GIT_SHA").unwrap_or("unknown"),
        "uuid": ctx.uuid(),
        "features": features,
        "vendor": {"name": "settee", "version": env!("CARGO_PKG_VERSION")},
    });
    Reply::value(StatusCode::OK, &body)
}

/// `GET /_up`: 404 in maintenance, while the node has yet to meet its cluster, and once a disk error has stopped all
/// writes, so that a balancer sends its requests elsewhere.
pub fn up(ctx: &Context) -> Reply {
    if ctx.coordinator.writes_stopped() {
        return Reply::value(StatusCode::NOT_FOUND, &json!({"status": "writes_stopped"}));
    }
    match ctx.config.text("couchdb", "maintenance_mode", "false").as_str() {
        "true" => Reply::value(StatusCode::NOT_FOUND, &json!({"status": "maintenance_mode"})),
        "nolb" => Reply::value(StatusCode::NOT_FOUND, &json!({"status": "nolb"})),
        _ if ctx.cluster.is_seeding() => {
            Reply::value(StatusCode::NOT_FOUND, &json!({"status": "seeding", "seeds": {}}))
        }
        _ => Reply::value(StatusCode::OK, &json!({"status": "ok", "seeds": {}})),
    }
}

/// `GET /_uuids`
pub fn uuids(ctx: &Context, request: &Request) -> Result<Reply> {
    let count = request.query.get("count").unwrap_or("1");
    let count = count.strip_prefix('+').unwrap_or(count);
    if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Problem::bad_request("count must be a positive integer"));
    }
    let max = ctx.config.u64("uuids", "max_count", limits::UUIDS_MAX);
    let count = match count.parse::<u64>() {
        Ok(count) if count <= max => count,
        _ => return Err(Problem::bad_request("count parameter too large")),
    };
    let uuids: Vec<String> = (0..count).map(|_| ctx.uuids.next()).collect();
    let body = json!({ "uuids": uuids }).to_string();
    let etag = state_etag(&[body.as_bytes()]);
    Ok(Reply::json(StatusCode::OK, body)
        .etag(&etag)
        .header(CACHE_CONTROL, "no-cache")
        .header(PRAGMA, "no-cache")
        .header(EXPIRES, "Mon, 01 Jan 1990 00:00:00 GMT"))
}

/// `POST /_reload_query_servers`: nothing outlives the change that it would be done for, so it is done already.
pub fn reload_query_servers(request: &Request) -> Result<Reply> {
    request.require_json()?;
    Ok(Reply::ok(StatusCode::OK))
}

/// `GET /_all_dbs`
pub fn all_dbs(ctx: &Context, request: &Request) -> Result<Reply> {
    let names = names(ctx, &request.query)?;
    let body = json!(names).to_string();
    let etag = state_etag(&[body.as_bytes()]);
    Ok(request.unless_current(&etag, || Reply::json(StatusCode::OK, body)))
}

/// The names of databases that a request asks for, by the parameters of a list of documents: in CouchDB the databases
/// are documents. A key that is no string stands before all names.
fn names(ctx: &Context, query: &Query) -> Result<Vec<String>> {
    let args = ViewArgs::of_databases(query)?;
    let text = |value: Option<Value>| value.map(|v| v.as_str().unwrap_or_default().to_owned());
    let wanted = NamesQuery {
        start: text(args.start_key).or(args.start_doc_id),
        end: text(args.end_key).or(args.end_doc_id),
        end_exclusive: !args.inclusive_end,
        descending: args.descending,
        skip: args.skip,
        limit: Some(args.limit),
    };
    let Some(mut keys) = args.keys else { return Ok(ctx.coordinator.database_names(&wanted)) };
    if args.descending {
        keys.reverse();
    }
    let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let listed = keys.iter().skip(size(args.skip)).take(size(args.limit)).filter_map(Value::as_str);
    Ok(listed.filter(|name| ctx.coordinator.has_database(name)).map(str::to_owned).collect())
}

/// `GET` and `POST /_dbs_info`. The names that GET lists make its ETag, as that of `_all_dbs`.
pub async fn dbs_info(ctx: &Context, mut request: Request) -> Result<Reply> {
    if request.verb == Verb::Post {
        return Ok(infos(ctx, keys_of(ctx, &mut request).await?));
    }
    let names = names(ctx, &request.query)?;
    let etag = state_etag(&[json!(names).to_string().as_bytes()]);
    Ok(request.unless_current(&etag, || infos(ctx, names.into_iter().map(Value::from).collect())))
}

/// The keys of a `POST /_dbs_info`, of which there may be so many.
async fn keys_of(ctx: &Context, request: &mut Request) -> Result<Vec<Value>> {
    let max = ctx.config.u64("chttpd", "max_db_number_for_dbs_info_req", limits::DBS_INFO_MAX);
    request.require_json()?;
    match request.query_object().await?.remove("keys") {
        Some(Value::Array(keys)) if keys.len() as u64 > max => Err(Problem::bad_request("too_many_keys")),
        Some(Value::Array(keys)) => Ok(keys),
        Some(_) => Err(Problem::bad_request("`keys` member must be an array.")),
        None => Err(Problem::bad_request("`keys` member must exist.")),
    }
}

/// A row for each key, made while the client reads: there may be any number of databases.
fn infos(ctx: &Context, keys: Vec<Value>) -> Reply {
    let coordinator = Arc::clone(&ctx.coordinator);
    Reply::generate(|mut out| async move {
        let mut before = "[";
        for key in keys {
            out.write(before.as_bytes()).await?;
            out.write(described(&coordinator, &key).await?.as_bytes()).await?;
            before = ",";
        }
        let end = if before == "[" { "[]\n" } else { "]\n" };
        out.write(end.as_bytes()).await
    })
}

/// One row: the database's record, or `not_found` for what is no database, or has no replica in reach.
async fn described(coordinator: &Coordinator, key: &Value) -> Result<String> {
    let shown = String::from_utf8_lossy(&key.to_vec()).into_owned();
    let info = match key.as_str().map(|name| coordinator.database(name)) {
        Some(Ok(database)) => match database::info(&database).await {
            Err(ReadError::Unavailable(ShardError::NoReplica { .. })) => None,
            info => Some(info?),
        },
        _ => None,
    };
    Ok(match info {
        Some(info) => format!("{{\"key\":{shown},\"info\":{info}}}"),
        None => format!("{{\"key\":{shown},\"error\":\"not_found\"}}"),
    })
}

/// `GET /_membership`
pub fn membership(ctx: &Context) -> Reply {
    let connected: Vec<String> = ctx.cluster.connected().iter().map(ToString::to_string).collect();
    let members: Vec<String> = ctx.cluster.members().iter().map(|member| member.name.to_string()).collect();
    Reply::value(StatusCode::OK, &json!({"all_nodes": connected, "cluster_nodes": members}))
}

/// `GET /favicon.ico`: a picture of one transparent pixel.
pub fn favicon(ctx: &Context) -> Reply {
    let expires = ctx.env.wall() + Duration::from_secs(FAVICON_AGE_S);
    Reply::typed(StatusCode::OK, "image/x-icon", &FAVICON[..])
        .header(CACHE_CONTROL, &format!("public, max-age={FAVICON_AGE_S}"))
        .header(EXPIRES, &httpdate::fmt_http_date(SystemTime::UNIX_EPOCH + expires))
}

/// How long browsers may keep the icon: a year.
const FAVICON_AGE_S: u64 = 31_536_000;

/// An icon file: header, one directory entry, a bitmap of 1 x 1 pixel with 32 bits and its mask.
const FAVICON: [u8; 70] = {
    let mut file = [0u8; 70];
    (file[2], file[4], file[6], file[7]) = (1, 1, 1, 1);
    (file[10], file[12], file[14], file[18]) = (1, 32, 48, 22);
    (file[22], file[26], file[30], file[34], file[36], file[42]) = (40, 1, 2, 1, 32, 8);
    file
};
