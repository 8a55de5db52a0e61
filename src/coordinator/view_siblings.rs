//! What the views of one design document are to each other: where one fails, all fail, as in CouchDB, which builds one
//! index of them. That is a map function that throws a fatal error, or a value that `_stats` refuses (facts 'Map
//! functions', 'Reduce'). A function that runs out of time or memory costs its own view's queries alone.
//!
//! Only those that can fail are brought up to date beside the view that is asked for, and only where the shard has
//! changed since. Not with `[settee] index_swap = ready`: no query waits for another index there.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::range_copy::{CopyView, RangeCopy};
use crate::coordinator::view::DatabaseView;
use crate::index::{Definition, IndexError};
use crate::script::ScriptError;

impl DatabaseView {
    /// Brings `view`, which is this one on a copy, up to date. A node looks to the other views of the copies that it
    /// holds.
    ///
    /// # Errors
    /// Where the view cannot be built, or one of the others fails.
    pub(super) async fn update(&self, view: &CopyView, range: usize, copy: &RangeCopy) -> Result<(), IndexError> {
        view.update().await?;
        let CopyView::Own(index) = view else { return Ok(()) };
        let (design, until) = (self.program.key(), index.committed());
        if index.is_trusted(&design, until) || self.database.swaps_when_ready() {
            return Ok(());
        }
        let fallible = Definition::fallible(self.program.body(), self.database.map().partitioned);
        try_join_all(fallible.into_iter().map(|other| self.check(other, range, copy))).await?;
        index.trust(design, until);
        Ok(())
    }

    async fn check(&self, other: Definition, range: usize, copy: &RangeCopy) -> Result<(), IndexError> {
        let other = self.database.view_of(&self.program, Arc::new(other));
        let CopyView::Own(index) = other.on(range, copy.clone()) else { return Ok(()) };
        match index.update().await {
            Ok(()) => index.check_rows().await,
            // Out of time or memory.
            Err(IndexError::Script(error)) if !matches!(error, ScriptError::Thrown { .. }) => Ok(()),
            failed => failed,
        }
    }
}
