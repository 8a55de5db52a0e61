//! From a number to a plan of the scene `snapshots`: one server, on which some take snapshots of the shared database
//! and bring them back while others write to it. The server dies and its disk fails in the midst of that.
//!
//! Faults stay within what acknowledged writes survive, and the clock goes on evenly: the newest snapshot is to be the
//! one that was taken last.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::{Draw, KINDS, Weights, pick};
use super::fault::{Aim, Fault, TimedFault};
use super::op::{Op, TimedOp};
use super::stage::Drawn;
use super::types::{WORK_MS, WorldPlan};

/// Kinds of operations of those who write: on shared documents but for local ones.
const KINDS_OF_WRITERS: [usize; 8] = [0, 1, 2, 3, 4, 5, 7, 10];
/// Those of them that are in every plan: single edits, replicated ones (they make conflicts), many at once, and
/// attachments.
const ALWAYS: [usize; 4] = [0, 3, 4, 5];
/// Kinds of faults.
const FAULT_KINDS: [u32; 13] = [0, 1, 2, 3, 4, 5, 6, 9, 12, 13, 14, 16, 17];
/// Kinds of faults that end a snapshot at once, or make a step of it fail.
const CUTS: [u32; 5] = [0, 1, 2, 4, 6];
/// Operations that cuts strike.
const STRUCK: [&str; 3] = ["snapshot", "snapshot", "restore"];
/// Snapshots are taken when something was written.
const TAKEN_FROM_MS: u64 = 1_000;
/// One plan in so many has no faults.
const QUIET_ONE_IN: u32 = 6;

/// The plan's world, clients and faults.
pub(super) fn drawn(mut rng: ChaCha8Rng, base: WorldPlan) -> Drawn {
    let world = WorldPlan {
        q: pick(&mut rng, &[1, 2, 3]),
        documents: rng.random_range(4..=24),
        disk_slow: pick(&mut rng, &[1, 1, 10]),
        turns: rng.random_range(0..2) == 0,
        nodes: 1,
        n: 0,
        strict_reads: false,
        purges_kept: None,
        ..base
    };
    let mut weights = vec![0; KINDS];
    for kind in KINDS_OF_WRITERS {
        weights[kind] = if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(1..=10) };
    }
    for kind in ALWAYS {
        weights[kind] = weights[kind].max(5);
    }
    let (weights, mut draw) = (Weights(weights), Draw { rng, world: &world, next_v: 1 });
    let mut clients: Vec<Vec<TimedOp>> = (0..draw.rng.random_range(1..=3)).map(|_| draw.client(&weights)).collect();
    clients.extend((0..2).map(|_| keeper(&mut draw)));
    let faults = faults(&mut draw);
    (world, clients, faults)
}

/// Somebody who takes snapshots, mostly one after the other in the same folder, and brings some back.
fn keeper(draw: &mut Draw<'_>) -> Vec<TimedOp> {
    let mut ops = Vec::new();
    for nth in 0..draw.rng.random_range(4..=9) {
        let after_ms = if nth == 0 { TAKEN_FROM_MS } else { draw.rng.random_range(0..3_000) };
        ops.push(TimedOp { after_ms, op: Op::Snapshot { fresh: draw.chance(4) } });
        if draw.chance(2) {
            ops.push(TimedOp { after_ms: draw.rng.random_range(0..1_500), op: Op::Restore });
        }
    }
    ops
}

fn faults(draw: &mut Draw<'_>) -> Vec<TimedFault> {
    if draw.chance(QUIET_ONE_IN) {
        return Vec::new();
    }
    let of_kinds = |draw: &mut Draw<'_>, kinds: &[u32]| -> Fault {
        let kind = pick(&mut draw.rng, kinds);
        draw.fault_of(kind)
    };
    let mut out = Vec::new();
    for _ in 0..draw.rng.random_range(0..=4) {
        let (at_ms, fault) = (draw.rng.random_range(0..WORK_MS), of_kinds(draw, &FAULT_KINDS));
        out.push(TimedFault { at_ms, node: 0, fault, aim: None });
    }
    for _ in 0..draw.rng.random_range(1..=5) {
        let (at_ms, fault) = (draw.rng.random_range(TAKEN_FROM_MS - 500..WORK_MS), of_kinds(draw, &CUTS));
        // A snapshot takes some milliseconds, on a slow disk some hundred.
        let within_us = pick(&mut draw.rng, &[5_000, 50_000, 500_000]);
        let aim = Aim { op: pick(&mut draw.rng, &STRUCK).to_owned(), after_us: draw.rng.random_range(0..within_us) };
        out.push(TimedFault { at_ms, node: 0, fault, aim: Some(aim) });
    }
    out.sort_by_key(|timed| timed.at_ms);
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Scene};
    use super::*;

    #[test]
    fn everybody_who_takes_snapshots_takes_some_and_no_clock_goes_wrong() {
        for number in 0..50 {
            let plan = Plan::of_scene(Scene::Snapshots, number);
            let takes =
                |ops: &&Vec<TimedOp>| ops.iter().filter(|timed| matches!(timed.op, Op::Snapshot { .. })).count() > 3;
            assert_eq!(plan.clients.iter().filter(takes).count(), 2, "{number}");
            let clock = |fault: &Fault| {
                matches!(fault, Fault::ClockJump { .. } | Fault::ClockDrift { .. } | Fault::ClockStands { .. })
            };
            assert!(!plan.faults.iter().any(|timed| clock(&timed.fault)) && !plan.damages(), "{number}");
            assert!(plan.takes_snapshots() && plan.world.clusters().is_empty());
        }
    }
}
