//! Keeping the copies of a range the same: each node takes in what the others have and it lacks.
//!
//! A node pulls when it meets another one, when it is told that a copy missed something, and now and then from copies
//! of databases that changed. It reads the other copy's purges, then its changes behind the position up to
//! which it knows it, compares leaves, and merges those that it lacks, with bodies and attachments. What was
//! purged here is not taken in. A node counts as in sync when it has pulled everything from all that it met; until
//! then it is the last to judge.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::events::EventKind;
use crate::coordinator::gossip::{CatalogueService, LearnError};
use crate::coordinator::message::{CatalogueCall, NodeState, Standing, SyncPoint};
use crate::coordinator::peers::{Service, Urgency};
use crate::coordinator::quorum::majority;
use crate::coordinator::range_copy::{OwnCopy, RangeCopy};
use crate::coordinator::read_quorum::merge_of_stored;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::seq::SeqEntry;
use crate::coordinator::serve::CopyService;
use crate::coordinator::{repair, sync_points};
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{ChangeRow, Edit, ShardError, Want};
use crate::storage::Direction;

impl Coordinator {
    /// Answers the other nodes from now on, and keeps up with them.
    pub(super) fn join_cluster(self: &Arc<Self>) {
        let (weak, context) = (Arc::downgrade(self), self.context());
        context.peers.serve(Service::Copy, Arc::new(CopyService(weak.clone())));
        context.peers.serve(Service::Catalogue, Arc::new(CatalogueService(weak.clone())));
        self.pour_aside();
        context.env.spawn(watch_nodes(weak.clone()));
        context.env.spawn(sync_missed(weak));
    }

    /// Notices who came and who went, and tells the others what changed here.
    fn look_around(self: &Arc<Self>, met: &mut BTreeSet<Arc<str>>, told: &mut NodeState) {
        let context = self.context();
        let others = context.others();
        let up: BTreeSet<Arc<str>> = others.iter().filter(|node| context.peers.is_up(node)).cloned().collect();
        met.difference(&up).for_each(|lost| context.lose(lost));
        let is_new = |node: &&Arc<str>| !met.contains(*node);
        let new: Vec<Arc<str>> = up.iter().filter(is_new).cloned().collect();
        if !others.is_empty() && (up.len() as u32) + 1 < majority(others.len() as u32 + 1) {
            // The others may go on without this node.
            context.in_sync.store(false, Ordering::Relaxed);
        }
        let own = context.own_state();
        let returns = told.maintenance && !own.maintenance;
        if returns {
            context.in_sync.store(false, Ordering::Relaxed);
        }
        for node in if returns { up.iter().cloned().collect() } else { new } {
            let coordinator = Arc::clone(self);
            context.env.spawn(async move { coordinator.meet(&node).await });
        }
        *met = up;
        let own = context.own_state();
        if own != *told {
            *told = own;
            self.tell_state();
        }
    }

    fn tell_state(&self) {
        let context = self.context();
        let up: Vec<Arc<str>> = context.others().into_iter().filter(|node| context.peers.is_up(node)).collect();
        drop(context.tell_all(&up, &CatalogueCall::State(context.own_state()), Urgency::Foreground));
    }

    /// Exchanges everything with a node that was not there before; tries again as long as it is there.
    async fn meet(self: Arc<Self>, node: &Arc<str>) {
        let context = self.context();
        while context.peers.is_up(node) {
            match self.try_meet(node).await {
                Ok(()) => {
                    if context.met(node) {
                        self.tell_state();
                    }
                    return;
                }
                Err(error) => tracing::info!(%node, %error, "a node is not in step with this one yet"),
            }
            context.env.sleep(limits::MEET_PAUSE).await;
        }
    }

    async fn try_meet(&self, node: &Arc<str>) -> Result<(), LearnError> {
        let context = self.context();
        let state = self.ask_catalogue(node, &CatalogueCall::State(context.own_state())).await?;
        context.set_state(node, Some(state));
        self.learn_from(node).await?;
        for name in self.database_names(&Default::default()) {
            if let Ok(database) = self.database(&name) {
                database.pull_from(node).await.map_err(|error| LearnError::Own(error.into()))?;
            }
        }
        Ok(())
    }

