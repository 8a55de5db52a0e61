//! `_purge` and `_purged_infos`.

use http::StatusCode;

use crate::auth::access::Class;
use crate::coordinator::{WriteOperations, Written};
use crate::document::json::{Object, Value};
use crate::http::handle::document::read_options::revisions;
use crate::http::handle::document::{open, placed_id};
use crate::http::handle::replication::revs_json;
use crate::http::{Context, Reply, Request, Result};
use crate::observe::metrics::Counter;

/// `POST /{db}/_purge`
///
/// # Errors
/// 400 for a bad body and for too many documents or revisions.
pub async fn purge(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    let db = ctx.open(db, &request, Class::ServerAdmin)?;
    request.require_json()?;
    let body = request.query_object().await?;
    let mut asked = Vec::with_capacity(body.len());
    for (id, list) in body.iter() {
        // As in CouchDB, the log of purges has each revision once, in order.
        let mut revs = revisions(list)?;
        revs.sort();
        revs.dedup();
        asked.push((placed_id(&db, id)?, revs));
    }
    ctx.env.metrics().count(Counter::PurgeRequests);
    let ((purged, written), token) = db.maintenance().purge_with_token(asked).await?;
    ctx.env.metrics().add(Counter::DocumentPurges, purged.len() as u64);
    let purged: Object = purged.iter().map(|(id, revs)| (id.as_str().to_owned(), revs_json(revs))).collect();
    let mut out = Object::new();
    out.push("purge_seq", Value::Null);
    out.push("purged", purged);
    let status = if written == Written::Quorum { StatusCode::CREATED } else { StatusCode::ACCEPTED };
    let reply = Reply::json(status, out.to_vec());
    Ok(match token {
        Some(token) => reply.header(crate::http::handle::token::HEADER, &token),
        None => reply,
    })
}

/// `GET /{db}/_purged_infos`
///
/// # Errors
/// Those of reading.
pub async fn purged_infos(ctx: &Context, request: Request, db: &str) -> Result<Reply> {
    let infos = open(ctx, &request, db)?.maintenance().purge_infos().await?;
    let item = |info: &crate::coordinator::PurgeInfo| {
        let mut out = Object::new();
        out.push("id", info.id.as_str());
        out.push("revs", revs_json(&info.revs));
        Value::Object(out)
    };
    let mut out = Object::new();
    out.push("purged_infos", infos.iter().map(item).collect::<Vec<Value>>());
    Ok(Reply::json(StatusCode::OK, out.to_vec()))
}
