//! Ranges of ids: the ids that a list reads, and those before them.

use std::ops::Bound;

use crate::document::id::DocId;
use crate::document::json::Value;

/// Which documents are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DocSource {
    /// `_all_docs`: all but local ones.
    #[default]
    All,
    /// `_design_docs`.
    Design,
    /// `_local_docs`.
    Local,
    /// `_partition/{p}/_all_docs`.
    Partition(String),
}

/// Which keys are listed. Keys are the JSON values given: only texts match ids, and a bound that is no text acts as the
/// empty text (as CouchDB 3.5 was measured).
#[derive(Clone, Debug)]
pub enum KeyBounds {
    /// Just these, in this order, repeated where they repeat.
    Keys(Vec<Value>),
    /// From `start` to `end` in the direction of reading.
    Range {
        /// The first key.
        start: Option<Value>,
        /// The last key.
        end: Option<Value>,
        /// Whether `end` itself belongs to it.
        inclusive_end: bool,
    },
}

/// The ids from `low` to `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Span {
    pub low: Bound<DocId>,
    pub high: Bound<DocId>,
}

impl Span {
    /// All ids of a source.
    pub(in crate::coordinator) fn of(source: &DocSource) -> Span {
        let prefix = |first: &str, behind: &str| Span {
            low: Bound::Included(DocId::new(first)),
            high: Bound::Excluded(DocId::new(behind)),
        };
        match source {
            DocSource::All => Span { low: Bound::Unbounded, high: Bound::Unbounded },
            // The byte behind '/' is '0', that behind ':' is ';'.
            DocSource::Design => prefix("_design/", "_design0"),
            DocSource::Local => prefix("_local/", "_local0"),
            DocSource::Partition(name) => prefix(&format!("{name}:"), &format!("{name};")),
        }
    }

    /// Nothing.
    pub(in crate::coordinator) fn empty() -> Span {
        Span { low: Bound::Excluded(DocId::new("")), high: Bound::Excluded(DocId::new("")) }
    }

    /// What lies before `id` in the direction of reading.
    pub(in crate::coordinator) fn up_to(&self, id: &DocId, descending: bool) -> Span {
        let bound = Bound::Excluded(id.clone());
        match descending {
            false => Span { low: self.low.clone(), high: bound },
            true => Span { low: bound, high: self.high.clone() },
        }
    }

    /// What is left from `id` on in the direction of reading.
    pub(in crate::coordinator) fn beginning_at(&self, id: DocId, descending: bool) -> Span {
        let bound = Bound::Included(id);
        match descending {
            false => Span { low: bound, high: self.high.clone() },
            true => Span { low: self.low.clone(), high: bound },
        }
    }

    /// What both have in common.
    pub(in crate::coordinator) fn and(&self, other: &Span) -> Span {
        let low = if starts_later(&self.low, &other.low) { &self.low } else { &other.low };
        let high = if ends_earlier(&self.high, &other.high) { &self.high } else { &other.high };
        Span { low: low.clone(), high: high.clone() }
    }

    pub(in crate::coordinator) fn is_empty(&self) -> bool {
        match (&self.low, &self.high) {
            (Bound::Included(low), Bound::Included(high)) => low > high,
            (Bound::Included(low) | Bound::Excluded(low), Bound::Included(high) | Bound::Excluded(high)) => low >= high,
            _ => false,
        }
    }
}

fn starts_later(a: &Bound<DocId>, b: &Bound<DocId>) -> bool {
    match (a, b) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) if a != b => a > b,
        _ => matches!(a, Bound::Excluded(_)),
    }
}

fn ends_earlier(a: &Bound<DocId>, b: &Bound<DocId>) -> bool {
    match (a, b) {
        (Bound::Unbounded, _) => false,
        (_, Bound::Unbounded) => true,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) if a != b => a < b,
        _ => matches!(a, Bound::Excluded(_)),
    }
}

/// A bound as an id: what is no text acts as the empty text.
fn bound_id(value: &Value) -> DocId {
    DocId::new(value.as_str().unwrap_or(""))
}

