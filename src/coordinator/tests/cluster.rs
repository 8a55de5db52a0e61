//! Several coordinators over a network that can be cut.

mod breaks;
mod expiry;
mod gone;
mod joins;
pub(super) mod late;
mod maintenance;
mod members;
mod moves;
mod purges;
mod rebuild;
mod restored;
mod resumed;
mod settings;
mod sizes;
mod slow;
mod tokens;
mod tombstone_collection;
mod united;
mod views;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::check::{keys_of, spoil};
use super::convergence::{plant, replica};
use super::*;
use crate::coordinator::topology::peers::{Answer, Call, CallError, Peer, Peers, Service};
use crate::coordinator::{FeedOperations, ReadOperations, RepairOperations, WriteOperations};
use crate::world::BoxFuture;

/// Who answers on each node, and which nodes are cut off.
#[derive(Default)]
pub(super) struct Network {
    answers: Mutex<BTreeMap<(String, Service), Arc<dyn Answer>>>,
    pub(super) names: Vec<String>,
    /// Nodes that nobody reaches.
    down: watch::Sender<BTreeSet<String>>,
    /// How often connections to a node broke and were there again at once.
    breaks: Mutex<BTreeMap<String, u64>>,
    /// Nodes that do not belong to the cluster any more.
    removed: Mutex<BTreeSet<String>>,
    /// Nodes that have not heard of that.
    unaware: Mutex<BTreeSet<String>>,
    /// Nodes that do what they are asked but whose answers are lost.
    mute: Mutex<BTreeSet<String>>,
    /// Nodes that no call reaches although they are up and call others.
    deaf: Mutex<BTreeSet<String>>,
    /// A node whose replicas do not answer reads of documents, although it is up.
    stalled: Mutex<Option<String>>,
    /// How many such reads there were.
    stalled_reads: AtomicU64,
    /// Answers that are still to be lost.
    cut_off: AtomicU32,
    /// Bytes of calls and their answers.
    pub(super) bytes: AtomicU64,
    /// Bytes of the largest call or answer.
    largest: AtomicU64,
    /// Whether all nodes answer as those of the version before this one.
    older: AtomicBool,
    /// A database whose replicas answer nobody.
    refused: Mutex<Option<&'static str>>,
    /// How many calls there were.
    pub(super) calls: AtomicU64,
    /// How many of them panicked where they were answered.
    panics: AtomicU64,
}

/// A node's end of the network.
pub(super) struct End {
    network: Arc<Network>,
    own: String,
    changes: watch::Sender<u64>,
}

impl Network {
    fn answer(&self, node: &str, service: Service) -> Option<Arc<dyn Answer>> {
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(&(node.to_owned(), service)).cloned()
    }

