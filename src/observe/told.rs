//! What a command of the program tells while it runs.

use std::collections::VecDeque;
use std::time::Duration;

use crate::world::Instant;

/// Looks at the rate that count.
const LOOKS: usize = 30;

/// Something for the one who runs a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A line that stays.
    Line(String),
    /// How far it is; the next one replaces it.
    Progress(String),
}

/// Where a command tells how it fares.
pub type Tell<'t> = &'t (dyn Fn(Told) + Send + Sync);

/// How quickly something grows: over the last [`LOOKS`] looks at it.
#[derive(Debug, Default)]
pub struct Rate(VecDeque<(Instant, u64)>);

impl Rate {
    /// Its growth in a second, when so much is `done` by `now`; zero at the first look.
    pub fn look(&mut self, now: Instant, done: u64) -> f64 {
        self.0.push_back((now, done));
        if self.0.len() > LOOKS {
            self.0.pop_front();
        }
        self.0.front().map_or(0.0, |(at, before)| {
            let seconds = now.since(*at).as_secs_f64();
            if seconds > 0.0 { done.saturating_sub(*before) as f64 / seconds } else { 0.0 }
        })
    }
}

/// When the rest is done at that rate, for people.
pub fn time_left(left: u64, rate: f64) -> String {
    match rate > 0.0 {
        true => format!("{} left", clock(left as f64 / rate)),
        false => "time left unknown".to_owned(),
    }
}

/// Bytes for people.
pub fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

/// Hours, minutes and seconds.
fn clock(seconds: f64) -> String {
    let seconds = Duration::from_secs_f64(seconds.clamp(0.0, 3.6e8)).as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_rate_so_far() {
        let at = |s| Instant(Duration::from_secs(s));
        let mut rate = Rate::default();
        assert_eq!(time_left(5, rate.look(at(0), 0)), "time left unknown");
        assert_eq!(time_left(1300, rate.look(at(1), 100)), "0:00:13 left");
        assert_eq!(clock(3_725.0), "1:02:05");
    }
}
