//! States of indexes that are held between the pages of one answer.
//!
//! A reduction that does not fit into one page is read page by page, and all pages are of one state of the index. The
//! reading of the first page holds a view of the store under a number of the asker; each page that follows names the
//! number and is read from that view. States are in memory only: a restart ends all. The asker gives the number back
//! when its answer has ended, also where it did not wait for the first page: what comes after that is not held.
//!
//! Promises: what is read of an index under one number is of one state. The number of states, their memory, the time
//! that one is held in all and the time that nobody reads it are bounded (`limits/views.rs`). A state that was given up
//! is answered as [`IndexError::StateGone`], never by another state.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::sums::State;
use super::{IndexError, Signature, Slot, ViewIndex};
use crate::limits;
use crate::observe::metrics::{Entered, Gauge};
use crate::shard::ShardId;
use crate::storage::{LastingView, Storage, View};
use crate::world::buggify::{capped, sometimes, takes, weigh};
use crate::world::sync::Mutex;
use crate::world::{Env, Instant, lock};

/// Which state of an index a page is read of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateOf {
    /// That of the time of the reading.
    #[default]
    Now,
    /// The same; it is held where pages may follow.
    First(Hold),
    /// The one that is held under this number.
    Held(u64),
}

impl StateOf {
    /// Whether the page stands alone.
    pub fn is_now(&self) -> bool {
        *self == StateOf::Now
    }

    /// Where the state of the page may have to be held: when.
    pub(super) fn hold(self) -> Option<Hold> {
        match self {
            StateOf::First(hold) => Some(hold),
            StateOf::Now | StateOf::Held(_) => None,
        }
    }
}

/// What the asker knows of the pages that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Under which number. Nobody has given it for another answer.
    pub number: u64,
    /// It will read other places than those of this page, too.
    pub more: bool,
    /// It needs no more than the limit of this page.
    pub enough: bool,
}

impl Hold {
    /// Whether a page may follow one that reached its limit (`is_full`), or the end of its places (`is_last`).
    pub(super) fn is_due(self, is_full: bool, is_last: bool) -> bool {
        !(self.enough && is_full) && (self.more || !is_last)
    }
}

/// The index that a state is of, and its number.
type Key = (ShardId, Signature, u64);

/// What counts the bytes of states in reports.
const WHAT: &str = "memory of held states of indexes";

/// A state that is held.
pub(super) struct HeldState {
    lasting: LastingView,
    /// Dropped after the view, which lives by it.
    _storage: Storage,
    /// That of the sums to which `state` belongs.
    pub slot: Arc<Slot>,
    /// The state of the rows as sums count it; `None`: not known.
    pub state: Option<State>,
    begun: Instant,
    _gauge: Entered,
}

impl HeldState {
    pub fn view(&self) -> &dyn View {
        self.lasting.view.as_ref()
    }
}

impl Drop for HeldState {
    fn drop(&mut self) {
        takes(WHAT, -(self.lasting.bytes as i64));
    }
}

/// Those of a node.
pub(super) struct HeldStates {
    env: Env,
    /// How many there may be.
    most: usize,
    // A blocking lock: held for map operations only, never across an await.
    table: Mutex<Table>,
    /// Tells that there are fewer.
    freed: Notify,
}

#[derive(Default)]
struct Table {
    /// Each with the time when it was read last.
    states: BTreeMap<Key, (Arc<HeldState>, Instant)>,
    /// Some that were given back before they were held, oldest first.
    unwanted: VecDeque<Key>,
    /// Bytes of memory of all.
    bytes: usize,
    /// Places that are kept for readings that have waited, and their bytes.
    reserved: (usize, usize),
    /// Whether a task looks for those that are to be given up.
    is_watched: bool,
}

impl Table {
    fn remove(&mut self, key: Key) -> Option<Arc<HeldState>> {
        let (state, _) = self.states.remove(&key)?;
        self.bytes -= state.lasting.bytes;
        Some(state)
    }

