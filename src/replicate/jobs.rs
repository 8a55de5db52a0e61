//! The replications that run on this node: started, listed, cancelled.
//!
//! They live in memory and end with the node. A continuous one that fails is tried again with growing pauses, and so is
//! any that a document asked for (`documents`); another one-shot one answers its failure to who waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use super::documents::Documents;
use super::engine::{Progress, Run};
use super::error::{ReplicateError, Result};
use super::local::LocalPeer;
use super::peer::Peer;
use super::remote::RemotePeer;
use super::request::{Endpoint, Order, Replication};
use super::trust;
use crate::auth::UserCtx;
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::document::json::{Object, Value};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::wire::client::{Client, Patience};
use crate::world::Env;

/// What a `POST /_replicate` comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// It is done; the answer's members.
    Done(Object),
    /// It runs under this id.
    Running(String),
    /// The replication of this id was ended.
    Cancelled(String),
}

/// What happened to a replication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `added`, `started`, `crashed`.
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

/// Where a replication is between its failures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Whether it waits after a failure before it is tried again.
    pub crashing: bool,
    /// Failures one after the other, without a long run between.
    pub errors: u64,
    /// The last of them.
    pub error: Option<String>,
}

/// A replication that runs.
pub struct Job {
    /// Its id.
    pub id: String,
    /// Counts the jobs of this node.
    pub number: u64,
    /// Where from, without credentials.
    pub source: String,
    /// Where to, without credentials.
    pub target: String,
    /// Who started it.
    pub user: Option<String>,
    /// The document that asked for it, if one did.
    pub origin: Option<Origin>,
    /// Whether it goes on when all is copied.
    pub continuous: bool,
    /// How often it writes checkpoints, in milliseconds.
    pub checkpoint_interval_ms: u64,
    /// When it was started, since the Unix epoch.
    pub started: Duration,
    progress: Arc<Mutex<Progress>>,
    events: Mutex<Vec<Event>>,
    health: Mutex<Health>,
    cancel: watch::Sender<bool>,
    outcome: watch::Sender<Option<Result<Object>>>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// How far it is.
    pub fn progress(&self) -> Progress {
        lock(&self.progress).clone()
    }

    /// What happened to it, newest first.
    pub fn events(&self) -> Vec<Event> {
        lock(&self.events).iter().rev().cloned().collect()
    }

    /// How it fares.
    pub fn health(&self) -> Health {
        lock(&self.health).clone()
    }

    /// The counters, named as tasks, jobs and documents name them.
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
        out
    }

    fn add_event(&self, kind: &'static str, at: Duration, reason: Option<String>) {
        let mut events = lock(&self.events);
        if events.len() >= limits::REPLICATION_EVENTS {
            events.remove(0);
        }
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
}

/// All replications of a node. Shared behind an `Arc`.
pub struct Replicator {
    pub(super) env: Env,
    pub(super) config: Config,
    pub(super) coordinator: Arc<Coordinator>,
    jobs: Mutex<BTreeMap<String, Arc<Job>>>,
    started: AtomicU64,
    pub(super) documents: Documents,
}

impl Replicator {
    /// A node's replicator.
    pub fn new(env: &Env, config: &Config, coordinator: &Arc<Coordinator>) -> Arc<Replicator> {
        Arc::new(Replicator {
            env: env.clone(),
            config: config.clone(),
            coordinator: Arc::clone(coordinator),
            jobs: Mutex::default(),
            started: AtomicU64::new(0),
            documents: Documents::default(),
        })
    }

    /// What goes into the ids: nodes that share it share checkpoints. A set-up may change it.
    fn cluster_uuid(&self) -> String {
        self.config.text("couchdb", "uuid", "")
    }

    /// Does what the body of a `POST /_replicate` asks for, with the rights of `user`. Local databases are shown
    /// below `base_url`.
    ///
    /// # Errors
    /// [`ReplicateError`]: the request's fault, or that of a one-shot replication.
    pub async fn order(self: &Arc<Self>, body: &Object, user: &UserCtx, base_url: &str) -> Result<Outcome> {
        match Order::parse(body)? {
            Order::CancelId(id) => self.cancel(&id, user).map(Outcome::Cancelled),
            Order::Cancel(asked) => self.cancel(&asked.job_id(&self.cluster_uuid()), user).map(Outcome::Cancelled),
            Order::Start(asked) => {
                let job = self.start(*asked, user, base_url, None)?;
                if job.continuous { Ok(Outcome::Running(job.id.clone())) } else { job.ended().await.map(Outcome::Done) }
            }
        }
    }

    /// Starts a replication, or finds the same one running.
    pub(super) fn start(
        self: &Arc<Self>,
        asked: Replication,
        user: &UserCtx,
        base_url: &str,
        origin: Option<Origin>,
    ) -> Result<Arc<Job>> {
        let id = asked.job_id(&self.cluster_uuid());
        let mut jobs = lock(&self.jobs);
        if let Some(job) = jobs.get(&id) {
            return match &job.origin {
                found if *found == origin && job.user == user.name => Ok(Arc::clone(job)),
                Some(Origin { database, doc_id }) if origin.is_some() => {
                    let of = format!("already started, triggered by document `{doc_id}` from db `{database}`");
                    Err(ReplicateError::BadRequest(format!("Replication `{id}` {of}")))
                }
                _ => Err(ReplicateError::NotYours),
            };
        }
        if jobs.len() >= limits::REPLICATION_JOBS_MAX {
            return Err(ReplicateError::TooMany);
        }
        let (job, run) = self.job_of(asked, id.clone(), user, base_url, origin);
        self.env.metrics().count(Counter::ReplicationsAdded);
        jobs.insert(id, Arc::clone(&job));
        drop(jobs);
        self.env.spawn(drive(Arc::clone(self), Arc::clone(&job), run));
        Ok(job)
    }

