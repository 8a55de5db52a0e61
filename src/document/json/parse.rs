//! The strict reader of JSON texts.
//!
//! Refused, beside what the grammar refuses: bytes that are not UTF-8, a byte order mark, raw controls and lone
//! surrogate escapes in strings, numbers beyond the range of a double (integers too), nesting beyond
//! [`JSON_DEPTH_MAX`]. The reader keeps its own stack, so that no text can exhaust the thread's.

use num_bigint::BigInt;

use super::{JsonError, NEEDS_CARE, Object, Value};
use crate::limits::{JSON_CONTAINER_BYTES, JSON_DEPTH_MAX, JSON_TOKEN_BYTES};

/// Characters of a number from which the reference stops using the C library's reader (see `float`).
const LONG_NUMBER_CHARS: usize = 32;
/// Digits that an integer may have without being checked against the largest double (about 1.8e308).
const DIGITS_ALWAYS_IN_RANGE: usize = 308;
/// Digits that always fit an `i64`.
const DIGITS_ALWAYS_I64: usize = 18;

/// Whether a text that cannot be read nests its values deeper than [`JSON_DEPTH_MAX`], which alone may be why.
pub fn is_too_deep(text: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'[' | b'{' if depth >= JSON_DEPTH_MAX => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Bytes of memory that the values of a text take about, once it is parsed, beside those of the text itself.
pub fn tree_bytes(text: &[u8]) -> usize {
    let (mut bytes, mut in_string, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b',' | b':' => bytes += JSON_TOKEN_BYTES as usize,
            b'[' | b'{' => bytes += JSON_TOKEN_BYTES as usize + JSON_CONTAINER_BYTES as usize,
            _ => {}
        }
    }
    bytes
}

/// Whether an integer of a text that cannot be parsed is beyond the range of a double. Larger ones are refused, and the
/// client is told that, because the rest of the text may be right.
pub fn has_integer_out_of_range(text: &[u8]) -> bool {
    let (mut in_string, mut escaped, mut digits) = (false, false, 0_usize);
    let mut from = 0;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'0'..=b'9' if !in_string => {
                (from, digits) = if digits == 0 { (at, 1) } else { (from, digits + 1) };
                continue;
            }
            _ => {}
        }
        if std::mem::take(&mut digits) > DIGITS_ALWAYS_IN_RANGE && !matches!(byte, b'.' | b'e' | b'E') {
            let before = text[..from].iter().rev().find(|byte| **byte != b'-');
            let is_whole = !matches!(before, Some(b'.' | b'e' | b'E' | b'+'));
            let token = std::str::from_utf8(&text[from..at]).unwrap_or_default();
            if is_whole && !token.starts_with('0') && integer(token, token.len()).is_err() {
                return true;
            }
        }
    }
    false
}

/// Reads a JSON text. Of members with one name the last stays, at its own place, at every depth. `-0` is the integer 0.
/// Clients are told `invalid UTF-8 JSON` (400) for a [`JsonError`], unless the text is only nested too deeply or has
/// too large an integer.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    let mut parser = Parser::of(text)?;
    let value = parser.document()?;
    parser.end().map(|()| value)
}

/// Whether [`parse`] reads a text; nothing is made of it.
pub fn check(text: &[u8]) -> Result<(), JsonError> {
    let mut parser = Parser { makes: false, ..Parser::of(text)? };
    parser.document()?;
    parser.end()
}

/// An array or object that is not closed yet.
enum Open {
    Array(Vec<Value>),
    /// The members so far and the name of the next one.
    Object(Vec<(String, Value)>, String),
}

pub(super) struct Parser<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// Levels of arrays and objects around the value that is read.
    around: usize,
    /// Whether values are made of what is read; else strings are empty, and so are arrays and objects.
    makes: bool,
}

