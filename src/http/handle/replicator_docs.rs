//! Documents of replicator databases: their rules (`replicate::documents`) put before writes, credentials kept from
//! readers that they are none of.

use super::users;
use crate::auth::UserCtx;
use crate::auth::access::Rank;
use crate::auth::security::SecurityObject;
use crate::coordinator::{Database, WriteRequest};
use crate::document::json::{Object, Value};
use crate::http::{Problem, Result};
use crate::replicate::documents::{checked, is_replicator_database, without_credentials};

/// Checks a document that is to be written into a replicator database and puts its owner in; elsewhere does nothing.
///
/// # Errors
/// 403 for what is no replication, or somebody else's.
pub async fn prepare(user: &UserCtx, db: &Database, write: &mut WriteRequest, new_edits: bool) -> Result<()> {
    let exempt = write.id.is_design() || write.id.is_local() || write.draft.deleted;
    if !is_replicator_database(&db.name) || exempt {
        return Ok(());
    }
    let old = match user.is_server_admin() {
        true => None,
        false => users::predecessor(db, &write.id, &write.draft, new_edits).await?,
    };
    let body = std::mem::take(&mut write.draft.body);
    write.draft.body = checked(body, old.as_ref(), user).map_err(Problem::forbidden)?;
    Ok(())
}

/// Whether the caller sees documents of the database whole: everything but credentials of replications of others.
pub fn sees_credentials(user: &UserCtx, db: &Database) -> bool {
    if !is_replicator_database(&db.name) {
        return true;
    }
    let security = SecurityObject::parse(&db.security()).unwrap_or_else(|_| SecurityObject::admin_only());
    Rank::of(user, Some(&security)) >= Rank::DatabaseAdmin
}

/// The body as the caller may see it.
pub fn visible(body: Object, user: &UserCtx) -> Object {
    let owner = body.get("owner").and_then(Value::as_str);
    if owner.is_some() && owner == user.name.as_deref() { body } else { without_credentials(body) }
}
