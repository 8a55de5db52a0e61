//! A copy whose store file is damaged is made anew from the others.
//!
//! A file of many shards stays, for whoever runs the node; one of a single shard is replaced, if all other copies of
//! its range are there, in step, and whole. In one commit the range gets a shard of another number here, with a mark of
//! what it replaces. Positions are counted anew in it, so that no reader takes its numbers for those of before. Until
//! it is filled the copy answers nobody, neither reads nor writes nor judges: to the others it is one that is away.
//! It takes in what they have, their purges first, then what can still be read of the damaged file and nobody else has
//! (`salvage`). Then it counts, and the file is put away, with a text that says what could not be read.
//!
//! Two copies of one range are never made anew at a time: whoever asks hears of a damaged copy, and of one that is
//! being filled, that it is not whole. Where two are damaged neither begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::compare;
use crate::coordinator::database::Database;
use crate::coordinator::layout::Layout;
use crate::coordinator::message::{CopyStatus, Soundness};
use crate::coordinator::quorum::shared_with_every_majority;
use crate::coordinator::record;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::salvage::Salvaged;
use crate::limits;
use crate::shard::{self, ShardCopy, ShardError, ShardId};
use crate::storage::{ShardEngine, StorageError, WriteView};
use crate::world::buggify::{Mutation, mutated, sometimes};

/// The copies of this node that are made anew.
#[derive(Default)]
pub(super) struct Refills {
    /// Whether there are any: most nodes have none, and each call of a copy asks.
    any: AtomicBool,
    /// The shards that are not filled yet, with the damaged ones. A blocking lock: held for map operations only.
    filling: Mutex<BTreeMap<u64, u64>>,
    /// Why damaged copies are not made anew, as far as it was told. A blocking lock, as above.
    told: Mutex<BTreeMap<u64, String>>,
}

impl Refills {
    /// Whether the copy with that shard is not filled yet.
    pub fn is_filling(&self, shard: u64) -> bool {
        self.any.load(Ordering::SeqCst) && self.change(|filling| filling.contains_key(&shard))
    }

    fn begin(&self, shard: u64, damaged: u64) {
        self.change(|filling| filling.insert(shard, damaged));
    }

    fn end(&self, shard: u64) {
        self.change(|filling| filling.remove(&shard));
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> T {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let done = change(&mut filling);
        self.any.store(!filling.is_empty(), Ordering::SeqCst);
        done
    }

    /// Tells once why a damaged copy is not made anew.
    fn tell(&self, shard: u64, why: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.get(&shard).is_none_or(|before| before != why) {
            tracing::error!(shard, why, "a damaged copy is not made anew");
            told.insert(shard, why.to_owned());
        }
    }
}

/// What is stored of a copy that is being made anew.
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
}

/// Why a step waits.
struct Waits(String);

impl From<ShardError> for Waits {
    fn from(error: ShardError) -> Waits {
        Waits(error.to_string())
    }
}

