//! Limits of full-text search: a query, an index and a node's open indexes.

/// Bytes of one stored piece of a segment: what a search reads at once.
pub const SEARCH_PIECE_BYTES: usize = 256 << 10;
/// Bytes of a segment that is merged with no other any more: a merge holds its input and its output in memory.
pub const SEARCH_SEGMENT_BYTES: u64 = 16 << 20;
/// Segments of about one size that are merged into one: each document is written once for each such step.
pub const SEARCH_MERGE_SEGMENTS: usize = 8;
/// Bytes below which segments count as of one size.
pub const SEARCH_SMALL_SEGMENT_BYTES: u64 = 32 << 10;
/// Bytes of a segment that is read as a whole when it is opened.
pub const SEARCH_READ_WHOLE_BYTES: u64 = 1 << 20;
/// Pieces of a segment that are read behind one that a search lacks, at most; twice as many each time it lacks one.
pub const SEARCH_READ_AHEAD: u32 = 64;
/// Bytes of pieces and dictionaries of open indexes that a node keeps; beyond, those that were used longest ago go.
pub const SEARCH_OPEN_BYTES: usize = 128 << 20;
/// Bytes of a shard's index that one search may need at once: what it reads stays until it ends.
pub const SEARCH_HELD_BYTES: usize = 256 << 20;
/// How often a search begins anew because segments that it read were merged meanwhile.
pub const SEARCH_RESTARTS: usize = 5;
/// Rows of an answer at most, and groups (CouchDB's `dreyfus/max_limit`).
pub const SEARCH_LIMIT_MAX: u64 = 200;
/// Rows of an answer where the database is partitioned, at most and by default (CouchDB's `dreyfus/limit_partitions`).
pub const SEARCH_LIMIT_PARTITIONED: u64 = 2000;
/// Rows of an answer by default, and of a group.
pub const SEARCH_LIMIT_DEFAULT: u64 = 25;
/// Groups of an answer by default.
pub const SEARCH_GROUPS_DEFAULT: u64 = 10;
/// Terms that one wildcard, regular expression, fuzzy term or range may stand for.
pub const SEARCH_TERMS_MAX: usize = 1 << 20;
/// Clauses of a query, as in Lucene.
pub const SEARCH_CLAUSES_MAX: usize = 1024;
/// Brackets within brackets of a query.
pub const SEARCH_DEPTH_MAX: usize = 100;
/// Bytes of a query.
pub const SEARCH_QUERY_BYTES: usize = 64 << 10;
/// Fields of facets, ranges, drilldowns, highlights and of a sort that a request may name, together.
pub const SEARCH_NAMES_MAX: usize = 1000;
/// Documents of a text index that `_find` looks at together, and at most for one answer (as CouchDB).
pub const FIND_TEXT_DOCS: u64 = 200;
