//! Method and path to [`Endpoint`]: one match over all paths.
//!
//! Segments are split at raw slashes, then decoded, so that `%2F` stays inside its segment; empty ones are dropped. A
//! path that no row names is read as a document or an attachment, as CouchDB does: the document layer then refuses the
//! name.

use super::query::decode;
use super::request::Verb;

/// Which of the three built-in lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// `_all_docs`
    All,
    /// `_design_docs`
    Design,
    /// `_local_docs`
    Local,
}

/// What a path names. Strings are decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `/`
    Root,
    /// `/_up`
    Up,
    /// `/_uuids`
    Uuids,
    /// `/_all_dbs`
    AllDbs,
    /// `/_dbs_info`
    DbsInfo,
    /// `/_db_updates`
    DbUpdates,
    /// `/_active_tasks`
    ActiveTasks,
    /// `/_membership`
    Membership,
    /// `/_cluster_setup`
    ClusterSetup,
    /// `/_cluster/..`
    Cluster(Vec<String>),
    /// `/_session`
    Session,
    /// `/favicon.ico`
    Favicon,
    /// `/_utils` and what is below; the path behind it, `None` without a slash.
    Utils(Option<String>),
    /// `/_replicate`
    Replicate,
    /// `/_scheduler/..`
    Scheduler(Vec<String>),
    /// `/_reshard/..`
    Reshard(Vec<String>),
    /// `/_search_analyze`
    SearchAnalyze,
    /// `/_nouveau_analyze`
    NouveauAnalyze,
    /// `/_node` and below: the segments behind it.
    Node(Vec<String>),
    /// `/_reload_query_servers`
    ReloadQueryServers,
    /// An endpoint of the server with more behind it, which says nothing: administrators are answered as without it.
    Beyond(Box<Endpoint>),
    /// An unknown `/_x` of the server; its name when nothing follows it.
    Unknown(Option<String>),
    /// Something in a database.
    In(String, InDatabase),
}

/// What a path names inside a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InDatabase {
    /// `/{db}`
    Database,
    /// `_all_docs`, `_design_docs`, `_local_docs`
    List(ListKind),
    /// `_all_docs/queries` and so on
    Queries(ListKind),
    /// `_bulk_docs`
    BulkDocs,
    /// `_bulk_get`
    BulkGet,
    /// `_changes`
    Changes,
    /// `_compact`, `_compact/{ddoc}`
    Compact(Option<String>),
    /// `_view_cleanup`
    ViewCleanup,
    /// `_search_cleanup`
    SearchCleanup,
    /// `_nouveau_cleanup`
    NouveauCleanup,
    /// `_search_dry_run`
    SearchDryRun,
    /// `_ensure_full_commit`
    EnsureFullCommit,
    /// `_security`
    Security,
    /// `_revs_limit`
    RevsLimit,
    /// `_purge`
    Purge,
    /// `_purged_infos`
    PurgedInfos,
    /// `_purged_infos_limit`
    PurgedInfosLimit,
    /// `_auto_purge`
    AutoPurge,
    /// `_time_seq`
    TimeSeq,
    /// `_revs_diff`
    RevsDiff,
    /// `_missing_revs`
    MissingRevs,
    /// `_shards`
    Shards,
    /// `_shards/{docid}`
    ShardsOf(String),
    /// `_sync_shards`
    SyncShards,
    /// `_temp_view`
    TempView,
    /// `_snapshot`, by POST only (an extension); else a document of this name
    Snapshot,
    /// `_restore`, by POST only (an extension); else a document of this name
    Restore,
    /// `_find`, `_explain`, `_index` and below
    Mango(Vec<String>),
    /// `_partition/..`: the segments behind it
    Partition(Vec<String>),
    /// `_design/{ddoc}/_view/..` and the other functions of a design document: document id, segments behind it
    DesignFunction(String, Vec<String>),
    /// A document; the id has its `_design/`.
    Document(String),
    /// An attachment; slashes in its name are kept.
    Attachment(String, String),
    /// `_local/{docid}`; the id without `_local/`.
    Local(String),
    /// `_local` without an id
    LocalWithoutId,
    /// Something below a local document
    LocalAttachment,
    /// An id or a name that is not UTF-8
    NotText,
    /// An attachment whose name is not UTF-8
    AttachmentNotText,
    /// As [`InDatabase::NotText`], where the name of a partition is not UTF-8.
    PartitionNotText,
}

