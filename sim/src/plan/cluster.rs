//! From a seed to a plan for one cluster of several nodes.
//!
//! Faults stay within what `n` replicas promise: nodes crash, stand still and are cut off at will, while the disk of
//! one node at most is lost, or goes back in time.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::draw::{Draw, KINDS, Weights, pick};
use super::fault::{Fault, TimedFault};
use super::op::{FeedFilter, Op, TimedOp};
use super::types::{Ailment, Outcast, Plan, WORK_MS, WorldPlan};

/// Makes the draws of a cluster's plan others than those of one node's.
const CLUSTER: u64 = 0xc1u64 << 56;
/// Draws of its own for the replications of a cluster, which all other draws go without.
const KEPT: u64 = 0x6eu64 << 56;
/// Draws of its own for what clients ask of replicas, and for who looks at views.
const ASKED: u64 = 0xa5u64 << 56;
/// Draws of its own for faults of disks.
const STORED: u64 = 0x57u64 << 56;
/// Draws of its own for the node that stays broken.
const LEFT_OUT: u64 = 0x10u64 << 56;
/// Draws of its own for those who change where replicas are.
const PLACED: u64 = 0x9au64 << 56;
/// Kinds of operations on documents that all clients share.
const SHARED_KINDS: std::ops::Range<usize> = 0..11;
/// Local documents are each replica's own until it is caught up.
const LOCAL_KIND: usize = 9;
/// A feed that is read page by page.
const FEED_KIND: usize = 33;
/// Access and sessions. A node that went back in time has the access of then until it meets another.
const ACCESS_KINDS: [usize; 5] = [29, 30, 31, 32, 35];
/// Kinds of operations that [`op`] knows.
const OWN_KINDS: usize = 5;
/// Kinds of faults of any node.
const FAULT_KINDS: [u32; 11] = [0, 1, 2, 3, 4, 5, 7, 8, 9, 21, 22];
/// Kinds of faults of any node's disk that lose nothing of what was synced.
const STORED_KINDS: [u32; 7] = [6, 12, 13, 14, 15, 16, 17];
/// The kind of a split.
const SPLIT: u32 = 100;
/// The kind of a rolling upgrade.
const UPGRADE: u32 = 101;
/// Draws of its own for the upgrades of a cluster.
const UPGRADED: u64 = 0x24u64 << 56;
/// Kinds of faults of the one node whose disk may fail.
const VICTIM_KINDS: [u32; 2] = [18, 19];

impl Plan {
    /// Expands a seed to a plan for one cluster of several nodes.
    pub fn cluster_from_seed(seed: u64) -> Plan {
        let mut plan = Plan::from_seed(seed);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ CLUSTER);
        let nodes = rng.random_range(3..=7);
        plan.world = WorldPlan {
            nodes,
            n: rng.random_range(1..=3),
            documents: rng.random_range(1..=8),
            latency_us: pick(&mut rng, &[100, 500, 5_000]),
            first_start_cut: None,
            message_bytes: 0,
            step_rows: 0,
            strict_reads: rng.random_range(0..3) == 0,
            ..plan.world
        };
        // A single replica is gone with its disk.
        let victim = (plan.world.n > 1 && rng.random_range(0..2) == 0).then(|| rng.random_range(0..nodes));
        let weights = weights(&mut rng, victim.is_some());
        let clients = rng.random_range(2..=5);
        let world = plan.world.clone();
        let mut draw = Draw { rng, world: &world, next_v: 1 };
        plan.clients = (0..clients).map(|_| draw.client(&weights)).collect();
        // Somebody follows its feed.
        let victim = victim.map(|node| node % clients);
        plan.faults = faults(&mut draw, victim);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ KEPT);
        // A node that went back in time has the replications of then until it meets another.
        if victim.is_none() && rng.random_range(0..4) == 0 {
            let filter = pick(&mut rng, &[FeedFilter::All, FeedFilter::Selector, FeedFilter::Ids]);
            plan.clients[0].insert(0, TimedOp { after_ms: rng.random_range(0..WORK_MS / 4), op: Op::Keep { filter } });
        }
        asks(&mut plan);
        upgrades(&mut plan);
        let victims = VICTIM_KINDS.into_iter().filter(|_| victim.is_some());
        let kinds: Vec<u32> = FAULT_KINDS.into_iter().chain([SPLIT, UPGRADE]).chain(victims).collect();
        plan.aim(&kinds, |draw, kind| {
            let node = victim.filter(|_| VICTIM_KINDS.contains(&kind));
            let node = node.unwrap_or_else(|| draw.rng.random_range(0..nodes));
            let fault = match kind {
                SPLIT => split(draw),
                UPGRADE => upgrade(&mut draw.rng, nodes, true),
                kind => draw.fault_of(kind),
            };
            (node, fault)
        });
        plan.order();
        spoil_disks(&mut plan);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ PLACED);
        for _ in 0..pick(&mut rng, &[0, 0, 0, 1, 1, 2]) {
            plan.clients.push(operator(&mut rng, nodes));
        }
        plan.draw_the_rest();
        plan.world.outcast = outcast(&plan);
        plan
    }
}

