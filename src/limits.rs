//! Every limit and default of the node in one table, with its unit and reason.
//!
//! Limits that users may change have a configuration key beside them; the value here is the default.

use std::time::Duration;

mod between_nodes;
mod commands;
mod feeds;
mod guard;
mod large_documents;
mod overload;
mod page;
pub mod scripts;
mod search;
mod views;

pub use between_nodes::*;
pub use commands::*;
pub use feeds::*;
pub use guard::*;
pub use large_documents::*;
pub use overload::*;
pub use page::*;
pub use search::*;
pub use views::*;

// ---- authentication ----

/// Pause before the users database, which could not be read or written, is looked at again for its design document.
pub const USERS_DESIGN_PAUSE: Duration = Duration::from_secs(5);
/// PBKDF2 rounds of new password hashes (`chttpd_auth/iterations`); the number CouchDB 3.5 uses.
pub const PASSWORD_ITERATIONS: u32 = 600_000;
/// PBKDF2 rounds above which a stored hash is not believed: checking it would hold a thread for seconds.
pub const PASSWORD_ITERATIONS_MAX: u32 = 10_000_000;
/// Verified credentials that are remembered, in entries of about 200 bytes; the oldest goes.
pub const VERIFIED_CREDENTIALS_MAX: usize = 4096;
/// Password hashes computed at once, on at most half of the cores, so that wrong passwords take neither the threads nor
/// the processors from readers.
pub const PASSWORD_CHECKS_AT_ONCE: usize = 4;
/// Password checks that may wait for their turn (about 10 s of work); more are told to come back.
pub const PASSWORD_CHECKS_WAITING_MAX: usize = 64;
/// PBKDF2 rounds of a user document that does not name them, as CouchDB reads it.
pub const PASSWORD_ITERATIONS_UNNAMED: u32 = 10_000;
/// Seconds that a session lives without a request (`chttpd_auth/timeout`), as in CouchDB.
pub const SESSION_TIMEOUT_S: u64 = 600;
/// Longest life of a session in seconds, ten years: its end must be a date that headers can hold.
pub const SESSION_TIMEOUT_MAX_S: u64 = 10 * 365 * 86_400;
/// Bytes of a session cookie; longer ones are taken for unreadable.
pub const COOKIE_BYTES_MAX: usize = 8192;
/// Failed logins after which a name is locked for an address (`chttpd_auth_lockout/threshold`), as in CouchDB.
pub const LOCKOUT_THRESHOLD: u64 = 5;
/// How long the refusal of one who is locked out is held back, in milliseconds: a client in a loop then costs nothing.
pub const LOCKOUT_PAUSE_MS: u64 = 200;
/// How long failures count, in milliseconds (`chttpd_auth_lockout/max_lifetime`), as in CouchDB.
pub const LOCKOUT_MS: u64 = 300_000;
/// Names and addresses whose failures are counted (`chttpd_auth_lockout/max_objects`), as in CouchDB.
pub const LOCKOUT_ENTRIES_MAX: usize = 10_000;
/// User records that are cached (`chttpd_auth/auth_cache_size`), as in CouchDB.
pub const AUTH_CACHE_ENTRIES: u64 = 50;
/// Most user records that may be cached, each of about 500 bytes.
pub const AUTH_CACHE_ENTRIES_MAX: usize = 100_000;
/// Bytes of a JSON Web Token; longer ones are taken for unreadable.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;
/// Verified tokens that are remembered, each of about 100 bytes; the oldest goes.
pub const VERIFIED_TOKENS_MAX: usize = 4096;
/// Keys of a published set (`jwt_auth/jwks_url`) that are read: providers have a handful.
pub const JWKS_KEYS_MAX: usize = 256;
/// Bytes of a published key set.
pub const JWKS_BYTES_MAX: usize = 1 << 20;
/// Age of a key set after which it is fetched again (`jwt_auth/jwks_max_age`), in seconds: a withdrawn key counts no
/// longer than that.
pub const JWKS_MAX_AGE_S: u64 = 3_600;
/// A provider is asked at most this often, however many tokens name keys that it does not have.
pub const JWKS_PAUSE: Duration = Duration::from_secs(10);
/// How long a key set serves while its provider cannot be reached.
pub const JWKS_STALE: Duration = Duration::from_secs(86_400);
/// Longest silence of a provider: requests with tokens wait for it.
pub const JWKS_SILENCE: Duration = Duration::from_secs(5);
/// Bytes of a login by form or JSON.
pub const LOGIN_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a base64 Basic credential; longer ones are taken for unreadable.
pub const BASIC_CREDENTIAL_BYTES_MAX: usize = 8192;

