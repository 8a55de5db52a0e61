//! Whether a value meets a selector.
//!
//! Texts are compared by collation, the field `_id` by code points (as CouchDB 3.5 was measured). A condition on a
//! field that is not there fails, whatever it is, except `$exists: false` on an object without that key.

use std::cell::Cell;
use std::cmp::Ordering;

use num_bigint::BigInt;

use super::path::FieldPath;
use super::pattern::Pattern;
use super::subject::{Seen, Subject};
use super::{Comparison, Condition, Quantifier, Selector};
use crate::collate::{Collation, Collator};
use crate::json::{JsonError, Value};
use crate::limits::SEARCHES_GIVEN_UP;

impl Selector {
    /// Matches a value: for a document, the one of [`document_value`](super::document_value).
    pub fn matches(&self, value: &Value, collator: &Collator) -> bool {
        // Invariant: to look at a value never fails.
        self.matches_subject(value, collator).expect("a value is no damaged text")
    }

    /// Matches whatever has fields, for instance a stored document.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub fn matches_subject(&self, subject: &impl Subject, collator: &Collator) -> Result<bool, JsonError> {
        let given_up = Cell::new(0);
        Matcher { collator, collation: collator.collation(), given_up: &given_up }.selector(self, subject)
    }
}

#[derive(Clone, Copy)]
struct Matcher<'a> {
    collator: &'a Collator,
    collation: Collation,
    /// Searches for patterns that took too long, of this value.
    given_up: &'a Cell<usize>,
}

impl Matcher<'_> {
    fn selector<S: Subject>(self, selector: &Selector, subject: &S) -> Result<bool, JsonError> {
        Ok(match selector {
            Selector::Everything | Selector::Text(_) => true,
            Selector::And(all) => !self.some(all, subject, false)?,
            Selector::Or(all) => all.is_empty() || self.some(all, subject, true)?,
            Selector::Not(inner) => !self.selector(inner, subject)?,
            Selector::Nor(all) => !self.some(all, subject, true)?,
            Selector::Field(path, condition) => self.field(path, condition, subject)?,
        })
    }

    /// Whether one of the selectors matches so.
    fn some<S: Subject>(self, all: &[Selector], subject: &S, wanted: bool) -> Result<bool, JsonError> {
        for one in all {
            if self.selector(one, subject)? == wanted {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn field<S: Subject>(self, path: &FieldPath, condition: &Condition, subject: &S) -> Result<bool, JsonError> {
        Ok(match subject.see(path)? {
            Seen::Value(value) if path.as_str() == "_id" => {
                Matcher { collation: Collation::Raw, ..self }.condition(condition, &value)
            }
            Seen::Value(value) => self.condition(condition, &value),
            Seen::Absent => *condition == Condition::Exists(false),
            Seen::NoPath => false,
        })
    }

    fn condition(self, condition: &Condition, value: &Value) -> bool {
        match condition {
            Condition::Compare(comparison, argument) => self.compare(*comparison, value, argument),
            Condition::In(arguments) => self.is_in(value, arguments),
            Condition::Nin(arguments) => !self.is_in(value, arguments),
            Condition::Exists(wanted) => *wanted,
            Condition::Type(name) => type_name(value) == name,
            Condition::Size(size) => {
                value.as_array().is_some_and(|elements| size.as_u64() == u64::try_from(elements.len()).ok())
            }
            Condition::Mod(divisor, remainder) => leaves(value, divisor, remainder),
            Condition::Regex(pattern) => value.as_str().is_some_and(|text| self.search(pattern, text)),
            Condition::BeginsWith(prefix) => value.as_str().is_some_and(|text| text.starts_with(prefix.as_str())),
            Condition::All(wanted) => value.as_array().is_some_and(|elements| self.has_all(elements, wanted, value)),
            Condition::Each(quantifier, inner) => self.each(*quantifier, inner, value),
            Condition::Not(inner) => !self.condition(inner, value),
        }
    }

    /// A search that takes too long finds nothing; after some of them a value's other searches are not made.
    fn search(self, pattern: &Pattern, text: &str) -> bool {
        if self.given_up.get() >= SEARCHES_GIVEN_UP {
            return false;
        }
        pattern.search(text).unwrap_or_else(|| {
            self.given_up.set(self.given_up.get() + 1);
            false
        })
    }

    fn compare(self, comparison: Comparison, value: &Value, argument: &Value) -> bool {
        let order = || self.collator.compare_by(self.collation, value, argument);
        match comparison {
            Comparison::Lt => order() == Ordering::Less,
            Comparison::Lte => order() != Ordering::Greater,
            Comparison::Eq => self.equal(value, argument),
            Comparison::Ne => !self.equal(value, argument),
            Comparison::Gte => order() != Ordering::Less,
            Comparison::Gt => order() == Ordering::Greater,
        }
    }

    fn equal(self, a: &Value, b: &Value) -> bool {
        self.collator.equal_by(self.collation, a, b)
    }

    fn is_in(self, value: &Value, arguments: &[Value]) -> bool {
        let one = |value: &Value| arguments.iter().any(|argument| self.equal(value, argument));
        match value {
            Value::Array(elements) => elements.iter().any(one),
            value => one(value),
        }
    }

    /// Elements must be the same, not only equal: 2 is not 2.0. No wanted values: nothing has them.
    fn has_all(self, elements: &[Value], wanted: &[Value], whole: &Value) -> bool {
        match wanted {
            [] => false,
            [only @ Value::Array(_)] if self.collator.compare_by(Collation::Raw, only, whole).is_eq() => true,
            wanted => wanted.iter().all(|value| elements.contains(value)),
        }
    }

    fn each(self, quantifier: Quantifier, inner: &Selector, value: &Value) -> bool {
        // Invariant: to look at a value never fails.
        let matches = |one: &Value| self.selector(inner, one).expect("a value is no damaged text");
        match (quantifier, value) {
            (Quantifier::Elem, Value::Array(elements)) => elements.iter().any(matches),
            (Quantifier::All, Value::Array(elements)) => !elements.is_empty() && elements.iter().all(matches),
            (Quantifier::Key, Value::Object(object)) => {
                object.iter().any(|(name, _)| matches(&Value::String(name.to_owned())))
            }
            _ => false,
        }
    }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Int(_) | Value::Big(_) | Value::Float(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Integers only; the remainder has the sign of the dividend.
fn leaves(value: &Value, divisor: &Value, remainder: &Value) -> bool {
    if let (Value::Int(value), Value::Int(divisor), Value::Int(remainder)) = (value, divisor, remainder) {
        // The only overflow is that of the least integer divided by -1, which leaves 0.
        return value.checked_rem(*divisor).unwrap_or(0) == *remainder;
    }
    match (big(value), big(divisor), big(remainder)) {
        (Some(value), Some(divisor), Some(remainder)) if divisor != BigInt::ZERO => value % divisor == remainder,
        _ => false,
    }
}

fn big(value: &Value) -> Option<BigInt> {
    match value {
        Value::Int(value) => Some(BigInt::from(*value)),
        Value::Big(value) => Some(value.clone()),
        _ => None,
    }
}