impl Endpoint {
    /// Whether OPTIONS reads it, as in CouchDB: a list function.
    pub fn takes_options_for_get(&self) -> bool {
        let Endpoint::In(_, InDatabase::DesignFunction(_, path)) = self else { return false };
        path.first().is_some_and(|function| function == "_list")
    }
}

/// Functions that a design document's path can name.
pub(super) const DESIGN_FUNCTIONS: &[&str] = &[
    "_view",
    "_show",
    "_list",
    "_update",
    "_rewrite",
    "_info",
    "_search",
    "_search_info",
    "_search_disk_size",
    "_nouveau",
    "_nouveau_info",
    "_geo",
];

/// Whether a design document's path can name such a function.
pub fn is_design_function(name: &str) -> bool {
    DESIGN_FUNCTIONS.contains(&name)
}

/// `_design/` with its slash encoded, as a client may write it.
const DESIGN_ENCODED: &str = "_design%2F";

/// Splits a raw path into its raw segments; empty ones are dropped.
pub fn segments(path: &str) -> Vec<&str> {
    path.split('/').filter(|s| !s.is_empty()).collect()
}

/// What a raw path names. The caller has checked its percent escapes.
pub fn route(path: &str) -> Endpoint {
    let raw = segments(path);
    let decoded: Vec<Result<String, _>> = raw.iter().map(|s| String::from_utf8(decode(s))).collect();
    let Some(first) = decoded.first() else { return Endpoint::Root };
    let Ok(first) = first else { return Endpoint::Unknown(None) };
    let mut rest = Vec::with_capacity(decoded.len());
    for segment in &decoded[1..] {
        match segment {
            Ok(text) => rest.push(text.clone()),
            Err(_) => return Endpoint::In(first.clone(), not_text(&rest)),
        }
    }
    match (first.as_str(), rest.len()) {
        ("_up", below) => beyond(Endpoint::Up, below),
        ("_uuids", below) => beyond(Endpoint::Uuids, below),
        ("_all_dbs", 0) => Endpoint::AllDbs,
        ("_dbs_info", 0) => Endpoint::DbsInfo,
        ("_db_updates", _) => Endpoint::DbUpdates,
        ("_active_tasks", _) => Endpoint::ActiveTasks,
        ("_membership", 0) => Endpoint::Membership,
        ("_cluster_setup", _) => Endpoint::ClusterSetup,
        ("_cluster", 1..) => Endpoint::Cluster(rest),
        ("_session", below) => beyond(Endpoint::Session, below),
        ("_reload_query_servers", _) => Endpoint::ReloadQueryServers,
        ("_replicate", 0) => Endpoint::Replicate,
        ("favicon.ico", _) => Endpoint::Favicon,
        ("_utils", 0) => Endpoint::Utils(path.ends_with('/').then(String::new)),
        ("_utils", _) => Endpoint::Utils(Some(rest.join("/"))),
        ("_scheduler", _) => Endpoint::Scheduler(rest),
        ("_reshard", _) => Endpoint::Reshard(rest),
        ("_search_analyze", 0) => Endpoint::SearchAnalyze,
        ("_nouveau_analyze", 0) => Endpoint::NouveauAnalyze,
        ("_node", _) => Endpoint::Node(rest),
        ("_users" | "_replicator" | "_global_changes" | "_metadata", _) => {
            Endpoint::In(first.clone(), in_database(&rest))
        }
        (name, below) if name.starts_with('_') => Endpoint::Unknown((below == 0).then(|| first.clone())),
        _ => Endpoint::In(first.clone(), in_database(&rest)),
    }
}

/// An endpoint that is open to anyone, with so many segments behind it.
fn beyond(endpoint: Endpoint, below: usize) -> Endpoint {
    if below == 0 { endpoint } else { Endpoint::Beyond(Box::new(endpoint)) }
}

