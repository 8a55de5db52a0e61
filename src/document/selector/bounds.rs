//! What the planner asks of a selector: which fields it requires, and which part of an index can hold its documents.
//!
//! Bounds are never narrower than the selector: a range may hold documents that do not match, never leave one out.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use super::{Comparison, Condition, Selector};
use crate::collate::{Collation, Collator};
use crate::json::Value;

/// Behind the prefix of `$beginsWith`: sorts after all that may follow it, but for U+FFFF, which is no character.
const AFTER_ANY_CHARACTER: char = '\u{10ffff}';

/// One end of a range.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// The last value on that side.
    pub value: Value,
    /// Whether it belongs to the range.
    pub inclusive: bool,
}

/// The values that a field may have.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldRange {
    /// None: the conditions contradict each other.
    Empty,
    /// Those from the lower to the upper bound; `None` is no bound.
    Between(Option<Bound>, Option<Bound>),
}

/// The part of an index that can hold the documents of a selector.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexRange {
    /// Nothing can match.
    Empty,
    /// Keys from `start` to `end` followed by `<MAX>` (greater than anything), both included: the values of the leading
    /// columns as far as they are bounded on that side.
    Keys {
        /// The least key.
        start: Vec<Value>,
        /// The greatest key, without the `<MAX>` behind it.
        end: Vec<Value>,
    },
}

impl FieldRange {
    /// Every value.
    pub const FULL: FieldRange = FieldRange::Between(None, None);

    /// The only value, when there is just one.
    pub fn point(&self) -> Option<&Value> {
        match self {
            FieldRange::Between(Some(low), Some(high)) if low == high => Some(&low.value),
            _ => None,
        }
    }

    fn at_least(self, bound: Bound, order: &Order) -> FieldRange {
        let FieldRange::Between(low, high) = self else { return FieldRange::Empty };
        let keep = low.as_ref().is_some_and(|low| match order.of(&low.value, &bound.value) {
            Ordering::Equal => !low.inclusive || bound.inclusive,
            by_value => by_value.is_gt(),
        });
        FieldRange::Between(if keep { low } else { Some(bound) }, high).checked(order)
    }

    fn at_most(self, bound: Bound, order: &Order) -> FieldRange {
        let FieldRange::Between(low, high) = self else { return FieldRange::Empty };
        let keep = high.as_ref().is_some_and(|high| match order.of(&high.value, &bound.value) {
            Ordering::Equal => !high.inclusive || bound.inclusive,
            by_value => by_value.is_lt(),
        });
        FieldRange::Between(low, if keep { high } else { Some(bound) }).checked(order)
    }

    fn checked(self, order: &Order) -> FieldRange {
        if let FieldRange::Between(Some(low), Some(high)) = &self {
            match order.of(&low.value, &high.value) {
                Ordering::Greater => return FieldRange::Empty,
                Ordering::Equal if !(low.inclusive && high.inclusive) => return FieldRange::Empty,
                _ => {}
            }
        }
        self
    }
}

/// The order in which a field's values are bounded: `_id` goes by code points.
struct Order<'a> {
    collator: &'a Collator,
    collation: Collation,
}

impl Order<'_> {
    fn of(&self, a: &Value, b: &Value) -> Ordering {
        self.collator.compare_by(self.collation, a, b)
    }
}

impl Selector {
    /// The fields that every matching document has: those of conditions other than `$exists: false`, of `$or` those in
    /// all branches. Paths as they are written.
    pub fn required_fields(&self) -> BTreeSet<&str> {
        match self {
            Selector::And(all) => all.iter().flat_map(Selector::required_fields).collect(),
            Selector::Or(all) => {
                let mut branches = all.iter().map(Selector::required_fields);
                let first = branches.next().unwrap_or_default();
                branches.fold(first, |common, branch| common.intersection(&branch).copied().collect())
            }
            Selector::Field(path, condition) if *condition != Condition::Exists(false) => [path.as_str()].into(),
            _ => BTreeSet::new(),
        }
    }

    /// Whether every matching document has the field, for the choice of an index: as CouchDB, a `$or` of nothing
    /// requires every field.
    pub fn requires(&self, field: &str) -> bool {
        match self {
            Selector::And(all) => all.iter().any(|part| part.requires(field)),
            Selector::Or(all) => all.iter().all(|branch| branch.requires(field)),
            Selector::Field(path, condition) => path.as_str() == field && *condition != Condition::Exists(false),
            _ => false,
        }
    }

    /// The fields with a condition that an index can use: `$lt $lte $eq $gte $gt $exists $beginsWith`, not below `$or`.
    pub fn indexable_fields(&self) -> BTreeSet<&str> {
        match self {
            Selector::And(all) => all.iter().flat_map(Selector::indexable_fields).collect(),
            Selector::Field(path, condition) if is_indexable(condition) => [path.as_str()].into(),
            _ => BTreeSet::new(),
        }
    }