/// In one run of three disks fail, fill up, stand still or are cut off in the middle, too.
fn spoil_disks(plan: &mut Plan) {
    let rng = ChaCha8Rng::seed_from_u64(plan.seed ^ STORED);
    let mut draw = Draw { rng, world: &plan.world, next_v: 0 };
    if plan.faults.is_empty() || !draw.chance(3) {
        return;
    }
    let count = draw.rng.random_range(1..=3);
    let fault = |draw: &mut Draw<'_>| {
        let (at_ms, node) = (draw.rng.random_range(0..WORK_MS), draw.rng.random_range(0..draw.world.nodes));
        let kind = pick(&mut draw.rng, &STORED_KINDS);
        TimedFault { at_ms, node, fault: draw.fault_of(kind), aim: None }
    };
    let drawn: Vec<TimedFault> = (0..count).map(|_| fault(&mut draw)).collect();
    plan.faults.extend(drawn);
    plan.faults.sort_by_key(|timed| timed.at_ms);
}

/// Where faults meet three replicas that stay where they are, one node does not come back: that whose disk was lost,
/// for the others must have what it had.
fn outcast(plan: &Plan) -> Option<Outcast> {
    if plan.world.replicas() < 3 || plan.faults.is_empty() || plan.moves_replicas() {
        return None;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ LEFT_OUT);
    let drawn = rng.random_range(0..plan.world.nodes);
    let loses = |timed: &&TimedFault| matches!(timed.fault, Fault::DiskLost { .. } | Fault::BackInTime { .. });
    let node = plan.faults.iter().find(loses).map_or(drawn, |timed| timed.node);
    let how = [Ailment::Alone, Ailment::Deaf, Ailment::Mute, Ailment::StandsStill];
    Some(Outcast { node, how: pick(&mut rng, &how) })
}

/// In half of the runs clients say how many replicas are to hold a write, or to answer a read; in half of them one more
/// looks at the documents through views, queries and a feed by a selector.
fn asks(plan: &mut Plan) {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ ASKED);
    let replicas = plan.world.replicas();
    let mut asked = |often: u32| (rng.random_range(0..often) == 0).then(|| rng.random_range(1..=replicas));
    (plan.world.w, plan.world.r) = (asked(2), asked(2));
    if rng.random_range(0..2) == 0 {
        let count = rng.random_range(3..=15);
        let look = |rng: &mut ChaCha8Rng| match rng.random_range(0..4) {
            0 | 1 => Op::View { view: rng.random_range(0..2) },
            2 => Op::Find { k: rng.random_range(0..60) },
            _ => Op::FollowChosen,
        };
        let timed = |rng: &mut ChaCha8Rng| {
            let after_ms = rng.random_range(0..2 * WORK_MS / count);
            TimedOp { after_ms, op: look(rng) }
        };
        plan.clients.push((0..count).map(|_| timed(&mut rng)).collect());
    }
}

