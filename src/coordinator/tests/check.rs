//! `settee check` on whole data and on each kind of fault.

use super::*;
use crate::coordinator::{RebalanceOperations, WriteOperations};
use crate::shard::ShardId;
use crate::storage::{KeyRange, View};

/// A database with live, deleted, conflicting, design and local documents, attachments of both kinds, purges, and one
/// that was compacted.
pub(super) async fn filled() -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(2).await;
    for n in 0..40 {
        put(&database, &format!("doc {n:02}"), &format!(r#"{{"n":{n}}}"#)).await;
    }
    let first = put(&database, "changed", "{}").await;
    put(&database, "changed", &format!(r#"{{"_rev":"{first}","again":true}}"#)).await;
    let gone = put(&database, "gone", "{}").await;
    put(&database, "gone", &format!(r#"{{"_rev":"{gone}","_deleted":true}}"#)).await;
    let purged = put(&database, "purged", "{}").await;
    database.maintenance().purge(vec![(id("purged"), vec![purged])]).await.unwrap();
    put(&database, "_design/d", "{}").await;
    put(&database, "_local/l", "{}").await;
    (world, coordinator, database)
}

async fn findings(world: &World) -> Vec<String> {
    check(&world.storage).await.unwrap().findings
}

/// The keys of a kind in the database's first shard that holds any.
pub(super) async fn keys_of(world: &World, database: &Arc<Database>, kind: u8) -> Vec<Vec<u8>> {
    for shard in database.known.placed().shards.iter() {
        let prefix = [&shard.to_be_bytes()[..], &[kind]].concat();
        let read = move |view: &dyn View| {
            let mut keys = Vec::new();
            view.scan(&KeyRange::prefix(&prefix), crate::storage::Direction::Forward, &mut |key, _| {
                keys.push(key.to_vec());
                std::ops::ControlFlow::Continue(())
            })?;
            Ok(keys)
        };
        let keys = world.storage.read(read).await.unwrap();
        if !keys.is_empty() {
            return keys;
        }
    }
    Vec::new()
}

/// Replaces the value of a key, or removes it, behind everybody's back.
pub(super) async fn spoil(world: &World, key: Vec<u8>, value: Option<Vec<u8>>) {
    let job = move |view: &mut crate::storage::WriteView<'_>| {
        match value {
            Some(value) => view.put(key, value),
            None => view.delete(key),
        }
        Ok(Ok::<(), ()>(()))
    };
    world.storage.committer().submit(job).await.unwrap().unwrap();
}

#[tokio::test]
async fn whole_data_has_no_findings() {
    let (world, _coordinator, database) = filled().await;
    let report = check(&world.storage).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    assert_eq!(report.documents, 40 + 4 - 1);
    assert!(report.databases >= 3 && report.revisions >= 40);
    database.compaction().compact_all().await.unwrap();
    assert_eq!(findings(&world).await, Vec::<String>::new());
}

#[tokio::test]
async fn every_missing_or_changed_record_is_found_and_named() {
    for (kind, word) in [(b'd', "document"), (b'b', "body"), (b's', "change"), (b'h', "header")] {
        let (world, _coordinator, database) = filled().await;
        let key = keys_of(&world, &database, kind).await.pop().unwrap();
        spoil(&world, key.clone(), None).await;
        let found = findings(&world).await;
        assert!(found.iter().any(|line| line.contains(word)), "{word}: {found:?}");
        assert!(found.iter().all(|line| line.starts_with("database \"db\", range ")), "{found:?}");
        spoil(&world, key, Some(vec![0xff; 3])).await;
        let found = findings(&world).await;
        assert!(found.iter().any(|line| line.contains(word) || line.contains("version")), "{word}: {found:?}");
    }
}

#[tokio::test]
async fn a_shard_of_no_database_is_found() {
    let (world, _coordinator, _database) = filled().await;
    let key = [&ShardId(999).0.to_be_bytes()[..], b"hx"].concat();
    spoil(&world, key, Some(vec![1])).await;
    assert_eq!(findings(&world).await, ["shard 999 has records and belongs to no database"]);
}

/// A view in which a row of keys lies on a damaged page.
struct Holed<'v> {
    view: &'v dyn View,
    lost: KeyRange,
}

fn damaged() -> crate::storage::StorageError {
    crate::storage::StorageError::Corrupt("a page".to_owned())
}

impl View for Holed<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, crate::storage::StorageError> {
        if self.lost.contains(key) { Err(damaged()) } else { self.view.get(key) }
    }

    fn scan(
        &self,
        range: &KeyRange,
        direction: crate::storage::Direction,
        visit: &mut (dyn FnMut(&[u8], &[u8]) -> std::ops::ControlFlow<()> + '_),
    ) -> Result<(), crate::storage::StorageError> {
        let mut is_lost = self.lost.contains(&range.start);
        if !is_lost {
            self.view.scan(range, direction, &mut |key, value| {
                is_lost = self.lost.contains(key);
                if is_lost { std::ops::ControlFlow::Break(()) } else { visit(key, value) }
            })?;
        }
        if is_lost { Err(damaged()) } else { Ok(()) }
    }
}

#[tokio::test]
async fn documents_on_a_damaged_page_are_named_and_those_behind_it_are_looked_at() {
    let (world, _coordinator, database) = filled().await;
    let keys = keys_of(&world, &database, b'd').await;
    assert!(keys.len() >= 6, "{}", keys.len());
    let lost = KeyRange::new(keys[2].clone(), keys[4].clone());
    let name = |key: &[u8]| format!("document {:?}: ", std::str::from_utf8(&key[9..]).unwrap());
    let (shard, blobs) = (ShardId(u64::from_be_bytes(keys[0][..8].try_into().unwrap())), world.storage.blobs().clone());
    let read = move |view: &dyn View| Ok(crate::shard::check(&Holed { view, lost }, &blobs, shard));
    let checked = world.storage.read(read).await.unwrap();
    let named: Vec<&String> = checked.findings.iter().filter(|line| line.starts_with("document ")).collect();
    assert_eq!(checked.documents, keys.len() as u64 - 2);
    assert_eq!(named.len(), 2, "{:?}", checked.findings);
    assert!(named[..].iter().zip(&keys[2..4]).all(|(line, key)| line.starts_with(&name(key))), "{named:?}");
}
