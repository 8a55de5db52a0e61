//! The anti-entropy loop of a node: which databases are compared with which node, and when.
//!
//! A node compares its replicas with those of another node when the two connect and every `COMPARE_PERIOD` (`compare`),
//! and pulls what it lacks (`pull`). A single database is compared when somebody reports that one of its replicas
//! missed a write, and every `SYNC_PERIOD` after it changed. A node is in sync when it has pulled everything from every
//! node that is up; until then its replicas stand last in the order of primaries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::RepairOperations;
use crate::coordinator::consensus::gossip::LearnError;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::node_calls::{CatalogueCall, NodeState};
use crate::coordinator::topology::events::EventKind;
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::write::WriteOperations;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::observe::workers::Worker;
use crate::world::{BoxFuture, Instant};

/// The nodes that are up, with the numbers of the connections to them.
type Connections = BTreeMap<Arc<str>, u64>;

/// The nodes of `some` whose connections are not among `others`.
fn without(some: &Connections, others: &Connections) -> BTreeSet<Arc<str>> {
    some.iter().filter(|(node, number)| others.get(*node) != Some(*number)).map(|(node, _)| Arc::clone(node)).collect()
}

/// What the last look at the other nodes found.
#[derive(Default)]
struct Seen {
    /// The nodes that were up.
    met: Connections,
    /// What this node told of itself.
    told: NodeState,
    /// Whether this node and those make a majority of the members.
    has_majority: bool,
}

impl Coordinator {
    /// Notices who came and who went, and tells the others what changed here.
    fn look_around(self: &Arc<Self>, seen: &mut Seen, stood_still: bool, worker: &Arc<Worker>) {
        let (context, Seen { met, told, has_majority }) = (self.context(), seen);
        let others = context.others();
        let connected = |node: &Arc<str>| Some((Arc::clone(node), context.peers.connection(node)?));
        let up: Connections = others.iter().filter_map(connected).collect();
        // A connection that broke and was made again since the last look is another one.
        let lost: BTreeSet<Arc<str>> = without(met, &up);
        lost.iter().for_each(|lost| context.lose(lost));
        // While this node stood still any of them may have gone and come back.
        for lost in met.keys().filter(|node| stood_still || lost.contains(*node)) {
            // What it had decided here it may not have brought to the other replicas.
            context.status.in_doubt.take(lost).iter().for_each(|database| context.lagging(database));
        }
        let new = without(&up, met);
        let is_cut_off = !others.is_empty() && (up.len() as u32) + 1 < majority(others.len() as u32 + 1);
        if is_cut_off {
            // The others may go on without this node.
            context.status.in_sync.suspend();
        }
        if is_cut_off && *has_majority {
            let (up, members) = (up.len() + 1, others.len() + 1);
            tracing::warn!(up, members, "this node lost the majority of the members: it is not in sync");
        }
        *has_majority = !is_cut_off;
        let own = context.own_state();
        if own.maintenance || told.maintenance || stood_still {
            context.status.in_sync.was_absent();
        }
        let returns = told.maintenance && !own.maintenance;
        for node in if returns || stood_still { up.keys().cloned().collect() } else { new } {
            let (coordinator, worker) = (Arc::clone(self), Arc::clone(worker));
            context.env.spawn(async move { coordinator.meet(&node, &worker).await });
        }
        *met = up;
        let own = context.own_state();
        if own != *told {
            *told = own;
            self.tell_state();
        }
    }

    /// Tells the other nodes what this one says of itself.
    pub(in crate::coordinator) fn tell_state(&self) {
        let context = self.context();
        let up: Vec<Arc<str>> = context.others().into_iter().filter(|node| context.peers.is_up(node)).collect();
        drop(context.tell_all(&up, &CatalogueCall::State(context.own_state()), Urgency::Foreground));
    }

    /// Exchanges everything with a node that was not there before; tries again as long as it is there.
    async fn meet(self: Arc<Self>, node: &Arc<str>, worker: &Worker) {
        let context = self.context();
        while context.peers.is_up(node) {
            let begun = context.status.in_sync.begin(node);
            context.status.in_sync.tries(node);
            match self.try_meet(node).await {
                Ok(()) => {
                    // Seen from there this one may never have been away, so that nothing was asked for.
                    self.remind(Arc::clone(node));
                    let all_begun = self.spread_system_databases().await;
                    if context.compared(node, begun) {
                        tracing::info!("this node is in sync with all nodes that are up");
                        self.tell_state();
                    }
                    if !all_begun {
                        self.spread_later(node).await;
                    }
                    return;
                }
                Err(error) => {
                    context.status.in_sync.failed(node, &error);
                    worker.failed(&format_args!("comparison with {node}: {error}"));
                    tracing::info!(%node, %error, "this node is not in sync with another one yet");
                }
            }
            context.env.sleep(limits::MEET_PAUSE).await;
        }
    }

