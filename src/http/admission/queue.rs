//! The queue of one class of requests: who has a turn, who waits, who is next.
//!
//! Callers that wait stand in a ring and are served round robin. A client that has its share of the turns is passed
//! over while others wait, and so is a database after that. Some turns are kept for clients that have none. Requests of
//! one caller are served in the order in which they came. Once a client of a caller gave up, no more requests of that
//! caller wait than are served before the next one would give up: a refusal costs less than a connection that ends and
//! is made anew. While more of them wait than that, the latest goes first: its client still waits for the answer. A
//! request that makes no progress for a while waits for something itself: its turn counts no
//! more.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::limits;
use crate::world::Instant;
use crate::world::cost::Cost;

/// Whose request it is, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestOwner {
    /// The user, or the address of a caller without a name.
    pub client: u64,
    /// The database.
    pub database: u64,
}

/// What bounds a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Requests that work at once.
    pub turns: usize,
    /// Requests beside them that wait for something themselves.
    pub stalled: usize,
    /// Requests that wait.
    pub queue: usize,
    /// How long a request waits.
    pub wait: Duration,
}

impl Bounds {
    /// Turns for clients that have none.
    fn kept(&self) -> usize {
        if self.turns < 2 { 0 } else { (self.turns / limits::ADMISSION_KEPT_PART).max(1) }
    }

    /// Places of the queue for one client.
    fn queue_own(&self) -> usize {
        match self.queue.checked_mul(limits::ADMISSION_QUEUE_OWN) {
            Some(parts) => parts / limits::ADMISSION_QUEUE_PARTS,
            None => self.queue,
        }
    }
}

/// Why a request cannot even wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// Its client has its share of the queue.
    Own,
    /// There is no place.
    All,
}

/// What a client or a database has.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    working: usize,
    waiting: usize,
}

/// Shares by their hashes; one that has nothing takes no memory.
#[derive(Default)]
struct Shares(BTreeMap<u64, Share>);

impl Shares {
    fn working(&self, of: u64) -> usize {
        self.0.get(&of).map_or(0, |share| share.working)
    }

    fn change(&mut self, of: u64, change: impl FnOnce(&mut Share)) {
        let share = self.0.entry(of).or_default();
        change(share);
        if share.working + share.waiting == 0 {
            self.0.remove(&of);
        }
    }

    /// Whether one of them has as many of `turns` as there are for each, or more.
    fn is_served(&self, of: u64, turns: usize) -> bool {
        self.working(of) >= turns.div_ceil(self.0.len().max(1))
    }
}

/// A request that waits.
struct Waiting<G> {
    id: u64,
    came: Instant,
    /// Whether it is the next page of an answer that has begun.
    goes_on: bool,
    cost: Arc<Cost>,
    grant: G,
}

/// The time between two turns of a caller.
#[derive(Default)]
struct Pace {
    last: Option<Instant>,
    /// On average of the last ones, because they come in bursts; 0 before the second.
    between: Duration,
    /// Of how many that is.
    of: u32,
}

impl Pace {
    /// A request gets its turn.
    fn note(&mut self, now: Instant) {
        let Some(before) = self.last.replace(now) else { return };
        self.of = (self.of + 1).min(limits::ADMISSION_PACED);
        self.between = (self.between * (self.of - 1) + now.since(before)) / self.of;
    }
}

/// The requests of one caller that wait.
struct Line<G> {
    waiting: VecDeque<Waiting<G>>,
    /// When a client gave up last although no other had waited for longer.
    given_up: Option<Instant>,
    /// After which time one of them gave up, and when that was: the least of late.
    patience: Option<(Duration, Instant)>,
    pace: Pace,
}

impl<G> Default for Line<G> {
    fn default() -> Line<G> {
        Line { waiting: VecDeque::new(), given_up: None, patience: None, pace: Pace::default() }
    }
}

impl<G> Line<G> {
    /// The client of a request that came then gives up. It tells nothing of others that have waited for longer, nor
    /// where it waited for a moment only.
    fn give_up(&mut self, came: Instant, now: Instant) {
        let is_earliest = self.waiting.iter().find(|other| !other.goes_on).is_none_or(|other| other.came >= came);
        if is_earliest && now.since(came) >= limits::ADMISSION_PATIENCE {
            self.given_up = Some(now);
            let waited = now.since(came);
            let least = self.patience(now).map_or(waited, |patience| patience.min(waited));
            self.patience = Some((least, now));
        }
    }

