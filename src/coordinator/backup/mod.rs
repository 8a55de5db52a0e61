//! Backups: a database outside of a node, as one stream (`dump`, `load`) or as a snapshot folder (`snapshot`,
//! `restore`), which may be copied into a bucket of an S3 store and back (`s3`).
//!
//! Both hold the same items (`item.rs`) in the same checksummed frames (`frame.rs`): settings, every leaf revision with
//! its history and attachments, local documents, the purge log. Derived data (views, counters) is built again. No item
//! names a node, a shard or an engine. docs/backup-format.md draws both.

mod dump;
mod earlier;
mod frame;
#[cfg(test)]
mod fuzz_tests;
mod item;
mod list;
mod load;
mod objects;
mod read;
mod restore;
pub mod s3;
mod snapshot;

use std::fmt;
use std::io;

use crate::coordinator::topology::error::DatabaseError;
use crate::shard::ShardError;
use crate::storage::StorageError;

pub use dump::{LeftOut, dump};
pub use list::{latest, latest_of_node, listed};
pub use load::load;
pub use restore::{Restored, restore, restore_node};
pub use snapshot::{Extent, NodeSnapshot, Snapshot, snapshot, snapshot_node};

/// How much went out or came in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Documents, deleted ones included.
    pub documents: u64,
    /// Local documents.
    pub locals: u64,
    /// Entries of the purge log.
    pub purges: u64,
    /// Documents, and parts of other lists, left out because they are damaged.
    pub skipped: u64,
}

/// Why a database could not be written out or brought back.
#[derive(Debug)]
pub enum BackupError {
    /// What is read is not what was written, or not of this kind; says where.
    Damaged(String),
    /// The file, pipe or folder failed.
    Io(String),
    /// The name is taken, or no name for a database.
    Database(DatabaseError),
    /// The node's own data could not be read or written.
    Shard(ShardError),
    /// The replicas here of the database of this name began anew: superseded instances of them is not in them yet.
    Unfilled(String),
    /// This node holds no replica of some range of the database of this name.
    Elsewhere(String),
    /// Too few of the nodes that are to hold the database of this name can be reached to agree on its settings.
    NoMajority(String),
}

impl fmt::Display for BackupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BackupError::Damaged(what) => write!(f, "damaged: {what}"),
            BackupError::Io(what) => f.write_str(what),
            BackupError::Database(DatabaseError::Exists) => f.write_str("there is a database of that name"),
            BackupError::Database(DatabaseError::NotFound) => f.write_str("there is no database of that name"),
            BackupError::Database(error) => write!(f, "{error:?}"),
            BackupError::Shard(error) => error.fmt(f),
            BackupError::Unfilled(name) => write!(f, "the replicas of {name} on this node are being filled"),
            BackupError::Elsewhere(name) => write!(f, "this node holds no replica of some range of {name}"),
            BackupError::NoMajority(name) => write!(f, "too few of the nodes that are to hold {name} can be reached"),
        }
    }
}

impl std::error::Error for BackupError {}

impl From<io::Error> for BackupError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => BackupError::Damaged("it ends too early".to_owned()),
            io::ErrorKind::InvalidData => BackupError::Damaged(error.to_string()),
            _ => BackupError::Io(error.to_string()),
        }
    }
}

impl From<DatabaseError> for BackupError {
    fn from(error: DatabaseError) -> Self {
        BackupError::Database(error)
    }
}

impl From<ShardError> for BackupError {
    fn from(error: ShardError) -> Self {
        BackupError::Shard(error)
    }
}

impl From<StorageError> for BackupError {
    fn from(error: StorageError) -> Self {
        BackupError::Shard(error.into())
    }
}

/// Names what was found in a stream or snapshot that cannot be right.
fn damaged(what: impl fmt::Display) -> BackupError {
    BackupError::Damaged(what.to_string())
}
