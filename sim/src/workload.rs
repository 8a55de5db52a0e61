//! What simulated clients do and how their answers are checked: every answer is checked against the model at once, and
//! after the faults a last client reads everything back.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use settee::world::{Env, Instant};
use tokio::sync::watch;

use crate::client::{Answer, Ask, Client, NoAnswer};
use crate::history::{Event, History};
use crate::model::{Leaf, Model, Violation};
use crate::place::{PASSWORD, USER, address_of};
use crate::plan::{FeedFilter, Op, TimedOp};
use crate::private::Own;
use crate::sights::Sights;
use crate::world::SimWorld;

mod abreast;
mod admin;
mod between;
mod checkpoint;
mod chosen;
mod common;
mod counted;
mod documents;
mod feed;
mod filtered;
mod final_state;
mod graves;
mod hostile;
mod keep;
mod kept;
mod local;
mod maintained;
mod members;
mod mortals;
mod own;
mod pair;
mod places;
mod promise;
mod rules;
mod searched;
mod secrets;
mod seen;
mod session;
mod twins;

use documents::Known;
use local::Local;

pub(crate) use between::check_between;
pub(crate) use counted::set_up as set_up_counted;
pub(crate) use documents::{leaves, outcome};
pub(crate) use filtered::set_up as set_up_filters;
pub(crate) use maintained::SETTING as MAINTENANCE;
pub(crate) use members::{check_members, look_at_connections, look_at_members};
pub(crate) use own::carry_out;
pub use own::set_up as set_up_own;
pub(crate) use pair::order;
pub(crate) use promise::Asked;
pub(crate) use secrets::give_first as give_first_secret;
pub(crate) use seen::DESIGNS;
pub(crate) use twins::{Together, look_at_databases, set_up as set_up_cluster};

/// The database that all clients use.
pub const DB: &str = "sim";
/// The database of documents that are purged later.
const PASSING: &str = "passing";

/// What clients share: the model, the first broken promise, the counters.
#[derive(Default)]
pub struct Shared {
    /// The oracle.
    pub model: Model,
    /// The first broken promise.
    pub violation: Option<Violation>,
    /// Told of it: the run is over then.
    pub broken: watch::Sender<bool>,
    /// Answers by kind, for the report: `2xx`, `4xx`, `5xx`, `none`.
    pub answers: BTreeMap<&'static str, u64>,
    /// What happened.
    pub history: History,
    /// How many operations of each name are or were under way: have sent a request.
    pub begun: watch::Sender<BTreeMap<&'static str, u64>>,
    /// Tells the time.
    pub world: Option<SimWorld>,
    /// Tells the time where there is no such world: its begin, and a clock.
    pub outside: Option<(Instant, Env)>,
    /// Several replicas answer: a read may be older than what was acknowledged, until the faults are over.
    pub several: bool,
    /// The nodes of each cluster that may be asked for anything, by their numbers; none without one.
    pub clusters: Vec<Vec<u32>>,
    /// What the nodes of a cluster promise together.
    pub(crate) together: Together,
    /// What clients ask of replicas.
    pub(crate) asked: promise::Asked,
    /// Design documents of the shared database.
    pub designs: u64,
    /// Whether some of them are views and indexes over it.
    pub views: bool,
    /// Whether there are full-text indexes over documents of one client's own.
    pub searches: bool,
    /// Bytes of a document, of an attachment and of a request at most, where they are drawn.
    pub caps: Option<(u32, u32, u32)>,
    /// Whether a list is held against what was written while its node was in maintenance.
    pub maintains: bool,
    /// Nodes that have had no room for long, by their numbers, and since which change of that.
    pub scarce: BTreeMap<u32, u64>,
    /// Nodes whose disk went back in time, by their numbers, each time anew.
    pub went_back: Vec<u32>,
    /// Whether all clocks show the time of the world, within seconds.
    pub right_clocks: bool,
    /// Stored bytes were made wrong: an error is a right answer.
    pub damaged: bool,
    /// What answers showed, for people.
    pub sights: Sights,
}

impl Shared {
    /// A promise was broken; the first one counts.
    pub fn breaks(&mut self, violation: Violation) {
        self.violation.get_or_insert(violation);
        self.broken.send_replace(true);
    }

    /// A node has had no room for so long that it knows.
    pub(crate) fn has_no_room(&mut self, node: u32) {
        let now = self.now_ms();
        self.scarce.entry(node).or_insert(now);
    }

