//! One state of each range for the whole answer of a reduction. The replica of a range holds the state of its first
//! page, and the pages that follow name it (`index/states.rs`). A replica of an older build holds none, nor does one
//! whose engine has no snapshots: there each page is of one state by itself.
//!
//! Promises: pages of two states of a range, where one of them was held, are never in one answer. Where a state was
//! lost the answer begins anew, or ends with [`ViewError::StateGone`] if a part of it was given out.

use std::collections::VecDeque;

use crate::coordinator::read::view::{Seat, ViewError, ViewRows};
use crate::coordinator::replica::range_copy::{CopyView, is_away};
use crate::index::{IndexError, Places, StateOf};
use crate::limits;
use crate::world::Env;

/// A state that a replica holds for an answer: given back when this is dropped.
pub(in crate::coordinator) struct SeatState {
    number: u64,
    view: CopyView,
    env: Env,
}

#[cfg(test)]
impl SeatState {
    /// The view and the number.
    pub fn named(&self) -> (&CopyView, u64) {
        (&self.view, self.number)
    }
}

impl Drop for SeatState {
    fn drop(&mut self) {
        match &self.view {
            CopyView::Own(index) => index.release(self.number),
            CopyView::Remote { .. } => {
                let (view, number) = (self.view.clone(), self.number);
                // Where it is not told, the replica gives the state up in time.
                self.env.spawn(async move { drop(view.release(number).await) });
            }
        }
    }
}

/// A page to read: the number of its range, the view, the places, and which state they are read of.
pub(in crate::coordinator) type StateReads<'v> = Vec<(usize, &'v CopyView, VecDeque<Places>, StateOf)>;

impl Seat {
    /// Which state its next page is of; `first`: if there is none yet.
    pub(in crate::coordinator) fn state_of(&self, first: StateOf) -> StateOf {
        self.state.as_ref().map_or(first, |state| StateOf::Held(state.number))
    }
}

impl ViewRows {
    /// A page of a range has come, whose state is held under that number; `is_last`: nothing of these places is left.
    pub(in crate::coordinator) fn took(&mut self, at: usize, number: Option<u64>, is_last: bool) {
        let env = &self.view.database.context.env;
        let seat = &mut self.seats[at];
        if let Some(number) = number {
            seat.state = Some(SeatState { number, view: seat.view.clone(), env: env.clone() });
        }
        if is_last && self.spans.is_empty() {
            seat.state = None;
        }
    }

    /// A read of a range failed: has another replica go on, if that is no other state of what was read.
    pub(in crate::coordinator) async fn lost(&mut self, at: usize, error: IndexError) -> Result<(), ViewError> {
        match &error {
            IndexError::StateGone => return Err(ViewError::StateGone),
            IndexError::Shard(error) if is_away(error) && self.seats[at].state.is_some() => {
                tracing::debug!(%error, "a replica that held a state for an answer failed");
                return Err(ViewError::StateGone);
            }
            _ => {}
        }
        self.go_elsewhere(at, error).await
    }

    /// Begins the answer anew, if nothing of it was given out and that was not done too often.
    ///
    /// # Errors
    /// [`ViewError::StateGone`] otherwise, and those of [`DatabaseView::open`](super::view::DatabaseView::open).
    pub(in crate::coordinator) async fn begin_anew(&mut self) -> Result<(), ViewError> {
        if self.is_given || self.anew >= limits::ANSWERS_ANEW {
            return Err(ViewError::StateGone);
        }
        self.anew += 1;
        self.seats = self.view.seats(&self.ranges, &self.query).await?;
        self.rewind();
        Ok(())
    }
}
