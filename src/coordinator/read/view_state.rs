//! One state of each range for the whole answer of a reduction. The replica of a range holds the state of its first
//! page, and the pages that follow name it (`index/states.rs`). A replica of an older build holds none, nor does one
//! whose engine has no snapshots: there each page is of one state by itself.
//!
//! Promises: pages of two states of a range, where one of them was held, are never in one answer. Where a state was
//! lost the answer begins anew, or ends with [`ViewError::StateGone`] if a part of it was given out.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use crate::coordinator::read::view::{Seat, ViewError, ViewRows};
use crate::coordinator::replica::range_replica::{ReplicaView, is_away};
use crate::index::{Hold, IndexError, Places, StateOf};
use crate::limits;
use crate::world::Env;

/// A state that a replica holds for an answer, or may hold once it has read the first page: given back when this is
/// dropped.
pub(in crate::coordinator) struct SeatState {
    number: u64,
    view: ReplicaView,
    env: Env,
    stage: Stage,
}

/// What is known of a state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// The first page is being read.
    Asked,
    /// It is held.
    Held,
    /// It is not.
    None,
}

#[cfg(test)]
impl SeatState {
    /// The view and the number.
    pub fn named(&self) -> (&ReplicaView, u64) {
        (&self.view, self.number)
    }
}

impl Drop for SeatState {
    fn drop(&mut self) {
        match &self.view {
            _ if self.stage == Stage::None => {}
            ReplicaView::Own(index) => index.release(self.number),
            ReplicaView::Remote { .. } => {
                let (view, number) = (self.view.clone(), self.number);
                // Where it is not told, the replica gives the state up in time.
                self.env.spawn(async move { drop(view.release(number).await) });
            }
        }
    }
}

/// A page to read: the number of its range, the view, the places, and which state they are read of.
pub(in crate::coordinator) type StateReads<'v> = Vec<(usize, &'v ReplicaView, VecDeque<Places>, StateOf)>;

impl Seat {
    /// Which state its next page is of; `first`: if none is held.
    fn state_of(&self, first: StateOf) -> StateOf {
        let held = self.state.as_ref().filter(|state| state.stage == Stage::Held);
        held.map_or(first, |state| StateOf::Held(state.number))
    }
}

impl ViewRows {
    /// Which states the next pages of these ranges are of. Of those of which none is held it is given back what the
    /// reading of the page may hold, whether the page is waited for or not. `enough`: see [`Hold`].
    pub(in crate::coordinator) fn states_of(&mut self, ranges: &[usize], enough: bool) -> (Hold, Vec<StateOf>) {
        let context = &self.view.database.context;
        // No other number of this start of the node, nor of another one.
        let number = context.boot.wrapping_add(context.calls.fetch_add(1, Ordering::Relaxed));
        let hold = Hold { number, more: !self.spans.is_empty(), enough };
        let mut states = Vec::with_capacity(ranges.len());
        for at in ranges {
            let seat = &mut self.seats[*at];
            let of = seat.state_of(StateOf::First(hold));
            if !matches!(of, StateOf::Held(_)) {
                let (view, env) = (seat.view.clone(), context.env.clone());
                seat.state = Some(SeatState { number, view, env, stage: Stage::Asked });
            }
            states.push(of);
        }
        (hold, states)
    }

    /// A page of a range has come. `held`: its state is; `is_last`: nothing of these places is left.
    pub(in crate::coordinator) fn took(&mut self, at: usize, held: bool, is_last: bool) {
        let seat = &mut self.seats[at];
        if let Some(state) = seat.state.as_mut().filter(|state| state.stage == Stage::Asked) {
            state.stage = if held { Stage::Held } else { Stage::None };
        }
        if is_last && self.spans.is_empty() {
            seat.state = None;
        }
    }

    /// Takes the pages that were read of ranges, then has other replicas go on where a read failed, if that is no other
    /// state of what was read.
    pub(in crate::coordinator) async fn take_pages<P>(
        &mut self,
        pages: Vec<(usize, Result<P, IndexError>)>,
        take: fn(&mut ViewRows, usize, P),
    ) -> Result<(), ViewError> {
        let mut failed = Vec::new();
        for (at, page) in pages {
            match page {
                Ok(page) => take(self, at, page),
                Err(error) => failed.push((at, error)),
            }
        }
        for (at, error) in failed {
            let is_held = self.seats[at].state.as_ref().is_some_and(|state| state.stage == Stage::Held);
            match &error {
                IndexError::StateGone => return Err(ViewError::StateGone),
                IndexError::Shard(error) if is_away(error) && is_held => {
                    tracing::debug!(%error, "a replica that held a state for an answer failed");
                    return Err(ViewError::StateGone);
                }
                _ => self.go_elsewhere(at, error).await?,
            }
        }
        Ok(())
    }

    /// Where states are held for the pages that follow: gives them back and forgets the pages that were read. Who
    /// reads on later reads from the beginning, of the states that there are then. False where it holds none.
    pub fn defer(&mut self) -> bool {
        let is_held = |seat: &Seat| seat.state.as_ref().is_some_and(|state| state.stage == Stage::Held);
        let holds = self.seats.iter().any(is_held);
        if holds {
            self.seats.iter_mut().for_each(|seat| seat.state = None);
            self.is_given = false;
            self.rewind();
        }
        holds
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
