//! Reduce functions over rows that come in the order of a view. Pure but for JavaScript ones, which this module names
//! and does not run.
//!
//! Rows are added in their order, in parts ([`Partial`]) that are put together, so that those of blocks can be kept.
//! Values and errors are those of CouchDB 3.5 as measured (`conformance/cases/views`).

mod distinct;
mod rank;
mod stats;
mod sum;

use serde::{Deserialize, Serialize};

use crate::document::collate::Collator;
use crate::document::json::{self, Object, Value};
use crate::index::record::{Row, RowRef};

pub use distinct::Distinct;
use rank::Ranking;
pub(in crate::index) use stats::Stats;
use sum::Sum;
pub(in crate::index) use sum::{add_numbers, as_float, is_number};

/// A view's reduce function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reduce {
    /// `_sum`
    Sum,
    /// `_count`
    Count,
    /// `_stats`
    Stats,
    /// `_approx_count_distinct`
    Distinct,
    /// `_first`
    First,
    /// `_last`
    Last,
    /// `_top_N`
    Top(usize),
    /// `_bottom_N`
    Bottom(usize),
    /// A function of the design document's language; its source.
    Script(String),
}

/// A built-in reduce function does not take these values: the query fails with 500.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidValue {
    /// What is wrong with which value.
    pub reason: String,
}

impl Reduce {
    /// Reads the text of `views.{name}.reduce`. Built-in names are matched by their beginning (as CouchDB 3.5 was
    /// measured); design documents with unknown ones are refused when they are written.
    pub fn parse(text: &str) -> Reduce {
        let number = |rest: &str| rest.parse().ok().filter(|n| (1..=100).contains(n));
        let ranks = || {
            let top = text.strip_prefix("_top_").and_then(number).map(Reduce::Top);
            top.or_else(|| text.strip_prefix("_bottom_").and_then(number).map(Reduce::Bottom))
        };
        match text {
            _ if text.starts_with("_sum") => Reduce::Sum,
            _ if text.starts_with("_count") => Reduce::Count,
            _ if text.starts_with("_stats") => Reduce::Stats,
            _ if text.starts_with("_approx_count_distinct") => Reduce::Distinct,
            _ if text.starts_with("_first") => Reduce::First,
            _ if text.starts_with("_last") => Reduce::Last,
            _ => ranks().unwrap_or_else(|| Reduce::Script(text.to_owned())),
        }
    }

    /// Names a built-in function in stored records; `None` for scripts.
    pub(in crate::index) fn tag(&self) -> Option<[u8; 2]> {
        let number = |n: &usize| u8::try_from(*n).ok();
        Some(match self {
            Reduce::Sum => [1, 0],
            Reduce::Count => [2, 0],
            Reduce::Stats => [3, 0],
            Reduce::Distinct => [4, 0],
            Reduce::First => [5, 0],
            Reduce::Last => [6, 0],
            Reduce::Top(n) => [7, number(n)?],
            Reduce::Bottom(n) => [8, number(n)?],
            Reduce::Script(_) => return None,
        })
    }

    /// The function of a [`Reduce::tag`].
    pub(in crate::index) fn of_tag(tag: [u8; 2]) -> Option<Reduce> {
        Some(match tag {
            [1, 0] => Reduce::Sum,
            [2, 0] => Reduce::Count,
            [3, 0] => Reduce::Stats,
            [4, 0] => Reduce::Distinct,
            [5, 0] => Reduce::First,
            [6, 0] => Reduce::Last,
            [7, n] => Reduce::Top(n.into()),
            [8, n] => Reduce::Bottom(n.into()),
            _ => return None,
        })
    }

    /// An empty reduction; `None` for scripts.
    pub fn begin(&self, collator: &Collator) -> Option<Reduction> {
        Some(match self {
            Reduce::Sum => Reduction::Sum(Sum::default()),
            Reduce::Count => Reduction::Count(0),
            Reduce::Stats => Reduction::Stats(Stats::default()),
            Reduce::Distinct => Reduction::Distinct(Box::default()),
            Reduce::First => Reduction::One { keep_first: true, best: None },
            Reduce::Last => Reduction::One { keep_first: false, best: None },
            Reduce::Top(n) => Reduction::Ranking(Ranking::highest(*n, collator)),
            Reduce::Bottom(n) => Reduction::Ranking(Ranking::lowest(*n, collator)),
            Reduce::Script(_) => return None,
        })
    }
}

/// A built-in reduction under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reduction {
    /// See `sum.rs`.
    Sum(Sum),
    /// Rows.
    Count(u64),
    /// See `stats.rs`.
    Stats(Stats),
    /// See `distinct.rs`.
    Distinct(Box<Distinct>),
    /// The value of the first or last row, whatever the order in which rows are added.
    One {
        /// Whether the first place counts, or the last.
        keep_first: bool,
        /// The place and the value as JSON text.
        best: Option<(Vec<u8>, bytes::Bytes)>,
    },
    /// See `rank.rs`.
    Ranking(Ranking),
}

/// A stored value; what cannot be read is null (only JSON is stored).
pub fn parsed(text: &[u8]) -> Value {
    json::parse(text).unwrap_or(Value::Null)
}

impl Reduction {
    /// Takes in the next row.
    ///
    /// # Errors
    /// `_stats` takes numbers, arrays of numbers and its own results only.
    pub fn add(&mut self, row: RowRef<'_>) -> Result<(), InvalidValue> {
        match self {
            Reduction::Sum(sum) => sum.add(parsed(row.value)),
            Reduction::Count(count) => *count += 1,
            Reduction::Stats(stats) => stats.add(&parsed(row.value))?,
            Reduction::Distinct(distinct) => distinct.add(row.sort()),
            Reduction::One { keep_first, best } => keep(*keep_first, best, (row.place, row.value)),
            Reduction::Ranking(ranking) => ranking.add(parsed(row.value)),
        }
        Ok(())
    }

