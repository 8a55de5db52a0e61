//! Keys of the rows of a view in the ordered store, and the rows that a range of keys covers. Pure.
//!
//! ```text
//!   shard u64 'v' signature(16) 'a'                                   how far the view is built     record::Header
//!   shard 'v' signature 'd' document id                               the places of its rows        record::Places
//!   shard 'v' signature 's' function(2) place                         the sum of the rows from there on   stored.rs
//!   shard 'v' signature 'r' [partition 0] sort key 0 document id 0 n  key and value as JSON text    record::Row
//!   shard 'v' signature 'A'                                           how far a full-text index is built, its segments
//!   shard 'v' signature 'D' document id                               the document's number in it
//!   shard 'v' signature 'P' segment u64, piece u32                    bytes of a segment
//!   shard 'v' signature 'X' segment u64                               documents of a segment that count no more
//! ```
//!
//! What follows `'r'` is the row's *place*: bytes whose order is that of the rows, the same in every range of the
//! database. No sort key is the beginning of another one, so that the zero byte behind it only keeps its rows together.
//! `n` (u32, big endian) counts the rows that one document emitted.

use serde::{Deserialize, Serialize};

use crate::document::collate::Collator;
use crate::document::json::Value;
use crate::index::Signature;
use crate::shard::{ShardId, VIEW_KIND};
use crate::storage::{Direction, KeyRange};

/// The parts of a view's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Part {
    Header = b'a',
    Document = b'd',
    Row = b'r',
    Sum = b's',
    /// Of full-text indexes (`search/record.rs`). The header comes first: without it the rest counts for nothing.
    SearchHeader = b'A',
    SearchDocument = b'D',
    SearchPiece = b'P',
    SearchDeleted = b'X',
}

/// The number of bytes before a row's place or a document's id.
pub(super) const PREFIX: usize = 8 + 1 + 16 + 1;

/// What all records of all views of a shard begin with.
pub(super) fn all_views(shard: ShardId) -> Vec<u8> {
    let mut out = shard.0.to_be_bytes().to_vec();
    out.push(VIEW_KIND);
    out
}

/// What all records of one view begin with.
pub(super) fn whole_view(shard: ShardId, signature: Signature) -> Vec<u8> {
    [&all_views(shard)[..], &signature.0].concat()
}

/// The signature in a key of any view's record.
pub(super) fn signature_of(key: &[u8]) -> Option<Signature> {
    key.get(9..25).and_then(|bytes| bytes.try_into().ok()).map(Signature)
}

/// The key of a record.
pub(super) fn key(shard: ShardId, signature: Signature, part: Part, rest: &[u8]) -> Vec<u8> {
    [&shard.0.to_be_bytes()[..], &[VIEW_KIND], &signature.0, &[part as u8], rest].concat()
}

/// The place of a document's n-th row; `sort` is its sort key with the partition before it, if there is one.
pub(super) fn place(sort: &[u8], id: &str, n: u32) -> Vec<u8> {
    [sort, &[0], id.as_bytes(), &[0], &n.to_be_bytes()].concat()
}

/// The document's id in a place whose sort key ends at `sort_end`.
pub(super) fn id_in(place: &[u8], sort_end: usize) -> Option<&str> {
    let end = place.len().checked_sub(5)?;
    std::str::from_utf8(place.get(sort_end + 1..end)?).ok()
}

/// A sort key with the partition's name before it.
pub fn partition_prefix(partition: Option<&str>) -> Vec<u8> {
    let mut out = partition.unwrap_or_default().as_bytes().to_vec();
    if partition.is_some() {
        out.push(0);
    }
    out
}

/// One end of a range of keys.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyBound {
    /// The key; `None`: there is no end on this side.
    pub key: Option<Value>,
    /// A document among those with that key; counts only with a key (CouchDB documentation, 'View query parameters').
    pub id: Option<String>,
}

/// Which rows a query reads, in the direction of reading.
#[derive(Clone, Debug, PartialEq)]
pub struct KeySpan {
    /// Where it begins.
    pub start: KeyBound,
    /// Where it ends.
    pub end: KeyBound,
    /// Whether what lies at the end belongs to it: the end's key, or with an id just that document's row.
    pub inclusive_end: bool,
}

impl KeySpan {
    /// Whether its keys are the wrong way round, so that it can have no row. Equal keys are no error.
    pub fn is_impossible(&self, collator: &Collator, descending: bool) -> bool {
        let (Some(start), Some(end)) = (&self.start.key, &self.end.key) else { return false };
        let order = collator.compare(start, end);
        if descending { order.is_lt() } else { order.is_gt() }
    }

    /// The keys that it covers, and those before them in the direction of reading.
    pub fn places(&self, collator: &Collator, descending: bool, prefix: &[u8]) -> (Places, Places) {
        let all = Places { low: prefix.to_vec(), high: KeyRange::prefix(prefix).end };
        let start = self.start.edge(collator, prefix, if descending { Side::Behind } else { Side::Before });
        let end_side = match (descending, self.inclusive_end) {
            (false, true) | (true, false) => Side::Behind,
            (false, false) | (true, true) => Side::Before,
        };
        let end = self.end.edge(collator, prefix, end_side);
        if descending {
            let (low, high) = (end.unwrap_or_else(|| all.low.clone()), start.or_else(|| all.high.clone()));
            let before = Places { low: high.clone().unwrap_or_default(), high: all.high };
            let before = if high.is_none() || self.start.key.is_none() { Places::none() } else { before };
            (Places { low, high }, before)
        } else {
            let (low, high) = (start.unwrap_or_else(|| all.low.clone()), end.or(all.high));
            let before = Places { low: all.low, high: Some(low.clone()) };
            (Places { low, high }, before)
        }
    }
}

