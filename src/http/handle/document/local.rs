//! Local documents: `/{db}/_local/{docid}`. They behave like other documents, but have no revision history and no ETag
//! of a revision.

use super::open;
use super::open_revs;
use super::read_options::ReadOptions;
use crate::coordinator::{ReadOperations, Want};
use crate::document::id::DocId;
use crate::document::render::{RenderOptions, render};
use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;
use crate::http::handle::rules;
use crate::http::response::state_etag;
use crate::http::{Context, Problem, Reply, Request, Result, Verb};

/// GET, PUT, DELETE, COPY of a local document; `id` without `_local/`.
pub async fn handle(ctx: &Context, request: Request, db: &str, id: &str) -> Result<Reply> {
    let id = format!("_local/{id}");
    match request.verb {
        Verb::Get => get(ctx, &request, db, &id).await,
        _ => super::handle(ctx, request, db, &id).await,
    }
}

async fn get(ctx: &Context, request: &Request, db: &str, id: &str) -> Result<Reply> {
    let db = open(ctx, request, db)?;
    let options = ReadOptions::from_query(&request.query)?;
    let id = DocId::new(id);
    rules::must_see_all(ctx, &request.user, &db, &id)?;
    if let Some(open_revs) = &options.open_revs {
        return open_revs::get(ctx, request, db, id, &options, open_revs).await;
    }
    if options.rev.is_some() && !options.latest {
        return Err(Problem::missing());
    }
    let found = db.documents().fetch_from(&id, Want::Winner, options.r).await?.and_then(|mut found| found.take_one());
    let stored = found.filter(|stored| !stored.deleted).ok_or_else(Problem::missing)?;
    let etag = etag(&stored.rev, &stored.body);
    // All the history that there is of it.
    let own = options.revs.then(|| RevPath::single(stored.rev.clone()));
    let options = RenderOptions { revisions: own.as_ref(), ..RenderOptions::default() };
    let json = || render(id.as_str(), &stored, &options);
    Ok(request.unless_current(&etag, || Reply::json(http::StatusCode::OK, json())))
}

/// The ETag of a local document. Its revision alone does not tell two states apart, so the body takes part.
pub fn etag(rev: &Revision, body: &[u8]) -> String {
    state_etag(&[rev.to_string().as_bytes(), body])
}

#[cfg(test)]
mod tests {
    use super::{etag, state_etag};
    use crate::document::revision::Revision;

    #[test]
    fn etags_differ_by_revision_and_by_body() {
        let rev = |text: &str| Revision::parse(text).unwrap();
        let first = etag(&rev("0-1"), b"{}");
        assert_eq!(first.len(), 27);
        assert_eq!(first, etag(&rev("0-1"), b"{}"));
        assert_ne!(first, etag(&rev("0-2"), b"{}"));
        assert_ne!(first, etag(&rev("0-1"), b"{\"a\":1}"));
        assert_ne!(state_etag(&[b"ab", b"c"]), state_etag(&[b"a", b"bc"]));
    }
}
