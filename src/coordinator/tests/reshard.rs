//! Ranges are split while their database is written to and read.

use std::collections::BTreeMap;

use super::*;
use crate::coordinator::rebalance::reshard::JobRequest;
use crate::coordinator::replica::jobs::{JobState, Resharding};
use crate::coordinator::{FeedOperations, ReadOperations, RebalanceOperations};

fn split_of(db: &str) -> JobRequest {
    JobRequest { db: db.to_owned(), ..JobRequest::default() }
}

/// Waits until all jobs are over.
async fn finish(coordinator: &Coordinator, world: &World) {
    for _ in 0..2000 {
        let jobs = coordinator.reshard_jobs().await;
        assert!(jobs.iter().all(|job| job.state != JobState::Failed), "{jobs:?}");
        if jobs.iter().all(|job| job.state == JobState::Completed) {
            return;
        }
        world.env.sleep(std::time::Duration::from_millis(5)).await;
    }
    panic!("jobs do not end: {:?}", coordinator.reshard_jobs().await);
}

/// Splits all ranges of `db` in two.
pub(super) async fn split_all(coordinator: &Coordinator, world: &World) {
    coordinator.reshard(&split_of("db")).await.unwrap();
    finish(coordinator, world).await;
}

/// All rows that are there now, by document: how often each was listed.
async fn drain(feed: &mut Changes, seen: &mut BTreeMap<String, Vec<String>>) -> usize {
    let mut rows = 0;
    while let Some(page) = feed.next().await.unwrap() {
        for row in page {
            rows += 1;
            seen.entry(row.id.as_str().to_owned()).or_default().push(row.revs[0].to_string());
        }
    }
    rows
}

