//! Calls about purges of a replica.

use serde::{Deserialize, Serialize};

use super::call::PlainCall;
use crate::coordinator::replica::own_replica::OwnReplica;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::shard::ShardError;

/// Purges revisions; the answer tells for each document which were there.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct Purge(pub Vec<(DocId, Vec<Revision>)>);

impl PlainCall for Purge {
    async fn on(self, replica: &OwnReplica) -> Result<Vec<Vec<Revision>>, ShardError> {
        replica.shard.purge(self.0).await
    }
}

/// A page of the record of purges.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::coordinator) struct PurgeInfos {
    pub since: u64,
    pub limit: u64,
}
