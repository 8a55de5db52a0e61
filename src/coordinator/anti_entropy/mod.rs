//! What brings replicas back together: comparison, pulls of what one lacks, rebuilds, collection of tombstones.

pub(super) mod collection_horizon;
pub(super) mod compare;
pub(super) mod pull;
pub(super) mod rebuild;
pub(super) mod recovery;
pub(super) mod restored;
pub(super) mod superseded;
pub(super) mod sync;
pub(super) mod tombstone_collection;