    /// An answer showed somebody the whole tree of a document.
    pub fn shows_tree(&mut self, doc: &str, lane: &str, leaves: &[Leaf]) {
        let now = self.now_ms();
        self.sights.tree(doc, lane, now, leaves);
    }

    /// Simulated milliseconds since the world began.
    pub fn now_ms(&self) -> u64 {
        let since = |(began, env): &(Instant, Env)| env.now().since(*began);
        let passed = self.world.as_ref().map(SimWorld::now).or_else(|| self.outside.as_ref().map(since));
        passed.map_or(0, |time| time.as_millis() as u64)
    }
}

/// A handle on [`Shared`]; locks are never held across an await.
pub type SharedHandle = Arc<Mutex<Shared>>;

/// Locks, also after a panic: the run is over then, and its record is wanted.
pub fn lock(shared: &SharedHandle) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until the next operation of that name is under way; false when the run is over.
pub(crate) async fn under_way(shared: &SharedHandle, op: &str) -> bool {
    let mut begun = lock(shared).begun.subscribe();
    let times = |begun: &BTreeMap<&'static str, u64>| begun.get(op).copied().unwrap_or(0);
    let before = times(&begun.borrow_and_update());
    let more = begun.wait_for(|begun| times(begun) > before).await;
    more.is_ok()
}

/// One client at work.
pub struct Worker {
    client: Client,
    shared: SharedHandle,
    known: BTreeMap<u32, Known>,
    local: Local,
    feed: feed::Position,
    name: String,
    own: BTreeMap<u32, Own>,
    chosen: chosen::Chosen,
    seen: chosen::Chosen,
    filtered: filtered::Places,
    admin: admin::Known,
    /// The session's cookie.
    cookie: Option<String>,
    /// Documents that were written to be read at once through another node.
    abreast: usize,
    jobs: BTreeMap<FeedFilter, keep::Job>,
    kept: kept::Kept,
    rule: rules::Mine,
    /// Values of documents that are to be purged, with their revisions.
    passing: VecDeque<(u64, String)>,
    /// What the last answer of the operation under way was.
    outcome: String,
    /// The operation that is to send its first request.
    unsent: Option<&'static str>,
}

/// A promise was broken.
fn broken<T>(invariant: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant, what })
}

impl Worker {
    /// A worker called `name` that talks through `client`.
    pub fn new(name: &str, client: Client, shared: SharedHandle) -> Worker {
        Worker {
            client,
            shared,
            known: BTreeMap::new(),
            local: Local::of(name),
            feed: feed::Position::default(),
            name: name.to_owned(),
            own: BTreeMap::new(),
            chosen: chosen::Chosen::default(),
            seen: chosen::Chosen::default(),
            filtered: filtered::Places::default(),
            admin: admin::Known::default(),
            cookie: None,
            abreast: 0,
            jobs: BTreeMap::new(),
            kept: kept::Kept::default(),
            rule: rules::Mine::default(),
            passing: VecDeque::new(),
            outcome: String::new(),
            unsent: None,
        }
    }

    /// Does all operations in order. `pause` waits between them.
    pub async fn run<F, P>(&mut self, ops: &[TimedOp], pause: F)
    where
        F: Fn(u64) -> P,
        P: Future<Output = ()>,
    {
        for timed in ops {
            pause(timed.after_ms).await;
            if self.locked(|s| s.violation.is_some()) {
                return;
            }
            let (from_ms, before) = self.locked(|s| (s.now_ms(), s.history.before()));
            self.outcome.clear();
            self.unsent = Some(timed.op.name());
            let done = self.step(&timed.op).await;
            let outcome = std::mem::take(&mut self.outcome);
            let (lane, name) = (self.name.clone(), timed.op.name());
            let outcome = if let Err(violation) = &done { violation.to_string() } else { outcome };
            self.locked(|s| {
                s.history.operated(name, &before);
                let (to_ms, text, name) = (s.now_ms(), format!("{:?}", timed.op), name.to_owned());
                s.history.events.push(Event { lane, from_ms, to_ms, kind: "op", name, text, outcome });
            });
            if let Err(violation) = done {
                self.locked(|s| s.breaks(violation));
                return;
            }
        }
    }

    /// Whether it talks to one of these nodes.
    pub fn is_at(&self, nodes: &[u32]) -> bool {
        nodes.iter().any(|node| address_of(*node) == self.client.to())
    }

