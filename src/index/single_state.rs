//! Reads of several steps that are of one state of an index's rows.
//!
//! Each step reads a view of the store of its own. If that view shows another state than the one before it, the read
//! begins again; a read that began again several times blocks the commits of rows until it is done. No view of the
//! store is held between steps, because a store file grows while one is held; only between the pages of an answer
//! (`states.rs`).

use tokio::sync::RwLockReadGuard;

use super::Slot;
use super::sums::{Shown, Stand, State};
use crate::limits;
use crate::storage::StorageError;
use crate::world::buggify::{Mutation, mutated, sometimes};
use crate::world::sync::{Mistake, mistaken};

/// What a reading knows of the state that it is of.
pub(super) struct SingleState {
    /// That of the sums before the view of the next step is opened.
    pub moment: u64,
    /// What the last step has read; `None`: nothing yet, or in no state that is known.
    pub state: Option<State>,
    /// Steps since it began.
    steps: usize,
    /// How often it began anew.
    pub restarts: usize,
    /// Whether all steps read one view of the store.
    is_held: bool,
}

impl SingleState {
    /// Of a reading whose first view is opened after `moment`.
    pub fn new(moment: u64) -> SingleState {
        SingleState { moment, state: None, steps: 0, restarts: 0, is_held: false }
    }

    /// Of a reading whose steps all read one view, which shows `state`, if that is known.
    pub fn of_held(state: Option<State>) -> SingleState {
        SingleState { state, is_held: true, ..SingleState::new(0) }
    }

    /// Notes the moment before the view of the next step is opened. A reading that began anew several times holds up
    /// commits as long as `alone` lives.
    pub async fn before_step<'s>(&mut self, slot: &'s Slot, alone: &mut Option<RwLockReadGuard<'s, ()>>) {
        if alone.is_none() && self.restarts >= limits::REDUCE_RESTARTS {
            *alone = Some(slot.commits.read().await);
        }
        self.moment = slot.sums(|sums| sums.moment());
    }

    /// Takes notice of the state that a view shows, `stand` being where the index stands there. False where it is
    /// another one than that of what was read so far, or one of the two is not known: then all is to be read anew.
    ///
    /// # Errors
    /// Those of `stand`.
    pub fn enter(
        &mut self,
        slot: &Slot,
        stand: &dyn Fn() -> Result<Option<Stand>, StorageError>,
    ) -> Result<bool, StorageError> {
        if self.is_held {
            return Ok(true);
        }
        if mistaken(Mistake::MomentNotedLate) {
            self.moment = slot.sums(|sums| sums.moment());
        }
        let state = match slot.sums(|sums| sums.shown(self.moment)) {
            Shown::Known(state) => Some(state),
            Shown::Either(state, from) => Some(state + u64::from(stand()?.is_some_and(|stand| stand != from))),
            Shown::Unknown => None,
        };
        let is_mistaken = mutated(Mutation::ReductionOfTwoMoments) || mistaken(Mistake::StateNotSeen);
        let stays = state.is_some() && state == self.state || is_mistaken;
        let begins_anew = self.steps > 0 && !stays;
        if begins_anew {
            sometimes("index: a reduction began anew because rows changed");
            self.steps = 0;
            self.restarts += 1;
        }
        self.steps += 1;
        self.state = state;
        Ok(!begins_anew)
    }
}
