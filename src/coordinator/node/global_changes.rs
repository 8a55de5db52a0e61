//! `_global_changes`: documents that record events of databases, one per database and kind of event.
//!
//! It is an ordinary database that administrators create and remove; `_db_updates` shows its changes feed. While it
//! exists, a creation or removal is recorded before it is answered. A background worker records updates, at most every
//! `limits::GLOBAL_CHANGES_PAUSE`, always after the update is durable, so that a reader never learns of one too early.
//! A crash (not an orderly stop) loses at most the records of updates of that last moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;
use tokio::sync::watch;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::{ReadError, WriteError};
use crate::coordinator::topology::events::EventKind;
use crate::coordinator::write::WriteOperations;
use crate::coordinator::write::edits::WriteOptions;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::Object;
use crate::document::rev_tree::RevValue;
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::{Edit, EditOp, Fetched, Want};

/// The database's name.
pub const GLOBAL_CHANGES: &str = "_global_changes";

impl EventKind {
    /// The name of the kind in `_db_updates`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Created => "created",
            EventKind::Deleted => "deleted",
            EventKind::Updated => "updated",
        }
    }
}

/// The id of the document that notes events of `kind` of the database `name`.
fn note_id(kind: EventKind, name: &str) -> DocId {
    DocId::new(&format!("{}:{name}", kind.name()))
}

/// What a document of `_global_changes` tells: kind and database; `None` for a document that is no note.
pub fn read_note(id: &str) -> Option<(EventKind, &str)> {
    let (kind, name) = id.split_once(':')?;
    let kinds = [EventKind::Created, EventKind::Deleted, EventKind::Updated];
    let kind = kinds.into_iter().find(|known| known.name() == kind)?;
    (!name.is_empty()).then_some((kind, name))
}

impl Coordinator {
    /// Starts the task that notes updates; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_global_changes(self: &Arc<Self>) {
        let news = self.watch_events();
        self.spawn_worker("global_changes", "a change of a database", move |weak, worker| {
            keep_global_changes(weak, worker, news.clone())
        });
    }

    /// Notes the updates since the last call. To be called when the node stops, so that none is lost.
    pub async fn note_updates(&self) {
        let mut noted = self.noted().lock().await;
        let (events, last) = self.events(*noted);
        *noted = last;
        let updated = events.into_iter().filter(|event| event.kind == EventKind::Updated);
        let names = updated.map(|event| event.name).filter(|name| name != GLOBAL_CHANGES);
        let ids: Vec<DocId> = names.map(|name| note_id(EventKind::Updated, &name)).collect();
        self.note(&ids).await;
    }

    /// Notes one event durably.
    pub(in crate::coordinator) async fn note_event(&self, kind: EventKind, name: &str) {
        if name != GLOBAL_CHANGES {
            self.note(&[note_id(kind, name)]).await;
        }
    }

    async fn note(&self, ids: &[DocId]) {
        let Ok(database) = self.database(GLOBAL_CHANGES) else { return };
        for step in ids.chunks(limits::EDITS_PER_STEP) {
            if let Err(error) = write_notes(&database, step).await {
                // The change itself is done: that nobody is told of it must not undo it.
                tracing::warn!("{} events were not noted in {GLOBAL_CHANGES}: {error:?}", step.len());
            }
        }
    }
}

async fn keep_global_changes(weak: Weak<Coordinator>, worker: Arc<Worker>, mut news: watch::Receiver<u64>) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    while news.changed().await.is_ok() {
        let Some(coordinator) = weak.upgrade() else { return };
        let run = worker.begin();
        coordinator.note_updates().await;
        drop((run, coordinator));
        env.sleep(limits::GLOBAL_CHANGES_PAUSE).await;
    }
}

/// Writes each document anew. A conflict means that another note of the same kind was just written: as good.
async fn write_notes(database: &Arc<Database>, ids: &[DocId]) -> Result<(), ReadError> {
    let wants = ids.iter().map(|id| (id.clone(), Want::Tree)).collect();
    let body = Arc::new(PreparedBody::new(&Object::new()));
    let mut by_range: BTreeMap<usize, Vec<Edit>> = BTreeMap::new();
    for (id, found) in ids.iter().zip(database.documents().fetch_many(wants, None).await?) {
        by_range.entry(database.map().index_of(id)).or_default().push(edit(id, found, &body));
    }
    let (options, own) =
        (&WriteOptions { caller: Arc::new(Caller::node()), ..WriteOptions::default() }, &database.context.node);
    let writes = by_range.into_iter().map(|(range, edits)| database.writer().settle(range, edits, options, own));
    let failed = join_all(writes).await.into_iter().flatten().find_map(|outcome| match outcome {
        Err(WriteError::Unavailable(error)) => Some(error),
        _ => None,
    });
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// The edit that gives a note a new place in the feed. Notes need no history: one generation is kept.
fn edit(id: &DocId, found: Option<Fetched>, body: &Arc<PreparedBody>) -> Edit {
    let winner = found.as_ref().and_then(|found| found.tree.winner());
    let parent = winner.filter(|leaf| !leaf.value.is_deleted()).map(|leaf| leaf.rev);
    Edit {
        id: id.clone(),
        op: EditOp::Interactive { parent },
        deleted: false,
        body: Arc::clone(body),
        attachments: Vec::new(),
        revs_limit: 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_kind_and_database() {
        for kind in [EventKind::Created, EventKind::Deleted, EventKind::Updated] {
            assert_eq!(read_note(note_id(kind, "a/b").as_str()), Some((kind, "a/b")));
        }
        for other in ["created", "created:", "moved:db", "_design/created:x", ""] {
            assert_eq!(read_note(other), None, "{other}");
        }
    }
}