/// What a path names whose first segment that is no text comes behind `before`.
fn not_text(before: &[String]) -> InDatabase {
    match in_database(before) {
        InDatabase::Document(_) | InDatabase::Attachment(..) if before != ["_design"] => InDatabase::AttachmentNotText,
        InDatabase::Partition(below) if below.is_empty() => InDatabase::PartitionNotText,
        _ => InDatabase::NotText,
    }
}

/// What follows `_design%2F` in a path that names a design document, or something below it, so.
pub fn behind_encoded_design(path: &str) -> Option<&str> {
    let (_, at) = path.trim_start_matches('/').split_once('/')?;
    let at = at.trim_start_matches('/');
    let is_encoded = at.get(..DESIGN_ENCODED.len()).is_some_and(|start| start.eq_ignore_ascii_case(DESIGN_ENCODED));
    is_encoded.then(|| &at[DESIGN_ENCODED.len()..]).filter(|rest| !rest.is_empty() && !rest.starts_with('/'))
}

fn in_database(rest: &[String]) -> InDatabase {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [] => InDatabase::Database,
        ["_all_docs"] => InDatabase::List(ListKind::All),
        ["_design_docs"] => InDatabase::List(ListKind::Design),
        ["_local_docs"] => InDatabase::List(ListKind::Local),
        ["_all_docs", "queries"] => InDatabase::Queries(ListKind::All),
        ["_design_docs", "queries"] => InDatabase::Queries(ListKind::Design),
        ["_local_docs", "queries"] => InDatabase::Queries(ListKind::Local),
        ["_bulk_docs"] => InDatabase::BulkDocs,
        ["_bulk_get"] => InDatabase::BulkGet,
        ["_compact"] => InDatabase::Compact(None),
        // Whatever stands behind these, as in CouchDB.
        ["_changes", ..] => InDatabase::Changes,
        ["_temp_view", ..] => InDatabase::TempView,
        ["_view_cleanup", ..] => InDatabase::ViewCleanup,
        ["_search_cleanup", ..] => InDatabase::SearchCleanup,
        ["_nouveau_cleanup", ..] => InDatabase::NouveauCleanup,
        ["_search_dry_run"] => InDatabase::SearchDryRun,
        ["_compact", ddoc, ..] => InDatabase::Compact(Some((*ddoc).to_owned())),
        ["_ensure_full_commit"] => InDatabase::EnsureFullCommit,
        ["_security"] => InDatabase::Security,
        ["_revs_limit"] => InDatabase::RevsLimit,
        ["_purge"] => InDatabase::Purge,
        ["_purged_infos"] => InDatabase::PurgedInfos,
        ["_purged_infos_limit"] => InDatabase::PurgedInfosLimit,
        ["_auto_purge"] => InDatabase::AutoPurge,
        ["_time_seq"] => InDatabase::TimeSeq,
        ["_revs_diff"] => InDatabase::RevsDiff,
        ["_missing_revs"] => InDatabase::MissingRevs,
        ["_shards"] => InDatabase::Shards,
        ["_shards", id @ ..] => InDatabase::ShardsOf(id.join("/")),
        ["_sync_shards"] => InDatabase::SyncShards,
        ["_snapshot"] => InDatabase::Snapshot,
        ["_restore"] => InDatabase::Restore,
        // What stands behind the first two is no matter, as in CouchDB.
        ["_find" | "_explain" | "_index", ..] => InDatabase::Mango(rest.to_vec()),
        ["_partition", below @ ..] => InDatabase::Partition(below.iter().map(|s| (*s).to_owned()).collect()),
        ["_local"] => InDatabase::LocalWithoutId,
        ["_local", id] => InDatabase::Local((*id).to_owned()),
        ["_local", _, ..] => InDatabase::LocalAttachment,
        ["_design", name] => InDatabase::Document(format!("_design/{name}")),
        ["_design", name, function, below @ ..] if is_design_function(function) => {
            let segments = [function].into_iter().chain(below).map(|s| (*s).to_owned()).collect();
            InDatabase::DesignFunction(format!("_design/{name}"), segments)
        }
        ["_design", name, attachment @ ..] => InDatabase::Attachment(format!("_design/{name}"), attachment.join("/")),
        [id, below @ ..] if id.starts_with("_local/") => match below {
            [] if *id == "_local/" => InDatabase::LocalWithoutId,
            [] => InDatabase::Local(id["_local/".len()..].to_owned()),
            _ => InDatabase::LocalAttachment,
        },
        [id] => InDatabase::Document((*id).to_owned()),
        [id, attachment @ ..] => InDatabase::Attachment((*id).to_owned(), attachment.join("/")),
    }
}

