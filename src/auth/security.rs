//! The security object of a database: who is a member, who is an administrator. Pure.

use bytes::Bytes;

use super::{ADMIN_ROLE, UserCtx};
use crate::config::Config;
use crate::document::json::{self, Value};

/// What is wrong with a security object: always a bad request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecurityError {
    /// Not JSON.
    NotJson,
    /// Not an object.
    NotAnObject,
    /// `admins` or `members` is not an object.
    SideNotAnObject,
    /// `names` is not a list of strings.
    Names,
    /// `roles` is not a list of strings.
    Roles,
}

impl SecurityError {
    /// The reason for the client.
    pub fn reason(self) -> &'static str {
        match self {
            SecurityError::NotJson => "invalid UTF-8 JSON",
            SecurityError::NotAnObject => "Request body must be a JSON object",
            SecurityError::SideNotAnObject => "admins and members must be JSON objects",
            SecurityError::Names => "names must be a JSON list of strings",
            SecurityError::Roles => "roles must be a JSON list of strings",
        }
    }
}

/// Names and roles of one side of a security object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principals {
    /// User names.
    pub names: Vec<String>,
    /// Roles.
    pub roles: Vec<String>,
}

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
    pub fn parse(text: &[u8]) -> Result<SecurityObject, SecurityError> {
        let value = json::parse(text).map_err(|_| SecurityError::NotJson)?;
        let object = value.as_object().ok_or(SecurityError::NotAnObject)?;
        let admins = principals(object.get("admins"))?;
        let members = principals(object.get("members").or_else(|| object.get("readers")))?;
        Ok(SecurityObject { admins, members, text: Bytes::copy_from_slice(text) })
    }

    /// The object of a new database: `couchdb/default_security`, `admin_only` unless it says `everyone`.
    pub fn default_for(config: &Config) -> SecurityObject {
        if config.text("couchdb", "default_security", "admin_only") == "everyone" {
            SecurityObject { admins: Principals::default(), members: Principals::default(), text: "{}".into() }
        } else {
            SecurityObject::admin_only()
        }
    }

    /// The object that lets only server administrators in.
    pub fn admin_only() -> SecurityObject {
        let side = Principals { names: Vec::new(), roles: vec![ADMIN_ROLE.to_owned()] };
        let text = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
        SecurityObject { admins: side.clone(), members: side, text: text.into() }
    }

    /// The JSON text as it was set.
    pub fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether `user` may change design documents and this object.
    pub fn is_admin(&self, user: &UserCtx) -> bool {
        user.is_server_admin() || self.admins.include(user)
    }

    /// Whether `user` may read. Administrators are members; where nobody is named, everyone is.
    pub fn is_member(&self, user: &UserCtx) -> bool {
        self.is_admin(user) || self.members == Principals::default() || self.members.include(user)
    }
}

impl Principals {
    fn include(&self, user: &UserCtx) -> bool {
        let named = user.name.as_ref().is_some_and(|name| self.names.contains(name));
        named || self.roles.iter().any(|role| user.has_role(role))
    }
}

fn principals(side: Option<&Value>) -> Result<Principals, SecurityError> {
    let Some(side) = side else { return Ok(Principals::default()) };
    let side = side.as_object().ok_or(SecurityError::SideNotAnObject)?;
    let names = strings(side.get("names")).ok_or(SecurityError::Names)?;
    let roles = strings(side.get("roles")).ok_or(SecurityError::Roles)?;
    Ok(Principals { names, roles })
}

/// A list of strings; absent counts as empty.
fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    let Some(value) = value else { return Some(Vec::new()) };
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
}
