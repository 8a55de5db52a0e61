//! Logins over a real configuration, the cache of verified credentials, and the table of rights.

use std::collections::BTreeSet;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::access::{Class, Door, Rank, Refusal, check, enter};
use super::security::SecurityObject;
use super::*;
use crate::config::{Setting, Sources};
use crate::document::security::ADMINS_ONLY;
use crate::world::Env;
use crate::world::tokio_host;

mod fuzz;

pub(super) fn world() -> (Runtime, Env) {
    let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let env = tokio_host::env(runtime.handle().clone());
    (runtime, env)
}

pub(super) fn in_memory(env: &Env, settings: &[&str]) -> Config {
    Config::in_memory(env, settings.iter().map(|s| Setting::parse(s).unwrap()).collect())
}

fn basic(pair: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(http::header::AUTHORIZATION, format!("Basic {}", STANDARD.encode(pair)).parse().unwrap());
    headers
}

async fn ask(authenticator: &Authenticator, headers: &HeaderMap) -> Result<UserCtx, AuthError> {
    authenticator.authenticate(Credentials { headers, peer: None }).await.map(|found| found.user)
}

#[test]
fn administrators_log_in_by_basic_and_a_new_password_counts_at_once() {
    let (runtime, env) = world();
    let config = in_memory(&env, &["chttpd_auth/iterations=10"]);
    runtime.block_on(async {
        assert_eq!(admins::put(&env, &config, "adm", " pass ", true).await, Ok(None));
        let authenticator = Authenticator::new(&env, &config, None);
        let (right, wrong) = (basic("adm:pass"), basic("adm:nope"));
        assert_eq!(ask(&authenticator, &right).await, Ok(UserCtx::server_admin("adm")));
        assert_eq!(ask(&authenticator, &wrong).await, Err(AuthError::WrongCredentials));
        assert_eq!(ask(&authenticator, &basic("who:pass")).await, Err(AuthError::WrongCredentials));
        assert_eq!(ask(&authenticator, &HeaderMap::new()).await, Ok(UserCtx::anonymous()));
        let old = admins::put(&env, &config, "adm", "nope", true).await.unwrap().unwrap();
        assert!(old.starts_with("-pbkdf2:sha256-"), "{old}");
        assert_eq!(ask(&authenticator, &right).await, Err(AuthError::WrongCredentials));
        assert_eq!(ask(&authenticator, &wrong).await, Ok(UserCtx::server_admin("adm")));
        config.delete((admins::SECTION, "adm"), false).await.unwrap();
        assert_eq!(ask(&authenticator, &wrong).await, Err(AuthError::WrongCredentials));
    });
}

#[test]
fn a_ready_hash_is_stored_as_it_is() {
    let (runtime, env) = world();
    let config = in_memory(&env, &[]);
    let hash = "-hashed-8ef45be353db515c2c0d6f36c564030f331be370,thesalt";
    runtime.block_on(async {
        admins::put(&env, &config, "old", hash, false).await.unwrap();
        assert_eq!(config.get("admins", "old").as_deref(), Some(hash));
        assert!(Authenticator::new(&env, &config, None).login(("old", b"oldie"), None).await.is_ok());
        assert!(admins::put(&env, &config, "bad = name", "x", false).await.is_err());
    });
}

#[test]
fn plain_passwords_are_hashed_in_the_files_that_hold_them() {
    let (runtime, env) = world();
    let dir = TempDir::new().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let first = write("a.ini", "; ours\n[admins]\nanna = plain ; hers\n[chttpd_auth]\niterations = 10\n");
    let last = write("b.ini", "[admins]\nbob=word\n");
    let files = vec![first.clone(), last.clone()];
    runtime.block_on(async {
        let config = Config::load(&env, Sources { files, ..Sources::default() }).await.unwrap();
        assert_eq!(admins::hash_plain_passwords(&env, &config).await, []);
        let authenticator = Authenticator::new(&env, &config, None);
        assert!(authenticator.login(("anna", b"plain"), None).await.is_ok());
        config.reload().await.unwrap();
        assert!(authenticator.login(("bob", b"word"), None).await.is_ok());
    });
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let (first, last) = (read(&first), read(&last));
    assert!(first.starts_with("; ours\n[admins]\nanna = -pbkdf2:sha256-") && first.contains(",10 ; hers\n"), "{first}");
    assert!(last.starts_with("[admins]\nbob=-pbkdf2:sha256-") && !last.contains("anna"), "{last}");
}

/// A table row: the class, then what each rank is told; a server admin may do everything.
type Row = (Class, [Option<Refusal>; 5]);

