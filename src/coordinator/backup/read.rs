//! Reading a database for a dump or a snapshot: documents in the order of their last change, page by page.

use crate::coordinator::backup::item::{self, DocumentItem};
use crate::coordinator::backup::{BackupError, damaged};
use crate::document::id::DocId;
use crate::limits;
use crate::shard::{ShardCopy, ShardError, Want};
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

/// The next page of a range behind `since`. A damaged document is left out and named.
pub(super) async fn page(copy: &ShardCopy, since: u64) -> Result<Page, BackupError> {
    let page = copy.changes(since, Direction::Forward, limits::PAGE_DOCS).await?;
    let mut out = Page {
        documents: Vec::new(),
        last_seq: page.last_seq,
        end: page.rows.len() < limits::PAGE_DOCS,
        skipped: Vec::new(),
    };
    let wants: Vec<(DocId, Want)> = page.rows.iter().map(|row| (row.id.clone(), Want::Leaves)).collect();
    let found = match copy.fetch(wants).await {
        Ok(found) => found.into_iter().map(Ok).collect(),
        Err(ShardError::Storage(StorageError::Corrupt(_))) => {
            let mut single = Vec::new();
            for row in &page.rows {
                let one = copy.fetch(vec![(row.id.clone(), Want::Leaves)]).await;
                single.push(one.map(|mut found| found.pop().flatten()));
            }
            single
        }
        Err(error) => return Err(error.into()),
    };
    for (row, fetched) in page.rows.into_iter().zip(found) {
        match fetched {
            Ok(Some(fetched)) if fetched.local_seq == row.seq => {
                let document = item::document(&row.id, &fetched.tree, fetched.found);
                let lost = || damaged(format_args!("{:?} has no body", row.id.as_str()));
                out.documents.push((row.seq, document.ok_or_else(lost)?));
            }
            Ok(_) => {}
            Err(ShardError::Storage(StorageError::Corrupt(_))) => out.skipped.push(row.id),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(out)
}
