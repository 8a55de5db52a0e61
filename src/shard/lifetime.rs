//! Shard numbers: each is assigned once. The data of a removed shard is deleted in the background.

use std::ops::ControlFlow;

use super::keys::{self, Kind, NODE};
use super::list::bounded_scan;
use super::{ShardError, ShardId};
use crate::storage::{Direction, ShardEngine, Storage, StorageError, View, WriteView};

/// The first number that [`allocate`] gives; those below are for fixed local ranges (0 belongs to the node itself).
pub const FIRST_FREE_SHARD: ShardId = ShardId(16);

/// Takes `count` numbers that no shard of this node ever had; durable on return.
pub async fn allocate(storage: &Storage, count: u64) -> Result<Vec<ShardId>, ShardError> {
    allocate_in(storage, ShardEngine::default(), count).await
}

/// As [`allocate`], for shards that another engine keeps.
pub async fn allocate_in(storage: &Storage, engine: ShardEngine, count: u64) -> Result<Vec<ShardId>, ShardError> {
    let first = write(storage, move |view| {
        let key = keys::key(NODE, Kind::NextShard, b"");
        let first = view.get(&key)?.map_or(Ok(FIRST_FREE_SHARD.0), |bytes| number(&bytes))?;
        view.put(key, (first + count).to_be_bytes().to_vec());
        Ok(first)
    })
    .await?;
    Ok((first..first + count).map(|number| ShardId(engine.shard(number))).collect())
}

/// Marks a shard as going, durably, and removes its data in the background, also after a restart. Close its
/// [`ShardReplica`](super::ShardReplica) first.
pub async fn drop_shard(storage: &Storage, shard: ShardId) -> Result<(), ShardError> {
    assert!(shard != NODE, "the node's own records are no shard");
    write(storage, move |view| {
        view.put(keys::number_key(NODE, Kind::Going, shard.0), Vec::new());
        Ok(())
    })
    .await?;
    spawn_removal(storage, shard);
    Ok(())
}

/// Goes on with removals that a stop of the node cut off. Call once after opening the storage.
pub async fn resume_drops(storage: &Storage) -> Result<(), ShardError> {
    let mut rest = Some(keys::all(NODE, Kind::Going));
    while let Some(range) = rest.take() {
        let (shards, next) = storage
            .read(move |view| {
                let mut shards = Vec::new();
                let rest = bounded_scan(view, range, Direction::Forward, |key, _| {
                    shards.push(ShardId(keys::number_of(key)?));
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok((shards, rest))
            })
            .await?;
        shards.into_iter().for_each(|shard| spawn_removal(storage, shard));
        rest = next;
    }
    Ok(())
}

/// Whether a shard's data is being removed.
pub fn is_going(view: &dyn View, shard: ShardId) -> bool {
    matches!(view.get(&keys::number_key(NODE, Kind::Going, shard.0)), Ok(Some(_)))
}

fn spawn_removal(storage: &Storage, shard: ShardId) {
    let storage = storage.clone();
    let env = storage.env().clone();
    env.spawn(async move {
        if let Err(error) = remove(&storage, shard).await {
            tracing::warn!(%error, shard = shard.0, "a dropped shard's data stays until the next start");
        }
    });
}

/// Voids all keys of a shard, then removes its files, then the mark. Edits that come later are refused by the closed
/// replica; those before are void with the rest.
async fn remove(storage: &Storage, shard: ShardId) -> Result<(), ShardError> {
    write(storage, move |view| {
        view.clear_shard(shard.0);
        Ok(())
    })
    .await?;
    storage.blobs().drop_shard(shard.0).await?;
    write(storage, move |view| {
        view.delete(keys::number_key(NODE, Kind::Going, shard.0));
        Ok(())
    })
    .await
}

/// Runs `work` in the committer, whatever shards it writes to.
pub(super) async fn write<T: Send + 'static>(
    storage: &Storage,
    work: impl FnOnce(&mut WriteView<'_>) -> Result<T, StorageError> + Send + 'static,
) -> Result<T, ShardError> {
    storage.committer().submit(move |view| work(view).map(Ok)).await?
}

fn number(bytes: &[u8]) -> Result<u64, StorageError> {
    let bytes = bytes.try_into().map_err(|_| StorageError::Corrupt("the next shard number is not 8 bytes".into()))?;
    Ok(u64::from_be_bytes(bytes))
}
