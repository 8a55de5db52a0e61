//! Builds that run on this node, as `_active_tasks` shows them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::world::sync::Mutex;
use crate::world::{Env, Instant};

/// Whose index is built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The database.
    pub database: String,
    /// The design document.
    pub design: String,
    /// The range of the replica, `00000000-1fffffff`.
    pub range: String,
    /// Whether it is a full-text index.
    pub is_search: bool,
}

/// A build under way.
#[derive(Clone, Debug)]
pub struct IndexTask {
    /// Its number on this node.
    pub number: u64,
    /// Whose index.
    pub owner: Owner,
    /// Changes indexed so far.
    pub done: u64,
    /// Changes to take in.
    pub total: u64,
    /// The wall clock at its begin.
    pub started: Duration,
    /// The wall clock at its last step.
    pub updated: Duration,
    /// How long it runs.
    pub spent: Duration,
}

impl IndexTask {
    /// Done of 100.
    pub fn progress(&self) -> u64 {
        (self.done * 100).checked_div(self.total).unwrap_or(100).min(100)
    }

    /// The time that is left at the speed so far; `None` before the first step.
    pub fn left(&self) -> Option<Duration> {
        let left = self.total.saturating_sub(self.done);
        (self.done > 0).then(|| self.spent.mul_f64(left as f64 / self.done as f64))
    }
}

#[derive(Default)]
struct List {
    tasks: BTreeMap<u64, (IndexTask, Instant)>,
    last: u64,
}

/// All builds of a node. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Tasks(Arc<Mutex<List>>);

/// A build that is listed until this is dropped.
pub(super) struct Listed {
    tasks: Tasks,
    env: Env,
    number: u64,
}

impl Tasks {
    fn with<T>(&self, work: impl FnOnce(&mut List) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Lists a build of `total` changes.
    pub fn begin(&self, env: &Env, owner: &Owner, total: u64) -> Listed {
        let number = self.with(|list| {
            list.last += 1;
            let (number, started) = (list.last, env.wall());
            let owner = owner.clone();
            let task = IndexTask { number, owner, done: 0, total, started, updated: started, spent: Duration::ZERO };
            list.tasks.insert(number, (task, env.now()));
            number
        });
        Listed { tasks: self.clone(), env: env.clone(), number }
    }

    /// The builds, oldest first.
    pub fn list(&self) -> Vec<IndexTask> {
        self.with(|list| list.tasks.values().map(|(task, _)| task.clone()).collect())
    }
}

impl Listed {
    /// Reports how many changes are indexed.
    pub fn done(&self, done: u64) {
        let (now, wall) = (self.env.now(), self.env.wall());
        self.tasks.with(|list| {
            if let Some((task, begun)) = list.tasks.get_mut(&self.number) {
                (task.done, task.updated, task.spent) = (done, wall, now.since(*begun));
            }
        });
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.tasks.with(|list| list.tasks.remove(&self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::tokio_host;

    #[tokio::test]
    async fn a_build_is_listed_while_it_runs() {
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let (tasks, owner) = (Tasks::default(), Owner { database: "db".into(), ..Owner::default() });
        let listed = tasks.begin(&env, &owner, 200);
        assert_eq!((tasks.list()[0].progress(), tasks.list()[0].left()), (0, None));
        listed.done(50);
        let task = tasks.list().remove(0);
        assert_eq!((task.progress(), &task.owner), (25, &owner));
        assert!(task.left().is_some_and(|left| left == task.spent * 3));
        drop(listed);
        assert!(tasks.list().is_empty());
    }
}