/// Where the handler itself says what is wrong.
const ANY: &[Verb] = &[Verb::Get, Verb::Put, Verb::Post, Verb::Delete, Verb::Copy, Verb::Other];

/// The methods of an endpoint, and the same as CouchDB 3.5 was measured to name them in `Allow`: its lists are fixed
/// and partly lack HEAD, which works wherever GET does.
pub fn methods(endpoint: &Endpoint) -> (&'static [Verb], &'static str) {
    const GET: &[Verb] = &[Verb::Get];
    const POST: &[Verb] = &[Verb::Post];
    const GET_POST: &[Verb] = &[Verb::Get, Verb::Post];
    match endpoint {
        Endpoint::Root
        | Endpoint::Up
        | Endpoint::AllDbs
        | Endpoint::ActiveTasks
        | Endpoint::Utils(_)
        | Endpoint::Favicon => (GET, "GET,HEAD"),
        Endpoint::DbsInfo => (GET_POST, "GET,HEAD,POST"),
        Endpoint::Uuids | Endpoint::Membership | Endpoint::DbUpdates => (GET, "GET"),
        Endpoint::Session => (&[Verb::Get, Verb::Post, Verb::Delete], "GET,HEAD,POST,DELETE"),
        Endpoint::ClusterSetup => (GET_POST, "GET,POST"),
        Endpoint::Replicate => (&[Verb::Get, Verb::Post, Verb::Delete], "POST"),
        Endpoint::NouveauAnalyze | Endpoint::ReloadQueryServers => (POST, "POST"),
        Endpoint::Beyond(endpoint) => methods(endpoint),
        Endpoint::Scheduler(_) => (GET, "GET,HEAD"),
        Endpoint::Node(rest) => node_methods(rest),
        Endpoint::Cluster(_) | Endpoint::Reshard(_) | Endpoint::SearchAnalyze | Endpoint::Unknown(_) => (ANY, ""),
        Endpoint::In(_, at) => database_methods(at),
    }
}

fn node_methods(rest: &[String]) -> (&'static [Verb], &'static str) {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [_, "_config", "_reload"] | [_, "_restart" | "_rotate_secret"] => (&[Verb::Post], "POST"),
        [_, "_config", _, _] => (&[Verb::Get, Verb::Put, Verb::Delete], "GET,PUT,DELETE"),
        // Whatever the method, as in CouchDB: what is wrong is the path, or nothing.
        [] | ["_local"] | [_, "_config", _, _, _, ..] => (ANY, ""),
        [_] | [_, "_smoosh", "status"] | [_, "_state" | "_log" | "_slow_requests" | "_config_defaults"] => {
            (&[Verb::Get], "GET")
        }
        [_, "_config" | "_stats" | "_system" | "_prometheus" | "_versions" | "_active_tasks" | "_scheduler", ..] => {
            (&[Verb::Get], "GET")
        }
        _ => (ANY, ""),
    }
}

