//! From a seed to a plan. Swarm testing: which operations and faults a run has at all, and how often, is drawn first.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::fault::{Fault, TimedFault};
use super::op::{FeedFilter, FeedMode, HOSTILE_WAYS, Op, TimedOp};
use super::types::{Plan, WORK_MS, WorldPlan};

/// Kinds of operations that one server knows.
pub(super) const KINDS: usize = 39;
/// Draws of their own for what is done in order.
const ORDERLY: u64 = 0x0du64 << 56;
/// Draws of their own for limits that are set by requests.
const LIMITED: u64 = 0x71u64 << 56;
/// Kinds of operations that want a second node.
const PAIR_KINDS: [usize; 3] = [34, 37, 38];
/// Kinds of faults that [`draw_fault`] knows.
const FAULT_KINDS: u32 = 26;
/// Kinds of faults after which stored bytes are wrong.
const DAMAGE: std::ops::Range<u32> = 10..12;
/// Kinds of faults that want a second node.
const PAIR_FAULTS: [u32; 6] = [18, 19, 20, 23, 24, 25];

impl Plan {
    /// Expands a seed. Equal seeds give equal plans.
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let nodes = if rng.random_range(0..4) == 0 { 2 } else { 1 };
        let world = WorldPlan {
            q: pick(&mut rng, &[1, 2, 3, 8]),
            // What is replicated fills several pages.
            documents: rng.random_range(2..=12) + 12 * (nodes - 1),
            latency_us: pick(&mut rng, &[100, 500, 5_000, 30_000]),
            loss_per_10k: pick(&mut rng, &[0, 0, 10, 200]),
            disk_slow: pick(&mut rng, &[1, 1, 10, 50]),
            flush_at_bytes: pick(&mut rng, &[1_000, 10_000, 100_000, 16 << 20]),
            cache_bytes: pick(&mut rng, &[0, 64 << 10, 1 << 20]),
            own_documents: rng.random_range(1..=8),
            turns: rng.random_range(0..2) == 0,
            first_start_cut: (rng.random_range(0..4) == 0).then(|| rng.random_range(1..=80)),
            nodes,
            n: 0,
            outside: 0,
            strict_reads: false,
            w: None,
            r: None,
            purges_kept: purges_kept(seed),
            outcast: None,
            far: None,
            tombstone_ms: 0,
            message_bytes: 0,
            step_rows: 0,
            searches: true,
            tls: false,
            self_made: false,
        };
        let weights = Weights::draw(&mut rng, &world);
        let clients = rng.random_range(1..=4);
        let mut draw = Draw { rng, world: &world, next_v: 1 };
        let clients = (0..clients).map(|_| draw.client(&weights)).collect();
        let faults = draw.faults();
        let mut plan = Plan { seed, world, clients, faults, reseed: None, until_ms: None };
        // Two servers are fewer: they have the faults that are theirs alone.
        let damaged = plan.damages();
        let kinds = (0..FAULT_KINDS).filter(|kind| (nodes == 2) == PAIR_FAULTS.contains(kind));
        let kinds: Vec<u32> = kinds.filter(|kind| damaged || !DAMAGE.contains(kind)).collect();
        plan.aim(&kinds, |draw, kind| (draw.node_of(kind), draw.fault_of(kind)));
        plan.order();
        plan.draw_the_rest();
        plan
    }

    /// In one run of four with faults a node is stopped in order, too; half of the copies that are put back are of one
    /// that was.
    pub(super) fn order(&mut self) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed ^ ORDERLY);
        for timed in &mut self.faults {
            if let Fault::BackInTime { stopped, .. } = &mut timed.fault {
                *stopped = rng.random_range(0..2) == 0;
            }
        }
        if self.faults.is_empty() || rng.random_range(0..4) > 0 {
            return;
        }
        for _ in 0..rng.random_range(1..=3) {
            let (at_ms, node) = (rng.random_range(0..WORK_MS), rng.random_range(0..self.world.nodes));
            let fault = Fault::Restart { down_ms: rng.random_range(1..=2_000) };
            self.faults.push(TimedFault { at_ms, node, fault, aim: None });
        }
        self.faults.sort_by_key(|timed| timed.at_ms);
    }
}

