//! The users database: its rules (`auth::users`) put before reads and writes of its documents. What is asked here for
//! every database is passed on for replicator databases (`replicator_docs`).

use super::super::route::{InDatabase, ListKind};
use super::replicator_docs;
use crate::auth::access::{self, Class, Rank};
use crate::auth::security::SecurityObject;
use crate::auth::users::{self, Caller};
use crate::auth::{UserCtx, options, password_rules};
use crate::coordinator::{AllDocsRow, Database, Want, WriteRequest};
use crate::document::draft::Draft;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::render::StoredRevision;
use crate::document::rev_tree::RevPath;
use crate::document::revision::Revision;
use crate::http::{Context, Problem, Request, Result};
use crate::replicate::documents::is_replicator_database;

/// Whether this is the users database.
fn is_users_db(ctx: &Context, name: &str) -> bool {
    name == options::users_db(&ctx.config)
}

fn caller<'a>(db: &Database, user: &'a UserCtx) -> Caller<'a> {
    let security = SecurityObject::parse(&db.security()).unwrap_or_else(|_| SecurityObject::admin_only());
    Caller { user, is_admin: Rank::of(user, Some(&security)) >= Rank::DatabaseAdmin }
}

/// Whether those who may read the users database may list it: `chttpd_auth/users_db_public`.
fn is_public(ctx: &Context) -> bool {
    options::bool(&ctx.config, "users_db_public", false)
}

/// Lists, feeds and queries of the users database are for server administrators; `_all_docs` alone is for its members
/// too, where the database is public.
///
/// # Errors
/// 404 without such a database, then the refusals of members, then 401.
pub fn check_lists(ctx: &Context, request: &Request, db: &str, at: &InDatabase) -> Result<()> {
    let lists = matches!(
        at,
        InDatabase::List(_)
            | InDatabase::Queries(_)
            | InDatabase::Changes
            | InDatabase::Mango(_)
            | InDatabase::Partition(_)
            | InDatabase::DesignFunction(..)
    );
    if lists && is_replicator_database(db) {
        // Lists show documents whole, with credentials of replications.
        ctx.open(db, &request.user, Class::DatabaseAdmin)?;
    }
    if !lists || !is_users_db(ctx, db) {
        return Ok(());
    }
    ctx.open(db, &request.user, Class::Member)?;
    if matches!(at, InDatabase::List(ListKind::All)) && is_public(ctx) {
        return Ok(());
    }
    Ok(access::check(Class::ServerAdmin, &request.user, None)?)
}

/// Whether the caller may try to write this document.
///
/// # Errors
/// 404 for another's.
pub fn may_touch(ctx: &Context, user: &UserCtx, db: &Database, id: &DocId) -> Result<()> {
    if !is_users_db(ctx, &db.name) {
        return Ok(());
    }
    Ok(caller(db, user).may_touch(id.as_str())?)
}

/// How much of a document its reader may see.
pub enum Sight {
    /// All of it.
    Whole,
    /// These fields, where it has any of them.
    Fields(Vec<String>),
    /// All but the credentials of a replication that is another's.
    NoCredentials(UserCtx),
}

/// How much of the document `id` the caller may see.
///
/// # Errors
/// 403 for design documents of the users database.
pub fn sight(ctx: &Context, user: &UserCtx, db: &Database, id: &DocId) -> Result<Sight> {
    if !is_users_db(ctx, &db.name) {
        let all = replicator_docs::sees_credentials(user, db);
        return Ok(if all { Sight::Whole } else { Sight::NoCredentials(user.clone()) });
    }
    if caller(db, user).sees_all(id.as_str())? {
        return Ok(Sight::Whole);
    }
    Ok(Sight::Fields(options::list(&ctx.config, "public_fields", "")))
}

/// Demands that the caller may see all of the document.
///
/// # Errors
/// 404 as if it did not exist; 403 for design documents.
pub fn must_see_all(ctx: &Context, user: &UserCtx, db: &Database, id: &DocId) -> Result<()> {
    match sight(ctx, user, db, id)? {
        Sight::Whole => Ok(()),
        Sight::Fields(_) | Sight::NoCredentials(_) => Err(Problem::missing()),
    }
}