    /// All fields that it names, but for those within the elements of arrays.
    pub fn fields(&self) -> BTreeSet<&str> {
        match self {
            Selector::And(all) | Selector::Or(all) | Selector::Nor(all) => {
                all.iter().flat_map(Selector::fields).collect()
            }
            Selector::Not(inner) => inner.fields(),
            Selector::Field(path, _) => [path.as_str()].into(),
            Selector::Everything | Selector::Text(_) => BTreeSet::new(),
        }
    }

    /// Whether `$eq` fixes the field, so that a column of it does not disturb a sort by the columns behind it.
    pub fn is_constant(&self, field: &str) -> bool {
        match self {
            Selector::And(all) => all.iter().any(|one| one.is_constant(field)),
            Selector::Field(path, Condition::Compare(Comparison::Eq, _)) => path.as_str() == field,
            _ => false,
        }
    }

    /// Whether `$text` stands somewhere in it.
    pub fn has_text(&self) -> bool {
        match self {
            Selector::Text(_) => true,
            Selector::And(all) | Selector::Or(all) | Selector::Nor(all) => all.iter().any(Selector::has_text),
            Selector::Not(inner) => inner.has_text(),
            Selector::Everything | Selector::Field(..) => false,
        }
    }

    /// Whether it is `$and` or `$or` of nothing: a query by it gives no documents (as CouchDB 3.5 was measured), though
    /// every document matches.
    pub fn is_empty_combination(&self) -> bool {
        matches!(self, Selector::And(all) | Selector::Or(all) if all.is_empty())
    }

    /// The values that a field of a matching document can have; `_id` by code points.
    pub fn field_range(&self, field: &str, collator: &Collator) -> FieldRange {
        let collation = if field == "_id" { Collation::Raw } else { collator.collation() };
        self.narrow(field, FieldRange::FULL, &Order { collator, collation })
    }

    /// The part of an index over these columns, in its ascending order, that can hold matching documents.
    pub fn index_range(&self, columns: &[&str], collator: &Collator) -> IndexRange {
        let (mut start, mut end) = (Vec::new(), Vec::new());
        let (mut start_open, mut end_open) = (true, true);
        for column in columns {
            let FieldRange::Between(mut low, mut high) = self.field_range(column, collator) else {
                return IndexRange::Empty;
            };
            if *column == "_id" && low != high {
                // The index sorts ids by collation, the bounds are by code points.
                (low, high) = (None, None);
            }
            extend(&mut start, &mut start_open, low);
            extend(&mut end, &mut end_open, high);
        }
        IndexRange::Keys { start, end }
    }

    fn narrow(&self, field: &str, range: FieldRange, order: &Order) -> FieldRange {
        match self {
            Selector::And(all) => all.iter().fold(range, |range, one| one.narrow(field, range, order)),
            Selector::Field(path, condition) if path.as_str() == field => condition.narrow(range, order),
            _ => range,
        }
    }
}

impl Condition {
    fn narrow(&self, range: FieldRange, order: &Order) -> FieldRange {
        let bound = |value: &Value, inclusive| Bound { value: value.clone(), inclusive };
        match self {
            Condition::Compare(comparison, value) => match comparison {
                Comparison::Lt => range.at_most(bound(value, false), order),
                Comparison::Lte => range.at_most(bound(value, true), order),
                Comparison::Eq => range.at_least(bound(value, true), order).at_most(bound(value, true), order),
                Comparison::Gte => range.at_least(bound(value, true), order),
                Comparison::Gt => range.at_least(bound(value, false), order),
                Comparison::Ne => range,
            },
            Condition::BeginsWith(prefix) => match of_prefix(prefix) {
                Some((first, last)) => range.at_least(first, order).at_most(last, order),
                None => range,
            },
            _ => range,
        }
    }
}

/// The first and the last text that begin with a prefix; `None` for prefixes that may sort after what begins with them:
/// what follows can join their last character.
pub(super) fn of_prefix(prefix: &str) -> Option<(Bound, Bound)> {
    let last = Value::String(format!("{prefix}{AFTER_ANY_CHARACTER}"));
    let bound = |value| Bound { value, inclusive: true };
    prefix.is_ascii().then(|| (bound(prefix.into()), bound(last)))
}

fn is_indexable(condition: &Condition) -> bool {
    match condition {
        Condition::Compare(comparison, _) => *comparison != Comparison::Ne,
        Condition::Exists(_) | Condition::BeginsWith(_) => true,
        _ => false,
    }
}

/// Adds a column's bound to a key, unless a column before it has none.
fn extend(key: &mut Vec<Value>, open: &mut bool, bound: Option<Bound>) {
    match bound {
        Some(bound) if *open => key.push(bound.value),
        _ => *open = false,
    }
}
