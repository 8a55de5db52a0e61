//! Writes: conflict check and validation on the primary replica of a shard, replication to the others, the quorum.

use crate::coordinator::replica::operations::database_operations;

pub mod attachment;
pub mod edits;
pub(super) mod locals;
pub mod maintenance;
pub(super) mod others;
mod partition_limit;
pub(super) mod primary;
pub mod settings;
pub(super) mod spread;
pub(super) mod validate;

database_operations! {
    /// What this room does with a database.
    trait WriteOperations;
    /// Edits of documents: sent to the primary of their range, replicated, counted.
    writer: Writer;
    /// Attachments: staged on the replicas, and written with a document.
    attachments: Attachments;
    /// The decision about edits on this node's replica, as the primary.
    primary: Primary;
    /// Local documents (`_local/`).
    locals: Locals;
    /// Purges, missing revisions, flushes.
    maintenance: Maintenance;
    /// Settings that can change: the security object, the limits, and what goes by time.
    settings: DatabaseSettings;
}
