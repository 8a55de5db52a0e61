//! Uploads of attachments: staging of their bytes, and the read-modify-write of one attachment.
//!
//! Bytes are on the disk of the document's range, under a lease, before the edit that names them is decided.

use std::sync::Arc;

use bytes::Bytes;
use md5::{Digest as _, Md5};

use crate::coordinator::read::ReadOperations;
use crate::coordinator::replica::range_replica::ReplicaWriter;
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::topology::error::{ReadError, WriteError};
use crate::coordinator::write::edits::{WriteDone, WriteOptions, prepare_stored};
use crate::coordinator::write::{Attachments, WriteOperations};
use crate::document::draft::{DraftAttachment, DraftData, PreparedBody};
use crate::document::id::DocId;
use crate::document::render::{Attachment, Encoding, StoredRevision};
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Edit, EditAttachment, EditOp, KnownBytes, ShardError, Want};
use crate::storage::{Hold, StageMode};

/// The content type of an attachment that came without one.
const DEFAULT_CONTENT_TYPE: &str = "application/octet-stream";

/// What is known of an upload before its bytes.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    /// The attachment's name, for errors.
    pub name: String,
    /// Its content type; also decides whether it is stored compressed.
    pub content_type: String,
    /// Whether the bytes come gzipped and are to be stored as they come.
    pub gzip: bool,
    /// The MD5 that the bytes must have.
    pub md5: Option<[u8; 16]>,
}

/// An upload under way, to the range of one document.
pub struct Upload {
    options: UploadOptions,
    writer: ReplicaWriter,
    node: Arc<str>,
    md5: Option<Md5>,
    /// Bytes that may still come.
    room: u64,
}

impl Upload {
    /// Takes the next bytes; waits until they are written. Fails once the size limit is passed.
    pub async fn write(&mut self, data: Bytes) -> Result<(), WriteError> {
        let Some(room) = self.room.checked_sub(data.len() as u64) else {
            return Err(WriteError::AttachmentTooLarge { name: self.options.name.clone() });
        };
        self.room = room;
        if let Some(md5) = &mut self.md5 {
            md5.update(&data);
        }
        Ok(self.writer.write(data).await?)
    }

    /// Ends the upload. The bytes are on disk, leased, and wait for the document that names them.
    pub async fn finish(self) -> Result<Staged, WriteError> {
        let Upload { options, writer, node, md5, .. } = self;
        if md5.map(|md5| md5.finalize().into()) != options.md5 {
            return Err(WriteError::DigestMismatch { name: options.name });
        }
        let (staged, hold) = writer.finish().await?;
        let attachment = Attachment { name: options.name, content_type: options.content_type, ..staged };
        Ok(Staged { attachment, hold, node })
    }
}

/// An attachment whose bytes are on the disk of its document's range.
#[derive(Clone, Debug)]
pub struct Staged {
    /// As it will stand in the document; `revpos` is set when the document is written.
    pub attachment: Attachment,
    /// Keeps the bytes until the document was decided.
    pub(in crate::coordinator) hold: Option<Hold>,
    /// The node that they went to.
    pub(in crate::coordinator) node: Arc<str>,
}

/// The attachments of an edit, with what keeps their bytes until it was decided.
#[derive(Default)]
pub(in crate::coordinator) struct StagedAll {
    pub attachments: Vec<EditAttachment>,
    pub holds: Vec<Hold>,
    /// The node that the bytes went to; `None` without any.
    pub source: Option<Arc<str>>,
}

