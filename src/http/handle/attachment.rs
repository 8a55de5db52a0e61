//! Attachments: `/{db}/{docid}/{name}`.

use super::super::{Context, Problem, Reply, Request, Result};

/// `/{db}/{docid}/{name}`: GET, PUT, DELETE. The body comes as sent: `Content-Encoding` is not undone.
pub async fn handle(_ctx: &Context, _request: Request, _db: &str, _id: &str, _name: &str) -> Result<Reply> {
    Err(Problem::not_implemented("attachments"))
}
