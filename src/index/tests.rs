//! Builds over a real store: rows follow their documents, builds resume after a restart, removals remove everything.

mod states;
mod stored;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::FutureExt as _;

use super::*;
use crate::document::draft::PreparedBody;
use crate::document::id::DocId;
use crate::document::json::{self, Object, Value};
use crate::document::revision::Revision;
use crate::shard::{Edit, EditOp};
use crate::storage::{Direction, Engine, Storage, StorageOptions};
use crate::world::{BoxFuture, tokio_host};

/// Emits each element of the document's `keys` with the document's `n`. A map that is named like a member of a document
/// fails for it, as a whole.
struct Keys;

impl Mapper for Keys {
    fn map<'a>(&'a self, maps: Vec<&'a str>, docs: Vec<String>) -> BoxFuture<'a, Result<Vec<Vec<Mapped>>, IndexError>> {
        let rows = |text: &String| {
            let doc = json::parse(text.as_bytes()).unwrap();
            let member = |name: &str| doc.as_object().unwrap().get(name).cloned().unwrap_or(Value::Null);
            let keys = member("keys").as_array().map(<[Value]>::to_vec).unwrap_or_default();
            let rows: Mapped = keys.into_iter().map(|key| (key, member("n"))).collect();
            let fails = |map: &&str| !member(map).is_null();
            if maps.iter().any(fails) { Err(ScriptError::Timeout.into()) } else { Ok(vec![rows; maps.len()]) }
        };
        let all = docs.iter().map(rows).collect();
        Box::pin(async move { all })
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

async fn view(storage: &Storage, definition: &Arc<Definition>) -> (Indexes, ShardReplica, ViewIndex) {
    let replica = ShardReplica::open(storage, ShardId(20)).await.unwrap();
    let indexes = Indexes::new(storage.env());
    let mapper: Arc<dyn Mapper> = Arc::new(Keys);
    let index = indexes.view(&replica, definition, &mapper, Subject::default());
    (indexes, replica, index)
}

/// A view with each of these maps, which are built beside each other.
fn together(indexes: &Indexes, replica: &ShardReplica, maps: &[&str]) -> Vec<ViewIndex> {
    let mapper: Arc<dyn Mapper> = Arc::new(Keys);
    let one = |map: &&str| indexes.view(replica, &definition(map), &mapper, Subject::default());
    let all: Vec<ViewIndex> = maps.iter().map(one).collect();
    let others = |at: usize| all.iter().enumerate().filter(move |(n, _)| *n != at).map(|(_, other)| other.clone());
    all.iter().enumerate().map(|(at, index)| index.clone().beside(others(at).collect())).collect()
}

async fn positions(indexes: &[ViewIndex]) -> Vec<u64> {
    let mut out = Vec::new();
    for index in indexes {
        out.push(index.header().await.unwrap().position);
    }
    out
}

async fn put(replica: &ShardReplica, id: &str, body: &str, parent: Option<Revision>, deleted: bool) -> Revision {
    let value = json::parse(body.as_bytes()).unwrap();
    let edit = Edit {
        id: DocId::new(id),
        op: EditOp::Interactive { parent },
        deleted,
        body: Arc::new(PreparedBody::new(value.as_object().unwrap())),
        attachments: Vec::new(),
        revs_limit: 1000,
    };
    replica.edit(vec![edit]).await.unwrap().remove(0).unwrap()
}

async fn shown(index: &ViewIndex, direction: Direction) -> Vec<String> {
    let page = index.rows([Places::all(b"")].into(), direction, 100, StateOf::Now).await.unwrap();
    assert!(page.rest.is_empty());
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    page.rows.iter().map(|row| format!("{}:{}={}", row.id, text(&row.key), text(&row.value))).collect()
}

#[tokio::test]
async fn rows_follow_their_documents() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let first = put(&replica, "b", r#"{"keys":["x","y"],"n":1}"#, None, false).await;
    put(&replica, "a", r#"{"keys":["y"],"n":2}"#, None, false).await;
    put(&replica, "_design/d", r#"{"keys":["z"],"n":3}"#, None, false).await;
    assert!(shown(&index, Direction::Forward).await.is_empty());
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:\"x\"=1", "a:\"y\"=2", "b:\"y\"=1"]);
    assert_eq!(shown(&index, Direction::Reverse).await, ["b:\"y\"=1", "a:\"y\"=2", "b:\"x\"=1"]);
    let second = put(&replica, "b", r#"{"keys":["w"],"n":4}"#, Some(first), false).await;
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:\"w\"=4", "a:\"y\"=2"]);
    assert_eq!(index.header().await.unwrap().rows, 2);
    put(&replica, "b", "{}", Some(second), true).await;
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["a:\"y\"=2"]);
    let header = index.header().await.unwrap();
    assert_eq!((header.rows, header.position, header.external), (1, 5, 5));
    assert_eq!(index.count(Places::all(b"")).await.unwrap(), 1);
}

