//! The requests of a node that took longest to be answered, in memory: what an administrator looks at first when
//! clients complain.
//!
//! As in the request log a path stands without its query, because parameters may hold what is secret; a feed counts
//! until its answer begins.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};

use super::request_log::RequestLine;
use crate::config::Config;
use crate::limits;
use crate::wire::iso_time::iso_time;

/// The last requests that took longer than `log/slow_ms`; the oldest goes first.
#[derive(Debug, Default)]
pub struct SlowRequests {
    // A blocking lock: held for a copy only.
    kept: Mutex<VecDeque<Slow>>,
}

#[derive(Clone, Debug)]
struct Slow {
    wall: Duration,
    took: Duration,
    method: String,
    path: String,
    status: u16,
    user: Option<String>,
    peer: String,
    id: String,
}

/// From how many milliseconds on a request is slow.
pub fn threshold_ms(config: &Config) -> u64 {
    config.u64("log", "slow_ms", limits::SLOW_REQUEST_MS)
}

impl SlowRequests {
    /// Keeps a request that took long.
    pub(super) fn note(&self, config: &Config, wall: Duration, line: &RequestLine<'_>) {
        if line.took.as_millis() < u128::from(threshold_ms(config)) {
            return;
        }
        let cut = line.path.floor_char_boundary(limits::SLOW_PATH_BYTES);
        let slow = Slow {
            wall,
            took: line.took,
            method: line.method.to_owned(),
            path: line.path[..cut].to_owned(),
            status: line.status,
            user: line.user.clone(),
            peer: line.peer.to_string(),
            id: line.id.to_owned(),
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= limits::SLOW_REQUESTS {
            kept.pop_front();
        }
        kept.push_back(slow);
    }

    /// What is kept, newest first.
    pub fn told(&self) -> Vec<Value> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let one = |slow: &Slow| {
            json!({
                "time": iso_time(slow.wall), "ms": slow.took.as_secs_f64() * 1e3, "method": slow.method,
                "path": slow.path, "status": slow.status, "user": slow.user, "peer": slow.peer, "id": slow.id,
            })
        };
        kept.iter().rev().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;
    use crate::world::tokio_host;

    #[test]
    fn only_the_newest_slow_requests_are_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = tokio_host::env(runtime.handle().clone());
        let config = Config::in_memory(&env, vec![Setting::parse("log/slow_ms=20").unwrap()]);
        let slow = SlowRequests::default();
        let note = |ms: u64, path: &str| {
            let line = RequestLine {
                method: "GET",
                path,
                status: 200,
                took: Duration::from_millis(ms),
                user: Some("eva".to_owned()),
                peer: ([127, 0, 0, 1], 5).into(),
                id: "abc",
            };
            slow.note(&config, Duration::from_secs(ms), &line);
        };
        note(19, "/fast");
        note(20, &"/ü".repeat(limits::SLOW_PATH_BYTES));
        for n in 0..limits::SLOW_REQUESTS as u64 {
            note(30 + n, "/slow");
        }
        let told = slow.told();
        assert_eq!(told.len(), limits::SLOW_REQUESTS);
        assert_eq!((&told[0]["path"], &told[0]["user"]), (&json!("/slow"), &json!("eva")));
        assert!(told[0]["ms"].as_f64() > told[1]["ms"].as_f64());
    }
}
