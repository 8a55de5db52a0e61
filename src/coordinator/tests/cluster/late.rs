//! Writes, reads and calls that are on their way while the map changes, and maps that cannot be.

use super::moves::still;
use super::*;
use crate::coordinator::node::serve::ReplicaService;
use crate::coordinator::replica::calls::{Decide, ReplicaOp, ReplicaRequest};
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::{DecideCall, EditRefusal, EditText, WireError, decode, encode};
use crate::coordinator::replica::node_calls::BallotCall;
use crate::coordinator::topology::ballot::{Ask, Ballot, Electorate, Vote};
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::record::{MapRecord, Move};
use crate::coordinator::{FeedOperations, ReadOperations};
use crate::document::draft::PreparedBody;
use crate::shard::{AcceptedEdit, Edit, EditOp, ShardError};

/// A database of `q` ranges with one replica, all on one of two nodes: that node, then the other.
async fn on_one_of_two(q: u32) -> (Cluster, usize, usize) {
    let cluster = Cluster::new(2).await;
    cluster.cut(&[1]);
    cluster.create(0, q, 1).await.unwrap();
    cluster.heal().await;
    let at = usize::from(cluster.db(0).shards()[0].1 == ["n2@h"]);
    (cluster, at, 1 - at)
}

fn edit(name: &str) -> Edit {
    let (op, body) = (EditOp::Interactive { parent: None }, Arc::new(PreparedBody::new(&Default::default())));
    Edit { id: id(name), op, deleted: false, body, attachments: Vec::new(), revs_limit: 1000 }
}

/// Has one node go over to the next map, in which replicas moved; the other does not hear of it.
async fn follow(db: &Arc<Database>, change: impl FnOnce(&mut MapRecord)) {
    let mut next = db.map_record();
    next.version += 1;
    next.moved = next.version;
    change(&mut next);
    db.follow(next).await.unwrap();
}

fn move_of(cluster: &Cluster, from: usize, to: usize) -> Move {
    let name = |at: usize| Some(cluster.network.names[at].clone());
    Move { range: 0, from: name(from), to: name(to), leaving: false }
}

/// Has this node's replica of the first range store an edit that was validated there for a write by a layout.
async fn store(db: &Arc<Database>, layout: &Layout, name: &str) -> Result<(), ShardError> {
    let replica = db.replicas().own_replica_by(layout, 0).await?.expect("a replica here").by_map(layout.placed.version);
    let stored = replica.shard.edit(vec![edit(name)]).await?;
    stored.into_iter().for_each(|stored| drop(stored.unwrap()));
    Ok(())
}

#[tokio::test]
async fn a_write_that_waits_while_its_replica_leaves_is_not_stored_there() {
    let (cluster, at, to) = on_one_of_two(1).await;
    let db = cluster.db(at);
    let before = db.layout();
    store(&db, &before, "before").await.unwrap();
    let begun = move_of(&cluster, at, to);
    follow(&db, |next| next.moves.push(begun)).await;
    let joint = db.layout();
    assert_eq!(store(&db, &before, "a").await, Err(ShardError::Moved));
    store(&db, &joint, "b").await.unwrap();
    let target = vec![cluster.network.names[to].clone()];
    follow(&db, |next| {
        next.by_range = Some(vec![target]);
        next.moves[0].leaving = true;
    })
    .await;
    for layout in [&before, &joint, &db.layout()] {
        assert_eq!(store(&db, layout, "c").await, Err(ShardError::Moved));
    }
    let leaving = db.layout();
    let replica = db.replicas().own_replica(0).await.unwrap().expect("a replica that leaves");
    follow(&db, |next| next.moves.clear()).await;
    assert_eq!(store(&db, &leaving, "d").await, Err(ShardError::Moved));
    let read = replica.shard.fetch(vec![(id("b"), Want::Tree)]).await;
    assert!(matches!(read, Err(ShardError::Moved)), "the database is not deleted: {read:?}");
}

