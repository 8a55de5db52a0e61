//! How long a database keeps tombstones: `deleted_document_ttl` of `_auto_purge`, such as `3_hour`.

use std::time::Duration;

use crate::limits;

/// What the text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// `infinity`: for ever, whatever the node's configuration says.
    Infinite,
    /// That long.
    Of(Duration),
}

/// Units with their seconds, by all names that CouchDB takes for them.
const UNITS: &[(&[&str], u64)] = &[
    (&["s", "sec", "second", "seconds"], 1),
    (&["min", "minute", "minutes"], 60),
    (&["h", "hrs", "hour", "hours"], 3_600),
    (&["d", "day", "days"], 86_400),
    (&["w", "week", "weeks"], 604_800),
    (&["mon", "month", "months"], 2_592_000),
    (&["y", "year", "years"], 31_536_000),
];

impl Period {
    /// Reads `infinity`, or a number above 0 and a unit with `_` between them. A number that is too large for a clock
    /// counts as the largest one.
    pub fn parse(text: &str) -> Option<Period> {
        if text == "infinity" {
            return Some(Period::Infinite);
        }
        let (number, unit) = text.split_once('_')?;
        let seconds = UNITS.iter().find(|(names, _)| names.contains(&unit))?.1;
        let number = number.strip_prefix('+').unwrap_or(number);
        if number.is_empty()
            || number.len() > limits::PERIOD_DIGITS
            || !number.bytes().all(|byte| byte.is_ascii_digit())
        {
            return None;
        }
        let number: u64 = number.parse().unwrap_or(u64::MAX);
        (number > 0).then(|| Period::Of(Duration::from_secs(number.saturating_mul(seconds))))
    }

    /// How old a tombstone is when it may be collected; `None`: it never may.
    pub fn age(self) -> Option<Duration> {
        match self {
            Period::Infinite => None,
            Period::Of(period) => Some(period.max(limits::TOMBSTONE_AGE_MIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_is_a_number_of_units() {
        for (text, seconds) in [
            ("3_hour", 10_800),
            ("1_s", 1),
            ("+2_minutes", 120),
            ("10_d", 864_000),
            ("2_w", 1_209_600),
            ("3_mon", 7_776_000),
            ("1_year", 31_536_000),
            ("99999999999999999999_y", u64::MAX),
        ] {
            assert_eq!(Period::parse(text), Some(Period::Of(Duration::from_secs(seconds))), "{text}");
        }
        assert_eq!(Period::parse("infinity").unwrap().age(), None);
        let digits = format!("{}_s", "1".repeat(1000));
        for text in
            ["", "3", "hour", "3 hour", "_hour", "0_hour", "-3_hour", "3_fortnight", "3_hour_", "1.5_h", "mon", &digits]
        {
            assert_eq!(Period::parse(text), None, "{text}");
        }
    }
}
