//! Limits and defaults of the node itself: addresses, TLS.

use std::time::Duration;

/// The port of the TLS listener (`ssl/port`); CouchDB's.
pub const TLS_PORT: &str = "6984";
/// Bytes of a file of certificates or keys: bundles of systems have about 250 kB.
pub const TLS_FILE_BYTES_MAX: u64 = 4 << 20;
/// Time for the handshake of a client, in milliseconds: a few round trips of the slowest links.
pub const TLS_HANDSHAKE_MS: u64 = 15_000;
/// How often certificate files are looked at, in milliseconds: renewed ones count within a minute.
pub const TLS_RELOAD_MS: u64 = 30_000;

/// The address that a node listens on (`chttpd/bind_address`): reachable from its own machine only.
pub const BIND_ADDRESS: &str = "127.0.0.1";
/// The port that a node listens on (`chttpd/port`); CouchDB's.
pub const PORT: &str = "5984";
/// How long a background worker rests that has panicked, before it is started again.
pub const WORKER_RESTART_PAUSE: Duration = Duration::from_secs(1);
/// A node's name (`settee/node`) when none is given.
pub const NODE_NAME: &str = "settee@127.0.0.1";
/// How long a stopping node waits for requests in progress; then their connections are cut.
pub const STOP_DRAIN: Duration = Duration::from_secs(10);
