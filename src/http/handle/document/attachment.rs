//! Attachments: `/{db}/{docid}/{name}` (CouchDB documentation, 'Attachments of documents'). Bytes are streamed both
//! ways.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use http::header::{ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};

use super::range::{ByteRange, Wanted, wanted};
use super::read::{boundary, one, stream};
use super::read_options::ReadOptions;
use super::shown::Piece;
use super::write::{named_revision, options};
use super::{checked_id, may_write, open, placed_id, rev_etag, written};
use crate::coordinator::{Database, ReadOperations, Staged, Upload, UploadOptions, WriteOperations};
use crate::document::draft::check_attachment_name;
use crate::document::id::DocId;
use crate::document::render::{Attachment, Encoding};
use crate::http::body::RequestBody;
use crate::http::handle::accept::names_gzip;
use crate::http::handle::rules;
use crate::http::policy::{self, Content};
use crate::http::{Context, Problem, Reply, Request, Result, Verb};

/// `/{db}/{docid}/{name}`: GET, PUT, DELETE. The body comes as sent: `Content-Encoding` is not undone.
pub async fn handle(ctx: &Context, request: Request, db: &str, id: &str, name: &str) -> Result<Reply> {
    match request.verb {
        Verb::Get => get(ctx, &request, db, id, name).await,
        Verb::Put => put(ctx, request, db, id, name).await,
        Verb::Delete => delete(ctx, &request, db, id, name).await,
        _ => Err(Problem::method_not_allowed("DELETE,GET,HEAD,PUT")),
    }
}

async fn get(ctx: &Context, request: &Request, db: &str, id: &str, name: &str) -> Result<Reply> {
    let db = open(ctx, request, db)?;
    // The whole query is read first, with what an attachment has no use for, as CouchDB does.
    let asked = ReadOptions::from_query(&request.query)?;
    let id = placed_id(&db, id)?;
    rules::must_see_all(ctx, &request.user, &db, &id)?;
    let (_, stored) = one(&db, &id, asked.rev.as_ref(), asked.deleted).await?;
    let Some(attachment) = stored.attachments.into_iter().find(|a| a.name == name) else {
        return Err(Problem::not_found("Document is missing attachment"));
    };
    let etag = format!("\"{}\"", STANDARD.encode(attachment.digest));
    if request.has_current(&etag) {
        return Ok(Reply::not_modified(&etag));
    }
    let reply = match attachment.encoding {
        Encoding::Identity => match wanted(request.header("range"), attachment.length) {
            Wanted::Whole => whole(db, id, attachment),
            Wanted::One(range) => part(db, id, attachment, range),
            Wanted::Several(ranges) => return Ok(parts(boundary(ctx), db, id, &attachment, &ranges)),
            Wanted::Unsatisfiable => {
                return Err(Problem::new(
                    StatusCode::RANGE_NOT_SATISFIABLE,
                    "requested_range_not_satisfiable",
                    "Requested range not satisfiable",
                ));
            }
        },
        Encoding::Gzip if names_gzip(request.header("accept-encoding")) => {
            whole(db, id, attachment).header(CONTENT_ENCODING, "gzip")
        }
        Encoding::Gzip => unzipped(db, id, attachment).await?,
    };
    // Damage at the beginning is an answer of its own.
    let reply = if request.head { reply } else { reply.begun().await? };
    // Of the answers of this path, CouchDB guards those with bytes that are no multipart body.
    Ok(policy::guard(&ctx.config, Content::Attachments, reply.etag(&etag)))
}

fn typed(reply: Reply, attachment: &Attachment) -> Reply {
    let ranges = if attachment.encoding == Encoding::Identity { "bytes" } else { "none" };
    reply.header(CONTENT_TYPE, &attachment.content_type).header(ACCEPT_RANGES, ranges)
}

/// All stored bytes, as they are stored.
fn whole(db: Arc<Database>, id: DocId, attachment: Attachment) -> Reply {
    typed(stream(db, id, vec![Piece::Stored(attachment.clone(), None)]), &attachment)
}

/// One range of the stored bytes.
fn part(db: Arc<Database>, id: DocId, attachment: Attachment, range: ByteRange) -> Reply {
    let piece = Piece::Stored(attachment.clone(), Some(range.first..range.last + 1));
    let reply = typed(stream(db, id, vec![piece]), &attachment).status(StatusCode::PARTIAL_CONTENT);
    reply.header(CONTENT_RANGE, &range.content_range(attachment.length))
}

/// Several ranges as `multipart/byteranges`; such an answer has no ETag, as CouchDB 3.5 was measured.
fn parts(boundary: String, db: Arc<Database>, id: DocId, attachment: &Attachment, ranges: &[ByteRange]) -> Reply {
    let mut pieces = vec![Piece::Text(format!("--{boundary}").into_bytes())];
    for range in ranges {
        let content_range = range.content_range(attachment.length);
        let head = format!("\r\nContent-Type: {}\r\nContent-Range: {content_range}\r\n\r\n", attachment.content_type);
        pieces.push(Piece::Text(head.into_bytes()));
        pieces.push(Piece::Stored(attachment.clone(), Some(range.first..range.last + 1)));
        pieces.push(Piece::Text(format!("\r\n--{boundary}").into_bytes()));
    }
    pieces.push(Piece::Text(b"--".to_vec()));
    let content_type = format!("multipart/byteranges; boundary=\"{boundary}\"");
    stream(db, id, pieces).status(StatusCode::PARTIAL_CONTENT).header(CONTENT_TYPE, &content_type)
}

