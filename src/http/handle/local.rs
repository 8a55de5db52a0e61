//! Local documents: `/{db}/_local/{docid}`.

use super::super::{Context, Problem, Reply, Request, Result};

/// GET, PUT, DELETE, COPY of a local document; `id` without `_local/`.
pub async fn handle(_ctx: &Context, _request: Request, _db: &str, _id: &str) -> Result<Reply> {
    Err(Problem::not_implemented("_local"))
}
