//! `docs/openapi.yaml` and the routes describe the same interface: every route is described, and what is described is a
//! route that takes the method.

use std::collections::{BTreeMap, BTreeSet};

use super::Verb;
use super::route::{DESIGN_FUNCTIONS, Endpoint, InDatabase, ListKind, methods, route};

const DESCRIPTION: &str = include_str!("../../docs/openapi.yaml");

/// Names all kinds of endpoints, so that a new one does not compile before it has a name here, and then wants a
/// description.
macro_rules! kinds {
    ($($name:literal => $pattern:pat),* $(,)?) => {
        const KINDS: &[&str] = &[$($name),*];

        fn kind(endpoint: &Endpoint) -> &'static str {
            match endpoint {
                $($pattern => $name),*
            }
        }
    };
}

kinds! {
    "root" => Endpoint::Root,
    "up" => Endpoint::Up,
    "uuids" => Endpoint::Uuids,
    "all dbs" => Endpoint::AllDbs,
    "dbs info" => Endpoint::DbsInfo,
    "db updates" => Endpoint::DbUpdates,
    "active tasks" => Endpoint::ActiveTasks,
    "membership" => Endpoint::Membership,
    "cluster setup" => Endpoint::ClusterSetup,
    "cluster" => Endpoint::Cluster(_),
    "session" => Endpoint::Session,
    "favicon" => Endpoint::Favicon,
    "utils" => Endpoint::Utils(_),
    "replicate" => Endpoint::Replicate,
    "scheduler" => Endpoint::Scheduler(_),
    "reshard" => Endpoint::Reshard(_),
    "search analyze" => Endpoint::SearchAnalyze,
    "nouveau analyze" => Endpoint::NouveauAnalyze,
    "node" => Endpoint::Node(_),
    "reload query servers" => Endpoint::ReloadQueryServers,
    "beyond" => Endpoint::Beyond(_),
    "unknown" => Endpoint::Unknown(_),
    "database" => Endpoint::In(_, InDatabase::Database),
    "all docs" => Endpoint::In(_, InDatabase::List(ListKind::All)),
    "design docs" => Endpoint::In(_, InDatabase::List(ListKind::Design)),
    "local docs" => Endpoint::In(_, InDatabase::List(ListKind::Local)),
    "all docs queries" => Endpoint::In(_, InDatabase::Queries(ListKind::All)),
    "design docs queries" => Endpoint::In(_, InDatabase::Queries(ListKind::Design)),
    "local docs queries" => Endpoint::In(_, InDatabase::Queries(ListKind::Local)),
    "bulk docs" => Endpoint::In(_, InDatabase::BulkDocs),
    "bulk get" => Endpoint::In(_, InDatabase::BulkGet),
    "changes" => Endpoint::In(_, InDatabase::Changes),
    "compact" => Endpoint::In(_, InDatabase::Compact(None)),
    "compact views" => Endpoint::In(_, InDatabase::Compact(Some(_))),
    "view cleanup" => Endpoint::In(_, InDatabase::ViewCleanup),
    "search cleanup" => Endpoint::In(_, InDatabase::SearchCleanup),
    "search dry run" => Endpoint::In(_, InDatabase::SearchDryRun),
    "nouveau cleanup" => Endpoint::In(_, InDatabase::NouveauCleanup),
    "ensure full commit" => Endpoint::In(_, InDatabase::EnsureFullCommit),
    "security" => Endpoint::In(_, InDatabase::Security),
    "revs limit" => Endpoint::In(_, InDatabase::RevsLimit),
    "purge" => Endpoint::In(_, InDatabase::Purge),
    "purged infos" => Endpoint::In(_, InDatabase::PurgedInfos),
    "purged infos limit" => Endpoint::In(_, InDatabase::PurgedInfosLimit),
    "auto purge" => Endpoint::In(_, InDatabase::AutoPurge),
    "time seq" => Endpoint::In(_, InDatabase::TimeSeq),
    "revs diff" => Endpoint::In(_, InDatabase::RevsDiff),
    "missing revs" => Endpoint::In(_, InDatabase::MissingRevs),
    "shards" => Endpoint::In(_, InDatabase::Shards),
    "shards of" => Endpoint::In(_, InDatabase::ShardsOf(_)),
    "sync shards" => Endpoint::In(_, InDatabase::SyncShards),
    "temp view" => Endpoint::In(_, InDatabase::TempView),
    "snapshot" => Endpoint::In(_, InDatabase::Snapshot),
    "restore" => Endpoint::In(_, InDatabase::Restore),
    "mango" => Endpoint::In(_, InDatabase::Mango(_)),
    "partition" => Endpoint::In(_, InDatabase::Partition(_)),
    "design function" => Endpoint::In(_, InDatabase::DesignFunction(..)),
    "document" => Endpoint::In(_, InDatabase::Document(_)),
    "attachment" => Endpoint::In(_, InDatabase::Attachment(..)),
    "local" => Endpoint::In(_, InDatabase::Local(_)),
    "local without id" => Endpoint::In(_, InDatabase::LocalWithoutId),
    "local attachment" => Endpoint::In(_, InDatabase::LocalAttachment),
    "not text" => Endpoint::In(_, InDatabase::NotText),
    "attachment not text" => Endpoint::In(_, InDatabase::AttachmentNotText),
    "partition not text" => Endpoint::In(_, InDatabase::PartitionNotText),
}

