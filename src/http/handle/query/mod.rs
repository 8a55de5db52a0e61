//! Reads over many documents: `_all_docs`, views, `_find` and their indexes, partitions. One file per endpoint.

pub mod all_docs;
pub mod find;
pub mod find_text;
pub mod mango_index;
pub mod partition;
pub mod view;
pub mod view_query;
