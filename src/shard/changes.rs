//! The changes of a shard in sequence order.
//!
//! Each step re-seeks behind the last row. A document that changes while pages are read moves behind the reader, so
//! that an ascending reader misses nothing.

use std::ops::ControlFlow;

use super::keys::{self, Kind};
use super::list::bounded_scan;
use super::record::{Header, SeqRecord};
use super::sequence;
use super::{ShardChange, ShardChangesPage, ShardError, ShardId, ShardReplica, Summary};
use crate::storage::{Direction, KeyRange, StorageError, View};

impl ShardReplica {
    /// Changes behind `since`, ascending; or descending those before it (start with `u64::MAX`).
    pub async fn changes(
        &self,
        since: u64,
        direction: Direction,
        limit: usize,
    ) -> Result<ShardChangesPage, ShardError> {
        let shard = self.0.shard;
        let mut range = match direction {
            Direction::Forward => keys::numbers(shard, Kind::Sequence, since.saturating_add(1), u64::MAX),
            Direction::Reverse => keys::numbers(shard, Kind::Sequence, 0, since.saturating_sub(1)),
        };
        let mut rows = Vec::new();
        loop {
            let (left, last) = (limit - rows.len(), rows.last().map_or(since, |row: &ShardChange| row.seq));
            let step = self.read(move |view, shard| step(view, shard, range, direction, left, last)).await?;
            rows.extend(step.rows);
            match (step.rest, step.end) {
                (_, Some((pending_after, last_seq))) => return Ok(ShardChangesPage { rows, pending_after, last_seq }),
                (Some(rest), None) => range = rest,
                // Invariant: a step without rest has read everything, which is an end.
                (None, None) => unreachable!("a step of changes ended without saying so"),
            }
        }
    }

    /// How many documents changed last behind `seq` (for `pending`). Reads some 30 records for each digit of the last
    /// sequence in base 32.
    pub async fn count_since(&self, seq: u64) -> Result<u64, ShardError> {
        self.read(move |view, shard| sequence::count_above(view, shard, &Header::read(view, shard)?, seq)).await
    }

    /// The summary of the documents that changed last behind `seq`; costs as [`ShardReplica::count_since`], and some 30
    /// documents.
    pub async fn summary_since(&self, seq: u64) -> Result<Summary, ShardError> {
        self.read(move |view, shard| sequence::summary_above(view, shard, &Header::read(view, shard)?, seq)).await
    }
}

/// The change with the sequence `seq`; `None` where its document changed again, or was purged.
pub fn change_at(view: &dyn View, shard: ShardId, seq: u64) -> Result<Option<ShardChange>, StorageError> {
    let row = |bytes: Vec<u8>| {
        let SeqRecord { id, leaves } = SeqRecord::decode(&bytes)?;
        Ok(ShardChange { seq, id, leaves })
    };
    view.get(&keys::number_key(shard, Kind::Sequence, seq))?.map(row).transpose()
}

struct Step {
    rows: Vec<ShardChange>,
    rest: Option<KeyRange>,
    /// `pending_after` and `last_seq`, once the page is complete.
    end: Option<(u64, u64)>,
}

fn step(
    view: &dyn View,
    shard: ShardId,
    range: KeyRange,
    direction: Direction,
    left: usize,
    last: u64,
) -> Result<Step, StorageError> {
    let mut rows = Vec::new();
    let rest = match left {
        0 => Some(range),
        _ => bounded_scan(view, range, direction, |key, value| {
            let SeqRecord { id, leaves } = SeqRecord::decode(value)?;
            rows.push(ShardChange { seq: keys::number_of(key)?, id, leaves });
            Ok(if rows.len() == left { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?,
    };
    let last = rows.last().map_or(last, |row| row.seq);
    let complete = rest.is_none() || rows.len() == left;
    let end = if complete { Some(end_of_page(view, shard, direction, last, rest.is_none())?) } else { None };
    Ok(Step { rows, rest, end })
}

fn end_of_page(
    view: &dyn View,
    shard: ShardId,
    direction: Direction,
    last: u64,
    exhausted: bool,
) -> Result<(u64, u64), StorageError> {
    let header = Header::read(view, shard)?;
    match direction {
        Direction::Forward if exhausted => Ok((0, header.update_seq)),
        Direction::Forward => Ok((sequence::count_above(view, shard, &header, last)?, last)),
        Direction::Reverse => {
            let from_last = sequence::count_above(view, shard, &header, last.saturating_sub(1))?;
            let before = header.total.documents().saturating_sub(from_last);
            Ok((before, last.min(header.update_seq)))
        }
    }
}