impl<'a> Parser<'a> {
    /// At the start of a text.
    pub(super) fn of(text: &'a [u8]) -> Result<Parser<'a>, JsonError> {
        let text = std::str::from_utf8(text).map_err(|_| JsonError)?;
        Ok(Parser { text, bytes: text.as_bytes(), at: 0, around: 0, makes: true })
    }

    /// Where it is in the text, behind white space.
    pub(super) fn at(&mut self) -> usize {
        self.skip_space();
        self.at
    }

    /// Passes over this token, if it is the next one.
    pub(super) fn next_is(&mut self, token: u8) -> bool {
        self.skip_space();
        let is_next = self.peek() == Some(token);
        self.at += usize::from(is_next);
        is_next
    }

    /// Nothing is left.
    pub(super) fn end(&mut self) -> Result<(), JsonError> {
        self.skip_space();
        if self.at == self.bytes.len() { Ok(()) } else { Err(JsonError) }
    }

    /// One value that is within so many arrays and objects.
    pub(super) fn within(&mut self, around: usize) -> Result<Value, JsonError> {
        self.around = around;
        self.document()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    /// The next byte that is no white space.
    pub(super) fn next_token(&mut self) -> Result<u8, JsonError> {
        self.skip_space();
        let byte = self.peek().ok_or(JsonError)?;
        self.at += 1;
        Ok(byte)
    }

    /// One value with all that it holds.
    fn document(&mut self) -> Result<Value, JsonError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let Some(mut value) = self.value_or_open(&mut open)? else { continue };
            // The value is complete; close what it completes.
            loop {
                let Some(holder) = open.last_mut() else { return Ok(value) };
                let token = self.next_token()?;
                match holder {
                    _ if !self.makes => {}
                    Open::Array(elements) => elements.push(value),
                    Open::Object(members, name) => members.push((std::mem::take(name), value)),
                }
                match (token, holder) {
                    (b',', Open::Array(_)) => break,
                    (b',', Open::Object(_, name)) => {
                        *name = self.member_name()?;
                        break;
                    }
                    (b']', Open::Array(elements)) => value = Value::Array(std::mem::take(elements)),
                    (b'}', Open::Object(members, _)) => {
                        value = Value::Object(Object::from_members(std::mem::take(members)));
                    }
                    _ => return Err(JsonError),
                }
                open.pop();
            }
        }
    }

    /// A complete value, or `None` after the start of an array or object that has content.
    fn value_or_open(&mut self, open: &mut Vec<Open>) -> Result<Option<Value>, JsonError> {
        let first = self.next_token()?;
        let opened = match first {
            b'"' => return self.string().map(|text| Some(Value::String(text))),
            b'-' | b'0'..=b'9' => {
                self.at -= 1;
                return self.number().map(Some);
            }
            b't' => return self.word("rue", Value::Bool(true)),
            b'f' => return self.word("alse", Value::Bool(false)),
            b'n' => return self.word("ull", Value::Null),
            b'[' | b'{' if open.len() + self.around >= JSON_DEPTH_MAX => return Err(JsonError),
            b'[' => {
                self.skip_space();
                if self.peek() == Some(b']') {
                    self.at += 1;
                    return Ok(Some(Value::Array(Vec::new())));
                }
                Open::Array(Vec::new())
            }
            b'{' => {
                self.skip_space();
                if self.peek() == Some(b'}') {
                    self.at += 1;
                    return Ok(Some(Value::Object(Object::new())));
                }
                Open::Object(Vec::new(), self.member_name()?)
            }
            _ => return Err(JsonError),
        };
        open.push(opened);
        Ok(None)
    }

    fn word(&mut self, rest: &str, value: Value) -> Result<Option<Value>, JsonError> {
        if !self.bytes[self.at..].starts_with(rest.as_bytes()) {
            return Err(JsonError);
        }
        self.at += rest.len();
        Ok(Some(value))
    }

    /// A member's name with the colon behind it.
    pub(super) fn member_name(&mut self) -> Result<String, JsonError> {
        if self.next_token()? != b'"' {
            return Err(JsonError);
        }
        let name = self.string()?;
        if self.next_token()? == b':' { Ok(name) } else { Err(JsonError) }
    }

