//! The parts of an index that can hold the documents of a selector, as several ranges: `$in` and `$or` leave gaps.
//!
//! The values that each column can have are sets of intervals, sorted and apart. Leading columns of single values are
//! combined with those behind them. As in `bounds.rs` a range may hold what does not match, never leave out what does.
//! No two ranges share a key, so that a reader meets no row twice.

use std::cmp::Ordering;

use super::{Bound, Comparison, Condition, Selector};
use crate::collate::{Collation, Collator};
use crate::json::{Object, Value};
use crate::limits::FIND_RANGES_MAX;

/// Keys from `start` to `end` followed by something greater than anything, both included.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysBetween {
    /// The least key: the values of the leading columns as far as they are bounded.
    pub start: Vec<Value>,
    /// The greatest key, without what is behind it.
    pub end: Vec<Value>,
}

/// How ranges are found.
#[derive(Clone, Copy, Debug)]
pub struct RangeRules<'a> {
    /// The order of the index.
    pub collator: &'a Collator,
    /// A planted bug: `$ne` narrows the range, as if it were `$lt`.
    pub narrow_on_ne: bool,
}

impl<'a> RangeRules<'a> {
    /// Without any bug.
    pub fn new(collator: &'a Collator) -> RangeRules<'a> {
        RangeRules { collator, narrow_on_ne: false }
    }
}

/// The values from one bound to another; `None` is no bound.
#[derive(Clone, Debug, PartialEq)]
struct Interval {
    low: Option<Bound>,
    high: Option<Bound>,
}

impl Interval {
    const FULL: Interval = Interval { low: None, high: None };

    fn point(&self) -> Option<&Value> {
        match (&self.low, &self.high) {
            (Some(low), Some(high)) if low.inclusive && high.inclusive && low.value == high.value => Some(&low.value),
            _ => None,
        }
    }
}

fn bound(value: &Value, inclusive: bool) -> Option<Bound> {
    Some(Bound { value: value.clone(), inclusive })
}

fn point(value: &Value) -> Interval {
    Interval { low: bound(value, true), high: bound(value, true) }
}

/// Sets of values of one field, in its order: `_id` goes by code points.
struct Sets<'a> {
    rules: RangeRules<'a>,
    field: &'a str,
    collation: Collation,
}

type Set = Vec<Interval>;

impl Selector {
    /// The parts of an index over these columns, in its ascending order, that can hold matching documents; none when
    /// nothing can match.
    pub fn index_ranges(&self, columns: &[&str], rules: RangeRules<'_>) -> Vec<KeysBetween> {
        let mut sets = Vec::with_capacity(columns.len());
        let mut ranges = 1;
        for column in columns {
            let mut set = Sets::of(column, rules).column(self);
            if set.is_empty() {
                return Vec::new();
            }
            if set.len() * ranges > FIND_RANGES_MAX {
                set = hull(set);
            }
            ranges *= set.len();
            sets.push(set);
        }
        let mut out = Vec::with_capacity(ranges);
        combine(&sets, &mut Vec::new(), &mut out);
        out
    }
}

/// From the first low to the last high.
fn hull(mut set: Set) -> Set {
    let high = set.pop().map(|last| (last.high, last.low));
    match (set.into_iter().next(), high) {
        (Some(first), Some((high, _))) => vec![Interval { low: first.low, high }],
        (None, Some((high, low))) => vec![Interval { low, high }],
        (_, None) => Vec::new(),
    }
}

fn combine(sets: &[Set], prefix: &mut Vec<Value>, out: &mut Vec<KeysBetween>) {
    let Some((first, rest)) = sets.split_first() else {
        out.push(KeysBetween { start: prefix.clone(), end: prefix.clone() });
        return;
    };
    for interval in first {
        match interval.point() {
            Some(value) => {
                prefix.push(value.clone());
                combine(rest, prefix, out);
                prefix.pop();
            }
            None => {
                let behind = |pick: fn(&Set) -> Option<Value>| rest.iter().map_while(pick);
                let (mut start, mut end) = (prefix.clone(), prefix.clone());
                if let Some(low) = &interval.low {
                    start.push(low.value.clone());
                    start.extend(behind(|set| Some(set.first()?.low.as_ref()?.value.clone())));
                }
                if let Some(high) = &interval.high {
                    end.push(high.value.clone());
                    end.extend(behind(|set| Some(set.last()?.high.as_ref()?.value.clone())));
                }
                out.push(KeysBetween { start, end });
            }
        }
    }
}

