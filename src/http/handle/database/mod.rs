//! `/{db}` itself, its limits, ranges and maintenance.

pub mod purge;
pub mod retention;
pub mod security;

use std::sync::Arc;

use http::StatusCode;
use serde_json::json;

use crate::auth::access::Class;
use crate::auth::{options, users_design};
use crate::coordinator::{
    CreateOptions, Database, DatabaseError, ReadError, ReadOperations, RebalanceOperations, Want, WriteOperations,
    Written, topology::names,
};
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue;
use crate::http::handle::document::placed_id;
use crate::http::request::Verb;
use crate::http::response::encode_segment;
use crate::http::route::InDatabase;
use crate::http::{Context, Problem, Reply, Request, Result};
use crate::observe::metrics::Histogram;
use crate::replicate::INSTANCE;

/// The format number of data files that clients see in `GET /{db}`: CouchDB's of 3.x.
const DISK_FORMAT_VERSION: u32 = 8;

/// GET, PUT and DELETE of a database.
pub async fn handle(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    match request.verb {
        Verb::Put => create(ctx, request, db).await,
        Verb::Delete => delete(ctx, request, db).await,
        _ => {
            let database = ctx.open(db, request, Class::Member)?;
            let begun = ctx.env.now();
            let info = info(&database).await?;
            ctx.env.metrics().record_ms(Histogram::DatabaseInfo, ctx.env.now().since(begun));
            Ok(Reply::value(StatusCode::OK, &info).header(INSTANCE, database.instance()))
        }
    }
}

/// The record of `GET /{db}`.
pub async fn info(database: &Arc<Database>) -> std::result::Result<serde_json::Value, ReadError> {
    let info = database.info().await?;
    let props = if info.partitioned { json!({"partitioned": true}) } else { json!({}) };
    Ok(json!({
        "instance_start_time": database.start_time(),
        "db_name": database.name,
        "purge_seq": info.purge_seq,
        "update_seq": info.update_seq,
        "sizes": {"file": info.sizes.file, "external": info.sizes.external, "active": info.sizes.active},
        "props": props,
        "doc_del_count": info.doc_del_count,
        "doc_count": info.doc_count,
        "disk_format_version": DISK_FORMAT_VERSION,
        "compact_running": info.compact_running,
        "cluster": {"q": info.cluster.q, "n": info.cluster.n, "w": info.cluster.w, "r": info.cluster.r},
    }))
}

async fn create(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let partitioned = match request.query.get("partitioned") {
        None | Some("false") => Ok(false),
        Some("true") if names::is_system(db) => Err(Problem::bad_request("Cannot partition a system database")),
        Some("true") => Ok(true),
        Some(_) => Err(Problem::bad_request("Invalid `partitioned` parameter")),
    };
    let options = CreateOptions {
        q: positive(request, "q")?,
        n: positive(request, "n")?,
        placement: request.query.get("placement").map(str::to_owned),
        engine: request.query.get("engine").map(str::to_owned),
        partitioned: partitioned?,
        ..CreateOptions::default()
    };
    let written = ctx.coordinator.create_database(db, options).await?;
    if db == options::users_db(&ctx.config) {
        match ctx.config.follows_couchdb() {
            true => users_design::ensure_later(&ctx.env, &ctx.config, &ctx.coordinator),
            false => users_design::ensure(&ctx.config, &ctx.coordinator).await?,
        }
    }
    let status = if written == Written::Quorum { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    Ok(Reply::ok(status).location(request, &[db]))
}

fn positive(request: &Request, parameter: &'static str) -> Result<Option<u32>> {
    let number = |text: &str| text.parse().ok().filter(|n| *n > 0);
    match request.query.get(parameter) {
        None => Ok(None),
        Some(text) => Ok(Some(number(text).ok_or(DatabaseError::IllegalNumber { parameter })?)),
    }
}

async fn delete(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    if request.query.has("rev") {
        return Err(Problem::bad_request(
            "You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?",
        ));
    }
    let written = ctx.coordinator.delete_database(db).await?;
    Ok(Reply::ok(if written == Written::Quorum { StatusCode::OK } else { StatusCode::ACCEPTED }))
}

/// An unknown `/_x`: no database, and no name for one. `name` is there when the path is just that.
pub async fn unknown(ctx: &Context, request: &Request, name: Option<&str>) -> Result<Reply> {
    match name {
        Some(name) if request.verb == Verb::Put => create(ctx, request, name).await,
        _ => Err(Problem::no_database()),
    }
}

/// GET of `_design%2Fx` and below: to the same path and query with a plain slash; `rest` is what follows it.
pub fn to_design(ctx: &Context, request: &Request, db: &str, rest: &str) -> Result<Reply> {
    ctx.open(db, request, Class::Member)?;
    let query = request.query_part();
    let to = format!("{}/{}/_design/{rest}{query}", request.base_url(), encode_segment(db));
    Ok(Reply::redirect(StatusCode::MOVED_PERMANENTLY, &to))
}

/// Paths that cannot name a document.
pub fn no_such_path(ctx: &Context, request: &Request, db: &str, at: &InDatabase) -> Result<Reply> {
    ctx.open(db, request, Class::Member)?;
    Err(match at {
        InDatabase::LocalWithoutId => Problem::bad_request("Invalid _local document id."),
        InDatabase::LocalAttachment => Problem::bad_request("_local documents do not accept attachments."),
        InDatabase::AttachmentNotText if request.verb != Verb::Get => {
            Problem::bad_request("Attachment name is not UTF-8 encoded")
        }
        InDatabase::PartitionNotText => Problem::invalid("illegal_partition", "Partition must be valid UTF-8"),
        _ if request.verb == Verb::Put => Problem::invalid("illegal_docid", "Document id must be valid UTF-8"),
        _ => Problem::missing(),
    })
}

/// `POST _compact` and `_compact/{ddoc}`.
pub async fn compact(ctx: &Context, request: &Request, db: &str, ddoc: Option<&str>) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Maintenance)?;
    request.require_json()?;
    match ddoc {
        None => database.compaction().compact().await?,
        Some(name) => {
            let found = database.documents().fetch(&DocId::new(&format!("_design/{name}")), Want::Winner).await?;
            let live = |leaf: &crate::document::rev_tree::Leaf<'_, _>| !RevValue::is_deleted(leaf.value);
            if !found.is_some_and(|found| found.tree.winner().as_ref().is_some_and(live)) {
                return Err(Problem::missing());
            }
        }
    }
    Ok(Reply::ok(StatusCode::ACCEPTED))
}

