//! Text indexes of a database: read from design documents, listed, and written into them.

use super::fields::is_default_enabled;
use super::{DEFAULT, TextError, TextQuery};
use crate::document::json::{Object, Value};
use crate::document::selector::Selector;
use crate::index::mango::MangoError;
use crate::index::mango::catalogue::{LANGUAGE, object};
use crate::index::mango::request::check_keys;

/// Which service of the reference has an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// `text`: the one whose fields have no types.
    Plain,
    /// `nouveau`: the one whose fields have types.
    Typed,
}

impl TextKind {
    /// The type of its indexes, as requests name it.
    pub fn name(self) -> &'static str {
        match self {
            TextKind::Plain => "text",
            TextKind::Typed => "nouveau",
        }
    }

    /// The member of design documents that has them.
    pub fn member(self) -> &'static str {
        match self {
            TextKind::Plain => "indexes",
            TextKind::Typed => "nouveau",
        }
    }
}

/// A text index.
#[derive(Clone, Debug, PartialEq)]
pub struct TextIndex {
    /// Whose it is.
    pub kind: TextKind,
    /// The design document with its `_design/`.
    pub ddoc: String,
    /// Its name in that.
    pub name: String,
    /// Whether it is kept by partition.
    pub partitioned: bool,
    /// The member `index`.
    def: Object,
}

impl TextIndex {
    /// The indexes of one kind of a design document; none when its language is another.
    pub fn all(kind: TextKind, ddoc: &str, body: &Object, partitioned: bool) -> Vec<TextIndex> {
        if body.get("language").and_then(Value::as_str) != Some(LANGUAGE) {
            return Vec::new();
        }
        let options = body.get("options").and_then(Value::as_object);
        let own = options.and_then(|options| options.get("partitioned")).and_then(Value::as_bool);
        let partitioned = partitioned && own != Some(false);
        let indexes = body.get(kind.member()).and_then(Value::as_object);
        let index = |(name, index): (&str, &Value)| {
            let def = index.as_object()?.get("index")?.as_object()?.clone();
            Some(TextIndex { kind, ddoc: ddoc.to_owned(), name: name.to_owned(), partitioned, def })
        };
        indexes.into_iter().flat_map(Object::iter).filter_map(index).collect()
    }

    /// Whether it leaves documents out by a filter.
    pub fn is_partial(&self) -> bool {
        let filter = self.def.get("partial_filter_selector").and_then(Value::as_object);
        filter.is_some_and(|filter| !filter.is_empty())
    }

    /// The fields that it has; `None`: all.
    fn columns(&self) -> Option<Vec<String>> {
        let fields = self.def.get("fields").and_then(Value::as_array).filter(|fields| !fields.is_empty())?;
        let column = |field: &Value| {
            let field = field.as_object()?;
            Some(format!("{}:{}", field.get("name")?.as_str()?, field.get("type")?.as_str()?))
        };
        let default = is_default_enabled(&self.def).then(|| DEFAULT.to_owned());
        Some(default.into_iter().chain(fields.iter().filter_map(column)).collect())
    }

    /// Whether it has all that a query asks for. By a field that it has not all documents stand alike.
    pub fn is_usable(&self, query: &TextQuery) -> bool {
        let Some(columns) = self.columns() else { return true };
        let has = |name: &String| columns.contains(name);
        query.fields.as_ref().is_some_and(|fields| fields.iter().all(has))
    }

    /// As `GET _index` lists it.
    pub fn to_value(&self) -> Value {
        let mut def = Object::new();
        for (name, value) in self.def.iter() {
            match name {
                "partial_filter_selector" if !self.is_partial() => {}
                "fields" => {
                    let one = |field: &Value| {
                        let field = field.as_object()?;
                        let name = field.get("name")?.as_str()?;
                        Some(object([(name, field.get("type")?.clone())]))
                    };
                    let fields = value.as_array().unwrap_or_default();
                    def.push("fields", fields.iter().filter_map(one).collect::<Vec<_>>());
                }
                name => def.push(name, value.clone()),
            }
        }
        object([
            ("ddoc", self.ddoc.as_str().into()),
            ("name", self.name.as_str().into()),
            ("type", self.kind.name().into()),
            ("partitioned", self.partitioned.into()),
            ("def", def.into()),
        ])
    }
}

/// The member of `indexes` that stands for a text index in a design document, made of the request's `index` member.
///
/// # Errors
/// `invalid_index`, `invalid_index_fields_definition`, `invalid_boolean`, `invalid_key`; as selectors are refused.
pub fn text_index_of(index: &Value) -> Result<Value, MangoError> {
    let given = index
        .as_object()
        .ok_or_else(|| MangoError::about("invalid_index", "Text indexes must be an object, not: ", index))?;
    let member = |name: &str, default: Value| given.get(name).cloned().unwrap_or(default);
    let filter = |name: &str| match given.get(name) {
        Some(selector) => Ok::<_, MangoError>(Selector::parse(selector)?.to_value()),
        None => Ok(Value::Object(Object::new())),
    };
    let (partial, selector) = (filter("partial_filter_selector")?, filter("selector")?);
    let fields = given.get("fields").map_or(Ok(Value::Array(Vec::new())), |fields| checked(fields).cloned())?;
    let fields = match fields.as_array() {
        Some([]) => "all_fields".into(),
        _ => fields,
    };
    let lengths = member("index_array_lengths", true.into());
    if lengths.as_bool().is_none() {
        return Err(MangoError::about("invalid_boolean", "Invalid boolean value: ", &lengths));
    }
    let known = ["default_analyzer", "default_field", "partial_filter_selector", "selector", "fields"];
    check_keys(given, &[&known[..], &["index_array_lengths"]].concat())?;
    let analyzer = member("default_analyzer", "keyword".into());
    let default = member("default_field", Value::Object(Object::new()));
    let definition = object([
        ("default_analyzer", analyzer.clone()),
        ("default_field", default.clone()),
        ("partial_filter_selector", partial),
        ("selector", selector),
        ("fields", fields),
        ("index_array_lengths", lengths),
    ]);
    let analyzer = match is_default_enabled(given) {
        false => analyzer,
        true => {
            let own = default.as_object().and_then(|default| default.get("analyzer")).cloned();
            let fields = object([(DEFAULT, own.unwrap_or_else(|| "standard".into()))]);
            object([("name", "perfield".into()), ("default", analyzer), ("fields", fields)])
        }
    };
    Ok(object([("index", definition), ("analyzer", analyzer)]))
}

/// A list of names and types.
fn checked(fields: &Value) -> Result<&Value, MangoError> {
    let is_field = |field: &Value| {
        let text = |name: &str| field.as_object().and_then(|field| field.get(name)).and_then(Value::as_str);
        text("name").is_some_and(|name| !name.is_empty())
            && text("type").is_some_and(|kind| ["string", "number", "boolean"].contains(&kind))
    };
    match fields.as_array() {
        Some(list) if list.iter().all(is_field) => Ok(fields),
        _ => {
            let text = "Text Index field definitions must be of the form {\"name\": \"non-empty fieldname\", \
                        \"type\": \"boolean, number, or string\"}. Def: ";
            Err(MangoError::about("invalid_index_fields_definition", text, fields))
        }
    }
}

/// What several text indexes could answer and none was named for.
pub fn several(kind: TextKind) -> TextError {
    let reason = "You must specify an index with the `use_index` parameter.";
    let name = match kind {
        TextKind::Plain => "multiple_text_indexes",
        TextKind::Typed => "multiple_nouveau_indexes",
    };
    TextError::Refused(name, reason.to_owned())
}
