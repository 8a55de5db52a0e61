//! The node's own records below a prefix, read in steps of a bounded number.

use std::ops::ControlFlow;

use crate::limits;
use crate::storage::{Direction, KeyRange, StorageError, View};

/// Keys and values, in the order of the keys.
pub(in crate::coordinator) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// One step of the rows below a prefix, from the first one behind a key on; and their last key where there may be
/// others behind it.
pub(in crate::coordinator) fn step(
    view: &dyn View,
    prefix: &[u8],
    after: Option<Vec<u8>>,
) -> Result<(Rows, Option<Vec<u8>>), StorageError> {
    let mut range = KeyRange::prefix(prefix);
    if let Some(mut after) = after {
        after.push(0);
        range.start = after;
    }
    let (mut rows, mut bytes, mut is_full): (Rows, usize, bool) = (Vec::new(), 0, false);
    view.scan(&range, Direction::Forward, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        bytes += value.len();
        is_full = rows.len() == limits::STEP_ROWS || bytes >= limits::LISTED_BYTES;
        if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let last = rows.last().filter(|_| is_full).map(|(key, _)| key.clone());
    Ok((rows, last))
}
