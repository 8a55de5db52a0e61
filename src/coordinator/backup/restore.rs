//! A database from a snapshot: every object is checked against its hash before anything of it is used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::coordinator::backup::item::{self, DocumentItem, SettingsItem};
use crate::coordinator::backup::load::{Loader, create, discard};
use crate::coordinator::backup::snapshot::{FORMAT, Manifest, object_path};
use crate::coordinator::backup::{BackupError, Counts, damaged, frame};
use crate::coordinator::catalogue::Coordinator;
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
    let source = Source { env: env.clone(), disk: env.disk(), folder: folder.to_path_buf() };
    let manifest = source.manifest(list).await?;
    let settings = SettingsItem::decode(manifest.settings.as_bytes())?;
    let name = name.unwrap_or(&settings.name).to_owned();
    let database = create(coordinator, &name, &settings).await?;
    let filled = fill(&source, &manifest, Loader::new(&database)).await;
    let judged = match filled {
        Ok(counts) => {
            let info = database.info().await;
            let fits = info.is_ok_and(|i| (i.doc_count, i.doc_del_count) == (manifest.live, manifest.deleted));
            let fits = fits && (counts.locals, counts.purges) == (manifest.locals, manifest.purges);
            if fits { Ok(counts) } else { Err(damaged("the snapshot holds other documents than it says")) }
        }
        Err(error) => Err(error),
    };
    match judged {
        Ok(counts) => Ok(Restored { name, counts, taken_ms: manifest.taken_ms }),
        Err(error) => {
            drop(database);
            discard(coordinator, &name).await;
            Err(error)
        }
    }
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

/// A snapshot folder.
struct Source {
    env: Env,
    disk: Arc<dyn Disk>,
    folder: PathBuf,
}

impl Source {
    async fn manifest(&self, list: &Path) -> Result<Manifest, BackupError> {
        let text = self.file(list.to_path_buf()).await?;
        let broken = || damaged(format_args!("{} is not as it was written", list.display()));
        let text = String::from_utf8(text).map_err(|_| broken())?;
        let (text, hash) = text.split_once('\n').ok_or_else(broken)?;
        if hash.strip_suffix('\n') != Some(blake3::hash(text.as_bytes()).to_hex().as_str()) {
            return Err(broken());
        }
        let manifest: Manifest = serde_json::from_str(text).map_err(|_| broken())?;
        match manifest.format {
            FORMAT => Ok(manifest),
            other => Err(damaged(format_args!("format {other} of snapshots is not known to this settee"))),
        }
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
        let missing = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => damaged(format_args!("{shown} is missing")),
            _ => error.into(),
        };
        self.env.blocking(Pool::Background, read).await.map_err(missing)
    }

    /// Gives an attachment's bytes to the loader, which compares them with their hash.
    async fn content(&self, name: &str, length: u64, loader: &mut Loader) -> Result<(), BackupError> {
        let (disk, path) = (Arc::clone(&self.disk), object_path(&self.folder, name));
        let open = move || disk.open(&path, OpenMode::Read);
        let opened = self.env.blocking(Pool::Background, open).await;
        let file = opened.map_err(|_| damaged(format_args!("object {name} is missing")))?;
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
