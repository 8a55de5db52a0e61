//! A simulated machine with one process on it, which lives, dies and lives again.

use std::future::Future;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use madsim::runtime::Handle;
use madsim::task::NodeId;
use settee::world::Env;
use tokio::sync::watch;

use super::clock::WallClock;
use super::core::{Core, lock};
use super::dice::Dice;
use super::disk::SimDisk;
use super::host::{Life, SimHost};
use super::net::Net;

/// madsim remembers every task that it ever ran until somebody counts them.
const TASKS_PER_SWEEP: u64 = 4096;

/// A machine, for the scenario. Cheap to clone.
///
/// Work of the node belongs into [`SimNode::spawn`]: what runs elsewhere with the node's [`Env`] is not stopped when
/// the node dies, and panics if it waits for a blocking job then.
#[derive(Clone)]
pub struct SimNode(pub(super) Arc<NodeInner>);

pub(crate) struct NodeInner {
    pub(crate) name: String,
    pub(crate) ip: IpAddr,
    pub(crate) core: Arc<Core>,
    pub(crate) net: Arc<Net>,
    pub(crate) disk: Arc<SimDisk>,
    handle: Handle,
    id: NodeId,
    clock: Mutex<WallClock>,
    current: Mutex<Current>,
    up: watch::Sender<bool>,
    tasks: AtomicU64,
}

#[derive(Default)]
struct Current {
    lives: u64,
    paused: bool,
    running: Option<(Arc<Life>, Env)>,
}

impl NodeInner {
    pub(crate) fn wall(&self) -> Duration {
        lock(&self.clock).read(self.core.now())
    }

    pub(crate) fn task_started(&self) {
        if self.tasks.fetch_add(1, Ordering::Relaxed) % TASKS_PER_SWEEP == TASKS_PER_SWEEP - 1 {
            self.handle.metrics().num_tasks();
        }
    }

    /// Ends the current life; false if there is none.
    fn end_life(&self) -> bool {
        let mut current = lock(&self.current);
        let paused = std::mem::take(&mut current.paused);
        let running = current.running.take();
        drop(current);
        if paused {
            // madsim drops the tasks of a killed, paused node under a lock that their destructors may want.
            self.handle.resume(self.id);
        }
        match running {
            Some((life, env)) => {
                life.end();
                drop(env);
                true
            }
            None => false,
        }
    }

    fn kill(&self) {
        if self.end_life() {
            self.core.note(self.ip, "node.kill", 0);
            self.core.count("node.kill");
            self.disk.end_life();
            self.net.close_process(self.ip);
            self.stopped();
        }
    }

    fn stopped(&self) {
        self.handle.kill(self.id);
        self.up.send_replace(false);
    }

    pub(crate) fn power_off(&self) {
        if !self.end_life() {
            // A machine that is on without a process loses its page cache all the same.
            if self.net.is_on(self.ip) {
                self.disk.crash();
                self.net.power_off(self.ip);
            }
            return;
        }
        self.core.note(self.ip, "node.power_off", 0);
        self.core.count("node.power_off");
        self.disk.crash();
        self.net.power_off(self.ip);
        self.stopped();
    }
}

impl SimNode {
    pub(super) fn new(core: Arc<Core>, net: Arc<Net>, name: &str, ip: IpAddr, epoch: Duration) -> Self {
        let handle = Handle::current();
        let id = handle.create_node().name(name).ip(ip).build().id();
        let disk = SimDisk::new(core.clone(), name, ip);
        let inner = Arc::new(NodeInner {
            name: name.to_owned(),
            ip,
            core,
            net,
            disk,
            handle,
            id,
            clock: Mutex::new(WallClock::new(epoch)),
            current: Mutex::default(),
            up: watch::channel(false).0,
            tasks: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&inner);
        inner.disk.on_power_cut(move || {
            if let Some(node) = weak.upgrade() {
                node.power_off();
            }
        });
        let weak = Arc::downgrade(&inner);
        inner.disk.on_kill(move || {
            if let Some(node) = weak.upgrade() {
                node.kill();
            }
        });
        let node = SimNode(inner);
        node.start();
        node
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.0.ip
    }

    /// Its disk, for faults and inspection.
    pub fn disk(&self) -> &Arc<SimDisk> {
        &self.0.disk
    }

    /// Whether its process lives.
    pub fn is_up(&self) -> bool {
        lock(&self.0.current).running.is_some()
    }

    /// How many lives it had, the current one included.
    pub fn lives(&self) -> u64 {
        lock(&self.0.current).lives
    }

    /// The [`Env`] of the current life.
    ///
    /// # Panics
    /// When the node is down.
    pub fn env(&self) -> Env {
        match &lock(&self.0.current).running {
            Some((_, env)) => env.clone(),
            None => panic!("node {} is down", self.0.name),
        }
    }

    /// Runs a task on the node; it ends with the current life. `None` comes back when it did.
    ///
    /// # Panics
    /// When the node is down.
    pub fn spawn<T, F>(&self, task: F) -> impl Future<Output = Option<T>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.env().spawn_with(task)
    }