    /// The least time after which a client of the caller gave up of late.
    fn patience(&self, now: Instant) -> Option<Duration> {
        let (patience, seen) = self.patience?;
        (now.since(seen) < limits::ADMISSION_PATIENCE_FOR).then_some(patience)
    }

    /// The time that one more request would wait, in parts of what clients wait; 0 where none gave up.
    fn outlook(&self, now: Instant) -> f64 {
        let Some(patience) = self.patience(now) else { return 0.0 };
        self.pace.between.as_secs_f64() * (self.waiting.len() - self.pages()) as f64 / patience.as_secs_f64()
    }

    /// How many of those that wait are pages of answers that have begun: these go ahead of all others.
    fn pages(&self) -> usize {
        self.waiting.partition_point(|waiting| waiting.goes_on)
    }

    /// Takes the request that is next.
    fn take(&mut self, now: Instant) -> Option<Waiting<G>> {
        let goes_on = self.waiting.front()?.goes_on;
        // Pages are not counted: a request may have many.
        if !goes_on {
            self.pace.note(now);
        }
        let latest_first =
            self.given_up.is_some_and(|at| now.since(at) < limits::ADMISSION_LATEST_FOR) && self.outlook(now) > 1.0;
        if latest_first && !goes_on { self.waiting.pop_back() } else { self.waiting.pop_front() }
    }
}

/// A request that works.
struct Running {
    caller: RequestOwner,
    cost: Arc<Cost>,
    /// Its progress when it was looked at last.
    seen: u64,
    /// When that was.
    at: Instant,
}

/// See the module head. `G` is how a request that waits is told.
pub(super) struct Queue<G> {
    pub bounds: Bounds,
    next: u64,
    /// Turns that count.
    running: BTreeMap<u64, Running>,
    /// The same by the time when they were looked at last.
    looks: BTreeSet<(Instant, u64)>,
    /// Turns that count no more.
    stalled: BTreeMap<u64, RequestOwner>,
    clients: Shares,
    databases: Shares,
    lines: BTreeMap<RequestOwner, Line<G>>,
    /// Callers that wait, in the order in which they are served.
    ring: VecDeque<RequestOwner>,
    waiting: usize,
}

