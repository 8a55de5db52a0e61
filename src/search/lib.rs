//! Full-text search: analyzers, immutable segments, Lucene's classic query syntax, and its order of matches.
//!
//! Pure: no clock, randomness, threads, files or network. The node reads and stores the bytes of segments
//! (`settee::index`), makes documents of what design documents index, and merges the answers of shards.
//!
//! ```text
//!   document  what an index function said about one document
//!   analysis  text to tokens
//!   segment   documents to bytes, bytes to postings; two segments to one
//!   schema    the types of the fields of an index that has types
//!   query     text of a query to a tree
//!   search    the matches of a query in the segments of one shard: rows, facets, groups
//!   highlight fragments of stored text with the words of a query marked
//! ```

pub mod analysis;
pub mod document;
pub mod highlight;
pub mod query;
pub mod schema;
pub mod search;
pub mod segment;
