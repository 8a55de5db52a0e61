//! Counters of events on the links since the node started, and log lines about those events, limited in rate.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::frame::FrameError;
use super::handshake::HandshakeError;
use crate::limits;
use crate::world::{Env, Instant};

/// Counts, read by `_stats` and `_prometheus`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub links: AtomicU64,
    pub suspected: AtomicU64,
    pub strangers: AtomicU64,
    pub bad_frames: AtomicU64,
    pub oversize_frames: AtomicU64,
    pub bad_packets: AtomicU64,
    pub calls: AtomicU64,
    pub served: AtomicU64,
    pub bytes_in: AtomicU64,
    pub bytes_out: AtomicU64,
    last_line: Mutex<Option<(Instant, u64)>>,
}

/// One number with its name and meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The name within the group `cluster`.
    pub name: &'static str,
    /// What it counts.
    pub what: &'static str,
    /// The count.
    pub value: u64,
}

impl Counters {
    pub(super) fn all(&self) -> Vec<Counted> {
        let counted = |name, what, value: &AtomicU64| Counted { name, what, value: value.load(Ordering::Relaxed) };
        vec![
            counted("links", "number of connections opened to other nodes", &self.links),
            counted("suspected", "number of connections given up for want of signs of life", &self.suspected),
            counted("strangers", "number of connections refused for want of the secret", &self.strangers),
            counted("bad_frames", "number of frames that were forged or no frames", &self.bad_frames),
            counted("oversize_frames", "number of frames refused for their size", &self.oversize_frames),
            counted("bad_packets", "number of packets that made no sense", &self.bad_packets),
            counted("calls", "number of calls to other nodes", &self.calls),
            counted("served", "number of calls of other nodes", &self.served),
            counted("bytes_in", "number of bytes received from other nodes", &self.bytes_in),
            counted("bytes_out", "number of bytes sent to other nodes", &self.bytes_out),
        ]
    }

    /// Counts a frame that did not open and says so.
    pub(super) fn bad_frame(&self, error: &FrameError) -> String {
        let counter = match error {
            FrameError::TooLarge(_) => &self.oversize_frames,
            FrameError::Version(_) | FrameError::Forged => &self.bad_frames,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        error.to_string()
    }

    /// Counts a handshake that came to nothing.
    pub(super) fn bad_handshake(&self, error: &HandshakeError) {
        match error {
            HandshakeError::Frame(error) => {
                self.bad_frame(error);
            }
            HandshakeError::Malformed(_) | HandshakeError::Versions(..) | HandshakeError::Unbound(_) => {
                self.bad_packets.fetch_add(1, Ordering::Relaxed);
            }
            HandshakeError::Stranger | HandshakeError::Between | HandshakeError::NoTls(_) | HandshakeError::Tls(_) => {
                self.strangers.fetch_add(1, Ordering::Relaxed);
            }
            HandshakeError::Io(_) | HandshakeError::OtherName(_) | HandshakeError::Refused(_) => {}
        }
    }

    /// Whether a log line about refused connections may be written now, and how many were left out before it.
    pub(super) fn may_log(&self, env: &Env) -> Option<u64> {
        let mut last = self.last_line.lock().unwrap_or_else(PoisonError::into_inner);
        let now = env.now();
        let pause = Duration::from_secs(limits::CLUSTER_LOG_PAUSE_S);
        match last.as_mut() {
            Some((at, left_out)) if now.since(*at) < pause => {
                *left_out += 1;
                None
            }
            _ => {
                let left_out = last.map_or(0, |(_, left_out)| left_out);
                *last = Some((now, 0));
                Some(left_out)
            }
        }
    }
}
