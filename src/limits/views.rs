//! Sizes of the pages of reductions, and of the states of indexes that are held while such pages are read.

use std::time::Duration;

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
/// States of indexes that a node holds between the pages of answers: an answer needs one for each range that it reads
/// on the node, so that one over the most ranges (`Q_MAX`) fits.
pub const HELD_STATES: usize = 1024;
/// Bytes of memory that they keep, of rows that were in memory alone. One is held whatever it takes.
pub const HELD_STATE_BYTES: usize = 32 << 20;
/// How long an answer waits until others give states back.
pub const HELD_STATE_WAIT: Duration = Duration::from_secs(10);
/// How long a state is held that nobody reads: a client may take that long for the rows of one page.
pub const HELD_STATE_IDLE: Duration = Duration::from_secs(5 * 60);
/// How long a state is held in all.
pub const HELD_STATE_TOTAL: Duration = Duration::from_secs(30 * 60);
/// How long a state is held while the disk is nearly full.
pub const HELD_STATE_SCARCE: Duration = Duration::from_secs(30);
/// How often states are looked at whose time is over.
pub const HELD_STATE_CHECK: Duration = Duration::from_secs(10);
/// How often an answer of which nothing was given out begins anew because a state was lost.
pub const ANSWERS_ANEW: usize = 5;
