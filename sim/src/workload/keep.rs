//! Copies of the shared database that the second server keeps up to date because a document of its `_replicator` asks
//! for them, all of it or a part. In the end each holds what it is to hold and nothing else, and the scheduler says so.
//! In a cluster that server is its second node: source and target are its own, and one of its nodes does the work.

use std::time::Duration;

use serde_json::{Value, json};

use super::documents::{leaf_set, leaves};
use super::{Worker, broken, order};
use crate::client::Client;
use crate::model::Violation;
use crate::plan::FeedFilter;

/// How long a copy may take to catch up once all faults have ended: a peer that does not answer is given up after half
/// a minute, and pauses between tries grow.
pub(super) const CATCH_UP: Duration = Duration::from_secs(180);
/// Between two looks at it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Documents below this one are chosen by the selector.
const SELECTED_BELOW: &str = "doc-06";
/// Documents that are chosen by their ids.
const IDS: [&str; 3] = ["doc-00", "doc-02", "doc-04"];

/// A job that this worker asked for: the name of its document and of its target.
#[derive(Clone)]
pub(super) struct Job {
    name: String,
}

impl FeedFilter {
    /// Whether a document belongs to the copy.
    pub(super) fn takes(self, doc: &str) -> bool {
        match self {
            FeedFilter::All => true,
            FeedFilter::Selector => doc < SELECTED_BELOW,
            FeedFilter::Ids => IDS.contains(&doc),
        }
    }

    /// Asks for those documents only.
    pub(super) fn narrow(self, order: &mut Value) {
        match self {
            FeedFilter::All => {}
            FeedFilter::Selector => order["selector"] = json!({ "_id": { "$lt": SELECTED_BELOW } }),
            FeedFilter::Ids => order["doc_ids"] = json!(IDS),
        }
    }
}

/// What servers tell of a document that asks for a replication.
pub(super) struct Told {
    name: String,
    /// Whether the document is there.
    pub(super) is_asked: bool,
    /// The jobs that are listed for it.
    jobs: Vec<Value>,
    /// What is told of it.
    pub(super) state: Value,
}

impl Told {
    /// By the node at the other end of `server` of a document of its `_replicator`. What comes of no or a strange
    /// answer is what is wrong.
    pub(super) async fn of(server: &mut Client, name: &str) -> Result<Told, Violation> {
        let asked = server.get(&format!("/_replicator/{name}")).await.map_or(0, |a| a.status);
        let state = server.get(&format!("/_scheduler/docs/_replicator/{name}")).await.map(|a| a.json());
        let jobs = server.get("/_scheduler/jobs?limit=1000").await.map(|a| a.json());
        let (Ok(state), Ok(jobs)) = (state, jobs) else {
            return broken("I28", format!("{name}: the scheduler does not answer after all faults"));
        };
        if !matches!(asked, 200 | 404) {
            return broken("I28", format!("{name}: {asked} after all faults"));
        }
        let mut jobs = jobs["jobs"].as_array().cloned().unwrap_or_default();
        jobs.retain(|listed| listed["doc_id"] == json!(name));
        Ok(Told { name: name.to_owned(), is_asked: asked == 200, jobs, state })
    }

    /// The name of its checkpoints, while it runs.
    pub(super) fn checkpoint(&self) -> Option<&str> {
        self.jobs.first()?["id"].as_str()?.strip_suffix("+continuous")
    }

    /// Whether no two nodes work for it.
    pub(super) fn is_one(&self) -> Result<(), Violation> {
        match self.jobs.len() {
            0 | 1 => Ok(()),
            count => broken("I23", format!("{}: {count} nodes run it", self.name)),
        }
    }

    /// What is wrong with how often it runs, and where.
    pub(super) fn flaw(&self) -> Option<Violation> {
        let name = &self.name;
        let wrong = |what| Some(Violation { invariant: "I23", what });
        match (self.is_asked, self.jobs.len(), self.state["state"].as_str()) {
            (true, 1, Some("running")) | (false, 0, _) => None,
            (false, ..) => wrong(format!("{name}: it runs, and its document is gone")),
            (true, 2.., _) => self.is_one().err(),
            (true, running, state) => wrong(format!("{name}: listed {running} times, said to be {state:?}")),
        }
    }
}

impl Worker {
    /// A connection to the second server.
    pub(super) fn second_server(&self) -> Client {
        self.another_node(1)
    }

