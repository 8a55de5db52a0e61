//! Limits of documents and of requests by HTTP.

/// Largest chunk in which an unzipped body is handed on, in bytes: one buffer of a typical connection.
pub const HTTP_CHUNK_BYTES: usize = 64 * 1024;
/// Zipped bytes unzipped at once: deflate grows data at most 1032 times, so a step makes at most 1 MB.
pub const HTTP_INFLATE_STEP_BYTES: usize = 1024;
/// Time in which some byte of a request body must come, in milliseconds: a slower client only holds a connection.
pub const HTTP_BODY_IDLE_MS: u64 = 60_000;
/// Time in which some byte of an answer must be taken by the client, in milliseconds.
pub const HTTP_WRITE_IDLE_MS: u64 = 120_000;
/// Time for the whole head of a request, counted from its first wait, in milliseconds: also the life of an idle
/// connection, chosen above the keep-alive of common clients and proxies.
pub const HTTP_HEAD_MS: u64 = 90_000;
/// Bytes of one request's line and headers: room for a URI at its own limit and for large cookies.
pub const HTTP_HEAD_BYTES: usize = 64 * 1024;
/// Headers of one request.
pub const HTTP_HEADERS_MAX: usize = 128;
/// Default of `chttpd/max_uri_length`, in bytes (CouchDB: 8000).
pub const HTTP_URI_BYTES: u64 = 8000;
/// Default of `chttpd/max_http_request_size`, in bytes (CouchDB: 4 GB).
pub const HTTP_REQUEST_BYTES: u64 = 4 << 30;
/// Largest JSON body that is held in memory at once, in bytes: a bulk request of 1,000 large documents. With a larger
/// `[couchdb] max_document_size` it is that, and the members that do not count as the document's size.
pub const HTTP_JSON_BODY_BYTES: u64 = 64 << 20;
/// What reserved members, escapes and blanks of one document may take beside it.
pub const HTTP_DOCUMENT_MEMBERS_BYTES: u64 = 8 << 20;
/// The same, whatever `max_document_size` says: what a message between nodes holds with the term of its revision.
pub const HTTP_JSON_BODY_BYTES_MAX: u64 = 480 << 20;
/// Headers of one part of a multipart body, in bytes: also the limit of a form's short fields.
pub const HTTP_PART_HEAD_BYTES: usize = 16 * 1024;
/// Byte ranges in one request from which on the whole body is sent (as CouchDB 3.5 was measured).
pub const BYTE_RANGES_MAX: usize = 10;
/// Items of a `_bulk_get` that are read at once, as far as their documents have [`super::FETCH_BYTES`] together.
pub const BULK_GET_GROUP: usize = 50;
/// Default and maximum of a feed's wait, in milliseconds (`chttpd/changes_timeout`; CouchDB documentation, 'Changes
/// feed').
pub const CHANGES_TIMEOUT_MS: u64 = 60_000;
/// Rows of a feed without `limit`, from which `seq_interval` counts down (CouchDB 3.5's default limit).
pub const CHANGES_WITHOUT_LIMIT: u64 = 1_000_000_000_000_000;
/// Interval of `heartbeat=true`, in milliseconds (CouchDB documentation, 'Changes feed').
pub const CHANGES_HEARTBEAT_MS: u64 = 60_000;
/// Connections at the same time; further ones wait in the kernel's queue (`chttpd/max_connections`).
pub const HTTP_CONNECTIONS_MAX: u64 = 2048;
/// Bytes of an unread request body that are skipped to keep a connection; a longer rest closes it.
pub const HTTP_SKIP_BYTES: u64 = 1 << 20;
/// Chunks between the code that makes an answer and the connection: enough to overlap both.
pub const HTTP_REPLY_CHUNKS: usize = 2;
