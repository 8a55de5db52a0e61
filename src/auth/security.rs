//! The security object of a database: who is a member, who is an administrator. Pure.

use bytes::Bytes;

use super::{ADMIN_ROLE, UserCtx};
use crate::document::json;
use crate::document::security::{self, ADMINS_ONLY, IllegalSecurity, Principals, Security};

/// A parsed security object; unknown fields live on in its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityObject {
    /// Who may write design documents and change this object.
    pub admins: Principals,
    /// Who may read and write plain documents; nobody named: everyone.
    pub members: Principals,
    text: Bytes,
}

impl SecurityObject {
    /// Reads and checks an object. `admins` and `members`, `names` and `roles` may each be absent; `readers` counts
    /// where there is no `members` (as CouchDB 3.5 was measured).
    ///
    /// # Errors
    /// Which shape is wrong.
    pub fn parse(text: &[u8]) -> Result<SecurityObject, IllegalSecurity> {
        let value = json::parse(text).map_err(|_| IllegalSecurity { reason: "invalid UTF-8 JSON" })?;
        let object = value.as_object().ok_or(IllegalSecurity { reason: "Request body must be a JSON object" })?;
        let Security { admins, members } = security::read(object)?;
        Ok(SecurityObject { admins, members, text: Bytes::copy_from_slice(text) })
    }

    /// The object that lets only server administrators in.
    pub fn admin_only() -> SecurityObject {
        let side = Principals { names: Vec::new(), roles: vec![ADMIN_ROLE.to_owned()] };
        SecurityObject { admins: side.clone(), members: side, text: Bytes::from_static(ADMINS_ONLY.as_bytes()) }
    }

    /// The JSON text as it was set.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether `user` may change design documents and this object.
    pub fn is_admin(&self, user: &UserCtx) -> bool {
        user.is_server_admin() || include(&self.admins, user)
    }

    /// Whether `user` may read. Administrators are members; where nobody is named, everyone is.
    pub fn is_member(&self, user: &UserCtx) -> bool {
        self.is_admin(user) || self.members == Principals::default() || include(&self.members, user)
    }
}

fn include(side: &Principals, user: &UserCtx) -> bool {
    let named = user.name.as_ref().is_some_and(|name| side.names.contains(name));
    named || side.roles.iter().any(|role| user.has_role(role))
}
