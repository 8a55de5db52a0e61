//! The request log: one line for each request, at the level of `log/requests`.
//!
//! A line has the path as it was sent and no query, because parameters may hold what is secret. It is written when the
//! head of the answer is ready: a feed's line tells how long it took to begin.

use std::net::SocketAddr;
use std::time::Duration;

use super::Context;
use crate::limits;

/// What a line tells.
pub(super) struct RequestLine<'r> {
    pub method: &'r str,
    pub path: &'r str,
    pub status: u16,
    pub took: Duration,
    /// The caller's name; `None` for an anonymous one.
    pub user: Option<String>,
    pub peer: SocketAddr,
    /// `X-Couch-Request-ID`.
    pub id: &'r str,
}

/// Writes the line, if the configured level is not `none`, and keeps a request that took long.
pub(super) fn tell(context: &Context, line: &RequestLine<'_>) {
    context.slow.note(&context.config, context.env.wall(), line);
    /// Levels are part of the code in `tracing`, not values.
    macro_rules! at {
        ($level:ident) => {{
            let RequestLine { method, path, status, took, user, peer, id } = line;
            let (ms, user) = (took.as_secs_f64() * 1e3, user.as_deref().unwrap_or("-"));
            tracing::$level!(target: "request", method, path, status, ms, user, %peer, id, "request")
        }};
    }
    match context.config.text("log", "requests", limits::REQUEST_LOG_LEVEL).as_str() {
        "debug" => at!(debug),
        "warning" | "warn" => at!(warn),
        "error" | "err" | "critical" | "crit" | "alert" | "emergency" | "emerg" => at!(error),
        "none" => {}
        _ => at!(info),
    }
}
