//! Definition of one full-text index, read from a design document. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_search::analysis::{Analyzer, Spec, UnknownAnalyzer};

use crate::document::json::{Object, Value};
use crate::index::definition::{JAVASCRIPT, Signature};
use crate::index::mango::catalogue::LANGUAGE;
use crate::index::mango::text::TextFields;

/// One full-text index of a design document.
#[derive(Clone, Debug)]
pub struct SearchDefinition {
    /// What says which fields a document has.
    pub function: Function,
    /// Cuts text into tokens; without one nothing can be asked.
    pub analyzer: Result<Analyzer, UnknownAnalyzer>,
    /// Whether the database goes by partitions: then design documents are not indexed.
    pub by_partitions: bool,
    /// Whether queries name a partition.
    pub partitioned: bool,
    /// Names what is indexed.
    pub signature: Signature,
}

/// What says which fields a document has.
#[derive(Clone, Debug)]
pub enum Function {
    /// The source of an index function.
    Script(String),
    /// Of an index of the language `query`.
    Fields(Arc<TextFields>),
}

/// Why a design document has no such index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoIndex {
    /// It names none.
    Missing,
    /// What it names has no function.
    Invalid,
}

impl SearchDefinition {
    /// The index `name` of a design document. `partitioned`: whether the database is, as which its indexes then are,
    /// too, unless `options.partitioned` is false.
    ///
    /// # Errors
    /// [`NoIndex`].
    pub fn find(design: &Object, name: &str, partitioned: bool) -> Result<SearchDefinition, NoIndex> {
        let indexes = design.get("indexes").and_then(Value::as_object).ok_or(NoIndex::Missing)?;
        let index = indexes.get(name).ok_or(NoIndex::Missing)?.as_object().ok_or(NoIndex::Invalid)?;
        let language = design.get("language").and_then(Value::as_str).unwrap_or(JAVASCRIPT);
        let function = match index.get("index").ok_or(NoIndex::Invalid)? {
            given if language == LANGUAGE => Function::Fields(Arc::new(TextFields::read(given))),
            Value::String(source) => Function::Script(source.clone()),
            _ => return Err(NoIndex::Invalid),
        };
        let options = design.get("options").and_then(Value::as_object);
        let own = options.and_then(|options| options.get("partitioned")).and_then(Value::as_bool);
        let analyzer = index.get("analyzer").cloned().unwrap_or_else(|| Value::from("standard"));
        let text = |name: &str| index.get(name).map(Value::to_vec).unwrap_or_default();
        let lib = design.get("views").and_then(Value::as_object).and_then(|views| views.get("lib"));
        let lib = lib.map(Value::to_vec).unwrap_or_default();
        let (function_text, flags) = (text("index"), [u8::from(partitioned)]);
        let parts = [&b"search"[..], &function_text, &analyzer.to_vec(), language.as_bytes(), &flags, &lib];
        Ok(SearchDefinition {
            function,
            analyzer: Analyzer::new(analyzer_of(&analyzer)),
            by_partitions: partitioned,
            partitioned: partitioned && own != Some(false),
            signature: Signature::of(&parts),
        })
    }

    /// All indexes of a design document that have a function, by name.
    pub fn all(design: &Object, partitioned: bool) -> impl Iterator<Item = (String, SearchDefinition)> {
        let indexes = design.get("indexes").and_then(Value::as_object);
        let names = indexes.into_iter().flat_map(Object::iter).map(|(name, _)| name);
        names.filter_map(move |name| Some((name.to_owned(), SearchDefinition::find(design, name, partitioned).ok()?)))
    }
}

/// The analyzer that a JSON value names; one of no form has no name.
pub fn analyzer_of(value: &Value) -> Spec {
    let object = match value {
        Value::String(name) if name == "perfield" => return per_field(&Object::new()),
        Value::Object(object) if object.get("name").and_then(Value::as_str) == Some("perfield") => object,
        other => return plain(other),
    };
    per_field(object)
}

fn per_field(object: &Object) -> Spec {
    let fields = object.get("fields").and_then(Value::as_object);
    let fields = fields.into_iter().flat_map(Object::iter).map(|(name, value)| (name.to_owned(), plain(value)));
    Spec::PerField {
        default: Box::new(object.get("default").map_or_else(|| plain(&Value::from("standard")), plain)),
        fields: fields.collect::<BTreeMap<_, _>>(),
    }
}

fn plain(value: &Value) -> Spec {
    let object = value.as_object();
    let name = object.map_or(Some(value), |object| object.get("name")).and_then(Value::as_str);
    let stopwords = object.and_then(|object| object.get("stopwords")).and_then(Value::as_array);
    let words = |list: &[Value]| list.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect();
    Spec::Named { name: name.unwrap_or_default().to_owned(), stopwords: stopwords.map(words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn find(text: &str, name: &str) -> Result<SearchDefinition, NoIndex> {
        let value = json::parse(text.as_bytes()).unwrap();
        SearchDefinition::find(value.as_object().unwrap(), name, false)
    }

    #[test]
    fn what_has_no_function_is_invalid() {
        let design = r#"{"indexes":{"a":{"index":"f"},"b":"f","c":{},"d":{"index":5}}}"#;
        assert!(find(design, "a").is_ok());
        for name in ["b", "c", "d"] {
            assert_eq!(find(design, name).unwrap_err(), NoIndex::Invalid, "{name}");
        }
        assert_eq!(find(design, "e").unwrap_err(), NoIndex::Missing);
        assert_eq!(find("{}", "a").unwrap_err(), NoIndex::Missing);
    }

    #[test]
    fn another_function_or_analyzer_is_another_index() {
        let sign = |text: &str| find(text, "a").unwrap().signature;
        let plain = sign(r#"{"indexes":{"a":{"index":"f"}}}"#);
        assert_eq!(plain, sign(r#"{"indexes":{"b":{"index":"g"},"a":{"index":"f","analyzer":"standard"}}}"#));
        assert_ne!(plain, sign(r#"{"indexes":{"a":{"index":"g"}}}"#));
        assert_ne!(plain, sign(r#"{"indexes":{"a":{"index":"f","analyzer":"english"}}}"#));
    }

    #[test]
    fn analyzers_of_fields_are_read() {
        let text = r#"{"name":"perfield","default":{"name":"english","stopwords":["x"]},"fields":{"a":"keyword"}}"#;
        let named = |name: &str, stopwords| Spec::Named { name: name.to_owned(), stopwords };
        let Spec::PerField { default, fields } = analyzer_of(&json::parse(text.as_bytes()).unwrap()) else {
            panic!("of fields")
        };
        assert_eq!(*default, named("english", Some(vec!["x".to_owned()])));
        assert_eq!(fields["a"], named("keyword", None));
        assert_eq!(analyzer_of(&Value::Null), named("", None));
    }
}
