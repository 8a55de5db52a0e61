//! Building a full-text index: follows the shard's sequence in bounded batches, as builds of views do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use settee_search::document::{Document, Field};
use settee_search::schema::{FieldType, Schema};

use super::SearchIndex;
use super::mapper::Indexing;
use super::record::{Keys, SearchHeader};
use super::write::Batch;
use crate::document::id::DocId;
use crate::document::render::{RenderOptions, render};
use crate::index::{IndexError, Slot};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::observe::tasks::Subject;
use crate::shard::{Fetched, ShardError, Want, Wants};
use crate::storage::{Direction, View};
use crate::world::Pool;
use crate::world::buggify::{fewer, sometimes};

/// A build that runs or waits, counted as long as this lives.
struct Building(Arc<Slot>);

impl Building {
    fn of(slot: &Arc<Slot>) -> Building {
        slot.builders.fetch_add(1, Ordering::Relaxed);
        Building(Arc::clone(slot))
    }
}

impl Drop for Building {
    fn drop(&mut self) {
        self.0.builders.fetch_sub(1, Ordering::Relaxed);
    }
}

impl SearchIndex {
    /// Brings the index up to what is committed now. It goes on when the caller stops waiting. One build at a time:
    /// others wait for it and then find nothing to do.
    pub async fn update(&self) -> Result<(), IndexError> {
        self.update_at(false).await
    }

    /// As [`SearchIndex::update`], but leaves the node to others half of the time, unless somebody waits for the index.
    pub async fn update_gently(&self) -> Result<(), IndexError> {
        self.update_at(true).await
    }

    /// Starts [`SearchIndex::update_gently`] and does not wait for it.
    pub fn update_later(&self) {
        let index = self.clone();
        self.env.spawn(async move {
            if let Err(error) = index.update_gently().await {
                tracing::debug!(%error, ?index, "a search index was not built in the background");
            }
        });
    }

    /// Whether it was complete once, or is now: an index that was is at most a little behind.
    pub async fn is_ready(&self) -> Result<bool, ShardError> {
        if self.slot.known().complete_at > 0 {
            return Ok(true);
        }
        let (target, _) = self.goal().await?;
        Ok(self.header().await?.is_some_and(|header| header.position >= target))
    }

    async fn update_at(&self, gently: bool) -> Result<(), IndexError> {
        if self.is_current() {
            return Ok(());
        }
        let removals = self.slot.known().removals;
        let header = self.header().await?;
        let (target, purges) = self.goal().await?;
        if header.as_ref().is_some_and(|header| header.position >= target && header.purge_position >= purges) {
            self.slot.change(|known| {
                if known.removals == removals {
                    known.complete_at = known.complete_at.max(target);
                }
            });
            return Ok(());
        }
        let index = self.clone();
        let build = self.env.spawn_with(async move { index.build((target, purges), gently).await });
        build.await.unwrap_or(Err(IndexError::Stopped))
    }

    /// The shard's last sequence and purge.
    async fn goal(&self) -> Result<(u64, u64), ShardError> {
        let info = self.replica.info().await?;
        Ok((info.update_seq, info.purge_seq))
    }

    /// How far it is built; `None` for one that is not.
    pub async fn header(&self) -> Result<Option<SearchHeader>, ShardError> {
        let keys = Keys(self.replica.id(), self.definition.signature);
        let read = move |view: &dyn View, _| {
            Ok(view.get(&keys.header())?.map(|bytes| SearchHeader::decode(&bytes)).transpose()?.flatten())
        };
        self.replica.read_records(Pool::Foreground, read).await
    }

    /// Takes in the changes and purges up to `goal`, which the shard has, and what was changed meanwhile.
    async fn build(&self, (target, purges): (u64, u64), gently: bool) -> Result<(), IndexError> {
        let _building = Building::of(&self.slot);
        let _alone = self.slot.writer.lock().await;
        let mut header = self.begin(purges).await?;
        while header.purge_position < purges {
            header = self.purge_step(header).await?;
        }
        let begun_at = header.position;
        let task =
            (begun_at < target).then(|| self.env.begin_task(Subject::clone(&self.subject), Some(target - begun_at)));
        let (mut until, mut catch_ups, mut is_at_end) = (target, 0, false);
        loop {
            if header.position >= until {
                let (end, _) = self.goal().await?;
                if is_at_end || header.position >= end || catch_ups == limits::INDEX_CATCH_UPS {
                    break;
                }
                (until, catch_ups) = (end, catch_ups + 1);
            }
            let begun = self.env.now();
            (header, is_at_end) = self.step(header).await?;
            header = self.merge_some(header).await?;
            if let Some(task) = &task {
                task.done(header.position.saturating_sub(begun_at));
            }
            // One builder is this one: others wait for it.
            if gently && self.slot.builders.load(Ordering::Relaxed) <= 1 {
                self.env.sleep(self.env.now().since(begun).min(limits::INDEX_PAUSE_MAX)).await;
            }
        }
        self.slot.change(|known| known.complete_at = known.complete_at.max(target));
        Ok(())
    }

