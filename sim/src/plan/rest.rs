//! What was added to plans later, each by draws of its own: all other draws of a seed stay what they were.
//!
//! Caps that are small, with documents around and above them; followers by filters, with documents, and backwards;
//! nodes in maintenance; processes that are killed within a job, directories that are not synced, disks without room;
//! connections by TLS.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::fault::{Aim, Fault, TimedFault};
use super::op::{FILTERS, FeedMode, Op, TimedOp};
use super::types::{Plan, WORK_MS};

/// Draws of its own for faults of disks and processes.
const FAULTED: u64 = 0xd1u64 << 56;
/// Draws of its own for followers of the feed.
const FOLLOWED: u64 = 0xfeu64 << 56;
/// Draws of its own for groups of a view.
const GROUPED: u64 = 0x60u64 << 56;
/// Draws of its own for maintenance.
const MAINTAINED: u64 = 0x3au64 << 56;
/// Draws of its own for TLS.
const SECURED: u64 = 0x7eu64 << 56;
/// Draws of its own for caps and sizes.
const SIZED: u64 = 0x51u64 << 56;
/// A value carries, from this bit on, how much text goes with it, in units of [`PAD_UNIT`].
pub const PAD_BIT: u32 = 20;
/// Bytes of a unit of that text.
pub const PAD_UNIT: u64 = 512;
/// What `for_ms` of a disk without room is drawn from: it is looked at every second, and what came of that is checked
/// only after some.
const NO_ROOM_MS: std::ops::Range<u64> = 4_000..16_000;

impl Plan {
    /// Adds all of that to a plan of one server, two servers or a cluster.
    pub(super) fn draw_the_rest(&mut self) {
        self.more_faults();
        // In one run of six; in half of these, of a cluster, without certificate files between nodes.
        let mut secured = ChaCha8Rng::seed_from_u64(self.seed ^ SECURED);
        self.world.tls = secured.random_range(0..6) == 0;
        self.world.self_made = self.world.tls && self.world.n > 0 && secured.random_range(0..2) == 0;
        // What is replicated is compared with what was written, and nothing else.
        let keeps = self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Keep { .. }));
        if self.world.nodes == 1 || self.world.n > 0 {
            self.follow();
        }
        // What is counted is on every replica from the begin on, as long as none loses it and none is made anew.
        let stays = !self.loses_disks() && !self.moves_replicas() && !self.changes_members();
        if self.world.n == 0 || stays {
            self.regroup();
        }
        if self.world.n > 1 && !self.changes_members() {
            self.maintain();
        }
        if (self.world.nodes == 1 || self.world.n > 0) && !keeps {
            self.draw_sizes();
        }
    }

    /// In half of the runs with faults.
    fn more_faults(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ FAULTED);
        if self.faults.is_empty() || rng.random_range(0..2) > 0 {
            return;
        }
        let names: Vec<&'static str> = self.clients.iter().flatten().map(|timed| timed.op.name()).collect();
        for _ in 0..rng.random_range(1..=3) {
            let node = rng.random_range(0..self.world.nodes);
            let fault = more_fault(&mut rng, if self.world.n > 0 { self.world.nodes } else { 0 });
            // What came of a disk without room is checked while clients work.
            let most_ms = if matches!(fault, Fault::NoRoom { .. }) { WORK_MS / 2 } else { WORK_MS };
            let at_ms = rng.random_range(0..most_ms);
            let aimed = !names.is_empty() && rng.random_range(0..2) == 0;
            let after_us = rng.random_range(0..=4 * self.world.latency_us);
            let aim = aimed.then(|| Aim { op: pick(&mut rng, &names).to_owned(), after_us });
            if let Some(loss) = loss_of_names(&mut rng, at_ms, &fault) {
                self.faults.push(TimedFault { at_ms: loss.0, node, fault: loss.1, aim: None });
            }
            self.faults.push(TimedFault { at_ms, node, fault, aim });
        }
        self.faults.sort_by_key(|timed| timed.at_ms);
    }

    /// In one run of three somebody follows the feed by filters, with documents, and reads it backwards.
    fn follow(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ FOLLOWED);
        if rng.random_range(0..3) > 0 {
            return;
        }
        for _ in 0..rng.random_range(1..=2) {
            let count = rng.random_range(3..=12);
            let timed = |rng: &mut ChaCha8Rng| {
                let after_ms = rng.random_range(0..2 * WORK_MS / count);
                TimedOp { after_ms, op: filtered(rng) }
            };
            self.clients.push((0..count).map(|_| timed(&mut rng)).collect());
        }
    }

    /// In one run of four some move documents from group to group of a view, and others ask for it. In
    /// half of them a reduction reads a few rows in a step, and they do it all the time: rows change between its steps,
    /// and between the pages of an answer, which are small then.
    fn regroup(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ GROUPED);
        if rng.random_range(0..4) > 0 {
            return;
        }
        let busy = rng.random_range(0..2) == 0;
        if busy {
            self.world.step_rows = rng.random_range(1..=5);
        }
        for client in 0..4 {
            let count = if busy { rng.random_range(30..=80) } else { rng.random_range(10..=30) };
            let pause_ms = if busy { pick(&mut rng, &[5, 20, 100]) } else { WORK_MS / count };
            let timed = |rng: &mut ChaCha8Rng, nth: u64| {
                let op = match client % 2 {
                    0 => Op::Shift { v: 100 * nth + rng.random_range(0..100) },
                    _ => Op::Groups { way: rng.random_range(0..16) },
                };
                TimedOp { after_ms: rng.random_range(0..pause_ms), op }
            };
            self.clients.push((0..count).map(|nth| timed(&mut rng, nth)).collect());
        }
    }

    /// In one run of a cluster of five nodes are taken out of work and in again, one after the other.
    fn maintain(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ MAINTAINED);
        if rng.random_range(0..5) > 0 {
            return;
        }
        let mut ops = Vec::new();
        for _ in 0..rng.random_range(1..=3) {
            let node = rng.random_range(0..self.world.nodes);
            for on in [true, false] {
                ops.push(TimedOp { after_ms: rng.random_range(100..4_000), op: Op::Maintain { node, on } });
            }
        }
        self.clients.push(ops);
    }

    /// In one run of four caps are small, and some documents are about as large as they may be, or larger.
    fn draw_sizes(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ SIZED);
        if rng.random_range(0..4) > 0 {
            return;
        }
        // Pieces of attachments, of a quarter of a megabyte, go between nodes as they are.
        let drawn = if self.world.n > 0 { [512 << 10, 512 << 10, 1 << 20] } else { [16 << 10, 64 << 10, 256 << 10] };
        self.world.message_bytes = pick(&mut rng, &drawn);
        self.enlarge(&mut rng, 3);
    }

    /// Makes one document in `one_in` large: mostly up to the cap, now and then beyond. A list stays one request.
    pub(super) fn enlarge(&mut self, rng: &mut ChaCha8Rng, one_in: u32) {
        let Some((document, attachment, request)) = self.world.caps() else { return };
        for timed in self.clients.iter_mut().flatten() {
            let mut large = |v: &mut u64, most: u32| {
                if *v > 0 && rng.random_range(0..one_in) == 0 {
                    *v |= (bytes_about(rng, most) / PAD_UNIT) << PAD_BIT;
                }
            };
            match &mut timed.op {
                Op::Put { v, .. } => large(v, document),
                Op::Bulk { edits } => {
                    let each = document.min(request / 2 / edits.len().max(1) as u32);
                    edits.iter_mut().for_each(|(_, v)| large(v, each));
                }
                Op::Attach { bytes, .. } => *bytes = bytes_about(rng, attachment) as u32,
                _ => {}
            }
        }
    }
}

