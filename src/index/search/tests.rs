//! Builds over a real store: segments follow their documents, builds resume after a restart, removals remove
//! everything.

mod bounds;

use std::collections::BTreeSet;
use std::sync::Arc;

use settee_search::document::{Field, Options, Value as FieldValue};
use settee_search::search::{Request, SortValue};

use super::*;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::revision::Revision;
use crate::index::Definition;
use crate::shard::{Edit, EditOp, ShardId};
use crate::storage::{Engine, Storage, StorageOptions};
use crate::world::{BoxFuture, tokio_host};

/// Indexes the member `t` of documents, as text that is stored.
struct Texts;

impl SearchMapper for Texts {
    fn fields<'a>(&'a self, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Indexing>, IndexError>> {
        let fields = |text: &String| {
            let doc = json::parse(text.as_bytes()).unwrap();
            let value = doc.as_object().unwrap().get("t").and_then(Value::as_str)?;
            let options = Options { store: true, ..Options::default() };
            Some(vec![Field { name: "default".to_owned(), value: FieldValue::Text(value.to_owned()), options }])
        };
        let all = docs.iter().map(fields).collect();
        Box::pin(async move { Ok(all) })
    }
}

struct Fixture {
    dir: tempfile::TempDir,
    engine: Engine,
    storage: Storage,
    indexes: Indexes,
    replica: ShardReplica,
}

