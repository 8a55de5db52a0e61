//! Errors of each family of operations, with the facts that an answer needs. No status codes here.

use crate::document::draft::DraftError;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::script::{DesignError, ScriptError};
use crate::shard::ShardError;
use crate::storage::{CommitError, StorageError};

/// Creating, finding, listing or deleting a database failed.
#[derive(Debug)]
pub enum DatabaseError {
    /// A database of this name is there already.
    Exists,
    /// The client gave a name that no database may have.
    IllegalName {
        /// The name as given.
        name: String,
    },
    /// The client, or `[couchdb] default_engine`, names a storage engine that this node does not have.
    IllegalEngine,
    /// The client's placement rule cannot be read: it wants `zone:n`, several separated by commas.
    IllegalPlacement,
    /// `q` or `n` is no positive integer within the limits; names the parameter.
    IllegalNumber {
        /// `q` or `n`.
        parameter: &'static str,
    },
    /// The name is longer than `limits::DATABASE_NAME_MAX` characters.
    NameTooLong {
        /// The name as given.
        name: String,
    },
    /// The placement rule names a zone that has no node.
    NoNodesInZone,
    /// There is no such database.
    NotFound,
    /// The node has yet to meet the cluster that it is configured for: all replicas would be on it.
    Seeding,
    /// The node could not do it: its disk failed, or it is stopping.
    Unavailable(ShardError),
}

/// Reading failed for a reason that is not the client's.
#[derive(Debug)]
pub enum ReadError {
    /// The database was deleted while it was read.
    DatabaseGone,
    /// An attachment's bytes are missing or do not match what the document says: damage on disk.
    DamagedAttachment {
        /// The attachment's name.
        name: String,
    },
    /// Fewer replicas answered than the read was to ask, and `[cluster] strict_reads` is on.
    TooFewReplicas {
        /// How many answered.
        answered: usize,
        /// How many were to be asked.
        wanted: usize,
    },
    /// The node could not read: its disk failed, or it is stopping.
    Unavailable(ShardError),
}

/// A write was refused or failed.
#[derive(Debug)]
pub enum WriteError {
    /// An attachment is larger than the limit.
    AttachmentTooLarge {
        /// The attachment's name.
        name: String,
    },
    /// The given revision is not the current one, or one is missing.
    Conflict,
    /// The database was deleted meanwhile.
    DatabaseGone,
    /// The document is no design document that can be stored.
    Design(DesignError),
    /// The bytes of an upload do not have the digest that came with them.
    DigestMismatch {
        /// The attachment's name.
        name: String,
    },
    /// The document without its attachments is larger than the limit.
    DocumentTooLarge {
        /// The document's id as the document names it; empty where it does not.
        id: String,
    },
    /// The draft cannot be a document here; as found by `document`, or by the partition rule.
    Draft(DraftError),
    /// A validation function forbids it.
    Forbidden {
        /// What it threw.
        reason: Value,
    },
    /// An attachment that was to be deleted is not in the document.
    MissingAttachment,
    /// The revision named by a standalone attachment write is not in the document (409 `not_found`, `missing_rev`).
    MissingRev,
    /// A stub names an attachment that the parent revision does not have.
    MissingStub {
        /// The document's id.
        id: DocId,
        /// The attachment's name.
        name: String,
    },
    /// The document to delete or replica is not there; `deleted`: its winner is a tombstone.
    NotFound {
        /// Whether there was a document once.
        deleted: bool,
    },
    /// The partition has reached `[couchdb] max_partition_size`.
    PartitionOverflow {
        /// The document's id.
        id: DocId,
    },
    /// `new_edits=false` without a revision.
    RevisionRequired,
    /// A validation function failed.
    Script(ScriptError),
    /// A validation function wants another caller.
    Unauthorized {
        /// What it threw.
        reason: Value,
    },
    /// As [`ReadError::TooFewReplicas`], for what a write reads first. Nothing was written.
    TooFewReplicas {
        /// How many answered.
        answered: usize,
        /// How many were to be asked.
        wanted: usize,
    },
    /// An upload waited too long for the document that names it and was removed.
    UploadGone {
        /// The attachment's name.
        name: String,
    },
    /// Nobody can say whether the write took place: the primary of the range did not answer.
    Unknown,
    /// The node could not write: its disk failed, or it is stopping. Nothing was written.
    Unavailable(ShardError),
}

impl WriteError {
    /// Whether the write was lost to the node, to replicas out of reach or with its database, as against refused for
    /// what it is: the same write may succeed another time.
    pub fn is_lost(&self) -> bool {
        match self {
            WriteError::DatabaseGone
            | WriteError::TooFewReplicas { .. }
            | WriteError::Unavailable(_)
            | WriteError::Unknown
            | WriteError::UploadGone { .. }
            | WriteError::Script(ScriptError::Busy | ScriptError::Timeout) => true,
            WriteError::AttachmentTooLarge { .. }
            | WriteError::Conflict
            | WriteError::Design(_)
            | WriteError::DigestMismatch { .. }
            | WriteError::DocumentTooLarge { .. }
            | WriteError::Draft(_)
            | WriteError::Forbidden { .. }
            | WriteError::MissingAttachment
            | WriteError::MissingRev
            | WriteError::MissingStub { .. }
            | WriteError::NotFound { .. }
            | WriteError::PartitionOverflow { .. }
            | WriteError::RevisionRequired
            | WriteError::Script(_)
            | WriteError::Unauthorized { .. } => false,
        }
    }
}