/// Until the coordinator goes.
pub(super) async fn keep_refilling(weak: Weak<Coordinator>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    let (env, news) = (context.env.clone(), context.storage.damage_news());
    drop(context);
    // Nothing is damaged in memory.
    let Some(mut news) = news else { return };
    loop {
        news.borrow_and_update();
        let Some(coordinator) = weak.upgrade() else { return };
        let waits = coordinator.refill_all().await;
        drop(coordinator);
        match waits {
            true => drop(env.timeout(limits::REFILL_PAUSE, news.changed()).await),
            false => {
                if news.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

impl Coordinator {
    /// Looks which copies were being made anew when the node stopped. To be called before any copy is opened.
    pub(super) async fn load_refills(&self) -> Result<(), ShardError> {
        for mark in self.refill_marks().await? {
            self.context().refills.begin(mark.fresh, mark.damaged);
        }
        Ok(())
    }

    /// Damaged store files of single shards that are not replaced yet.
    pub fn damaged_files(&self) -> u64 {
        // A read that had begun before may find the damage of a file that is put away.
        let is_used = |shard: &u64| self.range_of_shard(*shard).is_some();
        let mut damaged: BTreeSet<u64> = self.storage().damaged_shards().into_keys().filter(is_used).collect();
        self.context().refills.change(|filling| damaged.extend(filling.values()));
        damaged.len() as u64
    }

    async fn refill_marks(&self) -> Result<Vec<Mark>, ShardError> {
        let rows = self.context().rows(&record::refill_prefix()).await?;
        let read = |(_, value): (Vec<u8>, Vec<u8>)| {
            serde_json::from_slice(&value)
                .map_err(|why| StorageError::Corrupt(format!("the mark of a copy that is made anew: {why}")))
        };
        Ok(rows.into_iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Goes on with copies that are being made anew, and begins with those that are damaged. Answers whether some wait.
    pub(super) async fn refill_all(&self) -> bool {
        if mutated(Mutation::DamageStays) {
            return false;
        }
        let (mut waits, mut marks) = (false, Vec::new());
        match self.refill_marks().await {
            Ok(begun) => marks.extend(begun),
            Err(error) => {
                tracing::warn!(%error, "copies are not made anew yet");
                waits = true;
            }
        }
        for (shard, why) in self.storage().damaged_shards() {
            match self.begin_refill(shard, &why).await {
                Ok(begun) => marks.extend(begun),
                Err(Waits(why)) => {
                    self.context().refills.tell(shard, &why);
                    waits = true;
                }
            }
        }
        for mark in marks {
            if let Err(Waits(why)) = self.refill(&mark).await {
                tracing::info!(database = mark.name, range = mark.range, why, "a copy is not filled yet");
                waits = true;
            }
        }
        waits
    }

    /// The range whose copy here has that shard.
    fn range_of_shard(&self, shard: u64) -> Option<(Arc<Database>, usize)> {
        self.all_known().into_iter().find_map(|(name, known)| {
            let range = known.placed().shards.iter().position(|held| *held == shard)?;
            Some((self.database(&name).ok()?, range))
        })
    }

    /// Gives the range of a damaged shard another one; `None` where there is nothing to fill it from, ever.
    async fn begin_refill(&self, damaged: u64, why: &str) -> Result<Option<Mark>, Waits> {
        let context = self.context();
        let Some((database, range)) = self.range_of_shard(damaged) else { return Ok(None) };
        let layout = database.layout();
        if layout.is_alone(range) {
            context.refills.tell(damaged, "there is no other copy of its range");
            return Ok(None);
        }
        database.check_others(&layout, range).await?;
        let engine = database.known.engine.as_deref().and_then(ShardEngine::by_name).unwrap_or_default();
        let fresh = shard::allocate_in(&context.storage, engine, 1).await?;
        let fresh = fresh.first().map(|shard| shard.0).ok_or_else(|| Waits("there is no number".to_owned()))?;
        let (name, instance) = (database.name.clone(), database.instance().to_owned());
        let mark = Mark { name, instance, range: range as u32, damaged, fresh, why: why.to_owned() };
        let (kept, owner) = (mark.clone(), Arc::clone(context));
        database
            .write_record(move |record, view| {
                let is_same = record.version == layout.placed.version && record.shards.get(range) == Some(&damaged);
                if !is_same || record.heirs.iter().any(|heirs| heirs.range as usize == range) {
                    return Err(ShardError::Away("the range is being divided, or moves".to_owned()));
                }
                record.shards[range] = fresh;
                // Invariant: a mark holds numbers and texts only, which always serialize.
                view.put(record::refill_key(fresh), serde_json::to_vec(&kept).expect("a mark serializes"));
                // Writes that are queued behind this find it.
                if let Some(copy) = layout.cell(range).get() {
                    copy.shard.park();
                }
                // Before anybody sees the new shard.
                view.after_commit(move || owner.refills.begin(fresh, damaged));
                Ok(())
            })
            .await?;
        tracing::warn!(database = mark.name, range, why, "a copy with a damaged store file is made anew");
        Ok(Some(mark))
    }

    /// Fills a copy, takes in what is left of the one before, and puts the file of that away.
    async fn refill(&self, mark: &Mark) -> Result<(), Waits> {
        let (context, range) = (self.context(), mark.range as usize);
        let is_there = |database: &Arc<Database>| {
            database.instance() == mark.instance && database.layout().placed.shard(range) == Some(mark.fresh)
        };
        let salvaged = match self.database(&mark.name).ok().filter(is_there) {
            Some(database) => Some(database.refill(range, ShardId(mark.damaged)).await?),
            None => None,
        };
        let text = mark.told(salvaged.as_ref(), context.env.wall().as_secs());
        let parked = context.storage.park(mark.damaged, text).await.map_err(ShardError::from)?;
        let (fresh, damaged, owner) = (mark.fresh, mark.damaged, Arc::clone(context));
        let job = move |view: &mut WriteView<'_>| {
            view.delete(record::refill_key(fresh));
            view.put(record::drop_key(damaged), Vec::new());
            view.after_commit(move || owner.refills.end(fresh));
            Ok(Ok::<(), ShardError>(()))
        };
        context.storage.committer().submit(job).await.map_err(ShardError::from)??;
        let Salvaged { taken, lost, told } = salvaged.unwrap_or_default();
        context.storage.damage().note_replaced(lost);
        tracing::warn!(database = mark.name, range, parked, taken, lost, ?told, "a copy was made anew");
        sometimes("cluster: a damaged copy was made anew");
        self.drop_shards_later();
        // The others may lack what was left in the file, and this one what was written since.
        context.missed(&mark.name);
        Ok(())
    }
}

impl Mark {
    /// The text that lies beside a file that was put away.
    fn told(&self, salvaged: Option<&Salvaged>, now_s: u64) -> String {
        let Mark { name, range, damaged, fresh, why, .. } = self;
        let mut text = format!(
            "A damaged store file, put away at {now_s} s after 1970.\n\
             Database {name:?}, range {range}, shard {damaged}; shard {fresh} was made from the other copies.\n\
             Found: {why}\n"
        );
        match salvaged {
            None => text.push_str("The database or the copy is gone: nothing was taken out of the file.\n"),
            Some(Salvaged { taken, lost, told }) => {
                text.push_str(&format!("Revisions that were here only and are in the new copy: {taken}\n"));
                text.push_str(&format!("What could not be taken out of it: {lost}\n"));
                told.iter().for_each(|line| text.push_str(&format!("- {line}\n")));
            }
        }
        text
    }
}

impl Database {
    /// The nodes of the other copies of a range.
    pub(super) fn others_of(&self, layout: &Layout, range: usize) -> Vec<Arc<str>> {
        let nodes = layout.placed.nodes(range, &self.context.node);
        nodes.iter().filter(|node| **node != self.context.node).cloned().collect()
    }

    /// Fails unless every other copy of a range is there, in step, and whole, and none is on its way.
    async fn check_others(&self, layout: &Layout, range: usize) -> Result<(), Waits> {
        let is_counted = layout.placed.nodes(range, &self.context.node).contains(&self.context.node);
        if !is_counted || !layout.map.is_live(range) || layout.placed.move_of(range).is_some() {
            return Err(Waits("a copy of the range is on its way".to_owned()));
        }
        for node in self.others_of(layout, range) {
            if self.context.rank(&node) != Some(0) {
                return Err(Waits(format!("{node} is away or not in step")));
            }
            let status = RemoteCopy::new(&self.target, range, &node).in_background().status().await;
            let soundness = status.map_err(|error| Waits(format!("{node} does not say how it stands: {error}")))?;
            if soundness.soundness != Some(Soundness::Whole) {
                return Err(Waits(format!("the copy of {node} is not whole either")));
            }
        }
        Ok(())
    }

    /// Fills this node's copy of a range, and takes in what is left of the one before.
    async fn refill(&self, range: usize, before: ShardId) -> Result<Salvaged, Waits> {
        self.take_in_others(range).await?;
        let own = self.own_copy_to_fill(&self.layout(), range).await?.ok_or(ShardError::Moved)?;
        let remains = ShardCopy::of_remains(&self.context.storage, before).in_background();
        let salvaged = self.salvage(range, &remains, &own).await?;
        // What was written meanwhile.
        self.take_in_others(range).await?;
        Ok(salvaged)
    }

    /// Takes in what so many other copies have that everything that a majority holds is among it.
    async fn take_in_others(&self, range: usize) -> Result<(), Waits> {
        let layout = self.layout();
        let (mut there, mut whole, mut failed) = (0, 0, String::new());
        for node in self.others_of(&layout, range).iter().filter(|node| !self.context.is_gone(node)) {
            there += 1;
            match self.pull_copy(range, node).await {
                Ok(()) => whole += 1,
                Err(error) => failed = format!("{node}: {error}"),
            }
        }
        let needed = shared_with_every_majority(layout.placed.copies(range) as u32).min(there).max(1);
        match whole >= needed {
            true => Ok(()),
            false => Err(Waits(format!("{whole} of {needed} copies are here; {failed}"))),
        }
    }

    /// What this node's copy of a range says of itself to a node: also where it is damaged, or not filled yet, so that
    /// the other one goes on without.
    pub(super) async fn told_status(
        &self,
        layout: &Layout,
        range: usize,
        node: &str,
    ) -> Result<CopyStatus, ShardError> {
        let shard = layout.placed.shard(range).unwrap_or_default();
        if self.context.refills.is_filling(shard) {
            return Ok(CopyStatus::unusable());
        }
        let status = async {
            let held = self.own_copy_by(layout, range).await?;
            let copy = held.ok_or_else(|| ShardError::Away("this node holds no copy".to_owned()))?;
            compare::status(&copy.in_background(), node).await
        };
        let soundness = || match self.context.storage.damaged_shards().contains_key(&shard) {
            true => Soundness::Damaged,
            false => Soundness::Whole,
        };
        match status.await {
            Err(error) if error.is_damage_here() => Ok(CopyStatus::unusable()),
            status => Ok(CopyStatus { soundness: Some(soundness()), ..status? }),
        }
    }
}