fn definition(function: &str) -> Arc<SearchDefinition> {
    let text = format!(r#"{{"indexes":{{"i":{{"index":"{function}"}}}}}}"#);
    let design = json::parse(text.as_bytes()).unwrap();
    Arc::new(SearchDefinition::find(design.as_object().unwrap(), "i", false).unwrap())
}

impl Fixture {
    async fn new(engine: Engine) -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let (storage, indexes, replica) = Fixture::open(&dir, engine).await;
        Fixture { dir, engine, storage, indexes, replica }
    }

    async fn open(dir: &tempfile::TempDir, engine: Engine) -> (Storage, Indexes, ShardReplica) {
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let options = StorageOptions { engine, ..StorageOptions::default() };
        let mut opened = Storage::open(env.clone(), dir.path(), options).await;
        // Tasks of the node that went may hold its files for a moment.
        while opened.is_err() {
            tokio::task::yield_now().await;
            opened = Storage::open(env.clone(), dir.path(), options).await;
        }
        let storage = opened.unwrap();
        let replica = ShardReplica::open(&storage, ShardId(20)).await.unwrap();
        (storage.clone(), Indexes::new(storage.env()), replica)
    }

    async fn restart(self) -> Fixture {
        let Fixture { dir, engine, storage, indexes, replica } = self;
        drop((indexes, replica, storage));
        let (storage, indexes, replica) = Fixture::open(&dir, engine).await;
        Fixture { dir, engine, storage, indexes, replica }
    }

    fn index(&self) -> SearchIndex {
        self.index_of(&definition("f"))
    }

    fn index_of(&self, definition: &Arc<SearchDefinition>) -> SearchIndex {
        let analyzer = definition.analyzer.clone().unwrap();
        let mapper: Arc<dyn SearchMapper> = Arc::new(Texts);
        self.indexes.search(&self.replica, (definition, &analyzer), &mapper, Subject::default())
    }

    async fn put(&self, id: &str, text: &str, parent: Option<Revision>) -> Revision {
        self.edit(id, &format!(r#"{{"t":"{text}"}}"#), parent, false).await
    }

    async fn edit(&self, id: &str, body: &str, parent: Option<Revision>, deleted: bool) -> Revision {
        let value = json::parse(body.as_bytes()).unwrap();
        let edit = Edit {
            id: DocId::new(id),
            op: EditOp::Interactive { parent },
            deleted,
            body: Arc::new(PreparedBody::new(value.as_object().unwrap())),
            attachments: Vec::new(),
            revs_limit: 1000,
        };
        self.replica.edit(vec![edit]).await.unwrap().remove(0).unwrap()
    }
}

/// The ids that a query finds, in the order of indexing.
async fn found(index: &SearchIndex, query: &str) -> Vec<String> {
    let sort = vec![settee_search::search::Sort::Number { reverse: false }];
    let request = Request { query: query.to_owned(), limit: 1000, sort, ..Request::default() };
    let answer = index.search(request).await.unwrap().unwrap();
    assert_eq!(answer.total, answer.rows.len() as u64);
    answer.rows.into_iter().map(|row| row.id).collect()
}

#[tokio::test]
async fn an_index_follows_its_documents() {
    let fixture = Fixture::new(Engine::Memory).await;
    let index = fixture.index();
    let a = fixture.put("a", "red apple", None).await;
    fixture.put("b", "red car", None).await;
    let c = fixture.put("c", "apple", None).await;
    fixture.edit("d", "{}", None, false).await;
    assert!(found(&index, "*:*").await.is_empty(), "nothing is built by a search");
    index.update().await.unwrap();
    assert_eq!(found(&index, "apple").await, ["a", "c"]);
    assert_eq!(found(&index, "*:*").await, ["a", "b", "c"]);
    // An updated document moves to the end, a deleted one is gone, and so is one that indexes nothing any more.
    let a = fixture.put("a", "green apple", Some(a)).await;
    index.update().await.unwrap();
    assert_eq!(found(&index, "apple").await, ["c", "a"]);
    assert_eq!(found(&index, "red").await, ["b"]);
    fixture.edit("c", "{}", Some(c), true).await;
    fixture.edit("a", "{}", Some(a), false).await;
    index.update().await.unwrap();
    assert_eq!(found(&index, "*:*").await, ["b"]);
    let header = index.header().await.unwrap().unwrap();
    assert_eq!((header.documents(), header.position), (1, 7));
}

#[tokio::test]
async fn rows_have_what_was_stored_and_their_numbers() {
    let fixture = Fixture::new(Engine::Memory).await;
    fixture.edit("x", "{}", None, false).await;
    fixture.put("a", "Red Apple", None).await;
    let index = fixture.index();
    index.update().await.unwrap();
    let request = Request { query: "apple".to_owned(), limit: 1, ..Request::default() };
    let answer = index.search(request).await.unwrap().unwrap();
    let row = &answer.rows[0];
    assert_eq!(row.order.last(), Some(&SortValue::Document(2)), "the sequence of its last change");
    assert_eq!(row.fields["default"], [settee_search::search::Stored::Text("Red Apple".to_owned())]);
}

#[tokio::test]
async fn a_purged_document_is_found_no_more() {
    let fixture = Fixture::new(Engine::Memory).await;
    let rev = fixture.put("a", "apple", None).await;
    fixture.put("b", "apple", None).await;
    let index = fixture.index();
    index.update().await.unwrap();
    fixture.replica.purge(vec![(DocId::new("a"), vec![rev])]).await.unwrap();
    fixture.put("c", "apple", None).await;
    index.update().await.unwrap();
    assert_eq!(found(&index, "apple").await, ["b", "c"]);
}

#[tokio::test]
async fn an_index_is_there_after_a_restart_and_goes_on_where_it_was() {
    let mut fixture = Fixture::new(Engine::Redb).await;
    for n in 0..20 {
        fixture.put(&format!("d{n:02}"), "apple", None).await;
    }
    fixture.index().update().await.unwrap();
    let before = fixture.index().header().await.unwrap().unwrap();
    fixture = fixture.restart().await;
    let index = fixture.index();
    assert_eq!(index.header().await.unwrap(), Some(before.clone()));
    assert_eq!(found(&index, "apple").await.len(), 20);
    fixture.put("z", "apple", None).await;
    index.update().await.unwrap();
    let after = index.header().await.unwrap().unwrap();
    assert_eq!((found(&index, "apple").await.len(), after.position), (21, before.position + 1));
    assert!(after.segments.starts_with(&before.segments), "what was there was not built anew");
}

#[tokio::test]
async fn pieces_that_a_crash_left_behind_the_header_do_no_harm() {
    let fixture = Fixture::new(Engine::Memory).await;
    fixture.put("a", "apple", None).await;
    let index = fixture.index();
    index.update().await.unwrap();
    let header = index.header().await.unwrap().unwrap();
    let keys = record::Keys(fixture.replica.id(), index.definition.signature);
    let junk = move |view: &mut crate::storage::WriteView<'_>| {
        for piece in 0..3 {
            view.put(keys.piece(header.next, piece), b"junk".to_vec());
        }
        Ok(Ok::<_, std::convert::Infallible>(()))
    };
    let Ok(()) = fixture.replica.write_records(junk).await.unwrap();
    fixture.put("b", "apple", None).await;
    index.update().await.unwrap();
    assert_eq!(found(&index, "apple").await, ["a", "b"]);
}

/// Each lacks what the others have just taken to read.
#[tokio::test]
async fn searches_at_one_time_of_an_index_that_is_not_in_memory_all_answer() {
    let fixture = Fixture::new(Engine::Memory).await;
    for n in 0..30 {
        fixture.put(&format!("d{n:02}"), &format!("apple word{n}"), None).await;
    }
    fixture.index().update().await.unwrap();
    for _ in 0..20 {
        fixture.indexes.open.forget(fixture.index().cache_key());
        let index = fixture.index();
        let all = (0..8).map(|_| found(&index, "apple"));
        let all = futures_util::future::join_all(all).await;
        assert!(all.iter().all(|ids| ids.len() == 30));
    }
}

#[tokio::test]
async fn many_small_segments_become_few() {
    let fixture = Fixture::new(Engine::Memory).await;
    let index = fixture.index();
    for n in 0..40 {
        fixture.put(&format!("d{n:02}"), if n % 2 == 0 { "even" } else { "odd" }, None).await;
        index.update().await.unwrap();
    }
    let header = index.header().await.unwrap().unwrap();
    assert!(header.segments.len() < limits::SEARCH_MERGE_SEGMENTS, "{:?}", header.segments);
    assert_eq!(header.documents(), 40);
    assert_eq!(found(&index, "odd").await.len(), 20);
    assert_eq!(found(&index, "*:*").await[..3], ["d00", "d01", "d02"]);
}

#[tokio::test]
async fn an_index_that_no_design_document_names_is_removed_and_built_anew() {
    let fixture = Fixture::new(Engine::Memory).await;
    fixture.put("a", "apple", None).await;
    let (index, other) = (fixture.index(), fixture.index_of(&definition("g")));
    index.update().await.unwrap();
    other.update().await.unwrap();
    let keep: BTreeSet<_> = [other.definition.signature].into();
    fixture.indexes.clean_up(&fixture.replica, &keep).await.unwrap();
    assert_eq!((index.header().await.unwrap(), index.is_current()), (None, false));
    assert!(found(&index, "apple").await.is_empty());
    assert_eq!(found(&other, "apple").await, ["a"]);
    index.update().await.unwrap();
    assert_eq!(found(&index, "apple").await, ["a"]);
}

#[tokio::test]
async fn an_index_and_a_view_of_one_replica_know_nothing_of_each_other() {
    let fixture = Fixture::new(Engine::Memory).await;
    fixture.put("a", "apple", None).await;
    let index = fixture.index();
    index.update().await.unwrap();
    let mut view = Object::new();
    view.push("map", "a");
    let views: Object = [("v".to_owned(), Value::Object(view))].into_iter().collect();
    let design: Object = [("views".to_owned(), Value::Object(views))].into_iter().collect();
    let view = Definition::find(&design, "v", false).unwrap();
    fixture.indexes.clean_up(&fixture.replica, &[view.signature, index.definition.signature].into()).await.unwrap();
    assert_eq!(found(&index, "apple").await, ["a"]);
}
