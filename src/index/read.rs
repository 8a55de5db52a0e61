//! Reading rows of a view in bounded steps, each from what is committed at its time.

use std::ops::ControlFlow;

use super::ViewIndex;
use super::keys::{self, Places};
use super::record::Row;
use crate::limits;
use crate::shard::{ShardError, bounded_scan};
use crate::storage::Direction;
use crate::world::Pool;

/// Rows in the order asked for, and whether there are more behind them.
#[derive(Debug)]
pub struct RowPage {
    /// The rows.
    pub rows: Vec<Row>,
    /// What is left to read; `None` at the end.
    pub rest: Option<Places>,
}

impl ViewIndex {
    /// The next rows of `places`: at most `limit` of them and about `limits::STEP_BYTES`.
    pub async fn rows(&self, places: Places, direction: Direction, limit: usize) -> Result<RowPage, ShardError> {
        if places.is_empty() {
            return Ok(RowPage { rows: Vec::new(), rest: None });
        }
        let signature = self.definition.signature;
        let (limit, mut rest) = (limit.clamp(1, limits::STEP_ROWS), places.clone());
        let read = move |view: &dyn crate::storage::View, shard| {
            let mut rows = Vec::new();
            let range = places.range(shard, signature);
            let more = bounded_scan(view, range, direction, |key, value| {
                rows.push(Row::decode(&key[keys::PREFIX..], value)?);
                Ok(if rows.len() == limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            Ok((rows, more.is_some()))
        };
        let (rows, more) = self.copy.read_records(Pool::Foreground, read).await?;
        let rest = rows.last().filter(|_| more).map(|last| {
            match direction {
                Direction::Forward => {
                    rest.low = last.place.clone();
                    rest.low.push(0);
                }
                Direction::Reverse => rest.high = Some(last.place.clone()),
            }
            rest
        });
        Ok(RowPage { rows, rest })
    }

    /// How many rows there are in `places`. Costs a scan of their keys.
    pub async fn count(&self, places: Places) -> Result<u64, ShardError> {
        if places.is_empty() {
            return Ok(0);
        }
        let mut rest = Some(places.range(self.copy.id(), self.definition.signature));
        let mut count = 0;
        while let Some(range) = rest.take() {
            let step = move |view: &dyn crate::storage::View, _| {
                let mut rows = 0;
                let rest = bounded_scan(view, range, Direction::Forward, |_, _| {
                    rows += 1;
                    Ok(ControlFlow::Continue(()))
                })?;
                Ok((rows, rest))
            };
            let (rows, more) = self.copy.read_records(Pool::Foreground, step).await?;
            count += rows;
            rest = more;
        }
        Ok(count)
    }
}
