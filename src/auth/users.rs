//! The rules of the users database: who may see and write which document, and what a user document must be. Pure.
//!
//! They are those of CouchDB's `_users/_design/_auth` and of its hooks around that database, with its messages; here
//! they hold without a script.

use super::password::{Prf, StoredHash};
use super::{ADMIN_ROLE, METRICS_ROLE, UserCtx};
use crate::document::json::{Object, Value};
use crate::limits;

/// What a user document's id begins with.
pub const ID_PREFIX: &str = "org.couchdb.user:";

/// Who asks in the users database.
#[derive(Clone, Copy, Debug)]
pub struct UsersDbCaller<'a> {
    /// The caller.
    pub user: &'a UserCtx,
    /// Whether that is an administrator of this database (or of the server).
    pub is_admin: bool,
}

/// Why a document of the users database was not written or shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserError {
    /// A rule was broken.
    Forbidden(String),
    /// The password is not one that `password_regexp` wants.
    BadPassword(String),
    /// It is another's document: it is not told whether it exists.
    NotFound,
}

fn forbidden<T>(reason: impl Into<String>) -> Result<T, UserError> {
    Err(UserError::Forbidden(reason.into()))
}

/// The name of the user whose document has this id.
pub fn name_in(id: &str) -> Option<&str> {
    id.strip_prefix(ID_PREFIX)
}

impl UsersDbCaller<'_> {
    fn owns(&self, id: &str) -> bool {
        self.user.name.as_deref().is_some_and(|name| name_in(id) == Some(name))
    }

    /// Whether the caller may try to write under `id`: administrators, the user it belongs to, and anonymous callers,
    /// who may be signing up.
    ///
    /// # Errors
    /// [`UserError::NotFound`]
    pub fn may_touch(&self, id: &str) -> Result<(), UserError> {
        if self.is_admin || self.user.name.is_none() || self.owns(id) { Ok(()) } else { Err(UserError::NotFound) }
    }

    /// Whether the caller sees the document `id` whole; else only its public fields are for all to see.
    ///
    /// # Errors
    /// [`UserError::Forbidden`] for design documents.
    pub fn sees_all(&self, id: &str) -> Result<bool, UserError> {
        if self.is_admin || self.owns(id) {
            return Ok(true);
        }
        if id.starts_with("_design/") {
            return forbidden("Only administrators can view design docs in the users database.");
        }
        Ok(false)
    }
}

/// The listed fields of a document; `None` when it has none of them.
pub fn public_part(body: &Object, public_fields: &[String]) -> Option<Object> {
    let is_public = |name: &str| public_fields.iter().any(|field| field == name);
    let shown = body.iter().filter(|(name, _)| is_public(name)).map(|(name, v)| (name.to_owned(), v.clone()));
    let shown: Object = shown.collect();
    (!shown.is_empty()).then_some(shown)
}

/// Whether `old` may be deleted.
///
/// # Errors
/// [`UserError::Forbidden`]
pub fn validate_deletion(old: Option<&Object>, caller: UsersDbCaller<'_>) -> Result<(), UserError> {
    let owner = old.and_then(|old| old.get("name")).and_then(Value::as_str);
    let owns = owner.is_some() && owner == caller.user.name.as_deref();
    if caller.user.has_role(ADMIN_ROLE) || owns {
        return Ok(());
    }
    forbidden("Only admins may delete other user docs.")
}

