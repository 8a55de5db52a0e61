//! Building a view: follows the shard's sequence in bounded batches.
//!
//! Each batch goes through the committer with the position that it reaches, so that the two never part; a batch checks
//! that the position is still the one it started from. A document is read as it is now, which may be newer than the
//! change that named it: its rows are then replaced again when the later change comes. Rows go through the journal for
//! now, like documents.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::keys::{self, Part};
use super::record::{self, COLLATION_VERSION, DocRows, Header, Row};
use super::stored::FORM;
use super::sums::Sums;
use super::{IndexError, Mapped, Signature, Slot, ViewIndex, selected};
use crate::document::id::DocId;
use crate::document::render::{RenderOptions, render};
use crate::index::definition::Sees;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::shard::{Fetched, ShardError, ShardId, Want, Wants};
use crate::storage::planted::Bug;
use crate::storage::{Direction, KeyRange, StorageError, View, WriteView};
use crate::world::Pool;
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

/// A document of a batch with the rows that it has from now on.
struct Entry {
    id: DocId,
    /// Sort key with partition, key and value as JSON.
    rows: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

/// How a build shares the node with others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Somebody waits for it.
    Full,
    /// Nobody does.
    Gentle,
}

/// The batch does not fit what is stored any more: look again.
struct Moved;

impl ViewIndex {
    /// Brings the view up to what is committed now. It goes on when the caller stops waiting. One build at a time:
    /// others wait for it and then find nothing to do.
    pub async fn update(&self) -> Result<(), IndexError> {
        self.update_at(Pace::Full).await
    }

    /// As [`ViewIndex::update`], but leaves the node to others half of the time, unless somebody waits for the index.
    pub async fn update_gently(&self) -> Result<(), IndexError> {
        self.update_at(Pace::Gentle).await
    }

    /// Whether it was complete once, or is now: an index that was is at most a little behind.
    pub async fn is_ready(&self) -> Result<bool, ShardError> {
        if self.slot.known().complete_at > 0 {
            return Ok(true);
        }
        let (target, _) = self.goal().await?;
        Ok(self.header().await?.position >= target)
    }

    async fn update_at(&self, pace: Pace) -> Result<(), IndexError> {
        if self.slot.known().complete_at >= *self.copy.watch().borrow() {
            return Ok(());
        }
        let removals = self.slot.known().removals;
        let (target, purges) = self.goal().await?;
        let header = self.header().await?;
        if header.position >= target && header.purge_position >= purges {
            self.slot.change(|known| {
                if known.removals == removals {
                    known.complete_at = known.complete_at.max(target);
                }
            });
            return Ok(());
        }
        let index = self.clone();
        let build = self.env.spawn_with(async move {
            index.slot.builders.fetch_add(1, Ordering::Relaxed);
            let done = index.build(target, purges, pace).await;
            index.slot.builders.fetch_sub(1, Ordering::Relaxed);
            done
        });
        build.await.unwrap_or(Err(IndexError::Stopped))
    }

    /// Starts [`ViewIndex::update_gently`] and does not wait for it.
    pub fn update_later(&self) {
        let index = self.clone();
        self.env.spawn(async move {
            if let Err(error) = index.update_gently().await {
                tracing::debug!(%error, ?index, "an index was not built in the background");
            }
        });
    }

    /// The shard's last sequence and purge.
    async fn goal(&self) -> Result<(u64, u64), ShardError> {
        let info = self.copy.info().await?;
        Ok((info.update_seq, info.purge_seq))
    }

    async fn build(&self, target: u64, purges: u64, pace: Pace) -> Result<(), IndexError> {
        let _alone = self.slot.writer.lock().await;
        let stored = self.stored_header().await?.filter(|header| header.collation == COLLATION_VERSION);
        let mut header = match stored {
            Some(header) => header,
            None => {
                // A removal that a crash cut off may have left rows.
                self.remove_rows().await?;
                // What was purged before the first build never had rows.
                Header { purge_position: purges, ..Header::default() }
            }
        };
        // Else the first write would make void what is stored.
        self.load_sums().await?;
        while header.purge_position < purges && !mutated(Mutation::PurgeNotIndexed) {
            header = self.purge_step(header).await?;
        }
        let first = header.position;
        let task = (first < target).then(|| self.tasks.begin(&self.env, &self.owner, target - first));
        while header.position < target {
            let begun = self.env.now();
            header = self.step(header).await?;
            if let Some(task) = &task {
                task.done(header.position.saturating_sub(first));
            }
            // One builder is this one: others wait for it.
            if pace == Pace::Gentle && self.slot.builders.load(Ordering::Relaxed) <= 1 {
                self.env.sleep(self.env.now().since(begun).min(limits::INDEX_PAUSE_MAX)).await;
            }
        }
        self.slot.change(|known| known.complete_at = known.complete_at.max(target));
        Ok(())
    }

