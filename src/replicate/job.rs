//! One replication of this node: its definition, its state, and the loop that drives it through failures and slots.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::engine::Run;
use super::error::{ReplicateError, Result};
use super::progress::{Progress, Track};
use super::scheduler::{AwaitedSlot, Ending, Scheduler};
use crate::config::Config;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::world::lock;
use crate::world::sync::Mutex;

/// What happened to a replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `added`, `started`, `stopped`, `crashed`.
    pub kind: &'static str,
    /// Since the Unix epoch.
    pub at: Duration,
    /// Why it crashed.
    pub reason: Option<String>,
}

/// The document that asked for a replication.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin {
    /// Its database.
    pub database: String,
    /// Its id.
    pub doc_id: String,
}

/// What a replication is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// It waits for its slot.
    #[default]
    Pending,
    /// It runs.
    Running,
    /// It waits after a failure before it is tried again.
    Crashing,
}

impl State {
    /// As CouchDB names it.
    pub fn name(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Running => "running",
            State::Crashing => "crashing",
        }
    }
}

/// How a replication fares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// What it is doing.
    pub state: State,
    /// Failures one after the other, without a long run between.
    pub errors: u64,
    /// The last of them.
    pub error: Option<ReplicateError>,
}

/// A replication of this node.
pub struct Job {
    /// Its id.
    pub id: String,
    /// Counts the jobs of this node.
    pub number: u64,
    /// Where from, without credentials.
    pub source: String,
    /// Where to, without credentials.
    pub target: String,
    /// By way of which server the source is reached, without credentials.
    pub source_proxy: Option<String>,
    /// By way of which server the target is reached, without credentials.
    pub target_proxy: Option<String>,
    /// Who started it.
    pub user: Option<String>,
    /// The document that asked for it, if one did.
    pub origin: Option<Origin>,
    /// Whether it goes on when all is copied.
    pub continuous: bool,
    /// How often it writes checkpoints.
    pub checkpoint_interval: Duration,
    /// How long nothing may move before it is begun anew.
    pub stall: Duration,
    /// When it was started, since the Unix epoch.
    pub started: Duration,
    pub(super) track: Arc<Track>,
    pub(super) events: Mutex<Vec<Event>>,
    pub(super) health: watch::Sender<Health>,
    pub(super) cancel: watch::Sender<bool>,
    pub(super) outcome: watch::Sender<Option<Result<Object>>>,
}

impl Job {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        self.track.read()
    }

    /// How long the target has lacked something, at most.
    pub fn lag(&self) -> Duration {
        self.track.lag()
    }

    /// What happened to it, newest first.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).iter().rev().cloned().collect()
    }

    /// How it fares.
    pub fn health(&self) -> Health {
        self.health.borrow().clone()
    }

    /// The counters, named as tasks, jobs and documents name them. What the target refused is listed when there is any.
    pub fn info(&self) -> Object {
        let progress = self.progress();
        let counters = progress.counters;
        let seq = |seq: Option<Value>| match seq {
            None | Some(Value::Int(0)) => Value::from("0"),
            Some(seq) => seq,
        };
        let mut out = Object::new();
        out.push("revisions_checked", counters.missing_checked);
        out.push("missing_revisions_found", counters.missing_found);
        out.push("docs_read", counters.docs_read);
        out.push("docs_written", counters.docs_written);
        out.push("changes_pending", progress.pending.map_or(Value::Null, Value::from));
        out.push("doc_write_failures", counters.doc_write_failures);
        out.push("bulk_get_docs", counters.bulk_get_docs);
        out.push("bulk_get_attempts", counters.bulk_get_attempts);
        out.push("checkpointed_source_seq", seq(progress.checkpointed_seq));
        out.push("source_seq", seq(progress.source_seq));
        out.push("through_seq", seq(progress.through_seq));
        if !progress.refused.is_empty() {
            out.push("refused_docs", progress.refused.iter().map(|refusal| refusal.told()).collect::<Vec<_>>());
        }
        out
    }

    pub(super) fn add_event(&self, config: &Config, kind: &'static str, at: Duration, reason: Option<String>) {
        let most = config.u64("replicator", "max_history", limits::REPLICATION_EVENTS);
        let most = usize::try_from(most).unwrap_or(usize::MAX).clamp(1, limits::REPLICATION_EVENTS_MAX);
        let mut events = lock(&self.events);
        let over = (events.len() + 1).saturating_sub(most);
        events.drain(..over);
        events.push(Event { kind, at, reason });
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) -> Result<Object> {
        let mut outcome = self.outcome.subscribe();
        match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone().unwrap_or(Err(ReplicateError::Cancelled)),
            Err(_) => Err(ReplicateError::Cancelled),
        }
    }

    /// Whether it is tried again after a failure.
    fn lasts(&self) -> bool {
        self.continuous || self.origin.is_some()
    }
}

