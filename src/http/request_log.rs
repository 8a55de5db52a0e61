//! The request log: one line for each request, at the level of `log/requests`.
//!
//! A line has the path as it was sent and no query, because parameters may hold what is secret. It is written when the
//! head of the answer is ready: a feed's line tells how long it took to begin.
//!
//! What server administrators change beside documents has a line of its own (`log/audit`), whatever `log/requests`
//! says.

use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;

use super::Context;
use super::handle::Rules;
use super::request::{Request, Verb};
use super::route::{Endpoint, InDatabase};
use crate::config::Config;
use crate::document::id::DocId;
use crate::limits;

/// What a line tells.
pub(super) struct RequestLine<'r> {
    pub method: &'r str,
    pub path: &'r str,
    pub status: u16,
    pub took: Duration,
    /// The caller's name; `None` for an anonymous one.
    pub user: Option<String>,
    pub peer: SocketAddr,
    /// `X-Couch-Request-ID`.
    pub id: &'r str,
}

/// Writes the line, if the configured level is not `none`, and keeps a request that took long.
pub(super) fn tell(context: &Context, line: &RequestLine<'_>, is_audited: bool) {
    if is_audited {
        audit(&context.config, line);
    }
    context.slow.note(&context.config, context.env.wall(), line);
    /// Levels are part of the code in `tracing`, not values.
    macro_rules! at {
        ($level:ident) => {{
            let RequestLine { method, path, status, took, user, peer, id } = line;
            let (ms, user) = (took.as_secs_f64() * 1e3, user.as_deref().unwrap_or("-"));
            tracing::$level!(target: "request", method, path, status, ms, user, %peer, id, "request")
        }};
    }
    match context.config.text("log", "requests", limits::REQUEST_LOG_LEVEL).as_str() {
        "debug" => at!(debug),
        "warning" | "warn" => at!(warn),
        "error" | "err" | "critical" | "crit" | "alert" | "emergency" | "emerg" => at!(error),
        "none" => {}
        _ => at!(info),
    }
}

/// Whether a request changes what only administrators change: the node, the cluster, a database as a whole, who may do
/// what, code that runs on the node. `is_system`: whether the documents of a database are more than data.
pub(super) fn is_administrative(endpoint: &Endpoint, verb: Verb, is_system: impl Fn(&str) -> bool) -> bool {
    if verb == Verb::Get {
        return false;
    }
    match endpoint {
        Endpoint::ClusterSetup
        | Endpoint::Cluster(_)
        | Endpoint::Reshard(_)
        | Endpoint::Node(_)
        | Endpoint::Replicate
        | Endpoint::ReloadQueryServers => true,
        Endpoint::In(database, at) => match at {
            InDatabase::Database => verb != Verb::Post,
            InDatabase::Security
            | InDatabase::RevsLimit
            | InDatabase::Purge
            | InDatabase::PurgedInfosLimit
            | InDatabase::AutoPurge
            | InDatabase::TimeSeq
            | InDatabase::Compact(_)
            | InDatabase::SyncShards
            | InDatabase::Snapshot
            | InDatabase::Restore => true,
            InDatabase::Document(id) | InDatabase::Attachment(id, _) => {
                id.starts_with("_design/") || is_system(database)
            }
            InDatabase::BulkDocs => is_system(database),
            InDatabase::Mango(path) => path.first().is_some_and(|first| first == "_index"),
            _ => false,
        },
        _ => false,
    }
}

/// Whether the documents of a database are accounts, replications, or the cluster's own.
pub(super) fn is_system(context: &Context, database: &str) -> bool {
    !matches!(Rules::of(context, database), Rules::None) || matches!(database, "_nodes" | "_dbs")
}

/// Writes the line about a design document that a request of a server administrator wrote among others.
pub(in crate::http) fn audit_design(context: &Context, request: &Request, id: &DocId) {
    if !request.user.is_server_admin() {
        return;
    }
    let database = request.raw_path.trim_end_matches('/').trim_end_matches("/_bulk_docs");
    let path = format!("{database}/{id}");
    let line = RequestLine {
        method: &request.method,
        path: &path,
        status: StatusCode::CREATED.as_u16(),
        took: Duration::ZERO,
        user: request.user.name.clone(),
        peer: request.peer,
        id: &request.id,
    };
    audit(&context.config, &line);
}

/// Writes the line about what an administrator did, where `log/audit` is on.
fn audit(config: &Config, line: &RequestLine<'_>) {
    if !config.bool("log", "audit", true) {
        return;
    }
    let RequestLine { method, path, status, user, peer, id, .. } = line;
    let user = user.as_deref().unwrap_or("-");
    tracing::info!(target: "audit", method, path, status, user, %peer, id, "audit");
}

#[cfg(test)]
mod tests {
    use super::{Verb, is_administrative};
    use crate::http::route::route;

    #[test]
    fn what_administrators_change_is_told_from_what_users_do() {
        let is = |verb, path| is_administrative(&route(path), verb, |name| name == "people");
        for path in [
            "/_node/_local/_config/a/b",
            "/db",
            "/db/_security",
            "/db/_design/d",
            "/people/org.couchdb.user:a",
            "/_cluster/x",
            "/db/_index",
        ] {
            assert!(is(Verb::Put, path) && !is(Verb::Get, path), "{path}");
        }
        for (verb, path) in
            [(Verb::Put, "/db/doc"), (Verb::Post, "/db"), (Verb::Post, "/db/_bulk_docs"), (Verb::Post, "/_session")]
        {
            assert!(!is(verb, path), "{path}");
        }
    }
}
