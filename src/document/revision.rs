//! Revision ids: parsing, order, and the deterministic hash that equals CouchDB's bit for bit.
//!
//! A revision is a generation and a hash. The hash of an edit is the MD5 of an Erlang external term (version 131, minor
//! version 1) of the list `[Deleted, OldPos, OldHash, Body, Attachments]`, as CouchDB 3.5 was measured: the same edit made
//! in two databases has the same revision and is no conflict when they replicate.

use std::cmp::Ordering;
use std::fmt;

use crate::document::json::Object;

/// The hash part of a revision. Order is that of the raw bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum RevHash {
    /// 32 hexadecimal digits in text form.
    Md5([u8; 16]),
    /// Any other text that a client chose, as it stands.
    Text(Box<str>),
}

/// A text that is no revision; clients are told `Invalid rev format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadRevision;

/// One revision of a document: `pos` is the generation (1 for the first), `hash` tells siblings apart.
/// Order: generation, then hash bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Revision {
    /// The generation; 0 only for local documents.
    pub pos: u64,
    /// What tells revisions of one generation apart.
    pub hash: RevHash,
}

/// What of an attachment takes part in the hash.
#[derive(Clone, Copy, Debug)]
pub struct AttachmentDigest<'a> {
    /// The attachment's name.
    pub name: &'a str,
    /// Its content type as given.
    pub content_type: &'a str,
    /// MD5 of the stored bytes (of the gzip bytes when it is stored compressed).
    pub md5: &'a [u8; 16],
}

impl RevHash {
    /// The raw bytes, by which hashes are ordered.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            RevHash::Md5(bytes) => bytes,
            RevHash::Text(text) => text.as_bytes(),
        }
    }

    /// Reads the hash part. A text of 32 bytes must be hexadecimal (either case); any other stands as it is.
    pub fn parse(_text: &str) -> Result<RevHash, BadRevision> {
        todo!()
    }
}

impl PartialOrd for RevHash {
    fn partial_cmp(&self, other: &RevHash) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for RevHash {
    fn cmp(&self, other: &RevHash) -> Ordering {
        let is_text = |h: &RevHash| matches!(h, RevHash::Text(_));
        self.as_bytes().cmp(other.as_bytes()).then_with(|| is_text(self).cmp(&is_text(other)))
    }
}

impl fmt::Display for RevHash {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        todo!()
    }
}

impl fmt::Debug for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Revision {
    /// Puts a revision together.
    pub fn new(pos: u64, hash: RevHash) -> Revision {
        Revision { pos, hash }
    }

    /// Reads `N-hash`.
    pub fn parse(_text: &str) -> Result<Revision, BadRevision> {
        todo!()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.pos, self.hash)
    }
}

/// A document's body (without reserved members) as an external term, without the leading version byte.
pub fn encode_body(_body: &Object) -> Vec<u8> {
    todo!()
}

/// The revision of an edit. `parent` is the revision it replaces, `body_term` comes from [`encode_body`],
/// `attachments` are in the document's order (reversed inside, as CouchDB does).
pub fn compute(
    _deleted: bool,
    _parent: Option<&Revision>,
    _body_term: &[u8],
    _attachments: &[AttachmentDigest<'_>],
) -> Revision {
    todo!()
}