/// What a caller who is no administrator sees in a list of the users database.
pub struct Lister {
    user: UserCtx,
    fields: Vec<String>,
}

/// Who lists the users database and may not see all of it; `None`: all may be shown.
pub fn lister(ctx: &Context, user: &UserCtx, db: &Database) -> Option<Lister> {
    if !is_users_db(ctx, &db.name) || caller(db, user).is_admin {
        return None;
    }
    Some(Lister { user: user.clone(), fields: options::list(&ctx.config, "public_fields", "") })
}

impl Lister {
    /// Takes what may not be seen out of a row.
    pub fn limit(&self, row: &mut AllDocsRow) {
        let AllDocsRow::Found { id, doc, .. } = row else { return };
        let Some(Some(shown)) = doc else { return };
        let caller = Caller { user: &self.user, is_admin: false };
        let visible = match caller.sees_all(id.as_str()) {
            Ok(true) => true,
            Ok(false) => Sight::Fields(self.fields.clone()).limit(&mut shown.stored).is_ok(),
            Err(_) => false,
        };
        if !visible {
            *doc = Some(None);
        }
    }
}

impl Sight {
    /// Takes what may not be seen out of a revision.
    ///
    /// # Errors
    /// 404 when nothing is left.
    pub fn limit(&self, stored: &mut StoredRevision) -> Result<()> {
        match self {
            Sight::Whole => {}
            Sight::NoCredentials(user) => {
                stored.body = replicator_docs::visible(body_of(stored)?, user).to_vec().into();
            }
            Sight::Fields(fields) => {
                let shown = users::public_part(&body_of(stored)?, fields).ok_or_else(Problem::missing)?;
                stored.body = shown.to_vec().into();
                stored.attachments.clear();
            }
        }
        Ok(())
    }
}

fn body_of(stored: &StoredRevision) -> Result<Object> {
    match json::parse(&stored.body) {
        Ok(Value::Object(body)) => Ok(body),
        _ => Err(Problem::internal("The stored document cannot be read.")),
    }
}

/// Checks a document that is to be written into the users database and hashes its password; one of a replicator
/// database is checked by its own rules; elsewhere does nothing.
///
/// # Errors
/// 403 for a broken rule, 400 for a weak password, 409 for a revision that cannot be extended, 503 when too many
/// passwords wait.
pub async fn prepare(
    ctx: &Context,
    user: &UserCtx,
    db: &Database,
    write: &mut WriteRequest,
    new_edits: bool,
) -> Result<()> {
    if !is_users_db(ctx, &db.name) {
        return replicator_docs::prepare(user, db, write, new_edits).await;
    }
    if write.id.is_design() || write.id.is_local() {
        return Ok(());
    }
    let caller = caller(db, user);
    caller.may_touch(write.id.as_str())?;
    let old = predecessor(db, &write.id, &write.draft, new_edits).await?;
    if write.draft.deleted {
        return Ok(users::validate_deletion(old.as_ref(), caller)?);
    }
    let password = users::take_password(&mut write.draft.body)?;
    let Some(password) = password else {
        return Ok(users::validate(write.id.as_str(), &write.draft.body, old.as_ref(), caller)?);
    };
    password_rules::check(&options::text(&ctx.config, "password_regexp", ""), &password)?;
    let body = users::with_hash(std::mem::take(&mut write.draft.body), &users::hash_to_come());
    users::validate(write.id.as_str(), &body, old.as_ref(), caller)?;
    let hash = ctx.authenticator.hash_password(&password).await?;
    write.draft.body = users::with_hash(body, &hash);
    Ok(())
}