    /// Gives up the connection: after a crash of the node it may be half open.
    pub fn reconnect(&mut self) {
        self.client.hang_up();
    }

    fn locked<T>(&self, f: impl FnOnce(&mut Shared) -> T) -> T {
        f(&mut lock(&self.shared))
    }

    /// Sends a request with a JSON body (null: none) as the owner, and counts what came of it.
    async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Answer, NoAnswer> {
        self.ask(Ask::json(method, path, body)).await
    }

    /// Sends a request and counts what came of it.
    async fn ask(&mut self, ask: Ask<'_>) -> Result<Answer, NoAnswer> {
        let (method, path) = (ask.method, ask.path);
        self.sends();
        let answer = self.client.ask(ask).await;
        self.count(method, path, answer.as_ref().map_or(0, |a| a.status));
        answer
    }

    /// The nodes of the cluster that this client talks to, or of the first one; none where there are servers only.
    fn cluster(&self) -> Vec<u32> {
        let own = |clusters: &[Vec<u32>]| clusters.iter().find(|nodes| self.is_at(nodes)).or(clusters.first()).cloned();
        self.locked(|s| own(&s.clusters).unwrap_or_default())
    }

    /// A connection to one of those nodes, if there are any.
    fn one_of_cluster(&self, turn: u64) -> Option<Client> {
        let nodes = self.cluster();
        let nth = turn.checked_rem(nodes.len() as u64)?;
        Some(self.another_node(nodes[nth as usize]))
    }

    /// A connection to a node by its number.
    fn another_node(&self, node: u32) -> Client {
        Client::new(self.client.env().clone(), address_of(node), USER, PASSWORD)
    }

