//! `/_cluster`: endpoints of settee for operators of a cluster.

pub mod dbs;
pub mod nodes;
pub mod reshard;
pub mod secrets;
pub mod setup;
pub mod setup_peer;
pub mod snapshot;
pub mod status;

use std::collections::BTreeSet;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::coordinator::rebalance::moves::MoveRequest;
use crate::coordinator::rebalance::plan::RebalanceRequest;
use crate::coordinator::replica::rebalancing::Rebalance;
use crate::document::json::Object;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::limits;
use crate::wire::iso_time::iso_time;

/// `rest` is the path behind `_cluster`.
pub async fn handle(ctx: &Context, request: Request, rest: &[String]) -> Result<Reply> {
    match (rest, request.verb) {
        ([name], Verb::Post) if name == "join_token" => join_token(ctx),
        ([name], _) if name == "join_token" => Err(Problem::method_not_allowed("POST")),
        ([name], Verb::Get) if name == "rebalance" => {
            let (requests, moves) = (ctx.coordinator.rebalances().await, ctx.coordinator.moves_under_way());
            Ok(Reply::value(StatusCode::OK, &json!({"requests": told(&requests), "moves": shown(&moves)})))
        }
        ([name], Verb::Post) if name == "rebalance" => rebalance(ctx, request).await,
        ([name], Verb::Delete) if name == "rebalance" => {
            let ended = ctx.coordinator.end_rebalances().await;
            Ok(Reply::value(StatusCode::OK, &json!({"ok": true, "ended": told(&ended)})))
        }
        ([name], _) if name == "rebalance" => Err(Problem::method_not_allowed("DELETE,GET,HEAD,POST")),
        ([name], Verb::Post) if name == "rotate_secret" => secrets::rotate(ctx, &request).await,
        ([name], Verb::Delete) if name == "rotate_secret" => secrets::drop_former(ctx, &request).await,
        ([name], _) if name == "rotate_secret" => Err(Problem::method_not_allowed("DELETE,POST")),
        ([name], Verb::Get) if name == "voters" => {
            let (version, nodes) = ctx.coordinator.voters();
            Ok(Reply::value(StatusCode::OK, &json!({"version": version, "nodes": nodes})))
        }
        ([name], Verb::Get) if name == "status" => status::cluster(ctx, &request).await,
        ([name, db], Verb::Get) if name == "replicas" => status::replicas(ctx, db).await,
        ([name, _], _) if name == "replicas" => Err(Problem::method_not_allowed("GET,HEAD")),
        ([name], _) if name == "voters" || name == "status" => Err(Problem::method_not_allowed("GET,HEAD")),
        _ => Err(Problem::missing()),
    }
}

pub(super) fn told(requests: &[Rebalance]) -> Vec<Value> {
    let one = |r: &Rebalance| {
        let start_time = iso_time(Duration::from_secs(r.began_s));
        json!({
            "node": r.node, "drain": r.drain, "databases": r.databases,
            "start_time": start_time, "moves_begun": r.begun, "moves_planned": r.planned,
        })
    };
    requests.iter().map(one).collect()
}

pub(super) fn shown(moves: &[MoveRequest]) -> Vec<Value> {
    let one = |m: &MoveRequest| json!({"db": m.db, "range": m.range, "from": m.from, "to": m.to});
    moves.iter().map(one).collect()
}

/// `POST /_cluster/rebalance`: shows what is to be moved, and begins with it unless it is a `dry_run`. Nodes in `drain`
/// are emptied; `databases` names those that are looked at.
async fn rebalance(ctx: &Context, mut request: Request) -> Result<Reply> {
    let body = if request.body.length() == Some(0) { Object::new() } else { request.query_object().await? };
    let names = |field: &'static str| -> Result<Option<BTreeSet<String>>> {
        let wrong = || Problem::bad_request(format!("`{field}` must be an array of strings"));
        let Some(value) = body.get(field) else { return Ok(None) };
        let list = value.as_array().ok_or_else(wrong)?;
        list.iter().map(|name| name.as_str().map(str::to_owned).ok_or_else(wrong)).collect::<Result<_>>().map(Some)
    };
    let dry_run = match body.get("dry_run") {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| Problem::bad_request("`dry_run` must be a boolean"))?,
    };
    let (drain, databases) = (names("drain")?.unwrap_or_default(), names("databases")?);
    let wanted = RebalanceRequest { drain, databases, needed_only: false };
    let planned = ctx.coordinator.plan_rebalance(&wanted).await;
    if !dry_run {
        ctx.coordinator.rebalance(wanted);
    }
    let status = if dry_run { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok(Reply::value(status, &json!({"ok": true, "dry_run": dry_run, "moves": shown(&planned)})))
}

/// `POST /_cluster/join_token`: what a new node shows to `settee serve --join`.
fn join_token(ctx: &Context) -> Result<Reply> {
    ctx.coordinator.may_change_members()?;
    let token = ctx.cluster.join_token().map_err(Problem::bad_request)?;
    let body = json!({"token": token, "address": ctx.cluster.contact(), "expires_in": limits::CLUSTER_TOKEN_S});
    Ok(Reply::value(StatusCode::CREATED, &body))
}