/// A changes feed was refused or broke off.
#[derive(Debug)]
pub enum ChangesError {
    /// The `since` text is no sequence.
    MalformedSince,
    /// The `since` text has the form of a time and is none.
    MalformedTime,
    /// The filter failed; error name and reason are its own.
    Filter {
        /// The error's name.
        error: String,
        /// What to tell the client.
        reason: String,
    },
    /// A filter function failed.
    Script(ScriptError),
    /// See [`ReadError`].
    Read(ReadError),
}

/// A read cannot show what a token names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// No replica that is known to hold it can be read.
    Behind,
    /// It is of another database that had or has this name, as far as this node knows.
    OtherDatabase,
}

/// A database setting or a maintenance request was refused.
#[derive(Debug)]
pub enum SettingError {
    /// `deleted_document_ttl` of `_auto_purge` is no period.
    IllegalPeriod,
    /// `expires_at` of `_auto_purge` is no name that an ordinary member of a document can have.
    IllegalMember,
    /// `_revs_limit` or `_purged_infos_limit` is no positive integer.
    IllegalLimit,
    /// The security object has a wrong shape; the reason names the part.
    IllegalSecurity {
        /// What to tell the client.
        reason: &'static str,
    },
    /// Too few of the nodes that hold replicas can be reached: nothing was changed.
    NoMajority {
        /// How many can.
        answered: usize,
        /// How many there are.
        replicas: usize,
    },
    /// The change is made here, and fewer than a majority of the nodes that hold replicas are known to have it. It
    /// reaches the others when they can be reached, unless a later change comes first or the nodes that have it are
    /// lost.
    Undecided {
        /// How many are known to have it.
        answered: usize,
        /// How many there are.
        replicas: usize,
    },
    /// A purge names more documents than `limits::PURGE_DOCS_MAX`.
    TooManyDocuments,
    /// A purge names more revisions than `limits::PURGE_REVISIONS_MAX`.
    TooManyRevisions,
    /// The database was deleted meanwhile.
    DatabaseGone,
    /// The node could not do it: its disk failed, or it is stopping.
    Unavailable(ShardError),
}

impl From<ShardError> for DatabaseError {
    fn from(error: ShardError) -> Self {
        DatabaseError::Unavailable(error)
    }
}

/// What may fail because documents are elsewhere by now.
pub(in crate::coordinator) trait MayHaveMoved {
    /// Whether it did: nothing was done, and it can be done anew by the map of this moment.
    fn is_moved(&self) -> bool;
}

impl MayHaveMoved for ReadError {
    fn is_moved(&self) -> bool {
        matches!(self, ReadError::Unavailable(ShardError::Moved))
    }
}

impl MayHaveMoved for WriteError {
    fn is_moved(&self) -> bool {
        matches!(self, WriteError::Unavailable(ShardError::Moved))
    }
}

impl From<ShardError> for ReadError {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Dropped => ReadError::DatabaseGone,
            _ => ReadError::Unavailable(error),
        }
    }
}

impl From<ShardError> for WriteError {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Commit(CommitError::Unknown) => WriteError::Unknown,
            ShardError::Dropped => WriteError::DatabaseGone,
            _ => WriteError::Unavailable(error),
        }
    }
}

impl From<ShardError> for SettingError {
    fn from(error: ShardError) -> Self {
        match error {
            ShardError::Dropped => SettingError::DatabaseGone,
            _ => SettingError::Unavailable(error),
        }
    }
}

impl From<DraftError> for WriteError {
    fn from(error: DraftError) -> Self {
        WriteError::Draft(error)
    }
}

impl From<ReadError> for WriteError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::DatabaseGone => WriteError::DatabaseGone,
            ReadError::DamagedAttachment { name } => WriteError::DigestMismatch { name },
            ReadError::TooFewReplicas { answered, wanted } => WriteError::TooFewReplicas { answered, wanted },
            ReadError::Unavailable(error) => WriteError::Unavailable(error),
        }
    }
}

impl From<ReadError> for ChangesError {
    fn from(error: ReadError) -> Self {
        ChangesError::Read(error)
    }
}

impl From<ShardError> for ChangesError {
    fn from(error: ShardError) -> Self {
        ChangesError::Read(error.into())
    }
}

impl From<StorageError> for WriteError {
    fn from(error: StorageError) -> Self {
        WriteError::Unavailable(error.into())
    }
}