fn database_methods(at: &InDatabase) -> (&'static [Verb], &'static str) {
    const GET: &[Verb] = &[Verb::Get];
    const POST: &[Verb] = &[Verb::Post];
    const GET_PUT: &[Verb] = &[Verb::Get, Verb::Put];
    const GET_POST: &[Verb] = &[Verb::Get, Verb::Post];
    const DOCUMENT: &[Verb] = &[Verb::Get, Verb::Put, Verb::Post, Verb::Delete, Verb::Copy];
    match at {
        InDatabase::Database => (&[Verb::Get, Verb::Put, Verb::Post, Verb::Delete], "DELETE,GET,HEAD,POST"),
        InDatabase::List(_) => (GET_POST, "GET,HEAD,POST"),
        InDatabase::Changes => (GET_POST, "GET,POST,HEAD"),
        InDatabase::Queries(_)
        | InDatabase::BulkDocs
        | InDatabase::BulkGet
        | InDatabase::Compact(_)
        | InDatabase::ViewCleanup
        | InDatabase::SearchCleanup
        | InDatabase::NouveauCleanup
        | InDatabase::SearchDryRun
        | InDatabase::EnsureFullCommit
        | InDatabase::Purge
        | InDatabase::RevsDiff
        | InDatabase::MissingRevs
        | InDatabase::SyncShards => (POST, "POST"),
        InDatabase::Security | InDatabase::RevsLimit => (GET_PUT, "PUT,GET"),
        InDatabase::PurgedInfosLimit => (GET_PUT, "GET,PUT"),
        InDatabase::AutoPurge => (GET_PUT, "GET,PUT,HEAD"),
        InDatabase::TimeSeq => (&[Verb::Get, Verb::Delete], "GET,DELETE"),
        InDatabase::Shards | InDatabase::ShardsOf(_) | InDatabase::PurgedInfos => (GET, "GET"),
        InDatabase::Attachment(..) | InDatabase::AttachmentNotText => {
            (&[Verb::Get, Verb::Put, Verb::Delete], "DELETE,GET,HEAD,PUT")
        }
        InDatabase::Mango(path) => match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["_find" | "_explain", ..] | ["_index", "_bulk_delete"] => (POST, "POST"),
            ["_index"] => (GET_POST, "GET,POST"),
            _ => (&[Verb::Delete], "DELETE"),
        },
        InDatabase::Partition(rest) => match rest.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            // A POST is told first what is wrong with such a name.
            [name] if name.starts_with('_') => (GET_POST, "GET"),
            [_] => (GET, "GET"),
            [_, "_all_docs"] => (GET_POST, "GET,HEAD,POST"),
            [_, "_all_docs", "queries"] | [_, "_find" | "_explain", ..] => (POST, "POST"),
            [_, "_design", _, _, ..] => design_methods(&rest[3..]),
            // `_index` is told what it takes once the partition's name is known to be one; nothing else is there,
            // whatever is asked of it, nor without a name.
            _ => (ANY, ""),
        },
        InDatabase::DesignFunction(_, path) => design_methods(path),
        InDatabase::TempView | InDatabase::LocalWithoutId | InDatabase::LocalAttachment => (ANY, ""),
        InDatabase::Document(_)
        | InDatabase::Local(_)
        | InDatabase::Snapshot
        | InDatabase::Restore
        | InDatabase::NotText
        | InDatabase::PartitionNotText => (DOCUMENT, "DELETE,GET,HEAD,POST,PUT,COPY"),
    }
}

