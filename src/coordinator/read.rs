//! Reading documents and attachments.

use std::ops::Range;

use bytes::Bytes;

use crate::coordinator::database::Database;
use crate::coordinator::error::ReadError;
use crate::coordinator::pending::{Fetched, Want};
use crate::document::id::DocId;
use crate::document::render::{Attachment, RevStatus, StoredRevision};
use crate::document::revision::Revision;

/// A document that goes with a row of a list.
#[derive(Clone, Debug)]
pub struct RowDoc {
    /// Its id.
    pub id: DocId,
    /// The revision shown.
    pub stored: StoredRevision,
    /// Its live conflicts, best first; filled when asked for.
    pub conflicts: Vec<Revision>,
}

/// The bytes of an attachment as they are stored, in pieces.
pub struct AttachmentReader {}

impl AttachmentReader {
    /// The next piece (at most `limits::BLOB_STEP_BYTES`); `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ReadError> {
        todo!()
    }
}

impl Database {
    /// Reads one document; `None` when its id was never seen. Local documents: `None`, or one revision `0-N` found.
    pub async fn fetch(&self, id: &DocId, want: Want) -> Result<Option<Fetched>, ReadError> {
        let _ = (id, want);
        todo!()
    }

    /// Reads documents, answers in the order of the wants; ranges are read concurrently.
    pub async fn fetch_many(&self, wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ReadError> {
        let _ = wants;
        todo!()
    }

    /// Opens an attachment of a document for reading its stored bytes (gzipped ones stay so); `range` is of them.
    pub async fn read_attachment(
        &self,
        id: &DocId,
        attachment: &Attachment,
        range: Option<Range<u64>>,
    ) -> Result<AttachmentReader, ReadError> {
        let _ = (id, attachment, range);
        todo!()
    }

    /// The whole content of an attachment in memory, as a client would see it (gzip undone when `plain`).
    pub async fn attachment_bytes(
        &self,
        id: &DocId,
        attachment: &Attachment,
        plain: bool,
    ) -> Result<Vec<u8>, ReadError> {
        let _ = (id, attachment, plain);
        todo!()
    }
}

/// Other live leaves and other deleted leaves of a document beside `shown`, best first each.
pub fn conflicts(fetched: &Fetched, shown: &Revision) -> (Vec<Revision>, Vec<Revision>) {
    let _ = (fetched, shown);
    todo!()
}

/// `_revs_info`: every revision from `shown` back to its root. What compaction removed is `Missing`.
pub fn revs_info(fetched: &Fetched, shown: &Revision) -> Vec<(Revision, RevStatus)> {
    let _ = (fetched, shown);
    todo!()
}

/// The generation up to which a reader who has `since` knows the attachments of `shown`: those with a higher `revpos`
/// are news to it. 0 when none of `since` is an ancestor of `shown` (SPEC 'atts_since').
pub fn known_generation(fetched: &Fetched, shown: &Revision, since: &[Revision]) -> u64 {
    let _ = (fetched, shown, since);
    todo!()
}
