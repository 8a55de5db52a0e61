//! The two child shards of a replica whose range is being split, filled from it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::coordinator::replica::blob_stream;
use crate::coordinator::replica::range_copy::OwnCopy;
use crate::shard::{Legacy, ShardCopy, ShardError, Sorter};
use crate::storage::Hold;

/// The child shards of a copy, filled up to some moment.
#[derive(Clone)]
pub(in crate::coordinator) struct Halves {
    pub(in crate::coordinator) copies: [OwnCopy; 2],
    pub(in crate::coordinator) sorter: Sorter,
    /// Whether they are in place: only then changes in them are news.
    pub(in crate::coordinator) in_place: Arc<AtomicBool>,
}

impl Halves {
    pub(in crate::coordinator) fn shards(&self) -> [ShardCopy; 2] {
        self.copies.each_ref().map(|copy| copy.shard.clone())
    }

    /// Takes over all that is in the copy when this ends.
    pub(in crate::coordinator) async fn fill(&self, own: &OwnCopy) -> Result<(), ShardError> {
        loop {
            let [first, second] = &self.copies;
            let since = first.shard.inherited().await?.min(second.shard.inherited().await?);
            let legacy = Arc::new(own.shard.legacy(since).await?);
            let _holds = self.stage(own, &legacy).await?;
            for copy in &self.copies {
                copy.shard.inherit(Arc::clone(&legacy), Arc::clone(&self.sorter)).await?;
            }
            if legacy.is_last {
                return Ok(());
            }
        }
    }

    /// Brings the attachments of documents to the child shards that take those over.
    pub(in crate::coordinator) async fn stage(&self, own: &OwnCopy, legacy: &Legacy) -> Result<Vec<Hold>, ShardError> {
        let mut holds = Vec::new();
        for (id, fetched) in &legacy.documents {
            let stored = fetched.found.iter().filter_map(|(_, stored)| stored.as_ref());
            for attachment in stored.flat_map(|stored| &stored.attachments) {
                let number = (self.sorter)(id);
                let child = self.copies.iter().find(|copy| copy.shard.id() == number);
                if let Some(child) = child {
                    holds.extend(blob_stream::carry(&own.shard, &child.shard, attachment).await?);
                }
            }
        }
        Ok(holds)
    }
}
