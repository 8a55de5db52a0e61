//! Replication of edits to all replicas of their range: to the primary first, then to the others.
//!
//! The primary is the first replica in the order of [`Replicas::primaries`] that answers. Once a primary was sent an
//! edit and did not answer, the outcome is unknown: the next one may store the edit all the same, but a conflict from
//! it proves nothing. A primary whose store is damaged where the documents are did nothing: the next one decides
//! instead. Decided edits go to the other replicas in tasks of their own, which end whether or not the client still
//! waits; a replica that misses an edit gets it from a sync.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::coordinator::replica::blob_stream::{self, blobs_of, merge_here};
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::EditRefusal;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::merge_purged;
use crate::coordinator::replica::token::{HeldWrites, Mark, RangeWrites};
use crate::coordinator::replica::told::{AcceptedAt, Merged};
use crate::coordinator::topology::error::{MayHaveMoved, WriteError};
use crate::coordinator::topology::quorum::{Tally, Written};
use crate::coordinator::write::edits::{Outcome, WriteDone, WriteOptions};
use crate::coordinator::write::primary::{Decision, is_unable, resolve_in_doubt};
use crate::coordinator::write::{WriteOperations, Writer};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{AcceptedEdit, Basis, Edit, EditAttachment, EditError, EditOp, ShardError};
use crate::storage::Hold;
use crate::world::buggify::sometimes;

/// What a primary said, and where its replica stood then, if it tells.
type Decisions = (Vec<Decision>, Option<Mark>);

/// What a primary said, and on which node it is.
type DecidedBy = (Arc<str>, Decisions);

