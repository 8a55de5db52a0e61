//! The node: the start of its databases, the calls of other nodes, checks and background work.

pub(super) mod autoupdate;
pub mod check;
pub mod global_changes;
pub(super) mod index_cleanup;
pub(super) mod lost;
pub(super) mod room;
pub(super) mod serve;
pub mod start;
pub mod status;
