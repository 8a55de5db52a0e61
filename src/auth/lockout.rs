//! Lock-out: after some failed logins with one name from one address, further tries there are refused for a while.
//!
//! Counted per address, name and salt, so that a new password opens the account at once. `chttpd_auth_lockout/mode`:
//! `enforce` (the default), `warn` (logs only), `off`; `threshold`, `max_lifetime` (ms) and `max_objects` beside it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::config::Config;
use crate::limits;

const SECTION: &str = "chttpd_auth_lockout";

/// Whose failures are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Suspect {
    pub(super) peer: Option<IpAddr>,
    pub(super) name: String,
    pub(super) salt: String,
}

/// The failures of late. One per node.
#[derive(Default)]
pub(super) struct Lockout(Mutex<Failures>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Off,
    Warn,
    Enforce,
}

fn mode(config: &Config) -> Mode {
    match config.text(SECTION, "mode", "enforce").as_str() {
        "off" => Mode::Off,
        "warn" => Mode::Warn,
        _ => Mode::Enforce,
    }
}

impl Lockout {
    /// Whether the suspect must wait.
    pub(super) fn is_locked(&self, config: &Config, suspect: &Suspect, now_ms: u64) -> bool {
        let count = self.failures().count(suspect, now_ms, lifetime_ms(config));
        let threshold = config.u64(SECTION, "threshold", limits::LOCKOUT_THRESHOLD);
        if count < threshold.max(1) {
            return false;
        }
        match mode(config) {
            Mode::Off => false,
            Mode::Warn => {
                tracing::warn!(name = suspect.name, peer = ?suspect.peer, "would be locked out");
                false
            }
            Mode::Enforce => {
                tracing::warn!(name = suspect.name, peer = ?suspect.peer, "locked out");
                true
            }
        }
    }

    /// Counts a failure.
    pub(super) fn failed(&self, config: &Config, suspect: Suspect, now_ms: u64) {
        if mode(config) != Mode::Off {
            let wanted = config.u64(SECTION, "max_objects", limits::LOCKOUT_ENTRIES_MAX as u64);
            let max = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(1, limits::LOCKOUT_ENTRIES_MAX);
            self.failures().add(suspect, now_ms, lifetime_ms(config), max);
        }
    }

    /// Forgets the failures of one who has logged in.
    pub(super) fn succeeded(&self, suspect: &Suspect) {
        self.failures().remove(suspect);
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, Failures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lifetime_ms(config: &Config) -> u64 {
    config.u64(SECTION, "max_lifetime", limits::LOCKOUT_MS)
}

/// Counts by suspect; the oldest goes when there are too many.
#[derive(Default)]
struct Failures {
    counts: BTreeMap<Suspect, Count>,
    order: BTreeMap<u64, Suspect>,
    next: u64,
}

struct Count {
    failures: u64,
    since_ms: u64,
    order: u64,
}

impl Failures {
    fn count(&self, suspect: &Suspect, now_ms: u64, lifetime_ms: u64) -> u64 {
        let count = self.counts.get(suspect);
        count.filter(|c| now_ms < c.since_ms.saturating_add(lifetime_ms)).map_or(0, |c| c.failures)
    }

    fn add(&mut self, suspect: Suspect, now_ms: u64, lifetime_ms: u64, max: usize) {
        let failures = self.count(&suspect, now_ms, lifetime_ms) + 1;
        if failures > 1
            && let Some(count) = self.counts.get_mut(&suspect)
        {
            count.failures = failures;
            return;
        }
        self.remove(&suspect);
        while self.counts.len() >= max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.counts.remove(&oldest);
        }
        let count = Count { failures, since_ms: now_ms, order: self.next };
        self.next += 1;
        self.order.insert(count.order, suspect.clone());
        self.counts.insert(suspect, count);
        assert_eq!(self.counts.len(), self.order.len(), "each count has its place in the order");
    }

    fn remove(&mut self, suspect: &Suspect) {
        if let Some(count) = self.counts.remove(suspect) {
            self.order.remove(&count.order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::tests::{in_memory, world};

    fn suspect(name: &str) -> Suspect {
        Suspect { peer: Some(IpAddr::from([127, 0, 0, 1])), name: name.to_owned(), salt: "s".to_owned() }
    }

    #[test]
    fn five_failures_lock_for_five_minutes() {
        let (_runtime, env) = world();
        let config = in_memory(&env, &[]);
        let lockout = Lockout::default();
        for n in 0..5 {
            assert!(!lockout.is_locked(&config, &suspect("a"), n));
            lockout.failed(&config, suspect("a"), n);
        }
        assert!(lockout.is_locked(&config, &suspect("a"), 299_999));
        assert!(!lockout.is_locked(&config, &suspect("a"), 300_000));
        assert!(!lockout.is_locked(&config, &suspect("b"), 10));
        assert!(!lockout.is_locked(&config, &Suspect { salt: "new".into(), ..suspect("a") }, 10));
        assert!(!lockout.is_locked(&config, &Suspect { peer: None, ..suspect("a") }, 10));
        let warn = in_memory(&env, &["chttpd_auth_lockout/mode=warn"]);
        assert!(!lockout.is_locked(&warn, &suspect("a"), 10));
        lockout.failed(&config, suspect("a"), 300_001);
        assert!(!lockout.is_locked(&config, &suspect("a"), 300_002), "old failures count no more");
    }

    #[test]
    fn a_login_forgets_failures_and_off_counts_none() {
        let (_runtime, env) = world();
        let (config, off) = (in_memory(&env, &[]), in_memory(&env, &["chttpd_auth_lockout/mode=off"]));
        let lockout = Lockout::default();
        for _ in 0..9 {
            lockout.failed(&config, suspect("a"), 0);
            lockout.failed(&off, suspect("b"), 0);
        }
        assert!(lockout.is_locked(&config, &suspect("a"), 1) && !lockout.is_locked(&config, &suspect("b"), 1));
        lockout.succeeded(&suspect("a"));
        assert!(!lockout.is_locked(&config, &suspect("a"), 1));
    }

    #[test]
    fn memory_is_bounded() {
        let mut failures = Failures::default();
        for n in 0..20 {
            failures.add(suspect(&n.to_string()), n, 1000, 10);
        }
        assert_eq!(failures.counts.len(), 10);
        assert_eq!((failures.count(&suspect("9"), 20, 1000), failures.count(&suspect("10"), 20, 1000)), (0, 1));
    }
}
