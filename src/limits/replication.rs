//! Limits of requests to other servers and of replications.

use std::time::Duration;

/// First pause before a failed request to another server is repeated, in milliseconds; doubled each time.
pub const CLIENT_RETRY_MS: u64 = 250;
/// Longest such pause, in milliseconds.
pub const CLIENT_RETRY_MAX_MS: u64 = 10_000;
/// Bytes of a request's body that go out as one piece: a peer that takes so much within its time is not silent.
pub const CLIENT_PIECE_BYTES: usize = 64 << 10;
/// Redirects followed for one request, as common clients do.
pub const CLIENT_REDIRECTS_MAX: usize = 10;
/// Longest pause that another server may ask for (`Retry-After`), in milliseconds: below the time that a client waits.
pub const CLIENT_RETRY_AFTER_MAX_MS: u64 = 60_000;
/// Connections of a client at work at once, and kept idle to one server.
pub const CLIENT_CONNECTIONS: usize = 8;
/// Bytes of a proxy's answer before a tunnel opens: a status and some headers.
pub const PROXY_HEAD_BYTES: usize = 16 << 10;
/// Default of `replicator/retries_per_request`, as in CouchDB 3.5.
pub const REPLICATION_RETRIES: u64 = 5;
/// Most retries that a request may ask for: each waits up to ten seconds.
pub const REPLICATION_RETRIES_MAX: u64 = 100;
/// Default of `replicator/connection_timeout` in milliseconds, as in CouchDB: longest silence of a peer.
pub const REPLICATION_SILENCE_MS: u64 = 30_000;
/// Default of `replicator/worker_batch_size` in changes, as in CouchDB.
pub const REPLICATION_BATCH_ROWS: u64 = 500;
/// Most changes in one batch: bounds what is asked of a target at once.
pub const REPLICATION_BATCH_ROWS_MAX: usize = 1000;
/// Default of `replicator/worker_processes`, as in CouchDB: batches of one replication that are worked on at once.
pub const REPLICATION_WORKERS: u64 = 4;
/// Most of them: with the bytes fetched at once they bound a replication's memory.
pub const REPLICATION_WORKERS_MAX: usize = 32;
/// Default of `replicator/http_connections`, as in CouchDB: connections of one replication to one peer.
pub const REPLICATION_CONNECTIONS: u64 = 20;
/// Most of them: what one job may take of a node's sockets.
pub const REPLICATION_CONNECTIONS_MAX: usize = 200;
/// Most documents fetched and written at once.
pub const REPLICATION_FETCH_DOCS: usize = 500;
/// Documents fetched at once while their size is not known.
pub const REPLICATION_FETCH_FIRST: usize = 50;
/// Bytes of documents to be fetched at once: enough that a round trip weighs little.
pub const REPLICATION_FETCH_BYTES: usize = 1 << 20;
/// Bytes of documents that are taken at once; of more, half as many are asked for.
pub const REPLICATION_ANSWER_BYTES: usize = 8 << 20;
/// Bytes of an answer without documents, and of one with a single document that is larger than what is taken at once:
/// one of those at a time.
pub const REPLICATION_DOCUMENT_BYTES: usize = 128 << 20;
/// Revisions of a document asked for at once where they stand in the URL: some thousand bytes.
pub const REPLICATION_OPEN_REVS: usize = 50;
/// Fetches of one batch under way at once, documents with attachments of one fetch sent at once: each hides the round
/// trip of the others.
pub const REPLICATION_FETCHES: usize = 4;
/// Bytes of attachments from which on a target is asked whether it has them under another generation: less is sent as
/// fast as asked.
pub const REPLICATION_HELD_BYTES: u64 = 64 << 10;
/// Refused documents that a job lists; it counts all.
pub const REPLICATION_REFUSALS: usize = 20;
/// Default of `replicator/checkpoint_interval` in milliseconds, as in CouchDB.
pub const REPLICATION_CHECKPOINT_MS: u64 = 30_000;
/// Sessions that a checkpoint remembers, as in CouchDB.
pub const REPLICATION_HISTORY: usize = 50;
/// Signs of life asked of a source that has no news, in the time that it may be silent: two may be lost.
pub const REPLICATION_HEARTBEATS: u32 = 3;
/// Pause before a source is asked again that was to wait for news and answered at once that there is none.
pub const REPLICATION_IDLE_PAUSE: Duration = Duration::from_secs(1);
/// Replications of a node; more are refused.
pub const REPLICATION_JOBS_MAX: usize = 20_000;
/// Default of `replicator/max_jobs`: how many of them run at once. One that waits for news costs some kilobytes.
pub const REPLICATION_RUNNING_MAX: u64 = 20_000;
/// Default of `replicator/interval` in milliseconds, as in CouchDB: how often jobs are looked after.
pub const REPLICATION_INTERVAL_MS: u64 = 60_000;
/// Default of `replicator/max_churn`, as in CouchDB: jobs that make way for others in one interval.
pub const REPLICATION_CHURN: u64 = 20;
/// Default of `replicator/stall_timeout` in milliseconds: time without any progress after which a job that is not
/// waiting for news is begun anew, ten times the longest silence of a peer.
pub const REPLICATION_STALL_MS: u64 = 300_000;
/// Silences of a peer that are no stall yet, whatever `replicator/stall_timeout` says.
pub const REPLICATION_STALL_SILENCES: u32 = 2;
/// Default of `replicator/min_backoff_penalty_sec`: first pause of a continuous replication that failed, doubled each
/// time.
pub const REPLICATION_BACKOFF_S: u64 = 5;
/// Default of `replicator/max_backoff_penalty_sec`: a peer that comes back is noticed within ten minutes.
pub const REPLICATION_BACKOFF_MAX_S: u64 = 600;
/// Default of `replicator/health_threshold`, as in CouchDB: failures before so many seconds of work do not count.
pub const REPLICATION_HEALTHY_S: u64 = 120;
/// Default of `replicator/max_history`, as in CouchDB: events kept of a replication for `_scheduler/jobs`.
pub const REPLICATION_EVENTS: u64 = 20;
/// Most of them, within a job's memory.
pub const REPLICATION_EVENTS_MAX: usize = 1000;
/// Pause after which the databases that came or went meanwhile are looked at for replicator databases: writes to any
/// database wake that task.
pub const REPLICATOR_WATCH_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a replication document that could not be handled, or a note that could not be written into one, is
/// tried again.
pub const REPLICATOR_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Bytes of a view's answer that a list function is given: its rows are in the function's memory at once.
pub const LIST_VIEW_BYTES: usize = 4 << 20;
/// Rewrites of one request (`chttpd/rewrite_limit`, as in CouchDB): rules may lead to each other for ever.
pub const REWRITES_MAX: u64 = 100;
