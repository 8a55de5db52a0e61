//! Limits of the journal and its memtables.

use std::time::Duration;

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
/// Time that a body waits for its share, in milliseconds.
pub const HTTP_BODY_WAIT_MS: u64 = 10_000;
/// Bytes of one group of writes that are carried forward because their file is damaged: bounds the memory of that.
pub const JOURNAL_CARRY_BYTES: usize = 4 << 20;
