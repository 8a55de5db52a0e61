//! The normal form as JSON, as `_explain` shows it and design documents of partial indexes store it; and a canonical
//! one, by which selectors are known to be the same.

use std::collections::BTreeMap;

use super::{Condition, Selector};
use crate::document::json::Value;

impl Selector {
    /// The normal form as JSON. Read again it gives the same selector.
    pub fn to_value(&self) -> Value {
        match self {
            Selector::Everything => object(None),
            Selector::And(all) => member("$and", list(all)),
            Selector::Or(all) => member("$or", list(all)),
            Selector::Nor(all) => member("$nor", list(all)),
            Selector::Not(inner) => member("$not", inner.to_value()),
            Selector::Field(path, condition) => member(path.as_str(), condition.to_value()),
            Selector::Text(text) => member("$default", member("$text", text.clone())),
        }
    }

    /// The normal form without the order and the repetition of what is joined: selectors with equal ones match the same
    /// documents. Read again it gives a selector that matches the same, too.
    pub fn canonical(&self) -> Value {
        match self {
            Selector::And(all) => member("$and", joined(all)),
            Selector::Or(all) => member("$or", joined(all)),
            Selector::Nor(all) => member("$nor", joined(all)),
            Selector::Not(inner) => member("$not", inner.canonical()),
            Selector::Everything | Selector::Field(..) | Selector::Text(_) => self.to_value(),
        }
    }
}

impl Condition {
    /// The operator with its argument.
    pub fn to_value(&self) -> Value {
        match self {
            Condition::Compare(comparison, value) => member(comparison.operator(), value.clone()),
            Condition::In(values) => member("$in", Value::Array(values.clone())),
            Condition::Nin(values) => member("$nin", Value::Array(values.clone())),
            Condition::Exists(wanted) => member("$exists", Value::Bool(*wanted)),
            Condition::Type(name) => member("$type", name.as_str().into()),
            Condition::Size(size) => member("$size", size.clone()),
            Condition::Mod(divisor, remainder) => {
                member("$mod", Value::Array(vec![divisor.clone(), remainder.clone()]))
            }
            Condition::Regex(pattern) => member("$regex", pattern.as_str().into()),
            Condition::BeginsWith(prefix) => member("$beginsWith", prefix.as_str().into()),
            Condition::All(values) => member("$all", Value::Array(values.clone())),
            Condition::Each(quantifier, inner) => member(quantifier.operator(), inner.to_value()),
            Condition::Not(inner) => member("$not", inner.to_value()),
        }
    }
}

fn list(all: &[Selector]) -> Value {
    Value::Array(all.iter().map(Selector::to_value).collect())
}

/// The canonical forms of all in the order of their texts, each once.
fn joined(all: &[Selector]) -> Value {
    let forms = all.iter().map(Selector::canonical).map(|form| (form.to_vec(), form));
    Value::Array(forms.collect::<BTreeMap<_, _>>().into_values().collect())
}

fn member(name: &str, value: Value) -> Value {
    object(Some((name.to_owned(), value)))
}

fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(members.into_iter().collect())
}
