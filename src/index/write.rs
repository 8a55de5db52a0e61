//! Commit of a batch of a build: rows and positions of one or more indexes of a replica, in one transaction.

use std::convert::Infallible;
use std::sync::Arc;

use super::keys::{self, Part};
use super::record::{self, DocRows, Header, Row};
use super::stored::FORM;
use super::sums::Stand;
use super::{IndexError, Signature, Slot};
use crate::document::id::DocId;
use crate::shard::{ShardError, ShardId, ShardReplica};
use crate::storage::planted::Bug;
use crate::storage::{StorageError, View, WriteView};
use crate::world::Env;
use crate::world::buggify::{Mutation, mutated};

/// A document of a batch with the rows that it has from now on.
pub(super) struct Entry {
    pub id: DocId,
    /// Sort key with partition, key and value as JSON.
    pub rows: Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
}

/// What a batch changes in one index, of which the caller holds the writer's lock.
pub(super) struct Change {
    pub signature: Signature,
    pub slot: Arc<Slot>,
    /// What must be stored, if anything is.
    pub from: Header,
    /// Where it stands then; sizes are still those before.
    pub to: Header,
    /// Whether it has no rows of these documents.
    pub is_new: bool,
    pub entries: Vec<Entry>,
}

/// What became of a change: the header, and the places of rows that came or went.
pub(super) type Done = (Header, Vec<Vec<u8>>);

/// Commits changes; for each the header that is stored then, or `None` where it does not fit what is stored any more:
/// look again.
///
/// It goes on when the caller stops waiting: rows whose commit is queued change all the same, and queries have to be
/// told of its end.
pub(super) async fn apply(
    env: &Env,
    replica: &ShardReplica,
    changes: Vec<Change>,
) -> Result<Vec<Option<Header>>, IndexError> {
    let replica = replica.clone();
    let committed = env.spawn_with(async move { commit(&replica, changes).await });
    Ok(committed.await.ok_or(IndexError::Stopped)??)
}

async fn commit(replica: &ShardReplica, changes: Vec<Change>) -> Result<Vec<Option<Header>>, ShardError> {
    let (shard, keeps_old) = (replica.id(), replica.planted().has(Bug::StaleIndexRow));
    let slots: Vec<Arc<Slot>> = changes.iter().map(|change| Arc::clone(&change.slot)).collect();
    let stands = changes.iter().map(|change| (change.from.stand(), change.to.stand()));
    let moved: Vec<Option<Stand>> = stands.map(|(from, to)| (from != to).then_some(from)).collect();
    // Queries that began again and again because of such commits are waited for.
    let mut alone = Vec::with_capacity(slots.len());
    for slot in &slots {
        alone.push(slot.commits.write().await);
    }
    begin(&slots, moved);
    let written = replica.write_records(move |view| {
        let done = changes.into_iter().map(|change| change.apply(view, shard, keeps_old));
        Ok(Ok::<_, Infallible>(done.collect::<Result<Vec<Option<Done>>, StorageError>>()?))
    });
    let written = written.await.map(|Ok(done)| done);
    let headers = end(&slots, written.as_deref().ok());
    written.map(|_| headers)
}

/// Tells queries that the rows of indexes are about to change, whose `commits` are locked for that; of each where it
/// stands before, if that moves.
pub(super) fn begin(slots: &[Arc<Slot>], moved: Vec<Option<Stand>>) {
    slots.iter().zip(moved).for_each(|(slot, from)| slot.sums(|sums| sums.begin_write(from)));
}

/// Tells queries what became of the changes; `None`: nobody knows. Answers the headers that are stored.
pub(super) fn end(slots: &[Arc<Slot>], written: Option<&[Option<Done>]>) -> Vec<Option<Header>> {
    let mut headers = Vec::with_capacity(slots.len());
    for (at, slot) in slots.iter().enumerate() {
        let done = written.and_then(|done| done[at].as_ref());
        // Before queries keep anything again: what they take in is what this header says.
        slot.change(|known| known.header = done.map(|(header, _)| *header));
        slot.sums(|sums| sums.end_write(done.map(|(header, places)| (header.sums > 0, places.as_slice()))));
        if written.is_some() && done.is_none() {
            slot.forget();
        }
        headers.push(done.map(|(header, _)| *header));
    }
    headers
}