impl Writer<'_> {
    /// Has edits of one range decided and stored on its replicas: one outcome for each. `source` is the node that holds
    /// the uploads which they name. Should the range be split or its replicas move meanwhile, the edits go where their
    /// documents are then.
    pub(in crate::coordinator) async fn settle(
        self,
        range: usize,
        edits: Vec<Edit>,
        options: &WriteOptions,
        source: &Arc<str>,
    ) -> Vec<Outcome> {
        let mut done: BTreeMap<usize, Outcome> = BTreeMap::new();
        let mut left: Vec<(usize, Edit)> = edits.into_iter().enumerate().collect();
        for attempt in 1..=limits::MAP_ATTEMPTS {
            let layout = self.layout();
            let mut by_range: BTreeMap<usize, Vec<(usize, Edit)>> = BTreeMap::new();
            for (at, edit) in left.drain(..) {
                by_range.entry(layout.map.index_of(&edit.id)).or_default().push((at, edit));
            }
            for (now, step) in by_range {
                let (places, edits): (Vec<usize>, Vec<Edit>) = step.into_iter().unzip();
                let _holds = self.carry_uploads((range, now), &edits).await;
                let outcomes = self.settle_once((&layout, now), &edits, options, source).await;
                for ((at, edit), outcome) in places.into_iter().zip(edits).zip(outcomes) {
                    match outcome {
                        Err(error) if error.is_moved() && attempt < limits::MAP_ATTEMPTS => left.push((at, edit)),
                        outcome => drop(done.insert(at, outcome)),
                    }
                }
            }
            if left.is_empty() {
                break;
            }
            sometimes("write: sent anew because the range was split or moved");
            self.moved_from(&layout).await;
        }
        done.into_values().collect()
    }

    /// Brings uploads that were made to the replica of one range here to that of another, which the document is in now.
    async fn carry_uploads(self, (from, to): (usize, usize), edits: &[Edit]) -> Vec<Hold> {
        let mut holds = Vec::new();
        if from == to || blobs_of(edits).next().is_none() {
            return holds;
        }
        let (Ok(Some(from)), Ok(Some(to))) =
            (self.replicas().own_replica(from).await, self.replicas().own_replica(to).await)
        else {
            return holds;
        };
        for attachment in blobs_of(edits) {
            // One that cannot be brought is missed by the primary, who tells the client.
            holds.extend(blob_stream::carry(&from.shard, &to.shard, attachment).await.ok().flatten());
        }
        holds
    }

    async fn settle_once(
        self,
        at: (&Layout, usize),
        edits: &[Edit],
        options: &WriteOptions,
        source: &Arc<str>,
    ) -> Vec<Outcome> {
        let count = edits.len();
        match self.try_settle(at, edits, options, source).await {
            Ok(outcomes) => outcomes,
            Err(WriteError::Unavailable(error)) => (0..count).map(|_| Err(error.clone().into())).collect(),
            Err(WriteError::DatabaseGone) => (0..count).map(|_| Err(WriteError::DatabaseGone)).collect(),
            Err(_) => (0..count).map(|_| Err(WriteError::Unknown)).collect(),
        }
    }

    async fn try_settle(
        self,
        (layout, range): (&Layout, usize),
        edits: &[Edit],
        options: &WriteOptions,
        source: &Arc<str>,
    ) -> Result<Vec<Outcome>, WriteError> {
        if layout.is_alone(range) && !self.context.is_in_maintenance() {
            let replica = self.replicas().own_replica_by(layout, range).await?.ok_or(ShardError::Moved)?;
            let replica = replica.by_map(layout.placed.version);
            let decisions = self.primary().decide_own(&replica.shard, edits, &options.caller, None).await;
            let written = held_by_primary(layout, range, options.w);
            let held = held_by(layout, range, vec![Mark::of(replica.replica_position())]);
            let done = |decision: Decision| {
                decision.map(|accepted| WriteDone {
                    rev: accepted.path.head(),
                    written,
                    replicas: 1,
                    held: held.clone(),
                })
            };
            return Ok(decisions.into_iter().map(done).collect());
        }
        let (primary, (decisions, at)) = self.decided_by((layout, range), edits, options, source).await?;
        let merges =
            edits.iter().zip(&decisions).filter_map(|(edit, decision)| Some(merge_of(edit, decision.as_ref().ok()?)));
        let (written, marks) = self.spread((layout, range), &primary, merges.collect(), options.w).await;
        let held = held_by(layout, range, at.into_iter().chain(marks).collect());
        let mut written = written.into_iter();
        let done = |decision: Decision| {
            let accepted = decision?;
            // Invariant: there is one for each edit that was stored.
            let (written, replicas) = written.next().expect("one per edit");
            Ok(WriteDone { rev: accepted.path.head(), written, replicas, held: held.clone() })
        };
        Ok(decisions.into_iter().map(done).collect())
    }

    /// Asks one primary after the other until one answers.
    async fn decided_by(
        self,
        (layout, range): (&Layout, usize),
        edits: &[Edit],
        options: &WriteOptions,
        source: &Arc<str>,
    ) -> Result<DecidedBy, WriteError> {
        let (mut in_doubt, mut unable) = (false, None);
        for replica in self.replicas().primaries(layout, range).await? {
            let node = replica.node().unwrap_or(&self.context.node);
            match self.ask_primary(range, &replica, edits, options, (source, in_doubt)).await {
                Ok(accepted) if is_unable(&accepted.0) => unable = Some((Arc::clone(node), accepted)),
                Ok(accepted) => return Ok((Arc::clone(node), accepted)),
                Err(error @ (ShardError::Dropped | ShardError::Moved)) if !in_doubt => return Err(error.into()),
                Err(ShardError::Indeterminate(why)) => {
                    tracing::warn!(database = self.name, why, "a primary did not answer");
                    in_doubt = true;
                }
                Err(error) => tracing::debug!(database = self.name, %error, "a primary was passed over"),
            }
        }
        match (unable, in_doubt) {
            (_, true) => Err(WriteError::Unknown),
            (Some(decided_by), false) => Ok(decided_by),
            (None, false) => Err(ShardError::NoReplica { replicas: layout.placed.replicas(range) }.into()),
        }
    }

    async fn ask_primary(
        self,
        range: usize,
        replica: &RangeReplica,
        edits: &[Edit],
        options: &WriteOptions,
        (source, in_doubt): (&Arc<str>, bool),
    ) -> Result<Decisions, ShardError> {
        let own = match replica {
            RangeReplica::Own(own) => own,
            RangeReplica::Remote(remote) => {
                let told = remote.decide(edits, &options.caller, source, in_doubt).await?;
                let at = told.iter().find_map(|decision| decision.as_ref().ok()?.at);
                let accepted = |AcceptedAt { path, attachments, .. }| AcceptedEdit { path, attachments };
                let decision = |told: Result<AcceptedAt, EditRefusal>| told.map(accepted).map_err(WriteError::from);
                return Ok((told.into_iter().map(decision).collect(), at));
            }
        };
        let _holds = self.pull_uploads(range, &own.shard, edits, source).await?;
        let decisions = self.primary().decide_own(&own.shard, edits, &options.caller, None).await;
        let at = Some(Mark::of(own.replica_position()));
        if !in_doubt {
            return Ok((decisions, at));
        }
        let mut out = Vec::with_capacity(decisions.len());
        for (edit, decision) in edits.iter().zip(decisions) {
            out.push(resolve_in_doubt(&own.shard, edit, decision).await);
        }
        Ok((out, at))
    }

    /// Brings what edits name onto this node's replica, from where it was uploaded to.
    pub(in crate::coordinator) async fn pull_uploads(
        self,
        range: usize,
        replica: &crate::shard::ShardReplica,
        edits: &[Edit],
        source: &Arc<str>,
    ) -> Result<Vec<Arc<crate::storage::Hold>>, ShardError> {
        match *source == self.context.node {
            true => Ok(Vec::new()),
            false => blob_stream::pull(replica, edits, &RemoteReplica::new(&self.target, range, source)).await,
        }
    }

    /// Merges what a primary stored into the other replicas; answers for each edit how far it got, as soon as that is
    /// certain, and where those stood that applied all.
    async fn spread(
        self,
        (layout, range): (&Layout, usize),
        primary: &Arc<str>,
        merges: Vec<Edit>,
        w: Option<u32>,
    ) -> (Vec<(Written, u32)>, Vec<Mark>) {
        let mut tallies: Vec<Tally> = merges.iter().map(|_| layout.tally(range, w)).collect();
        tallies.iter_mut().for_each(Tally::done);
        if merges.is_empty() {
            return (Vec::new(), Vec::new());
        }
        let mut marks = Vec::new();
        let merges: Arc<[Edit]> = merges.into();
        let merge = |replica: RangeReplica| {
            let (merges, source) = (Arc::clone(&merges), RemoteReplica::new(&self.target, range, primary));
            async move { merge_into(&replica, &merges, &source).await }
        };
        let mut others = self
            .on_others((layout, range), Some(primary), merge, |merged: &Merged| !merged.stored.contains(&false))
            .await;
        tallies.iter_mut().for_each(|tally| (0..others.away).for_each(|_| tally.refused()));
        while let Some(answer) = others.next(tallies.iter().any(Tally::waits)).await {
            if let Ok(merged) = &answer
                && !merged.stored.contains(&false)
            {
                marks.extend(merged.at);
            }
            count(&mut tallies, answer);
        }
        let metrics = self.context.env.metrics();
        let met = tallies.iter().filter(|tally| tally.is_met()).count() as u64;
        metrics.add(Counter::WritesMet, met);
        metrics.add(Counter::WritesAccepted, tallies.len() as u64 - met);
        let written = |tally: &Tally| (tally.written().unwrap_or(Written::Accepted), tally.held());
        (tallies.iter().map(written).collect(), marks)
    }
}

