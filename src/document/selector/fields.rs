//! `fields`: which members of a document a client wants (CouchDB documentation, 'POST /{db}/_find').

use std::borrow::Cow;

use super::error::SelectorError;
use super::path::FieldPath;
use super::subject::{Seen, Subject};
use crate::json::{JsonError, Object, Value};

/// The wanted fields; none named means all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(Vec<FieldPath>);

impl Fields {
    /// Reads the list.
    ///
    /// # Errors
    /// `invalid_fields` for something else than a list, `invalid_field` for an element that is no string.
    pub fn parse(value: &Value) -> Result<Fields, SelectorError> {
        let elements = value.as_array().ok_or_else(|| SelectorError::invalid_fields(value))?;
        let path = |element: &Value| match element {
            Value::String(text) => Ok(FieldPath::of(text.clone())),
            other => Err(SelectorError::invalid_field(other)),
        };
        elements.iter().map(path).collect::<Result<_, _>>().map(Fields)
    }

    /// The paths in the order of the request.
    pub fn paths(&self) -> &[FieldPath] {
        &self.0
    }

    /// True when whole documents are wanted.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// What a document has of the wanted fields, objects around them rebuilt; an element of an array becomes the member
    /// of an object.
    pub fn cut(&self, document: &Value) -> Value {
        if self.is_all() {
            return document.clone();
        }
        // Invariant: to look at a value never fails.
        self.cut_subject(document).expect("a value is no damaged text")
    }

    /// The same of whatever has fields; nothing when no field is wanted by name.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub fn cut_subject(&self, subject: &impl Subject) -> Result<Value, JsonError> {
        let mut cut = Object::new();
        for path in self.0.iter().filter(|path| !path.steps().is_empty()) {
            if let Seen::Value(value) = subject.see(path)? {
                place(&mut cut, path.steps(), value);
            }
        }
        Ok(Value::Object(cut))
    }
}

/// Puts a value at a path, with objects on the way; what another path put there already and is no object stays.
fn place(object: &mut Object, steps: &[String], value: Cow<'_, Value>) {
    match steps {
        [] => {}
        [last] => {
            object.insert(last.as_str(), value.into_owned());
        }
        [first, rest @ ..] => {
            if !object.contains(first) {
                object.push(first.as_str(), Object::new());
            }
            if let Some(Value::Object(inner)) = object.get_mut(first) {
                place(inner, rest, value);
            }
        }
    }
}
