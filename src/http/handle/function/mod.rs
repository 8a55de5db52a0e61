//! Show and update functions of design documents: they turn a document, or none, into an answer.
//!
//! Members, statuses and headers of the answers are those that CouchDB 3.5 was measured to give.

pub mod list;
pub mod request;
pub mod rewrite;
pub mod rewrite_rules;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, VARY};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::coordinator::{Database, ReadOperations, Want, WriteOperations, WriteOptions, WriteRequest};
use crate::document::draft;
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::render::{RenderOptions, render};
use crate::http::handle::document::write::options;
use crate::http::handle::document::{checked_id, may_write, open, placed_id};
use crate::http::handle::rules;
use crate::http::handle::token::with_token;
use crate::http::response::{encode_segment, state_etag};
use crate::http::{Context, Problem, Reply, Request, Result, Verb};
use crate::script::Rendering;
use request::function_request;

/// `/{db}/_design/{ddoc}/_show/{function}[/{docid}]`, any method.
///
/// # Errors
/// 404 for a missing function or path, 406 when nothing acceptable is provided, 500 when the function fails.
pub async fn show(ctx: &Context, mut request: Request, db: &str, ddoc: &str, path: &[&str]) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let program = db.design_docs().program(&DocId::new(ddoc)).await?.for_user(request.user.name.as_deref());
    let [name, id @ ..] = path else { return Err(invalid_path("show_error")) };
    let source = program.function("shows", name)?;
    let id = (!id.is_empty()).then(|| id.join("/"));
    let doc = document(ctx, &request, &db, id.as_deref()).await?;
    let user = format!("{:?} {:?}", request.user.name, request.user.roles);
    let accept = request.header("accept").unwrap_or_default();
    let seen = [doc.as_str(), &user, &request.raw_path, accept].map(str::as_bytes);
    let etag = state_etag(&[&[&program.body().to_vec()[..]][..], &seen].concat());
    if request.verb == Verb::Get && request.has_current(&etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let body = body_text(&mut request).await?;
    let req = function_request(ctx, &request, &db, id.as_deref(), body).await?;
    let answer = db.scripts().render(&program, (Rendering::Show, source), doc, &req).await?;
    let reply = reply(response(&answer)?, StatusCode::OK)?;
    Ok(reply.etag(&etag).header(VARY, "Accept"))
}

/// `/{db}/_design/{ddoc}/_update/{function}[/{docid}]`, any method but GET: writes what the function wants written.
///
/// # Errors
/// As [`show`], and as a PUT of the document.
pub async fn update(ctx: &Context, mut request: Request, db: &str, ddoc: &str, path: &[&str]) -> Result<Reply> {
    let db = open(ctx, &request, db)?;
    let program = db.design_docs().program(&DocId::new(ddoc)).await?.for_user(request.user.name.as_deref());
    let [name, id @ ..] = path else { return Err(invalid_path("update_error")) };
    let source = program.function("updates", name)?;
    if request.verb == Verb::Get {
        let reason = "Update functions do not allow GET";
        return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason));
    }
    // The query is the function's own as long as nothing is written.
    let options = options(&request);
    let id = (!id.is_empty()).then(|| id.join("/"));
    let doc = document(ctx, &request, &db, id.as_deref()).await?;
    let body = body_text(&mut request).await?;
    let req = function_request(ctx, &request, &db, id.as_deref(), body).await?;
    let answer = db.scripts().render(&program, (Rendering::Update, source), doc, &req).await?;
    let new = answer.get("doc").filter(|doc| doc.as_object().is_some());
    let Some(new) = new else { return reply(response(&answer)?, StatusCode::OK) };
    let options = WriteOptions { new_edits: true, ..options? };
    let mut draft = draft::parse(new.clone())?;
    // The function saw the history; what it extends is the revision alone.
    draft.revisions = None;
    let id = checked_id(ctx, draft.id.as_deref().unwrap_or_default())?;
    may_write(ctx, &request, &db, &id)?;
    // A bad answer must not be told of a write that took place.
    let reply = reply(response(&answer)?, StatusCode::CREATED)?;
    let mut write = WriteRequest { id: id.clone(), draft, follows: Vec::new() };
    rules::prepare(ctx, &request.user, &db, &mut write, true).await?;
    let done = db.writer().write_one(write, options).await?;
    let reply = with_token(&db, reply, [&done]);
    let reply = reply.header(HeaderName::from_static("x-couch-id"), &encode_segment(id.as_str()));
    Ok(reply.header(HeaderName::from_static("x-couch-update-newrev"), &done.rev.to_string()))
}

