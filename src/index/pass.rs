//! One scan of rows for a reduction (`sums.rs`). The scan continues from block to block as long as no sum of the next
//! block is known, and beyond the last counted row to the rows that the query reads next, because the start of a scan
//! costs as much as dozens of rows.
//!
//! Promises: the blocks that it adds, and the rows behind them, are those that separate scans of the same view of the
//! store would find.

use std::collections::VecDeque;
use std::mem;
use std::ops::ControlFlow;

use super::Slot;
use super::keys::{self, Places};
use super::read::RowPage;
use super::record::{Row, RowRef};
use super::reduce::{InvalidValue, Partial, Reduce};
use super::steps::Stride;
use super::sums::{Walk, levels_at};
use crate::limits;
use crate::shard::bounded_scan;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// Turns places into keys of the store.
pub(super) type RowRange<'a> = &'a dyn Fn(&Places) -> KeyRange;

/// The first rows behind those that are counted.
pub(super) struct Tail {
    /// Where they end; `None`: with the view.
    high: Option<Vec<u8>>,
    limit: usize,
    rows: Vec<Row>,
    bytes: usize,
    /// They, once a scan has passed them.
    page: Option<RowPage>,
}

impl Tail {
    /// The first `limit` of the rows in `places`, where these begin just behind those that are counted; else nothing.
    pub fn of(counted: &Places, places: &VecDeque<Places>, direction: Direction, limit: usize) -> Option<Tail> {
        let first = places.front().filter(|_| places.len() == 1 && direction == Direction::Forward)?;
        let follows = counted.high.as_ref() == Some(&first.low) && !first.is_empty();
        let limit = limit.clamp(1, limits::STEP_ROWS);
        follows.then(|| Tail { high: first.high.clone(), limit, rows: Vec::new(), bytes: 0, page: None })
    }

    /// What was read, as [`super::read::step`] would tell it; `None` where no scan got as far as that.
    pub fn into_page(self) -> Option<RowPage> {
        self.page
    }

    fn add(&mut self, place: &[u8], value: &[u8]) -> Result<ControlFlow<()>, StorageError> {
        self.bytes += value.len();
        self.rows.push(Row::decode(place, value)?);
        let full = self.rows.len() == self.limit || self.bytes >= limits::STEP_BYTES;
        Ok(if full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn finish(&mut self, rest: Option<KeyRange>) {
        let behind = |rest: KeyRange| Places { low: rest.start[keys::PREFIX..].to_vec(), high: self.high.clone() };
        let rest = rest.map(behind).into_iter().collect();
        self.page = Some(RowPage { rows: mem::take(&mut self.rows), rest, held: None });
    }
}

/// A scan from where a walk stands.
pub(super) struct Pass<'p> {
    /// Where blocks are kept.
    pub slot: &'p Slot,
    /// The function.
    pub reduce: &'p Reduce,
    /// Its reduction of no rows.
    pub empty: &'p Partial,
    /// Takes in what is read.
    pub walk: &'p mut Walk,
    /// Notes rows of the block in which the walk stands.
    pub stride: Option<Stride>,
    /// Rows to read where the walk ends.
    pub tail: Option<&'p mut Tail>,
    /// Of rows that the reduction has not added yet.
    pub run: Partial,
    /// Rows of the walk that were read.
    pub count: usize,
}

/// Why a scan is not to go on.
enum Stop {
    /// More is known of what follows.
    Known,
    /// The function does not take a value.
    Refused(InvalidValue),
}

impl Pass<'_> {
    /// Reads on as far as one scan goes; true at the end of the walk.
    pub fn scan(&mut self, view: &dyn View, range: RowRange<'_>) -> Result<Result<bool, InvalidValue>, StorageError> {
        let high = match &self.tail {
            Some(tail) => tail.high.clone(),
            None => self.walk.high.clone(),
        };
        let places = Places { low: self.walk.at.clone(), high };
        let mut stop = None;
        let rest = bounded_scan(view, range(&places), Direction::Forward, |key, value| {
            let place = &key[keys::PREFIX..];
            if self.is_behind(place) {
                return self.row_behind(place, value);
            }
            stop = self.row(place, value)?.err();
            Ok(if stop.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(match stop {
            Some(Stop::Refused(error)) => Err(error),
            Some(Stop::Known) => Ok(false),
            None => self.end(rest),
        })
    }

    fn is_behind(&self, place: &[u8]) -> bool {
        self.tail.is_some() && self.walk.high.as_deref().is_some_and(|high| place >= high)
    }

    /// Passes a row of the walk.
    fn row(&mut self, place: &[u8], value: &[u8]) -> Result<Result<(), Stop>, StorageError> {
        if place > self.walk.at.as_slice() && levels_at(place) > 0 {
            match self.block_ends(place) {
                Ok(true) => {}
                Ok(false) => return Ok(Err(Stop::Known)),
                Err(error) => return Ok(Err(Stop::Refused(error))),
            }
        }
        self.count += 1;
        self.stride.iter_mut().for_each(|stride| stride.pass(place));
        Ok(self.run.add(RowRef::decode(place, value)?).map_err(Stop::Refused))
    }

    /// Has the walk take in what was read up to `place`, where a block begins. False: more is known of what follows,
    /// and the walk is to go on from there by that.
    fn block_ends(&mut self, place: &[u8]) -> Result<bool, InvalidValue> {
        let (mut run, stride) = (mem::replace(&mut self.run, self.empty.clone()), self.stride.take());
        run.settle();
        let (walk, reduce, empty) = (&mut *self.walk, self.reduce, self.empty);
        let (goes_on, stride) = self.slot.sums(|sums| -> Result<_, InvalidValue> {
            stride.into_iter().for_each(|stride| walk.note(sums, stride));
            walk.pass(&run, place.to_vec(), (&mut *sums, reduce, empty))?;
            let goes_on = !walk.knows_next(sums, reduce);
            Ok((goes_on, if goes_on { walk.stride(sums, reduce)? } else { None }))
        })?;
        self.stride = stride;
        Ok(goes_on)
    }

    /// Takes a row behind those of the walk. As long as it is of the same block it is noted, too.
    fn row_behind(&mut self, place: &[u8], value: &[u8]) -> Result<ControlFlow<()>, StorageError> {
        if levels_at(place) > 0 {
            self.note();
        }
        self.stride.iter_mut().for_each(|stride| stride.pass(place));
        // Invariant: without a tail no row is behind.
        self.tail.as_mut().expect("rows behind are asked for").add(place, value)
    }

    fn note(&mut self) {
        if let Some(stride) = self.stride.take() {
            self.slot.sums(|sums| self.walk.note(sums, stride));
        }
    }

    /// The scan has come to its end or to a bound, behind which `rest` is left.
    fn end(&mut self, rest: Option<KeyRange>) -> Result<bool, InvalidValue> {
        self.note();
        self.run.settle();
        self.walk.add(&self.run)?;
        match (&mut self.tail, rest) {
            (Some(tail), rest) if rest.is_none() || !tail.rows.is_empty() => {
                tail.finish(rest);
                Ok(true)
            }
            (_, Some(rest)) => {
                self.walk.stand_at(rest.start[keys::PREFIX..].to_vec());
                Ok(false)
            }
            (_, None) => {
                self.slot.sums(|sums| self.walk.finish(sums, self.reduce));
                Ok(true)
            }
        }
    }
}
