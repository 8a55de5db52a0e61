//! The queue of one class of requests: who has a turn, who waits, who is next.
//!
//! Callers that wait stand in a ring and are served round robin. A client that has its share of the turns is passed
//! over while others wait, and so is a database after that. Some turns are kept for clients that have none. A turn that
//! lasts long counts no more.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::limits;
use crate::world::Instant;

/// Whose request it is, as hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
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
    /// Requests beside them that work for long.
    pub long: usize,
    /// Requests that wait.
    pub queue: usize,
    /// How long a request waits.
    pub wait: Duration,
    /// The same while the queue does not get empty.
    pub busy_wait: Duration,
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
    /// Whether it is the next page of an answer that has begun.
    goes_on: bool,
    grant: G,
}

/// See the module head. `G` is how a request that waits is told.
pub(super) struct Queue<G> {
    pub bounds: Bounds,
    next: u64,
    /// Turns that count, in the order in which they began.
    running: BTreeMap<u64, (Caller, Instant)>,
    /// Those that do no more.
    long: BTreeMap<u64, Caller>,
    clients: Shares,
    databases: Shares,
    lines: BTreeMap<Caller, VecDeque<Waiting<G>>>,
    /// Callers that wait, in the order in which they are served.
    ring: VecDeque<Caller>,
    waiting: usize,
    /// Since when the queue has not been empty.
    busy_since: Option<Instant>,
}

impl<G> Queue<G> {
    pub fn new(bounds: Bounds) -> Queue<G> {
        Queue {
            bounds,
            next: 0,
            running: BTreeMap::new(),
            long: BTreeMap::new(),
            clients: Shares::default(),
            databases: Shares::default(),
            lines: BTreeMap::new(),
            ring: VecDeque::new(),
            waiting: 0,
            busy_since: None,
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn may_begin(&self, caller: Caller) -> bool {
        let free = self.bounds.turns.saturating_sub(self.running.len());
        free > self.bounds.kept() || free > 0 && self.clients.working(caller.client) == 0
    }

    /// A turn for a request that comes, if it has to wait for none. Nobody waits who could have it:
    /// [`Queue::start_next`] runs whenever a turn ends.
    pub fn try_begin(&mut self, caller: Caller, now: Instant) -> Option<u64> {
        self.may_begin(caller).then(|| self.begin(caller, now))
    }

    fn begin(&mut self, caller: Caller, now: Instant) -> u64 {
        let id = self.number();
        self.running.insert(id, (caller, now));
        self.clients.change(caller.client, |share| share.working += 1);
        self.databases.change(caller.database, |share| share.working += 1);
        id
    }

    /// A turn is over. True: requests wait, so that [`Queue::start_next`] may have one to start.
    pub fn end(&mut self, id: u64) -> bool {
        match self.running.remove(&id) {
            Some((caller, _)) => self.discount(caller),
            None => drop(self.long.remove(&id)),
        }
        self.waiting > 0
    }

    fn discount(&mut self, caller: Caller) {
        self.clients.change(caller.client, |share| share.working -= 1);
        self.databases.change(caller.database, |share| share.working -= 1);
    }

    /// Adds a request that waits, and answers its number. `goes_on`: it is part of an answer that has begun, goes ahead
    /// of the others of its caller and is never refused.
    pub fn wait(&mut self, caller: Caller, goes_on: bool, grant: G, now: Instant) -> Result<u64, Full> {
        if !goes_on {
            let own = self.clients.0.get(&caller.client).map_or(0, |share| share.waiting);
            if self.waiting >= self.bounds.queue {
                return Err(Full::All);
            }
            if own >= self.bounds.queue_own() {
                return Err(Full::Own);
            }
        }
        let id = self.number();
        let line = self.lines.entry(caller).or_default();
        if line.is_empty() {
            self.ring.push_back(caller);
        }
        let at = if goes_on { line.iter().take_while(|other| other.goes_on).count() } else { line.len() };
        line.insert(at, Waiting { id, goes_on, grant });
        self.count_waiting(caller, now);
        Ok(id)
    }

    fn count_waiting(&mut self, caller: Caller, now: Instant) {
        self.clients.change(caller.client, |share| share.waiting += 1);
        self.databases.change(caller.database, |share| share.waiting += 1);
        self.waiting += 1;
        self.busy_since.get_or_insert(now);
    }

    fn uncount_waiting(&mut self, caller: Caller) {
        self.clients.change(caller.client, |share| share.waiting -= 1);
        self.databases.change(caller.database, |share| share.waiting -= 1);
        self.waiting -= 1;
        if self.waiting == 0 {
            self.busy_since = None;
        }
    }

    /// A request waits no more; false where it had its turn meanwhile.
    pub fn leave(&mut self, caller: Caller, id: u64) -> bool {
        let Some(line) = self.lines.get_mut(&caller) else { return false };
        let Some(at) = line.iter().position(|waiting| waiting.id == id) else { return false };
        line.remove(at);
        if line.is_empty() {
            self.lines.remove(&caller);
            self.ring.retain(|other| *other != caller);
        }
        self.uncount_waiting(caller);
        true
    }

    /// How long a request may have waited now.
    pub fn limit(&self, now: Instant) -> Duration {
        let is_busy = self.busy_since.is_some_and(|since| now.since(since) >= limits::ADMISSION_BUSY_AFTER);
        if is_busy { self.bounds.busy_wait.min(self.bounds.wait) } else { self.bounds.wait }
    }

    /// Gives a turn to the request that is next, if one may have it.
    pub fn start_next(&mut self, now: Instant) -> Option<(u64, G)> {
        if self.waiting == 0 {
            return None;
        }
        self.pass_over_long(now);
        let caller = self.ring.remove(self.choose()?)?;
        let line = self.lines.get_mut(&caller)?;
        let Waiting { grant, .. } = line.pop_front()?;
        if line.is_empty() {
            self.lines.remove(&caller);
        } else {
            self.ring.push_back(caller);
        }
        let id = self.begin(caller, now);
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

    /// Turns that last long count no more, as many as may.
    fn pass_over_long(&mut self, now: Instant) {
        while self.long.len() < self.bounds.long
            && let Some(first) = self.running.first_entry()
            && now.since(first.get().1) >= limits::ADMISSION_LONG
        {
            let (id, (caller, _)) = first.remove_entry();
            self.long.insert(id, caller);
            self.discount(caller);
        }
    }

    /// Requests that wait, and those that have a turn which counts.
    #[cfg(test)]
    pub fn counts(&self) -> (usize, usize) {
        assert_eq!(self.waiting, self.lines.values().map(VecDeque::len).sum::<usize>());
        assert_eq!(self.ring.len(), self.lines.len());
        assert!(self.waiting + self.running.len() > 0 || self.clients.0.is_empty() && self.databases.0.is_empty());
        (self.waiting, self.running.len())
    }
}
