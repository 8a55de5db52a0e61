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

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::coordinator::anti_entropy::pull::away;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::message::Soundness;
use crate::coordinator::replica::range_copy::OwnCopy;
use crate::coordinator::replica::remote::RemoteCopy;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{ShardError, Want};

/// What was removed, with no record of that left.
#[derive(Debug)]
pub(in crate::coordinator) struct Removed {
    /// The node that has it no more, or had when it was there.
    pub by: Arc<str>,
    /// The number of the shard of its copy.
    pub shard: u64,
    /// Its last purge without a record.
    pub floor: u64,
}

/// Purges the revisions of a copy of this node that no other copy has any more.
pub(in crate::coordinator) async fn purge_what_all_lack(
    database: &Database,
    range: usize,
    own: &OwnCopy,
    removed: &Removed,
) -> Result<(), ShardError> {
    let others = those_who_know(database, range, removed).await?;
    // Asked before what they have: what they apply meanwhile is kept.
    let until = read_by(&others, own, &database.context.node).await?;
    let name = &database.name;
    tracing::warn!(database = name, range, until, "a restored replica discards what the others purged since");
    let mut start = Bound::Unbounded;
    loop {
        let page = own.shard.digests(start, Bound::Unbounded, limits::PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(()) };
        start = Bound::Excluded(last.id.clone());
        let old = page.into_iter().filter(|found| found.local_seq <= until);
        let mut lacked: BTreeMap<DocId, Vec<Revision>> =
            old.map(|found| (found.id, found.leaves.into_iter().map(|(rev, _)| rev).collect())).collect();
        for other in &others {
            let wants: Vec<(DocId, Want)> = lacked.keys().map(|id| (id.clone(), Want::Tree)).collect();
            for (revs, fetched) in lacked.values_mut().zip(other.fetch(wants).await?) {
                let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
                revs.retain(|rev| tree.get(rev).is_none());
            }
        }
        let lacked: Vec<(DocId, Vec<Revision>)> = lacked.into_iter().filter(|(_, revs)| !revs.is_empty()).collect();
        if !lacked.is_empty() {
            own.shard.discard(lacked).await?;
        }
    }
}

/// The position of a copy of this node up to which some of the others have read it. Never beyond where it was opened: a
/// machine restored while it was running gives out positions again, and no other node need have noticed that yet.
pub(in crate::coordinator) async fn read_by(
    others: &[RemoteCopy],
    own: &OwnCopy,
    node: &str,
) -> Result<u64, ShardError> {
    let mut until = 0;
    for other in others {
        let taken = other.taken_in(node).await?;
        if let Some(point) = taken.point.filter(|point| point.from_shard == own.origin) {
            until = until.max(own.epochs.read_up_to(&taken.epochs, point.from_epoch, point.from));
        }
    }
    Ok(until.min(own.epochs.opened_at()))
}

/// The other copies of a range that do not miss what was removed, and can be read.
async fn those_who_know(database: &Database, range: usize, removed: &Removed) -> Result<Vec<RemoteCopy>, ShardError> {
    let context = &database.context;
    let (mut others, mut damaged) = (Vec::new(), Vec::new());
    for node in database.nodes_of(range) {
        if node == context.node || context.is_gone(&node) {
            continue;
        }
        if context.rank(&node).is_none() {
            return Err(away("a restored replica waits for all others, to see what was removed since"));
        }
        let copy = RemoteCopy::new(&database.target, range, &node).in_background();
        let soundness = copy.status().await?.soundness;
        if soundness == Some(Soundness::Unusable) {
            continue;
        }
        let knows = node == removed.by || copy.taken_in(&removed.by).await?.has_heard(removed.shard, removed.floor);
        match knows {
            true if soundness == Some(Soundness::Damaged) => damaged.push(copy),
            true => others.push(copy),
            false => tracing::info!(database = database.name, range, %node, "another replica was restored, too"),
        }
    }
    // It waits until this copy is in sync, and is asked only where there is no other.
    if others.is_empty() {
        others = damaged;
    }
    match others.is_empty() {
        true => Err(away("a restored replica waits for one that knows what was removed since")),
        false => Ok(others),
    }
}
