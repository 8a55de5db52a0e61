//! [`OwnReplica`]: a replica on this node, with its epochs.

use std::sync::Arc;

use crate::coordinator::replica::epoch::{Epochs, NodeEpochs};
use crate::coordinator::replica::message::{ChangesCall, ReplicaPosition};
use crate::coordinator::replica::sync_points;
use crate::coordinator::topology::seq::SeqEntry;
use crate::shard::{ShardChangesPage, ShardError, ShardReplica};
use crate::storage::StorageError;

/// A replica on this node.
#[derive(Clone, Debug)]
pub(in crate::coordinator) struct OwnReplica {
    pub shard: ShardReplica,
    pub epochs: Arc<Epochs>,
    /// The shard that its positions are counted from: its own, or the one that it was split off.
    pub origin: u64,
}

/// The value of a replica that names its origin.
pub(in crate::coordinator) const ORIGIN: &str = "origin";

impl OwnReplica {
    /// The replica of a shard that was just opened.
    pub async fn of(shard: ShardReplica, node: &NodeEpochs) -> Result<OwnReplica, ShardError> {
        let epochs = Arc::new(Epochs::open(&shard, node).await?);
        let damaged = || StorageError::Corrupt("the origin of a shard is not 8 bytes".to_owned());
        let origin = match shard.meta_get(ORIGIN).await? {
            Some(bytes) => u64::from_be_bytes(bytes.try_into().map_err(|_| damaged())?),
            None => shard.id().0,
        };
        Ok(OwnReplica { shard, epochs, origin })
    }

    /// Where it stands.
    pub fn replica_position(&self) -> ReplicaPosition {
        let position = *self.shard.watch().borrow();
        self.epochs.replica_position(self.origin, position)
    }

    /// The same replica for work that may wait.
    pub fn in_background(&self) -> OwnReplica {
        OwnReplica { shard: self.shard.in_background(), epochs: Arc::clone(&self.epochs), origin: self.origin }
    }

    /// The same replica where nobody else is to be asked, see [`ShardReplica::inline`].
    pub fn inline(&self) -> OwnReplica {
        OwnReplica { shard: self.shard.inline(), epochs: Arc::clone(&self.epochs), origin: self.origin }
    }

    /// The same replica for writes that are counted by the map of that version, see [`ShardReplica::by_map`].
    pub fn by_map(self, version: u64) -> OwnReplica {
        OwnReplica { shard: self.shard.by_map(version), ..self }
    }

    /// Refuses positions of another epoch.
    pub fn check_epoch(&self, epoch: u64) -> Result<(), ShardError> {
        match epoch == self.epochs.current() {
            true => Ok(()),
            false => Err(ShardError::NotExecuted("the replica is in another epoch".to_owned())),
        }
    }

    /// Changes, a page of them; refused in another epoch.
    pub async fn changes(&self, call: ChangesCall) -> Result<ShardChangesPage, ShardError> {
        self.check_epoch(call.epoch)?;
        self.shard.changes(call.since, call.direction, call.limit()).await
    }

    /// The position at which a reader goes on that read the entries, which have all of this replica's range between
    /// them: by its own numbers, or those of a replica that this one was in sync with at some position, else at the
    /// beginning.
    pub async fn resume(&self, entries: &[SeqEntry]) -> Result<u64, ShardError> {
        let replica_position = self.replica_position();
        let mut least: Option<u64> = None;
        for entry in entries {
            let own = self.epochs.resume(entry.epoch, entry.position).filter(|_| entry.shard == replica_position.shard);
            let position = match own {
                Some(position) => position,
                None => sync_points::resume(&self.shard, entry).await?,
            };
            least = Some(least.map_or(position, |least| least.min(position)));
        }
        Ok(least.unwrap_or(0).min(replica_position.position))
    }
}
