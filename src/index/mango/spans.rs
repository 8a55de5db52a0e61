//! Ranges of an index that a query reads.

use std::cmp::Ordering;

use super::bookmark::Bookmark;
use super::catalogue::FieldIndex;
use super::request::FindRequest;
use crate::document::json::{Object, Value};
use crate::document::selector::{KeysBetween, RangeRules};
use crate::index::{KeyBound, KeySpan};

/// The name of a member that sorts after all others: such an object ends a range of keys.
const GREATEST_NAME: &str = "\u{ffff}";

/// The ranges in the direction of reading, behind `after`; a bookmark without a key, of another index, is passed over.
pub fn spans(
    request: &FindRequest,
    after: Option<&Bookmark>,
    index: &FieldIndex,
    rules: RangeRules<'_>,
) -> Vec<KeySpan> {
    let descending = request.sort.descending;
    let after = after.and_then(|bookmark| Some((bookmark.key.as_ref()?, &bookmark.id)));
    let ranges = request.selector.index_ranges(&index.names(), rules);
    let mut spans = Vec::with_capacity(ranges.len());
    for KeysBetween { start, mut end } in ranges {
        end.push(Value::Object(Object::from_iter([(GREATEST_NAME.to_owned(), Value::Null)])));
        let bound = |key| KeyBound { key: Some(Value::Array(key)), id: None };
        let (mut start, mut end) = (bound(start), bound(end));
        if descending {
            std::mem::swap(&mut start, &mut end);
        }
        if let Some((key, id)) = after {
            let order = |bound: &KeyBound| {
                let order = bound.key.as_ref().map_or(Ordering::Equal, |own| rules.collator.compare(key, own));
                if descending { order.reverse() } else { order }
            };
            if order(&end).is_gt() {
                continue;
            }
            if order(&start).is_ge() {
                start = KeyBound { key: Some(key.clone()), id: Some(id.clone()) };
            }
        }
        spans.push(KeySpan { start, end, inclusive_end: true });
    }
    if descending {
        spans.reverse();
    }
    spans
}
