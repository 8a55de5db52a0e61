//! Rules of the users database for requests: the documents that a caller may see and write (CouchDB documentation,
//! 'Users database'). `rules` calls this module for that database only.

use std::sync::Arc;

use super::before::{body_of, copied, live, predecessor};
use crate::auth::access::{self, Class, Rank};
use crate::auth::security::SecurityObject;
use crate::auth::users::{self, UsersDbCaller};
use crate::auth::{UserCtx, admins, options, password_rules, users_design};
use crate::coordinator::{AllDocsRow, Database, ReadOperations, Want, WriteRequest};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::http::route::{InDatabase, ListKind};
use crate::http::{Context, Problem, Request, Result};

fn caller<'a>(db: &Arc<Database>, user: &'a UserCtx) -> UsersDbCaller<'a> {
    UsersDbCaller { user, is_admin: Rank::of(user, Some(&SecurityObject::of(db))) >= Rank::DatabaseAdmin }
}

/// Whether those who may read the users database may list it: `chttpd_auth/users_db_public`.
fn is_public(ctx: &Context) -> bool {
    options::bool(&ctx.config, "users_db_public", false)
}

/// `_all_docs` alone, where the database is public, is for members too.
pub fn is_open_list(ctx: &Context, at: &InDatabase) -> bool {
    matches!(at, InDatabase::List(ListKind::All)) && is_public(ctx)
}

/// Lists, feeds and queries are for server administrators, views for who may read their design document. Other
/// functions see what their caller may see.
///
/// # Errors
/// 404 without such a database, then the refusals of members, then 401; 403 for views.
pub fn may_list(ctx: &Context, request: &Request, db: &str, at: &InDatabase) -> Result<()> {
    let database = ctx.open(db, request, Class::Member)?;
    match at {
        InDatabase::DesignFunction(ddoc, path) => {
            if path.first().is_some_and(|function| matches!(function.as_str(), "_view" | "_list")) {
                caller(&database, &request.user).sees_all(ddoc)?;
            }
            Ok(())
        }
        at if is_open_list(ctx, at) => Ok(()),
        _ => Ok(access::check(Class::ServerAdmin, &request.user, None)?),
    }
}

/// Whether the caller may try to write this document.
///
/// # Errors
/// 404 for another's.
pub fn may_touch(user: &UserCtx, db: &Arc<Database>, id: &DocId) -> Result<()> {
    Ok(caller(db, user).may_touch(id.as_str())?)
}

/// The fields of the document `id` that the caller may see; `None`: all.
///
/// # Errors
/// 403 for design documents.
pub fn visible_fields(ctx: &Context, user: &UserCtx, db: &Arc<Database>, id: &DocId) -> Result<Option<Vec<String>>> {
    Ok(if caller(db, user).sees_all(id.as_str())? { None } else { Some(public_fields(ctx)) })
}

fn public_fields(ctx: &Context) -> Vec<String> {
    options::list(&ctx.config, "public_fields", "")
}

/// Takes all but these fields out of a revision.
///
/// # Errors
/// 404 when nothing is left.
pub fn limit(stored: &mut StoredRevision, fields: &[String]) -> Result<()> {
    let shown = users::public_part(&body_of(stored)?, fields).ok_or_else(Problem::missing)?;
    stored.body = shown.to_vec().into();
    stored.attachments.clear();
    Ok(())
}

/// What a caller who is no administrator sees in a list.
pub struct Lister {
    user: UserCtx,
    fields: Vec<String>,
}

/// Who lists the database and may not see all of it; `None`: all may be shown.
pub fn lister(ctx: &Context, user: &UserCtx, db: &Arc<Database>) -> Option<Lister> {
    match caller(db, user).is_admin {
        true => None,
        false => Some(Lister { user: user.clone(), fields: public_fields(ctx) }),
    }
}

impl Lister {
    /// Takes what may not be seen out of a row.
    pub fn limit(&self, row: &mut AllDocsRow) {
        let AllDocsRow::Found { id, doc, .. } = row else { return };
        let Some(Some(shown)) = doc else { return };
        let caller = UsersDbCaller { user: &self.user, is_admin: false };
        let visible = match caller.sees_all(id.as_str()) {
            Ok(true) => true,
            Ok(false) => limit(&mut shown.stored, &self.fields).is_ok(),
            Err(_) => false,
        };
        if !visible {
            *doc = Some(None);
        }
    }
}

