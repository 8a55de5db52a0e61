//! The simulated world: one seed decides everything that happens in it.
//!
//! Executor, virtual time and the killing of nodes are madsim's; timers, network, disks, clocks and pools are ours.
//! [`run_seed`] runs a scenario in a fresh world; [`SimWorld`] holds the faults; [`SimNode`] is one machine.
//! Limits: time has steps of a millisecond for a task that waits, and a poll costs no virtual time worth mention.

use std::collections::BTreeMap;
use std::future::Future;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use madsim::runtime::Runtime;
use madsim::time::TimeHandle;

mod clock;
mod core;
mod dice;
mod disk;
mod host;
mod net;
mod node;
mod panics;
mod trace;

pub use dice::Dice;
pub(crate) use disk::placed::{AUTHORITY, CERTIFICATE, KEY};
pub use disk::{CrashReport, DiskFaults, DiskImage, SimDisk};
pub use net::{Hidden, Link, PLAIN, WINDOW};
pub use node::SimNode;

use core::{Core, SimSleep, lock};
use net::Net;

/// No simulated test needs more of the stack; debug builds of deep futures need more than the 2 MB of a thread.
const STACK_BYTES: usize = 16 << 20;
/// The world's own place in the trace.
const WORLD: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// 2026-01-01, the earliest start of a world, and the span of the starts.
const EPOCH_SECONDS: u64 = 1_767_225_600;
const EPOCH_SPAN_SECONDS: u64 = 365 * 24 * 3600;

/// What a world is like at its start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Links without a rule of their own.
    pub link: Link,
    /// Virtual time after which the run panics: it hangs.
    pub time_limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Options { link: Link::default(), time_limit: Duration::from_secs(24 * 3600) }
    }
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Run<T> {
    /// What the scenario returned.
    pub value: T,
    /// The hash over all events; equal seeds of equal code have equal hashes.
    pub trace_hash: u64,
    /// How many events it is made of.
    pub events: u64,
    /// How often each fault and behaviour was met.
    pub counters: BTreeMap<&'static str, u64>,
    /// Virtual time of the run.
    pub virtual_time: Duration,
    /// Panics that were caught: one that is not ends the run.
    pub panics: u64,
}

/// Runs a scenario in the world of a seed, on a thread of its own, to its end.
///
/// # Panics
/// With the scenario's panic, after naming the seed on standard error.
pub fn run_seed<T, F>(seed: u64, scenario: impl FnOnce(SimWorld) -> F + Send + 'static) -> Run<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    run_seed_with(seed, Options::default(), scenario)
}

