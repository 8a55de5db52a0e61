//! Scenes: families of plans, mostly of clusters, that bring one rare meeting about, again and again.
//!
//! Some promises are broken only where several things fall together within milliseconds: an answer that is lost after
//! the edit was stored, a node that goes by a map of before, a disk that goes back behind what a reader has seen. Plans
//! drawn at large meet that once in thousands of seeds. A scene has little else in it; what is drawn is who plays which
//! part, and when exactly. Without a bug it must hold like any other plan.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::draw::pick;
use super::fault::{Aim, Fault, TimedFault};
use super::op::{FeedMode, Op, TimedOp};
use super::stage::{Drawn, Stage, after, fault};
use super::types::{Ailment, Outcast, Plan, WorldPlan};
use super::{disks, expiring, forgotten, purges, snapshots, two_clusters};

/// Some plans of each scene, as many as show all that is in them.
pub(super) fn some_of_each() -> impl Iterator<Item = Plan> {
    const OF_EACH: u64 = 100;
    SCENES.into_iter().flat_map(|(_, scene)| (0..OF_EACH).map(move |number| Plan::of_scene(scene, number)))
}

/// What a scene brings about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// Writers on one revision reach the oracle, whose answers are lost; all of them go to the next one.
    LateAnswer,
    /// A node whose journal stands still cannot go over to a new map: it goes on by the old one while a replica moves.
    StaleMap,
    /// A disk goes back behind what the readers of its feed have seen; they ask again after more was written.
    PutBack,
    /// A node is gone whose feed was read to the end; its readers go on at others, which had long been in sync with it.
    NodeGone,
    /// On both sides of a split somebody makes the database that is not there, and writes to it.
    Twins,
    /// Nodes come to a cluster, on both sides of a split, too, and one is emptied and sent away, while clients work.
    Members,
    /// The disk of one node spoils what is written to it; the others hold the same, and go on without that replica.
    Spoiled,
    /// Two clusters replicate both ways while nodes of both die and do not hear each other.
    TwoClusters,
    /// Feeds of a cluster are read on in every mode while nodes die, do not hear each other, and replicas move.
    Feeds,
    /// Snapshots of one server's database are taken and brought back while it dies and its disk fails.
    Snapshots,
    /// Bits flip in store files of single shards on one node, which replaces them while clients go on.
    Mended,
    /// The secret of cookies changes on all nodes again and again, while everybody shows cookies of before and of now.
    Secrets,
    /// Several make and delete databases of the same few names, and write to them, while nodes die and do not hear
    /// each other.
    SameName,
    /// Rules for documents begin and end while others write what they forbid.
    Rules,
    /// Snapshots of a cluster's database are taken on each node and brought back while nodes die.
    ClusterSnapshots,
    /// Tombstones are forgotten while a node is away that holds what they stood for, or is put back to before them.
    Forgotten,
    /// Documents end, or are given a later end, while the clock of one node is wrong.
    Expiring,
    /// Feeds of a cluster are followed by filters and with their documents on every node, while replicas lag.
    Filters,
    /// A node is away while the others take documents and attachments of all sizes.
    Sizes,
    /// A node is taken out of work while others write, and works again before it reaches all of them.
    Maintenance,
    /// One server is killed within syncs and loses power soon after; syncs of directories fail; the disk has no room.
    Disks,
    /// What was purged stays away: an edit of it is worked off late, and one replica has only what it was built upon.
    Purges,
}

/// All of them, with their names.
pub const SCENES: [(&str, Scene); 22] = [
    ("late-answer", Scene::LateAnswer),
    ("stale-map", Scene::StaleMap),
    ("put-back", Scene::PutBack),
    ("twins", Scene::Twins),
    ("node-gone", Scene::NodeGone),
    ("members", Scene::Members),
    ("spoiled", Scene::Spoiled),
    ("two-clusters", Scene::TwoClusters),
    ("feeds", Scene::Feeds),
    ("snapshots", Scene::Snapshots),
    ("mended", Scene::Mended),
    ("secrets", Scene::Secrets),
    ("same-name", Scene::SameName),
    ("rules", Scene::Rules),
    ("cluster-snapshots", Scene::ClusterSnapshots),
    ("forgotten", Scene::Forgotten),
    ("filters", Scene::Filters),
    ("sizes", Scene::Sizes),
    ("maintenance", Scene::Maintenance),
    ("disks", Scene::Disks),
    ("purges", Scene::Purges),
    ("expiring", Scene::Expiring),
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

    /// Its name.
    pub fn name(self) -> &'static str {
        SCENES.iter().find(|(_, scene)| *scene == self).map_or("", |(name, _)| name)
    }

    /// The name of the scene that a plan is one of.
    pub(super) fn of(plan: &Plan) -> Option<&'static str> {
        let at = (plan.seed >> SCENE_BIT).checked_sub(1)? as usize;
        SCENES.get(at).map(|(name, _)| *name)
    }

    /// The name of the plan, if it is one of a scene.
    pub(super) fn name_of(plan: &Plan) -> Option<String> {
        Scene::of(plan).map(|name| format!("{name}-{}", plan.seed & ((1 << SCENE_BIT) - 1)))
    }

    /// The plan of that name.
    pub(super) fn plan_named(name: &str) -> Option<Plan> {
        let (scene, number) = name.rsplit_once('-')?;
        Some(Plan::of_scene(Scene::named(scene)?, number.parse().ok()?))
    }
}

