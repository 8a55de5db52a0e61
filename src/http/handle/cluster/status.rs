//! What administrators look at to know how a node and its cluster are: `_state`, `_log`, `_slow_requests` and
//! `_config_defaults` of a node, `GET /_cluster/status` over all of them, and `GET /_cluster/replicas/{db}`.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use serde_json::{Map, Value, json};
use tracing::Level;

use crate::cluster::NodeName;
use crate::config::defaults;
use crate::coordinator::{NotCompared, RangeReplicas, Reach, RepairOperations, ReplicaRow, ReplicaState, Shortage};
use crate::http::{Context, Problem, Reply, ReplyBody, Request, Result, forward, slow};
use crate::limits;
use crate::observe::metrics::Gauge;
use crate::observe::{panics, tail};
use crate::wire::iso_time::iso_time;
use crate::world::Pool;

/// `GET /_node/{name}/_state`
pub async fn state(ctx: &Context) -> Value {
    let status = ctx.coordinator.own_status().await;
    let host = std::sync::Arc::clone(ctx.env.host());
    let usage = ctx.env.blocking(Pool::Foreground, move || host.usage()).await;
    let mode = match ctx.config.text("couchdb", "maintenance_mode", "false").as_str() {
        _ if status.writes_stopped => "writes_stopped",
        "true" => "maintenance_mode",
        "nolb" => "nolb",
        _ if ctx.cluster.is_seeding() => "seeding",
        _ => "ok",
    };
    let rebuilding: Vec<Value> =
        status.rebuilding.iter().map(|replica| json!({"db": replica.db, "range": replica.range})).collect();
    let not_compared = |other: &NotCompared| {
        let NotCompared { node, is_up, databases, last_error } = other;
        json!({"node": node, "up": is_up, "databases": databases, "last_error": last_error})
    };
    let not_compared: Vec<Value> = status.not_compared.iter().map(not_compared).collect();
    json!({
        "name": ctx.node_name,
        "version": env!("CARGO_PKG_VERSION"),
        "status": mode,
        "in_sync": status.in_sync,
        "maintenance": status.maintenance,
        "uptime": ctx.stats.uptime_s(&ctx.env),
        "time": iso_time(ctx.env.wall()),
        "databases": status.databases,
        "not_compared": not_compared,
        "lagging": status.lagging,
        "filling": status.unfilled,
        "rebuilding": rebuilding,
        "compacting": ctx.coordinator.compacting(),
        "damaged_files": ctx.coordinator.damaged_files(),
        "damaged_places": ctx.coordinator.damage().places().len(),
        "panics": panics::counted(),
        "free_bytes": status.free_bytes,
        "reserve_bytes": ctx.config.u64("settee", "disk_reserve_mb", limits::DISK_RESERVE_MB).saturating_mul(1 << 20),
        "memory_bytes": usage.memory_bytes,
        "memory_peak_bytes": usage.memory_peak_bytes,
        "open_files": usage.open_files,
        "connections": ctx.env.metrics().level(Gauge::Connections),
    })
}

/// `GET /_cluster/status`: each member with its state, the replicas in reach of this node, and what is being moved.
pub async fn cluster(ctx: &Context, request: &Request) -> Result<Reply> {
    let members = ctx.cluster.members();
    let (reach, requests) = tokio::join!(ctx.coordinator.reach(), ctx.coordinator.rebalances());
    let of_members = members.iter().map(|member| async {
        let is_up = member.name == *ctx.cluster.name() || ctx.cluster.is_up(&member.name);
        let state = if is_up { state_of(ctx, request, &member.name).await } else { Value::Null };
        let replicas = reach.replicas.get(member.name.as_str()).copied().unwrap_or_default();
        json!({
            "name": member.name.as_str(), "zone": member.zone, "address": member.address, "joined": member.joined,
            "up": is_up, "replicas": replicas, "state": state,
        })
    });
    let members = join_all(of_members).await;
    let (version, voters) = ctx.coordinator.voters();
    let moves = ctx.coordinator.moves_under_way();
    let body = json!({
        "node": ctx.node_name,
        "time": iso_time(ctx.env.wall()),
        "members": members,
        "voters": {"version": version, "nodes": voters},
        "reach": told(&reach),
        "rebalance": {"requests": super::told(&requests), "moves": super::shown(&moves)},
    });
    Ok(Reply::value(StatusCode::OK, &body))
}

