//! Documents, attachments, local documents and maintenance through the coordinator.

use std::collections::BTreeMap;

use super::*;
use crate::coordinator::read::documents;
use crate::coordinator::rebalance::window::Window;
use crate::coordinator::{FeedOperations, ReadOperations, RebalanceOperations, WriteOperations};
use crate::document::render::Encoding;

#[tokio::test]
async fn a_request_is_answered_in_its_order() {
    let (_world, _coordinator, database) = database(5).await;
    let names = ["c", "a", "b", "a", "_local/l", "e", "d"];
    let requests = names.iter().map(|name| request(name, "{}")).collect();
    let results = database.writer().write(requests, WriteOptions::default()).await.unwrap();
    let shown: Vec<String> = results
        .iter()
        .map(|r| match r {
            Ok(done) => done.rev.to_string(),
            Err(WriteError::Conflict) => "conflict".to_owned(),
            Err(error) => format!("{error:?}"),
        })
        .collect();
    let first = "1-967a00dff5e02add41819138abb3284d";
    assert_eq!(shown, [first, first, first, "conflict", "0-1", first, first]);
}

#[tokio::test]
async fn the_number_of_replicas_decides_what_a_write_reports() {
    let (_world, _coordinator, database) = database(1).await;
    let w = |w| WriteOptions { w: Some(w), ..WriteOptions::default() };
    assert_eq!(database.writer().write_one(request("a", "{}"), w(1)).await.unwrap().written, Written::Quorum);
    assert_eq!(database.writer().write_one(request("b", "{}"), w(9)).await.unwrap().written, Written::Accepted);
}

#[tokio::test]
async fn deleting_needs_a_live_document_and_its_revision() {
    let (_world, _coordinator, database) = database(2).await;
    let delete = async |rev: Option<Revision>| database.writer().delete(&id("a"), rev, WriteOptions::default()).await;
    assert!(matches!(delete(None).await, Err(WriteError::NotFound { deleted: false })));
    let first = put(&database, "a", "{}").await;
    assert!(matches!(delete(None).await, Err(WriteError::Conflict)));
    assert_eq!(delete(Some(first.clone())).await.unwrap().rev, rev("2-eec205a9d413992850a6e32678485900"));
    assert!(matches!(delete(Some(first)).await, Err(WriteError::NotFound { deleted: true })));
    assert_eq!(body(&database, "a").await, "-");
}

