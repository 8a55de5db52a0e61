//! Calls by which replicas compare themselves and note how far each has applied another (`docs/convergence.md`).

use serde::{Deserialize, Serialize};

use super::call::PlainCall;
use crate::coordinator::replica::message::{AppliedState, IdRange, SyncPoint};
use crate::coordinator::replica::own_replica::OwnReplica;
use crate::coordinator::replica::sync_points;
use crate::coordinator::replica::token::HeldWrites;
use crate::shard::ShardError;

/// What the replica says of itself to the node that asks.
#[derive(Debug)]
pub(in crate::coordinator) struct Status;

/// Begins a compaction; the answer comes when it has begun.
#[derive(Debug)]
pub(in crate::coordinator) struct Compact;

/// Ranges of ids, each cut into parts, with the digests of the parts.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Split(pub Vec<IdRange>);

/// Digests of the documents of a range, so many at most.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Digests(pub IdRange, pub u64);

/// Notes how far the replica of the asking node has applied this one.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SetSyncPoint(pub SyncPoint);

impl PlainCall for SetSyncPoint {
    async fn on(self, replica: &OwnReplica) -> Result<(), ShardError> {
        sync_points::note(&replica.shard, self.0).await
    }
}

/// The epochs of the replica and the positions after which they began.
#[derive(Debug)]
pub(in crate::coordinator) struct Epochs;

impl PlainCall for Epochs {
    async fn on(self, replica: &OwnReplica) -> Result<Vec<(u64, u64)>, ShardError> {
        Ok(replica.epochs.list())
    }
}

/// How far the replica has applied that of a node.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct AppliedOf(pub String);

impl PlainCall for AppliedOf {
    async fn on(self, replica: &OwnReplica) -> Result<AppliedState, ShardError> {
        sync_points::applied_of(&replica.shard, &self.0).await
    }
}

/// The number up to which the purges of the replica are those of the one that told these epochs, where it knows.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct PurgesShared(pub Vec<(u64, u64)>);

impl PlainCall for PurgesShared {
    async fn on(self, replica: &OwnReplica) -> Result<Option<u64>, ShardError> {
        Ok(replica.epochs.purges_shared(&self.0))
    }
}

/// Whether the replica holds all these writes.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Holds(pub Vec<HeldWrites>);

/// Whether the node of the replica waits for the answer to a call of its own with that number.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Awaits(pub u64);
