//! A long task that is in its node's registry ([`tasks`](crate::observe::tasks)) as long as this is kept.

use std::fmt;
use std::time::Duration;

use super::Env;
use crate::observe::tasks::{Subject, TaskState};

/// A long task that is listed until this is dropped.
pub struct Task {
    env: Env,
    number: u64,
}

impl Env {
    /// Lists a long task, of which so much is to be done if that is known.
    pub fn begin_task(&self, subject: Subject, total: Option<u64>) -> Task {
        let number = self.metrics().tasks().begin(subject, total, self.clocks());
        Task { env: self.clone(), number }
    }

    fn clocks(&self) -> (Duration, Duration) {
        (self.wall(), self.now().0)
    }
}

impl Task {
    fn update(&self, change: impl FnOnce(&mut TaskState)) {
        self.env.metrics().tasks().update(self.number, self.env.clocks(), change);
    }

    /// Reports how much is done.
    pub fn done(&self, done: u64) {
        self.update(|task| task.done = done);
    }

    /// Reports that so much more is done.
    pub fn add(&self, more: u64) {
        self.update(|task| task.done += more);
    }

    /// Reports how much is done of how much.
    pub fn done_of(&self, done: u64, total: u64) {
        self.update(|task| (task.done, task.total) = (done, Some(total)));
    }

    /// Reports what it does now.
    pub fn phase(&self, phase: &'static str) {
        self.update(|task| task.phase = Some(phase));
    }

    /// Reports what it does now, and how much is done.
    pub fn step(&self, phase: &'static str, done: u64) {
        self.update(|task| (task.phase, task.done) = (Some(phase), done));
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Task({})", self.number)
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.env.metrics().tasks().end(self.number);
    }
}

#[cfg(test)]
mod tests {
    use crate::observe::tasks::{Subject, TaskKind};
    use crate::world::tokio_host;

    #[tokio::test]
    async fn a_task_is_listed_until_it_ends_however_it_ends() {
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let listed = || env.metrics().tasks().states();
        let work = |fails: bool| {
            let task = env.begin_task(Subject::new(TaskKind::Restore, "db"), None);
            task.phase("read");
            task.done_of(1, 4);
            task.add(1);
            let seen = listed().remove(0);
            assert_eq!((seen.phase, seen.done, seen.progress()), (Some("read"), 2, Some(50)));
            task.step("write", 3);
            let seen = listed().remove(0);
            assert_eq!((seen.phase, seen.done, seen.progress()), (Some("write"), 3, Some(75)));
            if fails { Err("the disk is gone") } else { Ok(()) }
        };
        assert!(work(false).is_ok() && listed().is_empty());
        assert!(work(true).is_err() && listed().is_empty());
    }
}
