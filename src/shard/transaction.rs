//! The work of one committer job on a shard: keeps records, indexes and summaries of each changed document consistent.
//!
//! Documents and rows are written as they change; the summaries above them once, at the end, for all changes together.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::ShardId;
use super::body::BodyRecord;
use super::keys::{self, Kind};
use super::levels::{Change, Levels};
use super::record::{DocRecord, Header, RevData, SeqRecord};
use super::sequence;
use super::summary::Summary;
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::rev_tree::RevTree;
use crate::storage::planted::{Bug, Planted};
use crate::storage::{BlobGone, BlobStore, StorageError, WriteView, add_reference, drop_reference};

/// A shard's header, and the view that its changes go to. [`Transaction::finish`] writes header and summaries back.
pub(super) struct Transaction<'t, 'v> {
    pub view: &'t mut WriteView<'v>,
    pub shard: ShardId,
    pub blobs: BlobStore,
    pub header: Header,
    before: Header,
    planted: Planted,
    /// Whether a design document was changed.
    pub changed_design: bool,
    documents: BTreeMap<DocId, Change>,
    /// What is new at each sequence.
    sequences: BTreeMap<u64, Summary>,
}

/// A document as it was loaded: what it was counted with.
pub(super) struct Loaded {
    pub tree: RevTree<RevData>,
    was: Option<Was>,
}

impl Loaded {
    /// The sequence that it has; `None` for a document that is not there.
    pub(super) fn seq(&self) -> Option<u64> {
        self.was.as_ref().map(|was| was.seq)
    }
}

struct Was {
    seq: u64,
    summary: Summary,
    record_bytes: u64,
}

impl<'t, 'v> Transaction<'t, 'v> {
    pub(super) fn new(
        view: &'t mut WriteView<'v>,
        shard: ShardId,
        blobs: &BlobStore,
        planted: Planted,
    ) -> Result<Self, StorageError> {
        let header = Header::read(view, shard)?;
        let (documents, sequences) = (BTreeMap::new(), BTreeMap::new());
        let (blobs, before) = (blobs.clone(), header);
        Ok(Transaction { view, shard, blobs, header, before, planted, changed_design: false, documents, sequences })
    }

    /// Writes summaries and header; answers the shard's last sequence. `salt` is taken with the first level.
    pub(super) fn finish(mut self, salt: u64) -> Result<u64, StorageError> {
        if !self.documents.is_empty() {
            if self.header.height == 0 {
                self.header.salt = salt;
            }
            let mut levels = Levels::of(self.shard, &self.header);
            levels.apply(self.view, &self.documents)?;
            levels.raise(self.view, self.header.total.documents())?;
            self.header.height = levels.height;
        }
        if self.header.update_seq != self.before.update_seq || !self.documents.is_empty() {
            sequence::apply(self.view, self.shard, (&self.before, &self.header), &self.sequences)?;
        }
        if self.header != self.before {
            self.header.write(self.view, self.shard);
        }
        Ok(self.header.update_seq)
    }

    /// Reads a document; an unknown one has an empty tree.
    pub(super) fn load(&self, id: &DocId) -> Result<Loaded, StorageError> {
        let Some((record, summary, bytes)) = DocRecord::load(self.view, self.shard, id)? else {
            return Ok(Loaded { tree: RevTree::new(), was: None });
        };
        let record_bytes = (bytes + SeqRecord::encode(id, &record.leaf_names()).len()) as u64;
        Ok(Loaded { tree: record.tree, was: Some(Was { seq: record.seq, summary, record_bytes }) })
    }

    /// Stores the changed tree of `loaded` under a new sequence; an empty one removes the document.
    pub(super) fn store(&mut self, id: &DocId, loaded: Loaded) -> Result<(), StorageError> {
        self.store_at(id, loaded, self.header.update_seq + 1)
    }

    /// As [`Transaction::store`], under a sequence that no other document of the shard has.
    pub(super) fn store_at(&mut self, id: &DocId, loaded: Loaded, seq: u64) -> Result<(), StorageError> {
        let Loaded { tree, was } = loaded;
        self.changed_design |= id.is_design();
        self.header.update_seq = self.header.update_seq.max(seq);
        let record = DocRecord { seq, tree };
        if let Some(was) = &was {
            self.view.delete(keys::number_key(self.shard, Kind::Sequence, was.seq));
            self.header.records = self.header.records.saturating_sub(was.record_bytes);
        }
        let leaves = record.leaf_names();
        let key = keys::key(self.shard, Kind::Document, id.as_str().as_bytes());
        if leaves.is_empty() {
            self.view.delete(key);
            self.count(id, was.as_ref(), None, seq);
            return Ok(());
        }
        let row = SeqRecord::encode(id, &leaves);
        let (bytes, summary) = record.encode(id, &leaves);
        self.header.records += (bytes.len() + row.len()) as u64;
        self.count(id, was.as_ref(), Some(summary), seq);
        self.view.put(key, bytes);
        self.view.put(keys::number_key(self.shard, Kind::Sequence, record.seq), row);
        Ok(())
    }

