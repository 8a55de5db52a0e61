//! Build of a view: follows the shard's sequence in bounded batches.
//!
//! Each batch goes through the committer together with the position that it reaches, so that rows and position cannot
//! differ (`write.rs`); the commit checks that the position is still the one at which the batch began. A document is
//! read as it is now, which may be newer than the change that named it; its rows are replaced again when the later
//! change comes. Rows go through the journal for now, like documents.
//!
//! A build includes other views of the design document that have the same position and that no other build covers: one
//! read, one JavaScript call and one commit serve all of them. If a function fails as a whole, the view continues by
//! itself, and the views whose functions failed are built alone from then on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::sync::MutexGuard;

use super::keys::{self, Part};
use super::record::{COLLATION_VERSION, Header};
use super::write::{Change, Entry};
use super::{IndexError, JAVASCRIPT, Mapped, Signature, Slot, ViewIndex, selected, write};
use crate::document::id::DocId;
use crate::document::json::Value;
use crate::document::render::{RenderOptions, render};
use crate::document::{Collator, erlang_order};
use crate::index::definition::Sees;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::observe::tasks::Subject;
use crate::script::ScriptError;
use crate::shard::{Fetched, ShardError, ShardId, Want, Wants};
use crate::storage::{Direction, KeyRange, View};
use crate::world::Pool;
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

/// Room for a key or a value of a row, as most are.
const ROW_BYTES: usize = 64;

/// How a build shares the node with others.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Somebody waits for it.
    Full,
    /// Nobody does.
    Gentle,
}

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

/// An index that a build fills.
struct Member<'b> {
    index: &'b ViewIndex,
    header: Header,
    /// It has no rows of documents that changed last at this sequence or before, but for those that this build has
    /// passed. The one that changes a document gives it a later one.
    new_until: u64,
    _building: Building,
    /// The writer's lock.
    _alone: MutexGuard<'b, ()>,
}