    /// Sends a request with a JSON body by another client than the worker's own, and counts what came of it.
    async fn call_by(
        &mut self,
        client: &mut Client,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Answer, NoAnswer> {
        self.ask_by(client, Ask::json(method, path, body)).await
    }

    /// Sends a request by another client than the worker's own, and counts what came of it.
    async fn ask_by(&mut self, client: &mut Client, ask: Ask<'_>) -> Result<Answer, NoAnswer> {
        let (method, path) = (ask.method, ask.path);
        self.sends();
        let answer = client.ask(ask).await;
        self.count(method, path, answer.as_ref().map_or(0, |a| a.status));
        answer
    }

    /// A request is about to be sent: the operation is under way, and tasks that wait for it are told.
    fn sends(&mut self) {
        if let Some(name) = self.unsent.take() {
            self.locked(|s| s.begun.send_modify(|begun| *begun.entry(name).or_default() += 1));
        }
    }

    fn count(&mut self, method: &str, path: &str, status: u16) {
        // Faults that are aimed at the operation would never strike.
        assert_eq!(self.unsent, None, "{method} {path} was sent and nobody was told");
        let kind = match status {
            0 => "none",
            1..300 => "2xx",
            300..500 => "4xx",
            _ => "5xx",
        };
        self.outcome.push_str(&format!("{method} {path}: {status}\n"));
        self.locked(|s| {
            *s.answers.entry(kind).or_default() += 1;
            s.history.requested(method, path, status);
        });
    }

    async fn step(&mut self, op: &Op) -> Result<(), Violation> {
        match op {
            Op::Put { doc, v } => {
                let parent = self.newest(*doc);
                self.put(*doc, parent, *v).await
            }
            Op::PutStale { doc, v } => {
                let parent = self.known.get(doc).and_then(|k| k.first.clone());
                self.put(*doc, parent, *v).await
            }
            Op::Delete { doc } => self.delete(*doc).await,
            Op::Merge { doc, v, fork, twice } => self.merge(*doc, *v, *fork, *twice).await,
            Op::Bulk { edits } => self.bulk(edits).await,
            Op::Attach { doc, v, bytes } => self.attach(*doc, *v, *bytes).await,
            Op::Read { doc } => self.read(*doc).await,
            Op::ReadTree { doc } => self.read_tree(*doc).await,
            Op::List => self.list().await.map(|_| ()),
            Op::Changes => self.changes().await.map(|_| ()),
            Op::Local { v } => self.put_local(*v).await,
            Op::Compact => {
                let _ = self.call("POST", &format!("/{DB}/_compact"), &Value::Null).await;
                Ok(())
            }
            Op::Follow { mode, limit } => self.follow(*mode, *limit).await,
            Op::FollowFiltered { by, mode, docs, limit } => self.follow_filtered(*by, *mode, *docs, *limit).await,
            Op::Shift { v } => self.shift(*v).await,
            Op::Groups { way } => self.groups(*way).await,
            Op::Descend { limit } => self.descend(*limit).await,
            Op::Maintain { node, on } => self.maintain(*node, *on).await,
            Op::FollowAt { node } => self.follow_at(*node).await,
            Op::Tail { doc, v } => self.tail(*doc, *v).await,
            Op::Replicate => self.replicate().await,
            Op::Keep { filter } => self.keep(*filter).await,
            Op::EndKeep { filter } => self.end_keep(*filter).await,
            Op::Snapshot { fresh } => self.snapshot(*fresh).await.map(drop),
            Op::Restore => self.restore().await.map(drop),
            Op::NewSecret => self.new_secret().await,
            Op::SessionAt { node, back } => self.session_at(*node, *back).await,
            Op::CommonCreate { name } => self.common_create(*name).await,
            Op::CommonDelete { name } => self.common_delete(*name).await,
            Op::CommonWrite { name, v } => self.common_write(*name, *v).await,
            Op::CommonCheck { name } => self.common_check(*name).await,
            Op::Rule { on } => self.rule(*on).await,
            Op::Ruled { v, way } => self.ruled(*v, *way).await,
            op => self.step_alone(op).await,
        }
    }

    /// Operations on what only this client writes.
    async fn step_alone(&mut self, op: &Op) -> Result<(), Violation> {
        match op {
            Op::OwnPut { doc, v } => self.own_put(*doc, *v).await,
            Op::OwnDelete { doc } => self.own_delete(*doc).await,
            Op::OwnPurge { doc } => self.own_purge(*doc).await,
            Op::OwnBulk { edits } => self.own_bulk(edits).await,
            Op::OwnRead { doc } => self.own_read(*doc).await.map(|_| ()),
            Op::OwnView { view } => self.own_view(*view as usize).await.map(|_| ()),
            Op::OwnFind { query, k, paged } => {
                self.own_find(*query, *k, *paged).await?;
                self.own_search(*query, *k).await.map(|_| ())
            }
            Op::OwnCompact { views } => self.own_compact(*views).await,
            Op::Strict { on } => self.strict(*on).await,
            Op::Marked { v } => self.marked(*v).await,
            Op::DbCreate => self.db_create().await,
            Op::DbDelete => self.db_delete().await,
            Op::DbWrite { v } => self.db_write(*v).await,
            Op::DbCheck => self.db_check(false).await,
            Op::Secure { open } => self.secure(*open).await,
            Op::Enter => self.enter().await,
            Op::Login => self.login().await,
            Op::Whoami { forged } => self.whoami(*forged).await,
            Op::Token { from_s, until_s, forged } => self.token(*from_s, *until_s, *forged).await,
            Op::Hostile { way } => self.hostile(*way).await,
            Op::TwinWrite { v, brief } => self.twin_write(*v, *brief).await,
            Op::TwinDelete => self.twin_delete().await,
            Op::Pass { v } => self.pass(*v).await,
            Op::PassOn => self.pass_on().await,
            Op::PassAway => self.pass_away().await,
            Op::Lay { v } => self.lay(*v).await,
            Op::Bury { v } => self.bury(*v).await,
            Op::Live { v, for_s } => self.live(*v, u64::from(*for_s)).await,
            Op::LookFor { nth } => self.look_for(*nth).await,
            Op::View { view } => {
                self.view(*view as usize).await?;
                self.write_and_read().await
            }
            Op::Find { k } => {
                self.find(*k).await?;
                self.write_and_read().await
            }
            Op::FollowChosen => self.follow_chosen().await.map(drop),
            Op::MoveReplica { passing, range, to } => self.move_replica(*passing, *range, *to).await,
            Op::Rebalance { drain } => self.rebalance(*drain).await,
            Op::SplitRange { passing, range } => self.split_range(*passing, *range).await,
            Op::AddNode { node } => self.add_node(*node).await,
            Op::RemoveNode { node } => self.remove_node(*node).await,
            Op::Voters => self.voters().await,
            Op::Join { way, filter, at, by } => self.join(*way, *filter, (*at, *by)).await,
            Op::Part { way, filter, at } => self.part(*way, *filter, *at).await,
            Op::Ferry { way, at, by } => self.ferry(*way, (*at, *by)).await,
            other => unreachable!("{other:?} is a shared operation"),
        }
    }
}
