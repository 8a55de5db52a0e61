//! Configuration: CouchDB's INI files, overrides from the command line, changes at run time.
//!
//! A [`Config`] is a shared handle; reading is a look into an immutable snapshot, so a setting may be read on every
//! request. Built-in defaults stand beside their limits in `limits.rs` and are passed to the typed getters: what is
//! listed here is only what files, the command line or requests have set. Later files win over earlier ones, overrides
//! over files, a change at run time over both. Persisted changes go to the last file of the chain, durably, and keep
//! its comments, order and spacing.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio::sync::watch;

use crate::world::buggify::{Mutation, mutated};
use crate::world::{Env, Pool};

pub mod defaults;
mod effective;
mod file;
pub mod foreign;
pub mod ini;
pub mod schema;

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;

/// All settings: section, key, value.
pub type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// Sections that no request may change: they name code to run (as CouchDB 3.5 was measured; a request is refused with
/// `Config section blacklisted for modification over HTTP API.`).
pub const SECTIONS_CLOSED_TO_REQUESTS: &[&str] = &[
    "daemons",
    "external",
    "httpd_design_handlers",
    "httpd_db_handlers",
    "httpd_global_handlers",
    "native_query_servers",
    "os_daemons",
    "query_servers",
    "feature_flags",
];

/// Where the settings come from.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files that must exist, in order; later ones win. `local.d/*.ini` beside the last one follow by name.
    pub files: Vec<PathBuf>,
    /// The file to use when `files` is empty; it need not exist yet.
    pub fallback: Option<PathBuf>,
    /// Settings from the command line: above every file, never written, kept by a reload.
    pub overrides: Vec<Setting>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The section, without brackets.
    pub section: String,
    /// The key.
    pub key: String,
    /// The value, trimmed.
    pub value: String,
}

/// What went wrong with a configuration file or a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// A file could not be read or written.
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A file is not UTF-8 text.
    NotText(PathBuf),
    /// A section name with a control character or `]`, or an empty one.
    InvalidSection,
    /// A key that no file could hold.
    InvalidKey,
    /// A value that no file could hold: control characters, or the start of a comment within it.
    InvalidValue,
    /// Values that their options do not take, one line for each.
    Refused(Vec<String>),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Io { path, reason } => write!(f, "configuration file {}: {reason}", path.display()),
            ConfigError::NotText(path) => write!(f, "configuration file {}: not UTF-8 text", path.display()),
            ConfigError::InvalidSection => f.write_str("Invalid configuration section"),
            ConfigError::InvalidKey => f.write_str("Invalid configuration key"),
            ConfigError::InvalidValue => f.write_str("Invalid configuration value"),
            ConfigError::Refused(lines) => write!(f, "configuration: {}", lines.join("; ")),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The node's configuration. Cheap to clone; all clones see the same settings.
#[derive(Clone)]
pub struct Config(Arc<Inner>);

struct Inner {
    env: Env,
    sources: Sources,
    /// The files of the chain as last read, in order, with what each one sets.
    chain: Mutex<Vec<(PathBuf, Sections)>>,
    current: RwLock<Arc<Sections>>,
    /// Defaults that only the start of the node knows.
    told: Mutex<Sections>,
    version: watch::Sender<u64>,
    /// Held while a change is written, so that two changes never meet in the file.
    writing: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Config")
    }
}

/// The minutes behind midnight of a time of the day, `HH:MM`; `None`: it is none.
pub fn minutes_of_day(text: &str) -> Option<u64> {
    let number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let (hours, minutes) = text.trim().split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)
}

/// The words of a list that commas divide, trimmed, without empty ones.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

impl Config {
    /// A configuration without files: changes live in memory only. For tests and simulated nodes.
    pub fn in_memory(env: &Env, overrides: Vec<Setting>) -> Config {
        let sources = Sources { overrides, ..Sources::default() };
        let config = Config::over(env, sources);
        config.install(Vec::new());
        config
    }