/// [`run_seed`] with other options.
pub fn run_seed_with<T, F>(seed: u64, options: Options, scenario: impl FnOnce(SimWorld) -> F + Send + 'static) -> Run<T>
where
    T: Send + 'static,
    F: Future<Output = T>,
{
    panics::count();
    let work = move || {
        let mut runtime = Runtime::with_seed_and_config(seed, madsim::Config::default());
        runtime.set_time_limit(options.time_limit);
        runtime.block_on(async move {
            let world = SimWorld::new(seed, options);
            let value = scenario(world.clone()).await;
            let run = Run {
                value,
                trace_hash: world.trace_hash(),
                events: world.events(),
                counters: world.counters(),
                virtual_time: world.now(),
                panics: panics::counted(),
            };
            world.shut_down().await;
            run
        })
    };
    let thread = std::thread::Builder::new().name(format!("seed-{seed}")).stack_size(STACK_BYTES).spawn(work);
    // Invariant: a machine that cannot start a thread cannot run tests.
    match thread.expect("a thread for the seed").join() {
        Ok(run) => run,
        Err(panic) => {
            eprintln!("the run of seed {seed} panicked");
            std::panic::resume_unwind(panic)
        }
    }
}

/// A world: nodes, the network between them, and all that can go wrong. Cheap to clone.
#[derive(Clone)]
pub struct SimWorld(Arc<Inner>);

struct Inner {
    core: Arc<Core>,
    net: Arc<Net>,
    nodes: Mutex<BTreeMap<IpAddr, SimNode>>,
    epoch: Duration,
}

impl SimWorld {
    /// A new world. Call inside a madsim runtime of the same seed, once per runtime; see [`run_seed`].
    pub fn new(seed: u64, options: Options) -> Self {
        let core = Core::new(seed, TimeHandle::current());
        madsim::task::spawn(core::drive(Arc::downgrade(&core)));
        let net = Net::new(core.clone(), options.link);
        let start = EPOCH_SECONDS + Dice::new(seed, "epoch").below(EPOCH_SPAN_SECONDS);
        let nodes = Mutex::default();
        SimWorld(Arc::new(Inner { core, net, nodes, epoch: Duration::from_secs(start) }))
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.0.core.seed
    }

    /// What right clocks showed when the world began: time since the Unix epoch.
    pub fn epoch(&self) -> Duration {
        self.0.epoch
    }

    /// Virtual time since the world began.
    pub fn now(&self) -> Duration {
        self.0.core.now()
    }

    /// Waits, in virtual time (at least a millisecond).
    pub async fn sleep(&self, duration: Duration) {
        SimSleep::new(self.0.core.clone(), WORLD, duration).await;
    }

    /// A random stream of the scenario's own.
    pub fn dice(&self, label: &str) -> Dice {
        Dice::new(self.seed(), &format!("scenario {label}"))
    }

    /// A new machine, up and empty.
    ///
    /// # Panics
    /// When the address is taken.
    pub fn node(&self, name: &str, ip: IpAddr) -> SimNode {
        let inner = &self.0;
        let node = SimNode::new(inner.core.clone(), inner.net.clone(), name, ip, inner.epoch);
        let before = lock(&inner.nodes).insert(ip, node.clone());
        assert!(before.is_none(), "two nodes with the address {ip}");
        node
    }

    /// The machine with an address.
    pub fn node_at(&self, ip: IpAddr) -> Option<SimNode> {
        lock(&self.0.nodes).get(&ip).cloned()
    }

    /// All machines, by address.
    pub fn nodes(&self) -> Vec<SimNode> {
        lock(&self.0.nodes).values().cloned().collect()
    }

    /// See [`SimNode::power_off`]; an unknown address is nobody's.
    pub fn power_off(&self, ip: IpAddr) {
        if let Some(node) = self.node_at(ip) {
            node.power_off();
        }
    }

    /// See [`SimNode::start`]; does nothing when the node is up.
    pub fn power_on(&self, ip: IpAddr) {
        if let Some(node) = self.node_at(ip).filter(|node| !node.is_up()) {
            node.start();
        }
    }

    /// The hash over all that happened so far: network segments, disk changes, random draws, timers, faults.
    pub fn trace_hash(&self) -> u64 {
        self.0.core.trace().hash()
    }

    /// How many events the hash covers.
    pub fn events(&self) -> u64 {
        self.0.core.trace().events()
    }

    /// Adds an event of the scenario's own to the trace.
    pub fn note(&self, kind: &'static str, payload: u64) {
        self.0.core.note(WORLD, kind, payload);
    }

    /// Counts something that the scenario wants to have met.
    pub fn count(&self, name: &'static str) {
        self.0.core.count(name);
    }

    /// Counts from now on, as [`PLAIN`], segments that show what nobody may read who sees what passes.
    pub fn hide(&self, hidden: Hidden) {
        self.0.net.hide(hidden);
    }

    /// How often each fault and behaviour was met.
    pub fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.0.core.trace().counters()
    }

    /// Writes one line per event from now on, to compare two runs.
    pub fn log_to(&self, log: impl Write + Send + 'static) {
        self.0.core.trace().log_to(Box::new(log));
    }

    /// Timers set and connections known: what a leak would make grow.
    pub fn load(&self) -> (usize, usize) {
        (self.0.core.timers(), self.0.net.connections())
    }

    /// Ends all nodes and drops what they hold, so that nothing of the world stays in memory.
    async fn shut_down(&self) {
        self.0.core.trace().flush();
        let nodes = std::mem::take(&mut *lock(&self.0.nodes));
        for node in nodes.values() {
            node.power_off();
        }
        // madsim drops the tasks of dead nodes as it comes to them.
        madsim::time::sleep(Duration::from_millis(2)).await;
        self.0.net.clear();
        self.0.core.clear();
    }
}

/// Faults of the network.
impl SimWorld {
    /// Cuts one way between two machines.
    pub fn cut(&self, from: IpAddr, to: IpAddr) {
        self.0.net.cut(from, to);
    }

    /// Takes [`SimWorld::cut`] back.
    pub fn heal(&self, from: IpAddr, to: IpAddr) {
        self.0.net.heal(from, to);
    }

    /// Cuts every way between two groups, both ways.
    pub fn partition(&self, left: &[IpAddr], right: &[IpAddr]) {
        self.partition_one_way(left, right);
        self.partition_one_way(right, left);
    }

    /// Cuts every way from one group to another; the other direction stays open.
    pub fn partition_one_way(&self, from: &[IpAddr], to: &[IpAddr]) {
        for a in from {
            for b in to {
                self.cut(*a, *b);
            }
        }
    }

    /// Cuts a machine off from all others.
    pub fn isolate(&self, ip: IpAddr) {
        let others: Vec<_> = self.nodes().iter().map(SimNode::ip).filter(|other| *other != ip).collect();
        self.partition(&[ip], &others);
    }

    /// From now on everything that is drawn is drawn otherwise: the order of tasks, the network, the disks.
    pub fn reseed(&self, salt: u64) {
        dice::reseed(salt);
        // The executor's own stream has no other handle than its use.
        for _ in 0..salt {
            madsim::rand::random::<u64>();
        }
    }

    /// Takes all cuts, rules of links and clogs back.
    pub fn heal_all(&self) {
        self.0.net.heal_all();
    }

    /// Holds back all that is sent from one machine to another for a time; nothing is lost.
    pub fn clog(&self, from: IpAddr, to: IpAddr, time: Duration) {
        self.0.net.clog(from, to, time);
    }

    /// Changes all links without a rule of their own.
    pub fn set_usual_link(&self, link: Link) {
        self.0.net.set_usual(link);
    }

    /// Gives one direction between two machines a rule of its own, or takes it away.
    pub fn set_link(&self, from: IpAddr, to: IpAddr, link: Option<Link>) {
        self.0.net.set_link(from, to, link);
    }

    /// Resets every open connection between two machines from the middle; yields how many.
    pub fn reset_between(&self, a: IpAddr, b: IpAddr) -> usize {
        self.0.net.reset_between(a, b)
    }
}
