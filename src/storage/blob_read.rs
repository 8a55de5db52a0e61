//! Reads of a blob in bounded steps, as stored or as plain bytes, whole or a range.
//!
//! A stream holds at most one step of output and one read buffer. Every block is checked before it is handed on, and a
//! whole read is checked against the content's hash at its end.

use std::io::{self, BufReader, Read};
use std::sync::Arc;

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;
use serde::{Deserialize, Serialize};

use super::blob::BlobStore;
use super::kv::StorageError;
use super::lease::BlobKey;
use crate::document::render::{Attachment, Encoding};
use crate::limits;
use crate::world::{File, Pool};

/// In which form a reader wants the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadAs {
    /// As they are stored: gzip where the attachment is compressed.
    Stored,
    /// As they were uploaded.
    Plain,
}

/// The stored bytes of a blob.
pub(super) struct Source {
    content: Content,
    at: u64,
    end: u64,
    /// For whole reads: the running hash and what it must become.
    check: Option<(Box<blake3::Hasher>, [u8; 32])>,
}

enum Content {
    Inline(Bytes),
    File(Arc<dyn File>),
}

impl Source {
    pub(super) fn inline(bytes: Bytes) -> Self {
        let end = bytes.len() as u64;
        Source { content: Content::Inline(bytes), at: 0, end, check: None }
    }

    pub(super) fn file(file: Arc<dyn File>, len: u64) -> Self {
        Source { content: Content::File(file), at: 0, end: len, check: None }
    }
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let wanted = out.len().min((self.end - self.at) as usize);
        let out = &mut out[..wanted];
        match &self.content {
            Content::Inline(bytes) => out.copy_from_slice(&bytes[self.at as usize..self.at as usize + wanted]),
            Content::File(file) => file.read_at(self.at, out)?,
        }
        self.at += wanted as u64;
        if let Some((hasher, expected)) = &mut self.check {
            hasher.update(out);
            if self.at == self.end && hasher.finalize().as_bytes() != expected {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "an attachment's bytes do not fit its hash"));
            }
        }
        Ok(wanted)
    }
}

impl BlobStore {
    /// Reads all of a blob and compares it with its hash. `small`: what the ordered store has of it. Blocks.
    pub fn verify(
        &self,
        key: &BlobKey,
        stored_length: u64,
        small: Result<Option<Vec<u8>>, StorageError>,
    ) -> Result<(), StorageError> {
        let mut source = match small? {
            Some(bytes) if bytes.len() as u64 == stored_length => Source::inline(Bytes::from(bytes)),
            Some(_) => return Err(StorageError::Corrupt("a small attachment has another length".into())),
            None => self.0.open_file(key, stored_length)?,
        };
        source.check = Some((Box::default(), key.1));
        io::copy(&mut source, &mut io::sink())?;
        Ok(())
    }
}

enum Stage {
    Unopened,
    Open(Box<dyn Read + Send>),
    Done,
}

/// A stream of an attachment's bytes. Dropping it early is fine.
pub struct BlobReader {
    blobs: BlobStore,
    key: BlobKey,
    stored_length: u64,
    gunzip: bool,
    range: Option<(u64, u64)>,
    stage: Stage,
    /// Whether damage is noted.
    notes: bool,
}

impl std::fmt::Debug for BlobReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlobReader")
    }
}

impl BlobReader {
    pub(super) fn new(
        blobs: BlobStore,
        shard: u64,
        attachment: &Attachment,
        read: ReadAs,
        range: Option<(u64, u64)>,
    ) -> Self {
        let gunzip = read == ReadAs::Plain && attachment.encoding == Encoding::Gzip;
        assert!(!gunzip || range.is_none(), "a range of compressed bytes has no meaning for plain ones");
        BlobReader {
            blobs,
            key: (shard, attachment.blob),
            stored_length: attachment.stored_length,
            gunzip,
            range,
            stage: Stage::Unopened,
            notes: true,
        }
    }

    /// For one who reads what may be collected meanwhile, and notes damage himself once he knows that it is some.
    #[must_use]
    pub fn unnoted(self) -> Self {
        BlobReader { notes: false, ..self }
    }

    /// The next bytes, at most `limits::BLOB_STEP_BYTES`; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, StorageError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        if matches!(stage, Stage::Done) {
            return Ok(None);
        }
        let opening = (self.blobs.clone(), self.key, self.stored_length, self.gunzip, self.range);
        let env = self.blobs.0.env.clone();
        let read = env.blocking(Pool::Foreground, move || step(stage, opening)).await;
        let (bytes, stage) = if self.notes { self.blobs.0.damage.noted(read)? } else { read? };
        self.stage = stage;
        Ok(if bytes.is_empty() { None } else { Some(bytes) })
    }
}

type Opening = (BlobStore, BlobKey, u64, bool, Option<(u64, u64)>);

fn step(stage: Stage, opening: Opening) -> Result<(Bytes, Stage), StorageError> {
    let mut reader = match stage {
        Stage::Open(reader) => reader,
        Stage::Unopened | Stage::Done => open(opening)?,
    };
    let mut out = Vec::new();
    let read = reader.by_ref().take(limits::BLOB_STEP_BYTES as u64).read_to_end(&mut out);
    let read = read.map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => StorageError::Corrupt(error.to_string()),
        _ => error.into(),
    })?;
    let stage = if read < limits::BLOB_STEP_BYTES { Stage::Done } else { Stage::Open(reader) };
    Ok((Bytes::from(out), stage))
}

fn open((blobs, key, stored_length, gunzip, range): Opening) -> Result<Box<dyn Read + Send>, StorageError> {
    let mut source = blobs.0.open(&key, stored_length)?;
    match range {
        Some((start, end)) => {
            source.end = end.min(source.end);
            source.at = start.min(source.end);
        }
        None => source.check = Some((Box::default(), key.1)),
    }
    if gunzip {
        return Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, source))));
    }
    Ok(Box::new(source))
}
