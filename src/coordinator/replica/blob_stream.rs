//! Streams of stored attachment bytes between nodes: read piece by piece, decompressed here where plain bytes are
//! wanted, and pulled into a replica that lacks them.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::MultiGzDecoder;

use crate::coordinator::replica::blob_stream;
use crate::coordinator::replica::calls::Blob;
use crate::coordinator::replica::range_replica::ReplicaBlobReader;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::document::render::{Attachment, BlobId, Encoding};
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Basis, Edit, EditAttachment, EditError, ShardError, ShardReplica};
use crate::storage::{Hold, ReadAs, StageMode, StorageError};
use crate::world::Env;

/// An attachment read from a replica on another node.
pub(in crate::coordinator) struct RemoteBlob {
    replica: RemoteReplica,
    attachment: Attachment,
    at: u64,
    end: u64,
    /// Unzips what was stored zipped.
    gunzip: Option<MultiGzDecoder<Vec<u8>>>,
    /// Zipped bytes that were read and not unzipped yet.
    zipped: Bytes,
}

impl std::fmt::Debug for RemoteBlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RemoteBlob")
    }
}

impl RemoteBlob {
    /// See [`ShardReplica::blob_reader`].
    pub fn new(
        replica: &RemoteReplica,
        attachment: &Attachment,
        read: ReadAs,
        range: Option<(u64, u64)>,
    ) -> RemoteBlob {
        let zipped = read == ReadAs::Plain && attachment.encoding == Encoding::Gzip;
        let (at, end) = range.unwrap_or((0, attachment.stored_length));
        RemoteBlob {
            replica: replica.clone(),
            attachment: attachment.clone(),
            at,
            end: end.min(attachment.stored_length),
            gunzip: zipped.then(|| MultiGzDecoder::new(Vec::new())),
            zipped: Bytes::new(),
        }
    }

    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ShardError> {
        loop {
            if self.zipped.is_empty() {
                let Some(piece) = self.piece().await? else { return Ok(None) };
                if self.gunzip.is_none() {
                    return Ok(Some(piece));
                }
                self.zipped = piece;
            }
            let plain = self.unzip()?;
            if !plain.is_empty() {
                return Ok(Some(plain));
            }
        }
    }

    /// The next stored bytes.
    async fn piece(&mut self) -> Result<Option<Bytes>, ShardError> {
        if self.at >= self.end {
            return Ok(None);
        }
        let mut piece = self.replica.ask(Blob { attachment: self.attachment.clone(), at: self.at }).await?;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        piece.truncate(left);
        if piece.is_empty() {
            let why = format!("the attachment {} is cut short on another node", self.attachment.name);
            return Err(StorageError::Corrupt(why).into());
        }
        self.at += piece.len() as u64;
        Ok(Some(piece))
    }

    /// Unzips a bounded number of bytes.
    fn unzip(&mut self) -> Result<Bytes, ShardError> {
        let Some(gunzip) = &mut self.gunzip else { return Ok(Bytes::new()) };
        let step = self.zipped.split_to(self.zipped.len().min(limits::HTTP_INFLATE_STEP_BYTES));
        let damaged = |error: std::io::Error| StorageError::Corrupt(error.to_string());
        gunzip.write_all(&step).map_err(damaged)?;
        if self.zipped.is_empty() && self.at >= self.end {
            gunzip.try_finish().map_err(damaged)?;
        }
        Ok(Bytes::from(std::mem::take(gunzip.get_mut())))
    }
}

/// A content named by its hash, for edits that bring none.
pub(in crate::coordinator) fn blobs_of(edits: &[Edit]) -> impl Iterator<Item = &Attachment> {
    let mut seen: BTreeSet<BlobId> = BTreeSet::new();
    let new = edits.iter().flat_map(|edit| &edit.attachments).filter_map(|attachment| match attachment {
        EditAttachment::New(attachment) => Some(attachment),
        EditAttachment::Stub { .. } => None,
    });
    new.filter(move |attachment| seen.insert(attachment.blob))
}

/// Pulls what edits name and the replica lacks from a replica on another node; the bytes stay as long as what is
/// answered.
pub(in crate::coordinator) async fn pull(
    replica: &ShardReplica,
    edits: &[Edit],
    source: &RemoteReplica,
) -> Result<Vec<Arc<Hold>>, ShardError> {
    let mut holds = Vec::new();
    for attachment in blobs_of(edits) {
        if !replica.holds_blob(attachment).await? {
            holds.push(Arc::new(pull_one(replica, attachment, source).await?));
        }
    }
    Ok(holds)
}

/// Brings an attachment from one replica of this node to another that may lack it.
pub(in crate::coordinator) async fn carry(
    from: &ShardReplica,
    to: &ShardReplica,
    attachment: &Attachment,
) -> Result<Option<Hold>, ShardError> {
    if to.holds_blob(attachment).await? {
        return Ok(None);
    }
    let reader = ReplicaBlobReader::Own(from.blob_reader(attachment, ReadAs::Stored, None));
    bring(to, attachment, reader).await.map(Some)
}

async fn pull_one(replica: &ShardReplica, attachment: &Attachment, source: &RemoteReplica) -> Result<Hold, ShardError> {
    let reader = RemoteBlob::new(source, attachment, ReadAs::Stored, None);
    bring(replica, attachment, ReplicaBlobReader::Remote(Box::new(reader))).await
}

/// Brings good bytes of an attachment from another node when those of this node's replica turn out damaged.
#[derive(Debug)]
pub(in crate::coordinator) struct Mender {
    pub replica: ShardReplica,
    pub attachment: Attachment,
    pub source: RemoteReplica,
}

impl Mender {
    /// Does it in the background. The one that reads meanwhile keeps the damaged file.
    pub fn start(self, env: &Env) {
        env.spawn(async move {
            let Mender { replica, attachment, source } = self;
            match pull_one(&replica, &attachment, &source).await {
                Ok(_) => {
                    tracing::info!(name = attachment.name, "a damaged attachment was replaced from another replica")
                }
                Err(error) => tracing::warn!(%error, name = attachment.name, "a damaged attachment stays damaged"),
            }
        });
    }
}

/// Stages what a reader of stored bytes gives.
async fn bring(
    replica: &ShardReplica,
    attachment: &Attachment,
    mut reader: ReplicaBlobReader,
) -> Result<Hold, ShardError> {
    let mode = match attachment.encoding {
        Encoding::Identity => StageMode::Plain,
        Encoding::Gzip => StageMode::AlreadyGzip,
    };
    let mut writer = replica.stage(mode);
    while let Some(piece) = reader.next().await? {
        writer.write(piece).await?;
    }
    let staged = writer.finish().await?;
    match staged.blob == attachment.blob {
        true => Ok(staged.hold),
        false => Err(StorageError::Corrupt(format!("the attachment {} arrived damaged", attachment.name)).into()),
    }
}

/// Merges revisions into a replica of this node, with the uploads that `source` has of them; where that is this node,
/// they wait in the replica.
pub(in crate::coordinator) async fn merge_here(
    replica: &ShardReplica,
    merges: &[Edit],
    source: &RemoteReplica,
    basis: &Basis,
) -> Result<Vec<Result<Revision, EditError>>, ShardError> {
    let _holds = match source.is_here() {
        true => Vec::new(),
        false => blob_stream::pull(replica, merges, source).await?,
    };
    replica.edit_validated(merges.iter().map(|edit| (edit.clone(), basis.clone())).collect()).await
}
