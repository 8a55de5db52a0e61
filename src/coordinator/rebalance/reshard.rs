//! Jobs that split ranges: one for each replica, run by the node that holds it.
//!
//! A job fills the child shards of its replica, waits until those of the other nodes are filled, too, and has the map
//! changed; all nodes then go over to the child shards within a moment. The jobs, and whether they run at all, are
//! stored: a node that was stopped continues them. Every node shows and changes the jobs of all nodes in reach.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use tokio::sync::watch;

use crate::coordinator::anti_entropy::RepairOperations;
use crate::coordinator::consensus::agreement::MapError;
use crate::coordinator::rebalance::RebalanceOperations;
use crate::coordinator::rebalance::split::Note;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::jobs::{
    Job, JobAnswer, JobCall, JobEvent, JobState, READY, Resharding, Run, STATE_ID,
};
use crate::coordinator::replica::message::decode;
use crate::coordinator::replica::node_calls::CatalogueCall;
use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::record;
use crate::coordinator::topology::shard_map::Range;
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::ShardError;
use crate::storage::{Direction, KeyRange, View, WriteView};

/// Why jobs do not run while resharding is stopped.
const DISABLED: &str = "Shard splitting disabled";

/// What is split.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRequest {
    /// The database.
    pub db: String,
    /// Only replicas on this node.
    pub node: Option<String>,
    /// Only this range.
    pub range: Option<Range>,
    /// Only replicas of this name, as CouchDB names their files.
    pub replica: Option<String>,
}

/// What became of a replica that was to be split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// The node that holds it.
    pub node: String,
    /// Its name, as CouchDB names its file.
    pub shard: String,
    /// The job, or why there is none.
    pub made: Result<String, String>,
}

