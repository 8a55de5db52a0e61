//! Pull: reads from a replica on another node what this node's replica of the same range lacks, and applies it.
//!
//! The other replica says how it stands; where digests agree nothing more is read. Otherwise purges come first, so that
//! nothing that follows brings a purged revision back; then local documents; then documents: those that changed behind
//! the position up to which the other replica is known, or, where no position is known, those that differ, found by
//! digests of ever smaller ranges of ids. Revisions that were purged here are not applied, unless the other replica
//! heard of the purge and has them again.
//!
//! A replica that was restored from an old backup shows positions below those that other nodes have seen; it begins a
//! new epoch. If it missed purges whose records are gone, other nodes do not read it until it has purged what all of
//! them lack. A replica that was filled since knows which purges these are: it remembers the purges of the replicas
//! that filled it. Tombstone collection is settled before any of this (`collection_horizon`).

use std::ops::Bound;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::Pulls;
use crate::coordinator::anti_entropy::compare::{self, ALL};
use crate::coordinator::anti_entropy::restored::{self, Removed};
use crate::coordinator::read::quorum_read::merge_of_stored;
use crate::coordinator::replica::calls::{
    AppliedOf, Changes, Digests, Epochs, LocalRegisters, PurgeInfos, PurgesShared, Resume, SetSyncPoint, Split, Status,
};
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::epoch::with_told;
use crate::coordinator::replica::message::{
    AppliedState, ChangesCall, HeardPurges, IdRange, ReplicaPosition, Soundness, StatusReport, SyncPoint,
    is_unknown_call,
};
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{self, Origin};
use crate::coordinator::replica::sync_points;
use crate::coordinator::topology::record::Move;
use crate::coordinator::topology::seq::SeqEntry;
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::{
    DocumentDigest, Edit, EditOp, Fetched, IdRangeSummary, ShardChange, ShardError, SyncState, Want, Wants,
};
use crate::storage::{Direction, StorageError};
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};
use crate::world::task::Task;

impl Pulls<'_> {
    /// Applies what the replicas on a node have and those here lack, a few ranges at a time.
    pub(in crate::coordinator) async fn pull_from(self, node: &Arc<str>, thoroughly: bool) -> Result<(), ShardError> {
        let shared = self.ranges().into_iter().filter(|range| self.is_source(*range, node));
        let pull = |range| async move {
            match self.replicas().own_replica_to_fill(&self.layout(), range).await? {
                Some(own) => self.pull_range(range, own, node, thoroughly).await.map(drop),
                None => Ok(()),
            }
        };
        let done: Vec<Result<(), ShardError>> =
            stream::iter(shared.map(pull)).buffer_unordered(limits::PULLS_AT_ONCE).collect().await;
        // Each by itself: one that is damaged keeps no other from what it misses.
        match done.into_iter().find(Result::is_err).unwrap_or(Ok(())) {
            // It was deleted meanwhile.
            Err(ShardError::Dropped) => Ok(()),
            done => done,
        }
    }

    /// Whether a node has a replica of a range from which others may lack something: one that counts, or that leaves.
    fn is_source(self, range: usize, node: &Arc<str>) -> bool {
        let layout = self.layout();
        let leaves = layout.placed.move_of(range).is_some_and(|moved| moved.from.as_deref() == Some(node));
        leaves || layout.placed.nodes(range, &self.context.node).contains(node)
    }

    /// Applies all that the replica of a range on a node has now.
    pub(in crate::coordinator) async fn pull_replica(self, range: usize, node: &Arc<str>) -> Result<(), ShardError> {
        match self.pull_readable(range, node).await? {
            true => Ok(()),
            false => Err(away("the other replica cannot be read")),
        }
    }

    /// Applies what the replica of a range on a node has; false where not all of that can be read.
    pub(in crate::coordinator) async fn pull_readable(self, range: usize, node: &Arc<str>) -> Result<bool, ShardError> {
        let own = self.replicas().own_replica_to_fill(&self.layout(), range).await?.ok_or(ShardError::Moved)?;
        match self.pull_range(range, own, node, true).await? {
            Taken::All => Ok(true),
            Taken::Part => Ok(false),
            Taken::Nothing => Err(away("the other replica is to collect first what was collected here")),
        }
    }

    /// Applies what another replica has.
    async fn pull_range(
        self,
        range: usize,
        own: OwnReplica,
        node: &Arc<str>,
        thoroughly: bool,
    ) -> Result<Taken, ShardError> {
        let remote = RemoteReplica::new(&self.target, range, node).in_background();
        let (own, theirs) = (own.in_background(), remote.ask(Status).await?);
        if theirs.soundness == Some(Soundness::Unusable) {
            return Ok(Taken::Part);
        }
        let known = sync_points::pulled(&own.shard, node).await?.unwrap_or_default();
        let own_range = RangeReplica::Own(own.clone());
        let is_damaged = theirs.soundness == Some(Soundness::Damaged);
        let (heard, news, rounds, is_ahead, lags_behind) = (0, None, 0, false, false);
        let mut pull = Pull {
            database: self.database,
            range,
            own,
            own_range,
            remote,
            known,
            theirs,
            heard,
            news,
            rounds,
            is_ahead,
            lags_behind,
        };
        let done = pull.run(thoroughly).await;
        match done {
            // This replica misses nothing for that: the other one tells when it can be read.
            Err(error) if pull.is_ahead => {
                tracing::info!(database = self.name, range, %node, %error, "an old replica is not read yet");
                Ok(Taken::Nothing)
            }
            Err(error @ ShardError::Storage(StorageError::CorruptThere(_))) if is_damaged => {
                let database = &self.name;
                tracing::info!(database, range, %node, %error, "a damaged replica was read as far as it can be");
                Ok(Taken::Part)
            }
            done => done.map(|()| Taken::All),
        }
    }
}

