//! The committer: one writer per node, which takes all queued jobs, runs them in order, commits once, then answers all.
//!
//! The committer never waits on purpose: a group forms while the commit before it syncs. A job reads through a
//! [`WriteView`], so it sees what earlier jobs wrote, committed or not; readers see committed states only. A job whose
//! future was dropped still runs once it is queued. After a failed commit, or an I/O error of a job, all writes of the
//! node stop for good, because what reached the disk is unknown and further writes could contradict it. A restart of
//! the node reads what is there.
//!
//! The lack of file descriptors is an exception. A group is not begun while the journal cannot open its next file, and
//! its jobs are refused; a job that cannot open the file that it reads fails alone. Nothing was written in either case.
//!
//! The store below turns one group into one journal frame and one sync (`layered.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot, watch};

use super::kv::{Batch, StorageError, Store};
use super::overlay::{Hook, WriteView};
use crate::limits;
use crate::observe::metrics::{Counter, Metrics};
use crate::world::buggify::{PAUSE, buggify, fewer};
use crate::world::{Env, Pool};

/// Why a write was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommitError {
    /// Writes of this node stopped before this one was tried: it has no effect.
    Stopped,
    /// The commit failed or the node stops: the write may or may not survive.
    Unknown,
    /// The job could not read what it needed; it has no effect.
    Storage(StorageError),
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommitError::Stopped => f.write_str("writes have stopped after a disk error"),
            CommitError::Unknown => f.write_str("the outcome of the write is unknown"),
            CommitError::Storage(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CommitError {}

/// The answer that a submitter waits for: commit level outside, the job's own decision inside.
type Reply<T, E> = oneshot::Sender<Result<Result<T, E>, CommitError>>;

/// Tells a job's submitter how it went; called with `Ok` only after the commit is durable.
type Answer = Box<dyn FnOnce(Result<(), CommitError>) + Send>;

/// A job in the queue with its types erased.
trait Work: Send {
    /// The shard that it writes to; `None`: unknown or several.
    fn shard(&self) -> Option<u64>;
    fn run(self: Box<Self>, view: &mut WriteView<'_>) -> Ran;
    fn refuse(self: Box<Self>, error: CommitError);
}

/// What a job leaves: whether its writes count, and how to tell its submitter.
struct Ran {
    keep: bool,
    failed: Option<StorageError>,
    answer: Answer,
}

struct Submitted<F, T, E> {
    shard: Option<u64>,
    job: F,
    reply: Reply<T, E>,
}

impl<F, T, E> Work for Submitted<F, T, E>
where
    F: FnOnce(&mut WriteView<'_>) -> Result<Result<T, E>, StorageError> + Send,
    T: Send + 'static,
    E: Send + 'static,
{
    fn shard(&self) -> Option<u64> {
        self.shard
    }

    fn run(self: Box<Self>, view: &mut WriteView<'_>) -> Ran {
        let Submitted { job, reply, .. } = *self;
        let done = job(view);
        let keep = matches!(done, Ok(Ok(_)));
        let failed = done.as_ref().err().cloned();
        let answer = move |committed: Result<(), CommitError>| {
            let outcome = committed.and_then(|()| done.map_err(CommitError::Storage));
            // A submitter that went away is fine: its job has run all the same.
            let _ = reply.send(outcome);
        };
        Ran { keep, failed, answer: Box::new(answer) }
    }

    fn refuse(self: Box<Self>, error: CommitError) {
        let _ = self.reply.send(Err(error));
    }
}

/// The handle through which all writes go. Cheap to clone.
#[derive(Clone)]
pub struct Committer {
    queue: mpsc::Sender<Box<dyn Work>>,
    stopped: Arc<AtomicBool>,
}

impl fmt::Debug for Committer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Committer")
    }
}

impl Committer {
    /// Starts the node's one committer task over `store`; it ends when all handles are gone.
    pub fn start(env: &Env, store: Arc<dyn Store>) -> Self {
        let (queue, jobs) = mpsc::channel(limits::COMMIT_QUEUE_JOBS);
        let stopped = Arc::new(AtomicBool::new(false));
        env.spawn(drive(env.clone(), store, jobs, Arc::clone(&stopped)));
        Committer { queue, stopped }
    }

    /// Queues `job` and waits until its writes are durable. `Ok(Err(e))`: the job decided against itself, none of its
    /// writes count. Waits for room when the queue is full. Once queued, the job runs even when this future is dropped.
    pub async fn submit<T, E>(
        &self,
        job: impl FnOnce(&mut WriteView<'_>) -> Result<Result<T, E>, StorageError> + Send + 'static,
    ) -> Result<Result<T, E>, CommitError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        self.submit_to(None, job).await
    }

    /// As [`Committer::submit`], for a job that writes to one shard: while that shard's store file lags behind, the job
    /// waits, and those of others pass it. Jobs of one shard keep their order.
    pub async fn submit_to<T, E>(
        &self,
        shard: Option<u64>,
        job: impl FnOnce(&mut WriteView<'_>) -> Result<Result<T, E>, StorageError> + Send + 'static,
    ) -> Result<Result<T, E>, CommitError>
    where
        T: Send + 'static,
        E: Send + 'static,
    {
        if self.writes_stopped() {
            return Err(CommitError::Stopped);
        }
        let (reply, answer) = oneshot::channel();
        if self.queue.send(Box::new(Submitted { shard, job, reply })).await.is_err() {
            // The committer's task is gone: a job panicked, or the node stops.
            self.stopped.store(true, Ordering::SeqCst);
            return Err(CommitError::Stopped);
        }
        answer.await.unwrap_or(Err(CommitError::Unknown))
    }

    /// Whether a disk error has stopped all writes of this node until it is restarted.
    pub fn writes_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }
}

/// What is queued: jobs that may run, and jobs whose store file lags behind.
#[derive(Default)]
struct Waiting {
    ready: VecDeque<Box<dyn Work>>,
    deferred: VecDeque<Box<dyn Work>>,
}

impl Waiting {
    /// Takes up what is queued.
    fn fill(&mut self, jobs: &mut mpsc::Receiver<Box<dyn Work>>) {
        let group = fewer("commit: a group of one job", limits::COMMIT_GROUP_JOBS);
        while self.ready.len() < group && self.deferred.len() < limits::COMMIT_QUEUE_JOBS {
            let Ok(job) = jobs.try_recv() else { break };
            self.ready.push_back(job);
        }
    }

    /// Defers the jobs for which there is no room, in their order; those deferred before come first. Those for
    /// which there never will be any are refused: waiting they would fill the queue.
    fn defer_jobs(&mut self, store: &dyn Store) {
        let all_wait = !store.has_room(None);
        let mut jobs = std::mem::take(&mut self.deferred);
        jobs.append(&mut self.ready);
        for job in jobs {
            if let Some(error) = job.shard().and_then(|shard| store.refuses(shard)) {
                job.refuse(CommitError::Storage(error));
                continue;
            }
            let waits = all_wait || job.shard().is_some_and(|shard| !store.has_room(Some(shard)));
            if waits { self.deferred.push_back(job) } else { self.ready.push_back(job) }
        }
    }
}

async fn drive(env: Env, store: Arc<dyn Store>, mut jobs: mpsc::Receiver<Box<dyn Work>>, stopped: Arc<AtomicBool>) {
    let mut waiting = Waiting::default();
    let mut room = store.room();
    loop {
        if let Some(room) = room.as_mut() {
            // Before looking, so that no news is missed.
            room.mark_unchanged();
        }
        waiting.fill(&mut jobs);
        if stopped.load(Ordering::SeqCst) {
            waiting.deferred.drain(..).for_each(|job| job.refuse(CommitError::Stopped));
            waiting.ready.drain(..).for_each(|job| job.refuse(CommitError::Stopped));
        }
        waiting.defer_jobs(store.as_ref());
        if waiting.ready.is_empty() {
            match wait(&mut jobs, &mut room, waiting.deferred.len()).await {
                Some(job) => waiting.ready.extend(job),
                None => return,
            }
            continue;
        }
        if buggify("commit: a pause before a group") {
            env.sleep(PAUSE).await;
        }
        let (store, flag, metrics) = (Arc::clone(&store), Arc::clone(&stopped), Arc::clone(env.metrics()));
        let mut ready = std::mem::take(&mut waiting.ready);
        waiting.ready = env
            .blocking(Pool::Journal, move || {
                run_group(store.as_ref(), &flag, &metrics, &mut ready);
                ready
            })
            .await;
    }
}

/// Waits for a job or, while some are deferred, for room; `None` when no job can come any more.
async fn wait(
    jobs: &mut mpsc::Receiver<Box<dyn Work>>,
    room: &mut Option<watch::Receiver<u64>>,
    deferred: usize,
) -> Option<Option<Box<dyn Work>>> {
    let room = match room {
        Some(room) if deferred > 0 => room,
        _ => return jobs.recv().await.map(Some),
    };
    if deferred >= limits::COMMIT_QUEUE_JOBS {
        return room.changed().await.ok().map(|()| None);
    }
    tokio::select! {
        biased;
        changed = room.changed() => changed.ok().map(|()| None),
        // Nobody waits for jobs that were deferred once all handles are gone, but they were taken.
        Some(job) = jobs.recv() => Some(Some(job)),
        else => None,
    }
}

/// Runs jobs from the front of `waiting` up to the size limit of a group, commits, and answers them.
fn run_group(store: &dyn Store, stopped: &AtomicBool, metrics: &Metrics, waiting: &mut VecDeque<Box<dyn Work>>) {
    if let Err(error @ StorageError::NoFiles(_)) = store.prepare() {
        // Before any job has run: what a job decided must not be forgotten.
        tracing::warn!(%error, "writes are refused for now");
        waiting.drain(..).for_each(|job| job.refuse(CommitError::Storage(error.clone())));
        return;
    }
    let mut group = Batch::new();
    let mut hooks: Vec<Hook> = Vec::new();
    let mut answers = Vec::new();
    let ran = run_jobs(store, waiting, &mut group, &mut hooks, &mut answers);
    let outcome = match ran {
        Ok(()) if group.is_empty() => Ok(()),
        Ok(()) => {
            metrics.count(Counter::Commits);
            store.commit(&group)
        }
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => {
            hooks.into_iter().for_each(|hook| hook());
            answers.into_iter().for_each(|answer| answer(Ok(())));
        }
        Err(error) => {
            stopped.store(true, Ordering::SeqCst);
            tracing::error!(%error, "the store failed: this node takes no more writes until it is restarted");
            answers.into_iter().for_each(|answer| answer(Err(CommitError::Unknown)));
        }
    }
}

fn run_jobs(
    store: &dyn Store,
    waiting: &mut VecDeque<Box<dyn Work>>,
    group: &mut Batch,
    hooks: &mut Vec<Hook>,
    answers: &mut Vec<Answer>,
) -> Result<(), StorageError> {
    let base = store.writer_view()?;
    while group.bytes() < limits::COMMIT_GROUP_BYTES {
        let Some(job) = waiting.pop_front() else { break };
        let mut view = WriteView::new(base.as_ref(), group);
        let ran = job.run(&mut view);
        let (own, own_hooks) = view.into_parts();
        answers.push(ran.answer);
        if let Some(error @ StorageError::Io(_)) = ran.failed {
            return Err(error);
        }
        if ran.keep {
            group.append(own);
            hooks.extend(own_hooks);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