/// 404 where the path names no function.
pub fn invalid_path(error: &'static str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, error, "Invalid path.")
}

/// The JSON text of a document as functions see it; `null` for none.
async fn document(ctx: &Context, request: &Request, db: &Arc<Database>, id: Option<&str>) -> Result<String> {
    let Some(id) = id else { return Ok("null".to_owned()) };
    let id = placed_id(db, id)?;
    let sight = rules::sight(ctx, &request.user, db, &id)?;
    let Some(mut fetched) = db.documents().fetch(&id, Want::Winner).await? else { return Ok("null".to_owned()) };
    match fetched.take_one().filter(|stored| !stored.deleted) {
        None => Ok("null".to_owned()),
        Some(mut stored) => {
            // Another's document of the users database is as one that is not there.
            match sight.limit(&mut stored) {
                Ok(()) => {}
                Err(hidden) if hidden.status == StatusCode::NOT_FOUND => return Ok("null".to_owned()),
                Err(problem) => return Err(problem),
            }
            let (path, (conflicts, _)) = (fetched.tree.path_to(&stored.rev), fetched.conflicts(&stored.rev));
            let options = RenderOptions { revisions: path.as_ref(), conflicts: &conflicts, ..RenderOptions::default() };
            Ok(String::from_utf8_lossy(&render(id.as_str(), &stored, &options)).into_owned())
        }
    }
}

/// The body as text; `None` when the client announces none.
pub async fn body_text(request: &mut Request) -> Result<Option<Value>> {
    let announced = [http::header::CONTENT_LENGTH, http::header::TRANSFER_ENCODING];
    if !announced.iter().any(|name| request.headers.contains_key(name)) {
        return Ok(None);
    }
    let bytes = request.bytes().await?;
    Ok(Some(Value::from(String::from_utf8_lossy(&bytes).into_owned())))
}

/// What the function said.
pub fn response(answer: &Object) -> Result<&Object> {
    let said = answer.get("resp").and_then(Value::as_object);
    said.ok_or_else(|| failed("render_error", "undefined response".to_owned()))
}

fn failed(error: &'static str, reason: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error, reason)
}

/// An answer from `{code, json, body, base64, headers}`; `usual` is its status without `code`.
///
/// # Errors
/// 500 `external_response_error` for any other member, or one of the wrong type.
pub fn reply(said: &Object, usual: StatusCode) -> Result<Reply> {
    let mut reply = Reply::typed(usual, "application/json", Vec::new()).header(CACHE_CONTROL, "");
    let mut headers = None;
    for (name, value) in said.iter() {
        let wrong = || {
            let shown = String::from_utf8_lossy(&value.to_vec()).into_owned();
            failed("external_response_error", format!("Invalid data from external server: {{<<\"{name}\">>,{shown}}}"))
        };
        let status = reply.status;
        match (name, value) {
            ("code", value) => {
                let code = value.as_u64().and_then(|code| u16::try_from(code).ok());
                reply.status = code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(wrong)?;
            }
            ("stop", _) => {}
            ("json", value) => {
                reply = Reply::json(status, value.to_vec()).header(CONTENT_TYPE, "application/json");
            }
            ("body", Value::String(text)) => reply = plain(status, "text/html; charset=utf-8", text.as_bytes()),
            ("base64", Value::String(text)) => {
                let bytes = STANDARD.decode(text).map_err(|_| wrong())?;
                reply = plain(status, "application/binary", &bytes);
            }
            ("headers", Value::Object(given)) => headers = Some(given),
            _ => return Err(wrong()),
        }
    }
    for (name, value) in headers.into_iter().flat_map(Object::iter) {
        let value = value.as_str().map_or_else(|| String::from_utf8_lossy(&value.to_vec()).into_owned(), str::to_owned);
        let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
        if let (Ok(name), Ok(value)) = parsed {
            // The length and the framing are the server's.
            if name != http::header::CONTENT_LENGTH && name != http::header::TRANSFER_ENCODING {
                reply.headers.insert(name, value);
            }
        }
    }
    Ok(reply)
}

fn plain(status: StatusCode, content_type: &str, body: &[u8]) -> Reply {
    Reply::typed(status, content_type, body.to_vec()).header(CACHE_CONTROL, "")
}
