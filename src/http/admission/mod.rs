//! Admission of requests: a node that is asked for more than it can do answers a part of it in time, and refuses the
//! rest at once.
//!
//! Each request has a class ([`class`]). Of each class so many requests work at once; others wait for their turn,
//! fairly by user (or address) and database ([`queue`]). Where the queue is full, or a turn does not come within the
//! wait, the answer is 503, and 429 for a client that has its share of the queue, with `Retry-After`. A client that
//! goes away leaves the queue.
//!
//! A request with a body waits once that is there: a client that sends slowly has no turn. The turn lasts until the
//! answer begins. Of an answer that is made while it is taken, each further page has a turn of its own, so that neither
//! a client that reads slowly nor a feed that waits has one.

mod class;
mod queue;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::problem::{Problem, Result};
use super::request::Request;
use super::route::Endpoint;
use crate::config::Config;
use crate::limits;
use crate::observe::metrics::Histogram;
use crate::world::cost::{self, Cost};
use crate::world::sync::Mutex;
use crate::world::{Env, Instant, lock};
pub use class::AdmissionClass;
pub use queue::RequestOwner;
use queue::{Bounds, Full, Queue};

/// The queues of a node.
pub struct Admission {
    env: Env,
    config: Config,
    // A blocking lock: held for operations on maps only.
    queues: Mutex<Queues>,
}

struct Queues {
    /// Told when an option changes.
    changes: watch::Receiver<u64>,
    /// By [`AdmissionClass::ALL`].
    of: [Queue<oneshot::Sender<Turn>>; AdmissionClass::ALL.len()],
}

/// The right of a request to work, until it is dropped.
pub struct Turn {
    admission: Arc<Admission>,
    class: AdmissionClass,
    id: u64,
    is_over: bool,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.is_over {
            self.admission.end(self.class, self.id);
        }
    }
}

/// A request on its way to its answer, with its turn once it has one, and when it asked for that.
pub struct AtWork {
    pass: Pass,
    turn: Mutex<Option<(Turn, Instant)>>,
}

impl AtWork {
    /// A request that has no turn yet.
    pub fn new(pass: Pass) -> Arc<AtWork> {
        Arc::new(AtWork { pass, turn: Mutex::default() })
    }

    /// Waits for the turn of the request, unless it has one.
    ///
    /// # Errors
    /// 503 or 429 where it has none in time.
    pub async fn begin(&self) -> Result<()> {
        if lock(&self.turn).is_none() {
            let came = self.pass.admission.env.now();
            let turn = self.pass.turn().await?;
            *lock(&self.turn) = Some((turn, came));
        }
        Ok(())
    }

    /// The answer begins.
    pub fn end(&self) {
        let turn = lock(&self.turn).take();
        drop(turn);
    }
}

/// A client that went away while its request worked waited too long for it.
impl Drop for AtWork {
    fn drop(&mut self) {
        let turn = lock(&self.turn).take();
        if let Some((_turn, came)) = turn {
            let Admission { env, queues, .. } = &*self.pass.admission;
            lock(queues).of(self.pass.class).give_up(self.pass.caller, came, env.now());
        }
    }
}

/// What an answer that has begun needs to go on.
#[derive(Clone)]
pub struct Pass {
    admission: Arc<Admission>,
    class: AdmissionClass,
    caller: RequestOwner,
    /// What the request has cost: shows whether it makes progress.
    cost: Arc<Cost>,
}

impl Pass {
    /// The pass of a request; `None` for one that waits for nobody.
    pub fn of(admission: &Arc<Admission>, endpoint: &Endpoint, request: &Request) -> Option<Pass> {
        let (class, database) = class::class_of(endpoint, request.verb)?;
        let caller = caller(request.user.name.as_deref(), request.peer.ip(), database);
        Some(Pass { admission: Arc::clone(admission), class, caller, cost: cost::current().unwrap_or_default() })
    }

    /// Waits for the turn of a request.
    ///
    /// # Errors
    /// 503 or 429 where it has none in time.
    pub async fn turn(&self) -> Result<Turn> {
        self.admission.turn(self, false).await.map_err(|full| {
            self.admission.env.metrics().count(self.class.refused());
            match full {
                Full::Own => Problem::too_many_requests().retry_later(),
                Full::All => Problem::unavailable("Too many requests at once.").retry_later(),
            }
        })
    }

    /// Waits for a turn to go on with an answer that has begun: it is not refused, because that would cut the answer.
    pub async fn go_on(&self) -> Option<Turn> {
        self.admission.turn(self, true).await.ok()
    }
}

fn caller(user: Option<&str>, address: IpAddr, database: &str) -> RequestOwner {
    let client = match user {
        Some(name) => hashed(&(1, name)),
        None => hashed(&(2, address)),
    };
    RequestOwner { client, database: hashed(&database) }
}

