//! Merge of superseded instances: of two databases of one name the older one keeps the name, and the documents of the
//! other one are written into it before its shards go.
//!
//! From the commit on that gives the name away, the record of the superseded instance is kept under another key, and
//! nothing more is stored in its shards. So whatever was acknowledged lies in them, on this node or on another node
//! that held replicas; each node writes its own part into the database that keeps the name. The shards go when a
//! majority of the replicas of each range there holds all that is in them, or when a client deletes either database,
//! and never otherwise. A stop of the node only delays the merge; what another node has written already costs one
//! comparison.
//!
//! The documents are merged as between replicas of one database: they were accepted before, so no validation function
//! sees them again, and what was purged in the target stays purged. While an instance is superseded, and until the
//! replicas hold what the others have, this node is not in sync. What cannot be read stays for the operator; it is
//! logged, and tried again at the next start.

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use futures_util::future::join_all;

use crate::coordinator::anti_entropy::{RepairOperations, SupersededMerge};
use crate::coordinator::read::quorum_read::merge_of_stored;
use crate::coordinator::replica::blob_stream::{self, blobs_of};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{Origin, merge_missing};
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::quorum::Written;
use crate::coordinator::topology::record::{self, Record};
use crate::coordinator::topology::superseded::drop_superseded;
use crate::coordinator::write::WriteOperations;
use crate::document::id::DocId;
use crate::document::render::{Attachment, Encoding, StoredRevision};
use crate::document::rev_tree::{RevTree, RevValue as _};
use crate::document::revision::Revision;
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::{Edit, RevData, ShardError, ShardId, ShardReplica, Want};
use crate::storage::{Direction, Hold, ReadAs, StageMode, StorageError, View, WriteView};
use crate::world::buggify::{Mutation, fewer, mutated};

/// A superseded instance.
pub(in crate::coordinator) struct Superseded {
    key: Vec<u8>,
    name: String,
    /// One that cannot be read keeps the others from nothing.
    record: Result<Record, StorageError>,
}

/// Until the coordinator goes: empties the superseded instances, at once when there are new ones, and again until
/// that is done.
pub(in crate::coordinator) async fn keep_merging_superseded(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let mut pause = limits::SUPERSEDED_PAUSE;
    loop {
        let Some(coordinator) = weak.upgrade() else { return };
        let run = worker.begin();
        let done = coordinator.merge_all_superseded().await;
        drop(run);
        if let Err(error) = &done {
            worker.failed(&format_args!("{error:?}"));
        }
        let context = Arc::clone(coordinator.context());
        drop(coordinator);
        match done {
            Ok(()) => {
                context.status.superseded.notified().await;
                pause = limits::SUPERSEDED_PAUSE;
            }
            // All else is written, and the replicas are filled.
            Err(error) if is_damage(&error) && context.status.unfilled().is_empty() => {
                tracing::error!(?error, "a superseded instance cannot be read: it stays");
                context.status.superseded.notified().await;
                pause = limits::SUPERSEDED_PAUSE;
            }
            Err(error) => {
                tracing::warn!(?error, "the documents of a database that lost its name are not written yet");
                context.env.sleep(pause).await;
                pause = (2 * pause).min(limits::SUPERSEDED_PAUSE_MAX);
            }
        }
    }
}

impl Coordinator {
    /// Each alone; fails where one failed. Damage is told only where nothing else failed: then all that can be read is
    /// written, and another attempt would come to the same.
    pub(in crate::coordinator) async fn merge_all_superseded(&self) -> Result<(), WriteError> {
        // Without the list nothing is written: that is tried again, whatever it failed for.
        let untold =
            |error: ShardError| ShardError::NotExecuted(format!("superseded instances cannot be listed: {error}"));
        let (context, superseded) = (self.context(), self.superseded("").await.map_err(untold)?);
        superseded.iter().for_each(|superseded| context.status.begins_anew(&superseded.name));
        let (mut done, mut damage, mut damaged) = (Ok(()), Ok(()), BTreeSet::new());
        for superseded in superseded {
            let key = superseded.key.clone();
            match self.merge_one_superseded(superseded).await {
                Err(error) if is_damage(&error) => {
                    damage = Err(error);
                    damaged.insert(key);
                }
                merged => done = merged.and(done),
            }
        }
        for (name, began) in context.status.unfilled() {
            done = self.fill(&name, began, &damaged).await.map_err(WriteError::from).and(done);
        }
        done.and(damage)
    }

