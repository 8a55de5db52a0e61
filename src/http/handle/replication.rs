//! `_revs_diff` and `_missing_revs`.

use super::super::{Context, Problem, Reply, Request, Result};

/// `POST /{db}/_revs_diff`
pub async fn revs_diff(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_revs_diff"))
}

/// `POST /{db}/_missing_revs`
pub async fn missing_revs(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_missing_revs"))
}