/// Writes to a range that replicas hold which stood so; `None`: of none is known where.
fn held_by(layout: &Layout, range: usize, marks: Vec<Mark>) -> Option<Arc<RangeWrites>> {
    let held = HeldWrites { only: false, marks };
    let is_known = !held.marks.is_empty();
    is_known.then(|| Arc::new(RangeWrites { range: layout.map.range(range), held }))
}

/// What a write reports that only the primary of a range holds, and no other replica is asked.
pub(in crate::coordinator) fn held_by_primary(layout: &Layout, range: usize, w: Option<u32>) -> Written {
    let mut tally = layout.tally(range, w);
    tally.done();
    tally.written().unwrap_or(Written::Accepted)
}

/// Counts the answer of one replica.
fn count(tallies: &mut [Tally], answer: Result<Merged, ShardError>) {
    match answer {
        Ok(merged) => tallies.iter_mut().zip(merged.stored).for_each(|(tally, stored)| match stored {
            true => tally.done(),
            false => tally.refused(),
        }),
        Err(ShardError::Indeterminate(_)) => tallies.iter_mut().for_each(Tally::silent),
        Err(_) => tallies.iter_mut().for_each(Tally::refused),
    }
}

/// The edit as the other replicas take it in.
fn merge_of(edit: &Edit, accepted: &AcceptedEdit) -> Edit {
    Edit {
        id: edit.id.clone(),
        op: EditOp::Merge { path: accepted.path.clone() },
        deleted: edit.deleted,
        body: Arc::clone(&edit.body),
        attachments: accepted.attachments.iter().cloned().map(EditAttachment::New).collect(),
        revs_limit: edit.revs_limit,
    }
}

/// Merges edits into a replica; answers for each whether it is stored, and where the replica stands then. Uploads that
/// it lacks come from `source`, the primary's replica, which is asked about what was purged here.
pub(in crate::coordinator) async fn merge_into(
    replica: &RangeReplica,
    merges: &[Edit],
    source: &RemoteReplica,
) -> Result<Merged, ShardError> {
    let own = match replica {
        RangeReplica::Remote(remote) => return remote.merge(merges, source.node()).await,
        RangeReplica::Own(own) => own,
    };
    let merged = merge_here(&own.shard, merges, source, &Basis::NotPurged).await?;
    let mut stored = Vec::with_capacity(merged.len());
    for (edit, merged) in merges.iter().zip(merged) {
        stored.push(match merged {
            Err(EditError::BasisChanged) => merge_purged(own, edit, source).await?,
            merged => merged.is_ok(),
        });
    }
    Ok(Merged { stored, at: Some(Mark::of(own.replica_position())) })
}
