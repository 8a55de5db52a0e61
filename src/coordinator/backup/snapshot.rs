//! Online snapshots of a database in a folder, each costing only what changed since the one before.
//!
//! ```text
//!   FOLDER/objects/HH/HASH    documents as frames of a dump, or an attachment's stored bytes; HASH: BLAKE3
//! ```
//!
//! A snapshot consists of layers. The first layer holds all documents, each later one the documents that changed since
//! the snapshot before, as they are now. So the second snapshot reads and writes what changed, and names the layers of
//! the first one in its list. At intervals a whole snapshot is taken again (`earlier.rs`).
//!
//! Documents are read in the order of their changes. Writes continue meanwhile: changed documents are read again, and
//! the last of them for all ranges in one view. So a snapshot is exactly the state at the moment of that view, which
//! lies between request and answer; local documents and the purge log are read just before, and are written as a whole
//! each time. Objects of a whole snapshot end behind ids whose CRC-32 ends in seven zero bits, so that an object is the
//! same in the next whole snapshot if none of its documents changed.
//!
//! The list of the objects (`list.rs`) is written last: a snapshot is complete or absent. Before that all names that
//! lead to objects are made durable, those of existing objects too, because the task that wrote them may have ended
//! just before it did so.

use std::io::Write;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use crate::coordinator::backup::earlier::{self, Earlier};
use crate::coordinator::backup::item::{self, DocumentItem};
use crate::coordinator::backup::list::{self, Layer, List, Manifest, NodeManifest};
use crate::coordinator::backup::objects::Objects;
use crate::coordinator::backup::{BackupError, Counts, damaged, dump, frame, read};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::{self, Database};
use crate::coordinator::replica::message::ReplicaPosition;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::topology::shard_map::ShardMap;
use crate::document::render::Attachment;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::{self, Cut, ShardError, ShardId, ShardReplica, Summary};
use crate::storage::{BlobReader, Direction, ReadAs, StorageError};
use crate::wire::hex;
use crate::world::task::Task;
use crate::world::{Env, Pool};

/// What a snapshot reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// What changed since the newest one of the database in the folder, as long as that counts.
    Added,
    /// Everything, and the objects that it finds in the folder, too: what is damaged or missing there is written again.
    Whole,
}

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The file that lists it, within the folder.
    pub file: String,
    /// What is in it.
    pub counts: Counts,
    /// Bytes of objects that were written.
    pub written_bytes: u64,
    /// Bytes of objects that were there already; without those of attachments whose documents did not change.
    pub kept_bytes: u64,
}

/// A snapshot of the databases of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeSnapshot {
    /// The file that lists all, within the folder.
    pub file: String,
    /// Each with its database's name.
    pub databases: Vec<(String, Snapshot)>,
    /// Databases with a range of which the node holds no replica, or held none any more when it was read.
    pub left_out: Vec<String>,
}

/// Takes a snapshot of `database` into `folder`, which is made when missing.
///
/// # Errors
/// [`BackupError::Shard`] when something of the database cannot be read, [`BackupError::Unfilled`] while what is
/// superseded for it on this node is not in its replicas yet, [`BackupError::Elsewhere`] where a range has no replica
/// on this node, or leaves it while the snapshot is taken.
pub async fn snapshot(
    env: &Env,
    database: &Arc<Database>,
    folder: &Path,
    extent: Extent,
) -> Result<Snapshot, BackupError> {
    if database.context.status.unfilled().contains_key(&database.name) {
        return Err(BackupError::Unfilled(database.name.clone()));
    }
    if !database.replicas().holds_every_range() {
        return Err(BackupError::Elsewhere(database.name.clone()));
    }
    snapshot_of_replicas(env, database, folder, extent).await.map_err(|error| match error {
        BackupError::Shard(error) if is_elsewhere(database, &error) => BackupError::Elsewhere(database.name.clone()),
        error => error,
    })
}

