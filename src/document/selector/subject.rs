//! What selectors match and `fields` cut: a value, or a document as it is stored, of which only what is asked for is
//! read.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::path::{FieldPath, Found};
use crate::json::{self, JsonError, Lazy, Object, Value, parse_lazily};
use crate::render::{Attachment, StoredRevision};
use crate::revision::Revision;

/// What is at the end of a path of a [`Subject`].
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<'a> {
    /// A value.
    Value(Cow<'a, Value>),
    /// An object without that key.
    Absent,
    /// As [`Found::NoPath`].
    NoPath,
}

impl Seen<'_> {
    fn of(found: Found<'_>) -> Seen<'_> {
        match found {
            Found::Value(value) => Seen::Value(Cow::Borrowed(value)),
            Found::Absent => Seen::Absent,
            Found::NoPath => Seen::NoPath,
        }
    }

    /// What is at the rest of a path whose first steps led to an owned value.
    fn within(value: Value, rest: &[String]) -> Seen<'static> {
        match super::path::follow(&value, rest) {
            Found::Value(found) => Seen::Value(Cow::Owned(found.clone())),
            Found::Absent => Seen::Absent,
            Found::NoPath => Seen::NoPath,
        }
    }
}

/// Something whose fields can be looked at.
pub trait Subject {
    /// What is at the end of a path.
    ///
    /// # Errors
    /// What is stored is damaged.
    fn see(&self, path: &FieldPath) -> Result<Seen<'_>, JsonError>;
}

impl Subject for Value {
    fn see(&self, path: &FieldPath) -> Result<Seen<'_>, JsonError> {
        Ok(Seen::of(path.find(self)))
    }
}

/// A stored revision of a document, seen as a client would see it.
#[derive(Clone, Copy, Debug)]
pub struct StoredDocument<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its revision.
    pub rev: &'a Revision,
    /// Whether that is a tombstone.
    pub deleted: bool,
    /// Canonical text of the JSON object, without reserved members.
    pub body: &'a [u8],
    /// Its attachments.
    pub attachments: &'a [Attachment],
    /// Its conflicts, where they are to be seen.
    pub conflicts: &'a [Revision],
}

impl<'a> StoredDocument<'a> {
    /// The revision `stored` of the document `id`.
    pub fn of(id: &'a str, stored: &'a StoredRevision) -> StoredDocument<'a> {
        let StoredRevision { rev, deleted, body, attachments } = stored;
        StoredDocument { id, rev, deleted: *deleted, body, attachments, conflicts: &[] }
    }

    /// With its conflicts to be seen.
    #[must_use]
    pub fn with_conflicts(self, conflicts: &'a [Revision]) -> StoredDocument<'a> {
        StoredDocument { conflicts, ..self }
    }
}

impl Subject for StoredDocument<'_> {
    fn see(&self, path: &FieldPath) -> Result<Seen<'_>, JsonError> {
        self.look(path)
    }
}

impl StoredDocument<'_> {
    /// As [`Subject::see`]; what is seen outlives the document.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub fn look(&self, path: &FieldPath) -> Result<Seen<'static>, JsonError> {
        let Some((first, rest)) = path.steps().split_first() else { return Ok(Seen::Value(Cow::Owned(self.whole()?))) };
        Ok(match first.as_str() {
            "_id" => Seen::within(Value::from(self.id), rest),
            "_rev" => Seen::within(Value::from(self.rev.to_string()), rest),
            "_deleted" if self.deleted => Seen::within(Value::Bool(true), rest),
            "_conflicts" if !self.conflicts.is_empty() => Seen::within(texts(self.conflicts), rest),
            "_attachments" if !self.attachments.is_empty() => Seen::within(stubs(self.attachments), rest),
            _ => match parse_lazily(self.body, path.steps())? {
                Lazy::Text(text) => Seen::Value(Cow::Owned(json::parse(text)?)),
                Lazy::Absent => Seen::Absent,
                Lazy::NoPath => Seen::NoPath,
            },
        })
    }

    /// All that can be seen of it.
    fn whole(&self) -> Result<Value, JsonError> {
        let Value::Object(body) = json::parse(self.body)? else { return Err(JsonError) };
        let mut document = Object::with_capacity(body.len() + 5);
        document.push("_id", self.id);
        document.push("_rev", self.rev.to_string());
        if self.deleted {
            document.push("_deleted", true);
        }
        for (name, value) in body {
            document.push(name, value);
        }
        if !self.attachments.is_empty() {
            document.push("_attachments", stubs(self.attachments));
        }
        if !self.conflicts.is_empty() {
            document.push("_conflicts", texts(self.conflicts));
        }
        Ok(Value::Object(document))
    }
}

/// The document with `_id`, `_rev`, its own members, `_attachments` as stubs and `_deleted`.
///
/// # Errors
/// The stored body is no JSON: it is damaged.
pub fn document_value(id: &str, revision: &StoredRevision) -> Result<Value, JsonError> {
    StoredDocument::of(id, revision).whole()
}

fn texts(revs: &[Revision]) -> Value {
    Value::Array(revs.iter().map(|rev| Value::String(rev.to_string())).collect())
}

fn stubs(attachments: &[Attachment]) -> Value {
    Value::Object(attachments.iter().map(|attachment| (attachment.name.clone(), stub(attachment))).collect())
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
