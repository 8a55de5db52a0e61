//! The kinds of operations on a replica, with the types of their answers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::coordinator::replica::own_replica::OwnReplica;
use crate::shard::ShardError;

/// An operation on one replica, with the type of its answer.
pub(in crate::coordinator) trait ReplicaCall: Send {
    type Answer: Serialize + DeserializeOwned + Send;
}

/// An operation that a replica answers by itself, the same to its own node and to another one.
pub(in crate::coordinator) trait PlainCall: ReplicaCall {
    /// Carries it out on a replica of this node.
    fn on(self, replica: &OwnReplica) -> impl Future<Output = Result<Self::Answer, ShardError>> + Send;
}
