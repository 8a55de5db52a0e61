//! Rebuild of a replica whose store file is damaged, from the other replicas of its range.
//!
//! A common file of many shards stays as it is, for the operator. The file of a single shard is replaced if all other
//! replicas of its range are in reach, in sync and whole. In one commit the range gets a shard of another number on
//! this node, with a mark of the shard that it replaces. Positions are counted anew in it, so that no reader takes its
//! numbers for those of the shard before. Until it is filled, the replica answers neither reads nor writes and is no
//! primary: to other nodes it is out of reach. It applies what they have, purges first, then what can still be read of
//! the damaged file and no other replica has (`recovery`). Then it counts again, and the damaged file is quarantined
//! with a text that says what could not be read.
//!
//! Two replicas of one range are never rebuilt at the same time: a damaged replica, or one that is being filled, tells
//! the others that it is not whole. Where two are damaged neither rebuild begins. Should another replica turn out
//! damaged while this one is filled, and be needed, the range gets the damaged shard back, which answers what can be
//! read of it.
//!
//! What others write while the last of it is applied is not in the replica when it begins to count. So all nodes are
//! told before that this one may lack something, which puts it last in the order of primaries until it has pulled from
//! the others once more. A range that is split before its replica is filled gets two child shards here that are to be
//! filled, each by itself; the damaged file goes when both are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use serde::{Deserialize, Serialize};

use crate::coordinator::anti_entropy::compare;
use crate::coordinator::anti_entropy::recovery::Recovered;
use crate::coordinator::anti_entropy::{RepairOperations, ReplicaRebuild};
use crate::coordinator::replica::calls::Status;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::context::Context;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::{Soundness, StatusReport};
use crate::coordinator::replica::node_calls::CatalogueCall;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::replica_status::ReplicaCounts;
use crate::coordinator::topology::peers::Urgency;
use crate::coordinator::topology::quorum::shared_with_every_majority;
use crate::coordinator::topology::record::{self, MapRecord};
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::{self, ShardError, ShardId, ShardReplica};
use crate::storage::{ShardEngine, StorageError, WriteView};
use crate::world::buggify::{Mutation, mutated, sometimes};

/// What is stored of a replica that is being rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    name: String,
    instance: String,
    range: u32,
    /// The shard whose file is damaged, and the one in its place.
    damaged: u64,
    fresh: u64,
    /// What was found damaged.
    why: String,
    /// Whether it is filled, so that the damaged file may have been put away.
    #[serde(default)]
    ends: bool,
}

/// Why a step waits.
#[derive(Debug)]
pub(in crate::coordinator) struct Waits(pub String);

impl From<ShardError> for Waits {
    fn from(error: ShardError) -> Waits {
        Waits(error.to_string())
    }
}

/// The replicas of this node that are being rebuilt, as it is stored.
async fn stored_marks(context: &Context) -> Result<Vec<Mark>, ShardError> {
    let rows = context.rows(&record::rebuild_prefix()).await?;
    let read = |(_, value): (Vec<u8>, Vec<u8>)| {
        serde_json::from_slice(&value)
            .map_err(|why| StorageError::Corrupt(format!("the mark of a replica that is being rebuilt: {why}")))
    };
    Ok(rows.into_iter().map(read).collect::<Result<_, _>>()?)
}

/// Until the coordinator goes.
pub(in crate::coordinator) async fn keep_rebuilding(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (env, news) = (context.env.clone(), context.storage.damage_news());
    drop(context);
    // Nothing is damaged in memory.
    let Some(mut news) = news else { return };
    loop {
        news.borrow_and_update();
        let Some(coordinator) = weak.upgrade() else { return };
        let run = worker.begin();
        let waiting = coordinator.rebuild_all().await;
        waiting.iter().for_each(|why| worker.failed(why));
        drop(run);
        drop(coordinator);
        if !waiting.is_empty() {
            drop(env.timeout(limits::REBUILD_PAUSE, news.changed()).await);
        } else if news.changed().await.is_err() {
            return;
        }
    }
}

