//! Layout of an open database: its map, and the replicas on this node.
//!
//! A [`Layout`] never changes: when the map changes, the database gets another one. A range keeps its number for good
//! (`shard_map`), so that an operation that began with one layout continues with the next; a replica that is on this
//! node in both stays open, because its news come through the one handle.

use std::sync::{Arc, PoisonError};

use tokio::sync::OnceCell;

use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::topology::quorum::{Tally, majority};
use crate::coordinator::topology::record::{Known, Move, Placed};
use crate::coordinator::topology::shard_map::ShardMap;
use crate::limits;
use crate::world::buggify::{Mutation, mutated};

/// See the module head.
pub(in crate::coordinator) struct Layout {
    pub map: Arc<ShardMap>,
    pub placed: Arc<Placed>,
    /// This node's replica of each range that it holds one of, by number; opened when it is first needed.
    own: Box<[Arc<OnceCell<OwnReplica>>]>,
}

impl Layout {
    /// With all replicas closed.
    pub fn of(known: &Known) -> Layout {
        let placed = known.placed();
        let own = placed.shards.iter().map(|_| Arc::default()).collect();
        Layout { map: Arc::new(known.map(&placed)), placed, own }
    }

    /// The one after this, with replicas that were opened already.
    fn next(&self, known: &Known, opened: Vec<(u64, OwnReplica)>) -> Layout {
        let placed = known.placed();
        let cell = |(range, shard): (usize, &u64)| {
            let kept = self.own.get(range).filter(|_| self.placed.shards[range] == *shard);
            let new = || opened.iter().find(|(number, _)| number == shard).map(|(_, replica)| replica.clone());
            kept.cloned().unwrap_or_else(|| Arc::new(OnceCell::new_with(new())))
        };
        let own = placed.shards.iter().enumerate().map(cell).collect();
        Layout { map: Arc::new(known.map(&placed)), placed, own }
    }

    /// Where the replica of a range is, or comes to be.
    pub fn cell(&self, range: usize) -> &Arc<OnceCell<OwnReplica>> {
        &self.own[range]
    }

    /// Whether this node holds the only replica of a range: nobody else is to be asked.
    pub fn is_alone(&self, range: usize) -> bool {
        let placed = &self.placed;
        placed.replicas(range) == 1 && placed.shard(range).is_some() && placed.move_of(range).is_none()
    }

    /// The nodes whose replicas of a range count, in the order in which they become the primary: that of the map, begun
    /// elsewhere for each range, so that the work is spread.
    pub fn primaries(&self, range: usize, own: &Arc<str>) -> Vec<Arc<str>> {
        let nodes = self.placed.nodes(range, own);
        (0..nodes.len()).map(|at| Arc::clone(&nodes[(at + range) % nodes.len()])).collect()
    }

    /// The nodes whose replicas of a range take writes: the primaries, then one that is being filled.
    pub fn writers(&self, range: usize, own: &Arc<str>) -> Vec<Arc<str>> {
        let filled = self.joint(range).and_then(|moved| moved.to.as_deref());
        self.primaries(range, own).into_iter().chain(filled.map(Arc::from)).collect()
    }

    /// The move of a range in which a write must count in what was and in what comes to be.
    fn joint(&self, range: usize) -> Option<&Move> {
        self.placed.move_of(range).filter(|moved| !moved.leaving)
    }

    /// Counts the replicas of a range that hold a write: `w` must, by default the majority. In a joint stage one more:
    /// then `w` of the replicas that were and `w` of those that come to be hold it, as they differ by one.
    pub fn tally(&self, range: usize, w: Option<u32>) -> Tally {
        let (joint, replicas) = (self.joint(range), self.placed.replicas(range) as u32);
        let wanted = w.unwrap_or_else(|| majority(replicas));
        let wanted = if mutated(Mutation::AckEarly) { wanted.saturating_sub(1) } else { wanted };
        let filled = joint.is_some_and(|moved| moved.to.is_some());
        Tally::new(replicas + u32::from(filled), wanted.saturating_add(u32::from(joint.is_some())))
    }

    /// The replicas that are open.
    pub fn opened(&self) -> impl Iterator<Item = &OwnReplica> {
        self.own.iter().filter_map(|cell| cell.get())
    }
}

impl Database {
    /// Where its documents are now.
    pub(in crate::coordinator) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// How it is cut into ranges now.
    pub fn map(&self) -> Arc<ShardMap> {
        Arc::clone(&self.layout().map)
    }

    /// The numbers of its ranges now, in ring order.
    pub(in crate::coordinator) fn ranges(&self) -> Vec<usize> {
        self.map().live().to_vec()
    }

    /// Goes over to where the record says that documents are; `opened` are replicas by their shards.
    pub(in crate::coordinator) fn lay_out(&self, opened: Vec<(u64, OwnReplica)>) {
        let mut layout = self.layout.write().unwrap_or_else(PoisonError::into_inner);
        *layout = Arc::new(layout.next(&self.known, opened));
        let version = layout.placed.version;
        let ranges = layout.map.numbers();
        drop(layout);
        self.moved.send_replace((version, ranges));
    }

    /// Waits for another layout than `old`; not for ever.
    pub(in crate::coordinator) async fn moved_from(&self, old: &Layout) {
        let stamp = (old.placed.version, old.map.numbers());
        let mut moved = self.moved.subscribe();
        // The one that waits looks at the map again in any case.
        let _ = self.context.env.timeout(limits::MAP_WAIT, moved.wait_for(|new| *new != stamp)).await;
    }
}