/// `GET /_cluster/replicas/{db}`: each replica of a database with its state and what it holds.
///
/// # Errors
/// 404 for an unknown database.
pub async fn replicas(ctx: &Context, db: &str) -> Result<Reply> {
    let ranges = ctx.coordinator.database(db)?.pulls().replica_table().await;
    let mut states = Map::new();
    for row in ranges.iter().flat_map(|range| &range.replicas) {
        let count = states.get(row.state.as_str()).and_then(Value::as_u64).unwrap_or_default();
        states.insert(row.state.as_str().to_owned(), json!(count + 1));
    }
    let is_in_sync = states.keys().all(|state| state == ReplicaState::InSync.as_str());
    let ranges: Vec<Value> = ranges.iter().map(told_range).collect();
    let body = json!({
        "db": db, "node": ctx.node_name, "time": iso_time(ctx.env.wall()),
        "in_sync": is_in_sync, "states": states, "ranges": ranges,
    });
    Ok(Reply::value(StatusCode::OK, &body))
}

fn told_range(range: &RangeReplicas) -> Value {
    let one = |row: &ReplicaRow| {
        let mut out = json!({"node": row.node, "state": row.state.as_str()});
        if let Some(error) = &row.error {
            out["error"] = json!(error);
        }
        if let Some(holds) = &row.holds {
            out["documents"] = json!(holds.documents);
            out["update_seq"] = json!(holds.position);
            out["purge_seq"] = json!(holds.purge_seq);
        }
        out
    };
    json!({"range": range.range, "replicas": range.replicas.iter().map(one).collect::<Vec<Value>>()})
}

/// The state of a node as it tells it itself; null where it does not answer soon.
async fn state_of(ctx: &Context, request: &Request, node: &NodeName) -> Value {
    if node == ctx.cluster.name() {
        return state(ctx).await;
    }
    let asked = forward::get(node, request, "_state");
    let patience = Duration::from_millis(limits::STATUS_PATIENCE_MS);
    match ctx.env.timeout(patience, forward::ask(ctx, node, asked)).await {
        Ok(Ok(Reply { status: StatusCode::OK, body: ReplyBody::Full(whole), .. })) => {
            serde_json::from_slice(&whole.into_bytes()).unwrap_or_default()
        }
        _ => Value::Null,
    }
}

fn told(reach: &Reach) -> Value {
    let named: Vec<Value> = reach.named.iter().map(told_shortage).collect();
    json!({
        "databases": reach.databases, "ranges": reach.ranges, "short_of_n": reach.short_of_n,
        "lacking": reach.lacking, "named": named,
    })
}

fn told_shortage(short: &Shortage) -> Value {
    let Shortage { db, ranges, none, below_quorum, lacking, missing } = short;
    // The status that a write to the worst of its ranges is answered with.
    let writes = match (none, below_quorum) {
        (0, 0) => 201,
        (0, _) => 202,
        _ => 503,
    };
    json!({
        "db": db, "ranges": ranges, "none": none, "below_quorum": below_quorum, "lacking": lacking,
        "missing": missing, "writes": writes,
    })
}

/// `GET /_node/{name}/_log?level=&since=&limit=`: the last lines of the log.
pub fn log(request: &Request) -> Result<Reply> {
    let level = match request.query.get("level").unwrap_or("debug") {
        "error" => Level::ERROR,
        "warn" | "warning" => Level::WARN,
        "info" => Level::INFO,
        "debug" => Level::TRACE,
        _ => return Err(Problem::bad_request("`level` must be error, warn, info or debug")),
    };
    let (since, limit) = (number(request, "since", 0)?, number(request, "limit", limits::LOG_TAIL_LINES as u64)?);
    let (lines, last) = tail::after(since, level, usize::try_from(limit).unwrap_or(usize::MAX));
    let one = |line: tail::Line| {
        let level = line.level.as_str().to_ascii_lowercase();
        json!({"number": line.number, "time": iso_time(line.wall), "level": level, "text": line.text})
    };
    let lines: Vec<Value> = lines.into_iter().map(one).collect();
    Ok(Reply::value(StatusCode::OK, &json!({"lines": lines, "last": last})))
}

fn number(request: &Request, name: &'static str, default: u64) -> Result<u64> {
    let wrong = || Problem::bad_request(format!("`{name}` must be a whole number"));
    request.query.get(name).map_or(Ok(default), |text| text.parse().map_err(|_| wrong()))
}

/// `GET /_node/{name}/_slow_requests`
pub fn slow_requests(ctx: &Context) -> Reply {
    let body = json!({"threshold_ms": slow::threshold_ms(&ctx.config), "requests": ctx.slow.told()});
    Reply::value(StatusCode::OK, &body)
}

/// `GET /_node/{name}/_config_defaults`: by section and key the default, what the option takes, and what it is for.
pub fn config_defaults() -> Reply {
    let mut sections = Map::new();
    for option in defaults::all() {
        let section = sections.entry(option.section).or_insert_with(|| json!({}));
        section[option.key] = json!({"default": option.default, "takes": option.takes, "meaning": option.meaning});
    }
    Reply::value(StatusCode::OK, &Value::Object(sections))
}
