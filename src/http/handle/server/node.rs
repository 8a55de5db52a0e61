//! `/_node/{name}`: this node's configuration, versions and statistics.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use crate::auth::admins;
use crate::cluster::NodeName;
use crate::config::{SECTIONS_CLOSED_TO_REQUESTS, Sections, foreign, schema};
use crate::document::json::Value as Json;
use crate::http::handle::cluster::dbs;
use crate::http::handle::cluster::nodes;
use crate::http::handle::cluster::secrets;
use crate::http::handle::cluster::snapshot;
use crate::http::handle::cluster::status;
use crate::http::handle::replication::replicate;
use crate::http::handle::replication::scheduler;
use crate::http::handle::server;
use crate::http::request::Verb;
use crate::http::stats::Levels;
use crate::http::{Context, Problem, Reply, Request, Result, forward};
use crate::observe::tasks::TaskKind;
use crate::world::Pool;

/// `rest` is the path behind `_node`.
pub async fn handle(ctx: &Context, request: Request, rest: &[String]) -> Result<Reply> {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    let [name, below @ ..] = parts.as_slice() else {
        return Err(Problem::bad_request("Incomplete path to _node request"));
    };
    if !is_here(ctx, name) {
        // This path leads nowhere on any node.
        if matches!(below, ["_config", _, _, _, ..]) {
            return Err(Problem::missing());
        }
        return elsewhere(ctx, request, &(*name).into()).await;
    }
    match below {
        [] if *name == "_local" => Ok(Reply::value(StatusCode::OK, &json!({"name": ctx.node_name}))),
        [] => Ok(server::welcome(ctx)),
        ["_config"] => Ok(Reply::value(StatusCode::OK, &json!(shown(ctx)))),
        ["_config", "_reload"] => reload(ctx).await,
        ["_config", section] => {
            Ok(Reply::value(StatusCode::OK, &json!(shown(ctx).remove(*section).unwrap_or_default())))
        }
        ["_config", section, key] => setting(ctx, request, section, key).await,
        ["_versions"] => Ok(Reply::value(StatusCode::OK, &versions(ctx.config.follows_couchdb()))),
        ["_system"] => Ok(Reply::value(StatusCode::OK, &ctx.stats.system(&ctx.env, &levels(ctx).await))),
        ["_state"] => Ok(Reply::value(StatusCode::OK, &status::state(ctx).await)),
        ["_log"] => status::log(&request),
        ["_slow_requests"] => Ok(status::slow_requests(ctx)),
        ["_config_defaults"] => Ok(status::config_defaults()),
        ["_stats", path @ ..] => stats(ctx, path).await,
        ["_smoosh", "status"] => Ok(Reply::value(StatusCode::OK, &compactions(ctx))),
        ["_snapshot"] if request.verb == Verb::Get => snapshot::list(ctx, &request).await,
        ["_snapshot"] if request.verb == Verb::Post => snapshot::take_all(ctx, request).await,
        ["_prometheus"] => {
            let text = ctx.stats.prometheus(&ctx.env, &levels(ctx).await);
            Ok(Reply::typed(StatusCode::OK, "text/plain; version=2.0", text))
        }
        ["_active_tasks"] => Ok(Reply::json(StatusCode::OK, Json::Array(replicate::tasks_here(ctx)).to_vec())),
        ["_scheduler", path @ ..] => scheduler::here(ctx, path),
        ["_replicate"] if request.verb == Verb::Post => replicate::here(ctx, request).await,
        ["_restart"] => restart(ctx).await,
        ["_rotate_secret"] => secrets::step(ctx, request).await,
        ["_nodes", path @ ..] => nodes::handle(ctx, request, path).await,
        ["_dbs", path @ ..] => dbs::handle(ctx, request, path).await,
        _ => Err(Problem::missing()),
    }
}

fn is_here(ctx: &Context, name: &str) -> bool {
    name == "_local" || name == ctx.node_name
}

/// Asks another node: one that is a member, was one, or is connected.
async fn elsewhere(ctx: &Context, request: Request, node: &NodeName) -> Result<Reply> {
    reachable(ctx, node)?;
    forward::ask(ctx, node, request).await
}

fn reachable(ctx: &Context, node: &NodeName) -> Result<()> {
    let known = ctx.cluster.records().get(node.as_str()).is_some_and(|record| !record.deleted);
    match ctx.cluster.is_up(node) {
        true => Ok(()),
        false if known => Err(Problem::node_down(node)),
        false => Err(Problem::not_found(format!("no such node: {node}"))),
    }
}

/// What is wrong with a path behind `_node` before its method is: a node that cannot be asked. As in CouchDB, the
/// endpoints that every node has are told by their path alone.
///
/// # Errors
/// 404 for a name that no node has; 412 for a node that is down.
pub fn check_before_method(ctx: &Context, rest: &[String]) -> Result<()> {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match parts.as_slice() {
        [] | [_, "_config" | "_stats" | "_system" | "_prometheus" | "_versions" | "_restart"] => Ok(()),
        [_, "_config", _] | [_, "_config", _, _] | [_, "_smoosh", "status"] => Ok(()),
        [name, ..] if is_here(ctx, name) => Ok(()),
        [name, ..] => reachable(ctx, &(*name).into()),
    }
}

/// Settings that no request may read or change: who knows them is a member of the cluster.
const SECRET: [(&str, &str); 2] = [("cluster", "secret"), ("cluster", "join_token")];

/// The settings without those of [`SECRET`].
fn shown(ctx: &Context) -> Sections {
    let mut sections = ctx.config.effective();
    for (section, key) in SECRET {
        if let Some(keys) = sections.get_mut(section) {
            keys.remove(key);
        }
    }
    sections
}

