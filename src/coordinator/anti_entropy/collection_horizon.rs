//! The collection horizon between replicas: before one replica reads another, both have collected the same tombstones.
//! `shard/collection_horizon.rs` has the rules.
//!
//! A replica first finishes the rounds that are done at the other one and that it has written down itself, if it has
//! read all others since. If it has not, it reads the other one all the same, because it knows what it has written
//! down. A round that it never wrote down was decided without it, so the replica was restored from an old backup: it
//! discards the leaves that every replica lacks that knows what was collected, as far as one of them has read it
//! (`restored`), together with what it applied from others before it had been compared with all of them. It reads the
//! other replica only then, and until then no other replica reads it. A replica that has not collected the same, as
//! after a restart on an older disk, refuses all that is asked later.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::coordinator::anti_entropy::discard::{Revisions, Stale, Testimony, discard_stale, witnesses};
use crate::coordinator::anti_entropy::pull::{Pull, away};
use crate::coordinator::anti_entropy::restored;
use crate::coordinator::anti_entropy::{RepairOperations, TombstoneCollection};
use crate::coordinator::replica::calls::{Markers, Open, Status, Tell};
use crate::coordinator::replica::message::Soundness;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::document::id::DocId;
use crate::document::rev_tree::RevTree;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{
    AppliedEarly, CollectionLogState, DocumentDigest, Horizon, Proposal, ProposalOutcome, RevData, Round, ShardError,
    Tombstone, Want,
};
use crate::world::buggify::{Mutation, mutated, sometimes};

/// What two replicas have told each other of what they collected.
#[derive(Debug)]
pub(in crate::coordinator) struct HorizonExchange {
    /// What the other one had collected.
    theirs: CollectionLogState,
    /// The other replicas of the range.
    others: Vec<String>,
    /// Rounds that all replicas had written down before the other one was asked how it stands.
    confirmed: BTreeSet<Round>,
    /// Whether the other one made some of them known.
    is_news: bool,
    /// Whether this replica was an old one until now.
    was_old: bool,
}

/// Which leaves of an old replica were there before.
#[derive(Debug)]
struct Old {
    /// The sequence up to which one of those who know has read the replica.
    until: u64,
    /// The last body that is certain to have been stored by then.
    body: u64,
    /// What was applied from others, which is no younger.
    taken: AppliedEarly,
}

impl Old {
    /// Whether a leaf is among them, by its body and the last sequence of its document.
    fn has(&self, body: u64, seq: u64) -> bool {
        seq <= self.until || body <= self.body || self.taken.has(body, seq)
    }
}

