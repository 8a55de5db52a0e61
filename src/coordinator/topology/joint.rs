//! The stages of a move as changes of a map; pure. `moves` decides which node takes the next step, and when.
//!
//! A move that cannot end is called off: before the new replica counts, that replica is removed; afterwards the old one
//! comes back and is filled like any other. If no other replica is left, it takes its place again at once.

use crate::coordinator::topology::record::{MapRecord, Move, is_split};
use crate::world::buggify::{Mutation, mutated};

/// Who takes the next step of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Driver<'m> {
    pub node: &'m str,
    /// Whether the move goes on; else that node calls it off.
    pub goes_on: bool,
}

impl MapRecord {
    /// Begins a move; says why not where that makes no sense.
    pub(in crate::coordinator) fn begin(&mut self, wanted: &Move) -> Result<(), String> {
        let nodes = self.by_range.as_ref().and_then(|by_range| by_range.get(wanted.range as usize));
        let nodes = nodes.ok_or("no such range")?;
        let holds = |node: &Option<String>| node.as_ref().is_some_and(|node| nodes.contains(node));
        if is_split(&self.splits, wanted.range as usize) {
            return Err("the range was split".to_owned());
        }
        if self.moves_replica_of(wanted.range) {
            return Err("another replica of the range is on its way".to_owned());
        }
        if wanted.from.is_some() != holds(&wanted.from) || holds(&wanted.to) {
            return Err("the replicas of the range are elsewhere".to_owned());
        }
        if wanted.to.is_none() && (wanted.from.is_none() || nodes.len() < 2) {
            return Err("a range needs a replica".to_owned());
        }
        self.moves.push(Move { leaving: false, ..wanted.clone() });
        Ok(())
    }

    /// Whether a replica of a range is on its way.
    pub(in crate::coordinator) fn moves_replica_of(&self, range: u32) -> bool {
        self.moves.iter().any(|moved| moved.range == range)
    }

    /// These once the new replica of a range has all that the others have: it counts, the old one leaves.
    pub(in crate::coordinator) fn with_arrival(&self, moved: &Move) -> Result<MapRecord, String> {
        let mut next = self.clone();
        let at = next.moves.iter().position(|own| own == moved && !own.leaving).ok_or("it has arrived")?;
        match moved.from {
            Some(_) => next.moves[at].leaving = true,
            None => drop(next.moves.remove(at)),
        }
        let to = moved.to.as_deref().filter(|_| moved.from.is_none() || !mutated(Mutation::MoveLosesCopy));
        next.replace(moved.range, moved.from.as_deref(), to);
        Ok(next.stamped())
    }

    /// These without a move: its old replica is no longer needed.
    pub(in crate::coordinator) fn with_end(&self, moved: &Move) -> Result<MapRecord, String> {
        let mut next = self.clone();
        next.take_out(moved)?;
        Ok(next.stamped())
    }

    /// Calls a move off; `is_gone` tells of nodes that were removed for good.
    pub(in crate::coordinator) fn call_off(
        &mut self,
        moved: &Move,
        is_gone: impl Fn(&str) -> bool,
    ) -> Result<(), String> {
        self.take_out(moved)?;
        let Some(from) = moved.from.as_deref().filter(|from| moved.leaving && !is_gone(from)) else { return Ok(()) };
        match self.nodes(moved.range).iter().any(|node| !is_gone(node)) {
            // The others may hold what it does not.
            true => {
                let (from, to) = (moved.to.clone(), moved.from.clone());
                self.moves.push(Move { range: moved.range, from, to, leaving: false });
            }
            false => self.replace(moved.range, moved.to.as_deref(), Some(from)),
        }
        Ok(())
    }

