//! Operations of replicators and administrators on a database: missing revisions and purges.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::{RangeReplica, is_away};
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::replica::token::{HeldWrites, Mark, RangeWrites};
use crate::coordinator::topology::error::{ReadError, SettingError};
use crate::coordinator::topology::quorum::{Tally, Written};
use crate::coordinator::write::Maintenance;
use crate::document::id::DocId;
use crate::document::rev_tree::Missing;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{self, ShardError, Want};

/// Which of some revisions a document lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevsDiff {
    /// Those it lacks, in the order asked.
    pub missing: Vec<Revision>,
    /// Its leaves of lower generation than some missing one, from which it could be joined.
    pub possible_ancestors: Vec<Revision>,
}

/// A purge that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeInfo {
    /// The document.
    pub id: DocId,
    /// The revisions removed.
    pub revs: Vec<Revision>,
}

/// What a purge removed of each document, and on how many replicas.
pub type Purged = (Vec<(DocId, Vec<Revision>)>, Written);

/// What a replica answers to a purge: the revisions of each document that it removed.
type PurgeAnswer = (RangeReplica, Result<Vec<Vec<Revision>>, ShardError>);

/// Purges on replicas at once.
async fn purge_on(replicas: Vec<RangeReplica>, items: &[(DocId, Vec<Revision>)]) -> Vec<PurgeAnswer> {
    let answers = join_all(replicas.iter().map(|replica| replica.purge(items.to_vec()))).await;
    replicas.into_iter().zip(answers).collect()
}

/// What to tell of a purge that failed in some ranges. That the database is gone is told only where no range was
/// purged, as far as is known: it says that nothing was done.
fn broken_off(mut failed: Vec<ShardError>, is_begun: bool) -> Option<ShardError> {
    let silent = failed.iter().position(|error| matches!(error, ShardError::Indeterminate(_)));
    let told = match silent {
        Some(at) => failed.swap_remove(at),
        None => failed.into_iter().next()?,
    };
    match told {
        ShardError::Dropped if is_begun => {
            Some(ShardError::Indeterminate("the database went while it was purged".to_owned()))
        }
        told => Some(told),
    }
}

