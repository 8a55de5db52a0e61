//! Small thread pools, one per [`Pool`] class, so that one stalled class cannot hold the others.
//!
//! Jobs run in the order given, each to its end. A job that panics ends only itself: its caller sees the result
//! channel closed. Queues have no bound of their own; callers wait for their jobs, so the bound is theirs.
//!
//! Of the threads that wait the one that worked last is woken: what it needs is still in the caches of the processor.
//! A condition variable wakes the one that waits longest, so that a few reads after each other ran on as many threads.

use std::collections::VecDeque;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};

use crate::world::{Job, Pool, Worker};

/// Threads per class and the prefix of their names (the kernel shows at most 15 bytes of a name).
const CLASSES: [(Pool, &str, usize); 3] =
    [(Pool::Journal, "journal", 2), (Pool::Foreground, "foreground", 16), (Pool::Background, "background", 4)];

/// `nice` of background workers. Reads beside the build of a view took 2.6 times as long at worst (p99) without it, 1.3
/// times with it (`scripts/bench views`, two cores).
#[cfg(target_os = "linux")]
const BACKGROUND_NICE: i32 = 10;

#[derive(Default)]
struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The threads that wait for a job, the one that worked last behind the others.
    idle: Vec<Thread>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so a poisoned one still holds a whole state.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, job: Job) {
        let idle = {
            let mut state = self.lock();
            state.jobs.push_back(job);
            state.idle.pop()
        };
        idle.iter().for_each(Thread::unpark);
    }

    fn take(&self) -> Option<Job> {
        let own = thread::current();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state.idle.push(own.clone());
            drop(state);
            thread::park();
            state = self.lock();
            // A thread may wake without being woken.
            state.idle.retain(|idle| idle.id() != own.id());
        }
    }

    /// Lets queued jobs finish; then its threads end.
    fn close(&self) {
        let idle = {
            let mut state = self.lock();
            state.closed = true;
            mem::take(&mut state.idle)
        };
        idle.iter().for_each(Thread::unpark);
    }

    /// The life of a thread.
    fn work(&self) {
        while let Some(job) = self.take() {
            // The panic message is already on stderr; the caller sees the closed channel.
            let _ = catch_unwind(AssertUnwindSafe(|| job()()));
        }
    }
}

/// A thread of its own. Dropping lets queued jobs finish and does not wait for them.
pub(super) struct ThreadWorker(Arc<Queue>);

impl ThreadWorker {
    pub(super) fn start(pool: Pool, name: &str, stack_bytes: usize) -> Self {
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
        let work = move || {
            if pool == Pool::Background {
                yield_to_others();
            }
            own.work();
        };
        if let Err(error) = thread.spawn(work) {
            panic!("cannot start the thread {name}: {error}");
        }
        ThreadWorker(queue)
    }
}

/// Lowers the priority of this thread: where the processor is short, it gets a tenth of what another thread gets.
fn yield_to_others() {
    // Elsewhere it would be the whole process.
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, BACKGROUND_NICE) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

impl Worker for ThreadWorker {
    fn submit(&self, job: Job) {
        self.0.submit(job);
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The threads of all classes. Dropping lets queued jobs finish and does not wait for them.
pub(super) struct ThreadPools {
    journal: Arc<Queue>,
    foreground: Arc<Queue>,
    background: Arc<Queue>,
}

impl ThreadPools {
    pub(super) fn start() -> Self {
        let pools = ThreadPools { journal: Arc::default(), foreground: Arc::default(), background: Arc::default() };
        for (pool, name, threads) in CLASSES {
            for index in 0..threads {
                let queue = Arc::clone(pools.queue(pool));
                let thread = thread::Builder::new().name(format!("{name}-{index}"));
                let started = thread.spawn(move || queue.work());
                if let Err(error) = started {
                    panic!("cannot start the thread {name}-{index}: {error}");
                }
            }
        }
        pools
    }

    fn queue(&self, pool: Pool) -> &Arc<Queue> {
        match pool {
            Pool::Journal => &self.journal,
            Pool::Foreground => &self.foreground,
            Pool::Background => &self.background,
        }
    }

    pub(super) fn submit(&self, pool: Pool, job: Job) {
        self.queue(pool).submit(job);
    }
}

impl Drop for ThreadPools {
    fn drop(&mut self) {
        for (pool, _, _) in CLASSES {
            self.queue(pool).close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::{Barrier, mpsc};
    use std::thread::ThreadId;
    use std::time::Duration;

    use super::*;

    const THREADS: usize = 4;
    /// Far beyond what any step here needs.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// The thread that is woken next, once all have nothing to do.
    fn next(queue: &Queue) -> ThreadId {
        loop {
            let state = queue.lock();
            if state.idle.len() == THREADS {
                return state.idle[THREADS - 1].id();
            }
            drop(state);
            thread::yield_now();
        }
    }

    #[test]
    fn the_thread_that_worked_last_works_next_and_jobs_beside_each_other_have_one_each() {
        let queue = Arc::new(Queue::default());
        let start = |_| {
            let own = Arc::clone(&queue);
            thread::spawn(move || own.work())
        };
        let threads: Vec<_> = (0..THREADS).map(start).collect();
        let (told, hears) = mpsc::channel();
        let submit = |meet: &Arc<Barrier>| {
            let (told, meet) = (told.clone(), Arc::clone(meet));
            let job: Job = Box::new(move || {
                meet.wait();
                let _ = told.send(thread::current().id());
                Box::new(|| {})
            });
            queue.submit(job);
        };
        for _ in 0..20 {
            let last = next(&queue);
            submit(&Arc::new(Barrier::new(1)));
            assert_eq!(hears.recv_timeout(PATIENCE), Ok(last));
            assert_eq!(next(&queue), last);
            let all = Arc::new(Barrier::new(THREADS));
            (0..THREADS).for_each(|_| submit(&all));
            let used: HashSet<ThreadId> =
                (0..THREADS).map(|_| hears.recv_timeout(PATIENCE).expect("all run at once")).collect();
            assert_eq!(used.len(), THREADS);
        }
        queue.close();
        assert!(threads.into_iter().all(|thread| thread.join().is_ok()));
    }
}
