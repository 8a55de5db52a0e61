//! Calls about local documents of a replica.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::call::PlainCall;
use crate::coordinator::replica::own_replica::OwnReplica;
use crate::document::id::DocId;
use crate::shard::{LocalDocument, LocalRegister, ShardError, Stamp};
use crate::storage::Direction;

/// The register of one local document.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Local(pub DocId);

impl PlainCall for Local {
    async fn on(self, replica: &OwnReplica) -> Result<Option<LocalRegister>, ShardError> {
        replica.shard.local_register(&self.0).await
    }
}

/// A page of local documents; with `bytes` no more once they have so many, and none mean the end.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct LocalList {
    pub start: Bound<DocId>,
    pub end: Bound<DocId>,
    pub direction: Direction,
    pub limit: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// Writes a local document, or deletes it, under a new stamp of the coordinator `by`.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct LocalSet {
    pub id: DocId,
    pub document: Option<LocalDocument>,
    pub by: u64,
}

/// Registers of another replica; the answer tells the stamp that counts here for each.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct LocalMerge(pub Vec<(DocId, LocalRegister)>);

impl PlainCall for LocalMerge {
    async fn on(self, replica: &OwnReplica) -> Result<Vec<Stamp>, ShardError> {
        replica.shard.local_merge(self.0).await
    }
}

/// A page of registers, deleted ones included.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct LocalRegisters {
    pub after: Bound<DocId>,
    pub limit: u64,
}
