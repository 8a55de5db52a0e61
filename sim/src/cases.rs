//! The conformance cases as load: played, as they are, against simulated servers while things go wrong that no client
//! may notice. A slow network that loses segments, a disk that limps, tiny limits and rare turns lie under every case;
//! between two cases nodes crash, lose power and start again; of a cluster one node is away during every second case. A
//! case that holds in peace must hold then, too.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use settee::storage::planted::Planted;
use settee::world::Env;
use settee::world::buggify;
use settee_conformance::client::Target;
use settee_conformance::compare::compare;
use settee_conformance::ground::{Bytes, Ground, Work};
use settee_conformance::home;
use settee_conformance::player::Player;
use settee_conformance::profile::Profile;
use settee_conformance::transcript::{self, Case, Step};

use crate::history::endpoint;
use crate::keeper::Keeper;
use crate::peace::{client, meet, ready};
use crate::place::{PASSWORD, USER, address_of, link, plain_settings};
use crate::plan::{Plan, WorldPlan};
use crate::workload::{Shared, SharedHandle, lock};
use crate::world::{Dice, Options, SimNode, SimWorld, run_seed_with};

/// Cases of one run: some ten seeds in a row play them all.
const PER_RUN: usize = 60;
/// How long a server may be silent: longer than in peace, for its disk may limp.
const PATIENCE: Duration = Duration::from_secs(40);
/// Nodes of the cluster against which cases are played.
const NODES: u32 = 3;
/// How long a node of a cluster is away that others stand in for, in milliseconds: longer than most cases.
const AWAY_MS: u64 = 20_000;
/// How long the others may take to notice, and to have their own connections again after what was before: where a
/// second node is out of reach, too, 202 is the right answer.
const NOTICE_MAX: Duration = Duration::from_millis(AWAY_MS / 2);
/// Cases of this chapter look at the cluster itself, and see that a node is away.
const OF_CLUSTERS: &str = "cluster";
/// How targets begin that name a case's own databases. To delete one is answered with 202 while a node is away.
const DATABASE: &str = "/${db";
/// Cases that look at what is not of this world: its nodes have their configuration in memory, not in files, and their
/// tiny limits make groups of few rows, so that floats are added in another order than without, and a value that is
/// refused is the first of its group or not, which CouchDB says in other words.
const NOT_OF_THIS_WORLD: [&str; 3] = ["server/config-reload", "views/sums-from-the-last", "views/texts-in-refusals"];
/// How much slower a limping disk is than usual.
const LIMP: u32 = 20;

/// The simulated client machine as the ground of plays.
struct Simulated {
    env: Env,
    machine: SimNode,
    dice: Mutex<Dice>,
}

impl Ground for Simulated {
    fn connect(&self, host: &str, port: u16) -> Work<io::Result<Box<dyn Bytes>>> {
        let (env, address) = (self.env.clone(), host.parse().map(|ip| SocketAddr::new(ip, port)));
        Box::pin(async move {
            let address = address.map_err(io::Error::other)?;
            Ok(Box::new(env.host().connect(address).await?) as Box<dyn Bytes>)
        })
    }

    fn sleep(&self, time: Duration) -> Work<()> {
        self.env.host().sleep(time)
    }

    fn now(&self) -> Duration {
        self.env.now().0
    }

    fn spawn(&self, work: Work<()>) {
        drop(self.machine.spawn(work));
    }

    fn random(&self) -> u32 {
        // Invariant: nothing panics while it is held.
        self.dice.lock().expect("unpoisoned").below(u64::from(u32::MAX)) as u32
    }
}

/// What came of the cases of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Played and as in peace.
    pub held: usize,
    /// The server lacks what they want.
    pub skipped: usize,
    /// Played while a node of the cluster was away.
    pub without_a_node: usize,
    /// Starts of all nodes.
    pub starts: u64,
    /// Those that differ, with what differs.
    pub differing: Vec<(String, Vec<String>)>,
    /// Those that differ in peace, too, with what differs there: what they look at is not of this world.
    pub strange: Vec<(String, Vec<String>)>,
}

impl Outcome {
    /// Whether anything was shown, and nothing that should not be.
    pub fn is_good(&self) -> bool {
        self.held > 0 && self.differing.is_empty() && self.strange.is_empty()
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Outcome { held, skipped, without_a_node, starts, differing, strange } = self;
        write!(f, "{held} cases as in peace, {skipped} skipped, {without_a_node} without a node, {starts} starts")?;
        let in_peace = |(id, what): &(String, Vec<String>)| (id.clone(), what.join("; "));
        strange.iter().map(in_peace).try_for_each(|(id, what)| write!(f, "\n  {id} differs in peace, too: {what}"))?;
        differing.iter().try_for_each(|(id, what)| write!(f, "\n  FAILED {id}: {}", what.join("; ")))
    }
}

