//! Scenes: families of cluster plans that bring one rare meeting about, again and again.
//!
//! Some promises are broken only where several things fall together within milliseconds: an answer that is lost after
//! the edit was stored, a node that goes by a map of before, a disk that goes back behind what a reader has seen. Plans
//! drawn at large meet that once in thousands of seeds. A scene has little else in it; what is drawn is who plays which
//! part, and when exactly. Without a bug it must hold like any other plan.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::{Aim, Fault, FeedMode, Op, Plan, TimedFault, TimedOp, WorldPlan};

/// What a scene brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Writers on one revision reach the judge, whose answers are lost; all of them go to the next one.
    LateAnswer,
    /// A node whose journal stands still cannot go over to a new map: it goes on by the old one while a copy moves.
    StaleMap,
    /// A disk goes back behind what the readers of its feed have seen; they ask again after more was written.
    PutBack,
    /// A node is gone whose feed was read to the end; its readers go on at others, which had long come in step with it.
    NodeGone,
    /// On both sides of a split somebody makes the database that is not there, and writes to it.
    Twins,
}

/// All of them, with their names.
pub const SCENES: [(&str, Scene); 5] = [
    ("late-answer", Scene::LateAnswer),
    ("stale-map", Scene::StaleMap),
    ("put-back", Scene::PutBack),
    ("twins", Scene::Twins),
    ("node-gone", Scene::NodeGone),
];

/// A plan's seed is that of a scene from this bit on.
const SCENE_BIT: u32 = 48;

impl Scene {
    fn at(self) -> u64 {
        SCENES.iter().position(|(_, scene)| *scene == self).map_or(0, |at| at as u64 + 1)
    }

    /// That of a name.
    pub fn named(name: &str) -> Option<Scene> {
        SCENES.iter().find(|(known, _)| *known == name).map(|(_, scene)| *scene)
    }

    /// The name of the plan with that seed, if it is one of a scene.
    pub(super) fn name_of(seed: u64) -> Option<String> {
        let at = (seed >> SCENE_BIT).checked_sub(1)? as usize;
        SCENES.get(at).map(|(name, _)| format!("{name}-{}", seed & ((1 << SCENE_BIT) - 1)))
    }

    /// The plan of that name.
    pub(super) fn plan_named(name: &str) -> Option<Plan> {
        let (scene, number) = name.rsplit_once('-')?;
        Some(Plan::of_scene(Scene::named(scene)?, number.parse().ok()?))
    }
}

impl Plan {
    /// The plan of a scene with that number.
    pub fn of_scene(scene: Scene, number: u64) -> Plan {
        let seed = scene.at() << SCENE_BIT | number;
        let base = Plan::from_seed(seed);
        let world = WorldPlan {
            q: 1,
            latency_us: 500,
            loss_per_10k: 0,
            disk_slow: 1,
            turns: false,
            first_start_cut: None,
            nodes: 3,
            n: 3,
            strict_reads: true,
            ..base.world.clone()
        };
        let mut stage = Stage { rng: ChaCha8Rng::seed_from_u64(seed), number, next_v: 0 };
        let (world, clients, faults) = match scene {
            Scene::LateAnswer => stage.late_answer(world),
            Scene::StaleMap => stage.stale_map(world),
            Scene::PutBack => stage.put_back(world),
            Scene::Twins => stage.twins(world),
            Scene::NodeGone => stage.node_gone(world),
        };
        Plan { world, clients, faults, ..base }
    }
}

/// A world, what its clients do, and what goes wrong.
type Drawn = (WorldPlan, Vec<Vec<TimedOp>>, Vec<TimedFault>);

struct Stage {
    rng: ChaCha8Rng,
    number: u64,
    next_v: u64,
}

fn after(after_ms: u64, op: Op) -> TimedOp {
    TimedOp { after_ms, op }
}

fn fault(at_ms: u64, node: u32, fault: Fault) -> TimedFault {
    TimedFault { at_ms, node, fault, aim: None }
}

/// Reads documents one after the other for some seconds.
fn looks(begin_ms: u64, doc: impl Fn(u32) -> u32) -> Vec<TimedOp> {
    (0..25).map(|nth| after(if nth == 0 { begin_ms } else { 10 }, Op::ReadTree { doc: doc(nth) })).collect()
}

