//! State of the node that all handles of databases share, and what the node knows about the other nodes.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex as BlockingMutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore, mpsc, watch};

use crate::config::Config;
use crate::coordinator::replica::answered::Answered;
use crate::coordinator::replica::awaited::Awaited;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::epoch::NodeEpochs;
use crate::coordinator::replica::in_sync::Begun;
use crate::coordinator::replica::jobs::Jobs;
use crate::coordinator::replica::message::encode;
use crate::coordinator::replica::node_calls::{CatalogueCall, NodeState};
use crate::coordinator::replica::paces::Paces;
use crate::coordinator::replica::rebalancing::Rebalancing;
use crate::coordinator::replica::replica_status::{ReplicaCounts, ReplicaStatus};
use crate::coordinator::replica::seat::Voting;
use crate::coordinator::replica::single_flight::SingleFlight;
use crate::coordinator::replica::uploads::Uploads;
use crate::coordinator::topology::budget::Budgets;
use crate::coordinator::topology::events::Events;
use crate::coordinator::topology::peers::{Call, CallError, Peers, Service, Urgency};
use crate::coordinator::topology::record::MapRecord;
use crate::coordinator::topology::rows::{self, Rows};
use crate::index::Indexes;
use crate::limits;
use crate::script::Scripts;
use crate::shard::ShardError;
use crate::storage::{Storage, View};
use crate::world::{BoxFuture, Env, Instant};

/// See the module head.
pub(in crate::coordinator) struct Context {
    pub env: Env,
    pub config: Config,
    pub storage: Storage,
    /// The node's name.
    pub node: Arc<str>,
    /// Names this node in stamps.
    pub tag: u64,
    pub peers: Arc<dyn Peers>,
    pub epochs: NodeEpochs,
    pub events: Events,
    pub scripts: Scripts,
    pub indexes: Indexes,
    /// One permit per document that waits for its commit with `batch=ok`.
    pub batch: Arc<Semaphore>,
    /// Held while shards of deleted databases are being dropped.
    pub dropping: Mutex<()>,
    /// The event up to which updates are noted in `_global_changes`.
    pub noted: Mutex<u64>,
    /// The number of the next call to another node.
    pub calls: AtomicU64,
    /// Counts changes of the replicas that ranges are read from.
    pub reader_changes: AtomicU64,
    /// Different at each start: what other nodes remember of this one's memory is void then.
    pub boot: u64,
    /// Uploads of other nodes to replicas here.
    pub uploads: Uploads,
    /// Bytes of documents on their way to other nodes and from them.
    pub budgets: Budgets,
    /// What other nodes were answered last.
    pub answered: Answered,
    /// Calls to other nodes whose answers are waited for.
    pub awaited: Awaited,
    /// How long other nodes take to answer.
    pub paces: Paces,
    /// What is known about the replicas of this node in relation to those of the others.
    pub status: ReplicaStatus,
    /// Since when a replica of some database has lagged without a pause. A blocking lock: held for a copy only.
    lagging_since: BlockingMutex<Option<Instant>>,
    /// Nodes that are being told to look for databases which they do not know.
    pub reminding: SingleFlight,
    /// Nodes of which this one asks what databases they know.
    pub learning: SingleFlight,
    /// Counts the maps that this node went over to: replicas may be on their way to it, or have arrived.
    pub moving: watch::Sender<u64>,
    /// One permit for each replica that is being filled here.
    pub filling: Semaphore,
    /// What is carried out to even out the load.
    pub rebalancing: Rebalancing,
    /// The jobs of this node that split ranges.
    pub jobs: Jobs,
    /// Who votes about maps.
    pub voting: Voting,
    /// Set by the rooms above, because a split is theirs.
    pub follow_map: FollowMap,
}

/// Changes this node's replicas of a database to what a decided map says.
pub(in crate::coordinator) type FollowMap = fn(Arc<Database>, MapRecord) -> BoxFuture<'static, Result<(), ShardError>>;

