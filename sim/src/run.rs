//! One run: a plan carried out in a simulated world, judged while it runs and at its end.
//!
//! Phases: the nodes start and the databases are made in peace (but for a cut in the very first start); clients work
//! while faults happen; then all faults end, the power is cut once more, and after the last restart everything is read
//! back and held against the model. Where the disk was damaged an error is a right answer, wrong data is not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use settee::config::{Config, Setting};
use settee::node::Node;
use settee::storage::StorageOptions;
use settee::storage::planted::Planted;
use settee::world::buggify;
use tokio::sync::watch;

use crate::bugs::Plant;
use crate::client::Client;
use crate::faults::{Scene, usual_disk};
use crate::history::{Event, History};
use crate::model::{Violation, Written};
use crate::plan::{Plan, Reseed, TimedOp, WorldPlan};
use crate::proxy::{Mode, Proxy};
use crate::tokens;
use crate::workload::{
    DB, Shared, SharedHandle, TOKEN_KEY, Together, Worker, lock, look_at_databases, look_at_members, set_up_cluster,
    set_up_own,
};
use crate::world::{Link, Options, SimNode, SimWorld, run_seed_with};

const PORT: u16 = 5984;
/// A salted SHA-1 of `pass`: cheap to check, as a run has no time for 600,000 rounds.
const ADMIN: &str = "admins/adm=-hashed-58dfc08c75be240db5082eddfbe23a6d5202e77f,00";
/// Tokens, cookies, a proxy that is believed, and passwords.
const HANDLERS: &str = "chttpd/authentication_handlers={chttpd_auth, jwt_authentication_handler}, \
                        {chttpd_auth, cookie_authentication_handler}, {chttpd_auth, proxy_authentication_handler}, \
                        {chttpd_auth, default_authentication_handler}";
/// The administrator.
pub(crate) const USER: &str = "adm";
/// Its password.
pub(crate) const PASSWORD: &str = "pass";
/// The machine before the first node where replications come in.
const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 1));
/// How long the node may take to answer again once all faults have ended.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long the copies of a cluster may take to become equal once all faults have ended.
const CONVERGENCE: Duration = Duration::from_secs(60);
/// How long it may take in peace until every node knows what others know, of nodes and of databases.
const SPREAD: Duration = Duration::from_secs(5);
/// How often the set-up is tried: the first start may be cut.
const SET_UP_TRIES: u32 = 5;

/// What came of a run.
pub struct Report {
    /// What was carried out.
    pub plan: Plan,
    /// The first broken promise; `P` stands for a panic.
    pub failure: Option<Violation>,
    /// The hash over all events.
    pub trace_hash: u64,
    /// Virtual time in milliseconds.
    pub simulated_ms: u64,
    /// Lives of all nodes.
    pub starts: u64,
    /// Edits acknowledged, refused, unknown.
    pub edits: (usize, usize, usize),
    /// Answers by kind.
    pub answers: BTreeMap<&'static str, u64>,
    /// What happened, and what was exercised.
    pub history: History,
    /// Revisions of the document that the failure is about.
    pub tree: Vec<Written>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Carries a plan out, with a bug planted if asked, on a thread of its own. `log`: where to write every event.
pub fn run_plan_logged(plan: Plan, plant: Option<Plant>, log: Option<PathBuf>) -> Report {
    let options = Options { link: link(&plan.world), time_limit: Duration::from_secs(3600) };
    let scene = plan.clone();
    // Outside, so that a panic leaves the history.
    let shared: SharedHandle = Arc::new(Mutex::new(Shared::default()));
    let inside = Arc::clone(&shared);
    let run = catch_unwind(AssertUnwindSafe(|| {
        run_seed_with(plan.seed, options, move |world| async move { scenario(world, scene, plant, log, inside).await })
    }));
    let mut shared = std::mem::take(&mut *lock(&shared));
    shared.world = None;
    let edits = shared.model.outcomes();
    let about = |failure: &Option<Violation>| {
        let names = failure.as_ref().and_then(|f| f.what.split(':').next());
        names.map(|doc| shared.model.written(doc)).unwrap_or_default()
    };
    let tree = about(&shared.violation);
    let Shared { answers, mut history, violation, .. } = shared;
    let mut report = |failure, trace_hash, simulated_ms, starts| {
        let (plan, history) = (plan.clone(), std::mem::take(&mut history));
        let (answers, tree) = (answers.clone(), tree.clone());
        Report { plan, failure, trace_hash, simulated_ms, starts, edits, answers, history, tree }
    };
    match run {
        Ok(run) => {
            let mut report = report(violation, run.trace_hash, run.virtual_time.as_millis() as u64, run.value);
            let counters = run.counters.into_iter().map(|(name, n)| (name.to_owned(), n));
            report.history.coverage.counters.extend(counters);
            report
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned())).unwrap_or_default();
            report(Some(Violation { invariant: "P", what: format!("panic: {text}") }), 0, 0, 0)
        }
    }
}

