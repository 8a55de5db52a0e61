//! The security object of a database: its shape, whom it names, what a new database has. Who may do what with it is
//! decided above.

use super::json::{self, Object, Value};

/// The object that lets only server administrators in, as JSON text.
pub const ADMINS_ONLY: &str = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;

/// The object of a new database as JSON text; `setting` is that of `[couchdb] default_security`. `admin_local` closes
/// only databases outside the cluster, which are none here.
pub fn text_of_new(setting: &str) -> &'static str {
    if matches!(setting, "everyone" | "admin_local") { "{}" } else { ADMINS_ONLY }
}

/// A security object of a wrong shape; the reason names the part and is for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IllegalSecurity {
    /// What to tell.
    pub reason: &'static str,
}

/// Names and roles of one side of a security object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Principals {
    /// User names.
    pub names: Vec<String>,
    /// Roles.
    pub roles: Vec<String>,
}

/// Whom a security object names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// Who may write design documents and change the object.
    pub admins: Principals,
    /// Who may read and write plain documents; nobody named: everyone.
    pub members: Principals,
}

impl Security {
    /// That of [`ADMINS_ONLY`].
    pub fn admins_only() -> Security {
        let side = Principals { names: Vec::new(), roles: vec!["_admin".to_owned()] };
        Security { admins: side.clone(), members: side }
    }
}

/// Reads and checks an object that is given as JSON text.
///
/// # Errors
/// Which shape is wrong.
pub fn parse(text: &[u8]) -> Result<Security, IllegalSecurity> {
    let value = json::parse(text).map_err(|_| IllegalSecurity { reason: "invalid UTF-8 JSON" })?;
    read(value.as_object().ok_or(IllegalSecurity { reason: "Request body must be a JSON object" })?)
}

/// Reads and checks an object (CouchDB documentation, 'Security object'). `admins` and `members`, `names` and `roles`
/// may each be absent; `readers` counts where there is no `members` (as CouchDB 3.5 was measured).
///
/// # Errors
/// Which shape is wrong.
pub fn read(object: &Object) -> Result<Security, IllegalSecurity> {
    let admins = principals(object.get("admins"), &ADMINS)?;
    let members = match object.get("members") {
        Some(members) => principals(Some(members), &MEMBERS)?,
        None => principals(object.get("readers"), &READERS)?,
    };
    Ok(Security { admins, members })
}

/// What to tell of a side that is no object, of its names, of its roles.
type Reasons = [&'static str; 3];

const ADMINS: Reasons = [
    "admins must be a JSON object",
    "admins.names must be an array of strings",
    "admins.roles must be an array of strings",
];
const MEMBERS: Reasons = [
    "members must be a JSON object",
    "members.names must be an array of strings",
    "members.roles must be an array of strings",
];
const READERS: Reasons = [
    "readers must be a JSON object",
    "readers.names must be an array of strings",
    "readers.roles must be an array of strings",
];

fn principals(side: Option<&Value>, reasons: &Reasons) -> Result<Principals, IllegalSecurity> {
    let Some(side) = side else { return Ok(Principals::default()) };
    let illegal = |at: usize| IllegalSecurity { reason: reasons[at] };
    let side = side.as_object().ok_or(illegal(0))?;
    let names = strings(side.get("names")).ok_or(illegal(1))?;
    let roles = strings(side.get("roles")).ok_or(illegal(2))?;
    Ok(Principals { names, roles })
}

/// A list of strings; absent counts as empty.
fn strings(value: Option<&Value>) -> Option<Vec<String>> {
    let Some(value) = value else { return Some(Vec::new()) };
    value.as_array()?.iter().map(|v| v.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;

    fn read_text(text: &str) -> Result<Security, IllegalSecurity> {
        read(json::parse(text.as_bytes()).unwrap().as_object().unwrap())
    }

    #[test]
    fn security_objects_have_lists_of_texts() {
        for good in
            ["{}", r#"{"admins":{},"members":{"names":[],"roles":["a"]}}"#, r#"{"members":{"names":["x"]},"other":5}"#]
        {
            assert!(read_text(good).is_ok(), "{good}");
        }
        for (bad, reason) in [
            (r#"{"admins":[]}"#, ADMINS[0]),
            (r#"{"members":5}"#, MEMBERS[0]),
            (r#"{"members":{"names":"x"}}"#, MEMBERS[1]),
            (r#"{"admins":{"roles":[1]}}"#, ADMINS[2]),
        ] {
            assert_eq!(read_text(bad), Err(IllegalSecurity { reason }), "{bad}");
        }
    }

    #[test]
    fn readers_are_checked_as_they_count() {
        assert_eq!(read_text(r#"{"readers":{"names":5}}"#), Err(IllegalSecurity { reason: READERS[1] }));
        assert_eq!(read_text(r#"{"readers":{"names":["anna"]}}"#).unwrap().members.names, ["anna"]);
        let both = read_text(r#"{"readers":5,"members":{"roles":["r"]}}"#).unwrap();
        assert_eq!(both.members.roles, ["r"]);
    }

    #[test]
    fn new_databases_are_for_administrators_unless_said_otherwise() {
        assert_eq!(text_of_new("admin_local"), "{}");
        for setting in ["admin_only", "", "all"] {
            let security = read_text(text_of_new(setting)).unwrap();
            assert_eq!(
                (&*security.admins.roles, &*security.members.roles),
                (&["_admin".into()][..], &["_admin".into()][..])
            );
        }
        assert_eq!(read_text(text_of_new("everyone")), Ok(Security::default()));
        assert_eq!(parse(ADMINS_ONLY.as_bytes()), Ok(Security::admins_only()));
        assert!(parse(b"[]").is_err() && parse(b"{").is_err());
    }
}
