//! `validate_doc_update` as a selector, in design documents of the language `query`.
//!
//! It is validated against `{"newDoc", "oldDoc", "userCtx", "secObj"}`; `oldDoc` is null for a new document. An edit
//! that does not match is forbidden.

use super::{ScriptError, Validation};
use crate::document::collate::Collator;
use crate::document::json::{self, Object, Value};
use crate::document::selector::Selector;

/// What clients are told of an edit that does not match.
const REASON: &str = "document is not valid";

/// Validates an edit: `arguments` is the JSON text of the list of the four.
pub(super) fn validate(selector: &str, arguments: &str, collator: &Collator) -> Result<Validation, ScriptError> {
    let damaged = |_| ScriptError::Engine { reason: "the edit is no JSON".to_owned() };
    let selector = json::parse(selector.as_bytes()).map_err(damaged)?;
    let refused = |reason: String| ScriptError::Thrown { error: "invalid_selector".to_owned(), reason: reason.into() };
    let selector = Selector::parse(&selector).map_err(|error| refused(error.reason))?;
    let Value::Array(values) = json::parse(arguments.as_bytes()).map_err(damaged)? else {
        return Err(ScriptError::Engine { reason: "the edit is no list".to_owned() });
    };
    let names = ["newDoc", "oldDoc", "userCtx", "secObj"].map(str::to_owned);
    let edit: Object = names.into_iter().zip(values).collect();
    match selector.matches(&Value::Object(edit), collator) {
        true => Ok(Validation::Accepted),
        false => Ok(Validation::Forbidden(REASON.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_that_do_not_match_are_forbidden() {
        let selector =
            r#"{"newDoc.type":{"$in":["post","tag"]},"$or":[{"oldDoc":null},{"userCtx.roles":{"$all":["ed"]}}]}"#;
        let validated = |edit: &str| validate(selector, edit, &Collator::new());
        let forbidden = Ok(Validation::Forbidden("document is not valid".into()));
        assert_eq!(validated(r#"[{"type":"post"},null,{"roles":[]},{}]"#), Ok(Validation::Accepted));
        assert_eq!(validated(r#"[{"type":"x"},null,{"roles":[]},{}]"#), forbidden);
        assert_eq!(validated(r#"[{"type":"tag"},{"type":"post"},{"roles":[]},{}]"#), forbidden);
        assert_eq!(validated(r#"[{"type":"tag"},{"type":"post"},{"roles":["ed"]},{}]"#), Ok(Validation::Accepted));
        assert!(validate(r#"{"a":{"$no":1}}"#, "[]", &Collator::new()).is_err());
    }
}
