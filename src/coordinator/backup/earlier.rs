//! Choice of the snapshot that a new one adds a layer to: the newest one of its database in the folder, if everything
//! that was read for it still holds.
//!
//! It holds if each range is still on the replica that was read, that replica still has the history up to the position
//! of then (`epoch.rs`), and its purges since then are all on record. Otherwise a whole snapshot is taken; also when
//! the added layers have become a good part of the whole, or an object is missing. A position does not show that a
//! machine was restored from a backup while its node was running; the digest shows it at a restore.

use std::path::Path;
use std::sync::Arc;

use crate::coordinator::backup::BackupError;
use crate::coordinator::backup::list::{self, Layer, Manifest};
use crate::coordinator::backup::objects::Objects;
use crate::coordinator::backup::restore::Source;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::topology::seq::Seq;
use crate::coordinator::topology::shard_map::ShardMap;
use crate::limits;
use crate::shard::ShardError;
use crate::world::Pool;

/// See the module head.
#[derive(Default)]
pub(super) struct Earlier {
    /// Its layers; none where there is no such snapshot.
    pub layers: Vec<Layer>,
    /// The sequence and the purge up to which each range is in them, in ring order.
    pub reached: Vec<(u64, u64)>,
}

/// Looks for it. `replicas` are those of the ranges of `map`.
pub(super) async fn find(
    objects: &mut Objects,
    (database, folder): (&Arc<Database>, &Path),
    (map, replicas): (&ShardMap, &[OwnReplica]),
) -> Result<Earlier, BackupError> {
    let Some(manifest) = newest(objects, database, folder).await else { return Ok(Earlier::default()) };
    let Some(reached) = reached(&manifest, map, replicas).await? else { return Ok(Earlier::default()) };
    if is_worn(&manifest.layers) {
        return Ok(Earlier::default());
    }
    let kept = objects.kept;
    for object in manifest.layers.iter().flat_map(|layer| &layer.objects) {
        if !objects.has(&object.name, object.bytes).await? {
            tracing::warn!(name = database.name, object = object.name, "an object of a snapshot is missing");
            objects.kept = kept;
            return Ok(Earlier::default());
        }
    }
    Ok(Earlier { layers: manifest.layers, reached })
}

/// The newest list. One that cannot be read is as good as none.
async fn newest(objects: &Objects, database: &Arc<Database>, folder: &Path) -> Option<Manifest> {
    let (disk, within, name) = (objects.env.disk(), folder.to_path_buf(), database.name.clone());
    let look = move || list::latest(disk.as_ref(), &within, &name);
    let read = async {
        match objects.env.blocking(Pool::Background, look).await? {
            Some(path) => Source::new(&objects.env, folder).list(&path).await.map(Some),
            None => Ok(None),
        }
    };
    read.await.unwrap_or_else(|error: BackupError| {
        let name = &database.name;
        tracing::warn!(%error, name, "the last snapshot cannot be read: the next one is a whole one");
        None
    })
}

/// Whether a restore would read too much of what was added.
fn is_worn(layers: &[Layer]) -> bool {
    let Some((first, added)) = layers.split_first() else { return true };
    let added_bytes: u64 = added.iter().map(Layer::bytes).sum();
    layers.len() >= limits::SNAPSHOT_LAYERS || added_bytes * limits::SNAPSHOT_DELTA_SHARE > first.bytes()
}

async fn reached(
    manifest: &Manifest,
    map: &ShardMap,
    replicas: &[OwnReplica],
) -> Result<Option<Vec<(u64, u64)>>, ShardError> {
    let Ok(Seq(entries)) = Seq::parse(&manifest.seq) else { return Ok(None) };
    let ends = map.live().iter().map(|index| map.range(*index).end);
    if !ends.eq(entries.iter().map(|entry| entry.end)) || manifest.purged.len() != replicas.len() {
        return Ok(None);
    }
    let mut reached = Vec::with_capacity(replicas.len());
    for ((entry, purged), replica) in entries.iter().zip(&manifest.purged).zip(replicas) {
        let state = replica.shard.state().await?;
        // Of a range that was empty nothing can be wrong.
        if entry.position == 0 {
            reached.push((0, state.purge_seq));
            continue;
        }
        let is_there = entry.shard == replica.replica_position().shard
            && replica.epochs.resume(entry.epoch, entry.position) == Some(entry.position)
            && entry.position <= state.position;
        if !is_there || !(state.purge_floor..=state.purge_seq).contains(purged) {
            return Ok(None);
        }
        reached.push((entry.position, *purged));
    }
    Ok(Some(reached))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::backup::list::Object;

    #[test]
    fn what_was_added_may_come_to_a_third_of_the_whole() {
        let layer = |bytes| Layer { objects: vec![Object { name: String::new(), bytes }], gone: Vec::new() };
        assert!(is_worn(&[]));
        assert!(!is_worn(&[layer(0)]) && !is_worn(&[layer(900), layer(200), layer(100)]));
        assert!(is_worn(&[layer(900), layer(200), layer(101)]));
        let many: Vec<Layer> = (0..limits::SNAPSHOT_LAYERS).map(|n| layer(if n == 0 { 1 << 40 } else { 1 })).collect();
        assert!(is_worn(&many) && !is_worn(&many[1..][..1]));
    }
}
