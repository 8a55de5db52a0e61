//! When a failure was decided: the moment after which it no longer depends on what is drawn. A plan is run again with
//! all draws changed from some moment on; where it still fails each time, it was decided before.

use std::fmt;

use crate::apart::{self, Summary};
use crate::plan::{Plan, Reseed};

/// Other draws that are tried for each moment: all must fail.
const SALTS: u64 = 4;
/// How near the moment is brought, in milliseconds.
const NEAR_MS: u64 = 10;

/// Between which simulated milliseconds a failure was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// With other draws from here on it may not fail.
    pub after_ms: u64,
    /// With other draws from here on it fails all the same.
    pub until_ms: u64,
}

impl Decided {
    /// Whether something that took this time was under way at the moment.
    pub fn meets(&self, from_ms: u64, to_ms: u64) -> bool {
        from_ms <= self.until_ms && self.after_ms <= to_ms
    }
}

impl fmt::Display for Decided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        match self.until_ms {
            0 => f.write_str("decided by the plan alone: it fails whatever is drawn"),
            until => write!(f, "decided between {:.3} s and {:.3} s", seconds(self.after_ms), seconds(until)),
        }
    }
}

/// The moment at which a plan's failure was decided; `None` when it does not fail. `bug`: the name of a planted one.
pub fn bisect(plan: &Plan, bug: Option<&str>) -> Option<Decided> {
    let run = |plan: &Plan| apart::run(plan, bug).unwrap_or_default();
    let Summary { failure, simulated_ms, .. } = run(plan);
    let (number, _) = failure?;
    let fails = |at_ms: u64| {
        (1..=SALTS).all(|salt| {
            let other = Plan { reseed: Some(Reseed { at_ms, salt }), ..plan.clone() };
            run(&other).failure.is_some_and(|(found, _)| found == number)
        })
    };
    // A run that panicked does not tell its time.
    let end_ms = if simulated_ms > 0 { simulated_ms } else { 2 * crate::plan::WORK_MS };
    Some(search(end_ms, fails))
}

/// The first moment from which on `fails` holds, by halves. At the end it holds: nothing is drawn any more.
fn search(end_ms: u64, fails: impl Fn(u64) -> bool) -> Decided {
    if fails(0) {
        return Decided { after_ms: 0, until_ms: 0 };
    }
    let (mut after_ms, mut until_ms) = (0, end_ms);
    while until_ms - after_ms > NEAR_MS {
        let middle = after_ms.midpoint(until_ms);
        if fails(middle) { until_ms = middle } else { after_ms = middle }
    }
    Decided { after_ms, until_ms }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_moment_is_found_by_halves() {
        let Decided { after_ms, until_ms } = search(20_000, |at| at >= 7_341);
        assert!(after_ms < 7_341 && until_ms >= 7_341 && until_ms - after_ms <= NEAR_MS, "{after_ms} {until_ms}");
        assert_eq!(search(20_000, |_| true).until_ms, 0);
    }
}
