//! What a document is, without any input or output: JSON values, revisions, revision trees, drafts and rendering.
//!
//! Everything here is pure and property tested. Rules come from CouchDB's documentation and from what
//! CouchDB 3.5.0 was measured to do.

pub mod codec;
pub mod collate;
pub mod draft;
pub mod erlang_order;
pub mod id;
pub mod json;
pub mod limits;
pub mod render;
pub mod rev_tree;
pub mod revision;
pub mod security;
pub mod selector;
pub mod shared;

pub use collate::{Collation, Collator};
pub use draft::{Draft, DraftAttachment, DraftData, DraftError, DraftErrorKind, PreparedBody, Term};
pub use id::DocId;
pub use json::{JsonError, Object, Value};
pub use render::{AttContent, AttView, Attachment, BlobId, Encoding, RenderOptions, RevStatus, StoredRevision};
pub use rev_tree::{Leaf, Merged, Missing, RevPath, RevTree, RevValue};
pub use revision::{AttachmentDigest, BadRevision, RevHash, Revision};
pub use selector::{Selector, SelectorError};
