//! Feeds by a declared selector: what its index gives is what filtering every change gives.

use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

use super::*;
use crate::coordinator::{FeedOperations, ReadOperations, WriteOperations};
use crate::document::json::parse;
use crate::document::selector::Selector;
use crate::world::BoxFuture;

const SELECTOR: &str = r#"{"kind":"x","n":{"$gt":0}}"#;
/// Says the same in other words.
const DECLARED: &str = r#"{"language":"query","filters":{
    "f":{"$and":[{"n":{"$gt":0}},{"kind":{"$eq":"x"}}]},"c":{"_conflicts":{"$exists":true}}}}"#;
/// Declared, too: a winner is matched with its conflicts, a leaf of many by itself.
const IN_CONFLICT: &str = r#"{"_conflicts":{"$exists":true}}"#;

/// Matches every change.
struct Scan(Arc<dyn RowFilter>);

impl RowFilter for Scan {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>> {
        self.0.pass(page)
    }
}

async fn filter(database: &Arc<Database>, selector: &str) -> Arc<dyn RowFilter> {
    let selector = Selector::parse(&parse(selector.as_bytes()).unwrap()).unwrap();
    match database.feeds().selector_filter(&Arc::new(selector)).await {
        ChangesFilter::Rows(filter) => filter,
        _ => panic!("a filter of rows"),
    }
}

/// Brings the index up to date.
async fn build(database: &Arc<Database>) {
    for selector in [SELECTOR, IN_CONFLICT] {
        for index in filter(database, selector).await.index().unwrap().own_indexes().await.unwrap() {
            index.update().await.unwrap();
        }
    }
}

/// All that a client sees of a feed: its rows, its end, and what is left.
async fn told(database: &Arc<Database>, query: ChangesQuery) -> (Vec<String>, String, u64) {
    let mut feed = database.feeds().changes(query).await.unwrap();
    let mut rows = Vec::new();
    while let Some(page) = feed.next().await.unwrap() {
        rows.extend(page.iter().map(|row| format!("{row:?}")));
    }
    (rows, feed.last_seq(), feed.pending().await)
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    /// A leaf of a document: generation and hash, kind, deleted.
    Leaf {
        doc: u8,
        rev: (u8, u8),
        chosen: bool,
        deleted: bool,
    },
    Purge {
        doc: u8,
        of: usize,
    },
    /// The index applies what was written.
    Build,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = (0_u8..9, (1_u8..4, 0_u8..4), any::<bool>(), prop::bool::weighted(0.2));
    let step = prop_oneof![
        12 => leaf.prop_map(|(doc, rev, chosen, deleted)| Step::Leaf { doc, rev, chosen, deleted }),
        2 => (0_u8..9, 0_usize..3).prop_map(|(doc, of)| Step::Purge { doc, of }),
        1 => Just(Step::Build),
    ];
    prop::collection::vec(step, 1..60)
}

async fn apply(database: &Arc<Database>, step: &Step) {
    match step {
        Step::Leaf { doc, rev: (generation, hash), chosen, deleted } => {
            let kind = if *chosen { "x" } else { "y" };
            let text = format!(r#"{{"_rev":"{generation}-{hash}","_deleted":{deleted},"kind":"{kind}","n":{hash}}}"#);
            let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
            database.writer().write_one(request(&format!("d{doc}"), &text), options).await.unwrap();
        }
        Step::Purge { doc, of } => {
            let id = id(&format!("d{doc}"));
            let fetched = database.documents().fetch(&id, Want::Leaves).await.unwrap();
            let leaf = fetched.and_then(|fetched| fetched.found.into_iter().nth(*of));
            if let Some((rev, _)) = leaf {
                database.maintenance().purge(vec![(id, vec![rev])]).await.unwrap();
            }
        }
        Step::Build => build(database).await,
    }
}

/// Holds every way to ask against a scan.
async fn compare(database: &Arc<Database>, selector: &str, since: Since) {
    let filter = filter(database, selector).await;
    assert!(filter.index().is_some(), "the selector is declared");
    for (style, limit, descending) in [
        (Style::MainOnly, None, false),
        (Style::AllDocs, None, false),
        (Style::MainOnly, Some(1), false),
        (Style::AllDocs, Some(2), false),
        (Style::AllDocs, Some(3), true),
    ] {
        let query = |filter: Arc<dyn RowFilter>| ChangesQuery {
            since: since.clone(),
            limit,
            descending,
            style,
            filter: ChangesFilter::Rows(filter),
            include_docs: true,
            conflicts: true,
            seq_interval: None,
        };
        let by_index = told(database, query(Arc::clone(&filter))).await;
        let scanned = told(database, query(Arc::new(Scan(Arc::clone(&filter))))).await;
        assert_eq!(by_index, scanned, "{selector} {since:?} {style:?} {limit:?} {descending}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn an_index_gives_what_filtering_every_change_gives(q in 1_u32..4, steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (_world, _coordinator, database) = database(q).await;
            put(&database, "_design/f", DECLARED).await;
            let mut places = vec![Since::Beginning];
            for (at, step) in steps.iter().enumerate() {
                apply(&database, step).await;
                if at % 7 == 0 {
                    places.push(Since::Seq(database.update_seq().await.unwrap()));
                }
            }
            for since in places {
                compare(&database, SELECTOR, since.clone()).await;
                compare(&database, IN_CONFLICT, since).await;
            }
            build(&database).await;
            compare(&database, SELECTOR, Since::Beginning).await;
            compare(&database, IN_CONFLICT, Since::Beginning).await;
        });
    }
}

