//! Documents of replicator databases: their rules (`replicate::documents`) are applied before writes, and credentials
//! are hidden from readers to whom they do not belong. `rules` calls this module for such databases only.

use std::sync::Arc;

use super::before::{copied, live, predecessor};
use crate::auth::UserCtx;
use crate::auth::access::Rank;
use crate::auth::security::SecurityObject;
use crate::coordinator::{Database, WriteRequest};
use crate::document::id::DocId;
use crate::document::json::{Object, Value};
use crate::document::revision::Revision;
use crate::http::{Context, Problem, Result};
use crate::replicate::documents::{checked, without_credentials};
use crate::replicate::sealed::at_rest;

/// Checks a document that is to be written into a replicator database, puts its owner in, and seals its credentials
/// where that is on. What comes with its revision stays as it is.
///
/// # Errors
/// 403 for what is no replication, or somebody else's.
pub async fn prepare(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    write: &mut WriteRequest,
    new_edits: bool,
) -> Result<()> {
    if write.draft.deleted {
        return Ok(());
    }
    let old = match user.is_server_admin() {
        true => None,
        false => predecessor(db, &write.id, &write.draft, new_edits).await?,
    };
    let body = std::mem::take(&mut write.draft.body);
    let body = checked(body, old.as_ref(), user).map_err(Problem::forbidden)?;
    write.draft.body = if new_edits { at_rest(body, &ctx.config, || ctx.env.random_bytes()) } else { body };
    Ok(())
}

/// Checks a copy: what is to be in the target's place must be a replication of the caller.
///
/// # Errors
/// 403
pub async fn may_copy(
    user: &UserCtx,
    db: &Arc<Database>,
    (source, source_rev): (&DocId, Option<&Revision>),
    (target, target_rev): (&DocId, Option<&Revision>),
) -> Result<()> {
    let Some((new, old)) = copied(db, (source, source_rev), (target, target_rev)).await? else { return Ok(()) };
    checked(new, old.as_ref(), user).map(drop).map_err(Problem::forbidden)
}

/// Checks a write of an attachment: its document must be a replication of the caller already.
///
/// # Errors
/// 403
pub async fn may_attach(user: &UserCtx, db: &Arc<Database>, id: &DocId, rev: Option<&Revision>) -> Result<()> {
    let old = live(db, id, rev).await?;
    checked(old.clone().unwrap_or_default(), old.as_ref(), user).map(drop).map_err(Problem::forbidden)
}

/// Whether the caller sees documents of the database whole: everything but credentials of replications of others.
pub fn sees_credentials(user: &UserCtx, db: &Arc<Database>) -> bool {
    Rank::of(user, Some(&SecurityObject::of(db))) >= Rank::DatabaseAdmin
}

/// The body as the caller may see it.
pub fn visible(body: Object, user: &UserCtx) -> Object {
    let owner = body.get("owner").and_then(Value::as_str);
    if owner.is_some() && owner == user.name.as_deref() { body } else { without_credentials(body) }
}
