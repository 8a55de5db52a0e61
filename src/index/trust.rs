//! Check whether the rows of a view can be reduced. CouchDB reduces rows while it builds the one index that all views
//! of a design document share: a value that `_stats` refuses fails every query of these views, whatever rows it asks
//! for (`conformance/cases/views`). settee reduces rows when a query asks for them, and each view has an index of its
//! own.
//!
//! The check costs next to nothing in the usual case: the header of a view whose values all are numbers says so, the
//! result for a design document is remembered up to the shard's sequence, and that for a view with other values up to
//! the next change of its rows.

use std::collections::VecDeque;
use std::sync::PoisonError;

use super::groups::GroupBy;
use super::keys::Places;
use super::record::Header;
use super::reduce::{Grouping, InvalidValue, Reduce};
use super::states::StateOf;
use super::{IndexError, ViewIndex};
use crate::storage::Direction;

/// What became of reducing all rows, and of which.
pub(super) struct Checked {
    rows: Header,
    outcome: Result<(), InvalidValue>,
}

impl ViewIndex {
    /// Whether its own reduce function takes all rows that it has. All but `_stats` do.
    ///
    /// # Errors
    /// [`IndexError::Refused`], or that it could not be read.
    pub async fn check_rows(&self) -> Result<(), IndexError> {
        if self.definition.reduce != Some(Reduce::Stats) {
            return Ok(());
        }
        let rows = self.header().await?;
        if rows.others == Some(0) {
            return Ok(());
        }
        let outcome = match self.outcome_of(rows) {
            Some(outcome) => outcome,
            None => self.check(rows).await?,
        };
        outcome.map_err(IndexError::Refused)
    }

    fn outcome_of(&self, rows: Header) -> Option<Result<(), InvalidValue>> {
        let checked = self.slot.checked.lock().unwrap_or_else(PoisonError::into_inner);
        checked.as_ref().filter(|checked| checked.rows == rows).map(|checked| checked.outcome.clone())
    }

    async fn check(&self, rows: Header) -> Result<Result<(), InvalidValue>, IndexError> {
        let by = GroupBy { grouping: Grouping::All, reduce: Reduce::Stats, direction: Direction::Forward, prefix: 0 };
        let outcome = match self.groups(&by, VecDeque::from([Places::all(b"")]), 1, StateOf::Now).await {
            Ok(_) => Ok(()),
            Err(IndexError::Refused(error)) => Err(error),
            Err(error) => return Err(error),
        };
        let checked = Checked { rows, outcome: outcome.clone() };
        *self.slot.checked.lock().unwrap_or_else(PoisonError::into_inner) = Some(checked);
        Ok(outcome)
    }

    /// The shard's last sequence.
    pub fn committed(&self) -> u64 {
        *self.replica.watch().borrow()
    }

    /// Whether no view of this design document is known to fail with what the shard has up to a sequence.
    pub fn is_trusted(&self, design: &[u8; 32], until: u64) -> bool {
        self.slot.known().trusted.is_some_and(|(of, known)| of == *design && known >= until)
    }

    /// Notes that none fails.
    pub fn trust(&self, design: [u8; 32], until: u64) {
        self.slot.change(|known| known.trusted = Some((design, until)));
    }
}