impl Coordinator {
    /// Takes up the jobs that are on disk, and begins those that can be; ends with the coordinator.
    pub(in crate::coordinator) async fn keep_resharding(self: &Arc<Self>) -> Result<(), ShardError> {
        let read = |view: &dyn View| {
            let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            view.scan(&KeyRange::prefix(&record::job_prefix()), Direction::Forward, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(rows)
        };
        for (key, value) in self.storage().read(read).await? {
            let mut table = self.context().jobs.table();
            match decode::<Job>(&value) {
                _ if key == record::job_key(STATE_ID) => table.state = decode(&value).unwrap_or_default(),
                Ok(job) => drop(table.jobs.insert(job.id.clone(), job)),
                Err(why) => tracing::warn!(why, "a job is forgotten"),
            }
        }
        self.spawn_worker("resharding", "a job", run_jobs);
        Ok(())
    }

    /// The jobs of all nodes that are there, by their ids.
    pub async fn reshard_jobs(&self) -> Vec<Job> {
        self.known_jobs().await.0.into_values().collect()
    }

    /// A job; `None` when no node has it.
    ///
    /// # Errors
    /// [`DatabaseError::Unavailable`] when it is not known and nodes did not answer that may have it.
    pub async fn reshard_job(&self, id: &str) -> Result<Option<Job>, DatabaseError> {
        let (mut jobs, silent) = self.known_jobs().await;
        match jobs.remove(id) {
            None if !silent.is_empty() => Err(no_answer(&silent)),
            job => Ok(job),
        }
    }

    /// The jobs of all nodes that are there, and the nodes that did not answer.
    async fn known_jobs(&self) -> (BTreeMap<String, Job>, Vec<Arc<str>>) {
        let mut jobs = self.own_jobs();
        let mut silent = Vec::new();
        for (node, answer) in self.ask_all(&JobCall::List).await {
            match answer {
                Some(JobAnswer::Jobs(theirs)) => jobs.extend(theirs.into_iter().map(|job| (job.id.clone(), job))),
                _ => silent.push(node),
            }
        }
        (jobs, silent)
    }

    /// The jobs of this node, but for those of databases that were deleted, which nobody asks for any more.
    fn own_jobs(&self) -> BTreeMap<String, Job> {
        let mut jobs = self.context().jobs.table().jobs.clone();
        jobs.retain(|_, job| !self.is_orphan(job));
        jobs
    }

    fn is_orphan(&self, job: &Job) -> bool {
        !self.is_unlearned() && matches!(self.database_of(job), Err(DatabaseError::NotFound))
    }

    /// Removes jobs of databases that were deleted, when there is no room for another one.
    async fn make_room(&self) -> Result<(), DatabaseError> {
        let all = self.context().jobs.table().jobs.clone();
        if all.len() < limits::RESHARD_JOBS {
            return Ok(());
        }
        for job in all.values().filter(|job| self.is_orphan(job)) {
            self.delete_job(&job.id).await?;
        }
        Ok(())
    }

    /// Whether jobs run on this node.
    pub fn resharding(&self) -> Resharding {
        self.context().jobs.table().state.clone()
    }

    /// Has jobs run, or stop, on all nodes.
    ///
    /// # Errors
    /// [`DatabaseError::Unavailable`] with the nodes that did not take it; on the others it holds.
    pub async fn set_resharding(&self, state: Resharding) -> Result<(), DatabaseError> {
        self.set_all(state.clone()).await?;
        let answers = self.ask_all(&JobCall::SetAll(state)).await;
        let silent = answers.into_iter().filter(|(_, answer)| !matches!(answer, Some(JobAnswer::Done(true))));
        let silent: Vec<Arc<str>> = silent.map(|(node, _)| node).collect();
        if silent.is_empty() { Ok(()) } else { Err(no_answer(&silent)) }
    }

    /// Makes a job for each replica that the request names: none when there is no such range.
    ///
    /// # Errors
    /// [`DatabaseError::NotFound`]
    pub async fn reshard(&self, request: &JobRequest) -> Result<Vec<NewJob>, DatabaseError> {
        let database = self.database(&request.db)?;
        let map = database.map();
        let mut out = Vec::new();
        for index in map.live().iter().copied() {
            let range = map.range(index);
            if request.range.is_some_and(|wanted| wanted != range) {
                continue;
            }
            for node in database.replicas().nodes_of(index) {
                if request.node.as_ref().is_some_and(|wanted| **wanted != *node) {
                    continue;
                }
                let Some(job) = Job::of(&database, range, &node, 0) else { continue };
                if request.replica.as_ref().is_some_and(|wanted| *wanted != job.source) {
                    continue;
                }
                let call = JobCall::Make { db: job.db, range: job.range };
                let made = match self.ask_node(&node, call).await {
                    Some(JobAnswer::Made(made)) => made,
                    _ => Err("nodedown".to_owned()),
                };
                out.push(NewJob { node: node.to_string(), shard: job.source, made });
            }
        }
        Ok(out)
    }

    /// Stops a job (with a reason) or has it go on; false when there is none.
    pub async fn set_reshard_job(&self, id: &str, stopped: Option<String>) -> Result<bool, DatabaseError> {
        self.change_job(id, JobCall::Set { id: id.to_owned(), stopped }).await
    }

    /// Removes a job, ending it; false when there is none.
    pub async fn delete_reshard_job(&self, id: &str) -> Result<bool, DatabaseError> {
        self.change_job(id, JobCall::Delete(id.to_owned())).await
    }

    async fn change_job(&self, id: &str, call: JobCall) -> Result<bool, DatabaseError> {
        let Some(job) = self.reshard_job(id).await? else { return Ok(false) };
        match self.ask_node(&job.node, call).await {
            Some(JobAnswer::Done(done)) => Ok(done),
            _ => Err(no_answer(&[job.node.as_str().into()])),
        }
    }

    async fn ask_node(&self, node: &str, call: JobCall) -> Option<JobAnswer> {
        if *node == *self.context().node {
            return self.serve_jobs(call).await.ok();
        }
        self.ask_catalogue(node, &CatalogueCall::Jobs(call)).await.ok()
    }

    /// What all other nodes answer; `None` for those that do not.
    async fn ask_all(&self, call: &JobCall) -> Vec<(Arc<str>, Option<JobAnswer>)> {
        let context = self.context();
        let others = context.others();
        let mut answers = context.tell_all(&others, &CatalogueCall::Jobs(call.clone()), Urgency::Foreground);
        let mut out = Vec::new();
        while let Some((node, answer)) = answers.recv().await {
            out.push((node, answer.ok().and_then(|bytes| decode(&bytes).ok())));
        }
        out
    }

    /// Answers about the jobs of this node.
    pub(in crate::coordinator) async fn serve_jobs(&self, call: JobCall) -> Result<JobAnswer, DatabaseError> {
        Ok(match call {
            JobCall::List => JobAnswer::Jobs(self.own_jobs().into_values().collect()),
            JobCall::Make { db, range } => JobAnswer::Made(self.make_job(&db, &range).await?),
            JobCall::Set { id, stopped } => JobAnswer::Done(self.set_job(&id, stopped).await?),
            JobCall::SetAll(state) => {
                self.set_all(state).await?;
                JobAnswer::Done(true)
            }
            JobCall::Delete(id) => JobAnswer::Done(self.delete_job(&id).await?),
        })
    }

    async fn make_job(&self, db: &str, range: &str) -> Result<Result<String, String>, DatabaseError> {
        let database = self.database(db)?;
        let now_s = self.env().wall().as_secs();
        let Some(mut job) = Range::parse(range).and_then(|range| Job::of(&database, range, self.node(), now_s)) else {
            return Ok(Err("not_found".to_owned()));
        };
        self.make_room().await?;
        {
            let mut table = self.context().jobs.table();
            if table.jobs.contains_key(&job.id) {
                return Ok(Err("job_already_exists".to_owned()));
            }
            if table.jobs.len() >= limits::RESHARD_JOBS {
                return Ok(Err("max_jobs_exceeded".to_owned()));
            }
            if table.state.stopped.is_some() {
                job.step(JobState::Stopped, Some(DISABLED.to_owned()), now_s);
            }
            table.jobs.insert(job.id.clone(), job.clone());
        }
        self.store(&job.id).await?;
        self.context().jobs.news.notify_one();
        Ok(Ok(job.id))
    }

    async fn set_job(&self, id: &str, stopped: Option<String>) -> Result<bool, DatabaseError> {
        let now_s = self.env().wall().as_secs();
        let known = {
            let mut table = self.context().jobs.table();
            let is_stopped = table.state.stopped.is_some();
            if stopped.is_some() {
                table.running.remove(id);
            }
            let known = table.jobs.get_mut(id);
            known.map(|job| match stopped {
                _ if job.is_over() => {}
                Some(reason) => job.step(JobState::Stopped, Some(reason), now_s),
                None if is_stopped => job.step(JobState::Stopped, Some(DISABLED.to_owned()), now_s),
                None if job.state == JobState::Stopped => job.step(JobState::New, None, now_s),
                None => {}
            })
        };
        self.store(id).await?;
        self.context().jobs.news.notify_one();
        Ok(known.is_some())
    }

    async fn set_all(&self, state: Resharding) -> Result<(), DatabaseError> {
        let wanted = |job: &Job| match state.stopped {
            Some(_) => !job.is_over() && job.state != JobState::Stopped,
            None => job.reason.as_deref() == Some(DISABLED),
        };
        let ids: Vec<String> = {
            let mut table = self.context().jobs.table();
            table.state = state.clone();
            table.jobs.values().filter(|job| wanted(job)).map(|job| job.id.clone()).collect()
        };
        self.store(STATE_ID).await?;
        for id in ids {
            self.set_job(&id, state.stopped.as_ref().map(|_| DISABLED.to_owned())).await?;
        }
        Ok(())
    }

    async fn delete_job(&self, id: &str) -> Result<bool, DatabaseError> {
        let removed = {
            let mut table = self.context().jobs.table();
            table.running.remove(id);
            table.jobs.remove(id)
        };
        let Some(job) = removed else { return Ok(false) };
        self.store(id).await?;
        self.abandon(&job).await?;
        Ok(true)
    }

    /// Gives up what a job has done, unless its range is divided.
    async fn abandon(&self, job: &Job) -> Result<(), ShardError> {
        let Ok(database) = self.database_of(job) else { return Ok(()) };
        match live_range(&database, job) {
            Some(range) => database.own_replicas().abandon(range).await,
            None => Ok(()),
        }
    }

    fn database_of(&self, job: &Job) -> Result<Arc<Database>, DatabaseError> {
        let database = self.database(&job.db)?;
        if database.instance() == job.instance { Ok(database) } else { Err(DatabaseError::NotFound) }
    }

    /// Brings what is on disk of a job, or of whether they run, to what is in memory when it is written: what was noted
    /// last is what stays, whichever writes first.
    async fn store(&self, id: &str) -> Result<(), ShardError> {
        let (context, id) = (Arc::clone(self.context()), id.to_owned());
        let job = move |view: &mut WriteView<'_>| {
            match context.jobs.stored(&id) {
                Some(value) => view.put(record::job_key(&id), value),
                None => view.delete(record::job_key(&id)),
            }
            Ok(Ok::<(), ShardError>(()))
        };
        self.storage().committer().submit(job).await?
    }

