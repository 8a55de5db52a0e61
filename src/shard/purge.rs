//! Purges of leaves with their log, and compaction: the two ways in which content of revisions is removed for good.

use std::collections::{BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::edit::{Purged, purge_document};
use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{self, DocRecord, Header, PurgeRecord, RevData};
use super::transaction::Transaction;
use super::{Pace, PurgeInfo, RevTree, Revision, ShardError, ShardId, ShardReplica, Sizes};
use crate::document::id::DocId;
use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View, WriteView};
use crate::world::Pool;
use crate::world::buggify::{Mutation, mutated};

/// Documents rewritten in one job of a compaction: edits wait for no more.
const COMPACT_DOCUMENTS: usize = 50;
/// Purge log entries removed in one job.
const COMPACT_PURGES: u64 = 1000;

impl ShardReplica {
    /// Removes leaves for good, with the history that only they have. Answers per item the leaves removed. All that was
    /// asked for goes on record, also what is not here: another replica may hold it.
    pub async fn purge(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<Vec<Revision>>, ShardError> {
        self.change(move |transaction, _| {
            let mut out = Vec::with_capacity(items.len());
            for (id, revs) in items {
                let Purged { leaves, history } = purge_document(transaction, &id, &revs)?;
                put_on_record(transaction, PurgeRecord { id, revs, history: told(history) });
                out.push(leaves);
            }
            Ok(out)
        })
        .await
    }

    /// Does what another replica has on record as purged. Ancestors of a purged leaf go, too, where they are leaves:
    /// this replica lacked what was built upon them.
    pub async fn purge_as(&self, items: Vec<PurgeInfo>) -> Result<(), ShardError> {
        self.change(move |transaction, _| {
            for PurgeInfo { id, revs, mut history, .. } in items {
                let gone: Vec<Revision> = revs.iter().chain(&history).cloned().collect();
                history.append(&mut purge_document(transaction, &id, &gone)?.history);
                history.sort_unstable();
                history.dedup();
                put_on_record(transaction, PurgeRecord { id, revs, history: told(history) });
            }
            Ok(())
        })
        .await
    }

    /// As [`ShardReplica::purge`], of what other replicas do not hold: they are not told, see
    /// [`ShardReplica::purges_to_tell`].
    pub async fn discard(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<(), ShardError> {
        let shard = self.0.shard;
        self.change(move |transaction, _| {
            let first = transaction.header.purge_seq + 1;
            for (id, revs) in items {
                purge_document(transaction, &id, &revs)?;
                put_on_record(transaction, PurgeRecord { id, revs, history: Vec::new() });
            }
            let key = given_up_key(shard);
            let before = transaction.view.get(&key)?;
            let mut spans = before.map(|bytes| decode_spans(&bytes)).transpose()?.unwrap_or_default();
            match spans.last_mut() {
                Some((_, last)) if *last + 1 == first => *last = transaction.header.purge_seq,
                _ => spans.push((first, transaction.header.purge_seq)),
            }
            transaction.view.put(key, encode_spans(&spans));
            Ok(())
        })
        .await
    }

    /// As [`ShardReplica::purge_infos`], for other replicas: without the revisions that this one gave up.
    pub async fn purges_to_tell(&self, since: u64, limit: usize) -> Result<Vec<PurgeInfo>, ShardError> {
        // Looked up after the entries: it is stored with them.
        let mut infos = self.purge_infos(since, limit).await?;
        let spans =
            |view: &dyn View, shard| view.get(&given_up_key(shard))?.map(|bytes| decode_spans(&bytes)).transpose();
        let spans = self.read(spans).await?.unwrap_or_default();
        let is_given_up = |seq: u64| spans.iter().any(|(first, last)| (*first..=*last).contains(&seq));
        for info in infos.iter_mut().filter(|info| is_given_up(info.purge_seq)) {
            info.revs.clear();
            info.history.clear();
        }
        Ok(infos)
    }

    /// Adds entries to the purge log without purging anything: for a copy of a database that is being made.
    pub async fn note_purges(&self, items: Vec<(DocId, Vec<Revision>)>) -> Result<(), ShardError> {
        self.change(move |transaction, _| {
            let records = items.into_iter().map(|(id, revs)| PurgeRecord { id, revs, history: Vec::new() });
            records.for_each(|record| put_on_record(transaction, record));
            Ok(())
        })
        .await
    }

    /// The purge log behind `since` (0 = from its start), oldest first, at most `limit` entries.
    pub async fn purge_infos(&self, since: u64, limit: usize) -> Result<Vec<PurgeInfo>, ShardError> {
        let first = since.saturating_add(1);
        let mut rest = Some(keys::numbers(self.0.shard, Kind::Purge, first, u64::MAX));
        let mut out: Vec<PurgeInfo> = Vec::new();
        while let (true, Some(range)) = (out.len() < limit, rest.take()) {
            let left = limit - out.len();
            let (infos, next) = self.read(move |view, _| purge_step(view, range, left)).await?;
            out.extend(infos);
            rest = next;
        }
        Ok(out)
    }

    /// As [`ShardReplica::compact_while`], to the end; the log keeps its last `purge_infos_limit` entries.
    #[cfg(test)]
    pub async fn compact(&self, purge_infos_limit: u64, pace: Pace) -> Result<(), ShardError> {
        let last = self.read(Header::read).await?.purge_seq.saturating_sub(purge_infos_limit);
        self.compact_while(last, pace, &|_, _| true).await.map(drop)
    }

    /// Removes bodies of revisions that are no leaves, in bounded steps, and the entries of the purge log up to that of
    /// `last_purge`. In place: it needs no room for a second copy. Runs in the background pool at `pace`; at the end
    /// the store file gives free space back. Each step is told to `goes_on` with its name and the number of documents
    /// looked at so far; where that answers false, the documents left are for another time.
    /// Behind the last document it goes on in any case: what is free by then would not make the replica due again.
    /// Answers whether it came to the end.
    pub async fn compact_while(
        &self,
        last_purge: u64,
        mut pace: Pace,
        goes_on: &(dyn Fn(&'static str, u64) -> bool + Send + Sync),
    ) -> Result<bool, ShardError> {
        let mut rest = Some(keys::ids(self.0.shard, Kind::Document, &Bound::Unbounded, &Bound::Unbounded));
        let mut documents = 0;
        while let Some(range) = rest.take() {
            if !goes_on("documents", documents) {
                return Ok(false);
            }
            let Found { ids, looked_at, mut bytes, rest: next } =
                self.read_on(Pool::Background, move |view, _| find_old_bodies(view, range)).await?;
            if !ids.is_empty() {
                let before = self.sizes().await?.file;
                self.change(move |transaction, _| ids.iter().try_for_each(|id| compact_document(transaction, id)))
                    .await?;
                bytes += before.saturating_sub(self.sizes().await?.file);
            }
            rest = next;
            documents += looked_at;
            pace.spend(bytes).await;
        }
        goes_on("purges", documents);
        self.trim_purge_log(last_purge).await?;
        goes_on("store_file", documents);
        self.0.storage.shrink(self.0.shard.0).await?;
        Ok(true)
    }

    async fn sizes(&self) -> Result<Sizes, ShardError> {
        Ok(self.read(Header::read).await?.sizes())
    }

    /// Removes the entries of the purge log up to that of `last`.
    async fn trim_purge_log(&self, last: u64) -> Result<(), ShardError> {
        loop {
            let oldest = self.purge_infos(0, 1).await?.first().map_or(u64::MAX, |info| info.purge_seq);
            if oldest > last {
                return Ok(());
            }
            let end = last.min(oldest.saturating_add(COMPACT_PURGES - 1));
            let inner = Arc::clone(&self.0);
            let cut = self.write(move |view| {
                // Child shards hear of purges from the log only.
                if inner.mirror().is_some() {
                    return Ok(false);
                }
                (oldest..=end).for_each(|seq| view.delete(keys::number_key(inner.shard, Kind::Purge, seq)));
                set_floor(view, inner.shard, end);
                Ok(true)
            });
            if !cut.await? {
                return Ok(());
            }
        }
    }
}

/// The revisions that the last entries of the purge log name, by a hash of each: all that a replica was told to purge
/// lately. Read from the log as far as that has grown since the last look; of an empty log nothing is read.
#[derive(Debug, Default)]
pub(super) struct RecentPurges {
    /// The last entry that was read.
    upto: u64,
    named: VecDeque<u64>,
}

impl RecentPurges {
    /// Whether one of them may be a revision; another revision of the same hash looks like it.
    pub fn names(
        &mut self,
        transaction: &Transaction<'_, '_>,
        id: &DocId,
        rev: &Revision,
    ) -> Result<bool, StorageError> {
        let last = transaction.header.purge_seq;
        if last != self.upto {
            self.read_on(&*transaction.view, transaction.shard, last)?;
        }
        let wanted = named_hash(id, rev);
        Ok(self.named.iter().any(|named| *named == wanted))
    }

    fn read_on(&mut self, view: &dyn View, shard: ShardId, last: u64) -> Result<(), StorageError> {
        let oldest = last.saturating_sub(limits::PURGES_REMEMBERED as u64);
        let range = keys::numbers(shard, Kind::Purge, self.upto.max(oldest) + 1, u64::MAX);
        let mut failed = Ok(());
        view.scan(&range, Direction::Forward, &mut |_, value| match PurgeRecord::decode(value) {
            Ok(PurgeRecord { id, revs, history }) => {
                self.named.extend(revs.iter().chain(&history).map(|rev| named_hash(&id, rev)));
                let most = limits::PURGES_REMEMBERED;
                self.named.drain(..self.named.len().saturating_sub(most));
                ControlFlow::Continue(())
            }
            Err(error) => {
                failed = Err(error);
                ControlFlow::Break(())
            }
        })?;
        self.upto = last;
        failed
    }
}

fn named_hash(id: &DocId, rev: &Revision) -> u64 {
    let mut hasher = DefaultHasher::new();
    (id, rev).hash(&mut hasher);
    hasher.finish()
}

/// The value that names the entries of the purge log that other replicas are not told.
fn given_up_key(shard: ShardId) -> Vec<u8> {
    keys::key(shard, Kind::Meta, b"given up")
}

fn encode_spans(spans: &[(u64, u64)]) -> Vec<u8> {
    spans.iter().flat_map(|(first, last)| [first.to_be_bytes(), last.to_be_bytes()]).flatten().collect()
}

fn decode_spans(bytes: &[u8]) -> Result<Vec<(u64, u64)>, StorageError> {
    let (numbers, []) = bytes.as_chunks::<8>() else {
        return Err(StorageError::Corrupt("the purges that a replica gave up are not numbers of 8 bytes".to_owned()));
    };
    let pairs = numbers.chunks_exact(2);
    Ok(pairs.map(|pair| (u64::from_be_bytes(pair[0]), u64::from_be_bytes(pair[1]))).collect())
}

/// Adds an entry to the purge log. One without revisions only says that indexes are to look at the document again.
pub(super) fn put_on_record(transaction: &mut Transaction<'_, '_>, record: PurgeRecord) {
    transaction.header.purge_seq += 1;
    let key = keys::number_key(transaction.shard, Kind::Purge, transaction.header.purge_seq);
    transaction.view.put(key, record.encode());
}

/// What other replicas hear of the ancestors of a purged leaf.
fn told(history: Vec<Revision>) -> Vec<Revision> {
    if mutated(Mutation::PurgedParentStays) { Vec::new() } else { history }
}

/// Up to which number purges are not on record, of a shard whose last purge has the number `last`. Above it all are
/// that were done here; a replica that took over a half of another one has the records of its own half.
pub(super) fn floor(view: &dyn View, shard: ShardId, last: u64) -> Result<u64, StorageError> {
    if let Some(bytes) = view.get(&keys::key(shard, Kind::PurgeFloor, b""))? {
        return record::decode_number(&bytes);
    }
    // Nothing says so in shards whose log was last cut by an older settee; it has no gaps there.
    let mut oldest = None;
    view.scan(&keys::all(shard, Kind::Purge), Direction::Forward, &mut |key, _| {
        oldest = Some(keys::number_of(key));
        ControlFlow::Break(())
    })?;
    Ok(oldest.transpose()?.map_or(last, |oldest| oldest.saturating_sub(1)))
}

/// Notes that purges up to `floor` are not on record.
pub(super) fn set_floor(view: &mut WriteView<'_>, shard: ShardId, floor: u64) {
    view.put(keys::key(shard, Kind::PurgeFloor, b""), record::encode_number(floor));
}

fn purge_step(
    view: &dyn View,
    range: KeyRange,
    left: usize,
) -> Result<(Vec<PurgeInfo>, Option<KeyRange>), StorageError> {
    let mut infos = Vec::new();
    let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
        let PurgeRecord { id, revs, history } = PurgeRecord::decode(value)?;
        infos.push(PurgeInfo { purge_seq: keys::number_of(key)?, id, revs, history });
        Ok(if infos.len() == left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok((infos, rest))
}

/// What a step of a compaction found.
struct Found {
    /// Documents that have bodies to lose.
    ids: Vec<DocId>,
    /// How many documents were read.
    looked_at: u64,
    /// Bytes read.
    bytes: u64,
    rest: Option<KeyRange>,
}

fn find_old_bodies(view: &dyn View, range: KeyRange) -> Result<Found, StorageError> {
    let (mut ids, mut looked_at, mut bytes) = (Vec::new(), 0, 0);
    let rest = bounded_scan(view, range, Direction::Forward, |key, value| {
        looked_at += 1;
        bytes += value.len() as u64;
        if !old_bodies(&DocRecord::decode(value)?.tree).is_empty() {
            ids.push(keys::id_of(key)?);
        }
        Ok(if ids.len() == COMPACT_DOCUMENTS { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    Ok(Found { ids, looked_at, bytes, rest })
}

/// Revisions with bodies that are no leaves.
fn old_bodies(tree: &RevTree<RevData>) -> Vec<Revision> {
    if mutated(Mutation::CompactNothing) {
        return Vec::new();
    }
    let leaves: BTreeSet<Revision> = tree.leaves().into_iter().map(|leaf| leaf.rev).collect();
    let readable = tree.revisions().filter(|(_, data)| data.is_some_and(RevData::is_available));
    readable.map(|(rev, _)| rev).filter(|rev| !leaves.contains(rev)).cloned().collect()
}

fn compact_document(transaction: &mut Transaction<'_, '_>, id: &DocId) -> Result<(), StorageError> {
    let mut loaded = transaction.load(id)?;
    let old = old_bodies(&loaded.tree);
    if old.is_empty() {
        return Ok(());
    }
    for rev in old {
        if let Some(data) = loaded.tree.value_mut(&rev) {
            let before = *data;
            *data = before.without_body();
            transaction.drop_body(&before)?;
        }
    }
    if mutated(Mutation::CompactLeaves) {
        loaded.tree.leaves().iter().try_for_each(|leaf| transaction.drop_body(leaf.value))?;
    }
    transaction.rewrite(id, loaded)
}
