//! Fuzz targets of sequences, tokens, records, and of every call that another node can make. See `world::fuzz`.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use settee_search::search::{Request, nouveau};

use super::cluster::late::decide;
use super::*;
use crate::coordinator::node::serve::ReplicaService;
use crate::coordinator::replica::calls::{
    AppliedOf, Awaits, Blob, Changes, ClearTimes, Collect, CollectableOf, CollectionCall, Compact, CountOf,
    DesignVersion, Digests, Epochs, Expects, ExpiryOf, Fetch, FetchSome, HeaderOf, Holds, Info, KeepViews, List, Local,
    LocalList, LocalMerge, LocalRegisters, LocalSet, Look, Markers, Merge, Open, Purge, PurgeInfos, PurgesShared,
    ReleaseState, ReplicaOp, ReplicaRequest, Resume, RowsOf, Search, SearchCall, SearchFor, Select, SelectedOf,
    SetSyncPoint, SizeOf, Split, Stage, StageFinish, StageWrite, Status, SummaryOf, Tell, TimesOf, TypedFor,
    UpdateView, View, ViewCall, Wait,
};
use crate::coordinator::replica::jobs::JobCall;
use crate::coordinator::replica::message::{ChangesCall, SyncPoint, decode, encode};
use crate::coordinator::replica::node_calls::{BallotCall, CatalogueCall, VotersCall};
use crate::coordinator::replica::rebalancing::RebalanceCall;
use crate::coordinator::replica::token::WriteToken;
use crate::coordinator::topology::names::parse_placement;
use crate::coordinator::topology::peers::Answer;
use crate::coordinator::topology::record::Record;
use crate::coordinator::topology::seq::Seq;
use crate::coordinator::topology::shard_map::Range;
use crate::document::json::Object;
use crate::document::render::{Attachment, Encoding};
use crate::index::search::SearchDefinition;
use crate::index::{Definition, Places, StateOf};
use crate::shard::{ListPage, LocalDocument, LocalRegister, Stamp, Want};
use crate::storage::{Direction, StageMode};
use crate::world::fuzz::Fuzz;

/// How many operations there are: one that is added is fuzzed, too.
const OPERATIONS: usize = 40;

#[test]
fn fuzz_sequences_and_tokens() {
    let inputs = [
        "0",
        "12-AQAAAAEBAQE",
        "5-",
        "now",
        "[3,\"x\"]",
        "1-g1AAAACbeJzLYWBgYMpgTmEQTM4vTc5ISXIwNDLXMwBCwxyQVCJ",
        "00000000-7fffffff",
        "z1:2,z2:1",
    ];
    Fuzz::new("sequences", inputs).words(&["-", "_", "=", "AQ", "18446744073709551615", ":", ","]).run(|text| {
        let Ok(text) = std::str::from_utf8(text) else { return };
        if let Ok(seq) = Seq::parse(text) {
            let shown = seq.to_string();
            assert_eq!(Seq::parse(&shown).map(|seq| seq.to_string()), Ok(shown));
        }
        // Either answer is right.
        let _ = WriteToken::parse(text);
        let _ = Range::parse(text);
        let _ = parse_placement(text);
    });
}

#[test]
fn fuzz_records_of_databases() {
    let inputs = [r#"{"name":"db","instance":"x","created_s":1,"q":2,"ranges":[]}"#, "{}"];
    Fuzz::new("records", inputs)
        .words(&["null", "[]", "0", "-1", "\"q\":", "\"n\":", "\"places\":", "4294967296"])
        .run(|bytes| {
            if let Ok(record) = Record::decode(bytes) {
                // Either answer is right.
                let _ = record.check();
            }
        });
}

#[test]
fn fuzz_messages_are_read_or_refused() {
    let learn = encode(&CatalogueCall::Learn);
    let entries = encode(&CatalogueCall::Entries { after: Some(("a".to_owned(), "b".to_owned())), limit: 3 });
    let maps = encode(&CatalogueCall::Maps(Vec::new()));
    Fuzz::new("messages", [learn, entries, maps])
        .words(&["Create", "Set", "State", "\u{81}", "\u{dd}\0\0\0\u{7f}"])
        .run(|bytes| {
            // Either answer is right.
            let _ = decode::<CatalogueCall>(bytes);
            let _ = decode::<BallotCall>(bytes);
            let _ = decode::<VotersCall>(bytes);
            let _ = decode::<RebalanceCall>(bytes);
            let _ = decode::<JobCall>(bytes);
            let _ = decode::<ReplicaRequest>(bytes);
        });
}

/// What the design document of these tests defines: a view, and an index of each kind.
const DESIGN: &str = r#"{"views":{"v":{"map":"function (doc) { emit(doc._id, 1); }","reduce":"_count"}},
    "indexes":{"i":{"index":"function (doc) { index('default', doc._id); }"}},
    "nouveau":{"t":{"index":"function (doc) { index('string', 'id', doc._id); }"}}}"#;

