//! Removal of a range of keys, a bounded number in each job, so that edits never wait for it.

use std::ops::ControlFlow;

use super::ShardError;
use super::lifetime::write;
use super::list::bounded_scan;
use crate::storage::{Direction, KeyRange, Storage, WriteView};
use crate::world::Pool;

/// Removes the keys of a range once; answers how many. It goes on behind those it removed: from the start it would step
/// over all of their marks again. Keys that come meanwhile may stay: who wants none goes round until none is found.
pub(super) async fn round(storage: &Storage, range: KeyRange) -> Result<usize, ShardError> {
    let (mut rest, mut removed) = (Some(range), 0);
    while let Some(range) = rest.take() {
        let found = storage.read_on(Pool::Background, move |view| {
            let mut found = Vec::new();
            let rest = bounded_scan(view, range, Direction::Forward, |key, _| {
                found.push(key.to_vec());
                Ok(ControlFlow::Continue(()))
            })?;
            Ok((found, rest))
        });
        let (found, next): (Vec<Vec<u8>>, _) = found.await?;
        rest = next;
        removed += found.len();
        if !found.is_empty() {
            let remove = |view: &mut WriteView<'_>| {
                found.into_iter().for_each(|key| view.delete(key));
                Ok(())
            };
            write(storage, remove).await?;
        }
    }
    Ok(removed)
}