impl Coordinator {
    /// Looks which replicas were being rebuilt when the node stopped. To be called before any replica is opened.
    pub(in crate::coordinator) async fn load_rebuilds(&self) -> Result<(), ShardError> {
        for mark in stored_marks(self.context()).await? {
            self.context().status.rebuilds.begin(mark.fresh, mark.damaged);
        }
        Ok(())
    }

    /// Counts of what is known about the replicas of this node.
    pub fn replica_counts(&self) -> ReplicaCounts {
        self.context().replica_counts()
    }

    /// Damaged store files of single shards that are not replaced yet.
    pub fn damaged_files(&self) -> u64 {
        // A read that had begun before may find the damage of a file that is put away.
        let is_used = |shard: &u64| self.range_of_shard(*shard).is_some();
        let mut damaged: BTreeSet<u64> = self.storage().damaged_shards().into_keys().filter(is_used).collect();
        self.context().status.rebuilds.change(|filling| damaged.extend(filling.values()));
        damaged.len() as u64
    }

    /// Goes on with replicas that are being rebuilt, and begins with those that are damaged. Answers why some wait.
    pub(in crate::coordinator) async fn rebuild_all(&self) -> Vec<String> {
        if mutated(Mutation::DamageStays) {
            return Vec::new();
        }
        let mut waiting = self.rebuild_begun().await;
        waiting.extend(self.rebuild_late().await);
        waiting
    }

    /// As [`Coordinator::rebuild_all`], up to where the replicas count again.
    pub(in crate::coordinator) async fn rebuild_begun(&self) -> Vec<String> {
        let mut waiting = Vec::new();
        for (shard, why) in self.storage().damaged_shards() {
            if let Err(Waits(why)) = self.begin_rebuild(shard, &why).await {
                self.context().status.rebuilds.tell(shard, &why);
                waiting.push(format!("shard {shard}: {why}"));
            }
        }
        let mut by_file: BTreeMap<u64, Vec<Mark>> = BTreeMap::new();
        match stored_marks(self.context()).await {
            Ok(marks) => marks.into_iter().for_each(|mark| by_file.entry(mark.damaged).or_default().push(mark)),
            Err(error) => {
                tracing::warn!(%error, "replicas are not rebuilt yet");
                waiting.push(error.to_string());
            }
        }
        for (shard, marks) in by_file {
            if let Err(Waits(why)) = self.rebuild(&marks).await {
                tracing::info!(
                    database = marks[0].name,
                    range = marks[0].range,
                    shard,
                    why,
                    "a replica is not filled yet"
                );
                waiting.push(format!("{}, range {}: {why}", marks[0].name, marks[0].range));
            }
        }
        waiting
    }

    /// The range whose replica here has that shard.
    fn range_of_shard(&self, shard: u64) -> Option<(Arc<Database>, usize)> {
        self.all_known().into_iter().find_map(|(name, known)| {
            let range = known.placed().shards.iter().position(|held| *held == shard)?;
            Some((self.database(&name).ok()?, range))
        })
    }

    /// Gives the range of a damaged shard another one, unless there is nothing to fill it from, ever.
    pub(in crate::coordinator) async fn begin_rebuild(&self, damaged: u64, why: &str) -> Result<(), Waits> {
        let context = self.context();
        let Some((database, range)) = self.range_of_shard(damaged) else { return Ok(()) };
        let layout = database.layout();
        if let Some(mark) = stored_marks(context).await?.into_iter().find(|mark| mark.fresh == damaged) {
            // Nothing is in it that is not elsewhere: another one is filled in its stead.
            let fresh = database.replica_rebuild().fresh_shards(1).await?;
            return Ok(database
                .replica_rebuild()
                .put_unfilled((range, damaged), vec![Mark { fresh: fresh[0], ..mark }], None)
                .await?);
        }
        if layout.is_alone(range) {
            context.status.rebuilds.tell(damaged, "there is no other replica of its range");
            return Ok(());
        }
        database.replica_rebuild().check_others(&layout, range).await?;
        let fresh = database.replica_rebuild().fresh_shards(1).await?;
        let mark = database.replica_rebuild().mark(range, (damaged, fresh[0]), why);
        database.replica_rebuild().put_unfilled((range, damaged), vec![mark], None).await?;
        tracing::warn!(database = database.name, range, why, "a replica with a damaged store file is rebuilt");
        Ok(())
    }

