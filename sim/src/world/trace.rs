//! The rolling hash over all that happened, the optional log of it, and counters of faults and behaviours.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// A fast hash of bytes for traces: equal on all machines, no defence against malice.
pub(crate) fn hash_bytes(start: u64, bytes: &[u8]) -> u64 {
    let mut hash = start ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    hash
}

pub(crate) fn mix(hash: u64, word: u64) -> u64 {
    (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29)
}

#[derive(Default)]
pub(crate) struct Trace {
    hash: u64,
    events: u64,
    log: Option<Box<dyn Write + Send>>,
    counters: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Adds an event of a node at a time; `payload` is a hash or a number that tells it from others of its kind.
    pub(crate) fn note(&mut self, now: Duration, node: IpAddr, kind: &'static str, payload: u64) {
        let host = match node {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits() as u64,
        };
        let mut hash = mix(self.hash, now.as_nanos() as u64);
        hash = hash_bytes(mix(hash, host), kind.as_bytes());
        self.hash = mix(hash, payload);
        self.events += 1;
        if let Some(log) = &mut self.log {
            // A log that cannot be written must not change the run that it describes.
            let _ = writeln!(log, "{:>15} {node} {kind} {payload:016x}", now.as_nanos());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        mix(self.hash, self.events)
    }

    pub(crate) fn events(&self) -> u64 {
        self.events
    }

    pub(crate) fn log_to(&mut self, log: Box<dyn Write + Send>) {
        self.log = Some(log);
    }

    pub(crate) fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            let _ = log.flush();
        }
    }

    pub(crate) fn count(&mut self, name: &'static str, times: u64) {
        *self.counters.entry(name).or_default() += times;
    }

    pub(crate) fn counters(&self) -> BTreeMap<&'static str, u64> {
        self.counters.clone()
    }
}
