//! What a request costs: counted where it is caused, by whatever task works for it.
//!
//! A task that works for a request runs within [`counted`]; code below notes there what it does. Outside of a request
//! nothing is counted. A task that is started beside the request counts nothing, because the answer does not wait for
//! it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

tokio::task_local! {
    static COST: Arc<Cost>;
}

/// What a request has cost so far.
#[derive(Debug, Default)]
pub struct Cost {
    ranges: AtomicU64,
    rows: AtomicU64,
    steps: AtomicU64,
    steps_us: AtomicU64,
    calls: AtomicU64,
    calls_us: AtomicU64,
    bytes: AtomicU64,
}

/// A look at a [`Cost`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Reads of ranges: pages, lookups, scans.
    pub ranges: u64,
    /// Rows that were read.
    pub rows: u64,
    /// Steps on the disk's threads.
    pub steps: u64,
    /// Time until these steps had ended, queue included; steps beside each other count each.
    pub in_steps: Duration,
    /// Calls to other nodes.
    pub calls: u64,
    /// Time until these were answered.
    pub in_calls: Duration,
    /// Bytes of the answer's body.
    pub bytes: u64,
}

impl Cost {
    /// What was counted so far.
    pub fn spent(&self) -> Spent {
        let count = |n: &AtomicU64| n.load(Ordering::Relaxed);
        Spent {
            ranges: count(&self.ranges),
            rows: count(&self.rows),
            steps: count(&self.steps),
            in_steps: Duration::from_micros(count(&self.steps_us)),
            calls: count(&self.calls),
            in_calls: Duration::from_micros(count(&self.calls_us)),
            bytes: count(&self.bytes),
        }
    }

    /// A number that grows whenever something is noted.
    pub fn progress(&self) -> u64 {
        let Spent { ranges, rows, steps, calls, bytes, .. } = self.spent();
        [ranges, rows, steps, calls, bytes].into_iter().fold(0, u64::wrapping_add)
    }

    /// Bytes of the answer were made.
    pub fn answered(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

/// What the request of this task has cost so far; `None` outside of one.
pub fn current() -> Option<Arc<Cost>> {
    COST.try_with(Arc::clone).ok()
}

fn note(add: impl FnOnce(&Cost)) {
    // Outside of a request there is nobody who asks.
    let _ = COST.try_with(|cost| add(cost));
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Some ranges were read, and gave so many rows.
pub fn read(ranges: usize, rows: usize) {
    note(|cost| {
        cost.ranges.fetch_add(ranges as u64, Ordering::Relaxed);
        cost.rows.fetch_add(rows as u64, Ordering::Relaxed);
    });
}

/// A step on a disk's thread was waited for.
pub(super) fn step(took: Duration) {
    note(|cost| {
        cost.steps.fetch_add(1, Ordering::Relaxed);
        cost.steps_us.fetch_add(micros(took), Ordering::Relaxed);
    });
}

/// Another node was asked.
pub fn call(took: Duration) {
    note(|cost| {
        cost.calls.fetch_add(1, Ordering::Relaxed);
        cost.calls_us.fetch_add(micros(took), Ordering::Relaxed);
    });
}

/// Runs a task for a request.
pub fn counted<F: Future>(cost: Arc<Cost>, task: F) -> impl Future<Output = F::Output> {
    COST.scope(cost, task)
}

/// Runs a step of a task for a request, such as one piece of its answer.
pub fn counted_step<T>(cost: &Arc<Cost>, step: impl FnOnce() -> T) -> T {
    COST.sync_scope(Arc::clone(cost), step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_for_a_request_is_counted_and_nothing_else() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (one, other) = (Arc::new(Cost::default()), Arc::new(Cost::default()));
        runtime.block_on(async {
            read(9, 9);
            let task = counted(Arc::clone(&one), async {
                read(2, 30);
                counted(Arc::clone(&other), async { read(1, 1) }).await;
                call(Duration::from_millis(3));
                step(Duration::from_micros(7));
            });
            task.await;
        });
        counted_step(&one, || read(1, 5));
        one.answered(100);
        let expected = Spent {
            ranges: 3,
            rows: 35,
            steps: 1,
            in_steps: Duration::from_micros(7),
            calls: 1,
            in_calls: Duration::from_millis(3),
            bytes: 100,
        };
        assert_eq!(one.spent(), expected);
        assert_eq!((other.spent().ranges, other.spent().rows), (1, 1));
    }
}
