//! Copies on their way from one node to another.
//!
//! A move is two or three versions of the map. First the new node is named beside the old ones: writes go to it, too,
//! and count in what was and in what comes to be. It fills its copy from the others and, when it has all of them, takes
//! the place of the old one, which from then on takes no writes. When it has taken in what that one still had, the old
//! copy goes. The node that gets a copy drives its move, and goes on with it after a stop; where none gets one, the
//! first of those that stay does.

use std::sync::{Arc, Weak};

use crate::coordinator::catalogue::Coordinator;
use crate::coordinator::consensus::MapError;
use crate::coordinator::database::Database;
use crate::coordinator::gossip::LearnError;
use crate::coordinator::message::{CatalogueCall, DatabaseMap};
use crate::coordinator::quorum::majority;
use crate::coordinator::record::{MapRecord, Move};
use crate::limits;
use crate::shard::ShardError;

/// A change of the nodes of one range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveRequest {
    /// The database.
    pub db: String,
    /// The number of the range.
    pub(super) number: usize,
    /// The range, as `_shards` shows it.
    pub range: String,
    /// The node whose copy goes.
    pub from: Option<String>,
    /// The node that gets one.
    pub to: Option<String>,
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

impl MapRecord {
    /// These with a move begun; says why not where that makes no sense.
    pub(super) fn with_move(&self, wanted: &Move, live: &[usize]) -> Result<MapRecord, String> {
        let range = wanted.range as usize;
        let nodes = self.by_range.as_ref().and_then(|by_range| by_range.get(range)).ok_or("no such range")?;
        let holds = |node: &Option<String>| node.as_ref().is_some_and(|node| nodes.contains(node));
        if !live.contains(&range) {
            return Err("the range was split".to_owned());
        }
        if self.moves.iter().any(|moved| moved.range == wanted.range) {
            return Err("another copy of the range is on its way".to_owned());
        }
        if wanted.from.is_some() != holds(&wanted.from) || holds(&wanted.to) {
            return Err("the copies of the range are elsewhere".to_owned());
        }
        if wanted.to.is_none() && (wanted.from.is_none() || nodes.len() < 2) {
            return Err("a range needs a copy".to_owned());
        }
        let mut next = self.clone();
        next.moves.push(Move { leaving: false, ..wanted.clone() });
        Ok(next.stamped())
    }

    /// These once the new copy of a range has all that the others have: it counts, the old one leaves.
    fn with_arrival(&self, moved: &Move, live: &[usize]) -> Result<MapRecord, String> {
        let mut next = self.clone();
        let at = next.moves.iter().position(|own| own == moved && !own.leaving).ok_or("it has arrived")?;
        let nodes = next.by_range.as_mut().map(|by_range| &mut by_range[moved.range as usize]);
        let nodes = nodes.ok_or("no such range")?;
        match (&moved.from, &moved.to) {
            (Some(from), Some(to)) => {
                nodes.iter_mut().filter(|node| *node == from).for_each(|node| node.clone_from(to))
            }
            (Some(from), None) => nodes.retain(|node| node != from),
            (None, to) => nodes.extend(to.clone()),
        }
        match moved.from {
            Some(_) => next.moves[at].leaving = true,
            None => drop(next.moves.remove(at)),
        }
        // What a write waits for by default must be there in every range.
        let copies = live.iter().filter_map(|range| next.by_range.as_ref().map(|by_range| by_range[*range].len()));
        next.n = copies.min().unwrap_or(1) as u32;
        Ok(next.stamped())
    }

    /// These without a move: its old copy is no longer needed.
    fn with_end(&self, moved: &Move) -> Result<MapRecord, String> {
        let mut next = self.clone();
        next.moves.retain(|own| own.range != moved.range);
        if next.moves.len() == self.moves.len() { Err("it is over".to_owned()) } else { Ok(next.stamped()) }
    }

    /// The next version, in which nodes changed.
    fn stamped(mut self) -> MapRecord {
        self.version += 1;
        self.moved = self.version;
        self
    }

    /// Who drives a move.
    fn driver<'m>(&'m self, moved: &'m Move) -> Option<&'m String> {
        let first = || {
            self.by_range.as_ref()?.get(moved.range as usize)?.iter().find(|node| Some(*node) != moved.from.as_ref())
        };
        moved.to.as_ref().or_else(first)
    }
}

impl Coordinator {
    /// Begins a move.
    pub(super) async fn begin_move(&self, database: &Arc<Database>, wanted: &Move) -> Result<(), MapError> {
        let map = database.map();
        self.change_map(database, |known| known.with_move(wanted, map.live())).await?;
        self.context().moving.notify_one();
        Ok(())
    }

    /// Starts the task that drives the moves of this node; it ends with the coordinator.
    pub(super) fn keep_moving(self: &Arc<Self>) {
        self.env().spawn(drive(Arc::downgrade(self)));
    }

    /// The moves under way that this node drives.
    fn own_moves(&self) -> Vec<(Arc<Database>, Move)> {
        let own = &self.context().node;
        let mut out = Vec::new();
        for (name, known) in self.all_known() {
            if known.placed().moves.is_empty() {
                continue;
            }
            let Ok(database) = self.database(&name) else { continue };
            let map = database.map_record();
            for moved in map.moves.iter().filter(|moved| map.driver(moved).is_some_and(|node| **node == **own)) {
                out.push((Arc::clone(&database), moved.clone()));
            }
        }
        out
    }

