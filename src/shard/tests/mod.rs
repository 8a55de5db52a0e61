//! Scenarios on a shard over a real store in a temporary directory.

mod attachments;
mod collection_horizon;
mod documents;
mod lifetime;
mod model;
mod reads;
mod space;
mod split;
mod sums;
mod tombstone_collection;

use std::sync::Arc;

use super::{
    Edit, EditAttachment, EditError, EditOp, Pace, RevPath, Revision, ShardId, ShardReplica, StoredRevision, Want,
};
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json;
use crate::storage::{Storage, StorageOptions};

const SHARD: ShardId = ShardId(20);

/// A shard that can be closed and opened again.
pub(super) struct World {
    dir: tempfile::TempDir,
    pub storage: Storage,
    pub shard: ShardReplica,
}

impl World {
    pub(super) async fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        let (storage, shard) = open(&dir).await;
        World { dir, storage, shard }
    }

    /// Closes everything and opens it from disk.
    pub(super) async fn reopen(self) -> World {
        let World { dir, storage, shard } = self;
        drop((storage, shard));
        let (storage, shard) = open(&dir).await;
        World { dir, storage, shard }
    }

    pub(super) async fn edit(&self, edit: Edit) -> Result<Revision, EditError> {
        self.shard.edit(vec![edit]).await.unwrap().remove(0)
    }

    pub(super) async fn compact(&self, purge_infos_limit: u64) {
        self.shard.compact(purge_infos_limit, Pace::new(self.storage.env(), 0)).await.unwrap();
    }

    pub(super) async fn put(&self, id: &str, parent: Option<&Revision>, body: &str) -> Result<Revision, EditError> {
        self.edit(interactive(id, parent, false, body)).await
    }

    pub(super) async fn delete(&self, id: &str, parent: Option<&Revision>) -> Result<Revision, EditError> {
        self.edit(interactive(id, parent, true, "{}")).await
    }

    pub(super) async fn winner(&self, id: &str) -> Option<StoredRevision> {
        let fetched = self.shard.fetch(vec![(DocId::new(id), Want::Winner)]).await.unwrap().remove(0)?;
        fetched.found.into_iter().next().and_then(|(_, stored)| stored)
    }
}

/// The lock of the directory goes with the last handle, which a background task may hold for a moment.
async fn open(dir: &tempfile::TempDir) -> (Storage, ShardReplica) {
    let env = crate::world::tokio_host::env(tokio::runtime::Handle::current());
    let storage = loop {
        match Storage::open(env.clone(), dir.path(), StorageOptions { cache_bytes: 1 << 20, ..Default::default() })
            .await
        {
            Ok(storage) => break storage,
            Err(crate::storage::OpenError::Locked(_)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let shard = ShardReplica::open(&storage, SHARD).await.unwrap();
    (storage, shard)
}

pub(super) fn body(text: &str) -> Arc<PreparedBody> {
    let json::Value::Object(object) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
    Arc::new(PreparedBody::new(&object))
}

pub(super) fn interactive(id: &str, parent: Option<&Revision>, deleted: bool, text: &str) -> Edit {
    let op = EditOp::Interactive { parent: parent.cloned() };
    Edit { id: DocId::new(id), op, deleted, body: body(text), attachments: Vec::new(), revs_limit: 1000 }
}

pub(super) fn merge(id: &str, path: RevPath, deleted: bool, text: &str) -> Edit {
    let op = EditOp::Merge { path };
    Edit { op, ..interactive(id, None, deleted, text) }
}

pub(super) fn rev(text: &str) -> Revision {
    Revision::parse(text).unwrap()
}

/// A path from revisions, newest first.
pub(super) fn path(revs: &[&str]) -> RevPath {
    let revs: Vec<Revision> = revs.iter().map(|r| rev(r)).collect();
    RevPath { start: revs[0].pos, ids: revs.into_iter().map(|r| r.hash).collect() }
}

pub(super) fn stub(name: &str, revpos: Option<u64>) -> EditAttachment {
    EditAttachment::Stub { name: name.to_owned(), revpos, bytes: None }
}
