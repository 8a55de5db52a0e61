//! `/{db}/_security`.

use http::StatusCode;

use crate::auth::access::Class;
use crate::auth::options;
use crate::coordinator::WriteOperations;
use crate::http::request::Verb;
use crate::http::{Context, Problem, Reply, Request, Result};

/// GET and PUT of the security object. The content type is not looked at (as CouchDB 3.5 was measured).
pub async fn handle(ctx: &Context, mut request: Request, db: &str) -> Result<Reply> {
    if request.verb == Verb::Get {
        let database = ctx.open(db, &request, Class::Member)?;
        return Ok(Reply::json(StatusCode::OK, database.security().to_vec()));
    }
    let database = ctx.open(db, &request, Class::DatabaseAdmin)?;
    if db == options::users_db(&ctx.config) && !ctx.config.bool("couchdb", "users_db_security_editable", false) {
        return Err(Problem::forbidden("You can't edit the security object of the user database."));
    }
    let object = request.json_object().await?;
    database.settings().set_security(&object).await?;
    Ok(Reply::ok(StatusCode::OK))
}
