//! Split of a replica: two child shards on the same node take over its documents while it is read and written.
//!
//! Documents keep their sequences and purges keep their numbers, so that a position in the parent shard is a position
//! in its child shards, and a child shard's last sequence tells how far it has copied the parent. Pages are read and
//! copied one after the other ([`ShardReplica::legacy`], [`ShardReplica::inherit`]); meanwhile local documents, which
//! have no sequence, are also written to the child shard ([`ShardReplica::mirror_locals`]). Finally one committer job
//! copies the few remaining changes and ends the parent ([`ShardReplica::hand_over`]): edits queued behind it are
//! refused with [`ShardError::Moved`].
//!
//! Assumes: the bytes of attachments are staged in the child shard before the documents that name them are copied.
//! Promises: bodies of leaves are copied, older ones as compaction would keep them; nothing is lost or done twice.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use super::keys::{self, Kind};
use super::purge;
use super::record::{Header, PurgeRecord, SeqRecord};
use super::replica::Inner;
use super::transaction::Transaction;
use super::{Fetched, PurgeInfo, Revision, ShardError, ShardId, ShardReplica, Want};
use super::{fetch, tombstone_collection};
use crate::document::id::DocId;
use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View, WriteView};
use crate::world::buggify::fewer;

/// Says which child shard a document belongs to.
pub type Sorter = Arc<dyn Fn(&DocId) -> ShardId + Send + Sync>;

/// Some of what a replica leaves to its child shards, of one moment.
#[derive(Clone, Debug)]
pub struct Legacy {
    /// Documents with their leaves, in the order of their sequences.
    pub documents: Vec<(DocId, Fetched)>,
    /// Purges with their numbers.
    purges: Vec<PurgeInfo>,
    /// Documents of those of which nothing is left.
    gone: Vec<DocId>,
    /// Sequence and purge up to which everything is in it or was left before.
    upto: (u64, u64),
    /// Purges up to this number are not on record. It stays while there are child shards.
    purge_floor: u64,
    /// Whether there was nothing more at that moment.
    pub is_last: bool,
}

impl ShardReplica {
    /// Up to where a child shard has taken over: its last sequence and purge.
    pub async fn inherited(&self) -> Result<(u64, u64), ShardError> {
        let info = self.info().await?;
        Ok((info.update_seq, info.purge_seq))
    }

    /// What this replica leaves behind sequence and purge `since`; a bounded page of it.
    pub async fn legacy(&self, since: (u64, u64)) -> Result<Legacy, ShardError> {
        let most = fewer("split: a page of one document", limits::SPLIT_PAGE_DOCS);
        self.read(move |view, shard| legacy(view, shard, since, most)).await
    }