    /// Makes it ready to be filled: what a crash left of it without a header, or behind one, goes.
    async fn begin(&self, purges: u64) -> Result<SearchHeader, ShardError> {
        let keys = Keys(self.replica.id(), self.definition.signature);
        match self.header().await? {
            Some(header) => {
                if self.replica.remove_records(keys.pieces_from(header.next)).await? > 0 {
                    sometimes("search: pieces that a crash left were removed");
                }
                Ok(header)
            }
            None => {
                self.remove_all().await?;
                // What was purged before the first build was never indexed.
                Ok(SearchHeader { purge_position: purges, ..SearchHeader::default() })
            }
        }
    }

    /// Removes all records of the index, in bounded steps, the header first. The caller holds the writer's lock.
    async fn remove_all(&self) -> Result<(), ShardError> {
        self.slot.forget();
        self.open.forget(self.cache_key());
        let keys = Keys(self.replica.id(), self.definition.signature);
        let removed = self.replica.remove_records(keys.whole()).await;
        self.slot.forget();
        self.open.forget(self.cache_key());
        removed.map(drop)
    }

    /// Removes the documents of the next purges that are gone as a whole; of others the purge is a change, too.
    async fn purge_step(&self, header: SearchHeader) -> Result<SearchHeader, IndexError> {
        let replica = self.replica.for_builds();
        let until = replica.info().await?.purge_seq;
        let infos = replica.purge_infos(header.purge_position, limits::INDEX_PURGES_STEP).await?;
        // Where the log was cut, what was purged meanwhile cannot be told: all is made anew.
        if header.purge_position < replica.state().await?.purge_floor {
            self.remove_all().await?;
            let purge_position = self.replica.info().await?.purge_seq;
            return Ok(SearchHeader { purge_position, ..SearchHeader::default() });
        }
        let purge_position = infos.last().map_or(until, |info| info.purge_seq);
        let ids: BTreeSet<DocId> = infos.into_iter().map(|info| info.id).collect();
        let mut wants: Wants = ids.into_iter().map(|id| (id, Want::Tree)).collect();
        let mut gone = Vec::new();
        while !wants.is_empty() {
            let asked: Vec<DocId> = wants.iter().map(|(id, _)| id.clone()).collect();
            let is_gone = |_: &DocId, fetched: Option<Fetched>| fetched.is_none_or(|f| f.tree.winner().is_none());
            let found;
            (found, wants) = replica.fetch_as(wants, is_gone).await?;
            gone.extend(asked.into_iter().zip(found).filter(|(_, gone)| *gone).map(|(id, _)| id));
        }
        let documents = gone.into_iter().map(|id| (id.as_str().to_owned(), None)).collect();
        let (position, schema) = (header.position, header.schema.clone());
        self.write(Batch { from: header, position, purge_position, schema, documents, segment: None }).await
    }

    /// Indexes the documents of the next changes. Whether there were no more.
    async fn step(&self, header: SearchHeader) -> Result<(SearchHeader, bool), IndexError> {
        let replica = self.replica.for_builds();
        let batch = fewer("index: a batch of one document", limits::INDEX_BATCH_DOCS);
        let page = replica.changes(header.position, Direction::Forward, batch).await?;
        let is_last = page.pending_after == 0;
        let all = page.rows.len();
        let rows: Vec<(u64, DocId)> = page.rows.into_iter().map(|row| (row.seq, row.id)).collect();
        let (texts, read) = self.texts(&rows).await?;
        let position = if read == all { page.last_seq } else { rows[read - 1].0 };
        let mut seen = vec![false; read];
        let mut docs = Vec::new();
        for (seen, text) in seen.iter_mut().zip(texts) {
            if let Some(text) = text {
                *seen = true;
                docs.push(text);
            }
        }
        let count = docs.len();
        let fields = if docs.is_empty() { Vec::new() } else { self.mapper.fields(docs).await? };
        self.env.metrics().add(Counter::DocumentsMapped, count as u64);
        let mut fields = fields.into_iter();
        let of = |seen: bool| if seen { fields.next().flatten() } else { None };
        let indexed: Vec<Indexing> = seen.into_iter().map(of).collect();
        let mut indexed: Vec<((u64, DocId), Indexing)> = rows.into_iter().take(read).zip(indexed).collect();
        let (schema, misfit) = self.types(&header, &mut indexed);
        // What stands before a document that does not fit is indexed; that document is met again by the next build.
        let position = match (&misfit, indexed.last()) {
            (None, _) => position,
            (Some(_), Some(((number, _), _))) => *number,
            (Some(_), None) => header.position,
        };
        let (documents, segment) = self.segment(indexed).await;
        let purge_position = header.purge_position;
        let header = self.write(Batch { from: header, position, purge_position, schema, documents, segment }).await?;
        match misfit {
            Some(reason) => Err(IndexError::Misfit(reason)),
            None => Ok((header, is_last && read == all)),
        }
    }

