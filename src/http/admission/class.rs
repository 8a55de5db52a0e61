//! Classes of requests: which queue a request belongs to, by its endpoint.

use crate::http::request::Verb;
use crate::http::route::{Endpoint, InDatabase};
use crate::observe::metrics::{Counter, Gauge};

/// A class of requests; each has turns and a queue of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Reads and writes of single documents and of batches of them.
    Documents,
    /// What reads a part of a database that the client does not name one by one, or calls functions.
    Queries,
    /// Pages of `_changes` and `_db_updates`.
    Feeds,
}

impl Class {
    /// All of them.
    pub(super) const ALL: [Class; 3] = [Class::Documents, Class::Queries, Class::Feeds];

    /// The gauge of requests that wait.
    pub(super) fn waiting(self) -> Gauge {
        match self {
            Class::Documents => Gauge::DocumentsWaiting,
            Class::Queries => Gauge::QueriesWaiting,
            Class::Feeds => Gauge::FeedsWaiting,
        }
    }

    /// The counter of requests that had to wait.
    pub(super) fn waited(self) -> Counter {
        match self {
            Class::Documents => Counter::DocumentsWaited,
            Class::Queries => Counter::QueriesWaited,
            Class::Feeds => Counter::FeedsWaited,
        }
    }

    /// The counter of requests that were refused.
    pub(super) fn refused(self) -> Counter {
        match self {
            Class::Documents => Counter::DocumentsRefused,
            Class::Queries => Counter::QueriesRefused,
            Class::Feeds => Counter::FeedsRefused,
        }
    }
}

/// The class of a request, and the database that it asks; `None` for what an operator needs in trouble, which waits for
/// nobody: the state of the node and the cluster, sessions, options, databases made, deleted and looked after.
pub(super) fn class_of(endpoint: &Endpoint, verb: Verb) -> Option<(Class, &str)> {
    match endpoint {
        Endpoint::In(db, at) => Some((class_in_database(at, verb)?, db)),
        Endpoint::AllDbs | Endpoint::DbsInfo | Endpoint::SearchAnalyze | Endpoint::NouveauAnalyze => {
            Some((Class::Queries, ""))
        }
        Endpoint::DbUpdates => Some((Class::Feeds, "")),
        _ => None,
    }
}

fn class_in_database(at: &InDatabase, verb: Verb) -> Option<Class> {
    match at {
        InDatabase::Database if matches!(verb, Verb::Put | Verb::Delete) => None,
        InDatabase::Changes => Some(Class::Feeds),
        InDatabase::List(_) | InDatabase::Queries(_) | InDatabase::BulkGet | InDatabase::SearchDryRun => {
            Some(Class::Queries)
        }
        InDatabase::AutoPurge | InDatabase::TimeSeq if verb == Verb::Get => Some(Class::Queries),
        InDatabase::Mango(path) if path.first().is_some_and(|first| first == "_find") => Some(Class::Queries),
        // The state of a partition itself is a sum that is kept.
        InDatabase::Partition(path) if path.len() > 1 => Some(Class::Queries),
        InDatabase::DesignFunction(_, path) => {
            let is_state = path.first().is_some_and(|first| first.ends_with("_info") || first == "_search_disk_size");
            Some(if is_state { Class::Documents } else { Class::Queries })
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
        | InDatabase::TempView => Some(Class::Documents),
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
            assert_eq!(class(Verb::Post, &format!("/db/{path}")), of(Class::Queries, "db"), "{path}");
        }
        for path in ["", "a", "a/file", "_local/a", "_bulk_docs", "_revs_diff", "_design/d", "_design/d/_info"] {
            assert_eq!(class(Verb::Get, &format!("/db/{path}")), of(Class::Documents, "db"), "{path}");
        }
        assert_eq!(class(Verb::Get, "/db/_changes"), of(Class::Feeds, "db"));
        assert_eq!(class(Verb::Get, "/_db_updates"), of(Class::Feeds, ""));
        for path in
            ["/", "/_up", "/_session", "/_node/_local/_config", "/_active_tasks", "/db/_compact", "/db/_security"]
        {
            assert_eq!(class(Verb::Get, path), None, "{path}");
        }
        assert_eq!(class(Verb::Delete, "/db"), None);
    }
}
