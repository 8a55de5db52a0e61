//! Tombstone collection in rounds, where the database's `_auto_purge` asks for it, or else `[settee] tombstone_days`; 0
//! keeps tombstones for ever.
//!
//! Every replica keeps marks: its position at some time. Once a mark is old enough, so is every tombstone before it.
//! The first node in the order of primaries of a range proposes a round: some of these tombstones. All replicas must be
//! in reach and in sync, have had the tombstones for as long themselves, and write the round down. The proposer then
//! waits until everything that was sent before has arrived, asks all replicas again, because they may have moved, reads
//! each of them from beginning to end, and collects the tombstones, which decides the round. The other replicas are
//! told, and collect the tombstones when they have read all replicas, too (`collection_horizon`). Tombstones beside
//! other leaves stay, and so do those of design documents.
//!
//! Nothing here runs, is read or is sent of a database that keeps its tombstones for ever. What was collected before
//! stays collected.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};

use crate::coordinator::anti_entropy::retention::Hindrance;
use crate::coordinator::anti_entropy::{RepairOperations, TombstoneCollection};
use crate::coordinator::replica::calls::{Collectable, Confirm, Propose, Tell};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::context::age;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::{decode, encode};
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::topology::record::Known;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::observe::workers::Worker;
use crate::shard::{Horizon, Proposal, ProposalOutcome, Round, ShardChange, ShardError, Tombstone};
use crate::storage::{Direction, StorageError};
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

/// How far a replica was looked through for what to collect, kept with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// A position, and the time at which the replica stood there, in milliseconds by the wall clock.
    position: u64,
    at_ms: u64,
    /// What is up to this position is old enough.
    #[serde(default)]
    aged: u64,
    /// How old that is at least, in milliseconds.
    #[serde(default)]
    age_ms: u64,
    /// Tombstones up to this position were collected, or are not to be.
    scanned: u64,
}

/// The value of the replica that holds it.
const NAME: &str = "forgetting";

/// A range of a database.
type Place = (String, usize);

/// A round that all replicas have written down and that is not decided.
#[derive(Clone, Debug)]
struct Open {
    place: Place,
    /// The version of the map.
    version: u64,
    round: Round,
    /// The tombstones that go with it are all up to this position.
    upto: u64,
    /// How old they had to be.
    age: Duration,
}

impl Coordinator {
    /// Starts the task that collects what is old enough, once there is to be such; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_collecting(self: &Arc<Self>) {
        if self.shortest_tombstone_age(age(self.config())).is_some() && !self.collects.swap(true, Ordering::SeqCst) {
            self.spawn_worker("tombstone_collection", "a pause", keep_collecting);
        }
    }

    fn places_of(&self, names: &[String]) -> Vec<Place> {
        let ranges = |name: &String| {
            let ranges = self.database(name).map(|database| database.ranges()).unwrap_or_default();
            let name = name.clone();
            ranges.into_iter().map(move |range| (name.clone(), range))
        };
        names.iter().flat_map(ranges).collect()
    }

    /// Has replicas write down what is old enough, in some ranges; those where all have.
    async fn propose_in(&self, places: Vec<Place>, usual: Option<Duration>) -> Vec<Open> {
        let look = |place: Place| async move {
            let database = self.database(&place.0).ok()?;
            let age = database.known.tombstone_age(usual)?;
            told(&place, database.collection().propose_round(place.1, age).await).flatten()
        };
        let open: Vec<Option<Open>> =
            stream::iter(places.into_iter().map(look)).buffer_unordered(limits::RANGES_AT_ONCE).collect().await;
        open.into_iter().flatten().collect()
    }

    /// Decides rounds; those ranges where that was done.
    async fn decide_all(&self, open: Vec<Open>, usual: Option<Duration>) -> Vec<Place> {
        let decide = |open: Open| async move {
            let database = self.database(&open.place.0).ok()?;
            // Nothing goes that is to be kept longer by now.
            database.known.tombstone_age(usual).filter(|age| *age <= open.age)?;
            told(&open.place, database.collection().decide(&open).await).filter(|done| *done).map(|_| open.place)
        };
        let done: Vec<Option<Place>> =
            stream::iter(open.into_iter().map(decide)).buffer_unordered(limits::RANGES_AT_ONCE).collect().await;
        done.into_iter().flatten().collect()
    }
}

