//! `/_cluster`: what settee adds for those who run a cluster.

use http::StatusCode;
use serde_json::json;

use super::super::request::Verb;
use super::super::{Context, Problem, Reply, Request, Result};
use crate::limits;

/// `rest` is the path behind `_cluster`.
pub fn handle(ctx: &Context, request: &Request, rest: &[String]) -> Result<Reply> {
    match (rest, request.verb) {
        ([name], Verb::Post) if name == "join_token" => join_token(ctx),
        ([name], _) if name == "join_token" => Err(Problem::method_not_allowed("POST")),
        _ => Err(Problem::missing()),
    }
}

/// `POST /_cluster/join_token`: what a new node shows to `settee serve --join`.
fn join_token(ctx: &Context) -> Result<Reply> {
    let token = ctx.cluster.join_token().map_err(Problem::bad_request)?;
    let body = json!({"token": token, "address": ctx.cluster.contact(), "expires_in": limits::CLUSTER_TOKEN_S});
    Ok(Reply::value(StatusCode::CREATED, &body))
}