    /// Fills the replicas that take the place of one, applies what is left of that, and puts its file away.
    async fn rebuild(&self, marks: &[Mark]) -> Result<(), Waits> {
        // Invariant: they are of one replica.
        let first = marks.first().expect("a mark");
        let database = self.database(&first.name).ok().filter(|database| database.instance() == first.instance);
        let there: Vec<&Mark> = marks.iter().filter(|mark| mark.is_held(database.as_ref())).collect();
        let recovered = match &database {
            Some(database) if !there.is_empty() => match database.replica_rebuild().rebuild_all(&there).await {
                Ok(recovered) => Some(recovered),
                Err(why) if marks.len() == 1 && !first.ends => {
                    return database.replica_rebuild().give_back(first, why).await;
                }
                Err(why) => return Err(why),
            },
            _ => None,
        };
        let ended = async {
            self.step_back(&there).await?;
            self.end_rebuild(database.as_ref(), (marks, &there), recovered.as_ref()).await
        };
        let ended = ended.await;
        if ended.is_err() {
            let mut late = self.context().status.rebuilds.late();
            there.iter().for_each(|mark| drop(late.remove(&mark.fresh)));
            drop(late);
            self.tell_state();
        }
        ended?;
        // The others may lack what was left in the file.
        self.context().lagging(&first.name);
        Ok(())
    }

    /// Has the nodes that are there know that replicas here may lack something, before they count again.
    async fn step_back(&self, marks: &[&Mark]) -> Result<(), Waits> {
        let context = self.context();
        if marks.is_empty() {
            return Ok(());
        }
        let late = marks.iter().map(|mark| (mark.fresh, (mark.name.clone(), mark.range as usize)));
        context.status.rebuilds.late().extend(late);
        let up: Vec<Arc<str>> = context.others().into_iter().filter(|node| context.peers.is_up(node)).collect();
        let state = CatalogueCall::State(context.own_state());
        let mut answers = context.tell_all(&up, &state, Urgency::Foreground);
        while let Some((node, answer)) = answers.recv().await {
            if let (Err(error), true) = (answer, context.peers.is_up(&node)) {
                return Err(Waits(format!("{node} was not told of a replica that counts again: {error:?}")));
            }
        }
        Ok(())
    }