/// What came of a range; where it failed, that is said.
fn told<T>((database, range): &Place, done: Result<T, ShardError>) -> Option<T> {
    match done {
        Ok(done) => Some(done),
        Err(ShardError::Dropped | ShardError::Moved) => None,
        Err(error) => {
            tracing::info!(database, range, %error, "nothing is collected for now");
            None
        }
    }
}

async fn keep_collecting(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (env, config, mut news) = (context.env.clone(), context.config.clone(), context.config.watch());
    drop(context);
    loop {
        news.borrow_and_update();
        let usual = age(&config);
        let Some(coordinator) = weak.upgrade() else { return };
        let shortest = coordinator.shortest_tombstone_age(usual);
        drop(coordinator);
        let pause = shortest.map_or(limits::COLLECTION_PAUSE, |age| limits::COLLECTION_PAUSE.min(age));
        drop(env.timeout(pause, news.changed()).await);
        if weak.upgrade().is_none() {
            return;
        }
        if shortest.is_some() {
            let _run = worker.begin();
            sweep(&weak, usual).await;
        }
    }
}

/// Looks through all databases for what is to be collected, many of them at a time: what was proposed waits together.
/// `usual`: how old tombstones have to be in databases that do not say it themselves.
pub(in crate::coordinator) async fn sweep(weak: &Weak<Coordinator>, usual: Option<Duration>) {
    let Some(coordinator) = weak.upgrade() else { return };
    let env = coordinator.env().clone();
    let collects = |(name, known): (String, Arc<Known>)| known.tombstone_age(usual).map(|_| name);
    let names: Vec<String> = coordinator.all_known().into_iter().filter_map(collects).collect();
    drop(coordinator);
    let task = env.begin_task(Subject::new(TaskKind::TombstoneCollection, ""), Some(names.len() as u64));
    for names in names.chunks(limits::COLLECTION_DATABASES) {
        let Some(coordinator) = weak.upgrade() else { return };
        let mut places = coordinator.places_of(names);
        drop(coordinator);
        for _ in 0..limits::COLLECTION_ROUNDS {
            let Some(coordinator) = weak.upgrade() else { return };
            let open = coordinator.propose_in(places, usual).await;
            // Nobody keeps the coordinator while this waits.
            drop(coordinator);
            let Some(shortest) = open.iter().map(|open| open.age).min() else { break };
            env.sleep(limits::COLLECTION_SETTLE.min(shortest)).await;
            let Some(coordinator) = weak.upgrade() else { return };
            places = coordinator.decide_all(open, usual).await;
        }
        task.add(names.len() as u64);
    }
}

