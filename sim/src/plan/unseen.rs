//! Scenes of what plans drawn at large seldom show: followers of the feed by filters beside replicas that lag,
//! documents of all sizes that a node missed, nodes that come back from maintenance to some of the others before the
//! rest.

use rand::RngExt;

use super::draw::pick;
use super::fault::{Fault, TimedFault};
use super::op::{FILTERS, FeedMode, Op, TimedOp};
use super::rest::filtered;
use super::stage::{Drawn, Stage, after, fault};
use super::types::{Plan, WorldPlan};

impl Stage {
    /// On each node somebody follows the feed by filters, in all modes, with documents and without, and goes on from
    /// where that was. Many documents are written, each a few times: what is left out is not made good by the next
    /// edit.
    pub(super) fn filters(&mut self, world: WorldPlan) -> Drawn {
        let comes_back = self.chance(2);
        let (nodes, n) = (pick(&mut self.rng, &[3, 3, 4, 5]), pick(&mut self.rng, &[2, 3, 3]));
        let q = pick(&mut self.rng, &[1, 2, 4]);
        // Of four ranges some have another order of replicas than others.
        let (nodes, n, q) = if comes_back { (3, 3, 4) } else { (nodes, n, q) };
        let world = WorldPlan {
            nodes,
            n,
            q,
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            documents: self.rng.random_range(20..=80),
            strict_reads: false,
            turns: self.chance(2),
            ..world
        };
        let mut clients: Vec<Vec<TimedOp>> = (0..world.nodes).map(|_| self.writes_much(&world)).collect();
        clients.extend((0..2 * world.nodes).map(|_| self.follows_by_filters()));
        let mut faults = Vec::new();
        if !comes_back && !self.chance(5) {
            for _ in 0..self.rng.random_range(3..=7) {
                faults.extend(self.makes_lag(&world));
            }
            let count = self.rng.random_range(0..=3);
            faults.extend((0..count).map(|_| self.any_of_a_node(&world)));
        }
        if comes_back {
            self.comes_back_slowly(&world, (&mut clients, &mut faults));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    /// Twice a node comes back from maintenance, and the way between it and another one stands still two times: first
    /// so that it is not in sync for a while, and feeds that begin there are read from a replica elsewhere; then, when
    /// it is in sync and those feeds go on, so that its own replicas lack what clients of the other node write, while
    /// the replica that the feeds are read from has it.
    fn comes_back_slowly(
        &mut self,
        world: &WorldPlan,
        (clients, faults): (&mut Vec<Vec<TimedOp>>, &mut Vec<TimedFault>),
    ) {
        // Clients go round the nodes: an administrator is one of the node itself.
        while clients.len() % world.nodes as usize != 0 {
            clients.push(Vec::new());
        }
        let node = self.rng.random_range(0..world.nodes);
        let other = (node + 1 + self.rng.random_range(0..world.nodes - 1)) % world.nodes;
        let mut administrator = vec![Vec::new(); world.nodes as usize];
        let mut before_ms = 0;
        for begin_ms in [1_500, 10_000] {
            let back_ms = begin_ms + self.rng.random_range(500..1_500);
            let own = &mut administrator[node as usize];
            own.push(after(begin_ms - before_ms, Op::Maintain { node, on: true }));
            own.push(after(back_ms - begin_ms, Op::Maintain { node, on: false }));
            before_ms = back_ms;
            let for_ms = self.rng.random_range(700..900);
            faults.push(fault(back_ms - 300, node, Fault::Clog { group: 1 << other, for_ms }));
            let at_ms = back_ms - 300 + for_ms + self.rng.random_range(800..1_400);
            let for_ms = self.rng.random_range(1_500..2_500);
            faults.push(fault(at_ms, node, Fault::Clog { group: 1 << other, for_ms }));
            for docs in [true, true, false] {
                let mut followers = vec![Vec::new(); world.nodes as usize];
                let by = pick(&mut self.rng, &FILTERS);
                let mode = FeedMode::Continuous;
                let begin_ms = back_ms + self.rng.random_range(20..300);
                followers[node as usize] = vec![after(begin_ms, Op::FollowFiltered { by, mode, docs, limit: None })];
                let mut writers = vec![Vec::new(); world.nodes as usize];
                let ops = &mut writers[other as usize];
                for nth in 0..20 {
                    let doc = self.rng.random_range(0..world.documents);
                    ops.push(after(if nth == 0 { at_ms + 50 } else { 40 }, self.put(doc)));
                }
                clients.extend(followers.into_iter().chain(writers));
            }
        }
        clients.extend(administrator);
    }

    fn writes_much(&mut self, world: &WorldPlan) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..60 {
            let doc = self.rng.random_range(0..world.documents);
            let op = if self.chance(8) { Op::Delete { doc } } else { self.put(doc) };
            ops.push(after(self.rng.random_range(50..500), op));
        }
        ops
    }

    /// One filter, and mostly one way to read: who takes another place by another filter.
    fn follows_by_filters(&mut self) -> Vec<TimedOp> {
        let (by, docs) = (pick(&mut self.rng, &FILTERS), self.chance(2));
        let mode = pick(&mut self.rng, &[FeedMode::Continuous, FeedMode::Continuous, FeedMode::Longpoll]);
        let mut ops = Vec::new();
        for _ in 0..self.rng.random_range(6..=14) {
            let op = match self.rng.random_range(0..6) {
                0 => filtered(&mut self.rng),
                _ => Op::FollowFiltered { by, mode, docs, limit: None },
            };
            ops.push(after(self.rng.random_range(10..800), op));
        }
        ops
    }

    /// A node stands still, is slow, or dies: what others write meanwhile it has later. One that comes back mostly has
    /// a slow disk: who began to follow the feed there before it was in sync is told by another replica, and it lags.
    fn makes_lag(&mut self, world: &WorldPlan) -> Vec<TimedFault> {
        let (at_ms, node) = (self.rng.random_range(500..16_000), self.rng.random_range(0..world.nodes));
        let (down_ms, for_ms) = (self.rng.random_range(1..=3_000), self.rng.random_range(300..=5_000));
        let kind = match self.rng.random_range(0..6) {
            0 | 1 => Fault::Pause { for_ms },
            2 => Fault::Swizzle { for_ms },
            3 => Fault::SlowDisk { factor: pick(&mut self.rng, &[100, 1_000]), for_ms },
            _ => Fault::Crash { down_ms },
        };
        let mut out = vec![fault(at_ms, node, kind.clone())];
        if matches!(kind, Fault::Crash { .. }) && !self.chance(4) {
            let at_ms = at_ms + down_ms + self.rng.random_range(50..1_000);
            let slow = match self.chance(2) {
                true => Fault::Limping { store: false, for_ms: for_ms.min(2_500) },
                false => Fault::SlowDisk { factor: pick(&mut self.rng, &[100, 400]), for_ms },
            };
            out.push(fault(at_ms, node, slow));
        }
        out
    }

    /// A node is away while the others take documents and attachments up to all caps, and beyond; then it is to get
    /// them. Messages between nodes have a cap that sixteen of the largest documents are above.
    pub(super) fn sizes(&mut self, world: WorldPlan) -> Drawn {
        let world = WorldPlan {
            q: pick(&mut self.rng, &[1, 1, 1, 2]),
            latency_us: pick(&mut self.rng, &[100, 500]),
            documents: self.rng.random_range(30..=60),
            strict_reads: false,
            turns: self.chance(2),
            message_bytes: pick(&mut self.rng, &[512 << 10, 512 << 10, 1 << 20]),
            flush_at_bytes: 16 << 20,
            ..world
        };
        let away = self.node(world.nodes, 0);
        let (mut clients, mut next) = (Vec::new(), 0);
        for node in 0..world.nodes {
            let mut ops = Vec::new();
            // Who talks to the node that is away waits for it.
            for nth in 0..if node == away { 2 } else { 25 } {
                // Mostly one that nobody else writes.
                next += 1;
                let doc =
                    if self.chance(5) { self.rng.random_range(0..world.documents) } else { next % world.documents };
                let op = match self.rng.random_range(0..14) {
                    0 => Op::ReadTree { doc },
                    1 => Op::Follow { mode: FeedMode::Normal, limit: None },
                    2 => Op::FollowFiltered {
                        by: pick(&mut self.rng, &FILTERS),
                        mode: FeedMode::Normal,
                        docs: true,
                        limit: None,
                    },
                    3 => {
                        self.next_v += 1;
                        Op::Attach { doc, v: self.next_v, bytes: 0 }
                    }
                    4 => self.several(&world),
                    _ => self.put(doc),
                };
                ops.push(after(if nth == 0 { 1_500 } else { self.rng.random_range(20..300) }, op));
            }
            clients.push(ops);
        }
        let down_ms = self.rng.random_range(6_000..10_000);
        let kind = match self.chance(2) {
            true => Fault::Crash { down_ms },
            false => Fault::Split { group: 1 << away, one_way: false, for_ms: down_ms },
        };
        let mut faults = vec![fault(1_000, away, kind)];
        if self.chance(3) {
            faults.push(self.any_of_a_node(&world));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        let mut plan = Plan { seed: 0, world, clients, faults, reseed: None, until_ms: None };
        plan.enlarge(&mut self.rng, 1);
        (plan.world, plan.clients, plan.faults)
    }

    fn several(&mut self, world: &WorldPlan) -> Op {
        let mut edits = Vec::new();
        for _ in 0..self.rng.random_range(2..=4) {
            self.next_v += 1;
            edits.push((self.rng.random_range(0..world.documents), self.next_v));
        }
        Op::Bulk { edits }
    }

    /// A node is taken out of work while others write; when it works again the ways to some of the others stand still
    /// for a while, and lists are read there. Nothing else goes wrong.
    pub(super) fn maintenance(&mut self, world: WorldPlan) -> Drawn {
        const BEGIN_MS: u64 = 1_500;
        const WRITES: u64 = 40;
        let world = WorldPlan {
            nodes: pick(&mut self.rng, &[4, 4, 4, 5]),
            // A list waits for ranges that only others have.
            q: pick(&mut self.rng, &[1, 1, 1, 2, 4]),
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            documents: 200,
            strict_reads: false,
            ..world
        };
        let away = self.node(world.nodes, 0);
        let stays_ms = self.rng.random_range(3_000..6_000);
        let mut clients = Vec::new();
        let mut doc = 0;
        for node in 0..world.nodes {
            let mut ops = Vec::new();
            if node == away {
                ops.push(after(BEGIN_MS + stays_ms, Op::List));
                ops.extend((0..40).map(|_| after(100, Op::List)));
            } else {
                // Up to about the end: what was written before the others were cut off it has by then.
                for nth in 0..WRITES {
                    let ms = if nth == 0 { BEGIN_MS + 300 } else { self.rng.random_range(0..2 * stays_ms / WRITES) };
                    ops.push(after(ms, self.put(doc % world.documents)));
                    doc += 1;
                }
            }
            clients.push(ops);
        }
        // By way of a client of the node's own.
        let mut administrator = vec![Vec::new(); world.nodes as usize];
        administrator[away as usize] = vec![
            after(BEGIN_MS, Op::Maintain { node: away, on: true }),
            after(stays_ms, Op::Maintain { node: away, on: false }),
        ];
        clients.extend(administrator);
        // Others begin to list there later: a list that asks replicas behind a way that stands still waits for that.
        for later_ms in [50, 150, 300, 600, 1_000] {
            let mut others = vec![Vec::new(); world.nodes as usize];
            let lists = &mut others[away as usize];
            lists.push(after(BEGIN_MS + stays_ms + later_ms, Op::List));
            lists.extend((0..10).map(|_| after(200, Op::List)));
            clients.extend(others);
        }
        // Before it works again, and not for so long that it takes the others for dead.
        let at_ms = BEGIN_MS + stays_ms - self.rng.random_range(800..1_400);
        let for_ms = self.rng.random_range(1_800..2_700);
        // All but one of the others.
        let open = (away + 1 + self.rng.random_range(0..world.nodes - 1)) % world.nodes;
        let group = ((1 << world.nodes) - 1) & !(1 << away) & !(1 << open);
        (world, clients, vec![fault(at_ms, away, Fault::Clog { group, for_ms })])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Scene;
    use super::*;

    #[test]
    fn sizes_lie_on_both_sides_of_the_caps_and_sixteen_of_them_do_not_fit_into_a_message() {
        for number in 0..20 {
            let plan = Plan::of_scene(Scene::Sizes, number);
            let (most, ..) = plan.world.caps().expect("caps");
            assert!(16 * most > plan.world.message_bytes && most < plan.world.message_bytes);
            let large = plan.clients.iter().flatten().filter(|timed| match timed.op {
                Op::Put { v, .. } => crate::model::padding(v) as u32 > most / 2,
                _ => false,
            });
            assert!(large.count() > 3, "{number}");
        }
    }

    #[test]
    fn a_node_in_maintenance_works_again_and_all_filters_are_followed() {
        let plans: Vec<Plan> = (0..20).map(|number| Plan::of_scene(Scene::Maintenance, number)).collect();
        assert!(plans.iter().all(|plan| plan.has_maintenance() && plan.checks_maintenance()));
        let plans = (0..20).map(|number| Plan::of_scene(Scene::Filters, number));
        assert!(plans.into_iter().all(|plan| plan.has_filters() && !plan.loses_disks()));
    }
}