    /// Takes in the reduction of other rows by the same function; both must be of at least one row.
    fn merge(&mut self, more: &Reduction) -> Result<(), InvalidValue> {
        match (self, more) {
            (Reduction::Sum(sum), Reduction::Sum(more)) => sum.merge(more),
            (Reduction::Count(count), Reduction::Count(more)) => *count += more,
            (Reduction::Stats(stats), Reduction::Stats(more)) => stats.merge(more)?,
            (Reduction::Distinct(distinct), Reduction::Distinct(more)) => distinct.merge(more),
            (Reduction::One { keep_first, best }, Reduction::One { best: Some((place, value)), .. }) => {
                keep(*keep_first, best, (place, value));
            }
            (Reduction::Ranking(ranking), Reduction::Ranking(more)) => ranking.merge(more),
            _ => {}
        }
        Ok(())
    }

    /// The result of at least one row.
    pub fn finish(self) -> Value {
        match self {
            Reduction::Sum(sum) => sum.finish(),
            Reduction::Count(count) => Value::from(count),
            Reduction::Stats(stats) => stats.finish(),
            Reduction::Distinct(distinct) => Value::from(distinct.count()),
            Reduction::One { best, .. } => best.map_or(Value::Null, |(_, text)| parsed(&text)),
            Reduction::Ranking(ranking) => Value::Array(ranking.finish()),
        }
    }
}

fn keep(first: bool, best: &mut Option<(Vec<u8>, bytes::Bytes)>, (place, value): (&[u8], &[u8])) {
    let better = |own: &[u8]| if first { place < own } else { place > own };
    if best.as_ref().is_none_or(|(own, _)| better(own)) {
        *best = Some((place.to_vec(), bytes::Bytes::copy_from_slice(value)));
    }
}

/// The reduction of some rows, perhaps none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Partial {
    /// How many rows.
    pub rows: u64,
    reduction: Reduction,
}

impl Partial {
    /// Of no rows; `None` for scripts.
    pub fn empty(reduce: &Reduce, collator: &Collator) -> Option<Partial> {
        Some(Partial { rows: 0, reduction: reduce.begin(collator)? })
    }

    /// Of so many rows that are only counted.
    pub(in crate::index) fn of_rows(rows: u64) -> Partial {
        Partial { rows, reduction: Reduction::Count(rows) }
    }

    /// Takes in a row.
    ///
    /// # Errors
    /// As [`Reduction::add`].
    pub fn add(&mut self, row: RowRef<'_>) -> Result<(), InvalidValue> {
        self.rows += 1;
        self.reduction.add(row)
    }

    /// Ends a run of rows. What is kept or put together with others should hold no single rows any more.
    pub fn settle(&mut self) {
        if let Reduction::Sum(sum) = &mut self.reduction {
            sum.settle();
        }
    }

    /// Bytes of a sum that grows with what it is made of; 0 of all other reductions. Of settled rows.
    pub fn bytes(&self) -> usize {
        if let Reduction::Sum(sum) = &self.reduction { sum.bytes() } else { 0 }
    }

    /// Refuses a sum that is too large for the `taken` bytes that it was made of. Of settled rows.
    pub fn bound(&mut self, taken: usize) {
        if let Reduction::Sum(sum) = &mut self.reduction {
            sum.bound(taken);
        }
    }

    /// Takes in other rows, which stand behind these.
    ///
    /// # Errors
    /// As [`Reduction::add`].
    pub fn merge(&mut self, more: &Partial) -> Result<(), InvalidValue> {
        match (self.rows, more.rows) {
            (_, 0) => {}
            (0, _) => *self = more.clone(),
            _ => {
                self.rows += more.rows;
                self.reduction.merge(&more.reduction)?;
            }
        }
        Ok(())
    }

    /// The result of at least one row.
    pub fn finish(self) -> Value {
        self.reduction.finish()
    }
}

/// How rows are put together by their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Grouping {
    /// All rows at once, under the key null.
    All,
    /// Arrays by their first elements, other keys whole.
    Level(usize),
    /// By the whole key.
    Exact,
}

impl Grouping {
    /// What the keys of a group have in common: the bytes that tell groups apart, and the key shown. `prefix`: bytes of
    /// the partition before the sort key.
    pub fn group_of(self, row: &Row, collator: &Collator, prefix: usize) -> (Vec<u8>, Value) {
        match self {
            Grouping::All => (Vec::new(), Value::Null),
            Grouping::Exact => (row.sort().to_vec(), parsed(&row.key)),
            Grouping::Level(level) => match parsed(&row.key) {
                Value::Array(mut elements) if elements.len() > level => {
                    elements.truncate(level);
                    let key = Value::Array(elements);
                    let mut sort = row.sort()[..prefix.min(row.sort_end)].to_vec();
                    collator.sort_key(&key, &mut sort);
                    (sort, key)
                }
                whole => (row.sort().to_vec(), whole),
            },
        }
    }
}

/// What is told of a reduction that is too large for what it was made of, both in bytes.
pub fn overflow_reason(taken: usize, made: usize) -> String {
    format!("Reduce output must shrink more rapidly: input size: {taken} output size: {made}")
}

/// The name of the error that stands in place of a value.
const BUILTIN_ERROR: &str = "builtin_reduce_error";

/// What stands in place of a value that the built-in function cannot take in; the query goes on.
fn builtin_error(reason: &str, caused_by: Value) -> Value {
    let mut out = Object::new();
    out.push("error", BUILTIN_ERROR);
    out.push("reason", reason);
    out.push("caused_by", caused_by);
    Value::Object(out)
}

#[cfg(test)]
mod tests;
