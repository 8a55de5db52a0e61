//! Tokens of writes: reads through a node whose replica lacks the write.

use settee_search::search::{Request, nouveau};

use super::*;
use crate::coordinator::replica::floor::Floor;
use crate::coordinator::replica::token::{HeldWrites, Mark, RangeWrites};
use crate::coordinator::{FeedOperations, ReadOperations, WriteOperations};
use crate::document::collate::Collator;
use crate::document::json::{Value, parse};
use crate::index::mango::catalogue::FieldIndex;
use crate::index::mango::request::FindRequest;

const MAP: &str = r#"{"views":{"v":{"map":"function (doc) { emit(doc._id, null); }"}}}"#;
const INDEX: &str = r#"{"language":"query","views":{"i":{"map":{"fields":{"_id":"asc"}},"reduce":"_count"}}}"#;

const SEARCH: &str = r#"{"autoupdate":false,
    "indexes":{"i":{"analyzer":"keyword","index":"function (doc) { index('id', doc._id); }"}},
    "nouveau":{"i":{"default_analyzer":"keyword","index":"function (doc) { index('string', 'id', doc._id); }"}}}"#;

/// Three nodes with replicas of one range, a view and indexes; the first one's replica alone has the document `a`. With
/// a token of that.
async fn one_ahead() -> (Cluster, WriteToken) {
    ahead(0).await
}

/// The same with the replica of that node.
async fn ahead(at: usize) -> (Cluster, WriteToken) {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    for (name, text) in [("_design/d", MAP), ("_design/x", INDEX), ("_design/s", SEARCH), ("b", "{}")] {
        assert_eq!(write(&cluster.db(0), name, text, Some(3)).await.unwrap().replicas, 3);
    }
    let (db, before) = (cluster.db(at), replica(&cluster, at).await);
    plant(&before, "a", &["1-a"], false).await;
    let own = db.replicas().own_replica(0).await.unwrap().unwrap();
    let held = HeldWrites { only: false, marks: vec![Mark::of(own.replica_position())] };
    let token = WriteToken::of("db", db.instance(), [RangeWrites { range: db.map().range(0), held }]);
    (cluster, token)
}

async fn floor(cluster: &Cluster, at: usize, token: &WriteToken) -> Result<Arc<Floor>, TokenError> {
    Ok(cluster.nodes[at].coordinator.floor("db", token).await?.expect("a token of this database"))
}

async fn listed(db: &Arc<Database>, keys: KeyBounds) -> bool {
    let mut list = db.lists().all_docs(AllDocsQuery { keys, ..AllDocsQuery::default() }).await.unwrap();
    let mut found = false;
    while let Some(page) = list.next().await.unwrap() {
        found |= page.iter().any(|row| matches!(row, AllDocsRow::Found { id, .. } if id.as_str() == "a"));
    }
    found
}

async fn in_view(db: &Arc<Database>, update: Update) -> bool {
    let query = ViewQuery { update, ..crate::coordinator::tests::views::query(None, false) };
    let mut rows = db.queries().view(&id("_design/d"), "v").await.unwrap().begin(query).await.unwrap();
    let mut found = false;
    while let Some(page) = rows.next().await.unwrap() {
        found |= page.iter().any(|row| row.row.id.as_str() == "a");
    }
    found
}

