//! The fields of a document in a text index.

use std::collections::BTreeSet;
use std::sync::Arc;

use settee_search::document::{Field, Indexed, Options, Value as FieldValue};

use super::{DEFAULT, NAMES, escaped, escaped_path, type_of};
use crate::document::collate::Collator;
use crate::document::json::{self, Object, Value};
use crate::document::selector::Selector;
use crate::index::search::{Indexing, SearchMapper};
use crate::index::{IndexError, Indexes};
use crate::world::{BoxFuture, Env, Pool};

/// What a text index takes of documents.
#[derive(Clone, Debug)]
pub struct TextFields {
    /// Names as they are indexed; `None`: all.
    only: Option<BTreeSet<String>>,
    has_default: bool,
    has_lengths: bool,
    /// `None`: it makes no sense, and takes no document.
    filter: Option<Selector>,
    /// Whether fields have types.
    is_typed: bool,
}

impl TextFields {
    /// As [`TextFields::read`], of an index with types.
    pub fn read_typed(index: &Value) -> TextFields {
        TextFields { is_typed: true, ..TextFields::read(index) }
    }

    /// Those of the member `index` of an index in a design document.
    pub fn read(index: &Value) -> TextFields {
        let none = Object::new();
        let index = index.as_object().unwrap_or(&none);
        let name = |field: &Value| {
            let field = field.as_object()?;
            let name = field.get("name")?.as_str()?;
            Some(escaped_path(&format!("{name}:{}", field.get("type")?.as_str()?)))
        };
        let fields = index.get("fields").and_then(Value::as_array).filter(|fields| !fields.is_empty());
        let filter = |name: &str| index.get(name).filter(|given| given.as_object().is_some_and(|o| !o.is_empty()));
        let filter = filter("partial_filter_selector").or_else(|| filter("selector"));
        TextFields {
            only: fields.map(|fields| fields.iter().filter_map(name).collect()),
            has_default: is_default_enabled(index),
            has_lengths: index.get("index_array_lengths").and_then(Value::as_bool) != Some(false),
            filter: filter.map_or(Some(Selector::Everything), |given| Selector::parse(given).ok()),
            is_typed: false,
        }
    }

    /// What is indexed of a document, given as JSON text.
    fn fields(&self, text: &str, collator: &Collator) -> Indexing {
        let document = json::parse(text.as_bytes()).ok()?;
        let object = document.as_object()?;
        let is_design = object.get("_id").and_then(Value::as_str).is_some_and(|id| id.starts_with("_design/"));
        if is_design || !self.filter.as_ref()?.matches(&document, collator) {
            return None;
        }
        let mut found = Found { of: self, fields: Vec::new(), path: Vec::new() };
        found.object(object);
        let Found { fields, .. } = found;
        let names: BTreeSet<&str> = fields.iter().map(|(name, ..)| name.as_str()).collect();
        let mut out: Vec<Field> =
            names.into_iter().map(|name| field(NAMES, FieldValue::Text(name.to_owned()))).collect();
        let texts = fields.iter().filter(|(_, kind, _)| self.has_default && *kind == "string");
        out.extend(texts.map(|(.., value)| field(DEFAULT, value.clone())));
        // What stands twice stands in the order of the reference, last first: phrases reach across it.
        out.extend(fields.into_iter().rev().map(|(name, _, value)| field(&name, value)));
        if self.is_typed {
            out.iter_mut().for_each(typed);
        }
        (!out.is_empty()).then_some(out)
    }
}

/// Whether the texts of documents are searched by `$text`.
pub(super) fn is_default_enabled(index: &Object) -> bool {
    match index.get("default_field") {
        Some(Value::Bool(enabled)) => *enabled,
        Some(Value::Object(options)) => options.get("enabled").and_then(Value::as_bool) != Some(false),
        _ => true,
    }
}

fn field(name: &str, value: FieldValue) -> Field {
    Field { name: name.to_owned(), value, options: Options::default() }
}

/// Gives a field its type: text as it is, but for that which `$text` looks through, and numbers.
fn typed(field: &mut Field) {
    if let FieldValue::Bool(value) = field.value {
        field.value = FieldValue::Text(if value { "true" } else { "false" }.to_owned());
    }
    if field.name != DEFAULT && matches!(field.value, FieldValue::Text(_)) {
        field.options.index = Indexed::NotAnalyzedNoNorms;
    }
}