impl Member<'_> {
    /// The shard's sequence and purge that it has indexed.
    fn stands_at(&self) -> (u64, u64) {
        (self.header.position, self.header.purge_position)
    }
}

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
        if self.is_current() {
            return Ok(());
        }
        let removals = self.slot.known().removals;
        // Before the goal: an index that stands there then has all documents, also those that changed meanwhile.
        let header = self.header().await?;
        let (target, purges) = self.goal().await?;
        if header.position >= target && header.purge_position >= purges {
            self.slot.change(|known| {
                if known.removals == removals {
                    known.complete_at = known.complete_at.max(target);
                }
            });
            return Ok(());
        }
        let index = self.clone();
        let build = self.env.spawn_with(async move { index.build((target, purges), pace).await });
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
        let info = self.replica.info().await?;
        Ok((info.update_seq, info.purge_seq))
    }

    /// Takes in the changes and purges up to `goal`, which the shard has.
    async fn build(&self, goal: (u64, u64), pace: Pace) -> Result<(), IndexError> {
        let (target, purges) = goal;
        let building = Building::of(&self.slot);
        let alone = self.slot.writer.lock().await;
        let mut first = self.enter(self.built().await?, goal, (building, alone)).await?;
        while first.header.purge_position < purges && !mutated(Mutation::PurgeNotIndexed) {
            first = first.purge_step().await?;
        }
        let begun_at = first.header.position;
        let task =
            (begun_at < target).then(|| self.env.begin_task(Subject::clone(&self.subject), Some(target - begun_at)));
        let mut members = vec![first];
        if begun_at < target {
            self.take_along(&mut members, goal).await;
        }
        self.fill(&mut members, target, pace, |position| {
            if let Some(task) = &task {
                task.done(position.saturating_sub(begun_at));
            }
        })
        .await?;
        for member in &members {
            member.index.slot.change(|known| known.complete_at = known.complete_at.max(target));
        }
        Ok(())
    }

    /// Takes in the changes up to `target`, and then those behind it, until it has read to the end: a document that
    /// stood before the target and changed before it was read stands there, and has no rows yet if it never had any.
    /// Each time there is less to read, unless writers are faster; then it ends after several.
    async fn fill(
        &self,
        members: &mut Vec<Member<'_>>,
        target: u64,
        pace: Pace,
        done: impl Fn(u64),
    ) -> Result<(), IndexError> {
        let (mut until, mut catch_ups, mut is_at_end) = (target, 0, false);
        loop {
            if members[0].header.position >= until {
                let (end, _) = self.goal().await?;
                if is_at_end || members[0].header.position >= end || catch_ups == limits::INDEX_CATCH_UPS {
                    return Ok(());
                }
                sometimes("index: a build goes on with what changed since it began");
                (until, catch_ups) = (end, catch_ups + 1);
            }
            let begun = self.env.now();
            is_at_end = advance(members).await?;
            done(members[0].header.position);
            // One builder is this one: others wait for it.
            let nobody_waits = |member: &Member<'_>| member.index.slot.builders.load(Ordering::Relaxed) <= 1;
            if pace == Pace::Gentle && members.iter().all(nobody_waits) {
                self.env.sleep(self.env.now().since(begun).min(limits::INDEX_PAUSE_MAX)).await;
            }
        }
    }

    /// What is stored of how far it is built; `None` for one that is not, or was built with other sort keys.
    async fn built(&self) -> Result<Option<Header>, ShardError> {
        Ok(self.stored_header().await?.filter(|header| header.collation == COLLATION_VERSION))
    }

    /// Makes it ready to be filled from where it is `built`.
    async fn enter<'b>(
        &'b self,
        built: Option<Header>,
        (target, purges): (u64, u64),
        (building, alone): (Building, MutexGuard<'b, ()>),
    ) -> Result<Member<'b>, ShardError> {
        let (header, new_until) = match built {
            Some(header) => (header, 0),
            None => {
                // A removal that a crash cut off may have left rows.
                self.remove_rows().await?;
                // What was purged before the first build never had rows.
                (Header { purge_position: purges, ..Header::default() }, target)
            }
        };
        // Else the first write would make void what is stored.
        self.load_sums().await?;
        Ok(Member { index: self, header, new_until, _building: building, _alone: alone })
    }

    /// Adds the others that can be built along with the first member, which is this index.
    async fn take_along<'b>(&'b self, members: &mut Vec<Member<'b>>, goal: (u64, u64)) {
        let at = members[0].stands_at();
        let stands = |header: Header| (header.position, header.purge_position);
        let is_elsewhere = |other: &ViewIndex| other.slot.known().header.is_some_and(|header| stands(header) != at);
        for other in self.others.iter().filter(|other| self.goes_with(other) && !is_elsewhere(other)) {
            // Somebody else builds it, or it is here already.
            let Ok(alone) = other.slot.writer.try_lock() else { continue };
            let Ok(built) = other.built().await else { continue };
            // One that is not built begins where a first build does.
            if built.map_or((0, goal.1), stands) == at {
                match other.enter(built, goal, (Building::of(&other.slot), alone)).await {
                    Ok(member) => members.push(member),
                    Err(error) => tracing::debug!(%error, "a view is not built along"),
                }
            }
        }
    }

    /// Whether its function can be called along with this one's, for the same texts.
    fn goes_with(&self, other: &ViewIndex) -> bool {
        let (own, its) = (&self.definition, &other.definition);
        let is_one_of_many = |index: &ViewIndex| {
            let definition = &index.definition;
            definition.language == JAVASCRIPT && definition.sees == Sees::Winner && !index.slot.known().alone
        };
        is_one_of_many(self)
            && is_one_of_many(other)
            && (own.local_seq, own.include_design) == (its.local_seq, its.include_design)
            && self.replica.id() == other.replica.id()
    }

    fn build_alone(&self) {
        self.slot.change(|known| known.alone = true);
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
        let text = String::from_utf8(render(id.as_str(), stored, &options));
        Some(text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    fn entry(&self, id: DocId, mapped: Mapped) -> Entry {
        let partition = id.as_str().split_once(':').map(|(partition, _)| partition);
        let prefix = keys::partition_prefix(partition.filter(|_| self.definition.partitioned));
        let text = |value: &Value| {
            let mut out = Vec::with_capacity(ROW_BYTES);
            value.write(&mut out);
            out
        };
        let row = |(key, value): (Value, Value)| {
            let mut sort = Vec::with_capacity(prefix.len() + ROW_BYTES);
            sort.extend_from_slice(&prefix);
            self.collator.sort_key(&key, &mut sort);
            (sort, text(&key), text(&value))
        };
        Entry { rows: in_order(&self.collator, mapped).into_iter().map(row).collect(), id }
    }

    /// Removes all records of the view, in bounded steps. The caller holds the writer's lock.
    async fn remove_rows(&self) -> Result<(), ShardError> {
        self.slot.forget();
        let removed = remove(&self.replica, self.definition.signature).await;
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
        self.replica.read_records(Pool::Foreground, read).await
    }

    /// What [`ViewIndex::header`] tells where that need not be read.
    pub fn known_header(&self) -> Option<Header> {
        self.slot.known().header
    }

    /// How far it is built; the default for one that is not. What was built with other sort keys does not count.
    pub async fn header(&self) -> Result<Header, ShardError> {
        let known = self.slot.known();
        if let Some(header) = known.header {
            return Ok(header);
        }
        let header = self.built().await?;
        self.slot.change(|now| {
            if now.removals == known.removals && now.header.is_none() {
                now.header = header;
            }
        });
        Ok(header.unwrap_or_default())
    }
}

impl<'b> Member<'b> {
    /// Indexes the documents of the next purges anew: some leaves may be left.
    async fn purge_step(self) -> Result<Member<'b>, IndexError> {
        let (index, header) = (self.index, self.header);
        let replica = index.replica.for_builds();
        let until = replica.info().await?.purge_seq;
        let most = fewer("index: one purge at a time", limits::INDEX_PURGES_STEP);
        let infos = replica.purge_infos(header.purge_position, most).await?;
        // Where the log was cut, the rows of what was purged meanwhile cannot be told: all are made anew.
        if header.purge_position < replica.state().await?.purge_floor {
            sometimes("index: rows made anew because the purge log was cut");
            index.remove_rows().await?;
            let purge_position = index.replica.info().await?.purge_seq;
            return Ok(Member { header: Header { purge_position, ..Header::default() }, ..self });
        }
        let purge_position = infos.last().map_or(until, |info| info.purge_seq);
        let ids: BTreeSet<DocId> = infos.into_iter().map(|info| info.id).collect();
        let mut rest: Vec<DocId> = ids.into_iter().collect();
        if !rest.is_empty() {
            sometimes("index: rows of a purged document removed");
        }
        let mut alone = vec![self];
        loop {
            let (entries, read) = entries(&alone, &rest).await?;
            rest.drain(..read);
            let last = rest.is_empty();
            let stood_at = alone[0].stands_at();
            let purge_position = if last { purge_position } else { stood_at.1 };
            write_all(&mut alone, (stood_at.0, purge_position), entries).await?;
            if last {
                // Invariant: the first member stays.
                return Ok(alone.swap_remove(0));
            }
        }
    }
}

