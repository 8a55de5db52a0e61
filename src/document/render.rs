//! A stored revision as JSON text for a client.

use bytes::Bytes;

use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;

/// Strong hash (BLAKE3) of the stored bytes of an attachment: its name in the blob store.
pub type BlobId = [u8; 32];

/// How the bytes of an attachment are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// As they are.
    Identity,
    /// As a gzip stream.
    Gzip,
}

/// An attachment of a stored revision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    /// Unique within the document.
    pub name: String,
    /// As the client gave it.
    pub content_type: String,
    /// Generation in which these bytes came.
    pub revpos: u64,
    /// MD5 of the stored bytes.
    pub digest: [u8; 16],
    /// Plain bytes.
    pub length: u64,
    /// Stored bytes; equal to `length` unless encoded.
    pub stored_length: u64,
    /// How they are stored.
    pub encoding: Encoding,
    /// Where they are stored.
    pub blob: BlobId,
}

/// A revision with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRevision {
    /// Its name.
    pub rev: Revision,
    /// True for a tombstone.
    pub deleted: bool,
    /// Canonical text of the JSON object, without reserved members.
    pub body: Bytes,
    /// In the document's order.
    pub attachments: Vec<Attachment>,
}

/// What `_revs_info` says of a revision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RevStatus {
    /// Can be read.
    Available,
    /// Known by name only.
    Missing,
    /// A tombstone.
    Deleted,
}

/// What is shown of one attachment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttContent {
    /// `stub`
    Stub,
    /// `data`: the PLAIN bytes.
    Inline(Bytes),
    /// `follows`: the bytes come in a part of a multipart answer.
    Follows,
}

/// What is shown of the attachments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AttView<'a> {
    /// All as stubs.
    #[default]
    Stubs,
    /// One for each attachment, in their order.
    Each(&'a [AttContent]),
}

/// What is shown beside the body. The default shows `_id`, `_rev`, `_deleted` and stubs.
#[derive(Clone, Copy, Debug, Default)]
pub struct RenderOptions<'a> {
    /// `_revisions`
    pub revisions: Option<&'a RevPath>,
    /// `_revs_info`
    pub revs_info: Option<&'a [(Revision, RevStatus)]>,
    /// `_conflicts`; left out when empty.
    pub conflicts: &'a [Revision],
    /// `_deleted_conflicts`; left out when empty.
    pub deleted_conflicts: &'a [Revision],
    /// `_local_seq`
    pub local_seq: Option<u64>,
    /// The form of the attachments.
    pub attachments: AttView<'a>,
    /// Adds `encoding` and `encoded_length` for those stored encoded (always so in multipart answers).
    pub att_encoding_info: bool,
}

/// The document as JSON text. `id` is the document's id.
pub fn render(_id: &str, _stored: &StoredRevision, _options: &RenderOptions<'_>) -> Vec<u8> {
    todo!()
}
