//! GET and HEAD of a document: one revision, or several by `open_revs`.

use std::sync::Arc;

use super::open_revs;
use super::read_options::ReadOptions;
use super::shown::{Data, Piece, Shown, length, write_pieces};
use super::{of_replicas, open, placed_id, rev_etag};
use crate::coordinator::{Database, Fetched, ReadOperations, Want};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::http::handle::accept::admits;
use crate::http::handle::rules;
use crate::http::{Context, Problem, Reply, Request, Result};

/// `GET /{db}/{docid}` (CouchDB documentation, 'Documents').
///
/// # Errors
/// 404 for what is not there, 400 for malformed parameters.
pub async fn get(ctx: &Context, request: &Request, db: &str, id: &str) -> Result<Reply> {
    let db = open(ctx, request, db)?;
    let options = ReadOptions { revs_max: Some(db.revs_limit()), ..ReadOptions::from_query(&request.query)? };
    let id = placed_id(&db, id)?;
    if let Some(open_revs) = &options.open_revs {
        rules::must_see_all(ctx, &request.user, &db, &id)?;
        return open_revs::get(ctx, request, db, id, &options, open_revs).await;
    }
    let named = options.rev.clone().filter(|_| !options.latest);
    let (fetched, mut stored, replicas) = agreed(&db, &id, named.as_ref(), &options).await?;
    rules::sight(ctx, &request.user, &db, &id)?.limit(&mut stored)?;
    let data = Data::wanted(&options, &fetched, &stored, false);
    let shown = Shown { id: &id, fetched: &fetched, stored: &stored, options: &options, data, meta: named.is_none() };
    if data.any(&stored) && admits(request.header("accept"), "multipart/related") {
        let (boundary, etag) = (boundary(ctx), rev_etag(&stored.rev));
        let text = shown.multipart(&boundary);
        if !text.has_meta && request.has_current(&etag) {
            return Ok(Reply::not_modified(&etag));
        }
        let content_type = format!("multipart/related; boundary=\"{boundary}\"");
        let reply = stream(Arc::clone(&db), id.clone(), text.pieces).header(http::header::CONTENT_TYPE, &content_type);
        let reply = of_replicas(&db, reply, replicas);
        return Ok(if text.has_meta { reply } else { reply.etag(&etag) });
    }
    Ok(of_replicas(&db, json(request, &db, &shown), replicas))
}

fn json(request: &Request, db: &Arc<Database>, shown: &Shown<'_>) -> Reply {
    let etag = rev_etag(&shown.stored.rev);
    let mut text = shown.json();
    if !text.has_meta && request.has_current(&etag) {
        return Reply::not_modified(&etag);
    }
    let reply = match text.pieces.as_mut_slice() {
        [Piece::Text(json)] => Reply::json(http::StatusCode::OK, std::mem::take(json)),
        [Piece::Text(head), Piece::Here(body), Piece::Text(tail)] => {
            let parts = [std::mem::take(head).into(), std::mem::take(body), std::mem::take(tail).into()];
            Reply::json_parts(http::StatusCode::OK, parts)
        }
        _ => {
            text.pieces.push(Piece::Text(b"\n".to_vec()));
            stream(Arc::clone(db), shown.id.clone(), text.pieces)
        }
    };
    if text.has_meta { reply } else { reply.etag(&etag) }
}

/// One revision of a document: the one named, else the winner, which must be live unless `deleted` says otherwise.
///
/// # Errors
/// 404 `missing` or `deleted`.
pub async fn one(
    db: &Arc<Database>,
    id: &DocId,
    rev: Option<&crate::document::revision::Revision>,
    deleted: bool,
) -> Result<(Fetched, StoredRevision)> {
    let options = ReadOptions { deleted, ..ReadOptions::default() };
    let (fetched, stored, _) = agreed(db, id, rev, &options).await?;
    Ok((fetched, stored))
}

/// As [`one`]; tells how many replicas have it just so, too.
async fn agreed(
    db: &Arc<Database>,
    id: &DocId,
    rev: Option<&crate::document::revision::Revision>,
    options: &ReadOptions,
) -> Result<(Fetched, StoredRevision, usize)> {
    let want = rev.map_or(Want::Winner, |rev| Want::Revision(rev.clone()));
    let (fetched, replicas) = db.documents().fetch_agreed(id, want, options.r).await?;
    let Some(mut fetched) = fetched else { return Err(Problem::missing()) };
    let Some(stored) = fetched.take_one() else { return Err(Problem::missing()) };
    if stored.deleted && rev.is_none() && !options.deleted {
        return Err(Problem::not_found("deleted"));
    }
    Ok((fetched, stored, replicas))
}

/// A streamed answer made of pieces, with its length where that is known.
pub fn stream(db: Arc<Database>, id: DocId, pieces: Vec<Piece>) -> Reply {
    let length = length(&pieces);
    let reply = Reply::generate(move |mut sink| async move {
        sink.page(pieces.iter().map(Piece::held).sum());
        write_pieces(&db, &id, pieces, &mut sink).await?;
        sink.flush().await
    });
    match length {
        Some(length) => reply.header(http::header::CONTENT_LENGTH, &length.to_string()),
        None => reply,
    }
}

/// A boundary for multipart bodies: 32 hexadecimal digits.
pub fn boundary(ctx: &Context) -> String {
    crate::wire::hex::encode(&ctx.env.random_bytes::<16>())
}
