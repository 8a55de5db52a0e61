//! Ports for nodes that are told theirs, and that take the same one when they are started again.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// A port of loopback that nobody has now. It is below those that the system gives to connections, which would take the
/// port of a node that is down for a moment, and between those of the steps of `scripts/test` and those of
/// `scripts/lib/node.py`; test programs that run beside each other begin at different ones.
#[allow(dead_code, reason = "each test binary uses its own part")]
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    let next = || std::process::id().wrapping_mul(101).wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
    let mut ports = std::iter::repeat_with(|| 16_500 + (next() % 8_000) as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}
