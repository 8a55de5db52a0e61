//! One run: a plan carried out in a simulated world with one node, judged while it runs and at its end.
//!
//! Phases: the node starts and the database is made in peace; clients work while faults happen; then all faults end,
//! the power is cut once more, and after the last restart everything is read back and held against the model.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use settee::config::{Config, Setting};
use settee::node::Node;
use settee::storage::StorageOptions;
pub use settee::storage::planted::Bug;
use settee::storage::planted::Planted;

use crate::client::Client;
use crate::model::Violation;
use crate::plan::{Fault, Plan, TimedFault, WorldPlan};
use crate::workload::{DB, Shared, SharedHandle, Worker};
use crate::world::{DiskFaults, Link, Options, SimNode, SimWorld, run_seed_with};

/// Every bug that can be planted.
pub const BUGS: [Bug; 2] = [Bug::SkipFsync, Bug::LoseSibling];

const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const PORT: u16 = 5984;
/// A salted SHA-1 of `pass`: cheap to check, as a run has no time for 600,000 rounds.
const ADMIN: &str = "admins/adm=-hashed-58dfc08c75be240db5082eddfbe23a6d5202e77f,00";
const USER: &str = "adm";
const PASSWORD: &str = "pass";
/// How long the node may take to answer again once all faults have ended.
const RECOVERY: Duration = Duration::from_secs(120);

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
    /// Lives of the node.
    pub starts: u64,
    /// Edits acknowledged, refused, unknown.
    pub edits: (usize, usize, usize),
    /// Answers by kind.
    pub answers: BTreeMap<&'static str, u64>,
    /// How often each fault and behaviour was met.
    pub counters: BTreeMap<&'static str, u64>,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Carries a plan out, with a bug planted if asked, on a thread of its own.
pub fn run_plan(plan: Plan, bug: Option<Bug>) -> Report {
    let options = Options { link: link(&plan.world), time_limit: Duration::from_secs(3600) };
    let scene = plan.clone();
    let run = catch_unwind(AssertUnwindSafe(|| {
        run_seed_with(plan.seed, options, move |world| async move { scenario(world, scene, bug).await })
    }));
    match run {
        Ok(run) => {
            let (shared, starts) = run.value;
            Report {
                plan,
                failure: shared.violation,
                trace_hash: run.trace_hash,
                simulated_ms: run.virtual_time.as_millis() as u64,
                starts,
                edits: shared.model.outcomes(),
                answers: shared.answers,
                counters: run.counters,
            }
        }
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned())).unwrap_or_default();
            let failure = Some(Violation { invariant: "P", what: format!("panic: {text}") });
            let (answers, counters) = (BTreeMap::new(), BTreeMap::new());
            Report { plan, failure, trace_hash: 0, simulated_ms: 0, starts: 0, edits: (0, 0, 0), answers, counters }
        }
    }
}

fn link(world: &WorldPlan) -> Link {
    let latency = Duration::from_micros(world.latency_us);
    Link { latency: (latency / 2, latency * 2), loss: f64::from(world.loss_per_10k) / 10_000.0, ..Link::default() }
}

/// The node and what keeps it running.
#[derive(Clone)]
struct Keeper {
    node: SimNode,
    options: StorageOptions,
    /// How long it stays down the next time, in milliseconds.
    down_ms: Arc<AtomicU64>,
    shared: SharedHandle,
}

impl Keeper {
    /// Starts the node's program in the current life of its machine.
    fn launch(&self) {
        let env = self.node.env();
        let (options, shared, disk) = (self.options, Arc::clone(&self.shared), Arc::clone(self.node.disk()));
        env.clone().spawn(async move {
            let port = format!("chttpd/port={PORT}");
            let settings = [ADMIN, "couchdb/uuid=00", "chttpd/bind_address=any", port.as_str()];
            let config = Config::in_memory(&env, settings.into_iter().filter_map(Setting::parse).collect());
            loop {
                match Node::start_with(&env, &config, Path::new("/data"), options).await {
                    Ok(_node) => std::future::pending::<()>().await,
                    // An operator tries again; what the disk refused may work then.
                    Err(_) if fails(&disk.faults()) => env.sleep(Duration::from_millis(300)).await,
                    Err(error) => {
                        let violation =
                            Violation { invariant: "I27", what: format!("the node does not start: {error}") };
                        lock(&shared).violation.get_or_insert(violation);
                        return;
                    }
                }
            }
        });
    }

