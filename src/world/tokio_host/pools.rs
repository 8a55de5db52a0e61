//! Small thread pools, one per [`Pool`] class, so that one stalled class cannot hold the others.
//!
//! Jobs run in the order given, each to its end. A job that panics ends only itself: its caller sees the result
//! channel closed. Queues have no bound of their own; callers wait for their jobs, so the bound is theirs.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::processors::Processors;
use crate::world::{Job, Pool, Worker};

/// Threads per class and the prefix of their names (the kernel shows at most 15 bytes of a name).
const CLASSES: [(Pool, &str, usize); 4] = [
    (Pool::Journal, "journal", 2),
    (Pool::Foreground, "foreground", 16),
    (Pool::Background, "background", 4),
    (Pool::Build, "build", 4),
];

/// `nice` of threads that build views: reads beside a build wait for few of them (`scripts/bench views`).
#[cfg(target_os = "linux")]
const BUILD_NICE: i32 = 10;

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Jobs run outside the lock, so a poisoned one still holds a whole state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The life of a thread.
    fn work_for(&self, pool: Pool, processors: &Arc<Processors>) {
        if pool == Pool::Build {
            yield_to_others();
        }
        let _enlisted = processors.enlist(pool);
        while let Some(job) = self.take() {
            processors.begins(pool);
            // The panic message is already on stderr; the caller sees the closed channel.
            let _ = catch_unwind(AssertUnwindSafe(|| job()()));
        }
    }
}

/// A thread of its own. Dropping lets queued jobs finish and does not wait for them.
pub(super) struct ThreadWorker(Arc<Queue>);

impl ThreadWorker {
    fn start(pool: Pool, name: &str, stack_bytes: usize, processors: Arc<Processors>) -> Self {
        let queue = Arc::new(Queue::default());
        let own = Arc::clone(&queue);
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(stack_bytes);
        let work = move || own.work_for(pool, &processors);
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
    if let Err(error) = rustix::process::setpriority_process(None, BUILD_NICE) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}

impl Worker for ThreadWorker {
    fn submit(&self, job: Job) {
        self.0.lock().jobs.push_back(job);
        self.0.ready.notify_one();
    }
}

impl Drop for ThreadWorker {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.ready.notify_all();
    }
}

/// The threads of all classes. Dropping lets queued jobs finish and does not wait for them.
pub(super) struct ThreadPools {
    journal: Arc<Queue>,
    foreground: Arc<Queue>,
    background: Arc<Queue>,
    build: Arc<Queue>,
    processors: Arc<Processors>,
}

impl ThreadPools {
    pub(super) fn start() -> Self {
        let queue = Arc::<Queue>::default;
        let (journal, foreground, background, build) = (queue(), queue(), queue(), queue());
        let pools = ThreadPools { journal, foreground, background, build, processors: Processors::new() };
        for (pool, name, threads) in CLASSES {
            for index in 0..threads {
                let (queue, processors) = (Arc::clone(pools.queue(pool)), Arc::clone(&pools.processors));
                let thread = std::thread::Builder::new().name(format!("{name}-{index}"));
                let started = thread.spawn(move || queue.work_for(pool, &processors));
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
            Pool::Build => &self.build,
        }
    }

    /// Starts a thread of its own for jobs of a class.
    pub(super) fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> ThreadWorker {
        ThreadWorker::start(pool, name, stack_bytes, Arc::clone(&self.processors))
    }

    /// Runs `work`, which starts a program, with all processors.
    pub(super) fn unbound<T>(&self, work: impl FnOnce() -> T) -> T {
        self.processors.unbound(work)
    }

    /// Takes note of a job of that class that runs elsewhere.
    pub(super) fn begins(&self, pool: Pool) {
        self.processors.begins(pool);
    }

    pub(super) fn submit(&self, pool: Pool, job: Job) {
        let queue = self.queue(pool);
        queue.lock().jobs.push_back(job);
        queue.ready.notify_one();
    }
}

impl Drop for ThreadPools {
    fn drop(&mut self) {
        for (pool, _, _) in CLASSES {
            let queue = self.queue(pool);
            queue.lock().closed = true;
            queue.ready.notify_all();
        }
    }
}
