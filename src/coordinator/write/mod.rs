//! Writes: conflict check and validation on the primary replica of a shard, replication to the others, the quorum.

pub mod attachment;
pub mod edits;
pub(super) mod locals;
pub mod maintenance;
pub(super) mod others;
mod partition_limit;
pub(super) mod primary;
pub(super) mod settings;
pub(super) mod spread;
pub(super) mod validate;
