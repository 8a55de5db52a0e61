//! The handle of one database: its ranges and what is known about it as a whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::sync::{OnceCell, watch};

use crate::coordinator::catalogue::Context;
use crate::coordinator::design::Designs;
use crate::coordinator::error::{ReadError, SettingError};
use crate::coordinator::events::EventKind;
use crate::coordinator::quorum::majority;
use crate::coordinator::record::{self, Known, Record, Settings};
use crate::coordinator::scan::DocSource;
use crate::coordinator::seq::{Seq, SeqEntry};
use crate::coordinator::shard_map::{Range, ShardMap};
use crate::coordinator::span::Span;
use crate::document::id::DocId;
use crate::document::json::Object;
use crate::document::security;
use crate::shard::{OnChange, ShardCopy, ShardError, ShardId, ShardInfo, Summary};
use crate::storage::{View, WriteView};
use crate::world::buggify::{Mutation, mutated};

/// The epoch of every copy as long as there is one: its positions are never taken back.
pub(super) const EPOCH: u64 = 1;

/// A database that is open. Cheap to share; stays usable until the database is deleted.
pub struct Database {
    /// Its name.
    pub name: String,
    /// How it is cut into ranges.
    pub map: ShardMap,
    pub(super) known: Arc<Known>,
    pub(super) context: Arc<Context>,
    /// The copy of each range; opened when it is first needed.
    copies: Box<[OnceCell<ShardCopy>]>,
    /// Whether the database was deleted.
    gone: watch::Sender<bool>,
    /// Compactions under way.
    pub(super) compactions: AtomicU32,
    pub(super) designs: Designs,
}

/// Bytes that a database takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Live data on disk.
    pub active: u64,
    /// Documents as the client gave them.
    pub external: u64,
    /// Everything on disk.
    pub file: u64,
}

/// What `GET /{db}` tells, summed over the ranges.
#[derive(Clone, Debug)]
pub struct DatabaseInfo {
    /// Live documents, design documents included.
    pub doc_count: u64,
    /// Tombstones.
    pub doc_del_count: u64,
    /// How far it has been written.
    pub update_seq: String,
    /// How far it has been purged.
    pub purge_seq: String,
    /// Bytes taken.
    pub sizes: Sizes,
    /// Whether a compaction is going on.
    pub compact_running: bool,
    /// Whether it is partitioned.
    pub partitioned: bool,
    /// Ranges, copies, and the default numbers of replies to writes and reads.
    pub cluster: ClusterInfo,
}

/// The `cluster` object of `GET /{db}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Ranges.
    pub q: u32,
    /// Copies of each.
    pub n: u32,
    /// Copies that a write waits for.
    pub w: u32,
    /// Copies that a read asks.
    pub r: u32,
}

/// What `GET /{db}/_partition/{p}` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionInfo {
    /// Live documents.
    pub doc_count: u64,
    /// Tombstones.
    pub doc_del_count: u64,
    /// Live data on disk, in bytes.
    pub active: u64,
    /// Documents as the client gave them, in bytes.
    pub external: u64,
}

impl Database {
    pub(super) fn new(name: &str, known: Arc<Known>, context: Arc<Context>) -> Database {
        let map = ShardMap { q: known.q, n: known.n, partitioned: known.partitioned };
        let copies = known.shards.iter().map(|_| OnceCell::new()).collect();
        let compactions = AtomicU32::new(0);
        let (gone, designs) = (watch::Sender::new(false), Designs::default());
        Database { name: name.to_owned(), map, known, context, copies, gone, compactions, designs }
    }

    /// Ends all that reads or writes it; its shards are about to be dropped.
    pub(super) fn mark_gone(&self) {
        self.gone.send_replace(true);
        self.copies.iter().filter_map(OnceCell::get).for_each(ShardCopy::close);
    }