/// Whether `new` may stand at `id`, in the place of `old`.
///
/// # Errors
/// [`UserError::Forbidden`] with the first rule that is broken.
pub fn validate(id: &str, new: &Object, old: Option<&Object>, caller: UsersDbCaller<'_>) -> Result<(), UserError> {
    if new.get("type").and_then(Value::as_str) != Some("user") {
        return forbidden("doc.type must be user");
    }
    if !truthy(new.get("name")) {
        return forbidden("doc.name is required");
    }
    let roles = roles_of(new)?;
    let name = new.get("name").and_then(Value::as_str);
    let Some(name) = name.filter(|name| name_in(id) == Some(name)) else {
        return forbidden("Doc ID must be of the form org.couchdb.user:name");
    };
    if old.is_some_and(|old| old.get("name").and_then(Value::as_str) != Some(name)) {
        return forbidden("Usernames can not be changed.");
    }
    validate_password_fields(new)?;
    if !caller.is_admin {
        validate_own(name, &roles, old, caller)?;
    }
    if roles.iter().any(|role| role.starts_with('_') && *role != METRICS_ROLE) {
        return forbidden("No system roles (starting with underscore) in users db.");
    }
    if name.starts_with('_') {
        return forbidden("Username may not start with underscore.");
    }
    if name.contains(':') {
        return forbidden("Character `:` is not allowed in usernames.");
    }
    Ok(())
}

fn roles_of(new: &Object) -> Result<Vec<&str>, UserError> {
    if !truthy(new.get("roles")) {
        return forbidden("doc.roles must exist");
    }
    let Some(roles) = new.get("roles").and_then(Value::as_array) else {
        return forbidden("doc.roles must be an array");
    };
    match roles.iter().map(Value::as_str).collect::<Option<Vec<_>>>() {
        Some(roles) => Ok(roles),
        None => forbidden("doc.roles can only contain strings"),
    }
}

fn validate_password_fields(new: &Object) -> Result<(), UserError> {
    if truthy(new.get("password_sha")) && !truthy(new.get("salt")) {
        return forbidden("Users with password_sha must have a salt.See /_utils/script/couch.js for example code.");
    }
    let scheme = new.get("password_scheme");
    let known = |scheme: &Value| matches!(scheme.as_str(), Some("simple" | "pbkdf2" | "simple+pbkdf2"));
    if let Some(scheme) = scheme.filter(|scheme| truthy(Some(scheme)) && !known(scheme)) {
        let shown =
            scheme.as_str().map_or_else(|| String::from_utf8_lossy(&scheme.to_vec()).into_owned(), str::to_owned);
        return forbidden(format!("Password scheme `{shown}` not supported."));
    }
    if scheme.and_then(Value::as_str) == Some("pbkdf2") {
        if !matches!(new.get("iterations"), Some(Value::Int(_) | Value::Big(_) | Value::Float(_))) {
            return forbidden("iterations must be a number.");
        }
        if new.get("derived_key").and_then(Value::as_str).is_none() {
            return forbidden("derived_key must be a string.");
        }
    }
    Ok(())
}

/// A client that sends a finished hash chooses what a login costs this node. Only an administrator may exceed the
/// configured cost. What a document had before stays.
///
/// # Errors
/// [`UserError::Forbidden`]
pub fn check_rounds(new: &Object, old: Option<&Object>, caller: UsersDbCaller<'_>, most: u32) -> Result<(), UserError> {
    let rounds = new.get("iterations");
    let is_more = match rounds {
        Some(Value::Int(rounds)) => *rounds > i64::from(most),
        Some(Value::Float(rounds)) => *rounds > f64::from(most),
        Some(Value::Big(_)) => true,
        _ => false,
    };
    if caller.is_admin || !is_more || old.and_then(|old| old.get("iterations")) == rounds {
        return Ok(());
    }
    forbidden(format!("iterations must not be more than {most}."))
}

/// Rules for users who are no administrators: only the own document, and no change of roles.
fn validate_own(name: &str, roles: &[&str], old: Option<&Object>, caller: UsersDbCaller<'_>) -> Result<(), UserError> {
    let Some(old) = old else {
        return if roles.is_empty() { Ok(()) } else { forbidden("Only _admin may set roles") };
    };
    if caller.user.name.as_deref() != Some(name) {
        return forbidden("You may only update your own user document.");
    }
    let had = old.get("roles").and_then(Value::as_array).unwrap_or_default();
    let mut had: Vec<&str> = had.iter().filter_map(Value::as_str).collect();
    let mut has = roles.to_vec();
    had.sort_unstable();
    has.sort_unstable();
    if had == has { Ok(()) } else { forbidden("Only _admin may edit roles") }
}

