//! Sync points: how far two replicas have applied each other, stored with the replica.
//!
//! A replica A that has read all of a replica B up to position q, and stands at position p then, records both. A
//! continues at q the next time. A reader that has read A up to p or further has seen all that B has up to q, so that
//! it may continue there when A is gone.

use crate::coordinator::replica::message::{AppliedState, HeardPurges, SyncPoint, decode, encode};
use crate::coordinator::topology::seq::SeqEntry;
use crate::limits;
use crate::shard::{ShardError, ShardReplica};
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated};

/// The value that keeps the purges of other replicas that a replica has heard of.
const HEARD: &str = "purges heard of";

fn pulled_name(node: &str) -> String {
    format!("pulled {node}")
}

fn known_name(shard: u64) -> String {
    format!("taken in by {shard}")
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    decode(bytes).map_err(|why| StorageError::Corrupt(format!("sync point: {why}")))
}

/// How far this replica has applied that of `node`.
pub(in crate::coordinator) async fn pulled(
    replica: &ShardReplica,
    node: &str,
) -> Result<Option<SyncPoint>, ShardError> {
    Ok(replica.meta_get(&pulled_name(node)).await?.map(|bytes| read(&bytes)).transpose()?)
}

fn purges_name(node: &str) -> String {
    format!("purges taken in by {node}")
}

fn epochs_name(node: &str) -> String {
    format!("epochs of {node}")
}

/// The epochs of the replica of `node`, as it told them when its purges were applied last.
pub(in crate::coordinator) async fn epochs_of(
    replica: &ShardReplica,
    node: &str,
) -> Result<Vec<(u64, u64)>, ShardError> {
    Ok(replica.meta_get(&epochs_name(node)).await?.map(|bytes| read(&bytes)).transpose()?.unwrap_or_default())
}

/// Notes how far this replica has applied that of `node`, and its epochs, if there are new ones: no position and no
/// purge is noted of an epoch that is not.
pub(in crate::coordinator) async fn set_pulled(
    replica: &ShardReplica,
    node: &str,
    point: SyncPoint,
    epochs: Option<&[(u64, u64)]>,
) -> Result<(), ShardError> {
    let epochs = epochs.map(|epochs| (epochs_name(node), Some(encode(&epochs).to_vec())));
    let point = (pulled_name(node), Some(encode(&point).to_vec()));
    replica.meta_put_all([point].into_iter().chain(epochs).collect()).await
}

/// What this replica knows of that of `node`, for that one or another one.
pub(in crate::coordinator) async fn applied_of(replica: &ShardReplica, node: &str) -> Result<AppliedState, ShardError> {
    let (point, epochs) = (pulled(replica, node).await?, epochs_of(replica, node).await?);
    Ok(AppliedState { point, epochs, ..AppliedState::of(&heard(replica).await?, node) })
}

/// The purges of other replicas that this one has heard of.
pub(in crate::coordinator) async fn heard(replica: &ShardReplica) -> Result<Vec<HeardPurges>, ShardError> {
    Ok(replica.meta_get(HEARD).await?.map(|bytes| read(&bytes)).transpose()?.unwrap_or_default())
}

/// Notes purges of other replicas that this one has heard of: it holds nothing any more that they removed.
pub(in crate::coordinator) async fn note_heard(
    replica: &ShardReplica,
    news: Vec<HeardPurges>,
) -> Result<(), ShardError> {
    let known = heard(replica).await?;
    if with_heard(known.clone(), &news) == known {
        return Ok(());
    }
    // Other replicas are read at the same moment.
    replica
        .meta_change(HEARD, move |stored| {
            let known: Vec<HeardPurges> = stored.map(read).transpose()?.unwrap_or_default();
            Ok(encode(&with_heard(known, &news)).to_vec())
        })
        .await
}