/// What a node answers to a call of the other one.
async fn ask(cluster: &Cluster, at: usize, version: u64, number: u64, op: ReplicaOp) -> Bytes {
    ask_as(cluster, (1 - at, at), version, number, op).await
}

/// What a node answers to a call of another one, whether that is there or not.
pub(in crate::coordinator::tests) async fn ask_as(
    cluster: &Cluster,
    (from, at): (usize, usize),
    version: u64,
    number: u64,
    op: ReplicaOp,
) -> Bytes {
    let instance = cluster.db(at).instance().to_owned();
    let call = ReplicaRequest {
        db: "db".to_owned(),
        instance,
        version,
        counted: true,
        range: 0,
        id: number,
        horizon: None,
        op,
    };
    let service = ReplicaService(Arc::downgrade(&cluster.nodes[at].coordinator));
    let from = cluster.network.names[from].clone();
    service.answer(from, encode(&call), Duration::from_secs(60)).await.unwrap().into_bytes()
}

pub(in crate::coordinator::tests) fn decide(names: &[&str]) -> ReplicaOp {
    let edits = names.iter().map(|name| EditText::from(&edit(name))).collect();
    Decide(Box::new(DecideCall { edits, caller: Caller::node(), source: "n1@h".to_owned(), in_doubt: false })).into()
}

type DecidedBy = Result<Vec<Result<AcceptedEdit, EditRefusal>>, WireError>;

#[tokio::test]
async fn a_call_that_comes_again_after_the_map_changed_is_answered_as_before() {
    let (cluster, at, to) = on_one_of_two(1).await;
    let first = ask(&cluster, at, 0, 7, decide(&["a"])).await;
    assert!(matches!(decode::<DecidedBy>(&first), Ok(Ok(accepted)) if accepted[0].is_ok()));
    let begun = move_of(&cluster, at, to);
    follow(&cluster.db(at), |next| next.moves.push(begun)).await;
    assert_eq!(ask(&cluster, at, 0, 7, decide(&["a"])).await, first);
    let another = ask(&cluster, at, 0, 8, decide(&["b"])).await;
    assert!(matches!(decode::<DecidedBy>(&another), Ok(Err(WireError::Moved))));
}

