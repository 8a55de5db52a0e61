//! Fair queue of script calls: the choice of the call that gets the next free worker, by shares of databases, then of
//! users.
//!
//! A database whose functions never return must not keep the functions of other databases from running. So the next
//! call is one of the database that has the fewest calls running, then of the user who has; among equals a validation
//! goes first, then the database that has used the least lately, then the oldest call. Some workers are reserved: the
//! last free ones are given only to databases that have nothing running, and only for validation, or where the database
//! has used little lately. A design document with a function that was stopped for time goes behind all others for a
//! while, and gets no reserved worker.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::ScriptError;
use crate::limits::scripts as limits;
use crate::world::{Env, Instant};

/// Who calls a function, and which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FunctionCaller {
    /// The database, as a hash.
    pub database: u64,
    /// The user within it, as a hash.
    pub user: u64,
    /// The program: `Program::key`.
    pub program: [u8; 32],
    /// Whether a write waits for it.
    pub is_validation: bool,
}

/// See the module head.
pub(super) struct FairQueue {
    env: Env,
    // A blocking lock: held for list operations only, never across an await.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    free: usize,
    /// Workers that not everybody may take.
    kept: usize,
    /// In the order in which they came.
    waiting: Vec<(FunctionCaller, oneshot::Sender<Turn>)>,
    shares: BTreeMap<u64, Share>,
    /// Programs that were stopped for time, and until when that counts.
    slow: BTreeMap<[u8; 32], Instant>,
}

/// What a database has of the workers.
#[derive(Default)]
struct Share {
    running: usize,
    /// Running calls by user.
    users: BTreeMap<u64, usize>,
    /// Time on workers, halved with each `limits::USE_HALVES`.
    used: Duration,
    /// When that was reckoned last.
    at: Instant,
}

impl Share {
    fn used_at(&self, now: Instant) -> Duration {
        let halves = now.since(self.at).as_secs_f64() / limits::USE_HALVES.as_secs_f64();
        self.used.mul_f64((-halves).exp2())
    }
}

/// The right to use one worker, until it is dropped.
pub(super) struct Turn {
    queue: Arc<FairQueue>,
    caller: FunctionCaller,
    began: Instant,
    /// Whether a function was stopped for time.
    pub was_stopped: bool,
    is_over: bool,
}

impl Turn {
    /// Gives the worker's place to another call while the call that had it may run on.
    pub fn cancel(mut self) {
        self.was_stopped = true;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.queue.end(self.caller, self.began, self.was_stopped);
        }
    }
}

