//! The security object of a database: who is a member, who is an administrator. Touches memory only.

use std::sync::Arc;

use super::UserCtx;
use crate::coordinator::Database;
use crate::document::security::{self, IllegalSecurity, Principals, Security};

/// Whom a security object names. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityObject(Arc<Security>);

impl SecurityObject {
    /// That of a database, as it is now.
    pub fn of(database: &Database) -> SecurityObject {
        SecurityObject(database.named())
    }

    /// Reads and checks an object. `admins` and `members`, `names` and `roles` may each be absent; `readers` counts
    /// where there is no `members` (as CouchDB 3.5 was measured).
    ///
    /// # Errors
    /// Which shape is wrong.
    pub fn parse(text: &[u8]) -> Result<SecurityObject, IllegalSecurity> {
        Ok(SecurityObject(Arc::new(security::parse(text)?)))
    }

    /// Whether `user` may change design documents and this object.
    pub fn is_admin(&self, user: &UserCtx) -> bool {
        user.is_server_admin() || include(&self.0.admins, user)
    }

    /// Whether `user` may read. Administrators are members; where nobody is named, everyone is.
    pub fn is_member(&self, user: &UserCtx) -> bool {
        self.is_admin(user) || self.0.members == Principals::default() || include(&self.0.members, user)
    }
}

fn include(side: &Principals, user: &UserCtx) -> bool {
    let named = user.name.as_ref().is_some_and(|name| side.names.contains(name));
    named || side.roles.iter().any(|role| user.has_role(role))
}