    async fn merge_one_superseded(&self, superseded: Superseded) -> Result<(), WriteError> {
        // Superseded instances of a database goes with it: should it stand there behind this, it is to go into this
        // one.
        let Ok(database) = self.database(&superseded.name) else { return Ok(()) };
        let Superseded { key, record, .. } = superseded;
        let (storage, held) = (&self.context().storage, key.clone());
        if storage.read(move |view| view.get(&held)).await?.is_none() {
            return Ok(());
        }
        let record = record?;
        if !mutated(Mutation::InstanceLosesSide) {
            let mut done = Ok(());
            // What is left of a range that was split is in its halves, but for what these have purged since.
            let shards =
                record.shards.iter().enumerate().filter(|(range, shard)| **shard != 0 && !record.is_split(*range));
            for (_, shard) in shards {
                let merged = async {
                    database
                        .superseded_merge()
                        .merge_superseded(&ShardReplica::open(storage, ShardId(*shard)).await?)
                        .await
                };
                put_off(merged.await, &mut done)?;
            }
            done?;
        }
        let job = move |view: &mut WriteView<'_>| {
            // Should it have been deleted and have come again meanwhile, other shards stand there.
            let stands = view.get(&key)?.map(|stored| Record::decode(&stored)).transpose()?;
            if stands.as_ref() == Some(&record) {
                drop_superseded(view, key, &record);
            }
            Ok(Ok::<(), ShardError>(()))
        };
        storage.committer().submit(job).await.map_err(ShardError::from)??;
        self.drop_shards_later();
        Ok(())
    }

    /// Applies what the replicas of a database on the nodes that are there have, once no instance is superseded for it
    /// but what is `damaged`. `began`: how often the replicas here had begun anew before that was looked at.
    async fn fill(&self, name: &str, began: u64, damaged: &BTreeSet<Vec<u8>>) -> Result<(), ShardError> {
        let context = self.context();
        if let Ok(database) = self.database(name) {
            if !self.superseded(name).await?.iter().all(|superseded| damaged.contains(&superseded.key)) {
                return Ok(());
            }
            let others = database.settings().holders().into_iter().filter(|node| *node != context.node);
            for node in others.filter(|node| context.rank(node).is_some()) {
                database.pulls().pull_from(&node, false).await?;
            }
        }
        context.status.is_filled(name, began);
        self.tell_state();
        Ok(())
    }

    /// Superseded instances of a database, or for any.
    pub(in crate::coordinator) async fn superseded(&self, name: &str) -> Result<Vec<Superseded>, ShardError> {
        let prefix = match name {
            "" => record::superseded_prefix(),
            name => record::superseded_key(name, ""),
        };
        let read = |(key, value): (Vec<u8>, Vec<u8>)| {
            let (name, _) = record::instance_in(&key, &record::superseded_prefix()).unwrap_or_default();
            Superseded { key, name, record: Record::decode(&value) }
        };
        Ok(self.context().rows(&prefix).await?.into_iter().map(read).collect())
    }
}

/// Whether stored bytes cannot be read: the same every time.
fn is_damage(error: &WriteError) -> bool {
    matches!(error, WriteError::Unavailable(error) if error.is_damage())
}

/// Keeps what cannot be read for the end: it keeps nothing else from being written.
fn put_off(merged: Result<(), WriteError>, done: &mut Result<(), WriteError>) -> Result<(), WriteError> {
    match merged {
        Err(error) if is_damage(&error) => {
            *done = Err(error);
            Ok(())
        }
        merged => merged,
    }
}

/// Fails where fewer replicas than asked for took something in.
fn at_quorum(id: &DocId, written: Option<Written>, replicas: u32) -> Result<(), WriteError> {
    match written {
        Some(Written::Quorum) => Ok(()),
        _ => Err(ShardError::NotExecuted(format!("{id} is on {replicas} replicas only")).into()),
    }
}

