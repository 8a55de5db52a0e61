//! A stored revision as the value that selectors judge and `fields` cut: the document as a client would see it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::document::json::{self, JsonError, Object, Value};
use crate::document::render::{Attachment, StoredRevision};

/// The document with `_id`, `_rev`, its own members, `_attachments` as stubs and `_deleted`.
///
/// # Errors
/// The stored body is no JSON: it is damaged.
pub fn document_value(id: &str, revision: &StoredRevision) -> Result<Value, JsonError> {
    let Value::Object(body) = json::parse(&revision.body)? else { return Err(JsonError) };
    let mut document = Object::with_capacity(body.len() + 4);
    document.push("_id", id);
    document.push("_rev", revision.rev.to_string());
    if revision.deleted {
        document.push("_deleted", true);
    }
    for (name, value) in body {
        document.push(name, value);
    }
    if !revision.attachments.is_empty() {
        let stubs = revision.attachments.iter().map(|attachment| (attachment.name.clone(), stub(attachment)));
        document.push("_attachments", stubs.collect::<Object>());
    }
    Ok(Value::Object(document))
}

fn stub(attachment: &Attachment) -> Value {
    let mut stub = Object::with_capacity(5);
    stub.push("content_type", attachment.content_type.as_str());
    stub.push("revpos", attachment.revpos);
    stub.push("digest", format!("md5-{}", STANDARD.encode(attachment.digest)));
    stub.push("length", attachment.length);
    stub.push("stub", true);
    Value::Object(stub)
}
