//! One committer job's work on a shard: keeps records, indexes and counters of each changed document in step.

use super::ShardId;
use super::keys::{self, Kind};
use super::record::{BodyRecord, DocRecord, Header, LeafName, RevData, SeqRecord};
use super::sequence;
use crate::document::id::DocId;
use crate::document::render::Attachment;
use crate::document::rev_tree::RevTree;
use crate::storage::{BlobGone, BlobStore, StorageError, WriteView, add_reference, drop_reference};

/// A shard's header, and the view that its changes go to. [`Transaction::finish`] writes the header back.
pub(super) struct Transaction<'t, 'v> {
    pub view: &'t mut WriteView<'v>,
    pub shard: ShardId,
    pub blobs: BlobStore,
    pub header: Header,
    before: Header,
    /// Whether a design document was changed.
    pub changed_design: bool,
}

/// A document as it was loaded: what its counters were made of.
pub(super) struct Loaded {
    pub tree: RevTree<RevData>,
    was: Option<Was>,
}

struct Was {
    seq: u64,
    deleted: bool,
    active: u64,
    external: u64,
    record_bytes: u64,
}

impl<'t, 'v> Transaction<'t, 'v> {
    pub(super) fn new(view: &'t mut WriteView<'v>, shard: ShardId, blobs: &BlobStore) -> Result<Self, StorageError> {
        let header = Header::read(view, shard)?;
        Ok(Transaction { view, shard, blobs: blobs.clone(), header, before: header, changed_design: false })
    }

    /// Writes the header; answers the shard's last sequence.
    pub(super) fn finish(self) -> u64 {
        if self.header != self.before {
            self.header.write(self.view, self.shard);
        }
        self.header.update_seq
    }

    /// Reads a document; an unknown one has an empty tree.
    pub(super) fn load(&self, id: &DocId) -> Result<Loaded, StorageError> {
        let Some((record, bytes)) = DocRecord::load(self.view, self.shard, id)? else {
            return Ok(Loaded { tree: RevTree::new(), was: None });
        };
        let leaves = record.leaf_names();
        let deleted = leaves.first().is_some_and(|leaf| leaf.1);
        let (active, external) = leaf_sizes(&record.tree);
        let record_bytes = (bytes + SeqRecord::encode(id, &leaves).len()) as u64;
        Ok(Loaded { tree: record.tree, was: Some(Was { seq: record.seq, deleted, active, external, record_bytes }) })
    }

    /// Stores the changed tree of `loaded` under a new sequence; an empty one removes the document.
    pub(super) fn store(&mut self, id: &DocId, loaded: Loaded) -> Result<(), StorageError> {
        let Loaded { tree, was } = loaded;
        self.changed_design |= id.is_design();
        self.header.update_seq += 1;
        let record = DocRecord { seq: self.header.update_seq, tree };
        if let Some(was) = &was {
            sequence::remove(self.view, self.shard, was.seq)?;
        }
        self.count_out(id, was);
        let leaves = record.leaf_names();
        let key = keys::key(self.shard, Kind::Document, id.as_str().as_bytes());
        if leaves.is_empty() {
            self.view.delete(key);
            return Ok(());
        }
        let row = SeqRecord::encode(id, &leaves);
        let bytes = record.encode(&leaves);
        self.count_in(id, &record.tree, &leaves, bytes.len() + row.len());
        self.view.put(key, bytes);
        sequence::insert(self.view, self.shard, record.seq, row)
    }

    /// Stores the changed tree of `loaded` under its old sequence: its leaves must be the same.
    pub(super) fn rewrite(&mut self, id: &DocId, loaded: Loaded) -> Result<(), StorageError> {
        let Loaded { tree, was } = loaded;
        let Some(was) = was else { return Ok(()) };
        let record = DocRecord { seq: was.seq, tree };
        let leaves = record.leaf_names();
        let row_bytes = SeqRecord::encode(id, &leaves).len();
        let bytes = record.encode(&leaves);
        self.count_out(id, Some(was));
        self.count_in(id, &record.tree, &leaves, bytes.len() + row_bytes);
        self.view.put(keys::key(self.shard, Kind::Document, id.as_str().as_bytes()), bytes);
        Ok(())
    }

    fn count_out(&mut self, id: &DocId, was: Option<Was>) {
        let Some(was) = was else { return };
        let header = &mut self.header;
        // Sizes are for information: a wrong one must not stop the node.
        header.active = header.active.saturating_sub(was.active);
        header.external = header.external.saturating_sub(was.external);
        header.records = header.records.saturating_sub(was.record_bytes);
        match was.deleted {
            true => header.doc_del_count -= 1,
            false => {
                header.doc_count -= 1;
                header.design_count -= u64::from(id.is_design());
            }
        }
    }

    fn count_in(&mut self, id: &DocId, tree: &RevTree<RevData>, leaves: &[LeafName], record_bytes: usize) {
        let (active, external) = leaf_sizes(tree);
        let header = &mut self.header;
        header.active += active;
        header.external += external;
        header.records += record_bytes as u64;
        match leaves.first().is_some_and(|leaf| leaf.1) {
            true => header.doc_del_count += 1,
            false => {
                header.doc_count += 1;
                header.design_count += u64::from(id.is_design());
            }
        }
    }

    /// Stores a revision's content; fails with the name of an attachment whose upload is gone, leaving nothing.
    pub(super) fn put_body(
        &mut self,
        deleted: bool,
        attachments: &[Attachment],
        text: &[u8],
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
        let record = BodyRecord::encode(attachments, text);
        self.header.stored += record.len() as u64;
        self.view.put(keys::number_key(self.shard, Kind::Body, number), record);
        let total = |size: fn(&Attachment) -> u64| text.len() as u64 + attachments.iter().map(size).sum::<u64>();
        let (active, external) = (total(|a| a.stored_length), total(|a| a.length));
        Ok(Ok(RevData { deleted, body: number, active, external }))
    }

    /// Removes a revision's content.
    pub(super) fn drop_body(&mut self, data: &RevData) -> Result<(), StorageError> {
        if !data.is_available() {
            return Ok(());
        }
        let record = BodyRecord::load(self.view, self.shard, data.body)?;
        let bytes = BodyRecord::encode(&record.attachments, &record.text).len() as u64;
        self.header.stored = self.header.stored.saturating_sub(bytes);
        self.view.delete(keys::number_key(self.shard, Kind::Body, data.body));
        self.drop_blobs(&record.attachments)
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

/// Stored and plain bytes of all leaves.
fn leaf_sizes(tree: &RevTree<RevData>) -> (u64, u64) {
    let leaves = tree.leaves();
    let sum = |size: fn(&RevData) -> u64| leaves.iter().map(|leaf| size(leaf.value)).sum();
    (sum(|data| data.active), sum(|data| data.external))
}
