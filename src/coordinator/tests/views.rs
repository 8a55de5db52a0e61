//! Views over several ranges: groups, offsets, and the index that answers while another one is built.

use super::cluster::{Cluster, write};
use super::*;
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::document::json::{Value, parse};
use crate::limits;
use crate::observe::metrics::Gauge;

const DOCS: u64 = 90;

fn design(map: &str, reduce: &str) -> String {
    let view = format!(r#"{{"map":"function (doc) {{ {map} }}","reduce":"{reduce}"}}"#);
    format!(r#"{{"views":{{"v":{view}}}}}"#)
}

async fn filled(map: &str, reduce: &str) -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(3).await;
    put(&database, "_design/d", &design(map, reduce)).await;
    let edits = (0..DOCS).map(|n| request(&format!("d{n:02}"), &format!(r#"{{"n":{n}}}"#))).collect();
    assert!(database.writer().write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
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
        stable: false,
        partition: None,
    }
}

async fn begin(database: &Arc<Database>, query: ViewQuery) -> ViewRows {
    database.queries().view(&id("_design/d"), "v").await.unwrap().begin(query).await.unwrap()
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
    let rev = database.documents().fetch(&id("d01"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    put(&database, "d01", &format!(r#"{{"_rev":"{rev}","n":1001}}"#)).await;
    assert_eq!(groups(&database, query(Some(Grouping::All), false)).await, ["[null,5005]"]);
}

/// An answer of many groups, and one by a function of the design document, while all documents change behind what was
/// given out.
#[tokio::test]
async fn a_reduction_of_many_pages_is_of_one_moment() {
    let (_world, _coordinator, database) = database(1).await;
    let count = 2 * limits::STEP_ROWS as u64 + 10;
    for (name, reduce) in [("_design/d", "_sum"), ("_design/s", "function (keys, values) { return sum(values); }")] {
        put(&database, name, &design("emit(doc.k, doc.n)", reduce)).await;
    }
    let docs = |n: u64| (0..count).map(move |k| format!(r#"{{"k":{k},"n":{n}}}"#));
    let edits = docs(1).enumerate().map(|(k, doc)| request(&format!("d{k}"), &doc)).collect();
    let first = database.writer().write(edits, WriteOptions::default()).await.unwrap();
    let mut begun = Vec::new();
    for name in ["_design/d", "_design/s"] {
        let view = database.queries().view(&id(name), "v").await.unwrap();
        let mut rows = view.begin(query(Some(Grouping::Exact), false)).await.unwrap();
        let groups = rows.next_groups().await.unwrap().unwrap();
        begun.push((name, rows, groups));
    }
    let revs = first.into_iter().map(|written| written.unwrap().rev.to_string());
    let again = |(k, rev): (usize, String)| request(&format!("d{k}"), &format!(r#"{{"_rev":"{rev}","k":{k},"n":2}}"#));
    let edits = revs.enumerate().map(again).collect();
    assert!(database.writer().write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    for (name, mut rows, mut groups) in begun {
        // Brings the index up to date.
        let view = database.queries().view(&id(name), "v").await.unwrap();
        view.begin(query(Some(Grouping::Exact), false)).await.unwrap();
        while let Some(more) = rows.next_groups().await.unwrap() {
            groups.extend(more);
        }
        assert_eq!(groups.len() as u64, count, "{name}");
        assert!(groups.iter().all(|group| group.value == Ok(Value::from(1_u64))), "{name}: of two moments");
    }
}

/// A query by keys, each of them one.
pub(super) fn by_keys(keys: impl IntoIterator<Item = i64>) -> ViewQuery {
    let span = |key: i64| {
        let at = || KeyBound { key: Some(Value::Int(key)), id: None };
        KeySpan { start: at(), end: at(), inclusive_end: true }
    };
    ViewQuery { keys: ViewKeys::Keys(keys.into_iter().map(span).collect()), ..query(Some(Grouping::Exact), false) }
}

/// By more keys than are read together, and by some for a function of the design document: each is read by itself.
#[tokio::test]
async fn a_reduction_by_many_keys_is_of_one_moment() {
    let (_world, coordinator, database) = database(2).await;
    for (name, reduce) in [("_design/d", "_sum"), ("_design/s", "function (keys, values) { return sum(values); }")] {
        put(&database, name, &design("emit(doc.k, doc.n)", reduce)).await;
    }
    let (count, metrics) = (150, coordinator.env().metrics().clone());
    let mut revs = vec![None; count as usize];
    let (some, none) = (0..limits::GROUPS_AT_ONCE as i64, 0..0);
    for (n, name, nothing) in [(0, "_design/d", some), (1, "_design/s", none)] {
        let change = async |revs: &mut Vec<Option<String>>, value: i64| {
            let rev = |rev: &Option<String>| rev.iter().map(|rev| format!(r#""_rev":"{rev}","#)).collect::<String>();
            let doc = |(k, old): (usize, &Option<String>)| format!(r#"{{{}"k":{k},"n":{value}}}"#, rev(old));
            let docs = revs.iter().enumerate().map(doc).enumerate();
            let edits = docs.map(|(k, doc)| request(&format!("d{k}"), &doc)).collect();
            let done = database.writer().write(edits, WriteOptions::default()).await.unwrap();
            *revs = done.into_iter().map(|written| Some(written.unwrap().rev.to_string())).collect();
        };
        change(&mut revs, 10 * n + 1).await;
        let view = database.queries().view(&id(name), "v").await.unwrap();
        let keys = (0..count).chain(nothing.map(|key| key + 1_000_000)).chain(0..count);
        let mut rows = view.begin(by_keys(keys)).await.unwrap();
        let mut found = rows.next_groups().await.unwrap().unwrap();
        assert_eq!(metrics.level(Gauge::StatesHeld), 2, "{name}: of each range one");
        change(&mut revs, 10 * n + 2).await;
        database.queries().view(&id(name), "v").await.unwrap().begin(by_keys([1])).await.unwrap();
        while let Some(more) = rows.next_groups().await.unwrap() {
            found.extend(more);
        }
        assert_eq!(found.len() as i64, 2 * count, "{name}");
        assert!(found.iter().all(|group| group.value == Ok(Value::Int(10 * n + 1))), "{name}: of two moments");
        assert_eq!(metrics.level(Gauge::StatesHeld), 0, "{name}: given back with the last page");
    }
}

/// 128 queries in one request, each of 8 ranges, took all states that a node may hold, and the next one was refused.
#[tokio::test]
async fn a_reduction_that_waits_for_its_turn_holds_no_states_and_is_read_again() {
    let (_world, coordinator, database) = database(2).await;
    put(&database, "_design/d", &design("emit(doc.k, doc.n)", "_sum")).await;
    let count = limits::GROUPS_PER_PAGE as i64;
    for k in 0..count {
        put(&database, &format!("d{k}"), &format!(r#"{{"k":{k},"n":1}}"#)).await;
    }
    let view = async || database.queries().view(&id("_design/d"), "v").await.unwrap();
    let keys = (0..limits::GROUPS_AT_ONCE as i64 + 5).chain([0]);
    let mut rows = view().await.begin(by_keys(keys)).await.unwrap();
    assert_eq!(rows.next_groups().await.unwrap().unwrap().len() as i64, count);
    let held = || coordinator.env().metrics().level(Gauge::StatesHeld);
    assert_eq!(held(), 2);
    assert!(rows.defer() && !rows.defer());
    assert_eq!(held(), 0);
    let mut found = Vec::new();
    while let Some(more) = rows.next_groups().await.unwrap() {
        found.extend(more.into_iter().map(|group| group.value));
    }
    assert_eq!(found, vec![Ok(Value::Int(1)); count as usize + 1]);
    let mut small = view().await.begin(by_keys([0])).await.unwrap();
    assert_eq!(small.next_groups().await.unwrap().unwrap().len(), 1);
    assert!(!small.defer(), "what holds nothing goes on");
    assert_eq!(small.next_groups().await.unwrap(), None);
}

#[tokio::test]
async fn groups_of_many_keys_stand_in_the_order_of_the_keys_with_those_asked_for_twice() {
    let (_world, _coordinator, database) = filled("emit([doc.n % 40, 0], doc.n)", "_sum").await;
    let asked: Vec<i64> = (0..250).map(|n| n * 7 % 60).chain([3, 3, 59, 3]).collect();
    let key = |n: &i64| {
        let at = || KeyBound { key: Some(Value::Array(vec![Value::Int(*n), Value::Int(0)])), id: None };
        KeySpan { start: at(), end: at(), inclusive_end: true }
    };
    let sum = |key: i64| (0..DOCS as i64).filter(|n| n % 40 == key).sum::<i64>();
    for (grouping, shown) in [(Grouping::Exact, ",0"), (Grouping::Level(1), "")] {
        let there = asked.iter().filter(|key| **key < 40);
        let expected: Vec<String> = there.map(|key| format!("[[{key}{shown}],{}]", sum(*key))).collect();
        for (descending, skip, limit) in [(false, 0, u64::MAX), (true, 0, u64::MAX), (false, 90, 60)] {
            let keys = ViewKeys::Keys(asked.iter().map(key).collect());
            let found = groups(&database, ViewQuery { keys, skip, limit, ..query(Some(grouping), descending) }).await;
            let part = expected.iter().skip(skip as usize).take(limit.min(1000) as usize);
            assert!(found.iter().eq(part), "{found:?}");
        }
    }
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
async fn seats_are_at_hand_as_long_as_the_view_is_complete() {
    let (_world, _coordinator, database) = database(3).await;
    let design = r#"{"autoupdate":false,"views":{"v":{"map":"function(doc){emit(doc.n)}"}}}"#;
    put(&database, "_design/d", design).await;
    let edits = (0..DOCS).map(|n| request(&format!("d{n:02}"), &format!(r#"{{"n":{n}}}"#))).collect();
    assert!(database.writer().write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let view = async || database.queries().view(&id("_design/d"), "v").await.unwrap();
    let (asked, ranges) = (query(None, false), database.ranges());
    assert!(view().await.seats_at_hand(&ranges, &asked).is_none(), "nothing is built");
    assert_eq!(begin(&database, asked.clone()).await.total_rows, DOCS);
    for (range, seat) in ranges.iter().zip(view().await.seats_at_hand(&ranges, &asked).unwrap()) {
        let found = view().await.seat(*range, Update::Before, false).await.unwrap();
        assert_eq!((seat.header, seat.replica_position), (found.header, found.replica_position));
    }
    put(&database, "more", r#"{"n":1}"#).await;
    assert!(view().await.seats_at_hand(&ranges, &asked).is_none(), "a document is to be taken in");
    let as_it_is = ViewQuery { update: Update::Never, ..asked.clone() };
    assert!(view().await.seats_at_hand(&ranges, &as_it_is).is_some());
    assert_eq!(begin(&database, asked).await.total_rows, DOCS + 1);
}

#[tokio::test]
async fn pages_by_keys_have_the_offsets_that_counting_gives() {
    let (_world, _coordinator, database) = filled("emit(doc.n, 1)", "_count").await;
    for (from, limit) in [(0, 7), (5, 7), (12, 30), (42, 7), (41, 90), (89, 3), (90, 3), (3, 1)] {
        let start = KeyBound { key: Some(Value::Int(from)), id: None };
        let keys = ViewKeys::Span(KeySpan { start, end: KeyBound::default(), inclusive_end: true });
        let mut rows = begin(&database, ViewQuery { keys, limit, ..query(None, false) }).await;
        assert_eq!((rows.offset, rows.total_rows), (from as u64, DOCS));
        let mut shown = Vec::new();
        while let Some(page) = rows.next().await.unwrap() {
            shown.extend(page.iter().map(|row| parse(&row.row.key).unwrap()));
        }
        let last = DOCS.min(from as u64 + limit) as i64;
        assert_eq!(shown, (from..last).map(Value::Int).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn the_index_before_answers_until_the_new_one_is_built() {
    let (_world, coordinator, database) = filled("emit(doc.n, null)", "_count").await;
    assert_eq!(keys(&database).await.len() as u64, DOCS);
    coordinator.config().set(("settee", "index_swap"), "ready", false).await.unwrap();
    let rev = database.documents().fetch(&id("_design/d"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    let edited = design("emit('x' + doc.n, null)", "_count").replacen('{', &format!(r#"{{"_rev":"{rev}","#), 1);
    put(&database, "_design/d", &edited).await;
    assert_eq!(keys(&database).await[0], Value::Int(0), "of the definition before");
    while keys(&database).await[0] == Value::Int(0) {
        tokio::task::yield_now().await;
    }
    assert_eq!(keys(&database).await[0], Value::from("x0"));
}

/// Rows of the view `name` of `_design/d`, or what is wrong.
async fn total(database: &Arc<Database>, name: &str) -> Result<u64, String> {
    let begun = database.queries().view(&id("_design/d"), name).await.unwrap().begin(query(None, false)).await;
    match begun {
        Ok(rows) => Ok(rows.total_rows),
        Err(ViewError::InvalidValue(error)) => Err(error.reason),
        Err(ViewError::Script(error)) => Err(error.to_string()),
        Err(error) => panic!("{error:?}"),
    }
}

async fn with_views(views: &str) -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = database(3).await;
    let plain = r#""plain":{"map":"function (doc) { emit(doc.n, null); }"}"#;
    put(&database, "_design/d", &format!(r#"{{"autoupdate":false,"views":{{{plain},{views}}}}}"#)).await;
    put(&database, "good", r#"{"n":1}"#).await;
    (world, coordinator, database)
}

#[tokio::test]
async fn a_value_that_stats_refuses_fails_the_other_views_until_it_is_gone() {
    let stats = r#""stats":{"map":"function (doc) { emit(1, doc.n); }","reduce":"_stats"}"#;
    let (_world, _coordinator, database) = with_views(stats).await;
    assert_eq!((total(&database, "plain").await, total(&database, "stats").await), (Ok(1), Ok(1)));
    let rev = put(&database, "bad", r#"{"n":"x"}"#).await;
    let refused = Err("non-numeric _stats input: <<120>>".to_owned());
    // Twice: found, and remembered.
    for _ in 0..2 {
        assert_eq!(
            (total(&database, "plain").await, total(&database, "stats").await),
            (refused.clone(), refused.clone())
        );
    }
    put(&database, "bad", &format!(r#"{{"_rev":"{rev}","n":[1]}}"#)).await;
    // An array is no bad value by itself, but one beside a number is: in whichever ranges the two are.
    let together = database.map().index_of(&id("good")) == database.map().index_of(&id("bad"));
    assert_eq!(total(&database, "plain").await.is_err(), together);
    let rev = database.documents().fetch(&id("bad"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    put(&database, "bad", &format!(r#"{{"_rev":"{rev}","_deleted":true}}"#)).await;
    assert_eq!((total(&database, "plain").await, total(&database, "stats").await), (Ok(1), Ok(1)));
}

#[tokio::test]
async fn a_fatal_error_fails_the_other_views_and_any_other_error_does_not() {
    let (soft, hard) = ("if (doc.soft) throw 'no'; emit(1);", "if (doc.hard) throw 'fatal_error'; emit(1);");
    let view = |name: &str, map: &str| format!(r#""{name}":{{"map":"function (doc) {{ {map} }}"}}"#);
    let (_world, _coordinator, database) = with_views(&[view("soft", soft), view("hard", hard)].join(",")).await;
    put(&database, "soft", r#"{"soft":true}"#).await;
    assert_eq!((total(&database, "plain").await, total(&database, "soft").await), (Ok(2), Ok(1)));
    let rev = put(&database, "hard", r#"{"hard":true}"#).await;
    for view in ["plain", "soft", "hard"] {
        assert_eq!(total(&database, view).await, Err("map_runtime_error".to_owned()), "{view}");
    }
    put(&database, "hard", &format!(r#"{{"_rev":"{rev}"}}"#)).await;
    assert_eq!((total(&database, "plain").await, total(&database, "hard").await), (Ok(3), Ok(3)));
}

#[tokio::test]
async fn sums_that_grow_with_their_rows_are_errors() {
    let distinct = "var o = {}; for (var i = 0; i < 6; i++) o[doc._id + i] = 1; emit(doc.n % 2, o);";
    let (_world, coordinator, database) = filled(distinct, "_sum").await;
    let all = groups(&database, query(Some(Grouping::All), false)).await;
    assert!(all[0].contains("builtin_reduce_error") && all[0].contains("must shrink more rapidly"), "{all:?}");
    assert!(groups(&database, query(Some(Grouping::Exact), false)).await.len() == 2);
    coordinator.config().set(("query_server_config", "reduce_limit"), "false", false).await.unwrap();
    let all = groups(&database, query(Some(Grouping::All), false)).await;
    assert_eq!(all[0].matches("\":1").count() as u64, 6 * DOCS);
}

/// Three replicas, of which only the one that was read has its index.
#[tokio::test]
async fn stable_reads_come_from_one_replica_whichever_node_is_asked() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let design = r#"{"autoupdate":false,"views":{"v":{"map":"function(d){emit(d.n)}"}}}"#;
    write(&cluster.db(0), "_design/d", design, Some(3)).await.unwrap();
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    let total = async |at: usize, update: Update, stable: bool| {
        begin(&cluster.db(at), ViewQuery { update, stable, ..query(None, false) }).await.total_rows
    };
    assert_eq!(total(0, Update::Before, true).await, 1);
    for at in [0, 1, 2, 1, 0] {
        assert_eq!(total(at, Update::Never, true).await, 1, "asked of node {at}");
    }
    let mut nearest = Vec::new();
    for at in 0..3 {
        nearest.push(total(at, Update::Never, false).await);
    }
    assert_eq!(nearest.iter().sum::<u64>(), 1, "each node reads its own replica: {nearest:?}");
    // Without that replica it is the next one, for all who are left.
    let first = cluster.db(0).replicas().nodes_of(0)[0].to_string();
    let first = cluster.network.names.iter().position(|name| *name == first).unwrap();
    cluster.cut(&[first]);
    let left: Vec<usize> = (0..3).filter(|at| *at != first).collect();
    assert_eq!(total(left[0], Update::Never, true).await, 0);
    assert_eq!(total(left[1], Update::Before, true).await, 1);
    for at in left {
        assert_eq!(total(at, Update::Never, true).await, 1, "asked of node {at}");
    }
}
