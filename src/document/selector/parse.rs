//! From JSON to the normal form, in the three steps whose order decides which of several errors is told: operators and
//! their arguments, then paths, then negations; names of fields last.

use super::cost::terms_of_text;
use super::error::SelectorError;
use super::path::FieldPath;
use super::pattern::Pattern;
use super::{Comparison, Condition, Quantifier, Selector};
use crate::json::{Object, Value};
use crate::limits::{SELECTOR_PATH_BYTES, SELECTOR_PATTERNS, SELECTOR_TERMS_MAX};

/// A selector whose operators are understood, with fields still nested.
enum Raw {
    And(Vec<Raw>),
    Or(Vec<Raw>),
    Nor(Vec<Raw>),
    Not(Box<Raw>),
    /// A condition on the value of the path so far.
    Terminal(Condition),
    /// Conditions that need paths of their own, on parts of the value of the path so far.
    Each(Quantifier, Box<Raw>),
    /// `$text`, or `$default` with what it holds: allowed at the top only.
    Default(Value),
    Field(String, Box<Raw>),
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// As CouchDB 3.5 was measured to refuse, in that order; and beyond the limits on patterns and lengths of paths.
    pub fn parse(value: &Value) -> Result<Selector, SelectorError> {
        let Value::Object(object) = value else { return Err(SelectorError::not_an_object(value)) };
        if object.is_empty() {
            return Ok(Selector::Everything);
        }
        if terms_of_text(value) > SELECTOR_TERMS_MAX {
            return Err(SelectorError::too_long());
        }
        let raw = Operators { patterns: 0 }.object(object)?;
        let nested = Paths { bytes: 0 }.flatten(raw, "")?;
        let selector = push_negations_down(nested)?;
        if matches!(&selector, Selector::Field(path, _) if path.as_str().is_empty()) {
            return Err(SelectorError::missing_field_name());
        }
        check_names(&selector)?;
        Ok(selector)
    }
}

/// The first step.
struct Operators {
    patterns: usize,
}

impl Operators {
    /// A selector, or the condition of a field; whatever is no object with members means equality.
    fn any(&mut self, value: &Value) -> Result<Raw, SelectorError> {
        match value {
            Value::Object(object) if !object.is_empty() => self.object(object),
            value => Ok(Raw::Terminal(Condition::Compare(Comparison::Eq, value.clone()))),
        }
    }

    fn object(&mut self, object: &Object) -> Result<Raw, SelectorError> {
        let mut members = object.iter().map(|(name, value)| self.member(name, value)).collect::<Result<Vec<_>, _>>()?;
        match members.pop() {
            Some(only) if members.is_empty() => Ok(only),
            last => {
                members.extend(last);
                Ok(Raw::And(members))
            }
        }
    }

    fn member(&mut self, name: &str, value: &Value) -> Result<Raw, SelectorError> {
        let bad = || SelectorError::bad_argument(name, value);
        let list = || value.as_array().ok_or_else(bad);
        let selector = || value.as_object().map(|_| value).ok_or_else(bad);
        Ok(match name {
            "$and" => Raw::And(self.all(list()?)?),
            "$or" => Raw::Or(self.all(list()?)?),
            "$nor" => Raw::Nor(self.all(list()?)?),
            "$not" => Raw::Not(Box::new(self.any(selector()?)?)),
            "$elemMatch" | "$allMatch" | "$keyMapMatch" => {
                let inner = Box::new(self.any(selector()?)?);
                Quantifier::named(name).map(|quantifier| Raw::Each(quantifier, inner)).ok_or_else(bad)?
            }
            "$text" => match value {
                Value::String(_) | Value::Bool(_) | Value::Int(_) | Value::Big(_) | Value::Float(_) => {
                    Raw::Default(Value::Object([("$text".to_owned(), value.clone())].into_iter().collect()))
                }
                _ => return Err(bad()),
            },
            "$default" => Raw::Default(value.clone()),
            "$where" | "$geoWithin" | "$geoIntersects" | "$near" | "$nearSphere" => {
                return Err(SelectorError::not_supported(name));
            }
            name if name.starts_with('$') => Raw::Terminal(self.condition(name, value)?),
            name => Raw::Field(name.to_owned(), Box::new(self.any(value)?)),
        })
    }

    fn all(&mut self, values: &[Value]) -> Result<Vec<Raw>, SelectorError> {
        values.iter().map(|value| self.any(value)).collect()
    }

    fn condition(&mut self, name: &str, value: &Value) -> Result<Condition, SelectorError> {
        if let Some(comparison) = Comparison::named(name) {
            return Ok(Condition::Compare(comparison, value.clone()));
        }
        let bad = || SelectorError::bad_argument(name, value);
        let condition = match (name, value) {
            ("$in", Value::Array(values)) => Condition::In(values.clone()),
            ("$nin", Value::Array(values)) => Condition::Nin(values.clone()),
            ("$all", Value::Array(values)) => Condition::All(values.clone()),
            ("$exists", Value::Bool(wanted)) => Condition::Exists(*wanted),
            ("$type", Value::String(name)) => Condition::Type(name.clone()),
            ("$size", value) if is_natural(value) => Condition::Size(value.clone()),
            ("$mod", Value::Array(pair)) => match pair.as_slice() {
                [divisor, remainder] if is_integer(divisor) && is_integer(remainder) && *divisor != Value::Int(0) => {
                    Condition::Mod(divisor.clone(), remainder.clone())
                }
                _ => return Err(bad()),
            },
            ("$regex", Value::String(text)) => {
                self.patterns += 1;
                if self.patterns > SELECTOR_PATTERNS {
                    return Err(SelectorError::too_large("regular expressions"));
                }
                Condition::Regex(Pattern::new(text).ok_or_else(bad)?)
            }
            ("$beginsWith", Value::String(prefix)) => Condition::BeginsWith(prefix.clone()),
            ("$in" | "$nin" | "$all" | "$exists" | "$type" | "$size" | "$mod", _) => return Err(bad()),
            _ => return Err(SelectorError::invalid_operator(name)),
        };
        Ok(condition)
    }
}

