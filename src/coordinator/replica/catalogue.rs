//! The databases of the node: durable records, the cache of names, and the handles of open databases.
//!
//! The committer orders all changes: a job decides against the records it sees, and the hook that runs when the job is
//! durable updates the cache. So the cache never shows what a crash could take back, and agrees with the store on the
//! order of two changes of one name. The shards of a removed database are dropped in the background; after a crash the
//! node resumes that.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, watch};

use crate::config::Config;
pub(in crate::coordinator) use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::node_calls::Created;
use crate::coordinator::topology::error::DatabaseError;
use crate::coordinator::topology::events::{DatabaseEvent, EventKind};
use crate::coordinator::topology::quorum::Written;
use crate::coordinator::topology::record::{self, Known, Record, Settings};
use crate::coordinator::topology::{names, placement, rows, superseded};
use crate::document::security;
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::{self, ShardError, ShardId};
use crate::storage::{Damage, ShardEngine, Storage, StorageError, View, WriteView};
use crate::world::Env;
use crate::world::buggify::{Mutation, fewer, mutated};

/// How a database is to be made. The default takes everything from the configuration.
#[derive(Clone, Debug, Default)]
pub struct CreateOptions {
    /// Number of ranges.
    pub q: Option<u32>,
    /// Number of replicas; more than there are nodes are cut to that, as the reference does.
    pub n: Option<u32>,
    /// Whether ids carry a partition.
    pub partitioned: bool,
    /// The placement rule `zone:n,...` as given.
    pub placement: Option<String>,
    /// The storage engine asked for; `None`: the node's default.
    pub engine: Option<String>,
    /// The first security object as JSON text; `None`: what `[couchdb] default_security` says.
    pub security: Option<Bytes>,
}

/// Which names to list, in byte order.
#[derive(Clone, Debug, Default)]
pub struct NamesQuery {
    /// The first name in the direction of reading.
    pub start: Option<String>,
    /// The last name in the direction of reading.
    pub end: Option<String>,
    /// Whether `end` itself is left out.
    pub end_exclusive: bool,
    /// From the last to the first.
    pub descending: bool,
    /// How many to leave out at first.
    pub skip: u64,
    /// How many at most.
    pub limit: Option<u64>,
}

impl Context {
    /// Drops the shards that deleted databases left. Should it fail, the next deletion or start takes it up.
    pub(in crate::coordinator) async fn drop_shards(&self) {
        if let Err(error) = self.try_drop_shards().await {
            tracing::warn!(%error, "the bytes of a deleted database stay for now");
        }
    }

    async fn try_drop_shards(&self) -> Result<(), ShardError> {
        let _alone = self.dropping.lock().await;
        loop {
            let marks = self.storage.read(read_drop_marks).await?;
            if marks.is_empty() {
                return Ok(());
            }
            for shard in &marks {
                shard::drop_shard(&self.storage, ShardId(*shard)).await?;
            }
            let job = move |view: &mut WriteView<'_>| {
                marks.iter().for_each(|shard| view.delete(record::drop_key(*shard)));
                Ok(Ok::<(), Never>(()))
            };
            let Ok(()) = self.storage.committer().submit(job).await?;
        }
    }
}

/// The error of a job that never decides against itself.
enum Never {}

struct Entry {
    known: Arc<Known>,
    /// The handle, kept as long as the limit of idle handles allows; never dropped while somebody holds it.
    open: Option<Arc<Database>>,
}

#[derive(Default)]
pub(in crate::coordinator) struct Cache {
    names: BTreeMap<String, Entry>,
    open: usize,
    /// Whether the node's disk held no database when it started.
    began_empty: bool,
}