    /// One step of a move.
    async fn step(&self, database: &Arc<Database>, moved: &Move) -> Result<(), Waits> {
        let range = moved.range as usize;
        if moved.leaving {
            let from = moved.from.as_deref().unwrap_or_default();
            let context = self.context();
            if context.others().iter().any(|node| **node == *from) {
                self.confirm(database, from).await?;
                database.pull_copy(range, &from.into()).await?;
            } else if *from == *context.node {
                self.hand_on(database, range).await?;
            }
            self.change_map(database, |known| known.with_end(moved)).await?;
            return Ok(());
        }
        let nodes = database.nodes_of(range);
        let mut whole = 0;
        for node in &nodes {
            if **node == *self.context().node {
                whole += 1;
                continue;
            }
            if self.confirm(database, node).await.is_err() {
                continue;
            }
            if moved.to.is_some() {
                database.pull_copy(range, node).await?;
            }
            whole += 1;
        }
        if whole < majority(nodes.len() as u32) as usize {
            return Err(Waits(format!("{whole} of {} copies answer", nodes.len())));
        }
        let map = database.map();
        self.change_map(database, |known| known.with_arrival(moved, map.live())).await?;
        Ok(())
    }

    /// Whether a node knows the map that this one knows: from then on it refuses what is of an older one.
    async fn confirm(&self, database: &Database, node: &str) -> Result<(), Waits> {
        let call = CatalogueCall::Maps(vec![database.name.clone()]);
        let maps: Vec<DatabaseMap> = self.ask_catalogue(node, &call).await?;
        let version =
            maps.first().filter(|map| map.record.instance == database.instance()).map(|map| map.record.version);
        match version {
            Some(version) if version >= database.map_record().version => Ok(()),
            _ => {
                self.tell_map(database, &database.map_record());
                Err(Waits(format!("{node} does not know of the move yet")))
            }
        }
    }

    /// Has the others take in what this node's copy of a range has, before it goes.
    async fn hand_on(&self, database: &Arc<Database>, range: usize) -> Result<(), Waits> {
        self.context().missed(&database.name);
        for node in database.nodes_of(range) {
            self.confirm(database, &node).await?;
        }
        Ok(())
    }
}

/// Until the coordinator goes.
async fn drive(weak: Weak<Coordinator>) {
    loop {
        let Some(coordinator) = weak.upgrade() else { return };
        let (context, env) = (Arc::clone(coordinator.context()), coordinator.env().clone());
        let mut waits = false;
        for (database, moved) in coordinator.own_moves() {
            waits = true;
            if let Err(Waits(why)) = coordinator.step(&database, &moved).await {
                tracing::debug!(database = database.name, range = moved.range, why, "a move waits");
            }
        }
        drop(coordinator);
        let noticed = context.moving.notified();
        match waits {
            true => drop(env.timeout(limits::MOVE_PAUSE, noticed).await),
            false => noticed.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(names: &str) -> Vec<String> {
        names.chars().map(|name| name.to_string()).collect()
    }

    fn map() -> MapRecord {
        let by_range = Some(vec![nodes("abc"), nodes("bca")]);
        MapRecord { version: 3, moved: 1, n: 3, splits: Vec::new(), by_range, moves: Vec::new() }
    }

    fn of(from: &str, to: &str) -> Move {
        let node = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Move { range: 1, from: node(from), to: node(to), leaving: false }
    }

    #[test]
    fn a_copy_takes_the_place_of_another_in_three_versions() {
        let begun = map().with_move(&of("c", "d"), &[0, 1]).unwrap();
        assert_eq!((begun.version, begun.moved, &begun.by_range), (4, 4, &map().by_range));
        assert!(begun.with_move(&of("a", "e"), &[0, 1]).is_err(), "one at a time");
        let moved = begun.moves[0].clone();
        assert_eq!(begun.driver(&moved).map(String::as_str), Some("d"));
        let arrived = begun.with_arrival(&moved, &[0, 1]).unwrap();
        assert_eq!(arrived.by_range.as_ref().unwrap()[1], nodes("bda"));
        assert!(arrived.moves[0].leaving && arrived.with_arrival(&moved, &[0, 1]).is_err());
        let over = arrived.with_end(&arrived.moves[0]).unwrap();
        assert_eq!((over.version, over.moves.len()), (6, 0));
        assert!(over.with_end(&moved).is_err());
    }

    #[test]
    fn copies_come_and_go_and_the_last_one_stays() {
        let more = map().with_move(&of("", "d"), &[0, 1]).unwrap();
        let more = more.with_arrival(&more.moves[0].clone(), &[0, 1]).unwrap();
        assert_eq!((more.n, more.by_range.as_ref().unwrap()[1].len(), more.moves.len()), (3, 4, 0));
        let fewer = map().with_move(&of("a", ""), &[0, 1]).unwrap();
        let fewer = fewer.with_arrival(&fewer.moves[0].clone(), &[0, 1]).unwrap();
        assert_eq!((fewer.n, fewer.by_range.as_ref().unwrap()[1].len()), (2, 2));
        let one = MapRecord { by_range: Some(vec![nodes("a"), nodes("a")]), n: 1, ..map() };
        assert!(one.with_move(&of("a", ""), &[0, 1]).is_err());
        assert!(one.with_move(&of("b", "c"), &[0, 1]).is_err() && one.with_move(&of("", "a"), &[0, 1]).is_err());
        assert!(one.with_move(&of("a", "b"), &[0]).is_err(), "a range that was split");
    }
}
