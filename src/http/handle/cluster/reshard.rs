//! `_reshard`: jobs that split ranges, and the switch that stops them all.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Map, Value, json};

use crate::coordinator::rebalance::reshard::{JobRequest, NewJob};
use crate::coordinator::replica::jobs::{Job, JobEvent, JobState, Resharding};
use crate::coordinator::topology::shard_map::Range;
use crate::document::json::Object;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::wire::iso_time::iso_time;

/// Why everything is stopped when the request does not say.
const STOPPED: &str = "Cluster-wide resharding stopped by the user";
/// The same of one job.
const JOB_STOPPED: &str = "Stopped by user";

/// `rest` is the path behind `_reshard`.
///
/// # Errors
/// 404 for unknown jobs and paths, 405, 400 for a request that makes no sense, 503 with the names of nodes that did not
/// answer.
pub async fn handle(ctx: &Context, request: Request, rest: &[String]) -> Result<Reply> {
    let parts: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (parts.as_slice(), request.verb) {
        ([], Verb::Get) => summary(ctx).await,
        ([], _) => Err(Problem::method_not_allowed("GET,HEAD")),
        (["state"], Verb::Get) => Ok(state(ctx)),
        (["state"], Verb::Put) => set_state(ctx, request).await,
        (["state"], _) => Err(Problem::method_not_allowed("GET,HEAD,PUT")),
        (["jobs"], Verb::Get) => jobs(ctx).await,
        (["jobs"], Verb::Post) => create(ctx, request).await,
        (["jobs"], _) => Err(Problem::method_not_allowed("GET,HEAD,POST")),
        (["jobs", id], Verb::Get) => Ok(Reply::value(StatusCode::OK, &shown(&find(ctx, id).await?))),
        (["jobs", id], Verb::Delete) => done(ctx.coordinator.delete_reshard_job(id).await?),
        (["jobs", _], _) => Err(Problem::method_not_allowed("GET,HEAD,DELETE")),
        (["jobs", id, "state"], Verb::Get) => {
            let job = find(ctx, id).await?;
            Ok(Reply::value(StatusCode::OK, &json!({"state": job.state.as_str(), "reason": job.reason})))
        }
        (["jobs", id, "state"], Verb::Put) => {
            let stopped = wanted_state(request, JOB_STOPPED).await?;
            done(ctx.coordinator.set_reshard_job(id, stopped).await?)
        }
        (["jobs", _, "state"], _) => Err(Problem::method_not_allowed("GET,HEAD,PUT")),
        _ => Err(Problem::missing()),
    }
}

fn done(known: bool) -> Result<Reply> {
    if known { Ok(Reply::ok(StatusCode::OK)) } else { Err(Problem::missing()) }
}

async fn find(ctx: &Context, id: &str) -> Result<Job> {
    ctx.coordinator.reshard_job(id).await?.ok_or_else(Problem::missing)
}

fn name_of(state: &Resharding) -> &'static str {
    if state.stopped.is_some() { "stopped" } else { "running" }
}

async fn summary(ctx: &Context) -> Result<Reply> {
    let (state, jobs) = (ctx.coordinator.resharding(), ctx.coordinator.reshard_jobs().await);
    let count = |wanted: &[JobState]| jobs.iter().filter(|job| wanted.contains(&job.state)).count();
    Ok(Reply::value(
        StatusCode::OK,
        &json!({
            "state": name_of(&state),
            "state_reason": state.stopped,
            "completed": count(&[JobState::Completed]),
            "failed": count(&[JobState::Failed]),
            "running": count(&[JobState::New, JobState::Running]),
            "stopped": count(&[JobState::Stopped]),
            "total": jobs.len(),
        }),
    ))
}

fn state(ctx: &Context) -> Reply {
    let state = ctx.coordinator.resharding();
    Reply::value(StatusCode::OK, &json!({"state": name_of(&state), "reason": state.stopped}))
}

async fn set_state(ctx: &Context, request: Request) -> Result<Reply> {
    let stopped = wanted_state(request, STOPPED).await?;
    ctx.coordinator.set_resharding(Resharding { stopped }).await?;
    Ok(Reply::ok(StatusCode::OK))
}

