//! The jobs of a node that split ranges: their states, and their stored form.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, Semaphore, watch};

use crate::coordinator::replica::message::encode;
use crate::limits;

/// The key of the state within those of jobs; no job has this id.
pub(in crate::coordinator) const STATE_ID: &str = "state";

/// The step in which a job waits for the others.
pub(in crate::coordinator) const READY: &str = "update_shardmap";

/// What a job is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// It waits for its turn.
    New,
    /// It is being done.
    Running,
    /// It was stopped and waits to be resumed.
    Stopped,
    /// It is done.
    Completed,
    /// It cannot be done.
    Failed,
}

impl JobState {
    /// As `_reshard` shows it.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::New => "new",
            JobState::Running => "running",
            JobState::Stopped => "stopped",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
        }
    }
}

/// A step of a job's life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobEvent {
    /// When, in seconds since the Unix epoch.
    pub at_s: u64,
    /// The state that it came to.
    pub kind: JobState,
    /// What it does then, or why.
    pub detail: Option<String>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// `001-` and 64 hexadecimal digits.
    pub id: String,
    /// The database.
    pub db: String,
    pub(in crate::coordinator) instance: String,
    /// The range that is split, as `_shards` shows it.
    pub range: String,
    /// The name of the replica that is split, as CouchDB names its file.
    pub source: String,
    /// Those of its halves.
    pub target: Vec<String>,
    /// The node that holds the replica.
    pub node: String,
    /// What it is about to do.
    pub state: JobState,
    /// Why it was stopped or failed.
    pub reason: Option<String>,
    /// The step that it is at.
    pub split_state: String,
    /// When it was made, in seconds since the Unix epoch.
    pub start_s: u64,
    /// When it last changed.
    pub update_s: u64,
    /// All steps so far.
    pub history: Vec<JobEvent>,
}

impl Job {
    pub(in crate::coordinator) fn step(&mut self, state: JobState, detail: Option<String>, now_s: u64) {
        (self.state, self.update_s) = (state, now_s);
        self.reason = matches!(state, JobState::Stopped | JobState::Failed).then(|| detail.clone()).flatten();
        match (state, &detail) {
            (JobState::Running, Some(detail)) => self.split_state.clone_from(detail),
            (JobState::Completed, _) => self.split_state = state.as_str().to_owned(),
            _ => {}
        }
        self.history.push(JobEvent { at_s: now_s, kind: state, detail });
    }

    pub(in crate::coordinator) fn is_over(&self) -> bool {
        matches!(self.state, JobState::Completed | JobState::Failed)
    }

    /// Whether the others need not wait for it.
    pub(in crate::coordinator) fn is_ready(&self) -> bool {
        self.is_over() || self.state == JobState::Stopped || self.split_state == READY
    }
}

/// Whether jobs run on a node, and if not why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resharding {
    /// `None`: they run.
    pub stopped: Option<String>,
}

/// What nodes ask each other about jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum JobCall {
    List,
    Make { db: String, range: String },
    Set { id: String, stopped: Option<String> },
    SetAll(Resharding),
    Delete(String),
}

/// What they answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::coordinator) enum JobAnswer {
    Jobs(Vec<Job>),
    Made(Result<String, String>),
    /// Whether there is such a job.
    Done(bool),
}

/// The jobs of a node.
pub(in crate::coordinator) struct Jobs {
    // A blocking lock: held for map operations only, never across an await.
    pub(in crate::coordinator) table: Mutex<Table>,
    /// Tells that a job can be begun.
    pub(in crate::coordinator) news: Notify,
    /// One permit for each range that is being filled.
    pub(in crate::coordinator) filling: Semaphore,
}

#[derive(Default)]
pub(in crate::coordinator) struct Table {
    pub(in crate::coordinator) jobs: BTreeMap<String, Job>,
    pub(in crate::coordinator) state: Resharding,
    pub(in crate::coordinator) running: BTreeMap<String, Run>,
    /// How many tasks were begun.
    pub(in crate::coordinator) runs: u64,
}

/// The task that does a job. It says nothing of the job any more once it is not in the table.
pub(in crate::coordinator) struct Run {
    pub(in crate::coordinator) number: u64,
    /// Dropping it ends the task.
    pub(in crate::coordinator) _alive: watch::Sender<()>,
}

impl Table {
    /// Notes a step of a job that is being done; false when it was stopped or removed meanwhile.
    pub(in crate::coordinator) fn step(
        &mut self,
        (id, run): (&str, u64),
        state: JobState,
        detail: Option<String>,
        now_s: u64,
    ) -> bool {
        let is_running = self.running.get(id).is_some_and(|running| running.number == run);
        let Some(job) = self.jobs.get_mut(id).filter(|_| is_running) else { return false };
        job.step(state, detail, now_s);
        true
    }

    /// Forgets a task that has ended.
    pub(in crate::coordinator) fn end(&mut self, (id, run): (&str, u64)) {
        if self.running.get(id).is_some_and(|running| running.number == run) {
            self.running.remove(id);
        }
    }
}

impl Default for Jobs {
    fn default() -> Jobs {
        Jobs { table: Mutex::default(), news: Notify::new(), filling: Semaphore::new(limits::RESHARD_AT_ONCE) }
    }
}

impl Jobs {
    pub(in crate::coordinator) fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::coordinator) fn get(&self, id: &str) -> Option<Job> {
        self.table().jobs.get(id).cloned()
    }

    /// What is to be on disk below an id, as it is now.
    pub(in crate::coordinator) fn stored(&self, id: &str) -> Option<Vec<u8>> {
        let table = self.table();
        match id == STATE_ID {
            true => Some(encode(&table.state).to_vec()),
            false => table.jobs.get(id).map(|job| encode(job).to_vec()),
        }
    }
}
