//! Registry of the long tasks of a node: pieces of work that begin, take a while, and end. `_active_tasks` shows them.
//!
//! A task is listed with [`Env::begin_task`](crate::world::Env::begin_task) as long as what that answers is kept, so
//! that it goes from the list however the work ends. A background worker, which never ends, stands in
//! [`workers`](super::workers) instead.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskKind {
    /// An index of a view, of a declared selector, or of documents that end is built.
    #[default]
    Indexer,
    /// A full-text index is built.
    SearchIndexer,
    /// A replica is compacted.
    DatabaseCompaction,
    /// Indexes that no design document names are removed.
    IndexCleanup,
    /// The two child shards of a replica are filled.
    Resharding,
    /// Replicas are moved to where they are to be.
    Rebalance,
    /// A replica that is on its way to this node is filled.
    ReplicaMove,
    /// A replica with a damaged store file is filled anew.
    ReplicaRebuild,
    /// A replica reads what it lacks from another one.
    ReplicaPull,
    /// The databases of this node are compared with those of another one.
    NodeSync,
    /// A snapshot is taken.
    Snapshot,
    /// A database is made from a snapshot.
    Restore,
    /// Old tombstones are collected.
    TombstoneCollection,
}

impl TaskKind {
    /// The `type` of `_active_tasks`; CouchDB's where it has one.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskKind::Indexer => "indexer",
            TaskKind::SearchIndexer => "search_indexer",
            TaskKind::DatabaseCompaction => "database_compaction",
            TaskKind::IndexCleanup => "index_cleanup",
            TaskKind::Resharding => "resharding",
            TaskKind::Rebalance => "rebalance",
            TaskKind::ReplicaMove => "replica_move",
            TaskKind::ReplicaRebuild => "replica_rebuild",
            TaskKind::ReplicaPull => "replica_pull",
            TaskKind::NodeSync => "node_sync",
            TaskKind::Snapshot => "snapshot",
            TaskKind::Restore => "restore",
            TaskKind::TombstoneCollection => "tombstone_collection",
        }
    }
}

/// What a task is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// What is done.
    pub kind: TaskKind,
    /// The database; empty: all of them.
    pub database: String,
    /// The range, `00000000-1fffffff`; empty: all of them.
    pub range: String,
    /// The design document, if it is about one.
    pub design: String,
    /// The other node, if there is one.
    pub peer: String,
}

impl Subject {
    /// Work on a database, or without a name on all of them.
    pub fn new(kind: TaskKind, database: &str) -> Subject {
        Subject { kind, database: database.to_owned(), ..Subject::default() }
    }

    /// The same on one range.
    pub fn range(self, range: impl ToString) -> Subject {
        Subject { range: range.to_string(), ..self }
    }

    /// The same for a design document.
    pub fn design(self, id: &str) -> Subject {
        Subject { design: id.to_owned(), ..self }
    }

    /// The same with another node.
    pub fn peer(self, node: &str) -> Subject {
        Subject { peer: node.to_owned(), ..self }
    }
}

/// What is known of a task at one moment.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Its number on this node.
    pub number: u64,
    /// What it is about.
    pub subject: Subject,
    /// What it does now, where it has several steps.
    pub phase: Option<&'static str>,
    /// How much is done: changes, documents, ranges or databases, as its kind has it.
    pub done: u64,
    /// How much is to be done; `None`: that is not known.
    pub total: Option<u64>,
    /// The wall clock at its begin.
    pub started: Duration,
    /// The wall clock at its last report.
    pub updated: Duration,
    /// How long it ran until then.
    pub spent: Duration,
}

impl TaskState {
    /// Done of 100; `None` where the total is not known.
    pub fn progress(&self) -> Option<u64> {
        self.total.map(|total| self.done.saturating_mul(100).checked_div(total).unwrap_or(100).min(100))
    }

