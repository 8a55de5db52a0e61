//! The replications that run on this node: started, listed, cancelled.
//!
//! They live in memory and end with the node; `job` drives each. A continuous one that fails is tried again with
//! growing pauses, and so is any that a document configured (`documents`); another one-shot one answers its failure to
//! the request that waits for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;

use super::copy::Pace;
use super::documents::Documents;
use super::engine::Run;
use super::error::{ReplicateError, Result};
use super::job::{Health, Job, Origin, State, work};
use super::large::LargeAnswers;
use super::local::LocalPeer;
use super::owner;
use super::peer::{Peer, Source};
use super::progress::Track;
use super::remote::RemotePeer;
use super::request::{Endpoint, Order, Replication};
use super::scheduler::{AwaitedSlot, Scheduler};
use super::trust;
use super::tuning::check_protocols;
use crate::auth::UserCtx;
use crate::cluster::{Cluster, NodeName};
use crate::config::Config;
use crate::coordinator::Coordinator;
use crate::document::json::Object;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::wire::client::Moved;
use crate::world::sync::Mutex;
use crate::world::{Env, lock};

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

/// All replications of a node. Shared behind an `Arc`.
pub struct Replicator {
    pub(super) env: Env,
    pub(super) config: Config,
    pub(super) coordinator: Arc<Coordinator>,
    jobs: Mutex<Jobs>,
    scheduler: Arc<Scheduler>,
    started: AtomicU64,
    large: LargeAnswers,
    pub(super) documents: Documents,
}

/// How the jobs of a node are, in numbers.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Jobs that run.
    pub running: u64,
    /// Jobs that wait for a slot.
    pub pending: u64,
    /// Jobs that wait after a failure.
    pub crashing: u64,
    /// The ids of jobs whose targets lack something, with the time since when, and the changes left as far as known.
    pub behind: Vec<(String, Duration, u64)>,
}

#[derive(Default)]
struct Jobs {
    by_id: BTreeMap<String, Arc<Job>>,
    /// Whether a task looks after them.
    tended: bool,
}

impl Replicator {
    /// A node's replicator.
    pub fn new(env: &Env, config: &Config, coordinator: &Arc<Coordinator>) -> Arc<Replicator> {
        Arc::new(Replicator {
            env: env.clone(),
            config: config.clone(),
            coordinator: Arc::clone(coordinator),
            jobs: Mutex::default(),
            scheduler: Scheduler::new(env, config),
            started: AtomicU64::new(0),
            large: LargeAnswers::default(),
            documents: Documents::default(),
        })
    }

    /// What goes into the ids: nodes that share it share checkpoints. A set-up may change it.
    fn cluster_uuid(&self) -> String {
        self.config.text("couchdb", "uuid", "")
    }

    /// Does what a `POST /_replicate` asks for, on this node, with the rights of `user`. Local databases are shown
    /// below `base_url`.
    ///
    /// # Errors
    /// [`ReplicateError`]: the request's fault, or that of a one-shot replication.
    pub async fn order(self: &Arc<Self>, order: Order, user: &UserCtx, base_url: &str) -> Result<Outcome> {
        match order {
            Order::CancelId(id) => self.cancel(&id, user).map(Outcome::Cancelled),
            Order::Cancel(asked) => self.cancel(&asked.job_id(&self.cluster_uuid()), user).map(Outcome::Cancelled),
            Order::Start(asked) => {
                let job = self.start(*asked, user, base_url, None)?;
                if job.continuous { Ok(Outcome::Running(job.id.clone())) } else { job.ended().await.map(Outcome::Done) }
            }
        }
    }

    /// The node that a replication belongs to if it is not this one. Where one runs it stays, also when nodes came or
    /// went meanwhile.
    pub fn elsewhere(&self, cluster: &Cluster, asked: &Replication) -> Option<NodeName> {
        if self.job(&asked.job_id(&self.cluster_uuid())).is_some() {
            return None;
        }
        // Not by the id of the job: that of a node which has just joined is not yet made of the cluster's name.
        owner::owner(cluster, &asked.checkpoint_id("", None)).filter(|owner| owner != cluster.name())
    }

