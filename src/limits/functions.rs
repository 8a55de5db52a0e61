//! Limits of functions of design documents; `scripts` has the shares of their workers.

use std::time::Duration;

/// Threads that run functions of design documents, and as many that run maps: with fewer, a function that never returns
/// would stop all others.
pub const SCRIPT_WORKERS: usize = 4;
/// Threads of functions that nothing could stop and that still run, from which on no function runs until one ends.
pub const SCRIPT_THREADS_STUCK: usize = 16;
/// Runtimes of design documents that a worker keeps, of about 200 kB each and `SCRIPT_MEMORY_BYTES` at worst.
pub const SCRIPT_RUNTIMES_KEPT: usize = 4;
/// Bytes that the functions of one design document may take on one worker; as in CouchDB.
pub const SCRIPT_MEMORY_BYTES: usize = 64 << 20;
/// Stack of a worker's thread, in bytes: what functions may use and as much again for the engine around them.
pub const SCRIPT_STACK_BYTES: usize = 2 << 20;
/// Stack that functions may use, in bytes: calls of about 1,000 levels.
pub const SCRIPT_JS_STACK_BYTES: usize = 512 << 10;
/// Time of one function for one document, in milliseconds (`couchdb/os_process_timeout`, as in CouchDB).
pub const SCRIPT_TIMEOUT_MS: u64 = 5_000;
/// Documents given to a worker at once: bounds how long the next caller waits behind honest functions.
pub const SCRIPT_DOCS_PER_JOB: usize = 50;
/// Bytes of a document about which the engine need not be asked what a plain map emits (`script/plain.rs`): with the
/// next two a bound on time and rows, far below those of the engine.
pub const SCRIPT_PLAIN_DOC_BYTES: usize = 64 << 10;
/// Members and constants that a plain map may name.
pub const SCRIPT_PLAIN_TERMS: usize = 32;
/// How deep a plain map, or a value that it emits, may be nested.
pub const SCRIPT_PLAIN_DEPTH: usize = 16;
/// Bytes of one line of a query server of another language: as much as its functions' memory in our own.
pub const QUERY_SERVER_LINE_BYTES: usize = 64 << 20;
/// Jobs of one call that run at once: a build maps on some workers and leaves others for filters and validation.
pub const SCRIPT_JOBS_PER_CALL: usize = 2;
/// Time that a process of functions may take to start (`[settee] script_isolation`): a busy machine takes seconds.
pub const SCRIPT_HOST_START: Duration = Duration::from_secs(30);
/// How much longer than its limit a function may take, for single operations that cannot be interrupted: then its
/// process is killed, or its thread abandoned.
pub const SCRIPT_GRACE: Duration = Duration::from_secs(1);
/// Address space of such a process, in bytes: above what `SCRIPT_MEMORY_BYTES` and the allocator's reserve need.
pub const SCRIPT_HOST_MEMORY_BYTES: u64 = 4 << 30;
/// Characters of a line that a function logs; the rest is cut.
pub const SCRIPT_LOG_CHARS: usize = 1000;
/// Generations of a document's history that functions see, as in CouchDB (`query_server_config/revs_limit`).
pub const SCRIPT_REVISIONS: usize = 20;
/// How often an edit is validated anew because the revision that it builds on changed in between.
pub const VALIDATION_ATTEMPTS: usize = 8;
/// Pause between two writes of update notes to `_global_changes`: a reader hears of an update within this time, and a
/// busy node spends at most four commits a second on it.
pub const GLOBAL_CHANGES_PAUSE: Duration = Duration::from_millis(250);
/// Time that `add_node` of `_cluster_setup` waits for the other node to answer, in milliseconds.
pub const CLUSTER_SETUP_CONNECT_MS: u64 = 5_000;
/// Databases that one `ensure_dbs_exist` may name.
pub const ENSURE_DATABASES_MAX: usize = 100;
