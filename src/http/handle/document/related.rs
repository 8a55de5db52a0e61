//! A document with its attachments as `multipart/related`: the body of a PUT (CouchDB documentation, 'Documents').
//!
//! The first part is the document; the others hold the bytes of its `follows` entries, in the order of the entries. The
//! file name of a part has no meaning, as in CouchDB. Bytes go to disk as they come.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::coordinator::{Database, Staged, UploadOptions, WriteOperations};
use crate::document::draft::{self, Draft, DraftAttachment, DraftData};
use crate::document::id::DocId;
use crate::document::json;
use crate::http::body::RequestBody;
use crate::http::multipart::{Multipart, PartHead};
use crate::http::request::media_type;
use crate::http::{Problem, Result};

/// Reads the body of a PUT of document `id`.
///
/// # Errors
/// 400 for malformed bodies and for entries without a part.
pub async fn read(
    db: &Arc<Database>,
    id: &DocId,
    content_type: &str,
    body: &mut RequestBody,
) -> Result<(Draft, Vec<Staged>)> {
    let json_bytes = body.json_limit();
    let mut parts = Multipart::new(body, content_type)?;
    let Some(head) = parts.next_part().await? else {
        return Err(Problem::bad_request("The multipart body has no document."));
    };
    if !is_json(&head) {
        return Err(Problem::bad_content_type("Content-Type must be application/json"));
    }
    let text = parts.json_bytes(json_bytes).await?;
    let draft = draft::parse(json::parse(&text).map_err(|_| Problem::unread_json(&text))?)?;
    let mut uploads: Vec<Staged> = Vec::new();
    for entry in draft.attachments.iter().filter(|a| follows(a)) {
        let Some(head) = parts.next_part().await? else {
            let reason = format!("The multipart body has no part for attachment {}.", entry.name);
            return Err(Problem::bad_request(reason));
        };
        let mut upload = db.attachments().upload(id, options(entry, &head)?).await?;
        let mut size = 0;
        while let Some(chunk) = parts.next_chunk().await? {
            size += chunk.len() as u64;
            if announced(entry).is_some_and(|length| size > length) {
                return Err(Problem::bad_request("attachment longer than expected"));
            }
            upload.write(chunk).await?;
        }
        if announced(entry).is_some_and(|length| size < length) {
            return Err(Problem::bad_request("attachment shorter than expected"));
        }
        uploads.push(upload.finish().await?);
    }
    Ok((draft, uploads))
}

/// Whether a part holds JSON.
fn is_json(head: &PartHead) -> bool {
    head.get("content-type").is_some_and(|text| media_type(text) == "application/json")
}

/// How many bytes a part has, where its entry says so.
fn announced(entry: &DraftAttachment) -> Option<u64> {
    if let DraftData::Follows { length, .. } = entry.data { length } else { None }
}

fn follows(entry: &DraftAttachment) -> bool {
    matches!(entry.data, DraftData::Follows { .. })
}

fn options(entry: &DraftAttachment, head: &PartHead) -> Result<UploadOptions> {
    let content_type = entry.content_type.as_deref().or_else(|| head.get("content-type"));
    let md5 = match entry.digest.as_deref().and_then(|digest| digest.strip_prefix("md5-")) {
        None => None,
        Some(text) => {
            let bytes = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
            Some(bytes.ok_or_else(|| Problem::bad_request(format!("Invalid digest of attachment {}", entry.name)))?)
        }
    };
    Ok(UploadOptions {
        name: entry.name.clone(),
        content_type: content_type.unwrap_or("application/octet-stream").to_owned(),
        gzip: super::attachment::is_gzip(entry.encoding.as_deref())?,
        md5,
    })
}