/// Pause of a task that follows a database's changes, after it failed or found no database.
pub const FOLLOWER_PAUSE: Duration = Duration::from_secs(1);

// ---- TLS ----

/// The port of the TLS listener (`ssl/port`); CouchDB's.
pub const TLS_PORT: &str = "6984";
/// Bytes of a file of certificates or keys: bundles of systems have about 250 kB.
pub const TLS_FILE_BYTES_MAX: u64 = 4 << 20;
/// Time for the handshake of a client, in milliseconds: a few round trips of the slowest links.
pub const TLS_HANDSHAKE_MS: u64 = 15_000;
/// How often certificate files are looked at, in milliseconds: renewed ones count within a minute.
pub const TLS_RELOAD_MS: u64 = 30_000;

// ---- the node ----

/// The address that a node listens on (`chttpd/bind_address`): reachable from its own machine only.
pub const BIND_ADDRESS: &str = "127.0.0.1";
/// The port that a node listens on (`chttpd/port`); CouchDB's.
pub const PORT: &str = "5984";
/// A node's name (`settee/node`) when none is given.
pub const NODE_NAME: &str = "settee@127.0.0.1";
/// How long a stopping node waits for requests in progress; then their connections are cut.
pub const STOP_DRAIN: Duration = Duration::from_secs(10);

// ---- documents ----

/// Levels of arrays and objects within a JSON text. Deeper texts are refused: writing and dropping a value walk it
/// recursively, and this depth fits every stack that the node uses.
pub const JSON_DEPTH_MAX: usize = 1_000;

// ---- HTTP ----

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
/// Items of a `_bulk_get` that are read at once, as far as their documents have [`FETCH_BYTES`] together.
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

// Coordinator.

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
/// Copies of a new database by default (`[cluster] n`); cut to the number of nodes.
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
/// Time that a read waits for a copy that holds what its token names.
pub const TOKEN_WAIT: Duration = Duration::from_secs(5);
/// Time between two looks for such a copy.
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

// ---- storage ----

