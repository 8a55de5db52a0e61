//! Reads: documents, lists, selectors and views, merged over the shards of a database.

use crate::coordinator::replica::operations::database_operations;

pub(super) mod design_docs;
pub mod documents;
pub mod filter_scan;
pub mod find;
mod local_documents;
pub(super) mod quorum_read;
pub mod scan;
pub mod search;
pub(super) mod search_page;
pub mod search_several;
mod search_swap;
pub mod search_trial;
pub(super) mod skip;
pub mod typed_search;
pub mod view;
pub(super) mod view_docs;
pub(super) mod view_groups;
pub(super) mod view_info;
pub(super) mod view_reads;
pub(super) mod view_reduce;
pub(super) mod view_siblings;
pub(super) mod view_state;
pub(super) mod view_swap;

database_operations! {
    /// What this room does with a database.
    trait ReadOperations;
    /// Documents and attachments by their ids, read from as many replicas as a read asks for.
    documents: Documents;
    /// Pages of documents in the order of their ids.
    lists: Lists;
    /// Views, selectors and full-text indexes.
    queries: Queries;
    /// Design documents as the sources of functions.
    design_docs: DesignDocs;
}
