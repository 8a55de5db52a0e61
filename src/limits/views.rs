//! Sizes of reductions that are read as one state of a range's index, which is held in memory.

/// Groups that a range reduces at once, and keys whose groups are read together.
pub const GROUPS_AT_ONCE: usize = 10_000;
/// Rows of a range that are read at once for a reduce function of a design document.
pub const REDUCED_ROWS_AT_ONCE: usize = 50_000;
/// Bytes of such groups or rows of a range.
pub const REDUCED_BYTES: usize = 4 << 20;
/// How often a page of reductions begins anew because rows changed between its steps, until it holds up commits of
/// rows: each time most of what it had read is kept, and read no more.
pub const REDUCE_RESTARTS: usize = 3;
/// Bytes of a reduction that keeps many values, about.
pub const LARGE_SUM_BYTES: usize = 4096;
/// Times that a build of an index goes on, behind the changes that it was to take in, with what changed since it began:
/// each time there is less to read, unless writers are faster than the build.
pub const INDEX_CATCH_UPS: usize = 16;