/// Jobs that may wait for the committer before submitters wait themselves: bounds memory when the disk stalls.
pub const COMMIT_QUEUE_JOBS: usize = 1024;
/// Jobs in one group commit at most: bounds how long the first waits for the last.
pub const COMMIT_GROUP_JOBS: usize = 1024;
/// Bytes after which a group takes no further job: a larger batch gains nothing and holds memory.
pub const COMMIT_GROUP_BYTES: usize = 8 << 20;
/// Default of `[settee] memory_mb`, in MB: memtables take 64 of 160 parts, page caches 48, the rest what is left.
pub const MEMORY_MB: u64 = 160;
/// Least `[settee] memory_mb`: below, flushes are too small to be worth their syncs.
pub const MEMORY_MB_MIN: u64 = 32;
/// Least page cache of one open store file, in bytes: the tree's upper pages.
pub const STORE_FILE_CACHE_BYTES: usize = 128 << 10;
/// Bytes of memory that a cached page of 4,096 bytes takes, measured with many of them: its count makes the allocator
/// take the next larger class, and the cache keeps an index.
pub const CACHED_PAGE_COST_BYTES: usize = 5_700;
/// Store files kept open at once; others are opened when they are read or flushed. With their caches at the least size
/// they take a sixth of the caches' share of memory.
pub const STORE_FILES_OPEN: usize = 64;
/// Sectors of checksums kept in memory for one open store file: 270 KB, for 256 MB of blocks. Of a larger file that is
/// read everywhere some are read again. Those that a commit changes are held beside them until it is done: 530 bytes
/// for each 500 KB of the file in which it writes something.
pub const SUM_SECTORS_HELD: usize = 512;
/// Store files that small shards share: enough that a slow flush holds back a part of them only.
pub const STORE_FILES_COMMON: u64 = 8;
/// Attempts to open a sled directory whose earlier handle is on its way out: some tens of milliseconds.
pub const SLED_LOCK_ATTEMPTS: usize = 1000;
/// Bytes of a shard above which it gets a store file of its own.
pub const STORE_FILE_OWN_BYTES: u64 = 16 << 20;
/// Bytes of one step of the copy into that file: bounds its memory.
pub const MOVE_STEP_BYTES: usize = 4 << 20;
/// Reads of one store file at once: fewer than the threads that read, so that a stalled file cannot hold them all.
pub const STORE_FILE_READS: usize = 6;
/// Rows that a scan takes from sled at once: bounds what it copies for a caller that wants a few.
pub const SLED_CHUNK_ROWS: usize = 64;
/// Reads of one view of sled that may lose their way in a damaged tree before the view refuses the others: sled tries
/// each a million times, which takes seconds, and a search for the end of the damage makes hundreds.
pub const SLED_LOST_READS: usize = 4;
/// Read slots that store files share by their numbers.
pub const STORE_READ_LANES: usize = 64;
/// Documents of an object of a whole snapshot, on average: a changed document copies its object anew.
pub const SNAPSHOT_OBJECT_DOCS: u32 = 128;
/// Layers of a snapshot above which the next one is a whole one: its list names them all.
pub const SNAPSHOT_LAYERS: usize = 1000;
/// One part in so many of a whole snapshot: when what was added to it since is more, the next one is a whole one.
pub const SNAPSHOT_DELTA_SHARE: u64 = 3;
/// Bytes after which an object of a snapshot ends: it is held in memory.
pub const SNAPSHOT_OBJECT_BYTES: usize = 4 << 20;
/// Findings that `settee check` tells of one shard; the rest is only counted.
pub const CHECK_FINDINGS: usize = 1000;
/// Bytes by which a key may be longer than the one before a damaged page, to be found as the first one behind it: a few
/// reads for each.
pub const GAP_END_BYTES: usize = 64;
/// Different places of damaged data that a node remembers and tells in its log: the rest is only counted.
pub const DAMAGE_PLACES: usize = 1000;
/// How long an uploaded blob stays without a committed edit that names it: longer than any request may take.
pub const BLOB_LEASE: Duration = Duration::from_secs(15 * 60);
/// Blobs up to this stored size live in the ordered store. A file costs two syncs of its own (0.4 ms as measured) and
/// a block of 4 KB; the store's group commit carries the bytes for free.
pub const BLOB_INLINE_BYTES: usize = 4096;
/// Bytes of uploaded inline blobs that may wait in memory for their edits; beyond, small blobs become files.
pub const BLOB_INLINE_STAGED_BYTES: usize = 16 << 20;
/// Bytes of one read or write step of a blob: bounds memory per stream and the time a pool thread is held.
pub const BLOB_STEP_BYTES: usize = 256 << 10;
/// Default of `[settee] disk_reserve_mb`: with less free, what adds data is refused. The journal (up to 128 MB), the
/// memtables on their way to the store files, and deletions need it.
pub const DISK_RESERVE_MB: u64 = 256;
/// How often the free bytes are looked at: a fast disk takes as much as the reserve in this time, at most.
pub const DISK_ROOM_PAUSE: Duration = Duration::from_secs(1);
/// How often ranges are looked at that may need compaction: reading their headers costs nothing worth saving.
pub const COMPACTION_PAUSE: Duration = Duration::from_secs(30);
/// Default of `[settee] compaction_mb_per_s`: bytes that compaction reads and removes, a small part of what a disk
/// does.
pub const COMPACTION_MB_PER_S: u64 = 32;
/// Default of `[smoosh.ratio_dbs] min_priority`, all bytes to live ones, as in CouchDB 3.5.
pub const COMPACTION_RATIO: f64 = 2.0;
/// Default of `[smoosh.slack_dbs] min_priority`, dead bytes, as in CouchDB 3.5.
pub const COMPACTION_SLACK_BYTES: u64 = 536_870_912;
/// Default of `min_size` of both, in bytes, as in CouchDB 3.5.
pub const COMPACTION_MIN_BYTES: u64 = 1 << 20;
/// Store files below this many bytes are never made smaller: later writes fill them soon.
pub const SHRINK_FILE_MIN_BYTES: u64 = 4 << 20;
/// Nor are those above this many bytes: to find out what of them is free, all of it is read.
pub const SHRINK_FILE_MAX_BYTES: u64 = 4 << 30;
/// Nor those with more live bytes: they are moved in one go, in a few seconds, while readers of the file wait.
pub const SHRINK_LIVE_BYTES: u64 = 128 << 20;
/// How often it is tried to find a file that nobody reads, so that readers go first.
pub const SHRINK_TRIES: u32 = 200;
/// The pause between two such tries: longer than most reads.
pub const SHRINK_PAUSE: Duration = Duration::from_millis(50);
/// How often a lock is tried before it is waited for: most are held for less than that.
pub const LOCK_TRIES: usize = 100;
/// How long reads of several shards may hold up the other tasks of a thread before the rest of them goes to a thread
/// for reads; to hand them over takes some 50 µs.
pub const INLINE_READS: Duration = Duration::from_micros(250);
/// How long inline reads of one task may hold up the others of its thread, and in which time: a fifth of it is the most
/// that others lose to one.
pub const INLINE_SPELL: Duration = Duration::from_millis(2);
/// See [`INLINE_SPELL`].
pub const INLINE_WINDOW: Duration = Duration::from_millis(10);
/// Documents of a shard up to which a read counts as inline.
pub const INLINE_DOCS: usize = 16;
/// Ranges of keys up to which a read of a view counts as inline.
pub const INLINE_PLACES: usize = 16;
/// Groups of a view up to which their reduction counts as inline.
pub const INLINE_GROUPS: usize = 16;
/// Rows of a list up to which its read counts as inline.
pub const INLINE_ROWS: usize = 200;
/// Rows of one bounded step of a read.
pub const STEP_ROWS: usize = 1000;
/// Bytes of values of one bounded step of a read.
pub const STEP_BYTES: usize = 1 << 20;
/// Parts into which a range of ids is cut at once to compare copies: each reads some 100 records.
pub const SUMMARY_PARTS_MAX: usize = 32;
/// Bytes of one attachment (`[couchdb] max_attachment_size`), as in CouchDB 3.5.
pub const ATTACHMENT_BYTES: u64 = 1 << 30;
/// Types of attachments stored compressed (`[attachments] compressible_types`), as in CouchDB 3.5.
pub const ATTACHMENT_COMPRESSIBLE_TYPES: &str = "text/*, application/javascript, application/json, application/xml";
/// Their gzip level (`[attachments] compression_level`), 1 to 9, 0: none; as in CouchDB 3.5.
pub const ATTACHMENT_COMPRESSION_LEVEL: u32 = 8;
/// Documents of one request whose inline attachments are staged at the same time: each costs a disk sync at worst.
pub const STAGE_CONCURRENCY: usize = 8;
/// Most connections that `chttpd/max_connections` may ask for: each is a file descriptor.
pub const HTTP_CONNECTIONS_CEILING: u32 = 100_000;
/// Pause after a failed accept, in milliseconds: long enough not to spin, short enough not to be felt.
pub const HTTP_ACCEPT_PAUSE_MS: u64 = 50;
/// Time spent on skipping an unread request body, in milliseconds.
pub const HTTP_SKIP_MS: u64 = 5_000;
/// Most identifiers that one `_uuids` request makes (`uuids/max_count`).
pub const UUIDS_MAX: u64 = 1000;
/// Most databases that one `_dbs_info` request describes (`chttpd/max_db_number_for_dbs_info_req`).
pub const DBS_INFO_MAX: u64 = 100;

