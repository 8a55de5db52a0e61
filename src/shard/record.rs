//! The records of a shard: what stands in the values of the keys of `keys.rs`. Each begins with a version byte.

use bytes::Bytes;

use super::keys::{self, Kind};
use super::{ShardId, Sizes};
use crate::document::id::DocId;
use crate::document::render::{Attachment, Encoding, StoredRevision};
use crate::document::rev_tree::{RevTree, RevValue};
use crate::document::revision::{RevHash, Revision};
use crate::storage::{StorageError, View, WriteView};
use crate::wire::codec::{CodecError, Reader, put_bool, put_bytes, put_str, put_varint};

const VERSION: u8 = 1;

/// What the revision tree of a document keeps for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevData {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The number of its body record; 0 when compaction has removed the body.
    pub body: u64,
    /// Stored bytes of body and attachments.
    pub active: u64,
    /// The same before compression.
    pub external: u64,
}

impl RevData {
    /// Whether the body can still be read; a revision without is shown as `missing`.
    pub fn is_available(&self) -> bool {
        self.body != 0
    }
}

impl RevValue for RevData {
    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

/// A leaf in lists: its name, and whether it is a tombstone.
pub(super) type LeafName = (Revision, bool);

/// Names the damaged record of a failed decode.
pub(super) fn damaged(what: &'static str) -> impl Fn(CodecError) -> StorageError {
    move |error| StorageError::Corrupt(format!("{what}: {error}"))
}

fn put_leaves(out: &mut Vec<u8>, leaves: &[LeafName]) {
    put_varint(out, leaves.len() as u64);
    for (rev, deleted) in leaves {
        put_bool(out, *deleted);
        put_rev(out, rev);
    }
}

pub(super) fn put_rev(out: &mut Vec<u8>, rev: &Revision) {
    put_varint(out, rev.pos);
    match &rev.hash {
        RevHash::Md5(bytes) => {
            put_bool(out, false);
            out.extend_from_slice(bytes);
        }
        RevHash::Text(text) => {
            put_bool(out, true);
            put_str(out, text);
        }
    }
}

pub(super) fn read_rev(reader: &mut Reader<'_>) -> Result<Revision, CodecError> {
    let pos = reader.varint()?;
    let hash = match reader.bool()? {
        false => RevHash::Md5(reader.array()?),
        true => RevHash::Text(reader.str()?.into()),
    };
    Ok(Revision::new(pos, hash))
}

fn read_leaves(reader: &mut Reader<'_>) -> Result<Vec<LeafName>, CodecError> {
    let mut out = Vec::new();
    for _ in 0..reader.varint()? {
        let deleted = reader.bool()?;
        out.push((read_rev(reader)?, deleted));
    }
    if out.is_empty() { Err(CodecError::Invalid("document without leaves")) } else { Ok(out) }
}

/// Counters and next numbers of a shard; changed in the batch of what they count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Header {
    pub update_seq: u64,
    pub purge_seq: u64,
    pub last_body: u64,
    pub doc_count: u64,
    pub doc_del_count: u64,
    pub design_count: u64,
    /// Of all leaves.
    pub active: u64,
    pub external: u64,
    /// Bytes of all body records, old ones too, and of the blobs that they name.
    pub stored: u64,
    /// Bytes of document and sequence records.
    pub records: u64,
}

impl Header {
    pub(super) fn read(view: &dyn View, shard: ShardId) -> Result<Header, StorageError> {
        let Some(bytes) = view.get(&keys::key(shard, Kind::Header, b""))? else { return Ok(Header::default()) };
        Header::decode(&bytes).map_err(damaged("shard header"))
    }

    pub(super) fn write(&self, view: &mut WriteView<'_>, shard: ShardId) {
        let mut out = vec![VERSION];
        let Header { update_seq, purge_seq, last_body, doc_count, doc_del_count, design_count, .. } = *self;
        let Header { active, external, stored, records, .. } = *self;
        for number in [update_seq, purge_seq, last_body, doc_count, doc_del_count, design_count] {
            put_varint(&mut out, number);
        }
        for number in [active, external, stored, records] {
            put_varint(&mut out, number);
        }
        view.put(keys::key(shard, Kind::Header, b""), out);
    }