/// What a query lists, and what lies before it in the direction of reading.
pub(in crate::coordinator) fn spans(keys: &KeyBounds, descending: bool) -> (Span, Span) {
    let (first, last) = match keys {
        KeyBounds::Keys(_) => (Bound::Unbounded, Bound::Unbounded),
        KeyBounds::Range { start, end, inclusive_end } => {
            let first = start.as_ref().map_or(Bound::Unbounded, |key| Bound::Included(bound_id(key)));
            let last = end.as_ref().map_or(Bound::Unbounded, |key| match inclusive_end {
                true => Bound::Included(bound_id(key)),
                false => Bound::Excluded(bound_id(key)),
            });
            (first, last)
        }
    };
    let beyond = match &first {
        Bound::Included(id) => Bound::Excluded(id.clone()),
        // Nothing lies before the very first row: an empty span.
        Bound::Unbounded | Bound::Excluded(_) => Bound::Excluded(DocId::new("")),
    };
    let is_open = first == Bound::Unbounded;
    match (descending, is_open) {
        (false, _) => (Span { low: first, high: last }, Span { low: Bound::Unbounded, high: beyond }),
        (true, true) => (Span { low: last, high: first }, Span { low: beyond.clone(), high: beyond }),
        (true, false) => (Span { low: last, high: first }, Span { low: beyond, high: Bound::Unbounded }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(id: &str) -> Value {
        Value::String(id.to_owned())
    }

    fn range(start: Option<Value>, end: Option<Value>, inclusive_end: bool) -> KeyBounds {
        KeyBounds::Range { start, end, inclusive_end }
    }

    fn one(key: &str) -> KeyBounds {
        range(Some(text(key)), Some(text(key)), true)
    }

    /// Which of a few ids a span holds.
    fn holds(span: &Span) -> String {
        let has = |id: &&str| {
            let id = DocId::new(id);
            let above = match &span.low {
                Bound::Included(low) => id >= *low,
                Bound::Excluded(low) => id > *low,
                Bound::Unbounded => true,
            };
            above
                && match &span.high {
                    Bound::Included(high) => id <= *high,
                    Bound::Excluded(high) => id < *high,
                    Bound::Unbounded => true,
                }
        };
        ["a", "b", "c", "d"].into_iter().filter(has).collect()
    }

    #[test]
    fn spans_in_both_directions() {
        let cases = [
            (range(None, None, true), false, "abcd", ""),
            (range(None, None, true), true, "abcd", ""),
            (range(Some(text("b")), Some(text("c")), true), false, "bc", "a"),
            (range(Some(text("b")), Some(text("c")), false), false, "b", "a"),
            (range(Some(text("c")), Some(text("b")), true), true, "bc", "d"),
            (range(Some(text("c")), Some(text("b")), false), true, "c", "d"),
            (range(Some(text("c")), Some(text("b")), true), false, "", "ab"),
            (range(Some(Value::Int(1)), None, true), false, "abcd", ""),
            (range(None, Some(Value::Int(1)), true), false, "", ""),
            (one("b"), false, "b", "a"),
            (one("b"), true, "b", "cd"),
            (one("bb"), false, "", "ab"),
        ];
        for (keys, descending, listed, before) in cases {
            let (l, b) = spans(&keys, descending);
            assert_eq!((holds(&l).as_str(), holds(&b).as_str()), (listed, before), "{keys:?} {descending}");
        }
    }

    #[test]
    fn a_span_is_cut_to_its_source() {
        let design = Span::of(&DocSource::Design);
        let (all, _) = spans(&range(None, None, true), false);
        assert_eq!(design.and(&all), design);
        let (some, _) = spans(&range(Some(text("_design/b")), Some(text("z")), true), false);
        let cut = some.and(&design);
        assert_eq!(cut.low, Bound::Included(DocId::new("_design/b")));
        assert_eq!(cut.high, Bound::Excluded(DocId::new("_design0")));
        let (outside, _) = spans(&range(Some(text("a")), None, true), false);
        assert!(outside.and(&design).is_empty());
    }
}
