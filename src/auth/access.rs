//! What a caller may do: one table of endpoint classes and ranks, with the refusals that CouchDB 3.5 was measured to
//! give. Pure. Rules: CouchDB documentation, 'Security object'.

use super::security::SecurityObject;
use super::{METRICS_ROLE, UserCtx};
use crate::config::Config;

/// What kind of thing an endpoint is. Every endpoint belongs to one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Anyone: `/`, `_up`, `_uuids`, `_session`, `_utils`, `favicon.ico`.
    Open,
    /// Server administrators: `_node`, `_membership`, `_cluster_setup`, unknown `_x`, making and deleting databases,
    /// `_purge`, `_sync_shards`, `_purged_infos_limit`.
    ServerAdmin,
    /// Statistics: server administrators and the role `_metrics`.
    Metrics,
    /// Reads of a database and writes of its plain and local documents.
    Member,
    /// Writes of design documents, `_security` and `_revs_limit`: database administrators, after the test for members.
    DatabaseAdmin,
    /// `_compact`, `_view_cleanup`: database administrators; every other caller is refused with 401.
    Maintenance,
}

/// What the caller is to the server and to one database. Later ones include earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    /// Without credentials, and no member.
    Anonymous,
    /// Named, and no member.
    User,
    /// May read and write plain documents.
    Member,
    /// Named by the security object's `admins`.
    DatabaseAdmin,
    /// Carries the role `_admin`.
    ServerAdmin,
}

/// A refusal: what kind of error it is and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Other credentials might help.
    Unauthorized(&'static str),
    /// The caller is known and may not.
    Forbidden(&'static str),
}

impl Rank {
    /// What `user` is; `security` is that of the database asked for, `None` for the server's own endpoints.
    pub fn of(user: &UserCtx, security: Option<&SecurityObject>) -> Rank {
        match security {
            _ if user.is_server_admin() => Rank::ServerAdmin,
            Some(security) if security.is_admin(user) => Rank::DatabaseAdmin,
            Some(security) if security.is_member(user) => Rank::Member,
            _ if user.name.is_some() => Rank::User,
            _ => Rank::Anonymous,
        }
    }
}

const NOT_SERVER_ADMIN: Refusal = Refusal::Unauthorized("You are not a server admin.");
const NOT_METRICS: Refusal = Refusal::Unauthorized("You are not a server admin or read-only metrics user");
const NOT_MAINTAINER: Refusal = Refusal::Unauthorized("You are not a server or db admin.");
const NOT_AUTHORIZED: Refusal = Refusal::Unauthorized("You are not authorized to access this db.");
const NOT_ALLOWED: Refusal = Refusal::Forbidden("You are not allowed to access this db.");
const NOT_DB_ADMIN: &str = "You are not a db or server admin.";

/// Whether `user` may use an endpoint of `class`.
///
/// # Errors
/// The recorded refusal.
pub fn check(class: Class, user: &UserCtx, security: Option<&SecurityObject>) -> Result<(), Refusal> {
    let allowed = class == Class::Metrics && user.has_role(METRICS_ROLE);
    match refusal(class, Rank::of(user, security), user.name.is_some()) {
        Some(refusal) if !allowed => Err(refusal),
        _ => Ok(()),
    }
}

/// The table: `None` is allowed. `named` matters for members only, since a database may be open to anyone.
fn refusal(class: Class, rank: Rank, named: bool) -> Option<Refusal> {
    let not_db_admin = if named { Refusal::Forbidden(NOT_DB_ADMIN) } else { Refusal::Unauthorized(NOT_DB_ADMIN) };
    // One line for each class: anonymous, user, member, database admin; a server admin may do everything.
    let (anonymous, user, member, database_admin) = match class {
        Class::Open => (None, None, None, None),
        Class::ServerAdmin => same(NOT_SERVER_ADMIN),
        Class::Metrics => same(NOT_METRICS),
        Class::Member => (Some(NOT_AUTHORIZED), Some(NOT_ALLOWED), None, None),
        Class::DatabaseAdmin => (Some(NOT_AUTHORIZED), Some(NOT_ALLOWED), Some(not_db_admin), None),
        Class::Maintenance => (Some(NOT_AUTHORIZED), Some(NOT_ALLOWED), Some(NOT_MAINTAINER), None),
    };
    match rank {
        Rank::Anonymous => anonymous,
        Rank::User => user,
        Rank::Member => member,
        Rank::DatabaseAdmin => database_admin,
        Rank::ServerAdmin => None,
    }
}

type Row = (Option<Refusal>, Option<Refusal>, Option<Refusal>, Option<Refusal>);

fn same(refusal: Refusal) -> Row {
    (Some(refusal), Some(refusal), Some(refusal), Some(refusal))
}

/// Which class lists of databases (`_all_dbs`, `_dbs_info`) belong to: `chttpd/admin_only_all_dbs`, default true.
pub fn database_lists(config: &Config) -> Class {
    if config.bool("chttpd", "admin_only_all_dbs", true) { Class::ServerAdmin } else { Class::Open }
}

/// The server's outermost door, before any class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// `/_up`.
    Up,
    /// `POST /_session`: the way in.
    Login,
    /// Everything else.
    Other,
}

/// Whether anonymous callers may pass: `chttpd/require_valid_user` and `require_valid_user_except_for_up`.
///
/// # Errors
/// The recorded refusal.
pub fn enter(config: &Config, door: Door, user: &UserCtx) -> Result<(), Refusal> {
    let strict = config.shuts("chttpd", "require_valid_user");
    let but_up = config.shuts("chttpd", "require_valid_user_except_for_up");
    let closed = match door {
        Door::Login => false,
        Door::Up => strict,
        Door::Other => strict || but_up,
    };
    if closed && user.name.is_none() {
        return Err(Refusal::Unauthorized("Authentication required."));
    }
    Ok(())
}