    fn decode(bytes: &[u8]) -> Result<Header, CodecError> {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let header = Header {
            update_seq: reader.varint()?,
            purge_seq: reader.varint()?,
            last_body: reader.varint()?,
            doc_count: reader.varint()?,
            doc_del_count: reader.varint()?,
            design_count: reader.varint()?,
            active: reader.varint()?,
            external: reader.varint()?,
            stored: reader.varint()?,
            records: reader.varint()?,
        };
        reader.finish()?;
        Ok(header)
    }

    pub(super) fn sizes(&self) -> Sizes {
        // A blob that several leaves name is stored once, so `active` may be the larger sum.
        let file = (self.stored + self.records).max(self.active);
        Sizes { active: self.active, external: self.external, file }
    }
}

/// What lists need of a document record, without its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocHead {
    pub seq: u64,
    /// Body record of the winner.
    pub body: u64,
    /// Winner first.
    pub leaves: Vec<LeafName>,
}

impl DocHead {
    /// Reads the front of a [`DocRecord`].
    pub(super) fn decode(bytes: &[u8]) -> Result<DocHead, StorageError> {
        DocHead::read(&mut Reader::new(bytes)).map_err(damaged("document record"))
    }

    fn read(reader: &mut Reader<'_>) -> Result<DocHead, CodecError> {
        reader.version(VERSION)?;
        Ok(DocHead { seq: reader.varint()?, body: reader.varint()?, leaves: read_leaves(reader)? })
    }
}

/// Whether the winner of a document record is a tombstone, reading as little of it as possible.
pub(super) fn is_deleted(bytes: &[u8]) -> Result<bool, StorageError> {
    let peek = || {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        for _ in 0..3 {
            reader.varint()?;
        }
        reader.bool()
    };
    peek().map_err(damaged("document record"))
}

/// A document.
#[derive(Clone, Debug)]
pub(super) struct DocRecord {
    pub seq: u64,
    pub tree: RevTree<RevData>,
}

impl DocRecord {
    /// Reads a document; answers the size of its record, too.
    pub(super) fn load(
        view: &dyn View,
        shard: ShardId,
        id: &DocId,
    ) -> Result<Option<(DocRecord, usize)>, StorageError> {
        let bytes = view.get(&keys::key(shard, Kind::Document, id.as_str().as_bytes()))?;
        bytes.map(|bytes| Ok((DocRecord::decode(&bytes)?, bytes.len()))).transpose()
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DocRecord, StorageError> {
        DocRecord::read(bytes).map_err(damaged("document record"))
    }

    fn read(bytes: &[u8]) -> Result<DocRecord, CodecError> {
        let mut reader = Reader::new(bytes);
        let head = DocHead::read(&mut reader)?;
        let tree = RevTree::decode(&mut reader, |reader| {
            Ok(RevData {
                deleted: reader.bool()?,
                body: reader.varint()?,
                active: reader.varint()?,
                external: reader.varint()?,
            })
        })?;
        reader.finish()?;
        Ok(DocRecord { seq: head.seq, tree })
    }

    /// The leaves, winner first.
    pub(super) fn leaf_names(&self) -> Vec<LeafName> {
        self.tree.leaves().into_iter().map(|leaf| (leaf.rev, leaf.value.deleted)).collect()
    }

    pub(super) fn encode(&self, leaves: &[LeafName]) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_varint(&mut out, self.seq);
        put_varint(&mut out, self.tree.winner().map_or(0, |winner| winner.value.body));
        put_leaves(&mut out, leaves);
        self.tree.encode(&mut out, |data, out| {
            put_bool(out, data.deleted);
            put_varint(out, data.body);
            put_varint(out, data.active);
            put_varint(out, data.external);
        });
        out
    }
}

/// A row of the sequence index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeqRecord {
    pub id: DocId,
    pub leaves: Vec<LeafName>,
}

impl SeqRecord {
    pub(super) fn encode(id: &DocId, leaves: &[LeafName]) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_str(&mut out, id.as_str());
        put_leaves(&mut out, leaves);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<SeqRecord, StorageError> {
        let read = || {
            let mut reader = Reader::new(bytes);
            reader.version(VERSION)?;
            let record = SeqRecord { id: DocId::new(reader.str()?), leaves: read_leaves(&mut reader)? };
            reader.finish()?;
            Ok(record)
        };
        read().map_err(damaged("sequence record"))
    }
}

