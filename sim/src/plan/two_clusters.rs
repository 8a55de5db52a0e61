//! From a number to a plan of the scene `two-clusters`: both clusters are written to, replicate both ways, and meet
//! faults of nodes, of the way between them and of what stands before the first node.
//!
//! Faults stay within what acknowledged writes survive: no disk is lost. Much is written before anybody asks for a
//! replication, so that it has many pages to bring, of documents with several leaves; nodes die while it does.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::{Draw, KINDS, Weights, pick};
use super::fault::{Aim, Fault, TimedFault};
use super::op::{FeedFilter, Op, TimedOp, WAYS, Way};
use super::stage::Drawn;
use super::types::{Far, WORK_MS, WorldPlan};

/// Kinds of operations that clients of both clusters do: those on shared documents but for local ones, and a feed.
const KINDS_OF_CLIENTS: [usize; 11] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 33];
/// Those of them that are in every plan: single edits, replicated ones (they make conflicts), many at once.
const ALWAYS: [usize; 3] = [0, 3, 4];
/// Kinds of faults: of any node, and of the peer that replications fetch from.
const FAULT_KINDS: [u32; 15] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 14, 16, 17, 23, 24, 25];
/// Kinds of faults that end a run of a replication at once: a node dies or loses its connections.
const CUTS: [u32; 3] = [0, 1, 4];
/// Replications are asked for when about so much was written.
const JOINED_FROM_MS: u64 = 2_000;
/// Of a node that is away so long others take the replications over.
const TAKEN_OVER_MS: u64 = 6_000;
/// Operations during which cuts strike.
const STRUCK: [&str; 5] = ["join", "ferry", "bulk", "merge", "put"];
/// Cuts strike within so many latencies between the clusters: about what it takes to bring some pages over.
const STRUCK_WITHIN: u64 = 60;
/// One plan in so many has no faults.
const QUIET_ONE_IN: u32 = 6;

/// The plan's world, clients and faults.
pub(super) fn drawn(mut rng: ChaCha8Rng, base: WorldPlan) -> Drawn {
    let far = Far {
        nodes: rng.random_range(2..=3),
        latency_us: pick(&mut rng, &[1_000, 10_000, 40_000]),
        loss_per_10k: pick(&mut rng, &[0, 10, 200]),
    };
    let nodes: u32 = rng.random_range(2..=3);
    let world = WorldPlan {
        q: pick(&mut rng, &[1, 2, 3]),
        documents: rng.random_range(12..=48),
        latency_us: pick(&mut rng, &[100, 500, 2_000]),
        loss_per_10k: pick(&mut rng, &[0, 0, 10, 100]),
        disk_slow: pick(&mut rng, &[1, 1, 10]),
        turns: rng.random_range(0..2) == 0,
        nodes,
        n: rng.random_range(1..=nodes.min(far.nodes)),
        strict_reads: rng.random_range(0..3) == 0,
        purges_kept: None,
        far: Some(far),
        ..base
    };
    let weights = weights(&mut rng);
    let mut draw = Draw { rng, world: &world, next_v: 1 };
    let mut clients: Vec<Vec<TimedOp>> = (0..world.machines()).map(|_| draw.client(&weights)).collect();
    let ways = ways(&mut draw);
    clients.extend(ways.map(|way| joiner(&mut draw, way)));
    let faults = faults(&mut draw, far);
    (world, clients, faults)
}

fn weights(rng: &mut ChaCha8Rng) -> Weights {
    let mut weights = vec![0; KINDS];
    for kind in KINDS_OF_CLIENTS {
        weights[kind] = if rng.random_range(0..3) == 0 { 0 } else { rng.random_range(1..=10) };
    }
    for kind in ALWAYS {
        weights[kind] = weights[kind].max(5);
    }
    Weights(weights)
}

/// One that brings changes to the far cluster, and one that brings them home.
fn ways(draw: &mut Draw<'_>) -> [Way; 2] {
    [true, false].map(|far_gets| {
        let fitting: Vec<Way> = WAYS.into_iter().filter(|way| way.far_gets() == far_gets).collect();
        pick(&mut draw.rng, &fitting)
    })
}

