//! `_rewrite` of design documents: another path asked for instead, by rules or by a function.
//!
//! Targets are relative to the design document and stay within its database.

use std::collections::BTreeMap;

use http::{HeaderName, HeaderValue, StatusCode};

use super::document::open;
use super::function::{body_text, invalid_path, reply, response};
use super::function_request::{REQUESTED_PATH, function_request, requested};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::http::body::RequestBody;
use crate::http::policy::{self, Content};
use crate::http::query::decode;
use crate::http::response::encode_segment;
use crate::http::route::segments;
use crate::http::{Context, Problem, Query, Reply, Request, Result, Verb};
use crate::script::Rendering;

/// What path and query give for the variables of a rule; `*` is the rest of the path.
type Bound = BTreeMap<String, String>;

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
    let program = db.program(&DocId::new(ddoc)).await?;
    if let (None, Ok(asked)) = (request.header(REQUESTED_PATH), HeaderValue::from_str(&requested(&request))) {
        request.headers.insert(REQUESTED_PATH, asked);
    }
    let root = [name, "_design", ddoc.strip_prefix("_design/").unwrap_or(ddoc)].map(str::to_owned);
    match program.body().get("rewrites") {
        Some(Value::Array(rules)) => {
            let (target, query) = by_rules(rules, &request, path).ok_or_else(Problem::missing)?;
            request.query = query;
            directed(request, &root, &target)
        }
        Some(Value::String(source)) => {
            let body = body_text(&mut request).await?;
            let text = body.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
            let req = function_request(ctx, &request, &db, None, body).await?;
            request.body = RequestBody::full(text);
            let kind = (Rendering::Rewrite, source.as_str());
            let answer = db.scripts().render(&program, kind, "null".to_owned(), &req).await?;
            by_function(ctx, request, &root, &answer)
        }
        _ => Err(invalid_path("rewrite_error")),
    }
}

/// Answers as the function said: at once, or with what another path answers.
fn by_function(ctx: &Context, mut request: Request, root: &[String], answer: &Object) -> Result<Rewritten> {
    let said = match answer.get("resp") {
        Some(Value::String(path)) => return directed(with_query(request, path), root, &path_of(path)),
        Some(Value::Object(_)) => response(answer)?,
        _ => return Err(invalid_path("rewrite_error")),
    };
    let Some(path) = said.get("path").and_then(Value::as_str) else {
        if !said.contains("code") {
            return Err(invalid_path("rewrite_error"));
        }
        let reply = policy::guard(&ctx.config, Content::ShowList, reply(said, StatusCode::OK)?);
        return Ok(Rewritten::Answer(reply));
    };
    request = with_query(request, path);
    if let Some(query) = said.get("query").and_then(Value::as_object) {
        request.query = Query::from_pairs(query.iter().map(|(name, value)| (name.to_owned(), plain(value))).collect());
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
    directed(request, root, &path_of(path))
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

/// The request for `target`, relative to `root`: the segments of the design document.
fn directed(mut request: Request, root: &[String], target: &[String]) -> Result<Rewritten> {
    let path = resolve(root, target).ok_or_else(|| {
        let reason = "too many ../.. segments";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "insecure_rewrite_rule", reason)
    })?;
    let encoded: Vec<String> = path.iter().map(|segment| encode_segment(segment)).collect();
    request.raw_path = format!("/{}", encoded.join("/"));
    Ok(Rewritten::Request(Box::new(request)))
}

/// The segments of the target's path; `None` when it leaves the database.
fn resolve(root: &[String], target: &[String]) -> Option<Vec<String>> {
    let mut path = root.to_vec();
    for segment in target {
        match segment.as_str() {
            "." | "" => {}
            ".." if path.len() > 1 => drop(path.pop()),
            ".." => return None,
            _ => path.push(segment.clone()),
        }
    }
    Some(path)
}

/// The target and the query of the first rule that fits.
fn by_rules(rules: &[Value], request: &Request, path: &[String]) -> Option<(Vec<String>, Query)> {
    rules.iter().filter_map(Value::as_object).find_map(|rule| {
        let text = |name| rule.get(name).and_then(Value::as_str);
        let method = text("method").unwrap_or("*");
        if method != "*" && method != request.method {
            return None;
        }
        let mut bound = bind(&segments(text("from").unwrap_or("*")), path)?;
        let of_path = bound.clone();
        for (name, value) in request.query.iter() {
            bound.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        let target = segments(text("to")?).into_iter().flat_map(|part| match part {
            "*" => bound.get("*").map(|rest| rest.split('/').map(str::to_owned).collect()).unwrap_or_default(),
            part => vec![variable(part, &bound).map_or_else(|| part.to_owned(), Clone::clone)],
        });
        Some((target.collect(), query(rule, request, &bound, of_path)))
    })
}

/// What the parts of a path give for those of a rule; `None` when they do not fit.
fn bind(from: &[&str], path: &[String]) -> Option<Bound> {
    let mut bound = Bound::new();
    for (at, part) in from.iter().enumerate() {
        if *part == "*" && at + 1 == from.len() {
            bound.insert("*".to_owned(), path.get(at..).filter(|rest| !rest.is_empty())?.join("/"));
            return Some(bound);
        }
        let given = path.get(at)?;
        match part.strip_prefix(':') {
            Some(name) => drop(bound.insert(name.to_owned(), given.clone())),
            None if part == given => {}
            None => return None,
        }
    }
    (path.len() == from.len()).then_some(bound)
}

fn variable<'a>(part: &str, bound: &'a Bound) -> Option<&'a String> {
    bound.get(if part == "*" { part } else { part.strip_prefix(':')? })
}

