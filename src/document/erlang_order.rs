//! The order of Erlang terms over JSON values. Pure.
//!
//! CouchDB sorts what one document emits under one key by it, before the rows go into its index: numbers, then `false`,
//! `null` and `true` as atoms by name, objects as tuples around lists of pairs, arrays as lists, strings as binaries.

use std::cmp::Ordering;

use super::collate::{Collation, Collator};
use super::json::Value;

/// How two values stand to each other. `collator` compares numbers, by value.
pub fn compare(collator: &Collator, a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::String(a), Value::String(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).map(|(a, b)| compare(collator, a, b));
            first_difference(pairs).then_with(|| a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let pairs = a.iter().zip(b.iter()).map(|((a_name, a), (b_name, b))| {
                a_name.as_bytes().cmp(b_name.as_bytes()).then_with(|| compare(collator, a, b))
            });
            first_difference(pairs).then_with(|| a.len().cmp(&b.len()))
        }
        (a, b) => match (rank(a), rank(b)) {
            (NUMBER, NUMBER) => collator.compare_by(Collation::Raw, a, b),
            (a, b) => a.cmp(&b),
        },
    }
}

const NUMBER: u8 = 0;

fn rank(value: &Value) -> u8 {
    match value {
        Value::Int(_) | Value::Big(_) | Value::Float(_) => NUMBER,
        Value::Bool(false) => 1,
        Value::Null => 2,
        Value::Bool(true) => 3,
        Value::Object(_) => 4,
        Value::Array(_) => 5,
        Value::String(_) => 6,
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

#[cfg(test)]
mod tests {
    use super::compare;
    use crate::collate::Collator;
    use crate::json::{self, Value};

    #[test]
    fn values_are_in_the_order_of_erlang_terms() {
        let text = r#"[-1,0,1.5,2,1e30,false,null,true,{},{"a":1},{"a":1,"b":0},{"a":"x"},{"b":0},
            [],[1],[1,2],[2],["a"],"","A","B","a","aa","é"]"#;
        let Ok(Value::Array(sorted)) = json::parse(text.as_bytes()) else { panic!("a list") };
        let collator = Collator::new();
        for (at, one) in sorted.iter().enumerate() {
            for (other_at, other) in sorted.iter().enumerate() {
                assert_eq!(compare(&collator, one, other), at.cmp(&other_at), "{one:?} {other:?}");
            }
        }
    }
}