#[test]
fn the_table_of_rights_is_the_recorded_one() {
    use Refusal::{Forbidden, Unauthorized};
    let admin = Some(Unauthorized("You are not a server admin."));
    let metrics = Some(Unauthorized("You are not a server admin or read-only metrics user"));
    let maintainer = Some(Unauthorized("You are not a server or db admin."));
    let stranger = Some(Unauthorized("You are not authorized to access this db."));
    let outsider = Some(Forbidden("You are not allowed to access this db."));
    let member = Some(Forbidden("You are not a db or server admin."));
    let table: [Row; 6] = [
        (Class::Open, [None; 5]),
        (Class::ServerAdmin, [admin, admin, admin, admin, None]),
        (Class::Metrics, [metrics, metrics, metrics, metrics, None]),
        (Class::Member, [stranger, outsider, None, None, None]),
        (Class::DatabaseAdmin, [stranger, outsider, member, None, None]),
        (Class::Maintenance, [stranger, outsider, maintainer, None, None]),
    ];
    let object = br#"{"admins":{"names":["dba"]},"members":{"names":["mem"],"roles":["team"]}}"#;
    let security = SecurityObject::parse(object).unwrap();
    let named = |name: &str| UserCtx { name: Some(name.to_owned()), ..UserCtx::default() };
    let callers = [UserCtx::anonymous(), named("joe"), named("mem"), named("dba"), UserCtx::server_admin("adm")];
    let ranks = [Rank::Anonymous, Rank::User, Rank::Member, Rank::DatabaseAdmin, Rank::ServerAdmin];
    for (class, row) in table {
        for ((caller, rank), refusal) in callers.iter().zip(ranks).zip(row) {
            assert_eq!(Rank::of(caller, Some(&security)), rank);
            assert_eq!(check(class, caller, Some(&security)).err(), refusal, "{class:?} {rank:?}");
        }
    }
    let by_role = UserCtx { roles: vec!["team".into()], ..named("x") };
    assert_eq!(check(Class::Member, &by_role, Some(&security)), Ok(()));
    let watcher = UserCtx { roles: vec![METRICS_ROLE.into()], ..named("x") };
    assert_eq!(check(Class::Metrics, &watcher, None), Ok(()));
    assert_eq!(check(Class::ServerAdmin, &watcher, None).err(), admin);
}

#[test]
fn an_open_database_has_anonymous_members_who_are_asked_to_log_in_for_more() {
    let open = SecurityObject::parse(b"{}").unwrap();
    assert_eq!(check(Class::Member, &UserCtx::anonymous(), Some(&open)), Ok(()));
    let refusal = check(Class::DatabaseAdmin, &UserCtx::anonymous(), Some(&open));
    assert_eq!(refusal, Err(Refusal::Unauthorized("You are not a db or server admin.")));
    let closed = SecurityObject::parse(ADMINS_ONLY.as_bytes()).unwrap();
    let user = UserCtx { name: Some("joe".into()), ..UserCtx::default() };
    let refusal = check(Class::Member, &user, Some(&closed));
    assert_eq!(refusal, Err(Refusal::Forbidden("You are not allowed to access this db.")));
    assert_eq!(check(Class::Member, &UserCtx::server_admin("a"), Some(&closed)), Ok(()));
}

#[test]
fn shapes_of_security_objects_are_checked() {
    for text in ["[1]", "{", r#"{"admins":[]}"#, r#"{"readers":{"names":"a"}}"#, r#"{"admins":{"roles":{}}}"#] {
        assert!(SecurityObject::parse(text.as_bytes()).is_err(), "{text}");
    }
    let text = r#"{"readers":{"names":["anna"]},"extra":1}"#;
    let object = SecurityObject::parse(text.as_bytes()).unwrap();
    let named = |name: &str| UserCtx { name: Some(name.to_owned()), ..UserCtx::default() };
    assert!(object.is_member(&named("anna")) && !object.is_member(&named("bob")) && !object.is_admin(&named("anna")));
}

#[test]
fn the_outer_door_closes_when_users_are_required() {
    let (_runtime, env) = world();
    let nobody = UserCtx::anonymous();
    let through =
        |config: &Config| [Door::Up, Door::Login, Door::Other].map(|door| enter(config, door, &nobody).is_ok());
    assert_eq!(through(&in_memory(&env, &[])), [true, true, true]);
    assert_eq!(through(&in_memory(&env, &["chttpd/require_valid_user=true"])), [false, true, false]);
    let but_up = in_memory(&env, &["chttpd/require_valid_user_except_for_up=true"]);
    assert_eq!(through(&but_up), [true, true, false]);
    assert_eq!(enter(&but_up, Door::Other, &UserCtx::server_admin("a")), Ok(()));
    let refusal = enter(&but_up, Door::Other, &nobody);
    assert_eq!(refusal, Err(Refusal::Unauthorized("Authentication required.")));
}

#[test]
fn a_session_of_a_former_secret_holds_and_is_renewed_with_the_present_one() {
    let (runtime, env) = world();
    let config = in_memory(&env, &["chttpd_auth/iterations=10", "chttpd_auth/secret=old"]);
    runtime.block_on(async {
        admins::put(&env, &config, "adm", "pass", true).await.unwrap();
        let authenticator = Authenticator::new(&env, &config, None);
        let login = authenticator.login(("adm", b"pass"), None).await.unwrap();
        let first = authenticator.open_session(&login, "").await.unwrap();
        let show = async |cookie: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(http::header::COOKIE, format!("AuthSession={cookie}").parse().unwrap());
            let found = authenticator.authenticate(Credentials { headers: &headers, peer: None }).await.unwrap();
            (found.user.name.is_some(), found.renewed)
        };
        assert_eq!(show(&first).await, (true, None));
        authenticator.secrets().accept("new").await.unwrap();
        assert_eq!(show(&first).await, (true, None));
        authenticator.secrets().put_to_use(&secrets::digest("new")).await.unwrap();
        let (holds, renewed) = show(&first).await;
        let renewed = renewed.unwrap();
        assert!(holds && renewed != first);
        assert_eq!(show(&renewed).await, (true, None));
        let (new, old) = (secrets::digest("new"), secrets::digest("old"));
        authenticator.secrets().drop_accepted(&new, &BTreeSet::from([old.as_str()])).await.unwrap();
        assert_eq!((show(&first).await, show(&renewed).await), ((false, None), (true, None)));
    });
}
