//! A stored revision as JSON text for a client.
//!
//! The stored body is canonical text already and is copied as it stands: reading a document parses nothing. Member
//! names are those of CouchDB's documentation.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::json::write_string;

use crate::rev_tree::RevPath;
use crate::revision::Revision;
use crate::shared;

/// Strong hash (BLAKE3) of the stored bytes of an attachment: its name in the blob store.
pub type BlobId = [u8; 32];

/// How the bytes of an attachment are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Encoding {
    /// As they are.
    Identity,
    /// As a gzip stream.
    Gzip,
}

/// An attachment of a stored revision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoredRevision {
    /// Its name.
    pub rev: Revision,
    /// True for a tombstone.
    pub deleted: bool,
    /// Canonical text of the JSON object, without reserved members.
    #[serde(deserialize_with = "object_text")]
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

/// The byte that marks where base64 is to be filled in. JSON text written here holds no raw control character, so it
/// stands nowhere else.
pub const DATA_GAP: u8 = 0;

/// What is shown of one attachment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttContent {
    /// `stub`
    Stub,
    /// `data`: the PLAIN bytes.
    Inline(Bytes),
    /// `follows`: the bytes come in a part of a multipart answer.
    Follows,
    /// `data`, with [`DATA_GAP`] in place of its base64: the one that sends the text fills in the PLAIN bytes.
    Gap,
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

impl Attachment {
    /// `md5-..`, as in the entry of a document.
    pub fn digest_text(&self) -> String {
        format!("md5-{}", STANDARD.encode(self.digest))
    }
}

/// The document as JSON text. `id` is the document's id. With [`AttView::Each`] there must be one for each attachment.
pub fn render(id: &str, stored: &StoredRevision, options: &RenderOptions<'_>) -> Vec<u8> {
    let inner = inner(&stored.body);
    let mut out = Vec::with_capacity(inner.len() + id.len() + 128 + 256 * stored.attachments.len());
    put_head(id, stored, &mut out);
    out.extend_from_slice(inner);
    put_tail(stored, options, &mut out);
    out
}

/// As [`render`], in three parts: what stands before the members of the body, these as they are stored, and the rest,
/// with all that is told of attachments.
pub fn render_around(id: &str, stored: &StoredRevision, options: &RenderOptions<'_>) -> (Vec<u8>, Bytes, Vec<u8>) {
    let (mut head, mut tail) = (Vec::new(), Vec::new());
    put_head(id, stored, &mut head);
    put_tail(stored, options, &mut tail);
    (head, stored.body.slice_ref(inner(&stored.body)), tail)
}

fn put_head(id: &str, stored: &StoredRevision, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"_id\":");
    write_string(id, out);
    out.extend_from_slice(b",\"_rev\":");
    put_rev(&stored.rev, out);
    if stored.deleted {
        out.extend_from_slice(b",\"_deleted\":true");
    }
    if !inner(&stored.body).is_empty() {
        out.push(b',');
    }
}

fn put_tail(stored: &StoredRevision, options: &RenderOptions<'_>, out: &mut Vec<u8>) {
    if !stored.attachments.is_empty() {
        put_attachments(&stored.attachments, options, out);
    }
    if let Some(path) = options.revisions {
        put(format_args!(",\"_revisions\":{{\"start\":{},\"ids\":[", path.start), out);
        put_list(&path.ids, out, |hash, out| write_string(&hash.to_string(), out));
        out.extend_from_slice(b"]}");
    }
    if let Some(infos) = options.revs_info {
        out.extend_from_slice(b",\"_revs_info\":[");
        put_list(infos, out, |(rev, status), out| {
            out.extend_from_slice(b"{\"rev\":");
            put_rev(rev, out);
            put(format_args!(",\"status\":\"{}\"}}", status.name()), out);
        });
        out.push(b']');
    }
    if let Some(seq) = options.local_seq {
        put(format_args!(",\"_local_seq\":{seq}"), out);
    }
    for (name, revs) in [("_conflicts", options.conflicts), ("_deleted_conflicts", options.deleted_conflicts)] {
        if !revs.is_empty() {
            put(format_args!(",\"{name}\":["), out);
            put_list(revs, out, put_rev);
            out.push(b']');
        }
    }
    out.push(b'}');
}

