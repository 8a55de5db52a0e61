//! Search for the end of a damaged gap: the engine refuses to scan inside it, so keys are tried until one can be read.

use std::ops::ControlFlow;

use super::kv::{Direction, KeyRange, StorageError, View, after_prefix};
use crate::limits;

/// A key and its value, or why there is none.
pub type Row<'r> = Result<(&'r [u8], &'r [u8]), StorageError>;

/// Hands on all keys and values of `range` that can be read, upwards, and an error for each part that cannot.
pub fn scan_around(view: &dyn View, mut range: KeyRange, visit: &mut dyn FnMut(Row<'_>)) {
    loop {
        let mut next = range.start.clone();
        let scanned = view.scan(&range, Direction::Forward, &mut |key, value| {
            next.clear();
            next.extend_from_slice(key);
            next.push(0);
            visit(Ok((key, value)));
            ControlFlow::Continue(())
        });
        let Err(error) = scanned else { return };
        visit(Err(error));
        range.start = next;
        match behind_gap(view, &range) {
            Ok(Some(start)) => range.start = start,
            _ => return,
        }
    }
}

/// The least key above the start of `range` from which the range can be read again, where its start cannot; `None`
/// when there is none. What is readable between two gaps that lie close together may be passed over.
///
/// # Errors
/// None for damage; those of a disk that cannot be read.
pub fn behind_gap(view: &dyn View, range: &KeyRange) -> Result<Option<Vec<u8>>, StorageError> {
    let from = |start: &[u8]| {
        let rest = KeyRange { start: start.to_vec(), end: range.end.clone() };
        match view.first(&rest, Direction::Forward) {
            Ok(row) => Ok(Some(row.map(|(key, _)| key))),
            Err(StorageError::Corrupt(_)) => Ok(None),
            Err(error) => Err(error),
        }
    };
    let is_behind = |key: &[u8]| range.end.as_deref().is_some_and(|end| key >= end);
    let Some((mut base, mut found)) = up(range, &from, &is_behind)? else { return Ok(None) };
    // The end of the gap begins with `base`, or is what was found last.
    for _ in 0..limits::GAP_END_BYTES {
        let (mut low, mut high) = (0_usize, 256);
        while low < high {
            let middle = (low + high) / 2;
            let key = [&base[..], &[middle as u8]].concat();
            let is_good = match (key > range.start, is_behind(&key)) {
                (false, _) => false,
                (true, true) => true,
                (true, false) => match from(&key)? {
                    Some(first) => {
                        found = first;
                        true
                    }
                    None => false,
                },
            };
            if is_good { high = middle } else { low = middle + 1 }
        }
        let Some(last_bad) = low.checked_sub(1) else { break };
        base.push(last_bad as u8);
    }
    Ok(found)
}

type Found = Option<Vec<u8>>;
/// The first key from one on; the outer `None` where it cannot be read.
type From<'f> = &'f dyn Fn(&[u8]) -> Result<Option<Found>, StorageError>;

/// The longest beginning of the range's start behind all of whose keys the range can be read, and the first key there.
fn up(
    range: &KeyRange,
    from: From<'_>,
    is_behind: &dyn Fn(&[u8]) -> bool,
) -> Result<Option<(Vec<u8>, Found)>, StorageError> {
    for len in (0..=range.start.len()).rev() {
        let base = &range.start[..len];
        let found = match after_prefix(base) {
            Some(next) if !is_behind(&next) => from(&next)?,
            _ => Some(None),
        };
        if let Some(found) = found {
            return Ok(Some((base.to_vec(), found)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::ops::Bound;

    use proptest::prelude::*;

    use super::*;
    use crate::storage::kv::Visit;

    /// Keys of which those in a row from `lost.0` to `lost.1` are on a damaged page.
    struct Holed {
        keys: BTreeSet<Vec<u8>>,
        lost: (Vec<u8>, Vec<u8>),
    }

    impl View for Holed {
        fn get(&self, _key: &[u8]) -> Result<Option<Vec<u8>>, StorageError> {
            Ok(None)
        }

        /// As `RedbView`: the page is met between its neighbours, too.
        fn scan(&self, range: &KeyRange, _: Direction, visit: &mut Visit<'_>) -> Result<(), StorageError> {
            let damaged = || Err(StorageError::Corrupt("a page".to_owned()));
            let up_to = (Bound::Unbounded, Bound::Included(range.start.clone()));
            if self.keys.range(up_to).next_back().is_some_and(|key| self.is_lost(key)) {
                return damaged();
            }
            for key in self.keys.range(range.start.clone()..) {
                if self.is_lost(key) {
                    return damaged();
                }
                if range.end.as_ref().is_some_and(|end| key >= end) || visit(key, b"").is_break() {
                    break;
                }
            }
            Ok(())
        }
    }

    impl Holed {
        fn is_lost(&self, key: &[u8]) -> bool {
            (self.lost.0.as_slice()..=self.lost.1.as_slice()).contains(&key)
        }
    }

    fn key() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0, 1, 0x30, 0x31, 0xfe, 0xff]), 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn a_scan_goes_on_with_the_first_key_behind_a_damaged_page(
            keys in prop::collection::btree_set(key(), 3..60), from in any::<u16>(), count in 1usize..20,
        ) {
            let prefixed: Vec<Vec<u8>> = keys.iter().map(|key| [b"\x07d", &key[..]].concat()).collect();
            let first = 1 + from as usize % (prefixed.len() - 1);
            let last = (first + count - 1).min(prefixed.len() - 1);
            let lost = (prefixed[first].clone(), prefixed[last].clone());
            let view = Holed { keys: prefixed.iter().cloned().chain([b"\x07e".to_vec()]).collect(), lost };
            let range = KeyRange { start: [&prefixed[first - 1][..], &[0]].concat(), end: Some(b"\x07e".to_vec()) };
            prop_assert_eq!(behind_gap(&view, &range).unwrap(), prefixed.get(last + 1).cloned());
        }
    }
}