/// Queries were told that rows change and never of the end: one of several steps began anew for ever.
#[tokio::test]
async fn a_commit_of_rows_that_nobody_waits_for_any_more_tells_queries_of_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    put(&replica, "a", r#"{"keys":[1],"n":1}"#, None, false).await;
    index.update().await.unwrap();
    let from = index.header().await.unwrap();
    let to = Header { position: from.position + 1, ..from };
    let (signature, slot) = (index.definition.signature, Arc::clone(&index.slot));
    let change = write::Change { signature, slot, from, to, is_new: false, entries: Vec::new() };
    let mut committed = Box::pin(write::apply(&index.env, &index.replica, vec![change]));
    assert!(committed.as_mut().now_or_never().is_none());
    drop(committed);
    while index.stored_header().await.unwrap() != Some(to) {
        tokio::task::yield_now().await;
    }
    let _commits = index.slot.commits.write().await;
    assert!(matches!(index.slot.sums(|sums| sums.shown(sums.moment())), sums::Shown::Known(_)));
    assert_eq!(index.slot.known().header, Some(to));
}

#[tokio::test]
async fn rows_whose_value_is_no_number_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let others = async || {
        index.update().await.unwrap();
        index.header().await.unwrap().others
    };
    assert_eq!(others().await, Some(0));
    let text = put(&replica, "a", r#"{"keys":[1,2],"n":"1"}"#, None, false).await;
    let array = put(&replica, "b", r#"{"keys":[1],"n":[1]}"#, None, false).await;
    put(&replica, "c", r#"{"keys":[1],"n":-1.5}"#, None, false).await;
    assert_eq!(others().await, Some(3));
    put(&replica, "a", r#"{"keys":[1],"n":7}"#, Some(text), false).await;
    assert_eq!(others().await, Some(1));
    put(&replica, "b", "{}", Some(array), true).await;
    assert_eq!(others().await, Some(0));
}

/// All rows between two edges, as they are.
async fn rows_between(index: &ViewIndex, places: &Places) -> Vec<Row> {
    let (mut rest, mut rows) = (VecDeque::from([places.clone()]), Vec::new());
    while !rest.is_empty() {
        let page = index.rows(rest, Direction::Forward, 1000, StateOf::Now).await.unwrap();
        (rows, rest) = ([rows, page.rows].concat(), page.rest);
    }
    rows
}

/// What groups of rows should be, row by row: key and value as text.
fn reduced(rows: &[Row], by: &GroupBy, collator: &Collator) -> Vec<String> {
    let mut groups: Vec<(Vec<u8>, Value, Partial)> = Vec::new();
    let ordered: Vec<&Row> = match by.direction {
        Direction::Forward => rows.iter().collect(),
        Direction::Reverse => rows.iter().rev().collect(),
    };
    for row in ordered {
        let (mark, key) = by.grouping.group_of(row, collator, by.prefix);
        if groups.last().is_none_or(|(last, ..)| *last != mark) {
            groups.push((mark, key, Partial::empty(&by.reduce, collator).unwrap()));
        }
        groups.last_mut().unwrap().2.add(row.borrowed()).unwrap();
    }
    groups.into_iter().map(|(_, key, sum)| told(key, sum)).collect()
}

fn told(key: Value, sum: Partial) -> String {
    String::from_utf8(Value::Array(vec![key, sum.finish()]).to_vec()).unwrap()
}

/// A small generator of its own: the same cases in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Writes or deletes a few of these documents.
async fn change_some(replica: &ShardReplica, revs: &mut [Option<Revision>], dice: &mut Dice) {
    for _ in 0..1 + dice.below(4) {
        let at = dice.below(revs.len() as u64) as usize;
        let (a, b, n) = (dice.below(4), dice.below(5), dice.below(100));
        let deleted = revs[at].is_some() && dice.below(4) == 0;
        let body = format!(r#"{{"keys":[[{a},{b}],[{b}],{a}],"n":{n}}}"#);
        let rev = put(replica, &format!("d{at}"), if deleted { "{}" } else { &body }, revs[at].take(), deleted).await;
        revs[at] = (!deleted).then_some(rev);
    }
}

/// Reduces some range by some function, and holds it against the rows.
async fn reduce_some(index: &ViewIndex, dice: &mut Dice, round: u32) {
    let collator = Collator::new();
    let edge = |value: u64| {
        let mut out = Vec::new();
        collator.sort_key(&Value::Array(vec![Value::Int(value as i64)]), &mut out);
        out
    };
    let places = match dice.below(3) {
        0 => Places::all(b""),
        1 => Places { low: edge(dice.below(4)), high: None },
        _ => Places { low: edge(dice.below(2)), high: Some(edge(2 + dice.below(2))) },
    };
    let grouping = [Grouping::All, Grouping::Exact, Grouping::Level(1), Grouping::Level(2)][dice.below(4) as usize];
    let names = ["_sum", "_count", "_stats", "_first", "_last", "_top_3", "_approx_count_distinct"];
    let reduce = Reduce::parse(names[dice.below(7) as usize]);
    let direction = [Direction::Forward, Direction::Reverse][dice.below(2) as usize];
    let by = GroupBy { grouping, reduce, direction, prefix: 0 };
    let rows = rows_between(index, &places).await;
    let (mut rest, mut found) = (VecDeque::from([places.clone()]), Vec::new());
    while !rest.is_empty() {
        let limit = 1 + dice.below(5) as usize;
        let page = groups_of(&by, vec![(index, rest)], limit, None).await.remove(0).unwrap();
        found.extend(page.groups.into_iter().map(|group| told(group.key, group.sum)));
        rest = page.rest;
    }
    assert_eq!(found, reduced(&rows, &by, &collator), "round {round}, {by:?} of {places:?}");
    assert_eq!(index.count(places).await.unwrap(), rows.len() as u64);
}

#[tokio::test]
async fn kept_reductions_agree_with_the_rows_after_any_change() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let (mut dice, mut revs) = (Dice(7), vec![None; 60]);
    for round in 0..150 {
        change_some(&replica, &mut revs, &mut dice).await;
        index.update().await.unwrap();
        for _ in 0..3 {
            reduce_some(&index, &mut dice, round).await;
        }
    }
}

#[tokio::test]
async fn offsets_agree_with_the_rows_after_any_change() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let (mut dice, mut revs) = (Dice(11), vec![None; 200]);
    for round in 0..100 {
        change_some(&replica, &mut revs, &mut dice).await;
        index.update().await.unwrap();
        let rows = rows_between(&index, &Places::all(b"")).await;
        for _ in 0..6 {
            let at = dice.below(rows.len() as u64 + 1) as usize;
            let high = rows.get(at).map(|row| row.place.clone());
            let counted = index.count(Places { low: Vec::new(), high }).await.unwrap();
            assert_eq!(counted, at as u64, "round {round} of {} rows", rows.len());
        }
    }
}

#[tokio::test]
async fn purged_documents_lose_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let rev = put(&replica, "a", r#"{"keys":[1]}"#, None, false).await;
    put(&replica, "b", r#"{"keys":[2]}"#, None, false).await;
    index.update().await.unwrap();
    replica.purge(vec![(DocId::new("a"), vec![rev])]).await.unwrap();
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:2=null"]);
}

/// The index has not looked at the document since it was deleted.
#[tokio::test]
async fn documents_whose_tombstones_were_collected_lose_their_rows() {
    use crate::shard::{Proposal, ProposalOutcome, Round};
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let rev = put(&replica, "a", r#"{"keys":[1]}"#, None, false).await;
    put(&replica, "b", r#"{"keys":[2]}"#, None, false).await;
    index.update().await.unwrap();
    let tombstone = put(&replica, "a", "{}", Some(rev), true).await;
    let round = Round { number: 1, id: 1 };
    let proposal = Proposal::new(round, vec![(DocId::new("a"), tombstone)]);
    assert_eq!(replica.propose("n1@h", proposal, u64::MAX).await.unwrap(), ProposalOutcome::Done);
    replica.collect(&replica.told().await.unwrap().promised, &[]).await.unwrap();
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["b:2=null"]);
}

/// What is left of the log does not tell of the first two.
#[tokio::test]
async fn documents_purged_before_the_log_was_cut_lose_their_rows() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let mut revs = Vec::new();
    for n in 0..4 {
        revs.push(put(&replica, &format!("d{n}"), &format!(r#"{{"keys":[{n}]}}"#), None, false).await);
    }
    index.update().await.unwrap();
    for (n, rev) in revs.drain(..3).enumerate() {
        replica.purge(vec![(DocId::new(&format!("d{n}")), vec![rev])]).await.unwrap();
    }
    replica.compact(1, crate::shard::Pace::new(storage.env(), 0)).await.unwrap();
    index.update().await.unwrap();
    assert_eq!(shown(&index, Direction::Forward).await, ["d3:3=null"]);
}

#[tokio::test]
async fn a_build_goes_on_after_a_restart_in_more_than_one_batch() {
    let dir = tempfile::tempdir().unwrap();
    let count = crate::limits::INDEX_BATCH_DOCS + 3;
    let position = {
        let storage = storage(&dir, Engine::Redb).await;
        let (_, replica, index) = view(&storage, &definition("a")).await;
        for n in 0..count {
            put(&replica, &format!("d{n:04}"), &format!(r#"{{"keys":[{n}]}}"#), None, false).await;
        }
        index.update().await.unwrap();
        put(&replica, "last", r#"{"keys":["last"]}"#, None, false).await;
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
        let page = index.rows(rest, Direction::Reverse, 100, StateOf::Now).await.unwrap();
        seen += page.rows.len();
        rest = page.rest;
    }
    assert_eq!(seen, count + 1);
}

#[tokio::test]
async fn clean_up_keeps_what_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (indexes, replica, kept) = view(&storage, &definition("a")).await;
    let mapper: Arc<dyn Mapper> = Arc::new(Keys);
    let gone: Vec<ViewIndex> =
        ["b", "c"].iter().map(|map| indexes.view(&replica, &definition(map), &mapper, Subject::default())).collect();
    put(&replica, "a", r#"{"keys":[1]}"#, None, false).await;
    for index in gone.iter().chain([&kept]) {
        index.update().await.unwrap();
        assert_eq!(shown(index, Direction::Forward).await, ["a:1=null"]);
    }
    indexes.clean_up(&replica, &BTreeSet::from([definition("a").signature])).await.unwrap();
    assert_eq!(shown(&kept, Direction::Forward).await, ["a:1=null"]);
    for index in &gone {
        assert!(shown(index, Direction::Forward).await.is_empty());
        assert_eq!(index.header().await.unwrap(), Header::default());
        index.update().await.unwrap();
        assert_eq!(shown(index, Direction::Forward).await, ["a:1=null"]);
    }
}

#[tokio::test]
async fn views_that_stand_at_one_position_are_built_together() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (indexes, replica, late) = view(&storage, &definition("late")).await;
    let views = together(&indexes, &replica, &["a", "b", "late"]);
    let first = put(&replica, "x", r#"{"keys":[1]}"#, None, false).await;
    late.update().await.unwrap();
    put(&replica, "y", r#"{"keys":[2],"n":5}"#, None, false).await;
    views[0].update().await.unwrap();
    assert_eq!(positions(&views).await, [2, 2, 1], "the one that was ahead goes by itself");
    assert!(!views[1].is_building());
    put(&replica, "x", r#"{"keys":[3]}"#, Some(first), false).await;
    views[1].update().await.unwrap();
    assert_eq!(positions(&views).await, [3, 3, 1]);
    views[2].update().await.unwrap();
    for index in &views {
        assert_eq!(shown(index, Direction::Forward).await, ["y:2=5", "x:3=null"]);
        assert_eq!(index.header().await.unwrap().rows, 2);
    }
}

#[tokio::test]
async fn a_function_that_fails_costs_its_own_view_alone() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (indexes, replica, _) = view(&storage, &definition("late")).await;
    let views = together(&indexes, &replica, &["a", "bad", "b"]);
    put(&replica, "x", r#"{"keys":[1]}"#, None, false).await;
    let bad = put(&replica, "y", r#"{"keys":[2],"bad":true}"#, None, false).await;
    views[0].update().await.unwrap();
    assert_eq!(positions(&views).await, [2, 0, 0]);
    assert_eq!(views[1].update().await, Err(IndexError::Script(ScriptError::Timeout)));
    views[2].update().await.unwrap();
    assert_eq!(positions(&views).await, [2, 0, 2]);
    put(&replica, "y", r#"{"keys":[3]}"#, Some(bad), false).await;
    for index in &views {
        index.update().await.unwrap();
        assert_eq!(shown(index, Direction::Forward).await, ["x:1=null", "y:3=null"]);
    }
}

/// Only what changed before the build began is known to have no rows.
#[tokio::test]
async fn a_document_that_changes_during_the_first_build_loses_the_rows_of_before() {
    let dir = tempfile::tempdir().unwrap();
    let storage = storage(&dir, Engine::Memory).await;
    let (_, replica, index) = view(&storage, &definition("a")).await;
    let (mut revs, count) = (Vec::new(), crate::limits::INDEX_BATCH_DOCS + 10);
    for n in 0..count {
        revs.push(put(&replica, &format!("d{n:04}"), r#"{"keys":[1]}"#, None, false).await);
    }
    let build = index.update();
    let change = async {
        while index.header().await.unwrap().position == 0 {
            tokio::task::yield_now().await;
        }
        put(&replica, "d0000", r#"{"keys":[2]}"#, Some(revs.remove(0)), false).await;
    };
    let (built, ()) = tokio::join!(build, change);
    built.unwrap();
    index.update().await.unwrap();
    assert_eq!(index.header().await.unwrap().rows, count as u64);
    assert_eq!(rows_between(&index, &Places::all(b"")).await.len(), count);
}
