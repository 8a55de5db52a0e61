//! Anti-entropy: the background work that makes the replicas of a range equal again, and has them let go what is to go
//! by time. `docs/convergence.md` lists every cause of divergence with the file that detects it and the file that
//! repairs it.

use crate::coordinator::replica::operations::database_operations;

pub(super) mod collection_horizon;
pub(super) mod compare;
pub(super) mod discard;
pub(super) mod expiry;
pub mod expiry_outlook;
pub(super) mod pull;
pub(super) mod rebuild;
pub(super) mod recovery;
pub mod replica_table;
pub(super) mod restored;
pub mod retention;
pub(super) mod superseded;
pub(super) mod sync;
pub(super) mod tombstone_collection;

database_operations! {
    /// What this room does with a database.
    trait RepairOperations;
    /// Comparison with the replicas of other nodes, and what is pulled from them.
    pulls: Pulls;
    /// Rebuild of damaged replicas.
    replica_rebuild: ReplicaRebuild;
    /// Collection of tombstones that all replicas have.
    collection: TombstoneCollection;
    /// Deletion of documents that have ended.
    expiry: DocumentExpiry;
    /// Merge of what is left of a superseded instance.
    superseded_merge: SupersededMerge;
}