    /// Begins all jobs that can be.
    fn begin_jobs(self: &Arc<Self>) {
        let jobs = &self.context().jobs;
        let mut table = jobs.table();
        if table.state.stopped.is_some() {
            return;
        }
        let waits = |job: &&Job| matches!(job.state, JobState::New | JobState::Running);
        let ids: Vec<String> = table.jobs.values().filter(waits).map(|job| job.id.clone()).collect();
        for id in ids {
            if table.running.contains_key(&id) {
                continue;
            }
            let (alive, mut ended) = watch::channel(());
            table.runs += 1;
            let number = table.runs;
            table.running.insert(id.clone(), Run { number, _alive: alive });
            let coordinator = Arc::clone(self);
            self.env().spawn(async move {
                tokio::select! {
                    biased;
                    _ = ended.changed() => {}
                    () = coordinator.run_job((&id, number)) => coordinator.context().jobs.table().end((&id, number)),
                }
            });
        }
    }

    /// Does a job and tells how that ended.
    async fn run_job(&self, run: (&str, u64)) {
        let (id, _) = run;
        let Some(job) = self.context().jobs.get(id) else { return };
        let (state, detail) = match self.split(&job, run).await {
            Ok(()) => (JobState::Completed, None),
            Err(why) => {
                if let Err(error) = self.abandon(&job).await {
                    tracing::warn!(%error, id, "what a job left stays for now");
                }
                (JobState::Failed, Some(why))
            }
        };
        if self.note_step(run, state, detail)
            && let Err(error) = self.store(id).await
        {
            tracing::warn!(%error, id, "the end of a job is not on disk");
        }
    }

