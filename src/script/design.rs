//! Checks of design documents before they are stored: types of members, names of reduces, functions that compile.
//!
//! Wordings and the order of checks are those that CouchDB 3.5 was measured to have (`conformance/cases/documents`).

use serde::{Deserialize, Serialize};

use super::ScriptError;
use crate::document::json::{Object, Value};
use crate::document::selector::Selector;

/// Why a design document is refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum DesignError {
    /// A function does not compile.
    Compilation {
        /// Which, and the compiler's words.
        reason: String,
    },
    /// A member has a wrong type or value.
    Invalid {
        /// What to tell the client.
        reason: String,
    },
    /// A map or reduce is an empty text.
    MissingFunction,
    /// The check itself could not be made.
    Script(ScriptError),
}

impl From<ScriptError> for DesignError {
    fn from(error: ScriptError) -> Self {
        DesignError::Script(error)
    }
}

/// A function that must compile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Source {
    kind: &'static str,
    view: String,
    pub text: String,
}

impl Source {
    pub fn explain(&self, error: ScriptError) -> DesignError {
        let Source { kind, view, .. } = self;
        match error {
            ScriptError::Compilation { reason } => DesignError::Compilation {
                reason: format!("Compilation of the {kind} function in the '{view}' view failed: {reason}"),
            },
            ScriptError::Thrown { error, .. } => DesignError::Compilation {
                reason: format!("Compilation of the {kind} function in the '{view}' view failed: {error}"),
            },
            other => DesignError::Script(other),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Array,
    Boolean,
    Object,
    Text,
}

impl Type {
    fn fits(self, value: &Value) -> bool {
        match self {
            Type::Array => value.as_array().is_some(),
            Type::Boolean => value.as_bool().is_some(),
            Type::Object => value.as_object().is_some(),
            Type::Text => value.as_str().is_some(),
        }
    }
}

const STRING: (&[Type], &str) = (&[Type::Text], "string");
const OBJECT: (&[Type], &str) = (&[Type::Object], "object");
const BOOLEAN: (&[Type], &str) = (&[Type::Boolean], "boolean");
const STRING_OR_OBJECT: (&[Type], &str) = (&[Type::Text, Type::Object], "string or object");
const ARRAY_OR_STRING: (&[Type], &str) = (&[Type::Array, Type::Text], "array or string");

/// Checks what needs no engine; answers the functions that must compile, in the order of views.
pub(super) fn check(body: &Object, partitioned: bool) -> Result<Vec<Source>, DesignError> {
    let is_query = body.get("language").and_then(Value::as_str) == Some("query");
    each(body, "filters", STRING_OR_OBJECT)?;
    let filters = body.get("filters").and_then(Value::as_object).filter(|_| is_query);
    for (name, filter) in filters.into_iter().flat_map(Object::iter) {
        selector(&format!("filters.{name}"), filter)?;
    }
    typed(body, "", "language", STRING)?;
    each(body, "lists", STRING_OR_OBJECT)?;
    typed(body, "", "options", OBJECT)?;
    if let Some(options) = body.get("options").and_then(Value::as_object) {
        for name in ["include_design", "local_seq", "partitioned"] {
            typed(options, "options.", name, BOOLEAN)?;
        }
        if options.get("partitioned").and_then(Value::as_bool) == Some(true) && !partitioned {
            let reason = "partitioned option cannot be true in a non-partitioned database.";
            return Err(invalid(reason.to_owned()));
        }
    }
    typed(body, "", "rewrites", ARRAY_OR_STRING)?;
    each(body, "shows", STRING_OR_OBJECT)?;
    each(body, "updates", STRING_OR_OBJECT)?;
    typed(body, "", "validate_doc_update", if is_query { STRING_OR_OBJECT } else { STRING })?;
    body.get("validate_doc_update").map_or(Ok(()), |filter| selector("validate_doc_update", filter))?;
    views(body, is_query)
}

/// An object in the place of a function is a selector.
fn selector(path: &str, value: &Value) -> Result<(), DesignError> {
    match value {
        Value::Object(_) => match Selector::parse(value) {
            Ok(_) => Ok(()),
            Err(error) => Err(invalid(format!("`{path}`: {}", error.reason))),
        },
        _ => Ok(()),
    }
}

fn views(body: &Object, is_query: bool) -> Result<Vec<Source>, DesignError> {
    each(body, "views", OBJECT)?;
    let Some(views) = body.get("views").and_then(Value::as_object) else { return Ok(Vec::new()) };
    let mut views: Vec<(&str, &Object)> =
        views.iter().filter(|(name, _)| *name != "lib").filter_map(|(name, v)| Some((name, v.as_object()?))).collect();
    views.sort_by_key(|(name, _)| *name);
    for member in ["map", "reduce"] {
        let kind = if member == "map" && is_query { OBJECT } else { STRING };
        for (name, view) in &views {
            typed(view, &format!("views.{name}."), member, kind)?;
        }
    }
    if let Some((name, _)) = views.iter().find(|(_, view)| !view.contains("map")) {
        return Err(invalid(format!("View `{name}` must contain map function")));
    }
    let compiled = matches!(body.get("language").and_then(Value::as_str), None | Some("javascript"));
    let mut sources = Vec::new();
    for (name, view) in views {
        for kind in ["map", "reduce"] {
            let Some(text) = view.get(kind).and_then(Value::as_str) else { continue };
            if text.is_empty() {
                return Err(DesignError::MissingFunction);
            }
            if kind == "reduce" && text.starts_with('_') {
                built_in(text)?;
            } else if compiled {
                sources.push(Source { kind, view: name.to_owned(), text: text.to_owned() });
            }
        }
    }
    Ok(sources)
}

/// The names of built-in reduces; all but the ranks are recognized by how they begin.
fn built_in(name: &str) -> Result<(), DesignError> {
    if let Some(rank) = name.strip_prefix("_top_").or_else(|| name.strip_prefix("_bottom_")) {
        return match rank.parse::<i64>() {
            Ok(1..=100) => Ok(()),
            Ok(_) => Err(invalid("rank value must be between 1 and 100".to_owned())),
            Err(_) => Err(invalid("invalid rank reducer".to_owned())),
        };
    }
    let known = ["_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last"];
    match known.iter().any(|known| name.starts_with(known)) {
        true => Ok(()),
        false => Err(invalid(format!("`{name}` is not a supported reduce function."))),
    }
}

/// An object whose members all have a type.
fn each(body: &Object, name: &str, members: (&[Type], &str)) -> Result<(), DesignError> {
    typed(body, "", name, OBJECT)?;
    let Some(object) = body.get(name).and_then(Value::as_object) else { return Ok(()) };
    object.iter().try_for_each(|(member, _)| typed(object, &format!("{name}."), member, members))
}

fn typed(object: &Object, path: &str, name: &str, (types, text): (&[Type], &str)) -> Result<(), DesignError> {
    match object.get(name) {
        Some(value) if !types.iter().any(|kind| kind.fits(value)) => {
            Err(invalid(format!("`{path}{name}` field must have {text} type")))
        }
        _ => Ok(()),
    }
}

fn invalid(reason: String) -> DesignError {
    DesignError::Invalid { reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::json;

    fn checked(text: &str) -> Result<usize, DesignError> {
        check(json::parse(text.as_bytes()).unwrap().as_object().unwrap(), false).map(|sources| sources.len())
    }

    #[test]
    fn members_have_types() {
        for (text, reason) in [
            (r#"{"views":[]}"#, "`views` field must have object type"),
            (r#"{"views":{"v":"x"}}"#, "`views.v` field must have object type"),
            (r#"{"views":{"v":{"map":1}}}"#, "`views.v.map` field must have string type"),
            (r#"{"views":{"v":{}}}"#, "View `v` must contain map function"),
            (r#"{"filters":{"a":1}}"#, "`filters.a` field must have string or object type"),
            (r#"{"rewrites":{}}"#, "`rewrites` field must have array or string type"),
            (r#"{"validate_doc_update":{}}"#, "`validate_doc_update` field must have string type"),
            (r#"{"options":{"local_seq":1}}"#, "`options.local_seq` field must have boolean type"),
            (
                r#"{"language":"query","validate_doc_update":{"a":{"$no":1}}}"#,
                "`validate_doc_update`: Invalid operator: $no",
            ),
            (r#"{"language":"query","filters":{"f":{"a":{"$no":1}}}}"#, "`filters.f`: Invalid operator: $no"),
            (r#"{"language":7}"#, "`language` field must have string type"),
        ] {
            assert_eq!(checked(text), Err(invalid(reason.to_owned())), "{text}");
        }
    }

    #[test]
    fn maps_and_own_reduces_are_compiled() {
        let views = |language: &str, reduce: &str| {
            checked(&format!(
                r#"{{"language":"{language}","views":{{"lib":{{"a":"x"}},"v":{{"map":"m","reduce":"{reduce}"}}}}}}"#
            ))
        };
        assert_eq!(views("javascript", "r"), Ok(2));
        assert_eq!(views("erlang", "r"), Ok(0));
        for (reduce, expected) in [
            ("_sum", Ok(1)),
            ("_summary", Ok(1)),
            ("_top_3", Ok(1)),
            ("", Err(DesignError::MissingFunction)),
            ("_avg", Err(invalid("`_avg` is not a supported reduce function.".to_owned()))),
            ("_bottom_-1", Err(invalid("rank value must be between 1 and 100".to_owned()))),
            ("_top_", Err(invalid("invalid rank reducer".to_owned()))),
        ] {
            assert_eq!(views("javascript", reduce), expected, "{reduce}");
        }
    }
}
