//! What it costs to match a document with a selector: its terms and the values that it lists.

use super::{Condition, Selector};
use crate::json::Value;

/// Members and elements at all levels of a selector as it was written.
pub fn terms_of_text(value: &Value) -> usize {
    match value {
        Value::Array(elements) => elements.iter().map(|element| 1 + terms_of_text(element)).sum(),
        Value::Object(members) => members.iter().map(|(_, member)| 1 + terms_of_text(member)).sum(),
        _ => 0,
    }
}

impl Selector {
    /// Terms and listed values: a document is compared with each, in the worst case. At least 1.
    pub fn terms(&self) -> usize {
        match self {
            Selector::Everything | Selector::Text(_) => 1,
            Selector::And(all) | Selector::Or(all) | Selector::Nor(all) => {
                1 + all.iter().map(Selector::terms).sum::<usize>()
            }
            Selector::Not(one) => 1 + one.terms(),
            Selector::Field(_, condition) => condition.terms(),
        }
    }
}

impl Condition {
    fn terms(&self) -> usize {
        match self {
            Condition::In(values) | Condition::Nin(values) | Condition::All(values) => 1 + values.len(),
            Condition::Each(_, selector) => 1 + selector.terms(),
            Condition::Not(condition) => 1 + condition.terms(),
            _ => 1,
        }
    }
}
