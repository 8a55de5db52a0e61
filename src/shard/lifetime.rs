//! Shard numbers: given out once, and their data removed in the background when a shard goes.

use super::{ShardError, ShardId};
use crate::storage::Storage;

/// The first number that [`allocate`] gives; those below are for fixed local ranges (0 belongs to the node itself).
pub const FIRST_FREE_SHARD: ShardId = ShardId(16);

/// Takes `count` numbers that no shard of this node ever had.
pub async fn allocate(_storage: &Storage, _count: u64) -> Result<Vec<ShardId>, ShardError> {
    todo!()
}

/// Marks a shard as going, durably, and removes its data in the background. Close its [`ShardCopy`](super::ShardCopy)
/// first: [`ShardCopy::close`](super::ShardCopy::close).
pub async fn drop_shard(_storage: &Storage, _shard: ShardId) -> Result<(), ShardError> {
    todo!()
}

/// Goes on with removals that a stop of the node cut off. Call once after opening the storage.
pub async fn resume_drops(_storage: &Storage) -> Result<(), ShardError> {
    todo!()
}
