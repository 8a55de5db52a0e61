//! `_all_docs`, `_design_docs`, `_local_docs` and their `/queries`.

use super::super::{Context, Problem, Reply, Request, Result};
use crate::http::route::ListKind;

/// GET and POST of a list.
pub async fn list(_ctx: &Context, _request: Request, _db: &str, _kind: ListKind) -> Result<Reply> {
    Err(Problem::not_implemented("_all_docs"))
}

/// POST of several queries on a list.
pub async fn queries(_ctx: &Context, _request: Request, _db: &str, _kind: ListKind) -> Result<Reply> {
    Err(Problem::not_implemented("_all_docs"))
}