/// Calls about indexes, as right as other nodes make them.
fn index_calls() -> Vec<ReplicaOp> {
    let json::Value::Object(design) = json::parse(DESIGN.as_bytes()).unwrap() else { panic!("an object") };
    let place = || (id("_design/d"), Bytes::from(design.to_vec()));
    let signature = Definition::all(&design, false).next().expect("a view").1.signature.0;
    let view = |op| ReplicaOp::from(View(Box::new(ViewCall { design: place(), signature, op })));
    let (found, typed) = signatures_of_searches(&design);
    let search = |signature, op| ReplicaOp::from(Search(Box::new(SearchCall { design: place(), signature, op })));
    let asked = Box::new(Request { query: "a* OR b~".to_owned(), limit: 5, ..Request::default() });
    let asked_typed = nouveau::Request { query: "id:[a TO b]".to_owned(), limit: 5, top: 5, ..Default::default() };
    let changes = ChangesCall { since: 0, direction: Direction::Forward, limit: 10, epoch: 0 };
    let all = || Places { low: Vec::new(), high: None };
    let rows = |direction| RowsOf { places: [all()].into(), direction, limit: 10, of: StateOf::Now };
    vec![
        view(UpdateView { wait: true }.into()),
        view(HeaderOf.into()),
        view(rows(Direction::Forward).into()),
        view(rows(Direction::Reverse).into()),
        view(CountOf(all()).into()),
        view(SelectedOf(changes).into()),
        view(ReleaseState(1).into()),
        search(found, SearchFor { request: asked, update: true }.into()),
        search(found, SizeOf.into()),
        search(typed, TypedFor { request: Box::new(asked_typed), update: true }.into()),
    ]
}

fn signatures_of_searches(design: &Object) -> ([u8; 16], [u8; 16]) {
    let found = SearchDefinition::find(design, "i", false).expect("an index");
    (found.signature.0, SearchDefinition::find_typed(design, "t", false).expect("an index").signature.0)
}

/// Calls by which replicas converge and collect tombstones, and that name what was stored.
fn other_calls() -> Vec<ReplicaOp> {
    let (start, end) = (Bound::Unbounded, Bound::Excluded(id("m")));
    let page = ListPage { start, end, descending: false, limit: 5, bodies: true };
    let document = LocalDocument { rev: 1, body: Bytes::from_static(b"{\"a\":1}") };
    let register = LocalRegister { stamp: Stamp { counter: 1, by: 2 }, document: Some(document) };
    let tombstones = || vec![(id("a"), rev("1-a"))];
    let collect = |call: CollectionCall| ReplicaOp::from(Collect(Box::new(call)));
    let attachment = Attachment {
        name: "t".to_owned(),
        content_type: "text/plain".to_owned(),
        revpos: 1,
        digest: [1; 16],
        length: 3,
        stored_length: 3,
        encoding: Encoding::Identity,
        blob: [1; 32],
    };
    vec![
        List(page).into(),
        Wait { beyond: 0 }.into(),
        decide(&["b"]),
        LocalMerge(vec![(id("_local/b"), register)]).into(),
        Blob { attachment, at: 1 }.into(),
        SetSyncPoint(SyncPoint { from_shard: 1, from: 2, to: 1, ..SyncPoint::default() }).into(),
        collect(Tell.into()),
        collect(Open.into()),
        collect(Markers(Some(id("a"))).into()),
        collect(CollectableOf(true).into()),
        collect(Expects(tombstones()).into()),
        TimesOf.into(),
        ClearTimes.into(),
    ]
}