/// What somebody does who runs the cluster.
fn operator(rng: &mut ChaCha8Rng, nodes: u32) -> Vec<TimedOp> {
    let count = rng.random_range(1..=6);
    let op = |rng: &mut ChaCha8Rng| {
        let (passing, range, node) = (rng.random_range(0..3) == 0, rng.random_range(0..8), rng.random_range(0..nodes));
        match rng.random_range(0..4) {
            0 | 1 => Op::MoveReplica { passing, range, to: node },
            2 => Op::Rebalance { drain: (rng.random_range(0..2) == 0).then_some(node) },
            _ => Op::SplitRange { passing, range },
        }
    };
    (0..count).map(|_| TimedOp { after_ms: rng.random_range(0..2 * WORK_MS / count), op: op(rng) }).collect()
}

/// How likely each kind of operation is: of those that several nodes promise together.
fn weights(rng: &mut ChaCha8Rng, loses_disks: bool) -> Weights {
    let mut weights = vec![0; KINDS + OWN_KINDS];
    for kind in SHARED_KINDS.chain(KINDS..KINDS + OWN_KINDS) {
        weights[kind] = if rng.random_range(0..3) == 0 { 0 } else { rng.random_range(1..=20) };
    }
    weights[0] = weights[0].max(5);
    weights[FEED_KIND] = rng.random_range(0..=10) + if loses_disks { 5 } else { 0 };
    for kind in ACCESS_KINDS {
        let drawn = if rng.random_range(0..3) == 0 { rng.random_range(1..=10) } else { 0 };
        weights[kind] = if loses_disks { 0 } else { drawn };
    }
    weights[LOCAL_KIND] = 0;
    Weights(weights)
}

/// One run in three is upgraded while it works, some nodes or all of them, and mostly goes back, some nodes or all.
fn upgrades(plan: &mut Plan) {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ UPGRADED);
    if plan.faults.is_empty() || rng.random_range(0..3) > 0 {
        return;
    }
    let nodes = plan.world.nodes;
    let back = if rng.random_range(0..3) > 0 { 2 } else { 1 };
    for nth in 0..back {
        let at_ms = rng.random_range(0..WORK_MS / 2) + nth * WORK_MS / 2;
        let (node, fault) = (rng.random_range(0..nodes), upgrade(&mut rng, nodes, nth == 0));
        plan.faults.push(TimedFault { at_ms, node, fault, aim: None });
    }
    plan.faults.sort_by_key(|timed| timed.at_ms);
}

fn upgrade(rng: &mut ChaCha8Rng, nodes: u32, later: bool) -> Fault {
    let nodes = rng.random_range(1..=nodes);
    Fault::Upgrade { nodes, later, every_ms: rng.random_range(500..=2_500), down_ms: rng.random_range(1..=1_000) }
}

fn split(draw: &mut Draw<'_>) -> Fault {
    Fault::Split {
        group: draw.rng.random_range(1..(1 << draw.world.nodes) - 1),
        one_way: draw.chance(2),
        for_ms: draw.rng.random_range(100..=6_000),
    }
}

/// One run in five is quiet, so that plain answers are checked too.
fn faults(draw: &mut Draw<'_>, victim: Option<u32>) -> Vec<TimedFault> {
    if draw.chance(5) {
        return Vec::new();
    }
    let usual: Vec<u32> = FAULT_KINDS.into_iter().filter(|_| draw.chance(2)).collect();
    let count = draw.rng.random_range(1..=10);
    let mut out: Vec<TimedFault> = (0..count).map(|_| fault(draw, &usual, victim)).collect();
    out.sort_by_key(|f| f.at_ms);
    out
}

fn fault(draw: &mut Draw<'_>, usual: &[u32], victim: Option<u32>) -> TimedFault {
    let (nodes, at_ms) = (draw.world.nodes, draw.rng.random_range(0..WORK_MS));
    if let Some(node) = victim.filter(|_| draw.chance(4)) {
        let kind = pick(&mut draw.rng, &VICTIM_KINDS);
        return TimedFault { at_ms, node, fault: draw.fault_of(kind), aim: None };
    }
    let node = draw.rng.random_range(0..nodes);
    let fault = match usual.is_empty() || draw.chance(3) {
        true => split(draw),
        false => {
            let kind = pick(&mut draw.rng, usual);
            draw.fault_of(kind)
        }
    };
    TimedFault { at_ms, node, fault, aim: None }
}
