//! Recovery of a replica that was restored from an old backup: it discards what every other replica has removed since,
//! and keeps what it alone has acknowledged.
//!
//! Such a replica may hold revisions that were removed everywhere, of which no record is left; no other replica takes
//! them from it. That every other replica lacks a revision is not enough to discard it: they also lack what this
//! replica alone acknowledged. The proof is how far one of them has read this replica: a revision behind that position
//! was there once. So what all others lack is discarded up to that position and no further. A replica keeps the record
//! of a purge until it has read each other replica up to where that one had heard of the purge (`Pull::confirm`); one
//! without the record has therefore read all that a replica of an earlier time holds.
//!
//! All other replicas must be in reach. Replicas that miss the same removals are not asked: they were restored from a
//! backup themselves, or are being filled. Replicas that cannot be read as a whole are not asked either; they are
//! rebuilt once this one is in sync. Whether the others are in sync otherwise does not matter; they may wait for this
//! very replica.
//!
//! What is discarded is recorded for this replica only, because the others lack it, or have it again since it was
//! written again meanwhile.

use std::sync::Arc;

use crate::coordinator::anti_entropy::discard::{Revisions, Stale, Testimony, discard_stale, witnesses};
use crate::coordinator::replica::calls::AppliedOf;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::shard::{DocumentDigest, ShardError};

/// What was removed, with no record of that left.
#[derive(Debug)]
pub(in crate::coordinator) struct Removed {
    /// The node that has it no more, or had when it was there.
    pub by: Arc<str>,
    /// The number of the shard of its replica.
    pub shard: u64,
    /// Its last purge without a record.
    pub floor: u64,
}

/// Purges the revisions of a replica of this node that no other replica has any more.
pub(in crate::coordinator) async fn purge_what_all_lack(
    database: &Arc<Database>,
    range: usize,
    own: &OwnReplica,
    removed: &Removed,
) -> Result<(), ShardError> {
    let others = those_who_know(database, range, removed).await?;
    // Asked before what they have: what they apply meanwhile is kept.
    let until = read_by(&others, own, &database.context.node).await?;
    let name = &database.name;
    tracing::warn!(database = name, range, until, "a restored replica discards what the others purged since");
    discard_stale(own, &others, &Purged { own, until }).await
}

/// Purges without a record: documents that changed last at a position up to `until` are old.
struct Purged<'a> {
    own: &'a OwnReplica,
    until: u64,
}

impl Stale for Purged<'_> {
    async fn candidates(&self, page: Vec<DocumentDigest>) -> Result<Vec<Revisions>, ShardError> {
        let old = page.into_iter().filter(|found| found.local_seq <= self.until);
        Ok(old.map(|found| (found.id, found.leaves.into_iter().map(|(rev, _)| rev).collect())).collect())
    }

    async fn discard(&self, lacked: Vec<Revisions>) -> Result<(), ShardError> {
        self.own.shard.discard(lacked).await
    }
}

/// The position of a replica of this node up to which some of the others have read it. Never beyond where it was
/// opened: a machine restored while it was running gives out positions again, and no other node need have noticed that
/// yet.
pub(in crate::coordinator) async fn read_by(
    others: &[RemoteReplica],
    own: &OwnReplica,
    node: &str,
) -> Result<u64, ShardError> {
    let mut until = 0;
    for other in others {
        let taken = other.ask(AppliedOf(node.to_owned())).await?;
        if let Some(point) = taken.point.filter(|point| point.from_shard == own.origin) {
            until = until.max(own.epochs.read_up_to(&taken.epochs, point.from_epoch, point.from));
        }
    }
    Ok(until.min(own.epochs.opened_at()))
}

/// The other replicas of a range that do not miss what was removed, and can be read.
async fn those_who_know(
    database: &Arc<Database>,
    range: usize,
    removed: &Removed,
) -> Result<Vec<RemoteReplica>, ShardError> {
    let nodes = database.replicas().nodes_of(range).into_iter().filter(|node| *node != database.context.node);
    let waits = "a restored replica waits for all others, to see what was removed since";
    let none = "a restored replica waits for one that knows what was removed since";
    witnesses((database, range), nodes, (waits, none), |replica| async move {
        let knows = **replica.node() == *removed.by
            || replica.ask(AppliedOf(removed.by.to_string())).await?.has_heard(removed.shard, removed.floor);
        if !knows {
            let node = replica.node();
            tracing::info!(database = database.name, range, %node, "another replica was restored, too");
            return Ok(Testimony::Missed);
        }
        Ok(Testimony::Knows(replica))
    })
    .await
}
