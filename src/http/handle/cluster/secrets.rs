//! `/_cluster/rotate_secret`: a new secret of cookies for all nodes, without a moment in which a node refuses what
//! another one has made; and `/_node/{name}/_rotate_secret`, one step of that on one node.
//!
//! POST has every node accept the new secret, and then has one after the other use it, which goes on accepting the one
//! before. DELETE ends that. Both need all members: one that is away would come back with what it had. A rotation that
//! broke off leaves nodes that accept each other's secrets; the next one first gives all of them one secret. One that
//! broke off before a node used the coming secret takes it back.
//!
//! POST with `end_sessions=true` is for a secret that has leaked: each node takes the new one and accepts no other one.
//! A rotation would renew a forged cookie under the new secret.
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
    let ends_sessions = request.query.boolean("end_sessions")?.unwrap_or(false);
    let nodes = members(ctx)?;
    let mut told = look(ctx, request, &nodes).await?;
    if ends_sessions {
        return replace(ctx, request, &nodes).await;
    }
    if let Some(common) = left_behind(&told) {
        on_all(ctx, request, &nodes, &Step::Use(&common)).await.map_err(|(_, problem)| problem)?;
        told = look(ctx, request, &nodes).await?;
    }
    if let Some((node, _)) = nodes.iter().zip(&told).find(|(_, told)| !told.has_room()) {
        let end = "DELETE /_cluster/rotate_secret ends those before";
        return Err(conflict(format!("{node}: {}. {end}", SecretError::Full)));
    }
    let secret = new_secret(&ctx.env);
    let coming = digest(&secret);
    if let Err((is_unused, problem)) = accept_and_use(ctx, request, &nodes, &secret).await {
        if is_unused {
            take_back(ctx, request, nodes.iter().zip(&told), &coming).await;
        }
        return Err(problem);
    }
    tracing::info!("all nodes make cookies with a new secret");
    let end = ctx.env.wall() + Duration::from_secs(cookie::timeout_s(&ctx.config));
    Ok(done(&nodes, &iso_time(end)))
}

fn done(nodes: &[NodeName], former_sessions_end: &str) -> Reply {
    let names: Vec<&str> = nodes.iter().map(NodeName::as_str).collect();
    Reply::value(StatusCode::OK, &json!({"ok": true, "nodes": names, "former_sessions_end": former_sessions_end}))
}

/// Has all nodes accept the secret, then all of them use it. An error says whether no node uses it yet.
async fn accept_and_use(
    ctx: &Context,
    request: &Request,
    nodes: &[NodeName],
    secret: &str,
) -> std::result::Result<(), (bool, Problem)> {
    on_all(ctx, request, nodes, &Step::Accept(secret)).await.map_err(|(_, problem)| (true, problem))?;
    let now = members(ctx).map_err(|problem| (true, problem))?;
    if now != nodes {
        let changed = "The members of the cluster have changed meanwhile: ask again.";
        return Err((true, conflict(changed.to_owned())));
    }
    let used = on_all(ctx, request, nodes, &Step::Use(&digest(secret))).await;
    used.map_err(|(failed, problem)| (failed == 0, problem))
}

/// Has the nodes accept a coming secret no more that none of them uses, so that it takes up no place. In the order in
/// which they would use it, up to the first one that fails: a node that uses it after all, because only its answer was
/// lost, refuses the step, and then the others go on accepting the secret.
async fn take_back(
    ctx: &Context,
    request: &Request,
    nodes: impl Iterator<Item = (&NodeName, &SecretsTold)>,
    coming: &str,
) {
    let coming = BTreeSet::from([coming]);
    for (node, told) in nodes {
        let step = Step::Drop { present: &told.present, former: coming.clone() };
        if let Err(problem) = ask(ctx, request, node, &step).await {
            tracing::warn!(%node, reason = %problem.reason, "a secret that is not used stays accepted");
            return;
        }
    }
}

/// Gives all nodes a new secret in the place of all that they accept. Asked for again after an error, it gives them
/// another one.
async fn replace(ctx: &Context, request: &Request, nodes: &[NodeName]) -> Result<Reply> {
    let secret = new_secret(&ctx.env);
    on_all(ctx, request, nodes, &Step::Replace(&secret)).await.map_err(|(_, problem)| problem)?;
    // A rotation at the same time may have given a node another one, which it may have renewed a forged cookie with.
    let told = look(ctx, request, nodes).await?;
    let only = SecretsTold { present: digest(&secret), accepted: Vec::new(), obstacle: None };
    if told.iter().any(|told| *told != only) || members(ctx)? != nodes {
        let changed = "The secrets or the members of the cluster have changed meanwhile: ask again.";
        return Err(conflict(changed.to_owned()));
    }
    tracing::info!("all nodes have a new secret of cookies, and accept no other one");
    Ok(done(nodes, &iso_time(ctx.env.wall())))
}

