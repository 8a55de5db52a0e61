//! Calls that carry the bytes of attachments to a replica and from it.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::document::render::Attachment;
use crate::storage::StageMode;

/// Bytes of the stored form of an attachment, from the offset on; none at the end.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Blob {
    pub attachment: Attachment,
    pub at: u64,
}

/// Begins an upload; the answer names it.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Stage(pub StageMode);

/// The next bytes of an upload.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct StageWrite {
    pub upload: u64,
    pub data: Bytes,
}

/// Ends an upload; the answer is the attachment without name and type.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct StageFinish {
    pub upload: u64,
}