/// A size around a cap.
fn bytes_about(rng: &mut ChaCha8Rng, most: u32) -> u64 {
    let most = u64::from(most);
    match rng.random_range(0..8) {
        0 => most + most / 8 + 1_024,
        1 => rng.random_range(0..=most),
        2 => most / 2,
        _ => most - most / 32,
    }
}

/// `nodes`: how many nodes the cluster has.
fn more_fault(rng: &mut ChaCha8Rng, nodes: u32) -> Fault {
    let down_ms = rng.random_range(1..=2_000);
    if nodes > 0 && rng.random_range(0..4) == 0 {
        return Fault::Clog { group: rng.random_range(1..1 << nodes), for_ms: rng.random_range(100..=4_000) };
    }
    match rng.random_range(0..4) {
        0 | 1 => {
            let journal = rng.random_range(0..2) == 0;
            let ops = rng.random_range(1..=if journal { 10 } else { 120 });
            // Mostly: what one life trusted of the life before is seen only when the power fails.
            let cut_ms = if rng.random_range(0..4) > 0 { rng.random_range(1..=1_500) } else { 0 };
            Fault::KilledInJob { ops, down_ms, journal, cut_ms }
        }
        2 => Fault::DirSyncErrors { per_1000: pick(rng, &[100, 500, 1_000]), for_ms: rng.random_range(10..=4_000) },
        _ => Fault::NoRoom { for_ms: rng.random_range(NO_ROOM_MS) },
    }
}

/// Where syncs of directories fail the power mostly fails, too, before others of them succeed: only then it shows
/// whether somebody relied on one.
fn loss_of_names(rng: &mut ChaCha8Rng, at_ms: u64, fault: &Fault) -> Option<(u64, Fault)> {
    let Fault::DirSyncErrors { for_ms, .. } = fault else { return None };
    if rng.random_range(0..4) == 0 {
        return None;
    }
    let down_ms = rng.random_range(1..=500);
    Some((at_ms + rng.random_range(0..=*for_ms), Fault::PowerLoss { down_ms }))
}

/// Something that a follower does.
pub(super) fn filtered(rng: &mut ChaCha8Rng) -> Op {
    let limit = (rng.random_range(0..3) == 0).then(|| rng.random_range(1..=4));
    if rng.random_range(0..6) == 0 {
        return Op::Descend { limit };
    }
    let mode = pick(rng, &[FeedMode::Normal, FeedMode::Longpoll, FeedMode::Continuous, FeedMode::EventSource]);
    Op::FollowFiltered { by: pick(rng, &FILTERS), mode, docs: rng.random_range(0..2) == 0, limit }
}