/// What was applied of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    All,
    /// What can be read: nothing else is to be had there until it was rebuilt.
    Part,
    /// Nothing: it is restored from an old backup, and is to collect first what was collected here.
    Nothing,
}

/// One replica reading another.
pub(in crate::coordinator) struct Pull<'a> {
    pub(in crate::coordinator) database: &'a Arc<Database>,
    pub(in crate::coordinator) range: usize,
    pub(in crate::coordinator) own: OwnReplica,
    own_range: RangeReplica,
    pub(in crate::coordinator) remote: RemoteReplica,
    /// How far this replica has applied the other one before.
    known: SyncPoint,
    pub(in crate::coordinator) theirs: StatusReport,
    /// How many purges of this replica it has applied.
    heard: u64,
    /// What is known of its epochs, to be noted with the next point.
    news: Option<Vec<(u64, u64)>>,
    /// How often something was collected here when both replicas had collected the same.
    pub(in crate::coordinator) rounds: u64,
    /// Whether the other one has yet to collect what was collected here and knows nothing of that: restored from an old
    /// backup.
    pub(in crate::coordinator) is_ahead: bool,
    /// Whether the other one has yet to collect what was collected here, and has written it down.
    pub(in crate::coordinator) lags_behind: bool,
}

impl Pull<'_> {
    async fn run(&mut self, thoroughly: bool) -> Result<(), ShardError> {
        self.keep_epoch().await?;
        let mine = self.own.shard.state().await?;
        if mine.rounds == 0 && self.theirs.rounds == 0 {
            self.own.shard.meet(self.remote.node(), &self.others()).await?;
            return self.pull_and_apply(&mine, thoroughly).await;
        }
        let met = self.keep_horizon().await?;
        self.pull_and_apply(&self.own.shard.state().await?, thoroughly).await?;
        self.note_taken(met).await
    }

    async fn pull_and_apply(&mut self, mine: &SyncState, thoroughly: bool) -> Result<(), ShardError> {
        let before = self.known;
        let has_made_up = self.make_up(mine).await?;
        let told = match self.is_same_shard() {
            true => sync_points::epochs_of(&self.own.shard, self.remote.node()).await?,
            false => Vec::new(),
        };
        let is_told = self.hear_epochs(&told).await?;
        self.heard = self.heard_there().await?;
        let purges = self.pull_purges(self.purges_known(&told).await?).await?;
        self.note_purges(purges, has_made_up).await?;
        if compare::locals_digest(&self.own.shard).await? != self.theirs.locals {
            self.pull_locals().await?;
        }
        let mine = self.own.shard.state().await?;
        let mut to = ReplicaPosition { position: mine.position, ..self.own.replica_position() };
        if mine.total.digest != self.theirs.digest {
            self.pull_documents(mine.total.documents(), purges).await?;
            if thoroughly && self.own.shard.state().await?.total.digest != self.remote.ask(Status).await?.digest {
                self.narrow().await?;
            }
            to = self.own.replica_position();
        }
        let reached = self.theirs.replica_position.position;
        if !self.is_known() || (before.from, before.purges) != (reached, purges) {
            let point = self.note(reached, purges, to).await?;
            self.remote.ask(SetSyncPoint(point)).await?;
        }
        if is_told { self.confirm().await } else { Ok(()) }
    }

    /// Asks for the epochs of the other replica, if there are some that it has not told: no point in them is noted
    /// without them, for they tell it how far it was read should it be restored from an old backup one day. Answers
    /// whether they are known.
    async fn hear_epochs(&mut self, told: &[(u64, u64)]) -> Result<bool, ShardError> {
        let is_told = |wanted: u64| told.iter().any(|(epoch, _)| *epoch == wanted);
        let (now, from) = (self.theirs.replica_position.epoch, self.known.from_epoch);
        if is_told(now) && (from == 0 || is_told(from)) {
            return Ok(true);
        }
        let list = match self.remote.ask(Epochs).await {
            Err(error) if is_unknown_call(&error) => return Ok(false),
            list => list?,
        };
        if list.last().is_none_or(|(epoch, _)| *epoch != now) {
            return Err(away("the other replica began another epoch"));
        }
        self.news = Some(with_told(told, &list)).filter(|news| *news != told);
        Ok(true)
    }

    /// Up to which of its purges the other replica was applied. Those that it did since it was restored from a backup
    /// may have numbers that others had before; and those that were applied are not to be done again, for what they
    /// removed may have been written again, and the records here may be gone.
    async fn purges_known(&self, told: &[(u64, u64)]) -> Result<u64, ShardError> {
        let (known, now) = (self.known, self.theirs.replica_position.epoch);
        if !self.is_same_shard() || known.purges == 0 {
            return Ok(0);
        }
        if told.iter().any(|(epoch, _)| *epoch == now) || told.is_empty() && self.is_known() {
            return Ok(known.purges);
        }
        let of_before = [(known.from_epoch, 0)];
        match self.remote.ask(PurgesShared(if told.is_empty() { of_before.to_vec() } else { told.to_vec() })).await {
            Ok(Some(shared)) => Ok(known.purges.min(shared)),
            // It has kept no number since its build was an older one.
            Ok(None) if self.is_known() || self.position_there().await? >= known.from => Ok(known.purges),
            Ok(None) => Ok(0),
            Err(error) if !is_unknown_call(&error) => Err(error),
            // It says only whether it is the replica that was read.
            Err(_) if self.position_there().await? >= known.from => Ok(known.purges),
            Err(_) => Err(away("the other replica was restored and waits for a later version of its node")),
        }
    }

    /// Notes which purges this replica has heard of: known at once, for the other replica may wait with what follows
    /// until then. `has_made_up`: it holds nothing of what that one and those that it heard of removed.
    async fn note_purges(&mut self, purges: u64, has_made_up: bool) -> Result<(), ShardError> {
        let (node, theirs, known) = (self.remote.node(), &self.theirs, self.known);
        if has_made_up {
            let of = |shard, purges, floor| HeardPurges { node: node.to_string(), shard, purges, floor };
            let mut heard = vec![of(known.from_shard, known.purges, 0)];
            heard.push(of(theirs.replica_position.shard, purges, theirs.purge_floor));
            heard.extend(theirs.heard.iter().flatten().filter(|heard| !self.is_here(heard)).cloned());
            sync_points::note_heard(&self.own.shard, heard).await?;
        }
        if self.is_same_shard() && (purges != known.purges || self.news.is_some()) {
            self.known = SyncPoint { purges, ..known };
            self.keep(self.known).await?;
        }
        Ok(())
    }

    fn is_here(&self, heard: &HeardPurges) -> bool {
        *heard.node == *self.database.context.node
    }

    /// Notes how many purges of this replica the other one had applied at the position up to which it was read now.
    /// Their records may go: a replica of an earlier time that holds what was purged holds nothing else that was not
    /// read.
    async fn confirm(&self) -> Result<(), ShardError> {
        sync_points::set_purges_taken(&self.own.shard, self.remote.node(), self.heard).await
    }

    /// How many purges of this replica the other one has applied. What it has applied of the one that this replica was
    /// before it was restored from a backup counts only as far as both have it in common: this one may have given the
    /// numbers again.
    async fn heard_there(&self) -> Result<u64, ShardError> {
        let taken = self.theirs.taken.filter(|taken| taken.from_shard == self.own.origin && taken.purges > 0);
        let Some(SyncPoint { from_epoch, purges, .. }) = taken else { return Ok(0) };
        if from_epoch == self.own.replica_position().epoch {
            return Ok(purges);
        }
        let AppliedState { point, epochs, .. } =
            match self.remote.ask(AppliedOf(self.database.context.node.to_string())).await {
                Err(error) if is_unknown_call(&error) => return Ok(purges),
                taken => taken?,
            };
        // It may have read this replica again since it told how it stands.
        let again = point.filter(|point| point.from_shard == self.own.origin).map_or(0, |point| point.purges);
        let shared = if epochs.is_empty() { None } else { self.own.epochs.purges_shared(&epochs) };
        Ok(purges.min(again).min(shared.unwrap_or(u64::MAX)))
    }

    /// Whether what is known of the other replica is of the shard that it has now.
    fn is_same_shard(&self) -> bool {
        self.known.from_shard == self.theirs.replica_position.shard
    }

    /// Whether what is known of the other replica is a position that it still has.
    fn is_known(&self) -> bool {
        let theirs = self.theirs.replica_position;
        (self.known.from_shard, self.known.from_epoch) == (theirs.shard, theirs.epoch_of(self.known.from))
    }

    /// Begins a new epoch when the other replica has seen positions of this one that it never reached.
    async fn keep_epoch(&self) -> Result<(), ShardError> {
        let (own, Some(seen)) = (self.own.replica_position(), self.theirs.taken) else { return Ok(()) };
        let is_own = (seen.from_shard, seen.from_epoch) == (own.shard, own.epoch);
        if !is_own || seen.from <= own.position || mutated(Mutation::PositionReused) {
            return Ok(());
        }
        let (range, name) = (self.range, &self.database.name);
        tracing::warn!(
            database = name,
            range,
            "a replica shows less than other nodes have seen of it: a new epoch begins"
        );
        sometimes("cluster: a replica began a new epoch for others had seen more of it");
        self.own.epochs.renew(&self.own.shard, &self.database.context.env, own.epoch).await
    }

    /// Purges what was removed with no record of that left, where this replica did not hear of it; fails where the
    /// other one is to do so first. False where each misses something: nobody knows more than the other then, and
    /// nothing is lost on a guess.
    async fn make_up(&self, mine: &SyncState) -> Result<bool, ShardError> {
        let (missed, they_miss) = (self.missed_here(mine).await?, self.is_missed_there(mine).await?);
        if they_miss && missed.is_empty() {
            return Err(away("a restored replica holds what was purged since and is to purge it first"));
        }
        for removed in missed.iter().filter(|_| !they_miss) {
            restored::purge_what_all_lack(self.database, self.range, &self.own, removed).await?;
        }
        Ok(!they_miss)
    }

    /// What was removed, with no record of that left, and this replica may hold.
    async fn missed_here(&self, mine: &SyncState) -> Result<Vec<Removed>, ShardError> {
        let (mut missed, theirs) = (Vec::new(), &self.theirs);
        // One that was empty when it was opened has everything from the others, who had heard of all purges.
        if self.own.epochs.opened_at() == 0 || mine.total.documents() == 0 {
            return Ok(missed);
        }
        let heard = sync_points::heard(&self.own.shard).await?;
        let of = |node: &str, shard, floor| Removed { by: node.into(), shard, floor };
        let mut removed = vec![of(self.remote.node(), theirs.replica_position.shard, theirs.purge_floor)];
        let told = theirs.heard.iter().flatten().filter(|heard| !self.is_here(heard));
        removed.extend(told.map(|heard| of(&heard.node, heard.shard, heard.floor)));
        for removed in removed {
            let Removed { by, shard, floor } = &removed;
            let has_heard = AppliedState::of(&heard, by).has_heard(*shard, *floor)
                || sync_points::applied_of(&self.own.shard, by).await?.has_heard(*shard, *floor);
            if !has_heard {
                missed.push(removed);
            }
        }
        Ok(missed)
    }

    /// Whether the other replica may hold what was removed with no record of that left, by this one or by others that
    /// this one has heard of.
    async fn is_missed_there(&self, mine: &SyncState) -> Result<bool, ShardError> {
        let theirs = &self.theirs;
        if theirs.documents == 0 {
            return Ok(false);
        }
        let told = theirs.heard.as_deref();
        let here = AppliedState {
            point: theirs.taken,
            ..AppliedState::of(told.unwrap_or_default(), &self.database.context.node)
        };
        if !here.has_heard(self.own.origin, mine.purge_floor) {
            return Ok(true);
        }
        // One of an older build does not know that it is to purge anything.
        let Some(told) = told else { return Ok(false) };
        let removed = sync_points::heard(&self.own.shard).await?.into_iter().filter(|heard| heard.floor > 0);
        for HeardPurges { node, shard, floor, .. } in removed.filter(|heard| *heard.node != **self.remote.node()) {
            let has_heard = AppliedState::of(told, &node).has_heard(shard, floor)
                || self.remote.ask(AppliedOf(node.to_string())).await?.has_heard(shard, floor);
            if !has_heard && !self.is_missed_by(&node.into()).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether the replica of a third node did not hear of what the other one removed with no record of that left:
    /// neither of those two knows more than the other then.
    async fn is_missed_by(&self, node: &Arc<str>) -> Result<bool, ShardError> {
        let (shard, floor) = (self.theirs.replica_position.shard, self.theirs.purge_floor);
        let context = &self.database.context;
        if floor == 0 || context.is_gone(node) || !self.database.replicas().nodes_of(self.range).contains(node) {
            return Ok(false);
        }
        let third = RemoteReplica::new(&self.database.target, self.range, node).in_background();
        Ok(!third.ask(AppliedOf(self.remote.node().to_string())).await?.has_heard(shard, floor))
    }

    async fn note(&mut self, reached: u64, purges: u64, to: ReplicaPosition) -> Result<SyncPoint, ShardError> {
        let from = self.theirs.replica_position;
        let point = SyncPoint {
            from_shard: from.shard,
            from_epoch: from.epoch_of(reached),
            from: reached,
            purges,
            to_shard: to.shard,
            to_epoch: to.epoch_of(to.position),
            to: to.position,
        };
        self.keep(point).await?;
        Ok(point)
    }

    /// Stores a point, with the epochs that were heard of since the last one.
    async fn keep(&mut self, point: SyncPoint) -> Result<(), ShardError> {
        let news = self.news.take();
        sync_points::set_pulled(&self.own.shard, self.remote.node(), point, news.as_deref()).await
    }

    /// Purges here what was purged there behind `since`; answers up to where.
    async fn pull_purges(&self, mut since: u64) -> Result<u64, ShardError> {
        let until = self.theirs.purge_seq;
        if mutated(Mutation::PurgeNotSpread) {
            return Ok(until);
        }
        while since < until {
            let most = fewer("pull: one purge at a time", limits::STEP_ROWS);
            let page = self.remote.ask(PurgeInfos { since, limit: most as u64 }).await?;
            let Some(last) = page.last() else { break };
            since = last.purge_seq;
            let here = repair::purged_here(&self.own.shard, 0, page.iter().map(|info| &info.id)).await?;
            let is_new = |id: &DocId, rev: &Revision| !here.contains(&(id.clone(), rev.clone()));
            let mut fresh = page;
            for info in &mut fresh {
                info.revs.retain(|rev| is_new(&info.id, rev));
                info.history.retain(|rev| is_new(&info.id, rev));
            }
            fresh.retain(|info| info.gone().next().is_some());
            self.own.shard.purge_as(fresh).await?;
        }
        Ok(until)
    }

    async fn pull_locals(&self) -> Result<(), ShardError> {
        let mut after = Bound::Unbounded;
        loop {
            let page = self.remote.ask(LocalRegisters { after, limit: limits::STEP_ROWS as u64 }).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Bound::Excluded(last.clone());
            let mut news = Vec::new();
            for (id, register) in page {
                let stamp = self.own.shard.local_register(&id).await?.map(|own| own.stamp);
                if stamp.is_none_or(|stamp| stamp < register.stamp) {
                    news.push((id, register));
                }
            }
            if !news.is_empty() {
                self.own.shard.local_merge(news).await?;
            }
        }
    }

    /// Applies the documents that changed since the other replica was read last; those that differ, where it is not
    /// known when that was. A replica without any of its own applies all.
    async fn pull_documents(&mut self, documents: u64, purges: u64) -> Result<(), ShardError> {
        let since = match self.is_known() {
            true => self.known.from,
            false => self.position_there().await?,
        };
        match since == 0 && documents > 0 {
            true => self.narrow().await,
            false => self.pull_changes(since, purges).await,
        }
    }

    /// The position of the other replica up to which what it has was applied.
    async fn position_there(&self) -> Result<u64, ShardError> {
        let SyncPoint { from_shard: shard, from_epoch: epoch, from: position, .. } = self.known;
        let end = self.database.map().range(self.range).end;
        self.remote.ask(Resume(vec![SeqEntry { end, shard, epoch, position }])).await
    }

    async fn pull_changes(&mut self, mut since: u64, purges: u64) -> Result<(), ShardError> {
        let ReplicaPosition { epoch, position: until, .. } = self.theirs.replica_position;
        let (task, begun_at) = ((since < until).then(|| begin_task(self, until - since)), since);
        while since < until {
            let limit = limits::PAGE_ROWS as u64;
            let page =
                self.remote.ask(Changes(ChangesCall { since, direction: Direction::Forward, limit, epoch })).await?;
            self.pull_rows(&page.rows).await?;
            since = page.last_seq;
            task.iter().for_each(|task| task.done(since.saturating_sub(begun_at)));
            self.note(since, purges, self.own.replica_position()).await?;
            if page.rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Applies the documents in which the other replica differs.
    async fn narrow(&mut self) -> Result<(), ShardError> {
        sometimes("cluster: replicas differed and were narrowed down");
        let task = begin_task(self, self.theirs.documents);
        let mut open: Vec<IdRange> = vec![ALL];
        while !open.is_empty() {
            let asked = open.split_off(open.len().saturating_sub(limits::SPLITS_PER_CALL));
            for parts in self.remote.ask(Split(asked)).await? {
                let is_whole = parts.len() == 1;
                for (n, part) in parts.into_iter().enumerate() {
                    let skipped = n == 0 && mutated(Mutation::DigestSkipsLeaf);
                    let documents = part.summary.documents();
                    if skipped || documents == 0 {
                        continue;
                    }
                    let Some(lacking) = self.lacks(&part).await? else {
                        task.add(documents);
                        continue;
                    };
                    let range = (part.start, part.end);
                    let listed = fewer("compare: documents told one by one", limits::DIGESTS_LISTED as usize) as u64;
                    let is_thin = lacking >= documents.div_ceil(limits::DIGESTS_LISTED_SHARE);
                    match is_whole || is_thin || documents <= listed {
                        true => {
                            self.pull_listed(range).await?;
                            task.add(documents);
                        }
                        false => open.push(range),
                    }
                }
            }
        }
        Ok(())
    }

    /// By how many documents this replica has fewer in a part of the other; `None`: it holds the same there.
    async fn lacks(&self, part: &IdRangeSummary) -> Result<Option<u64>, ShardError> {
        let mine = self.own.shard.summary(part.start.clone(), part.end.clone()).await?;
        let (digest, documents) = (part.summary.digest, part.summary.documents());
        let is_same = (mine.digest, mine.documents()) == (digest, documents);
        Ok((!is_same).then(|| documents.saturating_sub(mine.documents())))
    }

    /// Applies the documents of a range of ids.
    async fn pull_listed(&mut self, (mut start, end): IdRange) -> Result<(), ShardError> {
        let limit = limits::PAGE_ROWS;
        loop {
            let listed = self.remote.ask(Digests((start, end.clone()), limit as u64)).await?;
            let row = |found: DocumentDigest| ShardChange { seq: found.local_seq, id: found.id, leaves: found.leaves };
            let rows: Vec<ShardChange> = listed.into_iter().map(row).collect();
            self.pull_rows(&rows).await?;
            match rows.last() {
                Some(last) if rows.len() == limit => start = Bound::Excluded(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Applies the leaves of documents that are not here.
    async fn pull_rows(&mut self, rows: &[ShardChange]) -> Result<(), ShardError> {
        let wants = rows.iter().map(|row| (row.id.clone(), Want::Tree)).collect();
        let mut missing: Vec<(DocId, Want)> = Vec::new();
        for (row, fetched) in rows.iter().zip(self.own.shard.fetch(wants).await?) {
            let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
            let has = |rev: &Revision| tree.get(rev).is_some_and(|data| data.is_some());
            let most = if mutated(Mutation::RepairDropsSibling) { 1 } else { usize::MAX };
            let theirs = row.leaves.iter().take(most).map(|(rev, _)| rev);
            let revs: Vec<Revision> = theirs.filter(|rev| !has(rev)).cloned().collect();
            if !revs.is_empty() {
                missing.push((row.id.clone(), Want::Revisions { revs, latest: false }));
            }
        }
        if self.begins_at_end() {
            missing.reverse();
        }
        self.pull_leaves(missing.into()).await
    }

    /// Whether a page of the other replica is read from its end. Two replicas are often read at once: they meet in the
    /// middle, for what one pull brought the other does not ask for.
    fn begins_at_end(&self) -> bool {
        let nodes = self.database.replicas().nodes_of(self.range);
        let others = nodes.iter().filter(|node| **node != self.database.context.node);
        others.take_while(|node| *node != self.remote.node()).count() % 2 == 1
    }

    /// Applies leaves, few enough at a time for the memory that all pulls share: those that are large alone.
    async fn pull_leaves(&self, mut missing: Wants) -> Result<(), ShardError> {
        let usual = fewer("pull: room for one byte", limits::PULL_BYTES);
        let (mut bytes, mut is_first) = (usual, true);
        while !missing.is_empty() {
            let (budgets, is_large) = (&self.database.context.budgets, bytes > usual);
            let most = if is_large { 1 } else { fewer("pull: one document at a time", limits::DOCS_PER_PULL) };
            let asked: Vec<(DocId, Want)> = missing.iter().take(most).cloned().collect();
            // Replicas on two nodes are often read at once: a large document comes from one of them.
            let _alone = if is_large { Some(budgets.large_of(self.own.shard.id().0).lock().await) } else { None };
            let _held = budgets.pulled.take(bytes.saturating_mul(limits::PULL_MEMORY_FACTOR)).await;
            // Another pull may have brought them meanwhile.
            let had = if std::mem::take(&mut is_first) { 0 } else { self.had(&asked).await? };
            if had > 0 {
                missing.drain(..had);
                bytes = usual;
                continue;
            }
            let part = self.remote.fetch_some(&asked, bytes).await?;
            if part.found.is_empty() {
                // Its leaves one by one, if it has several of them.
                bytes = if divide(&mut missing) { usual } else { part.needs };
                continue;
            }
            let ids: Vec<DocId> = missing.drain(..part.found.len()).map(|(id, _)| id).collect();
            self.merge(&ids, part.found).await?;
            bytes = usual;
        }
        Ok(())
    }

    /// Of how many of the first documents this replica has all leaves by now.
    async fn had(&self, wants: &[(DocId, Want)]) -> Result<usize, ShardError> {
        let trees = wants.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
        let has = |((_, want), fetched): &(&(DocId, Want), Option<Fetched>)| match (want, fetched) {
            (Want::Revisions { revs, .. }, Some(fetched)) => {
                revs.iter().all(|rev| fetched.tree.get(rev).is_some_and(|data| data.is_some()))
            }
            _ => false,
        };
        Ok(wants.iter().zip(self.own.shard.fetch(trees).await?).take_while(has).count())
    }

    async fn merge(&self, ids: &[DocId], found: Vec<Option<Fetched>>) -> Result<(), ShardError> {
        let mut edits: Vec<Edit> = Vec::new();
        for (id, fetched) in ids.iter().zip(found) {
            let Some(fetched) = fetched else { continue };
            for (rev, stored) in &fetched.found {
                // Changed meanwhile: the later change is read, too.
                let (Some(stored), Some(path)) = (stored, fetched.tree.path_to(rev)) else { continue };
                let deleted = fetched.tree.get(rev).flatten().is_some_and(|data| data.is_deleted());
                edits.extend(merge_of_stored(id, path, deleted, stored, self.database.revs_limit()));
            }
        }
        if mutated(Mutation::TombstoneForgotten) {
            edits.retain(|edit| !edit.deleted);
        }
        if self.lags_behind {
            let markers = self.own.shard.markers_of(edits.iter().map(|edit| edit.id.clone()).collect()).await?;
            edits.retain(|edit| match &edit.op {
                EditOp::Merge { path } if edit.deleted => markers.get(&edit.id) != Some(&path.head()),
                _ => true,
            });
        }
        let origin = Origin::Replica { rounds: self.rounds, heard: self.heard };
        let count = edits.len();
        let (is_unfilled, unread) = (self.is_unfilled(), self.is_unread().then(|| edits.clone()));
        let mut merged = repair::merge_missing(&self.own_range, edits, &self.remote, origin).await?;
        if let Some(edits) = unread.filter(|_| merged < count) {
            // What it purged since then it may have purged after it told what it has.
            let numbers = (origin, self.theirs.purge_seq);
            merged = repair::merge_written_again(&self.own.shard, edits, &self.remote, numbers).await?;
        }
        // One that leaves purges nothing any more: what was purged here goes with it. To one that is not filled nobody
        // listens: the other replica hears of its purges, and does them, once it is.
        match merged == count || self.leaves() || is_unfilled {
            true => Ok(()),
            false => Err(away("the other replica holds what was purged here and is to purge it first")),
        }
    }

    fn is_unfilled(&self) -> bool {
        self.database.context.status.rebuilds.is_filling(self.own.shard.id().0)
    }

    /// Whether the other replica does not read this one, so that it hears of no purge from here: it is not filled yet,
    /// or on its way.
    fn is_unread(&self) -> bool {
        let (layout, node) = (self.database.layout(), &self.database.context.node);
        let arrives = |moved: &Move| !moved.leaving && moved.to.as_deref() == Some(&**node);
        self.is_unfilled() || layout.placed.move_of(self.range).is_some_and(arrives)
    }

    /// Whether the place of the other replica was taken by another one.
    fn leaves(&self) -> bool {
        let layout = self.database.layout();
        let leaves = |moved: &Move| moved.leaving && moved.from.as_deref() == Some(&**self.remote.node());
        layout.placed.move_of(self.range).is_some_and(leaves)
    }
}

/// Lists a pull among the tasks of the node; `total`: the changes, or the documents, that are to be looked at.
fn begin_task(pull: &Pull<'_>, total: u64) -> Task {
    let kind = match (pull.is_unfilled(), pull.is_unread()) {
        (true, _) => TaskKind::ReplicaRebuild,
        (false, true) => TaskKind::ReplicaMove,
        (false, false) => TaskKind::ReplicaPull,
    };
    let database = pull.database;
    let subject = Subject::new(kind, &database.name).range(database.map().range(pull.range)).peer(pull.remote.node());
    database.context.env.begin_task(subject, Some(total))
}

/// Cuts the first want into one for each revision that it names; false where it names only one.
fn divide(wants: &mut Wants) -> bool {
    match wants.front() {
        Some((_, Want::Revisions { revs, .. })) if revs.len() > 1 => {}
        _ => return false,
    }
    let Some((id, Want::Revisions { revs, latest })) = wants.pop_front() else { return false };
    for rev in revs.into_iter().rev() {
        wants.push_front((id.clone(), Want::Revisions { revs: vec![rev], latest }));
    }
    true
}

pub(in crate::coordinator) fn away(why: &str) -> ShardError {
    ShardError::NotExecuted(why.to_owned())
}
