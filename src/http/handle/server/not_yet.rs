//! Endpoints that this version does not serve, from one place: 501.

use http::StatusCode;

use crate::auth::access::Class;
use crate::coordinator::{ReadOperations, Want};
use crate::document::id::DocId;
use crate::http::{Context, Problem, Reply, Request, Result};

/// 501 for an endpoint of a later version.
pub fn endpoint(name: &str) -> Problem {
    Problem::not_implemented(format!("{name} is not available in this version."))
}

/// 410: views by POST were given up long ago.
pub fn temp_view(ctx: &Context, request: &Request, db: &str) -> Result<Reply> {
    ctx.open(db, request, Class::Member)?;
    Err(Problem::new(StatusCode::GONE, "gone", "Temporary views are not supported in CouchDB"))
}

/// Functions of a design document: a missing design document is 404, the rest 501.
pub async fn design_function(ctx: &Context, request: &Request, db: &str, id: &str, path: &[String]) -> Result<Reply> {
    let database = ctx.open(db, request, Class::Member)?;
    let function = path.first().map(String::as_str).unwrap_or_default();
    let found = database.documents().fetch(&DocId::new(id), Want::Winner).await?;
    if found
        .is_none_or(|f| f.tree.winner().is_none_or(|leaf| crate::document::rev_tree::RevValue::is_deleted(leaf.value)))
    {
        return Err(Problem::missing());
    }
    Err(endpoint(function))
}