    /// Reads the files.
    ///
    /// # Errors
    /// [`ConfigError::Io`] when a named file is missing or cannot be read, [`ConfigError::NotText`].
    pub async fn load(env: &Env, sources: Sources) -> Result<Config, ConfigError> {
        let config = Config::over(env, sources);
        config.install(config.read_files().await?);
        Ok(config)
    }

    fn over(env: &Env, sources: Sources) -> Config {
        Config(Arc::new(Inner {
            env: env.clone(),
            sources,
            chain: Mutex::default(),
            current: RwLock::default(),
            told: Mutex::default(),
            version: watch::Sender::new(0),
            writing: tokio::sync::Mutex::default(),
        }))
    }

    /// Refuses values that their options do not take, and tells in the log of options that the node does not know.
    ///
    /// # Errors
    /// [`ConfigError::Refused`]
    pub fn check(&self) -> Result<(), ConfigError> {
        let sections = self.sections();
        let (foreign, unknown) = schema::unknown(&sections);
        if !unknown.is_empty() {
            tracing::warn!("options that settee does not know, which have no effect: {}", unknown.join(", "));
        }
        for told in foreign {
            tracing::warn!("an option of CouchDB without an effect here: {told}");
        }
        taken(&sections)
    }

    /// Reads the files again; changes that were not persisted are dropped, overrides stay.
    ///
    /// # Errors
    /// As [`Config::load`], and [`ConfigError::Refused`] for values that their options do not take; the settings stay
    /// as they were.
    pub async fn reload(&self) -> Result<(), ConfigError> {
        let _writing = self.0.writing.lock().await;
        let chain = self.read_files().await?;
        taken(&self.merged(&chain))?;
        self.install(chain);
        Ok(())
    }

    async fn read_files(&self) -> Result<Vec<(PathBuf, Sections)>, ConfigError> {
        let (disk, sources) = (self.0.env.disk(), self.0.sources.clone());
        self.0.env.blocking(Pool::Foreground, move || file::read_chain(&*disk, &sources)).await
    }

    /// What the files and the command line set together.
    fn merged(&self, chain: &[(PathBuf, Sections)]) -> Sections {
        let mut merged = Sections::new();
        for (_, sections) in chain {
            file::merge(&mut merged, sections);
        }
        for Setting { section, key, value } in &self.0.sources.overrides {
            merged.entry(section.clone()).or_default().insert(key.clone(), value.clone());
        }
        merged
    }

    fn install(&self, chain: Vec<(PathBuf, Sections)>) {
        let merged = self.merged(&chain);
        *self.0.chain.lock().unwrap_or_else(PoisonError::into_inner) = chain;
        self.publish(merged);
    }

    fn publish(&self, sections: Sections) {
        *self.0.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(sections);
        self.0.version.send_modify(|v| *v += 1);
    }

    /// Everything that is set, as one consistent snapshot.
    pub fn sections(&self) -> Arc<Sections> {
        self.0.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is set in one section; empty when there is none.
    pub fn section(&self, section: &str) -> BTreeMap<String, String> {
        self.sections().get(section).cloned().unwrap_or_default()
    }

    /// A setting, if anything has set it.
    pub fn get(&self, section: &str, key: &str) -> Option<String> {
        self.sections().get(section)?.get(key).cloned()
    }

    /// The section that counts for an option of the HTTP server: `chttpd`, or its old place `httpd` where it is set
    /// only there.
    fn http_section(&self, key: &str) -> &'static str {
        let sections = self.sections();
        let is_set = |section: &str| sections.get(section).is_some_and(|set| set.contains_key(key));
        if !is_set("chttpd") && is_set("httpd") { "httpd" } else { "chttpd" }
    }

    /// As [`Config::get`], of an option of the HTTP server that may still be set in its old place.
    pub fn http_get(&self, key: &str) -> Option<String> {
        self.get(self.http_section(key), key)
    }