#[tokio::test]
async fn local_documents_count_from_what_they_are_given() {
    let (_world, _coordinator, database) = database(2).await;
    let put = async |text: &str| put(&database, "_local/x", text).await.to_string();
    assert_eq!(put(r#"{"v":1}"#).await, "0-1");
    assert_eq!(put(r#"{"_rev":"0-4","v":2}"#).await, "0-5");
    assert_eq!(put(r#"{"v":3}"#).await, "0-1");
    assert_eq!(body(&database, "_local/x").await, r#"{"v":3}"#);
    let junk = database.writer().write_one(request("_local/x", r#"{"_rev":"1-abc"}"#), WriteOptions::default()).await;
    assert!(matches!(junk, Err(WriteError::Draft(_))));
    let gone = database.writer().delete(&id("_local/x"), None, WriteOptions::default()).await.unwrap();
    assert_eq!(gone.rev.to_string(), "0-0");
    let again = database.writer().delete(&id("_local/x"), None, WriteOptions::default()).await;
    assert!(matches!(again, Err(WriteError::NotFound { deleted: false })));
}

#[tokio::test]
async fn replicated_revisions_keep_their_names() {
    let (_world, _coordinator, database) = database(2).await;
    let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
    let text = r#"{"_revisions":{"start":3,"ids":["c","b","a"]},"v":3}"#;
    for _ in 0..2 {
        assert_eq!(database.writer().write_one(request("a", text), options.clone()).await.unwrap().rev, rev("3-c"));
    }
    let missing = database.writer().write_one(request("a", "{}"), options.clone()).await;
    assert!(matches!(missing, Err(WriteError::RevisionRequired)));
    let asked = BTreeMap::from([(id("a"), vec![rev("3-c"), rev("4-d"), rev("2-b")]), (id("b"), vec![rev("1-a")])]);
    let diff = database.maintenance().revs_diff(asked).await.unwrap();
    assert_eq!(diff[&id("a")], RevsDiff { missing: vec![rev("4-d")], possible_ancestors: vec![rev("3-c")] });
    assert_eq!(diff[&id("b")], RevsDiff { missing: vec![rev("1-a")], possible_ancestors: vec![] });
    database.writer().write_one(request("a", r#"{"_rev":"3-d","v":4}"#), options.clone()).await.unwrap();
    let fetched = database.documents().fetch(&id("a"), Want::Winner).await.unwrap().unwrap();
    assert_eq!(fetched.conflicts(&rev("3-d")), (vec![rev("3-c")], vec![]));
    assert_eq!(documents::revs_info(&fetched, &rev("3-c")).len(), 3);
    assert_eq!(documents::known_generation(&fetched, &rev("3-c"), &[rev("2-b"), rev("9-x")]), 2);
    assert_eq!(documents::known_generation(&fetched, &rev("3-c"), &[rev("3-d")]), 0);
}

#[tokio::test]
async fn one_bad_stub_refuses_the_whole_request() {
    let (_world, _coordinator, database) = database(2).await;
    let bad = r#"{"_attachments":{"f":{"stub":true}}}"#;
    let requests = vec![request("ok", "{}"), request("a", bad)];
    let refused = database.writer().write(requests, WriteOptions::default()).await;
    assert!(matches!(refused, Err(WriteError::MissingStub { name, .. }) if name == "f"));
    assert_eq!(body(&database, "ok").await, "!");
    // A stale revision is told before the stub is looked at.
    put(&database, "a", "{}").await;
    let stale = database.writer().write_one(request("a", bad), WriteOptions::default()).await;
    assert!(matches!(stale, Err(WriteError::Conflict)));
}

#[tokio::test]
async fn a_document_over_the_limit_refuses_the_whole_request() {
    let world = World::new().await;
    let setting = crate::config::Setting::parse("couchdb/max_document_size=20").unwrap();
    let config = Config::in_memory(&world.env, vec![setting]);
    let options = Options { node: "n".to_owned(), peers: None, system_databases: false };
    let coordinator = Coordinator::open(world.env.clone(), config, world.storage.clone(), options).await.unwrap();
    coordinator.create_database("db", CreateOptions::default()).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let big = format!(r#"{{"v":"{}"}}"#, "x".repeat(30));
    let named = format!(r#"{{"_id":"b",{}"#, &big[1..]);
    let refused =
        database.writer().write(vec![request("a", "{}"), request("b", &named)], WriteOptions::default()).await;
    assert!(matches!(refused, Err(WriteError::DocumentTooLarge { id }) if id == "b"));
    let later = database.writer().write_later(request("b", &big), WriteOptions::default()).await;
    assert!(matches!(later, Err(WriteError::DocumentTooLarge { id }) if id.is_empty()));
    assert_eq!(body(&database, "a").await, "!");
}

/// Uploads bytes and names them in a standalone write.
async fn put_file(
    database: &Arc<Database>,
    rev: Option<Revision>,
    text: &'static str,
) -> Result<WriteDone, WriteError> {
    let options = UploadOptions { name: "f".to_owned(), content_type: "text/plain".to_owned(), gzip: false, md5: None };
    let mut upload = database.attachments().upload(&id("a"), options).await?;
    upload.write(text.into()).await?;
    let staged = upload.finish().await?;
    database.attachments().put_attachment(&id("a"), "f", rev, staged, WriteOptions::default()).await
}

#[tokio::test]
async fn attachments_are_written_read_copied_and_removed() {
    let (_world, _coordinator, database) = database(8).await;
    let first = put_file(&database, None, "hello").await.unwrap().rev;
    assert!(matches!(put_file(&database, None, "x").await, Err(WriteError::Conflict)));
    assert!(matches!(put_file(&database, Some(rev("1-abc")), "x").await, Err(WriteError::MissingRev)));
    let second = put_file(&database, Some(first.clone()), "hello hello").await.unwrap().rev;
    assert!(matches!(put_file(&database, Some(first), "x").await, Err(WriteError::Conflict)));

    let done = database.writer().copy(&id("a"), None, &id("b"), None, WriteOptions::default()).await.unwrap();
    assert_eq!(done.rev.pos, 1);
    let fetched = database.documents().fetch(&id("b"), Want::Winner).await.unwrap().unwrap();
    let attachment = fetched.found[0].1.as_ref().unwrap().attachments[0].clone();
    assert_eq!((attachment.name.as_str(), attachment.revpos, attachment.length), ("f", 1, 11));
    assert_eq!(database.documents().attachment_bytes(&id("b"), &attachment, true).await.unwrap(), b"hello hello");

    let remove = async |name: &str, rev: Option<Revision>| {
        database.attachments().delete_attachment(&id("a"), name, rev, WriteOptions::default()).await
    };
    assert!(matches!(remove("none", None).await, Err(WriteError::MissingAttachment)));
    assert!(matches!(remove("f", None).await, Err(WriteError::Conflict)));
    assert!(matches!(remove("f", Some(rev("1-x"))).await, Err(WriteError::MissingRev)));
    assert_eq!(remove("f", Some(second)).await.unwrap().rev.pos, 3);
    assert!(matches!(remove("f", None).await, Err(WriteError::MissingAttachment)));
}

#[tokio::test]
async fn inline_attachments_and_stubs_keep_their_order() {
    let (_world, _coordinator, database) = database(1).await;
    let first = put(&database, "a", r#"{"_attachments":{"g":{"data":"MQ=="},"f":{"data":"Mg=="}}}"#).await;
    let text = format!(r#"{{"_rev":"{first}","_attachments":{{"f":{{"stub":true}},"h":{{"data":"Mw=="}}}}}}"#);
    put(&database, "a", &text).await;
    let fetched = database.documents().fetch(&id("a"), Want::Winner).await.unwrap().unwrap();
    let attachments = fetched.found[0].1.clone().unwrap().attachments;
    let shown: Vec<(&str, u64)> = attachments.iter().map(|a| (a.name.as_str(), a.revpos)).collect();
    assert_eq!(shown, [("f", 1), ("h", 2)]);
    assert_eq!(database.documents().attachment_bytes(&id("a"), &attachments[1], true).await.unwrap(), b"3");
}

#[tokio::test]
async fn copies_go_between_local_and_plain_documents() {
    let (_world, _coordinator, database) = database(3).await;
    put(&database, "_local/l", r#"{"v":1}"#).await;
    let copy = async |from: &str, to: &str| {
        database.writer().copy(&id(from), None, &id(to), None, WriteOptions::default()).await
    };
    assert_eq!(copy("_local/l", "plain").await.unwrap().rev, rev("1-7a7e4b29f3af401e69b6f86e4c26b727"));
    assert_eq!(copy("plain", "_local/m").await.unwrap().rev.to_string(), "0-1");
    assert_eq!(body(&database, "_local/m").await, r#"{"v":1}"#);
    assert!(matches!(copy("_local/l", "plain").await, Err(WriteError::Conflict)));
    assert!(matches!(copy("none", "x").await, Err(WriteError::NotFound { deleted: false })));
}

#[tokio::test]
async fn a_purge_answers_what_it_removed() {
    let (_world, _coordinator, database) = database(4).await;
    let first = put(&database, "a", "{}").await;
    let asked = vec![(id("b"), vec![rev("1-x")]), (id("a"), vec![first.clone(), rev("2-y")]), (id("c"), vec![])];
    let (answered, written) = database.maintenance().purge(asked).await.unwrap();
    assert_eq!(written, Written::Quorum);
    assert_eq!(answered, [(id("b"), vec![]), (id("a"), vec![first.clone()]), (id("c"), vec![])]);
    assert_eq!(body(&database, "a").await, "!");
    let mut infos = database.maintenance().purge_infos().await.unwrap();
    infos.sort_by(|a, b| a.id.cmp(&b.id));
    let asked = [("a", vec![first, rev("2-y")]), ("b", vec![rev("1-x")]), ("c", vec![])];
    assert_eq!(infos, asked.map(|(name, revs)| PurgeInfo { id: id(name), revs }));
    let many = (0..101).map(|n| (id(&n.to_string()), Vec::new())).collect();
    assert!(matches!(database.maintenance().purge(many).await, Err(SettingError::TooManyDocuments)));
    let revs = (1..1002).map(|n| rev(&format!("{n}-x"))).collect();
    assert!(matches!(database.maintenance().purge(vec![(id("a"), revs)]).await, Err(SettingError::TooManyRevisions)));
}

#[tokio::test]
async fn a_partitioned_database_wants_partitions() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let options = CreateOptions { partitioned: true, ..CreateOptions::default() };
    coordinator.create_database("db", options).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let refused = database.writer().write_one(request("a", "{}"), WriteOptions::default()).await;
    assert!(matches!(refused, Err(WriteError::Draft(_))));
    for name in ["p:1", "p:2", "q:1", "_design/d", "_local/l"] {
        put(&database, name, "{}").await;
    }
    let first = put(&database, "p:3", "{}").await;
    database.writer().delete(&id("p:3"), Some(first), WriteOptions::default()).await.unwrap();
    let info = database.partition_info("p").await.unwrap();
    assert_eq!((info.doc_count, info.doc_del_count), (2, 1));
    assert_eq!(database.partition_info("none").await.unwrap(), PartitionInfo::default());
}

#[tokio::test]
async fn batched_documents_arrive() {
    let (_world, _coordinator, database) = database(1).await;
    let mut feed = database.feeds().changes(ChangesQuery::default()).await.unwrap();
    database.writer().write_later(request("a", "{}"), Default::default()).await.unwrap();
    feed.wait().await;
    assert_eq!(body(&database, "a").await, "{}");
}

#[tokio::test]
async fn attachments_are_compressed_as_the_configuration_says_at_that_moment() {
    let (_world, _coordinator, database) = database(1).await;
    let config = &database.context.config;
    let stored = async |name: &str| {
        let text = r#"{"_attachments":{"a":{"content_type":"image/svg+xml","data":"PHN2Zz48L3N2Zz4="}}}"#;
        put(&database, name, text).await;
        let fetched = database.documents().fetch(&id(name), Want::Winner).await.unwrap().unwrap();
        fetched.found[0].1.clone().unwrap().attachments[0].clone()
    };
    assert_eq!(stored("plain").await.encoding, Encoding::Identity);
    config.set(("attachments", "compressible_types"), "text/*, image/*+xml", false).await.unwrap();
    let level_8 = stored("zipped").await;
    assert_eq!(level_8.encoding, Encoding::Gzip);
    config.set(("attachments", "compression_level"), "1", false).await.unwrap();
    assert_ne!(stored("fast").await.digest, level_8.digest, "the header tells the level");
    config.set(("attachments", "compression_level"), "0", false).await.unwrap();
    assert_eq!(stored("off").await.encoding, Encoding::Identity);
}

#[tokio::test]
async fn ranges_with_many_dead_bytes_are_compacted_by_themselves() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let set = async |key: (&str, &str), value: &str| coordinator.config().set(key, value, false).await.unwrap();
    coordinator.create_database("db", CreateOptions { q: Some(2), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let mut rev = put(&database, "a", "{}").await;
    for n in 0..30 {
        rev = put(&database, "a", &format!("{{\"_rev\":\"{rev}\",\"n\":{n},\"x\":\"{}\"}}", "y".repeat(400))).await;
    }
    assert_eq!(coordinator.compact_what_is_due().await, 0, "too small");
    set(("smoosh.ratio_dbs", "min_size"), "100").await;
    set(("settee", "auto_compaction"), "false").await;
    assert_eq!(coordinator.compact_what_is_due().await, 0, "turned off");
    set(("settee", "auto_compaction"), "true").await;
    assert_eq!(coordinator.compact_what_is_due().await, 1, "the other range is empty");
    let sizes = database.info().await.unwrap().sizes;
    assert_eq!(sizes.file, sizes.active);
    assert_eq!(coordinator.compact_what_is_due().await, 0);
}

#[tokio::test]
async fn compaction_keeps_to_its_hours() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let set = async |key: (&str, &str), value: &str| coordinator.config().set(key, value, false).await.unwrap();
    coordinator.create_database("db", CreateOptions { q: Some(1), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let rev = put(&database, "a", &format!("{{\"x\":\"{}\"}}", "y".repeat(400))).await;
    put(&database, "a", &format!("{{\"_rev\":\"{rev}\"}}")).await;
    set(("smoosh.ratio_dbs", "min_size"), "1").await;
    set(("smoosh.ratio_dbs", "min_priority"), "1.01").await;
    // Hours that begin in two hours and end in four: no test takes as long.
    let hour = world.env.wall().as_secs() / 3600;
    set(("smoosh.ratio_dbs", "from"), &format!("{:02}:00", (hour + 2) % 24)).await;
    set(("smoosh.ratio_dbs", "to"), &format!("{:02}:00", (hour + 4) % 24)).await;
    assert_eq!(coordinator.compact_what_is_due().await, 0, "it is not the time");
    set(("smoosh.ratio_dbs", "strict_window"), "true").await;
    let hours = Window::of(coordinator.config(), "smoosh.ratio_dbs");
    let own = database.replicas().own_replica(0).await.unwrap().unwrap().shard;
    let info = own.info().await.unwrap();
    let ended = database.compaction().compact_replica((0, &own), &info, 1000, Some(hours)).await;
    assert_eq!(ended, Ok(false), "one that ran into their end stops");
    set(("smoosh.ratio_dbs", "from"), &format!("{:02}:00", (hour + 22) % 24)).await;
    assert_eq!(coordinator.compact_what_is_due().await, 1, "what it left is done in the next ones");
}

/// The answer was 404, which says that nothing was done.
#[tokio::test]
async fn a_purge_that_removed_something_is_not_told_as_one_of_a_database_that_is_gone() {
    let (_world, _coordinator, database) = database(2).await;
    let names: Vec<String> = (0..40).map(|n| format!("d{n}")).collect();
    let of = |range: usize| names.iter().find(|name| database.map().index_of(&id(name)) == range).unwrap();
    let mut asked = Vec::new();
    for name in [of(0), of(1)] {
        asked.push((id(name), vec![put(&database, name, "{}").await]));
    }
    database.replicas().own_replica(1).await.unwrap().unwrap().shard.close();
    let gone = database.maintenance().purge(asked[1..].to_vec()).await;
    assert!(matches!(gone, Err(SettingError::DatabaseGone)), "{gone:?}");
    let begun = database.maintenance().purge(asked).await;
    assert!(matches!(begun, Err(SettingError::Unavailable(ShardError::Indeterminate(_)))), "{begun:?}");
}
