//! [`Database`], the handle of one database: its ranges and the state of the database as a whole.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use futures_util::future::try_join_all;
use tokio::sync::{Mutex as AsyncMutex, OnceCell, watch};

use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::design::Designs;
use crate::coordinator::replica::floor::Floor;
use crate::coordinator::replica::halves::Halves;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::read_from::ReadFrom;
use crate::coordinator::replica::remote::Target;
use crate::coordinator::topology::error::ReadError;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::topology::record::{Known, MapRecord};
use crate::coordinator::topology::seq::{Seq, SeqEntry};
use crate::coordinator::topology::shard_map::{Range, ShardMap};
use crate::coordinator::topology::span::{DocSource, Span};
use crate::document::draft::DraftError;
use crate::document::id::{DocId, partition_of};
use crate::document::security::{self, Security};
use crate::script::Scripts;
use crate::shard::{ShardError, ShardInfo, Summary};

/// A database that is open. Cheap to share; stays usable until the database is deleted.
pub struct Database {
    shared: Arc<Shared>,
    /// What reads through this handle show at least; `None`: what is there.
    pub(in crate::coordinator) floor: Option<Arc<Floor>>,
    /// The handle that the catalogue has, of one with a floor: as long as this is held that one is in use.
    _base: Option<Arc<Database>>,
}

/// What all handles of a database have in common.
pub struct Shared {
    /// Its name.
    pub name: String,
    pub(in crate::coordinator) known: Arc<Known>,
    pub(in crate::coordinator) context: Arc<Context>,
    // A blocking lock: held for a copy only, never across an await.
    pub(in crate::coordinator) layout: RwLock<Arc<Layout>>,
    /// Tells of a new layout: its version, and how many ranges were ever made.
    pub(in crate::coordinator) moved: watch::Sender<(u64, usize)>,
    /// Child shards of ranges that are being split. A blocking lock, as above.
    halves: Mutex<BTreeMap<usize, Arc<OnceCell<Halves>>>>,
    /// Held while the replicas here go over to another map.
    pub(in crate::coordinator) following: AsyncMutex<()>,
    /// How calls to replicas on other nodes name it.
    pub(in crate::coordinator) target: Arc<Target>,
    /// Whether the database was deleted.
    pub(in crate::coordinator) gone: watch::Sender<bool>,
    /// Compactions under way.
    pub(in crate::coordinator) compactions: AtomicU32,
    pub(in crate::coordinator) designs: Designs,
    /// From which replicas it is read.
    pub(in crate::coordinator) read_from: ReadFrom,
    /// What was read last of a security object. A blocking lock, as above.
    named: Mutex<Option<(Bytes, Arc<Security>)>>,
}

impl Deref for Database {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
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
    /// Ranges, replicas, and the default numbers of replies to writes and reads.
    pub cluster: ClusterInfo,
}