/// [`run_plan_logged`] without a log.
pub fn run_plan(plan: Plan, plant: Option<Plant>) -> Report {
    run_plan_logged(plan, plant, None)
}

/// The usual link between two machines of a plan.
pub(crate) fn link(world: &WorldPlan) -> Link {
    let latency = Duration::from_micros(world.latency_us);
    Link { latency: (latency / 2, latency * 2), loss: f64::from(world.loss_per_10k) / 10_000.0, ..Link::default() }
}

/// The address of a node.
pub(crate) fn address_of(node: u32) -> SocketAddr {
    SocketAddr::new(node_ip(node), PORT)
}

/// The URL of a node with the administrator's credentials.
pub(crate) fn url_of(node: u32) -> String {
    url_at(address_of(node))
}

/// The same of the first node, by way of the proxy.
pub(crate) fn source_url() -> String {
    url_at(SocketAddr::new(PROXY, PORT))
}

fn url_at(address: SocketAddr) -> String {
    format!("http://{USER}:{PASSWORD}@{address}")
}

fn node_ip(node: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, node as u8 + 1))
}

/// The name of a node in its cluster.
fn member_name(ip: IpAddr) -> String {
    format!("settee@{ip}")
}

/// The name of a cluster's node by its number.
pub(crate) fn node_name(node: u32) -> String {
    member_name(node_ip(node))
}

fn client_ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, n + 1))
}

/// A node and what keeps it running.
#[derive(Clone)]
pub(crate) struct Keeper {
    pub(crate) node: SimNode,
    options: StorageOptions,
    settings: Arc<Vec<String>>,
    /// How long it stays down the next time, in milliseconds.
    down_ms: Arc<AtomicU64>,
    /// Counts the starts that failed and are to be tried again.
    gave_up: watch::Sender<u64>,
    usual: crate::world::DiskFaults,
    /// Whether the plan damages what is stored: not to start is an answer then.
    damaged: bool,
    shared: SharedHandle,
}

impl Keeper {
    pub(crate) fn new(world: &SimWorld, plan: &Plan, number: u32, planted: Planted, shared: &SharedHandle) -> Keeper {
        let node = world.node(&format!("node{}", number + 1), node_ip(number));
        let usual = usual_disk(&plan.world);
        node.disk().set_faults(usual.clone());
        let options = StorageOptions {
            cache_bytes: plan.world.cache_bytes,
            flush_at_bytes: plan.world.flush_at_bytes,
            common_files: 2,
            own_file_bytes: plan.world.flush_at_bytes as u64 / 2,
            planted,
            ..StorageOptions::default()
        };
        Keeper {
            node,
            options,
            settings: Arc::new(settings(&plan.world, number)),
            down_ms: Arc::new(AtomicU64::new(1)),
            gave_up: watch::channel(0).0,
            usual,
            damaged: plan.damages(),
            shared: Arc::clone(shared),
        }
    }

    /// The next time it goes down, it stays down so long.
    pub(crate) fn stays_down(&self, ms: u64) {
        self.down_ms.store(ms, Ordering::Relaxed);
    }

    /// Restarts the node's program as another version.
    pub(crate) fn change_version(&self, later: bool, down_ms: u64) {
        buggify::upgrade(&member_name(self.node.ip()), later);
        self.stays_down(down_ms);
        if self.node.is_up() {
            self.node.kill();
        }
    }

