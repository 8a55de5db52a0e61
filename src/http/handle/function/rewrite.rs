//! `_rewrite` of design documents: rules or a function replace the requested path by another one.
//!
//! Targets are relative to the design document and stay within its database, unless `[chttpd] secure_rewrites` is false
//! or, for those of functions, the node follows CouchDB. The request for a target is admitted anew, with the rights of
//! the caller.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue, StatusCode};

use super::request::{REQUESTED_PATH, requested, rewrite_request};
use super::rewrite_rules::{self, plain};
use super::{body_text, invalid_path, reply};
use crate::coordinator::ReadOperations;
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::http::body::RequestBody;
use crate::http::handle::document::open;
use crate::http::policy::{self, Content};
use crate::http::query::decode;
use crate::http::response::encode_segment;
use crate::http::route::segments;
use crate::http::{Context, Problem, Query, Reply, Request, Result, Verb};
use crate::script::Rendering;

/// What comes of a rewrite.
pub enum Rewritten {
    /// The function answered itself.
    Answer(Reply),
    /// This is asked for instead.
    Request(Box<Request>),
}

/// `/{db}/_design/{ddoc}/_rewrite/..`, any method.
///
/// # Errors
/// 404 where nothing fits, 500 for a target outside of the database.
pub async fn rewrite(
    ctx: &Context,
    mut request: Request,
    name: &str,
    ddoc: &str,
    path: &[String],
) -> Result<Rewritten> {
    let db = open(ctx, &request, name)?;
    let program = db.design_docs().program(&DocId::new(ddoc)).await?.for_user(request.user.name.as_deref());
    if let (None, Ok(asked)) = (request.header(REQUESTED_PATH), HeaderValue::from_str(&requested(&request))) {
        request.headers.insert(REQUESTED_PATH, asked);
    }
    let root = [name, "_design", ddoc.strip_prefix("_design/").unwrap_or(ddoc)].map(str::to_owned);
    let secure = ctx.config.bool("chttpd", "secure_rewrites", true);
    match program.body().get("rewrites") {
        Some(Value::Array(rules)) => {
            // CouchDB takes HEAD for GET before it looks for a rule.
            let method = if request.head { "GET" } else { request.method.as_str() };
            let found = rewrite_rules::resolve(rules, secure, method, path, &request.query)?;
            let (target, query) = found.ok_or_else(Problem::missing)?;
            request.query = query;
            directed(request, &Base { root: &root, secure }, &target)
        }
        Some(Value::String(source)) => {
            let body = body_text(&mut request).await?;
            let text = body.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            let req = rewrite_request(ctx, &request, &db, body.as_ref())?;
            request.body = RequestBody::full(text);
            let kind = (Rendering::Rewrite, source.as_str());
            let answer = db.scripts().render(&program, kind, "null".to_owned(), &req).await?;
            let secure = secure && !ctx.config.follows_couchdb();
            by_function(ctx, request, &Base { root: &root, secure }, &answer)
        }
        _ => Err(invalid_path("rewrite_error")),
    }
}

/// What targets are relative to.
struct Base<'a> {
    /// The segments of the design document.
    root: &'a [String],
    /// Whether they stay within the database.
    secure: bool,
}

/// Answers as the function said: at once, or with what another path answers.
fn by_function(ctx: &Context, mut request: Request, base: &Base<'_>, answer: &Object) -> Result<Rewritten> {
    let said = match answer.get("resp") {
        Some(Value::String(path)) => return directed(with_query(request, path), base, &path_of(path)),
        Some(Value::Object(said)) => said,
        None | Some(Value::Null) => return Err(invalid_path("rewrite_error")),
        Some(_) => return Err(bad("bad rewrite")),
    };
    check(said)?;
    if said.contains("code") {
        let told = ["code", "headers", "body"].into_iter();
        let told = told.filter_map(|name| Some((name.to_owned(), said.get(name)?.clone()))).collect();
        let reply = policy::guard(&ctx.config, Content::ShowList, reply(&told, StatusCode::OK)?);
        return Ok(Rewritten::Answer(reply));
    }
    let path = said.get("path").and_then(Value::as_str);
    let path = path.ok_or_else(|| bad("Rewrite result must produce a new path."))?;
    request = with_query(request, path);
    if let Some(query) = said.get("query").and_then(Value::as_object) {
        let pairs = query.iter().map(|(name, value)| (name.to_owned(), plain(value)));
        request.query = Query::from_pairs(pairs.collect());
    }
    if let Some(method) = said.get("method").and_then(Value::as_str) {
        (request.verb, request.head) = (Verb::of(method), method == "HEAD");
        request.method = method.to_owned();
    }
    if let Some(body) = said.get("body") {
        request.body = RequestBody::full(plain(body));
    }
    for (name, value) in said.get("headers").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(plain(value).as_bytes()));
        if let (Ok(name), Ok(value)) = parsed {
            request.headers.insert(name, value);
        }
    }
    directed(request, base, &path_of(path))
}