// The journal and its memtables.

/// Bytes at which a memtable is closed and flushed: smaller ones cost the engine more writes per document.
pub const MEMTABLE_FLUSH_BYTES: usize = 16 << 20;
/// Writers of a file wait when its active memtable is this many times over its size and the one before is not flushed.
pub const MEMTABLE_STALL_FACTOR: usize = 2;
/// All writers wait when all memtables together are this many times the size at which one is flushed.
pub const MEMTABLES_FLUSHES: usize = 4;
/// Writes after which a memtable takes no further shard of a group at once: readers get in before the next one.
pub const MEMTABLE_PART_WRITES: usize = 256;
/// Bytes that a memtable entry costs beside its key and value: its share of a tree node, count, head, rounding.
pub const MEMTABLE_ENTRY_BYTES: usize = 72;
/// Flushes at once: one per two cores of a small machine, and one more so that a stalled disk does not hold all.
pub const FLUSHES_AT_ONCE: usize = 2;
/// Bytes of the journal at which writers wait: what replays well within a second (about 100 MB/s of small records were
/// measured on a busy machine with two cores). At half of it the memtable that holds it
/// back is flushed.
pub const JOURNAL_BYTES: usize = 48 << 20;
/// The same in memtables, for smaller ones.
pub const JOURNAL_FLUSHES: usize = 8;
/// Pause before a flush that found no descriptor for its file is tried again.
pub const NO_FILES_PAUSE: Duration = Duration::from_millis(500);
/// Bytes of a journal segment: the journal grows and goes in steps of it.
pub const JOURNAL_SEGMENT_BYTES: u64 = 16 << 20;
/// Segments at a start above which unneeded ones are released: a node that only starts and stops makes one
/// each time.
pub const JOURNAL_SEGMENTS_AT_START: usize = 8;
/// Journal files kept to be overwritten: syncing written blocks takes half the time of growing a file.
pub const JOURNAL_SPARE_SEGMENTS: usize = 2;
/// Documents read at once to go with rows: bounds memory to this many times the document size.
pub const DOCS_PER_FETCH: usize = 16;
/// Documents that `_changes` with `_doc_ids` looks up in any case instead of reading the whole feed, as in CouchDB; so
/// many at once.
pub const CHANGES_DOC_IDS_LOOKED_UP: usize = 100;
/// Times that they are looked up while they change.
pub const CHANGES_LOOK_UPS: usize = 4;
/// Changes that are read in about the time that it takes to look one document up.
pub const CHANGES_PER_LOOKUP: u64 = 8;
/// Request bodies held in memory at once, of all requests, with the values made of them, in bytes. A larger one waits
/// until it is alone.
pub const HTTP_BODIES_BYTES: u64 = 256 << 20;
/// Bytes of memory for each comma, colon or opening bracket of a JSON text: an element of an array is one of them, a
/// member of an object two.
pub const JSON_TOKEN_BYTES: u64 = 40;
/// Time that a body waits for its share, in milliseconds.
pub const HTTP_BODY_WAIT_MS: u64 = 10_000;

