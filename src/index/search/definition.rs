//! Definition of one full-text index, read from a design document. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_search::analysis::{Analyzer, Spec, UnknownAnalyzer};

use crate::document::json::{Object, Value};
use crate::index::definition::{JAVASCRIPT, Signature};
use crate::index::mango::catalogue::LANGUAGE;
use crate::index::mango::text::{DEFAULT, TextFields};

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
    /// The source of an index function with types.
    Typed(String),
    /// Of an index with types of the language `query`.
    TypedFields(Arc<TextFields>),
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

    /// The index with types `name` of a design document: of its member `nouveau`.
    ///
    /// # Errors
    /// [`NoIndex`].
    pub fn find_typed(design: &Object, name: &str, partitioned: bool) -> Result<SearchDefinition, NoIndex> {
        let indexes = design.get("nouveau").and_then(Value::as_object).ok_or(NoIndex::Missing)?;
        let index = indexes.get(name).ok_or(NoIndex::Missing)?.as_object().ok_or(NoIndex::Invalid)?;
        let language = design.get("language").and_then(Value::as_str).unwrap_or(JAVASCRIPT);
        let given = index.get("index").ok_or(NoIndex::Invalid)?;
        let (function, analyzer) = match given {
            given if language == LANGUAGE => {
                (Function::TypedFields(Arc::new(TextFields::read_typed(given))), typed_fields_analyzer(index))
            }
            Value::String(source) => (Function::Typed(source.clone()), typed_analyzer(index)),
            _ => return Err(NoIndex::Invalid),
        };
        let text = |name: &str| index.get(name).map(Value::to_vec).unwrap_or_default();
        let lib = design.get("views").and_then(Value::as_object).and_then(|views| views.get("lib"));
        let lib = lib.map(Value::to_vec).unwrap_or_default();
        let analyzers = [text("default_analyzer"), text("field_analyzers"), text("analyzer")].concat();
        let parts = [&b"nouveau"[..], &given.to_vec(), &analyzers, language.as_bytes(), &lib];
        Ok(SearchDefinition {
            function,
            analyzer,
            // Design documents are never indexed.
            by_partitions: true,
            partitioned,
            signature: Signature::of(&parts),
        })
    }

    /// Whether its fields have types.
    pub fn is_typed(&self) -> bool {
        matches!(self.function, Function::Typed(_) | Function::TypedFields(_))
    }

    /// All indexes of a design document that have a function, by name.
    pub fn all(design: &Object, partitioned: bool) -> impl Iterator<Item = (String, SearchDefinition)> {
        let names = |member: &str| {
            let indexes = design.get(member).and_then(Value::as_object);
            indexes.into_iter().flat_map(Object::iter).map(|(name, _)| name)
        };
        let found = move |name: &str, index: Result<SearchDefinition, NoIndex>| Some((name.to_owned(), index.ok()?));
        let plain =
            names("indexes").filter_map(move |name| found(name, SearchDefinition::find(design, name, partitioned)));
        let typed = names("nouveau")
            .filter_map(move |name| found(name, SearchDefinition::find_typed(design, name, partitioned)));
        plain.chain(typed)
    }
}

/// A name of an analyzer; what is no text is told as it is written.
fn name_of(value: &Value) -> String {
    value.as_str().map_or_else(|| String::from_utf8_lossy(&value.to_vec()).into_owned(), str::to_owned)
}

fn names_of(fields: Option<&Value>) -> BTreeMap<String, String> {
    let fields = fields.and_then(Value::as_object);
    fields.into_iter().flat_map(Object::iter).map(|(field, name)| (field.to_owned(), name_of(name))).collect()
}

/// The analyzers that an index with types names.
///
/// # Errors
/// The name of one that nobody knows.
pub fn typed_analyzer(index: &Object) -> Result<Analyzer, UnknownAnalyzer> {
    let default = index.get("default_analyzer").map_or_else(|| "standard".to_owned(), name_of);
    Analyzer::lucene9(&default, &names_of(index.get("field_analyzers")))
}

/// Those of an index with types of the language `query`, which are written as a text index writes its own.
fn typed_fields_analyzer(index: &Object) -> Result<Analyzer, UnknownAnalyzer> {
    let keyword = || "keyword".to_owned();
    match index.get("analyzer") {
        Some(Value::Object(object)) => {
            let default = object.get("default").map_or_else(keyword, name_of);
            Analyzer::lucene9(&default, &names_of(object.get("fields")))
        }
        Some(name) => Analyzer::lucene9(&name_of(name), &BTreeMap::new()),
        None => Analyzer::lucene9("keyword", &[(DEFAULT.to_owned(), "standard".to_owned())].into()),
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
    fn an_index_with_types_is_in_a_member_of_its_own() {
        let design = r#"{"indexes":{"a":{"index":"f"}},"nouveau":{"a":{"index":"f"},"b":{"index":5},"c":{"index":"f",
            "default_analyzer":"nonsense"},"d":{"index":"f","field_analyzers":{"x":"keyword"}}}}"#;
        let value = json::parse(design.as_bytes()).unwrap();
        let design = value.as_object().unwrap();
        let typed = |name: &str| SearchDefinition::find_typed(design, name, false);
        assert!(typed("a").unwrap().is_typed() && !find(r#"{"indexes":{"a":{"index":"f"}}}"#, "a").unwrap().is_typed());
        assert_eq!((typed("b").unwrap_err(), typed("e").unwrap_err()), (NoIndex::Invalid, NoIndex::Missing));
        assert_eq!(typed("c").unwrap().analyzer.unwrap_err(), UnknownAnalyzer("nonsense".to_owned()));
        assert!(typed("d").unwrap().analyzer.unwrap().is_keyword("x"));
        let all: Vec<(String, bool)> =
            SearchDefinition::all(design, false).map(|(name, index)| (name, index.is_typed())).collect();
        let expected = [("a", false), ("a", true), ("c", true), ("d", true)];
        assert_eq!(all, expected.map(|(name, is_typed)| (name.to_owned(), is_typed)));
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
