//! Limits of the administration page and of what it shows.

/// Bytes of one file of a folder that is served in place of the page (`settee/utils_dir`): it is held in memory whole.
pub const UTILS_FILE_BYTES: u64 = 32 << 20;
/// Characters of a path below `/_utils/`.
pub const UTILS_PATH_CHARS: usize = 1024;
/// Log lines that a node keeps in memory for `_log`.
pub const LOG_TAIL_LINES: usize = 1000;
/// Bytes of such a line: the rest is cut off. With [`LOG_TAIL_LINES`] at most 1 MB.
pub const LOG_TAIL_LINE_BYTES: usize = 1000;
/// Milliseconds after which a request counts as slow (`log/slow_ms`).
pub const SLOW_REQUEST_MS: u64 = 500;
/// Slow requests that a node keeps in memory.
pub const SLOW_REQUESTS: usize = 200;
/// Bytes of the path of a slow request that are kept.
pub const SLOW_PATH_BYTES: usize = 500;
/// Databases that the state of a cluster names with ranges that lack replicas; more are counted.
pub const STATUS_DATABASES: usize = 200;
/// Databases that the state of a node names, for each node with which they are not compared yet.
pub const NOT_COMPARED_DATABASES: usize = 20;
/// How long the state of another node is waited for, in milliseconds: who looks at a cluster is not held up by a node
/// that is silent.
pub const STATUS_PATIENCE_MS: u64 = 3_000;
