//! The final step of an online snapshot: all recent changes, read at one moment.

use std::ops::ControlFlow;

use super::fetch;
use super::keys::{self, Kind};
use super::record::{self, SeqRecord};
use super::{Fetched, ShardId, SyncState, Want, sync};
use crate::document::id::DocId;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// What became of a shard since a reader was there.
#[derive(Clone, Debug)]
pub struct Cut {
    /// Documents that changed, with their leaves, in the order of their changes.
    pub changed: Vec<(DocId, Fetched)>,
    /// Documents of which nothing is left: they were purged.
    pub gone: Vec<DocId>,
    /// How the shard stood. Where its `purge_floor` is above the purge that the reader came from, `gone` has gaps.
    pub state: SyncState,
}

/// What happened behind the sequence `since` and the purge `purged`; `None` when it is more than `limit` rows.
pub fn cut(
    view: &dyn View,
    shard: ShardId,
    (since, purged): (u64, u64),
    limit: usize,
) -> Result<Option<Cut>, StorageError> {
    let changes = keys::numbers(shard, Kind::Sequence, since.saturating_add(1), u64::MAX);
    let Some(ids) = ids(view, &changes, limit, &|value| Ok(SeqRecord::decode(value)?.id))? else { return Ok(None) };
    let purges = keys::numbers(shard, Kind::Purge, purged.saturating_add(1), u64::MAX);
    let Some(purged) = ids_of_purges(view, &purges, limit)? else { return Ok(None) };
    let mut out = Cut { changed: Vec::new(), gone: Vec::new(), state: sync::state(view, shard)? };
    for id in ids {
        if let Some(fetched) = fetch::document(view, shard, &id, &Want::Leaves)? {
            out.changed.push((id, fetched));
        }
    }
    for id in purged {
        if fetch::document(view, shard, &id, &Want::Tree)?.is_none() {
            out.gone.push(id);
        }
    }
    Ok(Some(out))
}

fn ids_of_purges(view: &dyn View, range: &KeyRange, limit: usize) -> Result<Option<Vec<DocId>>, StorageError> {
    ids(view, range, limit, &|value| Ok(record::PurgeRecord::decode(value)?.id))
}

fn ids(
    view: &dyn View,
    range: &KeyRange,
    limit: usize,
    id_of: &dyn Fn(&[u8]) -> Result<DocId, StorageError>,
) -> Result<Option<Vec<DocId>>, StorageError> {
    let mut found: Result<Vec<DocId>, StorageError> = Ok(Vec::new());
    view.scan(range, Direction::Forward, &mut |_, value| {
        let id = id_of(value);
        match (&mut found, id) {
            (Ok(ids), Ok(id)) if ids.len() <= limit => {
                ids.push(id);
                ControlFlow::Continue(())
            }
            (_, Err(error)) => {
                found = Err(error);
                ControlFlow::Break(())
            }
            _ => ControlFlow::Break(()),
        }
    })?;
    Ok(Some(found?).filter(|ids| ids.len() <= limit))
}
