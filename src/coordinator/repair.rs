//! Taking in what another copy has: missing revisions, without what was purged here.

use std::collections::BTreeSet;

use crate::coordinator::range_copy::RangeCopy;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::spread::merge_into;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Edit, EditOp, ShardCopy, ShardError};

/// Merges revisions of another copy into one that may lack them. Uploads come from `source`.
pub(super) async fn merge_missing(copy: &RangeCopy, edits: Vec<Edit>, source: &RemoteCopy) -> Result<(), ShardError> {
    let edits = match copy {
        RangeCopy::Remote(remote) => {
            let stored = remote.merge(&edits, source.node(), true).await?;
            return check(&stored);
        }
        RangeCopy::Own(own) => without_purged(&own.shard, edits).await?,
    };
    if edits.is_empty() {
        return Ok(());
    }
    check(&merge_into(copy, &edits, source).await?)
}

fn check(stored: &[bool]) -> Result<(), ShardError> {
    match stored.iter().all(|stored| *stored) {
        true => Ok(()),
        false => Err(ShardError::Away("a revision was not taken in".to_owned())),
    }
}

/// Leaves out revisions that the copy has purged: they must not come back from a copy that has yet to purge them.
async fn without_purged(copy: &ShardCopy, edits: Vec<Edit>) -> Result<Vec<Edit>, ShardError> {
    let ids: BTreeSet<&DocId> = edits.iter().map(|edit| &edit.id).collect();
    let mut purged: BTreeSet<(DocId, Revision)> = BTreeSet::new();
    let mut since = 0;
    loop {
        let page = copy.purge_infos(since, limits::STEP_ROWS).await?;
        let Some(last) = page.last() else { break };
        since = last.purge_seq;
        for info in page.into_iter().filter(|info| ids.contains(&info.id)) {
            purged.extend(info.revs.into_iter().map(|rev| (info.id.clone(), rev)));
        }
    }
    let stays = |edit: &Edit| match &edit.op {
        EditOp::Merge { path } => !purged.contains(&(edit.id.clone(), path.head())),
        EditOp::Interactive { .. } => true,
    };
    Ok(edits.into_iter().filter(stays).collect())
}
