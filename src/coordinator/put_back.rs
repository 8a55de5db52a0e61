//! A copy that is an old one put back: it gives up what all others removed since, and keeps what it acknowledged.
//!
//! It may hold what was removed everywhere, with no record of that left, and nobody takes that from it. Whatever all
//! other copies lack goes, but for what it stored behind the point at which it was put back. All others must be there.
//! Those that miss what was removed, too, are not asked: they were put back themselves, or are being filled. Whether
//! the others are in step otherwise does not matter; they may be waiting for this very copy.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use crate::coordinator::database::Database;
use crate::coordinator::pull::{away, misses};
use crate::coordinator::range_copy::OwnCopy;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::sync_points;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{ShardError, Want};

/// Of a copy that is not asked how many it has.
const ANY_DOCUMENTS: u64 = 1;

/// The position at which a copy last took in another one.
pub(super) async fn synced_at(database: &Database, range: usize, own: &OwnCopy) -> Result<u64, ShardError> {
    let mut synced = 0;
    for node in database.nodes_of(range).into_iter().filter(|node| *node != database.context.node) {
        let point = sync_points::pulled(&own.shard, &node).await?.filter(|point| point.to_shard == own.origin);
        synced = synced.max(point.map_or(0, |point| point.to));
    }
    Ok(synced)
}

/// What was removed, with no record of that left.
#[derive(Debug)]
pub(super) struct Removed {
    /// The node that has it no more.
    pub by: Arc<str>,
    /// The number of the shard of its copy.
    pub shard: u64,
    /// Its last purge without a record.
    pub floor: u64,
}

/// Purges the revisions of a copy of this node that no other copy has, but those of documents that changed behind
/// `since`.
pub(super) async fn purge_what_all_lack(
    (database, range): (&Database, usize),
    own: &OwnCopy,
    removed: &Removed,
    since: u64,
) -> Result<(), ShardError> {
    let others = those_who_know(database, range, removed).await?;
    let name = &database.name;
    tracing::warn!(database = name, range, "a copy put back gives up what the others purged since");
    let mut start = Bound::Unbounded;
    loop {
        let page = own.shard.digests(start, Bound::Unbounded, limits::PAGE_ROWS).await?;
        let Some(last) = page.last() else { return Ok(()) };
        start = Bound::Excluded(last.id.clone());
        let old = page.into_iter().filter(|found| found.local_seq <= since);
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
            own.shard.purge(lacked).await?;
        }
    }
}

/// The other copies of a range that do not miss what was removed.
async fn those_who_know(database: &Database, range: usize, removed: &Removed) -> Result<Vec<RemoteCopy>, ShardError> {
    let context = &database.context;
    let mut others = Vec::new();
    for node in database.nodes_of(range) {
        if node == context.node || context.is_gone(&node) {
            continue;
        }
        if context.rank(&node).is_none() {
            return Err(away("a copy put back waits for all others, to see what was removed since"));
        }
        let copy = RemoteCopy::new(&database.target, range, &node).in_background();
        let knows = node == removed.by
            || !misses(copy.taken_in(&removed.by).await?, (removed.shard, removed.floor), ANY_DOCUMENTS);
        match knows {
            true => others.push(copy),
            false => tracing::info!(database = database.name, range, %node, "another copy was put back, too"),
        }
    }
    Ok(others)
}