impl Pull<'_> {
    /// Brings this replica to where nothing that it applies was collected by either.
    pub(in crate::coordinator) async fn keep_horizon(&mut self) -> Result<HorizonExchange, ShardError> {
        let theirs = self.remote.ask_collection(Tell).await?;
        let (shard, node) = (self.own.shard.clone(), self.remote.node().clone());
        let others = self.others();
        let (confirmed, is_news) = shard.confirmed(&theirs.done).await?;
        let mut own = shard.collect(&theirs.done, &others).await?;
        let was_old = !shard.told().await?.promised.covers(&theirs.done);
        if was_old {
            self.discard_stale(&theirs.done).await?;
            // Before the rounds count as done here: should this pull break off the next one does not ask again.
            self.take_markers(&theirs.done).await?;
            own = shard.adopt(&theirs.done).await?;
        }
        // What the other one has written down it knows: nothing alive comes from there.
        if !theirs.promised.covers(&own.horizon) {
            self.is_ahead = true;
            shard.note_read(&node, confirmed).await?;
            return Err(away("the other replica is to collect first what was collected here"));
        }
        self.lags_behind = !theirs.done.covers(&own.horizon);
        self.remote = self.remote.clone().behind(&theirs.done);
        self.rounds = own.rounds;
        // It may have collected something since it said how it stands.
        self.theirs = self.remote.ask(Status).await?;
        if self.theirs.soundness == Some(Soundness::Unusable) {
            return Err(away("the other replica cannot be read any more"));
        }
        shard.meet(&node, &others).await?;
        Ok(HorizonExchange { theirs, others, confirmed, is_news, was_old })
    }

    /// Notes that all of the other replica was applied, and collects what waited for that.
    pub(in crate::coordinator) async fn note_taken(&self, met: HorizonExchange) -> Result<(), ShardError> {
        let HorizonExchange { theirs, others, confirmed, is_news, was_old } = met;
        let (shard, node, context) = (&self.own.shard, self.remote.node(), &self.database.context);
        if !shard.told().await?.promised.covers(&theirs.promised) {
            // A replica that came here meanwhile knows what that one knows.
            shard.take_over(self.remote.ask_collection(Open).await?).await?;
        }
        shard.note_read(node, confirmed).await?;
        let own = shard.collect(&theirs.done, &others).await?;
        if was_old {
            // Others did not read it until now.
            context.lagging(&self.database.name);
        } else if is_news && !own.horizon.covers(&theirs.done) && self.may_read_others(node) {
            // Once: a replica that is away then is read when it is back.
            context.pull_soon(&self.database.name);
        }
        // A replica that leaves is none of the others, and may still bring a tombstone.
        let is_moving = self.database.layout().placed.move_of(self.range).is_some();
        if is_moving || shard.state().await?.markers == 0 {
            return Ok(());
        }
        shard.note_taken(node, &theirs.done, others).await
    }

    /// Who writes a document here that was collected builds upon its tombstone, as there.
    async fn take_markers(&self, done: &Horizon) -> Result<(), ShardError> {
        let mut after = None;
        loop {
            let page = self.remote.ask_collection(Markers(after)).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Some(last.clone());
            self.own.shard.keep_markers(done, page).await?;
        }
    }

    /// The nodes of the other replicas of the range.
    pub(in crate::coordinator) fn others(&self) -> Vec<String> {
        self.database.collection().others_in(self.range)
    }

    fn may_read_others(&self, but: &str) -> bool {
        let others = self.database.replica_rebuild().others_of(&self.database.layout(), self.range);
        others.iter().any(|node| **node != *but && self.database.context.rank(node).is_some())
    }

    /// Drops the leaves of this replica that are lacked by all who collected what this one missed, as far as they are
    /// old.
    async fn discard_stale(&self, missed: &Horizon) -> Result<(), ShardError> {
        let (own, name) = (&self.own, &self.database.name);
        let taken = own.shard.applied_early().await?;
        if own.epochs.opened_at() == 0 && taken.is_empty() {
            // It was empty then: all that it has it was given by those who know, or by clients.
            return Ok(());
        }
        let witnesses = self.who_knows(missed).await?;
        // Asked before what they have: what they apply meanwhile is kept.
        let until = restored::read_by(&witnesses, own, &self.database.context.node).await?;
        let old = Old { until, body: last_body(own, until).await?, taken };
        tracing::warn!(
            database = name,
            range = self.range,
            ?old,
            "a restored replica discards what the others collected since"
        );
        sometimes("cluster: a restored replica discarded what the others had collected");
        discard_stale(own, &witnesses, &Collected { own, old }).await
    }

    /// The other replicas of the range that have collected `missed`. Those that missed it, too, are old ones
    /// themselves: what they hold says nothing.
    ///
    /// # Errors
    /// One that is away may hold what the others never had; one that has yet to collect it cannot tell.
    async fn who_knows(&self, missed: &Horizon) -> Result<Vec<RemoteReplica>, ShardError> {
        let nodes = self.database.replica_rebuild().others_of(&self.database.layout(), self.range);
        let waits = "a restored replica waits for all others, to see what was collected since";
        let none = "no replica that is there has collected what this one missed";
        witnesses((self.database, self.range), nodes, (waits, none), |remote| async move {
            let told = remote.ask_collection(Tell).await?;
            match told.done.covers(missed) {
                true => Ok(Testimony::Knows(remote.behind(missed))),
                false if told.promised.covers(missed) => {
                    Err(away("a restored replica waits for another one to collect what was collected"))
                }
                false => Ok(Testimony::Missed),
            }
        })
        .await
    }
}

/// Collected tombstones: leaves with an old body are old.
struct Collected<'a> {
    own: &'a OwnReplica,
    old: Old,
}

impl Stale for Collected<'_> {
    async fn candidates(&self, page: Vec<DocumentDigest>) -> Result<Vec<Revisions>, ShardError> {
        let all = leaves_of(self.own, page.into_iter().map(|found| found.id).collect()).await?;
        let old = all.into_iter().map(|(id, seq, leaves)| {
            let old = leaves.into_iter().filter(|(_, body)| self.old.has(*body, seq));
            (id, old.map(|(rev, _)| rev).collect::<Vec<_>>())
        });
        Ok(old.filter(|(_, revs)| !revs.is_empty()).collect())
    }

    async fn discard(&self, lacked: Vec<Revisions>) -> Result<(), ShardError> {
        let named = |(id, revs): Revisions| revs.into_iter().map(move |rev| (id.clone(), rev));
        self.own.shard.drop_leaves(lacked.into_iter().flat_map(named).collect()).await
    }
}

/// A document, the last sequence of it, and its leaves with the numbers of their bodies.
type Leaves = (DocId, u64, Vec<(Revision, u64)>);