/// All databases of a node. Shared behind an `Arc`; clones are the same coordinator, for tasks of its own.
#[derive(Clone)]
pub struct Coordinator {
    pub(in crate::coordinator) context: Arc<Context>,
    // A blocking lock: held for map operations only, never across an await.
    pub(in crate::coordinator) cache: Arc<RwLock<Cache>>,
    /// Whether the task runs that collects tombstones.
    pub(in crate::coordinator) collects: Arc<AtomicBool>,
    /// Whether the task runs that deletes documents which have ended.
    pub(in crate::coordinator) expires: Arc<AtomicBool>,
}

impl Coordinator {
    /// How soon tombstones may be collected in the database that keeps them for the shortest time; `None`: nowhere.
    /// `usual` is what the node's configuration says.
    pub(in crate::coordinator) fn shortest_tombstone_age(&self, usual: Option<Duration>) -> Option<Duration> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.names.values().filter_map(|entry| entry.known.tombstone_age(usual)).min()
    }

    /// The databases whose documents can end.
    pub(in crate::coordinator) fn expiring(&self) -> Vec<String> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let expires = cache.names.iter().filter(|(_, entry)| entry.known.expires_at().is_some());
        expires.map(|(name, _)| name.clone()).collect()
    }

    /// Fills the cache from the store in bounded steps.
    pub(in crate::coordinator) async fn load(&self) -> Result<(), ShardError> {
        let mut after = None;
        loop {
            let (records, last) = self.context.storage.read(move |view| read_records(view, after)).await?;
            let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
            for (name, record) in records {
                cache.names.insert(name, Entry { known: Arc::new(record.into()), open: None });
            }
            if last.is_none() {
                cache.began_empty = cache.names.is_empty();
                return Ok(());
            }
            after = last;
        }
    }

    /// Makes a database. Checks in this order: `q`, `n`, `placement`, the name, whether it is there.
    /// Once these passed it runs to its end, also when the caller goes away.
    pub async fn create_database(&self, name: &str, options: CreateOptions) -> Result<Written, DatabaseError> {
        // All replicas would be here. Those that every node needs get theirs later.
        if self.context.peers.is_seeding() && !names::SYSTEM.contains(&name) {
            return Err(DatabaseError::Seeding);
        }
        let record = self.draft_record(&options)?;
        names::check(name)?;
        if self.has_database(name) {
            return Err(DatabaseError::Exists);
        }
        let (coordinator, name) = (self.clone(), name.to_owned());
        self.detached(async move { coordinator.create(&name, record).await }).await
    }

    /// Runs a change of the catalogue in a task of its own: what follows its commit happens even if no caller waits for
    /// it.
    async fn detached<T: Send + 'static>(&self, change: impl Future<Output = T> + Send + 'static) -> T {
        match self.context.env.spawn_with(change).await {
            Some(done) => done,
            None => panic!("a change of the databases panicked or its node stopped"),
        }
    }

    async fn create(&self, name: &str, record: Record) -> Result<Written, DatabaseError> {
        let instance = record.instance.clone();
        match self.install(name, record, None).await? {
            Created::Done => {}
            Created::Exists | Created::Gone => return Err(DatabaseError::Exists),
        }
        let written = self.create_elsewhere(name, &instance).await?;
        self.note_event(EventKind::Created, name).await;
        Ok(written)
    }

    /// Puts a record into the store and the cache, with a new shard for each range that this node is to hold; `other`:
    /// the instance that it takes the place of, the same one with another map of that version, too (`forks`).
    pub(in crate::coordinator) async fn install(
        &self,
        name: &str,
        mut record: Record,
        other: Option<String>,
    ) -> Result<Created, DatabaseError> {
        let own = &*self.context.node;
        let held: Vec<bool> = (0..record.shards.len()).map(|range| record.holds(range, own)).collect();
        // Numbers taken for a creation that then fails are never used; there are enough.
        // Invariant: the name was checked when the record was drafted; records of older versions have none.
        let engine = record.engine.as_deref().and_then(ShardEngine::by_name).unwrap_or_default();
        let count = held.iter().filter(|held| **held).count() as u64;
        let mut shards = match count {
            0 => Vec::new(),
            _ => shard::allocate_in(&self.context.storage, engine, count).await?,
        }
        .into_iter();
        record.shards =
            held.iter().map(|held| if *held { shards.next().map_or(0, |shard| shard.0) } else { 0 }).collect();
        let (key, this, own_name) = (record::key(name), self.clone(), name.to_owned());
        let job = move |view: &mut WriteView<'_>| {
            let old = view.get(&key)?.map(|bytes| Record::decode(&bytes)).transpose()?;
            if old.as_ref().map(|old| &old.instance) != other.as_ref() {
                return Ok(Ok(Created::Exists));
            }
            if view.get(&record::tomb_key(&own_name, &record.instance))?.is_some_and(|mark| mark == record::DELETED) {
                return Ok(Ok(Created::Gone));
            }
            let replaces = old.is_some();
            if let Some(old) = old {
                let superseded = record::superseded_key(&own_name, &old.instance);
                if old.instance != record.instance {
                    view.put(record::tomb_key(&own_name, &old.instance), record::UNITED.to_vec());
                } else if old.version != record.version || view.get(&superseded)?.is_some() {
                    // The map went on, or what it left before is not written into the database yet.
                    return Ok(Ok(Created::Done));
                }
                view.put(superseded, old.encode());
            }
            view.put(key, record.encode());
            view.after_commit(move || {
                if replaces {
                    this.context.status.begins_anew(&own_name);
                    this.context.status.superseded.notify_one();
                }
                exchange(&this.cache, &own_name, Some(record));
                this.context.events.add(&own_name, EventKind::Created);
            });
            Ok(Ok::<Created, DatabaseError>(Created::Done))
        };
        self.context.storage.committer().submit(job).await.map_err(ShardError::from)?
    }

    /// The record of a new database, without shards yet.
    fn draft_record(&self, options: &CreateOptions) -> Result<Record, DatabaseError> {
        let config = &self.context.config;
        let number = |given: Option<u32>, key: &str, default: u32, parameter| {
            let value = given.unwrap_or_else(|| config.u64("cluster", key, default.into()).try_into().unwrap_or(0));
            let fine = (1..=limits::Q_MAX).contains(&value);
            if fine { Ok(value) } else { Err(DatabaseError::IllegalNumber { parameter }) }
        };
        let q = number(
            options.q,
            "q",
            if config.follows_couchdb() { limits::Q_OF_COUCHDB } else { limits::Q_DEFAULT },
            "q",
        )?;
        let n = number(options.n, "n", limits::N_DEFAULT, "n")?;
        let rule = options.placement.clone().or_else(|| config.get("cluster", "placement"));
        let zones = rule.as_deref().map(names::parse_placement).transpose()?;
        let (nodes, start) = (self.context.peers.members(), self.context.env.random_u64() as usize >> 1);
        let by_range = placement::place(&nodes, q, n, zones.as_deref(), start)?;
        let wanted = zones.map_or(n, |zones| zones.iter().map(|(_, replicas)| replicas).sum());
        let n = by_range.iter().map(Vec::len).max().unwrap_or(1) as u32;
        let given = options.security.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
        let default = || security::text_of_new(&config.text("couchdb", "default_security", "admin_only")).to_owned();
        let security = Some(given.unwrap_or_else(default));
        Ok(Record {
            instance: format!("{:032x}", u128::from_le_bytes(self.context.env.random_bytes())),
            q,
            n,
            wanted,
            partitioned: options.partitioned,
            placement: options.placement.clone(),
            engine: Some(self.engine(options.engine.as_deref())?.name().to_owned()),
            shards: vec![0; q as usize],
            by_range: (nodes.len() > 1).then_some(by_range),
            version: 0,
            moved: 0,
            splits: Vec::new(),
            moves: Vec::new(),
            children: Vec::new(),
            created_s: self.context.env.wall().as_secs(),
            settings: Settings { security, ..Settings::default() },
        })
    }

    /// The storage engine of that name, or of `[couchdb] default_engine`.
    fn engine(&self, given: Option<&str>) -> Result<ShardEngine, DatabaseError> {
        let default = || self.context.config.text("couchdb", "default_engine", ShardEngine::default().name());
        let name = given.map_or_else(default, str::to_owned);
        let engine = ShardEngine::by_name(&name).filter(|engine| self.context.storage.has_engine(*engine));
        engine.ok_or(DatabaseError::IllegalEngine)
    }

    /// Removes a database: durably at once, its bytes in the background; also when the caller goes away.
    pub async fn delete_database(&self, name: &str) -> Result<Written, DatabaseError> {
        let (coordinator, name) = (self.clone(), name.to_owned());
        self.detached(async move { coordinator.delete(&name).await }).await
    }

    async fn delete(&self, name: &str) -> Result<Written, DatabaseError> {
        let gone = self.remove(name, None).await?;
        if gone.is_empty() {
            return Err(DatabaseError::NotFound);
        }
        let mut written = Written::Quorum;
        for instance in &gone {
            written = written.min(self.delete_elsewhere(name, instance).await);
        }
        self.note_event(EventKind::Deleted, name).await;
        Ok(written)
    }

    /// Removes a database from the store and the cache, only `instance` if given. Its bytes go in the background. Other
    /// nodes of the cluster may have it still, so its mark stays. Answers which instances no node is to have any more:
    /// where none was named also those that became part of it here.
    pub(in crate::coordinator) async fn remove(
        &self,
        name: &str,
        instance: Option<&str>,
    ) -> Result<Vec<String>, DatabaseError> {
        let (key, this, own_name) = (record::key(name), self.clone(), name.to_owned());
        let (wanted, has_others) = (instance.map(str::to_owned), !self.context.others().is_empty());
        let leaves_mark = !mutated(Mutation::MarkForgotten);
        let job = move |view: &mut WriteView<'_>| {
            if let Some(wanted) = &wanted {
                if leaves_mark {
                    view.put(record::tomb_key(&own_name, wanted), record::DELETED.to_vec());
                }
                superseded::drop_superseded_of(view, &own_name, wanted)?;
            }
            let found = view.get(&key)?.map(|bytes| Record::decode(&bytes)).transpose()?;
            let fits = |found: &Record| wanted.as_ref().is_none_or(|wanted| *wanted == found.instance);
            let Some(record) = found.filter(fits) else { return Ok(Ok(Vec::new())) };
            if !mutated(Mutation::DeletionForgotten) {
                view.delete(key);
            }
            let mut gone = match wanted {
                None => superseded::delete_united(view, &own_name)?,
                Some(_) => Vec::new(),
            };
            if has_others && leaves_mark {
                view.put(record::tomb_key(&own_name, &record.instance), record::DELETED.to_vec());
            }
            record.all_shards().for_each(|shard| view.put(record::drop_key(shard), Vec::new()));
            superseded::drop_superseded_of(view, &own_name, "")?;
            view.delete(record::ballot_key(&own_name, &record.instance));
            view.after_commit(move || {
                exchange(&this.cache, &own_name, None);
                this.context.events.add(&own_name, EventKind::Deleted);
            });
            gone.push(record.instance);
            Ok(Ok::<_, DatabaseError>(gone))
        };
        let removed = self.context.storage.committer().submit(job).await.map_err(ShardError::from)??;
        self.drop_shards_later();
        Ok(removed)
    }

    /// The handle of a database. Touches memory only. An illegal name is `NotFound`.
    pub fn database(&self, name: &str) -> Result<Arc<Database>, DatabaseError> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let entry = cache.names.get(name).ok_or(DatabaseError::NotFound)?;
        if let Some(database) = &entry.open {
            return Ok(Arc::clone(database));
        }
        drop(cache);
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.open(name, &self.context).ok_or(DatabaseError::NotFound)
    }

    /// Whether a disk error has stopped all writes of this node until it is restarted.
    pub fn writes_stopped(&self) -> bool {
        self.context.storage.writes_stopped()
    }

    /// What of the node's data was found damaged so far.
    pub fn damage(&self) -> &Damage {
        self.context.storage.damage()
    }

    /// Bytes of full-text indexes that are kept in memory.
    pub fn open_search_bytes(&self) -> u64 {
        self.context.indexes.open_search_bytes()
    }

    /// Bytes that the page caches of open store files may take, and how many files are open.
    pub fn open_store_files(&self) -> (u64, u64) {
        self.context.storage.open_store_files()
    }

    /// How many databases have an open handle.
    pub fn open_databases(&self) -> usize {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).open
    }

    /// How many databases the node knows.
    pub fn count_databases(&self) -> usize {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).names.len()
    }

    /// Whether there is such a database.
    pub fn has_database(&self, name: &str) -> bool {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).names.contains_key(name)
    }

    /// Whether the node may lack databases because it has yet to meet its cluster: its disk is new. It may know some
    /// already, those of whose changes it was told.
    pub fn is_unlearned(&self) -> bool {
        let began_empty = self.cache.read().unwrap_or_else(PoisonError::into_inner).began_empty;
        let has_yet_to_meet = !self.context.status.in_sync.was_ever() && !self.context.others().is_empty();
        // One that has met none of its seeds knows of no others.
        self.context.peers.is_seeding() || began_empty && has_yet_to_meet
    }

    /// Names in byte order.
    pub fn database_names(&self, query: &NamesQuery) -> Vec<String> {
        let (low, high) = match query.descending {
            false => (bound(&query.start, false), bound(&query.end, query.end_exclusive)),
            true => (bound(&query.end, query.end_exclusive), bound(&query.start, false)),
        };
        if is_empty(&low, &high) {
            return Vec::new();
        }
        let skip = usize::try_from(query.skip).unwrap_or(usize::MAX);
        let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        let names = cache.names.range::<str, _>((low, high)).map(|(name, _)| name.clone());
        match query.descending {
            false => names.skip(skip).take(limit).collect(),
            true => names.rev().skip(skip).take(limit).collect(),
        }
    }

    /// The last event of each database that lies after `since`, oldest first, with the position reached. Events live
    /// in memory: positions start again with the node.
    pub fn events(&self, since: u64) -> (Vec<DatabaseEvent>, u64) {
        self.context.events.after(since)
    }

    /// Tells the position of the last event whenever there is a new one.
    pub fn watch_events(&self) -> watch::Receiver<u64> {
        self.context.events.watch()
    }

    pub(in crate::coordinator) fn config(&self) -> &Config {
        &self.context.config
    }

    pub(in crate::coordinator) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// What is known of a database, if it is there.
    pub(in crate::coordinator) fn known(&self, name: &str) -> Option<Arc<Known>> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.names.get(name).map(|entry| Arc::clone(&entry.known))
    }

    pub(in crate::coordinator) fn all_known(&self) -> Vec<(String, Arc<Known>)> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.names.iter().map(|(name, entry)| (name.clone(), Arc::clone(&entry.known))).collect()
    }

    /// Drops the shards that deleted databases left, in the background.
    pub(in crate::coordinator) fn drop_shards_later(&self) {
        let context = Arc::clone(&self.context);
        self.context.env.spawn(async move { context.drop_shards().await });
    }

    /// Starts a background worker ([`Env::spawn_worker`]) that ends with the coordinator.
    pub(in crate::coordinator) fn spawn_worker<F>(
        self: &Arc<Self>,
        name: &'static str,
        waits_for: &'static str,
        work: impl Fn(Weak<Coordinator>, Arc<Worker>) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let weak = Arc::downgrade(self);
        self.env().spawn_worker(name, waits_for, move |me| work(weak.clone(), me));
    }

    pub(in crate::coordinator) fn env(&self) -> &Env {
        &self.context.env
    }

    /// The handles that are open.
    pub(in crate::coordinator) fn handles(&self) -> Vec<Arc<Database>> {
        let cache = self.cache.read().unwrap_or_else(PoisonError::into_inner);
        cache.names.values().filter_map(|entry| entry.open.clone()).collect()
    }

    pub(in crate::coordinator) fn storage(&self) -> &Storage {
        &self.context.storage
    }

    /// See `Context::noted`.
    pub(in crate::coordinator) fn noted(&self) -> &Mutex<u64> {
        &self.context.noted
    }

    /// The node's name.
    pub fn node(&self) -> &str {
        &self.context.node
    }
}

