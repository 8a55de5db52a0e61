//! A disk that is nearly full, and what compaction gives back.

use super::*;
use crate::shard::{LocalDocument, ShardError};
use crate::storage::{StageMode, StorageError};

const NO_ROOM: ShardError = ShardError::Storage(StorageError::NoRoom);

#[tokio::test]
async fn a_disk_that_is_nearly_full_takes_deletions_purges_and_compaction_only() {
    let w = World::new().await;
    let first = w.put("a", None, "{}").await.unwrap();
    let second = w.put("a", Some(&first), "{\"v\":2}").await.unwrap();
    let purged = w.put("b", None, "{}").await.unwrap();
    let local = (DocId::new("_local/x"), LocalDocument { rev: 1, body: "{}".into() });
    w.shard.local_set(&local.0, Some(local.1.clone()), 1, false).await.unwrap();
    w.storage.measure_room(u64::MAX).await;
    assert_eq!(w.put("c", None, "{}").await, Err(EditError::NoRoom));
    assert_eq!(w.put("a", Some(&second), "{}").await, Err(EditError::NoRoom));
    assert_eq!(w.shard.local_set(&local.0, Some(local.1.clone()), 1, false).await, Err(NO_ROOM));
    let mut writer = w.shard.stage(StageMode::Plain);
    let upload = writer.write(bytes::Bytes::from(vec![7; 1 << 20])).await;
    assert_eq!(upload, Err(StorageError::NoRoom));
    let index = w.shard.write_records(|_| Ok(Ok::<(), ()>(()))).await;
    assert!(index.is_err_and(|error| error.is_no_room()));
    // All that makes room.
    let mixed = vec![interactive("a", Some(&second), true, "{}"), interactive("c", None, false, "{}")];
    let mixed = w.shard.edit(mixed).await.unwrap();
    assert!(mixed[0].is_ok() && mixed[1] == Err(EditError::NoRoom));
    assert_eq!(w.shard.purge(vec![(DocId::new("b"), vec![purged.clone()])]).await.unwrap(), [[purged]]);
    w.shard.local_set(&local.0, None, 1, false).await.unwrap();
    assert_eq!(w.shard.local_get(&local.0).await, Ok(None));
    let before = w.shard.info().await.unwrap().sizes.file;
    w.compact(0).await;
    assert!(w.shard.info().await.unwrap().sizes.file < before);
    w.storage.measure_room(0).await;
    w.put("c", None, "{}").await.unwrap();
}

#[tokio::test]
async fn compaction_leaves_live_bytes_only() {
    let w = World::new().await;
    let text = |n: usize| format!("{{\"n\":{n},\"x\":\"{}\"}}", "a long word and another ".repeat(60));
    for id in ["a", "b", "c"] {
        let mut rev = w.put(id, None, &text(0)).await.unwrap();
        for n in 1..20 {
            rev = w.put(id, Some(&rev), &text(n)).await.unwrap();
        }
    }
    let before = w.shard.info().await.unwrap().sizes;
    assert!(before.external > 3 * 1400 && before.active < before.external, "{before:?}");
    assert!(before.file > 2 * before.active, "{before:?}");
    w.compact(1000).await;
    let after = w.shard.info().await.unwrap().sizes;
    assert!(after.file == after.active && after.active < before.active, "{after:?}");
    let w = w.reopen().await;
    assert_eq!(w.winner("b").await.unwrap().body, text(19));
    assert_eq!(w.shard.info().await.unwrap().sizes, after);
}