    /// Starts the node's program in the current life of its machine.
    pub(crate) fn launch(&self) {
        let env = self.node.env();
        let keeper = self.clone();
        self.live("up");
        env.clone().spawn(async move {
            let settings = keeper.settings.iter().filter_map(|text| Setting::parse(text)).collect();
            let config = Config::in_memory(&env, settings);
            let disk = keeper.node.disk();
            let before = disk.faults_set();
            match Node::start_with(&env, &config, Path::new("/data"), keeper.options).await {
                Ok(_node) => std::future::pending::<()>().await,
                // The process ends and is started again; what the disk refused may work then. The fault may be over by
                // now.
                Err(_) if disk.faults() != keeper.usual || disk.faults_set() != before => {
                    env.sleep(Duration::from_millis(300)).await;
                    keeper.gave_up.send_modify(|count| *count += 1);
                }
                Err(error) if keeper.damaged => keeper.live(&format!("does not start: {error}")),
                Err(error) => {
                    let what = format!("the node does not start: {error}");
                    lock(&keeper.shared).violation.get_or_insert(Violation { invariant: "I27", what });
                }
            }
        });
    }

    /// Writes down that the node went up or down.
    fn live(&self, what: &str) {
        let mut shared = lock(&self.shared);
        let now = shared.now_ms();
        let (lane, text) = (self.node.name().to_owned(), what.to_owned());
        let name = what.split(':').next().unwrap_or_default().to_owned();
        let event = Event { lane, from_ms: now, to_ms: now, kind: "life", name, text, outcome: String::new() };
        shared.history.events.push(event);
    }

    /// Starts the node again whenever it is down.
    pub(crate) async fn watch(self, world: SimWorld) {
        let mut gave_up = self.gave_up.subscribe();
        loop {
            tokio::select! {
                biased;
                () = self.node.down() => {}
                _ = gave_up.changed() => self.node.kill(),
            }
            self.live("down");
            world.sleep(Duration::from_millis(self.down_ms.load(Ordering::Relaxed).max(1))).await;
            self.node.start();
            self.launch();
        }
    }
}

/// The configuration of one server, wherever it runs.
pub(crate) fn settings_outside() -> Vec<String> {
    vec![
        ADMIN.to_owned(),
        HANDLERS.to_owned(),
        format!("jwt_keys/hmac:_default={}", tokens::configured(TOKEN_KEY)),
        "jwt_auth/required_claims=exp, nbf".to_owned(),
        format!("chttpd_auth/timeout={}", tokens::SESSION_S),
        "chttpd_auth/secret=sesame".to_owned(),
    ]
}

/// The configuration of a node.
fn settings(world: &WorldPlan, number: u32) -> Vec<String> {
    let mut out = settings_outside();
    out.extend([
        format!("couchdb/uuid={number:02}"),
        "chttpd/bind_address=any".to_owned(),
        format!("chttpd/port={PORT}"),
    ]);
    if world.n > 0 {
        let seed = |n: u32| format!("{}={}:{}", node_name(n), node_ip(n), PORT + 1);
        let seeds: Vec<String> = (0..world.nodes).map(seed).collect();
        out.extend([
            format!("settee/node={}", node_name(number)),
            format!("cluster/port={}", PORT + 1),
            "cluster/bind_address=any".to_owned(),
            "cluster/secret=sesame".to_owned(),
            format!("cluster/n={}", world.n),
            format!("cluster/strict_reads={}", world.strict_reads),
            format!("cluster/seeds={}", seeds.join(",")),
        ]);
    }
    out
}

async fn scenario(
    world: SimWorld,
    plan: Plan,
    plant: Option<Plant>,
    log: Option<PathBuf>,
    shared: SharedHandle,
) -> u64 {
    if let Some(file) = log.and_then(|path| File::create(path).ok()) {
        world.log_to(BufWriter::new(file));
    }
    let (planted, mutation) = match plant {
        Some(Plant::Storage(bug)) => (Planted::none().with(bug), None),
        Some(Plant::Node(mutation)) => (Planted::none(), Some(mutation)),
        None => (Planted::none(), None),
    };
    buggify::enter(plan.seed, plan.world.turns, mutation);
    {
        let mut shared = lock(&shared);
        shared.world = Some(world.clone());
        shared.several = plan.world.n > 0;
        shared.nodes = if plan.world.n > 0 { plan.world.nodes } else { 0 };
        shared.model.several = plan.world.n > 0;
        shared.damaged = plan.damages();
        shared.model.loses_disks = plan.loses_disks();
        shared.together = if plan.world.n > 0 { Together::of(&plan.world) } else { Together::default() };
        shared.strict_reads = plan.world.strict_reads;
    }
    let keepers: Vec<Keeper> =
        (0..plan.world.nodes).map(|number| Keeper::new(&world, &plan, number, planted, &shared)).collect();
    keepers[0].node.disk().set_fuse(plan.world.first_start_cut);
    if let Some(Reseed { at_ms, salt }) = plan.reseed {
        let world = world.clone();
        madsim::task::spawn(async move {
            world.sleep(Duration::from_millis(at_ms)).await;
            world.reseed(salt);
            buggify::reseed(salt);
        });
    }
    keepers.iter().for_each(Keeper::launch);
    let watches: Vec<_> = keepers.iter().map(|k| madsim::task::spawn(k.clone().watch(world.clone()))).collect();
    let judge = world.node("judge", client_ip(0));
    let machine = world.node("peer", PROXY);
    // Invariant: nobody else listens there.
    let proxy = Proxy::start(&machine.env(), SocketAddr::new(PROXY, PORT), address_of(0)).await.expect("an address");
    let clients = (1..=plan.clients.len()).map(|n| client_ip(n as u8)).chain([PROXY]).collect();
    let restarts_until_ms = AtomicU64::new(0);
    let scene = Scene { world, keepers, clients, judge, proxy, shared, restarts_until_ms };
    act(&scene, &plan).await;
    // Else they would start nodes again while the world is taken down.
    watches.iter().for_each(|watch| watch.abort());
    let met = buggify::leave();
    let mut shared = lock(&scene.shared);
    let counters = &mut shared.history.coverage.counters;
    counters.extend(met.points.iter().map(|(point, n)| (format!("point {point}"), *n)));
    counters.extend(met.sites.iter().map(|(site, (_, turned))| (format!("site {site}"), *turned)));
    scene.keepers.iter().map(|k| k.node.lives()).sum()
}

