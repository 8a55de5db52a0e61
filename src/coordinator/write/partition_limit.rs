//! `[couchdb] max_partition_size`: edits that let a partition grow that has reached it are refused, as CouchDB refuses
//! them. Deletions, smaller documents, and revisions made elsewhere are taken, so that it can be emptied and
//! replicated.

use std::collections::BTreeMap;

use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::span::{DocSource, Span};
use crate::coordinator::write::Primary;
use crate::limits;
use crate::shard::{Edit, EditAttachment, EditOp, ShardError, ShardReplica, Want};

impl Primary<'_> {
    /// For each edit whether its partition is full, as the replica that decides it counts.
    pub(super) async fn full_partitions(
        self,
        replica: &ShardReplica,
        edits: &[&Edit],
    ) -> Result<BTreeMap<usize, WriteError>, ShardError> {
        let mut refused = BTreeMap::new();
        let most = self.context.config.u64("couchdb", "max_partition_size", limits::PARTITION_BYTES);
        if !self.map().partitioned || most == 0 {
            return Ok(refused);
        }
        let mut full: BTreeMap<&str, bool> = BTreeMap::new();
        for (at, edit) in edits.iter().enumerate() {
            let grows = !edit.deleted && matches!(edit.op, EditOp::Interactive { .. }) && !edit.id.is_design();
            let Some((partition, _)) = edit.id.as_str().split_once(':').filter(|_| grows) else { continue };
            let is_full = match full.get(partition) {
                Some(known) => *known,
                None => {
                    let span = Span::of(&DocSource::Partition(partition.to_owned()));
                    replica.summary(span.low, span.high).await?.external >= most
                }
            };
            full.insert(partition, is_full);
            if is_full && self.grows(replica, edit).await? {
                refused.insert(at, WriteError::PartitionOverflow { id: edit.id.clone() });
            }
        }
        Ok(refused)
    }

    /// Whether an edit makes its document larger.
    async fn grows(self, replica: &ShardReplica, edit: &Edit) -> Result<bool, ShardError> {
        let EditOp::Interactive { parent: Some(parent) } = &edit.op else { return Ok(true) };
        let wants = vec![(edit.id.clone(), Want::Revision(parent.clone()))];
        let found = replica.fetch(wants).await?.into_iter().next().flatten();
        let Some(old) = found.and_then(|mut fetched| fetched.take_one()) else { return Ok(true) };
        let before = |name: Option<&str>| {
            let named = old.attachments.iter().filter(|a| name.is_none_or(|name| a.name == name));
            named.map(|a| a.length).sum::<u64>()
        };
        let attached = edit.attachments.iter().map(|attachment| match attachment {
            EditAttachment::New(new) => new.length,
            EditAttachment::Stub { name, .. } => before(Some(name)),
        });
        let now = edit.body.text.len() as u64 + attached.sum::<u64>();
        Ok(now > old.body.len() as u64 + before(None))
    }
}
