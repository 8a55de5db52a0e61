//! `group_by` and `aggregate`, an extension of `_find`: figures of groups of documents instead of documents.
//!
//! ```text
//!   {"selector": {..}, "group_by": ["city"], "aggregate": {"total": {"sum": "price"}, "n": {"count": true}}}
//!   {"groups": [{"key": ["Berlin"], "value": {"total": 12, "n": 3}}]}
//! ```
//!
//! Documents without a field of `group_by` count as having null there. `sum`, `avg` and `stats` heed numbers only,
//! `min` and `max` all values, by collation; `count` counts documents, or those that have a field. Groups come in the
//! order of their keys; `limit` and `skip` are of groups.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::MangoError;
use crate::document::collate::Collator;
use crate::document::json::{JsonError, Object, Value};
use crate::document::selector::{FieldPath, Seen, Subject};
use crate::index::reduce::{Stats, add_numbers, as_float, is_number};
use crate::limits;

/// What is made of the values of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    Sum,
    Min,
    Max,
    Avg,
    Count,
    Stats,
}

/// A figure of each group.
#[derive(Clone, Debug, PartialEq)]
struct Aggregate {
    name: String,
    function: Function,
    /// `None`: of the documents themselves.
    field: Option<FieldPath>,
}

/// How documents are grouped, and what is told of each group.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupBy {
    fields: Vec<FieldPath>,
    aggregates: Vec<Aggregate>,
}

/// A figure under way.
enum Figure {
    Count(u64),
    Sum(Value),
    Extreme(Option<Value>),
    Avg(Value, u64),
    Stats(Stats),
}

struct Group {
    key: Value,
    figures: Vec<Figure>,
}

/// The groups of the documents added so far.
pub struct Groups {
    by: GroupBy,
    collator: Collator,
    groups: BTreeMap<Vec<u8>, Group>,
}

impl GroupBy {
    /// Reads the members `group_by` and `aggregate` of a query; `None` when it has neither.
    ///
    /// # Errors
    /// `invalid_group_by`, `invalid_aggregate`.
    pub fn parse(body: &Object) -> Result<Option<GroupBy>, MangoError> {
        let fields = match body.get("group_by") {
            None if !body.contains("aggregate") => return Ok(None),
            None => Vec::new(),
            Some(Value::String(name)) => vec![path(name)?],
            Some(Value::Array(names)) => {
                let refused =
                    || MangoError::about("invalid_group_by", "Invalid group_by: ", &Value::Array(names.clone()));
                names.iter().map(|name| path(name.as_str().ok_or_else(refused)?)).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(MangoError::about("invalid_group_by", "Invalid group_by: ", other)),
        };
        let aggregates = match body.get("aggregate") {
            None => vec![Aggregate { name: "count".to_owned(), function: Function::Count, field: None }],
            Some(Value::Object(all)) => {
                all.iter().map(|(name, value)| Aggregate::parse(name, value)).collect::<Result<_, _>>()?
            }
            Some(other) => return Err(MangoError::about("invalid_aggregate", "Invalid aggregate: ", other)),
        };
        Ok(Some(GroupBy { fields, aggregates }))
    }

    /// The fields that it looks at.
    pub fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.fields.iter().chain(self.aggregates.iter().filter_map(|aggregate| aggregate.field.as_ref()))
    }
}

fn path(name: &str) -> Result<FieldPath, MangoError> {
    match name {
        "" => Err(MangoError::new("invalid_group_by", "A field must have a name.")),
        name => Ok(FieldPath::parse(name)?),
    }
}

impl Aggregate {
    fn parse(name: &str, value: &Value) -> Result<Aggregate, MangoError> {
        let refused = || MangoError::about("invalid_aggregate", "Invalid aggregate: ", value);
        let members = value.as_object().filter(|members| members.len() == 1).ok_or_else(refused)?;
        let (function, field) = members.iter().next().ok_or_else(refused)?;
        let function = match function {
            "sum" => Function::Sum,
            "min" => Function::Min,
            "max" => Function::Max,
            "avg" => Function::Avg,
            "count" => Function::Count,
            "stats" => Function::Stats,
            _ => return Err(refused()),
        };
        let field = match field {
            Value::Bool(true) if function == Function::Count => None,
            Value::String(name) => Some(path(name)?),
            _ => return Err(refused()),
        };
        Ok(Aggregate { name: name.to_owned(), function, field })
    }
}

