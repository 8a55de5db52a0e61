//! Why a selector is refused, in the words of CouchDB 3.5.

use super::erlang_term::erlang_term;
use crate::json::Value;
use crate::limits;

/// A refused selector or list of fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorError {
    /// Which class of failure: most are 400.
    pub kind: SelectorErrorKind,
    /// The identifier for programs (`error`).
    pub name: &'static str,
    /// The text for people (`reason`).
    pub reason: String,
}

/// Classes of refusals that clients see apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectorErrorKind {
    /// The request is wrong (400).
    Refused,
    /// Arguments of `$mod` that are not two integers, the first not 0: 404 as CouchDB's documentation of selectors
    /// says.
    ModArgument,
}

impl SelectorError {
    fn refused(name: &'static str, reason: String) -> SelectorError {
        SelectorError { kind: SelectorErrorKind::Refused, name, reason }
    }

    /// An operator with an argument that it does not take.
    pub fn bad_argument(operator: &str, argument: &Value) -> SelectorError {
        let reason = format!("Bad argument for operator {operator}: {}", erlang_term(argument));
        let kind = if operator == "$mod" { SelectorErrorKind::ModArgument } else { SelectorErrorKind::Refused };
        SelectorError { kind, name: "bad_arg", reason }
    }

    /// An operator that nobody knows.
    pub fn invalid_operator(operator: &str) -> SelectorError {
        SelectorError::refused("invalid_operator", format!("Invalid operator: {operator}"))
    }

    /// An operator that is known elsewhere.
    pub fn not_supported(operator: &str) -> SelectorError {
        SelectorError::refused("not_supported", format!("Unsupported operator: {operator}"))
    }

    /// `$text` below a field.
    pub fn bad_field(selector: &Value) -> SelectorError {
        let reason = format!("Invalid field normalization on selector: {}", erlang_term(selector));
        SelectorError::refused("bad_field", reason)
    }

    /// More terms than [`limits::SELECTOR_TERMS_MAX`].
    pub fn too_long() -> SelectorError {
        let reason = format!("A selector has {} terms and listed values at most.", limits::SELECTOR_TERMS_MAX);
        SelectorError::refused("invalid_selector", reason)
    }

    /// A condition at the top that belongs to no field.
    pub fn missing_field_name() -> SelectorError {
        let reason = "One or more conditions is missing a field name.".to_owned();
        SelectorError::refused("invalid_selector", reason)
    }

    /// A path with an empty step.
    pub fn invalid_field_name(path: &str) -> SelectorError {
        SelectorError::refused("invalid_field_name", format!("Invalid field name: {path}"))
    }

    /// Something else than an object in place of a selector.
    pub fn not_an_object(value: &Value) -> SelectorError {
        let reason = format!("Selector must be a JSON object, not: {}", erlang_term(value));
        SelectorError::refused("invalid_selector_json", reason)
    }

    /// More than a selector may hold.
    pub fn too_large(what: &str) -> SelectorError {
        SelectorError::refused("invalid_selector", format!("The selector is too large: {what}"))
    }

    /// `fields` that is no list.
    pub fn invalid_fields(value: &Value) -> SelectorError {
        let reason = format!("Fields must be an array of strings, not: {}", erlang_term(value));
        SelectorError::refused("invalid_fields", reason)
    }

    /// An element of `fields` that is no string.
    pub fn invalid_field(value: &Value) -> SelectorError {
        SelectorError::refused("invalid_field", format!("Invalid JSON for field spec: {}", erlang_term(value)))
    }
}

impl std::fmt::Display for SelectorError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.reason)
    }
}

impl std::error::Error for SelectorError {}
