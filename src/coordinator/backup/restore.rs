//! A database from a snapshot: every object is checked against its hash before anything of it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::backup::item::{self, DocumentItem, SettingsItem};
use crate::coordinator::backup::list::{self, List, Manifest, NodeManifest};
use crate::coordinator::backup::load::{Loader, create, discard};
use crate::coordinator::backup::snapshot::object_path;
use crate::coordinator::backup::{BackupError, Counts, damaged, frame};
use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::error::ReadError;
use crate::limits;
use crate::wire::hex;
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
    match filled(&source, &manifest, &database).await {
        Ok(counts) => Ok(Restored { name, counts, taken_ms: manifest.taken_ms }),
        Err(error) => {
            drop(database);
            discard(coordinator, &name).await;
            Err(error)
        }
    }
}

/// Fills a database, and compares it with what the snapshot says of itself.
async fn filled(source: &Source, manifest: &Manifest, database: &Arc<Database>) -> Result<Counts, BackupError> {
    let counts = fill(source, manifest, Loader::new(database)).await?;
    let info = database.info().await.map_err(|error| match error {
        ReadError::Unavailable(error) => BackupError::Shard(error),
        other => BackupError::Io(format!("the new database could not be read: {other:?}")),
    })?;
    let fits = (info.doc_count, info.doc_del_count) == (manifest.live, manifest.deleted)
        && (counts.locals, counts.purges) == (manifest.locals, manifest.purges);
    if fits { Ok(counts) } else { Err(damaged("the snapshot holds other documents than it says")) }
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

/// The names of the objects of which the tail consists, with the ids that each has the last word on.
type LastWords = BTreeMap<String, usize>;

async fn fill(source: &Source, manifest: &Manifest, mut loader: Loader) -> Result<Counts, BackupError> {
    let mut last: LastWords = BTreeMap::new();
    for (number, name) in manifest.tail.iter().enumerate() {
        for next in source.frames(name).await?.into_iter().filter(|next| next.kind == item::DOCUMENT) {
            last.insert(DocumentItem::decode(&next.payload)?.id.as_str().to_owned(), number);
        }
    }
    let gone: BTreeSet<&str> = manifest.gone.iter().map(String::as_str).collect();
    for name in &manifest.base {
        let wanted = |id: &str| !gone.contains(id) && !last.contains_key(id);
        take(source, name, &mut loader, &wanted).await?;
    }
    for (number, name) in manifest.tail.iter().enumerate() {
        let wanted = |id: &str| !gone.contains(id) && last.get(id) == Some(&number);
        take(source, name, &mut loader, &wanted).await?;
    }
    for name in &manifest.others {
        for next in source.frames(name).await? {
            loader.take(next).await?;
        }
    }
    loader.finish().await
}

/// Takes in the documents of an object that are wanted; of one that stands in it twice, the last.
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
struct Source {
    env: Env,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl Source {
    fn new(env: &Env, folder: &Path) -> Source {
        Source { env: env.clone(), disk: env.disk(), folder: folder.to_path_buf() }
    }

    async fn list<L: List>(&self, list: &Path) -> Result<L, BackupError> {
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
