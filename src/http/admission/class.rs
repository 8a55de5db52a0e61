//! Classes of requests: which queue a request belongs to, by its endpoint.

use crate::http::request::Verb;
use crate::http::route::{Endpoint, InDatabase};
use crate::observe::metrics::{Counter, Gauge};

/// A class of requests; each has turns and a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionClass {
    /// Reads and writes of single documents and of batches of them.
    Documents,
    /// What reads a part of a database that the client does not name one by one, or calls functions.
    Queries,
    /// Pages of `_changes` and `_db_updates`.
    Feeds,
}

impl AdmissionClass {
    /// All of them.
    pub(super) const ALL: [AdmissionClass; 3] =
        [AdmissionClass::Documents, AdmissionClass::Queries, AdmissionClass::Feeds];

    /// The gauge of requests that wait.
    pub(super) fn waiting(self) -> Gauge {
        match self {
            AdmissionClass::Documents => Gauge::DocumentsWaiting,
            AdmissionClass::Queries => Gauge::QueriesWaiting,
            AdmissionClass::Feeds => Gauge::FeedsWaiting,
        }
    }

    /// The counter of requests that had to wait.
    pub(super) fn waited(self) -> Counter {
        match self {
            AdmissionClass::Documents => Counter::DocumentsWaited,
            AdmissionClass::Queries => Counter::QueriesWaited,
            AdmissionClass::Feeds => Counter::FeedsWaited,
        }
    }

    /// The counter of requests that were refused.
    pub(super) fn refused(self) -> Counter {
        match self {
            AdmissionClass::Documents => Counter::DocumentsRefused,
            AdmissionClass::Queries => Counter::QueriesRefused,
            AdmissionClass::Feeds => Counter::FeedsRefused,
        }
    }
}

/// The class of a request, and the database that it asks; `None` for what an operator needs in trouble, which waits for
/// nobody: the state of the node and the cluster, sessions, options, databases made, deleted and looked after.
pub(super) fn class_of(endpoint: &Endpoint, verb: Verb) -> Option<(AdmissionClass, &str)> {
    match endpoint {
        Endpoint::In(db, at) => Some((class_in_database(at, verb)?, db)),
        Endpoint::AllDbs | Endpoint::DbsInfo | Endpoint::SearchAnalyze | Endpoint::NouveauAnalyze => {
            Some((AdmissionClass::Queries, ""))
        }
        Endpoint::DbUpdates => Some((AdmissionClass::Feeds, "")),
        _ => None,
    }
}

fn class_in_database(at: &InDatabase, verb: Verb) -> Option<AdmissionClass> {
    match at {
        InDatabase::Database if matches!(verb, Verb::Put | Verb::Delete) => None,
        InDatabase::Changes => Some(AdmissionClass::Feeds),
        InDatabase::List(_) | InDatabase::Queries(_) | InDatabase::BulkGet | InDatabase::SearchDryRun => {
            Some(AdmissionClass::Queries)
        }
        InDatabase::AutoPurge | InDatabase::TimeSeq if verb == Verb::Get => Some(AdmissionClass::Queries),
        InDatabase::Mango(path) if path.first().is_some_and(|first| first == "_find") => Some(AdmissionClass::Queries),
        // The state of a partition itself is a sum that is kept.
        InDatabase::Partition(path) if path.len() > 1 => Some(AdmissionClass::Queries),
        InDatabase::DesignFunction(_, path) => {
            let is_state = path.first().is_some_and(|first| first.ends_with("_info") || first == "_search_disk_size");
            Some(if is_state { AdmissionClass::Documents } else { AdmissionClass::Queries })
        }
        InDatabase::Database
        | InDatabase::BulkDocs
        | InDatabase::RevsDiff
        | InDatabase::MissingRevs
        | InDatabase::Purge
        | InDatabase::PurgedInfos
        | InDatabase::Mango(_)
        | InDatabase::Partition(_)
        | InDatabase::Document(_)
        | InDatabase::Attachment(..)
        | InDatabase::Local(_)
        | InDatabase::TempView => Some(AdmissionClass::Documents),
        InDatabase::Compact(_)
        | InDatabase::ViewCleanup
        | InDatabase::SearchCleanup
        | InDatabase::NouveauCleanup
        | InDatabase::EnsureFullCommit
        | InDatabase::Security
        | InDatabase::RevsLimit
        | InDatabase::PurgedInfosLimit
        | InDatabase::AutoPurge
        | InDatabase::TimeSeq
        | InDatabase::Shards
        | InDatabase::ShardsOf(_)
        | InDatabase::SyncShards
        | InDatabase::Snapshot
        | InDatabase::Restore
        | InDatabase::LocalWithoutId
        | InDatabase::LocalAttachment
        | InDatabase::NotText
        | InDatabase::AttachmentNotText
        | InDatabase::PartitionNotText => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::route::route;

    #[test]
    fn what_reads_much_is_a_query_and_what_an_operator_needs_has_no_class() {
        let class = |verb, path: &str| class_of(&route(path), verb).map(|(class, db)| (class, db.to_owned()));
        let of = |class, db: &str| Some((class, db.to_owned()));
        for path in
            ["_all_docs", "_find", "_design/d/_view/v", "_design/d/_search/s", "_bulk_get", "_partition/p/_find"]
        {
            assert_eq!(class(Verb::Post, &format!("/db/{path}")), of(AdmissionClass::Queries, "db"), "{path}");
        }
        for path in ["", "a", "a/file", "_local/a", "_bulk_docs", "_revs_diff", "_design/d", "_design/d/_info"] {
            assert_eq!(class(Verb::Get, &format!("/db/{path}")), of(AdmissionClass::Documents, "db"), "{path}");
        }
        assert_eq!(class(Verb::Get, "/db/_changes"), of(AdmissionClass::Feeds, "db"));
        assert_eq!(class(Verb::Get, "/_db_updates"), of(AdmissionClass::Feeds, ""));
        for path in
            ["/", "/_up", "/_session", "/_node/_local/_config", "/_active_tasks", "/db/_compact", "/db/_security"]
        {
            assert_eq!(class(Verb::Get, path), None, "{path}");
        }
        assert_eq!(class(Verb::Delete, "/db"), None);
    }
}
