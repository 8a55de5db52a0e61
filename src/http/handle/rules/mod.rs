//! Databases with rules for their documents: the users database (`users`) and replicator databases (`replicator_docs`).
//! Handlers call these rules for every database; in all others they allow everything.

pub mod before;
pub mod replicator_docs;
pub mod users;

use std::sync::Arc;

use http::StatusCode;

use crate::auth::access::{self, Class};
use crate::auth::{UserCtx, options};
use crate::coordinator::{AllDocsRow, Database, WriteRequest};
use crate::document::id::DocId;
use crate::document::render::StoredRevision;
use crate::document::revision::Revision;
use crate::http::route::{InDatabase, ListKind};
use crate::http::{Context, Problem, Request, Result};
use crate::replicate::documents::is_replicator_database;

/// Whose rules a database has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Those of the users database.
    Users,
    /// Those of replicator databases.
    Replicator,
    /// Documents are data.
    None,
}

impl Rules {
    /// Those of a database; to be looked up once for a request of many documents.
    pub fn of(ctx: &Context, database: &str) -> Rules {
        match database {
            name if name == options::users_db(&ctx.config) => Rules::Users,
            name if is_replicator_database(name) => Rules::Replicator,
            _ => Rules::None,
        }
    }

    /// The rules that what is written under this id must keep: none for design and local documents.
    fn of_written(ctx: &Context, db: &Arc<Database>, id: &DocId) -> Rules {
        Rules::of(ctx, &db.name).for_written(id)
    }

    fn for_written(self, id: &DocId) -> Rules {
        if id.is_design() || id.is_local() { Rules::None } else { self }
    }

    /// Whether the caller may try to write this document.
    ///
    /// # Errors
    /// 404 for another's.
    pub fn may_touch(self, user: &UserCtx, db: &Arc<Database>, id: &DocId) -> Result<()> {
        match self {
            Rules::Users => users::may_touch(user, db, id),
            Rules::Replicator | Rules::None => Ok(()),
        }
    }

    /// See [`prepare`].
    ///
    /// # Errors
    /// As there.
    pub async fn prepare(
        self,
        ctx: &Context,
        user: &UserCtx,
        db: &Arc<Database>,
        write: &mut WriteRequest,
        new_edits: bool,
    ) -> Result<()> {
        match self.for_written(&write.id) {
            Rules::Users => users::prepare(ctx, user, db, write, new_edits).await,
            Rules::Replicator => replicator_docs::prepare(ctx, user, db, write, new_edits).await,
            Rules::None => Ok(()),
        }
    }

    /// Whether a document that was refused ends a request of many: where CouchDB looks at documents before it validates
    /// them. Conflicts, missing rights and what a validation function refuses there are told per item.
    pub fn ends_request(self, problem: &Problem) -> bool {
        match problem.status {
            StatusCode::CONFLICT | StatusCode::UNAUTHORIZED => false,
            StatusCode::FORBIDDEN => matches!(self, Rules::Replicator),
            _ => true,
        }
    }
}

/// Whether a list is for administrators of the server, whatever the security object of its database says: nobody else
/// is even told whether the database is there, as in CouchDB.
pub fn is_closed_list(ctx: &Context, db: &str, at: &InDatabase) -> bool {
    let lists_all =
        matches!(at, InDatabase::List(ListKind::All) | InDatabase::Queries(ListKind::All) | InDatabase::Changes);
    match Rules::of(ctx, db) {
        Rules::Users => lists_all && !users::is_open_list(ctx, at),
        Rules::Replicator => lists_all && db == "_replicator",
        Rules::None => false,
    }
}

/// Whether the caller may use what shows many documents at once.
///
/// # Errors
/// 404 without such a database, then the refusals of those who are no members, then those of the database's rules.
pub fn check_lists(ctx: &Context, request: &Request, db: &str, at: &InDatabase) -> Result<()> {
    let lists = matches!(
        at,
        InDatabase::List(_)
            | InDatabase::Queries(_)
            | InDatabase::Changes
            | InDatabase::Mango(_)
            | InDatabase::Partition(_)
            | InDatabase::DesignFunction(..)
            | InDatabase::SearchDryRun
    );
    match Rules::of(ctx, db) {
        Rules::Users if lists => users::may_list(ctx, request, db, at),
        Rules::Replicator if lists => {
            ctx.open(db, request, Class::Member)?;
            if shows_no_credentials(request, at) {
                return Ok(());
            }
            Ok(access::check(Class::ServerAdmin, &request.user, None)?)
        }
        _ => Ok(()),
    }
}