/// Plays the cases of a seed, or those whose name has `filter` in it, against one server or a cluster.
///
/// # Errors
/// Cases that cannot be read, servers that do not start, or panics.
pub fn run(seed: u64, cluster: bool, filter: Option<&str>) -> Result<Outcome, String> {
    let all = known()?;
    let runs = all.len().div_ceil(PER_RUN) as u64;
    let of_seed = all.into_iter().enumerate().filter(|(nth, case)| match filter {
        Some(text) => case.id.contains(text),
        None => *nth as u64 % runs == seed % runs,
    });
    let cases: Vec<Case> = of_seed.map(|(_, case)| case).collect();
    let mut outcome = play_in_world(world_plan(seed, cluster), cases.clone())?;
    if !outcome.differing.is_empty() {
        let again = cases.into_iter().filter(|case| outcome.differing.iter().any(|(id, _)| *id == case.id)).collect();
        let peace = play_in_world(peaceful(seed, cluster), again)?;
        outcome.strange = peace.differing;
        outcome.differing.retain(|(id, _)| !outcome.strange.iter().any(|(strange, _)| strange == id));
    }
    Ok(outcome)
}

/// All cases that settee is to pass.
fn known() -> Result<Vec<Case>, String> {
    let profile = Profile::load(&home().join("profiles"), "settee")?;
    let mut cases = transcript::load(&home().join("cases"))?;
    let is_of_this_world = |id: &str| !NOT_OF_THIS_WORLD.contains(&id);
    cases.retain(|case| !profile.expected.contains_key(&case.id) && is_of_this_world(&case.id));
    cases.iter_mut().for_each(|case| profile.relax(case));
    Ok(cases)
}

/// The endpoints that the cases ask, which `run` plays with faults.
///
/// # Errors
/// Cases that cannot be read.
pub fn endpoints() -> Result<BTreeSet<String>, String> {
    let of_step = |step: &Step| endpoint(&step.method, &step.target);
    Ok(known()?.iter().flat_map(|case| &case.steps).map(of_step).collect())
}

/// A plan without operations and faults: the world of the seed, as far as a client that waits may not notice it.
fn world_plan(seed: u64, cluster: bool) -> Plan {
    let plan = Plan::from_seed(seed);
    let world = WorldPlan {
        latency_us: plan.world.latency_us.min(5_000),
        loss_per_10k: plan.world.loss_per_10k.min(10),
        disk_slow: plan.world.disk_slow.min(10),
        turns: true,
        ..peaceful_world(plan.world, cluster)
    };
    Plan { world, clients: Vec::new(), faults: Vec::new(), ..plan }
}

fn peaceful(seed: u64, cluster: bool) -> Plan {
    let plan = Plan::from_seed(seed);
    let world = WorldPlan {
        latency_us: 100,
        loss_per_10k: 0,
        disk_slow: 1,
        flush_at_bytes: 16 << 20,
        cache_bytes: 1 << 20,
        turns: false,
        ..peaceful_world(plan.world, cluster)
    };
    Plan { world, clients: Vec::new(), faults: Vec::new(), ..plan }
}

fn peaceful_world(world: WorldPlan, cluster: bool) -> WorldPlan {
    let (nodes, n) = if cluster { (NODES, NODES) } else { (1, 0) };
    WorldPlan {
        nodes,
        n,
        first_start_cut: None,
        strict_reads: false,
        outcast: None,
        message_bytes: 0,
        step_rows: 0,
        tls: false,
        self_made: false,
        ..world
    }
}

fn play_in_world(plan: Plan, cases: Vec<Case>) -> Result<Outcome, String> {
    let options = Options { link: link(&plan.world), time_limit: Duration::from_secs(48 * 3600) };
    let run = run_seed_with(plan.seed, options, move |world| play_all(world, plan, cases));
    // No case damages stored bytes, so that no engine has a reason to panic.
    if run.panics > 0 {
        return Err(format!("{} panics were caught", run.panics));
    }
    run.value
}

async fn play_all(world: SimWorld, plan: Plan, cases: Vec<Case>) -> Result<Outcome, String> {
    buggify::enter(plan.seed, plan.world.turns, None);
    let shared: SharedHandle = Arc::new(Mutex::new(Shared { world: Some(world.clone()), ..Shared::default() }));
    let common = plain_settings();
    let keeper = |number| Keeper::new(&world, &plan, number, (Planted::none(), &common), &shared);
    let keepers: Vec<Keeper> = (0..plan.world.nodes).map(keeper).collect();
    keepers.iter().for_each(Keeper::launch);
    let watches: Vec<_> = keepers.iter().map(|k| madsim::task::spawn(k.clone().watch(world.clone()))).collect();
    let played = play_each(&world, &plan, &keepers, cases).await;
    watches.iter().for_each(|watch| watch.abort());
    buggify::leave();
    let violation = lock(&shared).violation.take();
    lock(&shared).world = None;
    violation.map_or(played, |violation| Err(violation.to_string()))
}