#[tokio::test]
async fn a_split_keeps_documents_views_attachments_and_local_documents() {
    let (world, coordinator, db) = database(1).await;
    let map = r#"{"language":"javascript","views":{"v":{"map":"function(d){emit(d.n,1)}"}}}"#;
    put(&db, "_design/d", map).await;
    for n in 0..40 {
        put(&db, &format!("d{n}"), &format!(r#"{{"n":{n},"_attachments":{{"a":{{"data":"YWJj"}}}}}}"#)).await;
    }
    put(&db, "_local/l", r#"{"here":true}"#).await;
    let before = db.info().await.unwrap();
    let made = coordinator.reshard(&split_of("db")).await.unwrap();
    assert!(made.len() == 1 && made[0].made.is_ok() && made[0].shard.starts_with("shards/00000000-ffffffff/db."));
    let whole = JobRequest {
        range: crate::coordinator::topology::shard_map::Range::parse("00000000-ffffffff"),
        ..split_of("db")
    };
    let twice = coordinator.reshard(&whole).await.unwrap();
    // None where the range is split already.
    assert!(twice.iter().all(|job| job.made == Err("job_already_exists".to_owned())), "{twice:?}");
    finish(&coordinator, &world).await;
    let after = db.info().await.unwrap();
    assert_eq!((after.cluster.q, after.doc_count, after.doc_del_count), (2, before.doc_count, 0));
    assert_eq!(body(&db, "d7").await, r#"{"n":7}"#);
    assert_eq!(body(&db, "_local/l").await, r#"{"here":true}"#);
    let names: Vec<String> = db.shards().into_iter().map(|(range, _)| range).collect();
    assert_eq!(names, ["00000000-7fffffff", "80000000-ffffffff"]);
    let report = check(&world.storage).await.unwrap();
    assert_eq!(report.findings, Vec::<String>::new());
    let view = db.queries().view(&id("_design/d"), "v").await.unwrap();
    let mut rows = view.begin(super::views::query(None, false)).await.unwrap();
    assert_eq!(rows.take(1000).await.unwrap().len(), 40);
    put(&db, "d100", r#"{"n":100}"#).await;
    assert_eq!(db.info().await.unwrap().doc_count, before.doc_count + 1);
}

#[tokio::test]
async fn a_sequence_from_before_a_split_goes_on_after_it_and_repeats_nothing() {
    let (world, coordinator, db) = database(1).await;
    for n in 0..60 {
        put(&db, &format!("d{n}"), "{}").await;
    }
    let since = db.update_seq().await.unwrap();
    let mut open = db.feeds().changes(ChangesQuery::default()).await.unwrap();
    let mut seen = BTreeMap::new();
    assert_eq!(drain(&mut open, &mut seen).await, 60);
    for n in 60..80 {
        put(&db, &format!("d{n}"), "{}").await;
    }
    coordinator.reshard(&split_of("db")).await.unwrap();
    finish(&coordinator, &world).await;
    for n in 80..100 {
        put(&db, &format!("d{n}"), "{}").await;
    }
    open.wait().await;
    assert_eq!(drain(&mut open, &mut seen).await, 40);
    assert_eq!(seen.len(), 100);
    assert!(seen.values().all(|revs| revs.len() == 1), "{seen:?}");
    let later = ChangesQuery { since: Since::Seq(since), ..ChangesQuery::default() };
    let mut later = db.feeds().changes(later).await.unwrap();
    let mut seen = BTreeMap::new();
    assert_eq!(drain(&mut later, &mut seen).await, 40);
    assert!(Since::parse(&later.last_seq()).is_ok());
    // A second split, of a half.
    let half = JobRequest {
        range: crate::coordinator::topology::shard_map::Range::parse("80000000-ffffffff"),
        ..split_of("db")
    };
    assert_eq!(coordinator.reshard(&half).await.unwrap().len(), 1);
    finish(&coordinator, &world).await;
    put(&db, "last", "{}").await;
    assert_eq!(drain(&mut later, &mut seen).await, 1);
    assert_eq!(db.info().await.unwrap().cluster.q, 3);
}

#[tokio::test]
async fn writers_and_a_feed_go_on_while_ranges_are_split() {
    let (world, coordinator, db) = database(2).await;
    let writer = |w: usize| {
        let (db, env) = (Arc::clone(&db), world.env.clone());
        async move {
            for n in 0..150 {
                let name = format!("w{w}-{n}");
                let rev = put(&db, &name, r#"{"v":1}"#).await;
                put(&db, &name, &format!(r#"{{"_rev":"{rev}","v":2}}"#)).await;
                put(&db, &format!("_local/{name}"), "{}").await;
                env.sleep(std::time::Duration::ZERO).await;
            }
        }
    };
    let splits = async {
        coordinator.reshard(&split_of("db")).await.unwrap();
        finish(&coordinator, &world).await;
        coordinator.reshard(&split_of("db")).await.unwrap();
        finish(&coordinator, &world).await;
    };
    let mut feed = db.feeds().changes(ChangesQuery::default()).await.unwrap();
    let mut seen = BTreeMap::new();
    let follow = async {
        while seen.values().filter(|revs: &&Vec<String>| revs.iter().any(|rev| rev.starts_with("2-"))).count() < 450 {
            feed.wait().await;
            drain(&mut feed, &mut seen).await;
        }
    };
    tokio::join!(writer(0), writer(1), writer(2), splits, follow);
    assert_eq!(db.info().await.unwrap().cluster.q, 8);
    assert_eq!(db.info().await.unwrap().doc_count, 450);
    for w in 0..3 {
        for n in 0..150 {
            assert_eq!(body(&db, &format!("w{w}-{n}")).await, r#"{"v":2}"#);
            assert_eq!(body(&db, &format!("_local/w{w}-{n}")).await, "{}");
        }
    }
    assert_eq!(check(&world.storage).await.unwrap().findings, Vec::<String>::new());
}

#[tokio::test]
async fn a_job_of_a_stopped_node_goes_on_when_it_starts_again() {
    let (world, coordinator, db) = database(1).await;
    for n in 0..30 {
        put(&db, &format!("d{n}"), "{}").await;
    }
    coordinator.set_resharding(Resharding { stopped: Some("test".to_owned()) }).await.unwrap();
    let made = coordinator.reshard(&split_of("db")).await.unwrap();
    let job = coordinator.reshard_jobs().await.remove(0);
    assert_eq!((job.state, job.reason.as_deref()), (JobState::Stopped, Some("Shard splitting disabled")));
    // Half of the work is done when the node stops.
    db.own_replicas().prepare(0, &|_| {}).await.unwrap();
    put(&db, "later", "{}").await;
    drop((coordinator, db));
    let coordinator = world.start().await;
    assert_eq!(coordinator.resharding().stopped.as_deref(), Some("test"));
    coordinator.set_resharding(Resharding::default()).await.unwrap();
    finish(&coordinator, &world).await;
    let db = coordinator.database("db").unwrap();
    let info = db.info().await.unwrap();
    assert_eq!((info.cluster.q, info.doc_count), (2, 31));
    assert!(coordinator.delete_reshard_job(made[0].made.as_ref().unwrap()).await.unwrap());
    assert!(coordinator.reshard_jobs().await.is_empty());
    drop((coordinator, db));
    let db = world.start().await.database("db").unwrap();
    assert_eq!(db.info().await.unwrap().doc_count, 31);
    assert_eq!(check(&world.storage).await.unwrap().findings, Vec::<String>::new());
}

/// The bytes of an attachment are gone, so that no half can take its document over.
#[tokio::test]
async fn a_job_that_failed_leaves_no_halves() {
    let (world, coordinator, db) = database(1).await;
    // Too large to lie beside the document.
    let data = "QUFB".repeat(crate::limits::BLOB_INLINE_BYTES);
    put(&db, "a", &format!(r#"{{"_attachments":{{"a":{{"data":"{data}"}}}}}}"#)).await;
    let mut open = vec![world.dir.path().join("blobs")];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => std::fs::remove_file(entry.path()).unwrap(),
            }
        }
    }
    assert_eq!(coordinator.reshard(&split_of("db")).await.unwrap().len(), 1);
    while coordinator.reshard_jobs().await[0].state != JobState::Failed {
        world.env.sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(db.halves().is_empty() && db.children(0).await.unwrap().is_none());
    put(&db, "_local/l", "{}").await;
    assert_eq!(db.map().q(), 1);
}

#[tokio::test]
async fn a_job_that_is_removed_leaves_nothing_behind() {
    let (world, coordinator, db) = database(1).await;
    put(&db, "a", "{}").await;
    coordinator.set_resharding(Resharding { stopped: Some("test".to_owned()) }).await.unwrap();
    let made = coordinator.reshard(&split_of("db")).await.unwrap();
    db.own_replicas().prepare(0, &|_| {}).await.unwrap();
    let id = made[0].made.clone().unwrap();
    assert!(coordinator.set_reshard_job(&id, Some("mine".to_owned())).await.unwrap());
    assert_eq!(coordinator.reshard_jobs().await[0].reason.as_deref(), Some("mine"));
    assert!(coordinator.delete_reshard_job(&id).await.unwrap());
    assert!(!coordinator.delete_reshard_job(&id).await.unwrap());
    put(&db, "_local/l", "{}").await;
    assert_eq!(check(&world.storage).await.unwrap().findings, Vec::<String>::new());
    assert!(matches!(coordinator.reshard(&split_of("none")).await, Err(DatabaseError::NotFound)));
}

#[tokio::test]
async fn a_job_that_is_removed_while_its_range_is_divided_loses_nothing() {
    for delay in 0..24 {
        let (world, _coordinator, db) = database(1).await;
        for n in 0..3 {
            put(&db, &format!("d{n}"), "{}").await;
        }
        let abandon = async {
            for _ in 0..delay * 40 {
                tokio::task::yield_now().await;
            }
            db.own_replicas().abandon(0).await
        };
        let next = db.map_record().with_split(0).unwrap();
        let (followed, abandoned) = tokio::join!(db.follow(next), abandon);
        assert_eq!((followed, abandoned), (Ok(()), Ok(())), "after {delay}");
        assert_eq!(db.info().await.unwrap().cluster.q, 2);
        for n in 0..3 {
            assert_eq!(body(&db, &format!("d{n}")).await, "{}", "after {delay}");
        }
        assert_eq!(check(&world.storage).await.unwrap().findings, Vec::<String>::new(), "after {delay}");
    }
}