    fn job(&self, filter: FeedFilter) -> Job {
        Job { name: format!("kept-{}-{}", self.name, format!("{filter:?}").to_lowercase()) }
    }

    /// Asks for a copy that is kept.
    pub(super) async fn keep(&mut self, filter: FeedFilter) -> Result<(), Violation> {
        let job = self.job(filter);
        let mut body = order();
        body["target"] = json!(job.name);
        body["continuous"] = json!(true);
        filter.narrow(&mut body);
        let path = format!("/_replicator/{}", job.name);
        let mut second = self.second_server();
        for (path, body) in [("/_replicator", Value::Null), (path.as_str(), body)] {
            let _ = self.call_by(&mut second, "PUT", path, &body).await;
        }
        self.jobs.insert(filter, job.clone());
        self.watch_checkpoints(&job.name, filter).await
    }

    /// Takes the document back.
    pub(super) async fn end_keep(&mut self, filter: FeedFilter) -> Result<(), Violation> {
        let path = format!("/_replicator/{}", self.job(filter).name);
        let mut second = self.second_server();
        self.take_back(&mut second, &path).await;
        Ok(())
    }

    /// Deletes a document as it is now.
    pub(super) async fn take_back(&mut self, server: &mut Client, path: &str) {
        let Ok(found) = self.call_by(server, "GET", path, &Value::Null).await else { return };
        if let Some(rev) = found.json()["_rev"].as_str() {
            let _ = self.call_by(server, "DELETE", &format!("{path}?rev={rev}"), &Value::Null).await;
        }
    }

    /// At the end: each copy whose document is there holds what it is to hold, and is said to run; no other runs.
    pub(crate) async fn check_jobs(&mut self) -> Result<(), Violation> {
        let mut second = self.second_server();
        for (filter, job) in self.jobs.clone() {
            self.check_checkpoints(&mut second, &job.name, filter).await?;
            let env = self.client.env().clone();
            let started = env.now();
            loop {
                let Some(violation) = self.check_job(filter, &job, &mut second).await? else { break };
                if env.now().since(started) > CATCH_UP {
                    return Err(violation);
                }
                env.sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }

    /// What is wrong with a job now.
    async fn check_job(
        &mut self,
        filter: FeedFilter,
        job: &Job,
        second: &mut Client,
    ) -> Result<Option<Violation>, Violation> {
        let told = match Told::of(second, &job.name).await {
            Ok(told) => told,
            Err(wrong) => return Ok(Some(wrong)),
        };
        if told.is_asked
            && let Some(violation) = self.difference(second, &job.name, |doc| filter.takes(doc)).await?
        {
            return Ok(Some(Violation { what: format!("{}; told {}", violation.what, told.state), ..violation }));
        }
        Ok(told.flaw())
    }

    /// How a copy differs from the documents that it is to hold.
    pub(super) async fn difference(
        &mut self,
        second: &mut Client,
        copy: &str,
        takes: impl Fn(&str) -> bool,
    ) -> Result<Option<Violation>, Violation> {
        for doc in self.locked(|s| s.model.documents()) {
            let path = format!("{doc}?open_revs=all&revs=true");
            let here = self.call("GET", &format!("/{}/{path}", super::DB), &Value::Null).await;
            let copied = second.get(&format!("/{copy}/{path}")).await;
            let (Ok(here), Ok(copied)) = (here, copied) else {
                return broken("I28", format!("{doc} and its copy do not answer after all faults"));
            };
            if copied.status >= 500 || (here.status != 200 && here.status != 404) {
                return broken("I28", format!("{doc}: {} and {} after all faults", here.status, copied.status));
            }
            let there = if copied.status == 200 { leaf_set(&leaves(&copied.json())) } else { Default::default() };
            if !takes(&doc) {
                match there.is_empty() {
                    true => continue,
                    false => {
                        let what = format!("{doc}: not asked for, and {copy} has {there:?}");
                        return Ok(Some(Violation { invariant: "I24", what }));
                    }
                }
            }
            let here = if here.status == 200 { leaf_set(&leaves(&here.json())) } else { Default::default() };
            if here != there {
                let what = format!("{doc}: the source has {here:?}, {copy} {there:?}");
                return Ok(Some(Violation { invariant: "I22", what }));
            }
        }
        Ok(None)
    }
}
