//! Restore of a database from a snapshot: every object is checked against its hash before anything of it is used.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::backup::item::{self, DocumentItem, SettingsItem};
use crate::coordinator::backup::list::{self, Layer, List, Manifest, NodeManifest};
use crate::coordinator::backup::load::{Loader, create, discard};
use crate::coordinator::backup::objects::object_path;
use crate::coordinator::backup::{BackupError, Counts, damaged, frame};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::Summary;
use crate::wire::hex;
use crate::world::task::Task;
use crate::world::{Disk, Env, OpenMode, Pool};

/// A database that was brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Its name.
    pub name: String,
    /// What is in it.
    pub counts: Counts,
    /// When the snapshot was taken, in milliseconds since 1970.
    pub taken_ms: u64,
}

/// Makes a new database, `name` or the one of the snapshot, from the snapshot in `folder` that the file `list` names.
/// When it fails, no database stays.
///
/// # Errors
/// [`BackupError::Damaged`] when something of the snapshot is missing or not as it was written.
pub async fn restore(
    env: &Env,
    coordinator: &Arc<Coordinator>,
    (folder, list): (&Path, &Path),
    name: Option<&str>,
) -> Result<Restored, BackupError> {
    let source = Source::new(env, folder);
    let manifest: Manifest = source.list(list).await?;
    let settings = SettingsItem::decode(manifest.settings.as_bytes())?;
    let name = name.unwrap_or(&settings.name).to_owned();
    let database = create(coordinator, &name, &settings).await?;
    let total = manifest.live + manifest.deleted;
    let task = env.begin_task(Subject::new(TaskKind::Restore, &name), Some(total));
    match fill(&source, &manifest, &database, &task).await {
        Ok(counts) => Ok(Restored { name, counts, taken_ms: manifest.taken_ms }),
        Err(error) => {
            drop(database);
            discard(coordinator, &name).await;
            Err(error)
        }
    }
}

/// Makes all databases of the node's snapshot in `folder` that the file `list` names, each under the name that it had.
/// When one fails, none of them stays.
///
/// # Errors
/// As [`restore`].
pub async fn restore_node(
    env: &Env,
    coordinator: &Arc<Coordinator>,
    (folder, list): (&Path, &Path),
) -> Result<Vec<Restored>, BackupError> {
    let source = Source::new(env, folder);
    let node: NodeManifest = source.list(list).await?;
    let mut restored: Vec<Restored> = Vec::new();
    for list in &node.databases {
        match restore(env, coordinator, (folder, &folder.join(list)), None).await {
            Ok(done) => restored.push(done),
            Err(error) => {
                for Restored { name, .. } in &restored {
                    discard(coordinator, name).await;
                }
                return Err(error);
            }
        }
    }
    Ok(restored)
}

/// Fills a new database, and compares it with what the list says of all documents together.
async fn fill(
    source: &Source,
    manifest: &Manifest,
    database: &Arc<Database>,
    task: &Task,
) -> Result<Counts, BackupError> {
    let mut loader = Loader::new(database);
    let words = LastWords::read(source, &manifest.layers).await?;
    let objects = manifest.layers.iter().flat_map(|layer| &layer.objects);
    for (number, object) in objects.enumerate() {
        take(source, &object.name, &mut loader, &|id| words.is_of(id, number)).await?;
        task.done(loader.documents());
    }
    for name in &manifest.others {
        for next in source.frames(name).await? {
            loader.take(next).await?;
        }
    }
    let counts = loader.finish().await?;
    let mut total = Summary::default();
    for replica in database.replicas().own_shards().await? {
        total = total.plus(replica.state().await?.total);
    }
    let documents = (total.live, total.deleted) == (manifest.live, manifest.deleted);
    let fits = documents && total.fits_digest(&manifest.digest);
    let fits = fits && (counts.locals, counts.purges) == (manifest.locals, manifest.purges);
    if fits { Ok(counts) } else { Err(damaged("the snapshot holds other documents than it says")) }
}

/// Which object has the last word on a document, for all that stand in other layers than the first one; `None`: it was
/// purged then. Ids are known by their hashes.
struct LastWords(BTreeMap<u128, Option<usize>>);

impl LastWords {
    /// Objects are counted through all layers.
    async fn read(source: &Source, layers: &[Layer]) -> Result<LastWords, BackupError> {
        let (mut words, mut number) = (BTreeMap::new(), 0);
        for (at, layer) in layers.iter().enumerate() {
            for object in &layer.objects {
                // The first layer has the last word where no other one has any.
                let frames = if at == 0 { Vec::new() } else { source.frames(&object.name).await? };
                for next in frames.into_iter().filter(|next| next.kind == item::DOCUMENT) {
                    words.insert(key(DocumentItem::decode(&next.payload)?.id.as_str()), Some(number));
                }
                number += 1;
            }
            words.extend(layer.gone.iter().map(|id| (key(id), None)));
        }
        Ok(LastWords(words))
    }