impl Figure {
    fn new(function: Function) -> Figure {
        match function {
            Function::Count => Figure::Count(0),
            Function::Sum => Figure::Sum(Value::Int(0)),
            Function::Min | Function::Max => Figure::Extreme(None),
            Function::Avg => Figure::Avg(Value::Int(0), 0),
            Function::Stats => Figure::Stats(Stats::default()),
        }
    }

    fn add(&mut self, function: Function, value: Cow<'_, Value>, collator: &Collator) {
        match self {
            Figure::Count(count) => *count += 1,
            Figure::Extreme(best) => {
                let better = match best {
                    None => true,
                    Some(best) if function == Function::Min => collator.compare(&value, best).is_lt(),
                    Some(best) => collator.compare(&value, best).is_gt(),
                };
                if better {
                    *best = Some(value.into_owned());
                }
            }
            _ if !is_number(&value) => {}
            Figure::Sum(sum) => *sum = add_numbers(sum, &value),
            Figure::Avg(sum, count) => (*sum, *count) = (add_numbers(sum, &value), *count + 1),
            // Invariant: numbers always fit.
            Figure::Stats(stats) => stats.add(&value).expect("a number"),
        }
    }

    fn finish(self) -> Value {
        match self {
            Figure::Count(count) => Value::from(count),
            Figure::Sum(sum) => sum,
            Figure::Extreme(best) => best.unwrap_or(Value::Null),
            Figure::Avg(_, 0) => Value::Null,
            Figure::Avg(sum, count) => Value::Float(as_float(&sum) / count as f64),
            Figure::Stats(stats) => stats.finish(),
        }
    }
}

impl Groups {
    /// None yet.
    pub fn new(by: &GroupBy, collator: &Collator) -> Groups {
        Groups { by: by.clone(), collator: collator.clone(), groups: BTreeMap::new() }
    }

    /// Takes a document in.
    ///
    /// # Errors
    /// What is stored is damaged.
    pub fn add(&mut self, document: &(impl Subject + ?Sized)) -> Result<(), JsonError> {
        let mut key = Vec::with_capacity(self.by.fields.len());
        for path in &self.by.fields {
            key.push(match document.see(path)? {
                Seen::Value(value) => value.into_owned(),
                Seen::Absent | Seen::NoPath => Value::Null,
            });
        }
        let (key, mut mark) = (Value::Array(key), Vec::new());
        self.collator.sort_key(&key, &mut mark);
        let aggregates = &self.by.aggregates;
        let new = || Group { key, figures: aggregates.iter().map(|one| Figure::new(one.function)).collect() };
        let group = self.groups.entry(mark).or_insert_with(new);
        for (aggregate, figure) in aggregates.iter().zip(&mut group.figures) {
            let value = match &aggregate.field {
                None => Seen::Value(Cow::Owned(Value::Null)),
                Some(path) => document.see(path)?,
            };
            if let Seen::Value(value) = value {
                figure.add(aggregate.function, value, &self.collator);
            }
        }
        Ok(())
    }

    /// Whether there are more groups than one query may have.
    pub fn is_too_many(&self) -> bool {
        self.groups.len() > limits::FIND_GROUPS_MAX
    }

    /// The groups in order: `{"key":[..],"value":{..}}`.
    pub fn finish(self) -> impl Iterator<Item = Value> {
        let aggregates = self.by.aggregates;
        self.groups.into_values().map(move |group| {
            let figures = aggregates.iter().zip(group.figures);
            let value: Object = figures.map(|(one, figure)| (one.name.clone(), figure.finish())).collect();
            super::catalogue::object([("key", group.key), ("value", value.into())])
        })
    }
}
