//! What requests see of the configuration: the settings, and the defaults that count where nothing is set, as CouchDB
//! shows those of its `default.ini`.

use std::sync::PoisonError;

use super::{Config, Sections};

/// Defaults that are the same on every node.
const DEFAULTS: &[(&str, &str, &str)] = &[
    ("chttpd", "bind_address", "127.0.0.1"),
    ("chttpd", "port", "5984"),
    ("chttpd_auth", "hash_algorithms", "sha256, sha"),
    ("couch_httpd_auth", "authentication_db", "_users"),
    ("vendor", "name", "settee"),
];

impl Config {
    /// Names a default that only the start of the node knows, such as the folder of its data.
    pub fn tell_default(&self, section: &str, key: &str, value: &str) {
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.entry(section.to_owned()).or_default().insert(key.to_owned(), value.to_owned());
    }

    /// All settings and defaults.
    pub fn effective(&self) -> Sections {
        let mut sections = self.0.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut add = |section: &str, key: &str, value: String| {
            sections.entry(section.to_owned()).or_default().insert(key.to_owned(), value);
        };
        for (section, key, value) in DEFAULTS {
            add(section, key, (*value).to_owned());
        }
        for (section, keys) in self.sections().iter() {
            sections.entry(section.clone()).or_default().extend(keys.clone());
        }
        sections
    }

    /// One of them.
    pub fn effective_value(&self, section: &str, key: &str) -> Option<String> {
        self.effective().get(section)?.get(key).cloned()
    }
}
