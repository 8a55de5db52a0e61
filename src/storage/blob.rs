//! Attachment bytes beside the ordered store: one file per content and shard, collected when no edit names it.
//!
//! ```text
//!   DIR/blobs/tmp/N                     uploads in progress; emptied at start
//!   DIR/blobs/SHARD/HH/HASH             SHARD: 16 hex digits, HH: first two of HASH, HASH: BLAKE3 of the stored bytes
//! ```
//!
//! A file's bytes lie in checksummed blocks (`blocks.rs`), so that a range is checked as the whole is.
//!
//! A blob's file and directories are synced before [`BlobWriter::finish`](super::BlobWriter::finish) returns, so before
//! any edit can name it. Small blobs live in the ordered store instead (`blob_refs.rs`). What may be removed, and when,
//! is decided by the rules of `lease.rs`; this file holds the names, the collector and the shared state.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::blob_read::{BlobReader, ReadAs, Source};
use super::blob_refs;
use super::blob_write::BlobWriter;
use super::blocks::{BlockFile, Kind};
use super::damage::Damage;
use super::kv::{StorageError, Store};
use super::lease::{BlobKey, Hold, Pin, SharedLeases};
use super::room::Room;
use crate::document::render::{Attachment, BlobId, Encoding};
use crate::limits;
use crate::observe::workers::Worker;
use crate::wire::hex;
use crate::world::sync::{Mutex, MutexGuard};
use crate::world::{Disk, Env, File, OpenMode, Pool};

/// How often expired uploads are looked for.
const COLLECT_EVERY: Duration = Duration::from_secs(60);
/// Files removed in one bounded step.
const COLLECT_STEP: usize = 64;

/// What to do with the bytes of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StageMode {
    /// Store as they come.
    Plain,
    /// Compress with gzip at this level, 1 to 9; level 8 is CouchDB's, so that digests agree.
    Compress(u32),
    /// They are gzip already: store as they come, marked as compressed.
    AlreadyGzip,
}

/// A complete upload that waits for the edit that names it.
#[derive(Clone, Debug)]
pub struct Staged {
    /// Keep it until the edit was decided: without it the bytes stay for `limits::BLOB_LEASE` from the upload's end.
    pub hold: Hold,
    /// Hash of the stored bytes.
    pub blob: BlobId,
    /// MD5 of the stored bytes.
    pub digest: [u8; 16],
    /// Plain size in bytes; for bytes that came compressed, their compressed size (as CouchDB 3.5 was measured).
    pub length: u64,
    /// Stored size in bytes.
    pub stored_length: u64,
    /// How they are stored.
    pub encoding: Encoding,
}

impl Staged {
    /// The attachment that an edit names. `revpos` is set by the shard for interactive edits.
    pub fn attachment(&self, name: &str, content_type: &str, revpos: u64) -> Attachment {
        Attachment {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            revpos,
            digest: self.digest,
            length: self.length,
            stored_length: self.stored_length,
            encoding: self.encoding,
            blob: self.blob,
        }
    }
}

pub(super) struct Inner {
    pub(super) env: Env,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) store: Arc<dyn Store>,
    pub(super) leases: SharedLeases,
    pub(super) damage: Damage,
    pub(super) room: Arc<Room>,
    root: PathBuf,
    next_temporary: AtomicU64,
    /// Directories that are known to be durable.
    directories: Mutex<BTreeSet<PathBuf>>,
    waste: Mutex<Waste>,
    /// Wakes the collector; shared with its task, which must not keep the store open while it waits.
    wasted: Arc<Notify>,
}

/// What the collector should look at.
#[derive(Default)]
struct Waste {
    blobs: Vec<BlobKey>,
    temporary: Vec<PathBuf>,
}

/// All blobs of a node. A cheap handle.
#[derive(Clone)]
pub struct BlobStore(pub(super) Arc<Inner>);

impl fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlobStore")
    }
}

impl BlobStore {
    /// The blobs below `root`; starts the collector, which first looks for what a crash left.
    pub(super) fn start(env: &Env, root: PathBuf, store: Arc<dyn Store>, damage: Damage, room: Arc<Room>) -> Self {
        let inner = Arc::new(Inner {
            env: env.clone(),
            disk: env.disk(),
            store,
            leases: SharedLeases::default(),
            damage,
            room,
            root,
            next_temporary: AtomicU64::new(1),
            directories: Mutex::default(),
            waste: Mutex::default(),
            wasted: Arc::new(Notify::new()),
        });
        let (own, of, wasted) = (env.clone(), Arc::downgrade(&inner), Arc::clone(&inner.wasted));
        env.spawn_worker("blob_collection", "a pause or an abandoned upload", move |me| {
            drive_collector(own.clone(), of.clone(), Arc::clone(&wasted), me)
        });
        BlobStore(inner)
    }

