//! A document as a client sends it: checks of the reserved members, attachments entries, revision given or not.
//!
//! Reserved are all members of the top level that begin with an underscore. They are taken in the order of the text, so
//! that of several faults the first is told, as CouchDB 3.5 was measured. Errors carry its names and messages.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;

use crate::id;
use crate::json::{self, JsonError, Object, Value};
use crate::limits;
use crate::render::is_object_text;
use crate::rev_tree::RevPath;
use crate::revision::{self, AttachmentDigest, BadRevision, BodyTerm, POS_MAX, RevHash, Revision};

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
    /// The message for the client.
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

impl DraftAttachment {
    /// An attachment that stays as it is when its document is written anew.
    pub fn stub(name: &str, revpos: u64) -> DraftAttachment {
        DraftAttachment {
            name: name.to_owned(),
            content_type: None,
            revpos: Some(revpos),
            encoding: None,
            digest: None,
            data: DraftData::Stub,
        }
    }

    /// `digest`, where it is an MD5.
    pub fn md5(&self) -> Option<[u8; 16]> {
        self.digest.as_deref().and_then(md5_of)
    }
}

/// The MD5 that a text `md5-..` tells in base64.
pub fn md5_of(digest: &str) -> Option<[u8; 16]> {
    base64::engine::general_purpose::STANDARD.decode(digest.strip_prefix("md5-")?).ok()?.try_into().ok()
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
        /// Announced plain bytes, where the part is encoded.
        plain_length: Option<u64>,
    },
}

/// Checks a parsed document.
pub fn parse(value: Value) -> Result<Draft, DraftError> {
    let Value::Object(members) = value else { return Err(bad_request("Document must be a JSON object")) };
    let mut draft = Draft {
        id: None,
        rev: None,
        revisions: None,
        deleted: false,
        body: Object::with_capacity(members.len()),
        attachments: Vec::new(),
    };
    for (name, value) in members {
        if name.starts_with('_') {
            take_reserved(&mut draft, name, value)?;
        } else {
            draft.body.push(name, value);
        }
    }
    // Names are checked last: a fault of form elsewhere comes first.
    draft.attachments.iter().try_for_each(|a| check_attachment_name(&a.name))?;
    Ok(draft)
}

/// What the replicator writes into its documents: kept as ordinary data, in any database.
const REPLICATION_STATE: [&str; 5] = [
    "_replication_id",
    "_replication_state",
    "_replication_state_reason",
    "_replication_state_time",
    "_replication_stats",
];

fn take_reserved(draft: &mut Draft, name: String, value: Value) -> Result<(), DraftError> {
    match (name.as_str(), value) {
        ("_id", Value::String(text)) => {
            id::check_text(&text, None)?;
            draft.id = Some(text);
        }
        ("_id", _) => return Err(DraftError::new(DraftErrorKind::IllegalDocId, "Document id must be a string")),
        // `_revisions` says more: a `_rev` beside it does not count.
        ("_rev", _) if draft.revisions.is_some() => {}
        ("_rev", value) => draft.rev = Some(parse_rev(value.as_str().unwrap_or_default())?),
        ("_revisions", Value::Object(members)) => {
            if let Some(path) = parse_revisions(&members)? {
                draft.rev = Some(path.head());
                draft.revisions = Some(path);
            }
        }
        ("_deleted", Value::Bool(deleted)) => draft.deleted = deleted,
        ("_attachments", Value::Object(entries)) => {
            // What is no object is passed over, as in CouchDB.
            let objects = entries.into_iter().filter_map(|(name, entry)| match entry {
                Value::Object(members) => Some((name, members)),
                _ => None,
            });
            draft.attachments = objects.map(|(name, members)| parse_entry(name, members)).collect::<Result<_, _>>()?;
        }
        // What an answer may hold, and a client may send back.
        ("_conflicts" | "_deleted_conflicts" | "_revs_info" | "_local_seq", _) => {}
        (kept, value) if REPLICATION_STATE.contains(&kept) => draft.body.push(name, value),
        (unknown, _) => return Err(bad_member(unknown)),
    }
    Ok(())
}

