//! Limits of admission: how many requests of a class work at once, how many wait for their turn, and for how long.

use std::time::Duration;

/// Queries that work at once for each processor (`admission/queries`): enough to keep processors busy while some wait
/// for the disk. More of them would each take longer and be no more in a second.
pub const ADMISSION_QUERIES_PER_CORE: usize = 4;
/// At least so many, whatever the machine has.
pub const ADMISSION_QUERIES_MIN: usize = 8;
/// Queries beside these that wait for something themselves: an index that is built, another node. Each takes memory.
/// Reads and writes of documents and pages of feeds have no such bound but the number of connections.
pub const ADMISSION_STALLED_QUERIES: usize = 512;
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
/// One turn in so many is kept for clients that have none.
pub const ADMISSION_KEPT_PART: usize = 8;
/// Default of `admission/wait_ms`: how long a request waits for its turn, in milliseconds: a burst of dozens of slow
/// requests is answered in whole.
pub const ADMISSION_WAIT_MS: u64 = 10_000;
/// A client that gives up after so long, while no request of that caller has waited for longer, shows that the others
/// are about to give up, too.
pub const ADMISSION_PATIENCE: Duration = Duration::from_secs(1);
/// For so long after that, the latest requests of the caller are served first: in the order in which they came, each
/// would be answered when its client is gone. Clients that wait for as long as it takes are served in order, however
/// many there are.
pub const ADMISSION_LATEST_FOR: Duration = Duration::from_secs(3);
/// For so long a caller's requests are bounded by what one of its clients waited, while some wait all the time.
pub const ADMISSION_PATIENCE_FOR: Duration = Duration::from_secs(60);
/// A request that would wait for a larger part of what clients wait is refused: the rest is for the work.
pub const ADMISSION_OUTLOOK_MOST: f64 = 0.5;
/// Turns of a caller over which the time between two of them is averaged: a burst of as many as there are turns hardly
/// changes it.
pub const ADMISSION_PACED: u32 = 128;
/// Time without progress after which a request that works keeps others from their turn no longer. Longer than the steps
/// of a scan take while all turns are in use. Also the time between two looks of those that wait.
pub const ADMISSION_STALL: Duration = Duration::from_millis(500);
