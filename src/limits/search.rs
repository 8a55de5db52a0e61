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
/// Parts of [`SEARCH_MEMORY_PARTS`] of `[settee] memory_mb` that pieces and dictionaries of open indexes may take,
/// beside it; beyond, those that were used longest ago go: 128 MB by default.
pub const SEARCH_OPEN_PARTS: usize = 8;
/// See [`SEARCH_OPEN_PARTS`].
pub const SEARCH_MEMORY_PARTS: usize = 10;
/// Bytes of a shard's index that a large search may read at once, and of postings that it may hold beside them: what it
/// reads stays until it ends. There is one large search at a time on a node: [`SEARCHES_LARGE`]. It does not follow
/// `memory_mb`, because nodes of one cluster are to refuse the same searches.
pub const SEARCH_HELD_BYTES: usize = 256 << 20;
/// Bytes that any search may read and hold, each; one that needs more waits until it may be a large one. All searches
/// together hold at most twice this for each turn, and twice [`SEARCH_HELD_BYTES`].
pub const SEARCH_SMALL_BYTES: usize = 16 << 20;
/// MB of `memory_mb` for which one search of a shard more may run on a node at once, others wait: 16 by default.
pub const SEARCH_TURN_MB: u64 = 10;
/// Searches of shards that run on a node at once, least and most.
pub const SEARCHES_AT_ONCE: (usize, usize) = (2, 64);
/// Large ones beside them.
pub const SEARCHES_LARGE: usize = 1;
/// Merges of segments that run on a node at once; others wait. Each holds at most [`SEARCH_SEGMENT_BYTES`] of input,
/// its output, and what both take while they are read and written.
pub const SEARCH_MERGES: usize = 2;
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
/// Documents of one dry run of an index function.
pub const SEARCH_DRY_RUN_DOCS: usize = 100;
/// Bytes of stored documents of one dry run.
pub const SEARCH_DRY_RUN_BYTES: usize = 16 << 20;
/// Tokens of one field that a dry run tells.
pub const SEARCH_DRY_RUN_TOKENS: usize = 1000;
/// Indexes that one search may ask together.
pub const SEARCH_INDEXES_MAX: usize = 8;
/// Terms that one wildcard, regular expression, fuzzy term or range may stand for.
pub const SEARCH_TERMS_MAX: usize = 1 << 20;
/// Clauses of a query, as in Lucene.
pub const SEARCH_CLAUSES_MAX: usize = 4096;
/// Brackets within brackets of a query.
pub const SEARCH_DEPTH_MAX: usize = 100;
/// Bytes of a query.
pub const SEARCH_QUERY_BYTES: usize = 64 << 10;
/// Fields of facets, ranges, drilldowns, highlights and of a sort that a request may name, together.
pub const SEARCH_NAMES_MAX: usize = 1000;
/// Documents of a text index that `_find` looks at together, and at most for one answer (as CouchDB).
pub const FIND_TEXT_DOCS: u64 = 200;
/// Rows of one page of an index with types, at most.
pub const NOUVEAU_LIMIT_MAX: u64 = 10_000;
/// Counts of one field that an index with types tells, unless the request says otherwise, and at most.
pub const NOUVEAU_TOP: u64 = 10;
/// See [`NOUVEAU_TOP`].
pub const NOUVEAU_TOP_MAX: u64 = 1000;
/// Counts of one field that one range tells.
pub const SEARCH_COUNTS_MAX: usize = 100_000;
