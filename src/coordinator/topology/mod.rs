//! Where the shards of a database live, and how many replies decide: values and decisions that wait for nothing.
//!
//! Shard maps and placement, the catalogue's records and names, update sequences, quorums ([`quorum`] alone counts
//! them), errors, and the trait through which other nodes are called ([`peers`]).

pub(super) mod ballot;
pub(super) mod budget;
pub mod caller;
pub mod error;
pub mod events;
pub(super) mod joint;
pub mod names;
pub mod peers;
pub mod period;
pub(super) mod placement;
pub mod quorum;
pub(super) mod record;
pub(super) mod rows;
pub mod seq;
pub mod shard_map;
pub(super) mod span;
mod split_map;
pub(super) mod superseded;
