//! Time limit of an answer of `_changes` that follows writes while it is read, and feeds since a time.

use std::time::Duration;

/// Times that an answer of `_changes` goes on in a range for what changed since it began.
pub const CHANGES_ENDS_MOVED: usize = 4;
/// Times that an answer of `_changes` with `descending` goes on, at its end, with what changed since it began: each
/// time there is less to read, unless writers are faster than the reader.
pub const CHANGES_CATCH_UPS: usize = 16;
/// Bins in which a replica notes at which sequence it stood, as in CouchDB.
pub const TIME_BINS: usize = 60;
/// By how much a feed since a time begins earlier than that: clocks of nodes and clients differ.
pub const TIME_SLACK: Duration = Duration::from_secs(60);
