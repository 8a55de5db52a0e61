//! Views over several ranges: groups, offsets, and the index that answers while another one is built.

use super::*;
use crate::document::json::{Value, parse};

const DOCS: u64 = 90;

fn design(map: &str, reduce: &str) -> String {
    let view = format!(r#"{{"map":"function (doc) {{ {map} }}","reduce":"{reduce}"}}"#);
    format!(r#"{{"views":{{"v":{view}}}}}"#)
}

async fn filled(map: &str, reduce: &str) -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(3).await;
    put(&database, "_design/d", &design(map, reduce)).await;
    let edits = (0..DOCS).map(|n| request(&format!("d{n:02}"), &format!(r#"{{"n":{n}}}"#))).collect();
    assert!(database.write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    (world, coordinator, database)
}

pub(super) fn query(grouping: Option<Grouping>, descending: bool) -> ViewQuery {
    let ends = KeySpan { start: KeyBound::default(), end: KeyBound::default(), inclusive_end: true };
    ViewQuery {
        keys: ViewKeys::Span(ends),
        descending,
        skip: 0,
        limit: u64::MAX,
        likely: usize::MAX,
        grouping,
        include_docs: false,
        conflicts: false,
        totals: true,
        update_seq: false,
        update: Update::Before,
        partition: None,
    }
}

async fn begin(database: &Arc<Database>, query: ViewQuery) -> ViewRows {
    database.view(&id("_design/d"), "v").await.unwrap().begin(query).await.unwrap()
}

async fn groups(database: &Arc<Database>, query: ViewQuery) -> Vec<String> {
    let (mut rows, mut out) = (begin(database, query).await, Vec::new());
    while let Some(groups) = rows.next_groups().await.unwrap() {
        let told = |group: GroupRow| Value::Array(vec![group.key, group.value.unwrap()]).to_vec();
        out.extend(groups.into_iter().map(|group| String::from_utf8(told(group)).unwrap()));
    }
    out
}

async fn keys(database: &Arc<Database>) -> Vec<Value> {
    let (mut rows, mut out) = (begin(database, query(None, false)).await, Vec::new());
    while let Some(page) = rows.next().await.unwrap() {
        out.extend(page.iter().map(|row| parse(&row.row.key).unwrap()));
    }
    out
}

#[tokio::test]
async fn groups_of_all_ranges_are_put_together_warm_and_cold() {
    let (_world, _coordinator, database) = filled("emit([doc.n % 3, doc.n], doc.n)", "_sum").await;
    // Twice: the second time from reductions that were kept.
    for _ in 0..2 {
        assert_eq!(groups(&database, query(Some(Grouping::All), false)).await, ["[null,4005]"]);
        let by_first = ["[[0],1305]", "[[1],1335]", "[[2],1365]"];
        assert_eq!(groups(&database, query(Some(Grouping::Level(1)), false)).await, by_first);
        let backwards = ViewQuery { skip: 1, limit: 1, ..query(Some(Grouping::Level(1)), true) };
        assert_eq!(groups(&database, backwards).await, by_first[1..2]);
        assert_eq!(groups(&database, query(Some(Grouping::Exact), false)).await.len() as u64, DOCS);
    }
    let rev = database.fetch(&id("d01"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    put(&database, "d01", &format!(r#"{{"_rev":"{rev}","n":1001}}"#)).await;
    assert_eq!(groups(&database, query(Some(Grouping::All), false)).await, ["[null,5005]"]);
}

#[tokio::test]
async fn offsets_count_what_lies_before() {
    let (_world, _coordinator, database) = filled("emit(doc.n, null)", "_count").await;
    let start = KeyBound { key: Some(Value::Int(30)), id: None };
    for _ in 0..2 {
        let keys = ViewKeys::Span(KeySpan { start: start.clone(), end: KeyBound::default(), inclusive_end: true });
        let rows = begin(&database, ViewQuery { keys, ..query(None, false) }).await;
        assert_eq!((rows.total_rows, rows.offset), (DOCS, 30));
    }
}

#[tokio::test]
async fn the_index_before_answers_until_the_new_one_is_built() {
    let (_world, coordinator, database) = filled("emit(doc.n, null)", "_count").await;
    assert_eq!(keys(&database).await.len() as u64, DOCS);
    coordinator.config().set(("settee", "index_swap"), "ready", false).await.unwrap();
    let rev = database.fetch(&id("_design/d"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    let edited = design("emit('x' + doc.n, null)", "_count").replacen('{', &format!(r#"{{"_rev":"{rev}","#), 1);
    put(&database, "_design/d", &edited).await;
    assert_eq!(keys(&database).await[0], Value::Int(0), "of the definition before");
    while keys(&database).await[0] == Value::Int(0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(keys(&database).await[0], Value::from("x0"));
}
