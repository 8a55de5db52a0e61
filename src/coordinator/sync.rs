//! Keeping the copies of a range the same: each node takes in what the others have and it lacks.
//!
//! A node compares its copies with those of another (`compare`) when it meets it and at long intervals, and takes in
//! what it lacks (`pull`); of single databases also when it is told that a copy missed something, and now and then of
//! those that changed. A node counts as in sync when it has pulled everything from all that it met; until then it is
//! the last to judge.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::events::EventKind;
use crate::coordinator::gossip::{CatalogueService, LearnError};
use crate::coordinator::message::{CatalogueCall, NodeState};
use crate::coordinator::peers::{Service, Urgency};
use crate::coordinator::quorum::majority;
use crate::coordinator::serve::CopyService;
use crate::limits;

impl Coordinator {
    /// Answers the other nodes from now on, and keeps up with them.
    pub(super) fn join_cluster(self: &Arc<Self>) {
        let (weak, context) = (Arc::downgrade(self), self.context());
        context.peers.serve(Service::Copy, Arc::new(CopyService(weak.clone())));
        context.peers.serve(Service::Catalogue, Arc::new(CatalogueService(weak.clone())));
        self.pour_aside();
        context.env.spawn(watch_nodes(weak.clone()));
        context.env.spawn(sync_missed(weak.clone()));
        context.env.spawn(learn_maps(weak));
    }

    /// Notices who came and who went, and tells the others what changed here.
    fn look_around(self: &Arc<Self>, met: &mut BTreeSet<Arc<str>>, told: &mut NodeState) {
        let context = self.context();
        let others = context.others();
        let up: BTreeSet<Arc<str>> = others.iter().filter(|node| context.peers.is_up(node)).cloned().collect();
        met.difference(&up).for_each(|lost| context.lose(lost));
        if met.difference(&up).next().is_some() {
            self.doubt_recent();
        }
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

    /// A node went away: what it had judged here it may not have brought to the other copies, who know nothing of that.
    /// They look at what changed lately.
    fn doubt_recent(&self) {
        let context = self.context();
        let (recent, _) = self.events(context.compared.load(Ordering::Relaxed));
        recent.iter().filter(|event| event.kind == EventKind::Updated).for_each(|event| context.missed(&event.name));
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
                    // Seen from there this one may never have been away, so that nothing was asked for.
                    self.remind(Arc::clone(node));
                    self.spread_system_databases().await;
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
        self.catch_up_with(node, false).await
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

    /// Compares all copies with those of the nodes that are there and in step, document by document where they differ.
    async fn compare_with_all(&self) {
        let context = self.context();
        for node in context.others().into_iter().filter(|node| context.rank(node) == Some(0)) {
            if let Err(error) = self.catch_up_with(&node, true).await {
                tracing::info!(%node, %error, "copies are not in step yet");
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
            if let Err(error) = database.pull_from(&node, false).await {
                tracing::debug!(database = name, %node, %error, "copies are not in step yet");
                context.pull_soon(name);
            }
        }
    }
}

/// Until the coordinator goes.
async fn watch_nodes(weak: Weak<Coordinator>) {
    let (mut news, mut settings, env) = match weak.upgrade() {
        Some(coordinator) => {
            let context = coordinator.context();
            (context.peers.watch(), context.config.watch(), context.env.clone())
        }
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
        let changed = tokio::select! {
            biased;
            changed = news.changed() => changed,
            // Maintenance is a setting.
            changed = settings.changed(), if !is_alone => changed,
            () = env.sleep(limits::LOOK_AROUND), if !is_alone => Ok(()),
        };
        if changed.is_err() {
            return;
        }
    }
}

/// Until the coordinator goes: maps of which a call showed that another node knows a later one.
async fn learn_maps(weak: Weak<Coordinator>) {
    loop {
        let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
        context.outdated.notified().await;
        let stale = context.take_stale();
        drop(context);
        let Some(coordinator) = weak.upgrade() else { return };
        for (name, node) in stale {
            if let Err(error) = coordinator.learn_map(&name, &node).await {
                tracing::debug!(database = name, %node, %error, "a map was not learned");
            }
        }
    }
}

/// Until the coordinator goes: databases of which a copy missed something at once, those that changed, and the set of
/// databases, now and then.
async fn sync_missed(weak: Weak<Coordinator>) {
    let (mut seen, mut compared) = (0, None);
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
            let since = compared.get_or_insert_with(|| env.now());
            if env.now().since(*since) >= limits::COMPARE_PERIOD {
                coordinator.compare_with_all().await;
                compared = Some(env.now());
            }
            coordinator.context().compared.store(seen, Ordering::Relaxed);
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
