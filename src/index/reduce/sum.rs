//! `_sum`: numbers, arrays by position, objects by field, nested. What does not fit gives an error as the value, which
//! spreads to every sum that takes it in (`conformance/cases/views`).
//!
//! CouchDB 3.5 adds rows from the last to the first, and which value an error names, or how floats are rounded, tells
//! so. Rows come here in their order: those of a run wait until it ends, and what a run gives is added to the next
//! one's.
//!
//! CouchDB looks at the size of a sum at each step that it adds up rows in; how many rows a step takes depends on its
//! files. Of sums beyond [`limits::REDUCE_SUM_BYTES`] next to none pass all steps but the last one, which puts together
//! those of the ranges. So the sum of a range may not be larger at all (`view_groups.rs`).

use num_bigint::BigInt;
use serde::{Deserialize, Serialize};

use super::{BUILTIN_ERROR, builtin_error, overflow_reason};
use crate::document::json::{Object, Value};
use crate::document::revision::term_bytes;
use crate::limits;

const REASON: &str = "The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects \
                      cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the \
                      values for all fields are themselves numbers, arrays of numbers, or objects.";

/// A sum under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sum {
    /// Of the rows before those that wait, if there are any.
    total: Option<Result<Value, Failed>>,
    /// Rows of the run that is being read, in their order.
    waiting: Vec<Value>,
}

/// The error that stands in place of a sum.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failed(Value);

impl Sum {
    /// Adds the value of the next row.
    pub fn add(&mut self, value: Value) {
        self.waiting.push(value);
    }

    /// Adds the sum of the rows behind.
    pub fn merge(&mut self, behind: &Sum) {
        let own = std::mem::take(self).whole();
        self.total = join(own, behind.clone().whole());
    }

    /// Adds up the rows that wait: a run ends.
    pub fn settle(&mut self) {
        self.total = std::mem::take(self).whole();
    }

    /// Bytes of a sum that grows with what it is made of; numbers and errors do not.
    pub fn bytes(&self) -> usize {
        match &self.total {
            Some(Ok(sum @ (Value::Array(_) | Value::Object(_)))) => term_bytes(sum),
            _ => 0,
        }
    }

    /// Gives the error in place of a sum that is large and more than half of the `taken` bytes that it was made of.
    pub fn bound(&mut self, taken: usize) {
        let made = self.bytes();
        if made > limits::REDUCE_SUM_BYTES && made * 2 > taken {
            let mut error = Object::new();
            error.push("error", BUILTIN_ERROR);
            error.push("reason", overflow_reason(taken, made));
            self.total = Some(Err(Failed(Value::Object(error))));
        }
    }

    /// The sum, or the error.
    pub fn finish(self) -> Value {
        match self.whole() {
            None => Value::Int(0),
            Some(Ok(sum) | Err(Failed(sum))) => sum,
        }
    }

    fn whole(self) -> Option<Result<Value, Failed>> {
        let run = match self.waiting.is_empty() {
            true => None,
            false => Some(self.waiting.into_iter().rev().try_fold(Value::Int(0), |sum, value| add(value, sum))),
        };
        join(self.total, run)
    }
}

/// The sum of what lies before and behind; the error that is met first from behind counts.
fn join(before: Option<Result<Value, Failed>>, behind: Option<Result<Value, Failed>>) -> Option<Result<Value, Failed>> {
    match (before, behind) {
        (Some(Ok(before)), Some(Ok(behind))) => Some(add(before, behind)),
        (Some(_), Some(Err(error))) | (Some(Err(error)), Some(Ok(_))) => Some(Err(error)),
        (one, None) | (None, one) => one,
    }
}

fn refuse(value: Value) -> Failed {
    Failed(builtin_error(REASON, value))
}

/// Whether it is a number.
pub(in crate::index) fn is_number(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Big(_) | Value::Float(_))
}

fn add(value: Value, total: Value) -> Result<Value, Failed> {
    match (value, total) {
        (Value::Array(more), Value::Array(total)) => add_arrays(total, more),
        (Value::Array(more), total) if is_number(&total) => add_arrays(vec![total], more),
        (value, Value::Array(total)) if is_number(&value) => add_arrays(total, vec![value]),
        (Value::Object(more), total) => add_object(more, total),
        (value, total) if is_number(&value) && is_number(&total) => Ok(add_numbers(&total, &value)),
        (value, _) => Err(refuse(value)),
    }
}

fn add_object(more: Object, total: Value) -> Result<Value, Failed> {
    if more.get("error").and_then(Value::as_str) == Some(BUILTIN_ERROR) {
        return Err(Failed(Value::Object(more)));
    }
    match total {
        // The first object is taken as it is.
        Value::Int(0) => Ok(Value::Object(more)),
        Value::Object(total) => {
            // Fields stand in the order of their bytes, as CouchDB 3.5 was measured.
            let mut sums: std::collections::BTreeMap<String, Value> = total.into_iter().collect();
            for (name, value) in more {
                let sum = match sums.remove(&name) {
                    Some(total) => add(value, total)?,
                    None => value,
                };
                sums.insert(name, sum);
            }
            Ok(Value::Object(sums.into_iter().collect()))
        }
        _ => Err(refuse(Value::Object(more))),
    }
}

/// What does not fit gives, as in CouchDB, an error about the rest of the total, not about the value.
fn add_arrays(total: Vec<Value>, more: Vec<Value>) -> Result<Value, Failed> {
    let (shared, mut out) = (total.len().min(more.len()), Vec::with_capacity(total.len().max(more.len())));
    for (at, (a, b)) in total.iter().zip(&more).enumerate() {
        if !is_number(a) || !is_number(b) {
            return Err(refuse(Value::Array(total[at..].to_vec())));
        }
        out.push(add_numbers(a, b));
    }
    out.extend(total.into_iter().skip(shared));
    out.extend(more.into_iter().skip(shared));
    Ok(Value::Array(out))
}

/// The sum of two numbers: exact while both are integers.
pub(in crate::index) fn add_numbers(a: &Value, b: &Value) -> Value {
    match (a, b) {
        (Value::Int(x), Value::Int(y)) => match x.checked_add(*y) {
            Some(sum) => Value::Int(sum),
            None => integer(BigInt::from(*x) + BigInt::from(*y)),
        },
        _ => match (big(a), big(b)) {
            (Some(x), Some(y)) => integer(x + y),
            _ => float(as_float(a) + as_float(b)),
        },
    }
}

/// The product of a number with itself.
pub(super) fn square(a: &Value) -> Value {
    match big(a) {
        Some(x) => integer(&x * &x),
        None => float(as_float(a) * as_float(a)),
    }
}

fn big(value: &Value) -> Option<BigInt> {
    match value {
        Value::Int(x) => Some(BigInt::from(*x)),
        Value::Big(x) => Some(x.clone()),
        _ => None,
    }
}

fn integer(x: BigInt) -> Value {
    i64::try_from(&x).map_or_else(|_| Value::Big(x), Value::Int)
}

/// A number as a float; what is none counts as 0.
pub(in crate::index) fn as_float(value: &Value) -> f64 {
    match value {
        Value::Int(x) => *x as f64,
        // Texts of integers always read as floats.
        Value::Big(x) => x.to_string().parse().unwrap_or(f64::MAX),
        Value::Float(x) => *x,
        _ => 0.0,
    }
}

/// JSON has no infinities: sums beyond all floats stay at the greatest.
fn float(x: f64) -> Value {
    Value::Float(if x.is_nan() { 0.0 } else { x.clamp(f64::MIN, f64::MAX) })
}
