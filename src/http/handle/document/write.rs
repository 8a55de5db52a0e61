//! PUT, POST, DELETE and COPY of a document (CouchDB documentation, 'Documents').

use std::sync::Arc;

use http::StatusCode;

use super::local;
use super::read::one;
use super::read_options::{ReadOptions, replicas};
use super::related;
use super::write_options::{destination, parent_revision, request_revision};
use super::{checked_id, may_write, ok_json, open, placed_id, rev_etag, written};
use crate::coordinator::{Caller, Database, Staged, WriteOperations, WriteOptions, WriteRequest};
use crate::document::draft::{self, Draft};
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::http::handle::rules;
use crate::http::{Context, Query, Reply, Request, Result};

/// `PUT /{db}/{docid}`: JSON of any content type, or `multipart/related`.
///
/// # Errors
/// 400 for what is no document, 409 for a conflict.
pub async fn put(ctx: &Context, mut request: Request, db: &str, id: &str) -> Result<Reply> {
    let database = open(ctx, &request, db)?;
    // The whole query is read first, with what a write has no use for, as CouchDB does.
    ReadOptions::from_query(&request.query)?;
    let id = checked_id(ctx, id)?;
    may_write(ctx, &request, &database, &id)?;
    let options = options(&request)?;
    let (mut draft, follows) = body(&database, &id, &mut request).await?;
    let rev = parent_revision(draft.rev.as_ref(), request.query.get("rev"), request.header("if-match"))?;
    draft.rev = rev;
    let local_text = id.is_local().then(|| draft.body.to_vec());
    let full = if draft.deleted { StatusCode::OK } else { StatusCode::CREATED };
    let mut write = WriteRequest { id: id.clone(), draft, follows };
    rules::prepare(ctx, &request.user, &database, &mut write, options.new_edits).await?;
    // Where bytes came along there is nothing to gain: CouchDB writes such a document at once, too.
    if is_batch(&request.query) && related(&request).is_none() {
        database.writer().write_later(write, options).await?;
        return Ok(Reply::json(StatusCode::ACCEPTED, ok_json(id.as_str(), None)));
    }
    let done = database.writer().write_one(write, options).await?;
    let etag = local_text.map_or_else(|| rev_etag(&done.rev), |text| local::etag(&done.rev, &text));
    Ok(written(&database, id.as_str(), &done, full).etag(&etag).location(&request, &[db, id.as_str()]))
}

/// The document that a PUT carries, with the uploads that its `follows` entries name.
async fn body(db: &Arc<Database>, id: &DocId, request: &mut Request) -> Result<(Draft, Vec<Staged>)> {
    match related(request).map(str::to_owned) {
        Some(content_type) => related::read(db, id, &content_type, &mut request.body).await,
        None => Ok((draft::parse(request.json_body().await?)?, Vec::new())),
    }
}

/// The content type of a document that comes with its attachments.
fn related(request: &Request) -> Option<&str> {
    request.header("content-type").filter(|kind| kind.starts_with("multipart/related;"))
}

/// `POST /{db}`: a document under its own id or under a new one.
///
/// # Errors
/// 415 for other content types, then as [`put`].
pub async fn post(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let database = open(ctx, &request, db)?;
    request.require_json()?;
    let options = WriteOptions { new_edits: true, ..options(&request)? };
    let draft = draft::parse(request.json_body().await?)?;
    let id = match &draft.id {
        Some(id) => checked_id(ctx, id)?,
        None => DocId::new(&ctx.uuids.next()),
    };
    may_write(ctx, &request, &database, &id)?;
    let mut write = WriteRequest { id: id.clone(), draft, follows: Vec::new() };
    rules::prepare(ctx, &request.user, &database, &mut write, true).await?;
    if is_batch(&request.query) {
        database.writer().write_later(write, options).await?;
        return Ok(Reply::json(StatusCode::ACCEPTED, ok_json(id.as_str(), None)));
    }
    let done = database.writer().write_one(write, options).await?;
    Ok(written(&database, id.as_str(), &done, StatusCode::CREATED).location(&request, &[db, id.as_str()]))
}

/// `DELETE /{db}/{docid}`. `batch=ok` does not count (`docs/compatibility.md`).
///
/// # Errors
/// 404 for what is not there or deleted already, before the revision is looked at.
pub async fn delete(ctx: &Context, request: &Request, db: &str, id: &str) -> Result<Reply> {
    let database = open(ctx, request, db)?;
    let id = placed_id(&database, id)?;
    may_write(ctx, request, &database, &id)?;
    let options = options(request)?;
    let rev = match named_revision(request) {
        Ok(rev) => rev,
        Err(problem) => {
            one(&database, &id, None, false).await?;
            return Err(problem);
        }
    };
    rules::may_delete(ctx, &request.user, &database, &id, rev.as_ref()).await?;
    let done = database.writer().delete(&id, rev, options).await?;
    let etag = if id.is_local() { local::etag(&done.rev, b"{}") } else { rev_etag(&done.rev) };
    Ok(written(&database, id.as_str(), &done, StatusCode::OK).etag(&etag))
}

/// `COPY /{db}/{docid}` to the id in `Destination`, within the database.
///
/// # Errors
/// 400 for a bad destination, 404 for a missing source, 409 for a conflict.
pub async fn copy(ctx: &Context, request: &Request, db: &str, id: &str) -> Result<Reply> {
    let database = open(ctx, request, db)?;
    let source = placed_id(&database, id)?;
    let source_rev = named_revision(request)?;
    let (target, target_rev) = destination(request.header("destination"))?;
    let target = checked_id(ctx, &target)?;
    may_write(ctx, request, &database, &target)?;
    let options = options(request)?;
    let (from, to) = ((&source, source_rev.as_ref()), (&target, target_rev.as_ref()));
    rules::may_copy(ctx, &request.user, &database, from, to).await?;
    let done = database.writer().copy(&source, source_rev, &target, target_rev, options).await?;
    let reply = written(&database, target.as_str(), &done, StatusCode::CREATED).etag(&rev_etag(&done.rev));
    Ok(reply.location(request, &[db, target.as_str()]))
}

/// The revision that `rev` or `If-Match` names.
pub fn named_revision(request: &Request) -> Result<Option<Revision>> {
    request_revision(request.query.get("rev"), request.header("if-match"))
}

/// `new_edits`, `w` and the caller.
///
/// # Errors
/// 400 for a `w` that is no number.
pub fn options(request: &Request) -> Result<WriteOptions> {
    let w = request.query.get("w").map(replicas).transpose()?;
    // Of several that say either, the last counts.
    let says = |(name, value): &(&str, &str)| *name == "new_edits" && matches!(*value, "true" | "false");
    let new_edits = request.query.iter().filter(says).last().is_none_or(|(_, value)| value == "true");
    Ok(WriteOptions { new_edits, w, caller: caller(request) })
}

/// Who asks, as validation functions see it.
fn caller(request: &Request) -> Arc<Caller> {
    Arc::new(Caller { name: request.user.name.clone(), roles: request.user.roles.clone(), ..Caller::default() })
}

fn is_batch(query: &Query) -> bool {
    query.get("batch") == Some("ok")
}