// ---- selectors ----

/// Bytes up to which an offending value is printed in an error message.
pub const ERROR_TERM_BYTES: usize = 4096;
/// Regular expressions of one selector: each is compiled before anything is read, in up to some milliseconds.
pub const SELECTOR_PATTERNS: usize = 256;
/// Bytes of all paths of a selector together: a long name above many conditions is written once for each.
pub const SELECTOR_PATH_BYTES: usize = 16 << 20;
/// Bytes of one regular expression, as in the reference's library.
pub const REGEX_PATTERN_BYTES: usize = 64 << 10;
/// Bytes of a compiled regular expression, and of the states that searching adds.
pub const REGEX_PROGRAM_BYTES: usize = 2 << 20;
/// Searches abandoned within one document, after which its other patterns count as not found: bounds a document's time.
pub const SEARCHES_GIVEN_UP: usize = 2;
/// Steps back that one search may take, some 10 ms; then the text does not match.
pub const REGEX_STEPS: usize = 100_000;

/// Ranges of an index that one query reads, from `$in` and `$or`; with more, one range from the first to the last.
pub const FIND_RANGES_MAX: usize = 1000;
/// Documents that one step of a scan matches: bounds the time that it holds a thread, some milliseconds.
pub const FILTER_SCAN_DOCS: usize = 2000;
/// Documents matched together: where they were written together, their bodies are read as one range.
pub const FILTER_SCAN_GROUP: usize = 128;
/// Groups of one query with `group_by`: they are in memory together.
pub const FIND_GROUPS_MAX: usize = 10_000;
/// Documents that an index's rows lead to, read and matched together.
pub const FIND_DOCS_PER_FETCH: usize = 32;