    /// Whether one more of so many bytes may be held by who has `own` places and bytes reserved.
    fn has_room(&self, most: usize, bytes: usize, own: (usize, usize)) -> bool {
        let (count, held) = (self.states.len() + self.reserved.0 - own.0, self.bytes + self.reserved.1 - own.1);
        count == 0 || count < most && held + bytes <= limits::HELD_STATE_BYTES
    }
}

/// A place that is kept for a reading until it has read its page again; given back when this is dropped.
struct Reserved {
    states: Arc<HeldStates>,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let mut table = lock(&self.states.table);
        table.reserved = (table.reserved.0 - 1, table.reserved.1 - self.bytes);
        drop(table);
        self.states.freed.notify_waiters();
    }
}

impl HeldStates {
    pub fn new(env: &Env) -> HeldStates {
        HeldStates::with(env, limits::HELD_STATES)
    }

    /// That there may be so many of.
    pub fn with(env: &Env, most: usize) -> HeldStates {
        HeldStates { env: env.clone(), most, table: Mutex::default(), freed: Notify::new() }
    }

    /// Takes a state in; false if there is no room for it but what is `reserved`.
    ///
    /// # Errors
    /// [`IndexError::StateGone`] for a number that was given back, or under which a state is held: a call that comes
    /// again must not replace what pages are read of.
    fn keep(
        self: &Arc<Self>,
        (key, index): (Key, &ViewIndex),
        lasting: LastingView,
        state: Option<State>,
        reserved: Option<&Reserved>,
    ) -> Result<bool, IndexError> {
        self.give_up(is_over);
        let now = self.env.now();
        let mut table = lock(&self.table);
        if table.unwanted.contains(&key) || table.states.contains_key(&key) {
            return Err(IndexError::StateGone);
        }
        let own = reserved.map_or((0, 0), |reserved| (1, reserved.bytes));
        if !table.has_room(self.most(), lasting.bytes, own) {
            return Ok(false);
        }
        table.bytes += lasting.bytes;
        // One alone may be as large as it is.
        weigh(WHAT, table.bytes, limits::HELD_STATE_BYTES.max(lasting.bytes));
        weigh("held states of indexes", table.states.len() + 1, self.most().max(1));
        takes(WHAT, lasting.bytes as i64);
        let held = HeldState {
            lasting,
            _storage: index.replica.storage(),
            slot: Arc::clone(&index.slot),
            state,
            begun: now,
            _gauge: self.env.metrics().enter(Gauge::StatesHeld),
        };
        table.states.insert(key, (Arc::new(held), now));
        if !mem::replace(&mut table.is_watched, true) {
            self.watch();
        }
        Ok(true)
    }

    /// Places that are kept for readings that have waited.
    #[cfg(test)]
    pub fn reserved(&self) -> usize {
        lock(&self.table).reserved.0
    }

    fn most(&self) -> usize {
        capped("index: states that a node holds", self.most)
    }

    /// Keeps a place for a state of so many bytes, once there is one.
    ///
    /// # Errors
    /// [`IndexError::StatesFull`] once it has waited for long.
    async fn reserve(self: &Arc<Self>, bytes: usize, patience: &mut Patience) -> Result<Reserved, IndexError> {
        loop {
            // Before it is tried: what is given back in between counts.
            let (freed, begun) = (self.freed.notified(), self.env.now());
            {
                let mut table = lock(&self.table);
                if table.has_room(self.most(), bytes, (0, 0)) {
                    table.reserved = (table.reserved.0 + 1, table.reserved.1 + bytes);
                    return Ok(Reserved { states: Arc::clone(self), bytes });
                }
            }
            let left = limits::HELD_STATE_WAIT.saturating_sub(patience.waited);
            let is_freed = self.env.timeout(left, freed).await.is_ok();
            patience.waited += self.env.now().since(begun);
            if !is_freed {
                return Err(IndexError::StatesFull);
            }
        }
    }