    /// Begins later what could not be begun when a node was met, as where both changed a map at once.
    async fn spread_later(&self, node: &Arc<str>) {
        let context = self.context();
        let mut pause = limits::MOVE_PAUSE;
        while pause <= limits::REBALANCE_PAUSE_MAX {
            context.env.sleep(pause).await;
            if !context.peers.is_up(node) || self.spread_system_databases().await {
                return;
            }
            pause *= 2;
        }
    }

    async fn try_meet(&self, node: &Arc<str>) -> Result<(), LearnError> {
        let context = self.context();
        let state = self.ask_catalogue(node, &CatalogueCall::State(context.own_state())).await?;
        context.set_state(node, Some(state));
        self.learn_from(node).await?;
        self.catch_up_with(node, false).await
    }

    /// Applies databases, and ends of databases, that this node was not told of: a call that told of one may have come
    /// before the link was up, while the other direction has long met.
    pub(in crate::coordinator) async fn learn_from_all(&self) {
        let context = self.context();
        for node in context.others().into_iter().filter(|node| context.peers.is_up(node)) {
            if let Err(error) = self.learn_from(&node).await {
                tracing::info!(%node, %error, "a node did not tell which databases it knows");
            }
        }
    }

    /// Compares all replicas with those of the nodes that are there and in sync, document by document where they
    /// differ.
    async fn compare_with_all(&self, worker: &Worker) {
        let context = self.context();
        for node in context.others().into_iter().filter(|node| context.rank(node) == Some(0)) {
            if let Err(error) = self.catch_up_with(&node, true).await {
                worker.failed(&format_args!("comparison with {node}: {error}"));
                tracing::info!(%node, %error, "replicas are not in sync yet");
            }
        }
    }

    /// Applies what this node's replicas of a database miss, from all nodes that are there; has the others do so, too.
    async fn sync_database(&self, name: &str, tell: bool, worker: &Worker) {
        let context = self.context();
        let Ok(database) = self.database(name) else { return };
        let holders = database.settings().holders();
        let others: Vec<Arc<str>> =
            holders.into_iter().filter(|node| *node != context.node && context.peers.is_up(node)).collect();
        if tell {
            drop(context.tell_all(&others, &CatalogueCall::Pull(name.to_owned()), Urgency::Background));
        }
        if others.is_empty() {
            return;
        }
        let mut counter = Counter::DatabaseSyncs;
        for node in others {
            if let Err(error) = database.pulls().pull_from(&node, false).await {
                tracing::debug!(database = name, %node, %error, "replicas are not in sync yet");
                worker.failed(&format_args!("{name} from {node}: {error}"));
                context.pull_soon(name);
                counter = Counter::DatabaseSyncsFailed;
            }
        }
        context.env.metrics().add(counter, 1);
    }
}