/// What a script would take for true.
fn truthy(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false) | Value::Int(0)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Float(number)) => *number != 0.0 && !number.is_nan(),
        Some(_) => true,
    }
}

/// Takes the plain password out of a document that is to be written; `None` when there is none to hash.
///
/// # Errors
/// [`UserError::Forbidden`] when it is no string.
pub fn take_password(body: &mut Object) -> Result<Option<String>, UserError> {
    match body.get("password") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(password)) => {
            let password = password.clone();
            body.remove("password");
            Ok(Some(password))
        }
        Some(other) => {
            let shown = String::from_utf8_lossy(&other.to_vec()).into_owned();
            forbidden(format!("Password value of '{shown}' is invalid."))
        }
    }
}

/// The fields of a user document that hold a hash.
const HASH_FIELDS: [&str; 6] = ["password_scheme", "pbkdf2_prf", "salt", "iterations", "derived_key", "password_sha"];

/// `body` with the fields of `hash` in the place of older ones; they come first.
pub fn with_hash(body: Object, hash: &StoredHash) -> Object {
    let mut out = Object::new();
    match hash {
        StoredHash::Pbkdf2 { prf, derived, salt, iterations } => {
            out.push("password_scheme", "pbkdf2");
            out.push("pbkdf2_prf", prf.name());
            out.push("salt", salt.as_str());
            out.push("iterations", u64::from(*iterations));
            out.push("derived_key", crate::wire::hex::encode(derived));
        }
        StoredHash::Simple { digest, salt } => {
            out.push("password_scheme", "simple");
            out.push("salt", salt.as_str());
            out.push("password_sha", crate::wire::hex::encode(digest));
        }
    }
    for (name, value) in body {
        if !HASH_FIELDS.contains(&name.as_str()) {
            out.push(name, value);
        }
    }
    out
}

/// What stands for the hash while the rules are checked: it is computed only for documents that are in order.
pub fn hash_to_come() -> StoredHash {
    StoredHash::Pbkdf2 { prf: Prf::Sha256, derived: Vec::new(), salt: String::new(), iterations: 1 }
}

/// What a login needs of a user document.
#[derive(Clone, Debug, PartialEq)]
pub struct UserRecord {
    /// The password's hash; `None` when there is none that could be checked.
    pub hash: Option<StoredHash>,
    /// The salt, which takes part in the key of cookies.
    pub salt: String,
    /// The roles.
    pub roles: Vec<String>,
    /// The second factor, if one is asked for.
    pub totp: Option<Object>,
}

impl UserRecord {
    /// Reads a user document.
    pub fn read(body: &Object) -> UserRecord {
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let roles = body.get("roles").and_then(Value::as_array).unwrap_or_default();
        UserRecord {
            hash: read_hash(body),
            salt: text("salt").unwrap_or_default().to_owned(),
            roles: roles.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            totp: body.get("totp").and_then(Value::as_object).cloned(),
        }
    }
}

