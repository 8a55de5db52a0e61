//! What every part of a world shares: the virtual clock, one heap of cancelable timers, the trace.
//!
//! madsim's own sleeps cannot be cancelled and cost an entry at every poll. So one driver task per world sleeps there,
//! until the earliest of our deadlines and never for less than a millisecond (madsim's shortest sleep).

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use madsim::time::TimeHandle;

use super::trace::Trace;

/// The shortest sleep: below it madsim would round up anyway.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Locks, also after a panic: a run that panicked is over, only its clean-up comes here.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happens when a timer is due.
pub(crate) enum Due {
    Wake(IpAddr, Waker),
    Run(Box<dyn FnOnce() + Send>),
}

/// Names a timer; deadline first, then the order in which they were set.
pub(crate) type TimerId = (Duration, u64);

#[derive(Default)]
struct Heap {
    due: BTreeMap<TimerId, Due>,
    next: u64,
    /// Wake-ups already asked of madsim.
    armed: BTreeSet<Duration>,
    driver: Option<Waker>,
}

pub(crate) struct Core {
    pub(crate) seed: u64,
    time: TimeHandle,
    heap: Mutex<Heap>,
    trace: Mutex<Trace>,
}

impl Core {
    pub(crate) fn new(seed: u64, time: TimeHandle) -> Arc<Self> {
        Arc::new(Core { seed, time, heap: Mutex::default(), trace: Mutex::default() })
    }

    /// Virtual time since the world began.
    pub(crate) fn now(&self) -> Duration {
        self.time.elapsed()
    }

    pub(crate) fn trace(&self) -> MutexGuard<'_, Trace> {
        lock(&self.trace)
    }

    pub(crate) fn note(&self, node: IpAddr, kind: &'static str, payload: u64) {
        self.trace().note(self.now(), node, kind, payload);
    }

    pub(crate) fn count(&self, name: &'static str) {
        self.trace().count(name, 1);
    }

    /// Sets a timer.
    pub(crate) fn at(&self, deadline: Duration, due: Due) -> TimerId {
        let mut heap = lock(&self.heap);
        heap.next += 1;
        let id = (deadline, heap.next);
        heap.due.insert(id, due);
        let earlier = heap.armed.first().is_none_or(|armed| deadline < *armed);
        let driver = if earlier { heap.driver.take() } else { None };
        drop(heap);
        if let Some(driver) = driver {
            driver.wake();
        }
        id
    }

    /// Runs `action` after `delay`.
    pub(crate) fn after(&self, delay: Duration, action: impl FnOnce() + Send + 'static) {
        self.at(self.now() + delay, Due::Run(Box::new(action)));
    }

    /// Takes a timer back; nothing happens if it has fired.
    pub(crate) fn cancel(&self, id: TimerId) {
        let removed = lock(&self.heap).due.remove(&id);
        drop(removed);
    }

    fn rewake(&self, id: TimerId, node: IpAddr, waker: &Waker) -> bool {
        match lock(&self.heap).due.get_mut(&id) {
            Some(due) => {
                *due = Due::Wake(node, waker.clone());
                true
            }
            None => false,
        }
    }

    /// Drops all timers: the world ends.
    pub(crate) fn clear(&self) {
        let heap = std::mem::take(&mut *lock(&self.heap));
        drop(heap);
    }

    pub(crate) fn timers(&self) -> usize {
        lock(&self.heap).due.len()
    }

    /// One turn of the driver: fires what is due, then asks madsim for the next wake-up.
    fn turn(&self, cx: &mut Context<'_>) {
        loop {
            let now = self.now();
            let mut heap = lock(&self.heap);
            heap.driver = Some(cx.waker().clone());
            if heap.due.first_key_value().is_none_or(|((deadline, _), _)| *deadline > now) {
                break;
            }
            let fired = heap.due.pop_first();
            drop(heap);
            match fired {
                Some((id, Due::Wake(node, waker))) => {
                    self.note(node, "timer", id.1);
                    waker.wake();
                }
                Some((_, Due::Run(action))) => action(),
                None => {}
            }
        }
        self.arm(cx);
    }

    fn arm(&self, cx: &mut Context<'_>) {
        let now = self.now();
        let mut heap = lock(&self.heap);
        heap.armed = heap.armed.split_off(&(now + Duration::from_nanos(1)));
        let Some(((deadline, _), _)) = heap.due.first_key_value() else { return };
        let at = (*deadline).max(now + TICK);
        if heap.armed.first().is_none_or(|armed| *armed > at) {
            heap.armed.insert(at);
            drop(heap);
            let mut sleep = self.time.sleep_until(self.time.now_instant() + (at - now));
            // madsim keeps the waker; the future itself is not needed to be woken.
            let _ = Pin::new(&mut sleep).poll(cx);
        }
    }
}

/// The driver of a world's timers; ends with the world.
pub(crate) async fn drive(core: Weak<Core>) {
    poll_fn(|cx| match core.upgrade() {
        Some(core) => {
            core.turn(cx);
            Poll::Pending
        }
        None => Poll::Ready(()),
    })
    .await;
}

/// A sleep that takes its timer back when dropped.
pub(crate) struct SimSleep {
    core: Arc<Core>,
    node: IpAddr,
    deadline: Duration,
    timer: Option<TimerId>,
}

impl SimSleep {
    pub(crate) fn new(core: Arc<Core>, node: IpAddr, duration: Duration) -> Self {
        let deadline = core.now().saturating_add(duration.max(TICK));
        SimSleep { core, node, deadline, timer: None }
    }
}

impl Future for SimSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.core.now() >= self.deadline {
            return Poll::Ready(());
        }
        let kept = self.timer.is_some_and(|id| self.core.rewake(id, self.node, cx.waker()));
        if !kept {
            self.timer = Some(self.core.at(self.deadline, Due::Wake(self.node, cx.waker().clone())));
        }
        Poll::Pending
    }
}

impl Drop for SimSleep {
    fn drop(&mut self) {
        if let Some(id) = self.timer {
            self.core.cancel(id);
        }
    }
}