/// Indexes the documents of the next changes in all members. Where that fails, in the first one; where that one or the
/// others fail because of a function they are built alone from then on. Whether there were no more changes.
async fn advance(members: &mut Vec<Member<'_>>) -> Result<bool, IndexError> {
    match step(members).await {
        Err(error) if members.len() > 1 && error != IndexError::Script(ScriptError::Busy) => {
            // The one that waits for one of them need not wait for this one any longer.
            let others: Vec<ViewIndex> = members.drain(1..).map(|member| member.index.clone()).collect();
            let done = step(members).await;
            match &done {
                Ok(_) => others.iter().for_each(ViewIndex::build_alone),
                Err(IndexError::Script(_)) => members[0].index.build_alone(),
                Err(_) => {}
            }
            done
        }
        done => done,
    }
}

/// Indexes the documents of the next changes in all members, which stand at one position. Whether there were no
/// more.
async fn step(members: &mut Vec<Member<'_>>) -> Result<bool, IndexError> {
    let (position, purge_position) = members[0].stands_at();
    let replica = members[0].index.replica.for_builds();
    let batch = fewer("index: a batch of one document", members[0].index.slot.batch_docs());
    let page = replica.changes(position, Direction::Forward, batch).await?;
    let is_last = page.pending_after == 0;
    let (seqs, ids): (Vec<u64>, Vec<DocId>) = page.rows.into_iter().map(|row| (row.seq, row.id)).unzip();
    let (entries, read) = entries(members, &ids).await?;
    members[0].index.slot.learn_batch(read, row_bytes(&entries));
    let position = if read == seqs.len() { page.last_seq } else { seqs[read - 1] };
    write_all(members, (position, purge_position), entries).await?;
    Ok(is_last && read == seqs.len())
}

/// The rows of one document as CouchDB numbers those of equal keys: in the order of Erlang terms, not of emission.
fn in_order(collator: &Collator, mut mapped: Mapped) -> Mapped {
    mapped.sort_by(|(a_key, a), (b_key, b)| {
        erlang_order::compare(collator, a_key, b_key).then_with(|| erlang_order::compare(collator, a, b))
    });
    mapped
}

/// Bytes of the rows of all members.
fn row_bytes(entries: &[Vec<Entry>]) -> usize {
    let of_row = |(sort, key, value): &(Vec<u8>, Vec<u8>, Vec<u8>)| {
        limits::INDEX_ROW_BYTES + sort.len() + key.len() + value.len()
    };
    entries.iter().flatten().flat_map(|entry| &entry.rows).map(of_row).sum()
}

impl Slot {
    /// Documents that the next batch of a build takes.
    fn batch_docs(&self) -> usize {
        match self.batch_docs.load(Ordering::Relaxed) {
            0 => limits::INDEX_FIRST_BATCH_DOCS,
            docs => docs,
        }
    }