/// In one run of three few purges are kept on record: who is behind them cannot ask for them any more.
fn purges_kept(seed: u64) -> Option<u32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ LIMITED);
    (rng.random_range(0..3) == 0).then(|| rng.random_range(1..=3))
}

/// An operation that only a cluster knows.
fn op_of_cluster(kind: usize, v: u64) -> Op {
    match kind {
        0 => Op::TwinWrite { v, brief: false },
        1 => Op::TwinWrite { v, brief: true },
        2 => Op::TwinDelete,
        3 => Op::Pass { v },
        _ => Op::PassAway,
    }
}

pub(super) fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// How likely each kind of operation is in this run; about half are off entirely.
pub(super) struct Weights(pub(super) Vec<u32>);

impl Weights {
    fn draw(rng: &mut ChaCha8Rng, world: &WorldPlan) -> Weights {
        let mut weights = vec![0; KINDS];
        for weight in &mut weights {
            *weight = if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(1..=20) };
        }
        // Some writes in every run, else nothing is tested.
        weights[0] = weights[0].max(5);
        weights[15] = weights[15].max(5);
        if world.nodes == 2 {
            // What is replicated is much at once: many pages.
            weights[4] = weights[4].max(10);
        }
        for kind in PAIR_KINDS {
            weights[kind] = if world.nodes < 2 { 0 } else { weights[kind].max(10) };
        }
        Weights(weights)
    }

    fn index(&self, rng: &mut ChaCha8Rng) -> usize {
        let mut at = rng.random_range(0..self.0.iter().sum::<u32>());
        for (n, weight) in self.0.iter().enumerate() {
            if at < *weight {
                return n;
            }
            at -= weight;
        }
        0
    }
}

pub(super) struct Draw<'a> {
    pub(super) rng: ChaCha8Rng,
    pub(super) world: &'a WorldPlan,
    pub(super) next_v: u64,
}