impl Maintenance<'_> {
    /// Which of these revisions the database lacks; documents that lack none are left out.
    pub async fn revs_diff(
        self,
        asked: BTreeMap<DocId, Vec<Revision>>,
    ) -> Result<BTreeMap<DocId, RevsDiff>, ReadError> {
        let asked: Vec<(DocId, Vec<Revision>)> = asked.into_iter().collect();
        let mut out = BTreeMap::new();
        for page in asked.chunks(limits::STEP_ROWS) {
            let wants = page.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
            let found = self.documents().fetch_many(wants, None).await?;
            for ((id, revs), fetched) in page.iter().zip(found) {
                let diff = match fetched {
                    Some(fetched) => fetched.tree.missing(revs),
                    None => Missing { missing: revs.clone(), possible_ancestors: Vec::new() },
                };
                if !diff.missing.is_empty() {
                    let Missing { missing, possible_ancestors } = diff;
                    out.insert(id.clone(), RevsDiff { missing, possible_ancestors });
                }
            }
        }
        Ok(out)
    }

    /// Removes leaf revisions without a trace from all replicas. Answers per document those removed, each once and
    /// in order, and how far that got; replicas that are away purge when they return.
    pub async fn purge(self, asked: Vec<(DocId, Vec<Revision>)>) -> Result<Purged, SettingError> {
        Ok(self.purge_with_token(asked).await?.0)
    }

    /// As [`Maintenance::purge`], with a token.
    pub async fn purge_with_token(
        self,
        asked: Vec<(DocId, Vec<Revision>)>,
    ) -> Result<(Purged, Option<String>), SettingError> {
        if asked.len() > limits::PURGE_DOCS_MAX {
            return Err(SettingError::TooManyDocuments);
        }
        if asked.iter().map(|(_, revs)| revs.len()).sum::<usize>() > limits::PURGE_REVISIONS_MAX {
            return Err(SettingError::TooManyRevisions);
        }
        let mut removed: BTreeMap<usize, Vec<Revision>> = BTreeMap::new();
        let (mut written, mut writes) = (Written::Quorum, Vec::new());
        let mut left: Vec<usize> = (0..asked.len()).collect();
        for attempt in 1..=limits::MAP_ATTEMPTS {
            let layout = &self.layout();
            let mut by_range: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            for at in left.drain(..) {
                by_range.entry(layout.map.index_of(&asked[at].0)).or_default().push(at);
            }
            let purge_range = |(range, places): (usize, Vec<usize>)| {
                let items = places.iter().map(|at| asked[*at].clone()).collect();
                async move { (places, self.purge_range((layout, range), items).await) }
            };
            let mut failed = Vec::new();
            for (places, done) in join_all(by_range.into_iter().map(purge_range)).await {
                match done {
                    Ok((revs, reached, held)) => {
                        writes.extend(Some(held).filter(|written| !written.held.marks.is_empty()));
                        removed.extend(places.into_iter().zip(revs));
                        written = written.min(reached);
                    }
                    Err(ShardError::Moved) if attempt < limits::MAP_ATTEMPTS => left.extend(places),
                    Err(error) => failed.push(error),
                }
            }
            if let Some(error) = broken_off(failed, removed.values().any(|revs| !revs.is_empty())) {
                return Err(error.into());
            }
            if left.is_empty() {
                break;
            }
            self.moved_from(layout).await;
        }
        let removed = asked.iter().zip(removed.into_values()).map(|((id, _), revs)| (id.clone(), revs)).collect();
        Ok(((removed, written), self.token_of(writes)))
    }

    /// Purges on all replicas of a range that can be reached.
    async fn purge_range(
        self,
        (layout, range): (&Layout, usize),
        items: Vec<(DocId, Vec<Revision>)>,
    ) -> Result<(Vec<Vec<Revision>>, Written, RangeWrites), ShardError> {
        let writers = layout.writers(range, &self.context.node);
        let counted = layout.placed.replicas(range);
        let (mut replicas, mut filled) = (Vec::with_capacity(writers.len()), Vec::new());
        let mut failed = ShardError::NoReplica { replicas: writers.len() };
        for (at, node) in writers.iter().enumerate().filter(|(_, node)| self.context.rank(node).is_some()) {
            match self.replicas().replica_on(layout, range, node).await {
                Ok(replica) if at < counted => replicas.push(replica),
                Ok(replica) => filled.push(replica),
                Err(error @ (ShardError::Dropped | ShardError::Moved)) => return Err(error),
                // One that cannot be opened is as one that is away: the others purge.
                Err(error) => failed = no_answer(failed, error),
            }
        }
        let mut answers = purge_on(replicas, &items).await;
        // A replica that is being filled hears of purges from those that count, and they hear of none from there: it
        // must not purge what all of them go on to hold.
        if answers.iter().any(|(_, answer)| answer.is_ok()) {
            answers.extend(purge_on(filled, &items).await);
        }
        let mut tally = layout.tally(range, None);
        for _ in answers.len()..writers.len() {
            tally.refused();
            self.context.lagging(&self.name);
        }
        let (purged, removed) = self.count_purges(answers, (&mut tally, &mut failed), items.len());
        let written = tally.written().ok_or(failed)?;
        // A purge is no change: the one that reads the changes of a replica up to where it stands now may not have it.
        let replica_positions = join_all(purged.iter().map(RangeReplica::replica_position)).await.into_iter().flatten();
        let held = HeldWrites { only: true, marks: replica_positions.map(Mark::of).collect() };
        let held = RangeWrites { range: layout.map.range(range), held };
        Ok((removed, written, held))
    }

    /// Counts what replicas answered to a purge of so many documents: those that purged, and the revisions of each
    /// document that one of them removed. `failed`: why it failed, if it did.
    fn count_purges(
        self,
        answers: Vec<PurgeAnswer>,
        (tally, failed): (&mut Tally, &mut ShardError),
        documents: usize,
    ) -> (Vec<RangeReplica>, Vec<Vec<Revision>>) {
        let mut removed: Vec<BTreeSet<Revision>> = vec![BTreeSet::new(); documents];
        let (mut silent, mut purged) = (None, Vec::new());
        for (replica, answer) in answers {
            match answer {
                Ok(revs) => {
                    purged.push(replica);
                    removed.iter_mut().zip(revs).for_each(|(all, revs)| all.extend(revs));
                    tally.done();
                }
                Err(error) => {
                    if is_away(&error) {
                        self.context.lagging(&self.name);
                    }
                    if let ShardError::Indeterminate(_) = &error {
                        silent = Some(error.clone());
                    }
                    let is_last_word = matches!(error, ShardError::Dropped | ShardError::Moved);
                    *failed = if is_last_word { error } else { no_answer(failed.clone(), error) };
                    tally.silent();
                }
            }
        }
        if let (ShardError::Dropped, Some(silent)) = (&*failed, silent) {
            // A replica that did not answer may have purged all the same.
            *failed = silent;
        }
        (purged, removed.into_iter().map(|revs| revs.into_iter().collect()).collect())
    }

    /// The purges that are still on record.
    pub async fn purge_infos(self) -> Result<Vec<PurgeInfo>, ReadError> {
        let limit = usize::try_from(self.purged_infos_limit()).unwrap_or(usize::MAX);
        let mut out = Vec::new();
        for replica in self.replicas().all_replicas().await? {
            let (mut since, mut left) = (0, limit);
            while left > 0 {
                let step = left.min(limits::STEP_ROWS);
                let page = replica.purge_infos(since, step).await?;
                let Some(last) = page.last() else { break };
                since = last.purge_seq;
                let is_last = page.len() < step;
                // Of what was collected, for indexes only; else that is what somebody asked for.
                let forgets = page.iter().any(|info| info.revs.is_empty()) && replica.has_collected().await?;
                // What another replica purged of a document of which this one had an ancestor only is nobody's request.
                let asked = |info: &shard::PurgeInfo| !info.revs.is_empty() || !forgets && info.history.is_empty();
                let told = page.into_iter().filter(asked);
                let before = out.len();
                out.extend(told.map(|info| PurgeInfo { id: info.id, revs: info.revs }));
                left = if is_last { 0 } else { left - (out.len() - before) };
            }
        }
        Ok(out)
    }

    /// Brings all replicas of all ranges together, in the background.
    pub async fn sync_shards(self) -> Result<(), SettingError> {
        if self.is_gone() {
            return Err(SettingError::DatabaseGone);
        }
        self.context.lagging(&self.name);
        Ok(())
    }

    /// Every acknowledged write is durable already.
    pub async fn ensure_full_commit(self) -> Result<(), SettingError> {
        if self.is_gone() { Err(SettingError::DatabaseGone) } else { Ok(()) }
    }
}
