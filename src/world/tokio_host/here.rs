//! Short jobs on the thread that asks for them, in the midst of its tasks.
//!
//! To hand a job to another thread and hear of its end wakes two threads: more than a read from memory takes, and most
//! reads find what they need there. So they run where they are asked for. What may have them wait after all (a disk, a
//! lock that somebody holds for long) is done as [`waiting`], which first hands the other tasks of the thread to
//! another one.

use std::cell::Cell;

thread_local! {
    /// Whether a job runs on this thread in the midst of its tasks.
    static HERE: Cell<bool> = const { Cell::new(false) };
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

/// Runs a job in the midst of the thread's tasks: those of a runtime with several threads.
pub(super) fn run<T>(job: impl FnOnce() -> T) -> T {
    let _before = Before::set(true);
    job()
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
    let _before = Before::set(false);
    tokio::task::block_in_place(work)
}
