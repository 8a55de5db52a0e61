//! The request object that functions of design documents see as `req`.
//!
//! Its members are those that CouchDB 3.5 was measured to give (`conformance/cases/views`).

use std::sync::Arc;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};

use crate::auth::{cookie, options};
use crate::coordinator::Database;
use crate::document::json::{self, Object, Value};
use crate::http::handle::database::info;
use crate::http::query::decode;
use crate::http::vhost::ASKED_PATH;
use crate::http::{Context, Problem, Query, Request, Result, Verb};

/// Query parameters that come decoded; all others are texts.
const DECODED: [&str; 4] = ["key", "startkey", "endkey", "descending"];

/// The JSON text of the object. `id`: the document in question; `body`: the parsed body of a POST, or its text.
///
/// # Errors
/// When the database cannot be read; 400 for parameters that are to be JSON and are not.
pub async fn function_request(
    ctx: &Context,
    request: &Request,
    db: &Arc<Database>,
    id: Option<&str>,
    body: Option<Value>,
) -> Result<Arc<str>> {
    let info = json::parse(info(db).await?.to_string().as_bytes()).unwrap_or(Value::Null);
    let mut out = Object::new();
    out.push("info", info);
    out.push("id", id.map_or(Value::Null, Value::from));
    out.push("uuid", ctx.uuids.next());
    push_common(&mut out, ctx, request, db, body.as_ref())?;
    out.push("form", form(request, body.as_ref()));
    Ok(text(&out))
}

/// As [`function_request`] for rewrite functions, which CouchDB tells nothing of the database, of forms and ids.
///
/// # Errors
/// 400 for parameters that are to be JSON and are not.
pub fn rewrite_request(ctx: &Context, request: &Request, db: &Arc<Database>, body: Option<&Value>) -> Result<Arc<str>> {
    let mut out = Object::new();
    push_common(&mut out, ctx, request, db, body)?;
    Ok(text(&out))
}

fn text(object: &Object) -> Arc<str> {
    String::from_utf8_lossy(&object.to_vec()).into()
}

fn push_common(
    out: &mut Object,
    ctx: &Context,
    request: &Request,
    db: &Arc<Database>,
    body: Option<&Value>,
) -> Result<()> {
    out.push("method", request.method.as_str());
    out.push("requested_path", path_segments(&requested(request)));
    out.push("path", path_below(&request.raw_path));
    out.push("raw_path", request.target());
    out.push("query", query(request)?);
    out.push("headers", headers(ctx, request));
    out.push("body", body.cloned().unwrap_or_else(|| Value::from("undefined")));
    out.push("peer", request.peer.ip().to_string());
    out.push("cookie", cookies(request));
    out.push("userCtx", user(request, db));
    out.push("secObj", json::parse(&db.security()).unwrap_or(Value::Null));
    Ok(())
}

/// The fields of an HTML form that is not multipart; as in CouchDB, forms come by POST and PUT alone.
fn form(request: &Request, body: Option<&Value>) -> Object {
    let mut out = Object::new();
    let is_form = matches!(request.verb, Verb::Post | Verb::Put)
        && request.media_type().as_deref() == Some("application/x-www-form-urlencoded");
    if let (true, Some(text)) = (is_form, body.and_then(Value::as_str)) {
        Query::parse(text).iter().for_each(|(name, value)| drop(out.insert(name, value)));
    }
    out
}

fn segment(raw: &str) -> Value {
    Value::from(String::from_utf8_lossy(&decode(raw)).into_owned())
}

/// Header of a rewritten request: what the client asked for. Functions see it among the headers alone, as in CouchDB.
pub const REQUESTED_PATH: &str = "x-couchdb-requested-path";

/// The path and query that the client asked for of a virtual host; else that of the request, rewritten or not.
pub fn requested(request: &Request) -> String {
    request.header(ASKED_PATH).map_or_else(|| request.target(), str::to_owned)
}

/// Decoded; the query stands behind the last one.
fn path_segments(path: &str) -> Vec<Value> {
    path.split('/').filter(|segment| !segment.is_empty()).map(segment).collect()
}

/// The same without the partition, below which CouchDB answers as if it were not in the path.
fn path_below(path: &str) -> Vec<Value> {
    let mut segments = path_segments(path);
    if segments.len() > 3 && segments[1].as_str() == Some("_partition") {
        segments.drain(1..3);
    }
    segments
}

fn query(request: &Request) -> Result<Object> {
    let mut out = Object::new();
    for (name, text) in request.query.iter() {
        let value = match DECODED.contains(&name) {
            true => json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json())?,
            false => Value::from(text),
        };
        out.insert(name, value);
    }
    Ok(out)
}

/// Headers that show who one is. Functions belong to the one that may write a design document, which is not the caller:
/// they are told his name and roles, never what would let them act in his place.
fn is_secret(ctx: &Context, name: &HeaderName) -> bool {
    let tokens = ["x-auth-couchdb-token", "x-auth-svc-token"];
    let configured = options::get(&ctx.config, "x_auth_token");
    [AUTHORIZATION, PROXY_AUTHORIZATION, COOKIE].contains(name)
        || tokens.contains(&name.as_str())
        || configured.is_some_and(|token| token.eq_ignore_ascii_case(name.as_str()))
}

/// Header names as clients usually write them: the ones on the wire are of any case.
fn headers(ctx: &Context, request: &Request) -> Object {
    let mut out = Object::new();
    for (name, value) in request.headers.iter().filter(|(name, _)| !is_secret(ctx, name)) {
        let parts: Vec<String> = name.as_str().split('-').map(capitalized).collect();
        out.insert(parts.join("-"), String::from_utf8_lossy(value.as_bytes()).into_owned());
    }
    out
}

fn capitalized(word: &str) -> String {
    let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
    first.to_ascii_uppercase() + rest
}

fn cookies(request: &Request) -> Object {
    let pairs = request.header("cookie").unwrap_or("").split(';').filter_map(|pair| pair.trim().split_once('='));
    let mut out = Object::new();
    for (name, value) in pairs.filter(|(name, _)| *name != cookie::NAME) {
        out.insert(name, value.trim_matches('"'));
    }
    out
}

fn user(request: &Request, db: &Arc<Database>) -> Object {
    let mut out = Object::new();
    out.push("db", db.name.as_str());
    out.push("name", request.user.name.as_deref().map_or(Value::Null, Value::from));
    out.push("roles", request.user.roles.iter().map(|role| Value::from(role.as_str())).collect::<Vec<_>>());
    out
}