    /// Takes over what `sorter` gives to this child shard.
    pub async fn inherit(&self, legacy: Arc<Legacy>, sorter: Sorter) -> Result<(), ShardError> {
        let inner = Arc::clone(&self.0);
        let salt = inner.storage.env().random_u64();
        let job = move |view: &mut WriteView<'_>| {
            if let Err(error) = inner.check_writable() {
                return Ok(Err(error));
            }
            let seq = match take_over(view, &inner, &legacy, &sorter, salt)? {
                Ok(seq) => seq,
                Err(error) => return Ok(Err(error)),
            };
            view.after_commit(move || inner.stand_at(seq));
            Ok(Ok(()))
        };
        self.0.storage.committer().submit_to(Some(self.0.shard.0), job).await?
    }

    /// From now on writes local documents to the child shard that `sorter` names, too; `None`: no longer.
    pub fn mirror_locals(&self, sorter: Option<Sorter>) {
        self.0.set_mirror(sorter);
    }

    /// Gives the child shards the local documents that they are to have, and takes from them what is not here any more.
    /// To be called while they are mirrored.
    pub async fn leave_locals(&self, children: &[ShardReplica; 2]) -> Result<(), ShardError> {
        for from in [self, &children[0], &children[1]] {
            let mut after = Bound::Unbounded;
            loop {
                let page = from.local_registers(after, limits::STEP_ROWS).await?;
                let Some((last, _)) = page.last() else { break };
                after = Bound::Excluded(last.clone());
                let inner = Arc::clone(&self.0);
                self.write(move |view| page.iter().try_for_each(|(id, _)| mirror_local(&inner, view, id))).await?;
            }
        }
        Ok(())
    }

    /// Ends this replica in one committer job: its child shards take over what they still lack, if that is little, and
    /// `record` writes what else is to change with it. Answers whether it was little; otherwise nothing was done.
    ///
    /// # Errors
    /// [`ShardError::Moved`] when it has ended before; what `record` says.
    pub async fn hand_over<F>(&self, children: [ShardReplica; 2], sorter: Sorter, record: F) -> Result<bool, ShardError>
    where
        F: FnOnce(&mut WriteView<'_>) -> Result<Result<(), ShardError>, StorageError> + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        let salt = inner.storage.env().random_u64();
        let job = move |view: &mut WriteView<'_>| {
            if let Err(error) = inner.check_writable() {
                return Ok(Err(error));
            }
            let mut left = Vec::with_capacity(children.len());
            for child in &children {
                let header = Header::read(view, child.0.shard)?;
                let since = (header.update_seq, header.purge_seq);
                let legacy = legacy(view, inner.shard, since, limits::SPLIT_LAST_DOCS)?;
                if !legacy.is_last {
                    return Ok(Ok(false));
                }
                left.push(legacy);
            }
            for (child, legacy) in children.iter().zip(left) {
                let seq = match take_over(view, &child.0, &legacy, &sorter, salt)? {
                    Ok(seq) => seq,
                    Err(error) => return Ok(Err(error)),
                };
                copy_values(view, inner.shard, child.0.shard)?;
                let to = child.0.shard;
                tombstone_collection::leave(view, inner.shard, to, |id| sorter(id) == to)?;
                let child = Arc::clone(&child.0);
                view.after_commit(move || child.stand_at(seq));
            }
            match record(view)? {
                Ok(()) => inner.end_writes(),
                Err(error) => return Ok(Err(error)),
            }
            Ok(Ok(true))
        };
        self.0.storage.committer().submit(job).await?
    }
}

/// The first `limit` changes and purges behind `since`.
fn legacy(view: &dyn View, shard: ShardId, (since, purged): (u64, u64), limit: usize) -> Result<Legacy, StorageError> {
    let header = Header::read(view, shard)?;
    let rows = numbered(view, &keys::numbers(shard, Kind::Sequence, since.saturating_add(1), u64::MAX), limit)?;
    let (mut documents, mut bytes, mut reached) = (Vec::new(), 0, since);
    let mut is_last = rows.len() < limit;
    for (seq, row) in rows {
        if bytes >= limits::STEP_BYTES {
            is_last = false;
            break;
        }
        reached = seq;
        let id = SeqRecord::decode(&row)?.id;
        if let Some(fetched) = fetch::document(view, shard, &id, &Want::Leaves)? {
            let bodies = fetched.found.iter().filter_map(|(_, stored)| stored.as_ref());
            bytes += bodies.map(|stored| stored.body.len()).sum::<usize>();
            documents.push((id, fetched));
        }
    }
    let purge_floor = purge::floor(view, shard, header.purge_seq)?;
    let upto = (reached, purged);
    let mut out = Legacy { documents, purges: Vec::new(), gone: Vec::new(), upto, purge_floor, is_last };
    if !is_last {
        return Ok(out);
    }
    let rows = numbered(view, &keys::numbers(shard, Kind::Purge, purged.saturating_add(1), u64::MAX), limit)?;
    out.is_last = rows.len() < limit;
    out.upto = match rows.last() {
        Some((number, _)) if !out.is_last => (reached, *number),
        _ => (header.update_seq, header.purge_seq),
    };
    for (purge_seq, row) in rows {
        let PurgeRecord { id, revs, history } = PurgeRecord::decode(&row)?;
        if fetch::document(view, shard, &id, &Want::Tree)?.is_none() {
            out.gone.push(id.clone());
        }
        out.purges.push(PurgeInfo { purge_seq, id, revs, history });
    }
    Ok(out)
}