/// `DELETE /_cluster/rotate_secret`: former secrets are not accepted any more.
///
/// # Errors
/// As [`rotate`]; 409 also while not all nodes have the same secret.
pub async fn drop_former(ctx: &Context, request: &Request) -> Result<Reply> {
    let nodes = members(ctx)?;
    let told = look(ctx, request, &nodes).await?;
    let present: BTreeSet<&String> = told.iter().map(|told| &told.present).collect();
    let (Some(&present), 1) = (present.first(), present.len()) else {
        let all = "The nodes do not have the same secret: POST /_cluster/rotate_secret gives them one.";
        return Err(conflict(all.to_owned()));
    };
    // What one of the nodes accepts is dropped on all, in the order in which they accept one that is to come: it is
    // dropped before the first node uses it, which then fails, or the first one uses it and refuses this.
    let former: BTreeSet<&str> = told.iter().flat_map(|told| &told.accepted).map(String::as_str).collect();
    let step = Step::Drop { present, former };
    on_all(ctx, request, &nodes, &step).await.map_err(|(_, problem)| problem)?;
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
        let answer = ask(ctx, request, node, &Step::Look).await?;
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

/// What a node is asked to do; secrets but those that are new go by their digests.
#[derive(Debug, PartialEq)]
enum Step<'s> {
    Look,
    Accept(&'s str),
    Use(&'s str),
    Drop { present: &'s str, former: BTreeSet<&'s str> },
    Replace(&'s str),
}

impl<'s> Step<'s> {
    /// # Errors
    /// 400 for what is no step.
    fn read(body: &'s Object) -> Result<Step<'s>> {
        let text = |name: &'static str| {
            let value = body.get(name).and_then(json::Value::as_str);
            value.ok_or_else(|| Problem::bad_request(format!("`{name}` must be a string")))
        };
        Ok(match text("step")? {
            "look" => Step::Look,
            "accept" => Step::Accept(text("secret")?),
            "use" => Step::Use(text("digest")?),
            "drop" => {
                let present = text("digest")?;
                let digests = body.get("former").and_then(json::Value::as_array);
                let former = digests.and_then(|all| all.iter().map(json::Value::as_str).collect());
                let former = former.ok_or_else(|| Problem::bad_request("`former` must be an array of strings"))?;
                Step::Drop { present, former }
            }
            "replace" => Step::Replace(text("secret")?),
            _ => return Err(Problem::bad_request("`step` must be look, accept, use, drop or replace")),
        })
    }

    fn to_json(&self) -> Value {
        match self {
            Step::Look => json!({"step": "look"}),
            Step::Accept(secret) => json!({"step": "accept", "secret": secret}),
            Step::Use(digest) => json!({"step": "use", "digest": digest}),
            Step::Drop { present, former } => json!({"step": "drop", "digest": present, "former": former}),
            Step::Replace(secret) => json!({"step": "replace", "secret": secret}),
        }
    }

    /// What that it failed on one of the nodes means for clients.
    fn when_failed(&self) -> &'static str {
        match self {
            Step::Look | Step::Accept(_) | Step::Use(_) => "No session has ended; ask again.",
            Step::Drop { .. } => "Nodes may accept former secrets still; ask again.",
            Step::Replace(_) => "Nodes may have and accept the former secret still; ask again.",
        }
    }
}

/// Has one node after the other take a step. An error has the place of the node that failed.
async fn on_all(
    ctx: &Context,
    request: &Request,
    nodes: &[NodeName],
    step: &Step<'_>,
) -> std::result::Result<(), (usize, Problem)> {
    for (n, node) in nodes.iter().enumerate() {
        if let Err(problem) = ask(ctx, request, node, step).await {
            let reason = format!("{}. {}", problem.reason.trim_end_matches('.'), step.when_failed());
            return Err((n, Problem::new(problem.status, problem.error, reason)));
        }
    }
    Ok(())
}

/// What a node answers to a step.
async fn ask(ctx: &Context, request: &Request, node: &NodeName, step: &Step<'_>) -> Result<Value> {
    if node == ctx.cluster.name() {
        return take(ctx, step).await;
    }
    let asked = forward::post(node, request, "_rotate_secret", step.to_json().to_string().into_bytes());
    let reply = forward::ask(ctx, node, asked).await?;
    let ReplyBody::Full(answer) = reply.body else {
        return Err(Problem::internal(format!("{node} answered something else")));
    };
    let answer: Value = serde_json::from_slice(&answer.into_bytes()).unwrap_or_default();
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
    Ok(Reply::value(StatusCode::OK, &take(ctx, &Step::read(&body)?).await?))
}

async fn take(ctx: &Context, step: &Step<'_>) -> Result<Value> {
    let secrets = ctx.authenticator.secrets();
    match step {
        Step::Look => {
            let SecretsTold { present, accepted, obstacle } = secrets.look().await?;
            return Ok(json!({"ok": true, "present": present, "accepted": accepted, "obstacle": obstacle}));
        }
        Step::Accept(secret) => secrets.accept(secret).await,
        Step::Use(digest) => secrets.put_to_use(digest).await,
        Step::Drop { present, former } => secrets.drop_accepted(present, former).await,
        Step::Replace(secret) => secrets.replace(secret).await,
    }?;
    Ok(json!({"ok": true}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_steps_that_end_no_session_say_so_when_they_fail() {
        let drop = Step::Drop { present: "p", former: BTreeSet::new() };
        assert!([Step::Accept("s"), Step::Use("d")].iter().all(|step| step.when_failed().starts_with("No session")));
        assert!([&drop, &Step::Replace("s")].iter().all(|step| !step.when_failed().contains("session")));
    }

    fn object(text: &str) -> Object {
        json::parse(text.as_bytes()).unwrap().as_object().unwrap().clone()
    }

    #[test]
    fn a_step_reads_as_it_was_written_and_nothing_else_is_one() {
        let drop = Step::Drop { present: "p", former: BTreeSet::from(["e", "f"]) };
        for step in [Step::Look, Step::Accept("s"), Step::Use("d"), drop, Step::Replace("s")] {
            assert_eq!(Step::read(&object(&step.to_json().to_string())).ok(), Some(step));
        }
        let no_steps = [
            "{}",
            r#"{"step":"ask"}"#,
            r#"{"step":"use"}"#,
            r#"{"step":"drop","digest":"p"}"#,
            r#"{"step":"drop","digest":"p","former":"f"}"#,
            r#"{"step":"drop","digest":"p","former":[1]}"#,
        ];
        for other in no_steps {
            assert!(Step::read(&object(other)).is_err(), "{other}");
        }
    }

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
