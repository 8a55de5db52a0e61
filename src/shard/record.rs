//! Records of a shard: the values of the keys of `keys.rs`. Each begins with a version byte.

use bytes::Bytes;

use super::keys::{self, Kind};
use super::summary::{self, Summary};
use super::{LocalDocument, LocalRegister, ShardId, ShardInfo, Sizes, Stamp};
use crate::document::id::DocId;
use crate::document::render::{Attachment, is_object_text};
use crate::document::rev_tree::{EncodedValue, RevTree, RevValue};
use crate::document::revision::{RevHash, Revision};
use crate::storage::{StorageError, View, WriteView};
use crate::wire::codec::{CodecError, Reader, put_bool, put_bytes, put_str, put_varint};

const VERSION: u8 = 1;
/// Headers and documents of version 1 had no summaries; `upgrade.rs` reads those.
pub(super) const SUMMARIZED: u8 = 2;
/// The version of local documents that carry a stamp.
const REGISTER_VERSION: u8 = 2;

/// What the revision tree of a document keeps for a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevData {
    /// Whether it is a tombstone.
    pub deleted: bool,
    /// The number of its body record; 0 when compaction has removed the body.
    pub body: u64,
    /// Bytes of its body record and of its attachments as they are stored.
    pub active: u64,
    /// Bytes of its text and of its attachments before compression.
    pub external: u64,
    /// What its attachments add to the document's digest, 0 without any.
    pub(super) attachments: u128,
}

/// Flags of a revision in a tree: they are on disk.
const DELETED: u8 = 1;
const HAS_ATTACHMENTS: u8 = 2;

impl RevData {
    /// Whether the body can still be read; a revision without is shown as `missing`.
    pub fn is_available(&self) -> bool {
        self.body != 0
    }

    /// The same with what is known of its content: its attachments, and the bytes of its body record.
    pub(super) fn with(&self, attachments: &[Attachment], record_bytes: u64) -> RevData {
        let blobs: u64 = attachments.iter().map(|attachment| attachment.stored_length).sum();
        let attachments = summary::attachments_digest(attachments);
        RevData { active: record_bytes + blobs, attachments, ..*self }
    }

    /// This revision without its body, as compaction leaves it.
    pub(super) fn without_body(&self) -> RevData {
        RevData { deleted: self.deleted, body: 0, active: 0, external: 0, attachments: 0 }
    }
}

impl RevValue for RevData {
    fn is_deleted(&self) -> bool {
        self.deleted
    }
}

