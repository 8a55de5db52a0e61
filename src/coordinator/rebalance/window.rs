//! Hours of the day in which work of a channel of `[smoosh]` may begin: `from`, `to` and `strict_window` of its
//! section, as CouchDB has them.
//!
//! `from` counts to the hours, `to` does not; the one that is not set is midnight. Where `from` is not before `to` they
//! go over midnight, and where both are the same they are the whole day. Times are UTC. What ends with strict hours
//! goes on in the next ones, if it is still due then: all that was done stays done.

use std::time::Duration;

use crate::config::{Config, minutes_of_day};

const MINUTES_PER_DAY: u64 = 24 * 60;

/// Hours of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Window {
    /// Minutes behind midnight, here and below.
    from: u64,
    to: u64,
    /// Whether what runs ends with the hours.
    is_strict: bool,
}

impl Window {
    /// The hours of a channel, whose section is `smoosh.CHANNEL`. What is no time counts as not set.
    pub(in crate::coordinator) fn of(config: &Config, section: &str) -> Window {
        let time = |key: &str| config.get(section, key).and_then(|text| minutes_of_day(&text)).unwrap_or(0);
        Window { from: time("from"), to: time("to"), is_strict: config.bool(section, "strict_window", false) }
    }

    /// Whether work may begin at a time since the Unix epoch.
    pub(in crate::coordinator) fn is_open(self, wall: Duration) -> bool {
        let now = wall.as_secs() / 60 % MINUTES_PER_DAY;
        match self.from < self.to {
            true => (self.from..self.to).contains(&now),
            false => now >= self.from || now < self.to,
        }
    }

    /// Whether work that began in the hours may go on at that time.
    pub(in crate::coordinator) fn lets_go_on(self, wall: Duration) -> bool {
        !self.is_strict || self.is_open(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Setting;

    fn window(settings: &[&str]) -> Window {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        let settings = settings.iter().map(|s| Setting::parse(&format!("smoosh.x/{s}")).unwrap()).collect();
        Window::of(&Config::in_memory(&env, settings), "smoosh.x")
    }

    fn at(time: &str) -> Duration {
        Duration::from_secs((3 * MINUTES_PER_DAY + minutes_of_day(time).unwrap()) * 60 + 59)
    }

    #[test]
    fn hours_have_a_begin_and_an_end_and_may_go_over_midnight() {
        let open = |settings: &[&str], times: &str| -> Vec<bool> {
            times.split(' ').map(|time| window(settings).is_open(at(time))).collect()
        };
        assert_eq!(open(&[], "00:00 12:00 23:59"), [true; 3]);
        assert_eq!(open(&["from=01:00", "to=5:30"], "00:59 01:00 05:29 05:30"), [false, true, true, false]);
        assert_eq!(open(&["from=22:00", "to=04:00"], "21:59 22:00 03:59 04:00"), [false, true, true, false]);
        assert_eq!(open(&["from=20:00"], "00:00 19:59 20:00 23:59"), [false, false, true, true]);
        assert_eq!(open(&["to=06:00"], "00:00 05:59 06:00"), [true, true, false]);
        assert_eq!(open(&["from=05:00", "to=05:00"], "04:59 05:00"), [true, true], "the whole day");
        assert_eq!(open(&["from=24:00", "to=x"], "00:00 12:00"), [true, true], "no times");
    }

    #[test]
    fn what_runs_ends_with_strict_hours_only() {
        assert!(window(&["from=01:00", "to=02:00"]).lets_go_on(at("03:00")));
        let strict = window(&["from=01:00", "to=02:00", "strict_window=true"]);
        assert!(strict.lets_go_on(at("01:59")) && !strict.lets_go_on(at("02:00")));
    }
}