impl TombstoneCollection<'_> {
    /// Has all replicas of a range write down some tombstones that are old enough, if that is this node's to propose.
    async fn propose_round(self, range: usize, age: Duration) -> Result<Option<Open>, ShardError> {
        let layout = self.layout();
        let Some(own) = self.replicas().own_replica_by(&layout, range).await? else { return Ok(None) };
        let own = own.in_background();
        let state = own.shard.state().await?;
        if state.markers > 0 && layout.is_alone(range) {
            own.shard.note_taken(&self.context.node, &Horizon::default(), Vec::new()).await?;
        } else if state.markers > 0 || state.rounds > 0 && !own.shard.open_proposals().await?.is_empty() {
            // Both go when the others were read again, one of which may have been away since.
            self.context.pull_soon(&self.name);
        }
        // Every replica keeps marks, for it is asked whether it has had the tombstones for long enough.
        let marks = self.marks(&own, age).await?;
        if marks.scanned >= marks.aged || !self.may_propose(&layout, range).await? {
            return Ok(None);
        }
        let (tombstones, upto) = aged(&own, marks, usize::MAX).await?;
        if tombstones.is_empty() {
            store(&own, Marks { scanned: upto, ..marks }).await?;
            return Ok(None);
        }
        let number = own.shard.told().await?.done.last(&self.context.node).number + 1;
        let proposal = Proposal::new(Round { number, id: self.context.env.random_u64() }, tombstones);
        let (round, version) = (proposal.round, layout.placed.version);
        let remote = |node: &Arc<str>| RemoteReplica::new(&self.target, range, node).in_background();
        let asked: Vec<RemoteReplica> = self.asked(&layout, range).iter().map(remote).collect();
        for remote in &asked {
            // A node of an older version is found out before anything is written down that it would have to know of.
            remote.ask_collection(Tell).await?;
        }
        if own.shard.propose(&self.context.node, proposal.clone(), marks.aged).await? != ProposalOutcome::Done {
            return Ok(None);
        }
        for remote in &asked {
            match remote.ask_collection(Propose(proposal.clone())).await? {
                ProposalOutcome::Done => {}
                ProposalOutcome::NotOldEnough => {
                    sometimes("cluster: tombstones were not old enough on another replica");
                    return Ok(None);
                }
                ProposalOutcome::Refused => {
                    // It may have missed the round before.
                    self.context.lagging(&self.name);
                    return Ok(None);
                }
            }
        }
        Ok(Some(Open { place: (self.name.clone(), range), version, round, upto, age }))
    }

    /// The nodes of the other replicas of a range, all of which are to write down what is to be collected.
    fn asked(self, layout: &Layout, range: usize) -> Vec<Arc<str>> {
        let is_asked = |node: &Arc<str>| !mutated(Mutation::ForgetEarly) || self.context.rank(node) == Some(0);
        self.replica_rebuild().others_of(layout, range).into_iter().filter(is_asked).collect()
    }

    /// Decides a round, if it stands at all replicas; answers whether it does. Each was read from beginning to end
    /// then, behind where it wrote the round down.
    async fn decide(self, open: &Open) -> Result<bool, ShardError> {
        let (layout, range, me) = (self.layout(), open.place.1, &*self.context.node);
        let stands = layout.placed.version == open.version && self.may_propose(&layout, range).await?;
        let Some(own) = self.replicas().own_replica_by(&layout, range).await?.filter(|_| stands) else {
            return Ok(false);
        };
        let own = own.in_background();
        if !own.shard.confirm_round(me, open.round).await? {
            return Ok(false);
        }
        let asked = self.asked(&layout, range);
        for node in &asked {
            let remote = RemoteReplica::new(&self.target, range, node).in_background();
            if !remote.ask_collection(Confirm(open.round)).await? {
                return Ok(false);
            }
        }
        for node in &asked {
            self.pulls().pull_replica(range, node).await?;
        }
        if open.version != self.layout().placed.version {
            return Ok(false);
        }
        let done = own.shard.told().await?.done.with(me, open.round);
        let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
        if !own.shard.collect(&done, &asked).await?.horizon.covers(&done) {
            return Ok(false);
        }
        let marks = read_marks(&own).await?;
        store(&own, Marks { scanned: open.upto.max(marks.scanned), ..marks }).await?;
        sometimes("cluster: tombstones were forgotten");
        self.context.lagging(&self.name);
        Ok(true)
    }

    /// Whether this node is the first in the order of primaries of the range, all replicas of it are there and in sync,
    /// and none moves.
    async fn may_propose(self, layout: &Layout, range: usize) -> Result<bool, ShardError> {
        let is_mine = layout.primaries(range, &self.context.node).first() == Some(&self.context.node);
        let is_current = layout.placed.version == self.layout().placed.version && layout.map.is_live(range);
        let is_quiet = || self.hindrances(layout, range).is_empty();
        Ok(is_mine && is_current && is_quiet() && self.children(range).await?.is_none())
    }

    /// What keeps a range from a round, whatever its tombstones: nodes that are away or not in sync, a move.
    pub(super) fn hindrances(self, layout: &Layout, range: usize) -> Vec<Hindrance> {
        let mut held = Vec::new();
        let nodes = layout.primaries(range, &self.context.node);
        for node in nodes.iter().filter(|_| !mutated(Mutation::ForgetEarly)) {
            match self.context.rank(node) {
                Some(0) => {}
                Some(_) => held.push(("node_not_in_sync", Some(node.to_string()))),
                None => held.push(("node_away", Some(node.to_string()))),
            }
        }
        if layout.placed.move_of(range).is_some() {
            held.push(("copy_moves", None));
        }
        held
    }

    /// The position of a replica up to which it has had everything for long enough to collect it.
    /// `notes`: whether a mark is noted where the last one is old enough.
    pub(in crate::coordinator) async fn aged_up_to(self, own: &OwnReplica, notes: bool) -> Result<u64, ShardError> {
        Ok(match self.tombstone_age() {
            Some(age) if notes => self.marks(own, age).await?.aged,
            Some(age) => self.marks_now(own, read_marks(own).await?, age).aged,
            // The database keeps them, whatever a node says that has yet to hear of it.
            None if self.known.auto_purge().is_some() => 0,
            None => read_marks(own).await?.aged.min(own.replica_position().position),
        })
    }

    /// How old tombstones are when they may be collected; `None`: they never may.
    pub(super) fn tombstone_age(self) -> Option<Duration> {
        self.known.tombstone_age(age(&self.context.config))
    }

    /// What a replica could collect by itself, and, if it is to `list` them, the tombstones of the next round, as far
    /// as those are found in a bounded number of changes. Nothing is noted.
    pub(in crate::coordinator) async fn collectable(
        self,
        own: &OwnReplica,
        list: bool,
    ) -> Result<Collectable, ShardError> {
        let Some(age) = self.tombstone_age() else { return Ok(Collectable::default()) };
        let own = own.in_background();
        let marks = self.marks_now(&own, read_marks(&own).await?, age);
        let (tombstones, upto) = match list && marks.scanned < marks.aged {
            true => aged(&own, marks, limits::COLLECTION_LOOKED_AT).await?,
            false => (Vec::new(), marks.scanned),
        };
        let unread = marks.aged.saturating_sub(marks.scanned);
        Ok(Collectable { keeps_all: false, unread, tombstones, is_all: upto >= marks.aged })
    }

    fn marks_now(self, own: &OwnReplica, stored: Marks, age: Duration) -> Marks {
        let now_ms = u64::try_from(self.context.env.wall().as_millis()).unwrap_or(u64::MAX);
        stored.at(now_ms, own.replica_position().position, age)
    }

    /// The marks of a replica as of now, with a new one where the last one is old enough.
    async fn marks(self, own: &OwnReplica, age: Duration) -> Result<Marks, ShardError> {
        let stored = read_marks(own).await?;
        let marks = self.marks_now(own, stored, age);
        if marks != stored {
            store(own, marks).await?;
        }
        Ok(marks)
    }
}