/// The content of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BodyRecord {
    pub attachments: Vec<Attachment>,
    pub text: Bytes,
}

impl BodyRecord {
    pub(super) fn load(view: &dyn View, shard: ShardId, number: u64) -> Result<BodyRecord, StorageError> {
        let Some(bytes) = view.get(&keys::number_key(shard, Kind::Body, number))? else {
            return Err(StorageError::Corrupt(format!("body {number} of shard {} is missing", shard.0)));
        };
        BodyRecord::decode(bytes)
    }

    pub(super) fn stored(self, rev: Revision, deleted: bool) -> StoredRevision {
        StoredRevision { rev, deleted, body: self.text, attachments: self.attachments }
    }

    pub(super) fn encode(attachments: &[Attachment], text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + 2 + attachments.len() * 128);
        out.push(VERSION);
        put_varint(&mut out, attachments.len() as u64);
        for attachment in attachments {
            put_attachment(&mut out, attachment);
        }
        out.extend_from_slice(text);
        out
    }

    pub(super) fn decode(bytes: Vec<u8>) -> Result<BodyRecord, StorageError> {
        let read = || {
            let mut reader = Reader::new(&bytes);
            reader.version(VERSION)?;
            let mut attachments = Vec::new();
            for _ in 0..reader.varint()? {
                attachments.push(read_attachment(&mut reader)?);
            }
            Ok((attachments, bytes.len() - reader.rest().len()))
        };
        let (attachments, at) = read().map_err(damaged("body record"))?;
        Ok(BodyRecord { attachments, text: Bytes::from(bytes).slice(at..) })
    }
}

fn put_attachment(out: &mut Vec<u8>, attachment: &Attachment) {
    put_str(out, &attachment.name);
    put_str(out, &attachment.content_type);
    for number in [attachment.revpos, attachment.length, attachment.stored_length] {
        put_varint(out, number);
    }
    put_bool(out, attachment.encoding == Encoding::Gzip);
    out.extend_from_slice(&attachment.digest);
    out.extend_from_slice(&attachment.blob);
}

fn read_attachment(reader: &mut Reader<'_>) -> Result<Attachment, CodecError> {
    Ok(Attachment {
        name: reader.str()?.to_owned(),
        content_type: reader.str()?.to_owned(),
        revpos: reader.varint()?,
        length: reader.varint()?,
        stored_length: reader.varint()?,
        encoding: if reader.bool()? { Encoding::Gzip } else { Encoding::Identity },
        digest: reader.array()?,
        blob: reader.array()?,
    })
}

/// Number and bytes, as the local documents keep them.
pub(super) fn encode_numbered(number: u64, text: &[u8]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, number);
    out.extend_from_slice(text);
    out
}

/// Reads [`encode_numbered`].
pub(super) fn decode_numbered(bytes: Vec<u8>) -> Result<(u64, Bytes), StorageError> {
    let read = || {
        let mut reader = Reader::new(&bytes);
        reader.version(VERSION)?;
        Ok((reader.varint()?, bytes.len() - reader.rest().len()))
    };
    let (number, at) = read().map_err(damaged("local document"))?;
    Ok((number, Bytes::from(bytes).slice(at..)))
}

/// An entry of the purge log: the document and the purged leaves.
pub(super) fn encode_purge(id: &DocId, revs: &[Revision]) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_bytes(&mut out, id.as_str().as_bytes());
    put_varint(&mut out, revs.len() as u64);
    revs.iter().for_each(|rev| put_rev(&mut out, rev));
    out
}

/// Reads [`encode_purge`].
pub(super) fn decode_purge(bytes: &[u8]) -> Result<(DocId, Vec<Revision>), StorageError> {
    let read = || {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let id = DocId::new(reader.str()?);
        let mut revs = Vec::new();
        for _ in 0..reader.varint()? {
            revs.push(read_rev(&mut reader)?);
        }
        reader.finish()?;
        Ok((id, revs))
    };
    read().map_err(damaged("purge record"))
}