    /// Starts a replication, or finds the same one running.
    pub(super) fn start(
        self: &Arc<Self>,
        asked: Replication,
        user: &UserCtx,
        base_url: &str,
        origin: Option<Origin>,
    ) -> Result<Arc<Job>> {
        check_protocols(&asked, &self.config)?;
        let id = asked.job_id(&self.cluster_uuid());
        let mut jobs = lock(&self.jobs);
        if let Some(job) = jobs.by_id.get(&id) {
            return match &job.origin {
                found if *found == origin && job.user == user.name => Ok(Arc::clone(job)),
                Some(Origin { database, doc_id }) if origin.is_some() => {
                    let by = origin.map(|origin| origin.doc_id).unwrap_or_default();
                    let of = format!("already started, triggered by document `{doc_id}` from db `{database}`");
                    Err(ReplicateError::BadRequest(format!("Replication `{id}` specified by document `{by}` {of}")))
                }
                _ => Err(ReplicateError::NotYours),
            };
        }
        if jobs.by_id.len() >= limits::REPLICATION_JOBS_MAX {
            return Err(ReplicateError::TooMany);
        }
        let (job, run) = self.job_of(asked, id.clone(), user, base_url, origin);
        self.env.metrics().count(Counter::ReplicationsAdded);
        jobs.by_id.insert(id, Arc::clone(&job));
        let tend = !std::mem::replace(&mut jobs.tended, true);
        drop(jobs);
        let first = self.scheduler.ask(job.number);
        self.env.spawn(drive(Arc::clone(self), Arc::clone(&job), Box::new(run), first));
        if tend {
            self.env.spawn(tend_jobs(Arc::downgrade(self)));
        }
        Ok(job)
    }

    /// A database of this server as one end of a replication.
    fn local_peer(&self, name: &str, shown: String, user: &UserCtx, track: &Arc<Track>) -> Peer {
        Peer::Local(LocalPeer {
            env: self.env.clone(),
            coordinator: Arc::clone(&self.coordinator),
            config: self.config.clone(),
            user: user.clone(),
            name: name.to_owned(),
            shown,
            track: Arc::clone(track),
        })
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
        let tuning = asked.wishes.settled(&self.config);
        let tls = trust::connector(&self.env, &self.config);
        let track = Arc::new(Track::new(&self.env));
        let moved: Moved = {
            let track = Arc::clone(&track);
            Arc::new(move || track.moved())
        };
        let peer = |endpoint: &Endpoint| match endpoint {
            Endpoint::Remote(remote) => {
                let clients = tuning.clients(&self.env, &tls, remote.proxy.as_ref(), &moved);
                Peer::Remote(RemotePeer::new(&self.env, clients, remote, tuning.use_bulk_get).sharing(&self.large))
            }
            Endpoint::Local(name) => self.local_peer(name, endpoint.shown(base_url), user, &track),
        };
        let (source, target) = (Arc::new(peer(&asked.source)), Arc::new(peer(&asked.target)));
        let job = Arc::new(Job {
            id,
            number: self.started.fetch_add(1, Ordering::Relaxed) + 1,
            source: source.shown().to_owned(),
            target: target.shown().to_owned(),
            source_proxy: asked.source.proxy(),
            target_proxy: asked.target.proxy(),
            user: user.name.clone(),
            origin,
            continuous: asked.continuous,
            checkpoint_interval: tuning.checkpoint_interval,
            stall: tuning.stall,
            started: now,
            track: Arc::clone(&track),
            events: Mutex::default(),
            health: watch::Sender::new(Health::default()),
            cancel: watch::Sender::new(false),
            outcome: watch::Sender::new(None),
        });
        job.add_event(&self.config, "added", now, None);
        let run = Run {
            env: self.env.clone(),
            source: Source { peer: source, track: Arc::clone(&track) },
            target,
            cluster_uuid: self.cluster_uuid(),
            asked,
            tuning,
            track,
            pace: Pace::default(),
        };
        (job, run)
    }