impl Plan {
    /// The seed's name: its number, behind a `c` for a plan of one cluster, behind the scene's name for one of those.
    pub fn name(&self) -> String {
        let drawn = || format!("{}{}", if self.world.n > 0 { "c" } else { "" }, self.seed);
        Scene::name_of(self).unwrap_or_else(drawn)
    }

    /// The plan of a seed's name.
    pub fn named(name: &str) -> Option<Plan> {
        if let Some(plan) = Scene::plan_named(name) {
            return Some(plan);
        }
        match name.strip_prefix('c') {
            Some(seed) => seed.parse().ok().map(Plan::cluster_from_seed),
            None => name.parse().ok().map(Plan::from_seed),
        }
    }

    /// Whether lists are held against what was written while their node was in maintenance.
    pub fn checks_maintenance(&self) -> bool {
        Scene::of(self) == Some("maintenance")
    }

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
            message_bytes: 0,
            step_rows: 0,
            tls: matches!(scene, Scene::Members | Scene::TwoClusters) && number.is_multiple_of(4),
            self_made: matches!(scene, Scene::Members | Scene::TwoClusters) && number % 8 == 4,
            ..base.world.clone()
        };
        let mut stage = Stage { rng: ChaCha8Rng::seed_from_u64(seed), number, next_v: 0 };
        let (world, clients, faults) = match scene {
            Scene::LateAnswer => stage.late_answer(world),
            Scene::StaleMap => stage.stale_map(world),
            Scene::PutBack => stage.restore(world),
            Scene::Twins => stage.twins(world),
            Scene::NodeGone => stage.node_gone(world),
            Scene::Members => stage.members(world),
            Scene::Spoiled => stage.spoiled(world),
            Scene::TwoClusters => two_clusters::drawn(stage.rng, world),
            Scene::Feeds => stage.feeds(world),
            Scene::Snapshots => snapshots::drawn(stage.rng, world),
            Scene::Mended => stage.mended(world),
            Scene::Secrets => stage.secrets(world),
            Scene::SameName => stage.same_name(world),
            Scene::Rules => stage.rules(world),
            Scene::ClusterSnapshots => stage.cluster_snapshots(world),
            Scene::Forgotten => forgotten::drawn(stage.rng, number, world),
            Scene::Filters => stage.filters(world),
            Scene::Sizes => stage.sizes(world),
            Scene::Maintenance => stage.maintenance(world),
            Scene::Disks => disks::drawn(stage.rng, world),
            Scene::Purges => purges::drawn(stage.rng, number, world),
            Scene::Expiring => expiring::drawn(stage.rng, number, world),
        };
        Plan { world, clients, faults, ..base }
    }
}

/// Reads documents one after the other for some seconds.
fn looks(begin_ms: u64, doc: impl Fn(u32) -> u32) -> Vec<TimedOp> {
    (0..25).map(|nth| after(if nth == 0 { begin_ms } else { 10 }, Op::ReadTree { doc: doc(nth) })).collect()
}

impl Stage {
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