    /// Whether the database was deleted.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    pub(super) fn watch_gone(&self) -> watch::Receiver<bool> {
        self.gone.subscribe()
    }

    /// The copy of a range, opened if it is not.
    pub(super) async fn copy_of(&self, index: usize) -> Result<&ShardCopy, ShardError> {
        let open = || {
            let shard = ShardId(self.known.shards[index]);
            ShardCopy::open_with(&self.context.storage, shard, self.tell_updates())
        };
        let copy = self.copies[index].get_or_try_init(open).await?;
        // A deletion that came while it was being opened did not find it to close it.
        if self.is_gone() {
            copy.close();
            return Err(ShardError::Dropped);
        }
        Ok(copy)
    }

    /// Adds an event for every change of a document, whoever waits for it; none behind that of the deletion.
    fn tell_updates(&self) -> OnChange {
        let (name, context, gone) = (self.name.clone(), Arc::clone(&self.context), self.gone.clone());
        Box::new(move || {
            if !*gone.borrow() {
                context.events.add(&name, EventKind::Updated);
            }
        })
    }

    /// Whether no edit is queued and nobody reads; asked by the only holder of the handle.
    pub(super) fn is_idle(&self) -> bool {
        self.copies.iter().filter_map(OnceCell::get).all(ShardCopy::is_idle)
    }

    /// All copies in ring order.
    pub(super) async fn all_copies(&self) -> Result<Vec<&ShardCopy>, ShardError> {
        try_join_all((0..self.copies.len()).map(|index| self.copy_of(index))).await
    }

    /// A sequence made of one position per range.
    pub(super) fn seq_at(&self, positions: impl IntoIterator<Item = u64>) -> Seq {
        let ranges = self.map.ranges().into_iter().zip(&self.known.shards);
        let entry = |((range, shard), position): ((Range, &u64), u64)| SeqEntry {
            end: range.end,
            shard: *shard,
            epoch: EPOCH,
            position,
        };
        Seq(ranges.zip(positions).map(entry).collect())
    }

    /// See [`DatabaseInfo`].
    pub async fn info(&self) -> Result<DatabaseInfo, ReadError> {
        let copies = self.all_copies().await?;
        let infos = try_join_all(copies.iter().map(|copy| copy.info())).await?;
        let sum = |pick: fn(&ShardInfo) -> u64| infos.iter().map(pick).sum();
        let majority = majority(self.map.n);
        Ok(DatabaseInfo {
            doc_count: sum(|i| i.doc_count),
            doc_del_count: sum(|i| i.doc_del_count),
            update_seq: self.seq_at(infos.iter().map(|i| i.update_seq)).to_string(),
            purge_seq: self.seq_at(infos.iter().map(|i| i.purge_seq)).to_string(),
            sizes: Sizes {
                active: sum(|i| i.sizes.active),
                external: sum(|i| i.sizes.external),
                file: sum(|i| i.sizes.file),
            },
            compact_running: self.compactions.load(Ordering::Relaxed) > 0,
            partitioned: self.map.partitioned,
            cluster: ClusterInfo { q: self.map.q, n: self.map.n, w: majority, r: majority },
        })
    }

    /// See [`PartitionInfo`]; zeros for a partition without documents.
    pub async fn partition_info(&self, partition: &str) -> Result<PartitionInfo, ReadError> {
        let copy = self.copy_of(self.map.index_of_partition(partition)).await?;
        let span = Span::of(&DocSource::Partition(partition.to_owned()));
        let summary = copy.summary(span.low, span.high).await?;
        let Summary { live: doc_count, deleted: doc_del_count, active, external, .. } = summary;
        Ok(PartitionInfo { doc_count, doc_del_count, active, external })
    }

    /// The index of the range of a document.
    pub fn range_of(&self, id: &DocId) -> usize {
        self.map.index_of(id)
    }

    /// Tells apart databases that have the same name one after the other.
    pub fn instance(&self) -> &str {
        &self.known.instance
    }

    /// The security object as JSON text; `{}` when never set.
    pub fn security(&self) -> Bytes {
        self.known.settings().security.unwrap_or_else(|| Bytes::from_static(b"{}"))
    }

    /// Sets the security object after checking its shape, see [`security::read`].
    pub async fn set_security(&self, object: &Object) -> Result<(), SettingError> {
        let illegal = |security::IllegalSecurity { reason }| SettingError::IllegalSecurity { reason };
        security::read(object).map_err(illegal)?;
        let text = String::from_utf8_lossy(&object.to_vec()).into_owned();
        self.change_settings(move |settings| settings.security = Some(text)).await
    }

    /// How many generations of a history are kept.
    pub fn revs_limit(&self) -> u64 {
        self.known.settings().revs_limit
    }

    /// Sets [`Database::revs_limit`]; 0 is refused.
    pub async fn set_revs_limit(&self, limit: u64) -> Result<(), SettingError> {
        check_limit(limit)?;
        self.change_settings(move |settings| settings.revs_limit = limit).await
    }

    /// How many purge records are kept.
    pub fn purged_infos_limit(&self) -> u64 {
        self.known.settings().purged_infos_limit
    }

    /// Sets [`Database::purged_infos_limit`]; 0 is refused.
    pub async fn set_purged_infos_limit(&self, limit: u64) -> Result<(), SettingError> {
        check_limit(limit)?;
        self.change_settings(move |settings| settings.purged_infos_limit = limit).await
    }

    /// Changes the record durably; what handles show follows in the order of the commits.
    async fn change_settings(&self, change: impl FnOnce(&mut Settings) + Send + 'static) -> Result<(), SettingError> {
        let (key, known) = (record::key(&self.name), Arc::clone(&self.known));
        let job = move |view: &mut WriteView<'_>| {
            let Some(bytes) = view.get(&key)? else { return Ok(Err(SettingError::DatabaseGone)) };
            let mut record = Record::decode(&bytes)?;
            if record.instance != known.instance {
                return Ok(Err(SettingError::DatabaseGone));
            }
            change(&mut record.settings);
            view.put(key, record.encode());
            if !mutated(Mutation::StaleSecurity) {
                view.after_commit(move || known.set_settings(record.settings));
            }
            Ok(Ok(()))
        };
        self.context.storage.committer().submit(job).await.map_err(ShardError::from)?
    }

    /// The ranges with the names of the nodes that hold them, for `_shards`.
    pub fn shards(&self) -> Vec<(String, Vec<String>)> {
        self.map.ranges().iter().map(|range| (range.to_string(), vec![self.context.node.clone()])).collect()
    }

    /// The range of one document with the names of its nodes, for `_shards/{docid}`.
    pub fn shard_of(&self, id: &DocId) -> (String, Vec<String>) {
        let hash = self.map.hash(id);
        let range = self.map.ranges()[self.map.index_of_hash(hash)];
        (range.to_string(), vec![self.context.node.clone()])
    }
}

fn check_limit(limit: u64) -> Result<(), SettingError> {
    if limit == 0 { Err(SettingError::IllegalLimit) } else { Ok(()) }
}
