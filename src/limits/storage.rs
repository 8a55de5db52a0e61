//! Limits of storage: commits, store files, caches.

use std::time::Duration;

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
/// Store files at whose first pages a start looks, whether they are as new as the journal says: a second on a disk
/// that reads 4,000 times in that. The others are compared when they are opened.
pub const STORE_FILES_LOOKED_AT: usize = 4_096;
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