    /// Who takes the next step of a move: the node that gets a replica; where none gets one, the first of those that
    /// stay. Should there be none of these any more, the one that holds a replica calls the move off.
    pub(in crate::coordinator) fn driver<'m>(
        &'m self,
        moved: &'m Move,
        is_gone: impl Fn(&str) -> bool,
    ) -> Option<Driver<'m>> {
        let mut there = self.nodes(moved.range).iter().filter(|node| !is_gone(node));
        let drives = match &moved.to {
            Some(to) => Some(to).filter(|to| !is_gone(to)),
            None => there.clone().find(|node| Some(*node) != moved.from.as_ref()),
        };
        if let Some(node) = drives {
            return Some(Driver { node, goes_on: true });
        }
        let holds = there.next().or(moved.from.as_ref().filter(|from| !is_gone(from)))?;
        Some(Driver { node: holds, goes_on: false })
    }

    /// The next version, in which nodes changed.
    pub(in crate::coordinator) fn stamped(mut self) -> MapRecord {
        self.version += 1;
        self.moved = self.version;
        self
    }

    fn nodes(&self, range: u32) -> &[String] {
        self.by_range.as_ref().and_then(|by_range| by_range.get(range as usize)).map_or(&[], Vec::as_slice)
    }

    fn take_out(&mut self, moved: &Move) -> Result<(), String> {
        let at = self.moves.iter().position(|own| own == moved).ok_or("it is over")?;
        self.moves.remove(at);
        Ok(())
    }

    /// One node of a range takes the place of another.
    fn replace(&mut self, range: u32, old: Option<&str>, new: Option<&str>) {
        let Some(by_range) = &mut self.by_range else { return };
        let nodes = &mut by_range[range as usize];
        match (old, new) {
            (Some(old), Some(new)) => {
                nodes.iter_mut().filter(|node| *node == old).for_each(|node| new.clone_into(node));
            }
            (Some(old), None) => nodes.retain(|node| node != old),
            (None, new) => nodes.extend(new.map(str::to_owned)),
        }
        let live = |range: &usize| !is_split(&self.splits, *range);
        let replicas = (0..by_range.len()).filter(live).map(|range| by_range[range].len());
        self.n = replicas.min().unwrap_or(1) as u32;
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
        MapRecord { version: 3, moved: 1, n: 3, wanted: 3, splits: Vec::new(), by_range, moves: Vec::new() }
    }

    fn of(from: &str, to: &str) -> Move {
        let node = |name: &str| (!name.is_empty()).then(|| name.to_owned());
        Move { range: 1, from: node(from), to: node(to), leaving: false }
    }

    fn begun(map: MapRecord, wanted: &Move) -> Result<MapRecord, String> {
        let mut next = map;
        next.begin(wanted)?;
        Ok(next.stamped())
    }

    fn nobody(_: &str) -> bool {
        false
    }

    fn shown(map: &MapRecord) -> (String, Option<Move>) {
        (map.nodes(1).concat(), map.moves.first().cloned())
    }

    #[test]
    fn a_replica_takes_the_place_of_another_in_three_versions() {
        let begun_once = begun(map(), &of("c", "d")).unwrap();
        assert_eq!((begun_once.version, begun_once.moved, &begun_once.by_range), (4, 4, &map().by_range));
        assert!(begun(begun_once.clone(), &of("a", "e")).is_err(), "one at a time");
        let moved = begun_once.moves[0].clone();
        assert_eq!(begun_once.driver(&moved, nobody), Some(Driver { node: "d", goes_on: true }));
        let arrived = begun_once.with_arrival(&moved).unwrap();
        assert_eq!(arrived.nodes(1), nodes("bda"));
        assert!(arrived.moves[0].leaving && arrived.with_arrival(&moved).is_err());
        let over = arrived.with_end(&arrived.moves[0]).unwrap();
        assert_eq!((over.version, over.moves.len()), (6, 0));
        assert!(over.with_end(&moved).is_err());
    }

    #[test]
    fn replicas_come_and_go_and_the_last_one_stays() {
        let more = begun(map(), &of("", "d")).unwrap();
        let more = more.with_arrival(&more.moves[0].clone()).unwrap();
        assert_eq!((more.n, more.nodes(1).len(), more.moves.len()), (3, 4, 0));
        let fewer = begun(map(), &of("a", "")).unwrap();
        let fewer = fewer.with_arrival(&fewer.moves[0].clone()).unwrap();
        assert_eq!((fewer.n, fewer.nodes(1).len()), (2, 2));
        let one = MapRecord { by_range: Some(vec![nodes("a"), nodes("a")]), n: 1, ..map() };
        assert!(begun(one.clone(), &of("a", "")).is_err());
        assert!(begun(one.clone(), &of("b", "c")).is_err() && begun(one.clone(), &of("", "a")).is_err());
        let split = MapRecord { splits: vec![1], ..one };
        assert!(begun(split, &of("a", "b")).is_err(), "a range that was split");
    }

    #[test]
    fn a_move_whose_target_is_gone_is_called_off_by_who_holds_a_replica() {
        let begun = begun(map(), &of("c", "d")).unwrap();
        let moved = begun.moves[0].clone();
        let gone = |names: &'static str| move |node: &str| names.contains(node);
        assert_eq!(begun.driver(&moved, gone("d")), Some(Driver { node: "b", goes_on: false }));
        assert_eq!(begun.driver(&moved, gone("bd")), Some(Driver { node: "c", goes_on: false }));
        assert_eq!(begun.driver(&moved, gone("abcd")), None);
        let mut off = begun.clone();
        off.call_off(&moved, gone("d")).unwrap();
        assert_eq!(shown(&off), ("bca".to_owned(), None));
        assert!(off.call_off(&moved, gone("d")).is_err(), "it is over");

        let arrived = begun.with_arrival(&moved).unwrap();
        let leaving = arrived.moves[0].clone();
        let called_off = |names: &'static str| {
            let mut next = arrived.clone();
            next.call_off(&leaving, gone(names)).unwrap();
            shown(&next)
        };
        assert_eq!(called_off("d"), ("bda".to_owned(), Some(of("d", "c"))), "the old replica comes back");
        assert_eq!(called_off("abd"), ("bca".to_owned(), None), "nobody else is left");
        assert_eq!(called_off("cd"), ("bda".to_owned(), None), "the old replica is gone, too");
        assert_eq!(arrived.driver(&leaving, gone("abd")), Some(Driver { node: "c", goes_on: false }));
    }

    #[test]
    fn a_replica_that_goes_without_another_in_its_place_comes_back_where_no_other_is_left() {
        let begun = begun(map(), &of("b", "")).unwrap();
        let moved = begun.moves[0].clone();
        assert_eq!(begun.driver(&moved, nobody), Some(Driver { node: "c", goes_on: true }));
        let only_b = |node: &str| node != "b";
        assert_eq!(begun.driver(&moved, only_b), Some(Driver { node: "b", goes_on: false }));
        let mut arrived = begun.with_arrival(&moved).unwrap();
        let leaving = arrived.moves[0].clone();
        assert_eq!(arrived.driver(&leaving, only_b), Some(Driver { node: "b", goes_on: false }));
        arrived.call_off(&leaving, only_b).unwrap();
        assert_eq!(shown(&arrived), ("cab".to_owned(), None));
    }
}