impl EncodedValue for RevData {
    fn append(&self, out: &mut Vec<u8>) {
        let attachments = if self.attachments != 0 { HAS_ATTACHMENTS } else { 0 };
        out.push(if self.deleted { DELETED } else { 0 } | attachments);
        for number in [self.body, self.active, self.external] {
            put_varint(out, number);
        }
        if self.attachments != 0 {
            out.extend_from_slice(&self.attachments.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<RevData, CodecError> {
        let flags = reader.u8()?;
        if flags & !(DELETED | HAS_ATTACHMENTS) != 0 {
            return Err(CodecError::Invalid("flags of a revision"));
        }
        let (body, active, external) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let attachments = if flags & HAS_ATTACHMENTS == 0 { 0 } else { u128::from_le_bytes(reader.array()?) };
        Ok(RevData { deleted: flags & DELETED != 0, body, active, external, attachments })
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

pub(super) fn read_leaves(reader: &mut Reader<'_>) -> Result<Vec<LeafName>, CodecError> {
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
    /// Of all documents.
    pub total: Summary,
    /// Bytes of all body records, old ones too, and of the blobs that they name.
    pub stored: u64,
    /// Bytes of document and sequence records.
    pub records: u64,
    /// Levels of summaries, see `levels.rs`.
    pub height: u8,
    /// What the hashes of ids begin with there; drawn with the first level.
    pub salt: u64,
    /// How often anything was collected here, or counted as collected. See `tombstone_collection.rs`.
    pub rounds: u64,
    /// Documents of which a collection marker is kept.
    pub markers: u64,
}

impl Header {
    pub(super) fn read(view: &dyn View, shard: ShardId) -> Result<Header, StorageError> {
        let Some(bytes) = view.get(&keys::key(shard, Kind::Header, b""))? else { return Ok(Header::default()) };
        Header::decode(&bytes).map_err(damaged("shard header"))
    }

    pub(super) fn write(&self, view: &mut WriteView<'_>, shard: ShardId) {
        let mut out = Vec::with_capacity(48 + Summary::BYTES);
        out.push(SUMMARIZED);
        for number in [self.update_seq, self.purge_seq, self.last_body, self.stored, self.records, self.salt] {
            put_varint(&mut out, number);
        }
        out.push(self.height);
        self.total.encode(&mut out);
        // Only where they are used: a settee that knows nothing of them reads all other headers.
        if self.rounds > 0 {
            put_varint(&mut out, self.rounds);
            put_varint(&mut out, self.markers);
        }
        view.put(keys::key(shard, Kind::Header, b""), out);
    }

    fn decode(bytes: &[u8]) -> Result<Header, CodecError> {
        let mut reader = Reader::new(bytes);
        reader.version(SUMMARIZED)?;
        let mut header = Header {
            update_seq: reader.varint()?,
            purge_seq: reader.varint()?,
            last_body: reader.varint()?,
            stored: reader.varint()?,
            records: reader.varint()?,
            salt: reader.varint()?,
            height: reader.u8()?,
            total: Summary::read(&mut reader)?,
            rounds: 0,
            markers: 0,
        };
        if !reader.is_empty() {
            (header.rounds, header.markers) = (reader.varint()?, reader.varint()?);
        }
        reader.finish()?;
        Ok(header)
    }

    /// The counters that others see.
    pub(super) fn info(&self) -> ShardInfo {
        ShardInfo {
            doc_count: self.total.live,
            doc_del_count: self.total.deleted,
            design_count: self.total.design,
            update_seq: self.update_seq,
            purge_seq: self.purge_seq,
            sizes: self.sizes(),
        }
    }

    pub(super) fn sizes(&self) -> Sizes {
        // A blob that several leaves name is stored once, so the sum over leaves may be the larger one.
        let active = self.total.active.saturating_add(self.records);
        let file = self.stored.saturating_add(self.records).max(active);
        Sizes { active, external: self.total.external, file }
    }
}

/// What lists need of a document record, without its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DocHead {
    pub seq: u64,
    /// Body record of the winner.
    pub body: u64,
    /// See [`Summary::digest`].
    pub digest: u128,
    /// Winner first.
    pub leaves: Vec<LeafName>,
}

impl DocHead {
    /// Reads the front of a [`DocRecord`].
    pub(super) fn decode(bytes: &[u8]) -> Result<DocHead, StorageError> {
        DocHead::read(&mut Reader::new(bytes)).map_err(damaged("document record"))
    }

    fn read(reader: &mut Reader<'_>) -> Result<DocHead, CodecError> {
        reader.version(SUMMARIZED)?;
        let (seq, body) = (reader.varint()?, reader.varint()?);
        let (_active, _external) = (reader.varint()?, reader.varint()?);
        let digest = u128::from_le_bytes(reader.array()?);
        Ok(DocHead { seq, body, digest, leaves: read_leaves(reader)? })
    }
}

/// The summary of a document's record, reading as little of it as possible. `id`: its bytes.
pub(super) fn summary_of(id: &[u8], bytes: &[u8]) -> Result<Summary, StorageError> {
    let peek = || {
        let mut reader = Reader::new(bytes);
        reader.version(SUMMARIZED)?;
        reader.varint()?;
        reader.varint()?;
        let (active, external) = (reader.varint()?, reader.varint()?);
        let digest = u128::from_le_bytes(reader.array()?);
        reader.varint()?;
        let deleted = reader.bool()?;
        Ok(Summary::of_document(id.starts_with(b"_design/"), deleted, active, external, digest))
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
    /// Reads a document; answers what it was counted with and the size of its record, too.
    pub(super) fn load(
        view: &dyn View,
        shard: ShardId,
        id: &DocId,
    ) -> Result<Option<(DocRecord, Summary, usize)>, StorageError> {
        let Some(bytes) = view.get(&keys::key(shard, Kind::Document, id.as_str().as_bytes()))? else { return Ok(None) };
        let summary = summary_of(id.as_str().as_bytes(), &bytes)?;
        Ok(Some((DocRecord::decode(&bytes)?, summary, bytes.len())))
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<DocRecord, StorageError> {
        DocRecord::read(bytes).map_err(damaged("document record"))
    }

    fn read(bytes: &[u8]) -> Result<DocRecord, CodecError> {
        let mut reader = Reader::new(bytes);
        let head = DocHead::read(&mut reader)?;
        let tree = RevTree::decode(&mut reader, RevData::read)?;
        reader.finish()?;
        Ok(DocRecord { seq: head.seq, tree })
    }

    /// The leaves, winner first.
    pub(super) fn leaf_names(&self) -> Vec<LeafName> {
        self.tree.leaves().into_iter().map(|leaf| (leaf.rev, leaf.value.deleted)).collect()
    }

    /// The record of a document with these leaves (winner first), and what it is counted with.
    pub(super) fn encode(&self, id: &DocId, leaves: &[LeafName]) -> (Vec<u8>, Summary) {
        let summary = summary::of_tree(id, leaves, &self.tree);
        // Most documents have few revisions that are no leaves.
        let mut out = Vec::with_capacity(48 + 2 * row_bytes(id, leaves));
        out.push(SUMMARIZED);
        put_varint(&mut out, self.seq);
        let winner = leaves.first().and_then(|(rev, _)| self.tree.get(rev).flatten());
        put_varint(&mut out, winner.map_or(0, |data| data.body));
        put_varint(&mut out, summary.active);
        put_varint(&mut out, summary.external);
        out.extend_from_slice(&summary.digest.to_le_bytes());
        put_leaves(&mut out, leaves);
        self.tree.encode(&mut out, RevData::append);
        (out, summary)
    }
}

/// About how many bytes a row of the sequence index takes.
pub(super) fn row_bytes(id: &DocId, leaves: &[LeafName]) -> usize {
    // Of a leaf: whether it is a tombstone, its generation, the kind of its hash, the hash.
    8 + id.as_str().len() + 24 * leaves.len()
}

/// A row of the sequence index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SeqRecord {
    pub id: DocId,
    pub leaves: Vec<LeafName>,
}

impl SeqRecord {
    pub(super) fn encode(id: &DocId, leaves: &[LeafName]) -> Vec<u8> {
        let mut out = Vec::with_capacity(row_bytes(id, leaves));
        out.push(VERSION);
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

/// Version, whether there is a document, stamp, number and text. Version 1 had only the last two.
pub(super) fn encode_register(register: &LocalRegister) -> Vec<u8> {
    let LocalRegister { stamp, document } = register;
    let mut out = vec![REGISTER_VERSION];
    put_bool(&mut out, document.is_some());
    put_varint(&mut out, stamp.counter);
    put_varint(&mut out, stamp.by);
    if let Some(document) = document {
        put_varint(&mut out, document.rev);
        out.extend_from_slice(&document.body);
    }
    out
}

/// Reads [`encode_register`].
pub(super) fn decode_register(bytes: Vec<u8>) -> Result<LocalRegister, StorageError> {
    let read = || {
        let mut reader = Reader::new(&bytes);
        let (is_live, stamp) = match reader.u8()? {
            VERSION => (true, Stamp::default()),
            REGISTER_VERSION => (reader.bool()?, Stamp { counter: reader.varint()?, by: reader.varint()? }),
            other => return Err(CodecError::Version(other)),
        };
        let number = if is_live { Some(reader.varint()?) } else { None };
        Ok((stamp, number, bytes.len() - reader.rest().len()))
    };
    let (stamp, number, at) = read().map_err(damaged("local document"))?;
    let document = number.map(|rev| LocalDocument { rev, body: Bytes::from(bytes).slice(at..) });
    if document.as_ref().is_some_and(|document| !is_object_text(&document.body)) {
        return Err(StorageError::Corrupt("the text of a local document is no JSON object".into()));
    }
    Ok(LocalRegister { stamp, document })
}

/// What an entry of the purge log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PurgeRecord {
    pub id: DocId,
    /// The purged leaves.
    pub revs: Vec<Revision>,
    /// Ancestors that went with them, for no other leaf had them.
    pub history: Vec<Revision>,
}

impl PurgeRecord {
    /// An entry of the purge log: the document and the purged leaves; then, if any, their ancestors.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        put_bytes(&mut out, self.id.as_str().as_bytes());
        let mut put = |revs: &[Revision]| {
            put_varint(&mut out, revs.len() as u64);
            revs.iter().for_each(|rev| put_rev(&mut out, rev));
        };
        put(&self.revs);
        if !self.history.is_empty() {
            put(&self.history);
        }
        out
    }

    /// Reads [`PurgeRecord::encode`].
    pub fn decode(bytes: &[u8]) -> Result<PurgeRecord, StorageError> {
        let read = || {
            let mut reader = Reader::new(bytes);
            reader.version(VERSION)?;
            let id = DocId::new(reader.str()?);
            let revs = read_revs(&mut reader)?;
            let history = if reader.is_empty() { Vec::new() } else { read_revs(&mut reader)? };
            reader.finish()?;
            Ok(PurgeRecord { id, revs, history })
        };
        read().map_err(damaged("purge record"))
    }
}

fn read_revs(reader: &mut Reader<'_>) -> Result<Vec<Revision>, CodecError> {
    let mut revs = Vec::new();
    for _ in 0..reader.varint()? {
        revs.push(read_rev(reader)?);
    }
    Ok(revs)
}

/// The record of a single number.
pub(super) fn encode_number(number: u64) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_varint(&mut out, number);
    out
}

/// Reads [`encode_number`].
pub(super) fn decode_number(bytes: &[u8]) -> Result<u64, StorageError> {
    let read = || {
        let mut reader = Reader::new(bytes);
        reader.version(VERSION)?;
        let number = reader.varint()?;
        reader.finish()?;
        Ok(number)
    };
    read().map_err(damaged("number"))
}
