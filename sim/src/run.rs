//! One run: a plan carried out in a simulated world, checked while it runs and at its end.
//!
//! Phases: the nodes start and the databases are made in peace (but for a cut in the very first start); clients work
//! while faults happen; then all faults end, the power is cut once more, and after the last restart everything is read
//! back and held against the model. Where the disk was damaged an error is a right answer, wrong data is not.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use settee::storage::planted::Planted;
use settee::world::buggify;

use crate::bugs::Plant;
use crate::faults::Scene;
use crate::history::{Event, History};
use crate::keeper::Keeper;
use crate::liveness::check_core;
use crate::model::{Violation, Written};
use crate::peace::{check_final_state, client, set_up};
use crate::place::{HIDDEN, PORT, PROXY, client_ip, link, plain_address_of, settings_outside, speak_tls};
use crate::plan::{Plan, Reseed, TimedOp};
use crate::proxy::Proxy;
use crate::sights::{BeforeAndAfter, Told};
use crate::workload::{Asked, DESIGNS, Shared, SharedHandle, Together, Worker, lock};
use crate::world::{Options, PLAIN, SimWorld, run_seed_with};

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
    /// Its trees as answers showed them.
    pub shown: BeforeAndAfter,
    /// How far the feed's readers were told that they are.
    pub told: Vec<Told>,
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
    let doc = shared.violation.as_ref().and_then(|f| f.what.split(':').next());
    let tree = doc.map(|doc| shared.model.written(doc)).unwrap_or_default();
    let shown = doc.map(|doc| shared.sights.before_and_after(doc)).unwrap_or_default();
    let told = std::mem::take(&mut shared.sights.told);
    let Shared { answers, mut history, violation, .. } = shared;
    let mut report = |failure, trace_hash, simulated_ms, starts| {
        let (plan, history) = (plan.clone(), std::mem::take(&mut history));
        let (answers, tree, shown, told) = (answers.clone(), tree.clone(), shown.clone(), told.clone());
        Report { plan, failure, trace_hash, simulated_ms, starts, edits, answers, history, tree, shown, told }
    };
    match run {
        Ok(run) => {
            // The engine may panic over a file that a fault damaged.
            let caught = run.panics > 0 && !plan.damages();
            let caught =
                caught.then(|| Violation { invariant: "P", what: format!("{} panics were caught", run.panics) });
            let shown = run.counters.get(PLAIN).map(|segments| Violation {
                invariant: "I38",
                what: format!("{segments} segments show in plain what only TLS is to carry"),
            });
            let mut report =
                report(violation.or(caught).or(shown), run.trace_hash, run.virtual_time.as_millis() as u64, run.value);
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

/// Caps of the plan instead of the usual ones.
fn set_caps(plan: &Plan) {
    if plan.world.message_bytes > 0 {
        buggify::cap("cluster: bytes of a message", plan.world.message_bytes as usize);
        buggify::cap("cluster: bytes of a budget", plan.world.message_bytes as usize);
    }
    if plan.world.step_rows > 0 {
        let rows = plan.world.step_rows as usize;
        buggify::cap("index: rows of a step of a reduction", rows);
        // With an odd number answers are of several pages, too, each of several steps.
        if !rows.is_multiple_of(2) {
            buggify::cap("view: groups of a range read at once", rows + 3);
            buggify::cap("view: rows of a range read at once", rows + 3);
        }
        if rows == 5 {
            buggify::cap("index: states that a node holds", 2);
        }
    }
}

/// What the oracles know of a run before it begins.
fn begin(shared: &SharedHandle, world: &SimWorld, plan: &Plan) {
    let mut shared = lock(shared);
    shared.world = Some(world.clone());
    shared.several = plan.world.n > 0;
    shared.clusters = plan.stays();
    shared.right_clocks = !plan.moves_clocks();
    shared.model.several = plan.world.n > 0;
    // Two clusters take edits of one revision without asking each other.
    shared.model.in_peace = plan.is_in_peace() && !plan.moves_replicas() && plan.world.far.is_none();
    shared.views = plan.has_views();
    shared.searches = plan.world.searches;
    shared.designs = if shared.views { DESIGNS } else { 0 } + u64::from(plan.has_filters());
    shared.caps = plan.world.caps();
    shared.maintains = plan.checks_maintenance();
    shared.damaged = plan.damages();
    shared.model.loses_disks = plan.loses_disks();
    shared.together = if plan.world.n > 0 { Together::of(&plan.world) } else { Together::default() };
    shared.together.places.in_peace = plan.is_in_peace();
    shared.asked = Asked::of(plan);
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
    set_caps(&plan);
    speak_tls(plan.world.tls);
    if plan.world.tls {
        world.hide(HIDDEN);
    }
    begin(&shared, &world, &plan);
    let common = settings_outside();
    let keeper = |number| Keeper::new(&world, &plan, number, (planted, &common), &shared);
    let keepers: Vec<Keeper> = (0..plan.world.machines()).map(keeper).collect();
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
    let oracle = world.node("oracle", client_ip(0));
    let machine = world.node("peer", PROXY);
    // Invariant: nobody else listens there.
    let proxy =
        Proxy::start(&machine.env(), SocketAddr::new(PROXY, PORT), plain_address_of(0)).await.expect("an address");
    let clients = (1..=plan.clients.len()).map(|n| client_ip(n as u8)).chain([PROXY]).collect();
    let restarts_until_ms = AtomicU64::new(0);
    let scene = Scene { world, keepers, clients, oracle, proxy, shared, restarts_until_ms };
    scene.set_apart(&plan.world);
    let end = plan.until_ms.map_or(Duration::MAX, Duration::from_millis);
    tokio::select! {
        biased;
        () = act(&scene, &plan) => {}
        () = scene.world.sleep(end), if plan.until_ms.is_some() => {}
    }
    // Else they would start nodes again while the world is taken down.
    watches.iter().for_each(|watch| watch.abort());
    note_points(&scene.shared);
    scene.keepers.iter().map(|k| k.node.lives()).sum()
}

/// Notes which sites and points the run came to, and what was over a budget of memory.
fn note_points(shared: &SharedHandle) {
    let met = buggify::leave();
    let mut shared = lock(shared);
    if let Some(what) = met.over {
        shared.violation.get_or_insert(Violation { invariant: "I35", what });
    }
    let counters = &mut shared.history.coverage.counters;
    counters.extend(met.held.iter().map(|(what, share)| (format!("held {what}, hundredths summed"), *share)));
    counters.extend(met.points.iter().map(|(point, n)| (format!("point {point}"), *n)));
    counters.extend(met.sites.iter().map(|(site, (_, turned))| (format!("site {site}"), *turned)));
}

/// All phases of a run.
async fn act(scene: &Scene, plan: &Plan) {
    let (world, shared) = (&scene.world, &scene.shared);
    if let Err(violation) = set_up(&scene.oracle, plan).await {
        lock(shared).breaks(violation);
        return;
    }
    for keeper in &scene.keepers {
        keeper.node.disk().set_fuse(None);
    }
    let started = scene.clients.iter().zip(&plan.clients).enumerate();
    let nodes = if plan.world.n > 0 { plan.world.machines() } else { 1 };
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
        // Nothing that comes later can make it good.
        () = broken(shared) => return,
    };
    scene.restarted().await;
    scene.calm();
    if let Some(outcast) = plan.world.outcast
        && lock(shared).violation.is_none()
    {
        if let Err(violation) = check_core(scene, outcast).await {
            return condemn(shared, violation);
        }
        scene.calm();
    }
    for keeper in scene.keepers.iter().filter(|keeper| !plan.faults.is_empty() && keeper.node.is_up()) {
        keeper.node.power_off();
    }
    if lock(shared).violation.is_none() {
        let outcome = check_final_state(scene, plan, &mut workers).await;
        match outcome {
            // Damage was found: no answer is right, and nothing more can be asked.
            Err(violation) if plan.damages() && violation.invariant == "I28" => {
                *lock(shared).history.coverage.counters.entry("damage answered by errors".into()).or_default() += 1;
            }
            Err(violation) => condemn(shared, violation),
            Ok(()) => {}
        }
    }
}

/// Writes down that the oracle found a promise broken.
fn condemn(shared: &SharedHandle, violation: Violation) {
    let mut shared = lock(shared);
    let (from_ms, outcome) = (shared.now_ms(), violation.to_string());
    let (lane, name, text) = ("oracle".to_owned(), "final state".to_owned(), "reads everything back".to_owned());
    let event = Event { lane, from_ms, to_ms: from_ms, kind: "check", name, text, outcome };
    shared.history.events.push(event);
    shared.breaks(violation);
}

/// Waits until a promise is broken.
async fn broken(shared: &SharedHandle) {
    let mut told = lock(shared).broken.subscribe();
    if told.wait_for(|broken| *broken).await.is_err() {
        std::future::pending().await
    }
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
