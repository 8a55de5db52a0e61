//! Limits of splits and moves of replicas.

use std::time::Duration;

/// Documents that a split copies in one commit: edits wait for no more.
pub const SPLIT_PAGE_DOCS: usize = 100;
/// Changes that may be left for the commit that ends a split; the node's edits wait for it.
pub const SPLIT_LAST_DOCS: usize = 100;
/// Time that a request waits for the new map of a database whose replicas moved.
pub const MAP_WAIT: Duration = Duration::from_secs(10);
/// Times that something is done anew because replicas moved meanwhile, or a name went over to another database.
pub const MAP_ATTEMPTS: usize = 8;
/// Time for which the old replica of a split range stays at least: lists under way read it.
pub const SPLIT_GRACE: Duration = Duration::from_secs(30);
/// Time after which it goes even though somebody still reads it.
pub const SPLIT_GRACE_MAX: Duration = Duration::from_secs(600);
/// Time between two looks at whether it is read.
pub const SPLIT_LOOK: Duration = Duration::from_secs(1);
/// Pause before the documents of a database that lost its name are written again, where they could not be; it doubles
/// each time. A majority of replicas may be there in a moment.
pub const SUPERSEDED_PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
pub const SUPERSEDED_PAUSE_MAX: Duration = Duration::from_secs(16);
/// Pause before it is looked again whether a damaged replica can be rebuilt, or one that is being filled goes on.
pub const REBUILD_PAUSE: Duration = Duration::from_secs(2);
/// Pause between two looks for tombstones that are old enough to be collected; shorter where they are so sooner.
pub const COLLECTION_PAUSE: Duration = Duration::from_secs(600);
/// Time between the last replica's word that it has written down what is to be collected, and that this is done: longer
/// than any call takes. Shorter where tombstones are collected sooner.
pub const COLLECTION_SETTLE: Duration = Duration::from_secs(120);
/// Tombstones that replicas agree on together.
pub const COLLECTION_ROUND: usize = 2000;
/// Bytes of their ids.
pub const COLLECTION_ROUND_BYTES: usize = 256 << 10;
/// Tombstones of these that are collected in one commit: edits wait for it.
pub const COLLECTION_STEP: usize = 200;
/// Databases whose tombstones wait together until what was sent before has come in.
pub const COLLECTION_DATABASES: usize = 4096;
/// Digits of the number of units for which a database keeps tombstones.
pub const PERIOD_DIGITS: usize = 100;
/// Changes of a range in which a node looks for what the next round would collect when a client asks for it.
pub const COLLECTION_LOOKED_AT: usize = 20_000;
/// The least age of tombstones that are collected: a lower one counts as this.
pub const TOMBSTONE_AGE_MIN: Duration = Duration::from_secs(1);
/// Ranges of bodies that a replica remembers as applied before it had met all others.
pub const APPLIED_EARLY_RANGES: usize = 500;
/// Ranges of a database that a node asks about their replicas or tombstones at a time.
pub const RANGES_AT_ONCE: usize = 16;
/// Rounds of one range at a look.
pub const COLLECTION_ROUNDS: usize = 8;
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
/// Replicas that a plan has on their way at one time: each reads and writes a whole range.
pub const MOVES_AT_ONCE: usize = 4;
/// Longest pause before a plan is made again of which nothing could be begun.
pub const REBALANCE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// Pause before a move that waits is looked at again, and between two looks at a plan of which nothing ends.
pub const MOVE_PAUSE: Duration = Duration::from_millis(500);
/// Least time between two looks at all databases for those of which replicas move.
pub const MOVES_LOOK: Duration = Duration::from_millis(10);
/// Times that a node is asked whether it knows of a move, before that waits.
pub const CONFIRM_ATTEMPTS: u32 = 6;
/// Pause after the first of them; it doubles.
pub const CONFIRM_PAUSE: Duration = Duration::from_millis(5);