/// Checks a document that is to be written and hashes its password.
///
/// # Errors
/// 403 for a broken rule, 400 for a weak password, 409 for a revision that cannot be extended, 503 when too many
/// passwords wait.
pub async fn prepare(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    write: &mut WriteRequest,
    new_edits: bool,
) -> Result<()> {
    let caller = caller(db, user);
    caller.may_touch(write.id.as_str())?;
    let old = predecessor(db, &write.id, &write.draft, new_edits).await?;
    if write.draft.deleted {
        return Ok(users::validate_deletion(old.as_ref(), caller)?);
    }
    let is_validated = is_validated(ctx, user, db).await?;
    let password = users::take_password(&mut write.draft.body)?;
    let Some(password) = password else {
        users::check_rounds(&write.draft.body, old.as_ref(), caller, admins::cost(&ctx.config).iterations)?;
        return match is_validated {
            true => Ok(users::validate(write.id.as_str(), &write.draft.body, old.as_ref(), caller)?),
            false => Ok(()),
        };
    };
    password_rules::check(&options::text(&ctx.config, "password_regexp", ""), &password)?;
    let body = users::with_hash(std::mem::take(&mut write.draft.body), &users::hash_to_come());
    if is_validated {
        users::validate(write.id.as_str(), &body, old.as_ref(), caller)?;
    }
    let hash = ctx.authenticator.hash_password(&password).await?;
    write.draft.body = users::with_hash(body, &hash);
    Ok(())
}

/// Whether a document must have the form of a user document. On a node that follows CouchDB an administrator of the
/// server may write others into a database that `authentication_db` names, until that has its design document: there
/// the function of that document is what checks the form.
async fn is_validated(ctx: &Context, user: &UserCtx, db: &Arc<Database>) -> Result<bool> {
    let is_open = ctx.config.follows_couchdb() && user.is_server_admin() && &*db.name != "_users";
    Ok(!is_open || db.documents().fetch(&DocId::new(users_design::ID), Want::Winner).await?.is_some())
}

/// Checks the deletion of a document; what is not there is left to be told by the deletion itself.
///
/// # Errors
/// 404 for another's document, 403 where that has public fields.
pub async fn may_delete(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    id: &DocId,
    rev: Option<&Revision>,
) -> Result<()> {
    let Some(old) = live(db, id, rev).await? else { return Ok(()) };
    let caller = caller(db, user);
    if !caller.sees_all(id.as_str())? && users::public_part(&old, &public_fields(ctx)).is_none() {
        return Err(Problem::missing());
    }
    Ok(users::validate_deletion(Some(&old), caller)?)
}

/// Whether the caller may copy this document to any place, which tells all of it.
///
/// # Errors
/// 404 as if it did not exist; 403 for design documents.
pub fn may_copy_from(user: &UserCtx, db: &Arc<Database>, source: &DocId) -> Result<()> {
    if caller(db, user).sees_all(source.as_str())? { Ok(()) } else { Err(Problem::missing()) }
}

/// Checks a copy, whose body must be that of a user document of the target's id.
///
/// # Errors
/// 403.
pub async fn may_copy(
    user: &UserCtx,
    db: &Arc<Database>,
    (source, source_rev): (&DocId, Option<&Revision>),
    (target, target_rev): (&DocId, Option<&Revision>),
) -> Result<()> {
    let Some((new, old)) = copied(db, (source, source_rev), (target, target_rev)).await? else { return Ok(()) };
    Ok(users::validate(target.as_str(), &new, old.as_ref(), caller(db, user))?)
}

/// Checks a write of an attachment, which leaves the body of its document as it is: it must be a user document already.
///
/// # Errors
/// 403.
pub async fn may_attach(user: &UserCtx, db: &Arc<Database>, id: &DocId, rev: Option<&Revision>) -> Result<()> {
    let old = live(db, id, rev).await?;
    let new = old.clone().unwrap_or_default();
    Ok(users::validate(id.as_str(), &new, old.as_ref(), caller(db, user))?)
}

#[cfg(test)]
mod tests;
