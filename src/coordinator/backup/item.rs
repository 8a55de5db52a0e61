//! Items: the content of the frames of a dump and of a snapshot. Pure.
//!
//! | kind | payload |
//! |---|---|
//! | `s` | JSON: the fields of [`SettingsItem`]; `auto_purge` and `expires_at` where they are set |
//! | `c` | an attachment content of the next document: its id (length varint, UTF-8), hash (32), stored length varint |
//! | `b` | bytes of that content as stored, one piece after the other |
//! | `d` | JSON: `id`, `leaves`, each `start` and `ids` (its history, newest first), `deleted`, `attachments`, `body` |
//! | `l` | JSON: `id`, `rev` (a number), `body` |
//! | `p` | JSON: `id`, `revs` |
//! | `e` | JSON: `documents`, `locals`, `purges`, `hash`: BLAKE3 of all bytes before this frame |

use bytes::Bytes;

use crate::coordinator::backup::{BackupError, damaged};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::{Attachment, BlobId, Encoding, StoredRevision};
use crate::document::rev_tree::{RevPath, RevTree, RevValue};
use crate::document::revision::{RevHash, Revision};
use crate::wire::codec::{Reader, put_str, put_varint};
use crate::wire::hex;

pub(super) const SETTINGS: u8 = b's';
pub(super) const CONTENT: u8 = b'c';
pub(super) const BYTES: u8 = b'b';
pub(super) const DOCUMENT: u8 = b'd';
pub(super) const LOCAL: u8 = b'l';
pub(super) const PURGE: u8 = b'p';
pub(super) const END: u8 = b'e';

/// What a database is made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SettingsItem {
    pub name: String,
    pub q: u32,
    pub partitioned: bool,
    pub revs_limit: u64,
    pub purged_infos_limit: u64,
    /// How long tombstones are kept, where that is set.
    pub auto_purge: Option<String>,
    /// The member that says when documents end, where one is named.
    pub expires_at: Option<String>,
    /// JSON text.
    pub security: Bytes,
}

/// A document with all its leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocumentItem {
    pub id: DocId,
    pub leaves: Vec<LeafItem>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LeafItem {
    pub path: RevPath,
    pub deleted: bool,
    pub attachments: Vec<Attachment>,
    /// Canonical JSON text.
    pub body: Bytes,
}

/// The last frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct EndItem {
    pub documents: u64,
    pub locals: u64,
    pub purges: u64,
    pub hash: String,
}

/// A document as it is read from a shard; `None` when a leaf's content is not there.
pub(super) fn document<T: RevValue>(
    id: &DocId,
    tree: &RevTree<T>,
    found: Vec<(Revision, Option<StoredRevision>)>,
) -> Option<DocumentItem> {
    let leaf = |(rev, stored): (Revision, Option<StoredRevision>)| {
        let StoredRevision { deleted, body, attachments, .. } = stored?;
        Some(LeafItem { path: tree.path_to(&rev)?, deleted, attachments, body })
    };
    Some(DocumentItem { id: id.clone(), leaves: found.into_iter().map(leaf).collect::<Option<_>>()? })
}

impl SettingsItem {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Object::new();
        out.push("name", self.name.as_str());
        out.push("q", i64::from(self.q));
        out.push("partitioned", self.partitioned);
        out.push("revs_limit", self.revs_limit as i64);
        out.push("purged_infos_limit", self.purged_infos_limit as i64);
        if let Some(period) = &self.auto_purge {
            out.push("auto_purge", period.as_str());
        }
        if let Some(member) = &self.expires_at {
            out.push("expires_at", member.as_str());
        }
        with_raw(&out, "security", &self.security)
    }

    pub(super) fn decode(payload: &[u8]) -> Result<SettingsItem, BackupError> {
        let object = object(payload)?;
        Ok(SettingsItem {
            name: text(&object, "name")?.to_owned(),
            q: u32::try_from(number(&object, "q")?).map_err(|_| damaged("q"))?,
            partitioned: object.get("partitioned").and_then(Value::as_bool).unwrap_or(false),
            revs_limit: number(&object, "revs_limit")?,
            purged_infos_limit: number(&object, "purged_infos_limit")?,
            auto_purge: object.get("auto_purge").and_then(Value::as_str).map(str::to_owned),
            expires_at: object.get("expires_at").and_then(Value::as_str).map(str::to_owned),
            security: Bytes::from(member(&object, "security")?.to_vec()),
        })
    }
}