/// Why to stop, or `None` to run.
async fn wanted_state(mut request: Request, default: &str) -> Result<Option<String>> {
    request.require_json()?;
    let body = request.query_object().await?;
    let state = body.get("state").ok_or_else(|| Problem::bad_request("Expected a `state` field"))?;
    match state.as_str() {
        Some("running") => Ok(None),
        Some("stopped") => {
            let given = body.get("reason").and_then(|reason| reason.as_str());
            Ok(Some(given.unwrap_or(default).to_owned()))
        }
        _ => Err(Problem::bad_request("State field not `running` or `stopped`")),
    }
}

async fn jobs(ctx: &Context) -> Result<Reply> {
    let jobs: Vec<Value> = ctx.coordinator.reshard_jobs().await.iter().map(shown).collect();
    Ok(Reply::value(StatusCode::OK, &json!({"total_rows": jobs.len(), "offset": 0, "jobs": jobs})))
}

fn shown(job: &Job) -> Value {
    let time = |at_s: u64| iso_time(Duration::from_secs(at_s));
    let event =
        |event: &JobEvent| json!({"timestamp": time(event.at_s), "type": event.kind.as_str(), "detail": event.detail});
    let mut info = Map::new();
    if let Some(reason) = &job.reason {
        info.insert("reason".to_owned(), json!(reason));
    }
    json!({
        "id": job.id,
        "type": "split",
        "source": job.source,
        "target": job.target,
        "job_state": job.state.as_str(),
        "split_state": job.split_state,
        "state_info": info,
        "node": job.node,
        "start_time": time(job.start_s),
        "update_time": time(job.update_s),
        "history": job.history.iter().map(event).collect::<Vec<Value>>(),
    })
}

/// One job for each replica that the request names.
async fn create(ctx: &Context, mut request: Request) -> Result<Reply> {
    request.require_json()?;
    let body = request.query_object().await?;
    let wanted = {
        let has_database = |name: &str| ctx.coordinator.database(name).is_ok();
        let there = There {
            connected: ctx.cluster.connected().iter().map(ToString::to_string).collect(),
            members: ctx.cluster.members().iter().map(|member| member.name.to_string()).collect(),
            has_database: &has_database,
        };
        job_request(&body, &there)?
    };
    let made = ctx.coordinator.reshard(&wanted).await?;
    if made.is_empty() {
        return Err(Problem::missing());
    }
    let entry = |job: &NewJob| match &job.made {
        Ok(id) => json!({"ok": true, "id": id, "node": job.node, "shard": job.shard}),
        Err(why) => json!({"error": why, "node": job.node, "shard": job.shard}),
    };
    let status = match made.iter().filter(|job| job.made.is_ok()).count() {
        0 => StatusCode::INTERNAL_SERVER_ERROR,
        all if all == made.len() => StatusCode::CREATED,
        _ => StatusCode::ACCEPTED,
    };
    Ok(Reply::value(status, &Value::Array(made.iter().map(entry).collect())))
}

/// What a request for jobs can name.
struct There<'a> {
    connected: Vec<String>,
    members: Vec<String>,
    has_database: &'a dyn Fn(&str) -> bool,
}

