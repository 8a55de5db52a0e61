//! Builds over a real store: rows follow their documents, restarts go on, removals remove.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::*;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::revision::Revision;
use crate::shard::{Edit, EditOp};
use crate::storage::{Direction, Engine, Storage, StorageOptions};
use crate::world::{BoxFuture, tokio_host};

/// Emits each element of the document's `keys` with the document's `n`.
struct Keys;

impl Mapper for Keys {
    fn map(&self, docs: Vec<String>) -> BoxFuture<'_, Result<Vec<Mapped>, IndexError>> {
        let rows = |text: &String| {
            let doc = json::parse(text.as_bytes()).unwrap();
            let member = |name| doc.as_object().unwrap().get(name).cloned().unwrap_or(Value::Null);
            let keys = member("keys").as_array().map(<[Value]>::to_vec).unwrap_or_default();
            keys.into_iter().map(|key| (key, member("n"))).collect()
        };
        let all = docs.iter().map(rows).collect();
        Box::pin(async move { Ok(all) })
    }
}

async fn storage(dir: &tempfile::TempDir, engine: Engine) -> Storage {
    let env = tokio_host::env(tokio::runtime::Handle::current());
    let options = StorageOptions { engine, ..StorageOptions::default() };
    Storage::open(env, dir.path(), options).await.unwrap()
}

fn definition(map: &str) -> Arc<Definition> {
    let mut view = Object::new();
    view.push("map", map);
    let mut views = Object::new();
    views.push("v", view);
    let mut design = Object::new();
    design.push("views", views);
    Arc::new(Definition::find(&design, "v", false).unwrap())
}

async fn view(storage: &Storage, definition: &Arc<Definition>) -> (Indexes, ShardCopy, ViewIndex) {
    let copy = ShardCopy::open(storage, ShardId(20)).await.unwrap();
    let indexes = Indexes::new(storage.env());
    let mapper: Arc<dyn Mapper> = Arc::new(Keys);
    let index = indexes.view(&copy, definition, &mapper, Owner::default());
    (indexes, copy, index)
}

async fn put(copy: &ShardCopy, id: &str, body: &str, parent: Option<Revision>, deleted: bool) -> Revision {
    let value = json::parse(body.as_bytes()).unwrap();
    let edit = Edit {
        id: DocId::new(id),
        op: EditOp::Interactive { parent },
        deleted,
        body: Arc::new(PreparedBody::new(value.as_object().unwrap())),
        attachments: Vec::new(),
        revs_limit: 1000,
    };
    copy.edit(vec![edit]).await.unwrap().remove(0).unwrap()
}

async fn shown(index: &ViewIndex, direction: Direction) -> Vec<String> {
    let page = index.rows([Places::all(b"")].into(), direction, 100).await.unwrap();
    assert!(page.rest.is_empty());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    page.rows.iter().map(|row| format!("{}:{}={}", row.id, text(&row.key), text(&row.value))).collect()
}

#[tokio::test]
async fn rows_follow_their_documents() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, copy, index) = view(&storage, &definition("a")).await;
    let first = put(&copy, "b", r#"{"keys":["x","y"],"n":1}"#, None, false).await;
    put(&copy, "a", r#"{"keys":["y"],"n":2}"#, None, false).await;
    put(&copy, "_design/d", r#"{"keys":["z"],"n":3}"#, None, false).await;
    assert!(shown(&index, Direction::Forward).await.is_empty());
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:\"x\"=1", "a:\"y\"=2", "b:\"y\"=1"]);
    assert_eq!(shown(&index, Direction::Reverse).await, ["b:\"y\"=1", "a:\"y\"=2", "b:\"x\"=1"]);
    let second = put(&copy, "b", r#"{"keys":["w"],"n":4}"#, Some(first), false).await;
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:\"w\"=4", "a:\"y\"=2"]);
    assert_eq!(index.header().await.unwrap().rows, 2);
    put(&copy, "b", "{}", Some(second), true).await;
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["a:\"y\"=2"]);
    let header = index.header().await.unwrap();
    assert_eq!((header.rows, header.position, header.external), (1, 5, 5));
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 1);
}

#[tokio::test]
async fn purged_documents_lose_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, copy, index) = view(&storage, &definition("a")).await;
    let rev = put(&copy, "a", r#"{"keys":[1]}"#, None, false).await;
    put(&copy, "b", r#"{"keys":[2]}"#, None, false).await;
    index.update().await.unwrap();
    copy.purge(vec![(DocId::new("a"), vec![rev])]).await.unwrap();
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:2=null"]);
}

#[tokio::test]
async fn a_build_goes_on_after_a_restart_in_more_than_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let count = crate::limits::INDEX_BATCH_DOCS + 3;
    let position = {
        let storage = storage(&dir, Engine::Redb).await;
        let (_, copy, index) = view(&storage, &definition("a")).await;
        for n in 0..count {
            put(&copy, &format!("d{n:04}"), &format!(r#"{{"keys":[{n}]}}"#), None, false).await;
        }
        index.update().await.unwrap();
        put(&copy, "last", r#"{"keys":["last"]}"#, None, false).await;
        index.header().await.unwrap().position
    };
    assert_eq!(position, count as u64);
    // Tasks of the node that went may hold its files for a moment.
    let env = tokio_host::env(tokio::runtime::Handle::current());
    let mut opened = Storage::open(env.clone(), dir.path(), StorageOptions::default()).await;
    while opened.is_err() {
        tokio::task::yield_now().await;
        opened = Storage::open(env.clone(), dir.path(), StorageOptions::default()).await;
    }
    let storage = opened.unwrap();
    let (_, _, index) = view(&storage, &definition("a")).await;
    assert_eq!(index.header().await.unwrap().position, position);
    index.update().await.unwrap();
    assert_eq!(index.header().await.unwrap().rows, count as u64 + 1);
    let (mut rest, mut seen) = (VecDeque::from([Places::all(b"")]), 0);
    while !rest.is_empty() {
        let page = index.rows(rest, Direction::Reverse, 100).await.unwrap();
        seen += page.rows.len();
        rest = page.rest;
    }
    assert_eq!(seen, count + 1);
}

#[tokio::test]
async fn clean_up_keeps_what_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (indexes, copy, kept) = view(&storage, &definition("a")).await;
    let mapper: Arc<dyn Mapper> = Arc::new(Keys);
    let gone: Vec<ViewIndex> =
        ["b", "c"].iter().map(|map| indexes.view(&copy, &definition(map), &mapper, Owner::default())).collect();
    put(&copy, "a", r#"{"keys":[1]}"#, None, false).await;
    for index in gone.iter().chain([&kept]) {
        index.update().await.unwrap();
        assert_eq!(shown(index, Direction::Forward).await, ["a:1=null"]);
    }
    indexes.clean_up(&copy, &BTreeSet::from([definition("a").signature])).await.unwrap();
    assert_eq!(shown(&kept, Direction::Forward).await, ["a:1=null"]);
    for index in &gone {
        assert!(shown(index, Direction::Forward).await.is_empty());
        assert_eq!(index.header().await.unwrap(), Header::default());
        index.update().await.unwrap();
        assert_eq!(shown(index, Direction::Forward).await, ["a:1=null"]);
    }
}
