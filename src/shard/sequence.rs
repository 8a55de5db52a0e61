//! The sequence index: one row per document under the sequence of its last change, and summaries in levels above.
//!
//! A node of level k holds the [`Summary`] of the documents that changed last within one block of 2^(FANOUT_BITS * k)
//! sequences; a block without any has none. There are as many levels as the last sequence has digits in that base,
//! less one, so that "how many rows lie behind" reads at most 32 records of each. A shard without levels over its ids
//! (`levels.rs`) has too few rows to need them here.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use super::ShardId;
use super::keys::{self, Kind, PREFIX};
use super::levels::{FANOUT_BITS, decode, encode};
use super::record::{self, Header, SeqRecord};
use super::summary::Summary;
use crate::storage::{Direction, KeyRange, StorageError, View, WriteView};

/// How a sum takes a row in.
type RowSummary<'r> = dyn Fn(&[u8]) -> Result<Summary, StorageError> + 'r;

/// How many levels there are.
pub(super) fn levels(header: &Header) -> u8 {
    match header.height {
        0 => 0,
        _ => (header.update_seq.checked_ilog2().unwrap_or(0) / FANOUT_BITS) as u8,
    }
}

fn bits(level: u8) -> u32 {
    FANOUT_BITS * u32::from(level)
}

/// The key of block `block` of a level; at level 0 that of a row.
fn key(shard: ShardId, level: u8, block: u64) -> Vec<u8> {
    if level == 0 {
        return keys::number_key(shard, Kind::Sequence, block);
    }
    let mut key = keys::key(shard, Kind::SequenceLevel, &[level]);
    key.extend_from_slice(&block.to_be_bytes());
    key
}

/// The blocks of a level from `first` up to, not including, `end` (`None`: to the last).
fn range(shard: ShardId, level: u8, first: u64, end: Option<u64>) -> KeyRange {
    let end = match end {
        Some(end) => Some(key(shard, level, end)),
        None if level == 0 => keys::all(shard, Kind::Sequence).end,
        None => KeyRange::prefix(&keys::key(shard, Kind::SequenceLevel, &[level])).end,
    };
    KeyRange { start: key(shard, level, first), end }
}

/// All of a level.
pub(super) fn all(shard: ShardId, level: u8) -> KeyRange {
    range(shard, level, 0, None)
}

/// The block one level up that applies a block, or a row.
pub(super) fn parent(number: u64) -> u64 {
    number >> FANOUT_BITS
}

/// The record of a block.
pub(super) fn node(shard: ShardId, level: u8, block: u64, sum: &Summary) -> (Vec<u8>, Vec<u8>) {
    (key(shard, level, block), encode(sum))
}

/// The number and the summary of what stands at a level.
pub(super) fn entry(
    view: &dyn View,
    shard: ShardId,
    level: u8,
    key: &[u8],
    value: &[u8],
) -> Result<(u64, Summary), StorageError> {
    let summary = if level == 0 { of_row(view, shard, value)? } else { decode(value)? };
    Ok((number_of(level, key)?, summary))
}

fn number_of(level: u8, key: &[u8]) -> Result<u64, StorageError> {
    let number = key.get(PREFIX + usize::from(level > 0)..).and_then(|number| number.try_into().ok());
    number.map(u64::from_be_bytes).ok_or_else(|| StorageError::Corrupt("a sequence's key is cut short".into()))
}

/// Calls `read` with each key and value of a range until it fails.
fn scan(
    view: &dyn View,
    range: &KeyRange,
    mut read: impl FnMut(&[u8], &[u8]) -> Result<(), StorageError>,
) -> Result<(), StorageError> {
    if range.is_empty() {
        return Ok(());
    }
    let mut outcome = Ok(());
    view.scan(range, Direction::Forward, &mut |key, value| {
        outcome = read(key, value);
        if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    outcome
}

/// The summary of the document of a row, which is read.
fn of_row(view: &dyn View, shard: ShardId, row: &[u8]) -> Result<Summary, StorageError> {
    let id = SeqRecord::decode(row)?.id;
    let id = id.as_str().as_bytes();
    match view.get(&keys::key(shard, Kind::Document, id))? {
        Some(bytes) => record::summary_of(id, &bytes),
        None => Err(StorageError::Corrupt("a row of the sequence index has no document".into())),
    }
}

/// Brings the levels in step with the rows of `view`. `deltas`: what is new at each sequence; `before` and `header`:
/// the shard before and after that.
pub(super) fn apply(
    view: &mut WriteView<'_>,
    shard: ShardId,
    (before, header): (&Header, &Header),
    deltas: &BTreeMap<u64, Summary>,
) -> Result<(), StorageError> {
    for level in 1..=levels(before) {
        let mut blocks: BTreeMap<u64, Summary> = BTreeMap::new();
        for (seq, delta) in deltas {
            let block = blocks.entry(seq >> bits(level)).or_default();
            *block = block.plus(*delta);
        }
        for (block, delta) in blocks.into_iter().filter(|(_, delta)| *delta != Summary::default()) {
            let key = key(shard, level, block);
            let sum = view.get(&key)?.map_or(Ok(Summary::default()), |bytes| decode(&bytes))?.plus(delta);
            put(view, key, sum);
        }
    }
    for level in levels(before) + 1..=levels(header) {
        let mut blocks: BTreeMap<u64, Summary> = BTreeMap::new();
        scan(view, &all(shard, level - 1), |key, value| {
            let (number, summary) = entry(view, shard, level - 1, key, value)?;
            let block = blocks.entry(parent(number)).or_default();
            *block = block.plus(summary);
            Ok(())
        })?;
        blocks.into_iter().for_each(|(block, sum)| put(view, key(shard, level, block), sum));
    }
    Ok(())
}

fn put(view: &mut WriteView<'_>, key: Vec<u8>, sum: Summary) {
    if sum.documents() == 0 { view.delete(key) } else { view.put(key, encode(&sum)) }
}

/// How many rows have a sequence above `seq`.
pub(super) fn count_above(view: &dyn View, shard: ShardId, header: &Header, seq: u64) -> Result<u64, StorageError> {
    Ok(above(view, shard, header, seq, &|_| Ok(Summary { live: 1, ..Summary::default() }))?.documents())
}

/// The summary of the documents whose last change has a sequence above `seq`.
pub(super) fn summary_above(
    view: &dyn View,
    shard: ShardId,
    header: &Header,
    seq: u64,
) -> Result<Summary, StorageError> {
    above(view, shard, header, seq, &|row| of_row(view, shard, row))
}

fn above(
    view: &dyn View,
    shard: ShardId,
    header: &Header,
    seq: u64,
    row: &RowSummary<'_>,
) -> Result<Summary, StorageError> {
    if seq >= header.update_seq {
        return Ok(Summary::default());
    }
    let (mut from, mut sum) = (seq + 1, Summary::default());
    let top = levels(header);
    for level in 0..=top {
        // No shard lives to see a sequence whose block has no end.
        let end = if level < top { from.checked_next_multiple_of(1 << bits(level + 1)) } else { None };
        let (first, stop) = (from >> bits(level), end.map(|end| end >> bits(level)));
        scan(view, &range(shard, level, first, stop), |_, value| {
            sum = sum.plus(if level == 0 { row(value)? } else { decode(value)? });
            Ok(())
        })?;
        match end {
            Some(end) => from = end,
            None => break,
        }
    }
    Ok(sum)
}