/// Until the coordinator goes.
pub(in crate::coordinator) async fn watch_nodes(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let (mut news, mut settings, env) = match weak.upgrade() {
        Some(coordinator) => {
            let context = coordinator.context();
            (context.peers.watch(), context.config.watch(), context.env.clone())
        }
        None => return,
    };
    let (mut seen, mut looked) = (Seen::default(), env.now());
    loop {
        let is_alone = match weak.upgrade() {
            Some(coordinator) => {
                let context = coordinator.context();
                let (is_alone, patience, now) = (context.others().is_empty(), patience(context), env.now());
                let stood_still = !seen.met.is_empty() && now.since(looked) >= patience;
                if stood_still {
                    let ms = now.since(looked).as_millis();
                    tracing::warn!(
                        ms,
                        "this node stood still: it is not in sync before it was compared with all others"
                    );
                }
                context.status.in_sync.look(now, (!is_alone).then_some(patience));
                if is_alone && !context.peers.is_seeding() {
                    context.status.in_sync.is_all_there_is();
                }
                let _run = worker.begin();
                coordinator.look_around(&mut seen, stood_still, &worker);
                looked = now;
                is_alone
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

/// How long this node may go without a look at the others until these may have gone on without it: a part of the time
/// after which its silence counts, for they may have heard it last some time before.
fn patience(context: &Context) -> Duration {
    (context.peers.suspect() * 3 / 4).max(2 * limits::LOOK_AROUND)
}

/// Until the coordinator goes: maps of which a call showed that another node knows a later one.
pub(in crate::coordinator) async fn learn_maps(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    loop {
        let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
        context.status.outdated.notified().await;
        let stale = context.status.take_stale();
        drop(context);
        let Some(coordinator) = weak.upgrade() else { return };
        let _run = worker.begin();
        for (name, node) in stale {
            if let Err(error) = coordinator.learn_map(&name, &node).await {
                worker.failed(&format_args!("{name} from {node}: {error}"));
                tracing::debug!(database = name, %node, %error, "a map was not learned");
            }
        }
    }
}

/// When the next look at all databases is due: by the clock alone, for replicas may miss something all the time.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    look: Instant,
    compare: Instant,
}

impl Rounds {
    fn after(now: Instant) -> Rounds {
        let look = later(now, limits::SYNC_PERIOD);
        Rounds { look, compare: later(look, limits::COMPARE_PERIOD) }
    }

    /// Whether to look at what changed, and to compare all replicas too.
    fn due(self, now: Instant) -> (bool, bool) {
        (now >= self.look, now >= self.look && now >= self.compare)
    }

    /// Counts from the end of a round.
    fn ended(&mut self, now: Instant, compared: bool) {
        self.look = later(now, limits::SYNC_PERIOD);
        if compared {
            self.compare = later(now, limits::COMPARE_PERIOD);
        }
    }
}

impl Coordinator {
    /// For how long there have been databases that wait to be compared because a replica missed something.
    pub fn convergence_lag(&self) -> Duration {
        self.context().convergence_lag()
    }
}

fn later(now: Instant, by: Duration) -> Instant {
    Instant(now.0 + by)
}

/// Until the coordinator goes: databases of which a replica missed something at once, those that changed, and the set
/// of databases, now and then.
pub(in crate::coordinator) async fn sync_lagging(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    let (mut seen, mut rounds) = (0, Rounds::after(env.now()));
    loop {
        let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
        let mut news = context.peers.watch();
        news.borrow_and_update();
        let noticed = context.status.missing.notified();
        match context.others().is_empty() {
            // A node that was alone when it started may have others later.
            true => tokio::select! {
                biased;
                () = noticed => {}
                Ok(()) = news.changed() => continue,
            },
            // Which of the two it was, the clock tells.
            false => drop(env.timeout(rounds.look.since(env.now()), noticed).await),
        }
        drop(context);
        let Some(coordinator) = weak.upgrade() else { return };
        let context = coordinator.context();
        let run = worker.begin();
        let mut names: BTreeMap<String, bool> = context.status.take_lagging();
        let (looks, compares) = rounds.due(env.now());
        if looks {
            coordinator.learn_from_all().await;
            if compares {
                coordinator.compare_with_all(&worker).await;
            }
            context.status.in_doubt.rotate();
            let (events, last) = coordinator.events(seen);
            seen = last;
            let changed = events.into_iter().filter(|event| event.kind == EventKind::Updated);
            for event in changed {
                names.entry(event.name).or_insert(false);
            }
            rounds.ended(env.now(), compares);
        }
        // Several at a time: one whose replicas do not answer holds up no other.
        let mut syncs: Vec<BoxFuture<'_, ()>> = Vec::new();
        for (name, tell) in &names {
            syncs.push(Box::pin(coordinator.sync_database(name, *tell, &worker)));
        }
        stream::iter(syncs).for_each_concurrent(limits::DATABASES_AT_ONCE, |sync| sync).await;
        context.status.end_round();
        context.caught_up();
        drop((run, coordinator));
        env.sleep(limits::SYNC_PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_miss_something_all_the_time_do_not_put_off_the_looks_at_all_databases() {
        let (mut now, mut looks, mut compares) = (Instant(Duration::ZERO), 0, 0);
        let (mut rounds, end) = (Rounds::after(now), later(now, 4 * limits::COMPARE_PERIOD));
        while now < end {
            now = later(now, limits::SYNC_PAUSE);
            let (look, compare) = rounds.due(now);
            looks += u32::from(look);
            compares += u32::from(compare);
            if look {
                rounds.ended(now, compare);
            }
        }
        assert!((38..=40).contains(&looks) && compares == 3, "{looks} looks, {compares} comparisons");
    }
}
