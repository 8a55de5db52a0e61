//! Reads of a database for a dump or a snapshot: documents in the order of their last change, page by page.

use crate::coordinator::backup::BackupError;
use crate::coordinator::backup::item::{self, DocumentItem};
use crate::document::id::DocId;
use crate::limits;
use crate::shard::{ShardError, ShardReplica, Want};
use crate::storage::{Direction, StorageError};

/// Some documents of a range.
pub(super) struct Page {
    /// Those that have not changed again since their row, with its sequence; a later page has the others.
    pub documents: Vec<(u64, DocumentItem)>,
    /// Where to go on.
    pub last_seq: u64,
    /// Whether the feed had no more.
    pub end: bool,
    /// Documents that are damaged.
    pub skipped: Vec<DocId>,
}

/// What became of the document of a row of changes.
pub(super) enum Found {
    /// It is as it was then.
    Whole(DocumentItem),
    /// It changed again, or is gone.
    Changed,
    /// Something of it cannot be read.
    Damaged,
}

/// The next page of a range behind `since`. A damaged document is left out and named.
pub(super) async fn page(replica: &ShardReplica, since: u64) -> Result<Page, BackupError> {
    let page = replica.changes(since, Direction::Forward, limits::PAGE_DOCS).await?;
    let end = page.rows.len() < limits::PAGE_DOCS;
    let mut out = Page { documents: Vec::new(), last_seq: page.last_seq, end, skipped: Vec::new() };
    let rows: Vec<(u64, DocId)> = page.rows.into_iter().map(|row| (row.seq, row.id)).collect();
    let found = documents(replica, &rows).await?;
    for ((seq, id), found) in rows.into_iter().zip(found) {
        match found {
            Found::Whole(document) => out.documents.push((seq, document)),
            Found::Changed => {}
            Found::Damaged => out.skipped.push(id),
        }
    }
    Ok(out)
}

/// The documents of rows of changes, each a sequence and an id.
pub(super) async fn documents(replica: &ShardReplica, rows: &[(u64, DocId)]) -> Result<Vec<Found>, BackupError> {
    let wants = rows.iter().map(|(_, id)| (id.clone(), Want::Leaves)).collect();
    let fetched = match replica.fetch(wants).await {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(ShardError::Storage(StorageError::Corrupt(_))) => {
            let mut single = Vec::new();
            for (_, id) in rows {
                let one = replica.fetch(vec![(id.clone(), Want::Leaves)]).await;
                single.push(one.map(|mut found| found.pop().flatten()));
            }
            single
        }
        Err(error) => return Err(error.into()),
    };
    let mut out = Vec::with_capacity(rows.len());
    for ((seq, id), fetched) in rows.iter().zip(fetched) {
        out.push(match fetched {
            Ok(Some(fetched)) if fetched.local_seq == *seq => {
                item::document(id, &fetched.tree, fetched.found).map_or(Found::Damaged, Found::Whole)
            }
            Ok(_) => Found::Changed,
            Err(ShardError::Storage(StorageError::Corrupt(_))) => Found::Damaged,
            Err(error) => return Err(error.into()),
        });
    }
    Ok(out)
}