impl<'a> Sets<'a> {
    fn of(field: &'a str, rules: RangeRules<'a>) -> Sets<'a> {
        let collation = if field == "_id" { Collation::Raw } else { rules.collator.collation() };
        Sets { rules, field, collation }
    }

    /// The set of a column: in the order of the index, which sorts ids by collation, too.
    fn column(&self, selector: &Selector) -> Set {
        let set = self.selector(selector);
        if self.field != "_id" {
            return set;
        }
        let points: Option<Vec<Interval>> = set.iter().map(|interval| interval.point().map(point)).collect();
        match points {
            Some(points) => {
                let by_index = Sets { collation: self.rules.collator.collation(), ..Sets::of(self.field, self.rules) };
                by_index.union(points)
            }
            None => vec![Interval::FULL],
        }
    }

    fn selector(&self, selector: &Selector) -> Set {
        match selector {
            Selector::And(all) => {
                let sets = all.iter().map(|one| self.selector(one));
                sets.fold(vec![Interval::FULL], |both, set| self.intersection(&both, &set))
            }
            Selector::Or(all) if !all.is_empty() => self.union(all.iter().flat_map(|one| self.selector(one)).collect()),
            Selector::Field(path, condition) if path.as_str() == self.field => self.condition(condition),
            _ => vec![Interval::FULL],
        }
    }

    fn condition(&self, condition: &Condition) -> Set {
        match condition {
            Condition::Compare(comparison, value) => self.comparison(*comparison, value),
            Condition::In(values) => {
                let mut set: Set = values.iter().map(point).collect();
                if self.field == "_id" {
                    set.retain(|interval| interval.point().is_some_and(|value| value.as_str().is_some()));
                } else if !set.is_empty() {
                    // An array is looked into: any may have one of the values.
                    let (low, high) = (Value::Array(Vec::new()), Value::Object(Object::new()));
                    set.push(Interval { low: bound(&low, true), high: bound(&high, false) });
                }
                self.union(set)
            }
            Condition::BeginsWith(prefix) => match super::bounds::of_prefix(prefix) {
                Some((low, high)) => vec![Interval { low: Some(low), high: Some(high) }],
                None => vec![Interval::FULL],
            },
            _ => vec![Interval::FULL],
        }
    }

    fn comparison(&self, comparison: Comparison, value: &Value) -> Set {
        let (low, high) = match comparison {
            Comparison::Lt => (None, bound(value, false)),
            Comparison::Lte => (None, bound(value, true)),
            Comparison::Eq => (bound(value, true), bound(value, true)),
            Comparison::Gte => (bound(value, true), None),
            Comparison::Gt => (bound(value, false), None),
            Comparison::Ne if self.rules.narrow_on_ne => (None, bound(value, false)),
            Comparison::Ne => (None, None),
        };
        vec![Interval { low, high }]
    }

    fn order(&self, a: &Bound, b: &Bound) -> Ordering {
        self.rules.collator.compare_by(self.collation, &a.value, &b.value)
    }

    /// The order of two lower bounds: which lets less in.
    fn lows(&self, a: &Option<Bound>, b: &Option<Bound>) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (None, _) => Ordering::Less,
            (_, None) => Ordering::Greater,
            (Some(a), Some(b)) => self.order(a, b).then(b.inclusive.cmp(&a.inclusive)),
        }
    }

    /// The order of two upper bounds: which lets more in.
    fn highs(&self, a: &Option<Bound>, b: &Option<Bound>) -> Ordering {
        match (a, b) {
            (None, None) => Ordering::Equal,
            (None, _) => Ordering::Greater,
            (_, None) => Ordering::Less,
            (Some(a), Some(b)) => self.order(a, b).then(a.inclusive.cmp(&b.inclusive)),
        }
    }

    fn is_empty(&self, interval: &Interval) -> bool {
        let (Some(low), Some(high)) = (&interval.low, &interval.high) else { return false };
        match self.order(low, high) {
            Ordering::Less => false,
            Ordering::Equal => !(low.inclusive && high.inclusive),
            Ordering::Greater => true,
        }
    }

    fn intersection(&self, a: &Set, b: &Set) -> Set {
        let (mut at_a, mut at_b, mut out) = (0, 0, Vec::new());
        while let (Some(one), Some(other)) = (a.get(at_a), b.get(at_b)) {
            let low = if self.lows(&one.low, &other.low).is_lt() { &other.low } else { &one.low };
            let ends_first = self.highs(&one.high, &other.high).is_lt();
            let high = if ends_first { &one.high } else { &other.high };
            let both = Interval { low: low.clone(), high: high.clone() };
            if !self.is_empty(&both) {
                out.push(both);
            }
            if ends_first { at_a += 1 } else { at_b += 1 }
        }
        out
    }

    /// Joins intervals that overlap or touch: keys have no open bounds, so that touching ones share a key.
    fn union(&self, mut all: Set) -> Set {
        all.retain(|interval| !self.is_empty(interval));
        all.sort_by(|a, b| self.lows(&a.low, &b.low));
        let mut out: Set = Vec::with_capacity(all.len());
        for next in all {
            match out.last_mut() {
                Some(last) if self.touches(last, &next) => {
                    if self.highs(&last.high, &next.high).is_lt() {
                        last.high = next.high;
                    }
                }
                _ => out.push(next),
            }
        }
        if out.len() > FIND_RANGES_MAX { hull(out) } else { out }
    }

    /// Whether the second begins before the first is over.
    fn touches(&self, first: &Interval, second: &Interval) -> bool {
        match (&first.high, &second.low) {
            (Some(high), Some(low)) => self.order(high, low).is_ge(),
            _ => true,
        }
    }
}