/// Calls of each kind; those that name an upload or a held state name none that there is.
fn calls(instance: &str) -> Vec<Bytes> {
    let all = || (Bound::Unbounded, Bound::Unbounded);
    let changes = ChangesCall { since: 0, direction: Direction::Forward, limit: 10, epoch: 0 };
    let mut ops: Vec<ReplicaOp> = vec![
        Fetch(vec![(id("a"), Want::Winner), (id("b"), Want::Leaves)]).into(),
        FetchSome { wants: vec![(id("a"), Want::Revision(rev("1-a")))], bytes: 1000 }.into(),
        SummaryOf(Bound::Unbounded, Bound::Excluded(id("m"))).into(),
        Select { start: Bound::Unbounded, end: Bound::Unbounded, direction: Direction::Forward, place: 1 }.into(),
        Changes(changes).into(),
        Info.into(),
        Resume(Vec::new()).into(),
        DesignVersion.into(),
        Merge { edits: Vec::new(), source: "n2@localhost".to_owned(), repair: true, anew: false, tell: true }.into(),
        Local(id("_local/a")).into(),
        LocalList {
            start: Bound::Unbounded,
            end: Bound::Unbounded,
            direction: Direction::Reverse,
            limit: 5,
            bytes: Some(100),
        }
        .into(),
        LocalSet { id: id("_local/a"), document: None, by: 1 }.into(),
        LocalRegisters { after: Bound::Unbounded, limit: 10 }.into(),
        Purge(vec![(id("a"), vec![rev("1-a")])]).into(),
        PurgeInfos { since: 0, limit: 10 }.into(),
        Compact.into(),
        Stage(StageMode::Plain).into(),
        StageWrite { upload: 1, data: Bytes::from_static(b"x") }.into(),
        StageFinish { upload: 1 }.into(),
        KeepViews(vec![[0; 16]]).into(),
        Status.into(),
        Split(vec![all()]).into(),
        Digests(all(), 10).into(),
        Epochs.into(),
        AppliedOf("n2@localhost".to_owned()).into(),
        PurgesShared(vec![(1, 2)]).into(),
        Awaits(1).into(),
        Holds(Vec::new()).into(),
        ExpiryOf { look: Some(Look { upto: 7, counts: true }), member: Some("ends".to_owned()) }.into(),
    ];
    ops.extend(index_calls());
    ops.extend(other_calls());
    let kinds: BTreeSet<_> = ops.iter().map(kind).collect();
    assert_eq!(kinds.len(), OPERATIONS, "{kinds:?}");
    let call = |(at, op): (usize, ReplicaOp)| {
        let (db, instance) = ("db".to_owned(), instance.to_owned());
        encode(&ReplicaRequest { db, instance, version: 0, counted: false, range: 0, id: at as u64, horizon: None, op })
    };
    ops.into_iter().enumerate().map(call).collect()
}

/// The name of an operation.
fn kind(op: &ReplicaOp) -> String {
    format!("{op:?}").chars().take_while(char::is_ascii_alphanumeric).collect()
}

/// A member that is wrong may be refused; it must not take the node with it.
#[test]
fn fuzz_calls_to_replicas() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (_world, coordinator, database) = runtime.block_on(database(1));
    runtime.block_on(put(&database, "a", "{}"));
    runtime.block_on(put(&database, "_design/d", DESIGN));
    runtime.block_on(database.settings().set_retention(super::expiry::ends())).unwrap();
    let service = ReplicaService(Arc::downgrade(&coordinator));
    let words = [
        "Fetch",
        "Changes",
        "Split",
        "Digests",
        "Unbounded",
        "Included",
        "_local/x",
        "_design/x",
        "View",
        "Search",
        "\0",
        "\u{7f}",
    ];
    Fuzz::new("calls to replicas", calls(database.instance())).words(&words).run(|bytes| {
        let answer = service.answer("n2@localhost".to_owned(), Bytes::copy_from_slice(bytes), Duration::from_secs(5));
        // A call that waits for changes may wait.
        let _ = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(100), answer).await });
    });
    assert!(runtime.block_on(database.update_seq()).is_ok(), "the database serves");
}