impl Marks {
    /// They at a time, where the replica stands at a position.
    fn at(self, now_ms: u64, here: u64, age: Duration) -> Marks {
        let mut marks = Marks { aged: self.aged.min(here), scanned: self.scanned.min(here), ..self };
        let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        // What was old enough for a shorter period is yet to be so for a longer one.
        if age_ms > marks.age_ms {
            (marks.aged, marks.age_ms) = (marks.aged.min(marks.scanned), age_ms);
        }
        // A clock that went back, or a position that this disk never reached, say nothing.
        let is_void = marks.at_ms > now_ms || marks.position > here;
        let is_old = !is_void && now_ms - marks.at_ms >= age_ms;
        if is_old {
            (marks.aged, marks.age_ms) = (marks.position, age_ms);
        }
        if is_void || is_old && here > marks.position {
            (marks.position, marks.at_ms) = (here, now_ms);
        }
        marks
    }
}

async fn read_marks(own: &OwnReplica) -> Result<Marks, ShardError> {
    let stored = own.shard.meta_get(NAME).await?;
    let read = |bytes: Vec<u8>| decode(&bytes).map_err(|why| StorageError::Corrupt(format!("marks: {why}")));
    Ok(stored.map(read).transpose()?.unwrap_or_default())
}

async fn store(own: &OwnReplica, marks: Marks) -> Result<(), ShardError> {
    own.shard.meta_put(NAME, Some(encode(&marks).to_vec())).await
}