    /// Starts the node again whenever it is down.
    async fn watch(self, world: SimWorld) {
        loop {
            self.node.down().await;
            world.sleep(Duration::from_millis(self.down_ms.load(Ordering::Relaxed).max(1))).await;
            self.node.start();
            self.launch();
        }
    }
}

fn lock(shared: &SharedHandle) -> std::sync::MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

async fn scenario(world: SimWorld, plan: Plan, bug: Option<Bug>) -> (Shared, u64) {
    let shared: SharedHandle = Arc::new(Mutex::new(Shared::default()));
    let planted = bug.map_or(Planted::none(), |bug| Planted::none().with(bug));
    let options = StorageOptions {
        cache_bytes: 1 << 20,
        flush_at_bytes: plan.world.flush_at_bytes,
        planted,
        ..StorageOptions::default()
    };
    let node = world.node("node", NODE);
    node.disk().set_faults(usual_disk(&plan.world));
    let keeper =
        Keeper { node: node.clone(), options, down_ms: Arc::new(AtomicU64::new(1)), shared: Arc::clone(&shared) };
    keeper.launch();
    let watch = madsim::task::spawn(keeper.clone().watch(world.clone()));
    let judge = world.node("judge", client_ip(0));
    if let Err(violation) = make_database(&judge, plan.world.q).await {
        lock(&shared).violation.get_or_insert(violation);
        watch.abort();
        return (std::mem::take(&mut *lock(&shared)), node.lives());
    }

    let ips: Vec<IpAddr> = (1..=plan.clients.len()).map(|n| client_ip(n as u8)).collect();
    let clients: Vec<_> =
        ips.iter().zip(&plan.clients).map(|(ip, ops)| start_client(&world, *ip, ops, &shared)).collect();
    inject(&world, &keeper, &plan, &ips).await;
    let mut workers = Vec::new();
    for client in clients {
        workers.extend(client.await);
    }

    world.heal_all();
    node.disk().set_fuse(None);
    node.disk().set_faults(usual_disk(&plan.world));
    if !plan.faults.is_empty() && node.is_up() {
        node.power_off();
    }
    if lock(&shared).violation.is_none() {
        let verdict = judge_at_the_end(&judge, &shared, &mut workers).await;
        if let Err(violation) = verdict {
            lock(&shared).violation.get_or_insert(violation);
        }
    }
    drop(workers);
    // Else it would start the node again while the world is taken down.
    watch.abort();
    (std::mem::take(&mut *lock(&shared)), node.lives())
}

fn client_ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 1, n + 1))
}

fn fails(faults: &DiskFaults) -> bool {
    faults.sync_error > 0.0 || faults.write_error > 0.0
}

fn usual_disk(world: &WorldPlan) -> DiskFaults {
    DiskFaults { slow: world.disk_slow, ..DiskFaults::default() }
}

fn client(machine: &SimNode) -> Client {
    Client::new(machine.env(), SocketAddr::new(NODE, PORT), USER, PASSWORD)
}

fn start_client(
    world: &SimWorld,
    ip: IpAddr,
    ops: &[crate::plan::TimedOp],
    shared: &SharedHandle,
) -> impl Future<Output = Option<Worker>> + use<> {
    let machine = world.node(&format!("client {ip}"), ip);
    let mut worker = Worker::new(&ip.to_string(), client(&machine), Arc::clone(shared));
    let (env, ops) = (machine.env(), ops.to_vec());
    machine.spawn(async move {
        worker.run(&ops, |ms| env.sleep(Duration::from_millis(ms))).await;
        worker
    })
}

