//! What every scene is drawn with: its randomness, and the operations and faults that most have.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::fault::{Fault, TimedFault};
use super::op::{Op, TimedOp};
use super::types::WorldPlan;

/// A world, what its clients do, and what goes wrong.
pub(super) type Drawn = (WorldPlan, Vec<Vec<TimedOp>>, Vec<TimedFault>);

/// What a scene draws with.
pub(super) struct Stage {
    pub(super) rng: ChaCha8Rng,
    pub(super) number: u64,
    pub(super) next_v: u64,
}

pub(super) fn after(after_ms: u64, op: Op) -> TimedOp {
    TimedOp { after_ms, op }
}

pub(super) fn fault(at_ms: u64, node: u32, fault: Fault) -> TimedFault {
    TimedFault { at_ms, node, fault, aim: None }
}

/// What a client does at times since its begin, which are given in any order: none is done before those that were
/// given before it.
#[derive(Default)]
pub(super) struct Timetable {
    ops: Vec<TimedOp>,
    spent_ms: u64,
}

impl Timetable {
    pub(super) fn at(&mut self, at_ms: u64, op: Op) {
        self.ops.push(after(at_ms.saturating_sub(self.spent_ms), op));
        self.spent_ms = self.spent_ms.max(at_ms);
    }

    pub(super) fn into_ops(self) -> Vec<TimedOp> {
        self.ops
    }
}

/// Something that goes wrong with a node from then on within the first 50 seconds, and loses nothing of its disk.
pub(super) fn trouble(rng: &mut ChaCha8Rng, world: &WorldPlan, from_ms: u64) -> TimedFault {
    let (at_ms, node) = (rng.random_range(from_ms..50_000), rng.random_range(0..world.nodes));
    let (down_ms, for_ms) = (rng.random_range(100..=6_000), rng.random_range(100..=9_000));
    let kind = match rng.random_range(0..5) {
        0 => Fault::Crash { down_ms },
        1 => Fault::PowerLoss { down_ms },
        2 => Fault::Pause { for_ms },
        3 => Fault::Split { group: 1 << node, one_way: rng.random_range(0..2) == 0, for_ms },
        _ => Fault::Reset,
    };
    fault(at_ms, node, kind)
}

impl Stage {
    pub(super) fn put(&mut self, doc: u32) -> Op {
        self.next_v += 1;
        Op::Put { doc, v: self.next_v }
    }

    /// Writes one of the two documents of a client again and again, five times a second.
    pub(super) fn writes(&mut self, client: u32, count: usize) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..count {
            let doc = 2 * client + self.rng.random_range(0..2);
            ops.push(after(self.rng.random_range(100..300), self.put(doc)));
        }
        ops
    }

    /// One of some nodes, another one for each plan and round.
    pub(super) fn node(&self, nodes: u32, round: u64) -> u32 {
        ((self.number + round) % u64::from(nodes)) as u32
    }
}
