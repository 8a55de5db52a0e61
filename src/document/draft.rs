//! A document as a client sends it: checks of the reserved members, attachments entries, revision given or not.

use std::fmt;

use bytes::Bytes;

use crate::document::json::{JsonError, Object, Value};
use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;

/// The family of a [`DraftError`]. All are answered with status 400.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DraftErrorKind {
    /// `bad_request`
    BadRequest,
    /// `doc_validation`
    DocValidation,
    /// `illegal_docid`
    IllegalDocId,
    /// `illegal_partition`
    IllegalPartition,
}

impl DraftErrorKind {
    /// The error name as clients see it.
    pub fn name(self) -> &'static str {
        match self {
            DraftErrorKind::BadRequest => "bad_request",
            DraftErrorKind::DocValidation => "doc_validation",
            DraftErrorKind::IllegalDocId => "illegal_docid",
            DraftErrorKind::IllegalPartition => "illegal_partition",
        }
    }
}

/// Why a document or id as sent cannot be accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DraftError {
    /// The family, which has the error name.
    pub kind: DraftErrorKind,
    /// The sentence for the client.
    pub reason: String,
}

impl DraftError {
    /// Puts an error together.
    pub fn new(kind: DraftErrorKind, reason: impl Into<String>) -> DraftError {
        DraftError { kind, reason: reason.into() }
    }

    /// The error name as clients see it.
    pub fn name(&self) -> &'static str {
        self.kind.name()
    }
}

impl fmt::Display for DraftError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.reason)
    }
}

impl std::error::Error for DraftError {}

/// A document as sent, checked.
#[derive(Clone, PartialEq, Debug)]
pub struct Draft {
    /// `_id` of the body; checked but for its length.
    pub id: Option<String>,
    /// The revision named by `_rev`, or else the newest of `_revisions`.
    pub rev: Option<Revision>,
    /// `_revisions`, when it names any.
    pub revisions: Option<RevPath>,
    /// `_deleted`
    pub deleted: bool,
    /// All members but the reserved ones; those of the `_replication_` family are kept.
    pub body: Object,
    /// The entries of `_attachments` in their order.
    pub attachments: Vec<DraftAttachment>,
}

/// One entry of `_attachments`.
#[derive(Clone, PartialEq, Debug)]
pub struct DraftAttachment {
    /// The attachment's name; does not begin with an underscore.
    pub name: String,
    /// `content_type`, when given.
    pub content_type: Option<String>,
    /// `revpos`, when given.
    pub revpos: Option<u64>,
    /// `encoding`, when given.
    pub encoding: Option<String>,
    /// `digest`, when given.
    pub digest: Option<String>,
    /// Where the bytes are.
    pub data: DraftData,
}

/// Where the bytes of an attachment are.
#[derive(Clone, PartialEq, Debug)]
pub enum DraftData {
    /// Already stored with an earlier revision.
    Stub,
    /// In the entry (base64, decoded here): the plain bytes.
    Inline(Vec<u8>),
    /// In a part of the multipart body. `length` in bytes as announced for the part (the encoded one if it is encoded).
    Follows {
        /// Announced bytes of the part.
        length: Option<u64>,
    },
}

/// Checks a parsed document.
pub fn parse(_value: Value) -> Result<Draft, DraftError> {
    todo!()
}

/// Attachment names must not begin with an underscore.
pub fn check_attachment_name(name: &str) -> Result<(), DraftError> {
    if name.starts_with('_') {
        let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
        return Err(DraftError::new(DraftErrorKind::BadRequest, reason));
    }
    Ok(())
}

/// A body ready to be stored and hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedBody {
    /// Canonical text of the JSON object, without reserved members.
    pub text: Bytes,
    /// The same as an external term, for the revision hash.
    pub term: Vec<u8>,
}

impl PreparedBody {
    /// Writes both forms once.
    pub fn new(_body: &Object) -> PreparedBody {
        todo!()
    }

    /// From the stored canonical text of an object, which is kept as it is.
    pub fn from_text(_text: Bytes) -> Result<PreparedBody, JsonError> {
        todo!()
    }
}
