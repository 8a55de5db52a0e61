//! Anti-entropy: the background work that makes the replicas of a range equal again. `docs/convergence.md` lists every
//! cause of divergence with the file that detects it and the file that repairs it.

pub(super) mod collection_horizon;
pub(super) mod compare;
pub(super) mod discard;
pub(super) mod pull;
pub(super) mod rebuild;
pub(super) mod recovery;
pub(super) mod restored;
pub(super) mod superseded;
pub(super) mod sync;
pub(super) mod tombstone_collection;