async fn leaves_of(own: &OwnReplica, ids: Vec<DocId>) -> Result<Vec<Leaves>, ShardError> {
    let wants = ids.iter().map(|id| (id.clone(), Want::Tree)).collect();
    let bodies = |tree: RevTree<RevData>| tree.leaves().into_iter().map(|leaf| (leaf.rev, leaf.value.body)).collect();
    let fetched = ids.into_iter().zip(own.shard.fetch(wants).await?);
    Ok(fetched.filter_map(|(id, found)| found.map(|found| (id, found.local_seq, bodies(found.tree)))).collect())
}

/// A body that is certain to have been stored up to a sequence, as are all before it. A document that changed later
/// tells nothing of its older leaves; but bodies are numbered as they come.
async fn last_body(own: &OwnReplica, until: u64) -> Result<u64, ShardError> {
    let (mut old, mut new) = (0, u64::MAX);
    if until == 0 {
        return Ok(0);
    }
    if until >= own.epochs.opened_at() {
        old = own.shard.opened_body();
    }
    let mut start = Bound::Unbounded;
    loop {
        let page = own.shard.digests(start, Bound::Unbounded, limits::PAGE_ROWS).await?;
        // Of a replica that took over a half of another one bodies may have come in another order.
        let Some(last) = page.last() else { return Ok(old.min(new.saturating_sub(1))) };
        start = Bound::Excluded(last.id.clone());
        for (_, seq, leaves) in leaves_of(own, page.into_iter().map(|found| found.id).collect()).await? {
            let newest = leaves.into_iter().map(|(_, body)| body).max().unwrap_or(0);
            match seq <= until {
                true => old = old.max(newest),
                false => new = new.min(newest),
            }
        }
    }
}

impl TombstoneCollection<'_> {
    /// The nodes of the other replicas of a range that are members still.
    pub(in crate::coordinator) fn others_in(self, range: usize) -> Vec<String> {
        let others = self.replica_rebuild().others_of(&self.layout(), range);
        let is_passed_over = |node: &Arc<str>| mutated(Mutation::ForgetEarly) && self.context.rank(node) != Some(0);
        let counts = |node: &&Arc<str>| !self.context.is_gone(node) && !is_passed_over(node);
        others.iter().filter(counts).map(ToString::to_string).collect()
    }

    /// Refuses a caller that wants answers of a replica with that collection horizon, where this one has collected
    /// less.
    pub(in crate::coordinator) async fn check_horizon(self, range: usize, horizon: &Horizon) -> Result<(), String> {
        let own = async {
            let layout = self.layout();
            if range >= layout.map.numbers() {
                return Err(ShardError::Moved);
            }
            self.replicas().own_replica_to_fill(&layout, range).await?.ok_or(ShardError::Moved)?.shard.told().await
        };
        let told = own.await.map_err(|error| error.to_string())?;
        match told.done.covers(horizon) {
            true => Ok(()),
            false => Err("the replica has not collected what the asking one has".to_owned()),
        }
    }

    /// Writes down what `by` proposes to collect, if this replica takes part and has had it for long enough itself.
    pub(in crate::coordinator) async fn write_down(
        self,
        place: (usize, u64),
        replica: &OwnReplica,
        by: &str,
        proposal: Proposal<Tombstone>,
    ) -> Result<ProposalOutcome, ShardError> {
        match self.takes_part(place).await? {
            true => replica.shard.propose(by, proposal, self.aged_up_to(replica, true).await?).await,
            false => Ok(ProposalOutcome::Refused),
        }
    }

    /// What would become of a proposal of these tombstones here.
    pub(in crate::coordinator) async fn expects(
        self,
        place: (usize, u64),
        replica: &OwnReplica,
        tombstones: &[Tombstone],
    ) -> Result<ProposalOutcome, ShardError> {
        match self.takes_part(place).await? {
            true => replica.shard.expects(tombstones, self.aged_up_to(replica, false).await?).await,
            false => Ok(ProposalOutcome::Refused),
        }
    }

    /// Whether a round of `by` stands here, which all replicas have written down by now. Then all are read once more.
    pub(in crate::coordinator) async fn stands(
        self,
        place: (usize, u64),
        replica: &OwnReplica,
        by: &str,
        round: Round,
    ) -> Result<bool, ShardError> {
        let stands = self.takes_part(place).await? && replica.shard.confirm_round(by, round).await?;
        if stands {
            self.context.pull_soon(&self.name);
        }
        Ok(stands)
    }

    /// Whether this replica collects: both nodes go by one map, nothing moves, and this node is in sync.
    async fn takes_part(self, (range, version): (usize, u64)) -> Result<bool, ShardError> {
        let layout = self.layout();
        Ok(layout.placed.version == version
            && layout.placed.move_of(range).is_none()
            && self.context.own_state().in_sync
            && self.children(range).await?.is_none())
    }
}