    /// Starts an upload into `shard`.
    pub fn writer(&self, shard: u64, mode: StageMode) -> BlobWriter {
        BlobWriter::new(self.clone(), shard, mode)
    }

    /// Reads `attachment` of `shard`. `range` counts bytes of what is read and is clamped to it; it must be `None` when
    /// stored gzip is read as plain bytes.
    pub fn reader(&self, shard: u64, attachment: &Attachment, read: ReadAs, range: Option<(u64, u64)>) -> BlobReader {
        BlobReader::new(self.clone(), shard, attachment, read, range)
    }

    /// Pins an upload for an edit that names it; `None` when there is none.
    pub(super) fn pin(&self, key: &BlobKey) -> Option<Pin> {
        self.0.leases.pin(key)
    }

    /// Asks the collector to look at blobs whose last reference is gone.
    pub(super) fn released(&self, key: BlobKey) {
        self.waste().blobs.push(key);
        self.0.wasted.notify_one();
    }

    /// Asks the collector to remove the file of an upload that was abandoned.
    pub(super) fn abandoned(&self, temporary: PathBuf) {
        self.waste().temporary.push(temporary);
        self.0.wasted.notify_one();
    }

    fn waste(&self) -> MutexGuard<'_, Waste> {
        self.0.waste.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all files of a shard whose keys are gone.
    pub async fn drop_shard(&self, shard: u64) -> Result<(), StorageError> {
        let inner = Arc::clone(&self.0);
        let env = inner.env.clone();
        env.blocking(Pool::Background, move || Ok(inner.disk.remove_dir_all(&inner.shard_dir(shard))?)).await
    }

    /// One round of the collector: removes what nobody needs.
    async fn collect(self) {
        let env = self.0.env.clone();
        loop {
            let now = env.now();
            let store = self.clone();
            let more = env.blocking(Pool::Background, move || store.0.collect_step(now)).await;
            match more {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "unused attachment files could not be removed; the next start tries again");
                    return;
                }
            }
        }
    }

    /// Looks at every blob file, one directory per step, and hands those without reference to the collector.
    async fn sweep(&self) {
        let env = self.0.env.clone();
        let inner = Arc::clone(&self.0);
        let shards = env.blocking(Pool::Background, move || inner.directories_in(&inner.root)).await;
        for shard in shards.unwrap_or_default() {
            let Ok(number) = u64::from_str_radix(&shard, 16) else { continue };
            let inner = Arc::clone(&self.0);
            let parts = env.blocking(Pool::Background, move || inner.directories_in(&inner.shard_dir(number))).await;
            for part in parts.unwrap_or_default() {
                let inner = Arc::clone(&self.0);
                let found = env.blocking(Pool::Background, move || inner.unreferenced(number, &part)).await;
                match found {
                    Ok(keys) => keys.into_iter().for_each(|key| self.released(key)),
                    Err(error) => tracing::warn!(%error, shard = number, "attachment files could not be checked"),
                }
            }
        }
    }
}