// ---- scripts ----

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

// Views.

/// Indexes of ranges that a node remembers the state of, about 200 bytes each; beyond, those that nobody uses go.
pub const INDEXES_REMEMBERED: usize = 10_000;
/// Longest pause of a build that nobody waits for, between two batches; else it pauses as long as a batch takes.
pub const INDEX_PAUSE_MAX: Duration = Duration::from_millis(200);
/// Pause between an update of a database and the builds that follow it: a burst of writes is indexed together.
pub const AUTOUPDATE_PAUSE: Duration = Duration::from_secs(5);
/// Databases whose views are brought up to date at once, without anybody waiting for them.
pub const AUTOUPDATE_AT_ONCE: usize = 4;
/// Earlier revisions of a design document that are looked at for a view's index before (`[settee] index_swap`).
pub const INDEX_SWAP_REVISIONS: usize = 10;
/// Reductions of blocks of rows that one index of a range keeps, of about 250 bytes each: some 2 million rows.
pub const REDUCTIONS_PER_INDEX: usize = 32_768;
/// Bytes of places of rows that one index of a range notes for counts, with what it costs to hold them: with keys of
/// 30 bytes, every eighth of 100,000 rows.
pub const COUNT_STEPS_BYTES_PER_INDEX: usize = 1_310_720;
/// Bytes that such a place costs beside its key: its share of a list or of a tree node, rounding.
pub const COUNT_STEP_COST_BYTES: usize = 64;
/// Bytes of the stored sum of a block of rows, at most: a larger one is made anew after each start.
pub const SUM_STORED_BYTES: usize = 8 << 10;
/// Sums of blocks of rows that one commit stores, of some 200 bytes each.
pub const SUMS_PER_COMMIT: usize = 512;
/// Documents of one batch of a build: with their rows it is one commit, and what a crash makes the builder repeat.
pub const INDEX_BATCH_DOCS: usize = 256;
/// Purges that one step of a build applies.
pub const INDEX_PURGES_STEP: usize = 100;
/// Rows that one call of a script's reduce function takes; more are reduced in turns.
pub const REDUCE_ROWS_PER_CALL: usize = 1000;
/// Bytes of keys and values that one such call takes.
pub const REDUCE_BYTES_PER_CALL: usize = 1 << 20;
/// Groups of one page of a grouped query: their results are in memory together.
pub const GROUPS_PER_PAGE: usize = 100;
/// Characters of a reduce function's result that are always fine; above, it must be less than half of what went in.
pub const REDUCE_RESULT_CHARS: usize = 4096;
/// The same for `_sum`, in bytes as CouchDB counts them.
pub const REDUCE_SUM_BYTES: usize = 4906;
// ---- HTTP client and replication ----

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

// ---- cluster ----

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

// ---- copies of ranges on several nodes ----

