//! Server administrators: the section `[admins]` (CouchDB documentation, 'Server admins').
//!
//! No plain password stays in memory or in a file for longer than its hash takes to compute.

use super::ADMIN_ROLE;
use super::accounts::Account;
use super::password::{Cost, Prf, StoredHash, looks_hashed};
use crate::config::{Config, ConfigError};
use crate::limits;
use crate::world::{Env, Pool};

/// The section of the administrators: name to stored hash.
pub const SECTION: &str = "admins";

/// What is stored for a server administrator.
pub(super) fn stored(config: &Config, name: &str) -> Option<String> {
    config.get(SECTION, name).filter(|stored| !stored.is_empty())
}

/// The account of a server administrator for whom that is stored.
pub(super) fn account(stored: &str) -> Account {
    let hash = StoredHash::parse(stored);
    let salt = hash.as_ref().map(|hash| hash.salt().to_owned()).unwrap_or_default();
    Account { hash, salt, roles: vec![ADMIN_ROLE.to_owned()], totp: None, document: None }
}

/// Whether anyone could log in as a server administrator.
pub fn any(config: &Config) -> bool {
    config.section(SECTION).values().any(|value| !value.is_empty())
}

/// Sets an administrator: a plain password is hashed first, a ready hash is stored as it is. Answers the old hash.
///
/// # Errors
/// As [`Config::set`].
pub async fn put(
    env: &Env,
    config: &Config,
    name: &str,
    value: &str,
    persist: bool,
) -> Result<Option<String>, ConfigError> {
    let value = value.trim();
    if value.is_empty() || looks_hashed(value) {
        return config.set((SECTION, name), value, persist).await;
    }
    // The name is checked before the slow part.
    crate::config::ini::check(SECTION, name, "x")?;
    let hashed = hash(env, config, value).await;
    config.set((SECTION, name), &hashed, persist).await
}

/// Hashes every plain password of `[admins]`, in memory and in the files that hold them. To be called at start and
/// after each reload. Answers the files that could not be rewritten: the plain password is still in them.
pub async fn hash_plain_passwords(env: &Env, config: &Config) -> Vec<ConfigError> {
    let mut failed = Vec::new();
    for (name, value) in config.section(SECTION) {
        if !value.is_empty() && !looks_hashed(&value) {
            let hashed = hash(env, config, &value).await;
            failed.extend(config.replace_in_files((SECTION, &name), &value, &hashed).await);
        }
    }
    failed
}

/// How new hashes are made: `chttpd_auth/iterations` and `pbkdf2_prf`. A function that nobody knows counts as `sha256`.
pub fn cost(config: &Config) -> Cost {
    let prf = Prf::from_name(&super::options::text(config, "pbkdf2_prf", "sha256")).unwrap_or(Prf::Sha256);
    let wanted = super::options::u64(config, "iterations", u64::from(limits::PASSWORD_ITERATIONS));
    let iterations = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, limits::PASSWORD_ITERATIONS_MAX);
    Cost { prf, iterations }
}

async fn hash(env: &Env, config: &Config, password: &str) -> String {
    let cost = cost(config);
    let (salt, password) = (env.random_bytes::<16>(), password.to_owned());
    let job = move || StoredHash::create(password.as_bytes(), salt, cost).to_text();
    env.blocking(Pool::Foreground, job).await
}
