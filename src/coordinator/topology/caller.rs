//! The user on whose behalf a request is made.

use serde::{Deserialize, Serialize};

/// Who writes: what validation functions see of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The name; `None` for an anonymous caller.
    pub name: Option<String>,
    /// The roles.
    pub roles: Vec<String>,
}

impl Caller {
    /// The node itself, with the rights of a server administrator.
    pub fn node() -> Caller {
        Caller { name: None, roles: vec!["_admin".to_owned()] }
    }
}
