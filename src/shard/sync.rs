//! State of a replica towards the other replicas of its range: the values that a comparison begins with.

use super::purge;
use super::record::Header;
use super::{ShardError, ShardId, ShardReplica, Summary};
use crate::document::render::Attachment;
use crate::storage::{StorageError, View, blob_count};

/// How a replica stands, as one view shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncState {
    /// The last sequence.
    pub position: u64,
    /// Of all documents.
    pub total: Summary,
    /// The number of the last purge.
    pub purge_seq: u64,
    /// Purges up to this number are no longer on record.
    pub purge_floor: u64,
    /// How often anything was collected here; 0: never.
    pub rounds: u64,
    /// Documents of which a collection marker is kept.
    pub markers: u64,
}

impl ShardReplica {
    /// See [`SyncState`]. Reads two records.
    pub async fn state(&self) -> Result<SyncState, ShardError> {
        self.read(state).await
    }

    /// Whether a revision here names the bytes of an attachment: they are here then.
    pub async fn holds_blob(&self, attachment: &Attachment) -> Result<bool, ShardError> {
        let blob = attachment.blob;
        self.read(move |view, shard| Ok(blob_count(view, &(shard.0, blob))? > 0)).await
    }
}

pub(super) fn state(view: &dyn View, shard: ShardId) -> Result<SyncState, StorageError> {
    let Header { update_seq: position, purge_seq, total, rounds, markers, .. } = Header::read(view, shard)?;
    let purge_floor = purge::floor(view, shard, purge_seq)?;
    Ok(SyncState { position, total, purge_seq, purge_floor, rounds, markers })
}