    /// Whether a document is taken from the object of that number, in which it stands.
    fn is_of(&self, id: &str, number: usize) -> bool {
        self.0.get(&key(id)).is_none_or(|word| *word == Some(number))
    }
}

fn key(id: &str) -> u128 {
    let hash = blake3::hash(id.as_bytes());
    // Invariant: 32 bytes begin with 16.
    u128::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash of 32 bytes"))
}

/// Applies the documents of an object that are wanted; of one that stands in it twice, the last.
async fn take(
    source: &Source,
    name: &str,
    loader: &mut Loader,
    wanted: &(dyn Fn(&str) -> bool + Sync),
) -> Result<(), BackupError> {
    let frames = source.frames(name).await?;
    let mut last: BTreeMap<String, usize> = BTreeMap::new();
    for (n, next) in frames.iter().enumerate().filter(|(_, next)| next.kind == item::DOCUMENT) {
        last.insert(DocumentItem::decode(&next.payload)?.id.as_str().to_owned(), n);
    }
    for (n, next) in frames.into_iter().enumerate() {
        if next.kind != item::DOCUMENT {
            loader.take(next).await?;
            continue;
        }
        let document = DocumentItem::decode(&next.payload)?;
        if last.get(document.id.as_str()) != Some(&n) || !wanted(document.id.as_str()) {
            continue;
        }
        for attachment in document.contents() {
            if !loader.has_content(&document.id, &attachment.blob) {
                let id = document.id.clone();
                loader.begin_content(id, attachment.blob, attachment.stored_length).await?;
                source.content(&hex::encode(&attachment.blob), attachment.stored_length, loader).await?;
            }
        }
        loader.document(document).await?;
    }
    Ok(())
}

/// Why `what` could not be read: only what is not there is damage, other errors may pass.
fn unread(error: std::io::Error, what: &str) -> BackupError {
    match error.kind() {
        std::io::ErrorKind::NotFound => damaged(format_args!("{what} is missing")),
        _ => error.into(),
    }
}

/// A snapshot folder.
pub(super) struct Source {
    env: Env,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl Source {
    pub(super) fn new(env: &Env, folder: &Path) -> Source {
        Source { env: env.clone(), disk: env.disk(), folder: folder.to_path_buf() }
    }

    pub(super) async fn list<L: List>(&self, list: &Path) -> Result<L, BackupError> {
        list::unsealed(self.file(list.to_path_buf()).await?, list)
    }

    /// All frames of an object.
    async fn frames(&self, name: &str) -> Result<Vec<frame::Frame>, BackupError> {
        let bytes = self.file(object_path(&self.folder, name)).await?;
        if blake3::hash(&bytes).to_hex().as_str() != name {
            return Err(damaged(format_args!("object {name} does not fit its hash")));
        }
        let (mut input, mut at) = (bytes.as_slice(), 0);
        let mut frames = Vec::new();
        while let Some(next) = frame::read(&mut input, &mut at)? {
            frames.push(next);
        }
        Ok(frames)
    }

    async fn file(&self, path: PathBuf) -> Result<Vec<u8>, BackupError> {
        let disk = Arc::clone(&self.disk);
        let shown = path.display().to_string();
        let read = move || {
            let file = disk.open(&path, OpenMode::Read)?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_at(0, &mut bytes)?;
            std::io::Result::Ok(bytes)
        };
        self.env.blocking(Pool::Background, read).await.map_err(|error| unread(error, &shown))
    }

    /// Gives an attachment's bytes to the loader, which compares them with their hash.
    async fn content(&self, name: &str, length: u64, loader: &mut Loader) -> Result<(), BackupError> {
        let (disk, path) = (Arc::clone(&self.disk), object_path(&self.folder, name));
        let open = move || disk.open(&path, OpenMode::Read);
        let opened = self.env.blocking(Pool::Background, open).await;
        let file = opened.map_err(|error| unread(error, &format!("object {name}")))?;
        let mut at = 0;
        while at < length {
            let size = (length - at).min(limits::BLOB_STEP_BYTES as u64);
            let file = Arc::clone(&file);
            let read = move || {
                let mut bytes = vec![0; size as usize];
                file.read_at(at, &mut bytes).map(|()| bytes)
            };
            loader.add_content(Bytes::from(self.env.blocking(Pool::Background, read).await?)).await?;
            at += size;
        }
        Ok(())
    }
}
