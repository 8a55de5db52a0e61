//! Text indexes of `_index`: full-text indexes of the language `query` over the fields of documents, and the selectors
//! that they answer.

mod catalogue;
mod fields;
mod query;

use crate::document::json::Value;
use crate::document::selector::SelectorError;

pub use catalogue::{TextIndex, several, text_index_of};
pub use fields::{TextFields, TextMapper};
pub use query::{TextQuery, sort_of, text_query};

/// The name of the field that has all texts.
pub const DEFAULT: &str = "$default";
/// The name of the field that has the names of all fields.
const NAMES: &str = "$fieldnames";

/// The name of a field as it is indexed: what is no letter or digit as `_` and two digits.
fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte.is_ascii_alphanumeric() {
            true => out.push(byte as char),
            false => out.push_str(&format!("_{byte:02x}")),
        }
    }
    out
}

/// A dotted path as it is indexed: dots between steps stay.
fn escaped_path(path: &str) -> String {
    steps(path).iter().map(|step| escaped(step)).collect::<Vec<_>>().join(".")
}

/// The steps of a path; a backslash makes a dot part of a name.
fn steps(path: &str) -> Vec<String> {
    let (mut out, mut step, mut chars) = (Vec::new(), String::new(), path.chars());
    while let Some(char) = chars.next() {
        match char {
            '.' => out.push(std::mem::take(&mut step)),
            '\\' => step.extend(chars.next()),
            other => step.push(other),
        }
    }
    out.push(step);
    out
}

/// The type of a value in names of fields.
fn type_of(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::String(_) => "string",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
        Value::Array(_) | Value::Object(_) => return None,
        _ => "number",
    })
}

impl From<TextError> for super::MangoError {
    fn from(error: TextError) -> Self {
        match error {
            TextError::Selector(error) => error.into(),
            TextError::Refused(name, reason) => super::MangoError::new(name, reason),
        }
    }
}

/// Why a text index cannot be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TextError {
    /// The selector is wrong.
    Selector(SelectorError),
    /// 400 with this name and reason.
    Refused(&'static str, String),
}
