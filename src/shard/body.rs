//! The content of a revision: its attachments and the text of its JSON object.

use bytes::Bytes;

use super::ShardId;
use super::keys::{self, Kind};
use super::record::damaged;
use crate::document::render::{Attachment, Encoding, StoredRevision};
use crate::document::revision::Revision;
use crate::storage::{StorageError, View};
use crate::wire::codec::{CodecError, Reader, put_bool, put_str, put_varint};

const VERSION: u8 = 1;

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
        let (attachments, at) = BodyRecord::split(&bytes)?;
        Ok(BodyRecord { attachments, text: Bytes::from(bytes).slice(at..) })
    }

    /// The attachments of a record, and where its text begins.
    pub(super) fn split(bytes: &[u8]) -> Result<(Vec<Attachment>, usize), StorageError> {
        let read = || {
            let mut reader = Reader::new(bytes);
            reader.version(VERSION)?;
            let mut attachments = Vec::new();
            for _ in 0..reader.varint()? {
                attachments.push(read_attachment(&mut reader)?);
            }
            Ok((attachments, bytes.len() - reader.rest().len()))
        };
        read().map_err(damaged("body record"))
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
