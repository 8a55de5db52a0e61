//! List functions of design documents: they turn the rows of a view into an answer.
//!
//! The view's answer is read up to `limits::LIST_VIEW_BYTES` and passed to the function, which takes its rows one by
//! one.

use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http::header::IF_NONE_MATCH;

use super::request::function_request;
use super::{body_text, invalid_path, reply, response};
use crate::coordinator::ReadOperations;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::http::body::RequestBody;
use crate::http::handle::document::open;
use crate::http::handle::query::all_docs;
use crate::http::handle::query::view;
use crate::http::route::ListKind;
use crate::http::{Context, Problem, Reply, ReplyBody, Request, Result};
use crate::limits;
use crate::script::{Rendering, ScriptError};

/// GET and POST `/{db}/_design/{ddoc}/_list/{function}/{view}`, `.../{function}/_all_docs` and
/// `.../{function}/{other ddoc}/{view}`.
///
/// # Errors
/// As a query of the view; 413 for more than a list function can be given.
pub async fn list(
    ctx: &Context,
    mut request: Request,
    (name, ddoc, path): (&str, &str, &[&str]),
    partition: Option<&str>,
) -> Result<Reply> {
    let db = open(ctx, &request, name)?;
    let program = db.design_docs().program(&DocId::new(ddoc)).await?.for_user(request.user.name.as_deref());
    let (function, ddoc, view) = match path {
        [function, view] => (function, ddoc.to_owned(), view),
        [function, other, view] => (function, format!("_design/{other}"), view),
        _ => return Err(invalid_path("list_error")),
    };
    let source = program.function("lists", function)?;
    let body = body_text(&mut request).await?;
    let text = body.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let req = function_request(ctx, &request, &db, None, body).await?;
    request.body = RequestBody::full(text);
    // The view's own ETag says nothing of what the function makes of it.
    request.headers.remove(IF_NONE_MATCH);
    let rows = match (*view, partition) {
        ("_all_docs", None) => all_docs::list(ctx, request, name, ListKind::All).await?,
        ("_all_docs", Some(partition)) => all_docs::partition(ctx, request, name, partition).await?,
        (view, partition) => view::query(ctx, request, name, (&ddoc, view), partition).await?,
    };
    let answer = db.scripts().render(&program, (Rendering::List, source), whole(rows).await?, &req).await?;
    let reply = reply(response(&answer)?, StatusCode::OK)?;
    match answer.get("failed").and_then(Value::as_array) {
        Some([error, reason]) => Ok(broken_off(reply, error, reason)),
        _ => Ok(reply),
    }
}

/// What a function sent before it failed, with the error behind it. Where that is nothing, the status is the error's.
fn broken_off(mut reply: Reply, error: &Value, reason: &Value) -> Reply {
    let error = error.as_str().unwrap_or_default().to_owned();
    let problem = Problem::from(ScriptError::Thrown { error, reason: reason.clone() });
    let mut body = match reply.body {
        ReplyBody::Full(sent) => Vec::from(sent.into_bytes()),
        ReplyBody::Stream(_) => Vec::new(),
    };
    if body.is_empty() {
        reply.status = problem.status;
    }
    body.push(b'\n');
    body.extend(problem.body_with_code());
    reply.body = ReplyBody::Full(Bytes::from(body).into());
    reply
}

/// All of an answer's body.
async fn whole(rows: Reply) -> Result<String> {
    let mut stream = match rows.body {
        ReplyBody::Full(whole) => futures_util::stream::iter([Ok::<Bytes, Problem>(whole.into_bytes())]).boxed(),
        ReplyBody::Stream(stream) => stream,
    };
    let mut out = Vec::new();
    while let Some(chunk) = stream.next().await {
        out.extend_from_slice(&chunk?);
        if out.len() > limits::LIST_VIEW_BYTES {
            return Err(Problem::too_large(
                "too_large",
                "The view has too many rows for a list function; set a limit.",
            ));
        }
    }
    Ok(String::from_utf8_lossy(&out).into_owned())
}