    /// Begins a new life: power comes on if it was off, an empty process runs. The first life begins by itself.
    ///
    /// # Panics
    /// When the node is up.
    pub fn start(&self) -> Env {
        let node = &self.0;
        let number = {
            let mut current = lock(&node.current);
            assert!(current.running.is_none(), "node {} is up", node.name);
            current.lives += 1;
            current.lives
        };
        if number > 1 {
            node.handle.restart(node.id);
            node.core.count("node.restart");
        }
        node.core.note(node.ip, "node.start", number);
        node.net.power_on(node.ip, number);
        // Invariant: nodes are never removed from a runtime.
        let spawner = node.handle.get_node(node.id).expect("the node was created");
        let life = Life::new(number);
        let env = Env::new(Arc::new(SimHost::new(node.clone(), life.clone(), spawner)));
        lock(&node.current).running = Some((life, env.clone()));
        node.up.send_replace(true);
        env
    }

    /// Cuts the power: unsynced data is at risk, peers hear nothing. Does nothing when the power is off.
    pub fn power_off(&self) {
        self.0.power_off();
    }

    /// Ends the process as `kill -9` does: the kernel keeps what was written and closes the sockets.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Stops the process without ending it (SIGSTOP, a long pause of a virtual machine). Its kernel goes on.
    pub fn pause(&self) {
        let mut current = lock(&self.0.current);
        if current.running.is_some() && !current.paused {
            current.paused = true;
            self.0.core.note(self.0.ip, "node.pause", 0);
            self.0.core.count("node.pause");
            self.0.handle.pause(self.0.id);
        }
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        let mut current = lock(&self.0.current);
        if std::mem::take(&mut current.paused) {
            self.0.core.note(self.0.ip, "node.resume", 0);
            self.0.handle.resume(self.0.id);
        }
    }

    /// Waits until the node is down, for instance by a fuse of its disk.
    pub async fn down(&self) {
        let mut up = self.0.up.subscribe();
        // Fails only without a sender, and this node holds it.
        let _ = up.wait_for(|up| !*up).await;
    }

    /// What its wall clock shows, as time since 1970.
    pub fn wall(&self) -> Duration {
        self.0.wall()
    }

    /// Moves the wall clock, back when negative.
    pub fn jump_clock(&self, by_ms: i64) {
        lock(&self.0.clock).jump(self.0.core.now(), by_ms);
        self.0.core.note(self.0.ip, "clock.jump", by_ms as u64);
        self.0.core.count("clock.jump");
    }

    /// Lets the wall clock run too fast by so many parts per million, too slow when negative.
    pub fn set_clock_drift(&self, ppm: i64) {
        lock(&self.0.clock).set_drift(self.0.core.now(), ppm);
        self.0.core.note(self.0.ip, "clock.drift", ppm as u64);
        self.0.core.count("clock.drift");
    }

    /// Stops the wall clock, or lets it go on from where it stood.
    pub fn freeze_clock(&self, frozen: bool) {
        lock(&self.0.clock).freeze(self.0.core.now(), frozen);
        self.0.core.note(self.0.ip, "clock.freeze", u64::from(frozen));
        self.0.core.count("clock.freeze");
    }

    /// A random stream of the scenario's own that belongs to this node.
    pub fn dice(&self, label: &str) -> Dice {
        Dice::new(self.0.core.seed, &format!("scenario {} {label}", self.0.name))
    }
}
