//! What a document is, without any input or output: JSON values, revisions, revision trees, drafts and rendering.
//!
//! Everything here is pure and property tested. Rules come from SPEC 'Document', 'Attachment info object' and from what
//! CouchDB 3.5.0 was measured to do.

pub mod draft;
pub mod id;
pub mod json;
pub mod render;
pub mod rev_tree;
pub mod revision;
