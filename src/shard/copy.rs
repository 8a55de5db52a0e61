//! The handle on an open shard copy.

use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::{
    ChangesPage, Edit, EditError, Fetched, ListPage, ListRow, LocalDocument, PurgeInfo, ShardError, ShardId, ShardInfo,
    Want,
};
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::revision::Revision;
use crate::storage::{BlobReader, BlobWriter, Direction, ReadAs, StageMode, Storage};

/// An open shard copy; a cheap handle. Open each shard once per node: its watch channel lives here.
#[derive(Clone, Debug)]
pub struct ShardCopy(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) storage: Storage,
    pub(super) shard: ShardId,
    pub(super) committed: watch::Sender<u64>,
}

impl ShardCopy {
    /// Opens a shard; one without any record is empty. Reads its header.
    pub async fn open(_storage: &Storage, _shard: ShardId) -> Result<ShardCopy, ShardError> {
        todo!()
    }

    /// Its number.
    pub fn id(&self) -> ShardId {
        self.0.shard
    }

    /// Refuses all further calls with [`ShardError::Dropped`]; edits queued before still count.
    pub fn close(&self) {
        todo!()
    }

    /// Judges and stores edits in order, each alone, in one commit; durable on return. Results stand in request order.
    pub async fn edit(&self, _edits: Vec<Edit>) -> Result<Vec<Result<Revision, EditError>>, ShardError> {
        todo!()
    }

    /// Reads documents; results stand in request order, `None` for unknown documents.
    pub async fn fetch(&self, _wants: Vec<(DocId, Want)>) -> Result<Vec<Option<Fetched>>, ShardError> {
        todo!()
    }

    /// Live documents in id order.
    pub async fn list(&self, _page: ListPage) -> Result<Vec<ListRow>, ShardError> {
        todo!()
    }

    /// How many live documents have ids in the range (for `offset`).
    pub async fn count(&self, _start: Bound<DocId>, _end: Bound<DocId>) -> Result<u64, ShardError> {
        todo!()
    }

    /// Changes behind `since`, ascending; or descending those before it (start with `u64::MAX`).
    pub async fn changes(&self, _since: u64, _direction: Direction, _limit: usize) -> Result<ChangesPage, ShardError> {
        todo!()
    }

    /// How many documents changed last behind `seq` (for `pending`). Costs O(blocks).
    pub async fn count_since(&self, _seq: u64) -> Result<u64, ShardError> {
        todo!()
    }

    /// The counters.
    pub async fn info(&self) -> Result<ShardInfo, ShardError> {
        todo!()
    }

    /// The last committed sequence; changes only after the commit is durable.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.committed.subscribe()
    }

    /// Removes leaves for good, with the history that only they have. Answers per item the leaves removed.
    pub async fn purge(&self, _items: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<Vec<Revision>>, ShardError> {
        todo!()
    }

    /// The purge log behind `since` (0 = from its start), oldest first, at most `limit` entries.
    pub async fn purge_infos(&self, _since: u64, _limit: usize) -> Result<Vec<PurgeInfo>, ShardError> {
        todo!()
    }

    /// Removes bodies of revisions that are no leaves, in bounded steps, and all of the purge log but its last
    /// `purge_infos_limit` entries. Runs in the background pool; returns when done.
    pub async fn compact(&self, _purge_infos_limit: u64) -> Result<(), ShardError> {
        todo!()
    }

    /// A local document; `id` begins with `_local/`.
    pub async fn local_get(&self, _id: &DocId) -> Result<Option<LocalDocument>, ShardError> {
        todo!()
    }

    /// Stores a local document whatever was there. The caller chooses the revision number (golden facts 'Local
    /// documents': one more than the given one, 1 without).
    pub async fn local_put(&self, _id: &DocId, _document: LocalDocument) -> Result<(), ShardError> {
        todo!()
    }

    /// Removes a local document; false when there was none.
    pub async fn local_delete(&self, _id: &DocId) -> Result<bool, ShardError> {
        todo!()
    }

    /// Local documents in id order, at most `limit`.
    pub async fn local_list(
        &self,
        _start: Bound<DocId>,
        _end: Bound<DocId>,
        _direction: Direction,
        _limit: usize,
    ) -> Result<Vec<(DocId, LocalDocument)>, ShardError> {
        todo!()
    }

    /// A small value of the shard that is no document, such as its epochs or the database's `_security`.
    pub async fn meta_get(&self, _name: &str) -> Result<Option<Vec<u8>>, ShardError> {
        todo!()
    }

    /// Stores such a value, durable on return; `None` removes it.
    pub async fn meta_put(&self, _name: &str, _value: Option<Vec<u8>>) -> Result<(), ShardError> {
        todo!()
    }

    /// Starts the upload of an attachment.
    pub fn stage(&self, mode: StageMode) -> BlobWriter {
        self.0.storage.blobs().writer(self.0.shard.0, mode)
    }

    /// Reads an attachment; `range` = first byte and the one behind the last. It must be `None` when stored gzip is read
    /// as plain bytes.
    pub fn blob_reader(&self, attachment: &Attachment, read: ReadAs, range: Option<(u64, u64)>) -> BlobReader {
        self.0.storage.blobs().reader(self.0.shard.0, attachment, read, range)
    }
}