impl Stage {
    fn put(&mut self, doc: u32) -> Op {
        self.next_v += 1;
        Op::Put { doc, v: self.next_v }
    }

    /// Writes one of the two documents of a client again and again, five times a second.
    fn writes(&mut self, client: u32, count: usize) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..count {
            let doc = 2 * client + self.rng.random_range(0..2);
            ops.push(after(self.rng.random_range(100..300), self.put(doc)));
        }
        ops
    }

    /// One of some nodes, another one for each plan and round.
    fn node(&self, nodes: u32, round: u64) -> u32 {
        ((self.number + round) % u64::from(nodes)) as u32
    }

    /// In each of two rounds everybody reads the document and, a second later, writes it: with the first of these edits
    /// one node's words do not reach the others any more. Who talks to that node itself waits.
    fn late_answer(&mut self, world: WorldPlan) -> Drawn {
        // An edit without an answer is given up after five seconds; then there is time for another attempt.
        const ROUND_MS: u64 = 12_000;
        const OPEN_MS: u64 = 6_000;
        let world = WorldPlan { documents: 1, latency_us: pick(&mut self.rng, &[100, 500, 5_000]), ..world };
        let mut clients = vec![Vec::new(); 6];
        let mut faults = Vec::new();
        for round in 0..2 {
            let cut = self.node(world.nodes, round);
            for (nth, ops) in clients.iter_mut().enumerate() {
                if nth as u32 % world.nodes == cut {
                    continue;
                }
                let rest_ms = if ops.is_empty() { 1_000 + round * ROUND_MS } else { ROUND_MS - OPEN_MS };
                ops.push(after(rest_ms, Op::Read { doc: 0 }));
                let put = self.put(0);
                ops.push(after(1_000 + self.rng.random_range(0..20), put));
            }
            let cut_off = Fault::Split { group: 1 << cut, one_way: true, for_ms: 9_000 };
            let aim = Aim { op: "put".to_owned(), after_us: self.rng.random_range(0..2 * world.latency_us) };
            faults.push(TimedFault { aim: Some(aim), ..fault(1_500 + round * ROUND_MS, cut, cut_off) });
        }
        (world, clients, faults)
    }

    /// The copy of the only range moves. Some write and read by a node that does not hear of that, others write by the
    /// one that gets the copy, and others look at what is written. Each has a document to write.
    fn stale_map(&mut self, world: WorldPlan) -> Drawn {
        const MOVE_MS: u64 = 4_000;
        // Clients of each node.
        const EACH: u32 = 11;
        let nodes = 5;
        let stale = self.node(nodes, 0);
        let to = (stale + 1 + (self.number / u64::from(nodes) % 4) as u32) % nodes;
        let world = WorldPlan { nodes, n: 1, latency_us: 30_000, documents: nodes * EACH, ..world };
        let mut clients = Vec::new();
        for doc in 0..nodes * EACH {
            let (node, nth) = (doc % nodes, doc / nodes);
            let begin_ms = MOVE_MS + self.rng.random_range(0..300);
            let ops = match nth {
                // Reads what is written by the node that gets the copy.
                0 if node == stale => looks(begin_ms, |nth| to + nodes * (1 + nth % 4)),
                0 if node == (stale + 1) % nodes => {
                    vec![after(MOVE_MS, Op::MoveCopy { passing: false, range: 0, to })]
                }
                0 => looks(begin_ms, |nth| stale + nodes * (1 + nth % (EACH - 1))),
                // A copy is on its way for a second or two: one of these meets each of its steps.
                _ if node == stale => {
                    let put = self.put(doc);
                    vec![after(MOVE_MS + 200 * u64::from(nth) + self.rng.random_range(0..200), put)]
                }
                1..=4 if node == to => {
                    let writes = (0..20).map(|nth| after(if nth == 0 { begin_ms } else { 10 }, self.put(doc)));
                    writes.collect()
                }
                _ => Vec::new(),
            };
            clients.push(ops);
        }
        let stands_still = Fault::Limping { store: false, for_ms: 9_000 };
        (world, clients, vec![fault(MOVE_MS - 200, stale, stands_still)])
    }

    /// Much is written and told; then the disk of one node is what it was in between. Little is written after that,
    /// and only then everybody asks what is new.
    fn put_back(&mut self, world: WorldPlan) -> Drawn {
        let world = WorldPlan { documents: 6, ..world };
        let victim = self.node(world.nodes, 0);
        let follow = || Op::Follow { mode: FeedMode::Normal, limit: None };
        let mut clients = Vec::new();
        for nth in 0..world.nodes {
            let mut ops = self.writes(nth, 25);
            ops.push(after(500, follow()));
            let put = self.put(2 * nth);
            ops.push(after(6_000, put));
            ops.push(after(4_000, follow()));
            clients.push(ops);
        }
        let back_ms = self.rng.random_range(4_000..6_500);
        let stopped = self.rng.random_range(0..2) == 0;
        let mut faults = vec![fault(8_500 - back_ms, victim, Fault::BackInTime { back_ms, stopped })];
        if self.rng.random_range(0..2) == 0 {
            // The others meet it, and see how far it has come.
            faults.push(fault(7_500, victim, Fault::Reset));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    /// Much is written, and each reader has told all of it by the copies of its own node, which have looked at each
    /// other since. Then one of these nodes is down, a little is written, and everybody goes on at another one.
    fn node_gone(&mut self, world: WorldPlan) -> Drawn {
        // Nodes look every 30 seconds at what changed.
        const IN_STEP_MS: u64 = 65_000;
        // Writing takes two to seven seconds.
        const GONE_MS: u64 = IN_STEP_MS + 11_000;
        let world = WorldPlan { documents: 6, q: pick(&mut self.rng, &[1, 2, 4]), ..world };
        let gone = self.node(world.nodes, 0);
        let left = [(gone + 1) % world.nodes, (gone + 2) % world.nodes];
        let mut clients = Vec::new();
        for nth in 0..world.nodes {
            let mut ops = self.writes(nth, 20);
            ops.push(after(IN_STEP_MS, Op::Follow { mode: FeedMode::Normal, limit: None }));
            if nth != gone {
                let put = self.put(2 * nth);
                ops.push(after(15_000, put));
            }
            let others: Vec<u32> = left.into_iter().filter(|node| *node != nth).collect();
            let node = pick(&mut self.rng, &others);
            ops.push(after(if nth == gone { 20_000 } else { 5_000 }, Op::FollowAt { node }));
            clients.push(ops);
        }
        let down_ms = 30_000;
        let end = match self.rng.random_range(0..2) {
            0 => Fault::Crash { down_ms },
            _ => Fault::PowerLoss { down_ms },
        };
        (world, clients, vec![fault(GONE_MS, gone, end)])
    }

    /// A split that nobody notices, or that lasts until all have. Whoever writes makes the database where there is
    /// none; others write to it on the same side, before the two sides hear of each other.
    fn twins(&mut self, world: WorldPlan) -> Drawn {
        let at_ms = 500;
        let cut = self.node(world.nodes, 0);
        let mut clients = Vec::new();
        for _ in 0..2 * world.nodes {
            let begin_ms = at_ms + self.rng.random_range(10..500);
            let write = |nth: u64| {
                self.next_v += 1;
                let after_ms = if nth == 0 { begin_ms } else { self.rng.random_range(10..1_500) };
                after(after_ms, Op::TwinWrite { v: self.next_v, brief: false })
            };
            clients.push((0..4).map(write).collect());
        }
        let for_ms = self.rng.random_range(1_500..9_000);
        (world, clients, vec![fault(at_ms, cut, Fault::Split { group: 1 << cut, one_way: false, for_ms })])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scene_is_found_by_its_name_and_is_the_same_again() {
        for (name, scene) in SCENES {
            let plan = Plan::of_scene(scene, 12);
            assert_eq!(plan.name(), format!("{name}-12"));
            assert_eq!(Plan::named(&plan.name()), Some(plan.clone()));
            assert_ne!(Plan::of_scene(scene, 13).clients, plan.clients);
            let documents = plan.world.documents;
            let mut folded = plan.clone();
            folded.fold_documents();
            assert_eq!(folded, plan, "no document beyond {documents}");
        }
        assert_eq!((Plan::named("late-12"), Plan::named("late-answer-")), (None, None));
    }
}