    /// A batch of so many documents made so many bytes of rows.
    fn learn_batch(&self, docs: usize, bytes: usize) {
        let now = self.batch_docs();
        let next = match bytes {
            _ if bytes > limits::INDEX_BATCH_ROW_BYTES => docs.saturating_mul(limits::INDEX_BATCH_ROW_BYTES) / bytes,
            _ if docs >= now && bytes < limits::INDEX_BATCH_ROW_BYTES / 4 => now.saturating_mul(4),
            _ => now,
        };
        self.batch_docs.store(next.clamp(1, limits::INDEX_BATCH_DOCS), Ordering::Relaxed);
    }
}

/// For each member the rows of documents, as many from the first on as fit a batch; and how many those are, at least
/// one of some.
async fn entries(members: &[Member<'_>], ids: &[DocId]) -> Result<(Vec<Vec<Entry>>, usize), IndexError> {
    let first = members[0].index;
    let (mut texts, mut mapped_ids, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
    let (mut bytes, mut read) = (0_usize, 0);
    let replica = first.replica.for_builds();
    let want = match &first.definition.sees {
        Sees::Winner => Want::Winner,
        Sees::Leaves(_) => Want::Leaves,
    };
    let mut wants: Wants = ids.iter().map(|id| (id.clone(), want.clone())).collect();
    while !wants.is_empty() && bytes.saturating_mul(members.len()) < limits::STEP_BYTES {
        let found;
        let index = first.clone();
        let shown = move |id: &DocId, fetched: Option<Fetched>| fetched.and_then(|fetched| index.text_of(id, &fetched));
        (found, wants) = replica.fetch_as(wants, shown).await?;
        let group = &ids[read..][..found.len()];
        read += found.len();
        for (id, text) in group.iter().zip(found) {
            match text {
                Some(text) => {
                    bytes += text.len();
                    texts.push(text);
                    mapped_ids.push(id.clone());
                }
                None => unseen.push(id.clone()),
            }
        }
    }
    let maps = members.iter().map(|member| member.index.definition.map.as_str()).collect();
    let mapped = if texts.is_empty() { Vec::new() } else { first.mapper.map(maps, texts).await? };
    let metrics = first.env.metrics();
    metrics.add(Counter::DocumentsMapped, (mapped.len() * members.len()) as u64);
    metrics.add(Counter::RowsEmitted, mapped.iter().flatten().map(|rows| rows.len() as u64).sum());
    let indexes: Vec<ViewIndex> = members.iter().map(|member| member.index.clone()).collect();
    let sorted = first.env.blocking(Pool::Build, move || {
        let gone = |_: &ViewIndex| unseen.iter().map(|id| Entry { id: id.clone(), rows: Vec::new() }).collect();
        let mut out: Vec<Vec<Entry>> = indexes.iter().map(gone).collect();
        for (id, lists) in mapped_ids.into_iter().zip(mapped) {
            let mut lists = lists.into_iter();
            for (index, out) in indexes.iter().zip(&mut out) {
                out.push(index.entry(id.clone(), lists.next().unwrap_or_default()));
            }
        }
        out
    });
    Ok((sorted.await, read))
}

/// Replaces the rows of documents in all members and moves their headers on to a sequence and a purge, in one batch.
/// Those that stand elsewhere than the first then, because of another builder, are left.
async fn write_all(
    members: &mut Vec<Member<'_>>,
    (position, purge_position): (u64, u64),
    entries: Vec<Vec<Entry>>,
) -> Result<(), IndexError> {
    let replica = &members[0].index.replica;
    let mut changes = Vec::with_capacity(members.len());
    for (member, entries) in members.iter().zip(entries) {
        let to = Header { position, purge_position, ..member.header };
        let mut from = member.header;
        if mutated(Mutation::IndexPositionFirst) {
            write::position(replica, member.index.definition.signature, to).await?;
            from = to;
        }
        let (signature, slot) = (member.index.definition.signature, Arc::clone(&member.index.slot));
        changes.push(Change { signature, slot, from, to, is_new: position <= member.new_until, entries });
    }
    let done = write::apply(&members[0].index.env, replica, changes).await?;
    for (member, header) in members.iter_mut().zip(done) {
        match header {
            Some(header) => member.header = header,
            None => {
                sometimes("index: a build found that another was faster");
                (member.header, member.new_until) = (member.index.header().await?, 0);
            }
        }
    }
    let stands_at = members[0].stands_at();
    members.retain(|member| member.stands_at() == stands_at);
    Ok(())
}

/// Removes all records of a view, the header first: a crash in between leaves an index that counts as not built, whose
/// rows are removed when the build begins.
pub(super) async fn remove(replica: &crate::shard::ShardReplica, signature: Signature) -> Result<(), ShardError> {
    let range = KeyRange::prefix(&keys::whole_view(replica.id(), signature));
    replica.remove_records(range).await.map(drop)
}
