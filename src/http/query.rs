//! The query of a request: decoded pairs in their order, and typed reads with the errors that CouchDB 3.5 was measured
//! to give.
//!
//! Flags of documents count only as the exact text `true` ([`Query::flag`]); parameters of views and lists are checked
//! ([`Query::boolean`], [`Query::integer`], [`Query::positive`]). This module does not look at unknown parameters.

use super::problem::{Problem, Result};
use super::response::encode_segment;
use crate::document::json::{self, Value};
use crate::document::selector::erlang_string;

/// Decoded query parameters in the order of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
    /// As it stands behind `?`.
    text: String,
}

impl Query {
    /// Wraps pairs, for tests and for `/queries` items.
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Query {
        let pair = |(name, value): &(String, String)| format!("{}={}", encode_segment(name), encode_segment(value));
        let text = pairs.iter().map(pair).collect::<Vec<String>>().join("&");
        Query { pairs, text }
    }

    /// Decodes the part behind `?`; the caller has checked its percent escapes. Bytes that are no UTF-8 are replaced.
    pub fn parse(raw: &str) -> Query {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode_text(name), decode_text(value))
        };
        let pairs = parts(raw).map(pair).collect();
        Query { pairs, text: raw.to_owned() }
    }

    /// In the order of their names, each name once, with its first value: how CouchDB has parameters below a partition.
    #[must_use]
    pub fn by_name(mut self) -> Query {
        self.pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.pairs.dedup_by(|(later, _), (first, _)| later == first);
        self
    }

    /// As it stands behind `?`: as sent, where it was.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(n, _)| *n == name).map(|(_, value)| value)
    }

    /// Whether `name` is there at all.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// True only for the exact text `true`: how document flags are read.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }

    /// A checked boolean: 400 `query_parse_error` for anything but `true` and `false` (any case).
    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        self.get(name).map(boolean).transpose()
    }

    /// A parameter that holds JSON: 400 `bad_request`, `invalid UTF-8 JSON` when it does not.
    pub fn json(&self, name: &str) -> Result<Option<Value>> {
        self.get(name).map(|text| json::parse(text.as_bytes()).map_err(|_| Problem::invalid_json())).transpose()
    }

    /// A checked integer: 400 `query_parse_error`, `Invalid value for integer: "abc"`.
    pub fn integer(&self, name: &str) -> Result<Option<i64>> {
        self.get(name).map(integer).transpose()
    }

    /// A checked integer that is not negative: 400 `query_parse_error`, `Invalid value for positive integer: "-1"`.
    pub fn positive(&self, name: &str) -> Result<Option<u64>> {
        self.get(name).map(positive).transpose()
    }
}

/// Reads one value as [`Query::boolean`] does.
pub fn boolean(value: &str) -> Result<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(Problem::query_parse(format!("Invalid boolean parameter: {}", erlang_string(value)))),
    }
}

/// Reads one value as [`Query::integer`] does. Numbers beyond 64 bits are cut to the nearest that fits.
pub fn integer(value: &str) -> Result<i64> {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Problem::query_parse(format!("Invalid value for integer: {}", erlang_string(value))));
    }
    let end = if value.starts_with('-') { i64::MIN } else { i64::MAX };
    Ok(value.parse().unwrap_or(end))
}

/// Reads one value as [`Query::positive`] does.
pub fn positive(value: &str) -> Result<u64> {
    let number = integer(value)?;
    u64::try_from(number)
        .map_err(|_| Problem::query_parse(format!("Invalid value for positive integer: {}", erlang_string(value))))
}

/// The parameters of a raw query: `&` and `;` separate them, as in CouchDB. A `;` in a value is sent as `%3B`.
fn parts(raw: &str) -> impl Iterator<Item = &str> {
    raw.split(['&', ';']).filter(|part| !part.is_empty())
}

/// Parameters that hold JSON.
const JSON: [&str; 9] =
    ["key", "keys", "startkey", "start_key", "endkey", "end_key", "open_revs", "atts_since", "doc_ids"];