    /// Indexes the documents of the next changes.
    async fn step(&self, header: Header) -> Result<Header, IndexError> {
        let copy = self.copy.in_background();
        let batch = fewer("index: a batch of one document", limits::INDEX_BATCH_DOCS);
        let page = copy.changes(header.position, Direction::Forward, batch).await?;
        let changes: Vec<(u64, DocId)> = page.rows.into_iter().map(|row| (row.seq, row.id)).collect();
        let (entries, read) = self.entries(changes.iter().map(|(_, id)| id.clone()).collect()).await?;
        let position = if read == changes.len() { page.last_seq } else { changes[read - 1].0 };
        self.write(header, Header { position, ..header }, entries).await
    }

    /// Indexes the documents of the next purges anew: some leaves may be left.
    async fn purge_step(&self, header: Header) -> Result<Header, IndexError> {
        let copy = self.copy.in_background();
        let until = copy.info().await?.purge_seq;
        let most = fewer("index: one purge at a time", limits::INDEX_PURGES_STEP);
        let infos = copy.purge_infos(header.purge_position, most).await?;
        // Where the log was cut, the rows of what was purged meanwhile cannot be told: all are made anew.
        if header.purge_position < copy.state().await?.purge_floor {
            sometimes("index: rows made anew because the purge log was cut");
            self.remove_rows().await?;
            let purge_position = self.copy.info().await?.purge_seq;
            return Ok(Header { purge_position, ..Header::default() });
        }
        let purge_position = infos.last().map_or(until, |info| info.purge_seq);
        let ids: BTreeSet<DocId> = infos.into_iter().map(|info| info.id).collect();
        let mut rest: Vec<DocId> = ids.into_iter().collect();
        if !rest.is_empty() {
            sometimes("index: rows of a purged document removed");
        }
        let mut header = header;
        loop {
            let (entries, read) = self.entries(rest.clone()).await?;
            rest.drain(..read);
            let last = rest.is_empty();
            let purge_position = if last { purge_position } else { header.purge_position };
            header = self.write(header, Header { purge_position, ..header }, entries).await?;
            if last {
                return Ok(header);
            }
        }
    }

    /// The rows of documents, as many from the first on as fit a batch; and how many those are, at least one of some.
    async fn entries(&self, ids: Vec<DocId>) -> Result<(Vec<Entry>, usize), IndexError> {
        let (mut texts, mut mapped_ids, mut entries) = (Vec::new(), Vec::new(), Vec::new());
        let (mut bytes, mut read) = (0, 0);
        let copy = self.copy.in_background();
        let want = match &self.definition.sees {
            Sees::Winner => Want::Winner,
            Sees::Leaves(_) => Want::Leaves,
        };
        let mut wants: Wants = ids.iter().map(|id| (id.clone(), want.clone())).collect();
        while !wants.is_empty() && bytes < limits::STEP_BYTES {
            let found;
            (found, wants) = copy.fetch_some(wants).await?;
            let group = &ids[read..][..found.len()];
            read += found.len();
            for (id, fetched) in group.iter().zip(found) {
                match fetched.and_then(|fetched| self.text_of(id, &fetched)) {
                    Some(text) => {
                        bytes += text.len();
                        texts.push(text);
                        mapped_ids.push(id.clone());
                    }
                    None => entries.push(Entry { id: id.clone(), rows: Vec::new() }),
                }
            }
        }
        let mapped = if texts.is_empty() { Vec::new() } else { self.mapper.map(texts).await? };
        let metrics = self.env.metrics();
        metrics.add(Counter::DocumentsMapped, mapped.len() as u64);
        metrics.add(Counter::RowsEmitted, mapped.iter().map(|rows| rows.len() as u64).sum());
        let index = self.clone();
        let sorted = self.env.blocking(Pool::Background, move || {
            let pairs = mapped_ids.into_iter().zip(mapped);
            pairs.map(|(id, mapped)| index.entry(id, mapped)).collect::<Vec<Entry>>()
        });
        entries.extend(sorted.await);
        Ok((entries, read))
    }

