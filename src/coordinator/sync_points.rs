//! How far copies have taken in each other, kept with the copies.
//!
//! A copy A that has read all of a copy B up to q, and stands at p then, tells both: A goes on at q the next time, and
//! whoever has read A up to p (or further) has seen all that B has up to q, so that it may go on there when A is gone.

use crate::coordinator::message::{SyncPoint, TakenIn, decode, encode};
use crate::coordinator::seq::SeqEntry;
use crate::limits;
use crate::shard::{ShardCopy, ShardError};
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated};

fn pulled_name(node: &str) -> String {
    format!("pulled {node}")
}

fn known_name(shard: u64) -> String {
    format!("taken in by {shard}")
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, StorageError> {
    decode(bytes).map_err(|why| StorageError::Corrupt(format!("sync point: {why}")))
}

/// How far this copy has taken in that of `node`.
pub(super) async fn pulled(copy: &ShardCopy, node: &str) -> Result<Option<SyncPoint>, ShardError> {
    Ok(copy.meta_get(&pulled_name(node)).await?.map(|bytes| read(&bytes)).transpose()?)
}

/// Notes how far this copy has taken in that of `node`.
pub(super) async fn set_pulled(copy: &ShardCopy, node: &str, point: SyncPoint) -> Result<(), ShardError> {
    copy.meta_put(&pulled_name(node), Some(encode(&point).to_vec())).await
}

fn purges_name(node: &str) -> String {
    format!("purges taken in by {node}")
}

fn epochs_name(node: &str) -> String {
    format!("epochs of {node}")
}

/// The epochs of the copy of `node`, as it told them when it was read last.
pub(super) async fn epochs_of(copy: &ShardCopy, node: &str) -> Result<Vec<(u64, u64)>, ShardError> {
    Ok(copy.meta_get(&epochs_name(node)).await?.map(|bytes| read(&bytes)).transpose()?.unwrap_or_default())
}

/// Notes the epochs of the copy of `node`.
pub(super) async fn set_epochs(copy: &ShardCopy, node: &str, epochs: &[(u64, u64)]) -> Result<(), ShardError> {
    copy.meta_put(&epochs_name(node), Some(encode(&epochs).to_vec())).await
}

/// What this copy knows of that of `node`, for that one.
pub(super) async fn taken_in(copy: &ShardCopy, node: &str) -> Result<TakenIn, ShardError> {
    Ok(TakenIn { point: pulled(copy, node).await?, epochs: epochs_of(copy, node).await? })
}

/// How many of this copy's purges that of `node` had taken in at a position up to which this copy has read it.
pub(super) async fn purges_taken(copy: &ShardCopy, node: &str) -> Result<u64, ShardError> {
    Ok(copy.meta_get(&purges_name(node)).await?.map(|bytes| read(&bytes)).transpose()?.unwrap_or_default())
}

/// Notes how many of this copy's purges that of `node` had taken in.
pub(super) async fn set_purges_taken(copy: &ShardCopy, node: &str, purges: u64) -> Result<(), ShardError> {
    match purges_taken(copy, node).await? == purges {
        true => Ok(()),
        false => copy.meta_put(&purges_name(node), Some(encode(&purges).to_vec())).await,
    }
}

/// Notes that another copy has taken in this one.
pub(super) async fn note(copy: &ShardCopy, point: SyncPoint) -> Result<(), ShardError> {
    // All copies of a range have the number of the shard in common, and may tell at the same moment.
    copy.meta_change(&known_name(point.to_shard), move |stored| with_point(stored, point)).await
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

/// The position here at which a reader of another copy goes on; 0 when nothing is known of that one.
pub(super) async fn resume(copy: &ShardCopy, entry: &SeqEntry) -> Result<u64, ShardError> {
    let Some(bytes) = copy.meta_get(&known_name(entry.shard)).await? else { return Ok(0) };
    let points = if mutated(Mutation::NodeLossRewinds) { Vec::new() } else { read::<Vec<SyncPoint>>(&bytes)? };
    let before = points.iter().filter(|point| point.to_epoch == entry.epoch && point.to <= entry.position);
    Ok(before.map(|point| point.from).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