    /// The rest of a string, behind its opening quote. Copies whole runs between escapes.
    fn string(&mut self) -> Result<String, JsonError> {
        let run = self.run()?;
        if self.bytes[self.at] == b'"' {
            self.at += 1;
            return Ok(if self.makes { run.to_owned() } else { String::new() });
        }
        let mut out = String::new();
        if self.makes {
            out.reserve(run.len() + 16);
            out.push_str(run);
        }
        loop {
            match self.bytes[self.at] {
                b'"' => {
                    self.at += 1;
                    return Ok(out);
                }
                b'\\' => {
                    self.at += 1;
                    let escaped = self.escape()?;
                    if self.makes {
                        out.push(escaped);
                    }
                }
                _ => return Err(JsonError),
            }
            let run = self.run()?;
            if self.makes {
                out.push_str(run);
            }
        }
    }

    /// The text up to the next quote, backslash or control, which exists and is at `self.at` afterwards.
    fn run(&mut self) -> Result<&'a str, JsonError> {
        let from = self.at;
        let rest = &self.bytes[from..];
        let length = rest.iter().position(|b| NEEDS_CARE[usize::from(*b)]).ok_or(JsonError)?;
        self.at = from + length;
        Ok(&self.text[from..self.at])
    }

    /// The character of an escape, behind its backslash.
    fn escape(&mut self) -> Result<char, JsonError> {
        let kind = self.peek().ok_or(JsonError)?;
        self.at += 1;
        Ok(match kind {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(JsonError),
        })
    }

    fn unicode_escape(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            // A low surrogate alone is no character either.
            return char::from_u32(first).ok_or(JsonError);
        }
        if !self.bytes[self.at..].starts_with(b"\\u") {
            return Err(JsonError);
        }
        self.at += 2;
        let second = self.hex4()?;
        if !(0xdc00..0xe000).contains(&second) {
            return Err(JsonError);
        }
        char::from_u32(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00)).ok_or(JsonError)
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(JsonError)?;
        self.at += 4;
        digits.iter().try_fold(0, |value, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(JsonError)?;
            Ok(value << 4 | digit)
        })
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<Value, JsonError> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return Err(JsonError);
        }
        let has_point = self.peek() == Some(b'.');
        if has_point {
            self.at += 1;
            if self.digits() == 0 {
                return Err(JsonError);
            }
        }
        let mantissa_end = self.at;
        let has_exponent = matches!(self.peek(), Some(b'e' | b'E'));
        if has_exponent {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            if self.digits() == 0 {
                return Err(JsonError);
            }
        }
        let text = &self.text[from..self.at];
        match (has_point, has_exponent) {
            (false, false) => integer(text, whole),
            (true, _) => finite(text.parse().map_err(|_| JsonError)?),
            (false, true) => float(text, mantissa_end - from),
        }
    }
}

fn finite(value: f64) -> Result<Value, JsonError> {
    if value.is_finite() { Ok(Value::Float(value)) } else { Err(JsonError) }
}

/// An integer is exact whatever its size, but must be within the range of a double.
fn integer(text: &str, digits: usize) -> Result<Value, JsonError> {
    if digits <= DIGITS_ALWAYS_I64 {
        return text.parse().map(Value::Int).map_err(|_| JsonError);
    }
    if digits > DIGITS_ALWAYS_IN_RANGE && !text.parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(JsonError);
    }
    match text.parse::<i64>() {
        Ok(value) => Ok(Value::Int(value)),
        Err(_) => text.parse::<BigInt>().map(Value::Big).map_err(|_| JsonError),
    }
}

/// A number with an exponent and no point, its mantissa being the first `mantissa` bytes. As CouchDB was measured: a
/// text of 32 characters or more, and any whose double would be subnormal or lost, is computed as the mantissa times a
/// power of ten, both as doubles: 1e-400 and 5e-324 become zero.
fn float(text: &str, mantissa: usize) -> Result<Value, JsonError> {
    let (digits, exponent) = (&text[..mantissa], &text[mantissa + 1..]);
    let value: f64 = text.parse().map_err(|_| JsonError)?;
    let is_zero = digits.bytes().all(|b| matches!(b, b'-' | b'0'));
    if text.len() < LONG_NUMBER_CHARS && (value.is_normal() || is_zero) {
        return Ok(Value::Float(value));
    }
    let digits: f64 = digits.parse().map_err(|_| JsonError)?;
    let power: f64 = format!("1e{exponent}").parse().map_err(|_| JsonError)?;
    if !power.is_finite() {
        return Err(JsonError);
    }
    finite(digits * power)
}
