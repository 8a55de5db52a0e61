//! Limits of what an unauthenticated client can make the node log or hold.

use std::time::Duration;

/// The level of lines about requests (`log/requests`) when none is configured: not written at the default `log/level`,
/// since a line costs as much as a small read.
pub const REQUEST_LOG_LEVEL: &str = "debug";
/// Lines about failed logins in each [`FAILED_LOGIN_PERIOD`]; further ones are counted in one line: guessing at
/// passwords must not fill the log's disk.
pub const FAILED_LOGIN_LINES: u32 = 10;
/// See [`FAILED_LOGIN_LINES`].
pub const FAILED_LOGIN_PERIOD: Duration = Duration::from_secs(10);
/// Characters of a name in such a line.
pub const FAILED_LOGIN_NAME_CHARS: usize = 128;
/// Connections to the cluster port that have not proven who they are, at the same time. The oldest makes way for a new
/// one: members greet within moments, so that those which stay are others.
pub const CLUSTER_GREETINGS_MAX: usize = 64;
/// Of [`CLUSTER_GREETINGS_MAX`] those from one address: a stranger's host pushes out its own connections first.
pub const CLUSTER_GREETINGS_PER_ADDRESS: usize = 16;
/// Addresses of members that are remembered as such: those of all members of a large cluster, and where they moved.
pub const CLUSTER_PROVEN_ADDRESSES: usize = 1024;
/// Documents that `settee salvage` names for one damaged part of the journal; further ones are counted.
pub const SALVAGE_NAMED: usize = 1000;
/// The least `[settee] disk_reserve_mb` but 0, which turns it off: what a node writes between two looks at the disk,
/// and what it must write later for what it has taken.
pub const DISK_RESERVE_MB_MIN: u64 = 64;
/// Bytes that are kept on a disk that gets full for deletions and flushes, at most: a quarter of the reserve.
pub const DISK_RUN_BYTES: u64 = 64 << 20;
/// Bytes that are kept for a start: a journal segment's head, lists of files, the pages that a repair writes.
pub const DISK_START_BYTES: u64 = 8 << 20;
/// How often the free bytes are looked at where less than four times the reserve is free.
pub const DISK_ROOM_PAUSE_NEAR: Duration = Duration::from_millis(100);
