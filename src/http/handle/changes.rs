//! `_changes`.

use super::super::{Context, Problem, Reply, Request, Result};

/// GET and POST `/{db}/_changes`
pub async fn changes(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_changes"))
}