/// The document that a write extends; `None` for the first revision, also of one that was deleted.
///
/// A document that is about to be refused as a conflict is refused here: its rules cannot be judged.
pub(super) async fn predecessor(db: &Database, id: &DocId, draft: &Draft, new_edits: bool) -> Result<Option<Object>> {
    if !new_edits {
        let revs = draft.revisions.as_ref().map(ancestors).unwrap_or_default();
        let Some(fetched) = db.fetch(id, Want::Revisions { revs, latest: false }).await? else { return Ok(None) };
        let newest = fetched.found.iter().find_map(|(_, stored)| stored.as_ref());
        // A branch without a known ancestor is judged against the winner: else anyone could put a conflict beside
        // another's document and so close the account.
        return match newest {
            Some(ancestor) => body_of(ancestor).map(Some),
            None => stored(db, id, None).await,
        };
    }
    let parent = draft.revisions.as_ref().map(|path| path.head()).or_else(|| draft.rev.clone());
    let want = parent.clone().map_or(Want::Winner, Want::Revision);
    let found = db.fetch(id, want).await?.and_then(|fetched| fetched.found.into_iter().next());
    match (parent, found.and_then(|(_, stored)| stored)) {
        (None, None) => Ok(None),
        (None, Some(stored)) if stored.deleted => Ok(None),
        (Some(_), Some(stored)) => body_of(&stored).map(Some),
        (None, Some(_)) | (Some(_), None) => Err(Problem::conflict()),
    }
}

/// All revisions of a path but its newest.
fn ancestors(path: &RevPath) -> Vec<Revision> {
    let older = (0..path.start).rev().zip(&path.ids[1..]);
    older.map(|(pos, hash)| Revision::new(pos, hash.clone())).collect()
}

/// Checks the deletion of a document; what is not there is left to be told by the deletion itself.
///
/// # Errors
/// 403 for another's document.
pub async fn may_delete(
    ctx: &Context,
    user: &UserCtx,
    db: &Database,
    id: &DocId,
    rev: Option<&Revision>,
) -> Result<()> {
    if !is_users_db(ctx, &db.name) || id.is_design() || id.is_local() {
        return Ok(());
    }
    match stored(db, id, rev).await? {
        Some(old) => Ok(users::validate_deletion(Some(&old), caller(db, user))?),
        None => Ok(()),
    }
}

/// Checks a copy, whose source must be seen and whose body must be that of a user document of the target's id.
///
/// # Errors
/// 404, 403.
pub async fn may_copy(
    ctx: &Context,
    user: &UserCtx,
    db: &Database,
    (source, source_rev): (&DocId, Option<&Revision>),
    (target, target_rev): (&DocId, Option<&Revision>),
) -> Result<()> {
    if !is_users_db(ctx, &db.name) {
        return Ok(());
    }
    must_see_all(ctx, user, db, source)?;
    if target.is_design() || target.is_local() {
        return Ok(());
    }
    let Some(new) = stored(db, source, source_rev).await? else { return Ok(()) };
    let old = match target_rev {
        Some(rev) => stored(db, target, Some(rev)).await?,
        None => None,
    };
    Ok(users::validate(target.as_str(), &new, old.as_ref(), caller(db, user))?)
}

/// Checks a write of an attachment, which leaves the body of its document as it is: it must be a user document already.
///
/// # Errors
/// 403.
pub async fn may_attach(
    ctx: &Context,
    user: &UserCtx,
    db: &Database,
    id: &DocId,
    rev: Option<&Revision>,
) -> Result<()> {
    if !is_users_db(ctx, &db.name) || id.is_design() || id.is_local() {
        return Ok(());
    }
    let old = stored(db, id, rev).await?;
    let new = old.clone().unwrap_or_default();
    Ok(users::validate(id.as_str(), &new, old.as_ref(), caller(db, user))?)
}

/// The body of the named revision, else of the winner, if it is live.
async fn stored(db: &Database, id: &DocId, rev: Option<&Revision>) -> Result<Option<Object>> {
    let want = rev.cloned().map_or(Want::Winner, Want::Revision);
    let found = db.fetch(id, want).await?.and_then(|fetched| fetched.found.into_iter().next());
    let live = found.and_then(|(_, stored)| stored).filter(|stored| !stored.deleted);
    live.as_ref().map(body_of).transpose()
}

#[cfg(test)]
mod tests;
