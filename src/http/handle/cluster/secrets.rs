//! `/_cluster/rotate_secret`: a new secret of cookies for all nodes, without a moment in which a node refuses what
//! another one has made; and `/_node/{name}/_rotate_secret`, one step of that on one node.
//!
//! POST has every node accept the new secret, and then has one after the other use it, which goes on accepting the one
//! before. DELETE ends that. Both need all members: one that is away would come back with what it had. A rotation that
//! broke off leaves nodes that accept each other's secrets; the next one first gives all of them one secret.
//!
//! The new secret goes to the other nodes as every message does: hidden on the way where `[cluster] tls` is on.

use std::collections::BTreeSet;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};

use crate::auth::cookie;
use crate::auth::secrets::{SecretError, SecretsTold, digest, new_secret};
use crate::cluster::NodeName;
use crate::document::json::{self, Object};
use crate::http::{Context, Problem, Reply, ReplyBody, Request, Result, forward};
use crate::limits;
use crate::wire::iso_time::iso_time;

/// `POST /_cluster/rotate_secret`
///
/// # Errors
/// 412 `nodedown` for a member that is away; 409 where a node cannot change its secret, or accepts too many already;
/// 500 where a node failed on the way.
pub async fn rotate(ctx: &Context, request: &Request) -> Result<Reply> {
    let nodes = members(ctx)?;
    let mut told = look(ctx, request, &nodes).await?;
    if let Some(common) = left_behind(&told) {
        on_all(ctx, request, &nodes, &json!({"step": "use", "digest": common})).await?;
        told = look(ctx, request, &nodes).await?;
    }
    if let Some((node, _)) = nodes.iter().zip(&told).find(|(_, told)| !told.has_room()) {
        let end = "DELETE /_cluster/rotate_secret ends those before";
        return Err(conflict(format!("{node}: {}. {end}", SecretError::Full)));
    }
    let secret = new_secret(&ctx.env);
    on_all(ctx, request, &nodes, &json!({"step": "accept", "secret": secret})).await?;
    if members(ctx)? != nodes {
        return Err(conflict("The members of the cluster have changed meanwhile: ask again.".to_owned()));
    }
    on_all(ctx, request, &nodes, &json!({"step": "use", "digest": digest(&secret)})).await?;
    tracing::info!("all nodes make cookies with a new secret");
    let end = ctx.env.wall() + Duration::from_secs(cookie::timeout_s(&ctx.config));
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    Ok(Reply::value(StatusCode::OK, &json!({"ok": true, "nodes": names, "former_sessions_end": iso_time(end)})))
}

/// `DELETE /_cluster/rotate_secret`: former secrets are not accepted any more.
///
/// # Errors
/// As [`rotate`]; 409 also while not all nodes have the same secret.
pub async fn drop_former(ctx: &Context, request: &Request) -> Result<Reply> {
    let nodes = members(ctx)?;
    let told = look(ctx, request, &nodes).await?;
    let present: BTreeSet<&String> = told.iter().map(|told| &told.present).collect();
    let (Some(present), 1) = (present.first(), present.len()) else {
        let all = "The nodes do not have the same secret: POST /_cluster/rotate_secret gives them one.";
        return Err(conflict(all.to_owned()));
    };
    on_all(ctx, request, &nodes, &json!({"step": "drop", "digest": present})).await?;
    tracing::info!("former secrets of cookies are not accepted any more");
    Ok(Reply::ok(StatusCode::OK))
}

fn conflict(reason: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, "conflict", reason)
}

/// All members.
fn members(ctx: &Context) -> Result<Vec<NodeName>> {
    let nodes: Vec<NodeName> = ctx.cluster.members().into_iter().map(|member| member.name).collect();
    match nodes.iter().find(|node| !ctx.cluster.is_up(node)) {
        Some(node) => Err(Problem::node_down(node)),
        None => Ok(nodes),
    }
}

/// The secret that all nodes are to have before another one comes, where they have several: one that each of them
/// accepts.
fn left_behind(told: &[SecretsTold]) -> Option<String> {
    let present: BTreeSet<&String> = told.iter().map(|told| &told.present).collect();
    let common = |secret: &&&String| told.iter().all(|told| told.accepts(secret));
    if present.len() == 1 { None } else { present.iter().find(common).map(|secret| (**secret).clone()) }
}

/// What the nodes have.
async fn look(ctx: &Context, request: &Request, nodes: &[NodeName]) -> Result<Vec<SecretsTold>> {
    let mut out = Vec::new();
    for node in nodes {
        let answer = ask(ctx, request, node, &json!({"step": "look"})).await?;
        let told = told(&answer).ok_or_else(|| Problem::internal(format!("{node} answered something else")))?;
        if let Some(obstacle) = &told.obstacle {
            return Err(conflict(format!("{node}: {obstacle}")));
        }
        out.push(told);
    }
    Ok(out)
}

