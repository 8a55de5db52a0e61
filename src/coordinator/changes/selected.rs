//! Feeds by a declared selector: rows come from its index as far as that is built (`index/selected.rs`); behind that
//! position all changes are read. Both are filtered.

use futures_util::future::join_all;

use super::range_cursor::RangeCursor;
use super::{Changes, ChangesFilter};
use crate::coordinator::read::view::DatabaseView;
use crate::coordinator::replica::message::ChangesCall;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::index::SelectedPage;
use crate::storage::Direction;
use crate::world::buggify::{Mutation, mutated, sometimes};

impl Changes {
    /// The index of what the filter takes. It is read upwards only.
    fn index(&self) -> Option<&DatabaseView> {
        match &self.query.filter {
            ChangesFilter::Rows(filter) if self.is_filtered() => filter.index(),
            _ => None,
        }
    }

    /// What the index knows of the next rows of a range cursor; `None`: nothing.
    pub(super) async fn selected(&self, range_cursor: &RangeCursor, call: ChangesCall) -> Option<SelectedPage> {
        let index = self.index()?;
        let read = async {
            if let RangeReplica::Own(replica) = &range_cursor.replica {
                replica.check_epoch(call.epoch)?;
            }
            index.on(range_cursor.range, range_cursor.replica.clone()).selected(call).await
        };
        // What keeps the index from being read shows when all changes are read instead, if it matters.
        let read = read.await.inspect_err(|error| tracing::debug!(%error, "the index of a selector is not read"));
        let page = read.ok().flatten()?;
        sometimes("changes: a feed read the index of its selector");
        let reached =
            if mutated(Mutation::SelectorIndexTrusted) { page.reached.max(range_cursor.until) } else { page.reached };
        Some(SelectedPage { reached, ..page })
    }

    /// How many changes are left behind what was read.
    pub async fn pending(&self) -> u64 {
        let pending = |range_cursor: &RangeCursor| range_cursor.rows.len() as u64 + range_cursor.after;
        if self.index().is_none() {
            return self.range_cursors.iter().map(pending).sum();
        }
        // Rows of an index do not tell how many changes lie between them.
        let counted = self.range_cursors.iter().map(|range_cursor| async move {
            let (since, epoch) = (range_cursor.position, range_cursor.replica_position.epoch);
            let none = ChangesCall { since, direction: Direction::Forward, limit: 0, epoch };
            range_cursor.replica.changes(none).await.map_or(pending(range_cursor), |page| page.pending_after)
        });
        join_all(counted).await.into_iter().sum()
    }
}