impl FairQueue {
    /// For so many workers, of which some are kept.
    pub fn new(env: &Env, workers: usize, kept: usize) -> Arc<FairQueue> {
        let state = State { free: workers, kept, ..State::default() };
        Arc::new(FairQueue { env: env.clone(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a worker.
    ///
    /// # Errors
    /// [`ScriptError::Busy`] when too many calls wait, of this database or of all.
    pub async fn turn(self: &Arc<Self>, caller: FunctionCaller) -> Result<Turn, ScriptError> {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.state();
            state.waiting.retain(|(_, grant)| !grant.is_closed());
            let of_database = state.waiting.iter().filter(|(other, _)| other.database == caller.database).count();
            if state.waiting.len() >= limits::QUEUE || of_database >= limits::QUEUE_OF_DATABASE {
                return Err(ScriptError::Busy);
            }
            state.waiting.push((caller, grant));
        }
        self.start_next();
        // It is dropped with its queue only.
        granted.await.map_err(|_| ScriptError::Busy)
    }

    /// Gives free workers to the calls that are next.
    fn start_next(self: &Arc<Self>) {
        loop {
            let now = self.env.now();
            let (caller, grant) = {
                let mut state = self.state();
                let Some(at) = state.next(now) else { return };
                let (caller, grant) = state.waiting.remove(at);
                state.begin(caller);
                (caller, grant)
            };
            let turn = Turn { queue: Arc::clone(self), caller, began: now, was_stopped: false, is_over: false };
            if let Err(mut turn) = grant.send(turn) {
                // Its caller went away.
                turn.is_over = true;
                self.state().end(caller, now, now);
            }
        }
    }

    fn end(self: &Arc<Self>, caller: FunctionCaller, began: Instant, was_stopped: bool) {
        let now = self.env.now();
        {
            let mut state = self.state();
            state.end(caller, began, now);
            if was_stopped {
                state.note_slow(caller.program, now);
            }
        }
        self.start_next();
    }
}

impl State {
    /// The waiting call that gets the next free worker, if any may.
    fn next(&self, now: Instant) -> Option<usize> {
        if self.free == 0 {
            return None;
        }
        let none = Share::default();
        let mut best = None;
        for (at, (caller, _)) in self.waiting.iter().enumerate() {
            let share = self.shares.get(&caller.database).unwrap_or(&none);
            let (used, is_slow) = (share.used_at(now), self.is_slow(&caller.program, now));
            let may_take_kept = share.running == 0 && !is_slow && (caller.is_validation || used < limits::USE_LITTLE);
            if self.free <= self.kept && !may_take_kept {
                continue;
            }
            let of_user = share.users.get(&caller.user).copied().unwrap_or(0);
            let rank = (is_slow, share.running, of_user, !caller.is_validation, used, at);
            if best.is_none_or(|best| rank < best) {
                best = Some(rank);
            }
        }
        best.map(|(.., at)| at)
    }

    fn is_slow(&self, program: &[u8; 32], now: Instant) -> bool {
        self.slow.get(program).is_some_and(|until| *until > now)
    }

    fn note_slow(&mut self, program: [u8; 32], now: Instant) {
        self.slow.retain(|_, until| *until > now);
        if self.slow.len() < limits::SLOW_PROGRAMS {
            self.slow.insert(program, Instant(now.0 + limits::SLOW_FOR));
        }
    }

    fn begin(&mut self, caller: FunctionCaller) {
        self.free -= 1;
        let share = self.shares.entry(caller.database).or_default();
        share.running += 1;
        *share.users.entry(caller.user).or_default() += 1;
    }

    fn end(&mut self, caller: FunctionCaller, began: Instant, now: Instant) {
        self.free += 1;
        let Some(share) = self.shares.get_mut(&caller.database) else { return };
        share.used = share.used_at(now) + now.since(began);
        share.at = now;
        share.running -= 1;
        if let Some(running) = share.users.get_mut(&caller.user) {
            *running -= 1;
        }
        share.users.retain(|_, running| *running > 0);
        self.shares.retain(|_, share| share.running > 0 || share.used_at(now) > limits::USE_NOTHING);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(database: u64, user: u64, is_validation: bool) -> FunctionCaller {
        FunctionCaller { database, user, program: [database as u8; 32], is_validation }
    }

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    fn wait(state: &mut State, caller: FunctionCaller) {
        state.waiting.push((caller, oneshot::channel().0));
    }

    /// Starts all that may run; answers them in order.
    fn start(state: &mut State, now: Instant) -> Vec<FunctionCaller> {
        let mut started = Vec::new();
        while let Some(at) = state.next(now) {
            let (caller, _) = state.waiting.remove(at);
            state.begin(caller);
            started.push(caller);
        }
        started
    }

    #[test]
    fn a_database_that_wants_all_workers_leaves_one_for_the_validation_of_another() {
        let mut state = State { free: 5, kept: 1, ..State::default() };
        (0..100).for_each(|_| wait(&mut state, caller(1, 1, false)));
        assert_eq!(start(&mut state, at(1)).len(), 4);
        wait(&mut state, caller(2, 1, true));
        assert_eq!(start(&mut state, at(1)), [caller(2, 1, true)]);
    }

    #[test]
    fn databases_and_users_take_turns_and_a_program_that_was_stopped_stands_behind() {
        let mut state = State { free: 4, kept: 0, ..State::default() };
        for who in [caller(1, 1, false), caller(1, 1, false), caller(1, 2, false), caller(2, 1, false)] {
            wait(&mut state, who);
        }
        state.free = 3;
        assert_eq!(start(&mut state, at(1)), [caller(1, 1, false), caller(2, 1, false), caller(1, 2, false)]);
        for who in [caller(2, 1, false), caller(1, 2, false)] {
            state.end(who, at(1), at(2));
        }
        state.note_slow([1; 32], at(2));
        wait(&mut state, caller(3, 1, false));
        wait(&mut state, caller(2, 1, false));
        let later = start(&mut state, at(2));
        assert_eq!(later, [caller(3, 1, false), caller(2, 1, false)]);
        state.end(caller(3, 1, false), at(2), at(3));
        assert_eq!(start(&mut state, at(3)), [caller(1, 1, false)]);
    }

    #[test]
    fn one_that_was_stopped_gets_no_kept_worker_until_that_is_long_ago() {
        let mut state = State { free: 1, kept: 1, ..State::default() };
        state.note_slow([1; 32], at(0));
        wait(&mut state, caller(1, 1, true));
        assert_eq!(start(&mut state, at(1)), []);
        let later = Instant(limits::SLOW_FOR + Duration::from_secs(1));
        assert_eq!(start(&mut state, later), [caller(1, 1, true)]);
    }

    #[test]
    fn what_was_used_is_forgotten_with_time() {
        let mut state = State { free: 2, kept: 1, ..State::default() };
        state.begin(caller(1, 1, false));
        state.end(caller(1, 1, false), at(0), at(60));
        state.free = 1;
        wait(&mut state, caller(1, 1, false));
        assert_eq!(start(&mut state, at(60)), []);
        assert_eq!(start(&mut state, at(600)).len(), 1);
    }
}
