//! Moves of replicas from one node to another.
//!
//! A move is two or three versions of the map (`joint`). First the new node is named beside the old ones: writes go to
//! it, too, and count in the old and in the new set. It fills its replica from the others and, when it has all of them,
//! takes the place of the old one, which from then on takes no writes. When it has applied what the old replica still
//! had, the old replica is removed. The node that gets a replica drives its move, and continues it after a restart;
//! where no node gets one, the first of those that stay drives it. No move waits for a node that was removed from the
//! cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::coordinator::anti_entropy::RepairOperations;
use crate::coordinator::consensus::agreement::MapError;
use crate::coordinator::consensus::gossip::LearnError;
use crate::coordinator::rebalance::{OwnReplicas, RebalanceOperations};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::node_calls::{CatalogueCall, DatabaseMap};
use crate::coordinator::topology::quorum::shared_with_every_majority;
use crate::coordinator::topology::record::{MapRecord, Move};
use crate::limits;
use crate::observe::workers::Worker;
use crate::shard::ShardError;
use crate::world::buggify::sometimes;

/// A change of the nodes of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRequest {
    /// The database.
    pub db: String,
    /// The number of the range.
    pub(in crate::coordinator) number: usize,
    /// The range, as `_shards` shows it.
    pub range: String,
    /// The node whose replica goes.
    pub from: Option<String>,
    /// The node that gets one.
    pub to: Option<String>,
}

/// Where the replicas of a database are to be, as an administrator edits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapEdit {
    /// The version of the map that was edited.
    pub version: u64,
    /// The nodes of each range, which is named as `_shards` shows it.
    pub replicas: BTreeMap<String, BTreeSet<String>>,
    /// The ranges whose moves go on, others are called off; `None`: all.
    pub moves: Option<BTreeSet<String>>,
}

/// A move of which this node takes the next step.
struct OwnMove {
    database: Arc<Database>,
    moved: Move,
    /// Whether it goes on; else it is called off.
    goes_on: bool,
}

/// Names a move: the instance of its database, and its range, of which one replica moves at a time.
type MoveKey = (String, u32);

impl OwnMove {
    fn key(&self) -> MoveKey {
        (self.database.instance().to_owned(), self.moved.range)
    }
}

/// Why a step of a move waits. Carries what for.
struct Waits(String);

impl From<ShardError> for Waits {
    fn from(error: ShardError) -> Waits {
        Waits(error.to_string())
    }
}

impl From<MapError> for Waits {
    fn from(error: MapError) -> Waits {
        Waits(format!("{error:?}"))
    }
}

impl From<LearnError> for Waits {
    fn from(error: LearnError) -> Waits {
        Waits(error.to_string())
    }
}

impl OwnReplicas<'_> {
    /// Replicas on their way.
    pub fn moves(self) -> Vec<MoveRequest> {
        let Layout { map, placed, .. } = &*self.layout();
        let shown = |moved: &Move| {
            let (db, number) = (self.name.clone(), moved.range as usize);
            let (range, from, to) = (map.range(number).to_string(), moved.from.clone(), moved.to.clone());
            MoveRequest { db, number, range, from, to }
        };
        placed.moves.iter().map(shown).collect()
    }
}

impl Coordinator {
    /// Begins a move.
    pub(in crate::coordinator) async fn begin_move(
        &self,
        database: &Arc<Database>,
        wanted: &Move,
    ) -> Result<(), MapError> {
        let begin = |known: &MapRecord| {
            let mut next = known.clone();
            next.begin(wanted)?;
            Ok(next.stamped())
        };
        self.change_map(database, begin).await?;
        Ok(())
    }

    /// Begins to bring replicas to where they are to be, and calls moves off; all in one change of the map, of which
    /// the version is answered.
    ///
    /// # Errors
    /// [`MapError::Contended`] when the map is another one by now; [`MapError::Refused`] for what cannot be.
    pub async fn edit_map(&self, database: &Arc<Database>, edit: &MapEdit) -> Result<u64, MapError> {
        let layout = database.layout();
        if layout.placed.version != edit.version {
            return Err(MapError::Contended);
        }
        let wanted = self.moves_to(&layout, &edit.replicas)?;
        let is_off = |moved: &&Move| {
            let range = layout.map.range(moved.range as usize).to_string();
            edit.moves.as_ref().is_some_and(|kept| !kept.contains(&range))
        };
        let off: Vec<&Move> = layout.placed.moves.iter().filter(is_off).collect();
        if wanted.is_empty() && off.is_empty() {
            return Ok(edit.version);
        }
        let change = |known: &MapRecord| {
            if known.version != edit.version {
                return Err(MapError::Contended);
            }
            let mut next = known.clone();
            off.iter().try_for_each(|moved| next.call_off(moved, |node| self.context().is_gone(node)))?;
            wanted.iter().try_for_each(|moved| next.begin(moved))?;
            if wanted.iter().any(|moved| moved.to.is_none()) {
                // No rebalance is to bring back what was taken away on purpose.
                let fewest = edit.replicas.values().map(BTreeSet::len).min().unwrap_or(1) as u32;
                next.wanted = next.wanted.min(fewest);
            }
            Ok(next.stamped())
        };
        Ok(self.change_map(database, change).await?.version)
    }