/// Paths that name nothing.
const UNDESCRIBED: &[&str] = &[
    "beyond",
    "unknown",
    "local without id",
    "local attachment",
    "not text",
    "attachment not text",
    "partition not text",
];

/// Design functions that are answered with 404 always.
const FUNCTIONS_OFF: &[&str] = &["_geo"];

/// The paths of the description with the methods of each.
fn described() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut paths: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    let mut at = None;
    let body = DESCRIPTION.lines().skip_while(|line| *line != "paths:").skip(1);
    for line in body.take_while(|line| line.starts_with(' ')) {
        let indent = line.len() - line.trim_start().len();
        let word = line.trim_start();
        if indent == 2 {
            let path = word.strip_suffix(':').expect("a path").to_owned();
            assert!(paths.insert(path.clone(), BTreeSet::new()).is_none(), "{path} is described twice");
            at = Some(path);
        } else if indent == 4 {
            let method = word.split(':').next().expect("a method");
            let methods = paths.get_mut(at.as_ref().expect("a path before")).expect("it was put there");
            assert!(methods.insert(method), "{at:?}: {method} is described twice");
        }
    }
    paths
}

/// A path with a value in place of each parameter.
fn example(path: &str) -> String {
    let segment = |part: &str| match part {
        "{node}" => "_local".to_owned(),
        part => part.replace(['{', '}'], ""),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

fn verb(method: &str) -> Verb {
    match method {
        "get" => Verb::Get,
        "put" => Verb::Put,
        "post" => Verb::Post,
        "delete" => Verb::Delete,
        "x-copy" => Verb::Copy,
        other => panic!("{other} is no method"),
    }
}

#[test]
fn what_is_described_is_a_route_that_takes_the_method() {
    for (path, described) in described() {
        let endpoint = route(&example(&path));
        assert!(!UNDESCRIBED.contains(&kind(&endpoint)), "{path} names nothing: {endpoint:?}");
        assert!(!described.is_empty(), "{path} has no method");
        for method in described {
            assert!(methods(&endpoint).0.contains(&verb(method)), "{method} {path} is described and not taken");
        }
    }
}

#[test]
fn every_route_and_each_of_its_methods_is_described() {
    let mut missing: BTreeSet<&str> = KINDS.iter().copied().filter(|kind| !UNDESCRIBED.contains(kind)).collect();
    for (path, described) in described() {
        let endpoint = route(&example(&path));
        missing.remove(kind(&endpoint));
        let takes = methods(&endpoint).0;
        // Those with all methods say themselves what is wrong with each; these two are documents but for POST.
        if takes.contains(&Verb::Other) || matches!(kind(&endpoint), "snapshot" | "restore") {
            continue;
        }
        for method in ["get", "put", "post", "delete", "x-copy"] {
            let is_described = described.contains(method);
            assert!(is_described || !takes.contains(&verb(method)), "{method} {path} is taken and not described");
        }
    }
    assert!(missing.is_empty(), "not described: {missing:?}");
    for function in DESIGN_FUNCTIONS.iter().filter(|name| !FUNCTIONS_OFF.contains(name)) {
        let below = format!("/{{db}}/_design/{{ddoc}}/{function}");
        assert!(described().keys().any(|path| path.starts_with(&below)), "{function} is not described");
    }
}
