//! Writes of a blob in bounded steps: compress, hash, write, then sync and give the file its name.
//!
//! A stream holds at most one step of input and one of output, whatever the upload's size. A writer that is dropped
//! before [`BlobWriter::finish`] leaves only a file, which the collector removes.

use std::io::Write;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use md5::{Digest, Md5};

use super::blob::{BlobStore, StageMode, Staged};
use super::blocks::{BlockFile, Kind};
use super::kv::StorageError;
use super::lease::Hold;
use crate::document::render::{BlobId, Encoding};
use crate::limits;
use crate::world::{File, OpenMode, Pool};

/// The header byte for the system that CouchDB writes (`conformance/cases/documents`).
const GZIP_SYSTEM_UNIX: u8 = 3;

/// An upload in progress.
pub struct BlobWriter {
    blobs: BlobStore,
    /// Taken out while a step runs, and for good when a step failed. Boxed: its hashes are large, and each future that
    /// may write an upload would have room for several.
    sink: Option<Box<Sink>>,
    pending: Vec<Bytes>,
    pending_bytes: usize,
}

impl std::fmt::Debug for BlobWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlobWriter")
    }
}

impl BlobWriter {
    pub(super) fn new(blobs: BlobStore, shard: u64, mode: StageMode) -> Self {
        let sink = Sink::new(blobs.clone(), shard, mode);
        BlobWriter { blobs, sink: Some(Box::new(sink)), pending: Vec::new(), pending_bytes: 0 }
    }

    /// Appends `bytes`; waits for the disk when a step's worth is gathered.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), StorageError> {
        while !bytes.is_empty() {
            let room = limits::BLOB_STEP_BYTES - self.pending_bytes;
            let piece = bytes.split_to(room.min(bytes.len()));
            self.pending_bytes += piece.len();
            self.pending.push(piece);
            if self.pending_bytes == limits::BLOB_STEP_BYTES {
                self.step(Sink::absorb).await?;
            }
        }
        Ok(())
    }

    /// Ends the upload: on return the bytes are durable, or small enough to travel with the edit, and leased as long as
    /// [`Staged::hold`] lives.
    pub async fn finish(mut self) -> Result<Staged, StorageError> {
        self.step(|sink, pieces| {
            sink.absorb(pieces)?;
            sink.finish()
        })
        .await
    }

    async fn step<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Sink, Vec<Bytes>) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let Some(mut sink) = self.sink.take() else {
            return Err(StorageError::Io("an upload went on after an error".into()));
        };
        let pieces = mem::take(&mut self.pending);
        self.pending_bytes = 0;
        let env = self.blobs.0.env.clone();
        let (done, sink) = env
            .blocking(Pool::Foreground, move || {
                let done = work(&mut sink, pieces);
                (done, sink)
            })
            .await;
        let done = done?;
        self.sink = Some(sink);
        Ok(done)
    }
}

/// Where the bytes of an upload go; lives in the steps.
struct Sink {
    blobs: BlobStore,
    shard: u64,
    mode: StageMode,
    /// Compressed: what comes out of it is the stored form.
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Stored form that is not hashed and written yet.
    waiting: Vec<u8>,
    file: Option<(PathBuf, Arc<dyn File>)>,
    plain: u64,
    stored: u64,
    md5: Md5,
    blake3: blake3::Hasher,
}

impl Sink {
    fn new(blobs: BlobStore, shard: u64, mode: StageMode) -> Self {
        Sink {
            blobs,
            shard,
            mode,
            gzip: if let StageMode::Compress(level) = mode { Some(gzip(level)) } else { None },
            waiting: Vec::new(),
            file: None,
            plain: 0,
            stored: 0,
            md5: Md5::new(),
            blake3: blake3::Hasher::new(),
        }
    }

