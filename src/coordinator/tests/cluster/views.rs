//! Views and their groups, read through nodes with and without replicas.

use super::*;
use crate::coordinator::read::view::{ViewError, ViewRows};
use crate::coordinator::read::view_reduce::GroupRow;
use crate::coordinator::tests::views::{by_keys, query as view_query};
use crate::coordinator::{ReadOperations, WriteOperations};
use crate::observe::metrics::Gauge;

#[tokio::test]
async fn a_view_is_the_same_on_a_node_without_replicas() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 1).await.unwrap();
    write(&cluster.db(0), "_design/v", r#"{"views":{"v":{"map":"function(d){emit(d.n)}"}}}"#, None).await.unwrap();
    for n in 0..5 {
        write(&cluster.db(0), &format!("d{n}"), &format!(r#"{{"n":{n}}}"#), None).await.unwrap();
    }
    for at in 0..3 {
        let view = cluster.db(at).queries().view(&id("_design/v"), "v").await.unwrap();
        let query = ViewQuery { skip: 1, limit: 3, likely: 3, update_seq: true, ..view_query(None, false) };
        let mut rows = view.begin(query).await.unwrap();
        assert_eq!((rows.total_rows, rows.offset), (5, 1));
        let page = rows.next().await.unwrap().unwrap();
        assert_eq!(page.iter().map(|row| row.row.id.as_str()).collect::<Vec<_>>(), ["d1", "d2", "d3"]);
    }
}

#[tokio::test]
async fn groups_are_the_same_on_a_node_without_replicas() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 1).await.unwrap();
    let names = ["_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_2", "_bottom_2"];
    let map = "function(d){emit([d.n % 2, d.n], d.n)}";
    let views = names.map(|name| format!(r#""{name}":{{"map":"{map}","reduce":"{name}"}}"#)).join(",");
    write(&cluster.db(0), "_design/v", &format!(r#"{{"views":{{{views}}}}}"#), None).await.unwrap();
    for n in 0..300 {
        write(&cluster.db(0), &format!("d{n}"), &format!(r#"{{"n":{n}}}"#), None).await.unwrap();
    }
    let groups = async |at: usize, name: &str| {
        let view = cluster.db(at).queries().view(&id("_design/v"), name).await.unwrap();
        let mut rows = view.begin(view_query(Some(Grouping::Level(1)), false)).await.unwrap();
        let (mut out, mut page) = (Vec::new(), rows.next_groups().await.unwrap());
        while let Some(groups) = page {
            out.extend(groups);
            page = rows.next_groups().await.unwrap();
        }
        out
    };
    for name in names {
        let first = groups(0, name).await;
        assert_eq!(first.len(), 2);
        assert!((groups(1, name).await, groups(2, name).await) == (first.clone(), first), "{name}");
    }
    let even = |value: &str| Ok(json::parse(value.as_bytes()).unwrap());
    assert_eq!(groups(1, "_sum").await[0].value, even("22350"));
    assert_eq!(groups(1, "_approx_count_distinct").await[0].value, even("150"));
    assert_eq!(groups(1, "_top_2").await[0].value, even("[298,296]"));
}

#[tokio::test]
async fn groups_go_on_with_another_replica() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 2).await.unwrap();
    let design = r#"{"views":{"v":{"map":"function(d){emit(d.n, 1)}","reduce":"_sum"}}}"#;
    write(&cluster.db(0), "_design/v", design, None).await.unwrap();
    // More than a range gives at once.
    let count = 5 * crate::limits::GROUPS_PER_PAGE;
    let docs = (0..count).map(|n| request(&format!("d{n}"), &format!(r#"{{"n":{n}}}"#))).collect();
    assert!(cluster.db(0).writer().write(docs, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    for gone in [1, 2] {
        let view = cluster.db(0).queries().view(&id("_design/v"), "v").await.unwrap();
        let mut rows = view.begin(view_query(Some(Grouping::Exact), false)).await.unwrap();
        let mut found = rows.next_groups().await.unwrap().unwrap();
        cluster.cut(&[gone]);
        while let Some(more) = rows.next_groups().await.unwrap() {
            found.extend(more);
        }
        assert_eq!(found.len(), count);
        assert!(found.iter().all(|group| group.value == Ok(json::Value::Int(1))));
        cluster.heal().await;
    }
}

/// One whose pages come from the replicas of other nodes.
#[tokio::test]
async fn a_reduction_of_many_pages_is_of_one_moment_or_ends_with_an_error() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 1).await.unwrap();
    let design = r#"{"views":{"v":{"map":"function(d){emit(d.k, d.n)}","reduce":"_sum"}}}"#;
    write(&cluster.db(0), "_design/v", design, None).await.unwrap();
    let count = 150;
    let change = async |revs: Vec<String>, n: i64| {
        let rev = |k: usize| revs.get(k).map(|rev| format!(r#""_rev":"{rev}","#)).unwrap_or_default();
        let doc = |k: usize| request(&format!("d{k}"), &format!(r#"{{{}"k":{k},"n":{n}}}"#, rev(k)));
        let docs = (0..count).map(doc).collect();
        let done = cluster.db(0).writer().write(docs, WriteOptions::default()).await.unwrap();
        done.into_iter().map(|written| written.unwrap().rev.to_string()).collect::<Vec<String>>()
    };
    let query = || {
        let nothing = (0..crate::limits::GROUPS_AT_ONCE as i64).map(|key| key + 1_000_000);
        by_keys((0..count as i64).chain(nothing).chain(0..count as i64))
    };
    let begin = async || {
        let view = cluster.db(0).queries().view(&id("_design/v"), "v").await.unwrap();
        let mut rows = view.begin(query()).await.unwrap();
        let groups = rows.next_groups().await.unwrap().unwrap();
        (rows, groups)
    };
    let held = || {
        let level = |node: &Node| node.coordinator.env().metrics().level(Gauge::StatesHeld);
        cluster.nodes.iter().map(level).collect::<Vec<u64>>()
    };
    let of = |n: i64| move |group: &GroupRow| group.value == Ok(json::Value::Int(n));
    let revs = change(Vec::new(), 1).await;
    let (mut rows, mut found) = begin().await;
    assert_eq!(held().iter().sum::<u64>(), 4);
    change(revs, 2).await;
    begin().await;
    while let Some(more) = rows.next_groups().await.unwrap() {
        found.extend(more);
    }
    assert_eq!(found.len(), 2 * count);
    assert!(found.iter().all(of(1)), "of two moments");
    drop(rows);
    eventually(|| async { held().iter().all(|level| *level == 0) }).await;

    // A replica that has lost the state, as a node that was started anew.
    let lose = async |rows: &ViewRows| {
        let remote = rows.seats.iter().find(|seat| seat.replica.node().is_some()).expect("a range elsewhere");
        let (view, number) = remote.state.as_ref().expect("a state").named();
        view.release(number).await.unwrap();
    };
    let (mut rows, _) = begin().await;
    lose(&rows).await;
    let ended = async {
        loop {
            match rows.next_groups().await {
                Ok(Some(more)) => assert!(more.iter().all(of(2))),
                Ok(None) => panic!("the answer is whole"),
                Err(error) => break error,
            }
        }
    };
    assert!(matches!(ended.await, ViewError::StateGone));
    let (mut rows, _) = begin().await;
    lose(&rows).await;
    // As long as nothing was given out, it begins anew.
    rows.is_given = false;
    let mut found = 0;
    while let Some(more) = rows.next_groups().await.unwrap() {
        assert!(more.iter().all(of(2)));
        found += more.len();
        rows.is_given = rows.anew > 0;
    }
    assert_eq!(rows.anew, 1);
    assert!(found >= 2 * count);
}

#[tokio::test]
async fn a_view_that_fails_fails_the_others_on_a_node_without_replicas() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 1).await.unwrap();
    let map = "function(d){emit(1, d.n)}";
    let views = format!(r#""plain":{{"map":"{map}"}},"stats":{{"map":"{map}","reduce":"_stats"}}"#);
    write(&cluster.db(0), "_design/v", &format!(r#"{{"views":{{{views}}}}}"#), None).await.unwrap();
    write(&cluster.db(0), "bad", r#"{"n":"x"}"#, None).await.unwrap();
    for at in 0..3 {
        let view = cluster.db(at).queries().view(&id("_design/v"), "plain").await.unwrap();
        let begun = view.begin(view_query(None, false)).await.map(|rows| rows.total_rows);
        let Err(error) = begun else { panic!("node {at}") };
        assert!(format!("{error:?}").contains("non-numeric _stats input"), "node {at}: {error:?}");
    }
}

/// Sixteen of them were in memory together.
#[tokio::test]
async fn documents_of_rows_are_read_as_many_at_a_time_as_there_is_memory_for() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 1).await.unwrap();
    write(&cluster.db(0), "_design/v", r#"{"views":{"v":{"map":"function(d){emit(d._id)}"}}}"#, None).await.unwrap();
    let bytes = crate::limits::FETCH_BYTES * 2 / 5;
    let large = format!(r#"{{"text":"{}"}}"#, "x".repeat(bytes));
    for n in 0..8 {
        let text = if n == 3 { format!(r#"{{"text":"{}"}}"#, "x".repeat(4 * bytes)) } else { large.clone() };
        write(&cluster.db(0), &format!("d{n}"), &text, None).await.unwrap();
    }
    for at in 0..3 {
        let view = cluster.db(at).queries().view(&id("_design/v"), "v").await.unwrap();
        let query = ViewQuery { include_docs: true, limit: 7, ..view_query(None, false) };
        let mut rows = view.begin(query).await.unwrap();
        let (mut names, mut most) = (Vec::new(), 0);
        while let Some(page) = rows.next().await.unwrap() {
            let size = |row: &ViewRow| row.doc.as_ref().unwrap().as_ref().unwrap().stored.body.len();
            most = most.max(page.iter().map(size).sum());
            names.extend(page.into_iter().map(|row| row.row.id.as_str().to_owned()));
        }
        assert_eq!(names, (0..7).map(|n| format!("d{n}")).collect::<Vec<_>>(), "node {at}");
        assert!(most < 5 * bytes, "node {at}: {most} bytes");
    }
}

/// Rows of another replica had the ETag of the one that failed, and a client was told that it has everything.
#[tokio::test]
async fn etags_of_lists_and_feeds_end_with_the_replica_that_is_read() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 2).await.unwrap();
    let holders = cluster.db(0).shards().remove(0).1;
    let at = |name: &String| cluster.network.names.iter().position(|own| own == name).unwrap();
    let reader = (0..3).find(|n| !holders.iter().any(|name| at(name) == *n)).unwrap();
    let db = cluster.db(reader);
    let first = at(&db.replicas().replica_of(0).await.unwrap().node().unwrap().to_string());
    let state = async || {
        db.update_seq().await.unwrap();
        db.read_state()
    };
    let before = state().await;
    assert_eq!(state().await, before);
    let mut list = db.lists().all_docs(AllDocsQuery::default()).await.unwrap();
    assert_eq!(state().await, before);
    cluster.cut(&[first]);
    list.next().await.unwrap();
    assert_ne!(db.read_state(), before, "the list was read elsewhere");
    cluster.heal().await;
    eventually(|| async { state().await != before && db.replicas().replica_of(0).await.is_ok() }).await;
    let alone =
        cluster.nodes[0].coordinator.create_database("alone", CreateOptions { n: Some(1), ..CreateOptions::default() });
    alone.await.unwrap();
    assert!(cluster.nodes[0].coordinator.database("alone").unwrap().read_state().is_empty());
}
