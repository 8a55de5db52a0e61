//! Attachments on their way in: staged uploads, and the read-modify-write of one attachment.

use bytes::Bytes;

use crate::coordinator::database::Database;
use crate::coordinator::error::WriteError;
use crate::coordinator::write::{WriteDone, WriteOptions};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;

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
pub struct Upload {}

impl Upload {
    /// Takes the next bytes; waits until they are written. Fails once the size limit is passed.
    pub async fn write(&mut self, data: Bytes) -> Result<(), WriteError> {
        let _ = data;
        todo!()
    }

    /// Ends the upload. The bytes are on disk, leased, and wait for the document that names them.
    pub async fn finish(self) -> Result<Staged, WriteError> {
        todo!()
    }
}

/// An attachment whose bytes are on the disk of its document's range.
#[derive(Clone, Debug)]
pub struct Staged {
    /// As it will stand in the document; `revpos` is set when the document is written.
    pub attachment: Attachment,
}

impl Database {
    /// Begins an upload for the document `id`.
    pub async fn upload(&self, id: &DocId, options: UploadOptions) -> Result<Upload, WriteError> {
        let _ = (id, options);
        todo!()
    }

    /// Whether a standalone attachment write with this revision could succeed now: fails with
    /// [`WriteError::Conflict`] or [`WriteError::MissingRev`] before any byte is sent.
    pub async fn check_attachment_write(&self, id: &DocId, rev: Option<&Revision>) -> Result<(), WriteError> {
        let _ = (id, rev);
        todo!()
    }

    /// Adds or replaces one attachment; it becomes the first of the document's.
    pub async fn put_attachment(
        &self,
        id: &DocId,
        name: &str,
        rev: Option<Revision>,
        staged: Staged,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let _ = (id, name, rev, staged, options);
        todo!()
    }

    /// Removes one attachment; [`WriteError::MissingAttachment`] is judged before the conflict.
    pub async fn delete_attachment(
        &self,
        id: &DocId,
        name: &str,
        rev: Option<Revision>,
        options: WriteOptions,
    ) -> Result<WriteDone, WriteError> {
        let _ = (id, name, rev, options);
        todo!()
    }
}
