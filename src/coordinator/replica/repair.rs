//! Read repair: applies revisions that another replica has and this one lacks, except those that were purged here.

use std::collections::BTreeSet;

use crate::coordinator::replica::blob_stream::merge_here;
use crate::coordinator::replica::calls::{PurgeInfos, Status};
use crate::coordinator::replica::message::SyncPoint;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Basis, Edit, EditError, EditOp, PurgeInfo, ShardError, ShardReplica, Want};
use crate::world::buggify::sometimes;

/// What is known of where revisions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coordinator) enum Origin {
    /// A replica that may be restored from an old backup: a replica that has collected anything takes nothing from it.
    Anywhere,
    /// A replica that had collected what this one had when this one had collected something so many times, and has
    /// taken in so many of its purges.
    Replica { rounds: u64, heard: u64 },
    /// No replica of the range: they are news, whatever was collected.
    Anew,
}

/// Merges revisions of another replica into one that may lack them; answers how many it holds then. Uploads come from
/// `source`. What a replica has of purges that it has heard of was written again since.
pub(in crate::coordinator) async fn merge_missing(
    replica: &RangeReplica,
    edits: Vec<Edit>,
    source: &RemoteReplica,
    origin: Origin,
) -> Result<usize, ShardError> {
    match replica {
        RangeReplica::Own(own) => all(merge_unpurged(&own.shard, edits, source, (origin, &BTreeSet::new())).await?),
        RangeReplica::Remote(remote) => {
            let stored = remote.merge_stored(&edits, source.node(), origin == Origin::Anew).await?;
            // The other node tells no reason.
            let is_whole = stored.iter().all(|stored| *stored);
            is_whole.then_some(stored.len()).ok_or_else(|| not_applied(""))
        }
    }
}

/// As [`merge_missing`], for a replica that nobody reads yet: its purges are those of others, who did not hear of them
/// from here. What `source` had on record as purged, up to number `until`, before it was asked for the edits was
/// written again since; what it has purged later was not.
pub(in crate::coordinator) async fn merge_written_again(
    replica: &ShardReplica,
    edits: Vec<Edit>,
    source: &RemoteReplica,
    (origin, until): (Origin, u64),
) -> Result<usize, ShardError> {
    let ids = edits.iter().map(|edit| &edit.id).collect();
    let again =
        named_by(|since| source.ask(PurgeInfos { since, limit: limits::STEP_ROWS as u64 }), (0, until), &ids).await?;
    all(merge_unpurged(replica, edits, source, (origin, &again)).await?)
}

/// Merges an edit that the primary's replica, `source`, stored, and of which the revision is on record as purged here.
/// Answers whether it is stored then. The edit may be late, and the purge of it may have overtaken it: it is stored
/// only if `source` holds the revision still and had heard of the purge before, so that it was written again since.
/// Otherwise the two replicas bring each other in sync (`pull`).
pub(in crate::coordinator) async fn merge_purged(
    own: &OwnReplica,
    edit: &Edit,
    source: &RemoteReplica,
) -> Result<bool, ShardError> {
    let EditOp::Merge { path } = &edit.op else { return Ok(false) };
    let (rev, ids) = (path.head(), BTreeSet::from([&edit.id]));
    // Before the document: a purge that comes there after that look is not behind these.
    let theirs = source.ask(Status).await?;
    let found = source.fetch(vec![(edit.id.clone(), Want::Tree)]).await?;
    let holds = found.into_iter().flatten().any(|found| found.tree.get(&rev).flatten().is_some());
    if !holds {
        sometimes("write: an edit came after the purge of its revision");
        return Ok(false);
    }
    let records = |since| source.ask(PurgeInfos { since, limit: limits::STEP_ROWS as u64 });
    let mut again = named_by(records, (0, theirs.purge_seq), &ids).await?;
    // Its own record of that may be gone.
    let now = own.replica_position();
    let is_of_now = |point: &SyncPoint| (point.from_shard, point.from_epoch) == (now.shard, now.epoch);
    let heard = theirs.taken.filter(is_of_now).map_or(0, |point| point.purges);
    again.append(&mut named_by(|since| own.shard.purge_infos(since, limits::STEP_ROWS), (0, heard), &ids).await?);
    let stored = merge_unpurged(&own.shard, vec![edit.clone()], source, (Origin::Anew, &again)).await?;
    Ok(stored == [Ok(())])
}