fn told(answer: &Value) -> Option<SecretsTold> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let accepted = answer["accepted"].as_array()?.iter().map(text).collect::<Option<_>>()?;
    Some(SecretsTold { present: text(&answer["present"])?, accepted, obstacle: text(&answer["obstacle"]) })
}

/// Has one node after the other take a step.
async fn on_all(ctx: &Context, request: &Request, nodes: &[NodeName], step: &Value) -> Result<()> {
    for node in nodes {
        if let Err(problem) = ask(ctx, request, node, step).await {
            let reason = format!("{}. No session has ended; ask again.", problem.reason.trim_end_matches('.'));
            return Err(Problem::new(problem.status, problem.error, reason));
        }
    }
    Ok(())
}

/// What a node answers to a step.
async fn ask(ctx: &Context, request: &Request, node: &NodeName, step: &Value) -> Result<Value> {
    if node == ctx.cluster.name() {
        let step = json::parse(step.to_string().as_bytes()).ok();
        let step = step.and_then(|step| step.as_object().cloned()).unwrap_or_default();
        return take(ctx, &step).await;
    }
    let asked = forward::post(node, request, "_rotate_secret", step.to_string().into_bytes());
    let reply = forward::ask(ctx, node, asked).await?;
    let ReplyBody::Full(bytes) = reply.body else {
        return Err(Problem::internal(format!("{node} answered something else")));
    };
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    match reply.status {
        StatusCode::OK => Ok(answer),
        StatusCode::NOT_FOUND => Err(conflict(format!("{node} runs a version that cannot do this."))),
        status => {
            let text = |name: &str, default: &str| answer[name].as_str().unwrap_or(default).to_owned();
            let reason = format!("{node}: {}.", text("reason", "no reason").trim_end_matches('.'));
            Err(Problem::new(status, text("error", "internal_server_error"), reason))
        }
    }
}

/// `POST /_node/{name}/_rotate_secret`: one step on this node.
///
/// # Errors
/// 400 for what is no step, 409 for one that cannot be taken.
pub async fn step(ctx: &Context, mut request: Request) -> Result<Reply> {
    let body = request.json_object_within(limits::SECRET_STEP_BYTES).await?;
    Ok(Reply::value(StatusCode::OK, &take(ctx, &body).await?))
}

async fn take(ctx: &Context, step: &Object) -> Result<Value> {
    let text = |name: &'static str| {
        let value = step.get(name).and_then(json::Value::as_str);
        value.ok_or_else(|| Problem::bad_request(format!("`{name}` must be a string")))
    };
    let secrets = ctx.authenticator.secrets();
    let done = match text("step")? {
        "look" => {
            let SecretsTold { present, accepted, obstacle } = secrets.look().await?;
            return Ok(json!({"ok": true, "present": present, "accepted": accepted, "obstacle": obstacle}));
        }
        "accept" => secrets.accept(text("secret")?).await,
        "use" => secrets.put_to_use(text("digest")?).await,
        "drop" => secrets.drop_accepted(text("digest")?).await,
        _ => return Err(Problem::bad_request("`step` must be look, accept, use or drop")),
    };
    done?;
    Ok(json!({"ok": true}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(present: &str, accepted: &[&str]) -> SecretsTold {
        let accepted = accepted.iter().map(|one| (*one).to_owned()).collect();
        SecretsTold { present: present.to_owned(), accepted, obstacle: None }
    }

    #[test]
    fn a_rotation_that_broke_off_is_finished_with_a_secret_that_all_accept() {
        assert_eq!(left_behind(&[node("a", &["b"]), node("a", &[])]), None);
        assert_eq!(left_behind(&[node("new", &["old"]), node("old", &["new"])]).as_deref(), Some("new"));
        let nodes = [node("n2", &["n1", "old"]), node("n1", &["n2", "old"]), node("old", &["n2"])];
        assert_eq!(left_behind(&nodes).as_deref(), Some("n2"));
        assert_eq!(left_behind(&[node("a", &[]), node("b", &["a"]), node("c", &["b"])]), None, "set by hand");
    }

    #[test]
    fn what_a_node_tells_is_read_whole() {
        let answer = json!({"ok": true, "present": "p", "accepted": ["a"], "obstacle": null});
        assert_eq!(told(&answer), Some(node("p", &["a"])));
        for other in [json!({}), json!({"present": 1, "accepted": []}), json!({"present": "p", "accepted": [1]})] {
            assert_eq!(told(&other), None, "{other}");
        }
    }
}
