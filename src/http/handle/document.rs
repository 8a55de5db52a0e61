//! Documents: `/{db}/{docid}` and `POST /{db}`.

use super::super::{Context, Problem, Reply, Request, Result};

/// `/{db}/{docid}`, every method. `id` has its `_design/`; its form is not yet checked.
pub async fn handle(_ctx: &Context, _request: Request, _db: &str, _id: &str) -> Result<Reply> {
    Err(Problem::not_implemented("documents"))
}

/// `POST /{db}`
pub async fn post(_ctx: &Context, _request: Request, _db: &str) -> Result<Reply> {
    Err(Problem::not_implemented("documents"))
}