/// All phases of a run.
async fn act(scene: &Scene, plan: &Plan) {
    let (world, shared) = (&scene.world, &scene.shared);
    if let Err(violation) = set_up(&scene.judge, plan).await {
        lock(shared).violation.get_or_insert(violation);
        return;
    }
    for keeper in &scene.keepers {
        keeper.node.disk().set_fuse(None);
    }
    let started = scene.clients.iter().zip(&plan.clients).enumerate();
    let nodes = if plan.world.n > 0 { plan.world.nodes } else { 1 };
    let clients: Vec<_> =
        started.map(|(n, (ip, ops))| start_client(world, *ip, n as u32 % nodes, ops, shared)).collect();
    let working = async {
        scene.inject(plan).await;
        join_all(clients).await.into_iter().flatten().collect::<Vec<Worker>>()
    };
    let mut workers = tokio::select! {
        biased;
        workers = working => workers,
        never = scene.strike(plan) => match never {},
    };
    scene.restarted().await;
    world.heal_all();
    scene.proxy.set(Mode::Through);
    scene.proxy.call_off();
    for keeper in &scene.keepers {
        keeper.node.disk().set_fuse(None);
        keeper.node.disk().set_faults(keeper.usual.clone());
        keeper.node.resume();
        if !plan.faults.is_empty() && keeper.node.is_up() {
            keeper.node.power_off();
        }
    }
    if lock(shared).violation.is_none() {
        let verdict = judge_at_the_end(scene, plan, &mut workers).await;
        match verdict {
            // Damage was found: no answer is right, and nothing more can be asked.
            Err(violation) if plan.damages() && violation.invariant == "I28" => {
                *lock(shared).history.coverage.counters.entry("damage answered by errors".into()).or_default() += 1;
            }
            Err(violation) => {
                let mut shared = lock(shared);
                let (from_ms, outcome) = (shared.now_ms(), violation.to_string());
                let (lane, name, text) = ("judge".to_owned(), "verdict".to_owned(), "reads everything back".to_owned());
                let event = Event { lane, from_ms, to_ms: from_ms, kind: "check", name, text, outcome };
                shared.history.events.push(event);
                shared.violation.get_or_insert(violation);
            }
            Ok(()) => {}
        }
    }
}

fn client(machine: &SimNode, node: u32) -> Client {
    Client::new(machine.env(), address_of(node), USER, PASSWORD)
}

fn start_client(
    world: &SimWorld,
    ip: IpAddr,
    node: u32,
    ops: &[TimedOp],
    shared: &SharedHandle,
) -> impl Future<Output = Option<Worker>> + use<> {
    let IpAddr::V4(v4) = ip else { unreachable!("clients have IPv4 addresses") };
    let name = format!("c{}", v4.octets()[3] - 1);
    let machine = world.node(&name, ip);
    let mut worker = Worker::new(&name, client(&machine, node), Arc::clone(shared));
    let (env, ops) = (machine.env(), ops.to_vec());
    machine.spawn(async move {
        worker.run(&ops, |ms| env.sleep(Duration::from_millis(ms))).await;
        worker
    })
}

