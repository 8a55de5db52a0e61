//! Log of failed logins: name and address, at a bounded rate.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use crate::limits;
use crate::world::Instant;

/// The lines of late. One per node.
#[derive(Default)]
pub(super) struct FailedLogins(Mutex<Period>);

#[derive(Default)]
struct Period {
    began: Option<Instant>,
    lines: u32,
    untold: u64,
}

/// What is written about a failure.
#[derive(Debug, PartialEq, Eq)]
struct Lines {
    /// A line of its own.
    own: bool,
    /// Failures of the period before without a line.
    untold: u64,
}

impl Period {
    fn note(&mut self, now: Instant) -> Lines {
        let mut untold = 0;
        if self.began.is_none_or(|began| now.since(began) >= limits::FAILED_LOGIN_PERIOD) {
            untold = std::mem::take(&mut self.untold);
            (self.began, self.lines) = (Some(now), 0);
        }
        let own = self.lines < limits::FAILED_LOGIN_LINES;
        self.lines += u32::from(own);
        self.untold += u64::from(!own);
        Lines { own, untold }
    }
}

impl FailedLogins {
    /// Tells of a login with a wrong name or password.
    pub(super) fn tell(&self, now: Instant, name: &str, peer: Option<IpAddr>) {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner).note(now);
        if lines.untold > 0 {
            tracing::warn!(logins = lines.untold, "more logins failed, without a line of their own");
        }
        if lines.own {
            // The client chose the name.
            let name: String = name.chars().take(limits::FAILED_LOGIN_NAME_CHARS).collect();
            let peer = peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string());
            tracing::warn!(name = ?name, peer, "a login failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_failures_cost_few_lines_and_the_rest_are_counted() {
        let mut period = Period::default();
        let at = |ms| Instant(Duration::from_millis(ms));
        let own = (0..100).filter(|n| period.note(at(*n)).own).count();
        assert_eq!(own, limits::FAILED_LOGIN_LINES as usize);
        let later = at(100 + limits::FAILED_LOGIN_PERIOD.as_millis() as u64);
        assert_eq!(period.note(later), Lines { own: true, untold: 90 });
    }
}
