//! Durable storage: an ordered store with atomic durable batches, one group committer per node, and blob files.
//!
//! Layers above see [`Storage`], [`View`], [`WriteView`] and [`Committer`] only; engines are exchangeable behind
//! [`StoreFile`]. All disk work runs as bounded steps on the pools of the [`Env`](crate::world::Env). Promises: what
//! [`Committer::submit`] answered survives any crash; readers see committed states only; one failed commit stops all
//! writes of the node for good, because it is unknown what of it reached the disk.

pub mod blob;
mod blob_read;
mod blob_refs;
mod blob_write;
mod blocks;
mod carry;
mod committer;
mod damage;
mod flush;
#[cfg(test)]
mod fuzz_tests;
mod gap;
mod held;
mod journal;
mod kv;
mod layered;
mod layout;
mod lease;
mod manifest;
pub mod memory;
mod memtable;
mod node_store;
mod open_files;
mod overlay;
pub mod planted;
mod quarantine;
mod redb_file;
pub mod redb_store;
mod reserve;
mod reserved;
mod room;
mod shrink;
#[cfg(feature = "sled")]
mod sled_seal;
#[cfg(feature = "sled")]
pub mod sled_store;
mod snapshot_cache;
mod store_blocks;
mod store_files;
#[cfg(test)]
mod suite_tests;
mod tables;
mod view;

pub use blob::{BlobStore, StageMode, Staged};
pub use blob_read::{BlobReader, ReadAs};
pub use blob_refs::{BlobGone, add_reference, count as blob_count, drop_reference, inline as blob_content};
pub use blob_write::BlobWriter;
pub use committer::{CommitError, Committer};
pub use damage::Damage;
pub use gap::{behind_gap, scan_around};
pub use journal::Lost;
pub use kv::{Batch, Direction, KeyRange, LastingView, Rows, Shrunk, StorageError, Store, StoreFile, View};
pub use layout::ShardEngine;
pub use lease::{BlobKey, Hold};
pub use manifest::MissingFiles;
pub use node_store::{Engine, OpenError, Storage, StorageOptions, sync_names_above};
pub use overlay::WriteView;