/// A known bug: the position goes before its rows.
pub(super) async fn position(replica: &ShardReplica, signature: Signature, to: Header) -> Result<(), ShardError> {
    let key = keys::key(replica.id(), signature, Part::Header, b"");
    let written = replica.write_records(move |view| {
        view.put(key, to.encode());
        Ok(Ok::<_, Infallible>(()))
    });
    written.await.map(|Ok(())| ())
}

impl Change {
    fn apply(self, view: &mut WriteView<'_>, shard: ShardId, keeps_old: bool) -> Result<Option<Done>, StorageError> {
        let Change { signature, slot, from, to, is_new, entries } = self;
        let key = keys::key(shard, signature, Part::Header, b"");
        let stored = view.get(&key)?.map(|bytes| Header::decode(&bytes)).transpose()?;
        if stored.is_some_and(|stored| stored != from) {
            return Ok(None);
        }
        let (mut header, mut places) = (to, Vec::new());
        for entry in entries {
            if !is_new {
                remove_before(view, (shard, signature), (&mut header, &mut places), &entry, keeps_old)?;
            }
            put(view, (shard, signature), (&mut header, &mut places), entry);
        }
        drop_sums(view, (shard, signature), (&mut header, &places), &slot);
        view.put(key, header.encode());
        Ok(Some((header, places)))
    }
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

/// The key of the n-th row of a document.
fn row_key((shard, signature): (ShardId, Signature), sort: &[u8], id: &str, n: usize) -> Vec<u8> {
    // Invariant: what one document emits fits the memory limit of scripts.
    let n = u32::try_from(n).expect("less than 2^32 rows");
    keys::key(shard, signature, Part::Row, &keys::place(sort, id, n))
}

/// Removes the rows that a document had before and notes their places; `keeps_old`: a planted bug, they stay.
fn remove_before(
    view: &mut WriteView<'_>,
    (shard, signature): (ShardId, Signature),
    (header, places): (&mut Header, &mut Vec<Vec<u8>>),
    entry: &Entry,
    keeps_old: bool,
) -> Result<(), StorageError> {
    let id = entry.id.as_str();
    let doc_key = keys::key(shard, signature, Part::Document, id.as_bytes());
    let Some(bytes) = view.get(&doc_key)? else { return Ok(()) };
    let old = DocRows::decode(&bytes)?;
    header.rows -= old.sorts.len() as u64;
    header.external -= old.external;
    header.active -= old.active;
    header.others = header.others.map(|others| others.saturating_sub(old.others));
    let stays = keeps_old || (entry.rows.is_empty() && mutated(Mutation::ViewRowStays));
    for (n, sort) in old.sorts.iter().enumerate().filter(|_| !stays) {
        let key = row_key((shard, signature), sort, id, n);
        places.push(key[keys::PREFIX..].to_vec());
        view.delete(key);
    }
    if entry.rows.is_empty() {
        view.delete(doc_key);
    }
    Ok(())
}

/// Adds a document's rows and notes their places.
fn put(
    view: &mut WriteView<'_>,
    (shard, signature): (ShardId, Signature),
    (header, places): (&mut Header, &mut Vec<Vec<u8>>),
    entry: Entry,
) {
    if entry.rows.is_empty() {
        return;
    }
    let id = entry.id.as_str();
    let mut new = DocRows::default();
    for (n, (sort, key, value)) in entry.rows.into_iter().enumerate() {
        new.external += (key.len() + value.len() + id.len()) as u64;
        new.others += u64::from(!record::is_number(&value));
        let (place, row) = (row_key((shard, signature), &sort, id, n), Row::encode(sort.len(), &key, &value));
        new.active += (place.len() - keys::PREFIX + row.len()) as u64;
        places.push(place[keys::PREFIX..].to_vec());
        view.put(place, row);
        new.sorts.push(sort);
    }
    header.rows += new.sorts.len() as u64;
    header.external += new.external;
    header.active += new.active;
    header.others = header.others.map(|others| others + new.others);
    view.put(keys::key(shard, signature, Part::Document, id.as_bytes()), new.encode());
}