/// Waits until the node answers and makes the database.
async fn make_database(judge: &SimNode, q: u32) -> Result<(), Violation> {
    wait_until_up(judge).await?;
    let answer = client(judge).json("PUT", &format!("/{DB}?q={q}"), &Value::Null).await;
    match answer {
        Ok(a) if a.status == 201 => Ok(()),
        other => Err(Violation { invariant: "I28", what: format!("the database is not made: {other:?}") }),
    }
}

async fn wait_until_up(judge: &SimNode) -> Result<(), Violation> {
    let env = judge.env();
    let started = env.now();
    while env.now().since(started) < RECOVERY {
        // A connection of its own for each try: an old one may be half open.
        let answer = env.timeout(Duration::from_secs(5), async { client(judge).get("/_up").await }).await;
        if matches!(answer, Ok(Ok(a)) if a.status == 200) {
            return Ok(());
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    Err(Violation { invariant: "I28", what: "the node does not answer after all faults have ended".into() })
}

async fn judge_at_the_end(judge: &SimNode, shared: &SharedHandle, workers: &mut [Worker]) -> Result<(), Violation> {
    wait_until_up(judge).await?;
    let mut reader = Worker::new("judge", client(judge), Arc::clone(shared));
    for worker in workers.iter_mut() {
        worker.reconnect();
    }
    reader.judge_at_the_end(workers).await
}

/// Lets the plan's faults happen at their times.
async fn inject(world: &SimWorld, keeper: &Keeper, plan: &Plan, clients: &[IpAddr]) {
    let started = world.now();
    for TimedFault { at_ms, fault } in &plan.faults {
        let at = started + Duration::from_millis(*at_ms);
        world.sleep(at.saturating_sub(world.now())).await;
        apply(world, keeper, plan, clients, fault);
    }
}

fn apply(world: &SimWorld, keeper: &Keeper, plan: &Plan, clients: &[IpAddr], fault: &Fault) {
    let node = &keeper.node;
    let later = |ms: &u64, then: Box<dyn FnOnce(&SimWorld) + Send>| {
        let (world, time) = (world.clone(), Duration::from_millis(*ms));
        madsim::task::spawn(async move {
            world.sleep(time).await;
            then(&world);
        });
    };
    match fault {
        Fault::Crash { down_ms } => {
            keeper.down_ms.store(*down_ms, Ordering::Relaxed);
            if node.is_up() {
                node.kill();
            }
        }
        Fault::PowerLoss { down_ms } => {
            keeper.down_ms.store(*down_ms, Ordering::Relaxed);
            node.power_off();
        }
        Fault::Fuse { ops, down_ms } => {
            keeper.down_ms.store(*down_ms, Ordering::Relaxed);
            node.disk().set_fuse(Some(*ops));
        }
        Fault::Partition { for_ms, answers_only } => {
            let clients = clients.to_vec();
            world.partition_one_way(&[NODE], &clients);
            if !answers_only {
                world.partition_one_way(&clients, &[NODE]);
            }
            later(
                for_ms,
                Box::new(move |world| {
                    for client in &clients {
                        world.heal(NODE, *client);
                        world.heal(*client, NODE);
                    }
                }),
            );
        }
        Fault::Reset => {
            for client in clients {
                world.reset_between(NODE, *client);
            }
        }
        Fault::SlowDisk { factor, for_ms } => {
            let (usual, disk) = (usual_disk(&plan.world), Arc::clone(node.disk()));
            disk.set_faults(DiskFaults { slow: *factor, ..usual.clone() });
            later(for_ms, Box::new(move |_| disk.set_faults(usual)));
        }
        Fault::DiskErrors { per_1000, for_ms } => {
            let (usual, disk) = (usual_disk(&plan.world), Arc::clone(node.disk()));
            let chance = f64::from(*per_1000) / 1000.0;
            disk.set_faults(DiskFaults { sync_error: chance, write_error: chance, ..usual.clone() });
            later(for_ms, Box::new(move |_| disk.set_faults(usual)));
        }
        Fault::ClockJump { by_ms } => node.jump_clock(*by_ms),
    }
}