    /// The types of fields behind a batch. Of a batch with a document whose fields do not fit, only what stands before
    /// it is left, and the reason is told.
    fn types(&self, header: &SearchHeader, indexed: &mut Vec<((u64, DocId), Indexing)>) -> (Schema, Option<String>) {
        let mut schema = header.schema.clone();
        if !self.definition.is_typed() {
            return (schema, None);
        }
        for at in 0..indexed.len() {
            let Some(fields) = &indexed[at].1 else { continue };
            if fields.iter().all(|field| schema.get(&field.name) == Some(FieldType::of(field))) {
                continue;
            }
            let before = schema.clone();
            if let Err(reason) = note_types(&mut schema, fields) {
                indexed.truncate(at);
                return (before, Some(reason));
            }
        }
        (schema, None)
    }

    /// The segment of documents and their numbers.
    async fn segment(
        &self,
        indexed: Vec<((u64, DocId), Indexing)>,
    ) -> (Vec<(String, Option<u64>)>, Option<bytes::Bytes>) {
        let analyzer = self.analyzer.clone();
        let build = move || {
            let (mut numbers, mut documents) = (Vec::with_capacity(indexed.len()), Vec::new());
            for ((number, id), fields) in indexed {
                let id = id.as_str().to_owned();
                numbers.push((id.clone(), fields.is_some().then_some(number)));
                if let Some(fields) = fields {
                    documents.push(Document { number, id, fields });
                }
            }
            let segment = (!documents.is_empty()).then(|| settee_search::segment::build(&documents, &analyzer));
            (numbers, segment)
        };
        self.env.blocking(Pool::Build, build).await
    }

    /// The texts of the first documents, as many as fit a batch, at least one; `None` for those that are not indexed.
    async fn texts(&self, rows: &[(u64, DocId)]) -> Result<(Vec<Option<String>>, usize), IndexError> {
        let replica = self.replica.for_builds();
        let mut wants: Wants = rows.iter().map(|(_, id)| (id.clone(), Want::Winner)).collect();
        let (mut texts, mut bytes) = (Vec::with_capacity(rows.len()), 0);
        let skips_designs = self.definition.by_partitions;
        while !wants.is_empty() && bytes < limits::STEP_BYTES {
            let found;
            let shown = move |id: &DocId, fetched: Option<Fetched>| match skips_designs && id.is_design() {
                true => None,
                false => fetched.and_then(|fetched| text_of(id, &fetched)),
            };
            (found, wants) = replica.fetch_as(wants, shown).await?;
            bytes += found.iter().flatten().map(String::len).sum::<usize>();
            texts.extend(found);
        }
        let read = texts.len();
        Ok((texts, read))
    }

    /// Commits a batch; the header that is stored then.
    async fn write(&self, batch: Batch) -> Result<SearchHeader, IndexError> {
        match self.commit(batch).await? {
            Some(header) => Ok(header),
            // It was removed meanwhile, as the replica was.
            None => Ok(self.header().await?.unwrap_or_default()),
        }
    }
}

/// Fixes the types of the fields of a document.
///
/// # Errors
/// The reason why one of them has another type than before, or a name that queries cannot name; then some of the others
/// are fixed.
pub fn note_types(schema: &mut Schema, fields: &[Field]) -> Result<(), String> {
    check_names(fields)?;
    schema.note(fields)
}

/// Refuses names of fields that queries cannot name: letters, digits, `_` and `.`, a letter first, or behind a `$`.
fn check_names(fields: &[Field]) -> Result<(), String> {
    let is_name = |name: &str| {
        let rest = name.strip_prefix('$').unwrap_or(name);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        rest.starts_with(|c: char| c.is_ascii_alphabetic()) && rest.chars().all(is_inner)
    };
    match fields.iter().position(|field| !is_name(&field.name)) {
        None => Ok(()),
        Some(at) => Err(format!("fields[{at}].name must match \"^\\$?[a-zA-Z][a-zA-Z0-9_]*$\"")),
    }
}

/// What index functions see of a document; `None` for one that is deleted.
fn text_of(id: &DocId, fetched: &Fetched) -> Option<String> {
    let stored = fetched.found.first()?.1.as_ref().filter(|stored| !stored.deleted)?;
    let text = String::from_utf8(render(id.as_str(), stored, &RenderOptions::default()));
    Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}
