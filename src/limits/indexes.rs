//! Limits of views and their builds.

use std::time::Duration;

/// Indexes of ranges that a node remembers the state of, about 200 bytes each; beyond, those that nobody uses go.
pub const INDEXES_REMEMBERED: usize = 10_000;
/// Longest pause of a build that nobody waits for, between two batches; else it pauses as long as a batch takes.
pub const INDEX_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Pause between an update of a database and the builds that follow it: a burst of writes is indexed together.
pub const AUTOUPDATE_PAUSE: Duration = Duration::from_secs(5);
/// Databases whose views are brought up to date at once, without anybody waiting for them.
pub const AUTOUPDATE_AT_ONCE: usize = 4;
/// How often open databases are looked at for indexes that nothing names: a look reads nothing from the disk.
pub const INDEX_CLEANUP_PAUSE: Duration = Duration::from_secs(300);
/// After which time an open database is cleaned up although its design documents did not change meanwhile.
pub const INDEX_CLEANUP_PERIOD: Duration = Duration::from_secs(24 * 3600);
/// Databases of which a node remembers when they were cleaned up, some 100 bytes each; beyond, those that are open.
pub const INDEX_CLEANUP_REMEMBERED: usize = 10_000;
/// Earlier revisions of a design document that are looked at for a view's index before (`[settee] index_swap`).
pub const INDEX_SWAP_REVISIONS: usize = 10;
/// Reductions of blocks of rows that one index of a range keeps, of about 250 bytes each: some 2 million rows.
pub const REDUCTIONS_PER_INDEX: usize = 32_768;
/// Bytes of places of rows that one index of a range notes for counts, with what it costs to hold them: with keys of
/// 30 bytes, every eighth of 100,000 rows.
pub const COUNT_STEPS_BYTES_PER_INDEX: usize = 1_310_720;
/// Bytes that such a place costs beside its key: its share of a list or of a tree node, rounding.
pub const COUNT_STEP_COST_BYTES: usize = 64;
/// Bytes of the stored sum of a block of rows, at most: a larger one is made anew after each start.
pub const SUM_STORED_BYTES: usize = 8 << 10;
/// Sums of blocks of rows that one commit stores, of some 200 bytes each.
pub const SUMS_PER_COMMIT: usize = 512;
/// Documents of one batch of a build: with their rows it is one commit, and what a crash makes the builder repeat.
pub const INDEX_BATCH_DOCS: usize = 256;
/// Purges that one step of a build applies.
pub const INDEX_PURGES_STEP: usize = 100;
/// Rows that one call of a script's reduce function takes; more are reduced in turns.
pub const REDUCE_ROWS_PER_CALL: usize = 1000;
/// Bytes of keys and values that one such call takes.
pub const REDUCE_BYTES_PER_CALL: usize = 1 << 20;
/// Groups of one page of a grouped query: their results are in memory together.
pub const GROUPS_PER_PAGE: usize = 100;
/// Characters of a reduce function's result that are always fine; above, it must be less than half of what went in.
pub const REDUCE_RESULT_CHARS: usize = 4096;
/// The same for `_sum`, in bytes as CouchDB counts them.
pub const REDUCE_SUM_BYTES: usize = 4906;