    /// The time that is left at the speed so far; `None` before the first report and where the total is not known.
    pub fn left(&self) -> Option<Duration> {
        let left = self.total?.saturating_sub(self.done);
        (self.done > 0).then(|| self.spent.mul_f64(left as f64 / self.done as f64))
    }
}

#[derive(Debug, Default)]
struct List {
    /// With the monotonic clock at the begin of each.
    tasks: BTreeMap<u64, (TaskState, Duration)>,
    last: u64,
    #[cfg(test)]
    ended: Vec<TaskState>,
}

/// The long tasks of a node.
#[derive(Debug, Default)]
pub struct Tasks(Mutex<List>);

impl Tasks {
    fn list(&self) -> MutexGuard<'_, List> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a task; answers its number. `wall` and `now`: both clocks.
    pub fn begin(&self, subject: Subject, total: Option<u64>, (wall, now): (Duration, Duration)) -> u64 {
        let mut list = self.list();
        list.last += 1;
        let number = list.last;
        let (started, spent) = (wall, Duration::ZERO);
        let task = TaskState { number, subject, phase: None, done: 0, total, started, updated: wall, spent };
        list.tasks.insert(number, (task, now));
        number
    }

    /// Changes what is known of a task.
    pub fn update(&self, number: u64, (wall, now): (Duration, Duration), change: impl FnOnce(&mut TaskState)) {
        if let Some((task, begun)) = self.list().tasks.get_mut(&number) {
            change(task);
            (task.updated, task.spent) = (wall, now.saturating_sub(*begun));
        }
    }

    /// Takes a task off the list.
    pub fn end(&self, number: u64) {
        let mut list = self.list();
        #[cfg(test)]
        if let Some(ended) = list.tasks.get(&number).map(|(task, _)| task.clone()) {
            list.ended.push(ended);
        }
        list.tasks.remove(&number);
    }

    /// The last states of the tasks that have ended since this was asked last.
    #[cfg(test)]
    pub fn take_ended(&self) -> Vec<TaskState> {
        std::mem::take(&mut self.list().ended)
    }

    /// All tasks, the oldest first.
    pub fn states(&self) -> Vec<TaskState> {
        self.list().tasks.values().map(|(task, _)| task.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_tells_how_far_it_is_and_what_is_left() {
        let (tasks, at) = (Tasks::default(), Duration::from_secs);
        let subject = Subject::new(TaskKind::Indexer, "db").range("00000000-ffffffff").peer("n2");
        let number = tasks.begin(subject.clone(), Some(200), (at(1000), at(5)));
        let first = tasks.states().remove(0);
        assert_eq!((first.progress(), first.left(), &first.subject), (Some(0), None, &subject));
        tasks.update(number, (at(1010), at(15)), |task| (task.done, task.phase) = (50, Some("read")));
        let task = tasks.states().remove(0);
        assert_eq!((task.progress(), task.left(), task.phase), (Some(25), Some(at(30)), Some("read")));
        assert_eq!((task.started, task.updated), (at(1000), at(1010)));
        tasks.update(number, (at(1011), at(16)), |task| task.done = 300);
        assert_eq!((tasks.states()[0].progress(), tasks.states()[0].left()), (Some(100), Some(at(0))));
        tasks.end(number);
        tasks.update(number, (at(1012), at(17)), |task| task.done = 1);
        assert!(tasks.states().is_empty());
    }

    #[test]
    fn a_task_without_a_total_has_no_progress() {
        let (tasks, at) = (Tasks::default(), Duration::from_secs);
        let number = tasks.begin(Subject::new(TaskKind::Snapshot, "db"), None, (at(1), at(1)));
        tasks.update(number, (at(2), at(2)), |task| task.done = 7);
        assert_eq!((tasks.states()[0].progress(), tasks.states()[0].left()), (None, None));
        tasks.update(number, (at(2), at(2)), |task| task.total = Some(0));
        assert_eq!((tasks.states()[0].progress(), tasks.states()[0].left()), (Some(100), Some(at(0))));
    }
}
