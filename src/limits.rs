//! Every limit and default of the node in one table, with its unit and reason.
//!
//! Limits that users may change have a configuration key beside them; the value here is the default.

use std::time::Duration;

// ---- configuration ----

/// Bytes of one configuration file: it is held in memory whole. CouchDB's own are below 100 kB.
pub const CONFIG_FILE_BYTES_MAX: u64 = 4 << 20;

// ---- authentication ----

/// PBKDF2 rounds of new password hashes (`chttpd_auth/iterations`); the number CouchDB 3.5 uses.
pub const PASSWORD_ITERATIONS: u32 = 600_000;
/// PBKDF2 rounds above which a stored hash is not believed: checking it would hold a thread for seconds.
pub const PASSWORD_ITERATIONS_MAX: u32 = 10_000_000;
/// Verified credentials that are remembered, in entries of about 200 bytes; the oldest goes.
pub const VERIFIED_CREDENTIALS_MAX: usize = 4096;
/// Password hashes computed at once, so that wrong passwords cannot take all threads from readers.
pub const PASSWORD_CHECKS_AT_ONCE: usize = 2;
/// Password checks that may wait for their turn (about 10 s of work); more are told to come back.
pub const PASSWORD_CHECKS_WAITING_MAX: usize = 64;
/// Bytes of a base64 Basic credential; longer ones are taken for unreadable.
pub const BASIC_CREDENTIAL_BYTES_MAX: usize = 8192;

// ---- the node ----

/// The address that a node listens on (`chttpd/bind_address`): reachable from its own machine only.
pub const BIND_ADDRESS: &str = "127.0.0.1";
/// The port that a node listens on (`chttpd/port`); CouchDB's.
pub const PORT: &str = "5984";
/// A node's name (`settee/node`) when none is given.
pub const NODE_NAME: &str = "settee@127.0.0.1";
/// How long a stopping node waits for requests in progress.
pub const STOP_DRAIN: Duration = Duration::from_secs(30);
/// Levels of arrays and objects within a JSON text. Deeper texts are refused: writing and dropping a value walk it
/// recursively, and this depth fits every stack that the node uses.
pub const JSON_DEPTH_MAX: usize = 1_000;