    fn is_mute(&self, node: &str) -> bool {
        self.mute.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn is_deaf(&self, node: &str) -> bool {
        self.deaf.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn is_stalled(&self, node: &str) -> bool {
        self.stalled.lock().unwrap_or_else(PoisonError::into_inner).as_deref() == Some(node)
    }

    fn is_down(&self, node: &str) -> bool {
        self.down.borrow().contains(node)
    }
}

impl Peers for End {
    fn members(&self) -> Vec<Peer> {
        let there = self.network.names.iter().filter(|name| !self.is_removed(name));
        there.map(|name| Peer { name: name.as_str().into(), zone: None }).collect()
    }

    fn is_removed(&self, node: &str) -> bool {
        let is_unaware = self.network.unaware.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.own);
        !is_unaware && self.network.removed.lock().unwrap_or_else(PoisonError::into_inner).contains(node)
    }

    fn is_up(&self, node: &str) -> bool {
        node == self.own || !self.network.is_down(node) && !self.network.is_down(&self.own)
    }

    fn connection(&self, node: &str) -> Option<u64> {
        let breaks = self.network.breaks.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |node: &str| breaks.get(node).copied().unwrap_or_default();
        self.is_up(node).then(|| of(node) + of(&self.own))
    }

    fn watch(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn call<'a>(&'a self, to: &'a str, call: Call) -> BoxFuture<'a, Result<Bytes, CallError>> {
        Box::pin(async move {
            let Call { service, body, limit, .. } = call;
            let body = body.into_bytes();
            let away = || CallError::NotExecuted(format!("{to} is down"));
            if !self.is_up(to) || self.network.is_deaf(to) {
                return Err(away());
            }
            let answer = self.network.answer(to, service).ok_or_else(away)?;
            self.network.calls.fetch_add(1, Ordering::Relaxed);
            self.network.bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
            self.network.largest.fetch_max(body.len() as u64, Ordering::Relaxed);
            let is_replica = service == Service::Replica;
            let says = |text: &str| body.windows(text.len()).take(300).any(|bytes| bytes == text.as_bytes());
            if is_replica && self.network.older.load(Ordering::Relaxed) && says("FetchSome") {
                return Err(CallError::NotExecuted("unknown variant `FetchSome`".to_owned()));
            }
            if is_replica && self.network.is_stalled(to) && says("Fetch") {
                self.network.stalled_reads.fetch_add(1, Ordering::Relaxed);
                return std::future::pending().await;
            }
            let refused = *self.network.refused.lock().unwrap_or_else(PoisonError::into_inner);
            if is_replica && refused.is_some_and(says) {
                return Err(CallError::NotExecuted("it is refused".to_owned()));
            }
            // The callee goes on when the caller is gone, as over a real network.
            let task = tokio::spawn(answer.answer(self.own.clone(), body, limit));
            let mut down = self.network.down.subscribe();
            let own = self.own.clone();
            let cut = async { drop(down.wait_for(|down| down.contains(to) || down.contains(&own)).await) };
            let done = tokio::select! {
                biased;
                done = task => done,
                () = cut => return Err(CallError::Indeterminate(format!("{to} went away"))),
            };
            if self.network.is_mute(to) {
                return Err(CallError::Indeterminate(format!("{to} is mute")));
            }
            let lose = |left: u32| left.checked_sub(1);
            if is_replica && self.network.cut_off.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lose).is_ok() {
                return Err(CallError::Indeterminate("the connection broke".to_owned()));
            }
            let done = done.map_err(|ended| {
                self.network.panics.fetch_add(u64::from(ended.is_panic()), Ordering::Relaxed);
                CallError::Indeterminate("it panicked".to_owned())
            });
            let done = done?.map_err(CallError::NotExecuted).map(crate::wire::message::Message::into_bytes);
            self.network.bytes.fetch_add(done.iter().map(|bytes| bytes.len() as u64).sum(), Ordering::Relaxed);
            let largest = done.as_ref().map_or(0, |bytes| bytes.len() as u64);
            self.network.largest.fetch_max(largest, Ordering::Relaxed);
            done
        })
    }

    fn serve(&self, service: Service, answer: Arc<dyn Answer>) {
        let mut answers = self.network.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.insert((self.own.clone(), service), answer);
    }
}

pub(super) struct Node {
    pub(super) world: World,
    pub(super) end: Arc<End>,
    pub(super) coordinator: Arc<Coordinator>,
}

pub(super) struct Cluster {
    pub(super) network: Arc<Network>,
    pub(super) nodes: Vec<Node>,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.network.panics.load(Ordering::Relaxed), 0, "calls that panicked, see above");
        }
    }
}

impl Cluster {
    pub(super) async fn new(count: usize) -> Cluster {
        Cluster::of(count, Engine::Memory).await
    }

    /// As [`Cluster::new`], with data that an engine keeps.
    pub(super) async fn of(count: usize, engine: Engine) -> Cluster {
        Cluster::with(count, StorageOptions { engine, ..StorageOptions::default() }).await
    }

    pub(super) async fn with(count: usize, options: StorageOptions) -> Cluster {
        let names = (1..=count).map(|n| format!("n{n}@h")).collect::<Vec<_>>();
        let network = Arc::new(Network { names: names.clone(), ..Network::default() });
        let mut nodes = Vec::new();
        for own in names {
            let end = Arc::new(End { network: Arc::clone(&network), own, changes: watch::Sender::new(0) });
            let world = World::open_with(tempfile::tempdir().unwrap(), options).await;
            let coordinator = world.join(&end).await;
            nodes.push(Node { world, end, coordinator });
        }
        let cluster = Cluster { network, nodes };
        cluster.settle().await;
        cluster
    }

    /// Cuts off all nodes but those that are not listed.
    pub(super) fn cut(&self, nodes: &[usize]) {
        let down: BTreeSet<String> = nodes.iter().map(|at| self.network.names[*at].clone()).collect();
        let before = self.network.down.send_replace(down.clone());
        // Their connections are others when they are there again, whether anybody looked meanwhile or not.
        let mut breaks = self.network.breaks.lock().unwrap();
        down.difference(&before).for_each(|node| *breaks.entry(node.clone()).or_default() += 1);
        drop(breaks);
        self.nodes.iter().for_each(|node| node.end.changes.send_modify(|n| *n += 1));
    }