impl Attachments<'_> {
    /// Bytes that one attachment may have.
    pub(in crate::coordinator) fn attachment_limit(self) -> u64 {
        self.context.config.u64("couchdb", "max_attachment_size", limits::ATTACHMENT_BYTES)
    }

    /// How plain bytes of this type are stored: `[attachments] compressible_types compression_level`, as they are now.
    fn stage_mode(self, content_type: &str) -> StageMode {
        let config = &self.context.config;
        let default = limits::ATTACHMENT_COMPRESSION_LEVEL;
        let level = match config.u64("attachments", "compression_level", default.into()) {
            level @ 0..=9 => level as u32,
            _ => default,
        };
        let types = config.list("attachments", "compressible_types", limits::ATTACHMENT_COMPRESSIBLE_TYPES);
        match level > 0 && types.iter().any(|pattern| matches_type(pattern, content_type)) {
            true => StageMode::Compress(level),
            false => StageMode::Plain,
        }
    }

    /// Begins an upload for the document `id`.
    pub async fn upload(self, id: &DocId, options: UploadOptions) -> Result<Upload, WriteError> {
        let mode = match options.gzip {
            true => StageMode::AlreadyGzip,
            false => self.stage_mode(&options.content_type),
        };
        let (writer, node) = self.stage(id, mode).await?;
        let md5 = options.md5.map(|_| Md5::new());
        Ok(Upload { options, writer, node, md5, room: self.attachment_limit() })
    }

    /// An upload to a replica of the range of `id`, and the node that it is on: this one where it holds a replica, else
    /// the one that will decide.
    pub(in crate::coordinator) async fn stage(
        self,
        id: &DocId,
        mode: StageMode,
    ) -> Result<(ReplicaWriter, Arc<str>), ShardError> {
        let range = self.map().index_of(id);
        if let Ok(Some(own)) = self.replicas().own_replica(range).await {
            return Ok((ReplicaWriter::Own(Box::new(own.shard.stage(mode))), Arc::clone(&self.context.node)));
        }
        let mut failed = ShardError::NoReplica { replicas: self.replicas().replicas_of(range) };
        for replica in self.replicas().primaries(&self.layout(), range).await? {
            let node = replica.node().unwrap_or(&self.context.node);
            match replica.stage(mode).await {
                Ok(writer) => return Ok((writer, Arc::clone(node))),
                Err(error) => failed = no_answer(failed, error),
            }
        }
        Err(failed)
    }

    /// Stages what a draft brings inline and puts it together with its stubs and uploads, in the draft's order.
    pub(in crate::coordinator) async fn stage_all(
        self,
        id: &DocId,
        drafts: Vec<DraftAttachment>,
        follows: Vec<Staged>,
        new_edits: bool,
    ) -> Result<StagedAll, WriteError> {
        let mut follows = follows.into_iter();
        let mut out = StagedAll::default();
        for draft in drafts {
            let bytes = known_bytes(&draft, new_edits);
            let DraftAttachment { name, content_type, revpos, data, .. } = draft;
            let content_type = content_type.unwrap_or_else(|| DEFAULT_CONTENT_TYPE.to_owned());
            let staged = match data {
                DraftData::Stub => {
                    out.attachments.push(EditAttachment::Stub { name, revpos, bytes });
                    continue;
                }
                DraftData::Inline(bytes) => {
                    // Inline bytes are plain, also where an answer with `encoding` beside them is sent back.
                    let options = UploadOptions { name: name.clone(), content_type, gzip: false, md5: None };
                    let mut upload = self.upload(id, options).await?;
                    upload.write(Bytes::from(bytes)).await?;
                    upload.finish().await?
                }
                DraftData::Follows { plain_length, .. } => {
                    // Invariant: the number of uploads was compared with that of the entries before.
                    let Staged { attachment, hold, node } = follows.next().expect("an upload per entry that follows");
                    // A replicator sends what another server zipped, and tells the length that it had before.
                    let zipped = attachment.encoding == Encoding::Gzip;
                    let length = plain_length.filter(|_| zipped).unwrap_or(attachment.length);
                    Staged { attachment: Attachment { content_type, length, ..attachment }, hold, node }
                }
            };
            let revpos = revpos.unwrap_or(0);
            out.attachments.push(EditAttachment::New(Attachment { name, revpos, ..staged.attachment }));
            out.holds.extend(staged.hold);
            out.source = Some(staged.node);
        }
        Ok(out)
    }

    /// Stages the stored bytes of an attachment of `source` for `target`, whose range may be another. They stay as long
    /// as what is answered.
    pub(in crate::coordinator) async fn copy_bytes(
        self,
        source: &DocId,
        target: &DocId,
        attachment: &Attachment,
    ) -> Result<(Option<Hold>, Arc<str>), WriteError> {
        let mode = match attachment.encoding {
            Encoding::Identity => StageMode::Plain,
            Encoding::Gzip => StageMode::AlreadyGzip,
        };
        let mut reader = self.documents().read_attachment(source, attachment, None).await?;
        let (mut writer, node) = self.stage(target, mode).await?;
        while let Some(piece) = reader.next().await? {
            writer.write(piece).await?;
        }
        let (staged, hold) = writer.finish().await?;
        if staged.blob != attachment.blob {
            return Err(ReadError::DamagedAttachment { name: attachment.name.clone() }.into());
        }
        Ok((hold, node))
    }

    /// Whether a standalone attachment write with this revision could succeed now: fails with
    /// [`WriteError::Conflict`] or [`WriteError::MissingRev`] before any byte is sent.
    pub async fn check_attachment_write(self, id: &DocId, rev: Option<&Revision>) -> Result<(), WriteError> {
        self.base_of(id, rev).await.map(|_| ())
    }

    /// The revision that a standalone attachment write goes on from; `None`: a new document.
    async fn base_of(self, id: &DocId, rev: Option<&Revision>) -> Result<Option<StoredRevision>, WriteError> {
        let want = rev.map_or(Want::Winner, |rev| Want::Revision(rev.clone()));
        let Some(mut fetched) = self.documents().fetch(id, want).await? else {
            return if rev.is_some() { Err(WriteError::MissingRev) } else { Ok(None) };
        };
        match (rev, fetched.take_one()) {
            (Some(_), None) => Err(WriteError::MissingRev),
            (Some(rev), Some(stored)) if fetched.tree.is_leaf(rev) && !stored.deleted => Ok(Some(stored)),
            (Some(_), Some(_)) => Err(WriteError::Conflict),
            (None, Some(stored)) if !stored.deleted => Err(WriteError::Conflict),
            // Over a tombstone the document begins anew.
            (None, _) => Ok(None),
        }
    }

    /// Adds or replaces one attachment; it becomes the first of the document's.
    pub async fn put_attachment(
        self,
        id: &DocId,
        name: &str,
        rev: Option<Revision>,
        staged: Staged,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        if self.map().partitioned {
            crate::document::id::partition_of(id.as_str())?;
        }
        let base = self.base_of(id, rev.as_ref()).await?;
        let Staged { attachment, hold: _hold, node } = staged;
        let mut attachments = vec![EditAttachment::New(Attachment { name: name.to_owned(), ..attachment })];
        let (body, others) = match base {
            None => (PreparedBody::new(&Default::default()), Vec::new()),
            Some(stored) => (prepare_stored(stored.body)?, stored.attachments),
        };
        attachments.extend(stubs_without(others, name));
        self.write_attachments(id, (rev, body), attachments, Some(node), options).await
    }

    /// Removes one attachment; [`WriteError::MissingAttachment`] is decided before the conflict.
    pub async fn delete_attachment(
        self,
        id: &DocId,
        name: &str,
        rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let want = rev.clone().map_or(Want::Winner, Want::Revision);
        let stored = match (&rev, self.documents().fetch_one(id, want).await?) {
            (Some(_), None) => return Err(WriteError::MissingRev),
            (None, None) => return Err(WriteError::NotFound { deleted: false }),
            (None, Some(stored)) if stored.deleted => return Err(WriteError::NotFound { deleted: true }),
            (_, Some(stored)) => stored,
        };
        if !stored.attachments.iter().any(|attachment| attachment.name == name) {
            return Err(WriteError::MissingAttachment);
        }
        let body = prepare_stored(stored.body)?;
        let attachments = stubs_without(stored.attachments, name).collect();
        self.write_attachments(id, (rev, body), attachments, None, options).await
    }

    async fn write_attachments(
        self,
        id: &DocId,
        (parent, body): (Option<Revision>, PreparedBody),
        attachments: Vec<EditAttachment>,
        source: Option<Arc<str>>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let (op, body) = (EditOp::Interactive { parent }, Arc::new(body));
        let edit = Edit { id: id.clone(), op, deleted: false, body, attachments, revs_limit: self.revs_limit() };
        self.writer().apply_edit(edit, source, options).await
    }
}

