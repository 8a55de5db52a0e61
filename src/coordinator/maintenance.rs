//! What replication and administrators ask of a database: missing revisions, purges, compaction.

use std::collections::BTreeMap;

use crate::coordinator::database::Database;
use crate::coordinator::error::{ReadError, SettingError};
use crate::document::id::DocId;
use crate::document::revision::Revision;

/// Which of some revisions a document lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevsDiff {
    /// Those it lacks, in the order asked.
    pub missing: Vec<Revision>,
    /// Its leaves of lower generation than some missing one, from which it could be joined.
    pub possible_ancestors: Vec<Revision>,
}

/// A purge that took place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeInfo {
    /// The document.
    pub id: DocId,
    /// The revisions removed.
    pub revs: Vec<Revision>,
}

impl Database {
    /// Which of these revisions the database lacks; documents that lack none are left out.
    pub async fn revs_diff(
        &self,
        asked: BTreeMap<DocId, Vec<Revision>>,
    ) -> Result<BTreeMap<DocId, RevsDiff>, ReadError> {
        let _ = asked;
        todo!()
    }

    /// Removes leaf revisions without a trace. Answers per document those removed, in the order given.
    pub async fn purge(&self, asked: Vec<(DocId, Vec<Revision>)>) -> Result<Vec<(DocId, Vec<Revision>)>, SettingError> {
        let _ = asked;
        todo!()
    }

    /// The purges that are still on record.
    pub async fn purge_infos(&self) -> Result<Vec<PurgeInfo>, ReadError> {
        todo!()
    }

    /// Starts to remove the bodies of revisions that are no leaves, in the background.
    pub async fn compact(&self) -> Result<(), SettingError> {
        todo!()
    }

    /// Brings all copies of all ranges together; nothing to do with one copy.
    pub async fn sync_shards(&self) -> Result<(), SettingError> {
        todo!()
    }

    /// Every acknowledged write is durable already.
    pub async fn ensure_full_commit(&self) -> Result<(), SettingError> {
        todo!()
    }
}
