//! The user on whose behalf a request is made.

use serde::{Deserialize, Serialize};

/// Who writes: what validation functions see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name; `None` for an anonymous caller.
    pub name: Option<String>,
    /// The roles.
    pub roles: Vec<String>,
    /// Whether validation functions are not asked: the database itself says what is to be done. No client is that. A
    /// node of an older version asks them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unquestioned: bool,
}

impl Caller {
    /// The node itself, with the rights of a server administrator.
    pub fn node() -> Caller {
        Caller { roles: vec!["_admin".to_owned()], ..Caller::default() }
    }

    /// Who deletes documents that have ended.
    pub fn expiry() -> Caller {
        Caller { is_unquestioned: true, ..Caller::node() }
    }
}
