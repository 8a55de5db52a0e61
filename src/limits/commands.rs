//! Limits of the commands `import`, `export`, `push`, `pull` and `doctor`.

use std::time::Duration;

/// Longest silence of a server before a request counts as failed.
pub const MIGRATION_SILENCE: Duration = Duration::from_secs(60);
/// How often a request is repeated that failed for a reason that may pass: a server may be started anew meanwhile.
pub const MIGRATION_RETRIES: u32 = 8;
/// Rows of the changes feed in one batch.
pub const MIGRATION_BATCH_ROWS: u64 = 500;
/// How often a migration writes down how far it is: what is between is asked for again after a kill, not written again.
pub const MIGRATION_CHECKPOINT: Duration = Duration::from_secs(2);
/// How often a migration tells how far it is.
pub const MIGRATION_PROGRESS: Duration = Duration::from_secs(1);
/// Databases of which the source is asked at once (CouchDB's `max_db_number_for_dbs_info_req` is 100).
pub const MIGRATION_INFOS: usize = 100;
/// Databases that are carried over at once when the command does not say.
pub const MIGRATION_PARALLEL: usize = 4;
/// Databases that are carried over at once, at most.
pub const MIGRATION_PARALLEL_MAX: usize = 64;
/// How often a database is read anew of which the feed tells of revisions that it has not.
pub const MIGRATION_ATTEMPTS: u32 = 3;
/// Documents in one request beside the feed: design documents, and those of which the comparison asks again.
pub const MIGRATION_DESIGNS: usize = 100;
/// Local documents in one request.
pub const MIGRATION_LOCALS: usize = 200;
/// Rows of a feed in one request of the comparison; a row is about 100 bytes.
pub const MIGRATION_FEED_ROWS: u64 = 10_000;
/// Documents of which the comparison holds digests at once: 16 bytes each, 150 MB in all.
pub const MIGRATION_COMPARED_DOCS: u64 = 4_000_000;
/// Leaves that the comparison names, of all that are lacking or different.
pub const MIGRATION_TOLD: usize = 20;

/// Bytes of one line of a file of couchbackup, which holds up to 500 documents with their attachments.
pub const COUCHBACKUP_LINE_BYTES: u64 = 1 << 30;
/// Lines of a file of couchbackup that are written at once.
pub const COUCHBACKUP_LINES: usize = 3;
/// Bytes of documents of such a file in one request; a larger document goes alone.
pub const COUCHBACKUP_BATCH_BYTES: usize = 4 << 20;

/// Objects that are sent to a bucket, or fetched from it, at once when the command does not say.
pub const BUCKET_PARALLEL: usize = 8;
/// Objects at once, at most.
pub const BUCKET_PARALLEL_MAX: usize = 64;
/// Bytes of one request; a larger object goes in parts of this size. S3 wants parts of 5 MiB, and each of those that
/// are sent at once is held in memory.
pub const BUCKET_PART_BYTES: u64 = 8 << 20;
/// Parts of an object, as S3 has them at most: parts of very large objects are larger.
pub const BUCKET_PARTS: u64 = 10_000;
/// Longest silence of a store before a request counts as failed.
pub const BUCKET_SILENCE: Duration = Duration::from_secs(60);
/// How often a request to a store is repeated that failed for a reason that may pass.
pub const BUCKET_RETRIES: u32 = 8;
/// How long a signature holds: all repeats of a request take less.
pub const BUCKET_SIGNATURE: Duration = Duration::from_secs(3600);
/// Bytes of a page of a listing: 1000 names of up to 1 KiB, each byte as up to three, and what is told of each.
pub const BUCKET_PAGE_BYTES: usize = 16 << 20;
/// Bytes of any other answer that is no object.
pub const BUCKET_ANSWER_BYTES: usize = 256 << 10;
/// How often a command tells how far it is.
pub const BUCKET_PROGRESS: Duration = Duration::from_secs(1);

// ---- what `doctor` takes for good ----

/// Times before this one come of a clock that was never set: 2025-01-01.
pub const DOCTOR_EARLIEST: Duration = Duration::from_secs(1_735_689_600);
/// Open files that a node needs beside its connections: store files, journal, other nodes.
pub const DOCTOR_FILES_LEAST: u64 = 512;
/// MB above the reserve that the disk should have.
pub const DOCTOR_ROOM_MB: u64 = 1024;
/// Syncs that are measured.
pub const DOCTOR_SYNCS: usize = 100;
/// A sync within this time did not reach a drive: the quickest flash takes some 20 µs.
pub const DOCTOR_SYNC_TOO_FAST: Duration = Duration::from_micros(15);
/// A sync that takes longer is that of a slow drive.
pub const DOCTOR_SYNC_SLOW: Duration = Duration::from_millis(20);
/// How long `--up` waits for an answer.
pub const DOCTOR_SILENCE: Duration = Duration::from_secs(4);
