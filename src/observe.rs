//! Observability of a node: the log, on standard error, with the level of `log/level`; its last lines are kept in
//! memory (`tail`).
//!
//! All code logs with `tracing`; only `main` calls [`start_log`]. In the simulator nothing listens.

use std::io::IsTerminal;
use std::sync::Arc;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::world::Env;

pub mod metrics;
pub mod panics;
pub mod tail;
pub mod workers;

use metrics::{Counter, Metrics};

/// The log's level, which may change while it runs.
#[derive(Debug)]
pub struct LogLevel(reload::Handle<LevelFilter, Registry>);

/// Sends log lines of the level with this name (the configuration's `log/level`) to standard error. A second call in
/// one process changes nothing. Lines are counted by level in the node's metrics, and the last ones kept.
pub fn start_log(level_name: &str, env: &Env) -> LogLevel {
    let (filter, handle) = reload::Layer::new(level(level_name));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    // Fails only where a log is running already, and then that one stays.
    let (counting, keeping) = (Counting(Arc::clone(env.metrics())), tail::Keeping(env.clone()));
    let _ = tracing_subscriber::registry().with(filter).with(lines).with(counting).with(keeping).try_init();
    LogLevel(handle)
}

/// Counts lines by their level.
struct Counting(Arc<Metrics>);

impl<S: tracing::Subscriber> Layer<S> for Counting {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.count(match *event.metadata().level() {
            tracing::Level::ERROR => Counter::LogErrors,
            tracing::Level::WARN => Counter::LogWarnings,
            tracing::Level::INFO => Counter::LogInfos,
            _ => Counter::LogDebugs,
        });
    }
}

impl LogLevel {
    /// Takes the level of this name.
    pub fn follow(&self, level_name: &str) {
        // Fails only when the log is gone, at the end of the process.
        let _ = self.0.reload(level(level_name));
    }
}

/// CouchDB's level names; an unknown one counts as `info`.
fn level(name: &str) -> LevelFilter {
    match name {
        "debug" => LevelFilter::DEBUG,
        "warning" | "warn" => LevelFilter::WARN,
        "error" | "err" | "critical" | "crit" | "alert" | "emergency" | "emerg" => LevelFilter::ERROR,
        "none" => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn level_names_are_those_of_couchdb() {
        let expected = [
            ("debug", LevelFilter::DEBUG),
            ("info", LevelFilter::INFO),
            ("notice", LevelFilter::INFO),
            ("warning", LevelFilter::WARN),
            ("critical", LevelFilter::ERROR),
            ("none", LevelFilter::OFF),
            ("loud", LevelFilter::INFO),
        ];
        for (name, filter) in expected {
            assert_eq!(level(name), filter, "{name}");
        }
    }
}
