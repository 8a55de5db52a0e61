//! What simulated nodes log, printed with the simulated time.

use std::fmt;

use madsim::time::TimeHandle;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

/// Prints log lines from now on, of the levels that `levels` names (as `RUST_LOG` does), to standard error.
pub fn print(levels: &str) {
    let lines = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(levels)).with_timer(Milliseconds);
    lines.with_ansi(false).with_writer(std::io::stderr).init();
}

/// Milliseconds since the simulated world began.
struct Milliseconds;

impl FormatTime for Milliseconds {
    fn format_time(&self, out: &mut Writer<'_>) -> fmt::Result {
        match TimeHandle::try_current() {
            Some(time) => write!(out, "{:>8}", time.elapsed().as_millis()),
            None => write!(out, "       -"),
        }
    }
}