    /// The moves that lead from a layout to other replicas.
    fn moves_to(&self, layout: &Layout, replicas: &BTreeMap<String, BTreeSet<String>>) -> Result<Vec<Move>, MapError> {
        let refused = |why: String| Err(MapError::Refused(why));
        if replicas.len() != layout.map.q() {
            return refused("Ranges are changed by _reshard only".to_owned());
        }
        let context = self.context();
        let members = context.member_names();
        let mut out = Vec::new();
        for number in layout.map.live() {
            let range = layout.map.range(*number).to_string();
            let Some(wanted) = replicas.get(&range) else {
                return refused("Ranges are changed by _reshard only".to_owned());
            };
            let now: BTreeSet<String> =
                layout.placed.nodes(*number, &context.node).iter().map(|node| node.to_string()).collect();
            let (lost, new): (Vec<&String>, Vec<&String>) =
                (now.difference(wanted).collect(), wanted.difference(&now).collect());
            if wanted.is_empty() {
                return refused(format!("The range {range} needs a replica"));
            }
            if lost.len() > 1 || new.len() > 1 {
                return refused(format!("One replica of the range {range} can be moved at a time"));
            }
            if let Some(stranger) = new.iter().find(|node| !members.contains(**node)) {
                return refused(format!("{stranger} is no member of the cluster"));
            }
            if let Some(away) = new.iter().find(|node| !context.peers.is_up(node)) {
                return refused(format!("{away} is down and cannot be given a replica"));
            }
            let (from, to) = (lost.first().map(|name| (*name).clone()), new.first().map(|name| (*name).clone()));
            if from.is_some() || to.is_some() {
                out.push(Move { range: *number as u32, from, to, leaving: false });
            }
        }
        Ok(out)
    }