    /// Takes in databases, and ends of databases, that this node was not told of: a call that told of one may have come
    /// before the link was up, while the other direction has long met.
    pub(super) async fn learn_from_all(&self) {
        let context = self.context();
        for node in context.others().into_iter().filter(|node| context.peers.is_up(node)) {
            if let Err(error) = self.learn_from(&node).await {
                tracing::info!(%node, %error, "a node did not tell which databases it knows");
            }
        }
    }

    /// Takes in what this node's copies of a database miss, from all nodes that are there; has the others do so, too.
    async fn sync_database(&self, name: &str, tell: bool) {
        let context = self.context();
        let Ok(database) = self.database(name) else { return };
        let holders = database.holders();
        let others: Vec<Arc<str>> =
            holders.into_iter().filter(|node| *node != context.node && context.peers.is_up(node)).collect();
        if tell {
            drop(context.tell_all(&others, &CatalogueCall::Pull(name.to_owned()), Urgency::Background));
        }
        for node in others {
            if let Err(error) = database.pull_from(&node).await {
                tracing::info!(database = name, %node, %error, "copies are not in step yet");
            }
        }
    }
}

/// Until the coordinator goes.
async fn watch_nodes(weak: Weak<Coordinator>) {
    let (mut news, env) = match weak.upgrade() {
        Some(coordinator) => (coordinator.context().peers.watch(), coordinator.env().clone()),
        None => return,
    };
    let (mut met, mut told) = (BTreeSet::new(), NodeState::default());
    loop {
        let is_alone = match weak.upgrade() {
            Some(coordinator) => {
                coordinator.look_around(&mut met, &mut told);
                coordinator.context().others().is_empty()
            }
            None => return,
        };
        let changed = match is_alone {
            true => news.changed().await,
            false => env.timeout(limits::LOOK_AROUND, news.changed()).await.unwrap_or(Ok(())),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Until the coordinator goes: databases of which a copy missed something at once, those that changed, and the set of
/// databases, now and then.
async fn sync_missed(weak: Weak<Coordinator>) {
    let mut seen = 0;
    loop {
        let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
        let env = context.env.clone();
        let mut news = context.peers.watch();
        news.borrow_and_update();
        let noticed = context.missing.notified();
        let in_time = match context.others().is_empty() {
            // A node that was alone when it started may have others later.
            true => tokio::select! {
                biased;
                () = noticed => true,
                Ok(()) = news.changed() => continue,
            },
            false => env.timeout(limits::SYNC_PERIOD, noticed).await.is_ok(),
        };
        drop(context);
        let Some(coordinator) = weak.upgrade() else { return };
        let mut names: BTreeMap<String, bool> = coordinator.context().take_missed();
        if !in_time {
            coordinator.learn_from_all().await;
            let (events, last) = coordinator.events(seen);
            seen = last;
            let changed = events.into_iter().filter(|event| event.kind == EventKind::Updated);
            for event in changed {
                names.entry(event.name).or_insert(false);
            }
        }
        for (name, tell) in names {
            coordinator.sync_database(&name, tell).await;
        }
        drop(coordinator);
        env.sleep(limits::SYNC_PAUSE).await;
    }
}

impl Database {
    /// Takes in what the copies on a node have and those here lack.
    pub(super) async fn pull_from(&self, node: &Arc<str>) -> Result<(), ShardError> {
        for range in self.ranges() {
            if self.nodes_of(range).contains(node)
                && let Some(own) = self.own_copy(range).await?
            {
                let remote = RemoteCopy::new(&self.target, range, node).in_background();
                match self.pull_range(range, &own, &remote).await {
                    // It was deleted meanwhile.
                    Err(ShardError::Dropped) => return Ok(()),
                    done => done?,
                }
            }
        }
        Ok(())
    }

    async fn pull_range(&self, range: usize, own: &OwnCopy, remote: &RemoteCopy) -> Result<(), ShardError> {
        let known = sync_points::pulled(&own.shard, remote.node()).await?.unwrap_or_default();
        let (info, standing) = remote.info().await?;
        self.pull_locals(own, remote).await?;
        let is_same = (known.from_shard, known.from_epoch) == (standing.shard, standing.epoch);
        let purges = if is_same { known.purges } else { 0 };
        let purges = self.pull_purges(own, remote, purges, info.purge_seq).await?;
        let mut since = match is_same {
            true => known.from,
            false => {
                let SyncPoint { from_shard: shard, from_epoch: epoch, from: position, .. } = known;
                remote.resume(vec![SeqEntry { end: self.map().range(range).end, shard, epoch, position }]).await?
            }
        };
        let mut reached = since;
        while reached < standing.position {
            let page = remote.changes(since, Direction::Forward, limits::PAGE_ROWS, standing.epoch).await?;
            let is_last = page.rows.len() < limits::PAGE_ROWS.min(limits::STEP_ROWS) && page.pending_after == 0;
            for rows in page.rows.chunks(limits::DOCS_PER_FETCH) {
                self.pull_rows(own, remote, rows).await?;
            }
            (since, reached) = (page.last_seq, page.last_seq);
            self.note_pulled(own, remote, (standing, reached, purges)).await?;
            if is_last || page.rows.is_empty() {
                break;
            }
        }
        if reached == known.from && is_same && purges == known.purges {
            return Ok(());
        }
        let point = self.note_pulled(own, remote, (standing, reached, purges)).await?;
        remote.set_sync_point(point).await
    }

    async fn note_pulled(
        &self,
        own: &OwnCopy,
        remote: &RemoteCopy,
        (from, reached, purges): (Standing, u64, u64),
    ) -> Result<SyncPoint, ShardError> {
        let to = own.standing();
        let point = SyncPoint {
            from_shard: from.shard,
            from_epoch: from.epoch,
            from: reached,
            purges,
            to_shard: to.shard,
            to_epoch: to.epoch,
            to: to.position,
        };
        sync_points::set_pulled(&own.shard, remote.node(), point).await?;
        Ok(point)
    }

    /// Purges here what was purged there behind `since`; answers up to where.
    async fn pull_purges(
        &self,
        own: &OwnCopy,
        remote: &RemoteCopy,
        mut since: u64,
        until: u64,
    ) -> Result<u64, ShardError> {
        while since < until {
            let page = remote.purge_infos(since, limits::STEP_ROWS).await?;
            let Some(last) = page.last() else { return Ok(until) };
            since = last.purge_seq;
            own.shard.purge(page.into_iter().map(|info| (info.id, info.revs)).collect()).await?;
        }
        Ok(since)
    }

    async fn pull_locals(&self, own: &OwnCopy, remote: &RemoteCopy) -> Result<(), ShardError> {
        let mut after = Bound::Unbounded;
        loop {
            let page = remote.local_registers(after, limits::STEP_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Bound::Excluded(last.clone());
            let mut news = Vec::new();
            for (id, register) in page {
                let stamp = own.shard.local_register(&id).await?.map(|own| own.stamp);
                if stamp.is_none_or(|stamp| stamp < register.stamp) {
                    news.push((id, register));
                }
            }
            if !news.is_empty() {
                own.shard.local_merge(news).await?;
            }
        }
    }

    /// Takes in the leaves of changed documents that are not here.
    async fn pull_rows(&self, own: &OwnCopy, remote: &RemoteCopy, rows: &[ChangeRow]) -> Result<(), ShardError> {
        let wants = rows.iter().map(|row| (row.id.clone(), Want::Tree)).collect();
        let mut missing: Vec<(DocId, Want)> = Vec::new();
        for (row, fetched) in rows.iter().zip(own.shard.fetch(wants).await?) {
            let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
            let has = |rev: &Revision| tree.get(rev).is_some_and(|data| data.is_some());
            let revs: Vec<Revision> = row.leaves.iter().map(|(rev, _)| rev).filter(|rev| !has(rev)).cloned().collect();
            if !revs.is_empty() {
                missing.push((row.id.clone(), Want::Revisions { revs, latest: false }));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let ids: Vec<DocId> = missing.iter().map(|(id, _)| id.clone()).collect();
        let mut edits: Vec<Edit> = Vec::new();
        for (id, fetched) in ids.iter().zip(remote.fetch(missing).await?) {
            let Some(fetched) = fetched else { continue };
            for (rev, stored) in &fetched.found {
                // Changed meanwhile: the later change is read, too.
                let (Some(stored), Some(path)) = (stored, fetched.tree.path_to(rev)) else { continue };
                let deleted = fetched.tree.get(rev).flatten().is_some_and(|data| data.is_deleted());
                edits.extend(merge_of_stored(id, path, deleted, stored, self.revs_limit()));
            }
        }
        repair::merge_missing(&RangeCopy::Own(own.clone()), edits, remote).await
    }
}
