//! Changes of the stored record of a database on this node.

use std::sync::Arc;

use crate::coordinator::replica::database::Database;
use crate::coordinator::topology::record::{self, Children, Record};
use crate::shard::ShardError;
use crate::storage::{StorageError, View, WriteView};

impl Database {
    /// Changes the record of the database durably; handles follow in the order of the commits.
    pub(in crate::coordinator) async fn write_record<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&mut Record, &mut WriteView<'_>) -> Result<T, ShardError> + Send + 'static,
    ) -> Result<T, ShardError> {
        let database = Arc::clone(self);
        let job = move |view: &mut WriteView<'_>| {
            let mut record = match database.stored_record(view)? {
                Ok(record) => record,
                Err(error) => return Ok(Err(error)),
            };
            let done = match change(&mut record, view) {
                Ok(done) => done,
                Err(error) => return Ok(Err(error)),
            };
            view.put(record::key(&database.name), record.encode());
            view.after_commit(move || {
                database.known.place(record);
                database.lay_out(Vec::new());
            });
            Ok(Ok(done))
        };
        self.context.storage.committer().submit(job).await?
    }

    /// The record as it is stored; `Dropped` when it is another database's, or another handle's, by now.
    pub(in crate::coordinator) fn stored_record(
        &self,
        view: &WriteView<'_>,
    ) -> Result<Result<Record, ShardError>, StorageError> {
        if self.is_gone() {
            return Ok(Err(ShardError::Dropped));
        }
        let Some(bytes) = view.get(&record::key(&self.name))? else { return Ok(Err(ShardError::Dropped)) };
        let record = Record::decode(&bytes)?;
        Ok(if record.instance == self.instance() { Ok(record) } else { Err(ShardError::Dropped) })
    }

    /// The child shards of a range that were begun and are not in its place yet.
    pub(in crate::coordinator) async fn children(&self, range: usize) -> Result<Option<Children>, ShardError> {
        let key = record::key(&self.name);
        let stored = self.context.storage.read(move |view: &dyn View| view.get(&key)).await?;
        let record = stored.map(|bytes| Record::decode(&bytes)).transpose()?;
        let children = |record: Record| record.children.into_iter().find(|children| children.range as usize == range);
        Ok(record.and_then(children))
    }
}