impl SupersededMerge<'_> {
    /// Writes all documents of a replica into this database. Those that cannot be read keep the others from nothing.
    pub(in crate::coordinator) async fn merge_superseded(self, from: &ShardReplica) -> Result<(), WriteError> {
        let (mut since, mut done) = (0, Ok(()));
        loop {
            let most = fewer("pour: one document at a time", limits::DOCS_PER_FETCH);
            let page = match from.changes(since, Direction::Forward, most).await {
                Ok(page) => page,
                Err(error) => {
                    put_off(Err(error.into()), &mut done)?;
                    put_off(self.merge_around_damage(from).await, &mut done)?;
                    break;
                }
            };
            since = page.last_seq;
            let is_last = page.rows.len() < most;
            for merged in join_all(page.rows.iter().map(|row| self.merge_superseded_document(from, &row.id))).await {
                put_off(merged, &mut done)?;
            }
            if is_last {
                break;
            }
        }
        self.merge_superseded_locals(from).await.and(done)
    }

    /// Writes the documents whose records can be read, where rows of changes cannot.
    async fn merge_around_damage(self, from: &ShardReplica) -> Result<(), WriteError> {
        let (mut documents, mut done) = (from.recover_documents(), Ok(()));
        while let Some(rows) = documents.next().await? {
            for (_, id) in rows.into_iter().flatten() {
                put_off(self.merge_superseded_document(from, &id).await, &mut done)?;
            }
        }
        done
    }

    async fn merge_superseded_locals(self, from: &ShardReplica) -> Result<(), WriteError> {
        let (mut locals, mut done) = (from.recover_locals(), Ok(()));
        while let Some(rows) = locals.next().await? {
            for row in rows {
                let damaged = || StorageError::Corrupt("a local document cannot be read".to_owned()).into();
                let merged = match row {
                    Some((id, register)) => {
                        let (written, replicas) = self.locals().merge_local(&id, register).await;
                        at_quorum(&id, written, replicas)
                    }
                    None => Err(damaged()),
                };
                put_off(merged, &mut done)?;
            }
        }
        done
    }

    /// Merges the leaves of a document: one that cannot be read keeps the others from nothing.
    async fn merge_superseded_document(self, from: &ShardReplica, id: &DocId) -> Result<(), WriteError> {
        let (mut edits, mut bytes, mut done) = (Vec::new(), 0, Ok(()));
        for fetched in from.fetch(vec![(id.clone(), Want::Leaves)]).await?.iter().flatten() {
            for (rev, stored) in &fetched.found {
                match self.edit_of(id, &fetched.tree, (rev, stored.as_ref())) {
                    Ok(edit) => {
                        bytes += edit.body.text.len();
                        edits.push(edit);
                    }
                    Err(error) => put_off(Err(error.into()), &mut done)?,
                }
                if bytes > limits::PULL_BYTES || edits.len() == limits::EDITS_PER_STEP {
                    put_off(self.merge_superseded_leaves(from, id, std::mem::take(&mut edits)).await, &mut done)?;
                    bytes = 0;
                }
            }
        }
        put_off(self.merge_superseded_leaves(from, id, edits).await, &mut done)?;
        done
    }

    /// Merges leaves of a document together; each alone where an attachment of one of them cannot be read.
    async fn merge_superseded_leaves(
        self,
        from: &ShardReplica,
        id: &DocId,
        edits: Vec<Edit>,
    ) -> Result<(), WriteError> {
        let merged = self.merge_superseded_edits(from, id, &edits).await;
        if edits.len() < 2 || !merged.as_ref().is_err_and(is_damage) {
            return merged;
        }
        let mut done = Ok(());
        for edit in &edits {
            put_off(self.merge_superseded_edits(from, id, std::slice::from_ref(edit)).await, &mut done)?;
        }
        done
    }

    /// Merges leaves of a document into all replicas that can be reached.
    async fn merge_superseded_edits(self, from: &ShardReplica, id: &DocId, edits: &[Edit]) -> Result<(), WriteError> {
        if edits.is_empty() {
            return Ok(());
        }
        let layout = self.layout();
        let range = layout.map.index_of(id);
        let (_holds, source) = self.merge_superseded_blobs((&layout, range), from, id, edits).await?;
        let source = RemoteReplica::new(&self.target, range, &source);
        let merge = |replica: RangeReplica| {
            let (edits, source) = (edits.to_vec(), source.clone());
            async move { merge_missing(&replica, edits, &source, Origin::Anew).await }
        };
        let others = self.writer().on_others((&layout, range), None, merge, |_: &usize| true).await;
        let mut tally = layout.tally(range, None);
        others.count(&mut tally, drop).await;
        at_quorum(id, tally.written(), tally.held())
    }

    /// A leaf as an edit that merges it; fails where it cannot be read. A superseded instance is dropped once all of it
    /// is written: a leaf that was passed over would go with it.
    fn edit_of(
        self,
        id: &DocId,
        tree: &RevTree<RevData>,
        (rev, stored): (&Revision, Option<&StoredRevision>),
    ) -> Result<Edit, StorageError> {
        let edit = || {
            let (path, data) = (tree.path_to(rev)?, tree.get(rev).flatten()?);
            merge_of_stored(id, path, data.is_deleted(), stored?, self.revs_limit())
        };
        edit().ok_or_else(|| StorageError::Corrupt(format!("the leaf {rev} of {id} cannot be read")))
    }

    /// Brings the attachments of edits to this node's replica of their range; where it holds none, to another one.
    /// Answers what keeps them until they are named, and the node that they are on.
    async fn merge_superseded_blobs(
        self,
        (layout, range): (&Layout, usize),
        from: &ShardReplica,
        id: &DocId,
        edits: &[Edit],
    ) -> Result<(Vec<Hold>, Arc<str>), WriteError> {
        let own = match self.replicas().own_replica_by(layout, range).await {
            // What is damaged is this node's replica, and not a superseded instance: the others take it in.
            Err(error) if error.is_damage() => None,
            own => own?,
        };
        let mut holds = Vec::new();
        let mut source = Arc::clone(&self.context.node);
        for attachment in blobs_of(edits) {
            match &own {
                Some(own) => holds.extend(blob_stream::carry(from, &own.shard, attachment).await?),
                None => source = self.upload_blob(from, id, attachment).await?,
            }
        }
        Ok((holds, source))
    }

    async fn upload_blob(
        self,
        from: &ShardReplica,
        id: &DocId,
        attachment: &Attachment,
    ) -> Result<Arc<str>, WriteError> {
        let mode = match attachment.encoding {
            Encoding::Identity => StageMode::Plain,
            Encoding::Gzip => StageMode::AlreadyGzip,
        };
        let mut reader = from.blob_reader(attachment, ReadAs::Stored, None);
        let (mut writer, node) = self.attachments().stage(id, mode).await?;
        while let Some(piece) = reader.next().await? {
            writer.write(piece).await?;
        }
        writer.finish().await?;
        Ok(node)
    }
}
