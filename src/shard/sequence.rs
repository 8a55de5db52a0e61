//! The sequence index: one row per document under the sequence of its last change, and counters of its blocks.
//!
//! Counters of 1,024 and 1,048,576 sequences change with the rows, so that "how many rows lie behind" reads at most
//! 1,023 keys of one block, 1,023 counters of blocks, and one counter per million sequences.

use std::ops::ControlFlow;

use super::ShardId;
use super::keys::{self, Kind};
use crate::storage::{Direction, StorageError, View, WriteView};

const BLOCK: u64 = 1 << 10;
const LARGE_BLOCK: u64 = 1 << 20;

/// Adds the row of `seq`, which must be new.
pub(super) fn insert(view: &mut WriteView<'_>, shard: ShardId, seq: u64, row: Vec<u8>) -> Result<(), StorageError> {
    view.put(keys::number_key(shard, Kind::Sequence, seq), row);
    adjust(view, shard, seq, |count| count.checked_add(1))
}

/// Removes the row of `seq`, which must be there.
pub(super) fn remove(view: &mut WriteView<'_>, shard: ShardId, seq: u64) -> Result<(), StorageError> {
    view.delete(keys::number_key(shard, Kind::Sequence, seq));
    adjust(view, shard, seq, |count| count.checked_sub(1))
}

fn adjust(
    view: &mut WriteView<'_>,
    shard: ShardId,
    seq: u64,
    change: impl Fn(u64) -> Option<u64>,
) -> Result<(), StorageError> {
    for (kind, size) in [(Kind::Block, BLOCK), (Kind::LargeBlock, LARGE_BLOCK)] {
        let key = keys::number_key(shard, kind, seq / size);
        let before = view.get(&key)?.map_or(Ok(0), |bytes| number(&bytes))?;
        match change(before) {
            Some(0) => view.delete(key),
            Some(after) => view.put(key, after.to_be_bytes().to_vec()),
            None => return Err(StorageError::Corrupt("a counter of the sequence index fell below zero".into())),
        }
    }
    Ok(())
}

pub(super) fn number(bytes: &[u8]) -> Result<u64, StorageError> {
    let bytes = bytes.try_into().map_err(|_| StorageError::Corrupt("a counter is not 8 bytes".into()))?;
    Ok(u64::from_be_bytes(bytes))
}

/// How many rows have a sequence above `seq`.
pub(super) fn count_above(view: &dyn View, shard: ShardId, seq: u64) -> Result<u64, StorageError> {
    if seq >= u64::MAX - 2 * LARGE_BLOCK {
        // No shard lives to see such a sequence; it stands for "behind everything".
        return Ok(0);
    }
    let first = seq + 1;
    let block_end = first.next_multiple_of(BLOCK);
    let large_end = first.next_multiple_of(LARGE_BLOCK);
    let mut rows = 0;
    if block_end > first {
        let range = keys::numbers(shard, Kind::Sequence, first, block_end - 1);
        view.scan(&range, Direction::Forward, &mut |_, _| {
            rows += 1;
            ControlFlow::Continue(())
        })?;
    }
    if large_end > block_end {
        rows += sum(view, shard, Kind::Block, block_end / BLOCK, large_end / BLOCK - 1)?;
    }
    rows += sum(view, shard, Kind::LargeBlock, large_end / LARGE_BLOCK, u64::MAX)?;
    Ok(rows)
}

fn sum(view: &dyn View, shard: ShardId, kind: Kind, first: u64, last: u64) -> Result<u64, StorageError> {
    let mut total = Ok(0);
    view.scan(&keys::numbers(shard, kind, first, last), Direction::Forward, &mut |_, value| {
        match (&mut total, number(value)) {
            (Ok(total), Ok(count)) => *total += count,
            (_, Err(error)) => total = Err(error),
            (Err(_), _) => {}
        }
        if total.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    total
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::memory::MemoryStore;
    use crate::storage::{Batch, Store};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn seqs() -> impl Strategy<Value = u64> {
        prop_oneof![0..3000u64, 1_040_000..1_060_000u64, 3_000_000..4_000_000u64]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn counts_equal_a_count_by_hand(
            rows in prop::collection::btree_set(seqs(), 0..60),
            gone in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
            asked in prop::collection::vec(prop_oneof![seqs(), any::<u64>()], 1..20),
        ) {
            let (store, shard, empty) = (MemoryStore::new(), ShardId(5), Batch::new());
            let base = store.view().unwrap();
            let mut view = WriteView::new(base.as_ref(), &empty);
            let all: Vec<u64> = rows.iter().copied().collect();
            let mut left: BTreeSet<u64> = rows;
            for seq in &all {
                insert(&mut view, shard, *seq, vec![]).unwrap();
            }
            for index in gone {
                if !all.is_empty() && left.remove(index.get(&all)) {
                    remove(&mut view, shard, *index.get(&all)).unwrap();
                }
            }
            for seq in asked.into_iter().chain(all.iter().copied()).chain([u64::MAX, u64::MAX - 1]) {
                let expected = left.iter().filter(|s| **s > seq).count() as u64;
                prop_assert_eq!(count_above(&view, shard, seq).unwrap(), expected);
            }
        }
    }
}