    /// Puts a damaged file away; the replicas in its place count from then on.
    async fn end_rebuild(
        &self,
        database: Option<&Arc<Database>>,
        (marks, there): (&[Mark], &[&Mark]),
        recovered: Option<&Recovered>,
    ) -> Result<(), Waits> {
        let (context, damaged) = (self.context(), marks[0].damaged);
        // No split comes between.
        let _alone = match database {
            Some(database) => Some(database.following.lock().await),
            None => None,
        };
        if !there.iter().all(|mark| mark.is_held(database)) {
            return Err(Waits("the range was split or moved meanwhile".to_owned()));
        }
        let ending: Vec<Mark> = marks.iter().map(|mark| Mark { ends: true, ..mark.clone() }).collect();
        let job = move |view: &mut WriteView<'_>| {
            ending.iter().for_each(|mark| mark.put(view));
            Ok(Ok::<(), ShardError>(()))
        };
        context.storage.committer().submit(job).await.map_err(ShardError::from)??;
        let text = told(marks, recovered, context.env.wall().as_secs());
        let quarantined = context.storage.quarantine(damaged, text).await.map_err(ShardError::from)?;
        let (fresh, owner): (Vec<u64>, _) = (marks.iter().map(|mark| mark.fresh).collect(), Arc::clone(context));
        let job = move |view: &mut WriteView<'_>| {
            fresh.iter().for_each(|fresh| view.delete(record::rebuild_key(*fresh)));
            view.put(record::drop_key(damaged), Vec::new());
            view.after_commit(move || fresh.iter().for_each(|fresh| owner.status.rebuilds.end(*fresh)));
            Ok(Ok::<(), ShardError>(()))
        };
        context.storage.committer().submit(job).await.map_err(ShardError::from)??;
        let Recovered { taken, lost, told } = recovered.cloned().unwrap_or_default();
        context.storage.damage().note_replaced(lost);
        let Mark { name, range, .. } = &marks[0];
        tracing::warn!(database = name, range, quarantined, taken, lost, ?told, "a replica was rebuilt");
        sometimes("cluster: a damaged replica was rebuilt");
        self.drop_shards_later();
        Ok(())
    }

    /// Applies what was written while replicas were filled that count again; answers why some wait.
    pub(in crate::coordinator) async fn rebuild_late(&self) -> Vec<String> {
        let (context, mut waiting) = (self.context(), Vec::new());
        let late: Vec<(u64, (String, usize))> =
            context.status.rebuilds.late().iter().map(|(fresh, of)| (*fresh, of.clone())).collect();
        for (fresh, (name, range)) in late {
            let held = |database: &Arc<Database>| database.layout().placed.shard(range) == Some(fresh);
            let done = match self.database(&name).ok().filter(held) {
                Some(database) => database.replica_rebuild().pull_once_more(range).await,
                None => Ok(()),
            };
            match done {
                Ok(()) => {
                    context.status.rebuilds.late().remove(&fresh);
                    self.tell_state();
                }
                Err(error) => {
                    tracing::info!(database = name, range, %error, "a replica that was rebuilt is not in sync yet");
                    waiting.push(format!("{name}, range {range}: {error}"));
                }
            }
        }
        waiting
    }
}

impl Mark {
    fn put(&self, view: &mut WriteView<'_>) {
        // Invariant: a mark holds numbers and texts only, which always serialize.
        view.put(record::rebuild_key(self.fresh), serde_json::to_vec(self).expect("a mark serializes"));
    }

    /// Whether the replica that is to be filled is the one of its range.
    fn is_held(&self, database: Option<&Arc<Database>>) -> bool {
        database.is_some_and(|database| database.layout().placed.shard(self.range as usize) == Some(self.fresh))
    }
}

/// The text that lies beside a file that was put away.
fn told(marks: &[Mark], recovered: Option<&Recovered>, now_s: u64) -> String {
    let mut text = format!("A damaged store file, put away at {now_s} s after 1970.\n");
    for Mark { name, range, damaged, fresh, why, .. } in marks {
        text.push_str(&format!(
            "Database {name:?}, range {range}, shard {damaged}; shard {fresh} was made from the other replicas.\n\
             Found: {why}\n"
        ));
    }
    match recovered {
        None => text.push_str("The database or the replica is gone: nothing was taken out of the file.\n"),
        Some(Recovered { taken, lost, told }) => {
            text.push_str(&format!("Revisions that were here only and are in the new replica: {taken}\n"));
            text.push_str(&format!("What could not be taken out of it: {lost}\n"));
            told.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
        }
    }
    text
}

