//! Databases come, go, come back, and survive a restart.

use std::ops::Bound;

use futures_util::FutureExt as _;

use super::*;
use crate::coordinator::topology::span::Span;
use crate::coordinator::{FeedOperations, ReadOperations, WriteOperations};
use crate::shard::{ListPage, ListRow};

#[tokio::test]
async fn databases_are_made_once_and_listed_in_byte_order() {
    let world = World::new().await;
    let coordinator = world.start().await;
    for name in ["b", "a/x", "a"] {
        assert_eq!(coordinator.create_database(name, CreateOptions::default()).await.unwrap(), Written::Quorum);
    }
    let again = coordinator.create_database("a", CreateOptions::default()).await;
    assert!(matches!(again, Err(DatabaseError::Exists)));
    let all = |query: NamesQuery| coordinator.database_names(&query).join(" ");
    assert_eq!(all(NamesQuery::default()), "_replicator _users a a/x b");
    let from_a = NamesQuery { start: Some("a".to_owned()), end: Some("b".to_owned()), ..NamesQuery::default() };
    assert_eq!(all(from_a.clone()), "a a/x b");
    assert_eq!(all(NamesQuery { end_exclusive: true, skip: 1, ..from_a.clone() }), "a/x");
    assert_eq!(all(NamesQuery { descending: true, ..from_a }), "");
    let down = NamesQuery { start: Some("a/y".to_owned()), descending: true, limit: Some(2), ..NamesQuery::default() };
    assert_eq!(all(down), "a/x a");
}

#[tokio::test]
async fn a_database_made_again_sees_nothing_old() {
    let (world, coordinator, old) = database(3).await;
    put(&old, "a", "{}").await;
    let security = old.security();
    old.settings().set_revs_limit(5).await.unwrap();
    coordinator.delete_database("db").await.unwrap();
    assert!(matches!(coordinator.delete_database("db").await, Err(DatabaseError::NotFound)));
    assert!(matches!(coordinator.database("db"), Err(DatabaseError::NotFound)));
    assert!(old.is_gone());
    assert!(matches!(old.documents().fetch(&id("a"), Want::Winner).await, Err(ReadError::DatabaseGone)));
    coordinator.create_database("db", CreateOptions { q: Some(3), ..CreateOptions::default() }).await.unwrap();
    let new = coordinator.database("db").unwrap();
    assert_eq!(body(&new, "a").await, "!");
    assert_ne!(new.instance(), old.instance());
    assert_eq!((new.revs_limit(), new.security()), (1000, security));
    assert!(matches!(old.settings().set_revs_limit(9).await, Err(SettingError::DatabaseGone)));
    drop(world);
}