    /// As [`Config::bool`], of such an option.
    pub fn http_bool(&self, key: &str, default: bool) -> bool {
        self.bool(self.http_section(key), key, default)
    }

    /// Whether answers follow CouchDB 3.5 where the interface specification says otherwise: `[settee] follow`, see
    /// `docs/compatibility.md`.
    pub fn follows_couchdb(&self) -> bool {
        self.text("settee", "follow", "specification") == "couchdb-3.5"
    }

    /// As [`Config::u64`], of such an option.
    pub fn http_u64(&self, key: &str, default: u64) -> u64 {
        self.u64(self.http_section(key), key, default)
    }

    /// What the files say of a setting, whatever stands above them.
    pub fn written(&self, section: &str, key: &str) -> Option<String> {
        let chain = self.0.chain.lock().unwrap_or_else(PoisonError::into_inner);
        chain.iter().rev().find_map(|(_, sections)| sections.get(section)?.get(key).cloned())
    }

    /// A setting as text, or `default`.
    pub fn text(&self, section: &str, key: &str, default: &str) -> String {
        self.get(section, key).unwrap_or_else(|| default.to_owned())
    }

    /// A setting that is `true` or `false`; `default` when it is unset or anything else.
    pub fn bool(&self, section: &str, key: &str, default: bool) -> bool {
        match self.sections().get(section).and_then(|s| s.get(key)).map(String::as_str) {
            Some("true") => true,
            Some("false") => false,
            _ => default,
        }
    }

    /// A switch that shuts a door: on, unless it is unset or `false`. A value that was not meant leaves no door open.
    pub fn shuts(&self, section: &str, key: &str) -> bool {
        self.get(section, key).is_some_and(|value| !value.is_empty() && value != "false")
    }

    /// A setting that is a whole number; `infinity` is `u64::MAX`; `default` when it is unset or anything else.
    pub fn u64(&self, section: &str, key: &str, default: u64) -> u64 {
        match self.sections().get(section).and_then(|s| s.get(key)).map(String::as_str) {
            Some("infinity") => u64::MAX,
            Some(text) => text.parse().unwrap_or(default),
            None => default,
        }
    }

    /// A setting that is a list of words divided by commas, trimmed, without empty ones; `default` when it is unset.
    pub fn list(&self, section: &str, key: &str, default: &str) -> Vec<String> {
        words(&self.text(section, key, default)).map(str::to_owned).collect()
    }

    /// Changes at every change of any setting; the value is a counter without meaning.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// The file that persisted changes go to; `None` when there is none.
    pub fn written_file(&self) -> Option<PathBuf> {
        self.0.chain.lock().unwrap_or_else(PoisonError::into_inner).last().map(|(path, _)| path.clone())
    }

    /// Sets a value (trimmed) and answers the old one. With `persist` it is durable in the last file on return;
    /// without a file it stays in memory.
    ///
    /// # Errors
    /// `Invalid..` for what a file could not hold; [`ConfigError::Io`] when it could not be written: nothing changed.
    pub async fn set(&self, at: (&str, &str), value: &str, persist: bool) -> Result<Option<String>, ConfigError> {
        let value = value.trim().to_owned();
        ini::check(at.0, at.1, &value)?;
        self.change(at, Some(value), persist).await
    }

    /// Removes a setting and answers the value that it had; `Ok(None)` when it was not set.
    ///
    /// # Errors
    /// [`ConfigError::Io`] when the file could not be written: nothing changed.
    pub async fn delete(&self, at: (&str, &str), persist: bool) -> Result<Option<String>, ConfigError> {
        if self.get(at.0, at.1).is_none() {
            return Ok(None);
        }
        self.change(at, None, persist).await
    }

    /// Runs to its end also when the caller goes away: file and memory never part.
    async fn change(
        &self,
        (section, key): (&str, &str),
        value: Option<String>,
        persist: bool,
    ) -> Result<Option<String>, ConfigError> {
        let (config, section, key) = (self.clone(), section.to_owned(), key.to_owned());
        let task = async move { config.change_locked(&section, &key, value, persist).await };
        match self.0.env.spawn_with(task).await {
            Some(outcome) => outcome,
            None => panic!("a change of the configuration panicked or its node stopped"),
        }
    }

