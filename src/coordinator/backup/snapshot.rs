//! Online copies of a database in a folder, each costing only what changed since the one before.
//!
//! ```text
//!   FOLDER/objects/HH/HASH    documents as frames of a dump, or an attachment's stored bytes; HASH: BLAKE3
//! ```
//!
//! Documents are read in the order of their changes and cut into objects behind ids whose CRC-32 ends in seven zero
//! bits, so that an object stays the same as long as none of its documents changes. Writes go on meanwhile: what
//! changes is read again, and the rest of it at last for all ranges in one view. So a snapshot is exactly the state of
//! the moment of that view, which lies between request and answer; local documents and the purge log are read just
//! before. Documents that were read twice stand in the `tail`, where the later one counts.
//!
//! The list of the objects (`list.rs`) is written last: a snapshot is there or it is not. Before that all names that
//! lead to objects are made durable, those of objects that were there already, too: who wrote them may have ended
//! just before it did so.

use std::collections::BTreeSet;
use std::io::Write;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::coordinator::backup::item::{self, DocumentItem};
use crate::coordinator::backup::list::{self, FORMAT, Manifest, NodeManifest};
use crate::coordinator::backup::{BackupError, Counts, damaged, dump, frame, read};
use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::limits;
use crate::shard::{self, Cut, ShardCopy, ShardError};
use crate::storage::{Direction, ReadAs, StorageError, sync_names_above};
use crate::wire::hex;
use crate::world::{Disk, Env, File, OpenMode, Pool};

/// A snapshot that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The file that lists it, within the folder.
    pub file: String,
    /// What is in it.
    pub counts: Counts,
    /// Bytes of objects that were written.
    pub written_bytes: u64,
    /// Bytes of objects that were there already.
    pub kept_bytes: u64,
}

/// Takes a snapshot of `database` into `folder`, which is made when missing.
///
/// # Errors
/// [`BackupError::Shard`] when something of the database cannot be read, [`BackupError::Unfilled`] while what
/// stands aside for it on this node is not in its copies yet.
pub async fn snapshot(env: &Env, database: &Database, folder: &Path) -> Result<Snapshot, BackupError> {
    if database.context.unfilled().contains_key(&database.name) {
        return Err(BackupError::Unfilled(database.name.clone()));
    }
    let mut taking = Taking::begin(env, database, folder).await?;
    for (index, copy) in database.own_shards().await?.iter().enumerate() {
        taking.catch_up(copy, index).await?;
        let mut rest = Vec::new();
        taking.manifest.locals += write_locals(copy, &mut rest).await?;
        taking.manifest.purges += write_purges(copy, &mut rest).await?;
        if !rest.is_empty() {
            let name = taking.objects.put(rest).await?;
            taking.manifest.others.push(name);
        }
    }
    let mut limit = limits::STEP_ROWS;
    while !taking.finish(limit).await? {
        for (index, copy) in taking.copies().await?.iter().enumerate() {
            taking.catch_up(copy, index).await?;
        }
        limit *= 2;
    }
    taking.write_list().await
}

/// Takes a snapshot of every database of a node into `folder`, one after the other, each as of its own moment. Answers
/// the file that lists all, and each with its database's name. A database that is deleted meanwhile is left out.
///
/// # Errors
/// As [`snapshot`]; what was taken of databases before stays.
pub async fn snapshot_node(
    env: &Env,
    coordinator: &Coordinator,
    folder: &Path,
) -> Result<(String, Vec<(String, Snapshot)>), BackupError> {
    let mut taken = Vec::new();
    for name in coordinator.database_names(&Default::default()) {
        if let Some(done) = snapshot_of(env, coordinator, &name, folder).await? {
            taken.push((name, done));
        }
    }
    let taken_ms = milliseconds(env);
    let databases = taken.iter().map(|(_, done)| done.file.clone()).collect();
    let file = list::of_node(taken_ms);
    let list = list::sealed(&NodeManifest { format: FORMAT, taken_ms, databases });
    Objects::new(env, folder).write_list(&file, list).await?;
    Ok((file, taken))
}

