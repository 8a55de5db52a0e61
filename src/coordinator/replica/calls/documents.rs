//! Calls that read documents of a replica.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::call::PlainCall;
use crate::coordinator::replica::own_replica::OwnReplica;
use crate::document::id::DocId;
use crate::shard::{ListPage, ShardError, Summary, Want};
use crate::storage::Direction;

/// All documents; refused where they are larger than a message together. Nodes from version 6 on ask by [`FetchSome`].
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Fetch(pub Vec<(DocId, Want)>);

/// As many of the first documents as have `bytes` bytes; where none has so few, the bytes that the first one needs.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct FetchSome {
    pub wants: Vec<(DocId, Want)>,
    pub bytes: u64,
}

/// A page of documents in the order of their ids.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct List(pub ListPage);

/// Counts and digest of the documents between two bounds.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct SummaryOf(pub Bound<DocId>, pub Bound<DocId>);

impl PlainCall for SummaryOf {
    async fn on(self, replica: &OwnReplica) -> Result<Summary, ShardError> {
        replica.shard.summary(self.0, self.1).await
    }
}

/// The document at a place between two bounds, counted in a direction.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Select {
    pub start: Bound<DocId>,
    pub end: Bound<DocId>,
    pub direction: Direction,
    pub place: u64,
}

impl PlainCall for Select {
    async fn on(self, replica: &OwnReplica) -> Result<Option<DocId>, ShardError> {
        replica.shard.select(self.start, self.end, self.direction, self.place).await
    }
}
