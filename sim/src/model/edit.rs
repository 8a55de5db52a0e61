//! An edit as the oracle keeps it, and the violation that it reports.

use md5::{Digest, Md5};

/// What became of an edit, as its client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 201, 200: this revision is durable.
    Acknowledged(String),
    /// 4xx: nothing of it may ever be seen.
    Refused,
    /// No answer, or a 5xx: it may be there, or appear, once.
    Unknown,
}

/// An attachment as the model keeps it: name, MD5 of its bytes, length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// Name.
    pub name: String,
    /// MD5 of the content (never compressed: the content type is application/octet-stream).
    pub md5: [u8; 16],
    /// Size in bytes.
    pub len: usize,
}

impl Blob {
    /// Whether this is its content.
    pub fn is(&self, content: &[u8]) -> bool {
        content.len() == self.len && <[u8; 16]>::from(Md5::digest(content)) == self.md5
    }
}

/// One edit that a client sent.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Document id.
    pub doc: String,
    /// The revision that it was to build on; `None` when it named none.
    pub parent: Option<String>,
    /// Whether it deletes.
    pub deleted: bool,
    /// The body's only member `v`; `None` is an empty body.
    pub v: Option<u64>,
    /// Attachments in document order.
    pub blobs: Vec<Blob>,
    /// For replicated edits: the revision id that the client chose.
    pub given: Option<String>,
    /// What the client knows.
    pub outcome: Outcome,
}

/// A broken promise: the invariant's number and what was expected and found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Number in docs/simulation-faults.md, for example "I1".
    pub invariant: &'static str,
    /// A sentence with document and revision.
    pub what: String,
}

/// The order of revisions: generation, then hash.
pub fn order(rev: &str) -> (u64, String) {
    let (generation, hash) = rev.split_once('-').unwrap_or(("0", rev));
    (generation.parse().unwrap_or(0), hash.to_owned())
}
