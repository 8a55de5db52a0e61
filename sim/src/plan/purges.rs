//! The scene `purges`: what was purged stays away, though one replica hears of the edit late, or has only its ancestor.
//!
//! In the first round the way from a node to another one stands still, in case that is the primary: the edit that waits
//! there is made elsewhere, purged everywhere, and worked off behind that. In the second round a node is cut off while
//! documents are written again and purged: it has the revision before, as a leaf.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::stage::{Drawn, after, fault};
use super::{Fault, Op, TimedOp, WorldPlan};

/// When the second round begins: an edit without an answer is given up after five seconds, and the way stands still for
/// some more.
const SECOND_MS: u64 = 14_000;

/// The plan's world, clients and faults.
pub(super) fn drawn(mut rng: ChaCha8Rng, number: u64, base: WorldPlan) -> Drawn {
    let world = WorldPlan { documents: 1, latency_us: pick(&mut rng, &[100, 500, 5_000]), strict_reads: false, ..base };
    let nodes = world.nodes;
    // The ways from one to another node of three, one after the other.
    let writer = (number % u64::from(nodes)) as u32;
    let held = (writer + 1 + (number / u64::from(nodes) % 2) as u32) % nodes;
    let other = 3 - writer - held;
    let mut clients: Vec<Vec<TimedOp>> = vec![Vec::new(); nodes as usize];
    // A document's number names the node that purges it.
    let v = |nth: u32, by: u32| u64::from(nodes * nth + by);
    let ops = &mut clients[writer as usize];
    ops.push(after(1_600, Op::Pass { v: v(1, other) }));
    ops.push(after(rng.random_range(0..200), Op::PassAway));
    let begin_ms = 1_500;
    let for_ms = rng.random_range(7_500..9_000);
    let mut faults = vec![fault(begin_ms, held, Fault::Clog { group: 1 << writer, for_ms })];
    let cut = (number / 6 % u64::from(nodes)) as u32;
    for node in (0..nodes).filter(|node| *node != cut) {
        let ops = &mut clients[node as usize];
        // The first round takes the writer up to eight seconds.
        let rest_ms = if ops.is_empty() { SECOND_MS } else { SECOND_MS - 8_000 };
        for nth in 0..3 {
            ops.push(after(if nth == 0 { rest_ms } else { 20 }, Op::Pass { v: v(10 + 3 * node + nth, node) }));
        }
        ops.push(after(2_500, Op::PassOn));
        ops.push(after(50, Op::PassOn));
        (0..3).for_each(|_| ops.push(after(rng.random_range(0..100), Op::PassAway)));
    }
    let for_ms = rng.random_range(3_500..4_500);
    faults.push(fault(SECOND_MS + 1_500, cut, Fault::Split { group: 1 << cut, one_way: false, for_ms }));
    (world, clients, faults)
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Scene};

    #[test]
    fn each_way_between_two_nodes_stands_still_and_each_node_is_cut_off() {
        let plans: Vec<Plan> = (0..18).map(|number| Plan::of_scene(Scene::Purges, number)).collect();
        let at = |plan: &Plan, nth: usize| (plan.faults[nth].node, format!("{:?}", plan.faults[nth].fault));
        let ways: std::collections::BTreeSet<u32> = plans.iter().map(|plan| at(plan, 0).0).collect();
        let cuts: std::collections::BTreeSet<u32> = plans.iter().map(|plan| at(plan, 1).0).collect();
        assert!(ways.len() == 3 && cuts.len() == 3);
        let names = |plan: &Plan, name: &str| plan.clients.iter().flatten().filter(|t| t.op.name() == name).count();
        assert!(plans.iter().all(|plan| names(plan, "pass on") == 4 && names(plan, "pass away") >= 6));
    }
}