fn bad_request(reason: impl Into<String>) -> DraftError {
    DraftError::new(DraftErrorKind::BadRequest, reason)
}

fn invalid(reason: impl Into<String>) -> DraftError {
    DraftError::new(DraftErrorKind::DocValidation, reason)
}

fn bad_member(name: &str) -> DraftError {
    invalid(format!("Bad special document member: {name}"))
}

impl From<BadRevision> for DraftError {
    fn from(_: BadRevision) -> DraftError {
        bad_request("Invalid rev format")
    }
}

/// Reads a revision that a client named, in a body or elsewhere. The error is `bad_request`, `Invalid rev format`.
pub fn parse_rev(text: &str) -> Result<Revision, DraftError> {
    Ok(Revision::parse(text)?)
}

/// `{"start": 3, "ids": ["c", "b", "a"]}`; `None` when it names no revision.
fn parse_revisions(members: &Object) -> Result<Option<RevPath>, DraftError> {
    let start = members.get("start").unwrap_or(&Value::Null);
    if !matches!(start, Value::Int(_) | Value::Big(_)) {
        return Err(invalid("_revisions.start isn't an integer."));
    }
    let ids = members.get("ids").and_then(Value::as_array).ok_or_else(|| invalid("_revisions.ids isn't a array."))?;
    let hash = |id: &Value| {
        let text = id.as_str().ok_or_else(|| invalid("RevId isn't a string"))?;
        RevHash::parse(text).map_err(|_| invalid("RevId isn't a valid hexadecimal"))
    };
    let ids = ids.iter().map(hash).collect::<Result<Vec<RevHash>, DraftError>>()?;
    if ids.is_empty() {
        return Ok(None);
    }
    // Ours: the reference takes histories that reach below the first generation, and cannot read them again.
    let start = start.as_u64().filter(|start| *start <= POS_MAX && ids.len() as u64 - 1 <= *start);
    let start = start.ok_or_else(|| invalid("_revisions.start doesn't fit the number of _revisions.ids."))?;
    Ok(Some(RevPath { start, ids }))
}

/// Standard base64 with its padding; the bits that padding leaves over are not looked at.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical)
        .with_decode_allow_trailing_bits(true),
);

fn parse_entry(name: String, mut members: Object) -> Result<DraftAttachment, DraftError> {
    let is_true = |member: &str| members.get(member) == Some(&Value::Bool(true));
    let (stub, follows) = (is_true("stub"), is_true("follows"));
    let revpos = optional(&members, "revpos", Value::as_u64)?;
    let text = |v: &Value| v.as_str().map(str::to_owned);
    let content_type = optional(&members, "content_type", text)?;
    let encoding = optional(&members, "encoding", text)?;
    let digest = optional(&members, "digest", text)?;
    let data = if stub {
        DraftData::Stub
    } else if follows {
        let plain = members.get("length").and_then(Value::as_u64);
        let encoded = members.get("encoded_length").and_then(Value::as_u64).filter(|_| encoding.is_some());
        DraftData::Follows { length: encoded.or(plain), plain_length: encoded.and(plain) }
    } else {
        let decoded = match members.remove("data") {
            Some(Value::String(text)) => decode_base64(text),
            _ => None,
        };
        DraftData::Inline(decoded.ok_or_else(|| bad_request(format!("Invalid attachment data for {name}")))?)
    };
    Ok(DraftAttachment { name, content_type, revpos, encoding, digest, data })
}

/// A member that may be absent, but not of another type.
fn optional<T>(members: &Object, name: &str, read: impl Fn(&Value) -> Option<T>) -> Result<Option<T>, DraftError> {
    members.get(name).map(|value| read(value).ok_or_else(|| bad_member("_attachments"))).transpose()
}