impl Context {
    pub fn new(
        env: Env,
        config: Config,
        storage: Storage,
        peers: Arc<dyn Peers>,
        (node, epochs): (&str, NodeEpochs),
        follow_map: FollowMap,
    ) -> Self {
        let hash = blake3::hash(node.as_bytes());
        // Invariant: a hash has 32 bytes.
        let tag = u64::from_be_bytes(hash.as_bytes()[..8].try_into().expect("eight bytes"));
        let is_alone = peers.members().len() <= 1;
        Context {
            tag,
            node: node.into(),
            peers,
            epochs,
            events: Events::new(),
            scripts: Scripts::new(&env, &config),
            indexes: Indexes::with_memory(&env, config.u64("settee", "memory_mb", limits::MEMORY_MB)),
            batch: Arc::new(Semaphore::new(limits::BATCH_QUEUE_DOCS)),
            dropping: Mutex::default(),
            noted: Mutex::default(),
            calls: AtomicU64::new(env.random_u64()),
            reader_changes: AtomicU64::new(0),
            boot: env.random_u64(),
            uploads: Uploads::default(),
            budgets: Budgets::default(),
            answered: Answered::default(),
            awaited: Awaited::default(),
            paces: Paces::default(),
            status: ReplicaStatus::new(is_alone),
            lagging_since: BlockingMutex::default(),
            reminding: SingleFlight::default(),
            learning: SingleFlight::default(),
            moving: watch::Sender::new(0),
            filling: Semaphore::new(limits::MOVES_AT_ONCE),
            rebalancing: Rebalancing::default(),
            jobs: Jobs::default(),
            voting: Voting::default(),
            follow_map,
            env,
            config,
            storage,
        }
    }

    /// How well the replicas on a node can be used: 0 when they hold what the others do, 1 when they may lack
    /// something, `None` when they cannot be asked.
    pub fn rank(&self, node: &Arc<str>) -> Option<u8> {
        let state = match *node == self.node {
            true => self.own_state(),
            false if !self.peers.is_up(node) => return None,
            false => self.status.states().get(node).copied().unwrap_or_default(),
        };
        match (state.maintenance, state.in_sync) {
            (true, _) => None,
            (false, true) => Some(0),
            (false, false) => Some(1),
        }
    }

    /// What this node says of itself.
    pub fn own_state(&self) -> NodeState {
        let in_sync = self.status.in_sync.is(self.env.now()) && !self.status.lacks_something();
        NodeState { in_sync, maintenance: self.takes_no_part() }
    }

    fn takes_no_part(&self) -> bool {
        self.is_in_maintenance() || self.storage.writes_stopped() && self.has_others()
    }

    /// Counts of what is known about the replicas of this node.
    pub fn replica_counts(&self) -> ReplicaCounts {
        self.status.counts(self.own_state().in_sync)
    }

    /// Whether the replicas of this node take no part (`[couchdb] maintenance_mode`); never when there are no others.
    pub fn is_in_maintenance(&self) -> bool {
        // The setting first: it is asked for with every read and write, and to list the members takes far longer.
        self.config.bool("couchdb", "maintenance_mode", false) && self.has_others()
    }

    fn has_others(&self) -> bool {
        self.peers.members().len() > 1
    }

    /// Applies what a node says of itself; `None` when its connection is lost.
    pub fn set_state(&self, node: &str, state: Option<NodeState>) {
        match state {
            Some(state) => drop(self.status.states().insert(node.into(), state)),
            None => {
                self.status.states().remove(node);
                self.paces.forget(node);
            }
        }
    }

    /// All members, this node too.
    pub fn member_names(&self) -> BTreeSet<String> {
        self.peers.members().into_iter().map(|peer| peer.name.to_string()).collect()
    }

    /// All other members.
    pub fn others(&self) -> Vec<Arc<str>> {
        self.peers.members().into_iter().map(|peer| peer.name).filter(|name| *name != self.node).collect()
    }

    /// Whether a node was removed from the cluster: nothing is waited for from there any more.
    pub fn is_gone(&self, node: &str) -> bool {
        self.peers.is_removed(node)
    }

    /// Whether a node is there: this one is.
    pub fn is_there(&self, node: &str) -> bool {
        *node == *self.node || self.peers.is_up(node)
    }

    /// How many of the nodes are there.
    pub fn up_of(&self, nodes: &BTreeSet<Arc<str>>) -> usize {
        nodes.iter().filter(|node| self.is_there(node)).count()
    }