/// Whether bytes can be the canonical text of an object, as far as those rely on it who copy it into an answer. The one
/// that reads a body, from the disk or from another node, looks at it once.
pub fn is_object_text(text: &[u8]) -> bool {
    let is_object = text.len() >= 2 && text.starts_with(b"{") && text.ends_with(b"}");
    is_object && !text.iter().any(|byte| *byte < b' ')
}

/// Reads a body that another node sent.
pub fn object_text<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
    let text = shared::deserialize(from)?;
    if is_object_text(&text) { Ok(text) } else { Err(D::Error::custom("a body is not the text of an object")) }
}

/// What stands between the braces of an object's text.
fn inner(body: &[u8]) -> &[u8] {
    let stripped = body.strip_prefix(b"{").and_then(|rest| rest.strip_suffix(b"}"));
    // Invariant: bodies are object texts; see `is_object_text`.
    stripped.expect("a body is the text of an object")
}

impl RevStatus {
    fn name(self) -> &'static str {
        match self {
            RevStatus::Available => "available",
            RevStatus::Missing => "missing",
            RevStatus::Deleted => "deleted",
        }
    }
}

fn put(text: std::fmt::Arguments<'_>, out: &mut Vec<u8>) {
    use std::io::Write;
    // Invariant: writing to a vector does not fail.
    out.write_fmt(text).expect("a vector takes all bytes");
}

fn put_rev(rev: &Revision, out: &mut Vec<u8>) {
    // The hash may be any text that a client chose, so it is escaped as such.
    write_string(&rev.to_string(), out);
}

fn put_list<I>(items: &[I], out: &mut Vec<u8>, mut each: impl FnMut(&I, &mut Vec<u8>)) {
    for (n, item) in items.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        each(item, out);
    }
}

fn put_attachments(attachments: &[Attachment], options: &RenderOptions<'_>, out: &mut Vec<u8>) {
    if let AttView::Each(contents) = options.attachments {
        assert!(contents.len() == attachments.len(), "one form for each attachment");
    }
    for (n, attachment) in attachments.iter().enumerate() {
        out.extend_from_slice(if n == 0 { b",\"_attachments\":{" } else { b"," });
        write_string(&attachment.name, out);
        out.extend_from_slice(b":{\"content_type\":");
        write_string(&attachment.content_type, out);
        put(format_args!(",\"revpos\":{},\"digest\":\"{}\"", attachment.revpos, attachment.digest_text()), out);
        let content = match options.attachments {
            AttView::Stubs => &AttContent::Stub,
            AttView::Each(contents) => &contents[n],
        };
        match content {
            AttContent::Stub => put(format_args!(",\"length\":{},\"stub\":true", attachment.length), out),
            AttContent::Follows => put(format_args!(",\"length\":{},\"follows\":true", attachment.length), out),
            AttContent::Gap => out.extend_from_slice(&[&b",\"data\":\""[..], &[DATA_GAP, b'"']].concat()),
            AttContent::Inline(plain) => {
                out.extend_from_slice(b",\"data\":\"");
                put_base64(plain, out);
                out.push(b'"');
            }
        }
        if options.att_encoding_info && attachment.encoding == Encoding::Gzip {
            put(format_args!(",\"encoding\":\"gzip\",\"encoded_length\":{}", attachment.stored_length), out);
        }
        out.push(b'}');
    }
    out.push(b'}');
}