    fn note_step(&self, run: (&str, u64), state: JobState, detail: Option<String>) -> bool {
        let now_s = self.env().wall().as_secs();
        self.context().jobs.table().step(run, state, detail, now_s)
    }

    async fn split(&self, job: &Job, run: (&str, u64)) -> Result<(), String> {
        let database = self.database_of(job).map_err(|_| "the database was deleted".to_owned())?;
        let note = |step: &'static str| {
            self.note_step(run, JobState::Running, Some(step.to_owned()));
        };
        if live_range(&database, job).is_some() {
            self.fill_children(&database, job, &note).await?;
            note(READY);
            self.store(&job.id).await.map_err(|error| error.to_string())?;
            self.switch(&database, job).await?;
        }
        ["wait_source_close", "topoff3", "source_delete"].into_iter().for_each(note);
        Ok(())
    }

    /// Fills the child shards of this node's replica of a job's range. Where a move takes the replica to another node
    /// meanwhile there is nothing to fill, and nobody has to wait for this one.
    async fn fill_children(&self, database: &Arc<Database>, job: &Job, note: Note<'_>) -> Result<(), String> {
        // Where the range is not there any more another node's job was first.
        while let Some(range) = live_range(database, job) {
            let filled = {
                // Invariant: nobody closes it.
                let _permit = self.context().jobs.filling.acquire().await.expect("a permit");
                database.own_replicas().prepare(range, note).await
            };
            match filled {
                Ok(_) => break,
                Err(error) if database.layout().placed.shard(range).is_none() => {
                    tracing::debug!(id = job.id, %error, "the replica went to another node");
                    return self.abandon(job).await.map_err(|error| error.to_string());
                }
                // It is rebuilt first; that waits for the end of the child shards.
                Err(error) if database.replica_rebuild().is_unsound(range) => {
                    tracing::info!(id = job.id, %error, "a split waits until a replica is rebuilt");
                    if database.children(range).await.is_ok_and(|children| children.is_some()) {
                        self.abandon(job).await.map_err(|error| error.to_string())?;
                    }
                    self.env().sleep(limits::RESHARD_LOOK).await;
                }
                // This node is about to learn where the replica is.
                Err(ShardError::Moved) if !database.is_gone() => self.env().sleep(limits::RESHARD_LOOK).await,
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Whether all nodes that are there have filled the child shards of a job's range.
    async fn all_filled(&self, job: &Job) -> bool {
        let jobs = self.reshard_jobs().await;
        let same = |other: &&Job| other.instance == job.instance && other.range == job.range;
        jobs.iter().filter(same).all(Job::is_ready)
    }

    /// Has the map changed, once all nodes that are there have filled their child shards and no replica of the range is
    /// on its way.
    async fn switch(&self, database: &Arc<Database>, job: &Job) -> Result<(), String> {
        // Where the range is not there any more another node's job was first.
        while let Some(range) = live_range(database, job) {
            // What this node knows is asked first: a replica may be on its way for long.
            if !database.map_record().moves_replica_of(range as u32) && self.all_filled(job).await {
                match self.change_map(database, |places| Ok(places.with_split(range)?)).await {
                    Ok(_) => return Ok(()),
                    // It changed meanwhile, or others are needed for that who are not there.
                    Err(error @ (MapError::Refused(_) | MapError::Contended | MapError::NoMajority { .. })) => {
                        tracing::debug!(id = job.id, ?error, "a split waits");
                    }
                    Err(error) => return Err(format!("the map could not be changed: {error:?}")),
                }
            }
            self.env().sleep(limits::RESHARD_LOOK).await;
        }
        Ok(())
    }
}

/// What is told where nodes did not answer.
fn no_answer(nodes: &[Arc<str>]) -> DatabaseError {
    DatabaseError::Unavailable(ShardError::NotExecuted(format!("{} did not answer", nodes.join(", "))))
}

/// The number of a job's range while it is not split.
fn live_range(database: &Arc<Database>, job: &Job) -> Option<usize> {
    let range = Range::parse(&job.range)?;
    let map = database.map();
    map.live().iter().copied().find(|index| map.range(*index) == range)
}

/// Until the coordinator goes.
async fn run_jobs(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    loop {
        let Some(coordinator) = weak.upgrade() else { return };
        let run = worker.begin();
        coordinator.begin_jobs();
        drop(run);
        let context = Arc::clone(coordinator.context());
        drop(coordinator);
        context.jobs.news.notified().await;
    }
}

impl Job {
    /// The job that splits a range of a database on a node; `None` where the range cannot be split.
    fn of(database: &Arc<Database>, range: Range, node: &str, now_s: u64) -> Option<Job> {
        let suffix = format!("{}.{}", database.name, database.known.created_s);
        let name = |range: Range| format!("shards/{range}/{suffix}");
        let hash = blake3::hash(format!("{} {range} {node}", database.instance()).as_bytes());
        Some(Job {
            id: format!("001-{}", hash.to_hex()),
            db: database.name.clone(),
            instance: database.instance().to_owned(),
            range: range.to_string(),
            source: name(range),
            target: range.halves()?.map(name).to_vec(),
            node: node.to_owned(),
            state: JobState::New,
            reason: None,
            split_state: "new".to_owned(),
            start_s: now_s,
            update_s: now_s,
            history: vec![JobEvent { at_s: now_s, kind: JobState::New, detail: None }],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::replica::jobs::Table;

    fn job() -> Job {
        let empty = String::new;
        Job {
            id: "001-a".to_owned(),
            db: empty(),
            instance: empty(),
            range: empty(),
            source: empty(),
            target: Vec::new(),
            node: empty(),
            state: JobState::New,
            reason: None,
            split_state: "new".to_owned(),
            start_s: 0,
            update_s: 0,
            history: Vec::new(),
        }
    }

    #[test]
    fn a_task_that_was_stopped_does_not_set_its_job_running_again() {
        let mut table = Table { jobs: BTreeMap::from([("001-a".to_owned(), job())]), ..Table::default() };
        let begin = |table: &mut Table, number| {
            table.running.insert("001-a".to_owned(), Run { number, _alive: watch::channel(()).0 });
        };
        begin(&mut table, 1);
        assert!(table.step(("001-a", 1), JobState::Running, Some("topoff1".to_owned()), 1));
        table.running.remove("001-a");
        table.jobs.get_mut("001-a").unwrap().step(JobState::Stopped, None, 2);
        assert!(!table.step(("001-a", 1), JobState::Running, Some("topoff2".to_owned()), 3));
        assert_eq!(table.jobs["001-a"].state, JobState::Stopped);
        begin(&mut table, 2);
        assert!(!table.step(("001-a", 1), JobState::Completed, None, 4), "another task does it now");
        table.end(("001-a", 1));
        assert!(table.step(("001-a", 2), JobState::Completed, None, 5));
        table.end(("001-a", 2));
        assert!(table.running.is_empty());
    }
}