/// `POST _view_cleanup`: rows that no design document's view has any more go.
pub async fn view_cleanup(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Maintenance)?;
    database.queries().clean_up_views().await?;
    Ok(Reply::ok(StatusCode::ACCEPTED))
}

/// `POST _ensure_full_commit`
pub async fn ensure_full_commit(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Member)?;
    request.require_json()?;
    database.maintenance().ensure_full_commit().await?;
    Ok(Reply::value(StatusCode::CREATED, &json!({"ok": true, "instance_start_time": database.start_time()})))
}

/// GET and PUT `_revs_limit`
pub async fn revs_limit(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    if request.verb == Verb::Get {
        let database = ctx.open(db, &request, Class::Member)?;
        return Ok(Reply::json(StatusCode::OK, database.revs_limit().to_string()));
    }
    let database = ctx.open(db, &request, Class::DatabaseAdmin)?;
    let limit = request.json_body().await?.as_u64().filter(|limit| *limit > 0);
    let limit = limit.ok_or_else(|| Problem::bad_request("`revs_limit` must be positive integer"))?;
    database.settings().set_revs_limit(limit).await?;
    Ok(Reply::ok(StatusCode::OK))
}

/// GET and PUT `_purged_infos_limit`
pub async fn purged_infos_limit(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, &request, Class::ServerAdmin)?;
    if request.verb == Verb::Get {
        return Ok(Reply::json(StatusCode::OK, database.purged_infos_limit().to_string()));
    }
    let limit = request.json_body().await?.as_u64().filter(|limit| *limit > 0);
    let limit = limit.ok_or_else(|| Problem::bad_request("`purged_infos_limit` must be positive integer"))?;
    database.settings().set_purged_infos_limit(limit).await?;
    Ok(Reply::ok(StatusCode::OK))
}

/// `GET _shards`
pub fn shards(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Member)?;
    let shards: serde_json::Map<String, serde_json::Value> =
        database.shards().into_iter().map(|(range, nodes)| (range, json!(nodes))).collect();
    Ok(Reply::value(StatusCode::OK, &json!({ "shards": shards })))
}

/// `GET _shards/{docid}`
pub fn shards_of(ctx: &Context, request: &Request, db: &str, id: &str) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Member)?;
    let (range, nodes) = database.shard_of(&placed_id(&database, id)?);
    Ok(Reply::value(StatusCode::OK, &json!({"range": range, "nodes": nodes})))
}

/// `POST _sync_shards`
pub async fn sync_shards(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    let database = ctx.open(db, request, Class::ServerAdmin)?;
    database.maintenance().sync_shards().await?;
    Ok(Reply::ok(StatusCode::ACCEPTED))
}