    /// Stores the changed tree of `loaded` under its old sequence: its leaves must be the same.
    pub(super) fn rewrite(&mut self, id: &DocId, loaded: Loaded) -> Result<(), StorageError> {
        let Loaded { tree, was } = loaded;
        let Some(was) = was else { return Ok(()) };
        let record = DocRecord { seq: was.seq, tree };
        let leaves = record.leaf_names();
        let row_bytes = SeqRecord::encode(id, &leaves).len();
        let (bytes, summary) = record.encode(id, &leaves);
        if summary != was.summary {
            return Err(StorageError::Corrupt(format!("document {id} was not counted as what its leaves are")));
        }
        let header = &mut self.header;
        header.records = header.records.saturating_sub(was.record_bytes) + (bytes.len() + row_bytes) as u64;
        self.view.put(keys::key(self.shard, Kind::Document, id.as_str().as_bytes()), bytes);
        Ok(())
    }

    /// Takes a document out of all sums as it was and in as it is, under the new sequence.
    fn count(&mut self, id: &DocId, was: Option<&Was>, is: Option<Summary>, seq: u64) {
        let (before, after) = (was.map_or_else(Summary::default, |was| was.summary), is.unwrap_or_default());
        let delta = match before.live > after.live && self.planted.has(Bug::SummaryNotUpdated) {
            true => Summary::default(),
            false => after.minus(before),
        };
        self.header.total = self.header.total.plus(delta);
        let change = self.documents.entry(id.clone()).or_insert(Change { was: was.is_some(), ..Change::default() });
        change.is = is.is_some();
        change.delta = change.delta.plus(delta);
        if let Some(was) = was {
            let old = self.sequences.entry(was.seq).or_default();
            *old = old.minus(was.summary);
        }
        if is.is_some() {
            let new = self.sequences.entry(seq).or_default();
            *new = new.plus(after);
        }
    }

    /// Stores a revision's content; fails with the name of an attachment whose upload is gone, leaving nothing.
    pub(super) fn put_body(
        &mut self,
        deleted: bool,
        attachments: &[Attachment],
        text: &Bytes,
    ) -> Result<Result<RevData, String>, StorageError> {
        for (n, attachment) in attachments.iter().enumerate() {
            match add_reference(self.view, &self.blobs, (self.shard.0, attachment.blob))? {
                Ok(first) => self.header.stored += if first { attachment.stored_length } else { 0 },
                Err(BlobGone) => {
                    self.drop_blobs(&attachments[..n])?;
                    return Ok(Err(attachment.name.clone()));
                }
            }
        }
        self.header.last_body += 1;
        let number = self.header.last_body;
        let bytes = BodyRecord::put(self.view, (self.shard, number), attachments, text);
        self.header.stored += bytes;
        let external = text.len() as u64 + attachments.iter().map(|attachment| attachment.length).sum::<u64>();
        let data = RevData { deleted, body: number, active: 0, external, attachments: 0 };
        Ok(Ok(data.with(attachments, bytes)))
    }

    /// Removes a revision's content.
    pub(super) fn drop_body(&mut self, data: &RevData) -> Result<(), StorageError> {
        if !data.is_available() {
            return Ok(());
        }
        // Without attachments nothing of the record is needed, and reading it would be most of the work.
        let (attachments, bytes) = match data.attachments {
            0 => (Vec::new(), data.active),
            _ => BodyRecord::measure(self.view, self.shard, data.body)?,
        };
        self.header.stored = self.header.stored.saturating_sub(bytes);
        BodyRecord::delete(self.view, (self.shard, data.body), bytes);
        self.drop_blobs(&attachments)
    }

    fn drop_blobs(&mut self, attachments: &[Attachment]) -> Result<(), StorageError> {
        for attachment in attachments {
            let last = drop_reference(self.view, &self.blobs, (self.shard.0, attachment.blob))?;
            let bytes = if last { attachment.stored_length } else { 0 };
            self.header.stored = self.header.stored.saturating_sub(bytes);
        }
        Ok(())
    }
}
