//! A row of an index in place of its document, for queries that ask for nothing else.

use std::borrow::Cow;

use crate::document::json::{self, JsonError, Value};
use crate::document::selector::{FieldPath, Seen, Subject};

/// The values of an index's columns and the document's id.
#[derive(Clone, Debug)]
pub struct CoveredRow<'a> {
    columns: &'a [FieldPath],
    values: Vec<Value>,
    id: &'a str,
}

impl<'a> CoveredRow<'a> {
    /// A row of an index over `columns`: its key as JSON text, and its document.
    ///
    /// # Errors
    /// The key is no list of as many values: it is damaged.
    pub fn read(columns: &'a [FieldPath], key: &[u8], id: &'a str) -> Result<CoveredRow<'a>, JsonError> {
        match json::parse(key)? {
            Value::Array(values) if values.len() == columns.len() => Ok(CoveredRow { columns, values, id }),
            _ => Err(JsonError),
        }
    }
}

impl Subject for CoveredRow<'_> {
    fn see(&self, path: &FieldPath) -> Result<Seen<'_>, JsonError> {
        let column = self.columns.iter().position(|column| column == path);
        Ok(match column {
            Some(at) => Seen::Value(Cow::Borrowed(&self.values[at])),
            None if path.as_str() == "_id" => Seen::Value(Cow::Owned(Value::from(self.id))),
            // Queries of other fields are not answered by the index alone.
            None => Seen::Absent,
        })
    }
}
