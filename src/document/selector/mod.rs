//! Selectors: conditions on documents, written as JSON (CouchDB documentation, 'Selector syntax').
//!
//! [`Selector::parse`] reads one, refusing what CouchDB 3.5 was measured to refuse with the same words, and brings it
//! into the normal form that `_explain` shows: every comparison explicit, paths dotted, negations pushed down.
//! [`Selector::matches`] matches a value. Everything here is pure: queries, feeds, the replicator and partial indexes
//! share it.

mod bounds;
mod cost;
mod digest;
mod erlang_term;
mod error;
mod fields;
mod matching;
mod parse;
mod path;
mod pattern;
mod print;
mod ranges;
mod subject;
#[cfg(test)]
mod tests;

pub use bounds::{Bound, FieldRange, IndexRange};
pub use erlang_term::{erlang_pretty, erlang_string, erlang_term, erlang_text};
pub use error::{SelectorError, SelectorErrorKind};
pub use fields::Fields;
pub use path::{FieldPath, Found};
pub use pattern::Pattern;
pub use ranges::{KeysBetween, RangeRules};
pub use subject::{Seen, StoredDocument, Subject, document_value};

use super::json::Value;

/// A selector in normal form.
#[derive(Clone, Debug, PartialEq)]
pub enum Selector {
    /// `{}`: every document.
    Everything,
    /// All of these hold; of none of them, that holds too.
    And(Vec<Selector>),
    /// One of these holds; of none of them, that holds too (as CouchDB 3.5 was measured).
    Or(Vec<Selector>),
    /// This does not hold. Stays only below [`Condition::Each`]; elsewhere negations are pushed down.
    Not(Box<Selector>),
    /// None of these holds. Stays only below [`Condition::Each`].
    Nor(Vec<Selector>),
    /// The value at a path exists and meets a condition. The empty path is the value itself.
    Field(FieldPath, Condition),
    /// `$text`: a full text query, left to an index.
    Text(Value),
}

/// What the value of a field must meet.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Its place relative to another value.
    Compare(Comparison, Value),
    /// It, or one of its elements if it is an array, equals one of these.
    In(Vec<Value>),
    /// Neither it nor, if it is an array, one of its elements equals one of these.
    Nin(Vec<Value>),
    /// Whether there is one at all.
    Exists(bool),
    /// The name of its type; names of no type match nothing.
    Type(String),
    /// It is an array of so many elements: an integer of at least 0.
    Size(Value),
    /// It is an integer that leaves this remainder (second) when divided by the first: integers, the first not 0.
    Mod(Value, Value),
    /// It is a string in which the pattern is found.
    Regex(Pattern),
    /// It is a string that begins so.
    BeginsWith(String),
    /// It is an array that has all of these as elements, or equals the only one of them.
    All(Vec<Value>),
    /// Of its elements or keys, some or all meet a selector.
    Each(Quantifier, Box<Selector>),
    /// It does not meet what has no opposite.
    Not(Box<Condition>),
}

/// A comparison by collation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `$lt`
    Lt,
    /// `$lte`
    Lte,
    /// `$eq`
    Eq,
    /// `$ne`
    Ne,
    /// `$gte`
    Gte,
    /// `$gt`
    Gt,
}

/// Which parts of a value a selector is applied to, and how many must meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantifier {
    /// `$elemMatch`: at least one element of an array.
    Elem,
    /// `$allMatch`: all elements of an array that has some.
    All,
    /// `$keyMapMatch`: at least one key of an object.
    Key,
}

impl Comparison {
    const ALL: [(&'static str, Comparison); 6] = [
        ("$lt", Comparison::Lt),
        ("$lte", Comparison::Lte),
        ("$eq", Comparison::Eq),
        ("$ne", Comparison::Ne),
        ("$gte", Comparison::Gte),
        ("$gt", Comparison::Gt),
    ];

    fn named(operator: &str) -> Option<Comparison> {
        Comparison::ALL.iter().find(|(name, _)| *name == operator).map(|(_, comparison)| *comparison)
    }

    /// Its operator.
    pub fn operator(self) -> &'static str {
        // Invariant: the table has all of them.
        Comparison::ALL.iter().find(|(_, comparison)| *comparison == self).expect("in the table").0
    }

    fn opposite(self) -> Comparison {
        match self {
            Comparison::Lt => Comparison::Gte,
            Comparison::Lte => Comparison::Gt,
            Comparison::Eq => Comparison::Ne,
            Comparison::Ne => Comparison::Eq,
            Comparison::Gte => Comparison::Lt,
            Comparison::Gt => Comparison::Lte,
        }
    }
}

impl Quantifier {
    fn named(operator: &str) -> Option<Quantifier> {
        match operator {
            "$elemMatch" => Some(Quantifier::Elem),
            "$allMatch" => Some(Quantifier::All),
            "$keyMapMatch" => Some(Quantifier::Key),
            _ => None,
        }
    }

    /// Its operator.
    pub fn operator(self) -> &'static str {
        match self {
            Quantifier::Elem => "$elemMatch",
            Quantifier::All => "$allMatch",
            Quantifier::Key => "$keyMapMatch",
        }
    }
}
