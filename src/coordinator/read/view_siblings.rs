//! Views of one design document as a unit: where one fails, all fail, as in CouchDB, which builds one index of them. A
//! failure is a map function that throws a fatal error, or a value that `_stats` refuses (`conformance/cases/views`). A
//! function that runs out of time or memory fails only the queries of its own view.
//!
//! A build covers all views that have the position of the requested one (`index/build.rs`). Of the other views only
//! those that can fail are brought up to date, and only where the shard has changed since. With `[settee] index_swap =
//! ready` neither happens, because no query waits for another index there.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::view::DatabaseView;
use crate::coordinator::replica::range_replica::{RangeReplica, ReplicaView};
use crate::index::{Definition, IndexError, ViewIndex};
use crate::script::ScriptError;

impl DatabaseView {
    /// Brings `view`, which is this one on a replica, up to date. A node looks to the other views of the replicas that
    /// it holds.
    ///
    /// # Errors
    /// Where the view cannot be built, or one of the others fails.
    pub(in crate::coordinator) async fn update(
        &self,
        view: &ReplicaView,
        range: usize,
        replica: &RangeReplica,
    ) -> Result<(), IndexError> {
        let ReplicaView::Own(index) = view else { return view.update().await };
        // Most often there is nothing to do.
        match index.is_current() || self.database.queries().swaps_when_ready() {
            true => index.update().await?,
            false => self.beside_siblings(index.clone(), range, replica).update().await?,
        }
        let (design, until) = (self.program.key(), index.committed());
        if index.is_trusted(&design, until) || self.database.queries().swaps_when_ready() {
            return Ok(());
        }
        let fallible = Definition::fallible(self.program.body(), self.database.map().partitioned);
        try_join_all(fallible.into_iter().map(|other| self.check(other, range, replica))).await?;
        index.trust(design, until);
        Ok(())
    }

    /// Whether [`DatabaseView::update`] would find nothing to do and nothing to refuse.
    pub(in crate::coordinator) fn needs_no_update(&self, index: &ViewIndex) -> bool {
        let is_trusted = || index.is_trusted(&self.program.key(), index.committed());
        index.is_current() && (is_trusted() || self.database.queries().swaps_when_ready())
    }

    /// Brings the view on a replica of this node up to date with the others of its design document, without haste.
    pub(in crate::coordinator) async fn update_gently(
        &self,
        range: usize,
        replica: &RangeReplica,
    ) -> Result<(), IndexError> {
        match self.on(range, replica.clone()) {
            ReplicaView::Own(index) if !index.is_current() => {
                self.beside_siblings(index, range, replica).update_gently().await
            }
            // Other nodes do so by themselves.
            _ => Ok(()),
        }
    }

    /// The index with those of the other views on its replica.
    fn beside_siblings(&self, index: ViewIndex, range: usize, replica: &RangeReplica) -> ViewIndex {
        let all = Definition::all(self.program.body(), self.database.map().partitioned);
        let others = all.filter(|(_, other)| other.signature != self.definition.signature).filter_map(|(_, other)| {
            match self.database.queries().view_of(&self.program, Arc::new(other)).on(range, replica.clone()) {
                ReplicaView::Own(other) => Some(other),
                ReplicaView::Remote { .. } => None,
            }
        });
        index.beside(others.collect())
    }

    async fn check(&self, other: Definition, range: usize, replica: &RangeReplica) -> Result<(), IndexError> {
        let other = self.database.queries().view_of(&self.program, Arc::new(other));
        let ReplicaView::Own(index) = other.on(range, replica.clone()) else { return Ok(()) };
        match index.update().await {
            Ok(()) => index.check_rows().await,
            // Out of time or memory.
            Err(IndexError::Script(error)) if !matches!(error, ScriptError::Thrown { .. }) => Ok(()),
            failed => failed,
        }
    }
}