/// Fields found so far: name, type, value.
struct Found<'f> {
    of: &'f TextFields,
    fields: Vec<(String, &'static str, FieldValue)>,
    path: Vec<String>,
}

impl Found<'_> {
    fn object(&mut self, object: &Object) {
        for (name, value) in object.iter() {
            self.path.push(escaped(name));
            self.value(value);
            self.path.pop();
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(object) => self.object(object),
            Value::Array(list) => {
                self.path.push("_5b_5d".to_owned());
                if self.of.has_lengths {
                    let name = format!("{}_3alength", self.path.join("."));
                    self.fields.push((name, "length", FieldValue::Number(list.len() as f64)));
                }
                list.iter().for_each(|element| self.value(element));
                self.path.pop();
            }
            scalar => {
                let Some((kind, value)) = type_of(scalar).zip(indexed(scalar)) else { return };
                let name = format!("{}_3a{kind}", self.path.join("."));
                if self.of.only.as_ref().is_none_or(|only| only.contains(&name)) {
                    self.fields.push((name, kind, value));
                }
            }
        }
    }
}

fn indexed(scalar: &Value) -> Option<FieldValue> {
    Some(match scalar {
        Value::String(text) => FieldValue::Text(text.clone()),
        Value::Bool(flag) => FieldValue::Bool(*flag),
        Value::Null => FieldValue::Bool(true),
        Value::Int(number) => FieldValue::Number(*number as f64),
        Value::Float(number) => FieldValue::Number(*number),
        Value::Big(number) => FieldValue::Number(number.to_string().parse().ok().filter(|n: &f64| n.is_finite())?),
        Value::Array(_) | Value::Object(_) => return None,
    })
}

/// Says which fields documents have in a text index.
pub struct TextMapper {
    env: Env,
    fields: Arc<TextFields>,
    collator: Collator,
}

impl TextMapper {
    /// Of such fields.
    pub fn new(indexes: &Indexes, fields: &Arc<TextFields>) -> TextMapper {
        let collator = indexes.collator(crate::document::collate::Collation::Unicode);
        TextMapper { env: indexes.env.clone(), fields: Arc::clone(fields), collator }
    }
}

impl SearchMapper for TextMapper {
    fn fields<'a>(&'a self, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Indexing>, IndexError>> {
        let (fields, collator) = (Arc::clone(&self.fields), self.collator.clone());
        Box::pin(async move {
            let all = move || docs.iter().map(|text| fields.fields(text, &collator)).collect();
            Ok(self.env.blocking(Pool::Build, all).await)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indexed_of(index: &str, doc: &str) -> Vec<(String, FieldValue)> {
        let fields = TextFields::read(&json::parse(index.as_bytes()).unwrap());
        let found = fields.fields(doc, &Collator::new()).unwrap_or_default();
        found.into_iter().filter(|f| f.name != NAMES).map(|f| (f.name, f.value)).collect()
    }

    #[test]
    fn each_value_is_a_field_named_after_path_and_type() {
        let doc = r#"{"_id":"a","a b":{"x.y":1},"t":["r",null]}"#;
        let text = |text: &str| FieldValue::Text(text.to_owned());
        let expected: Vec<(String, FieldValue)> = [
            ("$default", text("a")),
            ("$default", text("r")),
            ("t._5b_5d_3anull", FieldValue::Bool(true)),
            ("t._5b_5d_3astring", text("r")),
            ("t._5b_5d_3alength", FieldValue::Number(2.0)),
            ("a_20b.x_2ey_3anumber", FieldValue::Number(1.0)),
            ("_5fid_3astring", text("a")),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        assert_eq!(indexed_of("{}", doc), expected);
        let named = r#"{"fields":[{"name":"a b.x\\.y","type":"number"}],"index_array_lengths":false}"#;
        assert_eq!(indexed_of(named, doc), expected[5..6]);
    }

    #[test]
    fn documents_that_the_filter_leaves_out_and_design_documents_are_not_indexed() {
        let index = r#"{"partial_filter_selector":{"n":{"$gt":5}}}"#;
        assert!(indexed_of(index, r#"{"_id":"a","n":5}"#).is_empty());
        assert!(!indexed_of(index, r#"{"_id":"a","n":6}"#).is_empty());
        assert!(indexed_of("{}", r#"{"_id":"_design/a","n":6}"#).is_empty());
        assert!(indexed_of(r#"{"default_field":{"enabled":false}}"#, r#"{"_id":"a"}"#)[0].0 != DEFAULT);
    }
}