    fn absorb(&mut self, pieces: Vec<Bytes>) -> Result<(), StorageError> {
        self.blobs.0.room.check()?;
        for piece in pieces {
            self.plain += piece.len() as u64;
            match &mut self.gzip {
                Some(gzip) => {
                    gzip.write_all(&piece)?;
                    self.waiting.append(gzip.get_mut());
                }
                None => self.waiting.extend_from_slice(&piece),
            }
        }
        // As long as it may still become an inline blob it has no file.
        if self.file.is_some() || self.waiting.len() > limits::BLOB_INLINE_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hashes what is waiting and writes it to the file.
    fn flush(&mut self) -> Result<(), StorageError> {
        if self.file.is_none() {
            let path = self.blobs.0.temporary()?;
            let file = self.create(&path)?;
            self.file = Some((path, file));
        }
        let Some((_, file)) = &self.file else { return Ok(()) };
        file.write_at(self.stored, &self.waiting)?;
        self.hash();
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn File>, StorageError> {
        let file = self.blobs.0.disk.open(path, OpenMode::CreateNew)?;
        Ok(Arc::new(BlockFile::create(file, Kind::Blob)?))
    }

    fn hash(&mut self) {
        self.md5.update(&self.waiting);
        self.blake3.update(&self.waiting);
        self.stored += self.waiting.len() as u64;
        self.waiting.clear();
    }

    fn finish(&mut self) -> Result<Staged, StorageError> {
        if let Some(gzip) = self.gzip.take() {
            self.waiting.extend(gzip.finish()?);
        }
        if self.file.is_none() && self.waiting.len() <= limits::BLOB_INLINE_BYTES {
            let bytes = mem::take(&mut self.waiting);
            self.waiting.extend_from_slice(&bytes);
            self.hash();
            if let Some(hold) = self.lease(Some(Bytes::from(bytes.clone()))) {
                return Ok(self.staged(hold));
            }
            // No room left in memory: it becomes a file, hashed already.
            let path = self.blobs.0.temporary()?;
            let file = self.create(&path)?;
            file.write_at(0, &bytes)?;
            self.file = Some((path, file));
        } else {
            self.flush()?;
        }
        let hold = self.name()?;
        Ok(self.staged(hold))
    }

    fn blob(&self) -> BlobId {
        *self.blake3.finalize().as_bytes()
    }

    fn staged(&self, hold: Hold) -> Staged {
        let compressed = self.mode != StageMode::Plain;
        Staged {
            hold,
            blob: self.blob(),
            digest: self.md5.clone().finalize().into(),
            length: if self.mode == StageMode::AlreadyGzip { self.stored } else { self.plain },
            stored_length: self.stored,
            encoding: if compressed { Encoding::Gzip } else { Encoding::Identity },
        }
    }

    fn lease(&self, inline: Option<Bytes>) -> Option<Hold> {
        let now = self.blobs.0.env.now();
        self.blobs.0.leases.hold((self.shard, self.blob()), inline, now)
    }

    /// Syncs the file and gives it its name. The lease comes first: see `lease.rs`.
    fn name(&mut self) -> Result<Hold, StorageError> {
        let Some((temporary, file)) = &self.file else {
            return Err(StorageError::Io("an upload has lost its file".into()));
        };
        file.sync()?;
        // Invariant: only inline bytes can lack room.
        let hold = self.lease(None).expect("a lease without bytes");
        let inner = &self.blobs.0;
        let path = inner.file(&(self.shard, self.blob()));
        if let Some(dir) = path.parent() {
            inner.make_durable(dir)?;
            inner.disk.rename(temporary, &path)?;
            inner.disk.sync_dir(dir)?;
        }
        self.file = None;
        Ok(hold)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        if let Some((path, _)) = self.file.take() {
            self.blobs.abandoned(path);
        }
    }
}

/// A compressor whose output equals that of C zlib as CouchDB calls it: header without name and time, memory level 8.
fn gzip(level: u32) -> GzEncoder<Vec<u8>> {
    GzBuilder::new().operating_system(GZIP_SYSTEM_UNIX).write(Vec::new(), Compression::new(level))
}

/// The stored form of `plain` when it is compressed.
#[cfg(test)]
pub(super) fn compress(plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut gzip = gzip(limits::ATTACHMENT_COMPRESSION_LEVEL);
    gzip.write_all(plain)?;
    gzip.finish()
}
