//! The node's own records below a prefix, read in steps of a bounded number.

use std::ops::ControlFlow;

use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// Keys and values, in the order of the keys.
pub(super) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// One step of the rows below a prefix, from the first one behind a key on; and their last key where there may be
/// others behind it.
pub(super) fn step(
    view: &dyn View,
    prefix: &[u8],
    after: Option<Vec<u8>>,
) -> Result<(Rows, Option<Vec<u8>>), StorageError> {
    let mut range = KeyRange::prefix(prefix);
    if let Some(mut after) = after {
        after.push(0);
        range.start = after;
    }
    let mut rows: Rows = Vec::new();
    view.scan(&range, Direction::Forward, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        if rows.len() < limits::STEP_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let last = rows.last().filter(|_| rows.len() == limits::STEP_ROWS).map(|(key, _)| key.clone());
    Ok((rows, last))
}
