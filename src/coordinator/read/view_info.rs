//! `_info` of the views of a design document, and the removal of rows that belong to no view any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::read::view::{Update, ViewError};
use crate::coordinator::read::{Queries, ReadOperations};
use crate::coordinator::replica::calls::KeepViews;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::index::search::SearchDefinition;
use crate::index::{Definition, Header, Sees, Signature};
use crate::observe::tasks::{Subject, TaskKind};

/// What `_info` tells of the views of a design document.
#[derive(Clone, Debug, Default)]
pub struct ViewsInfo {
    /// The hash of its views.
    pub signature: String,
    /// The language of its functions.
    pub language: String,
    /// Changes of the database that the views have applied, those of the least advanced one.
    pub update_seq: u64,
    /// Purges that they have applied.
    pub purge_seq: u64,
    /// Changes that they have still to apply.
    pub pending: u64,
    /// Whether one is being built.
    pub updating: bool,
    /// Stored bytes of rows.
    pub active: u64,
    /// Bytes of keys, values and ids.
    pub external: u64,
}

impl Queries<'_> {
    /// See [`ViewsInfo`].
    ///
    /// # Errors
    /// [`ViewError::Design`] when there is no such design document.
    pub async fn views_info(self, id: &DocId) -> Result<ViewsInfo, ViewError> {
        let program = self.design_docs().program(id).await?;
        let language = program.body().get("language").and_then(Value::as_str).unwrap_or(crate::index::JAVASCRIPT);
        let signature = crate::index::design_signature(program.body());
        let mut info = ViewsInfo { signature, language: language.to_owned(), ..ViewsInfo::default() };
        let mut views = BTreeMap::new();
        for (_, definition) in Definition::all(program.body(), self.map().partitioned) {
            views.insert(definition.signature, definition);
        }
        let seqs = self.update_seq().await?.sum();
        let mut least: Option<(u64, u64)> = None;
        for (_, definition) in views {
            let view = self.view_of(&program, Arc::new(definition));
            let seat = |range| view.seat(range, Update::Never, false);
            let seats = try_join_all(self.ranges().into_iter().map(seat)).await?;
            let sum = |pick: fn(&Header) -> u64| seats.iter().map(|seat| pick(&seat.header)).sum::<u64>();
            let reached = (sum(|header| header.position), sum(|header| header.purge_position));
            least = Some(least.map_or(reached, |least| least.min(reached)));
            info.active += sum(|header| header.active);
            info.external += sum(|header| header.external);
            info.updating |= seats.iter().any(|seat| seat.is_building);
        }
        (info.update_seq, info.purge_seq) = least.unwrap_or((seqs, 0));
        info.pending = seqs.saturating_sub(info.update_seq);
        Ok(info)
    }

    /// Removes the rows of views, and the full-text indexes, that no design document has any more.
    ///
    /// # Errors
    /// When the node cannot read or write.
    pub async fn clean_up_views(self) -> Result<(), ViewError> {
        let keep = self.indexes_to_keep().await?;
        for range in self.ranges() {
            for replica in self.replicas().primaries(&self.layout(), range).await? {
                match replica {
                    RangeReplica::Own(replica) => self.context.indexes.clean_up(&replica.shard, &keep).await?,
                    RangeReplica::Remote(replica) => {
                        if let Err(error) = replica.ask(KeepViews(keep.iter().map(|view| view.0).collect())).await {
                            tracing::info!(%error, database = self.name, "a replica's views are not cleaned up");
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`Queries::clean_up_views`], on the replicas of this node: the others clean up theirs. One that cannot be
    /// read keeps no other from it, and is told at the end.
    pub(in crate::coordinator) async fn clean_up_own_views(self) -> Result<(), ViewError> {
        let (keep, ranges) = (self.indexes_to_keep().await?, self.ranges());
        let subject = Subject::new(TaskKind::IndexCleanup, &self.name);
        let task = self.context.env.begin_task(subject, Some(ranges.len() as u64));
        let mut done = Ok(());
        for range in ranges {
            let cleaned = async {
                match self.replicas().own_replica(range).await? {
                    Some(own) => self.context.indexes.clean_up(&own.shard, &keep).await,
                    None => Ok(()),
                }
            };
            if let Err(error) = cleaned.await {
                tracing::debug!(%error, database = self.name, range, "a replica's views are not cleaned up");
                done = Err(error.into());
            }
            task.add(1);
        }
        done
    }

    /// The indexes that design documents name, and those that answer in their place (`[settee] index_swap`).
    async fn indexes_to_keep(self) -> Result<BTreeSet<Signature>, ViewError> {
        let mut keep = BTreeSet::new();
        for program in self.design_docs().programs().await?.iter() {
            for (name, definition) in SearchDefinition::all(program.body(), self.map().partitioned) {
                keep.insert(definition.signature);
                if let Some(search) = self.search_of(program, Arc::new(definition)) {
                    // What still answers searches stays.
                    keep.extend(self.serving_signature(search, &name).await?);
                }
            }
            for (name, definition) in Definition::all(program.body(), self.map().partitioned) {
                keep.insert(definition.signature);
                if self.swaps_when_ready() && definition.sees == Sees::Winner {
                    // What still answers queries stays.
                    let view = self.view_of(program, Arc::new(definition));
                    keep.insert(self.serving(view, &name).await?.definition.signature);
                }
            }
        }
        keep.extend(self.known.expires_at().map(|member| Definition::expiry(&member).signature));
        Ok(keep)
    }
}