/// Waits until the nodes answer and makes the databases; again, should the first start be cut.
async fn set_up(judge: &SimNode, plan: &Plan) -> Result<(), Violation> {
    let mut last = String::new();
    for _ in 0..SET_UP_TRIES {
        let nodes = plan.world.nodes;
        ready(judge, nodes, plan.world.n > 0).await?;
        let mut client = client(judge, 0);
        if plan.world.n > 0 {
            match set_up_cluster(&mut client, &plan.world).await {
                Ok(()) => return soon_everywhere(judge, nodes, async |client| look_at_databases(client).await).await,
                Err(error) => last = error,
            }
            continue;
        }
        let made = client.json("PUT", &format!("/{DB}?q={}", plan.world.q), &Value::Null).await;
        match made {
            Ok(a) if a.status < 300 || a.status == 412 => match set_up_own(&mut client, plan.world.q).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            },
            other => last = format!("{other:?}"),
        }
    }
    Err(Violation { invariant: "I28", what: format!("the databases are not made: {last}") })
}

/// Waits until all nodes answer and, where they are one cluster, know each other.
pub(crate) async fn ready(judge: &SimNode, nodes: u32, cluster: bool) -> Result<(), Violation> {
    for node in 0..nodes {
        wait_until_up(judge, node).await?;
    }
    match cluster {
        true => soon_everywhere(judge, nodes, async |client| look_at_members(client, nodes).await).await,
        false => Ok(()),
    }
}

async fn wait_until_up(judge: &SimNode, node: u32) -> Result<(), Violation> {
    let env = judge.env();
    let started = env.now();
    while env.now().since(started) < RECOVERY {
        // A connection of its own for each try: an old one may be half open.
        let answer = env.timeout(Duration::from_secs(5), async { client(judge, node).get("/_up").await }).await;
        if matches!(answer, Ok(Ok(a)) if a.status == 200) {
            return Ok(());
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    Err(Violation { invariant: "I28", what: format!("node {node} does not answer after all faults have ended") })
}

/// Waits until all nodes of a cluster answer as they should in peace.
async fn soon_everywhere(
    judge: &SimNode,
    nodes: u32,
    look: impl AsyncFn(&mut Client) -> Result<(), String>,
) -> Result<(), Violation> {
    let env = judge.env();
    let started = env.now();
    for node in 0..nodes {
        while let Err(answer) = look(&mut client(judge, node)).await {
            if env.now().since(started) > SPREAD {
                let what = format!("node {node} does not hear of the others in peace: {answer}");
                return Err(Violation { invariant: "I28", what });
            }
            env.sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

async fn judge_at_the_end(scene: &Scene, plan: &Plan, workers: &mut [Worker]) -> Result<(), Violation> {
    let judge = &scene.judge;
    for node in 0..plan.world.nodes {
        wait_until_up(judge, node).await?;
    }
    let mut reader = Worker::new("judge", client(judge, 0), Arc::clone(&scene.shared));
    for worker in workers.iter_mut() {
        worker.reconnect();
    }
    if plan.world.n > 0 {
        judge.env().sleep(CONVERGENCE).await;
    }
    let several = if plan.world.n > 0 { plan.world.nodes } else { 0 };
    for node in 0..several {
        let mut reader = Worker::new(&format!("judge of node {node}"), client(judge, node), Arc::clone(&scene.shared));
        reader.judge_places().await?;
    }
    for node in 0..several {
        let mut reader = Worker::new(&format!("judge of node {node}"), client(judge, node), Arc::clone(&scene.shared));
        reader.judge_alone().await?;
    }
    let trees = reader.judge_at_the_end(workers).await?;
    for node in 1..several {
        let mut reader = Worker::new(&format!("judge of node {node}"), client(judge, node), Arc::clone(&scene.shared));
        reader.judge_at_the_end(&mut []).await?;
    }
    if plan.world.nodes == 2 && plan.world.n == 0 {
        reader.judge_copy(&mut client(judge, 1)).await?;
    }
    if plan.world.nodes > 1 {
        for worker in workers.iter_mut() {
            worker.judge_jobs().await?;
        }
    }
    // Where the disk was damaged a compaction may well meet it; the copies of a cluster are compacted one by one.
    if plan.world.n == 0 && !plan.damages() {
        reader.judge_compaction(&trees).await?;
    }
    Ok(())
}