async fn play_each(world: &SimWorld, plan: &Plan, keepers: &[Keeper], cases: Vec<Case>) -> Result<Outcome, String> {
    let machine = world.node("player", "10.0.1.1".parse().map_err(|_| "an address")?);
    let mut dice = world.dice("between cases");
    let ground = Simulated { env: machine.env(), machine: machine.clone(), dice: Mutex::new(world.dice("plays")) };
    let ground: Arc<dyn Ground> = Arc::new(ground);
    let at = address_of(0);
    let (user, password) = (USER.to_owned(), PASSWORD.to_owned());
    let target = Target { host: at.ip().to_string(), port: at.port(), user, password, ground };
    let mut outcome = Outcome::default();
    if plan.world.n > 0 {
        ready(&machine, &plan.world).await.map_err(|violation| violation.to_string())?;
        finish_set_up(&machine).await?;
    }
    for case in cases {
        ready(&machine, &plan.world).await.map_err(|violation| violation.to_string())?;
        let player = Player::new(&target, PATIENCE);
        match player.missing(&case.requires).await {
            Ok(Some(_)) => {
                outcome.skipped += 1;
                continue;
            }
            Ok(None) => {}
            Err(told) => return Err(told),
        }
        if plan.world.turns && plan.world.n > 0 && does_not_notice(&case) && dice.chance(0.5) {
            let left = take_away(&mut dice, keepers);
            match meet(&machine, &left, NOTICE_MAX).await {
                true => outcome.without_a_node += 1,
                // It would be back in the midst of the case.
                false => ready(&machine, &plan.world).await.map_err(|violation| violation.to_string())?,
            }
        }
        let differences = match player.play(&case).await {
            Ok(played) => compare(&case, played.iter().map(|exchange| &exchange.outcome), true),
            Err(told) => vec![told],
        };
        keepers.iter().for_each(|keeper| keeper.stays_down(1));
        match differences.is_empty() {
            true => outcome.held += 1,
            false => outcome.differing.push((case.id, differences)),
        }
        if plan.world.turns {
            disturb(&mut dice, plan, keepers);
        }
    }
    outcome.starts = keepers.iter().map(|keeper| keeper.node.lives()).sum();
    Ok(outcome)
}

/// Whether a case is answered the same while a node of the cluster is away.
fn does_not_notice(case: &Case) -> bool {
    let is_database = |target: &str| target.starts_with(DATABASE) && target.matches('/').count() == 1;
    let deletes = |step: &Step| step.method == "DELETE" && is_database(&step.target);
    case.chapter != OF_CLUSTERS && !case.steps.iter().any(deletes)
}

/// Makes the databases of the system, as who runs a new cluster does.
async fn finish_set_up(machine: &SimNode) -> Result<(), String> {
    let wanted = json!({ "action": "finish_cluster" });
    match client(machine, 0).json("POST", "/_cluster_setup", &wanted).await {
        Ok(answer) if answer.status < 500 => Ok(()),
        other => Err(format!("the set-up is not finished: {other:?}")),
    }
}

/// Ends a node that is not the one that clients ask, for a while; the numbers of the others.
fn take_away(dice: &mut Dice, keepers: &[Keeper]) -> Vec<u32> {
    let taken = 1 + dice.below(keepers.len() as u64 - 1) as usize;
    keepers[taken].stays_down(AWAY_MS);
    keepers[taken].node.kill();
    (0..keepers.len()).filter(|node| *node != taken).map(|node| node as u32).collect()
}

/// Lets something happen between two cases: nodes die, or a disk limps through the next one.
fn disturb(dice: &mut Dice, plan: &Plan, keepers: &[Keeper]) {
    let mut faults = crate::keeper::usual_disk(&plan.world);
    keepers.iter().for_each(|keeper| keeper.node.disk().set_faults(faults.clone()));
    let keeper = &keepers[dice.below(keepers.len() as u64) as usize];
    let disk = keeper.node.disk();
    match dice.below(6) {
        0 => keeper.node.kill(),
        1 => keeper.node.power_off(),
        2 => keepers.iter().for_each(|keeper| keeper.node.power_off()),
        3 => {
            faults.slow *= LIMP;
            disk.set_faults(faults);
        }
        4 => {
            let place = if dice.chance(0.5) { "/data/store" } else { "/data/journal" };
            faults.slow_paths.push((place.into(), LIMP));
            disk.set_faults(faults);
        }
        _ => {}
    }
}
