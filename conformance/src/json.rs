//! JSON as the suite needs it: the text of every number and the order of every object are kept.
//!
//! A general JSON crate turns `1.0`, `1e400` and 30-digit integers into the nearest machine number; here a case may
//! hold a server to how a number is written. Assumes UTF-8 input and nesting of at most [`DEPTH_MAX`].

use std::collections::HashMap;
use std::fmt::Write;

/// Nesting beyond this is refused, so that an answer cannot overflow the runner's stack.
const DEPTH_MAX: usize = 400;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(String),
    /// A string, unescaped; a surrogate without its partner has become U+FFFD.
    String(String),
    /// An array.
    Array(Vec<Value>),
    /// An object in the order of its text; of members with one name the last one counts.
    Object(Vec<(String, Value)>),
}

impl Value {
    /// Reads one JSON text; blanks around it are fine, anything else is not.
    pub fn parse(text: &[u8]) -> Result<Value, String> {
        let text = std::str::from_utf8(text).map_err(|e| format!("not UTF-8: {e}"))?;
        let mut reader = Reader { text, at: 0 };
        let value = reader.value(0)?;
        reader.blanks();
        if reader.at < text.len() { Err(format!("text after the value at byte {}", reader.at)) } else { Ok(value) }
    }

    /// The name of the value's JSON type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }
    }

    /// The member `name` of an object.
    pub fn get(&self, name: &str) -> Option<&Value> {
        match self {
            Value::Object(members) => members.iter().find(|(k, _)| k == name).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The value at a JSON pointer (`""` is the value itself).
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        let mut here = self;
        for segment in pointer.split('/').skip(1) {
            let name = segment.replace("~1", "/").replace("~0", "~");
            here = match here {
                Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
                Value::Object(_) => here.get(&name)?,
                _ => return None,
            };
        }
        Some(here)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        if let Value::String(text) = self { Some(text) } else { None }
    }

    /// The items of an array.
    pub fn as_array(&self) -> Option<&[Value]> {
        if let Value::Array(items) = self { Some(items) } else { None }
    }

    /// The members of an object.
    pub fn as_object(&self) -> Option<&[(String, Value)]> {
        if let Value::Object(members) = self { Some(members) } else { None }
    }

    /// A number as the nearest `f64`.
    pub fn as_f64(&self) -> Option<f64> {
        if let Value::Number(text) = self { text.parse().ok() } else { None }
    }

    /// Whether the value is `true`.
    pub fn is_true(&self) -> bool {
        *self == Value::Bool(true)
    }

    /// Equality of values: numbers by what they stand for, objects whatever the order of their members.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::Number(a), Value::Number(b)) => same_number(a, b),
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.same(y)),
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(k, x)| other.get(k).is_some_and(|y| x.same(y)))
            }
            _ => self == other,
        }
    }

    /// The value with every string (names of members too) replaced by `f` of it.
    pub fn map_strings(&self, f: &dyn Fn(&str) -> String) -> Value {
        match self {
            Value::String(text) => Value::String(f(text)),
            Value::Array(items) => Value::Array(items.iter().map(|v| v.map_strings(f)).collect()),
            Value::Object(members) => Value::Object(members.iter().map(|(k, v)| (f(k), v.map_strings(f))).collect()),
            _ => self.clone(),
        }
    }

    /// The value with every number replaced by the string `#` and the number's text.
    pub fn numbers_as_text(self) -> Value {
        match self {
            Value::Number(text) => Value::String(format!("#{text}")),
            Value::Array(items) => Value::Array(items.into_iter().map(Value::numbers_as_text).collect()),
            Value::Object(members) => {
                Value::Object(members.into_iter().map(|(k, v)| (k, v.numbers_as_text())).collect())
            }
            other => other,
        }
    }

    /// ASCII text, one blank after `,` and `:`; with `sorted`, members in the order of their names.
    pub fn to_text(&self, sorted: bool) -> String {
        let mut out = String::new();
        self.write(&mut out, sorted);
        out
    }

    fn write(&self, out: &mut String, sorted: bool) {
        match self {
            Value::Null => out.push_str("null"),
            Value::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
            Value::Number(text) => out.push_str(text),
            Value::String(text) => write_string(text, out),
            Value::Array(items) => {
                out.push('[');
                for (n, item) in items.iter().enumerate() {
                    out.push_str(if n > 0 { ", " } else { "" });
                    item.write(out, sorted);
                }
                out.push(']');
            }
            Value::Object(members) => {
                let mut members: Vec<&(String, Value)> = members.iter().collect();
                if sorted {
                    members.sort_by(|a, b| a.0.cmp(&b.0));
                }
                out.push('{');
                for (n, (name, value)) in members.into_iter().enumerate() {
                    out.push_str(if n > 0 { ", " } else { "" });
                    write_string(name, out);
                    out.push_str(": ");
                    value.write(out, sorted);
                }
                out.push('}');
            }
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(text.to_owned())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Value {
        Value::Number(number.to_string())
    }
}

/// An object of the given members.
pub fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    Value::Object(members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
}

/// Whether two number texts stand for the same number; integers and a float beside an integer compare exactly.
fn same_number(a: &str, b: &str) -> bool {
    let is_integer = |t: &str| !t.contains(['.', 'e', 'E']);
    let integer = |t: &str| if t == "-0" { "0".to_owned() } else { t.to_owned() };
    let parsed = |t: &str| t.parse::<f64>().unwrap_or(f64::NAN);
    match (is_integer(a), is_integer(b)) {
        (true, true) => integer(a) == integer(b),
        (false, false) => parsed(a) == parsed(b),
        (true, false) => integer(a) == integer(&format!("{:.0}", parsed(b))) && parsed(b).fract() == 0.0,
        (false, true) => same_number(b, a),
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.push('"');
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn wrong<T>(&self) -> Result<T, String> {
        Err(format!("not JSON at byte {}", self.at))
    }

    fn eat(&mut self, word: &str) -> bool {
        let found = self.text[self.at..].starts_with(word);
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return Err(format!("nested deeper than {DEPTH_MAX}"));
        }
        self.blanks();
        match self.peek() {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ if self.eat("true") => Ok(Value::Bool(true)),
            _ if self.eat("false") => Ok(Value::Bool(false)),
            _ if self.eat("null") => Ok(Value::Null),
            _ => self.wrong(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, String> {
        let mut members: Vec<(String, Value)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        self.at += 1;
        self.blanks();
        if self.eat("}") {
            return Ok(Value::Object(members));
        }
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return self.wrong();
            }
            let name = self.string()?;
            self.blanks();
            if !self.eat(":") {
                return self.wrong();
            }
            let value = self.value(depth + 1)?;
            match places.get(&name) {
                Some(place) => members[*place].1 = value,
                None => {
                    places.insert(name.clone(), members.len());
                    members.push((name, value));
                }
            }
            self.blanks();
            if self.eat("}") {
                return Ok(Value::Object(members));
            }
            if !self.eat(",") {
                return self.wrong();
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Value, String> {
        let mut items = Vec::new();
        self.at += 1;
        self.blanks();
        if self.eat("]") {
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            if self.eat("]") {
                return Ok(Value::Array(items));
            }
            if !self.eat(",") {
                return self.wrong();
            }
        }
    }

    fn digits(&mut self) -> usize {
        let from = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        self.at - from
    }

    fn number(&mut self) -> Result<Value, String> {
        let from = self.at;
        self.eat("-");
        let zero = self.peek() == Some(b'0');
        let digits = self.digits();
        if digits == 0 || (zero && digits > 1) {
            return self.wrong();
        }
        if self.eat(".") && self.digits() == 0 {
            return self.wrong();
        }
        if self.eat("e") || self.eat("E") {
            let _sign = self.eat("+") || self.eat("-");
            if self.digits() == 0 {
                return self.wrong();
            }
        }
        Ok(Value::Number(self.text[from..self.at].to_owned()))
    }

    fn string(&mut self) -> Result<String, String> {
        let mut out = String::new();
        self.at += 1;
        loop {
            let Some(c) = self.text[self.at..].chars().next() else { return self.wrong() };
            self.at += c.len_utf8();
            match c {
                '"' => return Ok(out),
                '\\' => out.push(self.escape()?),
                '\0'..='\u{1f}' => return self.wrong(),
                _ => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Result<char, String> {
        let Some(c) = self.peek() else { return self.wrong() };
        self.at += 1;
        Ok(match c {
            b'"' | b'\\' | b'/' => char::from(c),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.unit()?;
                let rest = self.at;
                if (0xd800..0xdc00).contains(&high) && self.eat("\\u") {
                    let low = self.unit()?;
                    if (0xdc00..0xe000).contains(&low) {
                        let code = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
                        return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
                    }
                    self.at = rest;
                }
                char::from_u32(high).unwrap_or('\u{fffd}')
            }
            _ => return self.wrong(),
        })
    }

    fn unit(&mut self) -> Result<u32, String> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else { return self.wrong() };
        let value = digits.iter().fold(0, |sum, d| sum * 16 + char::from(*d).to_digit(16).unwrap_or(0));
        self.at += 4;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::Value;

    fn parsed(text: &str) -> Value {
        Value::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn text_of_numbers_and_order_of_members_are_kept() {
        let text = r#"{"b": [1.0, 1e400, 123456789012345678901234567890, -0], "a": "\u00e9\ud83d\ude00\n"}"#;
        assert_eq!(parsed(text).to_text(false), text);
        assert_eq!(parsed(r#"{"b":1,"a":2}"#).to_text(true), r#"{"a": 2, "b": 1}"#);
        assert_eq!(parsed("[1.50]").numbers_as_text(), parsed(r##"["#1.50"]"##));
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in ["", "{", "[1,]", "01", "1.", "nul", "\"\u{1}\"", "\"\\x\"", "1 2", "{\"a\" 1}", "\"\\u12\""] {
            assert!(Value::parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = "[".repeat(1_000);
        assert!(Value::parse(deep.as_bytes()).is_err());
        assert!(Value::parse(b"\"\xff\"").is_err());
    }

    #[test]
    fn numbers_are_the_same_by_value() {
        for (a, b, same) in [
            ("1", "1.0", true),
            ("1e2", "100", true),
            ("1", "2", false),
            ("0.1", "0.10", true),
            ("-0", "0", true),
            ("9007199254740993", "9007199254740992.0", false),
            ("1", "1.5", false),
        ] {
            assert_eq!(parsed(a).same(&parsed(b)), same, "{a} {b}");
        }
        assert!(parsed(r#"{"a":1,"b":2}"#).same(&parsed(r#"{"b":2,"a":1}"#)));
        assert!(!parsed(r#"{"a":1,"b":2}"#).same(&parsed(r#"{"b":2,"c":1}"#)));
    }

    #[test]
    fn the_last_of_equal_names_counts_and_pointers_unescape() {
        let value = parsed(r#"{"a":1,"a":[{"x/y":5}]}"#);
        assert_eq!(value.pointer("/a/0/x~1y"), Some(&Value::Number("5".into())));
        assert_eq!(value.pointer("/a/1"), None);
        assert_eq!(parsed(r#""\ud800x""#), Value::String("\u{fffd}x".into()));
    }
}
