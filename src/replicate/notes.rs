//! Results of a replication that a document configured, written into the document.
//!
//! `completed` and `failed` hold across restarts. With `[replicator] update_docs` a document also says when its
//! replication is under way (`triggered`) and when it failed and is tried again (`error`), as before CouchDB 2.1.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::error::{ReplicateError, Result};
use super::job::{Job, State};
use super::jobs::Replicator;
use crate::coordinator::{
    Caller, Database, ReadOperations, Want, WriteError, WriteOperations, WriteOptions, WriteRequest,
};
use crate::document::draft::{Draft, DraftAttachment};
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::limits;
use crate::wire::iso_time::iso_time;

/// The body without what is noted in it: what a replication depends on.
pub(super) fn plain(body: &Object) -> Object {
    let mut out = Object::new();
    for (name, value) in body.iter().filter(|(name, _)| !name.starts_with("_replication_")) {
        out.push(name, value.clone());
    }
    out
}

/// The live winner of a document, and its body.
pub(super) async fn live(
    database: &Arc<Database>,
    id: &DocId,
) -> std::result::Result<Option<(StoredRevision, Object)>, String> {
    listed(database, id, None).await
}

/// As [`live`], of a document that a feed listed with `rev`: an error where no replica in reach knows that, for then it
/// is not known whether the document is there.
pub(super) async fn listed(
    database: &Arc<Database>,
    id: &DocId,
    rev: Option<&Revision>,
) -> std::result::Result<Option<(StoredRevision, Object)>, String> {
    let found = match rev {
        Some(rev) => database.documents().fetch_listed(id, Want::Winner, rev).await,
        None => database.documents().fetch(id, Want::Winner).await,
    };
    let found = found.map_err(|e| format!("{e:?}"))?.and_then(|mut fetched| fetched.take_one());
    let Some(stored) = found.filter(|stored| !stored.deleted) else { return Ok(None) };
    match json::parse(&stored.body) {
        Ok(Value::Object(body)) => Ok(Some((stored, body))),
        _ => Err("a stored document cannot be read".to_owned()),
    }
}

/// The notes of one document.
pub(super) struct Notes {
    /// Its database.
    pub database: Arc<Database>,
    /// The document.
    pub id: DocId,
    /// What it asked for; once it asks for something else nothing is noted any more.
    pub asked: Object,
}

impl Notes {
    /// Notes what becomes of the job until it is done.
    ///
    /// # Errors
    /// When it was cancelled, or the node stops.
    pub async fn follow(&self, replicator: &Weak<Replicator>, job: &Job) -> Result<()> {
        let mut health = job.health.subscribe();
        let mut told = State::Pending;
        loop {
            let tells = {
                let known = replicator.upgrade().ok_or(ReplicateError::Cancelled)?;
                known.config.bool("replicator", "update_docs", false)
            };
            tokio::select! {
                biased;
                ended = job.ended() => {
                    ended?;
                    return self.completed(replicator, job).await;
                }
                _ = health.changed(), if tells => {
                    let now = health.borrow_and_update().clone();
                    if now.state != told && now.state != State::Pending {
                        told = now.state;
                        self.tell(replicator, job, told, now.error.map(|error| error.text())).await?;
                    }
                }
            }
        }
    }

    /// Notes a state in between; one that cannot be noted is left out.
    async fn tell(&self, replicator: &Weak<Replicator>, job: &Job, state: State, error: Option<String>) -> Result<()> {
        let known = replicator.upgrade().ok_or(ReplicateError::Cancelled)?;
        let written = match (state, error) {
            (State::Crashing, Some(error)) => {
                self.write(known.env.wall(), "error", [("state_reason", error.into())]).await
            }
            _ => self.write(known.env.wall(), "triggered", [("id", job.id.as_str().into())]).await,
        };
        if let Err(error) = written {
            tracing::warn!(database = self.database.name, %error, "the state of a replication could not be noted");
        }
        Ok(())
    }

    async fn completed(&self, replicator: &Weak<Replicator>, job: &Job) -> Result<()> {
        let known = replicator.upgrade().ok_or(ReplicateError::Cancelled)?;
        let mut stats = job.info();
        stats.remove("source_seq");
        stats.remove("through_seq");
        // What is done has nothing to say of what is to come.
        stats.insert("changes_pending", Value::Null);
        stats.push("start_time", iso_time(job.started));
        let now = known.env.wall();
        let members = || [("id", job.id.as_str().into()), ("stats", Value::Object(stats.clone()))];
        while let Err(error) = self.write(now, "completed", members()).await {
            if self.database.is_gone() {
                break;
            }
            tracing::warn!(database = self.database.name, %error, "the end of a replication could not be noted");
            known.env.sleep(limits::REPLICATOR_RETRY_PAUSE).await;
        }
        Ok(())
    }

    /// Writes a state into the document in place of what was noted before, unless it asks for something else by now.
    /// Of `members` the names stand behind `_replication_`.
    pub async fn write<const N: usize>(
        &self,
        at: Duration,
        state: &str,
        members: [(&str, Value); N],
    ) -> std::result::Result<(), String> {
        let Some((stored, body)) = live(&self.database, &self.id).await? else { return Ok(()) };
        let mut body = plain(&body);
        if body != self.asked {
            return Ok(());
        }
        body.push("_replication_state", state);
        body.push("_replication_state_time", iso_time(at));
        for (name, value) in members {
            body.push(format!("_replication_{name}"), value);
        }
        let draft = Draft {
            id: None,
            rev: Some(stored.rev.clone()),
            revisions: None,
            deleted: false,
            body,
            attachments: stored.attachments.iter().map(|a| DraftAttachment::stub(&a.name, a.revpos)).collect(),
        };
        let write = WriteRequest { id: self.id.clone(), draft, follows: Vec::new() };
        let options = WriteOptions { caller: Arc::new(Caller::node()), ..WriteOptions::default() };
        match self.database.writer().write_one(write, options).await {
            Ok(_) | Err(WriteError::Conflict) => Ok(()),
            Err(error) => Err(format!("{error:?}")),
        }
    }
}