    /// Has a task give up in time what nobody gives back.
    fn watch(self: &Arc<Self>) {
        let (env, weak) = (self.env.clone(), Arc::downgrade(self));
        self.env.spawn(async move {
            loop {
                env.sleep(limits::HELD_STATE_CHECK).await;
                let Some(states) = weak.upgrade() else { return };
                states.give_up(is_over);
                let mut table = lock(&states.table);
                if table.states.is_empty() {
                    table.is_watched = false;
                    return;
                }
            }
        });
    }

    fn get(&self, key: Key) -> Option<Arc<HeldState>> {
        let now = self.env.now();
        let mut table = lock(&self.table);
        let (state, used) = table.states.get_mut(&key)?;
        if is_over(state, *used, now) {
            return None;
        }
        *used = now;
        Some(Arc::clone(state))
    }

    /// Gives a state back, or has it not be held.
    fn release(&self, key: Key) {
        let gone = {
            let mut table = lock(&self.table);
            let gone = table.remove(key);
            if gone.is_none() {
                if table.unwanted.len() >= self.most {
                    table.unwanted.pop_front();
                }
                table.unwanted.push_back(key);
            }
            gone
        };
        if gone.is_some() {
            self.freed.notify_waiters();
        }
    }

    /// Gives up those that were held for longer, because the disk has no room for what they keep it from using again.
    pub fn give_up_for_room(&self) {
        self.give_up(|state, _, now| now.since(state.begun) >= limits::HELD_STATE_SCARCE);
    }

    fn give_up(&self, is_over: impl Fn(&HeldState, Instant, Instant) -> bool) {
        let now = self.env.now();
        let gone: Vec<Arc<HeldState>> = {
            let mut table = lock(&self.table);
            let over = table.states.iter().filter(|(_, (state, used))| is_over(state, *used, now));
            let over: Vec<Key> = over.map(|(key, _)| *key).collect();
            over.into_iter().filter_map(|key| table.remove(key)).collect()
        };
        if !gone.is_empty() {
            self.freed.notify_waiters();
        }
    }
}

fn is_over(state: &HeldState, used: Instant, now: Instant) -> bool {
    now.since(used) >= limits::HELD_STATE_IDLE || now.since(state.begun) >= limits::HELD_STATE_TOTAL
}

/// The wait of a reading for room to hold its state.
#[derive(Default)]
pub(super) struct Patience {
    /// How long it has waited in all.
    waited: Duration,
    /// What it has waited for.
    reserved: Option<Reserved>,
}

impl ViewIndex {
    fn state_key(&self, number: u64) -> Key {
        (self.replica.id(), self.definition.signature, number)
    }

    /// Holds a state that a reading has seen; false: there was no room. There is now, and the reading is to begin anew:
    /// its view is not held while it waits.
    ///
    /// # Errors
    /// [`IndexError::StatesFull`] once it has waited for long, [`IndexError::StateGone`] if nobody waits for the page.
    pub(super) async fn hold(
        &self,
        number: u64,
        (lasting, state): (LastingView, Option<State>),
        patience: &mut Patience,
    ) -> Result<bool, IndexError> {
        let (states, bytes) = (&self.states, lasting.bytes);
        let reserved = patience.reserved.take();
        if states.keep((self.state_key(number), self), lasting, state, reserved.as_ref())? {
            sometimes("index: a state was held for the pages of an answer");
            return Ok(true);
        }
        drop(reserved);
        patience.reserved = Some(states.reserve(bytes, patience).await?);
        Ok(false)
    }

    /// The state that is held under a number.
    ///
    /// # Errors
    /// [`IndexError::StateGone`].
    pub(super) fn held(&self, number: u64) -> Result<Arc<HeldState>, IndexError> {
        self.states.get(self.state_key(number)).ok_or(IndexError::StateGone)
    }

    /// Gives a state back that is held for an answer: no page follows.
    pub fn release(&self, number: u64) {
        self.states.release(self.state_key(number));
    }
}