/// Of what stands below a design document.
fn design_methods(path: &[String]) -> (&'static [Verb], &'static str) {
    const GET: &[Verb] = &[Verb::Get];
    match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["_info", _, ..] => (&[], "GET"),
        ["_info"] | ["_search_info", ..] => (GET, "GET"),
        ["_view", _, "queries"] => (&[Verb::Post], "POST"),
        ["_view", _] | ["_list", ..] => (&[Verb::Get, Verb::Post], "GET,POST,HEAD"),
        ["_view", ..] => (&[], "GET,POST,HEAD"),
        _ => (ANY, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::{Endpoint, InDatabase, ListKind, behind_encoded_design, route};

    fn inside(path: &str) -> InDatabase {
        match route(path) {
            Endpoint::In(db, at) => {
                assert_eq!(db, "db");
                at
            }
            other => panic!("{path} is {other:?}"),
        }
    }

    #[test]
    fn server_paths() {
        assert_eq!(route("/"), Endpoint::Root);
        assert_eq!(route("//_up/"), Endpoint::Up);
        assert_eq!(route("/_utils"), Endpoint::Utils(None));
        assert_eq!(route("/_utils/"), Endpoint::Utils(Some(String::new())));
        assert_eq!(route("/_nothing/more"), Endpoint::Unknown(None));
        assert_eq!(route("/_nothing"), Endpoint::Unknown(Some("_nothing".into())));
        assert_eq!(route("/_up/x"), Endpoint::Beyond(Box::new(Endpoint::Up)));
        assert_eq!(route("/favicon.ico/x"), Endpoint::Favicon);
        assert_eq!(route("/%ff/x"), Endpoint::Unknown(None));
        assert_eq!(route("/_node/_local/_config"), Endpoint::Node(vec!["_local".into(), "_config".into()]));
        assert_eq!(route("/_users"), Endpoint::In("_users".into(), InDatabase::Database));
        assert_eq!(route("/a%2Fb"), Endpoint::In("a/b".into(), InDatabase::Database));
    }

    #[test]
    fn documents_and_attachments() {
        assert_eq!(inside("//db///a+b%2B"), InDatabase::Document("a b+".into()));
        assert_eq!(inside("/db/a%2Fb"), InDatabase::Document("a/b".into()));
        assert_eq!(inside("/db/a/b/c"), InDatabase::Attachment("a".into(), "b/c".into()));
        assert_eq!(inside("/db/_design/x"), InDatabase::Document("_design/x".into()));
        assert_eq!(inside("/db/_design%2Fx"), InDatabase::Document("_design/x".into()));
        assert_eq!(inside("/db/_design/x/att"), InDatabase::Attachment("_design/x".into(), "att".into()));
        assert_eq!(inside("/db/_design"), InDatabase::Document("_design".into()));
        assert_eq!(inside("/db/_local/x"), InDatabase::Local("x".into()));
        assert_eq!(inside("/db/_local/a%2Fb"), InDatabase::Local("a/b".into()));
        assert_eq!(inside("/db/_local/a/b"), InDatabase::LocalAttachment);
        assert_eq!(inside("/db/_local/"), InDatabase::LocalWithoutId);
        assert_eq!(inside("/db/_local%2f"), InDatabase::LocalWithoutId);
        assert_eq!(inside("/db/%ff"), InDatabase::NotText);
        assert_eq!(inside("/db/_design/%ff"), InDatabase::NotText);
        assert_eq!(inside("/db/a/%ff"), InDatabase::AttachmentNotText);
        assert_eq!(inside("/db/_design/d/a/%ff"), InDatabase::AttachmentNotText);
        assert_eq!(inside("/db/_unknown"), InDatabase::Document("_unknown".into()));
    }

    #[test]
    fn designs_with_an_encoded_slash() {
        assert_eq!(behind_encoded_design("/db/_design%2fx/att"), Some("x/att"));
        for path in ["/db/_design/x", "/db/_design%2F", "/_design%2Fx", "/db/a/_design%2Fx", "/db/_designs%2Fx"] {
            assert_eq!(behind_encoded_design(path), None, "{path}");
        }
    }

    #[test]
    fn functions_of_databases() {
        assert_eq!(inside("/db/_all_docs/queries"), InDatabase::Queries(ListKind::All));
        assert_eq!(inside("/db/_compact/d"), InDatabase::Compact(Some("d".into())));
        assert_eq!(inside("/db/_compact/d/x"), InDatabase::Compact(Some("d".into())));
        assert_eq!(inside("/db/_shards/a/b"), InDatabase::ShardsOf("a/b".into()));
        assert_eq!((inside("/db/_changes/x"), inside("/db/_temp_view/x")), (InDatabase::Changes, InDatabase::TempView));
        let view = InDatabase::DesignFunction("_design/d".into(), vec!["_view".into(), "v".into()]);
        assert_eq!(inside("/db/_design/d/_view/v"), view);
        let index = |parts: &[&str]| InDatabase::Mango(parts.iter().map(|part| (*part).to_owned()).collect());
        assert_eq!(inside("/db/_index/ix/json/a%2Fb"), index(&["_index", "ix", "json", "a/b"]));
        assert_eq!(inside("/db/_find/x"), index(&["_find", "x"]));
        assert_eq!(inside("/db/_partition/%ff/_all_docs"), InDatabase::PartitionNotText);
    }
}
