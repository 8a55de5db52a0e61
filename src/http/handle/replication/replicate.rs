//! `_replicate` and `_active_tasks`.

use http::StatusCode;

use super::scheduler;
use crate::document::json::{Object, Value};
use crate::http::forward;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::limits;
use crate::observe::tasks::{Subject, TaskState};
use crate::replicate::Outcome;
use crate::replicate::request::Order;

/// `POST /_replicate`. Each replication belongs to one node of a cluster, whichever was asked; it is cancelled wherever
/// it runs. GET and DELETE are taken for a request without its body, as by CouchDB.
///
/// # Errors
/// 401 for anonymous callers, else those of the replication.
pub async fn replicate(ctx: &Context, mut request: Request) -> Result<Reply> {
    if request.verb != Verb::Post {
        return Err(Problem::bad_request("Missing request body"));
    }
    let (body, order) = read(&mut request).await?;
    let body = body.to_vec();
    match &order {
        Order::Start(asked) => match ctx.replicator.elsewhere(&ctx.cluster, asked) {
            // A replication that is not continuous answers when it is done.
            Some(node) => forward::send_on(ctx, &node, forward::post(&node, &request, "_replicate", body)).await,
            None => carry_out(ctx, &request, order).await,
        },
        Order::Cancel(_) | Order::CancelId(_) => {
            let mut reply = carry_out(ctx, &request, order).await;
            for node in forward::others(ctx) {
                if !reply.as_ref().is_err_and(|problem| problem.status == StatusCode::NOT_FOUND) {
                    break;
                }
                let answer = forward::ask(ctx, &node, forward::post(&node, &request, "_replicate", body.clone())).await;
                // A node that does not answer has no say.
                reply = answer.ok().filter(|answer| answer.status != StatusCode::NOT_FOUND).map_or(reply, Ok);
            }
            reply
        }
    }
}

/// `POST /_node/_local/_replicate`: the same on this node, for the others.
///
/// # Errors
/// As [`replicate`].
pub async fn here(ctx: &Context, mut request: Request) -> Result<Reply> {
    let (_, order) = read(&mut request).await?;
    carry_out(ctx, &request, order).await
}

async fn read(request: &mut Request) -> Result<(Object, Order)> {
    let is_known = request.user.name.is_some();
    // The body comes first, as in CouchDB; not much of it is held for somebody who is refused behind it.
    let body = match is_known {
        true => request.query_object().await?,
        false => request.json_object_within(limits::LOGIN_BYTES_MAX).await?,
    };
    if !is_known {
        return Err(Problem::unauthorized("You are not an authenticated user"));
    }
    request.require_json()?;
    let order = Order::parse(&body)?;
    Ok((body, order))
}

async fn carry_out(ctx: &Context, request: &Request, order: Order) -> Result<Reply> {
    let local_id = |id: String| {
        let mut out = Object::new();
        out.push("ok", true);
        out.push("_local_id", id);
        out.to_vec()
    };
    Ok(match ctx.replicator.order(order, &request.user, &request.base_url()).await? {
        Outcome::Done(answer) => Reply::json(StatusCode::OK, answer.to_vec()),
        Outcome::Running(id) => Reply::json(StatusCode::ACCEPTED, local_id(id)),
        Outcome::Cancelled(id) => Reply::json(StatusCode::OK, local_id(id)),
    })
}

/// `GET /_active_tasks`: those of all nodes.
pub async fn active_tasks(ctx: &Context, request: &Request) -> Reply {
    let mut tasks = tasks_here(ctx);
    for answer in forward::ask_others(ctx, request, "_active_tasks").await {
        if let Value::Array(others) = answer {
            tasks.extend(others);
        }
    }
    Reply::json(StatusCode::OK, Value::Array(tasks).to_vec())
}

/// The tasks of this node.
pub fn tasks_here(ctx: &Context) -> Vec<Value> {
    let replications = ctx.replicator.jobs();
    let replications = replications.iter().map(|job| scheduler::task(ctx, job));
    let others = ctx.env.metrics().tasks().states();
    replications.chain(others.iter().map(|task| long_task(&ctx.node_name, task))).map(Value::Object).collect()
}

/// A task of the node that is no replication. `seconds_left`, `source_node` and most types are settee's own.
fn long_task(node: &str, task: &TaskState) -> Object {
    let Subject { kind, database, range, design, peer } = &task.subject;
    let mut out = Object::new();
    out.push("type", kind.as_str());
    out.push("pid", format!("<0.{}.0>", task.number));
    out.push("node", node);
    match (database.as_str(), range.as_str()) {
        ("", _) => {}
        (database, "") => out.push("database", database),
        (database, range) => out.push("database", format!("shards/{range}/{database}")),
    }
    for (name, value) in [("design_document", design.as_str()), ("source_node", peer.as_str())] {
        if !value.is_empty() {
            out.push(name, value);
        }
    }
    if let Some(phase) = task.phase {
        out.push("phase", phase);
    }
    out.push("changes_done", task.done);
    if let (Some(total), Some(progress)) = (task.total, task.progress()) {
        out.push("total_changes", total);
        out.push("progress", progress);
    }
    out.push("started_on", task.started.as_secs());
    out.push("updated_on", task.updated.as_secs());
    out.push("seconds_left", task.left().map_or(Value::Null, |left| Value::from(left.as_secs())));
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::tasks::{TaskKind, Tasks};

    #[test]
    fn a_task_shows_what_is_known_of_it() {
        let (tasks, at) = (Tasks::default(), Duration::from_secs);
        let compaction = Subject::new(TaskKind::DatabaseCompaction, "db").range("00000000-7fffffff");
        let number = tasks.begin(compaction, Some(4), (at(1000), at(1)));
        tasks.update(number, (at(1010), at(11)), |task| (task.done, task.phase) = (1, Some("documents")));
        tasks.begin(Subject::new(TaskKind::NodeSync, "").peer("n2"), None, (at(1011), at(12)));
        let shown: Vec<String> =
            tasks.states().iter().map(|task| String::from_utf8(long_task("n1", task).to_vec()).unwrap()).collect();
        assert_eq!(
            shown,
            [
                concat!(
                    r#"{"type":"database_compaction","pid":"<0.1.0>","node":"n1","database":"shards/00000000-7fffffff/db","#,
                    r#""phase":"documents","changes_done":1,"total_changes":4,"progress":25,"#,
                    r#""started_on":1000,"updated_on":1010,"seconds_left":30}"#
                ),
                concat!(
                    r#"{"type":"node_sync","pid":"<0.2.0>","node":"n1","source_node":"n2","changes_done":0,"#,
                    r#""started_on":1011,"updated_on":1011,"seconds_left":null}"#
                ),
            ]
        );
    }
}
