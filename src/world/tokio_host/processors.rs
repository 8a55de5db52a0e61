//! Leaves a processor to requests while a view is built.
//!
//! A thread that wakes up has to wait until the time slice of the one that runs is over, although that one has a lower
//! priority: 3 ms with Linux 6.18, and a read wakes three threads. A build keeps all processors busy: its functions,
//! the journal that takes its rows, the flushes that follow. So while a build runs and requests are served, the threads
//! of those classes leave the first processor to the others. It costs builds beside requests a part of their speed, and
//! nothing on a node that only builds or only serves. `scripts/bench views` shows both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

use crate::world::Pool;

/// A build runs, or requests are served, when the last job of its class began at most so long ago, in ms.
const RECENT_MS: u64 = 200;

/// The processors of a node and the threads that leave one of them to others; see the module head.
pub(super) struct Processors {
    origin: Instant,
    /// In ms after the origin, from 1 on; 0: never.
    request_at: AtomicU64,
    build_at: AtomicU64,
    /// Whether one is left to requests now.
    leaves_one: AtomicBool,
    /// All, and all but one; `None` where there is but one, or the system does not tell.
    sets: Option<(CpuSet, CpuSet)>,
    threads: Mutex<Vec<Pid>>,
}

/// A thread that leaves a processor to requests, as long as this lives.
pub(super) struct Enlisted(Arc<Processors>, Pid);

impl Processors {
    pub(super) fn new() -> Arc<Processors> {
        let sets = sched_getaffinity(None).ok().and_then(|all| all_but_one(all).map(|fewer| (all, fewer)));
        Arc::new(Processors {
            origin: Instant::now(),
            request_at: AtomicU64::new(0),
            build_at: AtomicU64::new(0),
            leaves_one: AtomicBool::new(false),
            sets,
            threads: Mutex::default(),
        })
    }

    fn threads(&self) -> MutexGuard<'_, Vec<Pid>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the thread that calls this, if those of its class leave a processor to requests.
    pub(super) fn enlist(self: &Arc<Self>, pool: Pool) -> Option<Enlisted> {
        if pool == Pool::Foreground {
            return None;
        }
        let thread = gettid();
        let mut threads = self.threads();
        threads.push(thread);
        self.place(thread, self.leaves_one.load(Ordering::Relaxed));
        Some(Enlisted(Arc::clone(self), thread))
    }

    /// Takes note of a job and moves threads where that changes what they may use.
    pub(super) fn begins(&self, pool: Pool) {
        // Invariant: a node runs for less than 500 million years.
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX) + 1;
        match pool {
            Pool::Foreground => self.request_at.store(now, Ordering::Relaxed),
            Pool::Build => self.build_at.store(now, Ordering::Relaxed),
            Pool::Journal | Pool::Background => {}
        }
        let is_recent = |at: &AtomicU64| {
            let at = at.load(Ordering::Relaxed);
            at > 0 && now.saturating_sub(at) <= RECENT_MS
        };
        let leaves_one = is_recent(&self.request_at) && is_recent(&self.build_at);
        if leaves_one != self.leaves_one.load(Ordering::Relaxed) {
            let threads = self.threads();
            if self.leaves_one.swap(leaves_one, Ordering::Relaxed) != leaves_one {
                threads.iter().for_each(|thread| self.place(*thread, leaves_one));
            }
        }
    }

    /// Runs `work`, which starts a program: that keeps the processors of the thread that starts it, here all.
    pub(super) fn unbound<T>(&self, work: impl FnOnce() -> T) -> T {
        let own = gettid();
        if !self.threads().contains(&own) {
            return work();
        }
        self.place(own, false);
        let done = work();
        self.place(own, self.leaves_one.load(Ordering::Relaxed));
        done
    }

    fn place(&self, thread: Pid, leaves_one: bool) {
        let Some((all, fewer)) = &self.sets else { return };
        if let Err(error) = sched_setaffinity(Some(thread), if leaves_one { fewer } else { all }) {
            tracing::debug!(%error, "a thread keeps its processors");
        }
    }
}

impl Drop for Enlisted {
    fn drop(&mut self) {
        let Enlisted(processors, thread) = self;
        // The system may give its number to another thread.
        processors.threads().retain(|other| other != thread);
    }
}

/// `None` when nothing would be left.
fn all_but_one(all: CpuSet) -> Option<CpuSet> {
    let first = (0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu))?;
    let mut fewer = all;
    fewer.unset(first);
    (fewer.count() > 0).then_some(fewer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        cpus.iter().for_each(|cpu| set.set(*cpu));
        set
    }

    #[test]
    fn the_first_processor_is_left_unless_it_is_the_only_one() {
        assert!(all_but_one(set(&[3, 5, 7])) == Some(set(&[5, 7])));
        assert!(all_but_one(set(&[3])).is_none() && all_but_one(set(&[])).is_none());
    }

    #[test]
    fn threads_leave_a_processor_only_while_both_a_build_and_requests_go_on() {
        let processors = Processors::new();
        let Some((all, fewer)) = processors.sets else { return };
        let own = || sched_getaffinity(None).expect("the processors of a thread");
        assert!(processors.enlist(Pool::Foreground).is_none());
        let enlisted = processors.enlist(Pool::Background);
        processors.begins(Pool::Journal);
        processors.begins(Pool::Foreground);
        assert!(own() == all);
        // Recent however long this test takes.
        processors.request_at.store(u64::MAX, Ordering::Relaxed);
        processors.begins(Pool::Build);
        assert!(own() == fewer && processors.unbound(own) == all && own() == fewer);
        // As after a while without requests.
        processors.request_at.store(0, Ordering::Relaxed);
        processors.begins(Pool::Build);
        assert!(own() == all);
        drop(enlisted);
        processors.begins(Pool::Foreground);
        assert!(own() == all && processors.threads().is_empty());
    }
}
