//! Calls about the sequence of a replica.

use serde::{Deserialize, Serialize};

use super::call::PlainCall;
use crate::coordinator::replica::message::{ChangesCall, ReplicaPosition};
use crate::coordinator::replica::own_replica::OwnReplica;
use crate::coordinator::topology::seq::SeqEntry;
use crate::shard::{ShardChangesPage, ShardError, ShardInfo, Times};

/// A page of changes; refused in another epoch.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Changes(pub ChangesCall);

impl PlainCall for Changes {
    async fn on(self, replica: &OwnReplica) -> Result<ShardChangesPage, ShardError> {
        replica.changes(self.0).await
    }
}

/// Numbers of the replica, and its position.
#[derive(Debug)]
pub(in crate::coordinator) struct Info;

impl PlainCall for Info {
    async fn on(self, replica: &OwnReplica) -> Result<(ShardInfo, ReplicaPosition), ShardError> {
        let info = replica.shard.info().await?;
        Ok((info, ReplicaPosition { position: info.update_seq, ..replica.replica_position() }))
    }
}

/// The position once it is beyond the one given, or after a while.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Wait {
    pub beyond: u64,
}

/// The position at which a reader of another replica goes on here.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Resume(pub Vec<SeqEntry>);

impl PlainCall for Resume {
    async fn on(self, replica: &OwnReplica) -> Result<u64, ShardError> {
        replica.resume(&self.0).await
    }
}

/// At which sequence the replica stood at which time.
#[derive(Debug)]
pub(in crate::coordinator) struct TimesOf;

impl PlainCall for TimesOf {
    async fn on(self, replica: &OwnReplica) -> Result<Times, ShardError> {
        replica.shard.times().await
    }
}

/// Has the replica forget that.
#[derive(Debug)]
pub(in crate::coordinator) struct ClearTimes;

impl PlainCall for ClearTimes {
    async fn on(self, replica: &OwnReplica) -> Result<(), ShardError> {
        replica.shard.clear_times().await
    }
}

/// The counter of design documents of the replica, different after each start of its node.
#[derive(Debug)]
pub(in crate::coordinator) struct DesignVersion;
