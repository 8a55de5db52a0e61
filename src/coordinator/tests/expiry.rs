//! Documents that end, on one node.

use super::*;
use crate::coordinator::anti_entropy::expiry::expire;
use crate::coordinator::{ReadOperations, RepairOperations, WriteOperations};
use crate::document::rev_tree::RevValue as _;
use crate::observe::metrics::Counter;

/// As far from now as a document can end.
const LATE: &str = "253402300799";

pub(super) fn ends() -> AutoPurge {
    AutoPurge { expires_at: Some("ends".to_owned()), ..AutoPurge::default() }
}

async fn expiring(q: u32) -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(q).await;
    database.settings().set_retention(ends()).await.unwrap();
    (world, coordinator, database)
}

async fn attempt(database: &Arc<Database>, text: &str, new_edits: bool) -> Result<Revision, WriteError> {
    let options = WriteOptions { new_edits, ..WriteOptions::default() };
    database.writer().write_one(request("a", text), options).await.map(|done| done.rev)
}

#[tokio::test]
async fn what_has_ended_is_deleted_as_a_client_deletes_it() {
    let (world, coordinator, database) = expiring(4).await;
    let mut ended = Vec::new();
    for n in 0..20 {
        ended.push((format!("d{n}"), put(&database, &format!("d{n}"), &format!(r#"{{"ends":{}}}"#, n + 1)).await));
    }
    put(&database, "late", &format!(r#"{{"ends":{LATE}}}"#)).await;
    put(&database, "never", r#"{"ends":null}"#).await;
    put(&database, "other", r#"{"at":{"ends":1}}"#).await;
    put(&database, "_design/d", r#"{"ends":1}"#).await;
    assert!(expire(&Arc::downgrade(&coordinator)).await);
    let (_other, _, same) = super::database(1).await;
    for (name, rev) in &ended {
        assert_eq!(body(&database, name).await, "-", "{name}");
        assert_eq!(put(&same, name, &body_of(name)).await, *rev);
        let deleted = same.writer().delete(&id(name), Some(rev.clone()), WriteOptions::default()).await.unwrap();
        let tree = database.documents().fetch(&id(name), Want::Tree).await.unwrap().unwrap().tree;
        assert_eq!(tree.winner().map(|leaf| leaf.rev), Some(deleted.rev), "the revision of an ordinary deletion");
    }
    for name in ["late", "never", "other", "_design/d"] {
        assert_ne!(body(&database, name).await, "-", "{name}");
    }
    assert_eq!(world.env.metrics().counted(Counter::DocumentsExpired), 20);
}

/// The text that the test above wrote.
fn body_of(name: &str) -> String {
    let n: u64 = name.trim_start_matches('d').parse().unwrap();
    format!(r#"{{"ends":{}}}"#, n + 1)
}

#[tokio::test]
async fn a_document_that_was_given_a_later_end_stays() {
    let (_world, coordinator, database) = expiring(1).await;
    let first = put(&database, "a", r#"{"ends":1}"#).await;
    put(&database, "a", &format!(r#"{{"_rev":"{first}","ends":{LATE}}}"#)).await;
    let first = put(&database, "b", &format!(r#"{{"ends":{LATE}}}"#)).await;
    put(&database, "b", &format!(r#"{{"_rev":"{first}","ends":1}}"#)).await;
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!((body(&database, "a").await, body(&database, "b").await), (format!(r#"{{"ends":{LATE}}}"#), "-".into()));
}

#[tokio::test]
async fn each_of_two_conflicts_ends_when_it_says_so() {
    let (_world, coordinator, database) = expiring(1).await;
    attempt(&database, r#"{"_rev":"1-b","ends":1}"#, false).await.unwrap();
    attempt(&database, &format!(r#"{{"_rev":"1-a","ends":{LATE}}}"#), false).await.unwrap();
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(body(&database, "a").await, format!(r#"{{"ends":{LATE}}}"#));
    attempt(&database, r#"{"_rev":"1-c","ends":1}"#, false).await.unwrap();
    attempt(&database, r#"{"_rev":"1-d","ends":2}"#, false).await.unwrap();
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(body(&database, "a").await, format!(r#"{{"ends":{LATE}}}"#));
    let tree = database.documents().fetch(&id("a"), Want::Tree).await.unwrap().unwrap().tree;
    assert_eq!(tree.leaves().into_iter().filter(|leaf| !leaf.value.is_deleted()).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn validation_functions_are_not_asked() {
    let (_world, coordinator, database) = expiring(1).await;
    put(&database, "a", r#"{"ends":1}"#).await;
    put(&database, "_design/v", r#"{"validate_doc_update":"function () { throw({forbidden: 'no'}); }"}"#).await;
    assert!(matches!(attempt(&database, "{}", true).await, Err(WriteError::Conflict)));
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(body(&database, "a").await, "-");
}

#[tokio::test]
async fn what_is_no_time_is_refused_of_clients_and_counted_of_replications() {
    let (_world, coordinator, database) = expiring(1).await;
    for text in [r#"{"ends":"2030-01-01"}"#, r#"{"ends":0}"#, r#"{"ends":1700000000000}"#, r#"{"ends":1.5}"#] {
        let refused = attempt(&database, text, true).await;
        let Err(WriteError::Draft(error)) = refused else { panic!("{text}: {refused:?}") };
        let reason = "Document member 'ends' isn't a time in whole seconds since 1970";
        assert_eq!((error.kind.name(), &*error.reason), ("doc_validation", reason), "{text}");
    }
    attempt(&database, r#"{"_rev":"1-a","ends":"2030-01-01"}"#, false).await.unwrap();
    expire(&Arc::downgrade(&coordinator)).await;
    assert_ne!(body(&database, "a").await, "-");
    put(&database, "b", r#"{"ends":7}"#).await;
    put(&database, "c", &format!(r#"{{"ends":{LATE}}}"#)).await;
    let outlook = database.expiry().outlook(true).await.unwrap().unwrap();
    assert_eq!((outlook.next, outlook.counted), (Some(7), Some((1, 1))));
    assert_eq!(outlook.held_back_by.len(), 0);
    expire(&Arc::downgrade(&coordinator)).await;
    let outlook = database.expiry().outlook(true).await.unwrap().unwrap();
    assert_eq!((outlook.next, outlook.counted), (LATE.parse().ok(), Some((0, 1))));
}

#[tokio::test]
async fn nothing_ends_where_no_member_is_named() {
    let (_world, coordinator, database) = database(1).await;
    put(&database, "a", r#"{"ends":1}"#).await;
    put(&database, "b", r#"{"ends":"soon"}"#).await;
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(database.expiry().outlook(true).await.unwrap(), None);
    let calls = (coordinator.env().metrics().tasks().states().len(), body(&database, "a").await);
    assert_eq!(calls, (0, r#"{"ends":1}"#.to_owned()));
    for name in ["", "_ends", &"e".repeat(257)] {
        let wanted = AutoPurge { expires_at: Some(name.to_owned()), ..AutoPurge::default() };
        let refused = database.settings().set_retention(wanted).await;
        assert!(matches!(refused, Err(SettingError::IllegalMember)), "{name}");
    }
    database.settings().set_retention(ends()).await.unwrap();
    database.settings().set_retention(AutoPurge { period: Some("1_d".to_owned()), ..ends() }).await.unwrap();
    assert_eq!(database.known.expires_at().as_deref(), Some("ends"), "the period alone was changed");
    database.settings().set_retention(AutoPurge::default()).await.unwrap();
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(body(&database, "a").await, r#"{"ends":1}"#);
}

#[tokio::test]
async fn a_clean_up_keeps_the_index_of_the_member_that_is_named() {
    let (_world, coordinator, database) = expiring(1).await;
    put(&database, "late", &format!(r#"{{"ends":{LATE}}}"#)).await;
    expire(&Arc::downgrade(&coordinator)).await;
    let next = || async { database.expiry().outlook(false).await.unwrap().unwrap().next };
    database.queries().clean_up_views().await.unwrap();
    assert_eq!(next().await, LATE.parse().ok());
    database.settings().set_retention(AutoPurge::default()).await.unwrap();
    database.queries().clean_up_views().await.unwrap();
    database.settings().set_retention(ends()).await.unwrap();
    assert_eq!(next().await, None, "it was removed");
    expire(&Arc::downgrade(&coordinator)).await;
    assert_eq!(next().await, LATE.parse().ok());
}