fn bad(reason: impl Into<Cow<'static, str>>) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "rewrite_error", reason)
}

/// Whether the members of what a function answered are of their types; those it does not know are no matter.
fn check(said: &Object) -> Result<()> {
    let all_texts = |value: &Value, reason| {
        let members = value.as_object().ok_or_else(|| bad(reason))?;
        match members.iter().find(|(_, value)| value.as_str().is_none()) {
            Some((name, value)) => {
                Err(bad(format!("object key/value must be strings <<\"{name}\">>={}", plain(value))))
            }
            None => Ok(()),
        }
    };
    for (name, value) in said.iter() {
        let is_text = value.as_str().is_some();
        match name {
            "method" if !is_text => return Err(bad("bad method")),
            "path" if !is_text => return Err(bad("bad path")),
            "body" if !is_text => return Err(bad("bad body")),
            "code" if !value.as_u64().is_some_and(|code| (200..600).contains(&code)) => return Err(bad("bad code")),
            "headers" => all_texts(value, "bad headers")?,
            "query" => all_texts(value, "bad query")?,
            _ => {}
        }
    }
    Ok(())
}

/// A query within the path counts instead of the request's.
fn with_query(mut request: Request, path: &str) -> Request {
    if let Some((_, query)) = path.split_once('?') {
        request.query = Query::parse(query);
    }
    request
}

fn path_of(path: &str) -> Vec<String> {
    let path = path.split('?').next().unwrap_or_default();
    segments(path).into_iter().map(|raw| String::from_utf8_lossy(&decode(raw)).into_owned()).collect()
}

/// The request for `target`.
fn directed(mut request: Request, base: &Base<'_>, target: &[String]) -> Result<Rewritten> {
    let path = resolve(base, target).ok_or_else(rewrite_rules::insecure)?;
    let encoded: Vec<String> = path.iter().map(|segment| encode_segment(segment)).collect();
    request.raw_path = format!("/{}", encoded.join("/"));
    Ok(Rewritten::Request(Box::new(request)))
}

/// The segments of the target's path; `None` when it leaves the database and may not, or leads above the server.
fn resolve(base: &Base<'_>, target: &[String]) -> Option<Vec<String>> {
    let least = usize::from(base.secure);
    let mut path = base.root.to_vec();
    for segment in target {
        match segment.as_str() {
            "." | "" => {}
            ".." if path.len() > least => drop(path.pop()),
            ".." => return None,
            _ => path.push(segment.clone()),
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::{Base, check, resolve};
    use crate::document::json::{self, Value};

    #[test]
    fn targets_stay_within_the_database() {
        let root = ["db", "_design", "d"].map(str::to_owned);
        let resolved = |secure: bool, text: &str| {
            resolve(&Base { root: &root, secure }, &text.split('/').map(str::to_owned).collect::<Vec<_>>())
        };
        let to = |text: &str| resolved(true, text);
        assert_eq!(to("../../x").unwrap(), ["db", "x"]);
        assert_eq!(to("_view/v").unwrap(), ["db", "_design", "d", "_view", "v"]);
        assert_eq!(to("../../../other"), None);
        assert_eq!(resolved(false, "../../../_uuids").unwrap(), ["_uuids"]);
        assert_eq!(resolved(false, "../../../../_uuids"), None);
    }

    #[test]
    fn what_a_function_answers_is_of_the_right_types() {
        let checked = |text: &str| match json::parse(text.as_bytes()) {
            Ok(Value::Object(said)) => check(&said).map_err(|problem| problem.reason.into_owned()),
            other => panic!("{other:?}"),
        };
        assert_eq!(checked(r#"{"path":"a","query":{"k":"1"},"other":5}"#), Ok(()));
        for (text, reason) in [
            (r#"{"method":5}"#, "bad method"),
            (r#"{"path":null}"#, "bad path"),
            (r#"{"body":{}}"#, "bad body"),
            (r#"{"code":600}"#, "bad code"),
            (r#"{"headers":[]}"#, "bad headers"),
            (r#"{"query":{"q":5}}"#, "object key/value must be strings <<\"q\">>=5"),
        ] {
            assert_eq!(checked(text), Err(reason.to_owned()), "{text}");
        }
    }
}
