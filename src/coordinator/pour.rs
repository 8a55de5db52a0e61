//! A database that lost its name to another instance: its documents are written into that one, then its shards go.
//!
//! Its record stands aside in the store until that is done, so that a stop of the node only delays it. Every node that
//! holds copies does it for its own; what another node wrote already is known and costs a comparison.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::database::Database;
use crate::coordinator::error::WriteError;
use crate::coordinator::read_quorum::merge_of_stored;
use crate::coordinator::record::{self, Record};
use crate::coordinator::validate::Caller;
use crate::coordinator::write::{Plan, WriteOptions};
use crate::document::id::DocId;
use crate::document::render::{Attachment, Encoding};
use crate::document::rev_tree::RevValue as _;
use crate::limits;
use crate::shard::{Fetched, ShardCopy, ShardError, ShardId, Want};
use crate::storage::{Direction, Hold, KeyRange, ReadAs, StageMode, StorageError, View, WriteView};
use crate::world::buggify::{Mutation, mutated};

type Aside = (Vec<u8>, String, Record);

impl Coordinator {
    /// Empties the databases that stand aside, in the background; tries again until that is done.
    pub(super) fn pour_aside(&self) {
        let coordinator = self.clone();
        self.env().spawn(async move {
            while let Err(error) = coordinator.pour_all().await {
                tracing::warn!(?error, "the documents of a database that lost its name are not written yet");
                coordinator.env().sleep(limits::POUR_PAUSE).await;
            }
        });
    }

    /// Each alone; fails where one failed.
    async fn pour_all(&self) -> Result<(), WriteError> {
        let _alone = self.context().pouring.lock().await;
        let mut done = Ok(());
        for aside in self.asides().await? {
            done = self.pour_one(aside).await.and(done);
        }
        self.drop_shards_later();
        done
    }

    async fn pour_one(&self, (key, name, record): Aside) -> Result<(), WriteError> {
        if let Ok(database) = self.database(&name)
            && !mutated(Mutation::InstanceLosesSide)
        {
            for shard in record.shards.iter().filter(|shard| **shard != 0) {
                let copy = ShardCopy::open(&self.context().storage, ShardId(*shard)).await?;
                database.pour(&copy).await?;
            }
        }
        let job = move |view: &mut WriteView<'_>| {
            drop_aside(view, key, &record);
            Ok(Ok::<(), ShardError>(()))
        };
        Ok(self.context().storage.committer().submit(job).await.map_err(ShardError::from)??)
    }

    async fn asides(&self) -> Result<Vec<Aside>, ShardError> {
        let read = |view: &dyn View| {
            let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            view.scan(&KeyRange::prefix(&record::aside_prefix()), Direction::Forward, &mut |key, value| {
                rows.push((key.to_vec(), value.to_vec()));
                if rows.len() < limits::STEP_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            Ok(rows)
        };
        let mut out = Vec::new();
        for (key, value) in self.context().storage.read(read).await? {
            let text = String::from_utf8_lossy(&key[record::aside_prefix().len()..]).into_owned();
            let name = text.split('\0').next().unwrap_or_default().to_owned();
            out.push((key, name, Record::decode(&value)?));
        }
        Ok(out)
    }
}

fn drop_aside(view: &mut WriteView<'_>, key: Vec<u8>, record: &Record) {
    view.delete(key);
    record.all_shards().for_each(|shard| view.put(record::drop_key(shard), Vec::new()));
}

/// Drops what stands aside for a database that is deleted: another one of that name is not to get its documents.
pub(super) fn drop_asides_of(view: &mut WriteView<'_>, name: &str) -> Result<(), StorageError> {
    let mut rows: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    view.scan(&KeyRange::prefix(&record::aside_key(name, "")), Direction::Forward, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    })?;
    for (key, value) in rows {
        drop_aside(view, key, &Record::decode(&value)?);
    }
    Ok(())
}

impl Database {
    /// Writes all documents of a copy into this database, as replication would.
    async fn pour(&self, from: &ShardCopy) -> Result<(), WriteError> {
        let mut since = 0;
        loop {
            let page = from.changes(since, Direction::Forward, limits::DOCS_PER_FETCH).await?;
            since = page.last_seq;
            let is_last = page.rows.len() < limits::DOCS_PER_FETCH;
            let wants = page.rows.into_iter().map(|row| (row.id, Want::Leaves)).collect::<Vec<_>>();
            let ids: Vec<DocId> = wants.iter().map(|(id, _)| id.clone()).collect();
            for (id, fetched) in ids.iter().zip(from.fetch(wants).await?) {
                if let Some(fetched) = fetched {
                    self.pour_document(from, id, fetched).await?;
                }
            }
            if is_last {
                break;
            }
        }
        let mut after = std::ops::Bound::Unbounded;
        loop {
            let page = from.local_registers(after, limits::STEP_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = std::ops::Bound::Excluded(last.clone());
            for (id, register) in page {
                if self.get_local(&id, None).await?.is_none() {
                    self.set_local(&id, register.document, None).await?;
                }
            }
        }
    }

    async fn pour_document(&self, from: &ShardCopy, id: &DocId, fetched: Fetched) -> Result<(), WriteError> {
        let mut plans = Vec::new();
        for (rev, stored) in &fetched.found {
            let (Some(stored), Some(path)) = (stored, fetched.tree.path_to(rev)) else { continue };
            let deleted = fetched.tree.get(rev).flatten().is_some_and(|data| data.is_deleted());
            let Some(edit) = merge_of_stored(id, path, deleted, stored, self.revs_limit()) else { continue };
            let mut plan = Plan::edit(edit, None);
            for attachment in &stored.attachments {
                let (hold, node) = self.pour_attachment(from, id, attachment).await?;
                plan.holds.extend(hold);
                plan.source = Some(node);
            }
            plans.push(plan);
        }
        let options = WriteOptions { new_edits: false, w: None, caller: Arc::new(Caller::node()) };
        let outcomes: BTreeMap<usize, _> = self.apply(plans, &options).await.into_iter().enumerate().collect();
        match outcomes.into_values().find_map(Result::err) {
            Some(error) if error.is_lost() => Err(error),
            Some(error) => {
                tracing::warn!(database = self.name, %id, ?error, "a document of the lost instance is refused");
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn pour_attachment(
        &self,
        from: &ShardCopy,
        id: &DocId,
        attachment: &Attachment,
    ) -> Result<(Option<Hold>, Arc<str>), WriteError> {
        let mode = match attachment.encoding {
            Encoding::Identity => StageMode::Plain,
            Encoding::Gzip => StageMode::AlreadyGzip,
        };
        let mut reader = from.blob_reader(attachment, ReadAs::Stored, None);
        let (mut writer, node) = self.stage(id, mode).await?;
        while let Some(piece) = reader.next().await? {
            writer.write(piece).await?;
        }
        Ok((writer.finish().await?.1, node))
    }
}