/// The collector's task; it ends soon after the last handle is gone.
async fn drive_collector(env: Env, blobs: Weak<Inner>, wasted: Arc<Notify>, worker: Arc<Worker>) {
    if let Some(inner) = blobs.upgrade() {
        BlobStore(inner).sweep().await;
    }
    while let Some(inner) = blobs.upgrade() {
        let run = worker.begin();
        BlobStore(inner).collect().await;
        drop(run);
        tokio::select! {
            biased;
            () = wasted.notified() => {}
            () = env.sleep(COLLECT_EVERY) => {}
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.wasted.notify_one();
    }
}

impl Inner {
    fn shard_dir(&self, shard: u64) -> PathBuf {
        self.root.join(format!("{shard:016x}"))
    }

    /// The name of a blob's file.
    pub(super) fn file(&self, key: &BlobKey) -> PathBuf {
        let hash = hex::encode(&key.1);
        self.shard_dir(key.0).join(&hash[..2]).join(hash)
    }

    /// A name for an upload in progress; its directory exists. Blocks.
    pub(super) fn temporary(&self) -> io::Result<PathBuf> {
        let dir = self.root.join("tmp");
        self.make_durable(&dir)?;
        Ok(dir.join(self.next_temporary.fetch_add(1, Ordering::Relaxed).to_string()))
    }

    /// Makes a directory two levels or less below the root so that it survives power loss. Blocks.
    pub(super) fn make_durable(&self, dir: &Path) -> io::Result<()> {
        let known = |d: &Path| self.directories.lock().unwrap_or_else(PoisonError::into_inner).contains(d);
        if known(dir) {
            return Ok(());
        }
        self.disk.create_dir_all(dir)?;
        for parent in dir.ancestors().skip(1).take(3) {
            self.disk.sync_dir(parent)?;
            if parent == self.root.parent().unwrap_or(&self.root) {
                break;
            }
        }
        self.directories.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.to_path_buf());
        Ok(())
    }

    fn directories_in(&self, dir: &Path) -> Result<Vec<String>, StorageError> {
        if !self.disk.exists(dir)? {
            return Ok(Vec::new());
        }
        Ok(self.disk.list(dir)?.into_iter().filter(|e| e.is_dir && e.name != "tmp").map(|e| e.name).collect())
    }

    fn unreferenced(&self, shard: u64, part: &str) -> Result<Vec<BlobKey>, StorageError> {
        let view = self.store.view()?;
        let mut out = Vec::new();
        for entry in self.disk.list(&self.shard_dir(shard).join(part))? {
            let Some(hash) = hex::decode(&entry.name).and_then(|hash| hash.try_into().ok()) else { continue };
            let key = (shard, hash);
            if blob_refs::count(view.as_ref(), &key)? == 0 {
                out.push(key);
            }
        }
        Ok(out)
    }

    /// Removes a bounded number of unneeded files; true when there may be more.
    fn collect_step(&self, now: crate::world::Instant) -> Result<bool, StorageError> {
        let (blobs, temporary) = {
            let mut waste = self.waste.lock().unwrap_or_else(PoisonError::into_inner);
            let keep = waste.blobs.len().saturating_sub(COLLECT_STEP);
            let blobs = waste.blobs.split_off(keep);
            (blobs, std::mem::take(&mut waste.temporary))
        };
        let expired = self.leases.lock().expire(now, COLLECT_STEP);
        let more = blobs.len() == COLLECT_STEP || expired.len() == COLLECT_STEP;
        for path in temporary {
            if self.disk.exists(&path)? {
                self.disk.remove(&path)?;
            }
        }
        for key in blobs.into_iter().chain(expired) {
            self.remove_if_unneeded(&key)?;
        }
        Ok(more)
    }

    /// Removes a blob's file where nobody needs it; see the rules in `lease.rs`.
    fn remove_if_unneeded(&self, key: &BlobKey) -> Result<(), StorageError> {
        let references = || blob_refs::count(self.store.view()?.as_ref(), key);
        self.leases.remove_unless_needed(key, references, || {
            let file = self.file(key);
            if self.disk.exists(&file)? {
                self.disk.remove(&file)?;
            }
            Ok(())
        })
    }

    /// Opens a blob: the upload or the ordered store for small ones, else the file. Blocks.
    pub(super) fn open(&self, key: &BlobKey, stored_length: u64) -> Result<Source, StorageError> {
        if stored_length <= limits::BLOB_INLINE_BYTES as u64 {
            let staged = self.leases.lock().inline(key);
            let bytes = match staged {
                Some(bytes) => Some(bytes),
                None => blob_refs::inline(self.store.view()?.as_ref(), key)?.map(Bytes::from),
            };
            if let Some(bytes) = bytes {
                return Ok(Source::inline(bytes));
            }
        }
        self.open_file(key, stored_length)
    }

    /// Opens a blob that is a file. Blocks.
    pub(super) fn open_file(&self, key: &BlobKey, stored_length: u64) -> Result<Source, StorageError> {
        let path = self.file(key);
        let corrupt = |what: String| StorageError::Corrupt(format!("attachment file {}: {what}", path.display()));
        let file = match self.disk.open(&path, OpenMode::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(corrupt("it is missing".into())),
            other => other?,
        };
        // Files of format 1 hold the bytes and nothing else, so their length tells them.
        if file.len()? == stored_length {
            return Ok(Source::file(file, stored_length));
        }
        let blocks = BlockFile::open(file, Kind::Blob).map_err(|error| corrupt(error.to_string()))?;
        let len = blocks.len()?;
        if len != stored_length || !blocks.has_whole_length()? {
            return Err(corrupt(format!("it holds {len} bytes, not {stored_length}")));
        }
        Ok(Source::file(Arc::new(blocks), stored_length))
    }
}

#[cfg(test)]
mod tests;