/// Somebody who asks for a replication by a document, twice in case that nobody heard, has it done at once by the way,
/// may take the document back and write it again, and may ask for a part of it.
fn joiner(draw: &mut Draw<'_>, way: Way) -> Vec<TimedOp> {
    let join = |draw: &mut Draw<'_>, filter| {
        let (at, by) = (draw.rng.random_range(0..3), draw.rng.random_range(0..3));
        Op::Join { way, filter, at, by }
    };
    let mut ops = vec![join(draw, FeedFilter::All), join(draw, FeedFilter::All)];
    for _ in 0..draw.rng.random_range(0..=2) {
        let way = pick(&mut draw.rng, &WAYS);
        ops.push(Op::Ferry { way, at: draw.rng.random_range(0..3), by: draw.rng.random_range(0..3) });
    }
    if draw.chance(3) {
        let filter = pick(&mut draw.rng, &[FeedFilter::Selector, FeedFilter::Ids]);
        let narrow = join(draw, filter);
        ops.insert(1, narrow);
    }
    if draw.chance(3) {
        ops.push(Op::Part { way, filter: FeedFilter::All, at: draw.rng.random_range(0..3) });
        ops.push(join(draw, FeedFilter::All));
    }
    let begin_ms = JOINED_FROM_MS + draw.rng.random_range(0..6_000);
    let pause = |draw: &mut Draw<'_>, nth: usize| if nth == 0 { begin_ms } else { draw.rng.random_range(0..4_000) };
    let timed = |(nth, op): (usize, Op)| TimedOp { after_ms: pause(draw, nth), op };
    ops.into_iter().enumerate().map(timed).collect()
}

fn faults(draw: &mut Draw<'_>, far: Far) -> Vec<TimedFault> {
    if draw.chance(QUIET_ONE_IN) {
        return Vec::new();
    }
    let machines = draw.world.machines();
    let mut out = Vec::new();
    for _ in 0..draw.rng.random_range(2..=8) {
        let (at_ms, node) = (draw.rng.random_range(0..WORK_MS), draw.rng.random_range(0..machines));
        let fault = if draw.chance(3) { split(draw) } else { of_kinds(draw, &FAULT_KINDS) };
        out.push(TimedFault { at_ms, node, fault, aim: None });
    }
    for _ in 0..draw.rng.random_range(2..=6) {
        let (at_ms, node) = (draw.rng.random_range(JOINED_FROM_MS..WORK_MS), draw.rng.random_range(0..machines));
        let after_us = draw.rng.random_range(0..STRUCK_WITHIN * far.latency_us);
        let aim = Aim { op: pick(&mut draw.rng, &STRUCK).to_owned(), after_us };
        out.push(TimedFault { at_ms, node, fault: cut(draw), aim: Some(aim) });
    }
    out.sort_by_key(|timed| timed.at_ms);
    out
}

fn of_kinds(draw: &mut Draw<'_>, kinds: &[u32]) -> Fault {
    let kind = pick(&mut draw.rng, kinds);
    draw.fault_of(kind)
}

/// Half of the nodes that die are away for long.
fn cut(draw: &mut Draw<'_>) -> Fault {
    let mut fault = of_kinds(draw, &CUTS);
    if draw.chance(2)
        && let Fault::Crash { down_ms } | Fault::PowerLoss { down_ms } = &mut fault
    {
        *down_ms += TAKEN_OVER_MS;
    }
    fault
}

/// Half of the splits are between the clusters, the others anywhere.
fn split(draw: &mut Draw<'_>) -> Fault {
    let anywhere = draw.rng.random_range(1..(1 << draw.world.machines()) - 1);
    Fault::Split {
        group: if draw.chance(2) { (1 << draw.world.nodes) - 1 } else { anywhere },
        one_way: draw.chance(3),
        for_ms: draw.rng.random_range(500..=6_000),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Scene};
    use super::*;

    #[test]
    fn both_ways_are_asked_for_and_faults_are_of_nodes_that_there_are() {
        for number in 0..50 {
            let plan = Plan::of_scene(Scene::TwoClusters, number);
            let whole = |timed: &TimedOp| match timed.op {
                Op::Join { way, filter: FeedFilter::All, .. } => Some(way.far_gets()),
                _ => None,
            };
            let gets: Vec<bool> = plan.clients.iter().flatten().filter_map(whole).collect();
            assert!(gets.contains(&true) && gets.contains(&false), "{number}");
            let (world, clusters) = (&plan.world, plan.world.clusters());
            assert_eq!(clusters.iter().map(|nodes| nodes.len() as u32).sum::<u32>(), world.machines());
            assert!(clusters.iter().all(|nodes| nodes.len() as u32 >= world.n), "each has room for all replicas");
            assert!(plan.faults.iter().all(|timed| timed.node < world.machines()), "{number}");
            assert!(!plan.loses_disks() && !plan.damages());
        }
    }
}
