//! Documents: `/{db}/{docid}` and `POST /{db}`. Each method is one function of `read`, `write` or `form`.

pub mod attachment;
pub mod bulk;
pub mod bulk_get;
pub mod form;
pub mod local;
pub mod open_revs;
pub mod range;
pub mod read;
pub mod read_options;
pub mod related;
pub mod shown;
pub mod write;
pub mod write_options;

use std::sync::Arc;

use http::{HeaderName, StatusCode};

use crate::auth::access::Class;
use crate::coordinator::{Database, WriteDone, Written};
use crate::document::id::{DocId, sides};
use crate::http::handle::rules::Rules;
use crate::http::handle::token;
use crate::http::{Context, Problem, Reply, Request, Result, Verb};

/// The methods of a document, as CouchDB lists them.
pub const ALLOWED: &str = "DELETE,GET,HEAD,POST,PUT,COPY";

/// `/{db}/{docid}`, every method. `id` has its `_design/`; its form is not yet checked.
pub async fn handle(ctx: &Context, request: Request, db: &str, id: &str) -> Result<Reply> {
    match request.verb {
        Verb::Get => read::get(ctx, &request, db, id).await,
        Verb::Put => write::put(ctx, request, db, id).await,
        Verb::Delete => write::delete(ctx, &request, db, id).await,
        Verb::Copy => write::copy(ctx, &request, db, id).await,
        Verb::Post => form::upload(ctx, request, db, id).await,
        Verb::Other => Err(Problem::method_not_allowed(ALLOWED)),
    }
}

/// How many replicas agreed on what an answer says; sent where there are several.
const REPLICAS: HeaderName = HeaderName::from_static("x-settee-copies");

/// `POST /{db}`
pub async fn post(ctx: &Context, request: Request, db: &str) -> Result<Reply> {
    write::post(ctx, request, db).await
}

/// The handle of a database, for those who may read it.
///
/// # Errors
/// 404 without such a database, 401 or 403 for others than members.
pub fn open(ctx: &Context, request: &Request, db: &str) -> Result<Arc<Database>> {
    ctx.open(db, request, Class::Member)
}

/// Whether a member may write this document: design documents ask for more.
///
/// # Errors
/// 401 or 403.
pub fn may_write(ctx: &Context, request: &Request, db: &Arc<Database>, id: &DocId) -> Result<()> {
    may_write_by(Rules::of(ctx, &db.name), ctx, request, db, id)
}

/// As [`may_write`], by the rules of the database.
pub fn may_write_by(rules: Rules, ctx: &Context, request: &Request, db: &Arc<Database>, id: &DocId) -> Result<()> {
    rules.may_touch(&request.user, db, id)?;
    if id.is_design() { ctx.allow(db, &request.user, Class::DatabaseAdmin) } else { Ok(()) }
}

/// An id that a client wants to write under.
pub fn checked_id(ctx: &Context, id: &str) -> Result<DocId> {
    Ok(DocId::check(id, id_length_max(ctx))?)
}

/// The id of a document that a client wants to read or delete.
///
/// # Errors
/// 400 in a partitioned database for an id that names no partition: no shard can have it. Whether a document could be
/// written under it is not asked: nothing is found under the others.
pub fn placed_id(db: &Arc<Database>, id: &str) -> Result<DocId> {
    if db.map().partitioned && !id.starts_with('_') {
        sides(id)?;
    }
    Ok(DocId::new(id))
}

/// `couchdb/max_document_id_length`: the longest id in bytes, `None` for any.
pub fn id_length_max(ctx: &Context) -> Option<usize> {
    ctx.config.text("couchdb", "max_document_id_length", "infinity").parse().ok()
}

/// `{"ok":true,"id":..,"rev":..}`
pub fn ok_json(id: &str, rev: Option<&str>) -> Vec<u8> {
    let mut out = b"{\"ok\":true,\"id\":".to_vec();
    crate::document::json::write_string(id, &mut out);
    if let Some(rev) = rev {
        out.extend_from_slice(b",\"rev\":");
        crate::document::json::write_string(rev, &mut out);
    }
    out.push(b'}');
    out
}

/// The answer to a write that took place: `full` when enough replicas have it, else 202.
pub fn written(db: &Arc<Database>, id: &str, done: &WriteDone, full: StatusCode) -> Reply {
    let status = match done.written {
        Written::Quorum => full,
        Written::Accepted => StatusCode::ACCEPTED,
    };
    let reply = Reply::json(status, ok_json(id, Some(&done.rev.to_string())));
    token::with_token(db, of_replicas(db, reply, done.replicas as usize), [done])
}

/// The reply with the number of replicas that agreed on it, or hold what it tells of, where there are several.
pub fn of_replicas(db: &Arc<Database>, reply: Reply, replicas: usize) -> Reply {
    if db.map().n > 1 { reply.header(REPLICAS, &replicas.to_string()) } else { reply }
}

/// The ETag of a revision.
pub fn rev_etag(rev: &crate::document::revision::Revision) -> String {
    format!("\"{rev}\"")
}
