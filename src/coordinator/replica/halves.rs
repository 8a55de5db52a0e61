//! The two child shards of a replica whose range is being split, filled from it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::coordinator::replica::blob_stream;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::shard::{Legacy, ShardError, ShardReplica, Sorter};
use crate::storage::Hold;
use crate::world::task::Task;

/// The child shards of a replica, filled up to some moment.
#[derive(Clone)]
pub(in crate::coordinator) struct Halves {
    pub(in crate::coordinator) replicas: [OwnReplica; 2],
    pub(in crate::coordinator) sorter: Sorter,
    /// Whether they are in place: only then changes in them are news.
    pub(in crate::coordinator) in_place: Arc<AtomicBool>,
}

impl Halves {
    pub(in crate::coordinator) fn shards(&self) -> [ShardReplica; 2] {
        self.replicas.each_ref().map(|replica| replica.shard.clone())
    }

    /// Takes over all that is in the replica when this ends; tells the task how many of its changes that are so far.
    pub(in crate::coordinator) async fn fill(&self, own: &OwnReplica, task: Option<&Task>) -> Result<(), ShardError> {
        loop {
            let [first, second] = &self.replicas;
            let since = first.shard.inherited().await?.min(second.shard.inherited().await?);
            task.iter().for_each(|task| task.done_of(since.0, own.replica_position().position));
            let legacy = Arc::new(own.shard.legacy(since).await?);
            let _holds = self.stage(own, &legacy).await?;
            for replica in &self.replicas {
                replica.shard.inherit(Arc::clone(&legacy), Arc::clone(&self.sorter)).await?;
            }
            if legacy.is_last {
                let all = own.replica_position().position;
                task.iter().for_each(|task| task.done_of(all, all));
                return Ok(());
            }
        }
    }

    /// Brings the attachments of documents to the child shards that take those over.
    pub(in crate::coordinator) async fn stage(
        &self,
        own: &OwnReplica,
        legacy: &Legacy,
    ) -> Result<Vec<Hold>, ShardError> {
        let mut holds = Vec::new();
        for (id, fetched) in &legacy.documents {
            let stored = fetched.found.iter().filter_map(|(_, stored)| stored.as_ref());
            for attachment in stored.flat_map(|stored| &stored.attachments) {
                let number = (self.sorter)(id);
                let child = self.replicas.iter().find(|replica| replica.shard.id() == number);
                if let Some(child) = child {
                    holds.extend(blob_stream::carry(&own.shard, &child.shard, attachment).await?);
                }
            }
        }
        Ok(holds)
    }
}
