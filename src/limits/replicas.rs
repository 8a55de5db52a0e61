//! Limits of replicas on several nodes: calls, comparison, repair.

use std::time::Duration;

/// Time that a call of a replica on another node may take; one that hangs ends earlier, when its node is suspected.
pub const REPLICA_CALL: Duration = Duration::from_secs(60);
/// Time beyond that after which the caller ends the call by itself.
pub const REPLICA_CALL_GRACE: Duration = Duration::from_secs(5);
/// Time that a call about a view may take: it may have to be built first.
pub const VIEW_CALL: Duration = Duration::from_secs(3600);
/// Time after which a listener asks a replica on another node again for news: so it notices that the node is gone.
pub const REPLICA_WAIT: Duration = Duration::from_secs(20);
/// Time that a read waits for the replicas it asked before it asks one more.
pub const READ_OVERTAKE: Duration = Duration::from_millis(250);
/// What a node takes for a read of documents, on average, from which on it is slow, if others are faster by
/// [`PACE_TIMES_SLOWER`]: one read that was overtaken brings a fast node beyond it.
pub const PACE_SLOW: Duration = Duration::from_millis(20);
/// See [`PACE_SLOW`].
pub const PACE_TIMES_SLOWER: u32 = 4;
/// The last read counts as one part in so many of that average.
pub const PACE_SAMPLES: u32 = 8;
/// Time without a read after which half of that average counts, so that a node that was slow is tried again.
pub const PACE_HALF_LIFE: Duration = Duration::from_secs(2);
/// Replicas of a range that a query of a view tries, one after the other.
pub const REPLICAS_TRIED: usize = 4;
/// Epochs of a replica that are remembered: tokens of older ones begin anew.
pub const EPOCHS_KEPT: usize = 64;
/// Epochs that a replica remembers of another one, with those that this one has no more.
pub const TOLD_EPOCHS_KEPT: usize = 2 * EPOCHS_KEPT;
/// Other replicas, those that are gone too, of which a replica remembers how many of their purges it has heard of.
pub const HEARD_KEPT: usize = 64;
/// Epochs of a node that are remembered, one for each of its starts: 8 bytes each.
pub const NODE_EPOCHS_KEPT: usize = 1024;
/// Points kept at which one replica was in sync with another: about 50 bytes each.
pub const SYNC_POINTS_KEPT: usize = 32;
/// Time between two looks at databases that changed: what a feed that moves to another replica may have to read again.
pub const SYNC_PERIOD: Duration = Duration::from_secs(30);
/// Pause between two rounds for databases of which a replica missed something.
pub const SYNC_PAUSE: Duration = Duration::from_millis(200);
/// Time between two comparisons of all replicas that two nodes have in common, whatever changed.
pub const COMPARE_PERIOD: Duration = Duration::from_secs(300);
/// Documents of a part that differs which are told one by one, about 90 bytes each, instead of cut further.
pub const DIGESTS_LISTED: u64 = 64;
/// So is a part of any size of which one document in so many is missing: to find out which costs less than they do.
pub const DIGESTS_LISTED_SHARE: u64 = 4;
/// Ranges of ids that one message asks to be cut: 32 parts of some 100 bytes come back for each.
pub const SPLITS_PER_CALL: usize = 16;
/// Databases that are brought in sync with those of another node at a time.
pub const DATABASES_AT_ONCE: usize = 4;
/// Ranges of a database that are brought in sync at a time.
pub const PULLS_AT_ONCE: usize = 4;
/// Pause before a node that could not be brought in sync is tried again.
pub const MEET_PAUSE: Duration = Duration::from_secs(1);
/// Time between two looks at who is there and at what this node is to tell of itself.
pub const LOOK_AROUND: Duration = Duration::from_secs(1);
/// Databases whose replicas two nodes compare in one call: each may have to be opened, within `REPLICA_CALL`.
pub const COMPARE_PAGE: u64 = 500;
/// Entries in one message about the set of databases: about 100 bytes each.
pub const CATALOGUE_PAGE: usize = 10_000;
/// Answers to edits of other nodes that are kept for calls that come again: about 100 bytes for each edit, and a call
/// has at most [`super::EDITS_PER_STEP`] of them, most have one.
pub const ANSWERS_KEPT: usize = 1024;
/// Time that a caller whose call was cut off waits for the node to be there again, to ask for the answer.
pub const REASK_WAIT: Duration = Duration::from_millis(500);
/// Uploads of other nodes to replicas here at one time: each holds a write step of memory.
pub const REMOTE_UPLOADS: usize = 1024;
/// Time after which an upload of another node that does not go on is dropped.
pub const UPLOAD_IDLE: Duration = Duration::from_secs(120);