/// How many there are, if all were stored; else why the first one was not.
fn all(stored: Vec<Result<(), EditError>>) -> Result<usize, ShardError> {
    match stored.iter().find_map(|stored| stored.as_ref().err()) {
        None => Ok(stored.len()),
        Some(why) => Err(not_applied(&format!(": {why}"))),
    }
}

fn not_applied(why: &str) -> ShardError {
    ShardError::NotExecuted(format!("a revision was not applied{why}"))
}

/// Merges what the replica has not purged, also not while this goes on; answers of each whether it was stored.
async fn merge_unpurged(
    replica: &ShardReplica,
    mut edits: Vec<Edit>,
    source: &RemoteReplica,
    (origin, again): (Origin, &BTreeSet<(DocId, Revision)>),
) -> Result<Vec<Result<(), EditError>>, ShardError> {
    let mut stored = Vec::new();
    let is_early = origin != Origin::Anew && replica.is_early();
    let heard = if let Origin::Replica { heard, .. } = origin { heard } else { 0 };
    for _ in 0..limits::VALIDATION_ATTEMPTS {
        // First, so that a purge after the look makes the merge too late.
        let (seen, forgot) = replica.purged_and_collected().await?;
        let rounds = match origin {
            Origin::Anywhere => 0,
            Origin::Replica { rounds, .. } => rounds,
            Origin::Anew => forgot,
        };
        if rounds != forgot {
            return Err(ShardError::NotExecuted("what the replica has collected may be among it".to_owned()));
        }
        let left = without_purged(replica, edits, (heard, again)).await?;
        if left.is_empty() {
            return Ok(stored);
        }
        let merged = merge_here(replica, &left, source, &Basis::Purges { seen, rounds, is_early }).await?;
        edits = Vec::new();
        for (edit, outcome) in left.into_iter().zip(merged) {
            match outcome {
                Err(EditError::BasisChanged) => edits.push(edit),
                outcome => stored.push(outcome.map(drop)),
            }
        }
        if edits.is_empty() {
            return Ok(stored);
        }
    }
    Err(ShardError::NotExecuted("the replica is being purged".to_owned()))
}

/// Leaves out revisions that the replica has purged: they must not come back from a replica that has yet to purge them.
async fn without_purged(
    replica: &ShardReplica,
    edits: Vec<Edit>,
    (heard, again): (u64, &BTreeSet<(DocId, Revision)>),
) -> Result<Vec<Edit>, ShardError> {
    let purged = purged_here(replica, heard, edits.iter().map(|edit| &edit.id)).await?;
    let stays = |edit: &Edit| match &edit.op {
        EditOp::Merge { path } => {
            let named = (edit.id.clone(), path.head());
            again.contains(&named) || !purged.contains(&named)
        }
        EditOp::Interactive { .. } => true,
    };
    Ok(edits.into_iter().filter(stays).collect())
}

/// The revisions of some documents that the replica's record of purges names behind its first `since`.
pub(in crate::coordinator) async fn purged_here<'a>(
    replica: &ShardReplica,
    since: u64,
    ids: impl Iterator<Item = &'a DocId>,
) -> Result<BTreeSet<(DocId, Revision)>, ShardError> {
    let records = |since| replica.purge_infos(since, limits::STEP_ROWS);
    named_by(records, (since, u64::MAX), &ids.collect()).await
}

/// The revisions of some documents that a record of purges, read page by page, names behind number `since`, up to
/// `until`.
async fn named_by<F: Future<Output = Result<Vec<PurgeInfo>, ShardError>>>(
    records: impl Fn(u64) -> F,
    (mut since, until): (u64, u64),
    ids: &BTreeSet<&DocId>,
) -> Result<BTreeSet<(DocId, Revision)>, ShardError> {
    let mut named = BTreeSet::new();
    while since < until {
        let page = records(since).await?;
        let Some(last) = page.last() else { break };
        since = last.purge_seq;
        for info in page.into_iter().filter(|info| info.purge_seq <= until && ids.contains(&info.id)) {
            named.extend(info.gone().map(|rev| (info.id.clone(), rev.clone())));
        }
    }
    Ok(named)
}