    /// Has the connections to a node break; when anybody looks they are there again.
    pub(super) fn break_connections(&self, node: &str) {
        *self.network.breaks.lock().unwrap().entry(node.to_owned()).or_default() += 1;
        self.nodes.iter().for_each(|node| node.end.changes.send_modify(|n| *n += 1));
    }

    /// Ends nodes for good and takes them out of the cluster.
    pub(super) fn remove(&self, nodes: &[usize]) {
        let gone = nodes.iter().map(|at| self.network.names[*at].clone());
        self.network.removed.lock().unwrap_or_else(PoisonError::into_inner).extend(gone);
        self.cut(nodes);
    }

    /// These nodes, and no others, do not hear of nodes that are taken out.
    pub(super) fn keep_from(&self, nodes: &[usize]) {
        let names = nodes.iter().map(|at| self.network.names[*at].clone()).collect();
        *self.network.unaware.lock().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// Makes nodes that were taken out members again.
    pub(super) async fn bring_back(&self, nodes: &[usize]) {
        for at in nodes {
            let mut removed = self.network.removed.lock().unwrap_or_else(PoisonError::into_inner);
            removed.remove(&self.network.names[*at]);
        }
        self.heal().await;
    }

    /// These nodes, and no others, are reached by no call.
    pub(super) fn deafen(&self, nodes: &[&str]) {
        *self.network.deaf.lock().unwrap() = nodes.iter().map(|node| (*node).to_owned()).collect();
    }

    pub(super) async fn heal(&self) {
        self.cut(&[]);
        self.settle().await;
    }

    /// Waits until every node that is up is in sync.
    pub(super) async fn settle(&self) {
        for node in &self.nodes {
            eventually(|| async { node.coordinator.context().rank(&node.coordinator.context().node) == Some(0) }).await;
        }
        for node in &self.nodes {
            let context = node.coordinator.context();
            eventually(|| async { context.others().iter().all(|other| context.rank(other) == Some(0)) }).await;
        }
    }

    pub(super) fn db(&self, at: usize) -> Arc<Database> {
        self.nodes[at].coordinator.database("db").unwrap()
    }

    pub(super) async fn create(&self, at: usize, q: u32, n: u32) -> Result<Written, DatabaseError> {
        let options = CreateOptions { q: Some(q), n: Some(n), ..CreateOptions::default() };
        self.nodes[at].coordinator.create_database("db", options).await
    }
}

impl World {
    pub(super) async fn join(&self, end: &Arc<End>) -> Arc<Coordinator> {
        let peers: Arc<dyn Peers> = Arc::<End>::clone(end);
        let options = Options { node: end.own.clone(), peers: Some(peers), system_databases: false };
        let config = Config::in_memory(&self.env, Vec::new());
        Coordinator::open(self.env.clone(), config, self.storage.clone(), options).await.unwrap()
    }
}

/// What is set for tombstones that are kept so long.
pub(super) fn kept_for(period: &str) -> AutoPurge {
    AutoPurge { period: Some(period.to_owned()), ..AutoPurge::default() }
}

/// Waits until something holds; fails after a time that no healthy run takes.
pub(super) async fn eventually<F: Future<Output = bool>>(holds: impl Fn() -> F) {
    let limit = tokio::time::Instant::now() + Duration::from_secs(200);
    while !holds().await {
        assert!(tokio::time::Instant::now() < limit, "it does not come true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(super) async fn write(
    database: &Arc<Database>,
    name: &str,
    text: &str,
    w: Option<u32>,
) -> Result<WriteDone, WriteError> {
    database.writer().write_one(request(name, text), WriteOptions { w, ..WriteOptions::default() }).await
}

/// What this node's own replica has of a document: its leaves.
pub(super) async fn own_leaves(database: &Arc<Database>, name: &str) -> Vec<String> {
    let range = database.map().index_of(&id(name));
    let replica = database.replicas().own_replica(range).await.unwrap().expect("a replica here");
    let found = replica.shard.fetch(vec![(id(name), Want::Tree)]).await.unwrap().pop().flatten();
    found.iter().flat_map(|found| found.tree.leaves()).map(|leaf| leaf.rev.to_string()).collect()
}

#[tokio::test]
async fn a_write_reaches_all_replicas_and_is_read_anywhere() {
    let cluster = Cluster::new(3).await;
    assert_eq!(cluster.create(0, 2, 3).await.unwrap(), Written::Quorum);
    for (at, w) in [(0, None), (1, Some(3)), (2, Some(1))] {
        let name = format!("d{at}");
        let done = write(&cluster.db(at), &name, r#"{"v":1}"#, w).await.unwrap();
        assert_eq!(done.written, Written::Quorum);
        for reader in 0..3 {
            assert_eq!(body(&cluster.db(reader), &name).await, r#"{"v":1}"#);
        }
    }
    assert_eq!(write(&cluster.db(0), "e", "{}", Some(9)).await.unwrap().written, Written::Accepted);
    let info = cluster.db(1).info().await.unwrap();
    assert_eq!((info.cluster.n, info.cluster.w, info.cluster.r), (3, 2, 2));
}

#[tokio::test]
async fn the_node_that_was_asked_to_write_has_it_when_it_answers() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 4, 3).await.unwrap();
    for n in 0..12 {
        let (name, db) = (format!("d{n}"), cluster.db(n % 3));
        write(&db, &name, "{}", Some(1)).await.unwrap();
        assert_eq!(own_leaves(&db, &name).await.len(), 1, "{name}");
        let local = format!("_local/{name}");
        write(&db, &local, "{}", Some(1)).await.unwrap();
        let replica = db.replicas().own_replica(db.map().index_of(&id(&local))).await.unwrap().expect("a replica here");
        assert!(replica.shard.local_get(&id(&local)).await.unwrap().is_some(), "{local}");
    }
}

#[tokio::test]
async fn two_writers_on_one_revision_on_different_nodes_make_no_conflict() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    let text = |n: usize| format!(r#"{{"_rev":"{first}","n":{n}}}"#);
    let (dbs, texts) = ([cluster.db(0), cluster.db(1), cluster.db(2)], [text(0), text(1), text(2)]);
    let writes = (0..3).map(|at| write(&dbs[at], "a", &texts[at], Some(3)));
    let done = futures_util::future::join_all(writes).await;
    assert_eq!(done.iter().filter(|done| done.is_ok()).count(), 1, "{done:?}");
    assert!(done.iter().all(|done| matches!(done, Ok(_) | Err(WriteError::Conflict))));
    for db in &dbs {
        assert_eq!(own_leaves(db, "a").await.len(), 1);
    }
}

#[tokio::test]
async fn a_damaged_replica_keeps_nobody_from_writing_where_the_others_are_good() {
    for damaged in 0..3 {
        let cluster = Cluster::new(3).await;
        cluster.create(0, 1, 3).await.unwrap();
        let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
        let world = &cluster.nodes[damaged].world;
        let key = keys_of(world, &cluster.db(damaged), b'd').await.pop().unwrap();
        spoil(world, key, Some(vec![0xff; 3])).await;
        let text = |v: u32| format!(r#"{{"_rev":"{first}","v":{v}}}"#);
        let (one, other) = (cluster.db(damaged), cluster.db((damaged + 1) % 3));
        assert_eq!(write(&one, "a", &text(2), None).await.unwrap().written, Written::Quorum);
        let late = write(&other, "a", &text(3), None).await;
        assert!(matches!(late, Err(WriteError::Conflict)), "{late:?}");
        assert_eq!(own_leaves(&other, "a").await.len(), 1);
    }
}

/// A purge was refused, though two of three replicas could do it.
#[tokio::test]
async fn a_replica_that_cannot_be_opened_keeps_nobody_from_writing_and_purging_where_the_others_are_good() {
    let mut cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    for key in keys_of(&cluster.nodes[0].world, &cluster.db(0), b'h').await {
        spoil(&cluster.nodes[0].world, key, Some(vec![0xff; 3])).await;
    }
    cluster.nodes[0].coordinator = cluster.nodes[0].world.join(&cluster.nodes[0].end).await;
    let db = cluster.db(0);
    assert!(db.replicas().own_replica(0).await.is_err_and(|error| error.is_damage()));
    assert_eq!(write(&db, "b", "{}", None).await.unwrap().written, Written::Quorum);
    assert_eq!(
        db.maintenance().purge(vec![(id("a"), vec![rev.clone()])]).await.unwrap(),
        (vec![(id("a"), vec![rev])], Written::Quorum)
    );
    assert_eq!(own_leaves(&cluster.db(1), "a").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_node_that_returns_has_what_it_missed() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    let old = write(&cluster.db(0), "old", "{}", Some(3)).await.unwrap().rev;
    let gone = write(&cluster.db(0), "gone", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[2]);
    let db = cluster.db(0);
    for n in 0..20 {
        assert_eq!(write(&db, &format!("d{n}"), "{}", None).await.unwrap().written, Written::Quorum);
    }
    assert_eq!(write(&db, "x", "{}", Some(3)).await.unwrap().written, Written::Accepted);
    write(&db, "old", &format!(r#"{{"_rev":"{old}","v":2}}"#), None).await.unwrap();
    db.writer().delete(&id("gone"), Some(gone), WriteOptions::default()).await.unwrap();
    write(&db, "_local/l", r#"{"at":7}"#, None).await.unwrap();
    db.settings().set_revs_limit(77).await.unwrap();
    cluster.heal().await;
    let late = cluster.db(2);
    for n in 0..20 {
        assert_eq!(own_leaves(&late, &format!("d{n}")).await.len(), 1);
    }
    assert_eq!(own_leaves(&late, "old").await, own_leaves(&db, "old").await);
    assert_eq!(own_leaves(&late, "gone").await, own_leaves(&db, "gone").await);
    assert_eq!(
        late.documents().get_local_by(&late.layout(), &id("_local/l"), Some(1)).await.unwrap().unwrap().body,
        r#"{"at":7}"#
    );
    assert_eq!(late.revs_limit(), 77);
}

#[tokio::test]
async fn two_of_three_down() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap();
    cluster.cut(&[1, 2]);
    let db = cluster.db(0);
    assert_eq!(write(&db, "b", "{}", None).await.unwrap().written, Written::Accepted);
    assert_eq!(write(&db, "c", "{}", Some(1)).await.unwrap().written, Written::Quorum);
    assert!(matches!(write(&db, "b", "{}", None).await, Err(WriteError::Conflict)));
    assert_eq!(body(&db, "a").await, "{}");
    assert!(db.documents().fetch_from(&id("nope"), Want::Winner, Some(3)).await.unwrap().is_none());
    let error = db.settings().set_revs_limit(5).await;
    assert!(matches!(error, Err(SettingError::NoMajority { answered: 1, replicas: 3 })), "{error:?}");
    assert_eq!(db.revs_limit(), 1000);
    let other = CreateOptions { n: Some(3), ..CreateOptions::default() };
    let created = cluster.nodes[0].coordinator.create_database("other", other).await;
    assert_eq!(created.unwrap(), Written::Accepted);
    assert_eq!(cluster.nodes[0].coordinator.delete_database("db").await.unwrap(), Written::Accepted);
    cluster.heal().await;
    for node in &cluster.nodes {
        assert!(node.coordinator.has_database("other") && !node.coordinator.has_database("db"));
    }
}

#[tokio::test]
async fn a_database_without_a_replica_in_reach_says_so() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 1).await.unwrap();
    let holder = usize::from(cluster.db(0).shards()[0].1[0] == "n2@h");
    let other = 1 - holder;
    write(&cluster.db(other), "a", "{}", None).await.unwrap();
    assert_eq!(body(&cluster.db(other), "a").await, "{}");
    cluster.cut(&[holder]);
    let db = cluster.db(other);
    let none = |error: &ShardError| matches!(error, ShardError::NoReplica { replicas: 1 });
    assert!(matches!(db.info().await, Err(ReadError::Unavailable(error)) if none(&error)));
    assert!(matches!(write(&db, "b", "{}", None).await, Err(WriteError::Unavailable(error)) if none(&error)));
    assert!(
        matches!(db.documents().fetch(&id("a"), Want::Winner).await, Err(ReadError::Unavailable(error)) if none(&error))
    );
}

#[tokio::test]
async fn a_node_that_hangs_keeps_no_write_from_ranges_it_does_not_hold() {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 8, 2).await.unwrap();
    let (db, hung) = (cluster.db(0), "n4@h");
    cluster.network.mute.lock().unwrap().insert(hung.to_owned());
    let elsewhere =
        |name: &String| db.replicas().nodes_of(db.map().index_of(&id(name))).iter().all(|node| **node != *hung);
    let names: Vec<String> = (0..40).map(|n| format!("d{n}")).filter(elsewhere).collect();
    assert!(!names.is_empty());
    for name in names {
        // Its validators are looked for in every range, some of which that node is the first to be asked for.
        let done = write(&db, &name, "{}", None).await;
        assert_eq!(done.unwrap().written, Written::Quorum, "{name}");
    }
}

#[tokio::test]
async fn a_conflict_from_the_second_primary_proves_nothing() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    // The primary stores the edit, and its answer is lost.
    let primary = cluster.db(0).replicas().nodes_of(0)[0].to_string();
    let writer = cluster.network.names.iter().position(|name| *name != primary).unwrap();
    cluster.network.mute.lock().unwrap().insert(primary.clone());
    let stale = write(&cluster.db(writer), "a", r#"{"v":3}"#, None).await;
    assert!(matches!(stale, Err(WriteError::Unknown)), "{stale:?}");
    let done = write(&cluster.db(writer), "a", &format!(r#"{{"_rev":"{rev}","v":2}}"#), None).await.unwrap();
    cluster.network.mute.lock().unwrap().clear();
    assert_eq!(done.rev.pos, 2);
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, [done.rev.to_string()]);
    }
}

/// The primary stores the edit, the connection breaks, and the answer is asked for again: a plain answer, and one edit.
#[tokio::test]
async fn a_write_whose_answer_was_lost_is_not_done_twice() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    let primary = cluster.db(0).replicas().nodes_of(0)[0].to_string();
    let writer = cluster.network.names.iter().position(|name| *name != primary).unwrap();
    cluster.network.cut_off.store(1, Ordering::Relaxed);
    let done = write(&cluster.db(writer), "a", &format!(r#"{{"_rev":"{rev}","v":2}}"#), None).await.unwrap();
    assert_eq!(done.rev.pos, 2);
    cluster.network.cut_off.store(1, Ordering::Relaxed);
    let stale = write(&cluster.db(writer), "a", r#"{"v":3}"#, None).await;
    assert!(matches!(stale, Err(WriteError::Conflict)), "a conflict that is certain: {stale:?}");
    cluster.network.cut_off.store(1, Ordering::Relaxed);
    let purged = cluster.db(writer).maintenance().purge(vec![(id("a"), vec![done.rev.clone()])]).await.unwrap();
    assert_eq!(purged.0[0].1, [done.rev]);
}

#[tokio::test]
async fn a_read_repairs_the_replica_that_lacks_something() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    // A revision that one replica alone has.
    plant(&replica(&cluster, 1).await, "a", &["2-f", &rev.to_string()], false).await;
    let found = cluster.db(0).documents().fetch_from(&id("a"), Want::Winner, Some(3)).await.unwrap().unwrap();
    assert_eq!(found.found[0].0.to_string(), "2-f");
    for at in 0..3 {
        let db = cluster.db(at);
        eventually(|| async { own_leaves(&db, "a").await == ["2-f"] }).await;
    }
}

/// It was longer than `_revs_limit` while a replica had not yet heard of the last edit.
#[tokio::test]
async fn a_history_is_not_longer_than_its_limit_while_a_replica_lags() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    cluster.db(0).settings().set_revs_limit(2).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    let second = write(&cluster.db(0), "a", &format!(r#"{{"_rev":"{first}"}}"#), Some(3)).await.unwrap().rev;
    plant(&replica(&cluster, 1).await, "a", &["3-f", &second.to_string(), &first.to_string()], false).await;
    let found = cluster.db(0).documents().fetch_from(&id("a"), Want::Winner, Some(3)).await.unwrap().unwrap();
    assert_eq!(found.tree.path_to(&rev("3-f")).unwrap().ids, [rev("3-f").hash, second.hash]);
}

#[tokio::test]
async fn what_was_purged_does_not_come_back_from_a_node_that_was_away() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let rev = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    cluster.cut(&[2]);
    let (removed, written) = cluster.db(0).maintenance().purge(vec![(id("a"), vec![rev.clone()])]).await.unwrap();
    assert_eq!((removed[0].1.clone(), written), (vec![rev], Written::Quorum));
    cluster.heal().await;
    for at in 0..3 {
        assert_eq!(own_leaves(&cluster.db(at), "a").await, Vec::<String>::new(), "node {at}");
    }
}

/// Writes a document with an attachment to three replicas.
async fn attach(db: &Arc<Database>, name: &str, content: &Bytes) {
    let options = UploadOptions { name: "f".to_owned(), content_type: "image/png".to_owned(), gzip: false, md5: None };
    let mut upload = db.attachments().upload(&id(name), options).await.unwrap();
    upload.write(content.clone()).await.unwrap();
    let staged = upload.finish().await.unwrap();
    let options = WriteOptions { w: Some(3), ..WriteOptions::default() };
    let done = db.attachments().put_attachment(&id(name), "f", None, staged, options).await.unwrap();
    assert_eq!(done.written, Written::Quorum);
}

/// The attachment of a document; `None` when it cannot be read.
async fn attached(db: &Arc<Database>, name: &str) -> Option<Bytes> {
    let found = db.documents().fetch(&id(name), Want::Winner).await.unwrap().unwrap();
    let attachment = found.found[0].1.as_ref().unwrap().attachments[0].clone();
    db.documents().attachment_bytes(&id(name), &attachment, true).await.ok().map(Bytes::from)
}

#[tokio::test]
async fn attachments_are_on_every_replica() {
    let cluster = Cluster::new(4).await;
    cluster.create(0, 1, 3).await.unwrap();
    let content = Bytes::from(vec![7; 600_000]);
    for at in 0..4 {
        let name = format!("d{at}");
        attach(&cluster.db(at), &name, &content).await;
        for reader in 0..4 {
            assert_eq!(attached(&cluster.db(reader), &name).await.as_ref(), Some(&content));
        }
    }
}

#[tokio::test]
async fn a_damaged_attachment_is_replaced_by_that_of_another_replica() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let content = Bytes::from(vec![7; 600_000]);
    attach(&cluster.db(0), "d", &content).await;
    let mut file = cluster.nodes[0].world.dir.path().join("blobs");
    while file.is_dir() {
        let mut entries = std::fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().path());
        file = entries.find(|path| !path.ends_with("tmp")).unwrap();
    }
    let whole = std::fs::read(&file).unwrap();
    // What was handed out already when the damage is met cannot be taken back: that read is cut off.
    for (at, is_answered) in [(100, true), (400_000, false)] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let read = attached(&cluster.db(0), "d").await;
        assert_eq!(read, Some(content.clone()).filter(|_| is_answered), "damaged at {at}");
        eventually(|| async { std::fs::read(&file).unwrap() == whole }).await;
        assert_eq!(attached(&cluster.db(0), "d").await.as_ref(), Some(&content));
    }
}

#[tokio::test]
async fn lists_and_feeds_go_on_with_another_replica() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 2, 2).await.unwrap();
    for n in 0..30 {
        write(&cluster.db(0), &format!("d{n:02}"), "{}", Some(2)).await.unwrap();
    }
    let since = |text: &str| ChangesQuery { since: Since::parse(text).unwrap(), ..ChangesQuery::default() };
    for reader in 0..3 {
        let db = cluster.db(reader);
        let mut feed = db.feeds().changes(since("0")).await.unwrap();
        let rows = feed.next().await.unwrap().unwrap();
        assert_eq!((rows.len(), feed.next().await.unwrap().is_none()), (30, true));
        let last = feed.last_seq();
        for away in (0..3).filter(|away| *away != reader) {
            cluster.cut(&[away]);
            let mut feed = db.feeds().changes(since(&last)).await.unwrap();
            let again = feed.next().await.unwrap().map_or(0, |rows| rows.len());
            assert!(again <= 30, "at most everything is told again");
            let query = AllDocsQuery { include_docs: true, update_seq: true, ..AllDocsQuery::default() };
            let mut list = db.lists().all_docs(query).await.unwrap();
            let mut rows = 0;
            while let Some(page) = list.next().await.unwrap() {
                rows += page.len();
            }
            assert_eq!((list.total_rows, rows), (Some(30), 30));
            cluster.heal().await;
        }
    }
}