    /// What mappers see of a document; `None` for documents that they do not see.
    fn text_of(&self, id: &DocId, fetched: &Fetched) -> Option<String> {
        if id.is_design() && !self.definition.include_design {
            return None;
        }
        if matches!(self.definition.sees, Sees::Leaves(_)) {
            return Some(selected::text_of(id, fetched));
        }
        let stored = fetched.found.first()?.1.as_ref().filter(|stored| !stored.deleted)?;
        let (conflicts, deleted) = fetched.conflicts(&stored.rev);
        let local_seq = self.definition.local_seq.then_some(fetched.local_seq);
        let (conflicts, deleted_conflicts) = (&conflicts[..], &deleted[..]);
        let options = RenderOptions { conflicts, deleted_conflicts, local_seq, ..RenderOptions::default() };
        Some(String::from_utf8_lossy(&render(id.as_str(), stored, &options)).into_owned())
    }

    fn entry(&self, id: DocId, mapped: Mapped) -> Entry {
        let partition = id.as_str().split_once(':').map(|(partition, _)| partition);
        let prefix = keys::partition_prefix(partition.filter(|_| self.definition.partitioned));
        let row = |(key, value): (crate::document::json::Value, crate::document::json::Value)| {
            let mut sort = prefix.clone();
            self.collator.sort_key(&key, &mut sort);
            (sort, key.to_vec(), value.to_vec())
        };
        Entry { rows: mapped.into_iter().map(row).collect(), id }
    }

    /// Replaces the rows of documents and moves the header on, in one batch.
    async fn write(&self, from: Header, to: Header, entries: Vec<Entry>) -> Result<Header, IndexError> {
        let (shard, signature) = (self.copy.id(), self.definition.signature);
        let keeps_old = self.copy.planted().has(Bug::StaleIndexRow);
        let from = if mutated(Mutation::IndexPositionFirst) { self.write_position(to).await? } else { from };
        self.slot.sums(Sums::begin_write);
        let slot = Arc::clone(&self.slot);
        let written = self.copy.write_records(move |view| {
            let key = keys::key(shard, signature, Part::Header, b"");
            let stored = view.get(&key)?.map(|bytes| Header::decode(&bytes)).transpose()?;
            if stored.is_some_and(|stored| stored != from) {
                return Ok(Err(Moved));
            }
            let (mut header, mut places) = (to, Vec::new());
            for entry in entries {
                replace(view, (shard, signature), (&mut header, &mut places), entry, keeps_old)?;
            }
            drop_sums(view, (shard, signature), (&mut header, &places), &slot);
            view.put(key, header.encode());
            Ok(Ok((header, places)))
        });
        let written = written.await;
        let done = written.as_ref().ok().and_then(|done| done.as_ref().ok());
        // Before queries keep anything again: what they take in is what this header says.
        self.slot.change(|known| known.header = done.map(|(header, _)| *header));
        self.slot.sums(|sums| sums.end_write(done.map(|(header, places)| (header.sums > 0, places.as_slice()))));
        match written? {
            Ok((header, _)) => Ok(header),
            Err(Moved) => {
                self.slot.forget();
                sometimes("index: a build found that another was faster");
                Ok(self.header().await?)
            }
        }
    }

    /// The planted bug: the position goes before its rows.
    async fn write_position(&self, to: Header) -> Result<Header, IndexError> {
        let key = keys::key(self.copy.id(), self.definition.signature, Part::Header, b"");
        let written = self.copy.write_records(move |view| {
            view.put(key, to.encode());
            Ok(Ok::<_, Moved>(to))
        });
        Ok(written.await?.unwrap_or(to))
    }

    /// Removes all records of the view, in bounded steps. The caller holds the writer's lock.
    async fn remove_rows(&self) -> Result<(), ShardError> {
        self.slot.forget();
        let removed = remove(&self.copy, self.definition.signature).await;
        // What a query found meanwhile is gone.
        self.slot.forget();
        removed
    }

