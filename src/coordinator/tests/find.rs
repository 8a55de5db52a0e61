//! Declarative queries over several ranges: by index, by scan and covered, in pages, counted.

use super::*;
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::document::collate::Collator;
use crate::document::json::{Value, parse};
use crate::index::mango::bookmark::Bookmark;
use crate::index::mango::catalogue::FieldIndex;
use crate::index::mango::request::FindRequest;

/// More than one group of documents in each range.
const DOCS: u64 = 400;

/// Documents `d000` and so on with `n` from 0 and `m`, the rest of `n` by 3; and an index on `m` and `n`.
async fn filled() -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(3).await;
    let text = |n: u64| format!(r#"{{"n":{n},"m":{},"text":"{n} \" x"}}"#, n % 3);
    let edits = (0..DOCS).map(|n| request(&format!("d{n:03}"), &text(n))).collect();
    assert!(database.writer().write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let index = r#"{"language":"query","views":{"i":{"map":{"fields":{"m":"asc","n":"asc"}},"reduce":"_count"}}}"#;
    put(&database, "_design/x", index).await;
    (world, coordinator, database)
}

pub(super) async fn query(database: &Arc<Database>, text: &str, index: bool) -> FindQuery {
    let request = FindRequest::parse(parse(text.as_bytes()).unwrap().as_object().unwrap()).unwrap();
    let columns = ["m", "n"].map(|name| (name.to_owned(), "asc".to_owned())).to_vec();
    let filter = parse(b"{}").unwrap();
    let fields = FieldIndex { ddoc: "_design/x".into(), name: "i".into(), partitioned: false, columns, filter };
    let index = match index {
        true => Some(FindIndex { program: database.design_docs().program(&id("_design/x")).await.unwrap(), fields }),
        false => None,
    };
    FindQuery { request: Arc::new(request), after: None, index, partition: None, collator: Collator::new() }
}

/// The texts found and where the next page begins.
async fn texts(database: &Arc<Database>, query: FindQuery, most: usize) -> (Vec<String>, Option<Bookmark>) {
    let mut hits = database.queries().find(query).await.unwrap();
    let (mut texts, mut last) = (Vec::new(), None);
    while let Some(page) = hits.next(most - texts.len()).await.unwrap() {
        last = page.hits.last().map(Hit::bookmark).or(last);
        let found = hits.texts(page.hits).await.unwrap();
        texts.extend(found.into_iter().map(|text| String::from_utf8(text).unwrap()));
        if texts.len() >= most {
            break;
        }
    }
    (texts, last)
}

#[tokio::test]
async fn an_index_gives_what_a_scan_gives_in_the_order_of_its_keys() {
    let (_world, _coordinator, database) = filled().await;
    for selector in [
        r#"{"m":1,"n":{"$gt":4}}"#,
        r#"{"m":{"$in":[0,2]},"n":{"$ne":7}}"#,
        r#"{"$or":[{"m":1,"n":4},{"m":2,"n":{"$lt":9}}]}"#,
        r#"{"m":{"$gte":0},"n":{"$exists":true},"text":{"$regex":"^1"}}"#,
        r#"{"m":{"$gte":0},"n":{"$exists":true},"_id":{"$lt":"d007"}}"#,
    ] {
        let text = format!(r#"{{"selector":{selector}}}"#);
        let (mut scanned, _) = texts(&database, query(&database, &text, false).await, 1000).await;
        let (by_index, _) = texts(&database, query(&database, &text, true).await, 1000).await;
        assert!(!scanned.is_empty() && scanned.is_sorted(), "{selector}");
        let key = |text: &String| {
            let document = parse(text.as_bytes()).unwrap();
            let member = |name| document.as_object().unwrap().get(name).and_then(Value::as_i64);
            (member("m"), member("n"))
        };
        scanned.sort_by_key(key);
        assert_eq!(by_index, scanned, "{selector}");
        let covered = format!(r#"{{"selector":{selector},"fields":["n"]}}"#);
        let (covered, _) = texts(&database, query(&database, &covered, true).await, 1000).await;
        let numbers: Vec<String> = by_index.iter().map(|text| format!(r#"{{"n":{}}}"#, key(text).1.unwrap())).collect();
        assert_eq!(covered, numbers, "{selector}");
    }
}

/// The range of a partition holds documents of others, too.
#[tokio::test]
async fn a_scan_of_a_partition_gives_its_own_documents_only() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let options = CreateOptions { partitioned: true, q: Some(1), ..CreateOptions::default() };
    coordinator.create_database("db", options).await.unwrap();
    let database = coordinator.database("db").unwrap();
    for name in ["a:1", "a:2", "b:1", "a!:1", "aa:1"] {
        put(&database, name, r#"{"v":1}"#).await;
    }
    for selector in [r#"{"v":1}"#, "{}", r#"{"_id":{"$gt":null}}"#] {
        for (partition, expected) in [("a", vec!["a:1", "a:2"]), ("b", vec!["b:1"]), ("zz", vec![])] {
            let text = format!(r#"{{"selector":{selector},"fields":["_id"]}}"#);
            let query = FindQuery { partition: Some(partition.to_owned()), ..query(&database, &text, false).await };
            let (found, _) = texts(&database, query, 10).await;
            let expected: Vec<String> = expected.iter().map(|id| format!(r#"{{"_id":"{id}"}}"#)).collect();
            assert_eq!(found, expected, "{selector} in {partition}");
        }
    }
}

#[tokio::test]
async fn pages_go_on_behind_their_bookmarks() {
    let (_world, _coordinator, database) = filled().await;
    for (index, sort) in [(true, ""), (true, r#","sort":[{"m":"desc"},{"n":"desc"}]"#), (false, "")] {
        let text = format!(r#"{{"selector":{{"m":{{"$in":[0,1]}},"n":{{"$gt":3}}}}{sort}}}"#);
        let (all, _) = texts(&database, query(&database, &text, index).await, 1000).await;
        assert_eq!(all.len(), 264);
        let (mut seen, mut bookmark) = (Vec::new(), None);
        loop {
            let mut query = query(&database, &text, index).await;
            query.after = bookmark.take();
            let (page, last) = texts(&database, query, 50).await;
            if page.is_empty() {
                break;
            }
            (seen, bookmark) = ([seen, page].concat(), last);
        }
        assert_eq!(seen, all, "{index} {sort}");
    }
}

#[tokio::test]
async fn costs_are_counted_and_a_covering_index_reads_no_document() {
    let (_world, _coordinator, database) = filled().await;
    for (text, index, wanted) in [
        // The design document is read, too.
        (r#"{"selector":{"n":3}}"#, false, (DOCS + 1, DOCS + 1, 1)),
        (r#"{"selector":{"m":0,"n":3}}"#, true, (1, 1, 1)),
        (r#"{"selector":{"m":0,"n":{"$ne":3}},"fields":["_id"]}"#, true, (134, 0, 133)),
        (r#"{"selector":{"m":{"$in":[0,9]},"n":{"$in":[3,4]}},"limit":0,"count":true}"#, true, (1, 0, 1)),
    ] {
        let mut hits = database.queries().find(query(&database, text, index).await).await.unwrap();
        let mut cost = (0, 0, 0);
        while let Some(page) = hits.next(1000).await.unwrap() {
            cost = (cost.0 + page.keys, cost.1 + page.docs, cost.2 + page.hits.len());
        }
        assert_eq!(cost, wanted, "{text}");
    }
}

/// The simulator's bugs show.
#[cfg(feature = "sim")]
#[tokio::test]
async fn planted_bugs_lose_and_repeat_documents() {
    use crate::storage::planted::{Bug, Planted};
    // Without a bug 13 would be found: all but `d09`, each once.
    for (bug, wanted) in [(Bug::RangeNarrowedOnNe, 9), (Bug::StaleIndexRow, 14)] {
        let planted = Planted::none().with(bug);
        let dir = tempfile::tempdir().unwrap();
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let options = StorageOptions { engine: Engine::Memory, planted, ..StorageOptions::default() };
        let storage = Storage::open(env.clone(), dir.path(), options).await.unwrap();
        let world = World { env, storage, dir };
        let coordinator = world.start().await;
        coordinator.create_database("db", CreateOptions { q: Some(1), ..CreateOptions::default() }).await.unwrap();
        let database = coordinator.database("db").unwrap();
        let index = r#"{"language":"query","views":{"i":{"map":{"fields":{"m":"asc","n":"asc"}}}}}"#;
        put(&database, "_design/x", index).await;
        let text = r#"{"selector":{"m":0,"n":{"$ne":9}},"fields":["_id"]}"#;
        for n in 0..14 {
            let rev = put(&database, &format!("d{n:02}"), &format!(r#"{{"n":{n},"m":0}}"#)).await;
            texts(&database, query(&database, text, true).await, 1000).await;
            if n == 5 {
                put(&database, "d05", &format!(r#"{{"_rev":"{rev}","n":0,"m":0}}"#)).await;
            }
        }
        let (found, _) = texts(&database, query(&database, text, true).await, 1000).await;
        assert_eq!(found.len(), wanted, "{bug:?} {found:?}");
    }
}