    /// Starts the task that drives the moves of this node; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_moving(self: &Arc<Self>) {
        self.spawn_worker("moves", "a move of a replica", drive);
    }

    /// The databases of which replicas are on their way.
    fn moving(&self) -> Vec<Arc<Database>> {
        let moving = self.all_known().into_iter().filter(|(_, known)| !known.placed().moves.is_empty());
        moving.filter_map(|(name, _)| self.database(&name).ok()).collect()
    }

    /// Moves under way, of all databases.
    pub fn moves_under_way(&self) -> Vec<MoveRequest> {
        self.moving().into_iter().flat_map(|database| database.own_replicas().moves()).collect()
    }

    /// The moves under way of which this node takes the next step.
    fn own_moves(&self) -> Vec<OwnMove> {
        let context = self.context();
        let mut out = Vec::new();
        for database in self.moving() {
            let map = database.map_record();
            for moved in &map.moves {
                let driver = map.driver(moved, |node| context.is_gone(node));
                if let Some(driver) = driver.filter(|driver| *driver.node == *context.node) {
                    let (database, moved, goes_on) = (Arc::clone(&database), moved.clone(), driver.goes_on);
                    out.push(OwnMove { database, moved, goes_on });
                }
            }
        }
        out
    }

    /// The next step of a move of this node. One that cannot be taken yet is over after a pause, or when replicas
    /// moved.
    async fn drive_move(self: Arc<Self>, own: OwnMove) -> MoveKey {
        let (context, key) = (Arc::clone(self.context()), own.key());
        let mut news = context.moving.subscribe();
        let OwnMove { database, moved, goes_on } = own;
        let done = {
            // Invariant: nobody closes it.
            let _permit = context.filling.acquire().await.expect("a permit");
            match goes_on {
                true => self.step(&database, &moved).await,
                false => self.call_off(&database, &moved).await,
            }
        };
        drop(self);
        if let Err(Waits(why)) = done {
            tracing::debug!(database = database.name, range = moved.range, why, "a move waits");
            let _ = context.env.timeout(limits::MOVE_PAUSE, news.changed()).await;
        }
        key
    }

    /// One step of a move.
    async fn step(&self, database: &Arc<Database>, moved: &Move) -> Result<(), Waits> {
        let context = self.context();
        if moved.leaving {
            let from = moved.from.as_deref().unwrap_or_default();
            if !context.is_gone(from) {
                self.pull_from(database, moved.range as usize, from).await?;
            }
            self.change_map(database, |known| Ok(known.with_end(moved)?)).await?;
            return Ok(());
        }
        let mut nodes = database.replicas().nodes_of(moved.range as usize);
        // From those in sync a new replica hears of what was purged, before it reads one that may have been restored
        // from a backup.
        nodes.sort_by_key(|node| context.rank(node).unwrap_or(u8::MAX));
        let (mut there, mut whole) = (0, 0);
        for node in nodes.iter().filter(|node| !context.is_gone(node)) {
            there += 1;
            let done = match moved.to {
                _ if *node == context.node => Ok(()),
                Some(_) => self.pull_from(database, moved.range as usize, node).await,
                None => self.confirm(database, node).await,
            };
            match done {
                Ok(()) => whole += 1,
                Err(Waits(why)) => tracing::debug!(database = database.name, %node, why, "a replica is not filled"),
            }
        }
        // What was answered with 201 is on one of these. Where fewer are left nothing more is to be had.
        let needed = shared_with_every_majority(nodes.len() as u32).min(there).max(1);
        if whole < needed {
            return Err(Waits(format!("{whole} of {needed} replicas are here")));
        }
        self.change_map(database, |known| Ok(known.with_arrival(moved)?)).await?;
        sometimes("cluster: a replica arrived at its new place");
        Ok(())
    }

    async fn call_off(&self, database: &Arc<Database>, moved: &Move) -> Result<(), Waits> {
        let off = |known: &MapRecord| {
            let mut next = known.clone();
            next.call_off(moved, |node| self.context().is_gone(node))?;
            Ok(next.stamped())
        };
        tracing::warn!(database = database.name, range = moved.range, to = moved.to, "a move is called off");
        self.change_map(database, off).await?;
        Ok(())
    }

    /// Applies what the replica of a range on a node has, which from then on refuses what is of an older map.
    async fn pull_from(&self, database: &Arc<Database>, range: usize, node: &str) -> Result<(), Waits> {
        self.confirm(database, node).await?;
        database.pulls().pull_replica(range, &node.into()).await?;
        Ok(())
    }

    /// Waits a moment until a node knows the map that this one knows: from then on it refuses what is of an older one.
    async fn confirm(&self, database: &Arc<Database>, node: &str) -> Result<(), Waits> {
        for attempt in 0..limits::CONFIRM_ATTEMPTS {
            let call = CatalogueCall::Maps(vec![database.name.clone()]);
            let maps: Vec<DatabaseMap> = self.ask_catalogue(node, &call).await?;
            let theirs = maps.first().filter(|map| map.record.instance == database.instance());
            if theirs.is_some_and(|map| map.record.version >= database.map_record().version) {
                return Ok(());
            }
            if attempt == 0 {
                self.tell_map(database, &database.map_record());
            }
            self.env().sleep(limits::CONFIRM_PAUSE * 2_u32.pow(attempt)).await;
        }
        Err(Waits(format!("{node} does not know of the move yet")))
    }
}

/// Until the coordinator goes.
async fn drive(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(context) = weak.upgrade().map(|coordinator| Arc::clone(coordinator.context())) else { return };
    // A node that was removed may be waited for.
    let (mut moving, mut members) = (context.moving.subscribe(), context.peers.watch());
    let env = context.env.clone();
    drop(context);
    let (mut moves, mut driven): (_, BTreeSet<MoveKey>) = (FuturesUnordered::new(), BTreeSet::new());
    loop {
        let Some(coordinator) = weak.upgrade() else { return };
        let run = worker.begin();
        for own in coordinator.own_moves() {
            if driven.insert(own.key()) {
                moves.push(Arc::clone(&coordinator).drive_move(own));
            }
        }
        drop((run, coordinator));
        let ended = tokio::select! {
            biased;
            Some(ended) = moves.next() => Some(ended),
            Ok(()) = moving.changed() => None,
            Ok(()) = members.changed() => None,
            else => return,
        };
        if let Some(ended) = ended {
            driven.remove(&ended);
        }
        // With many databases it takes a while to see which of them move.
        env.sleep(limits::MOVES_LOOK).await;
    }
}