/// Appends base64 in pieces of whole groups, so that a large attachment is not held twice.
fn put_base64(plain: &[u8], out: &mut Vec<u8>) {
    out.reserve(plain.len().div_ceil(3) * 4);
    for piece in plain.chunks(48 * 1024) {
        out.extend_from_slice(STANDARD.encode(piece).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::parse;

    fn rev(text: &str) -> Revision {
        Revision::parse(text).expect("a revision")
    }

    fn stored(body: &'static str) -> StoredRevision {
        let attachment = |name: &str, encoding| Attachment {
            name: name.to_owned(),
            content_type: "text/\"plain\"".to_owned(),
            revpos: 2,
            digest: [0; 16],
            length: 5,
            stored_length: if encoding == Encoding::Gzip { 25 } else { 5 },
            encoding,
            blob: [0; 32],
        };
        StoredRevision {
            rev: rev("3-c"),
            deleted: false,
            body: Bytes::from_static(body.as_bytes()),
            attachments: vec![attachment("a", Encoding::Identity), attachment("b/\n", Encoding::Gzip)],
        }
    }

    fn shown(stored: &StoredRevision, options: &RenderOptions<'_>) -> String {
        let out = render("i\"d", stored, options);
        assert_eq!(parse(&out).map(|v| v.to_vec()), Ok(out.clone()), "canonical, and no name twice");
        let (head, inner, tail) = render_around("i\"d", stored, options);
        assert_eq!([head.as_slice(), &inner, &tail].concat(), out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn plain_documents() {
        let mut doc = stored("{\"x\":[1.0,{}]}");
        doc.attachments.clear();
        let options = RenderOptions::default();
        assert_eq!(shown(&doc, &options), r#"{"_id":"i\"d","_rev":"3-c","x":[1.0,{}]}"#);
        doc.deleted = true;
        doc.body = Bytes::from_static(b"{}");
        assert_eq!(shown(&doc, &options), r#"{"_id":"i\"d","_rev":"3-c","_deleted":true}"#);
    }

    #[test]
    fn a_damaged_body_from_another_node_is_refused() {
        let sent = |body: &'static str| serde_json::to_vec(&stored(body)).expect("a revision serializes");
        let read = |bytes: Vec<u8>| serde_json::from_slice::<StoredRevision>(&bytes).is_ok();
        assert!(read(sent("{}")) && read(sent("{\"x\":1}")));
        for damaged in ["", "{", "}", "\"x\":1}", "{\"x\":1", "{\"x\":\0}", "null"] {
            assert!(!read(sent(damaged)), "{damaged}");
        }
    }

    #[test]
    fn attachments_as_stubs_data_and_parts() {
        let doc = stored("{}");
        let head = r#"{"_id":"i\"d","_rev":"3-c","_attachments":{"a":{"content_type":"text/\"plain\"","revpos":2,"#;
        let digest = r#""digest":"md5-AAAAAAAAAAAAAAAAAAAAAA==","#;
        let second = r#""b/\n":{"content_type":"text/\"plain\"","revpos":2,"#;
        let stub = r#""length":5,"stub":true}"#;
        let expected = format!("{head}{digest}{stub},{second}{digest}{stub}}}}}");
        assert_eq!(shown(&doc, &RenderOptions::default()), expected);
        let each = [AttContent::Inline(Bytes::from_static(b"hello")), AttContent::Follows];
        let options =
            RenderOptions { attachments: AttView::Each(&each), att_encoding_info: true, ..RenderOptions::default() };
        let follows = r#""length":5,"follows":true,"encoding":"gzip","encoded_length":25}"#;
        let expected = format!("{head}{digest}\"data\":\"aGVsbG8=\"}},{second}{digest}{follows}}}}}");
        assert_eq!(shown(&doc, &options), expected);
        let each = [AttContent::Gap, AttContent::Stub];
        let options = RenderOptions { attachments: AttView::Each(&each), ..RenderOptions::default() };
        // No JSON before the gap is filled.
        let gap = String::from_utf8(render("i\"d", &doc, &options)).expect("UTF-8");
        assert_eq!(gap, format!("{head}{digest}\"data\":\"\0\"}},{second}{digest}{stub}}}}}"));
    }

    #[test]
    fn revision_details() {
        let mut doc = stored("{\"x\":1}");
        doc.attachments.clear();
        let path = RevPath { start: 3, ids: ["c", "b"].map(|h| rev(&format!("1-{h}")).hash).to_vec() };
        let infos =
            [(rev("3-c"), RevStatus::Available), (rev("2-b"), RevStatus::Missing), (rev("1-a"), RevStatus::Deleted)];
        let options = RenderOptions {
            revisions: Some(&path),
            revs_info: Some(&infos),
            conflicts: &[rev("3-b"), rev("3-a")],
            deleted_conflicts: &[rev("2-z")],
            local_seq: Some(7),
            ..RenderOptions::default()
        };
        let expected = r#"{"_id":"i\"d","_rev":"3-c","x":1,"_revisions":{"start":3,"ids":["c","b"]},"#.to_owned()
            + r#""_revs_info":[{"rev":"3-c","status":"available"},{"rev":"2-b","status":"missing"},"#
            + r#"{"rev":"1-a","status":"deleted"}],"_local_seq":7,"_conflicts":["3-b","3-a"],"_deleted_conflicts":["2-z"]}"#;
        assert_eq!(shown(&doc, &options), expected);
    }

    #[test]
    fn long_data_is_one_base64_text() {
        let plain: Vec<u8> = (0..200_000u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut out = Vec::new();
        put_base64(&plain, &mut out);
        assert_eq!(STANDARD.decode(out), Ok(plain));
    }
}
