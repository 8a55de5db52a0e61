//! Rows of one replica beside documents that another replica does not have yet.

use super::*;
use crate::coordinator::tests::convergence::planted;
use crate::coordinator::tests::find::query as find_query;
use crate::coordinator::tests::views::query as view_query;
use crate::coordinator::{FeedOperations, ReadOperations, WriteOperations};
use crate::document::draft::PreparedBody;
use crate::document::selector::Selector;
use crate::limits;

/// Begins a feed on the first node that reads the replica of the second one: the first is in maintenance meanwhile.
async fn begin_elsewhere(cluster: &Cluster, query: ChangesQuery) -> Changes {
    let config = cluster.nodes[0].coordinator.config();
    config.set(("couchdb", "maintenance_mode"), "true", false).await.unwrap();
    let feed = cluster.db(0).feeds().changes(query).await.unwrap();
    config.set(("couchdb", "maintenance_mode"), "false", false).await.unwrap();
    cluster.settle().await;
    feed
}

/// Reads a round to its end.
async fn drain(feed: &mut Changes) -> Vec<ChangeRow> {
    let mut rows = Vec::new();
    while let Some(page) = feed.next().await.unwrap() {
        rows.extend(page);
    }
    rows
}

/// Puts a first revision into the replica of one node only.
async fn plant_on(cluster: &Cluster, at: usize, name: &str) {
    plant(&replica(cluster, at).await, name, &["1-a"], false).await;
}

async fn by_selector(database: &Arc<Database>) -> ChangesFilter {
    let selector = Selector::parse(&json::parse(br#"{"_id":{"$gt":null}}"#).unwrap()).unwrap();
    database.feeds().selector_filter(&Arc::new(selector)).await
}

const DESIGN: &str = r#"{"filters":{"f":"function (doc) { return true; }"},
    "views":{"v":{"map":"function (doc) { emit(doc._id); }"}}}"#;

#[tokio::test]
async fn a_filtered_feed_lists_what_a_lagging_replica_lacks() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    write(&cluster.db(0), "_design/d", DESIGN, Some(2)).await.unwrap();
    let db = cluster.db(0);
    let filters = [
        by_selector(&db).await,
        db.feeds().function_filter("d/f", "{}".into()).await.unwrap(),
        db.feeds().view_filter("d/v").await.unwrap(),
        ChangesFilter::None,
    ];
    for (at, filter) in filters.into_iter().enumerate() {
        for style in [Style::MainOnly, Style::AllDocs] {
            let query = ChangesQuery { since: Since::Now, filter: filter.clone(), style, ..ChangesQuery::default() };
            let mut feed = begin_elsewhere(&cluster, ChangesQuery { include_docs: true, ..query }).await;
            let name = format!("d{at} {style:?}");
            plant_on(&cluster, 1, &name).await;
            feed.wait().await;
            let rows = drain(&mut feed).await;
            assert_eq!(rows.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), [&name]);
            let doc = rows[0].doc.as_ref().expect("the row's document");
            assert_eq!((vec![doc.stored.rev.clone()], rows[0].deleted), (rows[0].revs.clone(), false));
        }
    }
}

#[tokio::test]
async fn a_feed_with_documents_shows_none_older_than_its_row() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    for at in 0..2 {
        plant_on(&cluster, at, "a").await;
    }
    for filter in [ChangesFilter::None, by_selector(&cluster.db(0)).await] {
        let query = ChangesQuery { since: Since::Beginning, include_docs: true, filter, ..ChangesQuery::default() };
        let mut feed = begin_elsewhere(&cluster, query).await;
        plant(&replica(&cluster, 1).await, "a", &["2-b", "1-a"], false).await;
        let rows = drain(&mut feed).await;
        assert_eq!((rows.len(), &rows[0].revs), (1, &vec![rev("2-b")]));
        assert_eq!(rows[0].doc.as_ref().map(|doc| &doc.stored.rev), rows[0].revs.first());
    }
}

