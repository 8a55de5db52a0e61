//! Limits of one request, one client and all clients together: memory, time, places.

use std::time::Duration;

// ---- memory of request bodies and of what is made of them ----

/// Bytes of memory of a value in a query's body, for each comma, colon or opening bracket: the value itself, the key or
/// term that is made of it, and the plan that holds that. Measured: 300 for a key, 330 for a term of a selector.
pub const JSON_QUERY_TOKEN_BYTES: u64 = 320;
/// Bytes of memory that the values of one JSON body may take; more is refused with 413. What all bodies share.
pub const JSON_VALUES_BYTES_MAX: u64 = super::HTTP_BODIES_BYTES;
/// Bytes of a JSON body from which on it is parsed on a thread for long work: parsing takes about 5 ms for each MB.
pub const JSON_HERE_BYTES: usize = 256 << 10;
/// Documents of a `_bulk_docs` request that are worked through at a time: each takes about 1,700 bytes of memory beside
/// its text until it is written.
pub const BULK_PIECE_DOCS: usize = 2_000;
/// Bytes of their text, at which a piece ends; a larger document goes alone.
pub const BULK_PIECE_BYTES: usize = 4 << 20;
/// Bytes of memory that the values of a piece are counted with at most, in the share of a body.
pub const BULK_PIECE_MEMORY: u64 = 32 << 20;
/// Bytes of memory of a document of `_bulk_docs` until the answer is sent: its row of the answer.
pub const BULK_ROW_BYTES: u64 = 128;
/// Bytes of memory of a document of `_bulk_docs` in a database that prepares documents one by one (`_users`,
/// `_replicator`): the request is held whole.
pub const BULK_WHOLE_DOC_BYTES: u64 = 1_700;
/// Bytes of a body that come from what is kept for small bodies and logins, however much large ones take.
pub const HTTP_SMALL_BODY_BYTES: u64 = 256 << 10;
/// Bytes that are kept for small bodies, of all connections.
pub const HTTP_SMALL_BODIES_BYTES: u64 = 64 << 20;
/// Bytes of bodies in memory that one address may hold; above, one of its bodies goes on at a time.
pub const HTTP_ADDRESS_BODIES_BYTES: u64 = super::HTTP_BODIES_BYTES / 4 * 3;
/// Bytes a second that a body must come with, on average after the grace, while it takes memory: a modem's rate.
pub const HTTP_BODY_RATE_MIN: u64 = 4 << 10;
/// Time that the client may take for the first bytes of a body, whatever the rate: a few round trips of bad links.
pub const HTTP_BODY_GRACE: Duration = Duration::from_secs(15);

// ---- answers that wait for their readers ----

/// Bytes of whole answers that wait to be taken by their clients, of all connections. What is streamed counts by itself
/// ([`HTTP_STREAMS_BYTES`]).
pub const HTTP_ANSWERS_BYTES: usize = 256 << 20;
/// Bytes of an answer that does not count with these: what the kernel takes at once anyway.
pub const HTTP_ANSWER_SMALL_BYTES: usize = 256 << 10;
/// Bytes of such answers for clients of one address.
pub const HTTP_ADDRESS_ANSWERS_BYTES: usize = HTTP_ANSWERS_BYTES / 4 * 3;

/// Bytes that all streamed answers hold: pages of rows, and what their clients have not taken. Beyond, no page is read,
/// and connections are cut whose clients take nothing.
pub const HTTP_STREAMS_BYTES: usize = 256 << 20;
/// Bytes that they may hold with the first pages of answers that begin: beyond them none begins.
pub const HTTP_STREAMS_BEGUN_BYTES: usize = 2 * HTTP_STREAMS_BYTES;
/// Bytes of these for clients of one address.
pub const HTTP_ADDRESS_STREAMS_BYTES: usize = HTTP_STREAMS_BYTES / 4 * 3;
/// Bytes that are reserved for a page while it is read: the largest document of the default configuration.
pub const HTTP_STREAM_PAGE_BYTES: usize = 8 << 20;
/// Bytes of a row of a page beside its document.
pub const HTTP_STREAM_ROW_BYTES: usize = 200;
/// Time without taking anything after which a client's connection may be cut for others.
pub const HTTP_STREAM_STALL: Duration = Duration::from_secs(2);
/// Time that a page waits for other pages which are being read: a filter function may be slow.
pub const HTTP_STREAM_PATIENCE: Duration = Duration::from_millis(500);
/// Time that a page waits for memory; then the answer is given up.
pub const HTTP_STREAM_WAIT: Duration = Duration::from_secs(10);
/// Time between two looks at whether somebody's connection can be cut.
pub const HTTP_STREAM_LOOK: Duration = Duration::from_millis(100);
/// Documents of a page of a feed that are read first, before it is known how large they are.
pub const CHANGES_FIRST_DOCS: usize = 1;
/// Bytes of documents at which a page of a feed ends.
pub const CHANGES_PAGE_BYTES: usize = 4 << 20;

// ---- memory of answers to replications ----

/// Bytes of memory that the values of an answer may take before they are made in turn; what all may is
/// [`JSON_VALUES_BYTES_MAX`].
pub const REPLICATION_VALUES_BYTES: u64 = 32 << 20;
/// Answers beyond that whose values are in memory at one time, of all replications of a node.
pub const REPLICATION_LARGE_ANSWERS: usize = 2;

// ---- time of queries ----

/// Terms times documents of one step of a scan: about 10 ms, after which others have their turn.
pub const FILTER_SCAN_COST: usize = 100_000;

// ---- connections ----

/// One place in so many is kept free: when fewer are left, the connection that has been idle for longest is closed.
pub const HTTP_PLACES_KEPT: u32 = 16;
/// Time for a connection without any request yet that is told to close: what it sent may not be read yet.
pub const HTTP_FRESH_GRACE: Duration = Duration::from_millis(100);
/// Time for a request that began when its connection was told to close because it was idle.
pub const HTTP_LAST_REQUEST: Duration = Duration::from_secs(86_400);
/// Time between two log lines about connections that could not be accepted.
pub const HTTP_ACCEPT_LOG_PAUSE: Duration = Duration::from_secs(10);

// ---- builds of views ----

/// Documents of the first batch of a build, before it is known how many rows they make.
pub const INDEX_FIRST_BATCH_DOCS: usize = 4;
/// Bytes of rows that a batch should make; the next ones take fewer documents when it was more, four times as many when
/// it was less than a quarter. Rows are held several times: as values, as texts, as records of the journal.
pub const INDEX_BATCH_ROW_BYTES: usize = 8 << 20;
/// Bytes of a row beside those of its key and value.
pub const INDEX_ROW_BYTES: usize = 100;
