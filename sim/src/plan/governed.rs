//! Scenes of what administrators do in a cluster while nodes die and do not hear each other: secrets of cookies that
//! change, databases that several make and delete under the same names, rules for documents, snapshots.
//!
//! Nothing of a disk is lost, and no clock goes wrong.

use rand::RngExt;

use super::draw::pick;
use super::fault::TimedFault;
use super::op::{Op, TimedOp};
use super::stage::{Drawn, Stage, after};
use super::types::WorldPlan;

/// One plan in so many has no faults.
const QUIET_ONE_IN: u32 = 6;
/// Names that are shared.
const NAMES: u32 = 3;

impl Stage {
    /// One or two administrators change the secret; everybody shows all nodes the cookie of a session, and cookies that
    /// were signed with the secrets of now and before.
    pub(super) fn secrets(&mut self, world: WorldPlan) -> Drawn {
        let world = WorldPlan { latency_us: pick(&mut self.rng, &[100, 500, 5_000]), ..world };
        let mut clients = Vec::new();
        for nth in 0..2 * world.nodes {
            let mut ops = Vec::new();
            for _ in 0..25 {
                let node = self.rng.random_range(0..world.nodes);
                let back = pick(&mut self.rng, &[None, None, None, Some(0), Some(0), Some(1), Some(1), Some(2)]);
                let op = if nth < 2 && self.chance(5) { Op::NewSecret } else { Op::SessionAt { node, back } };
                ops.push(after(self.rng.random_range(50..1_200), op));
            }
            if nth == 0 {
                ops.insert(0, after(1_000, Op::NewSecret));
            }
            clients.push(ops);
        }
        let faults = self.strikes(&world, &["new secret", "new secret", "session at"]);
        (world, clients, faults)
    }

    /// Everybody makes and deletes databases of a few names, often in the same moment, and writes to them in between.
    pub(super) fn same_name(&mut self, world: WorldPlan) -> Drawn {
        let nodes = pick(&mut self.rng, &[3, 4]);
        let world = WorldPlan {
            nodes,
            n: pick(&mut self.rng, &[2, 3]),
            q: pick(&mut self.rng, &[1, 2]),
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            turns: self.chance(2),
            ..world
        };
        let mut clients = Vec::new();
        for nth in 0..2 * world.nodes {
            // One makes what the next one deletes: else nobody would write much.
            let (makes, deletes) = pick(&mut self.rng, &[(6, 1), (4, 2), (3, 3)]);
            let mut ops = Vec::new();
            for _ in 0..30 {
                let name = self.rng.random_range(0..NAMES);
                let op = match self.rng.random_range(0..20) {
                    at if at < makes => Op::CommonCreate { name },
                    at if at < makes + deletes => Op::CommonDelete { name },
                    19 => Op::CommonCheck { name },
                    _ => self.common_write(name),
                };
                ops.push(after(self.rng.random_range(20..1_000), op));
            }
            if nth % 2 == 0 {
                // Several at the same moment.
                ops.insert(0, after(500, Op::CommonCreate { name: 0 }));
            }
            clients.push(ops);
        }
        let faults = self.strikes(&world, &["common create", "common delete", "common delete", "common write"]);
        (world, clients, faults)
    }

    fn common_write(&mut self, name: u32) -> Op {
        self.next_v += 1;
        Op::CommonWrite { name, v: self.next_v }
    }

    /// Each of two makes a rule and takes it back again and again; the others write what it is about.
    pub(super) fn rules(&mut self, world: WorldPlan) -> Drawn {
        let nodes = pick(&mut self.rng, &[3, 4]);
        let world = WorldPlan {
            nodes,
            q: pick(&mut self.rng, &[1, 2, 4]),
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            turns: self.chance(2),
            ..world
        };
        let mut clients = Vec::new();
        for nth in 0..2 * world.nodes {
            let mut ops = Vec::new();
            if nth < 2 {
                for turn in 0..self.rng.random_range(1..=4) {
                    ops.push(after(self.rng.random_range(500..5_000), Op::Rule { on: turn % 2 == 0 }));
                }
            }
            for _ in ops.len()..30 {
                self.next_v += 1;
                let op = Op::Ruled { v: self.next_v, way: self.rng.random_range(0..3) };
                ops.push(after(self.rng.random_range(100..1_000), op));
            }
            clients.push(ops);
        }
        let faults = self.strikes(&world, &["rule", "ruled", "ruled"]);
        (world, clients, faults)
    }

    /// On each node one takes snapshots and brings them back, and another one writes; writes ask for all replicas, so
    /// that it is certain what a node has.
    pub(super) fn cluster_snapshots(&mut self, world: WorldPlan) -> Drawn {
        let world = WorldPlan {
            q: pick(&mut self.rng, &[1, 2]),
            documents: self.rng.random_range(4..=10),
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            turns: self.chance(2),
            w: Some(3),
            r: None,
            ..world
        };
        let mut clients: Vec<Vec<TimedOp>> = (0..world.nodes).map(|_| self.writes_and_reads(&world)).collect();
        for _ in 0..world.nodes {
            let mut ops = Vec::new();
            for nth in 0..self.rng.random_range(2..=5) {
                let after_ms = if nth == 0 { 1_500 } else { self.rng.random_range(0..4_000) };
                ops.push(after(after_ms, Op::Snapshot { fresh: self.chance(4) }));
                if self.chance(2) {
                    ops.push(after(self.rng.random_range(0..2_000), Op::Restore));
                }
            }
            clients.push(ops);
        }
        let faults = self.strikes(&world, &["snapshot", "snapshot", "restore"]);
        (world, clients, faults)
    }

    /// Nodes that die within one of these operations, and a few things more that lose nothing.
    fn strikes(&mut self, world: &WorldPlan, struck: &[&str]) -> Vec<TimedFault> {
        if self.chance(QUIET_ONE_IN) {
            return Vec::new();
        }
        let mut faults = Vec::new();
        for _ in 0..self.rng.random_range(1..=3) {
            let (at_ms, node) = (self.rng.random_range(1_000..12_000), self.rng.random_range(0..world.nodes));
            let op = pick(&mut self.rng, struck);
            let within_us = pick(&mut self.rng, &[5_000, 50_000, 1_000_000]);
            let aimed = self.aimed(node, op, within_us);
            faults.push(TimedFault { at_ms, ..aimed });
        }
        for _ in 0..self.rng.random_range(0..=3) {
            faults.push(self.any_of_a_node(world));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Plan, Scene};

    #[test]
    fn each_scene_has_what_it_is_about_and_loses_nothing() {
        for scene in [Scene::Secrets, Scene::SameName, Scene::Rules, Scene::ClusterSnapshots] {
            let plans: Vec<Plan> = (0..50).map(|number| Plan::of_scene(scene, number)).collect();
            assert!(!plans.iter().any(|plan| plan.loses_disks() || plan.damages() || plan.moves_replicas()));
            assert!(plans.iter().any(|plan| plan.faults.is_empty()), "some are in peace");
            for plan in &plans {
                let turned = (plan.changes_secrets(), plan.has_rules(), plan.takes_snapshots());
                assert_eq!(turned.0, scene == Scene::Secrets);
                assert_eq!(turned.1, scene == Scene::Rules);
                assert_eq!(turned.2, scene == Scene::ClusterSnapshots);
                assert!(plan.world.replicas() > 1 && plan.world.nodes >= plan.world.n);
            }
        }
    }
}