/// Those heard of, with others; those of the replicas that were heard of last stay where they are too many.
fn with_heard(mut known: Vec<HeardPurges>, news: &[HeardPurges]) -> Vec<HeardPurges> {
    for new in news.iter().filter(|new| new.purges > 0) {
        match known.iter_mut().find(|heard| (&heard.node, heard.shard) == (&new.node, new.shard)) {
            Some(heard) => {
                heard.purges = heard.purges.max(new.purges);
                heard.floor = heard.floor.max(new.floor);
            }
            None => known.push(new.clone()),
        }
    }
    known.drain(..known.len().saturating_sub(limits::HEARD_KEPT));
    known
}

/// How many of this replica's purges that of `node` had applied at a position up to which this replica has read it.
pub(in crate::coordinator) async fn purges_taken(replica: &ShardReplica, node: &str) -> Result<u64, ShardError> {
    Ok(replica.meta_get(&purges_name(node)).await?.map(|bytes| read(&bytes)).transpose()?.unwrap_or_default())
}

/// Notes how many of this replica's purges that of `node` had applied.
pub(in crate::coordinator) async fn set_purges_taken(
    replica: &ShardReplica,
    node: &str,
    purges: u64,
) -> Result<(), ShardError> {
    match purges_taken(replica, node).await? == purges {
        true => Ok(()),
        false => replica.meta_put(&purges_name(node), Some(encode(&purges).to_vec())).await,
    }
}

/// Notes that another replica has applied this one.
pub(in crate::coordinator) async fn note(replica: &ShardReplica, point: SyncPoint) -> Result<(), ShardError> {
    // All replicas of a range have the number of the shard in common, and may tell at the same moment.
    replica.meta_change(&known_name(point.to_shard), move |stored| with_point(stored, point)).await
}

/// The stored points with one more.
fn with_point(stored: Option<&[u8]>, point: SyncPoint) -> Result<Vec<u8>, StorageError> {
    let mut points: Vec<SyncPoint> = stored.map(read).transpose()?.unwrap_or_default();
    if points.last() != Some(&point) {
        points.push(point);
        thin(&mut points);
    }
    Ok(encode(&points).to_vec())
}

/// Keeps the newest points, and of older ones fewer the older they are.
fn thin(points: &mut Vec<SyncPoint>) {
    if points.len() > limits::SYNC_POINTS_KEPT {
        // Every second one of the older half goes.
        let half = points.len() / 2;
        let mut at = 0;
        points.retain(|_| {
            at += 1;
            at > half || at % 2 == 1
        });
    }
}

/// The position here at which a reader of another replica goes on; 0 when nothing is known of that one.
pub(in crate::coordinator) async fn resume(replica: &ShardReplica, entry: &SeqEntry) -> Result<u64, ShardError> {
    let Some(bytes) = replica.meta_get(&known_name(entry.shard)).await? else { return Ok(0) };
    let points = if mutated(Mutation::NodeLossRewinds) { Vec::new() } else { read::<Vec<SyncPoint>>(&bytes)? };
    let before = points.iter().filter(|point| point.to_epoch == entry.epoch && point.to <= entry.position);
    Ok(before.map(|point| point.from).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_heard_of_never_grow_less_and_those_of_replicas_that_are_gone_stay() {
        let heard = |shard, purges, floor| HeardPurges { node: "n1@h".to_owned(), shard, purges, floor };
        let known = with_heard(vec![heard(7, 9, 4)], &[heard(7, 5, 5), heard(8, 3, 0), heard(9, 0, 0)]);
        assert_eq!(known, [heard(7, 9, 5), heard(8, 3, 0)]);
        let many: Vec<HeardPurges> = (10..1000).map(|shard| heard(shard, 1, 0)).collect();
        let kept = with_heard(known, &many);
        assert_eq!((kept.len(), kept.last()), (limits::HEARD_KEPT, Some(&heard(999, 1, 0))));
    }

    #[test]
    fn old_points_grow_rare_and_the_newest_stays() {
        let mut points = Vec::new();
        for to in 1..=1000 {
            points.push(SyncPoint { to, ..SyncPoint::default() });
            thin(&mut points);
            assert!(points.len() <= limits::SYNC_POINTS_KEPT);
            assert_eq!(points.last().map(|point| point.to), Some(to));
        }
        assert_eq!(points[0].to, 1);
    }
}
