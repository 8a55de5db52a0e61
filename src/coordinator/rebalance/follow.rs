//! Following a new map: this node's replicas change to what the map says.
//!
//! The map of a database changes by majority only (`consensus`), one version after the other. Each node changes its own
//! replicas when it hears of a map: ranges are divided (`split`), replicas that the node is to hold begin empty and are
//! filled by a sync, replicas that it no longer holds are removed. When the call returns, the node follows the map.

use std::sync::Arc;

use crate::coordinator::anti_entropy::RepairOperations;
use crate::coordinator::rebalance::{OwnReplicas, RebalanceOperations as _};
use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::record::{self, MapRecord, Placed};
use crate::shard::{self, ShardError};
use crate::storage::ShardEngine;
use crate::world::BoxFuture;

impl OwnReplicas<'_> {
    /// Goes over to a map, unless this node knows a later one.
    pub(in crate::coordinator) async fn follow_map(self, places: MapRecord) -> Result<(), ShardError> {
        let _alone = self.following.lock().await;
        let own = self.map_record();
        if places.version <= own.version {
            return Ok(());
        }
        self.known.check(&places).map_err(|why| ShardError::NotExecuted(format!("no map of {}: {why}", self.name)))?;
        for at in own.splits.len()..places.splits.len() {
            let step = upto(&places, at, own.version, self.map().numbers() + 2);
            let range = places.splits[at] as usize;
            match self.layout().placed.shard(range) {
                Some(shard) => self.divide_anyway((range, shard), step, &places).await?,
                None => {
                    self.write_record(move |record, _| {
                        record.shards.extend([0, 0]);
                        record.set_places(step);
                        Ok(())
                    })
                    .await?;
                }
            }
        }
        self.take_places(places).await
    }

    /// Divides this node's replica of a range; where it is not whole the halves are rebuilt from those of the others,
    /// who have divided theirs: by the range they give it nothing any more.
    async fn divide_anyway(
        self,
        (range, shard): (usize, u64),
        step: MapRecord,
        places: &MapRecord,
    ) -> Result<(), ShardError> {
        if self.context.status.rebuilds.is_filling(shard) {
            return self.replica_rebuild().divide_unfilled(range, step, places).await;
        }
        let error = match self.divide(range, &step).await {
            Err(error) if error.is_damage_here() => error,
            done => return done,
        };
        let damaged = self.context.storage.damaged_shards();
        let children = self.children(range).await?;
        let has_damaged_child =
            children.is_some_and(|children| children.shards.iter().any(|child| damaged.contains_key(child)));
        let is_replaced = self.replica_rebuild().is_unsound(range);
        if is_replaced || has_damaged_child {
            // Others are filled when this is tried again.
            self.discard_children(range).await?;
        }
        if is_replaced { self.replica_rebuild().divide_unfilled(range, step, places).await } else { Err(error) }
    }

    /// Goes over to a map of the same ranges: replicas that this node is to hold get a shard, others lose theirs.
    async fn take_places(self, places: MapRecord) -> Result<(), ShardError> {
        let engine = self.known.engine.as_deref().and_then(ShardEngine::by_name).unwrap_or_default();
        let node = Arc::clone(&self.context.node);
        // Numbers that are not needed are never used; there are enough.
        let wanted = places.by_range.as_ref().map_or(0, Vec::len) as u64;
        let mut fresh = match wanted {
            0 => Vec::new(),
            _ => shard::allocate_in(&self.context.storage, engine, wanted).await?,
        }
        .into_iter();
        let before = self.layout();
        let lost = self
            .write_record(move |record, view| {
                let mut lost = Vec::new();
                // Whatever was asked for meanwhile: no map takes the place of a later one.
                if places.version <= record.version {
                    return Ok(lost);
                }
                record.set_places(places);
                for range in 0..record.shards.len() {
                    let is_split = record.is_split(range);
                    match (record.holds(range, &node), record.shards[range]) {
                        (true, 0) => record.shards[range] = fresh.next().map_or(0, |shard| shard.0),
                        (false, shard) if shard != 0 && !is_split => {
                            view.put(record::drop_key(shard), Vec::new());
                            record.shards[range] = 0;
                            lost.push(range);
                        }
                        _ => {}
                    }
                }
                Ok(lost)
            })
            .await?;
        self.context.moving.send_modify(|changes| *changes += 1);
        if !lost.is_empty() {
            lost.into_iter().filter_map(|range| before.cell(range).get()).for_each(|replica| replica.shard.leave());
            self.context.drop_shards().await;
        }
        Ok(())
    }
}

/// The map of `places` after its split `at`, with `numbers` ranges: a version is taken only with all of it.
fn upto(places: &MapRecord, at: usize, version: u64, numbers: usize) -> MapRecord {
    let mut step = places.clone();
    step.splits.truncate(at + 1);
    step.version = version;
    if let Some(by_range) = &mut step.by_range {
        by_range.truncate(numbers);
    }
    step.moves.retain(|moved| (moved.range as usize) < numbers);
    step
}

/// [`OwnReplicas::follow_map`] as the context of the node has it.
pub(in crate::coordinator) fn follow_map(
    database: Arc<Database>,
    places: MapRecord,
) -> BoxFuture<'static, Result<(), ShardError>> {
    Box::pin(async move { database.own_replicas().follow_map(places).await })
}

/// Which shards of ranges that were split are still there: a stop of the node kept them from going.
pub(in crate::coordinator) fn left_over(placed: &Placed) -> Vec<usize> {
    let there = |range: &usize| placed.shard(*range).is_some();
    placed.splits.iter().map(|split| *split as usize).filter(there).collect()
}
