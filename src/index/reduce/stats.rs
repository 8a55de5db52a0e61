//! `_stats`: sum, count, least, greatest and sum of squares of numbers, of arrays by position, of earlier results.

use serde::{Deserialize, Serialize};

use super::InvalidValue;
use super::sum::{add_numbers, is_number, square};
use crate::document::collate::Collator;
use crate::document::json::{Object, Value};
use crate::document::selector::{erlang_pretty, erlang_term, erlang_text};

/// Statistics under way.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats(Option<Shape>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    One(Figures),
    Each(Vec<Figures>),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Figures {
    sum: Value,
    count: Value,
    min: Value,
    max: Value,
    sumsqr: Value,
}

fn shown(value: &Value) -> String {
    String::from_utf8_lossy(&value.to_vec()).into_owned()
}

impl Figures {
    fn of_number(value: &Value) -> Figures {
        let (sum, min, max) = (value.clone(), value.clone(), value.clone());
        Figures { sum, count: Value::Int(1), min, max, sumsqr: square(value) }
    }

    fn of(value: &Value) -> Result<Figures, InvalidValue> {
        match value {
            number if is_number(number) => Ok(Figures::of_number(number)),
            Value::Object(given) => Figures::of_object(given),
            other => Err(InvalidValue { reason: format!("non-numeric _stats input: {}", erlang_term(other)) }),
        }
    }

    /// A result made elsewhere; other fields are dropped.
    fn of_object(given: &Object) -> Result<Figures, InvalidValue> {
        let field = |name: &str| match given.get(name) {
            Some(number) if is_number(number) => Ok(number.clone()),
            Some(other) => {
                let other = erlang_term(other);
                Err(InvalidValue { reason: format!("non-numeric _stats input received for {name}: {other}") })
            }
            None => {
                // CouchDB prints the members without the braces of an object.
                let given = erlang_pretty(&Value::Object(given.clone()));
                let given = given.trim_start_matches('{').trim_end_matches('}');
                Err(InvalidValue { reason: format!("user _stats input missing required field {name} ({given})") })
            }
        };
        Ok(Figures {
            sum: field("sum")?,
            count: field("count")?,
            min: field("min")?,
            max: field("max")?,
            sumsqr: field("sumsqr")?,
        })
    }

    fn add(&mut self, more: Figures) {
        self.sum = add_numbers(&self.sum, &more.sum);
        self.count = add_numbers(&self.count, &more.count);
        self.sumsqr = add_numbers(&self.sumsqr, &more.sumsqr);
        if less(&more.min, &self.min) {
            self.min = more.min;
        }
        if less(&self.max, &more.max) {
            self.max = more.max;
        }
    }

    fn finish(self) -> Value {
        let mut out = Object::new();
        out.push("sum", self.sum);
        out.push("count", self.count);
        out.push("min", self.min);
        out.push("max", self.max);
        out.push("sumsqr", self.sumsqr);
        Value::Object(out)
    }
}

const WANTED: &str = "The _stats function requires that map values be numbers or arrays of numbers";

/// What is no figure, or the first such in an array, as CouchDB prints what comes behind figures.
fn strange(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(erlang_text(text)),
        Value::Null | Value::Bool(_) => Some(erlang_term(value)),
        Value::Array(values) => values.iter().find_map(strange),
        _ => None,
    }
}

fn less(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) => a < b,
        (Value::Float(a), Value::Float(b)) => a < b,
        // Exact for integers of any size beside floats; rare enough to pay for a collator.
        _ => Collator::new().compare(a, b).is_lt(),
    }
}

impl Stats {
    /// Adds a value.
    ///
    /// # Errors
    /// [`InvalidValue`] unless it is a number, an array of such or a result, of the same shape as those before.
    pub fn add(&mut self, value: &Value) -> Result<(), InvalidValue> {
        let more = match value {
            Value::Array(values) => values.iter().map(Figures::of).collect::<Result<_, _>>().map(Shape::Each),
            one => Figures::of(one).map(Shape::One),
        };
        let more = more.map_err(|refused| match strange(value).filter(|_| self.0.is_some()) {
            Some(strange) => InvalidValue { reason: format!("{WANTED}, not '{strange}'") },
            None => refused,
        })?;
        self.take(more, || shown(value))
    }

    /// Adds the statistics of other values.
    ///
    /// # Errors
    /// As [`Stats::add`].
    pub fn merge(&mut self, more: &Stats) -> Result<(), InvalidValue> {
        let Some(shape) = &more.0 else { return Ok(()) };
        self.take(shape.clone(), || shown(&more.clone().finish()))
    }

    fn take(&mut self, more: Shape, told: impl Fn() -> String) -> Result<(), InvalidValue> {
        match (&mut self.0, more) {
            (none @ None, more) => *none = Some(more),
            (Some(Shape::One(total)), Shape::One(more)) => total.add(more),
            (Some(Shape::Each(total)), Shape::Each(more)) if total.len() == more.len() => {
                total.iter_mut().zip(more).for_each(|(total, more)| total.add(more));
            }
            (Some(Shape::Each(_)), Shape::Each(_)) => {
                return Err(InvalidValue { reason: format!("{WANTED} of one length, not '{}'", told()) });
            }
            _ => return Err(InvalidValue { reason: format!("{WANTED}, not '{}'", told()) }),
        }
        Ok(())
    }

    /// The statistics of at least one value.
    pub fn finish(self) -> Value {
        match self.0 {
            None => Value::Null,
            Some(Shape::One(figures)) => figures.finish(),
            Some(Shape::Each(each)) => Value::Array(each.into_iter().map(Figures::finish).collect()),
        }
    }
}