async fn found(db: &Arc<Database>, by_index: bool) -> bool {
    let request = FindRequest::parse(parse(br#"{"selector":{"_id":"a"}}"#).unwrap().as_object().unwrap()).unwrap();
    let columns = vec![("_id".to_owned(), "asc".to_owned())];
    let (ddoc, name, filter) = ("_design/x".into(), "i".into(), parse(b"{}").unwrap());
    let fields = FieldIndex { ddoc, name, partitioned: false, columns, filter };
    let index = match by_index {
        true => Some(FindIndex { program: db.design_docs().program(&id("_design/x")).await.unwrap(), fields }),
        false => None,
    };
    let query =
        FindQuery { request: Arc::new(request), after: None, index, partition: None, collator: Collator::new() };
    let mut hits = db.queries().find(query).await.unwrap();
    let mut count = 0;
    while let Some(page) = hits.next(10).await.unwrap() {
        count += page.hits.len();
    }
    count > 0
}

async fn changed(db: &Arc<Database>) -> bool {
    let mut feed = db.feeds().changes(ChangesQuery::default()).await.unwrap();
    let mut found = false;
    while let Some(page) = feed.next().await.unwrap() {
        found |= page.iter().any(|row| row.id.as_str() == "a");
    }
    found
}

/// Whether searches by both kinds of indexes find it.
async fn searched(db: &Arc<Database>, update: bool) -> [bool; 2] {
    let (design, query) = (id("_design/s"), "id:a".to_owned());
    let request = Request { query: query.clone(), limit: 10, ..Request::default() };
    let plain = db.queries().search(&design, "i").await.unwrap();
    let plain = plain.ask(SearchQuery { request, bookmark: None, update }).await.unwrap();
    let request = nouveau::Request { query, limit: 10, ..nouveau::Request::default() };
    let typed = db.queries().typed_search(&design, "i").await.unwrap();
    let typed = typed.ask_typed(TypedQuery { request, bookmark: None, update }).await.unwrap();
    [plain.answer.rows.iter().any(|row| row.id == "a"), typed.answer.rows.iter().any(|row| row.id == "a")]
}

/// Whether each kind of read shows the document.
async fn shown(db: &Arc<Database>) -> Vec<bool> {
    vec![
        listed(db, KeyBounds::default()).await,
        listed(db, KeyBounds::Keys(vec![Value::String("a".to_owned())])).await,
        in_view(db, Update::Never).await,
        in_view(db, Update::Before).await,
        found(db, false).await,
        found(db, true).await,
        changed(db).await,
        db.documents().fetch_from(&id("a"), Want::Winner, Some(1)).await.unwrap().is_some(),
    ]
}

#[tokio::test]
async fn reads_with_a_token_show_the_write_where_the_replica_here_lacks_it() {
    let (cluster, token) = one_ahead().await;
    for at in [1, 2] {
        let db = cluster.db(at);
        assert_eq!(shown(&db).await, [false; 8], "node {at}");
        let floor = floor(&cluster, at, &token).await.unwrap();
        assert_eq!(shown(&db.above(&floor)).await, [true; 8], "node {at}");
        // Without the token the replica here is read, as before.
        assert!(!listed(&db, KeyBounds::default()).await);
    }
    // A majority is asked all the same, and what it knows besides is shown.
    let floor = floor(&cluster, 1, &token).await.unwrap();
    let agreed = cluster.db(1).above(&floor).documents().fetch_agreed(&id("b"), Want::Winner, None).await.unwrap();
    assert!(agreed.0.is_some() && agreed.1 == 2);
}

#[tokio::test]
async fn searches_with_a_token_find_the_write_whichever_replica_has_it() {
    let mut lacked = 0;
    for at in 0..3 {
        let (cluster, token) = ahead(at).await;
        for asked in 0..3 {
            let db = cluster.db(asked);
            lacked += usize::from(searched(&db, true).await == [false; 2]);
            let floor = floor(&cluster, asked, &token).await.unwrap();
            assert_eq!(searched(&db.above(&floor), false).await, [true; 2], "node {asked}, of node {at}");
        }
    }
    // Without it all nodes ask the same replica first, which is another one in each database.
    assert!(lacked.is_multiple_of(3), "{lacked}");
}

#[tokio::test]
async fn a_read_that_cannot_be_as_new_as_its_token_fails_and_one_that_can_again_does_not() {
    let (cluster, token) = one_ahead().await;
    let unknown = WriteToken::of("db", "another", token.writes("db", cluster.db(0).instance()).unwrap().to_vec());
    cluster.cut(&[0]);
    let (behind, other) = tokio::join!(floor(&cluster, 1, &token), floor(&cluster, 2, &unknown));
    assert_eq!(behind.unwrap_err(), TokenError::Behind);
    assert_eq!(other.unwrap_err(), TokenError::OtherDatabase);
    cluster.heal().await;
    // What another replica has read of the first one is as good as that.
    let has = || async { own_leaves(&cluster.db(1), "a").await.len() == 1 };
    cluster.nodes[1].coordinator.context().lagging("db");
    eventually(has).await;
    cluster.cut(&[0]);
    let floor = floor(&cluster, 1, &token).await.unwrap();
    assert_eq!(shown(&cluster.db(1).above(&floor)).await, [true; 8]);
}

#[tokio::test]
async fn a_token_names_every_replica_that_was_waited_for() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 3).await.unwrap();
    let edits = (0..40).map(|n| request(&format!("d{n}"), "{}")).collect();
    let options = WriteOptions { w: Some(3), ..WriteOptions::default() };
    let done: Vec<WriteDone> =
        cluster.db(0).writer().write(edits, options).await.unwrap().into_iter().map(Result::unwrap).collect();
    let token = WriteToken::parse(&cluster.db(0).writer().token(&done).unwrap()).unwrap();
    let db = cluster.db(0);
    let writes = token.writes("db", db.instance()).unwrap();
    assert_eq!(writes.len(), 4, "one entry for each range");
    assert!(writes.iter().all(|written| written.held.marks.len() == 3));
    // So any one of them is enough.
    for at in 0..3 {
        cluster.cut(&[(at + 1) % 3, (at + 2) % 3]);
        assert!(floor(&cluster, at, &token).await.is_ok(), "node {at} alone");
        cluster.cut(&[]);
    }
}

#[tokio::test]
async fn a_token_of_a_purge_counts_for_the_replicas_that_purged() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.deafen(&["n2@h"]);
    let ((removed, _), token) = cluster.db(0).maintenance().purge_with_token(vec![(id("a"), vec![rev])]).await.unwrap();
    assert_eq!(removed[0].1.len(), 1);
    let token = WriteToken::parse(&token.unwrap()).unwrap();
    let writes = token.writes("db", cluster.db(0).instance()).unwrap().to_vec();
    assert!(writes.len() == 1 && writes[0].held.only && writes[0].held.marks.len() == 2);
    let floor = floor(&cluster, 1, &token).await.unwrap();
    assert!(!listed(&cluster.db(1).above(&floor), KeyBounds::default()).await);
}

#[tokio::test]
async fn a_token_from_before_a_split_holds_after_it() {
    let (_world, coordinator, db) = database(1).await;
    let done = db.writer().write_one(request("a", "{}"), WriteOptions::default()).await.unwrap();
    let token = WriteToken::parse(&db.writer().token([&done]).unwrap()).unwrap();
    db.follow(db.map_record().with_split(0).unwrap()).await.unwrap();
    assert_eq!(db.map().live().len(), 2);
    let floor = coordinator.floor("db", &token).await.unwrap().expect("a token of this database");
    assert!(listed(&db.above(&floor), KeyBounds::default()).await);
    coordinator.delete_database("db").await.unwrap();
    assert!(coordinator.floor("db", &token).await.unwrap().is_none(), "what was deleted is shown to nobody");
    assert!(coordinator.floor("other", &token).await.unwrap().is_none());
}