impl Cache {
    /// The handle of a database; drops idle handles when there are too many.
    fn open(&mut self, name: &str, context: &Arc<Context>) -> Option<Arc<Database>> {
        if self.open >= fewer("catalogue: idle handles closed early", limits::OPEN_DATABASES) {
            self.close_idle();
        }
        let entry = self.names.get_mut(name)?;
        if let Some(database) = &entry.open {
            return Some(Arc::clone(database));
        }
        let database = Arc::new(Database::new(name, Arc::clone(&entry.known), Arc::clone(context)));
        entry.open = Some(Arc::clone(&database));
        self.open += 1;
        Some(database)
    }

    /// Two handles of one database must never exist together (they would not see each other's news), so only handles
    /// that nobody else holds go; an edit whose request went away holds the replica that it came through.
    fn close_idle(&mut self) {
        for entry in self.names.values_mut() {
            if entry.open.as_ref().is_some_and(|database| Arc::strong_count(database) == 1 && database.is_idle()) {
                entry.open = None;
            }
        }
        self.open = self.names.values().filter(|entry| entry.open.is_some()).count();
    }
}

/// Puts what a name stands for now in the place of what it stood for, `None` when that was deleted, and ends what is
/// reading that. In one step: there is no moment without a database of the name.
fn exchange(cache: &RwLock<Cache>, name: &str, record: Option<Record>) {
    let mut cache = cache.write().unwrap_or_else(PoisonError::into_inner);
    let entry = |record: Record| Entry { known: Arc::new(record.into()), open: None };
    let before = match record {
        Some(record) => cache.names.insert(name.to_owned(), entry(record)),
        None => cache.names.remove(name),
    };
    if let Some(database) = before.and_then(|entry| entry.open) {
        cache.open -= 1;
        database.mark_gone();
    }
}

