//! Fuzz targets of sequences, tokens, records, and of every call that another node can make. See `world::fuzz`.

use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;

use super::*;
use crate::coordinator::node::serve::ReplicaService;
use crate::coordinator::replica::calls::{
    Awaits, Changes, Compact, DesignVersion, Digests, Epochs, ExpiryOf, Fetch, FetchSome, Holds, Info, KeepViews,
    Local, LocalList, LocalRegisters, LocalSet, Look, Merge, Purge, PurgeInfos, PurgesShared, ReplicaOp,
    ReplicaRequest, Resume, Select, Split, Stage, StageFinish, StageWrite, Status, SummaryOf, TakenInOf,
};
use crate::coordinator::replica::jobs::JobCall;
use crate::coordinator::replica::message::{ChangesCall, decode, encode};
use crate::coordinator::replica::node_calls::{BallotCall, CatalogueCall, VotersCall};
use crate::coordinator::replica::rebalancing::RebalanceCall;
use crate::coordinator::replica::token::Token;
use crate::coordinator::topology::names::parse_placement;
use crate::coordinator::topology::peers::Answer;
use crate::coordinator::topology::record::Record;
use crate::coordinator::topology::seq::Seq;
use crate::coordinator::topology::shard_map::Range;
use crate::shard::Want;
use crate::storage::{Direction, StageMode};
use crate::world::fuzz::Fuzz;

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
        let _ = Token::parse(text);
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

/// Calls of each kind that need nothing made before.
fn calls(instance: &str) -> Vec<Bytes> {
    let all = || (Bound::Unbounded, Bound::Unbounded);
    let changes = ChangesCall { since: 0, direction: Direction::Forward, limit: 10, epoch: 0 };
    let ops: Vec<ReplicaOp> = vec![
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
        TakenInOf("n2@localhost".to_owned()).into(),
        PurgesShared(vec![(1, 2)]).into(),
        Awaits(1).into(),
        Holds(Vec::new()).into(),
        ExpiryOf { look: Some(Look { upto: 7, counts: true }), member: Some("ends".to_owned()) }.into(),
    ];
    let call = |(at, op): (usize, ReplicaOp)| {
        let (db, instance) = ("db".to_owned(), instance.to_owned());
        encode(&ReplicaRequest { db, instance, version: 0, counted: false, range: 0, id: at as u64, horizon: None, op })
    };
    ops.into_iter().enumerate().map(call).collect()
}

/// A member that is wrong may be refused; it must not take the node with it.
#[test]
fn fuzz_calls_to_replicas() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (_world, coordinator, database) = runtime.block_on(database(1));
    runtime.block_on(put(&database, "a", "{}"));
    runtime.block_on(database.settings().set_retention(super::expiry::ends())).unwrap();
    let service = ReplicaService(Arc::downgrade(&coordinator));
    let words =
        ["Fetch", "Changes", "Split", "Digests", "Unbounded", "Included", "_local/x", "_design/x", "\0", "\u{7f}"];
    Fuzz::new("calls to replicas", calls(database.instance())).words(&words).run(|bytes| {
        let answer = service.answer("n2@localhost".to_owned(), Bytes::copy_from_slice(bytes), Duration::from_secs(5));
        // A call that waits for changes may wait.
        let _ = runtime.block_on(async { tokio::time::timeout(Duration::from_millis(500), answer).await });
    });
    assert!(runtime.block_on(database.update_seq()).is_ok(), "the database serves");
}