    /// A job and what it is to do; nothing runs yet.
    fn job_of(
        &self,
        asked: Replication,
        id: String,
        user: &UserCtx,
        base_url: &str,
        origin: Option<Origin>,
    ) -> (Arc<Job>, Run) {
        let now = self.env.wall();
        let tls = trust::connector(&self.env, &self.config);
        let client = Client::with_tls(&self.env, self.patience(&asked), tls);
        let peer = |endpoint: &Endpoint| match endpoint {
            Endpoint::Remote(remote) => Peer::Remote(RemotePeer::new(&self.env, client.clone(), remote)),
            Endpoint::Local(name) => Peer::Local(LocalPeer {
                coordinator: Arc::clone(&self.coordinator),
                config: self.config.clone(),
                user: user.clone(),
                name: name.clone(),
                shown: endpoint.shown(base_url),
            }),
        };
        let (source, target) = (Arc::new(peer(&asked.source)), Arc::new(peer(&asked.target)));
        let job = Arc::new(Job {
            id,
            number: self.started.fetch_add(1, Ordering::Relaxed) + 1,
            source: source.shown().to_owned(),
            target: target.shown().to_owned(),
            user: user.name.clone(),
            origin,
            continuous: asked.continuous,
            checkpoint_interval_ms: asked.checkpoint_interval_ms,
            started: now,
            progress: Arc::default(),
            events: Mutex::default(),
            health: Mutex::default(),
            cancel: watch::Sender::new(false),
            outcome: watch::Sender::new(None),
        });
        job.add_event("added", now, None);
        let run = Run {
            env: self.env.clone(),
            source,
            target,
            checkpoint_id: asked.checkpoint_id(&self.cluster_uuid()),
            asked,
            progress: Arc::clone(&job.progress),
        };
        (job, run)
    }

    /// Ends a job.
    pub(super) fn end(&self, job: &Arc<Job>) {
        job.cancel.send_replace(true);
        self.forget(job);
    }

    fn patience(&self, asked: &Replication) -> Patience {
        let number = |key: &str, default: u64| self.config.u64("replicator", key, default);
        let silence = asked.silence_ms.unwrap_or_else(|| number("connection_timeout", limits::REPLICATION_SILENCE_MS));
        let retries = asked.retries.unwrap_or_else(|| number("retries_per_request", limits::REPLICATION_RETRIES));
        let retries = u32::try_from(retries.min(limits::REPLICATION_RETRIES_MAX)).unwrap_or(u32::MAX);
        Patience { silence: Duration::from_millis(silence), retries }
    }

    fn cancel(&self, id: &str, user: &UserCtx) -> Result<String> {
        let mut jobs = lock(&self.jobs);
        let Some(job) = jobs.get(id) else { return Err(ReplicateError::NotFound("missing".to_owned())) };
        if job.user != user.name && !user.is_server_admin() {
            return Err(ReplicateError::NotYours);
        }
        job.cancel.send_replace(true);
        jobs.remove(id);
        Ok(id.to_owned())
    }

    /// Those that run, by id.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).values().cloned().collect()
    }

    /// The one of this id.
    pub fn job(&self, id: &str) -> Option<Arc<Job>> {
        lock(&self.jobs).get(id).cloned()
    }

    /// Ends all: the node stops.
    pub fn stop(&self) {
        for (_, job) in std::mem::take(&mut *lock(&self.jobs)) {
            job.cancel.send_replace(true);
        }
    }

    /// Takes a job off the list, unless another has its place by now.
    fn forget(&self, job: &Arc<Job>) {
        let mut jobs = lock(&self.jobs);
        if jobs.get(&job.id).is_some_and(|known| Arc::ptr_eq(known, job)) {
            jobs.remove(&job.id);
        }
    }
}

/// Runs a job to its end or until it is cancelled.
async fn drive(replicator: Arc<Replicator>, job: Arc<Job>, run: Run) {
    let mut cancelled = job.cancel.subscribe();
    let outcome = tokio::select! {
        biased;
        _ = cancelled.wait_for(|cancel| *cancel) => Err(ReplicateError::Cancelled),
        outcome = work(&job, &run) => outcome,
    };
    replicator.forget(&job);
    job.outcome.send_replace(Some(outcome));
}

async fn work(job: &Job, run: &Run) -> Result<Object> {
    let longest = Duration::from_millis(limits::REPLICATION_BACKOFF_MAX_MS);
    let first = Duration::from_millis(limits::REPLICATION_BACKOFF_MS);
    let mut pause = first;
    loop {
        lock(&job.health).crashing = false;
        job.add_event("started", run.env.wall(), None);
        let begun = run.env.now();
        let outcome = run.run().await;
        if outcome.is_err() {
            run.env.metrics().count(Counter::ReplicationsCrashed);
        }
        let error = match outcome {
            Err(error) if job.continuous || job.origin.is_some() => error,
            outcome => return outcome,
        };
        tracing::warn!(id = job.id, error = error.text(), "a replication failed and is tried again");
        job.add_event("crashed", run.env.wall(), Some(error.text()));
        let healthy = run.env.now().since(begun) > longest;
        if healthy {
            pause = first;
        }
        {
            let mut health = lock(&job.health);
            let errors = if healthy { 1 } else { health.errors + 1 };
            *health = Health { crashing: true, errors, error: Some(error.text()) };
        }
        run.env.sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}