fn bound(name: &Option<String>, exclusive: bool) -> Bound<&str> {
    match (name.as_deref(), exclusive) {
        (None, _) => Bound::Unbounded,
        (Some(name), false) => Bound::Included(name),
        (Some(name), true) => Bound::Excluded(name),
    }
}

/// Whether nothing lies between the bounds; `BTreeMap::range` panics on most of these.
fn is_empty(low: &Bound<&str>, high: &Bound<&str>) -> bool {
    match (low, high) {
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => a >= b,
        _ => false,
    }
}

/// A step of records, by their names, behind a key; and the last key where there may be others behind it.
type Records = (Vec<(String, Record)>, Option<Vec<u8>>);

fn read_records(view: &dyn View, after: Option<Vec<u8>>) -> Result<Records, StorageError> {
    let prefix = record::prefix();
    let (rows, last) = rows::step(view, &prefix, after)?;
    let name = |key: &[u8]| String::from_utf8_lossy(&key[prefix.len()..]).into_owned();
    let records = rows.into_iter().map(|(key, value)| Ok((name(&key), Record::decode(&value)?)));
    Ok((records.collect::<Result<_, StorageError>>()?, last))
}

/// One step of the shards that deleted databases left.
fn read_drop_marks(view: &dyn View) -> Result<Vec<u64>, StorageError> {
    let (rows, _) = rows::step(view, &record::drop_prefix(), None)?;
    Ok(rows.iter().filter_map(|(key, _)| key.last_chunk().map(|number| u64::from_be_bytes(*number))).collect())
}
