//! The indexes of a database: read from design documents, listed, and written into them.

use super::MangoError;
use super::request::Sort;
use crate::document::json::{Object, Value};
use crate::document::selector::Selector;

/// The language of design documents that hold indexes.
pub const LANGUAGE: &str = "query";

/// An index over fields; the list of all documents is none of these.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldIndex {
    /// The design document with its `_design/`.
    pub ddoc: String,
    /// The view.
    pub name: String,
    /// Whether rows are kept by partition.
    pub partitioned: bool,
    /// Fields and their directions in order.
    pub columns: Vec<(String, String)>,
    /// The normal form of the partial filter; `{}`: there is none.
    pub filter: Value,
}

impl FieldIndex {
    /// The indexes of a design document; none when its language is another.
    pub fn all(ddoc: &str, body: &Object, partitioned: bool) -> Vec<FieldIndex> {
        if body.get("language").and_then(Value::as_str) != Some(LANGUAGE) {
            return Vec::new();
        }
        let options = body.get("options").and_then(Value::as_object);
        let own = options.and_then(|options| options.get("partitioned")).and_then(Value::as_bool);
        let partitioned = partitioned && own != Some(false);
        let views = body.get("views").and_then(Value::as_object);
        let index = |(name, view): (&str, &Value)| {
            let map = view.as_object()?.get("map")?.as_object()?;
            let fields = map.get("fields")?.as_object()?;
            let column =
                |(name, direction): (&str, &Value)| (name.to_owned(), direction.as_str().unwrap_or("asc").to_owned());
            Some(FieldIndex {
                ddoc: ddoc.to_owned(),
                name: name.to_owned(),
                partitioned,
                columns: fields.iter().map(column).collect(),
                filter: map.get("partial_filter_selector").cloned().unwrap_or(Value::Object(Object::new())),
            })
        };
        views.into_iter().flat_map(Object::iter).filter_map(index).collect()
    }

    /// The names of its fields.
    pub fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Whether it leaves documents out by a filter.
    pub fn is_partial(&self) -> bool {
        self.filter.as_object().is_some_and(|filter| !filter.is_empty())
    }

    /// As `GET _index` lists it.
    pub fn to_value(&self) -> Value {
        let one = |(name, direction): &(String, String)| object([(name.as_str(), direction.as_str().into())]);
        let mut def = Object::new();
        def.push("fields", self.columns.iter().map(one).collect::<Vec<_>>());
        if self.is_partial() {
            def.push("partial_filter_selector", self.filter.clone());
        }
        object([
            ("ddoc", self.ddoc.as_str().into()),
            ("name", self.name.as_str().into()),
            ("type", "json".into()),
            ("partitioned", self.partitioned.into()),
            ("def", def.into()),
        ])
    }
}

/// The list of all documents as `GET _index` lists it.
pub fn all_docs_value() -> Value {
    object([
        ("ddoc", Value::Null),
        ("name", "_all_docs".into()),
        ("type", "special".into()),
        ("def", object([("fields", Value::Array(vec![object([("_id", "asc".into())])]))])),
    ])
}

/// An object of these members.
pub(crate) fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

/// The view that stands for an index in a design document, made of the request's `index` member.
///
/// # Errors
/// As sorts and selectors are refused; `missing_required_key` without fields.
pub fn view_of(index: &Value) -> Result<Value, MangoError> {
    let given = index
        .as_object()
        .ok_or_else(|| MangoError::about("invalid_index", "JSON indexes must be an object, not: ", index))?;
    let fields =
        given.get("fields").ok_or_else(|| MangoError::new("missing_required_key", "Missing required key: fields"))?;
    let sort = Sort::parse(fields)?;
    let filter = match given.get("partial_filter_selector") {
        Some(selector) => Selector::parse(selector)?.to_value(),
        None => Value::Object(Object::new()),
    };
    super::request::check_keys(given, &["fields", "partial_filter_selector"])?;
    let mut columns = Object::new();
    for name in &sort.fields {
        columns.insert(name.as_str(), sort.direction());
    }
    let map = object([("fields", columns.into()), ("partial_filter_selector", filter)]);
    let options = object([("def", index.clone())]);
    Ok(object([("map", map), ("reduce", "_count".into()), ("options", options)]))
}
