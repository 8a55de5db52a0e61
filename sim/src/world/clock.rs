//! The wall clock of a node: wrong in all the ways in which real ones are.

use std::time::Duration;

const NANOS: i128 = 1_000_000_000;

/// A wall clock over the world's time. All in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct WallClock {
    /// What it showed at `since`.
    shown: i128,
    since: i128,
    /// Parts per million that it runs too fast (negative: too slow).
    drift_ppm: i64,
    frozen: bool,
}

fn nanos(time: Duration) -> i128 {
    time.as_nanos() as i128
}

impl WallClock {
    /// A right clock that shows `epoch` (time since 1970) when the world begins.
    pub(crate) fn new(epoch: Duration) -> Self {
        WallClock { shown: nanos(epoch), since: 0, drift_ppm: 0, frozen: false }
    }

    /// What it shows at a time of the world; never before 1970.
    pub(crate) fn read(&self, now: Duration) -> Duration {
        let shown = self.at(now).max(0);
        Duration::new((shown / NANOS) as u64, (shown % NANOS) as u32)
    }

    fn at(&self, now: Duration) -> i128 {
        if self.frozen {
            return self.shown;
        }
        let passed = nanos(now) - self.since;
        self.shown + passed + passed * i128::from(self.drift_ppm) / 1_000_000
    }

    fn anchor(&mut self, now: Duration) {
        self.shown = self.at(now);
        self.since = nanos(now);
    }

    /// Moves it by so many milliseconds, back when negative.
    pub(crate) fn jump(&mut self, now: Duration, by_ms: i64) {
        self.anchor(now);
        self.shown += i128::from(by_ms) * 1_000_000;
    }

    pub(crate) fn set_drift(&mut self, now: Duration, ppm: i64) {
        self.anchor(now);
        self.drift_ppm = ppm;
    }

    pub(crate) fn freeze(&mut self, now: Duration, frozen: bool) {
        self.anchor(now);
        self.frozen = frozen;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn runs_jumps_drifts_and_freezes() {
        let mut clock = WallClock::new(secs(1000));
        assert_eq!(clock.read(secs(5)), secs(1005));
        clock.jump(secs(5), -2000);
        assert_eq!(clock.read(secs(6)), secs(1004));
        clock.set_drift(secs(6), 500_000);
        assert_eq!(clock.read(secs(8)), secs(1007));
        clock.freeze(secs(8), true);
        assert_eq!(clock.read(secs(90)), secs(1007));
        clock.freeze(secs(90), false);
        assert_eq!(clock.read(secs(92)), secs(1010));
        clock.jump(secs(92), -5_000_000);
        assert_eq!(clock.read(secs(92)), Duration::ZERO, "not before 1970");
    }
}
