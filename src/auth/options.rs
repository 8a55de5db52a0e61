//! Options of the section `[chttpd_auth]`; where one is unset there, its old place `[couch_httpd_auth]` counts.

use crate::config::{Config, Sections};

const SECTION: &str = "chttpd_auth";
/// Where CouchDB before 3.2 had them.
const OLD_SECTION: &str = "couch_httpd_auth";

/// The section that counts for an option.
pub(super) fn section(config: &Config, key: &str) -> &'static str {
    match config.get(SECTION, key) {
        None if config.get(OLD_SECTION, key).is_some() => OLD_SECTION,
        _ => SECTION,
    }
}

/// An option, if it is set to more than nothing.
pub fn get(config: &Config, key: &str) -> Option<String> {
    config.get(section(config, key), key).filter(|value| !value.is_empty())
}

/// As [`get`], of one snapshot of the settings: for options that belong together.
pub(super) fn get_in(sections: &Sections, key: &str) -> Option<String> {
    let of = |section: &str| sections.get(section)?.get(key).cloned();
    of(SECTION).or_else(|| of(OLD_SECTION)).filter(|value| !value.is_empty())
}

/// An option as text.
pub fn text(config: &Config, key: &str, default: &str) -> String {
    get(config, key).unwrap_or_else(|| default.to_owned())
}

/// An option that is `true` or `false`.
pub fn bool(config: &Config, key: &str, default: bool) -> bool {
    config.bool(section(config, key), key, default)
}

/// An option that is a whole number.
pub fn u64(config: &Config, key: &str, default: u64) -> u64 {
    config.u64(section(config, key), key, default)
}

/// An option that is a list of words divided by commas.
pub fn list(config: &Config, key: &str, default: &str) -> Vec<String> {
    config.list(section(config, key), key, default)
}

/// Whether the configuration names the users database.
pub fn names_users_db(config: &Config) -> bool {
    config.get(section(config, "authentication_db"), "authentication_db").is_some()
}

/// The name of the users database.
pub fn users_db(config: &Config) -> String {
    text(config, "authentication_db", "_users")
}
