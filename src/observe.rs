//! Observability of a node: the log, on standard error, as text or as JSON lines, with the levels of `log/level` and
//! `log/levels`; its last lines are kept in memory (`tail`).
//!
//! All code logs with `tracing`; only `main` calls [`start_log`]. In the simulator nothing listens.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

mod filter;
mod json_lines;
pub mod metrics;
pub mod panics;
pub mod tail;
pub mod tasks;
pub mod told;
pub mod workers;

use json_lines::JsonLines;
use metrics::{Counter, Metrics};

/// The log's levels, which may change while it runs.
#[derive(Debug)]
pub struct LogLevel(reload::Handle<Targets, Registry>);

/// How the log is configured.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The level of all modules: `log/level`.
    pub level: String,
    /// Levels of single modules: `log/levels`, as `storage=debug, request=warn`.
    pub levels: String,
    /// Whether lines are JSON objects: `log/format`.
    pub is_json: bool,
}

/// Tells the time since the Unix epoch.
pub type WallClock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Sends log lines to standard error. A second call in one process changes nothing. Lines are counted by level in the
/// node's metrics, and the last ones kept.
pub fn start_log(options: &LogOptions, metrics: &Arc<Metrics>, wall: WallClock) -> LogLevel {
    let (filter, handle) = reload::Layer::new(filter::configured(options));
    let colours = std::io::stderr().is_terminal();
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    let (text, json) = ((!options.is_json).then_some(text), options.is_json.then(|| JsonLines(Arc::clone(&wall))));
    let lines = tracing_subscriber::registry().with(filter).with(text).with(json);
    // Fails only where a log is running already, and then that one stays.
    let (counting, keeping) = (Counting(Arc::clone(metrics)), tail::Keeping(wall));
    let _ = lines.with(counting).with(keeping).try_init();
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
    /// Takes these levels; the form of lines stays.
    pub fn follow(&self, options: &LogOptions) {
        // Fails only when the log is gone, at the end of the process.
        let _ = self.0.reload(filter::configured(options));
    }
}
