//! Times as ISO 8601 writes them, in UTC and to the second.

use std::time::Duration;

/// `2026-11-20T23:39:44Z` for a time since the Unix epoch.
pub fn iso_time(wall: Duration) -> String {
    let seconds = wall.as_secs();
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counted from 1 March of the year 0, so that leap days end a year; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + carry;
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest % 3600 / 60, rest % 60)
}

/// Whether a text has the form of [`iso_time`], whatever stands in the places of its numbers.
pub fn is_iso_form(text: &str) -> bool {
    let form = b"....-..-..T..:..:..Z";
    let is_meant = |(byte, meant): (&u8, &u8)| *meant == b'.' || byte == meant;
    text.len() == form.len() && text.as_bytes().iter().zip(form).all(is_meant)
}

/// The seconds since the Unix epoch of a text as [`iso_time`] writes it; `None` for a time that there is not.
pub fn parse_iso_time(text: &str) -> Option<i64> {
    if !is_iso_form(text) {
        return None;
    }
    let number = |from: usize, to: usize| {
        let digits = text.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i64>().ok())?
    };
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    // As in `iso_time`, counted from 1 March of the year 0.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    let day = (153 * month + 2) / 5 + day - 1 + year * 365 + year / 4 - year / 100;
    let days = era * 146_097 + day - 719_468;
    Some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_217_565, "2026-11-20T23:32:45Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(iso_time(Duration::from_secs(seconds)), text);
            assert_eq!(parse_iso_time(text), Some(i64::try_from(seconds).unwrap()));
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        assert_eq!(parse_iso_time("1969-12-31T23:59:59Z"), Some(-1));
        assert_eq!(parse_iso_time("0000-03-01T00:00:00Z"), Some(-719_468 * 86_400));
        for text in [
            "2025-01-01Txx:yy:00Z",
            "2025-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-00-01T00:00:00Z",
            "2025-01-01T24:00:00Z",
            "2025-01-01T00:00:60Z",
            "+025-01-01T00:00:00Z",
        ] {
            assert!(is_iso_form(text) && parse_iso_time(text).is_none(), "{text}");
        }
        for text in ["", "2025-01-01", "2025-01-01T00:00:00", "2025-01-01T00:00:00+00:00", "é025-01-01T00:00:00Z"] {
            assert!(parse_iso_time(text).is_none(), "{text}");
        }
    }
}
