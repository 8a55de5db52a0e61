//! Removal of indexes that no design document names any more (`_view_cleanup`).

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use super::{Indexes, Signature, build, keys};
use crate::observe::metrics::Counter;
use crate::shard::{ShardError, ShardReplica};
use crate::storage::{Direction, KeyRange, StorageError, View};
use crate::world::Pool;

impl Indexes {
    /// Removes all indexes of a replica but those of `keep`. A build of one of them waits, or is waited for.
    pub async fn clean_up(&self, replica: &ShardReplica, keep: &BTreeSet<Signature>) -> Result<(), ShardError> {
        let mut from = keys::all_views(replica.id());
        loop {
            let start = from.clone();
            let read = move |view: &dyn View, shard| {
                next_view(view, KeyRange { start, end: KeyRange::prefix(&keys::all_views(shard)).end })
            };
            let Some(signature) = replica.read_records(Pool::Background, read).await? else { return Ok(()) };
            if !keep.contains(&signature) {
                let slot = self.slot(replica.id(), signature);
                let _alone = slot.writer.lock().await;
                slot.forget();
                self.open.forget((replica.id(), signature));
                build::remove(replica, signature).await?;
                slot.forget();
                self.open.forget((replica.id(), signature));
                self.env.metrics().count(Counter::IndexesRemoved);
            }
            // Invariant: a view's keys begin with the shard number, which is never all ones.
            from = KeyRange::prefix(&keys::whole_view(replica.id(), signature)).end.expect("keys behind a view's");
        }
    }
}

/// The first view with records in the range.
fn next_view(view: &dyn View, range: KeyRange) -> Result<Option<Signature>, StorageError> {
    let mut found = None;
    view.scan(&range, Direction::Forward, &mut |key, _| {
        found = Some(keys::signature_of(key));
        ControlFlow::Break(())
    })?;
    match found {
        Some(None) => Err(StorageError::Corrupt("a view's key is cut short".into())),
        Some(signature) => Ok(signature),
        None => Ok(None),
    }
}