    async fn change_locked(
        &self,
        section: &str,
        key: &str,
        value: Option<String>,
        persist: bool,
    ) -> Result<Option<String>, ConfigError> {
        let _writing = self.0.writing.lock().await;
        let last = self.0.chain.lock().unwrap_or_else(PoisonError::into_inner).len().checked_sub(1);
        if let (true, Some(last)) = (persist && !mutated(Mutation::SettingNotKept), last) {
            self.write_file(last, section, key, value.clone()).await?;
        }
        let mut next = Sections::clone(&self.sections());
        let old = file::apply(&mut next, section, key, value);
        self.publish(next);
        Ok(old)
    }

    /// Replaces a value in every file that sets it to just `old`, and in memory. For secrets that must not stay as they
    /// were written. Answers the files that could not be rewritten.
    pub async fn replace_in_files(&self, at: (&str, &str), old: &str, new: &str) -> Vec<ConfigError> {
        let _writing = self.0.writing.lock().await;
        let mut failed = Vec::new();
        for n in self.files_that_set(at, old) {
            if let Err(error) = self.write_file(n, at.0, at.1, Some(new.to_owned())).await {
                failed.push(error);
            }
        }
        let mut next = Sections::clone(&self.sections());
        if next.get(at.0).and_then(|s| s.get(at.1)).is_some_and(|v| v == old) {
            file::apply(&mut next, at.0, at.1, Some(new.to_owned()));
            self.publish(next);
        }
        failed
    }

    fn files_that_set(&self, (section, key): (&str, &str), value: &str) -> Vec<usize> {
        let chain = self.0.chain.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = |sections: &Sections| sections.get(section).and_then(|s| s.get(key)).is_some_and(|v| v == value);
        chain.iter().enumerate().filter(|(_, (_, sections))| sets(sections)).map(|(n, _)| n).collect()
    }

    /// Rewrites file `n` of the chain with one change. The caller holds `writing`.
    async fn write_file(&self, n: usize, section: &str, key: &str, value: Option<String>) -> Result<(), ConfigError> {
        let (path, below) = {
            let chain = self.0.chain.lock().unwrap_or_else(PoisonError::into_inner);
            let sets = |sections: &Sections| sections.get(section).is_some_and(|s| s.contains_key(key));
            (chain[n].0.clone(), chain[..n].iter().any(|(_, sections)| sets(sections)))
        };
        // A key that an earlier file sets is deleted by an empty value, as CouchDB reads it.
        let text = match (value, below) {
            (None, true) => Some(String::new()),
            (value, _) => value,
        };
        let (disk, at, wanted) = (self.0.env.disk(), (section.to_owned(), key.to_owned()), text.clone());
        let job = move || file::rewrite(&*disk, &path, (&at.0, &at.1), wanted.as_deref());
        self.0.env.blocking(Pool::Foreground, job).await?;
        let mut chain = self.0.chain.lock().unwrap_or_else(PoisonError::into_inner);
        file::apply(&mut chain[n].1, section, key, text);
        Ok(())
    }
}

impl Setting {
    /// Reads `SECTION/KEY=VALUE`, as on the command line.
    pub fn parse(text: &str) -> Option<Setting> {
        let (name, value) = text.split_once('=')?;
        let (section, key) = name.split_once('/')?;
        let [section, key, value] = [section, key, value].map(|t| t.trim().to_owned());
        ini::check(&section, &key, &value).ok()?;
        Some(Setting { section, key, value })
    }
}

fn taken(sections: &Sections) -> Result<(), ConfigError> {
    let refused = schema::refusals(sections);
    if refused.is_empty() { Ok(()) } else { Err(ConfigError::Refused(refused)) }
}

/// The directory of a file; `.` for a bare name.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