/// What became of one slot of a job.
enum Turned {
    Done(Result<Object>),
    MadeWay,
}

/// Runs a job until it ends, slot by slot. It was asked for the first one.
pub(super) async fn work(
    job: &Job,
    run: &Run,
    scheduler: &Arc<Scheduler>,
    first: AwaitedSlot,
    config: &Config,
) -> Result<Object> {
    let event = |kind, reason| job.add_event(config, kind, run.env.wall(), reason);
    let mut first = Some(first);
    loop {
        enter(job, State::Pending);
        let asked = first.take().unwrap_or_else(|| scheduler.ask(job.number));
        let mut slot = asked.slot().await;
        enter(job, State::Running);
        event("started", None);
        let begun = run.env.now();
        let turned = tokio::select! {
            biased;
            ending = slot.over() => match ending {
                Ending::MakeWay => Turned::MadeWay,
                Ending::Stalled => Turned::Done(Err(stalled(job.stall))),
            },
            outcome = run.run() => Turned::Done(outcome),
        };
        drop(slot);
        let error = match turned {
            Turned::MadeWay => {
                event("stopped", None);
                continue;
            }
            Turned::Done(Ok(answer)) => return Ok(answer),
            Turned::Done(Err(error)) => error,
        };
        run.env.metrics().count(Counter::ReplicationsCrashed);
        if !job.lasts() {
            return Err(error);
        }
        tracing::warn!(id = job.id, error = error.text(), "a replication failed and is tried again");
        event("crashed", Some(error.text()));
        let pause = fail(job, error, run.env.now().since(begun), config);
        run.env.sleep(pause).await;
    }
}

fn enter(job: &Job, state: State) {
    job.health.send_modify(|health| health.state = state);
}

fn stalled(stall: Duration) -> ReplicateError {
    ReplicateError::failed("stalled", format!("Nothing moved for {} seconds.", stall.as_secs_f64()))
}

/// Notes a failure after a run of some length, and tells how long to pause. Failures before a long run do not count.
fn fail(job: &Job, error: ReplicateError, ran: Duration, config: &Config) -> Duration {
    let healthy = config.u64("replicator", "health_threshold", limits::REPLICATION_HEALTHY_S);
    let first = config.u64("replicator", "min_backoff_penalty_sec", limits::REPLICATION_BACKOFF_S);
    let longest = config.u64("replicator", "max_backoff_penalty_sec", limits::REPLICATION_BACKOFF_MAX_S);
    let before = job.health.borrow().errors;
    let errors = if ran > Duration::from_secs(healthy) { 1 } else { before + 1 };
    job.health.send_replace(Health { state: State::Crashing, errors, error: Some(error) });
    pause_after(errors, first, longest)
}

/// The pause after so many failures in a row: `first_s`, twice as long after each, at most `longest_s`; a moment at
/// least.
fn pause_after(errors: u64, first_s: u64, longest_s: u64) -> Duration {
    let doublings = u32::try_from(errors.saturating_sub(1)).unwrap_or(u32::MAX);
    let pause_s = first_s.saturating_mul(2_u64.saturating_pow(doublings)).min(longest_s);
    Duration::from_secs(pause_s.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_and_are_never_none() {
        let pauses =
            |first, longest| [1, 2, 3, 9, u64::MAX].map(|errors| pause_after(errors, first, longest).as_secs());
        assert_eq!(pauses(5, 600), [5, 10, 20, 600, 600]);
        assert_eq!(pauses(0, 0), [1; 5]);
        assert_eq!(pauses(u64::MAX, u64::MAX), [u64::MAX; 5]);
    }
}
