//! One handler per endpoint, chosen by one flat match. Handlers read the request, call one layer down, print the answer.

use super::route::{Endpoint, InDatabase};
use super::{Context, Problem, Reply, Request, Result};

pub mod all_docs;
pub mod attachment;
pub mod bulk;
pub mod changes;
pub mod document;
pub mod local;
pub mod purge;
pub mod replication;

/// Answers `request`, which names `endpoint`.
pub async fn handle(ctx: &Context, endpoint: Endpoint, request: Request) -> Result<Reply> {
    match endpoint {
        Endpoint::In(db, at) => in_database(ctx, &db, at, request).await,
        _ => Err(Problem::not_implemented("not yet")),
    }
}

async fn in_database(ctx: &Context, db: &str, at: InDatabase, request: Request) -> Result<Reply> {
    match at {
        InDatabase::List(kind) => all_docs::list(ctx, request, db, kind).await,
        InDatabase::Queries(kind) => all_docs::queries(ctx, request, db, kind).await,
        InDatabase::BulkDocs => bulk::bulk_docs(ctx, request, db).await,
        InDatabase::BulkGet => bulk::bulk_get(ctx, request, db).await,
        InDatabase::Changes => changes::changes(ctx, request, db).await,
        InDatabase::Purge => purge::purge(ctx, request, db).await,
        InDatabase::PurgedInfos => purge::purged_infos(ctx, request, db).await,
        InDatabase::RevsDiff => replication::revs_diff(ctx, request, db).await,
        InDatabase::MissingRevs => replication::missing_revs(ctx, request, db).await,
        InDatabase::Document(id) => document::handle(ctx, request, db, &id).await,
        InDatabase::Attachment(id, name) => attachment::handle(ctx, request, db, &id, &name).await,
        InDatabase::Local(id) => local::handle(ctx, request, db, &id).await,
        _ => Err(Problem::not_implemented("not yet")),
    }
}
