//! Limits of databases: names, ranges, operations on several documents.

use std::time::Duration;

/// Characters of a database name (CouchDB documentation, 'Databases'; as CouchDB 3.5 was measured).
pub const DATABASE_NAME_MAX: usize = 238;
/// Ranges of one database: each costs a merge cursor per list and 12 bytes per sequence.
pub const Q_MAX: u32 = 1024;
/// Ranges of a new database by default (`[cluster] q`).
pub const Q_DEFAULT: u32 = 8;
/// Bytes of documents and attachments of one partition (`couchdb/max_partition_size`); 0 is no limit. As in CouchDB.
pub const PARTITION_BYTES: u64 = 10 << 30;
/// The same with `[settee] follow = couchdb-3.5`.
pub const Q_OF_COUCHDB: u32 = 2;
/// Replicas of a new database by default (`[cluster] n`); cut to the number of nodes.
pub const N_DEFAULT: u32 = 3;
/// Handles of databases kept open while nobody uses them: about 4 KB each.
pub const OPEN_DATABASES: usize = 1000;
/// Events of deleted databases that `_db_updates` remembers.
pub const DELETED_DATABASE_EVENTS: usize = 1000;
/// Characters of a sequence behind its number: what `Q_MAX` ranges with the longest numbers need.
pub const SEQ_TEXT_MAX: usize = 64 << 10;
/// Characters of the token of a write: what 200 ranges need; clients and proxies take headers of 8 KiB.
pub const TOKEN_TEXT_MAX: usize = 6 << 10;
/// Characters of all tokens that a request brings.
pub const TOKENS_TEXT_MAX: usize = 16 << 10;
/// Bytes of the cookie that has a session's tokens: browsers keep 4 KiB, with its attributes.
pub const TOKEN_COOKIE_BYTES: usize = 3 << 10;
/// Time that a read waits for a replica that holds what its token names.
pub const TOKEN_WAIT: Duration = Duration::from_secs(5);
/// Time between two looks for such a replica.
pub const TOKEN_PAUSE: Duration = Duration::from_millis(50);
/// Bytes of a document's JSON text, attachments not counted (`[couchdb] max_document_size`), as in CouchDB 3.5.
pub const DOCUMENT_BYTES: u64 = 8_000_000;
/// Generations of a history that are kept (`_revs_limit`), as in CouchDB.
pub const REVS_LIMIT: u64 = 1000;
/// Purges kept on record (`_purged_infos_limit`), as in CouchDB.
pub const PURGED_INFOS_LIMIT: u64 = 1000;
/// Documents that one `_purge` may name, as in CouchDB.
pub const PURGE_DOCS_MAX: usize = 100;
/// Revisions that one `_purge` may name, as in CouchDB.
pub const PURGE_REVISIONS_MAX: usize = 1000;
/// Documents with `batch=ok` that may wait for their commit: bounds memory to this many times the document size.
pub const BATCH_QUEUE_DOCS: usize = 256;
/// Edits that go to a range in one step, so that a large request does not hold the committer for long.
pub const EDITS_PER_STEP: usize = 500;
/// Rows of one page of a list or feed from one range: bounds memory per request to pages times ranges.
pub const PAGE_ROWS: usize = 200;
/// Rounds in which the beginning of a list behind `skip` is narrowed down; the rest is read. Each halves the widest
/// range, so that only a thousand ranges of very different content need as many.
pub const SKIP_ROUNDS_MAX: usize = 200;
/// Rows of one page with documents.
pub const PAGE_DOCS: usize = 50;
