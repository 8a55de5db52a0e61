//! Replicas that move: to other nodes, into halves of a range, to an even load; and compaction.

pub(super) mod compaction;
pub mod moves;
pub mod plan;
pub mod reshard;
pub(super) mod split;