fn is_integer(value: &Value) -> bool {
    matches!(value, Value::Int(_) | Value::Big(_))
}

fn is_natural(value: &Value) -> bool {
    match value {
        Value::Int(value) => *value >= 0,
        Value::Big(value) => value.sign() != num_bigint::Sign::Minus,
        _ => false,
    }
}

/// The second step.
struct Paths {
    /// Of all paths written so far.
    bytes: usize,
}

impl Paths {
    fn flatten(&mut self, raw: Raw, path: &str) -> Result<Selector, SelectorError> {
        Ok(match raw {
            Raw::And(all) => Selector::And(self.each(all, path)?),
            Raw::Or(all) => Selector::Or(self.each(all, path)?),
            Raw::Nor(all) => Selector::Nor(self.each(all, path)?),
            Raw::Not(inner) => Selector::Not(Box::new(self.flatten(*inner, path)?)),
            Raw::Terminal(condition) => Selector::Field(self.path(path)?, condition),
            Raw::Each(quantifier, inner) => {
                let inner = Box::new(self.flatten(*inner, "")?);
                Selector::Field(self.path(path)?, Condition::Each(quantifier, inner))
            }
            Raw::Default(value) => match text_of(&value) {
                Some(text) if path.is_empty() => Selector::Text(text),
                _ => return Err(SelectorError::bad_field(&default_object(value))),
            },
            Raw::Field(name, inner) if path.is_empty() => self.flatten(*inner, &name)?,
            Raw::Field(name, inner) => {
                let longer = format!("{path}.{name}");
                self.count(longer.len())?;
                self.flatten(*inner, &longer)?
            }
        })
    }

    fn each(&mut self, all: Vec<Raw>, path: &str) -> Result<Vec<Selector>, SelectorError> {
        all.into_iter().map(|raw| self.flatten(raw, path)).collect()
    }

    fn path(&mut self, text: &str) -> Result<FieldPath, SelectorError> {
        self.count(text.len())?;
        Ok(FieldPath::of(text.to_owned()))
    }

    /// A long name above many conditions would be copied for each of them.
    fn count(&mut self, bytes: usize) -> Result<(), SelectorError> {
        self.bytes += bytes;
        if self.bytes > SELECTOR_PATH_BYTES { Err(SelectorError::too_large("field names")) } else { Ok(()) }
    }
}

/// The argument of `$text` when it is the only member.
fn text_of(value: &Value) -> Option<Value> {
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get("$text").cloned()
}

fn default_object(value: Value) -> Value {
    Value::Object([("$default".to_owned(), value)].into_iter().collect())
}

/// The third step, for what is not within a quantifier.
fn push_negations_down(selector: Selector) -> Result<Selector, SelectorError> {
    Ok(match selector {
        Selector::Not(inner) => negate(*inner)?,
        Selector::Nor(all) => Selector::And(map(all, negate)?),
        Selector::And(all) => Selector::And(map(all, push_negations_down)?),
        Selector::Or(all) => Selector::Or(map(all, push_negations_down)?),
        other => other,
    })
}

fn negate(selector: Selector) -> Result<Selector, SelectorError> {
    Ok(match selector {
        Selector::Not(inner) => push_negations_down(*inner)?,
        Selector::Nor(all) => Selector::Or(map(all, push_negations_down)?),
        Selector::And(all) => Selector::Or(map(all, negate)?),
        Selector::Or(all) => Selector::And(map(all, negate)?),
        Selector::Field(path, condition) => Selector::Field(path, opposite(condition)),
        Selector::Text(text) => {
            let text = Value::Object([("$text".to_owned(), text)].into_iter().collect());
            return Err(SelectorError::bad_argument("$not", &default_object(text)));
        }
        // Not below another selector: the parser makes it for the whole only.
        Selector::Everything => Selector::Everything,
    })
}

fn map(
    all: Vec<Selector>,
    each: fn(Selector) -> Result<Selector, SelectorError>,
) -> Result<Vec<Selector>, SelectorError> {
    all.into_iter().map(each).collect()
}

fn opposite(condition: Condition) -> Condition {
    match condition {
        Condition::Compare(comparison, value) => Condition::Compare(comparison.opposite(), value),
        Condition::In(values) => Condition::Nin(values),
        Condition::Nin(values) => Condition::In(values),
        Condition::Exists(wanted) => Condition::Exists(!wanted),
        other => Condition::Not(Box::new(other)),
    }
}

/// Refuses paths with empty steps, also within quantifiers. The empty path is fine here: it means the value itself.
fn check_names(selector: &Selector) -> Result<(), SelectorError> {
    match selector {
        Selector::And(all) | Selector::Or(all) | Selector::Nor(all) => all.iter().try_for_each(check_names),
        Selector::Not(inner) => check_names(inner),
        Selector::Field(path, _) if path.has_empty_step() => Err(SelectorError::invalid_field_name(path.as_str())),
        Selector::Field(_, condition) => check_condition(condition),
        Selector::Everything | Selector::Text(_) => Ok(()),
    }
}

fn check_condition(condition: &Condition) -> Result<(), SelectorError> {
    match condition {
        Condition::Each(_, inner) => check_names(inner),
        Condition::Not(inner) => check_condition(inner),
        _ => Ok(()),
    }
}
