//! Paths to fields: names joined by dots, a backslash making a dot part of a name.

use super::error::SelectorError;
use crate::json::{Object, Value};

/// A path as it was written, and its steps.
#[derive(Clone, Debug)]
pub struct FieldPath {
    text: String,
    steps: Vec<String>,
}

/// Paths are equal when they were written alike.
impl PartialEq for FieldPath {
    fn eq(&self, other: &FieldPath) -> bool {
        self.text == other.text
    }
}

/// What is at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Found<'a> {
    /// A value.
    Value(&'a Value),
    /// An object without that key.
    Absent,
    /// A step into a scalar, beyond the end of an array, or into an array by something else than a number.
    NoPath,
}

impl FieldPath {
    /// A path; the empty text is the value itself.
    ///
    /// # Errors
    /// `invalid_field_name` for an empty step.
    pub fn parse(text: &str) -> Result<FieldPath, SelectorError> {
        let path = FieldPath::of(text.to_owned());
        if path.has_empty_step() { Err(SelectorError::invalid_field_name(text)) } else { Ok(path) }
    }

    /// A path whose steps may still be wrong.
    pub(super) fn of(text: String) -> FieldPath {
        let steps = match text.as_str() {
            "" => Vec::new(),
            text if text.contains('\\') => steps_with_escapes(text),
            text => text.split('.').map(str::to_owned).collect(),
        };
        FieldPath { text, steps }
    }

    pub(super) fn has_empty_step(&self) -> bool {
        self.steps.iter().any(String::is_empty)
    }

    /// As it was written, with escapes.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The names on the way, without escapes.
    pub fn steps(&self) -> &[String] {
        &self.steps
    }

    /// Follows the path within a value.
    pub fn find<'a>(&self, value: &'a Value) -> Found<'a> {
        follow(value, &self.steps)
    }

    /// Follows the path within an object; the empty path leads nowhere.
    pub fn find_in<'a>(&self, object: &'a Object) -> Found<'a> {
        let Some((first, rest)) = self.steps.split_first() else { return Found::NoPath };
        object.get(first).map_or(Found::Absent, |value| follow(value, rest))
    }
}

pub(super) fn follow<'a>(mut value: &'a Value, steps: &[String]) -> Found<'a> {
    for step in steps {
        value = match value {
            Value::Object(object) => match object.get(step) {
                Some(value) => value,
                None => return Found::Absent,
            },
            Value::Array(elements) => match step.parse().ok().and_then(|at: usize| elements.get(at)) {
                Some(value) => value,
                None => return Found::NoPath,
            },
            _ => return Found::NoPath,
        };
    }
    Found::Value(value)
}

/// Splits at dots without a backslash before them and drops all backslashes.
fn steps_with_escapes(text: &str) -> Vec<String> {
    let mut steps = vec![String::new()];
    let mut escaped = false;
    for character in text.chars() {
        match (character, steps.last_mut()) {
            ('.', _) if !escaped => steps.push(String::new()),
            ('\\', _) => {}
            (character, Some(step)) => step.push(character),
            (_, None) => {}
        }
        escaped = character == '\\';
    }
    steps
}
