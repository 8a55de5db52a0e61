//! `[settee] index_swap = ready` of full-text indexes: while the index of a definition that changed is being built,
//! searches are answered by the index of the definition before, as queries of views are (`view_swap.rs`).

use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::Queries;
use crate::coordinator::read::search::{DatabaseSearch, SearchFailure};
use crate::coordinator::read::view::ViewError;
use crate::index::Signature;
use crate::index::search::{SearchDefinition, SearchIndex};
use crate::shard::ShardError;

impl Queries<'_> {
    /// The index that answers searches of `search`, which is `name` of its design document: itself, or the one before
    /// it. A request with the token of a write waits for the new one.
    pub(in crate::coordinator) async fn serving_search(
        self,
        search: DatabaseSearch,
        name: &str,
    ) -> Result<DatabaseSearch, SearchFailure> {
        if !self.swaps_when_ready() || self.floor.is_some() {
            return Ok(search);
        }
        let indexes = search.own_indexes().await?;
        let ready = try_join_all(indexes.iter().map(SearchIndex::is_ready)).await?;
        if ready.into_iter().all(|ready| ready) {
            return Ok(search);
        }
        let reached = reached(&indexes).await?;
        for before in self.searches_before(&search, name).await? {
            if self::reached(&before.own_indexes().await?).await? > reached {
                indexes.iter().for_each(SearchIndex::update_later);
                return Ok(before);
            }
        }
        Ok(search)
    }

    /// What names the index that answers searches of `search`, where that is another one; `None`: it answers itself.
    pub(in crate::coordinator) async fn serving_signature(
        self,
        search: DatabaseSearch,
        name: &str,
    ) -> Result<Option<Signature>, ViewError> {
        let own = search.definition.signature;
        match self.serving_search(search, name).await {
            Ok(serving) => Ok(Some(serving.definition.signature).filter(|signature| *signature != own)),
            Err(SearchFailure::View(error)) => Err(error),
            // No other fails.
            Err(_) => Ok(None),
        }
    }

    /// The indexes of that name and form in earlier revisions of the design document that were others, the latest
    /// first.
    async fn searches_before(self, search: &DatabaseSearch, name: &str) -> Result<Vec<DatabaseSearch>, SearchFailure> {
        let find = if search.definition.is_typed() { SearchDefinition::find_typed } else { SearchDefinition::find };
        let mut found = Vec::new();
        for program in self.earlier_programs(search.program.id()).await? {
            let Ok(old) = find(program.body(), name, self.map().partitioned) else { continue };
            if old.signature != search.definition.signature {
                found.extend(self.search_of(&program, Arc::new(old)));
            }
        }
        Ok(found)
    }
}

impl DatabaseSearch {
    /// The index on the replicas that this node holds.
    async fn own_indexes(&self) -> Result<Vec<SearchIndex>, ShardError> {
        let mut found = Vec::new();
        for range in self.database.ranges() {
            let replica = match self.database.replicas().own_replica(range).await {
                Err(error) if error.is_damage_here() || matches!(error, ShardError::NotExecuted(_)) => None,
                replica => replica?,
            };
            found.extend(replica.map(|replica| self.on(range, &replica)));
        }
        Ok(found)
    }
}

/// Changes that the indexes of all ranges have applied.
async fn reached(indexes: &[SearchIndex]) -> Result<u64, ShardError> {
    let headers = try_join_all(indexes.iter().map(SearchIndex::header)).await?;
    Ok(headers.into_iter().flatten().map(|header| header.position).sum())
}
