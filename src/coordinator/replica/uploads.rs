//! Uploads of other nodes to replicas of this node, piece by piece.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

use crate::document::render::Attachment;
use crate::limits;
use crate::shard::ShardError;
use crate::storage::BlobWriter;
use crate::world::{Env, Instant};

/// The uploads under way by number. A writer is taken out while it is used.
#[derive(Default)]
pub(in crate::coordinator) struct Uploads(
    // A blocking lock: held for map operations only, never across an await.
    Mutex<BTreeMap<u64, (Instant, BlobWriter)>>,
);

fn gone() -> ShardError {
    ShardError::NotExecuted("the upload is not known, or was given up".to_owned())
}

impl Uploads {
    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Instant, BlobWriter)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an upload in; those that nobody went on with for long are given up.
    pub fn begin(&self, env: &Env, writer: BlobWriter) -> Result<u64, ShardError> {
        let (now, number) = (env.now(), env.random_u64());
        let mut table = self.table();
        table.retain(|_, (used, _)| now.since(*used) < limits::UPLOAD_IDLE);
        if table.len() >= limits::REMOTE_UPLOADS {
            return Err(ShardError::NotExecuted("too many uploads".to_owned()));
        }
        table.insert(number, (now, writer));
        Ok(number)
    }

    fn take(&self, number: u64) -> Result<BlobWriter, ShardError> {
        self.table().remove(&number).map(|(_, writer)| writer).ok_or_else(gone)
    }

    /// Writes the next bytes; after an error the upload is given up.
    pub async fn write(&self, env: &Env, number: u64, data: Bytes) -> Result<(), ShardError> {
        let mut writer = self.take(number)?;
        writer.write(data).await?;
        self.table().insert(number, (env.now(), writer));
        Ok(())
    }

    /// Ends an upload. Its bytes wait for their edit for `limits::BLOB_LEASE`.
    pub async fn finish(&self, number: u64) -> Result<Attachment, ShardError> {
        Ok(self.take(number)?.finish().await?.attachment("", "", 0))
    }
}
