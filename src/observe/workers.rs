//! Registry of the background workers of a node: tasks that run as long as the node does and wait for work.
//!
//! A worker is started with [`Env::spawn_worker`](crate::world::Env::spawn_worker), which enters it here. It tells when
//! a run begins and ends, and what failed; `_system` and `_prometheus` of the node show that. A task that serves one
//! request, or does one piece of work and ends, is no worker and has no entry.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The workers of a node, in the order in which they were started.
#[derive(Debug, Default)]
pub struct Workers(Mutex<Vec<Arc<Worker>>>);

/// One background worker.
#[derive(Debug)]
pub struct Worker {
    name: &'static str,
    waits_for: &'static str,
    begun: AtomicU64,
    ended: AtomicU64,
    failures: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// What is known of a worker at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerState {
    /// The worker's name, also the label of its metrics.
    pub name: &'static str,
    /// The event or the pause that a run of it waits for.
    pub waits_for: &'static str,
    /// Whether a run is under way.
    pub is_running: bool,
    /// Runs that ended.
    pub runs: u64,
    /// Pieces of work that failed.
    pub failures: u64,
    /// The message of the last failure.
    pub last_error: Option<String>,
}

/// A run of a worker; it ends when this is dropped.
#[derive(Debug)]
pub struct Run<'a>(&'a Worker);

impl Workers {
    /// Enters a worker. A worker of that name takes the place of one whose task has ended.
    pub fn enter(&self, name: &'static str, waits_for: &'static str) -> Arc<Worker> {
        let worker = Arc::new(Worker {
            name,
            waits_for,
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            last_error: Mutex::default(),
        });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The list holds the only handle on a worker whose task is gone.
        all.retain(|other| other.name != name || Arc::strong_count(other) > 1);
        all.push(Arc::clone(&worker));
        worker
    }

    /// All workers as they are now.
    pub fn states(&self) -> Vec<WorkerState> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|worker| worker.state()).collect()
    }
}

impl Worker {
    /// A run begins; it ends when the answer is dropped.
    pub fn begin(&self) -> Run<'_> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Run(self)
    }

    /// A piece of work failed.
    pub fn failed(&self, error: &dyn Display) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        *self.last_error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
    }

    fn state(&self) -> WorkerState {
        let ended = self.ended.load(Ordering::Relaxed);
        WorkerState {
            name: self.name,
            waits_for: self.waits_for,
            is_running: self.begun.load(Ordering::Relaxed) > ended,
            runs: ended,
            failures: self.failures.load(Ordering::Relaxed),
            last_error: self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_tells_of_its_runs_and_of_its_last_failure() {
        let workers = Workers::default();
        let worker = workers.enter("compaction", "a pause");
        let run = worker.begin();
        assert!(workers.states()[0].is_running);
        worker.failed(&"the disk is full");
        drop(run);
        let expected = WorkerState {
            name: "compaction",
            waits_for: "a pause",
            is_running: false,
            runs: 1,
            failures: 1,
            last_error: Some("the disk is full".to_owned()),
        };
        assert_eq!(workers.states(), [expected]);
    }

    #[test]
    fn a_worker_that_is_started_again_has_one_entry() {
        let workers = Workers::default();
        drop(workers.enter("collection", "a pause"));
        let again = workers.enter("collection", "a pause");
        again.failed(&"x");
        let states = workers.states();
        assert_eq!((states.len(), states[0].failures), (1, 1));
    }
}