#[tokio::test]
async fn rows_whose_replica_goes_away_before_their_documents_are_read_come_later() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    let query =
        ChangesQuery { since: Since::Now, filter: by_selector(&cluster.db(0)).await, ..ChangesQuery::default() };
    let mut feed = begin_elsewhere(&cluster, query).await;
    let all: BTreeSet<String> = (0..limits::PAGE_DOCS + 10).map(|n| format!("d{n:03}")).collect();
    for name in &all {
        plant_on(&cluster, 1, name).await;
    }
    feed.wait().await;
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut take = |rows: Vec<ChangeRow>| seen.extend(rows.into_iter().map(|row| row.id.as_str().to_owned()));
    take(feed.next().await.unwrap().unwrap());
    cluster.cut(&[1]);
    take(drain(&mut feed).await);
    let since = feed.last_seq();
    cluster.heal().await;
    eventually(|| async { own_leaves(&cluster.db(0), "d059").await.len() == 1 }).await;
    take(drain(&mut feed).await);
    let resumed = ChangesQuery { since: Since::parse(&since).unwrap(), ..ChangesQuery::default() };
    let mut resumed = cluster.db(0).feeds().changes(resumed).await.unwrap();
    let rest = drain(&mut resumed).await;
    assert!(rest.len() >= 10, "{} rows behind {since}", rest.len());
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_row_whose_document_is_purged_before_it_is_read_holds_up_no_feed() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    let names: Vec<String> = (0..limits::PAGE_DOCS + 3).map(|n| format!("d{n:03}")).collect();
    for name in &names {
        plant_on(&cluster, 1, name).await;
    }
    let query = ChangesQuery { include_docs: true, ..ChangesQuery::default() };
    let mut feed = begin_elsewhere(&cluster, query).await;
    assert_eq!(feed.next().await.unwrap().unwrap().len(), limits::PAGE_DOCS);
    replica(&cluster, 1).await.purge(vec![(id(&names[limits::PAGE_DOCS]), vec![rev("1-a")])]).await.unwrap();
    let rest = drain(&mut feed).await;
    assert_eq!(rest.iter().map(|row| row.id.as_str()).collect::<Vec<_>>(), names[limits::PAGE_DOCS + 1..]);
    assert!(rest.iter().all(|row| row.doc.is_some()));
}

/// The node whose replica all nodes read with `stable`, and the other one.
fn first_and_other(cluster: &Cluster) -> (usize, usize) {
    let first = usize::from(&*cluster.db(0).replicas().nodes_of(0)[0] == "n2@h");
    (first, 1 - first)
}

#[tokio::test]
async fn a_view_row_has_its_document_where_another_replica_lags() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    write(&cluster.db(0), "_design/d", DESIGN, Some(2)).await.unwrap();
    let (first, other) = first_and_other(&cluster);
    plant_on(&cluster, first, "a").await;
    let query = ViewQuery { include_docs: true, stable: true, ..view_query(None, false) };
    let view = cluster.db(other).queries().view(&id("_design/d"), "v").await.unwrap();
    let rows = view.begin(query).await.unwrap().next().await.unwrap().unwrap();
    assert_eq!(rows.iter().map(|row| row.row.id.as_str()).collect::<Vec<_>>(), ["a"]);
    assert!(matches!(&rows[0].doc, Some(Some(doc)) if doc.stored.rev == rev("1-a")), "{:?}", rows[0].doc);
}

#[tokio::test]
async fn a_query_by_an_index_finds_what_a_lagging_replica_has_in_an_older_revision() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    let index = r#"{"language":"query","views":{"i":{"map":{"fields":{"m":"asc","n":"asc"}},"reduce":"_count"}}}"#;
    write(&cluster.db(0), "_design/x", index, Some(2)).await.unwrap();
    let (first, other) = first_and_other(&cluster);
    for at in 0..2 {
        plant_on(&cluster, at, "a").await;
    }
    let mut newer = planted("a", &["2-b", "1-a"], false);
    newer.body = Arc::new(PreparedBody::from_text(Bytes::from_static(br#"{"m":1,"n":1}"#)).unwrap());
    replica(&cluster, first).await.edit(vec![newer]).await.unwrap().pop().unwrap().unwrap();
    let db = cluster.db(other);
    let asked = find_query(&db, r#"{"selector":{"m":1,"n":{"$gt":0}},"stable":true}"#, true).await;
    let page = db.queries().find(asked).await.unwrap().next(10).await.unwrap().unwrap();
    assert_eq!(page.hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["a"]);
}

/// Who asks for the revisions that a feed listed asked a majority that had not heard of them.
#[tokio::test]
async fn a_revision_that_one_replica_has_is_found_by_its_name() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    for at in 0..3 {
        let name = format!("d{at}");
        plant_on(&cluster, at, &name).await;
        for want in [Want::Revision(rev("1-a")), Want::Revisions { revs: vec![rev("1-a")], latest: true }] {
            assert!(
                cluster.db(0).documents().fetch_one(&id(&name), want).await.unwrap().is_some(),
                "on node {at} only"
            );
        }
    }
}

#[tokio::test]
async fn a_listed_document_is_not_taken_for_missing_while_a_replica_is_out_of_reach() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    plant_on(&cluster, 2, "a").await;
    let (db, first) = (cluster.db(0), rev("1-a"));
    cluster.cut(&[2]);
    let read = db.documents().fetch_listed(&id("a"), Want::Winner, &first).await;
    assert!(matches!(read, Err(ReadError::TooFewReplicas { .. })), "{read:?}");
    cluster.heal().await;
    assert!(db.documents().fetch_listed(&id("a"), Want::Winner, &first).await.unwrap().is_some());
    eventually(|| async { own_leaves(&db, "a").await.len() == 1 }).await;
    db.maintenance().purge(vec![(id("a"), vec![first.clone()])]).await.unwrap();
    let read = db.documents().fetch_listed(&id("a"), Want::Winner, &first).await.unwrap();
    assert!(read.is_none_or(|fetched| fetched.tree.is_empty()));
}