/// Whether a content type is one of those that `pattern` names: any case, parameters do not count, one `*` stands for
/// any text (`conformance/cases/documents`).
fn matches_type(pattern: &str, content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let pattern = pattern.to_ascii_lowercase();
    match pattern.split_once('*') {
        None => kind == pattern,
        Some((start, end)) => kind.strip_prefix(start).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// What a stub tells of its bytes. It counts for revisions made elsewhere: those of clients go by the parent's revpos.
pub(in crate::coordinator) fn known_bytes(draft: &DraftAttachment, new_edits: bool) -> Option<KnownBytes> {
    if new_edits {
        return None;
    }
    let (content_type, digest) = draft.content_type.clone().zip(draft.md5())?;
    Some(KnownBytes { content_type, digest })
}

/// All attachments but one, as they are.
fn stubs_without(attachments: Vec<Attachment>, name: &str) -> impl Iterator<Item = EditAttachment> + use<'_> {
    let others = attachments.into_iter().filter(move |attachment| attachment.name != name);
    others.map(|a| EditAttachment::Stub { name: a.name, revpos: Some(a.revpos), bytes: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_are_compressed() {
        let types: Vec<&str> = limits::ATTACHMENT_COMPRESSIBLE_TYPES.split(", ").collect();
        let compressed = |kind: &str| types.iter().any(|pattern| matches_type(pattern, kind));
        for kind in ["text/plain", "TEXT/html; charset=utf-8", "application/json", "application/xml;a=b"] {
            assert!(compressed(kind), "{kind}");
        }
        for kind in ["image/svg+xml", "application/octet-stream", "", "texts/plain", "text"] {
            assert!(!compressed(kind), "{kind}");
        }
        assert!(matches_type("image/*+xml", "image/svg+xml") && !matches_type("image/*+xml", "image/png"));
        assert!(!matches_type("ab*ba", "aba"), "the two sides of the star do not overlap");
    }
}
