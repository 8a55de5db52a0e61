//! Short jobs on the thread that asks for them, in the midst of its tasks.
//!
//! To hand a job to another thread and hear of its end wakes two threads: more than a read from memory takes, and most
//! reads find what they need there. So they run where they are asked for. What may have them wait after all (a disk, a
//! lock that somebody holds for long) is done as [`waiting`], which first hands the other tasks of the thread to
//! another one. The task that asks waits itself, whatever else it would have done meanwhile.
//!
//! Promises: jobs of one task in a row hold up the others of its thread for [`BUDGET`] in [`WINDOW`] and one job's time
//! beyond that. The next jobs run elsewhere then, so that others have their turn. So they do once one had to wait:
//! what the next ones need is probably no nearer.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::task;

use crate::limits::{INLINE_SPELL as BUDGET, INLINE_WINDOW as WINDOW};

/// How long jobs of a task have run in the midst of others since some time.
#[derive(Clone, Copy)]
struct TimeBudget {
    task: Option<task::Id>,
    since: Instant,
    spent: Duration,
}

thread_local! {
    /// Whether a job runs on this thread in the midst of its tasks.
    static HERE: Cell<bool> = const { Cell::new(false) };
    /// That of the task whose job ran here last.
    static LAST: Cell<Option<TimeBudget>> = const { Cell::new(None) };
}

/// Puts the state of before back, also when the job panics.
struct Before(bool);

impl Before {
    fn set(here: bool) -> Before {
        Before(HERE.replace(here))
    }
}

impl Drop for Before {
    fn drop(&mut self) {
        HERE.set(self.0);
    }
}

fn charge(time: Duration) {
    LAST.set(LAST.get().map(|last| TimeBudget { spent: last.spent.saturating_add(time), ..last }));
}

/// Runs a job in the midst of the thread's tasks, those of a runtime with several threads; false, and it did not run,
/// where its task has held up the others for long enough.
pub(super) fn run(job: &mut dyn FnMut()) -> bool {
    let (now, task) = (Instant::now(), task::try_id());
    let is_same = |last: &TimeBudget| last.task == task && now.saturating_duration_since(last.since) < WINDOW;
    let budget = LAST.get().filter(is_same).unwrap_or(TimeBudget { task, since: now, spent: Duration::ZERO });
    if budget.spent >= BUDGET {
        return false;
    }
    LAST.set(Some(budget));
    let _before = Before::set(true);
    job();
    charge(now.elapsed());
    true
}

/// Whether such a job runs on this thread.
pub(super) fn is_here() -> bool {
    HERE.get()
}

/// Does what may take long. Within a job that runs in the midst of tasks these move to another thread first.
pub(in crate::world) fn waiting<T>(work: impl FnOnce() -> T) -> T {
    if !is_here() {
        return work();
    }
    charge(BUDGET);
    let _before = Before::set(false);
    task::block_in_place(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task, as far as threads outside a runtime are told apart, that has run for so long since some time.
    fn last(since: Instant, spent: Duration) {
        LAST.set(Some(TimeBudget { task: None, since, spent }));
    }

    #[test]
    fn jobs_run_elsewhere_once_their_task_has_held_up_others_for_long() {
        // A window that this test does not outlast.
        let open = Instant::now() + Duration::from_secs(3600);
        last(open, BUDGET);
        assert!(!run(&mut || panic!("no job")));
        last(Instant::now().checked_sub(WINDOW).expect("a system that has run for a moment"), BUDGET);
        assert!(run(&mut || {}), "another window");
        last(open, Duration::ZERO);
        let mut spin = || {
            let begun = Instant::now();
            while begun.elapsed() < BUDGET {}
        };
        assert!(run(&mut spin) && !run(&mut || panic!("no job")));
    }

    #[test]
    fn jobs_run_elsewhere_once_one_had_to_wait() {
        last(Instant::now() + Duration::from_secs(3600), Duration::ZERO);
        assert!(run(&mut || assert!(is_here() && !waiting(is_here) && is_here())));
        assert!(!run(&mut || panic!("no job")));
    }

    #[test]
    fn a_job_that_panics_leaves_no_trace() {
        assert!(std::panic::catch_unwind(|| run(&mut || panic!("a planned panic"))).is_err());
        assert!(!is_here());
    }
}
