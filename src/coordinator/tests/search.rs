//! Full-text searches over several ranges and nodes: one order, pages, groups, splits.

use settee_search::search::{Group, Request, Sort, nouveau};

use super::cluster::{Cluster, write};
use super::reshard::split_all;
use super::*;
use crate::coordinator::{ReadOperations, WriteOperations, ask_several};

const DOCS: usize = 60;
const DESIGN: &str = r#"{"autoupdate":false,"indexes":{"i":{"index":
    "function (doc) { index('default', doc.t); index('n', doc.n, {store: true}); index('g', doc.g); }"}}}"#;

fn text(n: usize) -> String {
    format!(r#"{{"t":"apple {}","n":{n},"g":"g{}"}}"#, if n.is_multiple_of(2) { "even" } else { "odd" }, n % 3)
}

fn query(query: &str, limit: usize) -> SearchQuery {
    let sort = vec![Sort::Field { name: "n".to_owned(), is_text: false, reverse: false }];
    let request = Request { query: query.to_owned(), limit, sort, ..Request::default() };
    SearchQuery { request, bookmark: None, update: true }
}

async fn page(database: &Arc<Database>, query: SearchQuery) -> SearchPage {
    database.queries().search(&id("_design/d"), "i").await.unwrap().ask(query).await.unwrap()
}

fn ids(page: &SearchPage) -> Vec<String> {
    page.answer.rows.iter().map(|row| row.id.clone()).collect()
}

async fn filled(database: &Arc<Database>) {
    put(database, "_design/d", DESIGN).await;
    let edits = (0..DOCS).map(|n| request(&format!("d{n:02}"), &text(n))).collect();
    assert!(database.writer().write(edits, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
}

/// All ids that pages of a size show one after the other.
async fn all_pages(database: &Arc<Database>, size: usize) -> Vec<String> {
    let (mut all, mut bookmark) = (Vec::new(), None);
    loop {
        let next = page(database, SearchQuery { bookmark, ..query("apple", size) }).await;
        if next.answer.rows.is_empty() {
            return all;
        }
        all.extend(ids(&next));
        bookmark = Some(next.bookmark);
    }
}

fn numbered(range: impl IntoIterator<Item = usize>) -> Vec<String> {
    range.into_iter().map(|n| format!("d{n:02}")).collect()
}

#[tokio::test]
async fn pages_of_several_ranges_are_in_one_order_and_miss_nothing() {
    let (_world, _coordinator, database) = database(5).await;
    filled(&database).await;
    let first = page(&database, query("apple", 7)).await;
    assert_eq!((ids(&first), first.answer.total), (numbered(0..7), DOCS as u64));
    for size in [1, 7, 200] {
        assert_eq!(all_pages(&database, size).await, numbered(0..DOCS), "pages of {size}");
    }
    assert_eq!(ids(&page(&database, query("odd", 3)).await), numbered([1, 3, 5]));
}

#[tokio::test]
async fn a_bookmark_holds_on_when_documents_are_written() {
    let (_world, _coordinator, database) = database(3).await;
    filled(&database).await;
    let first = page(&database, query("apple", 10)).await;
    put(&database, "d00a", r#"{"t":"apple","n":0.5,"g":""}"#).await;
    put(&database, "d10a", r#"{"t":"apple","n":10.5,"g":""}"#).await;
    let next = page(&database, SearchQuery { bookmark: Some(first.bookmark), ..query("apple", 3) }).await;
    assert_eq!(ids(&next), ["d10", "d10a", "d11"]);
}

#[tokio::test]
async fn groups_of_several_ranges_are_whole() {
    let (_world, _coordinator, database) = database(4).await;
    filled(&database).await;
    let mut asked = query("apple", 2);
    let sort = vec![Sort::Field { name: "g".to_owned(), is_text: true, reverse: true }];
    asked.request.group = Some(Group { field: "g".to_owned(), limit: 2, sort, only: None });
    let groups = page(&database, asked).await.answer.groups.unwrap();
    let shown: Vec<(Option<&str>, u64, Vec<&str>)> = groups
        .iter()
        .map(|group| (group.by.as_deref(), group.total, group.rows.iter().map(|row| row.id.as_str()).collect()))
        .collect();
    assert_eq!(shown, [(Some("g2"), 20, vec!["d02", "d05"]), (Some("g1"), 20, vec!["d01", "d04"])]);
}

#[tokio::test]
async fn a_search_without_update_builds_nothing_and_one_with_it_sees_every_write() {
    let (_world, _coordinator, database) = database(2).await;
    filled(&database).await;
    let stale = SearchQuery { update: false, ..query("apple", 1) };
    assert_eq!(page(&database, stale.clone()).await.answer.total, 0);
    assert_eq!(page(&database, query("apple", 1)).await.answer.total, DOCS as u64);
    put(&database, "new", r#"{"t":"apple","n":0,"g":""}"#).await;
    assert_eq!(page(&database, stale).await.answer.total, DOCS as u64);
    assert_eq!(page(&database, query("apple", 1)).await.answer.total, DOCS as u64 + 1);
}

#[tokio::test]
async fn every_node_answers_the_same_of_replicas_that_it_does_not_hold() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 1).await.unwrap();
    write(&cluster.db(0), "_design/d", DESIGN, None).await.unwrap();
    for n in 0..12 {
        write(&cluster.db(n % 3), &format!("d{n:02}"), &text(n), None).await.unwrap();
    }
    for at in 0..3 {
        assert_eq!(all_pages(&cluster.db(at), 5).await, numbered(0..12), "asked of node {at}");
        let size = cluster.db(at).queries().search(&id("_design/d"), "i").await.unwrap().size().await.unwrap();
        assert_eq!((size.documents, size.deleted), (12, 0), "asked of node {at}");
    }
    let refused = cluster.db(1).queries().search(&id("_design/d"), "i").await.unwrap().ask(query("a[", 1)).await;
    assert!(matches!(refused, Err(SearchFailure::Refused(SearchRefusal::Refused(_)))), "{refused:?}");
}

#[tokio::test]
async fn the_halves_of_a_range_have_an_index_of_their_own() {
    let (world, coordinator, database) = database(2).await;
    filled(&database).await;
    let before = page(&database, query("apple", 10)).await;
    drop(database);
    split_all(&coordinator, &world).await;
    let database = coordinator.database("db").unwrap();
    assert_eq!(all_pages(&database, 9).await, numbered(0..DOCS));
    let next = page(&database, SearchQuery { bookmark: Some(before.bookmark), ..query("apple", 4) }).await;
    assert_eq!(ids(&next), numbered(10..14), "a bookmark from before goes on");
}

#[tokio::test]
async fn a_clean_up_removes_what_no_design_document_names() {
    let (_world, _coordinator, database) = database(2).await;
    filled(&database).await;
    assert_eq!(page(&database, query("apple", 1)).await.answer.total, DOCS as u64);
    database.queries().clean_up_views().await.unwrap();
    let size = async || database.queries().search(&id("_design/d"), "i").await.unwrap().size().await.unwrap().documents;
    assert_eq!(size().await, DOCS as u64, "what is named stays");
    let found = database.documents().fetch(&id("_design/d"), Want::Winner).await.unwrap().unwrap();
    let rev = found.tree.winner().unwrap().rev;
    database.writer().delete(&id("_design/d"), Some(rev), WriteOptions::default()).await.unwrap();
    database.queries().clean_up_views().await.unwrap();
    put(&database, "_design/d", DESIGN).await;
    assert_eq!(size().await, 0);
}

/// Ids and totals of a search of the index with types.
async fn typed(database: &Arc<Database>, request: nouveau::Request, bookmark: Option<String>) -> TypedPage {
    let index = database.queries().typed_search(&id("_design/t"), "i").await.unwrap();
    index.ask_typed(TypedQuery { request, bookmark, update: true }).await.unwrap()
}

const TYPED: &str = r#"{"autoupdate":false,"nouveau":{"i":{"index":"function (doc) { index('text', 'default', doc.t);
    index('double', 'n', doc.n, {store: true}); index('string', 'g', doc.g); }"}}}"#;

fn by_number(query: &str, limit: usize) -> nouveau::Request {
    let sort = vec!["n".to_owned()];
    nouveau::Request { query: query.to_owned(), limit, top: 10, sort, ..nouveau::Request::default() }
}

fn typed_ids(page: &TypedPage) -> Vec<String> {
    page.answer.rows.iter().map(|row| row.id.clone()).collect()
}

#[tokio::test]
async fn pages_of_an_index_with_types_go_on_behind_a_split_and_on_every_node() {
    let (world, coordinator, database) = database(2).await;
    put(&database, "_design/t", &TYPED.replace('\n', " ")).await;
    filled(&database).await;
    let first = typed(&database, by_number("apple", 7), None).await;
    assert_eq!((typed_ids(&first), first.answer.total), (numbered(0..7), DOCS as u64));
    let counted = nouveau::Request { counts: Some(vec!["g".to_owned()]), ..by_number("apple", 1) };
    let counts = typed(&database, counted, None).await.answer.counts.unwrap();
    assert_eq!(counts["g"], ["g0", "g1", "g2"].map(|name| (name.to_owned(), 20)).into());
    drop(database);
    split_all(&coordinator, &world).await;
    let database = coordinator.database("db").unwrap();
    let next = typed(&database, by_number("apple", 4), Some(first.bookmark)).await;
    assert_eq!(typed_ids(&next), numbered(7..11));
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 1).await.unwrap();
    write(&cluster.db(0), "_design/t", &TYPED.replace('\n', " "), None).await.unwrap();
    for n in 0..12 {
        write(&cluster.db(n % 3), &format!("d{n:02}"), &text(n), None).await.unwrap();
    }
    let mut bookmark = None;
    for at in 0..3 {
        let page = typed(&cluster.db(at), by_number("apple", 4), bookmark).await;
        assert_eq!(typed_ids(&page), numbered(4 * at..4 * at + 4), "asked of node {at}");
        bookmark = Some(page.bookmark);
    }
}

#[tokio::test]
async fn a_document_whose_fields_do_not_fit_stops_the_build_and_is_told() {
    let (_world, _coordinator, database) = database(1).await;
    put(&database, "_design/t", &TYPED.replace('\n', " ")).await;
    put(&database, "a", r#"{"t":"apple","n":1,"g":"x"}"#).await;
    assert_eq!(typed_ids(&typed(&database, by_number("apple", 5), None).await), ["a"]);
    let function =
        TYPED.replace('\n', " ").replace("index('string', 'g', doc.g)", "if (doc.g) index(doc.g, 'g', doc.n)");
    put(&database, "_design/u", &function).await;
    put(&database, "b", r#"{"t":"apple","n":2,"g":"double"}"#).await;
    put(&database, "c", r#"{"t":"apple","n":3,"g":"stored"}"#).await;
    put(&database, "d", r#"{"t":"apple","n":4}"#).await;
    let index = || async { database.queries().typed_search(&id("_design/u"), "i").await.unwrap() };
    for _ in 0..2 {
        let asked = TypedQuery { request: by_number("apple", 5), bookmark: None, update: true };
        let refused = index().await.ask_typed(asked).await;
        let Err(SearchFailure::Refused(SearchRefusal::Refused(reason))) = refused else { panic!("{refused:?}") };
        assert_eq!(reason, "field g is of type STORED not DOUBLE");
    }
    let asked = TypedQuery { request: by_number("apple", 5), bookmark: None, update: false };
    assert_eq!(typed_ids(&index().await.ask_typed(asked).await.unwrap()), ["b"]);
}

#[tokio::test]
async fn the_index_before_answers_searches_until_the_new_one_is_built() {
    let (_world, coordinator, database) = database(2).await;
    filled(&database).await;
    assert_eq!(page(&database, query("odd", 1)).await.answer.total, 30);
    coordinator.config().set(("settee", "index_swap"), "ready", false).await.unwrap();
    let rev = database.documents().fetch(&id("_design/d"), Want::Winner).await.unwrap().unwrap().found[0].0.to_string();
    let edited = DESIGN.replace('\n', " ").replace("'default', doc.t", "'default', doc.t + ' new'");
    put(&database, "_design/d", &edited.replacen('{', &format!(r#"{{"_rev":"{rev}","#), 1)).await;
    assert_eq!(page(&database, query("new", 1)).await.answer.total, 0, "of the definition before");
    database.queries().clean_up_views().await.unwrap();
    assert_eq!(page(&database, query("odd", 1)).await.answer.total, 30, "it is kept");
    while page(&database, query("new", 1)).await.answer.total == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(page(&database, query("new", 1)).await.answer.total, DOCS as u64);
}

#[tokio::test]
async fn several_indexes_of_several_ranges_are_in_one_order() {
    const TWO: &str = r#"{"autoupdate":false,"indexes":{
        "even":{"index":"function (doc) { if (doc.n % 2 === 0) { index('default', doc.t); index('n', doc.n); } }"},
        "odd":{"index":"function (doc) { if (doc.n % 2 === 1) { index('default', doc.t); index('n', doc.n); } }"}}}"#;
    let (_world, _coordinator, database) = database(3).await;
    filled(&database).await;
    put(&database, "_design/two", TWO).await;
    let mut indexes = Vec::new();
    for name in ["odd", "even"] {
        indexes.push(database.queries().search(&id("_design/two"), name).await.unwrap());
    }
    for size in [1, 7, 200] {
        let (mut all, mut from, mut bookmark) = (Vec::new(), Vec::new(), None);
        loop {
            let next = ask_several(&indexes, SearchQuery { bookmark, ..query("apple", size) }).await.unwrap();
            assert_eq!(next.page.answer.total, DOCS as u64);
            if next.page.answer.rows.is_empty() {
                break;
            }
            all.extend(ids(&next.page));
            from.extend(next.from);
            bookmark = Some(next.page.bookmark);
        }
        assert_eq!(all, numbered(0..DOCS), "pages of {size}");
        assert!(from.iter().enumerate().all(|(n, at)| *at == usize::from(n % 2 == 0)), "pages of {size}");
    }
    let one = SearchQuery { bookmark: Some(page(&database, query("apple", 1)).await.bookmark), ..query("apple", 1) };
    assert!(matches!(ask_several(&indexes, one).await, Err(SearchFailure::Bookmark)));
}
