//! Removal of shards.

use super::*;
use crate::limits;
use crate::shard::drop_shard;
use crate::storage::{Direction, KeyRange};

#[tokio::test]
async fn a_dropped_shard_of_many_steps_goes_whole() {
    let w = World::new().await;
    let count = limits::STEP_ROWS + 200;
    let edits = (0..count).map(|n| interactive(&format!("d{n}"), None, false, "{}")).collect();
    w.shard.edit(edits).await.unwrap();
    let rows = async || {
        let range = KeyRange::prefix(&SHARD.0.to_be_bytes());
        let count = move |view: &dyn crate::storage::View| {
            let mut rows = 0;
            view.scan(&range, Direction::Forward, &mut |_, _| {
                rows += 1;
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(rows)
        };
        w.storage.read(count).await.unwrap()
    };
    assert!(rows().await > 3 * count, "documents, bodies, sequences");
    w.shard.close();
    drop_shard(&w.storage, SHARD).await.unwrap();
    while rows().await > 0 {
        tokio::task::yield_now().await;
    }
}