#[tokio::test]
async fn a_primary_stores_all_of_a_call_or_says_that_nothing_was_done() {
    let (cluster, at, _) = on_one_of_two(2).await;
    let db = cluster.db(at);
    let names: Vec<String> = (0..8).map(|n| format!("d{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert!(names.iter().any(|name| db.range_of(&id(name)) != db.range_of(&id(names[0]))));
    let answer = ask(&cluster, at, 0, 1, decide(&names)).await;
    assert!(matches!(decode::<DecidedBy>(&answer), Ok(Err(WireError::Moved))));
    for name in names {
        assert_eq!(body(&db, name).await, "!");
    }
}

#[tokio::test]
async fn a_read_that_is_counted_by_an_old_map_begins_anew() {
    let (cluster, at, to) = on_one_of_two(1).await;
    write(&cluster.db(at), "a", "{}", None).await.unwrap();
    let reader = cluster.db(to);
    let old = reader.layout();
    let begun = move_of(&cluster, at, to);
    follow(&cluster.db(at), |next| next.moves.push(begun)).await;
    for _ in 0..2 {
        let read = reader.documents().fetch_counted((&old, 0), vec![(id("a"), Want::Winner)], None).await;
        assert!(matches!(read, Err(ReadError::Unavailable(ShardError::Moved))), "{read:?}");
        // The second time it knows the new map, and still counts by the old one.
        assert_eq!(body(&reader, "a").await, "{}");
        assert!(reader.layout().placed.version > old.placed.version);
    }
}

#[tokio::test]
async fn a_feed_goes_on_when_its_replica_moves_to_another_node() {
    let (cluster, at, to) = on_one_of_two(1).await;
    let db = cluster.db(at);
    write(&db, "a", "{}", None).await.unwrap();
    let mut feed = db.feeds().changes(ChangesQuery::default()).await.unwrap();
    assert_eq!(feed.next().await.unwrap().map(|rows| rows.len()), Some(1));
    let moved = move_of(&cluster, at, to);
    cluster.nodes[at].coordinator.begin_move(&db, &moved).await.unwrap();
    still(&cluster).await;
    eventually(|| async { db.shards()[0].1 == cluster.network.names[to..=to] }).await;
    write(&cluster.db(to), "b", "{}", None).await.unwrap();
    loop {
        match feed.next().await.unwrap() {
            Some(rows) if rows.iter().any(|row| row.id == id("b")) => return,
            Some(_) => {}
            None => tokio::time::timeout(Duration::from_secs(60), feed.wait()).await.unwrap(),
        }
    }
}

#[tokio::test]
async fn a_map_that_cannot_be_is_refused_from_whomever_it_comes() {
    let (cluster, at, _) = on_one_of_two(1).await;
    let (db, coordinator) = (cluster.db(at), &cluster.nodes[at].coordinator);
    let good = MapRecord { version: 1, ..db.map_record() };
    let stray = Move { range: 5, ..move_of(&cluster, at, at) };
    let bad = [
        MapRecord { splits: vec![7], ..good.clone() },
        MapRecord { splits: vec![0], ..good.clone() },
        MapRecord { by_range: Some(Vec::new()), ..good.clone() },
        MapRecord { by_range: Some(vec![Vec::new()]), ..good.clone() },
        MapRecord { moves: vec![stray], ..good.clone() },
    ];
    for places in bad {
        assert!(matches!(db.follow(places.clone()).await, Err(ShardError::NotExecuted(_))), "{places:?}");
        let mut record = db.known.shared(&db.context.node);
        record.set_places(places.clone());
        assert!(coordinator.adopt("other", record).await.is_err(), "{places:?}");
        let (name, instance) = (db.name.clone(), db.instance().to_owned());
        let call = || {
            let Electorate { voters, names, .. } = coordinator.electorate();
            let (ballot, value) = (Ballot { counter: 1, by: 1 }, Some(places.clone()));
            let ask = Ask { ballot, version: 1, value, before: None, voters, names };
            BallotCall { name: name.clone(), instance: instance.clone(), ask }
        };
        // The voters may be about to agree on that.
        eventually(|| async { coordinator.vote(call()).await.unwrap() == Vote::Unknown }).await;
    }
    db.follow(good).await.unwrap();
    assert_eq!(db.map_version().0, 1);
}

/// Each of two nodes followed another map of one version: one of these stays, with the documents of both.
#[tokio::test]
async fn two_maps_of_one_version_become_one_and_no_document_is_lost() {
    let (cluster, at, to) = on_one_of_two(1).await;
    write(&cluster.db(at), "before", "{}", None).await.unwrap();
    cluster.cut(&[to]);
    let names = cluster.network.names.clone();
    follow(&cluster.db(at), |next| next.by_range = Some(vec![vec![names[at].clone(), names[to].clone()]])).await;
    follow(&cluster.db(to), |next| next.by_range = Some(vec![vec![names[to].clone()]])).await;
    assert_eq!(cluster.db(at).map_version().0, cluster.db(to).map_version().0);
    write(&cluster.db(at), "here", "{}", None).await.unwrap();
    write(&cluster.db(to), "there", "{}", None).await.unwrap();
    write(&cluster.db(to), "_local/there", "{}", None).await.unwrap();
    cluster.heal().await;
    eventually(|| async { cluster.db(at).map_record() == cluster.db(to).map_record() }).await;
    for node in [at, to] {
        for name in ["before", "here", "there", "_local/there"] {
            eventually(|| async { body(&cluster.db(node), name).await == "{}" }).await;
        }
    }
}