/// Whether the parameters that hold JSON are UTF-8 once they are decoded. What others hold shows when it is read, and
/// unknown ones may hold anything.
pub fn json_is_text(raw: &str) -> bool {
    let mut pairs = parts(raw).filter_map(|pair| pair.split_once('='));
    pairs.all(|(name, value)| !JSON.contains(&name) || std::str::from_utf8(&decode(value)).is_ok())
}

/// Decodes `%XX` and `+` (a blank); the caller has checked the escapes, a broken one stays as it is.
pub fn decode(raw: &str) -> Vec<u8> {
    let bytes = raw.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |n: usize| bytes.get(at + n).and_then(|b| char::from(*b).to_digit(16));
        match (bytes[at], hex(1), hex(2)) {
            // Invariant: two hex digits make at most 255.
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
                continue;
            }
            (b'+', ..) => out.push(b' '),
            (byte, ..) => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Decodes to text; bytes that are no UTF-8 are replaced.
pub fn decode_text(raw: &str) -> String {
    match String::from_utf8(decode(raw)) {
        Ok(text) => text,
        Err(bad) => String::from_utf8_lossy(bad.as_bytes()).into_owned(),
    }
}

/// Whether every `%` stands before two hex digits.
pub fn escapes_hold(raw: &str) -> bool {
    let bytes = raw.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    bytes.iter().enumerate().all(|(at, byte)| *byte != b'%' || (hex(at + 1) && hex(at + 2)))
}

#[cfg(test)]
mod tests {
    use super::{Query, decode, escapes_hold, json_is_text};

    #[test]
    fn pairs_are_decoded_in_order_and_the_first_wins() {
        let query = Query::parse("a=1&b=%7B%22x%22%3A1%7D&a=2&flag&c=x+y%2B&&d=%ff");
        let pairs: Vec<_> = query.iter().collect();
        assert_eq!(pairs, [("a", "1"), ("b", "{\"x\":1}"), ("a", "2"), ("flag", ""), ("c", "x y+"), ("d", "\u{fffd}")]);
        assert_eq!(query.get("a"), Some("1"));
        assert!(query.has("flag") && !query.flag("flag"));
    }

    #[test]
    fn by_name_the_first_of_each_stays() {
        let query = Query::parse("skip=2&limit=1&skip=1&descending=x").by_name();
        let pairs: Vec<_> = query.iter().collect();
        assert_eq!(pairs, [("descending", "x"), ("limit", "1"), ("skip", "2")]);
        assert_eq!(query.text(), "skip=2&limit=1&skip=1&descending=x");
    }

    #[test]
    fn typed_reads_give_the_recorded_errors() {
        let query = Query::parse("limit=abc&skip=-1&descending=maybe&big=99999999999999999999&yes=TRUE");
        assert_eq!(query.integer("limit").unwrap_err().reason, "Invalid value for integer: \"abc\"");
        assert_eq!(query.positive("skip").unwrap_err().reason, "Invalid value for positive integer: \"-1\"");
        assert_eq!(query.boolean("descending").unwrap_err().reason, "Invalid boolean parameter: \"maybe\"");
        assert_eq!(query.positive("big"), Ok(Some(i64::MAX as u64)));
        assert_eq!(query.boolean("yes"), Ok(Some(true)));
        assert_eq!(query.positive("none"), Ok(None));
    }

    #[test]
    fn broken_escapes_are_found() {
        assert!(escapes_hold("/a%20b?x=%41"));
        for broken in ["%", "%2", "/a%zz", "a%4"] {
            assert!(!escapes_hold(broken), "{broken}");
        }
        assert_eq!(decode("a+b%2Bc%2f"), b"a b+c/");
    }

    #[test]
    fn bytes_that_are_no_text_count_where_json_is_due() {
        assert!(json_is_text("key=%22%C3%A9%22&a=%ff&flag"));
        assert!(!json_is_text("a=1&key=%ff") && !json_is_text("startkey=%C3&endkey=%A9"));
    }
}
