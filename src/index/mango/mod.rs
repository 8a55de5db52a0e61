//! Declarative queries: requests, indexes of design documents of language `query`, and the choice among them.
//!
//! All here is pure but for the [`FieldMapper`], which makes the rows of such an index: the values of its fields as a
//! list, for documents that have all of them and match the partial filter (`conformance/cases/queries`).

pub mod bookmark;
pub mod candidates;
pub mod catalogue;
mod covered;
pub mod explain;
pub mod groups;
mod mapper;
pub mod planner;
pub mod request;
pub mod spans;
pub mod text;

use crate::document::json::Value;
use crate::document::selector::{SelectorError, SelectorErrorKind, erlang_term};

pub use covered::CoveredRow;
pub use mapper::FieldMapper;

/// Why a query or an index definition is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MangoError {
    /// Which class of failure.
    pub kind: SelectorErrorKind,
    /// The identifier for programs.
    pub name: &'static str,
    /// The text for people.
    pub reason: String,
}

impl MangoError {
    /// A refusal.
    pub fn new(name: &'static str, reason: impl Into<String>) -> MangoError {
        MangoError { kind: SelectorErrorKind::Refused, name, reason: reason.into() }
    }

    /// A refusal that tells the value.
    pub(crate) fn about(name: &'static str, text: &str, value: &Value) -> MangoError {
        MangoError::new(name, format!("{text}{}", erlang_term(value)))
    }
}

impl From<SelectorError> for MangoError {
    fn from(error: SelectorError) -> Self {
        MangoError { kind: error.kind, name: error.name, reason: error.reason }
    }
}

#[cfg(test)]
mod tests;
