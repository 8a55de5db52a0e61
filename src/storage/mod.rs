//! Bytes that survive: an ordered store with atomic durable batches, one group committer per node, and blob files.
//!
//! Layers above see [`Store`], [`View`] and [`Committer`] only; engines are exchangeable.
