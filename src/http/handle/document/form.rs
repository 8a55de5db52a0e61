//! `POST /{db}/{docid}`: attachments sent by an HTML form, as `multipart/form-data`.
//!
//! The fields are `_rev` (the revision to extend) or `_doc` (a whole document), and any number of files `_attachments`.

use std::sync::Arc;

use bytes::Bytes;
use http::{StatusCode, Uri};

use super::read::one;
use super::read_options::revision;
use super::write::options;
use super::write_options::parent_revision;
use super::{checked_id, may_write, open, rev_etag, written};
use crate::coordinator::{Database, Staged, UploadOptions, WriteOperations, WriteRequest};
use crate::document::draft::{self, Draft, DraftAttachment, DraftData, check_attachment_name};
use crate::document::id::DocId;
use crate::document::json::{self, Value};
use crate::document::render::StoredRevision;
use crate::http::handle::rules;
use crate::http::multipart::{Multipart, PartHead};
use crate::http::{Context, Problem, Reply, Request, Result};

/// The fields of a form.
#[derive(Default)]
struct Fields {
    rev: Option<Bytes>,
    doc: Option<Bytes>,
    files: Vec<(String, Staged)>,
}

/// Answers the form.
///
/// # Errors
/// 400 without a `Referer` of this host, 415 for another content type, 404 for an unknown revision.
pub async fn upload(ctx: &Context, mut request: Request, db: &str, id: &str) -> Result<Reply> {
    let database = open(ctx, &request, db)?;
    check_referer(&request)?;
    let id = checked_id(ctx, id)?;
    may_write(ctx, &request, &database, &id)?;
    let content_type = request.header("content-type").unwrap_or_default().to_owned();
    if request.media_type().as_deref() != Some("multipart/form-data") {
        return Err(Problem::bad_content_type("Content-Type must be multipart/form-data"));
    }
    let options = options(&request)?;
    let fields = read_fields(&database, &id, &content_type, &mut request).await?;
    let mut draft = match &fields.doc {
        Some(text) => {
            let mut draft = draft::parse(json::parse(text).map_err(|_| Problem::unread_json(text))?)?;
            let (query, header) = (request.query.get("rev"), request.header("if-match"));
            draft.rev = parent_revision(draft.rev.as_ref(), query, header)?;
            draft
        }
        None => {
            let rev = fields.rev.as_deref().and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default();
            let (_, stored) = one(&database, &id, Some(&revision(rev.trim())?), true).await?;
            as_draft(stored)?
        }
    };
    draft.attachments.retain(|old| fields.files.iter().all(|(name, _)| *name != old.name));
    let new = fields.files.iter().map(|(name, staged)| DraftAttachment {
        content_type: Some(staged.attachment.content_type.clone()),
        ..entry(name, None, DraftData::Follows { length: None, plain_length: None })
    });
    draft.attachments = new.chain(std::mem::take(&mut draft.attachments)).collect();
    let follows = fields.files.into_iter().map(|(_, staged)| staged).collect();
    let mut write = WriteRequest { id: id.clone(), draft, follows };
    rules::prepare(ctx, &request.user, &database, &mut write, options.new_edits).await?;
    let done = database.writer().write_one(write, options).await?;
    Ok(written(&database, id.as_str(), &done, StatusCode::CREATED).etag(&rev_etag(&done.rev)))
}

/// A form must come from a page of this host: browsers send forms of foreign pages with the user's cookie.
fn check_referer(request: &Request) -> Result<()> {
    let Some(referer) = request.header("referer") else {
        return Err(Problem::bad_request("Referer header required."));
    };
    let host = request.header("x-forwarded-host").or_else(|| request.header("host")).unwrap_or_default();
    let from = referer.parse::<Uri>().ok();
    if from.as_ref().and_then(Uri::authority).map(|a| a.as_str()) != Some(host) {
        return Err(Problem::bad_request("Referer header must match host."));
    }
    Ok(())
}

async fn read_fields(db: &Arc<Database>, id: &DocId, content_type: &str, request: &mut Request) -> Result<Fields> {
    let json_bytes = request.body.json_limit();
    let mut parts = Multipart::new(&mut request.body, content_type)?;
    let mut fields = Fields::default();
    while let Some(head) = parts.next_part().await? {
        match head.disposition("name").as_deref() {
            Some("_rev") => fields.rev = Some(parts.short_bytes().await?),
            Some("_doc") => {
                // An earlier one does not count, nor does it take memory beside this one.
                fields.doc = None;
                fields.doc = Some(parts.json_bytes(json_bytes).await?);
            }
            Some("_attachments") => {
                // A form without a chosen file sends an empty name.
                let Some(name) = head.disposition("filename").filter(|name| !name.is_empty()) else { continue };
                check_attachment_name(&name)?;
                let mut upload = db.attachments().upload(id, upload_options(&name, &head)).await?;
                while let Some(chunk) = parts.next_chunk().await? {
                    upload.write(chunk).await?;
                }
                fields.files.push((name, upload.finish().await?));
            }
            _ => {}
        }
    }
    Ok(fields)
}

fn upload_options(name: &str, head: &PartHead) -> UploadOptions {
    let content_type = head.get("content-type").unwrap_or("application/octet-stream").to_owned();
    UploadOptions { name: name.to_owned(), content_type, gzip: false, md5: None }
}

/// A stored revision as the draft of its successor: all attachments are kept by stubs.
fn as_draft(stored: StoredRevision) -> Result<Draft> {
    let body = match json::parse(&stored.body) {
        Ok(Value::Object(body)) => body,
        _ => return Err(Problem::internal("The stored document cannot be read.")),
    };
    let stubs = stored.attachments.iter().map(|a| entry(&a.name, Some(a.revpos), DraftData::Stub));
    let attachments = stubs.collect();
    Ok(Draft { id: None, rev: Some(stored.rev), revisions: None, deleted: stored.deleted, body, attachments })
}

fn entry(name: &str, revpos: Option<u64>, data: DraftData) -> DraftAttachment {
    DraftAttachment { name: name.to_owned(), content_type: None, revpos, encoding: None, digest: None, data }
}
