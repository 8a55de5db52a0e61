//! `_purge` and `_purged_infos`.

use super::super::{Context, Problem, Reply, Request, Result};

/// `POST /{db}/_purge`
pub async fn purge(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_purge"))
}

/// `GET /{db}/_purged_infos`
pub async fn purged_infos(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_purged_infos"))
}