async fn mapped(database: &Arc<Database>) -> u64 {
    let indexes = filter(database, SELECTOR).await.index().unwrap().own_indexes().await.unwrap();
    let mut rows = 0;
    for index in indexes {
        rows += index.header().await.unwrap().rows;
    }
    rows
}

#[tokio::test]
async fn the_index_holds_the_changes_of_matching_documents_alone_and_goes_with_its_declaration() {
    let (_world, _coordinator, database) = database(2).await;
    let declared = put(&database, "_design/f", DECLARED).await;
    for n in 0..40 {
        put(&database, &format!("d{n}"), &format!(r#"{{"kind":"{}","n":{n}}}"#, if n % 4 == 1 { "x" } else { "y" }))
            .await;
    }
    build(&database).await;
    assert_eq!(mapped(&database).await, 10);
    let view = filter(&database, SELECTOR).await;
    let view = view.index().unwrap();
    let info = database.queries().views_info(&id("_design/f")).await.unwrap();
    assert_eq!((info.pending, info.updating, info.active > 0), (0, false, true));
    database.queries().clean_up_views().await.unwrap();
    assert_eq!(mapped(&database).await, 10, "what is declared stays");
    let options = WriteOptions::default();
    let gone = format!(r#"{{"_rev":"{declared}","_deleted":true}}"#);
    database.writer().write_one(request("_design/f", &gone), options).await.unwrap();
    assert!(filter(&database, SELECTOR).await.index().is_none());
    database.queries().clean_up_views().await.unwrap();
    for index in view.own_indexes().await.unwrap() {
        assert_eq!(index.header().await.unwrap().rows, 0);
    }
}

/// Counts what it is asked to match.
struct Counted(Arc<dyn RowFilter>, AtomicUsize);

impl RowFilter for Counted {
    fn pass<'a>(&'a self, page: &'a [Candidate]) -> BoxFuture<'a, Result<Vec<Vec<bool>>, ChangesError>> {
        self.1.fetch_add(page.len(), Ordering::Relaxed);
        self.0.pass(page)
    }

    fn index(&self) -> Option<&DatabaseView> {
        self.0.index()
    }
}

#[tokio::test]
async fn a_waiting_feed_filters_what_the_index_names_and_what_it_has_not_taken_in() {
    let (_world, _coordinator, database) = database(2).await;
    put(&database, "_design/f", DECLARED).await;
    put(&database, "a", r#"{"kind":"x","n":1}"#).await;
    for n in 0..30 {
        put(&database, &format!("other{n}"), "{}").await;
    }
    build(&database).await;
    let counted = Arc::new(Counted(filter(&database, SELECTOR).await, AtomicUsize::new(0)));
    let filter = ChangesFilter::Rows(Arc::clone(&counted) as Arc<dyn RowFilter>);
    let mut feed = database.feeds().changes(ChangesQuery { filter, ..ChangesQuery::default() }).await.unwrap();
    let mut seen = Vec::new();
    for next in ["b", "c", ""] {
        while let Some(page) = feed.next().await.unwrap() {
            seen.extend(page.into_iter().map(|row| row.id));
        }
        if !next.is_empty() {
            tokio::join!(feed.wait(), put(&database, next, r#"{"kind":"x","n":2}"#));
        }
    }
    assert_eq!(seen, ["a", "b", "c"].map(id));
    assert_eq!(counted.1.load(Ordering::Relaxed), 3);
}
