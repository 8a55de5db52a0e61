//! Replicas that move: to other nodes, into halves of a range, to an even load; and compaction.

use crate::coordinator::replica::operations::database_operations;

pub(super) mod compaction;
pub(super) mod follow;
pub mod moves;
pub mod plan;
pub mod reshard;
pub(super) mod split;
pub(super) mod window;

database_operations! {
    /// What this room does with a database.
    trait RebalanceOperations;
    /// Changes of this node's replicas to what a map says: splits, new and removed replicas.
    own_replicas: OwnReplicas;
    /// Compaction of replicas and views.
    compaction: Compaction;
}