/// The plain bytes of an attachment that is stored zipped, unzipped on their way. The plain length is known only where
/// this server zipped: what came zipped has the zipped length in both places.
///
/// # Errors
/// 500 for bytes that came as gzip and are none.
async fn unzipped(db: Arc<Database>, id: DocId, attachment: Attachment) -> Result<Reply> {
    let stored = attachment.clone();
    let reply = Reply::generate(move |mut sink| async move {
        let mut reader = db.documents().read_attachment_plain(&id, &stored).await?;
        while let Some(chunk) = reader.next().await? {
            sink.send(chunk).await?;
        }
        sink.flush().await
    });
    let reply = typed(reply.begun().await?, &attachment);
    if attachment.length == attachment.stored_length {
        return Ok(reply);
    }
    Ok(reply.header(CONTENT_LENGTH, &attachment.length.to_string()))
}

async fn put(ctx: &Context, mut request: Request, db: &str, id: &str, name: &str) -> Result<Reply> {
    let database = open(ctx, &request, db)?;
    check_attachment_name(name)?;
    let id = checked_id(ctx, id)?;
    may_write(ctx, &request, &database, &id)?;
    let upload = UploadOptions {
        name: name.to_owned(),
        content_type: request.header("content-type").unwrap_or("application/octet-stream").to_owned(),
        gzip: is_gzip(request.header("content-encoding"))?,
        md5: content_md5(request.header("content-md5"))?,
    };
    let (rev, options) = (named_revision(&request)?, options(&request)?);
    rules::may_attach(ctx, &request.user, &database, &id, rev.as_ref()).await?;
    database.attachments().check_attachment_write(&id, rev.as_ref()).await?;
    let staged = receive(database.attachments().upload(&id, upload).await?, &mut request.body).await?;
    let done = database.attachments().put_attachment(&id, name, rev, staged, options).await?;
    let reply = written(&database, id.as_str(), &done, StatusCode::CREATED);
    Ok(reply.location(&request, &[db, id.as_str(), name]))
}

/// Streams a body into an upload: the client is read no faster than the disk writes.
async fn receive(mut upload: Upload, body: &mut RequestBody) -> Result<Staged> {
    while let Some(chunk) = body.next_chunk().await? {
        upload.write(chunk).await?;
    }
    Ok(upload.finish().await?)
}

/// Whether an upload comes zipped; other encodings are refused.
pub fn is_gzip(content_encoding: Option<&str>) -> Result<bool> {
    match content_encoding.map(|text| text.trim().to_ascii_lowercase()).as_deref() {
        None | Some("" | "identity") => Ok(false),
        Some("gzip") => Ok(true),
        Some(_) => Err(Problem::bad_content_type("Only gzip and identity content-encodings are supported")),
    }
}

fn content_md5(header: Option<&str>) -> Result<Option<[u8; 16]>> {
    let Some(text) = header else { return Ok(None) };
    let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    bytes.map(Some).ok_or_else(|| Problem::bad_request("Invalid Content-MD5 header"))
}

async fn delete(ctx: &Context, request: &Request, db: &str, id: &str, name: &str) -> Result<Reply> {
    let db = open(ctx, request, db)?;
    check_attachment_name(name)?;
    let id = placed_id(&db, id)?;
    may_write(ctx, request, &db, &id)?;
    let (rev, options) = (named_revision(request)?, options(request)?);
    rules::may_attach(ctx, &request.user, &db, &id, rev.as_ref()).await?;
    let done = db.attachments().delete_attachment(&id, name, rev, options).await?;
    let reply = written(&db, id.as_str(), &done, StatusCode::OK);
    // CouchDB says 200 however many replicas hold the deletion, and sends no ETag.
    let follows = ctx.config.follows_couchdb();
    Ok(if follows { reply.status(StatusCode::OK) } else { reply.etag(&rev_etag(&done.rev)) })
}

#[cfg(test)]
mod tests {
    use super::{content_md5, is_gzip};

    #[test]
    fn uploads_are_plain_or_gzip() {
        assert!(!is_gzip(None).unwrap() && !is_gzip(Some("Identity")).unwrap() && is_gzip(Some(" GZIP")).unwrap());
        assert_eq!(is_gzip(Some("br")).unwrap_err().status, 415);
    }

    #[test]
    fn a_content_md5_has_sixteen_bytes() {
        assert_eq!(content_md5(None).unwrap(), None);
        assert!(content_md5(Some("XUFAKrxLKna5cZ2REBfFkg==")).unwrap().is_some());
        for bad in ["", "abc", "YWJj"] {
            assert_eq!(content_md5(Some(bad)).unwrap_err().status, 400, "{bad}");
        }
    }
}