impl ReplicaRebuild<'_> {
    /// The nodes of the other replicas of a range.
    pub(in crate::coordinator) fn others_of(self, layout: &Layout, range: usize) -> Vec<Arc<str>> {
        let nodes = layout.placed.nodes(range, &self.context.node);
        nodes.iter().filter(|node| **node != self.context.node).cloned().collect()
    }

    fn mark(self, range: usize, (damaged, fresh): (u64, u64), why: &str) -> Mark {
        let (name, instance) = (self.name.clone(), self.instance().to_owned());
        Mark { name, instance, range: range as u32, damaged, fresh, why: why.to_owned(), ends: false }
    }

    async fn fresh_shards(self, count: u64) -> Result<Vec<u64>, ShardError> {
        let engine = self.known.engine.as_deref().and_then(ShardEngine::by_name).unwrap_or_default();
        let fresh = shard::allocate_in(&self.context.storage, engine, count).await?;
        Ok(fresh.into_iter().map(|shard| shard.0).collect())
    }

    /// Puts shards that are to be filled in the place of the shard `now` of a range: one, or with a map that splits the
    /// range two for its halves.
    async fn put_unfilled(
        self,
        (range, now): (usize, u64),
        marks: Vec<Mark>,
        split: Option<MapRecord>,
    ) -> Result<(), ShardError> {
        let (layout, owner) = (self.layout(), Arc::clone(&self.context));
        let is_damaged = marks.iter().any(|mark| mark.damaged == now);
        self.write_record(move |record, view| {
            let is_same = record.version == layout.placed.version && record.shards.get(range) == Some(&now);
            let has_children = record.children.iter().any(|children| children.range as usize == range);
            if !is_same || has_children || record.is_split(range) {
                return Err(ShardError::NotExecuted("the range is being divided, or moves".to_owned()));
            }
            match split {
                None => record.shards[range] = marks[0].fresh,
                Some(places) => {
                    record.shards[range] = 0;
                    record.shards.extend(marks.iter().map(|mark| mark.fresh));
                    record.set_places(places);
                }
            }
            marks.iter().for_each(|mark| mark.put(view));
            if !is_damaged {
                view.delete(record::rebuild_key(now));
                view.put(record::drop_key(now), Vec::new());
            }
            // Writes that are queued behind this find it.
            if let Some(replica) = layout.cell(range).get() {
                replica.shard.quarantine();
            }
            // Before anybody sees the new shards.
            view.after_commit(move || {
                marks.iter().for_each(|mark| owner.status.rebuilds.begin(mark.fresh, mark.damaged))
            });
            Ok(())
        })
        .await?;
        if !is_damaged {
            self.context.status.rebuilds.end(now);
            self.drop_shards_later();
        }
        Ok(())
    }

    fn drop_shards_later(self) {
        let context = Arc::clone(&self.context);
        self.context.env.spawn(async move { context.drop_shards().await });
    }

    /// Whether this node's replica of a range is being rebuilt, or is to be.
    pub(in crate::coordinator) fn is_unsound(self, range: usize) -> bool {
        let (layout, context) = (self.layout(), &self.context);
        let is_unsound =
            |shard| context.status.rebuilds.is_filling(shard) || context.storage.damaged_shards().contains_key(&shard);
        !layout.is_alone(range) && layout.placed.shard(range).is_some_and(is_unsound)
    }

    /// Goes over to a map that splits a range of which the replica here is not filled yet, or damaged and to be rebuilt
    /// at this moment: the halves are to be filled. `last` is the map that the other nodes have gone over to.
    pub(in crate::coordinator) async fn divide_unfilled(
        self,
        range: usize,
        split: MapRecord,
        last: &MapRecord,
    ) -> Result<(), ShardError> {
        let layout = self.layout();
        let now = layout.placed.shard(range).ok_or(ShardError::Moved)?;
        let numbers = layout.map.numbers();
        let begun = stored_marks(&self.context).await?.into_iter().find(|mark| mark.fresh == now);
        let whole = match begun {
            Some(mark) => mark,
            None => {
                let found = self.context.storage.damaged_shards().remove(&now);
                let why = found.ok_or_else(|| ShardError::NotExecuted("the replica is damaged".to_owned()))?;
                let first = numbers - 2 * layout.placed.splits.len();
                for half in parts_of(range, first, &last.splits) {
                    let nodes = last.by_range.as_ref().map_or(&[][..], |by_range| &by_range[half]);
                    let nodes: Vec<Arc<str>> = nodes.iter().map(|node| node.as_str().into()).collect();
                    self.check_whole(half, nodes).await.map_err(|Waits(why)| ShardError::NotExecuted(why))?;
                }
                self.mark(range, (now, 0), &why)
            }
        };
        let halves = self.fresh_shards(2).await?.into_iter().enumerate();
        let half = |(half, fresh)| Mark { range: (numbers + half) as u32, fresh, ..whole.clone() };
        let marks = halves.map(half).collect();
        self.put_unfilled((range, now), marks, Some(split)).await?;
        tracing::warn!(database = self.name, range, "a range was split before its replica here was rebuilt");
        Ok(())
    }

    /// Gives a range its damaged shard back, where another replica is not whole by now without which the new one cannot
    /// be filled.
    async fn give_back(self, mark: &Mark, why: Waits) -> Result<(), Waits> {
        let (layout, range) = (self.layout(), mark.range as usize);
        let mut unsound = None;
        for node in self.others_of(&layout, range).into_iter().filter(|node| !self.context.is_gone(node)) {
            if matches!(self.pulls().pull_readable(range, &node).await, Ok(false)) {
                unsound = Some(node);
            }
        }
        let Some(node) = unsound else { return Err(why) };
        let (fresh, damaged) = (mark.fresh, mark.damaged);
        let own = layout.cell(range).get().cloned();
        self.write_record(move |record, view| {
            if record.shards.get(range) != Some(&fresh) || record.is_split(range) {
                return Err(ShardError::Moved);
            }
            record.shards[range] = damaged;
            view.delete(record::rebuild_key(fresh));
            view.put(record::drop_key(fresh), Vec::new());
            Ok(())
        })
        .await?;
        // Only now nobody takes it for the replica any more.
        self.context.status.rebuilds.end(fresh);
        own.iter().for_each(|own| own.shard.leave());
        self.drop_shards_later();
        Err(Waits(format!("the replica of {node} is not whole either: the damaged one is back in its place")))
    }

    /// Applies once more what the replicas on the nodes that are there have, as far as they can be read.
    async fn pull_once_more(self, range: usize) -> Result<(), ShardError> {
        for node in self.others_of(&self.layout(), range) {
            match self.pulls().pull_readable(range, &node).await {
                Err(error) if self.context.rank(&node).is_some() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails unless every other replica of a range is there, in sync, and whole, and none is on its way.
    async fn check_others(self, layout: &Layout, range: usize) -> Result<(), Waits> {
        let is_counted = layout.placed.nodes(range, &self.context.node).contains(&self.context.node);
        if !is_counted || !layout.map.is_live(range) || layout.placed.move_of(range).is_some() {
            return Err(Waits("a replica of the range is on its way".to_owned()));
        }
        self.check_whole(range, self.others_of(layout, range)).await
    }

    /// Fails unless the replicas of a range on other nodes are there, in sync, and whole.
    async fn check_whole(self, range: usize, nodes: Vec<Arc<str>>) -> Result<(), Waits> {
        for node in nodes.into_iter().filter(|node| *node != self.context.node) {
            if self.context.rank(&node) != Some(0) {
                return Err(Waits(format!("{node} is away or not in sync")));
            }
            let status = RemoteReplica::new(&self.target, range, &node).in_background().ask(Status).await;
            let soundness = status.map_err(|error| Waits(format!("{node} does not say how it stands: {error}")))?;
            if soundness.soundness != Some(Soundness::Whole) {
                return Err(Waits(format!("the replica of {node} is not whole either")));
            }
        }
        Ok(())
    }

    /// Fills this node's replicas that take the place of one, and applies what is left of that.
    async fn rebuild_all(self, marks: &[&Mark]) -> Result<Recovered, Waits> {
        let mut all = Recovered::default();
        for mark in marks {
            all.add(self.rebuild(mark.range as usize, ShardId(mark.damaged)).await?);
        }
        // What was written meanwhile.
        for mark in marks {
            self.pull_from_others(mark.range as usize).await?;
        }
        Ok(all)
    }

    async fn rebuild(self, range: usize, before: ShardId) -> Result<Recovered, Waits> {
        self.pull_from_others(range).await?;
        let own = self.replicas().own_replica_to_fill(&self.layout(), range).await?.ok_or(ShardError::Moved)?;
        let remains = ShardReplica::of_remains(&self.context.storage, before).in_background();
        Ok(self.recover(range, &remains, &own).await?)
    }

    /// Applies what so many other replicas have that everything that a majority holds is among it.
    async fn pull_from_others(self, range: usize) -> Result<(), Waits> {
        let layout = self.layout();
        let (mut there, mut whole, mut failed) = (0, 0, String::new());
        let mut others = self.others_of(&layout, range);
        // From those in sync this one hears of what was purged, before it reads one that may have been restored from a
        // backup.
        others.sort_by_key(|node| self.context.rank(node).unwrap_or(u8::MAX));
        for node in others.iter().filter(|node| !self.context.is_gone(node)) {
            there += 1;
            match self.pulls().pull_replica(range, node).await {
                Ok(()) => whole += 1,
                Err(error) => failed = format!("{node}: {error}"),
            }
        }
        // Where fewer are left nothing more is to be had, and where none is left only what the damaged file tells.
        let needed = shared_with_every_majority(layout.placed.replicas(range) as u32).min(there);
        match whole >= needed {
            true => Ok(()),
            false => Err(Waits(format!("{whole} of {needed} replicas are here; {failed}"))),
        }
    }

    /// What this node's replica of a range says of itself to a node: also where it is damaged, or not filled yet, so
    /// that the other one goes on without.
    pub(in crate::coordinator) async fn told_status(
        self,
        layout: &Layout,
        range: usize,
        node: &str,
    ) -> Result<StatusReport, ShardError> {
        let shard = layout.placed.shard(range).unwrap_or_default();
        if self.context.status.rebuilds.is_filling(shard) {
            return Ok(StatusReport::unusable());
        }
        let status = async {
            let held = self.replicas().own_replica_by(layout, range).await?;
            let replica = held.ok_or_else(|| ShardError::NotExecuted("this node holds no replica".to_owned()))?;
            compare::status(&replica.in_background(), node).await
        };
        let soundness = || match self.context.storage.damaged_shards().contains_key(&shard) {
            true => Soundness::Damaged,
            false => Soundness::Whole,
        };
        match status.await {
            Err(error) if error.is_damage_here() => Ok(StatusReport::unusable()),
            status => Ok(StatusReport { soundness: Some(soundness()), ..status? }),
        }
    }
}

/// The ranges that a range was split into.
fn parts_of(range: usize, first: usize, splits: &[u32]) -> Vec<usize> {
    let (mut open, mut parts) = (vec![range], Vec::new());
    while let Some(range) = open.pop() {
        match splits.iter().position(|split| *split as usize == range) {
            // The halves of the first range that was split have the first numbers behind those that the map began with.
            Some(at) => open.extend([first + 2 * at, first + 2 * at + 1]),
            None => parts.push(range),
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_range_that_was_split_again() {
        assert_eq!(parts_of(1, 2, &[]), [1]);
        assert_eq!(parts_of(1, 2, &[1, 0, 2]), [3, 7, 6]);
        assert_eq!(parts_of(0, 2, &[1, 0, 2]), [5, 4]);
    }
}