/// Time that a call of a copy on another node may take; one that hangs ends earlier, when its node is suspected.
pub const COPY_CALL: Duration = Duration::from_secs(60);
/// Time beyond that after which the caller ends the call by itself.
pub const COPY_CALL_GRACE: Duration = Duration::from_secs(5);
/// Time that a call about a view may take: it may have to be built first.
pub const VIEW_CALL: Duration = Duration::from_secs(3600);
/// Time after which a listener asks a copy on another node again for news: so it notices that the node is gone.
pub const COPY_WAIT: Duration = Duration::from_secs(20);
/// Time that a read waits for the copies it asked before it asks one more.
pub const READ_OVERTAKE: Duration = Duration::from_millis(250);
/// Copies of a range that a query of a view tries, one after the other.
pub const COPIES_TRIED: usize = 4;
/// Epochs of a copy that are remembered: tokens of older ones begin anew.
pub const EPOCHS_KEPT: usize = 64;
/// Epochs that a copy remembers of another one, with those that this one has no more.
pub const TOLD_EPOCHS_KEPT: usize = 2 * EPOCHS_KEPT;
/// Other copies, those that are gone too, of which a copy remembers how many of their purges it has heard of.
pub const HEARD_KEPT: usize = 64;
/// Epochs of a node that are remembered, one for each of its starts: 8 bytes each.
pub const NODE_EPOCHS_KEPT: usize = 1024;
/// Points kept at which one copy was in step with another: about 50 bytes each.
pub const SYNC_POINTS_KEPT: usize = 32;
/// Time between two looks at databases that changed: what a feed that moves to another copy may have to read again.
pub const SYNC_PERIOD: Duration = Duration::from_secs(30);
/// Pause between two rounds for databases of which a copy missed something.
pub const SYNC_PAUSE: Duration = Duration::from_millis(200);
/// Time between two comparisons of all copies that two nodes have in common, whatever changed.
pub const COMPARE_PERIOD: Duration = Duration::from_secs(300);
/// Documents of a part that differs which are told one by one, about 90 bytes each, instead of cut further.
pub const DIGESTS_LISTED: u64 = 64;
/// So is a part of any size of which one document in so many is missing: to find out which costs less than they do.
pub const DIGESTS_LISTED_SHARE: u64 = 4;
/// Ranges of ids that one message asks to be cut: 32 parts of some 100 bytes come back for each.
pub const SPLITS_PER_CALL: usize = 16;
/// Databases that are brought in step with those of another node at a time.
pub const DATABASES_AT_ONCE: usize = 4;
/// Ranges of a database that are brought in step at a time.
pub const PULLS_AT_ONCE: usize = 4;
/// Pause before a node that could not be brought in step is tried again.
pub const MEET_PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks at who is there and at what this node is to tell of itself.
pub const LOOK_AROUND: Duration = Duration::from_secs(1);
/// Databases whose copies two nodes compare in one call: each may have to be opened, within `COPY_CALL`.
pub const COMPARE_PAGE: u64 = 500;
/// Entries in one message about the set of databases: about 100 bytes each.
pub const CATALOGUE_PAGE: usize = 10_000;
/// Answers to edits of other nodes that are kept for calls that come again: about 100 bytes for each edit, and a call
/// has at most [`EDITS_PER_STEP`] of them, most have one.
pub const ANSWERS_KEPT: usize = 1024;
/// Time that a caller whose call was cut off waits for the node to be there again, to ask for the answer.
pub const REASK_WAIT: Duration = Duration::from_millis(500);
/// Uploads of other nodes to copies here at one time: each holds a write step of memory.
pub const REMOTE_UPLOADS: usize = 1024;
/// Time after which an upload of another node that does not go on is dropped.
pub const UPLOAD_IDLE: Duration = Duration::from_secs(120);

// ---- splitting ranges and moving copies ----

