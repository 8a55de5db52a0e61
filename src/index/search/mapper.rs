//! The functions that say which fields of a document a full-text index has.

use settee_search::document::{Field, Indexed, Options, Value as FieldValue};

use crate::document::json::{Object, Value};
use crate::index::IndexError;
use crate::script::{Program, Scripts};
use crate::world::BoxFuture;

/// What was indexed of one document; without a field it is not in the index, with `null` in it there is one.
pub type Indexing = Option<Vec<Field>>;

/// Says which fields documents have.
pub trait SearchMapper: Send + Sync + 'static {
    /// What is indexed of each document, given as canonical JSON texts; `None`: nothing.
    fn fields<'a>(&'a self, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Indexing>, IndexError>>;
}

/// An index function of a design document.
pub struct ScriptSearchMapper {
    scripts: Scripts,
    program: Program,
    source: String,
    is_typed: bool,
}

impl ScriptSearchMapper {
    /// The function `source` of `program`.
    pub fn new(scripts: &Scripts, program: &Program, source: &str) -> ScriptSearchMapper {
        ScriptSearchMapper {
            scripts: scripts.clone(),
            program: program.clone(),
            source: source.to_owned(),
            is_typed: false,
        }
    }

    /// The function `source` of `program`, whose fields have types.
    pub fn typed(scripts: &Scripts, program: &Program, source: &str) -> ScriptSearchMapper {
        ScriptSearchMapper { is_typed: true, ..ScriptSearchMapper::new(scripts, program, source) }
    }
}

impl SearchMapper for ScriptSearchMapper {
    fn fields<'a>(&'a self, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Indexing>, IndexError>> {
        Box::pin(async move {
            if self.is_typed {
                let calls = self.scripts.index_typed(&self.program, &self.source, docs).await?;
                return Ok(calls.iter().map(|calls| typed_indexing(calls)).collect());
            }
            let calls = self.scripts.index(&self.program, &self.source, docs).await?;
            Ok(calls.iter().map(|calls| indexing(calls)).collect())
        })
    }
}

/// The fields that calls `[name, value, options]` make; none where there was no call.
pub fn indexing(calls: &[Value]) -> Indexing {
    (!calls.is_empty()).then(|| calls.iter().filter_map(field).collect())
}

/// `None` for what is passed over: numbers that are none.
fn field(call: &Value) -> Option<Field> {
    let [name, value, options] = call.as_array()? else { return None };
    let value = match value {
        Value::String(text) => FieldValue::Text(text.clone()),
        Value::Bool(flag) => FieldValue::Bool(*flag),
        number => FieldValue::Number(number_of(number)?),
    };
    let none = Object::new();
    let options = options.as_object().unwrap_or(&none);
    let indexed = options.get("index").map_or(Indexed::Analyzed, indexed);
    let boost = options.get("boost").and_then(number_of).map_or(1.0, |boost| boost as f32);
    let facet = options.get("facet").is_some_and(is_yes);
    let options = Options { store: options.get("store").is_some_and(is_stored), index: indexed, boost, facet };
    Some(Field { name: name.as_str()?.to_owned(), value, options })
}

/// The fields that calls `[type, name, value, options]` make; none where there was no call.
pub fn typed_indexing(calls: &[Value]) -> Indexing {
    (!calls.is_empty()).then(|| calls.iter().filter_map(typed_field).collect())
}

fn typed_field(call: &Value) -> Option<Field> {
    let [kind, name, value, options] = call.as_array()? else { return None };
    let index = match kind.as_str()? {
        "string" => Indexed::NotAnalyzedNoNorms,
        "stored" => Indexed::Stored,
        _ => Indexed::Analyzed,
    };
    let value = match value {
        Value::String(text) => FieldValue::Text(text.clone()),
        number => FieldValue::Number(number_of(number)?),
    };
    let store = options.as_object().and_then(|options| options.get("store")).is_some_and(is_yes);
    let options = Options { store: store || index == Indexed::Stored, index, ..Options::default() };
    Some(Field { name: name.as_str()?.to_owned(), value, options })
}

