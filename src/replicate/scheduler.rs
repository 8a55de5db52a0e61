//! Scheduler of replications, for more of them than may run at once (`[replicator] max_jobs`).
//!
//! A job runs while it has a slot. Slots are given in the order of requests. While other jobs wait, the continuous jobs
//! that have run longest give up their slots at intervals, a few at a time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::config::Config;
use crate::limits;
use crate::world::{Env, Instant};

/// Why a slot is to end before its job does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Others wait.
    MakeWay,
    /// The job does not move.
    Stalled,
}

/// All slots of a node.
pub struct Scheduler {
    env: Env,
    config: Config,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the number of the job.
    running: BTreeMap<u64, Running>,
    waiting: VecDeque<(u64, oneshot::Sender<Slot>)>,
}

struct Running {
    since: Instant,
    /// Taken out when the turn was told to end.
    end: Option<oneshot::Sender<Ending>>,
}

/// The right to run; given back when dropped.
pub struct Slot {
    scheduler: Arc<Scheduler>,
    number: u64,
    end: oneshot::Receiver<Ending>,
}

/// A slot that was asked for.
pub struct AwaitedSlot(oneshot::Receiver<Slot>);

impl AwaitedSlot {
    /// The slot, once there is one.
    pub async fn slot(self) -> Slot {
        // Invariant: a sender that waits is only dropped with the one it waits for.
        self.0.await.expect("a turn")
    }
}

impl Slot {
    /// Waits until the turn is to end early.
    pub async fn over(&mut self) -> Ending {
        match (&mut self.end).await {
            Ok(ending) => ending,
            // The sender lives as long as the turn.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.scheduler.lock().running.remove(&self.number);
        self.scheduler.admit();
    }
}

impl Scheduler {
    /// Nobody runs.
    pub fn new(env: &Env, config: &Config) -> Arc<Scheduler> {
        Arc::new(Scheduler { env: env.clone(), config: config.clone(), state: Mutex::default() })
    }

    /// Asks for a slot for the job of this number; its place in the order is that of now.
    pub fn ask(self: &Arc<Self>, number: u64) -> AwaitedSlot {
        let (give, given) = oneshot::channel();
        self.lock().waiting.push_back((number, give));
        self.admit();
        AwaitedSlot(given)
    }

    fn most(&self) -> u64 {
        self.config.u64("replicator", "max_jobs", limits::REPLICATION_RUNNING_MAX).max(1)
    }

    /// Gives slots to those that wait, as long as there are some.
    fn admit(self: &Arc<Self>) {
        let most = self.most();
        loop {
            let (slot, give) = {
                let mut state = self.lock();
                if state.running.len() as u64 >= most {
                    return;
                }
                let Some((number, give)) = state.waiting.pop_front() else { return };
                let (tell, end) = oneshot::channel();
                state.running.insert(number, Running { since: self.env.now(), end: Some(tell) });
                (Slot { scheduler: Arc::clone(self), number, end }, give)
            };
            // The one that does not wait any more lets the turn drop, outside of the lock.
            drop(give.send(slot));
        }
    }

    /// Lets some of the jobs that `may_stop` make way for those that wait, or that are too many by now.
    pub fn rotate(self: &Arc<Self>, may_stop: impl Fn(u64) -> bool) {
        let churn = self.config.u64("replicator", "max_churn", limits::REPLICATION_CHURN);
        {
            let mut state = self.lock();
            let excess = (state.running.len() as u64).saturating_sub(self.most());
            let wanted = churn.min(state.waiting.len() as u64 + excess);
            let mut longest: Vec<(Instant, u64)> = state.running.iter().map(|(n, slot)| (slot.since, *n)).collect();
            longest.sort_unstable();
            let longest: Vec<u64> = longest.into_iter().map(|(_, number)| number).filter(|n| may_stop(*n)).collect();
            for number in longest.into_iter().take(usize::try_from(wanted).unwrap_or(usize::MAX)) {
                state.end(number, Ending::MakeWay);
            }
        }
        self.admit();
    }

    /// Ends the turn of a job that does not move.
    pub fn end_stalled(&self, number: u64) {
        self.lock().end(number, Ending::Stalled);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn end(&mut self, number: u64, ending: Ending) {
        if let Some(end) = self.running.get_mut(&number).and_then(|running| running.end.take()) {
            // One that gives its slot back at this moment hears nothing.
            let _ = end.send(ending);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn those_that_wait_come_in_order_and_those_that_ran_longest_make_way() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let set = |text: &str| Setting::parse(text).unwrap();
        let config = Config::in_memory(&env, vec![set("replicator/max_jobs=2"), set("replicator/max_churn=1")]);
        let scheduler = Scheduler::new(&env, &config);
        let mut first = scheduler.ask(1).slot().now_or_never().expect("a turn");
        let mut second = scheduler.ask(2).slot().now_or_never().expect("a turn");
        let (mut third, mut fourth) = (Box::pin(scheduler.ask(3).slot()), Box::pin(scheduler.ask(4).slot()));
        assert!(third.as_mut().now_or_never().is_none() && fourth.as_mut().now_or_never().is_none());
        scheduler.rotate(|number| number != 1);
        assert!(first.over().now_or_never().is_none());
        assert_eq!(second.over().now_or_never(), Some(Ending::MakeWay));
        drop(second);
        let third = third.now_or_never().expect("a turn");
        assert!(fourth.as_mut().now_or_never().is_none());
        scheduler.end_stalled(1);
        assert_eq!(first.over().now_or_never(), Some(Ending::Stalled));
        // One that went away while it waited takes no turn from others.
        drop(fourth);
        let fifth = scheduler.ask(5).slot();
        drop((first, third));
        // The turn is had from the moment on at which it was asked for, not from that of looking for it.
        runtime.block_on(config.set(("replicator", "max_jobs"), "1", false)).unwrap();
        assert!(fifth.now_or_never().is_some());
    }
}