/// Seen in the simulator: a database was made while one direction of a link was not up yet, and the node behind it did
/// not hear of it for half a minute, for the two had met in the other direction before.
#[tokio::test]
async fn a_node_that_was_not_told_of_a_database_is_told_again_soon() {
    let cluster = Cluster::new(3).await;
    let knows = || async { cluster.nodes[2].coordinator.has_database("db") };
    *cluster.network.deaf.lock().unwrap() = BTreeSet::from(["n3@h".to_owned()]);
    cluster.create(0, 2, 3).await.unwrap();
    assert!(!knows().await);
    *cluster.network.deaf.lock().unwrap() = BTreeSet::new();
    eventually(knows).await;
    assert_eq!(cluster.db(2).instance(), cluster.db(0).instance());
    *cluster.network.deaf.lock().unwrap() = BTreeSet::from(["n3@h".to_owned()]);
    cluster.nodes[0].coordinator.delete_database("db").await.unwrap();
    assert!(knows().await);
    *cluster.network.deaf.lock().unwrap() = BTreeSet::new();
    eventually(|| async { !knows().await }).await;
}

/// Seen in the suite against three nodes: while one replica lacked the newest revision, an answer made of several
/// replicas told older revisions as missing that all of them had.
#[tokio::test]
async fn an_answer_of_several_replicas_knows_the_contents_of_older_revisions() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let first = write(&cluster.db(0), "a", "{}", Some(3)).await.unwrap().rev;
    *cluster.network.deaf.lock().unwrap() = BTreeSet::from(["n3@h".to_owned()]);
    let second = write(&cluster.db(0), "a", &format!(r#"{{"_rev":"{first}"}}"#), Some(2)).await.unwrap().rev;
    let found = cluster.db(2).documents().fetch(&id("a"), Want::Tree).await.unwrap().unwrap();
    let known: Vec<(Revision, bool)> =
        found.tree.revs_info(&second).into_iter().map(|(rev, value)| (rev, value.is_some())).collect();
    assert_eq!(known, [(second, true), (first, true)]);
}

#[tokio::test]
async fn two_databases_of_one_name_become_one() {
    let cluster = Cluster::new(2).await;
    cluster.cut(&[1]);
    cluster.create(0, 2, 2).await.unwrap();
    cluster.network.down.send_replace(BTreeSet::from(["n1@h".to_owned()]));
    cluster.create(1, 1, 2).await.unwrap();
    for at in 0..2 {
        write(&cluster.db(at), &format!("d{at}"), "{}", Some(1)).await.unwrap();
    }
    cluster.heal().await;
    let (first, second) = (cluster.db(0), cluster.db(1));
    assert_eq!(first.instance(), second.instance());
    for name in ["d0", "d1"] {
        for at in 0..2 {
            eventually(|| async { own_leaves(&cluster.db(at), name).await.len() == 1 }).await;
        }
    }
}

#[tokio::test]
async fn a_feed_resumes_on_another_replica_where_the_two_were_in_sync() {
    let cluster = Cluster::new(2).await;
    cluster.create(0, 1, 2).await.unwrap();
    for n in 0..10 {
        write(&cluster.db(0), &format!("d{n}"), "{}", Some(2)).await.unwrap();
    }
    for at in 0..2 {
        cluster.db(at).pulls().pull_from(&Arc::from(cluster.network.names[1 - at].as_str()), false).await.unwrap();
    }
    let read = |at: usize, since: String| {
        let db = cluster.db(at);
        async move {
            let query = ChangesQuery { since: Since::parse(&since).unwrap(), ..ChangesQuery::default() };
            let mut feed = db.feeds().changes(query).await.unwrap();
            let rows = feed.next().await.unwrap().unwrap_or_default();
            (rows.into_iter().map(|row| row.id.to_string()).collect::<Vec<_>>(), feed.last_seq())
        }
    };
    let (rows, last) = read(0, "0".to_owned()).await;
    assert_eq!(rows.len(), 10);
    write(&cluster.db(0), "new", "{}", Some(2)).await.unwrap();
    assert_eq!(read(1, last).await.0, ["new"]);
}

#[tokio::test]
async fn a_node_that_lost_its_disk_fills_itself() {
    let mut cluster = Cluster::new(3).await;
    cluster.create(0, 2, 3).await.unwrap();
    for n in 0..10 {
        write(&cluster.db(0), &format!("d{n}"), "{}", Some(3)).await.unwrap();
    }
    cluster.cut(&[2]);
    let world = World::new().await;
    let coordinator = world.join(&cluster.nodes[2].end).await;
    (cluster.nodes[2].world, cluster.nodes[2].coordinator) = (world, coordinator);
    // It must not say that there is no such database.
    assert!(cluster.nodes[2].coordinator.is_unlearned() && !cluster.nodes[0].coordinator.is_unlearned());
    cluster.heal().await;
    assert!(!cluster.nodes[2].coordinator.is_unlearned());
    for n in 0..10 {
        assert_eq!(own_leaves(&cluster.db(2), &format!("d{n}")).await.len(), 1);
    }
}
