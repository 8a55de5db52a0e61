//! Copies a snapshot folder into a bucket: the objects that are not there yet, then the lists that name them.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};

use crate::coordinator::backup::list::{self, Manifest, NodeManifest};
use crate::coordinator::backup::objects::{Objects, object_path};
use crate::coordinator::backup::s3::pull::{Walk, contents_of};
use crate::coordinator::backup::s3::seal::{PIECE_BYTES, SALT_BYTES, Sealer};
use crate::coordinator::backup::s3::{Order, Remote, id, is_list};
use crate::coordinator::backup::{BackupError, damaged};
use crate::limits;
use crate::observe::told::{Tell, Told};
use crate::world::{Disk, Env, File, OpenMode, Pool};

/// What was copied into a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Objects that were sent.
    pub objects: u64,
    /// Their bytes, as they are in the folder.
    pub bytes: u64,
    /// Objects that were there.
    pub objects_there: u64,
    /// Lists that were sent.
    pub lists: u64,
    /// Lists that were there.
    pub lists_there: u64,
    /// Objects that were read back.
    pub verified: u64,
    /// What could not be sent, or is not there as it should be; each was told.
    pub failed: u64,
}

/// A file of the folder: its name, an object's hash or a list's path within the folder, and its bytes.
type Local = (String, u64);

/// Copies what is in `folder` and not in the bucket yet. `verify`: then reads back all that the lists in the bucket
/// name.
///
/// # Errors
/// When the folder has no lists, the store cannot be asked or refuses, or has a backup with another key. What is
/// damaged in the folder is told and counted; lists that name it are not sent.
pub async fn push(
    env: &Env,
    folder: &Path,
    order: &Order,
    verify: bool,
    tell: Tell<'_>,
) -> Result<Pushed, BackupError> {
    let remote = Remote::new(env, order)?;
    let (disk, dir) = (env.disk(), folder.to_path_buf());
    // Lists first: what those that are seen name is there, though a snapshot may be taken meanwhile.
    let look = move || io::Result::Ok((local_lists(disk.as_ref(), &dir)?, local_objects(disk.as_ref(), &dir)?));
    let (lists, objects) = env.blocking(Pool::Background, look).await?;
    if lists.is_empty() {
        return Err(BackupError::Io(format!("{}: there is no snapshot", folder.display())));
    }
    if !remote.check().await? {
        remote.mark().await?;
    }
    let there = remote.objects_there().await?;
    let mut push = Push { remote: &remote, folder, there, checked: BTreeSet::new(), tell, pushed: Pushed::default() };
    push.objects(objects).await?;
    push.lists(lists).await?;
    let mut pushed = push.pushed;
    if verify {
        remote.progress.restart();
        let lists = remote.lists_there(None).await?;
        let mut walk = Walk::new(&remote, None, tell);
        remote.progress.told(env, tell, "read back", walk.all(lists.into_keys())).await?;
        let pulled = walk.end();
        (pushed.verified, pushed.failed) = (pulled.objects, pushed.failed + pulled.failed);
    }
    Ok(pushed)
}