/// Checks in the order in which CouchDB does: node, shard, db, range, then the type.
fn job_request(body: &Object, there: &There<'_>) -> Result<JobRequest> {
    let text = |name: &str| match body.get(name) {
        None => Ok(None),
        Some(value) => match value.as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(invalid(name)),
        },
    };
    let node = text("node")?;
    match &node {
        Some(node) if there.connected.contains(node) => {}
        Some(node) if there.members.contains(node) => return Err(Problem::bad_request("Not connected to `node`")),
        Some(_) => return Err(Problem::bad_request("`node` is not a valid node name")),
        None => {}
    }
    let shard = match text("shard")? {
        None => None,
        Some(name) => {
            let (range, db) = parts_of(&name).ok_or_else(|| Problem::bad_request("`shard` is invalid"))?;
            Some((range, db.to_owned(), name))
        }
    };
    let db = text("db")?;
    if db.as_ref().is_some_and(|db| !(there.has_database)(db)) {
        return Err(invalid("db"));
    }
    let range = match text("range")? {
        None => None,
        Some(text) => {
            Some(Range::parse(&text).filter(|range| range.begin < range.end).ok_or_else(|| invalid("range"))?)
        }
    };
    if body.get("type").and_then(|kind| kind.as_str()) != Some("split") {
        return Err(Problem::bad_request("`job type must be `split`"));
    }
    match (db, shard) {
        (Some(_), Some(_)) => Err(Problem::bad_request("`db` and `shard` are mutually exclusive")),
        (Some(db), None) => Ok(JobRequest { db, node, range, replica: None }),
        (None, Some((range, db, name))) => Ok(JobRequest { db, node, range, replica: Some(name) }),
        (None, None) => Err(Problem::bad_request("Must specify at least `db` or `shard`")),
    }
}

fn invalid(name: &str) -> Problem {
    Problem::bad_request(format!("Invalid `{name}`"))
}

/// The range and the database of a replica's name, `shards/00000000-7fffffff/db.1700000000`. What looks like a range
/// and is none is of no replica.
fn parts_of(name: &str) -> Option<(Option<Range>, &str)> {
    let (range, rest) = name.strip_prefix("shards/")?.split_once('/')?;
    let (begin, end) = range.split_once('-')?;
    let db = rest.rsplit_once('.').map_or(rest, |(db, _)| db);
    (begin.len() == 8 && end.len() == 8).then(|| (Range::parse(range), db))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn read(text: &str) -> std::result::Result<JobRequest, String> {
        let json::Value::Object(body) = json::parse(text.as_bytes()).unwrap() else { panic!("an object") };
        let there = There {
            connected: vec!["a@h".to_owned()],
            members: vec!["a@h".to_owned(), "b@h".to_owned()],
            has_database: &|name| name == "d",
        };
        job_request(&body, &there).map_err(|problem| problem.reason.into_owned())
    }

    #[test]
    fn what_is_to_be_split() {
        let name = "shards/00000000-7fffffff/a/b.c.1700000000";
        let by_shard = read(&format!(r#"{{"type":"split","shard":"{name}","node":"a@h"}}"#)).unwrap();
        assert_eq!((by_shard.db.as_str(), by_shard.range), ("a/b.c", Range::parse("00000000-7fffffff")));
        assert_eq!((by_shard.replica.as_deref(), by_shard.node.as_deref()), (Some(name), Some("a@h")));
        let cases = [
            (r#"{"db":"d"}"#, "`job type must be `split`"),
            (r#"{"type":"merge","db":"d"}"#, "`job type must be `split`"),
            (r#"{"type":"split"}"#, "Must specify at least `db` or `shard`"),
            (
                r#"{"type":"split","db":"d","shard":"shards/00000000-7fffffff/d"}"#,
                "`db` and `shard` are mutually exclusive",
            ),
            (r#"{"type":"split","db":1}"#, "Invalid `db`"),
            (r#"{"type":"split","db":"none","range":"x"}"#, "Invalid `db`"),
            (r#"{"type":"split","db":"d","range":"0-1"}"#, "Invalid `range`"),
            (r#"{"type":"split","db":"d","range":"00000001-00000001"}"#, "Invalid `range`"),
            (r#"{"type":"split","db":"d","node":1}"#, "Invalid `node`"),
            (r#"{"type":"split","db":"d","node":"c@h"}"#, "`node` is not a valid node name"),
            (r#"{"type":"split","db":"d","node":"b@h"}"#, "Not connected to `node`"),
            (r#"{"shard":7}"#, "Invalid `shard`"),
            (r#"{"shard":"x","range":"0"}"#, "`shard` is invalid"),
        ];
        for (body, reason) in cases {
            assert_eq!(read(body).unwrap_err(), reason, "{body}");
        }
    }
}
