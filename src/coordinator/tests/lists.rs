//! Lists over several ranges against a model: a sorted set.

use std::collections::BTreeSet;

use super::*;
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::document::json::Value;

fn design_query() -> AllDocsQuery {
    AllDocsQuery { source: DocSource::Design, ..AllDocsQuery::default() }
}

fn text(id: &str) -> Value {
    Value::String(id.to_owned())
}

fn one(key: Value) -> KeyBounds {
    KeyBounds::Range { start: Some(key.clone()), end: Some(key), inclusive_end: true }
}

fn between(start: Option<&str>, end: Option<&str>) -> KeyBounds {
    KeyBounds::Range { start: start.map(text), end: end.map(text), inclusive_end: true }
}

/// Total, offset, and the rows as texts.
async fn list(database: &Arc<Database>, query: AllDocsQuery) -> (Option<u64>, Option<u64>, Vec<String>) {
    let mut list = database.lists().all_docs(query).await.unwrap();
    let mut rows = Vec::new();
    while let Some(page) = list.next().await.unwrap() {
        assert!(!page.is_empty(), "pages have rows");
        rows.extend(page.into_iter().map(|row| match row {
            AllDocsRow::Found { id, deleted, doc, .. } => {
                let doc = doc.map(|doc| doc.map_or("null".to_owned(), |doc| doc.id.to_string()));
                format!("{id}{}{}", if deleted { "-" } else { "" }, doc.map_or(String::new(), |d| format!("={d}")))
            }
            AllDocsRow::Missing { key } => format!("?{}", String::from_utf8(key.to_vec()).unwrap()),
        }));
    }
    (list.total_rows, list.offset, rows)
}

