//! The [`Host`] of one life of a simulated node.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use madsim::runtime::NodeHandle;
use settee::world::{Abort, BoxFuture, BoxStream, Budget, Disk, Host, Instant, Job, Listener, Pool, Worker};
use tokio::sync::Semaphore;

use super::core::{SimSleep, lock};
use super::dice::Dice;
use super::net;
use super::node::NodeInner;
use super::trace::hash_bytes;

/// A job waits at most so long for its thread to wake.
const WAKE_MAX: Duration = Duration::from_millis(2);
/// Milliseconds of a budget that one question uses up: a script asks about every 10,000 jumps, so that an endless one
/// costs a run a fraction of a second.
const BUDGET_MS_PER_POLL: u128 = 10;
/// Disk time below this is not slept for.
const DEBT_MIN: Duration = Duration::from_micros(50);

/// One life of a process: from its start to its death.
pub(crate) struct Life {
    pub(crate) number: u64,
    alive: AtomicBool,
}

impl Life {
    pub(crate) fn new(number: u64) -> Arc<Self> {
        Arc::new(Life { number, alive: AtomicBool::new(true) })
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Relaxed)
    }

    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
    }
}

pub(crate) struct SimHost {
    node: Arc<NodeInner>,
    life: Arc<Life>,
    spawner: NodeHandle,
    dice: Arc<Mutex<Dice>>,
    disk: Arc<dyn Disk>,
    /// Where its monotonic clock began.
    origin: Duration,
    journal: Arc<Semaphore>,
    foreground: Arc<Semaphore>,
    background: Arc<Semaphore>,
}

impl SimHost {
    pub(crate) fn new(node: Arc<NodeInner>, life: Arc<Life>, spawner: NodeHandle) -> Self {
        let mut dice = Dice::new(node.core.seed, &format!("life {} {}", node.name, life.number));
        let origin = Duration::from_nanos(dice.below(1 << 50));
        let disk = node.disk.mount();
        SimHost {
            disk,
            origin,
            dice: Arc::new(Mutex::new(dice)),
            // The sizes of the production pools.
            journal: Arc::new(Semaphore::new(2)),
            foreground: Arc::new(Semaphore::new(8)),
            background: Arc::new(Semaphore::new(2)),
            node,
            life,
            spawner,
        }
    }

    fn threads_of(&self, free: Arc<Semaphore>) -> Threads {
        let (node, life, spawner) = (self.node.clone(), self.life.clone(), self.spawner.clone());
        Threads { node, life, spawner, dice: self.dice.clone(), free }
    }

    fn threads(&self, pool: Pool) -> Arc<Semaphore> {
        match pool {
            Pool::Journal => self.journal.clone(),
            Pool::Foreground => self.foreground.clone(),
            // No thread yields to another here: the processor is not simulated.
            Pool::Background | Pool::Build => self.background.clone(),
        }
    }
}

/// Threads that take jobs from one queue.
struct Threads {
    node: Arc<NodeInner>,
    life: Arc<Life>,
    spawner: NodeHandle,
    dice: Arc<Mutex<Dice>>,
    free: Arc<Semaphore>,
}

impl Worker for Threads {
    fn submit(&self, job: Job) {
        if !self.life.is_alive() {
            return;
        }
        self.node.task_started();
        let (node, life, dice, free) = (self.node.clone(), self.life.clone(), self.dice.clone(), self.free.clone());
        self.spawner.spawn(async move {
            let Ok(_thread) = free.acquire_owned().await else { return };
            let sleep = |time| SimSleep::new(node.core.clone(), node.ip, time);
            let wake = {
                let mut dice = lock(&dice);
                dice.chance(0.5).then(|| dice.between(Duration::ZERO, WAKE_MAX))
            };
            if let Some(time) = wake {
                sleep(time).await;
            }
            node.disk.take_debt();
            let report = job();
            let debt = node.disk.take_debt();
            // The job may have cut its own power: then nobody hears of it.
            if !life.is_alive() {
                return;
            }
            if debt >= DEBT_MIN {
                sleep(debt).await;
            }
            report();
        });
    }
}

impl Host for SimHost {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>> {
        if !self.life.is_alive() {
            return Box::pin(pending());
        }
        Box::pin(net::connect(self.node.net.clone(), self.node.ip, self.life.number, to))
    }

    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        if !self.life.is_alive() {
            return Box::pin(pending());
        }
        let (net, ip, life) = (self.node.net.clone(), self.node.ip, self.life.number);
        Box::pin(async move { net::listen(net, ip, life, at) })
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if !self.life.is_alive() {
            return Box::pin(pending());
        }
        Box::pin(SimSleep::new(self.node.core.clone(), self.node.ip, duration))
    }

    fn monotonic(&self) -> Instant {
        Instant(self.origin + self.node.core.now())
    }

    fn wall(&self) -> Duration {
        self.node.wall()
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        if !self.life.is_alive() {
            return Box::new(TaskAbort(None));
        }
        self.node.task_started();
        Box::new(TaskAbort(Some(self.spawner.spawn(task).abort_handle())))
    }

    fn run_blocking(&self, pool: Pool, job: Job) {
        self.threads_of(self.threads(pool)).submit(job);
    }

    fn worker(&self, _pool: Pool, _name: &str, _stack_bytes: usize) -> Arc<dyn Worker> {
        Arc::new(self.threads_of(Arc::new(Semaphore::new(1))))
    }

    fn budget(&self, limit: Duration) -> Budget {
        let mut left = (limit.as_millis() / BUDGET_MS_PER_POLL).max(1);
        Box::new(move || {
            left = left.saturating_sub(1);
            left == 0
        })
    }

    fn random(&self, buffer: &mut [u8]) {
        lock(&self.dice).fill(buffer);
        self.node.core.note(self.node.ip, "random", hash_bytes(0, buffer));
    }

    fn is_seeded(&self) -> bool {
        true
    }

    fn disk(&self) -> Arc<dyn Disk> {
        self.disk.clone()
    }
}

struct TaskAbort(Option<madsim::task::AbortHandle>);

impl Abort for TaskAbort {
    fn abort(&self) {
        if let Some(handle) = &self.0 {
            handle.abort();
        }
    }
}