/// Documents that a split copies in one commit: edits wait for no more.
pub const SPLIT_PAGE_DOCS: usize = 100;
/// Changes that may be left for the commit that ends a split; the node's edits wait for it.
pub const SPLIT_LAST_DOCS: usize = 100;
/// Time that a request waits for the new map of a database whose copies moved.
pub const MAP_WAIT: Duration = Duration::from_secs(10);
/// Times that something is done anew because copies moved meanwhile, or a name went over to another database.
pub const MAP_ATTEMPTS: usize = 8;
/// Time for which the old copy of a split range stays at least: lists under way read it.
pub const SPLIT_GRACE: Duration = Duration::from_secs(30);
/// Time after which it goes even though somebody still reads it.
pub const SPLIT_GRACE_MAX: Duration = Duration::from_secs(600);
/// Time between two looks at whether it is read.
pub const SPLIT_LOOK: Duration = Duration::from_secs(1);
/// Pause before the documents of a database that lost its name are written again, where they could not be; it doubles
/// each time. A majority of copies may be there in a moment.
pub const SUPERSEDED_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
pub const SUPERSEDED_PAUSE_MAX: Duration = Duration::from_secs(16);
/// Pause before it is looked again whether a damaged copy can be made anew, or one that is being filled goes on.
pub const REBUILD_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two looks for tombstones that are old enough to be forgotten; shorter where they are so sooner.
pub const FORGET_PAUSE: Duration = Duration::from_secs(600);
/// Time between the last copy's word that it has written down what is to be forgotten, and that this is done: longer
/// than any call takes. Shorter where tombstones are forgotten sooner.
pub const FORGET_SETTLE: Duration = Duration::from_secs(120);
/// Tombstones that copies agree on together.
pub const FORGET_ROUND: usize = 2000;
/// Bytes of their ids.
pub const FORGET_ROUND_BYTES: usize = 256 << 10;
/// Tombstones of these that are forgotten in one commit: edits wait for it.
pub const FORGET_STEP: usize = 200;
/// Databases whose tombstones wait together until what was sent before has come in.
pub const FORGET_DATABASES: usize = 4096;
/// An age below it counts as this.
pub const FORGET_AGE_MIN: Duration = Duration::from_secs(1);
/// Ranges of bodies that a replica remembers as applied before it had met all others.
pub const TAKEN_IN_RANGES: usize = 500;
/// Ranges at a time in which a node looks for what to forget.
pub const FORGET_AT_ONCE: usize = 16;
/// Rounds of one range at a look.
pub const FORGET_ROUNDS: usize = 8;
/// What could not be taken out of a damaged store file, as far as it is named one by one.
pub const SALVAGE_TOLD: usize = 1000;
/// Pause before a map is proposed again after a node did not vote because it counts other members.
pub const MEMBERS_PAUSE: Duration = Duration::from_millis(250);
/// Pause before the voters are checked again after members or connections changed: several changes are one step.
pub const VOTERS_LOOK: Duration = Duration::from_millis(200);
/// Pause before a change of voters is tried again.
pub const VOTERS_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause before a map is proposed again after another proposer was first, in milliseconds.
pub const BALLOT_PAUSE_MS: u64 = 100;
/// Jobs that a node keeps, finished ones too; as CouchDB's `[reshard] max_jobs`.
pub const RESHARD_JOBS: usize = 48;
/// Ranges that a node fills child shards of at one time.
pub const RESHARD_AT_ONCE: usize = 2;
/// Time between two looks at whether the other nodes have filled their child shards.
pub const RESHARD_LOOK: Duration = Duration::from_millis(200);
/// Moves that one plan lists: the rest is planned when those are done.
pub const REBALANCE_MOVES: usize = 1000;
/// Copies that a plan has on their way at one time: each reads and writes a whole range.
pub const MOVES_AT_ONCE: usize = 4;
/// Longest pause before a plan is made again of which nothing could be begun.
pub const REBALANCE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause before a move that waits is looked at again, and between two looks at a plan of which nothing ends.
pub const MOVE_PAUSE: Duration = Duration::from_millis(500);
/// Least time between two looks at all databases for those of which copies move.
pub const MOVES_LOOK: Duration = Duration::from_millis(10);
/// Times that a node is asked whether it knows of a move, before that waits.
pub const CONFIRM_ATTEMPTS: u32 = 6;
/// Pause after the first of them; it doubles.
pub const CONFIRM_PAUSE: Duration = Duration::from_millis(5);
