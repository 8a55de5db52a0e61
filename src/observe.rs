//! What a node tells of itself: the log, on standard error, as text or as JSON lines, with levels from `log/level` and
//! `log/levels`.
//!
//! Code anywhere logs with `tracing`; only `main` calls [`start_log`]. In the simulator nothing listens.

use std::io::IsTerminal;
use std::sync::Arc;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

use crate::config::Config;

mod filter;
mod json_lines;
pub mod metrics;
pub mod panics;

pub use json_lines::Clock;
use json_lines::JsonLines;
use metrics::{Counter, Metrics};

/// The log's levels, which may change while it runs.
#[derive(Debug)]
pub struct LogLevel(reload::Handle<Targets, Registry>);

/// Sends log lines of the configured levels to standard error, in the configured form. A second call in one process
/// changes nothing. Lines are counted by level in `metrics`; `clock` tells their time in JSON lines.
pub fn start_log(config: &Config, metrics: &Arc<Metrics>, clock: Clock) -> LogLevel {
    let (filter, handle) = reload::Layer::new(filter::configured(config));
    let is_json = config.text("log", "format", "text") == "json";
    let colours = std::io::stderr().is_terminal();
    let text = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(colours).with_target(false);
    let (text, json) = ((!is_json).then_some(text), is_json.then_some(JsonLines(clock)));
    let lines = tracing_subscriber::registry().with(filter).with(text).with(json);
    // Fails only where a log is running already, and then that one stays.
    let _ = lines.with(Counting(Arc::clone(metrics))).try_init();
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
    /// Takes the levels that are configured now.
    pub fn follow(&self, config: &Config) {
        // Fails only when the log is gone, at the end of the process.
        let _ = self.0.reload(filter::configured(config));
    }
}