/// White space between the digits is allowed, as the reference's decoder does.
fn decode_base64(text: String) -> Option<Vec<u8>> {
    let is_space = |b: u8| matches!(b, b' ' | b'\t' | b'\n' | b'\r');
    let mut bytes = text.into_bytes();
    if bytes.iter().any(|b| is_space(*b)) {
        bytes.retain(|b| !is_space(*b));
    }
    BASE64.decode(bytes).ok()
}

/// Attachment names must not begin with an underscore.
pub fn check_attachment_name(name: &str) -> Result<(), DraftError> {
    if name.starts_with('_') {
        let reason = format!("Attachment name '{name}' starts with prohibited character '_'");
        return Err(bad_request(reason));
    }
    Ok(())
}

/// A body ready to be stored and hashed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PreparedBody {
    /// Canonical text of the JSON object, without reserved members.
    pub text: Bytes,
    /// The same for the revision hash.
    pub term: Term,
}

/// What the revision hash is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Term {
    /// The external term. It tells more than the text: which of the two zeros a number was, and digits that the text
    /// rounds away. Empty for an edit that merges a known revision.
    Written(Bytes),
    /// It tells no more than the text, and is made of that when it is needed: for large bodies, since it takes as much
    /// memory as they do.
    OfText,
}

impl PreparedBody {
    /// Writes both forms once.
    pub fn new(body: &Object) -> PreparedBody {
        let text = Bytes::from(body.to_vec());
        let of_text = text.len() >= limits::TERM_OF_TEXT_BYTES && !body.has_float();
        let term = if of_text { Term::OfText } else { Term::Written(revision::encode_body(body).into()) };
        PreparedBody { text, term }
    }

    /// From the stored canonical text of an object, which is kept as it is. Text that cannot be stored so (with spaces
    /// around it, or control bytes) is written anew.
    pub fn from_text(text: Bytes) -> Result<PreparedBody, JsonError> {
        PreparedBody::from_text_and_term(text, None)
    }

    /// As [`PreparedBody::from_text`], of a revision whose hash is known: without a term.
    ///
    /// # Errors
    /// The text is not that of an object.
    pub fn of_known_revision(text: Bytes) -> Result<PreparedBody, JsonError> {
        PreparedBody::from_text_and_term(text, Some(Bytes::new()))
    }

    /// As [`PreparedBody::from_text`], where the term may be known already.
    pub fn from_text_and_term(text: Bytes, term: Option<Bytes>) -> Result<PreparedBody, JsonError> {
        if text.len() >= limits::TERM_OF_TEXT_BYTES && is_object_text(&text) {
            json::check(&text)?;
            return Ok(PreparedBody { text, term: term.map_or(Term::OfText, Term::Written) });
        }
        let Value::Object(body) = json::parse(&text)? else { return Err(JsonError) };
        let text = if is_object_text(&text) { text } else { body.to_vec().into() };
        let term = term.unwrap_or_else(|| revision::encode_body(&body).into());
        Ok(PreparedBody { text, term: Term::Written(term) })
    }

    /// The revision of an edit with this body, see [`revision::compute`].
    pub fn revision(&self, deleted: bool, parent: Option<&Revision>, attachments: &[AttachmentDigest<'_>]) -> Revision {
        match &self.term {
            Term::Written(term) => revision::compute_with(deleted, parent, BodyTerm::Written(term), attachments),
            Term::OfText => {
                let read = json::parse(&self.text);
                // Invariant: a body of this kind was made of an object, or its text was checked.
                let body = read.as_ref().ok().and_then(Value::as_object).expect("the text of an object");
                revision::compute_with(deleted, parent, BodyTerm::Of(body), attachments)
            }
        }
    }

    /// The term as other nodes are sent it; `None`: they read the text.
    pub fn sent_term(&self) -> Option<Bytes> {
        match &self.term {
            Term::Written(term) => Some(term.clone()),
            Term::OfText => None,
        }
    }
}

#[cfg(test)]
mod tests;
