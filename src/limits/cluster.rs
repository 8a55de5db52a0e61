//! Limits of a cluster: members, connections, set-up.

/// Port for other nodes (`[cluster] port`).
pub const CLUSTER_PORT: u16 = 9100;
/// Interval of signs of life between nodes in milliseconds (`[cluster] heartbeat_ms`): small beside the suspicion.
pub const CLUSTER_HEARTBEAT_MS: u64 = 500;
/// Silence after which a node counts as dead, in milliseconds (`[cluster] suspect_ms`): longer than any pause of a node
/// that is well, short enough that no client stops waiting.
pub const CLUSTER_SUSPECT_MS: u64 = 5_000;
/// Longest such silence that a configuration may ask for: beyond, requests would hang.
pub const CLUSTER_SUSPECT_MAX_MS: u64 = 60_000;
/// Bytes of one greeting: names, an address and a nonce. Strangers can make a node hold no more.
pub const CLUSTER_GREETING_BYTES: usize = 2048;
/// Calls under way over one link; more wait.
pub const CLUSTER_CALLS_PER_LINK: usize = 1024;
/// Calls of one link whose handlers run or whose bodies are not whole; more are refused. Above the number of calls,
/// since abandoned ones still run.
pub const CLUSTER_HANDLERS_PER_LINK: usize = 4096;
/// Pieces of one class that wait to be written: bounds what a heartbeat or an urgent call waits behind.
pub const CLUSTER_LANE_CHUNKS: usize = 16;
/// Room for one read from a link at least, else a new buffer is begun: most calls and answers are smaller.
pub const CLUSTER_READ_BYTES: usize = 4 << 10;
/// Bytes gathered for one write to a link.
pub const CLUSTER_WRITE_BYTES: usize = 64 << 10;
/// Characters of the reason of a refusal.
pub const CLUSTER_REASON_CHARS: usize = 1000;
/// First pause before a lost connection is opened again, in milliseconds; doubled each time.
pub const CLUSTER_REDIAL_MS: u64 = 100;
/// Longest such pause, in milliseconds. Who returns is noticed sooner: it connects by itself.
pub const CLUSTER_REDIAL_MAX_MS: u64 = 5_000;
/// Pause before members are exchanged again after a failure, in milliseconds.
pub const CLUSTER_GOSSIP_RETRY_MS: u64 = 1_000;
/// Members of a cluster, removed ones included: their records are exchanged whole.
pub const CLUSTER_MEMBERS_MAX: usize = 1000;
/// Bytes of a node's name.
pub const CLUSTER_NAME_BYTES: usize = 255;
/// Bytes of the cluster's secret at least.
pub const CLUSTER_SECRET_BYTES_MIN: usize = 16;
/// Seconds between two log lines about refused connections.
pub const CLUSTER_LOG_PAUSE_S: u64 = 10;
/// Seconds that a join token is good for.
pub const CLUSTER_TOKEN_S: u64 = 3600;
/// Time that a node waits to be taken into a cluster, in milliseconds.
pub const CLUSTER_JOIN_MS: u64 = 30_000;
/// Bytes of what a node is handed when it joins: settings and all members.
pub const CLUSTER_WELCOME_BYTES: usize = 16 << 20;
/// Bytes of a request that is forwarded to another node: settings are small.
pub const CLUSTER_HTTP_BODY_BYTES: u64 = 4 << 20;
/// Time that a forwarded request waits for its answer, in milliseconds, as CouchDB's calls between nodes.
pub const CLUSTER_HTTP_MS: u64 = 60_000;
/// Time that a set-up waits for another node's answer, in milliseconds: it hashes passwords.
pub const CLUSTER_SETUP_ANSWER_MS: u64 = 30_000;
/// Bytes of such an answer.
pub const CLUSTER_SETUP_ANSWER_BYTES: usize = 64 << 10;
