//! Agreement on members and shard maps: each version of a map is decided once, by a majority of the members.

pub(super) mod agreement;
pub(super) mod ballots;
pub(super) mod forks;
pub(super) mod gossip;
pub(super) mod voters;