/// Takes a snapshot of the database of a name, which may give way to another one meanwhile; `None`: there is none.
async fn snapshot_of(
    env: &Env,
    coordinator: &Coordinator,
    name: &str,
    folder: &Path,
) -> Result<Option<Snapshot>, BackupError> {
    let mut failed = BackupError::Unfilled(name.to_owned());
    for _ in 0..limits::MAP_ATTEMPTS {
        let Ok(database) = coordinator.database(name) else { return Ok(None) };
        match snapshot(env, &database, folder).await {
            Err(error) if database.is_gone() => failed = error,
            done => return done.map(Some),
        }
    }
    Err(failed)
}

/// Since 1970.
fn milliseconds(env: &Env) -> u64 {
    u64::try_from(env.wall().as_millis()).unwrap_or(u64::MAX)
}

/// How far a range was read.
struct Place {
    /// The last sequence when the snapshot began: documents up to it are read once, unless they change.
    begun: u64,
    since: u64,
    /// The last purge when the snapshot began.
    purged: u64,
}

struct Taking<'d> {
    database: &'d Database,
    objects: Objects,
    manifest: Manifest,
    /// The ranges when it began, and how far each was read.
    ranges: Vec<usize>,
    places: Vec<Place>,
    /// Frames of documents for the next object, of `base` or of `tail`.
    frames: Vec<u8>,
    in_tail: bool,
}