/// The first `limit` rows of a range of keys that end in numbers.
fn numbered(view: &dyn View, range: &KeyRange, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StorageError> {
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    view.scan(range, Direction::Forward, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    rows.into_iter().map(|(key, value)| Ok((keys::number_of(&key)?, value))).collect()
}

/// Stores in `child` what is its own of a legacy; answers its last sequence then.
fn take_over(
    view: &mut WriteView<'_>,
    child: &Inner,
    legacy: &Legacy,
    sorter: &Sorter,
    salt: u64,
) -> Result<Result<u64, ShardError>, StorageError> {
    let mut transaction = Transaction::new(view, child.shard, child.storage.blobs(), child.storage.planted())?;
    for (id, fetched) in legacy.documents.iter().filter(|(id, _)| sorter(id) == child.shard) {
        if let Err(name) = take_document(&mut transaction, id, fetched)? {
            return Ok(Err(ShardError::NotExecuted(format!("the attachment {name} of {id} is not there yet"))));
        }
    }
    for id in legacy.gone.iter().filter(|id| sorter(id) == child.shard) {
        let mut loaded = transaction.load(id)?;
        let Some(seq) = loaded.seq() else { continue };
        drop_bodies(&mut transaction, &loaded.tree)?;
        loaded.tree = Default::default();
        transaction.store_at(id, loaded, seq)?;
    }
    for purge in legacy.purges.iter().filter(|purge| sorter(&purge.id) == child.shard) {
        let key = keys::number_key(child.shard, Kind::Purge, purge.purge_seq);
        let PurgeInfo { id, revs, history, .. } = purge.clone();
        transaction.view.put(key, PurgeRecord { id, revs, history }.encode());
    }
    purge::set_floor(transaction.view, child.shard, legacy.purge_floor);
    let header = &mut transaction.header;
    header.update_seq = header.update_seq.max(legacy.upto.0);
    header.purge_seq = header.purge_seq.max(legacy.upto.1);
    transaction.finish(salt).map(Ok)
}

/// Stores a document as it is in the old replica; fails with the name of an attachment whose bytes are not here.
fn take_document(
    transaction: &mut Transaction<'_, '_>,
    id: &DocId,
    fetched: &Fetched,
) -> Result<Result<(), String>, StorageError> {
    let mut loaded = transaction.load(id)?;
    if loaded.seq() == Some(fetched.local_seq) {
        return Ok(Ok(()));
    }
    let mut tree = fetched.tree.clone();
    let revs: Vec<Revision> = tree.revisions().map(|(rev, _)| rev.clone()).collect();
    for rev in &revs {
        if let Some(data) = tree.value_mut(rev) {
            *data = data.without_body();
        }
    }
    for (rev, stored) in &fetched.found {
        let (Some(stored), Some(data)) = (stored, tree.value_mut(rev)) else { continue };
        match transaction.put_body(stored.deleted, &stored.attachments, &stored.body)? {
            Ok(put) => *data = put,
            Err(name) => return Ok(Err(name)),
        }
    }
    // Last, so that attachments which both have stay.
    drop_bodies(transaction, &loaded.tree)?;
    loaded.tree = tree;
    transaction.store_at(id, loaded, fetched.local_seq)?;
    Ok(Ok(()))
}

fn drop_bodies(
    transaction: &mut Transaction<'_, '_>,
    tree: &super::RevTree<super::RevData>,
) -> Result<(), StorageError> {
    tree.revisions().filter_map(|(_, data)| data).try_for_each(|data| transaction.drop_body(data))
}

/// Copies the small values of upper layers, such as the epochs that positions are of.
fn copy_values(view: &mut WriteView<'_>, from: ShardId, to: ShardId) -> Result<(), StorageError> {
    let mut values: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    view.scan(&keys::all(from, Kind::Meta), Direction::Forward, &mut |key, value| {
        values.push((keys::key(to, Kind::Meta, &key[keys::PREFIX..]), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    values.into_iter().for_each(|(key, value)| view.put(key, value));
    Ok(())
}

/// Brings a local document in step in the child shard that is to have it, if there is one.
pub(super) fn mirror_local(inner: &Inner, view: &mut WriteView<'_>, id: &DocId) -> Result<(), StorageError> {
    let Some(sorter) = inner.mirror() else { return Ok(()) };
    let key = |shard| keys::key(shard, Kind::Local, id.as_str().as_bytes());
    match view.get(&key(inner.shard))? {
        Some(value) => view.put(key(sorter(id)), value),
        None => view.delete(key(sorter(id))),
    }
    Ok(())
}