/// The objects of a folder. Blocks.
fn local_objects(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<Local>> {
    let (dir, mut out) = (folder.join("objects"), Vec::new());
    for part in listed(disk, &dir)?.into_iter().filter(|entry| entry.is_dir) {
        let files = disk.list(&dir.join(&part.name))?.into_iter();
        out.extend(files.filter(|file| id(&file.name).is_some()).map(|file| (file.name, file.len)));
    }
    Ok(out)
}

/// The lists of a folder: those of databases, then those of nodes. Blocks.
fn local_lists(disk: &dyn Disk, folder: &Path) -> io::Result<Vec<Local>> {
    let mut dirs: Vec<String> = vec!["nodes".to_owned()];
    let databases = listed(disk, &folder.join("databases"))?.into_iter().filter(|entry| entry.is_dir);
    dirs.splice(0..0, databases.map(|entry| format!("databases/{}", entry.name)));
    let mut out = Vec::new();
    for dir in dirs {
        let files =
            listed(disk, &folder.join(&dir))?.into_iter().map(|file| (format!("{dir}/{}", file.name), file.len));
        out.extend(files.filter(|(name, _)| is_list(name)));
    }
    Ok(out)
}

fn listed(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<crate::world::Entry>> {
    if disk.exists(dir)? { disk.list(dir) } else { Ok(Vec::new()) }
}

/// Those that are not in the bucket with the bytes that they would have there.
fn missing(remote: &Remote, objects: Vec<Local>, there: &BTreeMap<[u8; 32], u64>) -> Vec<Local> {
    let is_there = |(name, bytes): &Local| there.get(&key(remote, name)) == Some(&remote.stored_bytes(*bytes));
    objects.into_iter().filter(|object| !is_there(object)).collect()
}

/// The name of an object in the bucket, as bytes.
fn key(remote: &Remote, name: &str) -> [u8; 32] {
    let shown = remote.key.as_ref().map(|key| key.object_name(name));
    id(shown.as_deref().unwrap_or(name)).unwrap_or_default()
}

/// Bytes of the requests in which an object of so many bytes goes: all of it, or parts.
fn part_bytes(stored: u64) -> u64 {
    limits::BUCKET_PART_BYTES.max(stored.div_ceil(limits::BUCKET_PARTS))
}

struct Push<'p> {
    remote: &'p Remote,
    folder: &'p Path,
    there: BTreeMap<[u8; 32], u64>,
    /// Objects of documents of which all attachments are in the bucket.
    checked: BTreeSet<[u8; 32]>,
    tell: Tell<'p>,
    pushed: Pushed,
}

impl Push<'_> {
    fn failed(&mut self, what: &BackupError) {
        self.pushed.failed += 1;
        (self.tell)(Told::Line(format!("failed: {what}")));
    }

    async fn objects(&mut self, objects: Vec<Local>) -> Result<(), BackupError> {
        let (remote, folder, tell, all) = (self.remote, self.folder, self.tell, objects.len());
        let objects = missing(remote, objects, &self.there);
        self.pushed.objects_there = (all - objects.len()) as u64;
        remote.progress.begin(objects.len() as u64, objects.iter().map(|(_, bytes)| remote.stored_bytes(*bytes)).sum());
        let sends = objects.into_iter().map(|object| async move {
            let sent = send(remote, folder, &object).await;
            (object, sent)
        });
        let mut sends = stream::iter(sends).buffer_unordered(remote.parallel);
        let work = async {
            while let Some(((name, bytes), sent)) = sends.next().await {
                match sent {
                    Ok(()) => {
                        self.there.insert(key(remote, &name), remote.stored_bytes(bytes));
                        (self.pushed.objects, self.pushed.bytes) = (self.pushed.objects + 1, self.pushed.bytes + bytes);
                        remote.progress.done();
                    }
                    Err(error @ BackupError::Damaged(_)) => self.failed(&error),
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        remote.progress.told(&remote.env, tell, "sent", work).await
    }

    /// Sends the lists of which all objects are in the bucket.
    async fn lists(&mut self, lists: Vec<Local>) -> Result<(), BackupError> {
        let mut there = self.remote.lists_there(None).await?;
        for (name, bytes) in lists {
            let stored = self.remote.stored_bytes(bytes);
            let is_there = there.get(&name) == Some(&stored);
            match self.list(&name, is_there, &there).await {
                Ok(()) if is_there => self.pushed.lists_there += 1,
                Ok(()) => {
                    self.pushed.lists += 1;
                    there.insert(name, stored);
                }
                Err(error @ BackupError::Damaged(_)) => self.failed(&error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends a list, or notes of one that is in the bucket what it names.
    async fn list(&mut self, name: &str, is_there: bool, there: &BTreeMap<String, u64>) -> Result<(), BackupError> {
        let remote = self.remote;
        let (disk, path) = (remote.env.disk(), self.folder.join(name));
        let read = move || {
            let file = disk.open(&path, OpenMode::Read)?;
            let mut bytes = vec![0; file.len()? as usize];
            file.read_at(0, &mut bytes).map(|()| bytes)
        };
        let read = remote.env.blocking(Pool::Background, read).await;
        let bytes = read.map_err(|error| damaged(format_args!("{name} cannot be read: {error}")))?;
        let lacking = if name.starts_with("nodes/") {
            let node: NodeManifest = list::unsealed(bytes.clone(), Path::new(name))?;
            node.databases.into_iter().find(|database| !there.contains_key(database))
        } else {
            let manifest: Manifest = list::unsealed(bytes.clone(), Path::new(name))?;
            if is_there {
                self.checked.extend(manifest.objects().map(|object| key(remote, object)));
                return Ok(());
            }
            self.lacking(&manifest).await?
        };
        if is_there {
            return Ok(());
        }
        if let Some(lacking) = lacking {
            return Err(damaged(format_args!("{name} is not sent: {lacking}, which it needs, is not in the bucket")));
        }
        let mut body = bytes;
        if let Some(sealer) = &mut sealer(remote, name) {
            let (mut sealed, last) = (Vec::new(), body.chunks(PIECE_BYTES).count().saturating_sub(1));
            body.chunks(PIECE_BYTES).enumerate().for_each(|(n, piece)| sealer.add(piece, n == last, &mut sealed));
            body = sealed;
        }
        remote.bucket.put(&remote.list(name), Bytes::from(body)).await
    }

    /// Something that a list needs and that is not in the bucket: an object that it names, or an attachment of the
    /// documents in one. Those that another list in the bucket names were looked at when that one was sent.
    async fn lacking(&mut self, manifest: &Manifest) -> Result<Option<String>, BackupError> {
        let remote = self.remote;
        let shown = |name: &str| Some(format!("object {name}"));
        if let Some(other) = manifest.others.iter().find(|name| !self.there.contains_key(&key(remote, name))) {
            return Ok(shown(other));
        }
        for name in manifest.objects() {
            let id = key(remote, name);
            if !self.there.contains_key(&id) {
                return Ok(shown(name));
            }
            if self.checked.contains(&id) {
                continue;
            }
            // One that is not in the folder any more was sent by an earlier push.
            if let Some(bytes) = Objects::new(&remote.env, self.folder).whole(name).await {
                let contents = remote.env.blocking(Pool::Background, move || contents_of(&bytes)).await?;
                let mut contents = contents.iter().map(|(content, _)| content);
                if let Some(content) = contents.find(|content| !self.there.contains_key(&key(remote, content))) {
                    return Ok(shown(content));
                }
            }
            self.checked.insert(id);
        }
        Ok(None)
    }
}

fn sealer(remote: &Remote, name: &str) -> Option<Sealer> {
    let mut salt = [0; SALT_BYTES];
    remote.env.host().random(&mut salt);
    remote.key.as_ref().map(|key| Sealer::new(key, name, salt))
}

/// An object of the folder as it goes out.
struct Outgoing {
    file: Arc<dyn File>,
    name: String,
    bytes: u64,
    at: u64,
    is_read: bool,
    hash: blake3::Hasher,
    sealer: Option<Sealer>,
    /// What is ready to go.
    ready: Vec<u8>,
}

impl Outgoing {
    /// Reads until so many bytes are ready, or all is. Blocks.
    ///
    /// # Errors
    /// [`BackupError::Damaged`] at the end of a file that is not what its name says, or one that cannot be read.
    fn fill(&mut self, wanted: usize) -> Result<(), BackupError> {
        while self.ready.len() < wanted && !self.is_read {
            let mut piece = vec![0; (self.bytes - self.at).min(PIECE_BYTES as u64) as usize];
            let name = &self.name;
            let read = self.file.read_at(self.at, &mut piece);
            read.map_err(|error| damaged(format_args!("object {name} cannot be read: {error}")))?;
            self.at += piece.len() as u64;
            self.is_read = self.at == self.bytes;
            self.hash.update(&piece);
            match &mut self.sealer {
                Some(sealer) => sealer.add(&piece, self.is_read, &mut self.ready),
                None => self.ready.extend_from_slice(&piece),
            }
        }
        if self.is_read && self.hash.finalize().to_hex().as_str() != self.name {
            return Err(damaged(format_args!("object {} of the folder does not fit its hash", self.name)));
        }
        Ok(())
    }

    /// The next part: of that size, or what is left. `None` behind the last one.
    async fn part(mut self, env: &Env, size: usize) -> Result<(Outgoing, Option<Bytes>), BackupError> {
        let fill = move || self.fill(size).map(|()| self);
        let mut filled = env.blocking(Pool::Background, fill).await?;
        let rest = filled.ready.split_off(filled.ready.len().min(size));
        let part = std::mem::replace(&mut filled.ready, rest);
        Ok((filled, (!part.is_empty()).then(|| Bytes::from(part))))
    }
}

/// Sends an object. It is in the bucket when all of it is, and is what its name says.
async fn send(remote: &Remote, folder: &Path, (name, bytes): &Local) -> Result<(), BackupError> {
    let (disk, path): (_, PathBuf) = (remote.env.disk(), object_path(folder, name));
    let opened = remote.env.blocking(Pool::Background, move || disk.open(&path, OpenMode::Read)).await;
    let out = Outgoing {
        file: opened.map_err(|error| damaged(format_args!("object {name} cannot be read: {error}")))?,
        name: name.clone(),
        bytes: *bytes,
        at: 0,
        is_read: false,
        hash: blake3::Hasher::new(),
        sealer: sealer(remote, name),
        ready: Vec::new(),
    };
    let (stored, key) = (remote.stored_bytes(*bytes), remote.object(name));
    let part_bytes = part_bytes(stored);
    if stored <= part_bytes {
        let (_, part) = out.part(&remote.env, part_bytes as usize).await?;
        remote.bucket.put(&key, part.unwrap_or_default()).await?;
        remote.progress.moved(stored);
        return Ok(());
    }
    let upload = remote.bucket.begin(&key).await?;
    let sent = match send_parts(remote, (&key, &upload), out, part_bytes as usize).await {
        Ok(parts) => remote.bucket.complete((&key, &upload), &parts).await,
        Err(error) => Err(error),
    };
    if sent.is_err() {
        // The object may be there, and only the answer that says so was lost.
        let page = remote.bucket.page(&key, None).await?;
        if page.entries.contains(&(key.clone(), stored)) {
            return Ok(());
        }
        // What is left of it there costs money; the store's rules let it go where this fails, too.
        let _ = remote.bucket.abort((&key, &upload)).await;
    }
    sent
}

async fn send_parts(
    remote: &Remote,
    upload: (&str, &str),
    mut out: Outgoing,
    part_bytes: usize,
) -> Result<Vec<String>, BackupError> {
    let mut parts = Vec::new();
    loop {
        let (rest, part) = out.part(&remote.env, part_bytes).await?;
        let Some(part) = part else { return Ok(parts) };
        out = rest;
        let (number, bytes) = (parts.len() as u16 + 1, part.len() as u64);
        parts.push(remote.bucket.part(upload, number, part).await?);
        remote.progress.moved(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough() {
        assert_eq!(part_bytes(1), limits::BUCKET_PART_BYTES);
        let large = 500 << 30;
        assert!(large / part_bytes(large) <= limits::BUCKET_PARTS && limits::BUCKET_PARTS <= u64::from(u16::MAX));
    }
}