#[tokio::test]
async fn a_security_object_counts_from_its_change_on_and_is_read_once() {
    let (world, coordinator, db) = database(2).await;
    let set = async |text: &str| {
        let object = json::parse(text.as_bytes()).unwrap();
        db.settings().set_security(object.as_object().unwrap()).await.unwrap();
    };
    for name in ["x", "y"] {
        set(&format!(r#"{{"admins":{{"names":["{name}"]}}}}"#)).await;
        let named = db.named();
        assert_eq!((&named.admins.names[..], &named.members.names[..]), (&[name.to_owned()][..], &[][..]));
        assert!(Arc::ptr_eq(&named, &db.named()));
    }
    set("{}").await;
    assert!(db.named().admins.names.is_empty());
    drop((world, coordinator));
}

#[tokio::test]
async fn databases_and_settings_survive_a_restart() {
    let (world, coordinator, first) = database(2).await;
    put(&first, "a", r#"{"v":1}"#).await;
    first.settings().set_revs_limit(7).await.unwrap();
    let security = json::parse(br#"{"admins":{"names":["x"]}}"#).unwrap();
    first.settings().set_security(security.as_object().unwrap()).await.unwrap();
    let seq = first.update_seq().await.unwrap();
    drop((first, coordinator));
    let coordinator = world.start().await;
    let second = coordinator.database("db").unwrap();
    assert_eq!(body(&second, "a").await, r#"{"v":1}"#);
    assert_eq!(second.revs_limit(), 7);
    assert_eq!(&second.security()[..], br#"{"admins":{"names":["x"]}}"#);
    assert_eq!(second.update_seq().await.unwrap(), seq);
    assert_eq!(second.shards().len(), 2);
    drop((second, coordinator));
    // Each start begins an epoch: readers go on where they were, and what is new has names that nothing else had.
    let third = world.start().await.database("db").unwrap();
    let epochs = |seq: &Seq| seq.0.iter().map(|entry| entry.epoch).collect::<Vec<_>>();
    put(&third, "b", "{}").await;
    assert_ne!(epochs(&third.update_seq().await.unwrap()), epochs(&seq));
    let query = ChangesQuery { since: Since::Seq(seq), ..ChangesQuery::default() };
    let rows = third.feeds().changes(query).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), [id("b")]);
}

#[tokio::test]
async fn what_cannot_be_made() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let make = async |name: &str, options: CreateOptions| coordinator.create_database(name, options).await;
    let q = CreateOptions { q: Some(0), ..CreateOptions::default() };
    assert!(matches!(make("X", q).await, Err(DatabaseError::IllegalNumber { parameter: "q" })));
    let n = CreateOptions { n: Some(0), ..CreateOptions::default() };
    assert!(matches!(make("x", n).await, Err(DatabaseError::IllegalNumber { parameter: "n" })));
    let placement = CreateOptions { placement: Some("moon".to_owned()), ..CreateOptions::default() };
    assert!(matches!(make("x", placement).await, Err(DatabaseError::IllegalPlacement)));
    assert!(matches!(make("X", CreateOptions::default()).await, Err(DatabaseError::IllegalName { .. })));
}

#[tokio::test]
async fn events_tell_what_happened_to_databases() {
    let (_world, coordinator, database) = database(1).await;
    let (_, since) = coordinator.events(0);
    put(&database, "a", "{}").await;
    let (events, since) = (coordinator.events(since).0, coordinator.events(since).1);
    assert_eq!((events[0].name.as_str(), events[0].kind), ("db", EventKind::Updated));
    coordinator.delete_database("db").await.unwrap();
    assert_eq!(coordinator.events(since).0[0].kind, EventKind::Deleted);
}

#[tokio::test]
async fn counts_are_summed_over_the_ranges() {
    let (_world, _coordinator, database) = database(4).await;
    for n in 0..10 {
        put(&database, &format!("d{n}"), r#"{"v":1}"#).await;
    }
    put(&database, "_design/x", "{}").await;
    put(&database, "_local/x", "{}").await;
    let first = put(&database, "gone", "{}").await;
    database.writer().delete(&id("gone"), Some(first), WriteOptions::default()).await.unwrap();
    let info = database.info().await.unwrap();
    assert_eq!((info.doc_count, info.doc_del_count), (11, 1));
    assert!(info.update_seq.starts_with("13-") && info.purge_seq.starts_with("0-"));
    assert_eq!(info.cluster, ClusterInfo { q: 4, n: 1, w: 1, r: 1 });
}

#[tokio::test]
async fn ranges_that_are_read_together_tell_what_each_tells_by_itself() {
    let (_world, _coordinator, database) = database(4).await;
    for n in 0..20 {
        put(&database, &format!("d{n}"), r#"{"v":1}"#).await;
    }
    let (ranges, span) = (database.ranges(), Span::of(&DocSource::All));
    let (infos, counts) =
        (database.replicas().infos(&ranges).await.unwrap(), database.replicas().counts(&ranges, &span).await.unwrap());
    assert_eq!((infos.len(), counts.iter().sum::<u64>()), (4, 20));
    for ((range, together), count) in ranges.iter().zip(infos).zip(counts) {
        let alone = database.replicas().on_one(*range, |replica| async move { replica.info().await }).await.unwrap();
        assert_eq!((together, count), (alone, alone.0.doc_count));
    }
    let (start, end) = (Bound::Unbounded, Bound::Unbounded);
    let page = ListPage { start, end, descending: true, limit: 3, bodies: false };
    let lists = database.replicas().lists(&ranges, &std::array::from_fn::<_, 4, _>(|_| page.clone())).await.unwrap();
    for (range, together) in ranges.iter().zip(lists) {
        let alone = database.replicas().own_shard(*range).await.unwrap().list(page.clone()).await.unwrap();
        let ids = |rows: Vec<ListRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
        assert_eq!(ids(together), ids(alone));
    }
    database.replicas().own_shard(ranges[2]).await.unwrap().quarantine();
    assert!(matches!(database.replicas().infos(&ranges).await, Err(ShardError::NotExecuted(_))));
    assert_eq!(database.replicas().infos(&ranges[..2]).await.unwrap().len(), 2);
}

/// The notes in `_global_changes`, in the order of the feed.
async fn notes(coordinator: &Coordinator) -> Vec<String> {
    let database = coordinator.database("_global_changes").unwrap();
    let mut changes = database.feeds().changes(ChangesQuery::default()).await.unwrap();
    let mut ids = Vec::new();
    while let Some(page) = changes.next().await.unwrap() {
        ids.extend(page.into_iter().map(|row| row.id.as_str().to_owned()));
    }
    ids
}

#[tokio::test]
async fn global_changes_note_what_happened_and_survive_a_restart() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let one_range = CreateOptions { q: Some(1), ..CreateOptions::default() };
    coordinator.create_database("before", one_range.clone()).await.unwrap();
    coordinator.create_database("_global_changes", one_range.clone()).await.unwrap();
    coordinator.create_database("db", one_range.clone()).await.unwrap();
    let database = coordinator.database("db").unwrap();
    for n in 0..3 {
        put(&database, &format!("d{n}"), "{}").await;
        coordinator.note_updates().await;
    }
    assert_eq!(notes(&coordinator).await, ["created:db", "updated:db"]);
    coordinator.delete_database("db").await.unwrap();
    assert_eq!(notes(&coordinator).await, ["created:db", "updated:db", "deleted:db"]);
    coordinator.create_database("db", one_range).await.unwrap();
    drop((database, coordinator));
    let again = world.start().await;
    assert_eq!(notes(&again).await, ["updated:db", "deleted:db", "created:db"]);
}

/// Begins something and gives it up, as a request whose connection is lost.
async fn begin_and_cancel(future: impl Future) {
    let mut future = Box::pin(future);
    assert!(future.as_mut().now_or_never().is_none());
}

/// Stops the committer until something is sent.
async fn hold_committer(world: &World) -> std::sync::mpsc::Sender<()> {
    let (go, held) = std::sync::mpsc::channel::<()>();
    let job = move |_: &mut crate::storage::WriteView<'_>| Ok(held.recv().map_err(drop));
    begin_and_cancel(world.storage.committer().submit(job)).await;
    go
}

/// Writes a document and gives up as soon as its edit is queued.
async fn queue_and_cancel(database: &Arc<Database>, name: &str) {
    let mut write = Box::pin(database.writer().write_one(request(name, "{}"), WriteOptions::default()));
    while database.is_idle() {
        assert!(write.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_client_that_goes_away_changes_nothing_of_what_follows_a_commit() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let one_range = CreateOptions { q: Some(1), ..CreateOptions::default() };
    coordinator.create_database("_global_changes", one_range.clone()).await.unwrap();
    let mut news = coordinator.watch_events();
    let mut wait_for = async |notes_wanted: &[&str]| {
        loop {
            news.borrow_and_update();
            if notes(&coordinator).await == notes_wanted {
                return;
            }
            news.changed().await.unwrap();
        }
    };
    begin_and_cancel(coordinator.create_database("db", one_range)).await;
    wait_for(&["created:db"]).await;
    let database = coordinator.database("db").unwrap();
    put(&database, "a", "{}").await;
    let (_, since) = coordinator.events(0);
    let go = hold_committer(&world).await;
    queue_and_cancel(&database, "b").await;
    go.send(()).unwrap();
    let mut events = coordinator.watch_events();
    events.wait_for(|last| *last > since).await.unwrap();
    let (told, _) = coordinator.events(since);
    assert_eq!((told[0].name.as_str(), told[0].kind), ("db", EventKind::Updated));
    assert_eq!(body(&database, "b").await, "{}");
    coordinator.note_updates().await;
    begin_and_cancel(coordinator.delete_database("db")).await;
    wait_for(&["created:db", "updated:db", "deleted:db"]).await;
    assert!(database.is_gone() && !coordinator.has_database("db"));
}

#[tokio::test]
async fn a_database_is_not_reopened_beside_a_queued_edit_whose_feed_would_go_stale() {
    let (world, _coordinator, database) = database(1).await;
    put(&database, "a", "{}").await;
    let go = hold_committer(&world).await;
    queue_and_cancel(&database, "b").await;
    assert!(!database.is_idle(), "the edit is queued");
    go.send(()).unwrap();
    while !database.is_idle() {
        tokio::task::yield_now().await;
    }
    assert_eq!(body(&database, "b").await, "{}");
}