impl DocumentItem {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = b"{\"id\":".to_vec();
        json::write_string(self.id.as_str(), &mut out);
        out.extend_from_slice(b",\"leaves\":[");
        for (n, leaf) in self.leaves.iter().enumerate() {
            if n > 0 {
                out.push(b',');
            }
            let ids = leaf.path.ids.iter().map(|hash| Value::from(hash.to_string())).collect::<Vec<_>>();
            let mut object = Object::new();
            object.push("start", leaf.path.start as i64);
            object.push("ids", ids);
            object.push("deleted", leaf.deleted);
            object.push("attachments", leaf.attachments.iter().map(attachment).collect::<Vec<_>>());
            out.extend(with_raw(&object, "body", &leaf.body));
        }
        out.extend_from_slice(b"]}");
        out
    }

    pub(super) fn decode(payload: &[u8]) -> Result<DocumentItem, BackupError> {
        let object = object(payload)?;
        let id = DocId::new(text(&object, "id")?);
        let leaves = list(&object, "leaves")?.iter().map(leaf).collect::<Result<Vec<_>, _>>()?;
        if leaves.is_empty() {
            return Err(damaged(format_args!("document {:?} has no leaf", id.as_str())));
        }
        Ok(DocumentItem { id, leaves })
    }

    /// Its different attachment contents with their stored lengths.
    pub(super) fn contents(&self) -> Vec<&Attachment> {
        let mut out: Vec<&Attachment> = Vec::new();
        for attachment in self.leaves.iter().flat_map(|leaf| &leaf.attachments) {
            if !out.iter().any(|known| known.blob == attachment.blob) {
                out.push(attachment);
            }
        }
        out
    }
}

fn leaf(value: &Value) -> Result<LeafItem, BackupError> {
    let object = value.as_object().ok_or_else(|| damaged("a leaf is no object"))?;
    let hash = |value: &Value| {
        let text = value.as_str().ok_or_else(|| damaged("a revision is no text"))?;
        RevHash::parse(text).map_err(|_| damaged("a revision cannot be read"))
    };
    let ids = list(object, "ids")?.iter().map(hash).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        return Err(damaged("a leaf without revision"));
    }
    Ok(LeafItem {
        path: RevPath { start: number(object, "start")?, ids },
        deleted: object.get("deleted").and_then(Value::as_bool).unwrap_or(false),
        attachments: list(object, "attachments")?.iter().map(attachment_of).collect::<Result<_, _>>()?,
        body: Bytes::from(member(object, "body")?.to_vec()),
    })
}

fn attachment(attachment: &Attachment) -> Value {
    let mut out = Object::new();
    out.push("name", attachment.name.as_str());
    out.push("content_type", attachment.content_type.as_str());
    out.push("revpos", attachment.revpos as i64);
    out.push("digest", hex::encode(&attachment.digest));
    out.push("length", attachment.length as i64);
    out.push("stored_length", attachment.stored_length as i64);
    out.push("gzip", attachment.encoding == Encoding::Gzip);
    out.push("hash", hex::encode(&attachment.blob));
    Value::Object(out)
}

fn attachment_of(value: &Value) -> Result<Attachment, BackupError> {
    let object = value.as_object().ok_or_else(|| damaged("an attachment is no object"))?;
    Ok(Attachment {
        name: text(object, "name")?.to_owned(),
        content_type: text(object, "content_type")?.to_owned(),
        revpos: number(object, "revpos")?,
        digest: bytes(object, "digest")?,
        length: number(object, "length")?,
        stored_length: number(object, "stored_length")?,
        encoding: match object.get("gzip").and_then(Value::as_bool) {
            Some(true) => Encoding::Gzip,
            _ => Encoding::Identity,
        },
        blob: bytes(object, "hash")?,
    })
}

/// A content's frame: which document it belongs to, its hash, its stored length.
pub(super) fn encode_content(id: &DocId, hash: &BlobId, length: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_str(&mut out, id.as_str());
    out.extend_from_slice(hash);
    put_varint(&mut out, length);
    out
}

