//! The scene `purges`: what was purged stays away, though one replica hears of the edit late, or has only its ancestor.
//!
//! In the first three rounds each node in turn is the one that hears of an edit late, in case it is the primary: the
//! way from the writer stands still, a moment later the node itself does, the writer takes the edit to another primary,
//! and the revision is purged by way of the third node. When the node works again it hears the purge first, since the
//! way from the writer opens after that, and before the node itself takes the writer for dead. In the fourth round a
//! node is cut off while documents are written again and purged: it has the revision before, as a leaf.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::fault::Fault;
use super::op::{Op, TimedOp};
use super::stage::{Drawn, after, fault};
use super::types::WorldPlan;

/// When the first round begins: all nodes are in sync.
const FIRST_MS: u64 = 4_000;
/// Time of one of the first three rounds: after it the node is in sync again.
const ROUND_MS: u64 = 10_000;
/// When the last round begins.
const LAST_MS: u64 = FIRST_MS + 3 * ROUND_MS;

/// The plan's world, clients and faults.
pub(super) fn drawn(mut rng: ChaCha8Rng, number: u64, base: WorldPlan) -> Drawn {
    let world = WorldPlan { documents: 1, latency_us: pick(&mut rng, &[100, 500, 5_000]), strict_reads: false, ..base };
    let nodes = world.nodes;
    let mut clients: Vec<Vec<TimedOp>> = vec![Vec::new(); nodes as usize];
    let mut faults = Vec::new();
    // A document's number names the node that purges it.
    let v = |nth: u32, by: u32| u64::from(nodes * nth + by);
    for held in 0..nodes {
        let begin_ms = FIRST_MS + u64::from(held) * ROUND_MS;
        let writer = (held + 1 + (number % 2) as u32) % nodes;
        let other = 3 - writer - held;
        // The writer gives its call up between 5 and 5.5 s after the way stands still, the third node later than that.
        let stands_ms = begin_ms + rng.random_range(600..900);
        let works_ms = begin_ms + rng.random_range(5_700..5_900);
        let opens_ms = works_ms + rng.random_range(20..300);
        faults.push(fault(begin_ms, held, Fault::Clog { group: 1 << writer, for_ms: opens_ms - begin_ms }));
        faults.push(fault(stands_ms, held, Fault::Pause { for_ms: works_ms - stands_ms }));
        let mut round = vec![Vec::new(); nodes as usize];
        let ops = &mut round[writer as usize];
        ops.push(after(begin_ms + 100, Op::Pass { v: v(1 + held, other) }));
        ops.push(after(rng.random_range(0..20), Op::PassAway));
        clients.extend(round);
    }
    let cut = (number / 6 % u64::from(nodes)) as u32;
    for node in (0..nodes).filter(|node| *node != cut) {
        let ops = &mut clients[node as usize];
        for nth in 0..3 {
            ops.push(after(if nth == 0 { LAST_MS } else { 20 }, Op::Pass { v: v(10 + 3 * node + nth, node) }));
        }
        ops.push(after(2_500, Op::PassOn));
        ops.push(after(50, Op::PassOn));
        (0..3).for_each(|_| ops.push(after(rng.random_range(0..100), Op::PassAway)));
    }
    let for_ms = rng.random_range(3_500..4_500);
    faults.push(fault(LAST_MS + 1_500, cut, Fault::Split { group: 1 << cut, one_way: false, for_ms }));
    (world, clients, faults)
}

#[cfg(test)]
mod tests {
    use super::super::{Fault, Plan, Scene};

    #[test]
    fn each_node_hears_late_of_an_edit_and_each_node_is_cut_off() {
        let plans: Vec<Plan> = (0..18).map(|number| Plan::of_scene(Scene::Purges, number)).collect();
        for plan in &plans {
            let held = plan.faults.iter().filter(|timed| matches!(timed.fault, Fault::Pause { .. }));
            assert_eq!(held.map(|timed| timed.node).collect::<Vec<_>>(), [0, 1, 2]);
        }
        let cut = plans.iter().filter_map(|plan| plan.faults.last()).map(|timed| timed.node);
        assert_eq!(cut.collect::<std::collections::BTreeSet<u32>>().len(), 3);
        let names = |plan: &Plan, name: &str| plan.clients.iter().flatten().filter(|t| t.op.name() == name).count();
        assert!(plans.iter().all(|plan| names(plan, "pass on") == 4 && names(plan, "pass away") >= 9));
    }
}