fn hashed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The bounds of each class, by [`AdmissionClass::ALL`].
fn bounds(config: &Config, cores: usize) -> [Bounds; AdmissionClass::ALL.len()] {
    let count = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let queries = cores.saturating_mul(limits::ADMISSION_QUERIES_PER_CORE).max(limits::ADMISSION_QUERIES_MIN);
    let documents = count(config.u64("admission", "documents", limits::ADMISSION_DOCUMENTS));
    let queries = count(config.u64("admission", "queries", queries as u64));
    let feeds = count(config.u64("admission", "feeds", limits::ADMISSION_FEEDS));
    let queue = count(config.u64("admission", "queue", limits::ADMISSION_QUEUE));
    let wait = Duration::from_millis(config.u64("admission", "wait_ms", limits::ADMISSION_WAIT_MS));
    // Without a turn at all nothing would ever be answered.
    let of = |turns: usize, stalled| Bounds { turns: turns.max(1), stalled, queue, wait };
    [of(documents, usize::MAX), of(queries, limits::ADMISSION_STALLED_QUERIES), of(feeds, usize::MAX)]
}

impl Queues {
    fn of(&mut self, class: AdmissionClass) -> &mut Queue<oneshot::Sender<Turn>> {
        &mut self.of[class as usize]
    }

    fn heed(&mut self, env: &Env, config: &Config) {
        if self.changes.has_changed().unwrap_or(false) {
            self.changes.mark_unchanged();
            for (queue, bounds) in self.of.iter_mut().zip(bounds(config, env.host().cores())) {
                queue.bounds = bounds;
            }
        }
    }
}

impl Admission {
    /// Empty queues.
    pub fn new(env: &Env, config: &Config) -> Arc<Admission> {
        let of = bounds(config, env.host().cores()).map(Queue::new);
        let queues = Mutex::new(Queues { changes: config.watch(), of });
        Arc::new(Admission { env: env.clone(), config: config.clone(), queues })
    }

    async fn turn(self: &Arc<Self>, pass: &Pass, goes_on: bool) -> std::result::Result<Turn, Full> {
        let Pass { class, caller, ref cost, .. } = *pass;
        let now = self.env.now();
        let (grant, granted) = oneshot::channel();
        let waiter = {
            let mut queues = lock(&self.queues);
            queues.heed(&self.env, &self.config);
            let queue = queues.of(class);
            if let Some(id) = queue.try_begin(caller, cost, now) {
                return Ok(self.turn_of(class, id));
            }
            let id = queue.wait((caller, cost), goes_on, grant, now)?;
            Waiter { admission: Arc::clone(self), class, caller, id, granted: Some(granted) }
        };
        self.start_next(class);
        let metrics = self.env.metrics();
        metrics.count(class.waited());
        let _waiting = metrics.enter(class.waiting());
        let turn = waiter.wait(goes_on).await?;
        metrics.record_ms(Histogram::AdmissionWait, self.env.now().since(now));
        Ok(turn)
    }

    fn turn_of(self: &Arc<Self>, class: AdmissionClass, id: u64) -> Turn {
        Turn { admission: Arc::clone(self), class, id, is_over: false }
    }

    /// Gives the turns that are free to the requests that are next.
    fn start_next(self: &Arc<Self>, class: AdmissionClass) {
        loop {
            let now = self.env.now();
            let Some((id, grant)) = lock(&self.queues).of(class).start_next(now) else { return };
            if let Err(mut turn) = grant.send(self.turn_of(class, id)) {
                // Its client went away.
                turn.is_over = true;
                lock(&self.queues).of(class).end(id);
            }
        }
    }

    fn end(self: &Arc<Self>, class: AdmissionClass, id: u64) {
        let waits = lock(&self.queues).of(class).end(id);
        if waits {
            self.start_next(class);
        }
    }
}

/// A request that waits. Dropped, it leaves the queue.
struct Waiter {
    admission: Arc<Admission>,
    class: AdmissionClass,
    caller: RequestOwner,
    id: u64,
    /// `None` once it has its turn.
    granted: Option<oneshot::Receiver<Turn>>,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.leave(Some(self.admission.env.now()));
    }
}

impl Waiter {
    fn leave(&mut self, given_up: Option<Instant>) {
        if self.granted.take().is_some() {
            lock(&self.admission.queues).of(self.class).leave(self.caller, self.id, given_up);
        }
    }

    async fn wait(mut self, goes_on: bool) -> std::result::Result<Turn, Full> {
        let (admission, began) = (Arc::clone(&self.admission), self.admission.env.now());
        loop {
            let now = admission.env.now();
            let limit = lock(&admission.queues).of(self.class).bounds.wait;
            let left = if goes_on { Duration::MAX } else { limit.saturating_sub(now.since(began)) };
            let Some(granted) = self.granted.as_mut() else { return Err(Full::All) };
            if left.is_zero() && granted.is_empty() {
                // Its client waits still.
                self.leave(None);
                return Err(Full::All);
            }
            match admission.env.timeout(left.min(limits::ADMISSION_STALL), granted).await {
                Ok(turn) => {
                    self.granted = None;
                    return turn.map_err(|_| Full::All);
                }
                // Those that make no progress make way.
                Err(_) => admission.start_next(self.class),
            }
        }
    }
}

#[cfg(test)]
mod tests;