impl<G> Queue<G> {
    pub fn new(bounds: Bounds) -> Queue<G> {
        Queue {
            bounds,
            next: 0,
            running: BTreeMap::new(),
            looks: BTreeSet::new(),
            stalled: BTreeMap::new(),
            clients: Shares::default(),
            databases: Shares::default(),
            lines: BTreeMap::new(),
            ring: VecDeque::new(),
            waiting: 0,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn may_begin(&self, caller: RequestOwner) -> bool {
        let free = self.bounds.turns.saturating_sub(self.running.len());
        free > self.bounds.kept() || free > 0 && self.clients.working(caller.client) == 0
    }

    /// A turn for a request that comes, if it has to wait for none. Nobody waits who could have it:
    /// [`Queue::start_next`] runs whenever a turn ends.
    pub fn try_begin(&mut self, caller: RequestOwner, cost: &Arc<Cost>, now: Instant) -> Option<u64> {
        self.may_begin(caller).then(|| self.begin(caller, Arc::clone(cost), now))
    }

    fn begin(&mut self, caller: RequestOwner, cost: Arc<Cost>, now: Instant) -> u64 {
        let id = self.number();
        let seen = cost.progress();
        self.running.insert(id, Running { caller, cost, seen, at: now });
        self.looks.insert((now, id));
        self.clients.change(caller.client, |share| share.working += 1);
        self.databases.change(caller.database, |share| share.working += 1);
        id
    }

    /// A turn is over. True: requests wait, so that [`Queue::start_next`] may have one to start.
    pub fn end(&mut self, id: u64) -> bool {
        match self.running.remove(&id) {
            Some(Running { caller, at, .. }) => {
                self.looks.remove(&(at, id));
                self.discount(caller);
            }
            None => drop(self.stalled.remove(&id)),
        }
        self.waiting > 0
    }

    fn discount(&mut self, caller: RequestOwner) {
        self.clients.change(caller.client, |share| share.working -= 1);
        self.databases.change(caller.database, |share| share.working -= 1);
    }

    /// Adds a request that waits, and answers its number. `goes_on`: it is part of an answer that has begun, goes ahead
    /// of the others of its caller and is never refused.
    pub fn wait(
        &mut self,
        (caller, cost): (RequestOwner, &Arc<Cost>),
        goes_on: bool,
        grant: G,
        now: Instant,
    ) -> Result<u64, Full> {
        if !goes_on {
            let own = self.clients.0.get(&caller.client).map_or(0, |share| share.waiting);
            if self.waiting >= self.bounds.queue {
                return Err(Full::All);
            }
            if own >= self.bounds.queue_own()
                || self.lines.get(&caller).is_some_and(|line| line.outlook(now) > limits::ADMISSION_OUTLOOK_MOST)
            {
                return Err(Full::Own);
            }
        }
        let id = self.number();
        let line = self.lines.entry(caller).or_default();
        if line.waiting.is_empty() {
            self.ring.push_back(caller);
        }
        let at = if goes_on { line.pages() } else { line.waiting.len() };
        line.waiting.insert(at, Waiting { id, came: now, goes_on, cost: Arc::clone(cost), grant });
        self.count_waiting(caller);
        Ok(id)
    }

    fn count_waiting(&mut self, caller: RequestOwner) {
        self.clients.change(caller.client, |share| share.waiting += 1);
        self.databases.change(caller.database, |share| share.waiting += 1);
        self.waiting += 1;
    }

    fn uncount_waiting(&mut self, caller: RequestOwner) {
        self.clients.change(caller.client, |share| share.waiting -= 1);
        self.databases.change(caller.database, |share| share.waiting -= 1);
        self.waiting -= 1;
    }

    /// A request waits no more: its client gave up at that time, or it waited for as long as it may. False where it had
    /// its turn meanwhile.
    pub fn leave(&mut self, caller: RequestOwner, id: u64, given_up: Option<Instant>) -> bool {
        let Some(line) = self.lines.get_mut(&caller) else { return false };
        let Some(at) = line.waiting.iter().position(|waiting| waiting.id == id) else { return false };
        let left = line.waiting.remove(at);
        if let (Some(left), Some(now)) = (left.filter(|left| !left.goes_on), given_up) {
            line.give_up(left.came, now);
        }
        if line.waiting.is_empty() {
            self.lines.remove(&caller);
            self.ring.retain(|other| *other != caller);
        }
        self.uncount_waiting(caller);
        true
    }

    /// The client of a request that came then, and works, went away.
    pub fn give_up(&mut self, caller: RequestOwner, came: Instant, now: Instant) {
        if let Some(line) = self.lines.get_mut(&caller) {
            line.give_up(came, now);
        }
    }

    /// Gives a turn to the request that is next, if one may have it.
    pub fn start_next(&mut self, now: Instant) -> Option<(u64, G)> {
        if self.waiting == 0 {
            return None;
        }
        self.look(now);
        let caller = self.ring.remove(self.choose()?)?;
        let line = self.lines.get_mut(&caller)?;
        let Waiting { cost, grant, .. } = line.take(now)?;
        if line.waiting.is_empty() {
            self.lines.remove(&caller);
        } else {
            self.ring.push_back(caller);
        }
        let id = self.begin(caller, cost, now);
        self.uncount_waiting(caller);
        Some((id, grant))
    }

    /// The place in the ring of the caller that is next.
    fn choose(&self) -> Option<usize> {
        let turns = self.bounds.turns;
        let mut best = None;
        for (at, caller) in self.ring.iter().enumerate().filter(|(_, caller)| self.may_begin(**caller)) {
            let rank =
                (self.clients.is_served(caller.client, turns), self.databases.is_served(caller.database, turns), at);
            if best.is_none_or(|best| rank < best) {
                best = Some(rank);
            }
            if let (false, false, _) = rank {
                break;
            }
        }
        best.map(|(.., at)| at)
    }

    /// Turns of requests that made no progress since they were looked at last count no more, as many as may.
    fn look(&mut self, now: Instant) {
        while let Some((at, id)) = self.looks.first().copied()
            && now.since(at) >= limits::ADMISSION_STALL
        {
            self.looks.remove(&(at, id));
            let Some(running) = self.running.get_mut(&id) else { continue };
            let progress = running.cost.progress();
            if progress != running.seen || self.stalled.len() >= self.bounds.stalled {
                (running.seen, running.at) = (progress, now);
                self.looks.insert((now, id));
                continue;
            }
            let caller = running.caller;
            self.running.remove(&id);
            self.stalled.insert(id, caller);
            self.discount(caller);
        }
    }

    /// Requests that wait, and those that have a turn which counts.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        assert_eq!(self.waiting, self.lines.values().map(|line| line.waiting.len()).sum::<usize>());
        assert_eq!(self.ring.len(), self.lines.len());
        assert!(self.waiting + self.running.len() > 0 || self.clients.0.is_empty() && self.databases.0.is_empty());
        (self.waiting, self.running.len())
    }
}