/// Whether what members of a replicator database list of it tells nobody's credentials: rows whose documents are
/// stripped of them, and a feed that neither shows documents nor looks into them.
fn shows_no_credentials(request: &Request, at: &InDatabase) -> bool {
    match at {
        InDatabase::List(ListKind::All) => true,
        InDatabase::Changes => {
            let looks_inside = |name: &str| ["include_docs", "filter"].iter().any(|n| n.eq_ignore_ascii_case(name));
            !request.query.iter().any(|(name, _)| looks_inside(name))
        }
        _ => false,
    }
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
pub fn sight(ctx: &Context, user: &UserCtx, db: &Arc<Database>, id: &DocId) -> Result<Sight> {
    Ok(match Rules::of(ctx, &db.name) {
        Rules::Users => users::visible_fields(ctx, user, db, id)?.map_or(Sight::Whole, Sight::Fields),
        Rules::Replicator if !replicator_docs::sees_credentials(user, db) => Sight::NoCredentials(user.clone()),
        Rules::Replicator | Rules::None => Sight::Whole,
    })
}

/// Demands that the caller may see all of the document.
///
/// # Errors
/// 404 as if it did not exist; 403 for design documents.
pub fn must_see_all(ctx: &Context, user: &UserCtx, db: &Arc<Database>, id: &DocId) -> Result<()> {
    match sight(ctx, user, db, id)? {
        Sight::Whole => Ok(()),
        Sight::Fields(_) | Sight::NoCredentials(_) => Err(Problem::missing()),
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
                stored.body = replicator_docs::visible(before::body_of(stored)?, user).to_vec().into();
            }
            Sight::Fields(fields) => users::limit(stored, fields)?,
        }
        Ok(())
    }
}

/// Who lists a database and may not see all of it; `None`: all may be shown.
pub fn lister(ctx: &Context, user: &UserCtx, db: &Arc<Database>) -> Option<Lister> {
    match Rules::of(ctx, &db.name) {
        Rules::Users => users::lister(ctx, user, db).map(Lister::Users),
        Rules::Replicator if replicator_docs::sees_credentials(user, db) => None,
        Rules::Replicator => Some(Lister::Replicator(Sight::NoCredentials(user.clone()))),
        Rules::None => None,
    }
}

/// What a caller who may not see all of a database sees in a list.
pub enum Lister {
    /// Of the users database.
    Users(users::Lister),
    /// Of a replicator database.
    Replicator(Sight),
}

impl Lister {
    /// Takes what may not be seen out of a row.
    pub fn limit(&self, row: &mut AllDocsRow) {
        match self {
            Lister::Users(lister) => lister.limit(row),
            Lister::Replicator(sight) => {
                let AllDocsRow::Found { doc, .. } = row else { return };
                let Some(Some(shown)) = doc else { return };
                if sight.limit(&mut shown.stored).is_err() {
                    *doc = Some(None);
                }
            }
        }
    }
}

/// Checks a document that is to be written, and makes of it what is stored.
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
    Rules::of(ctx, &db.name).prepare(ctx, user, db, write, new_edits).await
}

/// Checks the deletion of a document; what is not there is left to be told by the deletion itself.
///
/// # Errors
/// 403 for another's document.
pub async fn may_delete(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    id: &DocId,
    rev: Option<&Revision>,
) -> Result<()> {
    match Rules::of_written(ctx, db, id) {
        Rules::Users => users::may_delete(ctx, user, db, id, rev).await,
        Rules::Replicator | Rules::None => Ok(()),
    }
}

/// Checks a copy from one document and revision to another.
///
/// # Errors
/// 404, 403.
pub async fn may_copy(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    from: (&DocId, Option<&Revision>),
    to: (&DocId, Option<&Revision>),
) -> Result<()> {
    if let Rules::Users = Rules::of(ctx, &db.name) {
        users::may_copy_from(user, db, from.0)?;
    }
    match Rules::of_written(ctx, db, to.0) {
        Rules::Users => users::may_copy(user, db, from, to).await,
        Rules::Replicator => replicator_docs::may_copy(user, db, from, to).await,
        Rules::None => Ok(()),
    }
}

/// Checks a write of an attachment, which leaves the body of its document as it is.
///
/// # Errors
/// 403.
pub async fn may_attach(
    ctx: &Context,
    user: &UserCtx,
    db: &Arc<Database>,
    id: &DocId,
    rev: Option<&Revision>,
) -> Result<()> {
    match Rules::of_written(ctx, db, id) {
        Rules::Users => users::may_attach(user, db, id, rev).await,
        Rules::Replicator => replicator_docs::may_attach(user, db, id, rev).await,
        Rules::None => Ok(()),
    }
}