/// Whether a read failed because a range has no replica on this node, or none any more.
fn is_elsewhere(database: &Arc<Database>, error: &ShardError) -> bool {
    match error {
        ShardError::NoReplica { .. } => true,
        // That of a range that was split, too.
        ShardError::Moved => !database.replicas().holds_every_range(),
        _ => false,
    }
}

async fn snapshot_of_replicas(
    env: &Env,
    database: &Arc<Database>,
    folder: &Path,
    extent: Extent,
) -> Result<Snapshot, BackupError> {
    let mut adds = extent == Extent::Added;
    for _ in 0..limits::MAP_ATTEMPTS {
        let objects = match extent {
            Extent::Added => Objects::new(env, folder),
            Extent::Whole => Objects::checked(env, folder),
        };
        if let Some(done) = Taking::begin(objects, database, folder, adds).await?.take().await? {
            return Ok(done);
        }
        adds = false;
    }
    Err(ShardError::NotExecuted("records of purges go faster than a snapshot is taken".to_owned()).into())
}

/// Takes a snapshot of every database of a node into `folder`, one after the other, each as of its own moment. A
/// database that is deleted meanwhile has none.
///
/// # Errors
/// As [`snapshot`]; what was taken of databases before stays.
pub async fn snapshot_node(
    env: &Env,
    coordinator: &Coordinator,
    folder: &Path,
    extent: Extent,
) -> Result<NodeSnapshot, BackupError> {
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for name in coordinator.database_names(&Default::default()) {
        match snapshot_of((env, coordinator), &name, (folder, extent)).await {
            Ok(Some(done)) => taken.push((name, done)),
            Ok(None) => {}
            Err(BackupError::Elsewhere(name)) => left_out.push(name),
            Err(error) => return Err(error),
        }
    }
    let objects = Objects::new(env, folder);
    let taken_ms = objects.time_in(list::NODES).await?;
    let databases = taken.iter().map(|(_, done)| done.file.clone()).collect();
    let file = list::of_node(taken_ms);
    let list = list::sealed(&NodeManifest { format: NodeManifest::FORMAT, taken_ms, databases });
    objects.write_list(&file, list).await?;
    Ok(NodeSnapshot { file, databases: taken, left_out })
}

/// Takes a snapshot of the database of a name, which may give way to another one meanwhile; `None`: there is none.
async fn snapshot_of(
    (env, coordinator): (&Env, &Coordinator),
    name: &str,
    (folder, extent): (&Path, Extent),
) -> Result<Option<Snapshot>, BackupError> {
    let mut failed = BackupError::Unfilled(name.to_owned());
    for _ in 0..limits::MAP_ATTEMPTS {
        let Ok(database) = coordinator.database(name) else { return Ok(None) };
        match snapshot(env, &database, folder, extent).await {
            Err(error) if database.is_gone() => failed = error,
            done => return done.map(Some),
        }
    }
    Err(failed)
}

/// How far a range was read.
struct Place {
    shard: ShardId,
    /// The last sequence when the snapshot began: documents up to it are read once, unless they change.
    begun: u64,
    since: u64,
    /// The last purge that the layers before know of; that when the snapshot began, where there are none.
    purged: u64,
}

/// What became of the last step.
enum End {
    Done,
    /// There is more to be read first.
    More,
    /// Purges have happened that are not on record any more.
    PurgesForgotten,
}

struct Taking<'d> {
    database: &'d Arc<Database>,
    objects: Objects,
    manifest: Manifest,
    /// How the database was cut into ranges when it began, and how far each was read.
    map: Arc<ShardMap>,
    places: Vec<Place>,
    /// Documents that are read once, and those of which the last word counts.
    once: Layer,
    last: Layer,
    /// Frames of documents for the next object of one of them.
    frames: Vec<u8>,
    in_last: bool,
    /// In the list of tasks: changes that were read.
    task: Task,
}

