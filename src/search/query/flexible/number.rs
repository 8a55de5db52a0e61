//! Numbers in query texts, as Java's NumberFormat of a locale reads them: as far as they go.

/// How a locale writes numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locale {
    decimal: char,
    /// Stands between digits of large numbers and is passed over.
    group: char,
}

impl Default for Locale {
    fn default() -> Locale {
        Locale { decimal: '.', group: ',' }
    }
}

/// Between groups of digits where a blank stands there.
const NARROW_BLANK: char = '\u{202f}';
const BLANK: char = '\u{a0}';
const APOSTROPHE: char = '\u{2019}';

impl Locale {
    /// That of a name like `de` or `fr-CA`; an unknown one writes numbers as `us` does.
    pub fn named(name: &str) -> Locale {
        let lower = name.to_ascii_lowercase().replace('_', "-");
        let mut parts = lower.split('-');
        let (language, country) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (decimal, group) = match (language, country) {
            ("de", "ch" | "li") | ("it", "ch") => ('.', APOSTROPHE),
            ("de", "at") => (',', BLANK),
            ("es", "mx" | "us" | "gt" | "hn" | "ni" | "pa" | "pe" | "pr" | "sv" | "do") => ('.', ','),
            ("fr", "ch") => (',', NARROW_BLANK),
            ("fr", "ca") | ("pt", "pt" | "ao" | "mz") => (',', BLANK),
            ("de" | "da" | "nl" | "es" | "it" | "pt" | "id" | "tr" | "el" | "hr" | "sl" | "sr" | "ro" | "ca", _)
            | ("gl" | "eu" | "is" | "mk" | "vi" | "az" | "lo" | "bs" | "fo" | "km", _) => (',', '.'),
            ("fr", _) => (',', NARROW_BLANK),
            ("ru" | "uk" | "pl" | "cs" | "sk" | "bg" | "hu" | "sv" | "fi" | "nb" | "nn" | "no", _)
            | ("lt" | "lv" | "et" | "be" | "kk" | "ka" | "hy", _) => (',', BLANK),
            _ => ('.', ','),
        };
        Locale { decimal, group }
    }

    /// The number with which a text begins; `None`: with none.
    pub(super) fn parse(self, text: &str) -> Option<f64> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => ("-", rest),
            None => ("", text),
        };
        if rest.starts_with('\u{221e}') {
            return Some(if sign.is_empty() { f64::INFINITY } else { f64::NEG_INFINITY });
        }
        if text.starts_with("NaN") {
            return Some(f64::NAN);
        }
        let mut digits = String::new();
        let mut chars = rest.chars().peekable();
        let (mut has_digits, mut is_part) = (false, false);
        while let Some(c) = chars.peek().copied() {
            match c.to_digit(10) {
                Some(digit) => {
                    has_digits = true;
                    digits.push(char::from_digit(digit, 10)?);
                }
                None if c == self.decimal && !is_part => {
                    is_part = true;
                    digits.push('.');
                }
                None if c == self.group && !is_part => {}
                None => break,
            }
            chars.next();
        }
        if !has_digits {
            return None;
        }
        if chars.next() == Some('E') {
            let exponent: String = chars.collect();
            let signed = exponent.strip_prefix('-');
            let power: String = signed.unwrap_or(&exponent).chars().take_while(char::is_ascii_digit).collect();
            if !power.is_empty() {
                digits.push_str(if signed.is_some() { "e-" } else { "e" });
                digits.push_str(&power);
            }
        }
        format!("{sign}{digits}").parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_their_locale_writes_them() {
        let us = Locale::named("us");
        for (text, value) in [
            ("10.0", 10.0),
            ("-5", -5.0),
            ("1,000", 1000.0),
            ("1E3", 1000.0),
            ("2.5E-1", 0.25),
            ("1e3", 1.0),
            ("7x", 7.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("-\u{221e}", f64::NEG_INFINITY),
        ] {
            assert_eq!(us.parse(text), Some(value), "{text}");
        }
        for text in ["", "x", "-", "+5", ".", "E3"] {
            assert_eq!(us.parse(text), None, "{text}");
        }
        assert_eq!(Locale::named("de").parse("10.0"), Some(100.0));
        assert_eq!(Locale::named("de_DE").parse("1.234,5"), Some(1234.5));
        assert_eq!(Locale::named("fr").parse("3,5"), Some(3.5));
        assert_eq!(Locale::named("de-CH").parse("3.5"), Some(3.5));
        assert_eq!(Locale::named("xx"), Locale::default());
    }
}