impl Draw<'_> {
    pub(super) fn client(&mut self, weights: &Weights) -> Vec<TimedOp> {
        let count = self.rng.random_range(5..=60);
        (0..count)
            .map(|_| {
                let after_ms = self.rng.random_range(0..2 * WORK_MS / count);
                let kind = weights.index(&mut self.rng);
                TimedOp { after_ms, op: self.op(kind) }
            })
            .collect()
    }

    fn v(&mut self) -> u64 {
        self.next_v += 1;
        self.next_v
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.rng.random_range(0..one_in) == 0
    }

    fn op(&mut self, kind: usize) -> Op {
        let doc = self.rng.random_range(0..self.world.documents);
        let v = self.v();
        match kind {
            0 => Op::Put { doc, v },
            1 => Op::PutStale { doc, v },
            2 => Op::Delete { doc },
            3 => Op::Merge { doc, v, fork: !self.chance(3), twice: self.chance(3) },
            4 => Op::Bulk { edits: self.bulk(self.world.documents, false) },
            5 => Op::Attach { doc, v, bytes: pick(&mut self.rng, &[0, 1, 700, 5_000, 70_000]) },
            6 => Op::Read { doc },
            7 => Op::ReadTree { doc },
            8 => Op::List,
            9 => Op::Local { v },
            10 => Op::Compact,
            11 => Op::Tail { doc, v },
            12 => Op::Follow { mode: FeedMode::Longpoll, limit: self.limit() },
            13 => Op::Follow { mode: FeedMode::Continuous, limit: self.limit() },
            14 => Op::Follow { mode: FeedMode::EventSource, limit: self.limit() },
            34 => Op::Replicate,
            37 => Op::Keep { filter: self.filter() },
            38 => Op::EndKeep { filter: self.filter() },
            KINDS.. => op_of_cluster(kind - KINDS, v),
            _ => self.own_op(kind, v),
        }
    }

    /// Operations on what only this client writes.
    fn own_op(&mut self, kind: usize, v: u64) -> Op {
        let doc = self.rng.random_range(0..self.world.own_documents);
        match kind {
            15 => Op::OwnPut { doc, v },
            16 => Op::OwnDelete { doc },
            17 => Op::OwnPurge { doc },
            18 => Op::OwnBulk { edits: self.bulk(self.world.own_documents, true) },
            19 => Op::OwnRead { doc },
            20 => Op::OwnView { view: self.rng.random_range(0..3) },
            21 => Op::OwnFind { query: self.rng.random_range(0..10), k: v % 7, paged: self.chance(3) },
            22 => Op::OwnCompact { views: self.chance(2) },
            23 => Op::Strict { on: !self.chance(3) },
            24 => Op::Marked { v },
            25 => Op::DbCreate,
            26 => Op::DbDelete,
            27 => Op::DbWrite { v },
            28 => Op::DbCheck,
            29 => Op::Secure { open: self.chance(2) },
            30 => Op::Enter,
            31 => Op::Login,
            32 => Op::Whoami { forged: self.chance(2) },
            35 => self.token(),
            36 => Op::Hostile { way: self.rng.random_range(0..HOSTILE_WAYS) },
            _ => Op::Follow { mode: FeedMode::Normal, limit: self.limit() },
        }
    }

    fn filter(&mut self) -> FeedFilter {
        pick(&mut self.rng, &[FeedFilter::All, FeedFilter::Selector, FeedFilter::Ids])
    }

    /// One in three counts now; the others are too early, too late, or end while they are on their way.
    fn token(&mut self) -> Op {
        let (from_s, until_s) =
            pick(&mut self.rng, &[(-60, 600), (-60, 0), (-600, -1), (0, 1), (1, 600), (3_600, 7_200)]);
        Op::Token { from_s, until_s, forged: self.chance(6) }
    }

    fn limit(&mut self) -> Option<u32> {
        self.chance(2).then(|| self.rng.random_range(1..=5))
    }

    fn bulk(&mut self, documents: u32, deletes: bool) -> Vec<(u32, u64)> {
        let count = self.rng.random_range(1..=10);
        let mut edits: Vec<(u32, u64)> = (0..count).map(|_| (self.rng.random_range(0..documents), self.v())).collect();
        if deletes {
            // Own documents: each once, so that what must come of it is certain.
            edits.sort_unstable();
            edits.dedup_by_key(|(doc, _)| *doc);
            for (_, v) in &mut edits {
                *v *= u64::from(self.rng.random_range(0..4) > 0);
            }
        }
        edits
    }

    /// One run in five is quiet, so that plain answers are checked too.
    fn faults(&mut self) -> Vec<TimedFault> {
        if self.chance(5) {
            return Vec::new();
        }
        let pair = self.world.nodes == 2;
        let one_in = |kind: &u32| if pair && PAIR_FAULTS.contains(kind) { 2 } else { 3 };
        let kinds: Vec<u32> = (0..FAULT_KINDS).filter(|kind| self.chance(one_in(kind))).collect();
        // Damage drowns what other faults would show: it has runs of its own, without lying disks beside it.
        let damage = self.chance(6);
        let kinds: Vec<u32> = kinds.into_iter().filter(|k| damage || !DAMAGE.contains(k)).collect();
        let kinds: Vec<u32> = kinds.into_iter().filter(|k| !PAIR_FAULTS.contains(k) || pair).collect();
        if kinds.is_empty() {
            return Vec::new();
        }
        let count = self.rng.random_range(1..=8);
        let mut out: Vec<TimedFault> = (0..count).map(|_| self.fault(&kinds)).collect();
        out.sort_by_key(|f| f.at_ms);
        out
    }

    fn fault(&mut self, kinds: &[u32]) -> TimedFault {
        let kind = pick(&mut self.rng, kinds);
        let node = self.node_of(kind);
        let at_ms = self.rng.random_range(0..WORK_MS);
        TimedFault { at_ms, node, fault: self.fault_of(kind), aim: None }
    }

    /// Only what was copied may be lost: the second node's disk.
    fn node_of(&mut self, kind: u32) -> u32 {
        if matches!(kind, 18 | 19) { 1 } else { self.rng.random_range(0..self.world.nodes) }
    }

    pub(super) fn fault_of(&mut self, kind: u32) -> Fault {
        let down_ms = self.rng.random_range(1..=2_000);
        let for_ms = self.rng.random_range(10..=4_000);
        match kind {
            0 => Fault::Crash { down_ms },
            1 => Fault::PowerLoss { down_ms },
            2 => Fault::Fuse { ops: self.rng.random_range(1..=200), down_ms },
            3 => Fault::Partition { for_ms, answers_only: self.chance(2) },
            4 => Fault::Reset,
            5 => Fault::SlowDisk { factor: pick(&mut self.rng, &[10, 100, 1_000]), for_ms },
            6 => Fault::DiskErrors { per_1000: pick(&mut self.rng, &[2, 20, 200]), for_ms },
            7 => Fault::ClockJump { by_ms: self.rng.random_range(-100_000_000..=100_000_000) },
            8 => Fault::Swizzle { for_ms },
            9 => Fault::Pause { for_ms },
            10 => Fault::BitRot { file: self.rng.random_range(0..1_000) },
            11 => {
                let per_1000 = pick(&mut self.rng, &[5, 50]);
                Fault::LostWrites { per_1000, misdirected: self.chance(2), for_ms }
            }
            12 => Fault::DiskFull { spare: pick(&mut self.rng, &[0, 4_000, 100_000]), for_ms },
            13 => Fault::NoFiles { per_1000: pick(&mut self.rng, &[50, 1_000]), for_ms },
            14 => Fault::Limping { store: self.chance(2), for_ms },
            15 => Fault::CutCompaction { ops: self.rng.random_range(1..=120), down_ms },
            16 => Fault::TornJournal { syncs: self.rng.random_range(1..=10), down_ms },
            17 => Fault::CutFlush { syncs: self.rng.random_range(1..=10), down_ms },
            18 => Fault::DiskLost { down_ms },
            19 => Fault::BackInTime { back_ms: self.rng.random_range(500..=8_000), stopped: false },
            21 => Fault::ClockDrift { ppm: pick(&mut self.rng, &[-900_000, -50_000, 50_000, 5_000_000]), for_ms },
            22 => Fault::ClockStands { for_ms },
            23 => Fault::PeerAnswers { status: pick(&mut self.rng, &[401, 403, 404, 413, 429, 500, 503]), for_ms },
            24 => Fault::PeerCutsShort { for_ms },
            25 => Fault::PeerHangs { for_ms },
            _ => Fault::CutReplication { after_asked: self.rng.random_range(1..=60), down_ms },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::scene::some_of_each;
    use super::super::{FAULTS, HOSTILE, OPS};
    use super::*;

    #[test]
    fn a_seed_always_expands_to_the_same_plan_and_survives_being_saved() {
        for seed in 0..50 {
            let plan = Plan::from_seed(seed);
            assert_eq!(plan, Plan::from_seed(seed));
            let back: Plan = serde_json::from_str(&plan.to_json()).expect("readable");
            assert_eq!(plan, back);
        }
        assert_ne!(Plan::from_seed(1), Plan::from_seed(2));
    }

    #[test]
    fn quiet_runs_every_operation_and_every_fault_are_in_the_mix() {
        let plans: Vec<Plan> = (0..1_500).map(Plan::from_seed).chain((0..100).map(Plan::cluster_from_seed)).collect();
        assert!(plans.iter().any(|p| p.faults.is_empty()));
        let plans: Vec<Plan> = plans.into_iter().chain(some_of_each()).collect();
        let faults: BTreeSet<&str> = plans.iter().flat_map(|p| &p.faults).map(|t| t.fault.name()).collect();
        let injected: BTreeSet<&str> = FAULTS.into_iter().filter(|name| *name != HOSTILE).collect();
        assert_eq!(faults, injected);
        let ops: BTreeSet<&str> = plans.iter().flat_map(|p| p.clients.iter().flatten()).map(|t| t.op.name()).collect();
        // Saved plans only.
        let drawn: BTreeSet<&str> = OPS.into_iter().filter(|name| *name != "changes").collect();
        assert_eq!(ops, drawn);
    }
}