/// A missing scheme means `simple`, a missing function SHA-1, missing iterations 10,000 (as CouchDB reads them).
fn read_hash(body: &Object) -> Option<StoredHash> {
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    let salt = text("salt").unwrap_or_default().to_owned();
    match text("password_scheme").unwrap_or("simple") {
        "simple" => {
            let digest = crate::wire::hex::decode(text("password_sha")?)?;
            Some(StoredHash::Simple { digest, salt })
        }
        "pbkdf2" => {
            let prf = Prf::from_name(text("pbkdf2_prf").unwrap_or("sha"))?;
            let iterations = match body.get("iterations") {
                None => u64::from(limits::PASSWORD_ITERATIONS_UNNAMED),
                Some(number) => number.as_u64().filter(|n| *n > 0)?,
            };
            let derived = crate::wire::hex::decode(text("derived_key")?)?;
            let iterations = u32::try_from(iterations).unwrap_or(u32::MAX);
            (derived.len() == prf.len()).then_some(StoredHash::Pbkdf2 { prf, derived, salt, iterations })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn object(text: &str) -> Object {
        match json::parse(text.as_bytes()) {
            Ok(Value::Object(object)) => object,
            other => panic!("{other:?}"),
        }
    }

    fn named(name: &str) -> UserCtx {
        UserCtx { name: Some(name.to_owned()), ..UserCtx::default() }
    }

    fn told(id: &str, new: &str, old: Option<&str>, user: &UserCtx) -> Option<String> {
        let caller = UsersDbCaller { user, is_admin: user.is_server_admin() };
        let old = old.map(object);
        match validate(id, &object(new), old.as_ref(), caller) {
            Ok(()) => None,
            Err(UserError::Forbidden(reason)) => Some(reason),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_user_document_must_be_one() {
        let admin = UserCtx::server_admin("adm");
        let id = "org.couchdb.user:ann";
        for (new, reason) in [
            (r#"{"name":"ann","roles":[]}"#, "doc.type must be user"),
            (r#"{"type":"robot","name":"ann","roles":[]}"#, "doc.type must be user"),
            (r#"{"type":"user","name":"","roles":[]}"#, "doc.name is required"),
            (r#"{"type":"user","name":"ann"}"#, "doc.roles must exist"),
            (r#"{"type":"user","name":"ann","roles":null}"#, "doc.roles must exist"),
            (r#"{"type":"user","name":"ann","roles":{}}"#, "doc.roles must be an array"),
            (r#"{"type":"user","name":"ann","roles":[1]}"#, "doc.roles can only contain strings"),
            (r#"{"type":"user","name":"bob","roles":[]}"#, "Doc ID must be of the form org.couchdb.user:name"),
            (
                r#"{"type":"user","name":"ann","roles":[],"password_sha":"ab"}"#,
                "Users with password_sha must have a salt.See /_utils/script/couch.js for example code.",
            ),
            (
                r#"{"type":"user","name":"ann","roles":[],"password_scheme":"rot13"}"#,
                "Password scheme `rot13` not supported.",
            ),
            (
                r#"{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":"1"}"#,
                "iterations must be a number.",
            ),
            (
                r#"{"type":"user","name":"ann","roles":[],"password_scheme":"pbkdf2","iterations":1}"#,
                "derived_key must be a string.",
            ),
            (
                r#"{"type":"user","name":"ann","roles":["_reader"]}"#,
                "No system roles (starting with underscore) in users db.",
            ),
        ] {
            assert_eq!(told(id, new, None, &admin).as_deref(), Some(reason), "{new}");
        }
        assert_eq!(told(id, r#"{"type":"user","name":"ann","roles":["_metrics","x"]}"#, None, &admin), None);
        let odd = |name: &str| format!(r#"{{"type":"user","name":"{name}","roles":[]}}"#);
        let told_of = |name: &str| told(&format!("{ID_PREFIX}{name}"), &odd(name), None, &admin);
        assert_eq!(told_of("_x").as_deref(), Some("Username may not start with underscore."));
        assert_eq!(told_of("a:b").as_deref(), Some("Character `:` is not allowed in usernames."));
        assert_eq!(told_of("é"), None);
    }

    #[test]
    fn users_write_their_own_document_and_no_roles() {
        let (id, plain) = ("org.couchdb.user:ann", r#"{"type":"user","name":"ann","roles":[]}"#);
        let with_roles = r#"{"type":"user","name":"ann","roles":["b","a"]}"#;
        let turned = r#"{"type":"user","name":"ann","roles":["a","b"]}"#;
        let nobody = UserCtx::anonymous();
        assert_eq!(told(id, plain, None, &nobody), None, "sign-up");
        assert_eq!(told(id, with_roles, None, &nobody).as_deref(), Some("Only _admin may set roles"));
        assert_eq!(told(id, with_roles, Some(turned), &named("ann")), None);
        assert_eq!(told(id, plain, Some(turned), &named("ann")).as_deref(), Some("Only _admin may edit roles"));
        let another = "You may only update your own user document.";
        assert_eq!(told(id, plain, Some(plain), &named("bob")).as_deref(), Some(another));
        assert_eq!(told(id, plain, Some(plain), &nobody).as_deref(), Some(another));
        assert_eq!(told(id, plain, Some(turned), &UserCtx::server_admin("a")), None);
    }

    #[test]
    fn deletion_is_for_owners_and_administrators() {
        let old = object(r#"{"name":"ann"}"#);
        let may = |user: &UserCtx, old: Option<&Object>| {
            validate_deletion(old, UsersDbCaller { user, is_admin: user.is_server_admin() }).is_ok()
        };
        assert!(may(&named("ann"), Some(&old)) && may(&UserCtx::server_admin("x"), None));
        assert!(!may(&named("bob"), Some(&old)) && !may(&UserCtx::anonymous(), Some(&old)));
        assert!(!may(&UserCtx::anonymous(), Some(&object("{}"))) && !may(&named("ann"), None));
    }

    #[test]
    fn sight_ends_at_the_own_document() {
        let (ann, admin, nobody) = (named("ann"), UserCtx::server_admin("x"), UserCtx::anonymous());
        let caller = |user| UsersDbCaller { user, is_admin: user.is_server_admin() };
        let (own, design) = ("org.couchdb.user:ann", "_design/_auth");
        assert_eq!(caller(&ann).sees_all(own), Ok(true));
        assert_eq!(caller(&ann).sees_all("org.couchdb.user:bob"), Ok(false));
        assert_eq!(caller(&nobody).sees_all(own), Ok(false));
        assert_eq!(caller(&admin).sees_all(design), Ok(true));
        assert!(matches!(caller(&ann).sees_all(design), Err(UserError::Forbidden(_))));
        assert_eq!(caller(&ann).may_touch("org.couchdb.user:bob"), Err(UserError::NotFound));
        assert!(caller(&ann).may_touch(own).is_ok() && caller(&nobody).may_touch(own).is_ok());
        let body = object(r#"{"name":"ann","salt":"x","nick":"a"}"#);
        let fields = ["nick".to_owned(), "mail".to_owned()];
        assert_eq!(public_part(&body, &fields), Some(object(r#"{"nick":"a"}"#)));
        assert_eq!(public_part(&body, &[]), None);
    }

    #[test]
    fn hashes_are_written_first_and_read_again() {
        let mut body = object(r#"{"name":"ann","password":"pw","password_sha":"00","salt":"old"}"#);
        assert_eq!(take_password(&mut body), Ok(Some("pw".to_owned())));
        let hash = StoredHash::create(b"pw", [7; 16], 3);
        let written = with_hash(body, &hash);
        let names: Vec<&str> = written.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["password_scheme", "pbkdf2_prf", "salt", "iterations", "derived_key", "name"]);
        let record = UserRecord::read(&written);
        assert_eq!((record.hash, record.salt), (Some(hash), "07".repeat(16)));
        assert_eq!(take_password(&mut object(r#"{"password":null}"#)), Ok(None));
        let refused = Err(UserError::Forbidden("Password value of '5' is invalid.".to_owned()));
        assert_eq!(take_password(&mut object(r#"{"password":5}"#)), refused);
    }

    #[test]
    fn imported_hashes_of_older_versions_are_read() {
        let sha1 = object(
            r#"{"password_scheme":"pbkdf2","iterations":11,"salt":"seasalt","roles":["r"],
                "derived_key":"edb68f4f2e7e594548fb7d23407b061872f5f063"}"#,
        );
        let record = UserRecord::read(&sha1);
        assert!(record.hash.unwrap().matches(b"ready"));
        assert_eq!(record.roles, ["r"]);
        let simple = object(r#"{"salt":"old","password_sha":"3f6cd15f0379c2d2f2057a5406c146fed2db4210"}"#);
        assert!(UserRecord::read(&simple).hash.unwrap().matches(b"plain"));
        for none in [r#"{}"#, r#"{"password_scheme":"pbkdf2","derived_key":"ab"}"#, r#"{"password_sha":"xyz"}"#] {
            assert_eq!(UserRecord::read(&object(none)).hash, None, "{none}");
        }
    }
}
