//! `_bulk_docs` and `_bulk_get`.

use super::super::{Context, Problem, Reply, Request, Result};

/// `POST /{db}/_bulk_docs`
pub async fn bulk_docs(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_bulk_docs"))
}

/// `POST /{db}/_bulk_get`
pub async fn bulk_get(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_bulk_get"))
}