#[tokio::test]
async fn a_long_list_agrees_with_a_sorted_set_in_every_form() {
    let (_world, _coordinator, database) = database(7).await;
    let names: BTreeSet<String> = (0..700).map(|n| format!("d{}", n * 7919 % 10_000)).collect();
    let requests = names.iter().map(|name| request(name, "{}")).collect();
    assert!(database.writer().write(requests, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let sorted: Vec<String> = names.into_iter().collect();
    for descending in [false, true] {
        for (skip, limit) in [
            (0, None),
            (3, Some(250)),
            (333, None),
            (690, Some(50)),
            (699, None),
            (700, None),
            (800, None),
            (0, Some(0)),
        ] {
            let got = list(&database, AllDocsQuery { descending, skip, limit, ..AllDocsQuery::default() }).await;
            let take = limit.map_or(usize::MAX, |l| l as usize);
            let rows = sorted.iter().cloned();
            let expected: Vec<String> = match descending {
                false => rows.skip(skip as usize).take(take).collect(),
                true => rows.rev().skip(skip as usize).take(take).collect(),
            };
            assert_eq!(got, (Some(700), Some(skip.min(700)), expected), "{descending} {skip} {limit:?}");
        }
    }
    let docs = list(&database, AllDocsQuery { include_docs: true, ..AllDocsQuery::default() }).await.2;
    assert_eq!(docs, sorted.iter().map(|id| format!("{id}={id}")).collect::<Vec<_>>());
}

#[tokio::test]
async fn ranges_offsets_and_keys() {
    let (_world, _coordinator, database) = database(3).await;
    for name in ["a", "b", "c", "d", "_design/x", "_local/l"] {
        put(&database, name, "{}").await;
    }
    let first = put(&database, "gone", "{}").await;
    database.writer().delete(&id("gone"), Some(first), WriteOptions::default()).await.unwrap();
    let with = |keys: KeyBounds| AllDocsQuery { keys, ..AllDocsQuery::default() };
    let rows = |(total, offset, rows): (Option<u64>, Option<u64>, Vec<String>)| (total, offset, rows.join(" "));
    let is = |offset: u64, rows: &str| (Some(5), Some(offset), rows.to_owned());

    assert_eq!(rows(list(&database, with(between(Some("b"), Some("c")))).await), is(2, "b c"));
    assert_eq!(rows(list(&database, with(between(Some("c"), Some("b")))).await), is(3, ""));
    assert_eq!(rows(list(&database, with(one(text("cc")))).await), is(4, ""));
    assert_eq!(rows(list(&database, with(one(Value::Int(1)))).await), is(0, ""));
    let down = AllDocsQuery { descending: true, ..with(between(Some("c"), Some("b"))) };
    assert_eq!(rows(list(&database, down).await), is(1, "c b"));
    let key_down = AllDocsQuery { descending: true, ..with(one(text("b"))) };
    assert_eq!(rows(list(&database, key_down).await), is(2, "b"));

    let keys = ["c", "none", "gone", "c"].map(text).into_iter().chain([Value::Int(5)]).collect::<Vec<_>>();
    let of_keys = AllDocsQuery { update_seq: true, ..with(KeyBounds::Keys(keys.clone())) };
    let list_of_keys = database.lists().all_docs(of_keys.clone()).await.unwrap();
    assert_eq!(list_of_keys.update_seq, Some(None));
    assert_eq!(rows(list(&database, of_keys).await), (Some(5), None, "c ?\"none\" gone- c ?5".to_owned()));
    let cut =
        AllDocsQuery { descending: true, skip: 1, limit: Some(2), include_docs: true, ..with(KeyBounds::Keys(keys)) };
    assert_eq!(rows(list(&database, cut).await), (Some(5), None, "c=c gone-=null".to_owned()));
}

#[tokio::test]
async fn design_and_local_documents_have_lists_of_their_own() {
    let (_world, _coordinator, database) = database(3).await;
    for name in ["a", "_design/x", "_design/y", "_local/m", "_local/l", "z"] {
        put(&database, name, "{}").await;
    }
    let design = design_query();
    assert_eq!(list(&database, design.clone()).await.2, ["_design/x", "_design/y"]);
    let from_y = AllDocsQuery { keys: between(Some("_design/y"), None), ..design.clone() };
    assert_eq!(list(&database, from_y).await, (Some(2), Some(1), vec!["_design/y".to_owned()]));
    let keys = KeyBounds::Keys(["_design/q", "a", "_design/x"].map(text).to_vec());
    assert_eq!(list(&database, AllDocsQuery { keys, ..design }).await.2, ["?\"_design/q\"", "_design/x"]);
    let backwards = AllDocsQuery { descending: true, keys: between(None, None), ..design_query() };
    assert_eq!(list(&database, backwards).await.1, Some(2), "as the reference counts");
    let local = AllDocsQuery { source: DocSource::Local, include_docs: true, ..AllDocsQuery::default() };
    assert_eq!(
        list(&database, local.clone()).await,
        (None, None, vec!["_local/l=_local/l".to_owned(), "_local/m=_local/m".to_owned()])
    );
    let down = AllDocsQuery { descending: true, skip: 1, ..local.clone() };
    assert_eq!(list(&database, down).await.2, ["_local/l=_local/l"]);
    let keys = KeyBounds::Keys(["a", "_local/m", "_local/zz"].map(text).to_vec());
    let of_keys = AllDocsQuery { keys, include_docs: false, ..local };
    assert_eq!(list(&database, of_keys.clone()).await.2, ["_local/m", "?\"_local/zz\""]);
    let of_two = AllDocsQuery { limit: Some(2), ..of_keys };
    assert_eq!(list(&database, of_two).await.2, ["_local/m"], "a limit counts the keys that have no place here");
}

#[tokio::test]
async fn rows_are_left_out_also_where_each_range_has_ids_of_its_own() {
    let world = World::new().await;
    let coordinator = world.start().await;
    let options = CreateOptions { partitioned: true, q: Some(4), ..CreateOptions::default() };
    coordinator.create_database("db", options).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let names: BTreeSet<String> = (0..1000).map(|n| format!("p{}:{n:04}", n * n % 9)).collect();
    let requests = names.iter().map(|name| request(name, "{}")).collect();
    assert!(database.writer().write(requests, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let sorted: Vec<String> = names.into_iter().collect();
    for (descending, skip) in [false, true].into_iter().flat_map(|d| [201, 500, 777, 998].map(|skip| (d, skip))) {
        let keys = between(Some(&sorted[if descending { 999 } else { 0 }]), None);
        let query = AllDocsQuery { descending, skip: skip as u64, limit: Some(3), keys, ..AllDocsQuery::default() };
        let expected: Vec<String> = match descending {
            false => sorted.iter().skip(skip).take(3).cloned().collect(),
            true => sorted.iter().rev().skip(skip).take(3).cloned().collect(),
        };
        assert_eq!(list(&database, query).await, (Some(1000), Some(skip as u64), expected));
    }
    let summed = database.partition_info("p1").await.unwrap();
    let live = sorted.iter().filter(|name| name.starts_with("p1:")).count() as u64;
    assert_eq!((summed.doc_count, summed.external), (live, 2 * live));
}