/// The `cluster` object of `GET /{db}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterInfo {
    /// Ranges.
    pub q: u32,
    /// Replicas of each.
    pub n: u32,
    /// A majority of `n`, for clients that show it: a write counts by the replicas that its range has at that time.
    pub w: u32,
    /// The same, for reads.
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
    pub(in crate::coordinator) fn new(name: &str, known: Arc<Known>, context: Arc<Context>) -> Database {
        let layout = Layout::of(&known);
        let moved = watch::Sender::new((layout.placed.version, layout.map.numbers()));
        let (layout, owned_name) = (RwLock::new(Arc::new(layout)), name.to_owned());
        let target = Arc::new(Target { context: Arc::clone(&context), name: owned_name, known: Arc::clone(&known) });
        let compactions = AtomicU32::new(0);
        let (gone, designs) = (watch::Sender::new(false), Designs::default());
        let (halves, following, named) = (Mutex::default(), AsyncMutex::default(), Mutex::default());
        let (name, read_from) = (name.to_owned(), ReadFrom::new(&context));
        let shared = Shared {
            name,
            known,
            context,
            layout,
            moved,
            halves,
            following,
            target,
            gone,
            compactions,
            designs,
            read_from,
            named,
        };
        Database { shared: Arc::new(shared), floor: None, _base: None }
    }

    /// The handle through which reads show at least what a floor stands for.
    pub(in crate::coordinator) fn with_floor(self: &Arc<Self>, floor: Arc<Floor>) -> Database {
        Database { shared: Arc::clone(&self.shared), floor: Some(floor), _base: Some(Arc::clone(self)) }
    }

    /// Ends all that reads or writes it; its shards are about to be dropped.
    pub(in crate::coordinator) fn mark_gone(&self) {
        self.gone.send_replace(true);
        self.layout().opened().for_each(|replica| replica.shard.close());
    }

    pub(in crate::coordinator) fn halves(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<OnceCell<Halves>>>> {
        self.halves.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the database was deleted.
    pub fn is_gone(&self) -> bool {
        *self.gone.borrow()
    }

    pub(in crate::coordinator) fn watch_gone(&self) -> watch::Receiver<bool> {
        self.gone.subscribe()
    }

    /// Whether no edit is queued and nobody reads; asked by the only holder of the handle.
    pub(in crate::coordinator) fn is_idle(&self) -> bool {
        self.layout().opened().all(|replica| replica.shard.is_idle())
    }

    /// Runs functions.
    pub fn scripts(&self) -> &Scripts {
        &self.context.scripts
    }

    /// The sequence of this moment.
    pub async fn update_seq(&self) -> Result<Seq, ReadError> {
        let map = self.map();
        let replica_position =
            |range: &usize| self.replicas().on_one(*range, |replica| async move { replica.replica_position().await });
        Ok(seq_at(&map, try_join_all(map.live().iter().map(replica_position)).await?))
    }

    /// See [`DatabaseInfo`]. Sums over one replica of each range.
    pub async fn info(&self) -> Result<DatabaseInfo, ReadError> {
        self.replicas().by_layout(|layout| async move { self.try_info(&layout.map).await }).await
    }

    async fn try_info(&self, map: &ShardMap) -> Result<DatabaseInfo, ReadError> {
        let (infos, replica_positions): (Vec<ShardInfo>, Vec<ReplicaPosition>) =
            self.replicas().infos(map.live()).await?.into_iter().unzip();
        let sum = |pick: fn(&ShardInfo) -> u64| infos.iter().map(pick).sum();
        let majority = majority(map.n);
        let purges =
            infos.iter().zip(&replica_positions).map(|(i, at)| ReplicaPosition { position: i.purge_seq, ..*at });
        Ok(DatabaseInfo {
            doc_count: sum(|i| i.doc_count),
            doc_del_count: sum(|i| i.doc_del_count),
            update_seq: seq_at(map, replica_positions.iter().copied()).to_string(),
            purge_seq: seq_at(map, purges).to_string(),
            sizes: Sizes {
                active: sum(|i| i.sizes.active),
                external: sum(|i| i.sizes.external),
                file: sum(|i| i.sizes.file),
            },
            compact_running: self.compactions.load(Ordering::Relaxed) > 0,
            partitioned: map.partitioned,
            cluster: ClusterInfo { q: map.q() as u32, n: map.n, w: majority, r: majority },
        })
    }

    /// See [`PartitionInfo`]; zeros for a partition without documents.
    pub async fn partition_info(&self, partition: &str) -> Result<PartitionInfo, ReadError> {
        let span = &Span::of(&DocSource::Partition(partition.to_owned()));
        let summary = |replica: RangeReplica| async move { replica.summary(span.low.clone(), span.high.clone()).await };
        let summary = self.replicas().on_one(self.map().index_of_partition(partition), summary).await?;
        let Summary { live: doc_count, deleted: doc_del_count, active, external, .. } = summary;
        Ok(PartitionInfo { doc_count, doc_del_count, active, external })
    }

    /// Whether a document of this id has a place here: a partitioned database asks for a partition.
    ///
    /// # Errors
    /// `illegal_docid` or `illegal_partition`.
    pub fn check_place(&self, id: &DocId) -> Result<(), DraftError> {
        if self.map().partitioned {
            partition_of(id.as_str())?;
        }
        Ok(())
    }

    /// The index of the range of a document.
    pub fn range_of(&self, id: &DocId) -> usize {
        self.map().index_of(id)
    }

    /// Tells apart databases that have the same name one after the other.
    pub fn instance(&self) -> &str {
        &self.known.instance
    }

    /// The security object as JSON text; `{}` when never set.
    pub fn security(&self) -> Bytes {
        self.known.settings().security.unwrap_or_else(|| Bytes::from_static(b"{}"))
    }

    /// Whom [`Database::security`] names, read once after each change. What was stored was checked; were it broken,
    /// only server administrators would be named.
    pub fn named(&self) -> Arc<Security> {
        let text = self.security();
        let mut known = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, named)) = &*known
            && *of == text
        {
            return Arc::clone(named);
        }
        let named = Arc::new(security::parse(&text).unwrap_or_else(|_| Security::admins_only()));
        *known = Some((text, Arc::clone(&named)));
        named
    }

    /// How many generations of a history are kept.
    pub fn revs_limit(&self) -> u64 {
        self.known.settings().revs_limit
    }

    /// How many purge records are kept.
    pub fn purged_infos_limit(&self) -> u64 {
        self.known.settings().purged_infos_limit
    }

    /// `instance_start_time`: 0, or with `[settee] follow = couchdb-3.5` the time of its creation in seconds since the
    /// Unix epoch.
    pub fn start_time(&self) -> String {
        if self.context.config.follows_couchdb() { self.known.created_s.to_string() } else { "0".to_owned() }
    }

    /// The map as it is known here. In a cluster it names the nodes, also where this one was alone when the database
    /// was made.
    pub(in crate::coordinator) fn map_record(&self) -> MapRecord {
        let mut places = self.known.shared(&self.context.node).places();
        if self.context.others().is_empty() && self.known.is_unnamed() {
            places.by_range = None;
        }
        places
    }

    /// Goes over to a decided map, unless this node knows a later one.
    pub(in crate::coordinator) async fn follow(self: &Arc<Self>, places: MapRecord) -> Result<(), ShardError> {
        (self.context.follow_map)(Arc::clone(self), places).await
    }

    /// How often its map was changed, and when it was made, in seconds since the Unix epoch.
    pub fn map_version(&self) -> (u64, u64) {
        (self.layout().placed.version, self.known.created_s)
    }

    /// The ranges with the names of the nodes that hold them, for `_shards`.
    pub fn shards(&self) -> Vec<(String, Vec<String>)> {
        let map = self.map();
        map.live().iter().map(|index| (map.range(*index).to_string(), self.node_names(*index))).collect()
    }

    /// The range of one document with the names of its nodes, for `_shards/{docid}`.
    pub fn shard_of(&self, id: &DocId) -> (String, Vec<String>) {
        let map = self.map();
        let index = map.index_of(id);
        (map.range(index).to_string(), self.node_names(index))
    }

    fn node_names(&self, index: usize) -> Vec<String> {
        self.layout().placed.nodes(index, &self.context.node).iter().map(|node| node.to_string()).collect()
    }
}

/// The sequence of one position in each range, in ring order.
pub(in crate::coordinator) fn seq_at(
    map: &ShardMap,
    replica_positions: impl IntoIterator<Item = ReplicaPosition>,
) -> Seq {
    Seq(map
        .live()
        .iter()
        .zip(replica_positions)
        .map(|(index, replica_position)| entry(map.range(*index), replica_position))
        .collect())
}

/// The entry of a range in a sequence.
pub(in crate::coordinator) fn entry(range: Range, replica_position: ReplicaPosition) -> SeqEntry {
    let ReplicaPosition { shard, position, .. } = replica_position;
    SeqEntry { end: range.end, shard, epoch: replica_position.epoch_of(position), position }
}