/// The rule's query, then the request's and the path's variables where it has none of that name.
fn query(rule: &Object, request: &Request, bound: &Bound, of_path: Bound) -> Query {
    const JSON: [&str; 6] = ["key", "keys", "startkey", "start_key", "endkey", "end_key"];
    let formats = rule.get("formats").and_then(Value::as_object);
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in rule.get("query").and_then(Value::as_object).into_iter().flat_map(Object::iter) {
        let value = filled(value, bound, formats);
        let is_json = JSON.contains(&name) && !value.as_str().is_some_and(|text| text.starts_with('"'));
        let text = if is_json { String::from_utf8_lossy(&value.to_vec()).into_owned() } else { plain(&value) };
        pairs.push((name.to_owned(), text));
    }
    let given = request.query.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    for (name, value) in given.chain(of_path) {
        if name != "*" && pairs.iter().all(|(known, _)| *known != name) {
            pairs.push((name, value));
        }
    }
    Query::from_pairs(pairs)
}

/// A value with its variables replaced; those of the format `int` become numbers.
fn filled(value: &Value, bound: &Bound, formats: Option<&Object>) -> Value {
    match value {
        Value::String(part) => match variable(part, bound) {
            None => value.clone(),
            Some(text) => {
                let format = formats.and_then(|f| f.get(part.trim_start_matches(':'))).and_then(Value::as_str);
                let number = text.parse::<i64>().ok().filter(|_| format == Some("int"));
                number.map_or_else(|| Value::from(text.as_str()), Value::Int)
            }
        },
        Value::Array(items) => Value::Array(items.iter().map(|item| filled(item, bound, formats)).collect()),
        other => other.clone(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| String::from_utf8_lossy(&value.to_vec()).into_owned(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::{bind, resolve};

    #[test]
    fn rules_bind_names_and_the_rest() {
        let bind =
            |from: &[&str], path: &[&str]| bind(from, &path.iter().map(|part| (*part).to_owned()).collect::<Vec<_>>());
        let bound = bind(&["a", ":id", "*"], &["a", "x", "y", "z"]).unwrap();
        assert_eq!((bound["id"].as_str(), bound["*"].as_str()), ("x", "y/z"));
        assert!(bind(&["a"], &["a", "b"]).is_none() && bind(&["*"], &[]).is_none() && bind(&["a"], &["b"]).is_none());
        assert!(bind(&[], &[]).is_some());
    }

    #[test]
    fn targets_stay_within_the_database() {
        let root = ["db", "_design", "d"].map(str::to_owned);
        let to = |text: &str| resolve(&root, &text.split('/').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(to("../../x").unwrap(), ["db", "x"]);
        assert_eq!(to("_view/v").unwrap(), ["db", "_design", "d", "_view", "v"]);
        assert_eq!(to("../../../other"), None);
    }
}
