//! The handle of one database: its ranges and what is known about it as a whole.

use bytes::Bytes;

use crate::coordinator::error::{ReadError, SettingError};
use crate::coordinator::shard_map::ShardMap;
use crate::document::id::DocId;

/// A database that is open. Cheap to share; stays usable until the database is deleted.
pub struct Database {
    /// Its name.
    pub name: String,
    /// How it is cut into ranges.
    pub map: ShardMap,
}

/// Bytes that a database takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Live data on disk.
    pub active: u64,
    /// Documents as the client gave them.
    pub external: u64,
    /// Everything on disk.
    pub file: u64,
}

/// What `GET /{db}` tells, summed over the ranges.
#[derive(Clone, Debug)]
pub struct DatabaseInfo {
    /// Live documents, design documents included.
    pub doc_count: u64,
    /// Tombstones.
    pub doc_del_count: u64,
    /// How far it has been written.
    pub update_seq: String,
    /// How far it has been purged.
    pub purge_seq: String,
    /// Bytes taken.
    pub sizes: Sizes,
    /// Whether a compaction is going on.
    pub compact_running: bool,
    /// Whether it is partitioned.
    pub partitioned: bool,
    /// Ranges, copies, and the default numbers of replies to writes and reads.
    pub cluster: ClusterInfo,
}

/// The `cluster` object of `GET /{db}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Ranges.
    pub q: u32,
    /// Copies of each.
    pub n: u32,
    /// Copies that a write waits for.
    pub w: u32,
    /// Copies that a read asks.
    pub r: u32,
}

/// What `GET /{db}/_partition/{p}` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Live documents.
    pub doc_count: u64,
    /// Tombstones.
    pub doc_del_count: u64,
    /// Live data on disk, in bytes.
    pub active: u64,
    /// Documents as the client gave them, in bytes.
    pub external: u64,
}

impl Database {
    /// See [`DatabaseInfo`].
    pub async fn info(&self) -> Result<DatabaseInfo, ReadError> {
        todo!()
    }

    /// See [`PartitionInfo`]; zeros for a partition without documents.
    pub async fn partition_info(&self, partition: &str) -> Result<PartitionInfo, ReadError> {
        let _ = partition;
        todo!()
    }

    /// The index of the range of a document.
    pub fn range_of(&self, id: &DocId) -> usize {
        self.map.index_of(id)
    }

    /// The security object as JSON text; `{}` when never set.
    pub fn security(&self) -> Bytes {
        todo!()
    }

    /// Sets the security object after checking its shape: an object whose `admins` and `members`, where present, are
    /// objects whose `names` and `roles`, where present, are arrays of strings.
    pub async fn set_security(&self, object: &crate::document::json::Object) -> Result<(), SettingError> {
        let _ = object;
        todo!()
    }

    /// How many generations of a history are kept.
    pub fn revs_limit(&self) -> u64 {
        todo!()
    }

    /// Sets [`Database::revs_limit`]; 0 is refused.
    pub async fn set_revs_limit(&self, limit: u64) -> Result<(), SettingError> {
        let _ = limit;
        todo!()
    }

    /// How many purge records are kept.
    pub fn purged_infos_limit(&self) -> u64 {
        todo!()
    }

    /// Sets [`Database::purged_infos_limit`]; 0 is refused.
    pub async fn set_purged_infos_limit(&self, limit: u64) -> Result<(), SettingError> {
        let _ = limit;
        todo!()
    }

    /// The ranges with the names of the nodes that hold them, for `_shards`.
    pub fn shards(&self) -> Vec<(String, Vec<String>)> {
        todo!()
    }

    /// The range of one document with the names of its nodes, for `_shards/{docid}`.
    pub fn shard_of(&self, id: &DocId) -> (String, Vec<String>) {
        let _ = id;
        todo!()
    }
}