    /// The replica of the only range moves. Some write and read by a node that does not hear of that, others write by
    /// the one that gets the replica, and others look at what is written. Each has a document to write.
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
                // Reads what is written by the node that gets the replica.
                0 if node == stale => looks(begin_ms, |nth| to + nodes * (1 + nth % 4)),
                0 if node == (stale + 1) % nodes => {
                    vec![after(MOVE_MS, Op::MoveReplica { passing: false, range: 0, to })]
                }
                0 => looks(begin_ms, |nth| stale + nodes * (1 + nth % (EACH - 1))),
                // A replica is on its way for a second or two: one of these meets each of its steps.
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
    fn restore(&mut self, world: WorldPlan) -> Drawn {
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

    /// Much is written, and each reader has told all of it by the replicas of its own node, which have looked at each
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

    /// A split that nobody notices, or that lasts until all have. The one that writes makes the database where there is
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

impl Stage {
    /// Bits flip on one node, writes there are lost or go elsewhere; then it is started again, and has to read what is
    /// left. Little of what is stored stays in memory.
    fn spoiled(&mut self, world: WorldPlan) -> Drawn {
        let node = self.node(world.nodes, 0);
        let world = WorldPlan {
            documents: 8,
            q: pick(&mut self.rng, &[1, 2]),
            flush_at_bytes: 1_000,
            cache_bytes: 0,
            outcast: Some(Outcast { node, how: Ailment::Spoiled }),
            ..world
        };
        let clients = (0..2 * world.nodes).map(|_| self.writes_and_reads(&world)).collect();
        let mut faults = Vec::new();
        for _ in 0..self.rng.random_range(1..=3) {
            let at_ms = self.rng.random_range(2_000..10_000);
            let (file, for_ms) = (self.rng.random_range(0..1_000), self.rng.random_range(1_000..4_000));
            let (per_1000, misdirected) = (pick(&mut self.rng, &[5, 50]), self.chance(2));
            let kind = match self.chance(2) {
                true => Fault::BitRot { file },
                false => Fault::LostWrites { per_1000, misdirected, for_ms },
            };
            faults.push(fault(at_ms, node, kind));
        }
        let (at_ms, down_ms) = (self.rng.random_range(6_000..12_000), self.rng.random_range(1..2_000));
        faults.push(fault(at_ms, node, Fault::PowerLoss { down_ms }));
        if self.chance(2) {
            // A good one is away for a moment, too.
            let at_ms = self.rng.random_range(2_000..12_000);
            faults.push(fault(at_ms, self.node(world.nodes, 1), Fault::Crash { down_ms }));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    /// Bits flip in store files of single shards on one node, which is started anew, so that it has to read them. All
    /// three replicas are checked in the end, and none may be damaged.
    fn mended(&mut self, world: WorldPlan) -> Drawn {
        let node = self.node(world.nodes, 0);
        let q = pick(&mut self.rng, &[1, 2]);
        let world = WorldPlan { documents: 8, q, flush_at_bytes: 1_000, cache_bytes: 0, ..world };
        let clients = (0..2 * world.nodes).map(|_| self.writes_and_reads(&world)).collect();
        let mut faults = Vec::new();
        for _ in 0..self.rng.random_range(2..=6) {
            let (at_ms, file) = (self.rng.random_range(4_000..9_000), self.rng.random_range(0..1_000));
            faults.push(fault(at_ms, node, Fault::BitRotOwn { file }));
        }
        let (at_ms, down_ms) = (self.rng.random_range(9_000..11_000), self.rng.random_range(1..2_000));
        faults.push(fault(at_ms, node, Fault::PowerLoss { down_ms }));
        if self.chance(2) {
            // While it fills its replica one of the others is away for a moment.
            let at_ms = self.rng.random_range(11_000..14_000);
            faults.push(fault(at_ms, self.node(world.nodes, 1), Fault::Crash { down_ms }));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    pub(super) fn writes_and_reads(&mut self, world: &WorldPlan) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..40 {
            let doc = self.rng.random_range(0..world.documents);
            let op = match self.rng.random_range(0..10) {
                0..=4 => self.put(doc),
                5 => Op::Read { doc },
                6 | 7 => Op::ReadTree { doc },
                8 => Op::List,
                _ => Op::Delete { doc },
            };
            ops.push(after(self.rng.random_range(100..600), op));
        }
        ops
    }
}

/// Who plays which part where nodes come and go: their numbers.
struct Cast {
    /// How many belong to the cluster at first; the others are outside.
    members: u32,
    /// It is sent away.
    leaves: u32,
    /// By way of it that is done, and the first of those outside is taken in.
    first: u32,
    /// By way of it the second one is.
    second: u32,
}

impl Stage {
    /// Two administrators take a node in each, and have one emptied; then one of them sends it away, and mostly takes
    /// it in again. Others work all the while, on the nodes that come as soon as they may have.
    fn members(&mut self, world: WorldPlan) -> Drawn {
        const COME: u32 = 2;
        let members = pick(&mut self.rng, &[3, 4]);
        let world = WorldPlan { nodes: members + COME, outside: COME, q: 2, documents: 8, ..world };
        let [leaves, first, second] = [0, 1, 2].map(|part| self.node(members, part));
        let cast = Cast { members, leaves, first, second };
        let mut clients = Vec::new();
        for node in 0..world.nodes {
            clients.push(match node {
                _ if node == leaves => Vec::new(),
                _ if node >= members => self.comes_later(node),
                _ => self.works(&world),
            });
        }
        // The second clients of the nodes.
        for node in 0..world.nodes {
            clients.push(match node {
                _ if node == first => self.administers(&cast),
                _ if node == second => self.helps(&cast),
                _ => Vec::new(),
            });
        }
        let mut faults = if self.chance(2) { self.two_sides(&cast) } else { self.anything(&world) };
        if self.chance(3) {
            // It is started when it belongs to the cluster already.
            faults.push(fault(0, members, Fault::Crash { down_ms: self.rng.random_range(3_000..8_000) }));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn comes_later(&mut self, node: u32) -> Vec<TimedOp> {
        let write = |nth| after(if nth == 0 { 9_000 } else { self.rng.random_range(200..800) }, self.put(node));
        (0..8).map(write).collect()
    }

    fn works(&mut self, world: &WorldPlan) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..40 {
            let doc = self.rng.random_range(0..world.documents);
            let op = match self.rng.random_range(0..16) {
                0..=4 => self.put(doc),
                5 | 6 => Op::Read { doc },
                7 | 8 => Op::ReadTree { doc },
                9 => Op::Follow { mode: FeedMode::Normal, limit: None },
                10 => Op::Secure { open: self.chance(2) },
                11 | 12 => Op::Enter,
                13 => self.passes(),
                14 => Op::PassAway,
                _ => Op::Voters,
            };
            ops.push(after(self.rng.random_range(100..800), op));
        }
        ops
    }

    fn administers(&mut self, cast: &Cast) -> Vec<TimedOp> {
        let Cast { members, leaves, .. } = *cast;
        let mut ops = vec![
            after(self.rng.random_range(1_500..3_500), Op::AddNode { node: members }),
            after(500, Op::Rebalance { drain: Some(leaves) }),
            after(500, Op::Voters),
            after(self.rng.random_range(2_000..6_000), Op::RemoveNode { node: leaves }),
        ];
        if !self.chance(3) {
            ops.push(after(self.rng.random_range(0..3_000), Op::AddNode { node: leaves }));
        }
        ops
    }

    fn helps(&mut self, cast: &Cast) -> Vec<TimedOp> {
        let Cast { members, leaves, .. } = *cast;
        let mut ops = vec![after(self.rng.random_range(1_500..3_500), Op::AddNode { node: members + 1 })];
        ops.extend((0..12).map(|_| after(500, Op::Voters)));
        ops.push(after(500, Op::Rebalance { drain: Some(leaves) }));
        let passing = self.chance(2);
        ops.push(after(500, Op::MoveReplica { passing, range: self.rng.random_range(0..2), to: members + 1 }));
        ops
    }

    /// A split that is not noticed before somebody was taken in on either side, and then lasts.
    fn two_sides(&mut self, cast: &Cast) -> Vec<TimedFault> {
        let group = 1 << cast.second | 1 << (cast.members + 1);
        let (at_ms, for_ms) = (self.rng.random_range(500..1_500), self.rng.random_range(7_500..10_000));
        let mut faults = vec![fault(at_ms, cast.second, Fault::Split { group, one_way: false, for_ms })];
        if self.chance(2) {
            let node = [cast.leaves, cast.first, cast.members][self.rng.random_range(0..3)];
            faults.push(self.aimed(node, "remove node", 4_000_000));
        }
        faults
    }

    fn anything(&mut self, world: &WorldPlan) -> Vec<TimedFault> {
        let op = pick(&mut self.rng, &["add node", "rebalance", "remove node"]);
        let node = self.rng.random_range(0..world.nodes);
        let mut faults = vec![self.aimed(node, op, 1_000_000)];
        let count = self.rng.random_range(1..=4);
        faults.extend((0..count).map(|_| self.any_of_a_node(world)));
        faults
    }

    /// Something that goes wrong with any node and loses nothing of its disk.
    pub(super) fn any_of_a_node(&mut self, world: &WorldPlan) -> TimedFault {
        let (at_ms, node) = (self.rng.random_range(0..16_000), self.rng.random_range(0..world.nodes));
        let (down_ms, for_ms) = (self.rng.random_range(1..=2_000), self.rng.random_range(10..=4_000));
        let one_way = self.chance(2);
        let kind = match self.rng.random_range(0..8) {
            0 => Fault::Crash { down_ms },
            1 => Fault::PowerLoss { down_ms },
            2 => Fault::Restart { down_ms },
            3 => Fault::Pause { for_ms },
            4 => Fault::Partition { for_ms, answers_only: one_way },
            5 => Fault::Split { group: self.rng.random_range(1..(1 << world.nodes) - 1), one_way, for_ms },
            6 => Fault::Swizzle { for_ms },
            _ => Fault::Reset,
        };
        fault(at_ms, node, kind)
    }

    /// A node dies, or loses power, so many microseconds at most after the first operation of that name began.
    pub(super) fn aimed(&mut self, node: u32, op: &str, within_us: u64) -> TimedFault {
        let down_ms = self.rng.random_range(1..=2_000);
        let kind = if self.chance(2) { Fault::Crash { down_ms } } else { Fault::PowerLoss { down_ms } };
        let aim = Aim { op: op.to_owned(), after_us: self.rng.random_range(0..within_us) };
        TimedFault { aim: Some(aim), ..fault(0, node, kind) }
    }

    fn passes(&mut self) -> Op {
        self.next_v += 1;
        Op::Pass { v: self.next_v }
    }
}

impl Stage {
    /// Everybody writes, and reads the feed on in all modes; replicas move under the feeds in half of the plans. One
    /// plan in four is in peace: a feed that waits must be told then.
    fn feeds(&mut self, world: WorldPlan) -> Drawn {
        let world = WorldPlan {
            n: pick(&mut self.rng, &[1, 2, 3]),
            q: pick(&mut self.rng, &[1, 2, 4]),
            latency_us: pick(&mut self.rng, &[100, 500, 5_000]),
            documents: self.rng.random_range(4..=10),
            strict_reads: self.chance(3),
            turns: self.chance(2),
            ..world
        };
        let mut clients: Vec<_> = (0..2 * world.nodes).map(|_| self.writes_and_follows(&world)).collect();
        if self.chance(2) {
            clients.push(self.moves(&world));
        }
        let mut faults = Vec::new();
        if !self.chance(4) {
            for _ in 0..self.rng.random_range(1..=4) {
                let op = pick(&mut self.rng, &["feed longpoll", "feed continuous", "feed eventsource", "tail"]);
                let (at_ms, node) = (self.rng.random_range(0..12_000), self.rng.random_range(0..world.nodes));
                // Feeds are waited at for a second or more.
                let aimed = self.aimed(node, op, 1_500_000);
                faults.push(TimedFault { at_ms, ..aimed });
            }
            let count = self.rng.random_range(0..=4);
            faults.extend((0..count).map(|_| self.any_of_a_node(&world)));
        }
        faults.sort_by_key(|timed| timed.at_ms);
        (world, clients, faults)
    }

    fn writes_and_follows(&mut self, world: &WorldPlan) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..18 {
            let doc = self.rng.random_range(0..world.documents);
            let limit = self.chance(3).then(|| self.rng.random_range(1..=3));
            let op = match self.rng.random_range(0..12) {
                0..=3 => self.put(doc),
                4 => Op::Delete { doc },
                5 => self.tail(doc),
                6 | 7 => Op::Follow { mode: FeedMode::Longpoll, limit },
                8 | 9 => Op::Follow { mode: FeedMode::Continuous, limit },
                10 => Op::Follow { mode: FeedMode::EventSource, limit },
                _ => Op::Follow { mode: FeedMode::Normal, limit },
            };
            ops.push(after(self.rng.random_range(50..500), op));
        }
        ops
    }

    fn tail(&mut self, doc: u32) -> Op {
        self.next_v += 1;
        Op::Tail { doc, v: self.next_v }
    }

    fn moves(&mut self, world: &WorldPlan) -> Vec<TimedOp> {
        let mut ops = Vec::new();
        for _ in 0..self.rng.random_range(1..=3) {
            let (range, to) = (self.rng.random_range(0..4), self.rng.random_range(0..world.nodes));
            let op = match self.chance(2) {
                true => Op::SplitRange { passing: false, range },
                false => Op::MoveReplica { passing: false, range, to },
            };
            ops.push(after(self.rng.random_range(1_000..6_000), op));
        }
        ops
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_are_read_in_every_mode_and_some_plans_are_in_peace() {
        let plans: Vec<Plan> = (0..20).map(|number| Plan::of_scene(Scene::Feeds, number)).collect();
        let ops = plans.iter().flat_map(|plan| plan.clients.iter().flatten()).map(|timed| timed.op.name());
        let ops: std::collections::BTreeSet<&str> = ops.collect();
        for name in ["feed", "feed longpoll", "feed continuous", "feed eventsource", "tail", "split range"] {
            assert!(ops.contains(name), "{name}");
        }
        assert!(plans.iter().any(|plan| plan.faults.is_empty()) && !plans.iter().any(Plan::loses_disks));
    }

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