/// The programs within. A node that follows CouchDB names those of CouchDB 3.5.0 whose behaviour it has, because
/// clients take decisions by these names.
fn versions(follows_couchdb: bool) -> Value {
    if follows_couchdb {
        return json!({
            "settee": {"version": env!("CARGO_PKG_VERSION")},
            "javascript_engine": {"name": "quickjs"},
            "erlang": {"version": "25.2.3", "supported_hashes": ["sha512", "sha384", "sha256", "sha224", "sha"]},
            "collation_driver": {
                "name": "libicu",
                "library_version": "72.1",
                "collator_version": COLLATOR_VERSION,
                "collation_algorithm_version": "15",
            },
        });
    }
    json!({
        "settee": {"version": env!("CARGO_PKG_VERSION")},
        "javascript_engine": {"name": "quickjs-ng"},
        "collation_driver": {"name": "icu4x"},
    })
}

/// The version of the collation of ICU 72, whose order views have.
pub const COLLATOR_VERSION: &str = "153.120";

/// What compacts by itself, in the form of CouchDB's channels. Nothing waits in a queue: what is due is looked for.
fn compactions(ctx: &Context) -> Value {
    let tasks = ctx.env.metrics().tasks().states();
    let channel = |name: &str| {
        let active = match name {
            "ratio_dbs" => ctx.coordinator.compacting(),
            "index_cleanup" => tasks.iter().filter(|task| task.subject.kind == TaskKind::IndexCleanup).count(),
            _ => 0,
        };
        json!({"active": active, "starting": 0, "waiting": {"size": 0, "min": 0, "max": 0}})
    };
    let channels: serde_json::Map<String, Value> =
        CHANNELS.iter().map(|name| ((*name).to_owned(), channel(name))).collect();
    json!({ "channels": channels })
}

const CHANNELS: [&str; 7] =
    ["upgrade_dbs", "ratio_dbs", "slack_dbs", "upgrade_views", "ratio_views", "slack_views", "index_cleanup"];

/// The program starts anew once its requests are answered. Settings that it could not start with are told first, and
/// then it goes on as it is.
async fn restart(ctx: &Context) -> Result<Reply> {
    let reply = reload(ctx).await?;
    ctx.restart.notify_one();
    Ok(reply)
}

async fn levels(ctx: &Context) -> Levels {
    let host = Arc::clone(ctx.env.host());
    Levels {
        open_databases: ctx.coordinator.open_databases() as u64,
        replications: ctx.replicator.standing(),
        damaged_reads: ctx.coordinator.damage().refused(),
        damaged_places: ctx.coordinator.damage().places().len() as u64,
        damaged_files: ctx.coordinator.damaged_files(),
        replaced_files: ctx.coordinator.damage().replaced(),
        lost_parts: ctx.coordinator.damage().lost(),
        cluster: ctx.cluster.counters(),
        replicas: ctx.coordinator.replica_counts(),
        compacting: ctx.coordinator.compacting() as u64,
        search_bytes: ctx.coordinator.open_search_bytes(),
        store_files: ctx.coordinator.open_store_files(),
        lag: ctx.coordinator.convergence_lag(),
        usage: ctx.env.blocking(Pool::Foreground, move || host.usage()).await,
    }
}

/// The tree of statistics, or what `path` names in it; null for what it does not have.
async fn stats(ctx: &Context, path: &[&str]) -> Result<Reply> {
    let tree = ctx.stats.tree(ctx.env.metrics(), &levels(ctx).await);
    let found = path.iter().try_fold(&tree, |at, name| at.get(name));
    Ok(Reply::value(StatusCode::OK, found.unwrap_or(&Value::Null)))
}

async fn reload(ctx: &Context) -> Result<Reply> {
    ctx.config.reload().await?;
    for error in admins::hash_plain_passwords(&ctx.env, &ctx.config).await {
        tracing::warn!("a plain password of [admins] could not be replaced by its hash: {error}");
    }
    Ok(Reply::ok(StatusCode::OK))
}

/// One setting. PUT and DELETE answer the old value; PUT of an administrator too (`docs/compatibility.md`).
async fn setting(ctx: &Context, mut request: Request, section: &str, key: &str) -> Result<Reply> {
    let unknown = || Problem::not_found("unknown_config_value");
    if request.verb == Verb::Get {
        let value = ctx
            .config
            .effective_value(section, key)
            .filter(|_| !SECRET.contains(&(section, key)))
            .ok_or_else(unknown)?;
        return Ok(Reply::value(StatusCode::OK, &json!(value)));
    }
    if SECTIONS_CLOSED_TO_REQUESTS.contains(&section) || SECRET.contains(&(section, key)) {
        return Err(Problem::forbidden("Config section blacklisted for modification over HTTP API."));
    }
    let persist = request.header("x-couch-persist") != Some("false");
    if request.verb == Verb::Delete {
        let old = ctx.config.delete((section, key), persist).await?.ok_or_else(unknown)?;
        return Ok(Reply::value(StatusCode::OK, &json!(old)));
    }
    let default = ctx.config.effective_value(section, key);
    let body = request.json_body().await?;
    let value = body.as_str().ok_or_else(|| Problem::bad_request("a JSON string expected"))?;
    let old = if section == admins::SECTION {
        admins::put(&ctx.env, &ctx.config, key, value, persist).await?
    } else {
        if let Some(refused) = schema::refusal(section, key, value.trim()) {
            return Err(Problem::bad_request(refused));
        }
        if !schema::is_known(section, key) {
            let reason = foreign::reason(section, key).unwrap_or("settee does not know it");
            tracing::warn!(section, key, reason, "a request set an option that has no effect");
        }
        ctx.config.set((section, key), value, persist).await?
    };
    Ok(Reply::value(StatusCode::OK, &json!(old.or(default).unwrap_or_default())))
}
