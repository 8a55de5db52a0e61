//! `_replicate`, and what is told of running replications: `_active_tasks`, `_scheduler/jobs`.

use std::time::Duration;

use http::StatusCode;

use crate::document::json::{Object, Value};
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::index::IndexTask;
use crate::replicate::{Event, Job, Outcome};

/// `POST /_replicate`
///
/// # Errors
/// 401 for anonymous callers, else those of the replication.
pub async fn replicate(ctx: &Context, mut request: Request) -> Result<Reply> {
    if request.user.name.is_none() {
        return Err(Problem::unauthorized("You are not an authenticated user"));
    }
    request.require_json()?;
    let body = request.json_object().await?;
    let local_id = |id: String| {
        let mut out = Object::new();
        out.push("ok", true);
        out.push("_local_id", id);
        out.to_vec()
    };
    Ok(match ctx.replicator.order(&body, &request.user, &request.base_url()).await? {
        Outcome::Done(answer) => Reply::json(StatusCode::OK, answer.to_vec()),
        Outcome::Running(id) => Reply::json(StatusCode::ACCEPTED, local_id(id)),
        Outcome::Cancelled(id) => Reply::json(StatusCode::OK, local_id(id)),
    })
}

/// `GET /_active_tasks`
pub fn active_tasks(ctx: &Context) -> Reply {
    let replications = ctx.replicator.jobs();
    let replications = replications.iter().map(|job| task(ctx, job));
    let indexes = ctx.coordinator.index_tasks();
    let tasks = replications.chain(indexes.iter().map(|index| index_task(ctx, index))).map(Value::Object).collect();
    Reply::json(StatusCode::OK, Value::Array(tasks).to_vec())
}

/// A build of an index; `seconds_left` is settee's own.
fn index_task(ctx: &Context, task: &IndexTask) -> Object {
    let mut out = Object::new();
    out.push("type", "indexer");
    out.push("pid", format!("<0.{}.0>", task.number));
    out.push("node", ctx.node_name.as_str());
    out.push("database", format!("shards/{}/{}", task.owner.range, task.owner.database));
    out.push("design_document", task.owner.design.as_str());
    out.push("changes_done", task.done);
    out.push("total_changes", task.total);
    out.push("progress", task.progress());
    out.push("started_on", task.started.as_secs());
    out.push("updated_on", task.updated.as_secs());
    out.push("seconds_left", task.left().map_or(Value::Null, |left| Value::from(left.as_secs())));
    out
}

/// `GET /_scheduler/jobs` and `/_scheduler/jobs/{id}`
///
/// # Errors
/// 404 for an unknown job; 501 for the documents of replicator databases.
pub fn scheduler(ctx: &Context, request: &Request, rest: &[String]) -> Result<Reply> {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["jobs"] => {
            let number = |name: &str, default: u64| match request.query.get(name) {
                None => Ok(default),
                Some(text) => text
                    .parse::<u64>()
                    .map_err(|_| Problem::query_parse(format!("Invalid value for integer: \"{text}\""))),
            };
            let (limit, skip) = (number("limit", 25)?, number("skip", 0)?);
            let jobs = ctx.replicator.jobs();
            let size = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
            let shown = jobs.iter().skip(size(skip)).take(size(limit)).map(|job| Value::Object(described(ctx, job)));
            let mut out = Object::new();
            out.push("total_rows", jobs.len() as u64);
            out.push("offset", skip);
            out.push("jobs", Value::Array(shown.collect()));
            Ok(Reply::json(StatusCode::OK, out.to_vec()))
        }
        ["jobs", id] => {
            // A plus sign in a path may be taken for a space on the way.
            let job = ctx.replicator.job(&id.replace(' ', "+")).ok_or_else(Problem::missing)?;
            Ok(Reply::json(StatusCode::OK, described(ctx, &job).to_vec()))
        }
        ["docs", ..] => Err(super::not_yet::endpoint("_scheduler/docs")),
        _ => Err(Problem::missing()),
    }
}

fn text_or_null(text: Option<&str>) -> Value {
    text.map_or(Value::Null, Value::from)
}

fn seq(seq: Option<Value>) -> Value {
    match seq {
        None | Some(Value::Int(0)) => Value::from("0"),
        Some(seq) => seq,
    }
}

/// The counters, named as tasks and jobs name them.
fn info(job: &Job) -> Object {
    let progress = job.progress();
    let counters = progress.counters;
    let mut out = Object::new();
    out.push("revisions_checked", counters.missing_checked);
    out.push("missing_revisions_found", counters.missing_found);
    out.push("docs_read", counters.docs_read);
    out.push("docs_written", counters.docs_written);
    out.push("changes_pending", progress.pending.map_or(Value::Null, Value::from));
    out.push("doc_write_failures", counters.doc_write_failures);
    out.push("bulk_get_docs", counters.bulk_get_docs);
    out.push("bulk_get_attempts", counters.bulk_get_attempts);
    out.push("checkpointed_source_seq", seq(progress.checkpointed_seq));
    out.push("source_seq", seq(progress.source_seq));
    out.push("through_seq", seq(progress.through_seq));
    out
}

/// A job as `_active_tasks` shows it.
fn task(ctx: &Context, job: &Job) -> Object {
    let mut out = Object::new();
    out.push("type", "replication");
    out.push("pid", pid(job));
    out.push("node", ctx.node_name.as_str());
    out.push("replication_id", job.id.as_str());
    out.push("database", Value::Null);
    out.push("doc_id", Value::Null);
    out.push("user", text_or_null(job.user.as_deref()));
    out.push("source", job.source.as_str());
    out.push("target", job.target.as_str());
    out.push("continuous", job.continuous);
    out.push("checkpoint_interval", job.checkpoint_interval_ms);
    out.push("started_on", job.started.as_secs());
    out.push("updated_on", job.progress().updated.max(job.started).as_secs());
    for (name, value) in info(job).into_iter() {
        out.push(name, value);
    }
    out
}

/// A job as `_scheduler/jobs` shows it.
fn described(ctx: &Context, job: &Job) -> Object {
    let event = |event: Event| {
        let mut out = Object::new();
        out.push("timestamp", iso_time(event.at));
        out.push("type", event.kind);
        if let Some(reason) = event.reason {
            out.push("reason", reason);
        }
        Value::Object(out)
    };
    let mut out = Object::new();
    out.push("database", Value::Null);
    out.push("id", job.id.as_str());
    out.push("pid", pid(job));
    out.push("source", job.source.as_str());
    out.push("target", job.target.as_str());
    out.push("user", text_or_null(job.user.as_deref()));
    out.push("doc_id", Value::Null);
    out.push("info", info(job));
    out.push("history", Value::Array(job.events().into_iter().map(event).collect()));
    out.push("node", ctx.node_name.as_str());
    out.push("start_time", iso_time(job.started));
    out
}

/// In the place of a process, which there is none of.
fn pid(job: &Job) -> String {
    format!("<0.{}.0>", job.number)
}

/// `2026-11-20T23:39:44Z`
fn iso_time(wall: Duration) -> String {
    let seconds = wall.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of the year 0, so that leap days end a year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest % 3600 / 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_217_565, "2026-11-20T23:32:45Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(iso_time(Duration::from_secs(seconds)), text);
        }
    }
}