    /// Ends a job.
    pub(super) fn end(&self, job: &Arc<Job>) {
        job.cancel.send_replace(true);
        self.forget(job);
    }

    fn cancel(&self, id: &str, user: &UserCtx) -> Result<String> {
        let mut jobs = lock(&self.jobs);
        let Some(job) = jobs.by_id.get(id) else { return Err(ReplicateError::NotFound("missing".to_owned())) };
        if job.user != user.name && !user.is_server_admin() {
            return Err(ReplicateError::NotYoursToCancel);
        }
        job.cancel.send_replace(true);
        jobs.by_id.remove(id);
        Ok(id.to_owned())
    }

    /// Those that run, by id.
    pub fn jobs(&self) -> Vec<Arc<Job>> {
        lock(&self.jobs).by_id.values().cloned().collect()
    }

    /// How they are, in numbers.
    pub fn standing(&self) -> Standing {
        let mut out = Standing::default();
        for job in self.jobs() {
            match job.health().state {
                State::Running => out.running += 1,
                State::Pending => out.pending += 1,
                State::Crashing => out.crashing += 1,
            }
            let lag = job.lag();
            if !lag.is_zero() {
                out.behind.push((job.id.clone(), lag, job.progress().pending.unwrap_or(0)));
            }
        }
        out
    }

    /// The one of this id.
    pub fn job(&self, id: &str) -> Option<Arc<Job>> {
        lock(&self.jobs).by_id.get(id).cloned()
    }

    /// Ends all: the node stops.
    pub fn stop(&self) {
        for (_, job) in std::mem::take(&mut lock(&self.jobs).by_id) {
            job.cancel.send_replace(true);
        }
    }

    /// Takes a job off the list, unless another has its place by now.
    fn forget(&self, job: &Arc<Job>) {
        let mut jobs = lock(&self.jobs);
        if jobs.by_id.get(&job.id).is_some_and(|known| Arc::ptr_eq(known, job)) {
            jobs.by_id.remove(&job.id);
        }
    }
}

/// Runs a job to its end or until it is cancelled.
async fn drive(replicator: Arc<Replicator>, job: Arc<Job>, run: Box<Run>, first: AwaitedSlot) {
    let mut cancelled = job.cancel.subscribe();
    let outcome = tokio::select! {
        biased;
        _ = cancelled.wait_for(|cancel| *cancel) => Err(ReplicateError::Cancelled),
        outcome = work(&job, &run, &replicator.scheduler, first, &replicator.config) => outcome,
    };
    replicator.forget(&job);
    job.outcome.send_replace(Some(outcome));
}

/// Looks after the jobs of a node now and then as long as there are some: ends runs that do not move, gives slots to
/// those that wait.
async fn tend_jobs(replicator: Weak<Replicator>) {
    loop {
        let Some(known) = replicator.upgrade() else { return };
        let interval = known.config.u64("replicator", "interval", limits::REPLICATION_INTERVAL_MS).max(1);
        let env = known.env.clone();
        drop(known);
        env.sleep(Duration::from_millis(interval)).await;
        let Some(known) = replicator.upgrade() else { return };
        let jobs: BTreeMap<u64, Arc<Job>> = {
            let mut jobs = lock(&known.jobs);
            jobs.tended = !jobs.by_id.is_empty();
            jobs.by_id.values().map(|job| (job.number, Arc::clone(job))).collect()
        };
        if jobs.is_empty() {
            return;
        }
        for job in jobs.values().filter(|job| job.track.still() > job.stall) {
            known.scheduler.end_stalled(job.number);
        }
        known.scheduler.rotate(|number| jobs.get(&number).is_some_and(|job| job.continuous));
    }
}