    pub(super) async fn stored_header(&self) -> Result<Option<Header>, ShardError> {
        let signature = self.definition.signature;
        let read = move |view: &dyn View, shard: ShardId| {
            let bytes = view.get(&keys::key(shard, signature, Part::Header, b""))?;
            bytes.map(|bytes| Header::decode(&bytes)).transpose()
        };
        self.copy.read_records(Pool::Foreground, read).await
    }

    /// How far it is built; the default for one that is not. What was built with other sort keys does not count.
    pub async fn header(&self) -> Result<Header, ShardError> {
        let known = self.slot.known();
        if let Some(header) = known.header {
            return Ok(header);
        }
        let header = self.stored_header().await?.filter(|header| header.collation == COLLATION_VERSION);
        self.slot.change(|now| {
            if now.removals == known.removals && now.header.is_none() {
                now.header = header;
            }
        });
        Ok(header.unwrap_or_default())
    }
}

/// Removes all records of a view, the header first: a crash in between leaves an index that counts as not built, whose
/// rows are removed when the build begins.
pub(super) async fn remove(copy: &crate::shard::ShardCopy, signature: Signature) -> Result<(), ShardError> {
    let range = KeyRange::prefix(&keys::whole_view(copy.id(), signature));
    copy.remove_records(range).await
}

/// Removes the stored sums of blocks whose rows change. Where it is not known which there are, all are void from now
/// on.
fn drop_sums(
    view: &mut WriteView<'_>,
    (shard, signature): (ShardId, Signature),
    (header, places): (&mut Header, &[Vec<u8>]),
    slot: &Slot,
) {
    let stored = if header.sums == FORM { slot.sums(|sums| sums.stored_at(places)) } else { None };
    match stored {
        Some(_) if mutated(Mutation::StoredSumStays) => {}
        Some(stored) => {
            stored.iter().for_each(|rest| view.delete(keys::key(shard, signature, Part::Sum, rest)));
        }
        None => header.sums = 0,
    }
}

/// Puts a document's rows in place of those before and notes the places that change; `keeps_old`: a planted bug, the
/// old ones stay.
fn replace(
    view: &mut WriteView<'_>,
    (shard, signature): (ShardId, Signature),
    (header, places): (&mut Header, &mut Vec<Vec<u8>>),
    entry: Entry,
    keeps_old: bool,
) -> Result<(), StorageError> {
    let id = entry.id.as_str();
    let at = |sort: &[u8], n: usize| {
        // Invariant: what one document emits fits the memory limit of scripts.
        let n = u32::try_from(n).expect("less than 2^32 rows");
        keys::key(shard, signature, Part::Row, &keys::place(sort, id, n))
    };
    let doc_key = keys::key(shard, signature, Part::Document, id.as_bytes());
    if let Some(bytes) = view.get(&doc_key)? {
        let old = DocRows::decode(&bytes)?;
        header.rows -= old.sorts.len() as u64;
        header.external -= old.external;
        header.active -= old.active;
        header.others = header.others.map(|others| others.saturating_sub(old.others));
        let stays = keeps_old || (entry.rows.is_empty() && mutated(Mutation::ViewRowStays));
        for (n, sort) in old.sorts.iter().enumerate().filter(|_| !stays) {
            let key = at(sort, n);
            places.push(key[keys::PREFIX..].to_vec());
            view.delete(key);
        }
        if entry.rows.is_empty() {
            view.delete(doc_key.clone());
        }
    }
    if entry.rows.is_empty() {
        return Ok(());
    }
    let mut new = DocRows::default();
    for (n, (sort, key, value)) in entry.rows.into_iter().enumerate() {
        new.external += (key.len() + value.len() + id.len()) as u64;
        new.others += u64::from(!record::is_number(&value));
        let (place, row) = (at(&sort, n), Row::encode(sort.len(), &key, &value));
        new.active += (place.len() - keys::PREFIX + row.len()) as u64;
        places.push(place[keys::PREFIX..].to_vec());
        view.put(place, row);
        new.sorts.push(sort);
    }
    header.rows += new.sorts.len() as u64;
    header.external += new.external;
    header.active += new.active;
    header.others = header.others.map(|others| others + new.others);
    view.put(doc_key, new.encode());
    Ok(())
}
