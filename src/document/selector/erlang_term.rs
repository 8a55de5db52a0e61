//! JSON values as CouchDB prints them in error messages: `<<120>>` for `"x"`, `{[{<<97>>,1}]}` for `{"a":1}`.

use std::fmt::Write;

use crate::json::{Object, Value};
use crate::limits::ERROR_TERM_BYTES;

/// The text of a value as an Erlang term; what is beyond [`ERROR_TERM_BYTES`] is left out.
pub fn erlang_term(value: &Value) -> String {
    let mut out = String::new();
    write_term(value, &mut out);
    out
}

/// The same with texts as such, `<<"x">>` for `"x"`, where CouchDB prints values so.
pub fn erlang_pretty(value: &Value) -> String {
    let list = |parts: Vec<String>| parts.join(",");
    match value {
        Value::String(text) => erlang_text(text),
        Value::Array(elements) => format!("[{}]", list(elements.iter().map(erlang_pretty).collect())),
        Value::Object(members) => {
            let member = |(name, value): (&str, &Value)| format!("{{{},{}}}", erlang_text(name), erlang_pretty(value));
            format!("{{[{}]}}", list(members.iter().map(member).collect()))
        }
        other => erlang_term(other),
    }
}

/// A text as CouchDB prints it where it prints texts as such: `<<"x">>`; of other than ASCII, as [`erlang_term`].
pub fn erlang_text(text: &str) -> String {
    let is_plain = text.chars().all(|c| c == ' ' || c.is_ascii_graphic());
    match text {
        "" => "<<>>".to_owned(),
        text if is_plain => format!("<<\"{}\">>", text.replace('\\', "\\\\").replace('"', "\\\"")),
        text => erlang_term(&Value::from(text)),
    }
}

/// A parameter's text as CouchDB prints it in the reason of a `query_parse_error`: as a string with its escapes, `[]`
/// where it is empty, and as a list of bytes where one of them cannot be printed.
pub fn erlang_string(text: &str) -> String {
    let can_print =
        |byte: u8| matches!(byte, b' '..=b'~' | 0xa0..=0xff | b'\n' | b'\r' | b'\t' | 0x0b | 8 | 0x0c | 0x1b);
    if text.is_empty() || !text.bytes().all(can_print) {
        let bytes: Vec<String> = text.bytes().map(|byte| byte.to_string()).collect();
        return format!("[{}]", bytes.join(","));
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\u{1b}' => out.push_str("\\e"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn write_term(value: &Value, out: &mut String) {
    if out.len() > ERROR_TERM_BYTES {
        return;
    }
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Int(value) => write_display(value, out),
        Value::Big(value) => write_display(value, out),
        Value::Float(value) => write_float(*value, out),
        Value::String(text) => write_binary(text, out),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                separate(at, out);
                write_term(element, out);
            }
            out.push(']');
        }
        Value::Object(object) => write_object(object, out),
    }
}

fn write_object(object: &Object, out: &mut String) {
    out.push_str("{[");
    for (at, (name, value)) in object.iter().enumerate() {
        separate(at, out);
        out.push('{');
        write_binary(name, out);
        out.push(',');
        write_term(value, out);
        out.push('}');
    }
    out.push_str("]}");
}

fn write_binary(text: &str, out: &mut String) {
    out.push_str("<<");
    for (at, byte) in text.bytes().enumerate().take(ERROR_TERM_BYTES) {
        separate(at, out);
        write_display(byte, out);
    }
    out.push_str(">>");
}

fn separate(at: usize, out: &mut String) {
    if at > 0 {
        out.push(',');
    }
}

fn write_display(value: impl std::fmt::Display, out: &mut String) {
    // Invariant: writing to a String never fails.
    write!(out, "{value}").expect("text is appended");
}

/// The shorter of the plain and the scientific form, always with a point.
fn write_float(value: f64, out: &mut String) {
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    let scientific = format!("{mantissa}{point}e{exponent}");
    let plain = format!("{value:?}");
    let plain_fits = !plain.contains('e') && plain.len() <= scientific.len();
    out.push_str(if plain_fits { &plain } else { &scientific });
}

#[cfg(test)]
mod tests {
    use super::{erlang_string, erlang_term};
    use crate::json::parse;

    #[test]
    fn parameters_are_shown_as_strings_with_escapes() {
        for (text, term) in [
            ("", "[]"),
            ("abc", "\"abc\""),
            ("\"1\"", "\"\\\"1\\\"\""),
            ("a\\b", "\"a\\\\b\""),
            ("é", "\"é\""),
            ("a\n", "\"a\\n\""),
            ("\u{1}", "[1]"),
            ("É", "[195,137]"),
        ] {
            assert_eq!(erlang_string(text), term, "{text:?}");
        }
    }

    #[test]
    fn values_as_they_were_measured() {
        for (json, term) in [
            ("5", "5"),
            ("[5.0,0]", "[5.0,0]"),
            ("null", "null"),
            ("\"x\"", "<<120>>"),
            ("\"é\"", "<<195,169>>"),
            ("{\"a\":1,\"b\":[]}", "{[{<<97>>,1},{<<98>>,[]}]}"),
            ("[\"\",{}]", "[<<>>,{[]}]"),
            ("1e22", "1.0e22"),
            ("-12.5", "-12.5"),
        ] {
            assert_eq!(erlang_term(&parse(json.as_bytes()).unwrap()), term, "{json}");
        }
    }
}