pub(super) fn decode_content(payload: &[u8]) -> Result<(DocId, BlobId, u64), BackupError> {
    let read = || {
        let mut reader = Reader::new(payload);
        let found = (DocId::new(reader.str()?), reader.array()?, reader.varint()?);
        reader.finish()?;
        Ok(found)
    };
    read().map_err(|error: crate::wire::codec::CodecError| damaged(error))
}

pub(super) fn encode_local(id: &DocId, rev: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Object::new();
    out.push("id", id.as_str());
    out.push("rev", rev as i64);
    with_raw(&out, "body", body)
}

pub(super) fn decode_local(payload: &[u8]) -> Result<(DocId, u64, Bytes), BackupError> {
    let object = object(payload)?;
    let Value::Object(body) = member(&object, "body")? else {
        return Err(damaged("the body of a local document is no object"));
    };
    Ok((DocId::new(text(&object, "id")?), number(&object, "rev")?, Bytes::from(body.to_vec())))
}

pub(super) fn encode_purge(id: &DocId, revs: &[Revision]) -> Vec<u8> {
    let mut out = Object::new();
    out.push("id", id.as_str());
    out.push("revs", revs.iter().map(|rev| Value::from(rev.to_string())).collect::<Vec<_>>());
    out.to_vec()
}

pub(super) fn decode_purge(payload: &[u8]) -> Result<(DocId, Vec<Revision>), BackupError> {
    let object = object(payload)?;
    let rev = |value: &Value| {
        let text = value.as_str().ok_or_else(|| damaged("a revision is no text"))?;
        Revision::parse(text).map_err(|_| damaged("a revision cannot be read"))
    };
    Ok((DocId::new(text(&object, "id")?), list(&object, "revs")?.iter().map(rev).collect::<Result<_, _>>()?))
}

impl EndItem {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Object::new();
        out.push("documents", self.documents as i64);
        out.push("locals", self.locals as i64);
        out.push("purges", self.purges as i64);
        out.push("hash", self.hash.as_str());
        out.to_vec()
    }

    pub(super) fn decode(payload: &[u8]) -> Result<EndItem, BackupError> {
        let object = object(payload)?;
        Ok(EndItem {
            documents: number(&object, "documents")?,
            locals: number(&object, "locals")?,
            purges: number(&object, "purges")?,
            hash: text(&object, "hash")?.to_owned(),
        })
    }
}

/// The text of an object with one more member, whose value is JSON text already.
fn with_raw(object: &Object, name: &str, raw: &[u8]) -> Vec<u8> {
    let mut out = object.to_vec();
    // Its closing brace.
    out.pop();
    out.push(b',');
    json::write_string(name, &mut out);
    out.push(b':');
    out.extend_from_slice(raw);
    out.push(b'}');
    out
}

fn object(payload: &[u8]) -> Result<Object, BackupError> {
    match json::parse(payload) {
        Ok(Value::Object(object)) => Ok(object),
        _ => Err(damaged("a frame holds no JSON object")),
    }
}

fn member<'o>(object: &'o Object, name: &str) -> Result<&'o Value, BackupError> {
    object.get(name).ok_or_else(|| damaged(format_args!("a frame without {name}")))
}

fn text<'o>(object: &'o Object, name: &str) -> Result<&'o str, BackupError> {
    member(object, name)?.as_str().ok_or_else(|| damaged(format_args!("{name} is no text")))
}

fn number(object: &Object, name: &str) -> Result<u64, BackupError> {
    member(object, name)?.as_u64().ok_or_else(|| damaged(format_args!("{name} is no number")))
}

fn list<'o>(object: &'o Object, name: &str) -> Result<&'o [Value], BackupError> {
    member(object, name)?.as_array().ok_or_else(|| damaged(format_args!("{name} is no list")))
}

fn bytes<const N: usize>(object: &Object, name: &str) -> Result<[u8; N], BackupError> {
    let decoded = hex::decode(text(object, name)?).and_then(|bytes| bytes.try_into().ok());
    decoded.ok_or_else(|| damaged(format_args!("{name} is no hash")))
}