impl<'d> Taking<'d> {
    /// Adds to an earlier snapshot if it can, and `adds`.
    async fn begin(
        objects: Objects,
        database: &'d Arc<Database>,
        folder: &Path,
        adds: bool,
    ) -> Result<Taking<'d>, BackupError> {
        let settings = String::from_utf8_lossy(&dump::settings(database).encode()).into_owned();
        let task = objects.env.begin_task(Subject::new(TaskKind::Snapshot, &database.name), None);
        let mut taking = Taking {
            database,
            objects,
            manifest: Manifest::of(settings),
            map: database.map(),
            places: Vec::new(),
            once: Layer::default(),
            last: Layer::default(),
            frames: Vec::new(),
            in_last: false,
            task,
        };
        let replicas = taking.replicas().await?;
        let Earlier { layers, reached } = match adds {
            true => earlier::find(&mut taking.objects, (database, folder), (&taking.map, &replicas)).await?,
            false => Earlier::default(),
        };
        taking.manifest.layers = layers;
        for (index, replica) in replicas.iter().enumerate() {
            let state = replica.shard.state().await?;
            let (since, purged) = reached.get(index).copied().unwrap_or((0, state.purge_seq));
            taking.places.push(Place { shard: replica.shard.id(), begun: state.position, since, purged });
        }
        let total = taking.places.iter().map(|place| place.begun.saturating_sub(place.since)).sum();
        taking.task.done_of(0, total);
        Ok(taking)
    }

    /// `None` when records of purges are gone that it would need.
    async fn take(mut self) -> Result<Option<Snapshot>, BackupError> {
        for (index, replica) in self.replicas().await?.iter().enumerate() {
            self.catch_up(&replica.shard, index).await?;
            let mut rest = Vec::new();
            self.manifest.locals += write_locals(&replica.shard, &mut rest).await?;
            self.manifest.purges += write_purges(&replica.shard, &mut rest).await?;
            if !rest.is_empty() {
                let object = self.objects.put(rest).await?;
                self.manifest.others.push(object.name);
            }
        }
        let mut limit = limits::STEP_ROWS;
        loop {
            match self.finish(limit).await? {
                End::Done => return self.write_list().await.map(Some),
                End::PurgesForgotten => return Ok(None),
                End::More => {}
            }
            for (index, replica) in self.replicas().await?.iter().enumerate() {
                self.catch_up(&replica.shard, index).await?;
            }
            limit *= 2;
        }
    }

    /// The replicas of its ranges, as long as none of them was split, or another one came in its place, meanwhile: what
    /// was noted of it are positions of that very replica.
    async fn replicas(&self) -> Result<Vec<OwnReplica>, BackupError> {
        let replicas = self.database.replicas().own_replicas().await?;
        let is_same = |(replica, place): (&OwnReplica, &Place)| replica.shard.id() == place.shard;
        let same = self.database.map().live() == self.map.live() && replicas.iter().zip(&self.places).all(is_same);
        if same { Ok(replicas) } else { Err(ShardError::Moved.into()) }
    }

    /// Reads what there is of a range, up to the end of its changes.
    async fn catch_up(&mut self, replica: &ShardReplica, index: usize) -> Result<(), BackupError> {
        loop {
            let page = read::page(replica, self.places[index].since).await?;
            if let Some(id) = page.skipped.first() {
                let what = format!("document {:?} is damaged: a snapshot needs all of them", id.as_str());
                return Err(ShardError::Storage(StorageError::Corrupt(what)).into());
            }
            for (seq, document) in &page.documents {
                // One that changed meanwhile comes again, whatever of it could not be read.
                let Some(contents) = self.contents(replica, document).await? else { continue };
                self.set_last(*seq > self.places[index].begun).await?;
                self.document(document, contents).await?;
            }
            self.task.add(page.last_seq.saturating_sub(self.places[index].since));
            self.places[index].since = page.last_seq;
            if page.end {
                return self.cut_object().await;
            }
        }
    }

    /// Reads the rest of all ranges in one view; not when that is too much, or changed before its contents were read.
    async fn finish(&mut self, limit: usize) -> Result<End, BackupError> {
        let replicas = self.replicas().await?;
        let shards: Vec<_> = replicas.iter().map(|replica| replica.shard.id()).collect();
        let from: Vec<(u64, u64)> = self.places.iter().map(|place| (place.since, place.purged)).collect();
        let cut = move |view: &dyn crate::storage::View| {
            let ranges = shards.iter().zip(&from).map(|(shard, from)| shard::cut(view, *shard, *from, limit));
            ranges.collect::<Result<Option<Vec<Cut>>, StorageError>>()
        };
        let storage = &self.database.context.storage;
        let Some(cuts) = storage.read_on(Pool::Background, cut).await? else { return Ok(End::More) };
        if cuts.iter().zip(&self.places).any(|(cut, place)| cut.state.purge_floor > place.purged) {
            return Ok(End::PurgesForgotten);
        }
        let mut last = Vec::new();
        for (cut, replica) in cuts.iter().zip(&replicas) {
            for (id, fetched) in &cut.changed {
                let document = item::document(id, &fetched.tree, fetched.found.clone());
                let document = document.ok_or_else(|| damaged(format_args!("{:?} has no body", id.as_str())))?;
                let Some(contents) = self.contents(&replica.shard, &document).await? else { return Ok(End::More) };
                last.push((document, contents));
            }
        }
        self.set_last(true).await?;
        for (document, contents) in last {
            self.document(&document, contents).await?;
        }
        self.cut_object().await?;
        self.note(&cuts, &replicas);
        Ok(End::Done)
    }

    /// Notes what was cut, and from where the next snapshot can go on.
    fn note(&mut self, cuts: &[Cut], replicas: &[OwnReplica]) {
        let replica_position = |(cut, replica): (&Cut, &OwnReplica)| ReplicaPosition {
            position: cut.state.position,
            ..replica.replica_position()
        };
        self.manifest.seq = database::seq_at(&self.map, cuts.iter().zip(replicas).map(replica_position)).to_string();
        self.manifest.purged = cuts.iter().map(|cut| cut.state.purge_seq).collect();
        let total = cuts.iter().fold(Summary::default(), |total, cut| total.plus(cut.state.total));
        (self.manifest.live, self.manifest.deleted) = (total.live, total.deleted);
        self.manifest.digest = total.digest_text();
        let gone = cuts.iter().flat_map(|cut| &cut.gone);
        self.last.gone = gone.map(|id| id.as_str().to_owned()).collect();
    }

    async fn set_last(&mut self, last: bool) -> Result<(), BackupError> {
        if self.in_last != last {
            self.cut_object().await?;
            self.in_last = last;
        }
        Ok(())
    }

    /// Adds a document to the object that is being filled. Small contents travel with it, as frames.
    async fn document(&mut self, document: &DocumentItem, contents: Vec<u8>) -> Result<(), BackupError> {
        self.frames.extend(contents);
        frame::write(&mut self.frames, item::DOCUMENT, &document.encode())?;
        let hash = crc32fast::hash(document.id.as_str().as_bytes());
        // Another snapshot may hold the same object of a first layer, but hardly one of a later layer.
        let is_first = self.manifest.layers.is_empty() && !self.in_last;
        let boundary = is_first && hash.is_multiple_of(limits::SNAPSHOT_OBJECT_DOCS);
        if boundary || self.frames.len() >= limits::SNAPSHOT_OBJECT_BYTES { self.cut_object().await } else { Ok(()) }
    }

    async fn cut_object(&mut self) -> Result<(), BackupError> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let object = self.objects.put(std::mem::take(&mut self.frames)).await?;
        let layer = if self.in_last { &mut self.last } else { &mut self.once };
        layer.objects.push(object);
        Ok(())
    }

    /// Makes objects of a document's large contents, and answers its small ones as frames; `None` when one is gone
    /// with the revision that had it. That is no damage: the database is written to meanwhile.
    async fn contents(
        &mut self,
        replica: &ShardReplica,
        document: &DocumentItem,
    ) -> Result<Option<Vec<u8>>, BackupError> {
        let mut small = Vec::new();
        for attachment in document.contents() {
            let reader = replica.blob_reader(attachment, ReadAs::Stored, None).unnoted();
            let read = match attachment.stored_length <= limits::BLOB_INLINE_BYTES as u64 {
                true => dump::write_content(reader, &document.id, attachment, &mut small).await,
                false => self.large_content(reader, attachment).await,
            };
            match read {
                Ok(()) => {}
                Err(BackupError::Shard(ShardError::Storage(StorageError::Corrupt(what)))) => {
                    if self.changed(replica, document).await? {
                        return Ok(None);
                    }
                    self.database.context.storage.damage().note(&what);
                    return Err(StorageError::Corrupt(what).into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Some(small))
    }

    /// Makes an object of a content, unless it is there.
    async fn large_content(&mut self, mut reader: BlobReader, attachment: &Attachment) -> Result<(), BackupError> {
        let name = hex::encode(&attachment.blob);
        if self.objects.has(&name, attachment.stored_length).await? {
            return Ok(());
        }
        let mut object = self.objects.begin().await?;
        loop {
            match reader.next().await {
                Ok(Some(bytes)) => object.write(&self.objects.env, bytes.to_vec()).await?,
                Ok(None) => return self.objects.name(object, &name).await,
                Err(error) => {
                    self.objects.abandon(object).await?;
                    return Err(error.into());
                }
            }
        }
    }

    /// Whether a document has other leaves by now.
    async fn changed(&self, replica: &ShardReplica, document: &DocumentItem) -> Result<bool, BackupError> {
        let now = replica.fetch(vec![(document.id.clone(), shard::Want::Tree)]).await?.pop().flatten();
        let now: Vec<_> = now.iter().flat_map(|found| found.tree.leaves()).map(|leaf| leaf.rev).collect();
        Ok(now != document.leaves.iter().map(|leaf| leaf.path.head()).collect::<Vec<_>>())
    }

    async fn write_list(mut self) -> Result<Snapshot, BackupError> {
        let taken_ms = self.objects.time_in(&list::databases(&self.database.name)).await?;
        self.manifest.taken_ms = taken_ms;
        // The first layer of a list is one whose documents were read once.
        if self.manifest.layers.is_empty() || !self.once.is_empty() {
            self.manifest.layers.push(self.once);
        }
        if !self.last.is_empty() {
            self.manifest.layers.push(self.last);
        }
        let file = list::of_database(&self.database.name, taken_ms);
        self.objects.write_list(&file, list::sealed(&self.manifest)).await?;
        let Manifest { live, deleted, locals, purges, .. } = self.manifest;
        let counts = Counts { documents: live + deleted, locals, purges, skipped: 0 };
        Ok(Snapshot { file, counts, written_bytes: self.objects.written, kept_bytes: self.objects.kept })
    }
}

/// Writes all local documents of a range; answers how many.
async fn write_locals(replica: &ShardReplica, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut start, mut count) = (Bound::Unbounded, 0);
    loop {
        let page = replica.local_list(start, Bound::Unbounded, Direction::Forward, limits::PAGE_DOCS).await?;
        for (id, local) in &page {
            frame::write(out, item::LOCAL, &item::encode_local(id, local.rev, &local.body))?;
        }
        count += page.len() as u64;
        match page.last() {
            Some((last, _)) if page.len() == limits::PAGE_DOCS => start = Bound::Excluded(last.clone()),
            _ => return Ok(count),
        }
    }
}

/// Writes the purge log of a range; answers how many entries.
async fn write_purges(replica: &ShardReplica, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut since, mut count) = (0, 0);
    loop {
        let page = replica.purge_infos(since, limits::PAGE_DOCS).await?;
        for info in &page {
            frame::write(out, item::PURGE, &item::encode_purge(&info.id, &info.revs))?;
        }
        count += page.len() as u64;
        match page.last() {
            Some(last) if page.len() == limits::PAGE_DOCS => since = last.purge_seq,
            _ => return Ok(count),
        }
    }
}
