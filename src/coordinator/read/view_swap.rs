//! `[settee] index_swap = ready`: while the index of a view whose definition changed is being built, queries are
//! answered by the index of the definition before. By default they wait for the new one, as in CouchDB.
//!
//! The definition before is found in the earlier revisions of the design document, as far as compaction has left them:
//! it is the newest of them whose index is ahead of the new one.

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::documents::revs_info;
use crate::coordinator::read::view::{DatabaseView, ViewError};
use crate::coordinator::read::{Queries, ReadOperations};
use crate::document::id::DocId;
use crate::document::render::RevStatus;
use crate::index::{Definition, ViewIndex};
use crate::limits;
use crate::script::Program;
use crate::shard::Want;

impl Queries<'_> {
    pub(in crate::coordinator) fn swaps_when_ready(self) -> bool {
        self.context.config.text("settee", "index_swap", "") == "ready"
    }

    /// The view that answers queries of `view`, which is `name` of its design document: itself, or the one before it.
    pub(in crate::coordinator) async fn serving(
        self,
        view: DatabaseView,
        name: &str,
    ) -> Result<DatabaseView, ViewError> {
        let indexes = view.own_indexes().await?;
        let ready = try_join_all(indexes.iter().map(ViewIndex::is_ready)).await?;
        if ready.into_iter().all(|ready| ready) {
            return Ok(view);
        }
        let reached = reached(&indexes).await?;
        for before in self.before(view.program.id(), name, &view.definition).await? {
            if self::reached(&before.own_indexes().await?).await? > reached {
                indexes.iter().for_each(ViewIndex::update_later);
                return Ok(before);
            }
        }
        Ok(view)
    }

    /// The views of that name in earlier revisions of the design document that had other rows, the latest first.
    async fn before(self, id: &DocId, name: &str, definition: &Definition) -> Result<Vec<DatabaseView>, ViewError> {
        let mut views = Vec::new();
        for program in self.earlier_programs(id).await? {
            let old = Definition::find(program.body(), name, self.map().partitioned);
            if let Some(old) = old.filter(|old| old.signature != definition.signature) {
                views.push(self.view_of(&program, Arc::new(old)));
            }
        }
        Ok(views)
    }

    /// The design document as it was in earlier revisions that are still there, the latest first.
    pub(super) async fn earlier_programs(self, id: &DocId) -> Result<Vec<Program>, ViewError> {
        let Some(fetched) = self.documents().fetch(id, Want::Tree).await? else { return Ok(Vec::new()) };
        let Some(winner) = fetched.tree.winner().map(|leaf| leaf.rev) else { return Ok(Vec::new()) };
        let history = revs_info(&fetched, &winner).into_iter().skip(1);
        let readable = history.filter(|(_, status)| *status == RevStatus::Available).map(|(rev, _)| rev);
        let revs = readable.take(limits::INDEX_SWAP_REVISIONS).collect();
        let found = self.documents().fetch(id, Want::Revisions { revs, latest: false }).await?;
        let all = found.into_iter().flat_map(|fetched| fetched.found).filter_map(|(_, stored)| stored);
        Ok(all.map(|stored| Program::new(self.instance(), id, &stored)).collect())
    }
}

/// Changes that the indexes of all ranges have applied.
async fn reached(indexes: &[ViewIndex]) -> Result<u64, ViewError> {
    let headers = try_join_all(indexes.iter().map(ViewIndex::header)).await?;
    Ok(headers.into_iter().map(|header| header.position).sum())
}
