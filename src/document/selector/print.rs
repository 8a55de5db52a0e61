//! The normal form as JSON, as `_explain` shows it and design documents of partial indexes store it.

use super::{Condition, Selector};
use crate::json::Value;

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

fn member(name: &str, value: Value) -> Value {
    object(Some((name.to_owned(), value)))
}

fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    Value::Object(members.into_iter().collect())
}