/// A finite number.
pub(super) fn number_of(value: &Value) -> Option<f64> {
    let number = match value {
        Value::Int(number) => *number as f64,
        Value::Float(number) => *number,
        Value::Big(number) => number.to_string().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

fn is_yes(value: &Value) -> bool {
    value.as_bool() == Some(true)
}

fn is_stored(value: &Value) -> bool {
    is_yes(value) || value.as_str().is_some_and(|word| word.eq_ignore_ascii_case("yes"))
}

/// An unknown word is `analyzed`, as in Clouseau.
fn indexed(value: &Value) -> Indexed {
    let word = match value {
        Value::Bool(false) => "no".to_owned(),
        other => other.as_str().unwrap_or_default().to_ascii_lowercase(),
    };
    match word.as_str() {
        "no" => Indexed::No,
        "analyzed_no_norms" => Indexed::AnalyzedNoNorms,
        "not_analyzed" => Indexed::NotAnalyzed,
        "not_analyzed_no_norms" => Indexed::NotAnalyzedNoNorms,
        _ => Indexed::Analyzed,
    }
}

#[cfg(test)]
mod tests {
    use settee_search::schema::FieldType;

    use super::*;
    use crate::document::json;

    fn fields(text: &str) -> Indexing {
        indexing(json::parse(text.as_bytes()).unwrap().as_array().unwrap())
    }

    #[test]
    fn options_are_read_as_clouseau_does() {
        let field = |options: &str| fields(&format!("[[\"a\",\"x\",{options}]]")).unwrap().remove(0).options;
        assert_eq!(field("{}"), Options::default());
        for yes in [r#"{"store":true}"#, r#"{"store":"YES"}"#] {
            assert!(field(yes).store, "{yes}");
        }
        for no in [r#"{"store":"true"}"#, r#"{"store":1}"#] {
            assert!(!field(no).store, "{no}");
        }
        for (given, indexed) in [
            ("false", Indexed::No),
            ("\"NO\"", Indexed::No),
            ("true", Indexed::Analyzed),
            ("\"nonsense\"", Indexed::Analyzed),
            ("\"Not_Analyzed\"", Indexed::NotAnalyzed),
        ] {
            assert_eq!(field(&format!("{{\"index\":{given}}}")).index, indexed, "{given}");
        }
        assert_eq!(field(r#"{"boost":2.5,"facet":true}"#), Options { boost: 2.5, facet: true, ..Options::default() });
    }

    #[test]
    fn fields_with_types_are_of_the_types_that_they_say() {
        let text = r#"[["string","s","a",{"store":true}],["text","t","a b",{}],["double","n",5,{}],["stored","x",1,{}],
            ["double","n",null,{}]]"#;
        let fields = typed_indexing(json::parse(text.as_bytes()).unwrap().as_array().unwrap()).unwrap();
        let seen: Vec<(&str, FieldType, bool)> =
            fields.iter().map(|f| (f.name.as_str(), FieldType::of(f), f.options.store)).collect();
        let expected = [
            ("s", FieldType::String, true),
            ("t", FieldType::Text, false),
            ("n", FieldType::Double, false),
            ("x", FieldType::Stored, true),
        ];
        assert_eq!(seen, expected);
        assert_eq!(typed_indexing(&[]), None);
    }

    #[test]
    fn a_number_that_is_none_leaves_a_document_without_the_field() {
        assert_eq!(fields("[]"), None);
        assert_eq!(fields(r#"[["n",null,{}]]"#), Some(Vec::new()));
        let Some([one]) = fields(r#"[["n",3,{}]]"#).map(|list| <[Field; 1]>::try_from(list).unwrap()) else {
            panic!("one field")
        };
        assert_eq!((one.name.as_str(), one.value), ("n", FieldValue::Number(3.0)));
    }
}