/// On which side of the rows with its key (and id) an edge lies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Before,
    Behind,
}

impl KeyBound {
    fn edge(&self, collator: &Collator, prefix: &[u8], side: Side) -> Option<Vec<u8>> {
        let key = self.key.as_ref()?;
        let mut out = prefix.to_vec();
        collator.sort_key(key, &mut out);
        if let Some(id) = &self.id {
            out.push(0);
            out.extend_from_slice(id.as_bytes());
        }
        if side == Side::Behind {
            // A zero byte follows in the place of every row with this key (and id).
            out.push(1);
        }
        Some(out)
    }
}

/// Places from `low` up to, not including, `high`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The first.
    pub low: Vec<u8>,
    /// The first behind them; `None`: all from `low` on.
    pub high: Option<Vec<u8>>,
}

impl Places {
    /// Empty.
    pub fn none() -> Places {
        Places { low: Vec::new(), high: Some(Vec::new()) }
    }

    /// All rows of a view, or of one of its partitions.
    pub fn all(prefix: &[u8]) -> Places {
        Places { low: prefix.to_vec(), high: KeyRange::prefix(prefix).end }
    }

    /// Whether nothing can be in it.
    pub fn is_empty(&self) -> bool {
        self.high.as_ref().is_some_and(|high| *high <= self.low)
    }

    /// Whether a row's place is in it.
    pub fn holds(&self, place: &[u8]) -> bool {
        *self.low <= *place && self.high.as_deref().is_none_or(|high| place < high)
    }

    /// What lies behind `last` in the direction of reading.
    pub(super) fn behind(mut self, last: &[u8], direction: Direction) -> Places {
        match direction {
            Direction::Forward => {
                self.low = last.to_vec();
                self.low.push(0);
            }
            Direction::Reverse => self.high = Some(last.to_vec()),
        }
        self
    }

    /// The keys of the rows in it.
    pub(super) fn range(&self, shard: ShardId, signature: Signature) -> KeyRange {
        let end = match &self.high {
            Some(high) => Some(key(shard, signature, Part::Row, high)),
            None => KeyRange::prefix(&key(shard, signature, Part::Row, b"")).end,
        };
        KeyRange { start: key(shard, signature, Part::Row, &self.low), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sort(collator: &Collator, key: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        collator.sort_key(key, &mut out);
        out
    }

    fn bound(key: Option<i64>, id: Option<&str>) -> KeyBound {
        KeyBound { key: key.map(Value::Int), id: id.map(str::to_owned) }
    }

    fn has(places: &Places, place: &[u8]) -> bool {
        place >= places.low.as_slice() && places.high.as_ref().is_none_or(|high| place < high.as_slice())
    }

    #[test]
    fn an_end_with_an_id_leaves_out_just_that_row() {
        let collator = Collator::new();
        let span = KeySpan { start: bound(Some(1), None), end: bound(Some(1), Some("d4")), inclusive_end: false };
        let (inside, before) = span.places(&collator, false, b"");
        let key = sort(&collator, &Value::Int(1));
        assert!(has(&inside, &place(&key, "d3", 0)) && !has(&inside, &place(&key, "d4", 0)));
        assert!(!has(&before, &place(&key, "d0", 0)));
    }

    #[test]
    fn ids_are_found_in_places() {
        let key = sort(&Collator::new(), &Value::from("key"));
        let place = place(&key, "some id", 7);
        assert_eq!(id_in(&place, key.len()), Some("some id"));
        assert_eq!(id_in(b"", 0), None);
    }

    #[test]
    fn ranges_the_wrong_way_round_are_told() {
        let collator = Collator::new();
        let span = KeySpan { start: bound(Some(2), None), end: bound(Some(1), None), inclusive_end: true };
        assert!(span.is_impossible(&collator, false) && !span.is_impossible(&collator, true));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn places_take_in_what_keys_and_ids_say(
            rows in prop::collection::vec((0_i64..6, 0_u8..5), 1..20),
            start in prop::option::of((0_i64..6, prop::option::of(0_u8..5))),
            end in prop::option::of((0_i64..6, prop::option::of(0_u8..5))),
            inclusive_end: bool,
            descending: bool,
            partition in prop::option::of("[a-z]{1,3}"),
        ) {
            let collator = Collator::new();
            let prefix = partition_prefix(partition.as_deref());
            let name = |n: u8| format!("d{n}");
            let bound = |b: Option<(i64, Option<u8>)>| KeyBound {
                key: b.map(|(k, _)| Value::Int(k)),
                id: b.and_then(|(_, id)| id).map(name),
            };
            let span = KeySpan { start: bound(start), end: bound(end), inclusive_end };
            let (inside, before) = span.places(&collator, descending, &prefix);
            for (key, id) in rows {
                let at = (key, id);
                let against = |b: (i64, Option<u8>), default: u8| at.cmp(&(b.0, b.1.unwrap_or(default)));
                let (first_id, last_id) = if descending { (9, 0) } else { (0, 9) };
                let flip = |o: std::cmp::Ordering| if descending { o.reverse() } else { o };
                let early = start.is_some_and(|b| flip(against(b, first_id)).is_lt());
                let late = end.is_some_and(|b| {
                    let o = match (inclusive_end, b.1) {
                        (true, _) | (false, Some(_)) => flip(against(b, last_id)),
                        (false, None) => flip(key.cmp(&b.0)),
                    };
                    if inclusive_end { o.is_gt() } else { o.is_ge() }
                });
                let mut sort_key = prefix.clone();
                collator.sort_key(&Value::Int(key), &mut sort_key);
                let place = place(&sort_key, &name(id), 0);
                prop_assert_eq!(has(&inside, &place), !early && !late);
                prop_assert_eq!(has(&before, &place), early);
            }
        }
    }
}