/// The next tombstones that are old enough and stand alone, as many as make a round and are found in so many changes or
/// a page more; and up to where those are all.
async fn aged(own: &OwnReplica, marks: Marks, mut changes: usize) -> Result<(Vec<Tombstone>, u64), ShardError> {
    let most = fewer("forget: one tombstone at a time", limits::COLLECTION_ROUND);
    let (mut out, mut scanned, mut bytes) = (Vec::new(), marks.scanned, 0);
    while scanned < marks.aged {
        if changes == 0 {
            return Ok((out, scanned));
        }
        changes = changes.saturating_sub(limits::PAGE_ROWS);
        let page = own.shard.changes(scanned, Direction::Forward, limits::PAGE_ROWS).await?;
        let is_end = page.rows.is_empty();
        for row in page.rows {
            if row.seq > marks.aged || out.len() >= most || bytes >= limits::COLLECTION_ROUND_BYTES {
                let end = if row.seq > marks.aged { marks.aged } else { scanned };
                return Ok((out, end));
            }
            scanned = row.seq;
            bytes += row.id.as_str().len();
            out.extend(alone(row));
        }
        if is_end {
            break;
        }
    }
    Ok((out, marks.aged))
}

/// The tombstone that is the only leaf of a document.
fn alone(row: ShardChange) -> Option<Tombstone> {
    let ShardChange { id, mut leaves, .. } = row;
    match leaves.pop() {
        Some((rev, true)) if leaves.is_empty() && !id.is_design() => Some((id, rev)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_millis(100);

    #[test]
    fn what_a_replica_had_at_a_mark_is_old_once_that_is() {
        let marks = Marks::default().at(1000, 5, AGE);
        assert_eq!(marks, Marks { position: 5, at_ms: 1000, aged: 0, age_ms: 100, scanned: 0 });
        assert_eq!(marks.at(1099, 9, AGE), marks);
        let marks = marks.at(1100, 9, AGE);
        assert_eq!(marks, Marks { position: 9, at_ms: 1100, aged: 5, age_ms: 100, scanned: 0 });
        assert_eq!(marks.at(1200, 9, AGE), Marks { aged: 9, ..marks }, "nothing came since");
        let marks = Marks { scanned: 5, ..marks };
        assert_eq!(marks.at(900, 9, AGE), Marks { at_ms: 900, ..marks }, "the clock went back");
        let restored = Marks { position: 3, at_ms: 1150, aged: 3, age_ms: 100, scanned: 3 };
        assert_eq!(marks.at(1150, 3, AGE), restored, "it was at that position never");
    }

    #[test]
    fn what_was_old_enough_for_a_shorter_period_is_not_so_for_a_longer_one() {
        let short = Marks { position: 9, at_ms: 1100, aged: 5, age_ms: 100, scanned: 2 };
        let long = short.at(1150, 9, 10 * AGE);
        assert_eq!(long, Marks { aged: 2, age_ms: 1000, ..short });
        assert_eq!(long.at(2100, 9, 10 * AGE).aged, 9);
        assert_eq!(Marks { aged: 5, ..long }.at(1150, 9, AGE), Marks { aged: 5, ..long }, "and the other way round");
    }
}