impl<'d> Taking<'d> {
    async fn begin(env: &Env, database: &'d Database, folder: &Path) -> Result<Taking<'d>, BackupError> {
        let (ranges, mut places) = (database.ranges(), Vec::new());
        for copy in database.own_shards().await? {
            let info = copy.info().await?;
            places.push(Place { begun: info.update_seq, since: 0, purged: info.purge_seq });
        }
        let settings = String::from_utf8_lossy(&dump::settings(database).encode()).into_owned();
        let manifest = Manifest { format: FORMAT, settings, ..Manifest::default() };
        let objects = Objects::new(env, folder);
        Ok(Taking { database, objects, manifest, ranges, places, frames: Vec::new(), in_tail: false })
    }

    /// The copies of its ranges, as long as none of them was split meanwhile.
    async fn copies(&self) -> Result<Vec<ShardCopy>, BackupError> {
        let copies = self.database.own_shards().await?;
        if self.database.ranges() == self.ranges { Ok(copies) } else { Err(ShardError::Moved.into()) }
    }

    /// Reads what there is of a range, up to the end of its changes.
    async fn catch_up(&mut self, copy: &ShardCopy, index: usize) -> Result<(), BackupError> {
        loop {
            let page = read::page(copy, self.places[index].since).await?;
            if let Some(id) = page.skipped.first() {
                let what = format!("document {:?} is damaged: a snapshot needs all of them", id.as_str());
                return Err(ShardError::Storage(StorageError::Corrupt(what)).into());
            }
            for (seq, document) in &page.documents {
                // One that changed meanwhile comes again, whatever of it could not be read.
                if !self.contents(copy, document).await? {
                    continue;
                }
                self.set_tail(*seq > self.places[index].begun).await?;
                self.document(document).await?;
            }
            self.places[index].since = page.last_seq;
            if page.end {
                return self.cut_object().await;
            }
        }
    }

    /// Reads the rest of all ranges in one view; false when that is too much, or changed before its contents were read.
    async fn finish(&mut self, limit: usize) -> Result<bool, BackupError> {
        let shards: Vec<_> = self.copies().await?.iter().map(ShardCopy::id).collect();
        let from: Vec<(u64, u64)> = self.places.iter().map(|place| (place.since, place.purged)).collect();
        let cut = move |view: &dyn crate::storage::View| {
            let ranges = shards.iter().zip(&from).map(|(shard, from)| shard::cut(view, *shard, *from, limit));
            ranges.collect::<Result<Option<Vec<Cut>>, StorageError>>()
        };
        let storage = &self.database.context.storage;
        let Some(cuts) = storage.read_on(Pool::Background, cut).await? else { return Ok(false) };
        let mut last = Vec::new();
        for (cut, copy) in cuts.iter().zip(&self.copies().await?) {
            for (id, fetched) in &cut.changed {
                let document = item::document(id, &fetched.tree, fetched.found.clone());
                let document = document.ok_or_else(|| damaged(format_args!("{:?} has no body", id.as_str())))?;
                if !self.contents(copy, &document).await? {
                    return Ok(false);
                }
                last.push(document);
            }
        }
        self.set_tail(true).await?;
        for document in &last {
            self.document(document).await?;
        }
        self.cut_object().await?;
        for cut in cuts {
            self.manifest.live += cut.info.doc_count;
            self.manifest.deleted += cut.info.doc_del_count;
            self.manifest.gone.extend(cut.gone.iter().map(|id| id.as_str().to_owned()));
        }
        Ok(true)
    }

    async fn set_tail(&mut self, tail: bool) -> Result<(), BackupError> {
        if self.in_tail != tail {
            self.cut_object().await?;
            self.in_tail = tail;
        }
        Ok(())
    }

    /// Adds a document to the object that is being filled. Small contents travel with it.
    async fn document(&mut self, document: &DocumentItem) -> Result<(), BackupError> {
        let copy = self.database.own_shard(self.database.map().index_of(&document.id)).await?;
        dump::write_contents(&copy, document, &mut self.frames, limits::BLOB_INLINE_BYTES as u64).await?;
        frame::write(&mut self.frames, item::DOCUMENT, &document.encode())?;
        let hash = crc32fast::hash(document.id.as_str().as_bytes());
        let boundary = hash.is_multiple_of(limits::SNAPSHOT_OBJECT_DOCS);
        if boundary || self.frames.len() >= limits::SNAPSHOT_OBJECT_BYTES { self.cut_object().await } else { Ok(()) }
    }

    async fn cut_object(&mut self) -> Result<(), BackupError> {
        if self.frames.is_empty() {
            return Ok(());
        }
        let name = self.objects.put(std::mem::take(&mut self.frames)).await?;
        if self.in_tail {
            self.manifest.tail.push(name)
        } else {
            self.manifest.base.push(name)
        }
        Ok(())
    }

    /// Makes objects of a document's large contents; false when one is gone.
    async fn contents(&mut self, copy: &ShardCopy, document: &DocumentItem) -> Result<bool, BackupError> {
        let small = limits::BLOB_INLINE_BYTES as u64;
        for attachment in document.contents().into_iter().filter(|a| a.stored_length > small) {
            let name = hex::encode(&attachment.blob);
            if self.objects.has(&name, attachment.stored_length).await? {
                continue;
            }
            let mut reader = copy.blob_reader(attachment, ReadAs::Stored, None);
            let mut object = self.objects.begin().await?;
            loop {
                match reader.next().await {
                    Ok(Some(bytes)) => object.write(&self.objects.env, bytes.to_vec()).await?,
                    Ok(None) => break,
                    Err(StorageError::Corrupt(_)) if self.changed(copy, document).await? => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            self.objects.name(object, &name).await?;
        }
        Ok(true)
    }

    /// Whether a document has other leaves by now.
    async fn changed(&self, copy: &ShardCopy, document: &DocumentItem) -> Result<bool, BackupError> {
        let now = copy.fetch(vec![(document.id.clone(), shard::Want::Tree)]).await?.pop().flatten();
        let now: Vec<_> = now.iter().flat_map(|found| found.tree.leaves()).map(|leaf| leaf.rev).collect();
        Ok(now != document.leaves.iter().map(|leaf| leaf.path.head()).collect::<Vec<_>>())
    }

    async fn write_list(mut self) -> Result<Snapshot, BackupError> {
        let taken_ms = milliseconds(&self.objects.env);
        self.manifest.taken_ms = taken_ms;
        let file = list::of_database(&self.database.name, taken_ms);
        self.objects.write_list(&file, list::sealed(&self.manifest)).await?;
        let Manifest { live, deleted, locals, purges, .. } = self.manifest;
        let counts = Counts { documents: live + deleted, locals, purges, skipped: 0 };
        Ok(Snapshot { file, counts, written_bytes: self.objects.written, kept_bytes: self.objects.kept })
    }
}

/// Writes all local documents of a range; answers how many.
async fn write_locals(copy: &ShardCopy, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut start, mut count) = (Bound::Unbounded, 0);
    loop {
        let page = copy.local_list(start, Bound::Unbounded, Direction::Forward, limits::PAGE_DOCS).await?;
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
async fn write_purges(copy: &ShardCopy, out: &mut (dyn Write + Send)) -> Result<u64, BackupError> {
    let (mut since, mut count) = (0, 0);
    loop {
        let page = copy.purge_infos(since, limits::PAGE_DOCS).await?;
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

/// Where the object of that hash lies.
pub(super) fn object_path(folder: &Path, name: &str) -> PathBuf {
    folder.join("objects").join(name.get(..2).unwrap_or("xx")).join(name)
}

/// The files of a snapshot folder.
struct Objects {
    env: Env,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    written: u64,
    kept: u64,
    /// Where objects lie that were there already.
    kept_in: BTreeSet<PathBuf>,
}

/// An object whose hash is not known yet.
struct Unnamed {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
}

impl Unnamed {
    async fn write(&mut self, env: &Env, bytes: Vec<u8>) -> Result<(), BackupError> {
        let (file, at) = (Arc::clone(&self.file), self.bytes);
        self.bytes += bytes.len() as u64;
        Ok(env.blocking(Pool::Background, move || file.write_at(at, &bytes)).await?)
    }
}

impl Objects {
    fn new(env: &Env, folder: &Path) -> Objects {
        let (env, disk, folder) = (env.clone(), env.disk(), folder.to_path_buf());
        Objects { env, disk, folder, written: 0, kept: 0, kept_in: BTreeSet::new() }
    }

    /// Stores an object; answers its hash.
    async fn put(&mut self, bytes: Vec<u8>) -> Result<String, BackupError> {
        let name = blake3::hash(&bytes).to_hex().to_string();
        if !self.has(&name, bytes.len() as u64).await? {
            let mut object = self.begin().await?;
            object.write(&self.env.clone(), bytes).await?;
            self.name(object, &name).await?;
        }
        Ok(name)
    }

    /// Whether the object is there already, and counts it then.
    async fn has(&mut self, name: &str, bytes: u64) -> Result<bool, BackupError> {
        let (disk, path) = (Arc::clone(&self.disk), object_path(&self.folder, name));
        let dir = path.parent().map(Path::to_path_buf);
        let find = move || match disk.exists(&path)? {
            true => disk.open(&path, OpenMode::Read)?.len().map(Some),
            false => Ok(None),
        };
        let there = self.env.blocking(Pool::Background, find).await? == Some(bytes);
        if there {
            self.kept += bytes;
            self.kept_in.extend(dir);
        }
        Ok(there)
    }

    async fn begin(&self) -> Result<Unnamed, BackupError> {
        let (disk, folder) = (Arc::clone(&self.disk), self.folder.clone());
        let path = folder.join(format!("new-{:016x}", self.env.random_u64()));
        let open = move || {
            disk.create_dir_all(&folder)?;
            let file = disk.open(&path, OpenMode::CreateNew)?;
            std::io::Result::Ok(Unnamed { path, file, bytes: 0 })
        };
        Ok(self.env.blocking(Pool::Background, open).await?)
    }

    /// Makes an object durable under its name.
    async fn name(&mut self, object: Unnamed, name: &str) -> Result<(), BackupError> {
        self.written += object.bytes;
        let path = object_path(&self.folder, name);
        self.settle(object, path).await
    }

    /// Writes a list: what it lists is durable before.
    async fn write_list(&self, file: &str, bytes: Vec<u8>) -> Result<(), BackupError> {
        self.sync_names().await?;
        let mut object = self.begin().await?;
        object.write(&self.env, bytes).await?;
        self.settle(object, self.folder.join(file)).await
    }

    /// Makes the names durable of objects that were there already, and the way to the folder.
    async fn sync_names(&self) -> Result<(), BackupError> {
        let (disk, folder, kept_in) = (Arc::clone(&self.disk), self.folder.clone(), self.kept_in.clone());
        let sync = move || {
            disk.create_dir_all(&folder)?;
            let above = kept_in.iter().flat_map(|dir| dir.ancestors().take_while(|above| above.starts_with(&folder)));
            above.collect::<BTreeSet<_>>().into_iter().try_for_each(|dir| disk.sync_dir(dir))?;
            sync_names_above(disk.as_ref(), &folder)
        };
        Ok(self.env.blocking(Pool::Background, sync).await?)
    }

    async fn settle(&self, object: Unnamed, path: PathBuf) -> Result<(), BackupError> {
        let (disk, folder) = (Arc::clone(&self.disk), self.folder.clone());
        let settle = move || {
            object.file.sync()?;
            let dir = path.parent().unwrap_or(&folder);
            disk.create_dir_all(dir)?;
            disk.rename(&object.path, &path)?;
            for above in dir.ancestors().take_while(|above| above.starts_with(&folder)) {
                disk.sync_dir(above)?;
            }
            std::io::Result::Ok(())
        };
        Ok(self.env.blocking(Pool::Background, settle).await?)
    }
}