    /// Sends a call to nodes; their answers come as they arrive, one from each.
    pub fn tell_all(
        self: &Arc<Self>,
        nodes: &[Arc<str>],
        call: &CatalogueCall,
        urgency: Urgency,
    ) -> mpsc::UnboundedReceiver<(Arc<str>, Result<Bytes, CallError>)> {
        let (tell, answers) = mpsc::unbounded_channel();
        let body = encode(call);
        for node in nodes {
            let (context, node, body, tell) = (Arc::clone(self), Arc::clone(node), body.clone(), tell.clone());
            self.env.spawn(async move {
                let answer = context.call_catalogue(&node, body, urgency).await;
                // Nobody listens any more once enough nodes have answered.
                let _ = tell.send((node, answer));
            });
        }
        answers
    }

    /// The records of the node below a prefix, read in bounded steps.
    pub async fn rows(&self, prefix: &[u8]) -> Result<Rows, ShardError> {
        let (mut out, mut after) = (Rows::new(), None);
        loop {
            let prefix = prefix.to_vec();
            let (rows, last) = self.storage.read(move |view: &dyn View| rows::step(view, &prefix, after)).await?;
            out.extend(rows);
            if last.is_none() {
                return Ok(out);
            }
            after = last;
        }
    }

    /// Sends a call about the set of databases to a node.
    pub async fn call_catalogue(&self, node: &str, body: Bytes, urgency: Urgency) -> Result<Bytes, CallError> {
        if !self.peers.is_up(node) {
            return Err(CallError::NotExecuted(format!("{node} is down")));
        }
        let call = Call {
            service: Service::Catalogue,
            urgency,
            body: body.into(),
            expected_bytes: 0,
            limit: limits::REPLICA_CALL,
        };
        self.peers.call(node, call).await
    }

    /// Notes that a replica of a database missed something: the replicas are brought in sync soon, on all nodes.
    pub fn lagging(&self, database: &str) {
        self.note_lagging(database, true);
    }

    fn note_lagging(&self, database: &str, tell: bool) {
        self.status.note_lagging(database, tell);
        self.lagging_since.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(self.env.now());
    }

    /// All databases of which a replica missed something were looked at, unless some came meanwhile.
    pub fn caught_up(&self) {
        let mut since = self.lagging_since.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.status.any_waits() {
            *since = None;
        }
    }

    /// For how long there have been databases that wait to be compared because a replica missed something.
    pub fn convergence_lag(&self) -> Duration {
        let since = *self.lagging_since.lock().unwrap_or_else(PoisonError::into_inner);
        since.map_or(Duration::ZERO, |since| self.env.now().since(since))
    }

    /// Notes that a node brought an edit. If that node is gone by now, the other replicas may have missed it.
    pub fn took_edit(&self, node: &str, database: &str) {
        self.status.in_doubt.note(node, database);
        if !self.peers.is_up(node) {
            self.lagging(database);
        }
    }

    /// Notes that a replica here may have missed something of a database.
    pub fn pull_soon(&self, database: &str) {
        self.note_lagging(database, false);
    }

    /// Notes that a node knows a later map of a database: it is learned soon.
    pub fn note_stale(&self, database: &str, node: &str) {
        self.status.note_stale(database, node);
    }

    /// Notes that everything was pulled from a node since then; true when this makes the node in sync: it has met all
    /// that are there.
    pub fn compared(&self, node: &Arc<str>, begun: Begun) -> bool {
        let up: Vec<Arc<str>> = self.others().into_iter().filter(|node| self.peers.is_up(node)).collect();
        !self.takes_no_part() && self.status.in_sync.ended(node, begun, &up)
    }

    /// Forgets what is known of a node whose connection is lost.
    pub fn lose(&self, node: &Arc<str>) {
        self.status.in_sync.lose(node);
        self.set_state(node, None);
    }
}

/// How old a tombstone is when it may be forgotten; `None`: it never may.
pub(in crate::coordinator) fn age(config: &Config) -> Option<Duration> {
    let days: f64 = config.get("settee", "tombstone_days")?.trim().parse().ok()?;
    let age = Duration::try_from_secs_f64(days * 86_400.0).ok().filter(|age| !age.is_zero())?;
    Some(age.max(limits::TOMBSTONE_AGE_MIN))
}
