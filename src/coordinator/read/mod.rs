//! Reads: documents, lists, selectors and views, merged over the shards of a database.

pub(super) mod copies;
pub mod documents;
pub mod filter_scan;
pub mod find;
pub(super) mod quorum_read;
pub mod scan;
pub mod search;
pub(super) mod search_page;
mod search_swap;
pub(super) mod skip;
pub mod typed_search;
pub mod view;
pub(super) mod view_docs;
pub(super) mod view_groups;
pub(super) mod view_info;
pub(super) mod view_reads;
pub(super) mod view_reduce;
pub(super) mod view_siblings;
pub(super) mod view_swap;
