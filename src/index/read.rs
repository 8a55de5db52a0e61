//! Reading rows of a view in bounded steps, each from what is committed at its time.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use super::keys::{self, Places};
use super::record::Row;
use super::{Signature, ViewIndex};
use crate::limits;
use crate::shard::{ShardCopy, ShardError, ShardId, bounded_scan};
use crate::storage::{Direction, StorageError, View};

/// Rows in the order asked for, and whether there are more behind them.
#[derive(Debug, Serialize, Deserialize)]
pub struct RowPage {
    /// The rows.
    pub rows: Vec<Row>,
    /// What is left to read; nothing at the end.
    pub rest: VecDeque<Places>,
}

impl ViewIndex {
    /// The next rows of `places`, which stand in the order of reading and share no row: at most `limit` of them and
    /// about `limits::STEP_BYTES`. Fewer, even none, do not mean the end.
    pub async fn rows(
        &self,
        places: VecDeque<Places>,
        direction: Direction,
        limit: usize,
    ) -> Result<RowPage, ShardError> {
        // Invariant: one answer for each index.
        rows_of(vec![(self, places)], direction, limit).await.pop().expect("an answer")
    }
}

/// As [`ViewIndex::rows`] of several indexes of this node at once, in their order; `limit`: of each.
pub async fn rows_of(
    reads: Vec<(&ViewIndex, VecDeque<Places>)>,
    direction: Direction,
    limit: usize,
) -> Vec<Result<RowPage, ShardError>> {
    let brief = are_few(&reads);
    let read = |(index, places): (&ViewIndex, VecDeque<Places>)| {
        let signature = index.definition.signature;
        let read = move |view: &dyn View, shard| step(view, (shard, signature), places, direction, limit);
        (index.copy.clone(), read)
    };
    ShardCopy::read_records_of(reads.into_iter().map(read).collect(), brief).await
}

/// Whether brief reads may be tried for that many places: each costs a look for its first row.
pub(super) fn are_few(reads: &[(&ViewIndex, VecDeque<Places>)]) -> bool {
    reads.iter().all(|(_, places)| places.len() <= limits::BRIEF_PLACES)
}

/// One bounded step of [`rows_of`].
pub(super) fn step(
    view: &dyn View,
    (shard, signature): (ShardId, Signature),
    mut places: VecDeque<Places>,
    direction: Direction,
    limit: usize,
) -> Result<RowPage, StorageError> {
    let limit = limit.clamp(1, limits::STEP_ROWS);
    places.retain(|places| !places.is_empty());
    let (mut rows, mut bytes, mut seeks) = (Vec::new(), 0, 0);
    while let Some(first) = places.pop_front() {
        let range = first.range(shard, signature);
        let more = bounded_scan(view, range, direction, |key, value| {
            bytes += value.len();
            rows.push(Row::decode(&key[keys::PREFIX..], value)?);
            let full = rows.len() == limit || bytes >= limits::STEP_BYTES;
            Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        seeks += 1;
        if let (Some(_), Some(last)) = (more, rows.last()) {
            places.push_front(first.behind(&last.place, direction));
        }
        if rows.len() == limit || bytes >= limits::STEP_BYTES || seeks == limits::FIND_RANGES_MAX {
            break;
        }
    }
    Ok(RowPage { rows, rest: places })
}
