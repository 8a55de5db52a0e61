//! Limits of admission: how many requests of a class work at once, how many wait for their turn, and for how long.

use std::time::Duration;

/// Queries that work at once for each processor (`admission/queries`): enough to keep processors busy while some wait
/// for disks and other nodes, few enough that each ends soon.
pub const ADMISSION_QUERIES_PER_CORE: usize = 8;
/// At least so many, whatever the machine has.
pub const ADMISSION_QUERIES_MIN: usize = 32;
/// Default of `admission/documents`: reads and writes of documents that work at once. Writes share syncs, so that many
/// of them at once cost little more than a few.
pub const ADMISSION_DOCUMENTS: u64 = 256;
/// Default of `admission/feeds`: pages of feeds that are read at once. A feed that waits for changes has no turn.
pub const ADMISSION_FEEDS: u64 = 256;
/// Default of `admission/queue`: requests of a class that wait for their turn. As many as there are connections.
pub const ADMISSION_QUEUE: u64 = 2048;
/// A client may have so many of the places of a queue, as a numerator over [`ADMISSION_QUEUE_PARTS`].
pub const ADMISSION_QUEUE_OWN: usize = 3;
/// See [`ADMISSION_QUEUE_OWN`].
pub const ADMISSION_QUEUE_PARTS: usize = 4;
/// Default of `admission/wait_ms`: how long a request waits for its turn, in milliseconds.
pub const ADMISSION_WAIT_MS: u64 = 10_000;
/// Default of `admission/busy_wait_ms`: the same while the queue has not been empty for [`ADMISSION_BUSY_AFTER`], in
/// milliseconds. It is shorter than the time after which clients leave: an answer that nobody waits for is no use.
pub const ADMISSION_BUSY_WAIT_MS: u64 = 1_000;
/// A queue that has not been empty for so long does not come of a burst.
pub const ADMISSION_BUSY_AFTER: Duration = Duration::from_secs(1);
/// One turn in so many is kept for clients that have none.
pub const ADMISSION_KEPT_PART: usize = 8;
/// Time after which a request that works keeps others from their turn no longer: it waits for a view that is built, a
/// slow disk or a slow node, or its client sends slowly. Also the time between two looks of those that wait.
pub const ADMISSION_LONG: Duration = Duration::from_millis(500);
/// Queries that work for longer, as a multiple of the turns: each takes memory and processors. Reads and writes of
/// documents and pages of feeds have no such bound but the number of connections.
pub const ADMISSION_LONG_QUERIES: usize = 4;
