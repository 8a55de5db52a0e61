//! A run as data: a seed expands to the node's options, timed client operations and timed faults before anything runs.
//!
//! A plan is saved as readable JSON, replayed to the same trace, and shrunk by leaving parts out. Operations name
//! documents and values only; which revision they build on is decided when they run, from what the client has seen, so
//! that a shorter plan still makes sense.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// How long clients work, in simulated milliseconds; faults end with it.
pub const WORK_MS: u64 = 20_000;

/// What the seed decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seeds the scheduler, the network's and the disk's draws, the node's randomness.
    pub seed: u64,
    /// The node and the world around it.
    pub world: WorldPlan,
    /// What each client does, in order.
    pub clients: Vec<Vec<TimedOp>>,
    /// What goes wrong, in order of time.
    pub faults: Vec<TimedFault>,
}

/// Options of the node and of the world, drawn once per run (swarm).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldPlan {
    /// Ranges of the database.
    pub q: u32,
    /// Distinct document ids that clients use: few make conflicts likely.
    pub documents: u32,
    /// Mean one-way network latency in microseconds.
    pub latency_us: u64,
    /// Segments lost and sent again, per 10,000.
    pub loss_per_10k: u32,
    /// Every disk operation takes this many times its usual time.
    pub disk_slow: u32,
    /// Bytes at which the node's memtable is flushed: small ones flush all the time.
    pub flush_at_bytes: usize,
}

/// A client operation and how long the client waits before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedOp {
    /// Pause before the operation, in milliseconds.
    pub after_ms: u64,
    /// The operation.
    pub op: Op,
}

/// What a client may do. `doc` is an index below [`WorldPlan::documents`], `v` a value unique in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// `PUT` on the newest revision that this client has seen of the document (or none).
    Put {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `PUT` on the first revision that this client ever saw: mostly a conflict.
    PutStale {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `DELETE` of the newest revision seen.
    Delete {
        /// Document.
        doc: u32,
    },
    /// A replicated edit (`new_edits=false`) on the newest or first revision seen: makes siblings.
    Merge {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
        /// Build on the first revision seen and not on the newest one.
        fork: bool,
        /// Send it a second time at once (must change nothing).
        twice: bool,
    },
    /// `_bulk_docs` with one interactive edit per document.
    Bulk {
        /// Documents and values.
        edits: Vec<(u32, u64)>,
    },
    /// `PUT` of an attachment of `bytes` bytes derived from `v`.
    Attach {
        /// Document.
        doc: u32,
        /// Seeds the content.
        v: u64,
        /// Size in bytes.
        bytes: u32,
    },
    /// `GET` with `conflicts=true`.
    Read {
        /// Document.
        doc: u32,
    },
    /// `GET` with `open_revs=all&revs=true`: the whole tree.
    ReadTree {
        /// Document.
        doc: u32,
    },
    /// `GET _all_docs`.
    List,
    /// `GET _changes` since the last answer.
    Changes,
    /// `PUT` of the client's own local document.
    Local {
        /// Value of the body's `v`.
        v: u64,
    },
    /// `POST _compact`: must change no answer.
    Compact,
}

/// A fault and its time from the start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedFault {
    /// Simulated milliseconds from the start.
    pub at_ms: u64,
    /// What happens.
    pub fault: Fault,
}

/// Faults of the single-node world (numbers as in docs/simulation.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// F9: the process dies and starts again `down_ms` later; what it wrote stays.
    Crash {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F10: power loss: unsynced sectors and directory entries are lost, kept or torn.
    PowerLoss {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F10 in the middle of a commit: power fails after `ops` more disk operations.
    Fuse {
        /// Disk operations until the cut.
        ops: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F5: the node and its clients do not hear each other.
    Partition {
        /// Duration.
        for_ms: u64,
        /// Only the answers are lost (F2).
        answers_only: bool,
    },
    /// F7: every open connection is reset.
    Reset,
    /// F14: the disk is slow by a factor.
    SlowDisk {
        /// Factor.
        factor: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F11, F13: syncs and writes fail now and then; what a failed sync should have written is lost.
    DiskErrors {
        /// Failures per 1,000 operations.
        per_1000: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F18: the node's wall clock jumps.
    ClockJump {
        /// Milliseconds, either way.
        by_ms: i64,
    },
}

impl Plan {
    /// Expands a seed. Equal seeds give equal plans.
    pub fn from_seed(seed: u64) -> Plan {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let world = WorldPlan {
            q: pick(&mut rng, &[1, 2, 3, 8]),
            documents: rng.random_range(2..=12),
            latency_us: pick(&mut rng, &[100, 500, 5_000, 30_000]),
            loss_per_10k: pick(&mut rng, &[0, 0, 10, 200]),
            disk_slow: pick(&mut rng, &[1, 1, 10, 50]),
            flush_at_bytes: pick(&mut rng, &[1_000, 10_000, 100_000, 16 << 20]),
        };
        let weights = Weights::draw(&mut rng);
        let clients = rng.random_range(1..=4);
        let mut next_v = 1;
        let clients = (0..clients).map(|_| client_ops(&mut rng, &weights, world.documents, &mut next_v)).collect();
        let faults = faults(&mut rng);
        Plan { seed, world, clients, faults }
    }

    /// How many operations and faults the plan has: the measure that shrinking makes smaller.
    pub fn size(&self) -> usize {
        self.clients.iter().map(Vec::len).sum::<usize>() + self.faults.len()
    }

    /// The plan as a readable file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan is plain data")
    }
}

fn pick<T: Copy>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
    from[rng.random_range(0..from.len())]
}

/// How likely each kind of operation is in this run; some are off entirely (swarm testing).
struct Weights([u32; 12]);

impl Weights {
    fn draw(rng: &mut ChaCha8Rng) -> Weights {
        let mut weights = [0; 12];
        for weight in &mut weights {
            *weight = if rng.random_range(0..4) == 0 { 0 } else { rng.random_range(1..=20) };
        }
        weights[0] = weights[0].max(5);
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

fn client_ops(rng: &mut ChaCha8Rng, weights: &Weights, documents: u32, next_v: &mut u64) -> Vec<TimedOp> {
    let count = rng.random_range(5..=60);
    (0..count)
        .map(|_| {
            let after_ms = rng.random_range(0..2 * WORK_MS / count);
            TimedOp { after_ms, op: draw_op(rng, weights, documents, next_v) }
        })
        .collect()
}

fn draw_op(rng: &mut ChaCha8Rng, weights: &Weights, documents: u32, next_v: &mut u64) -> Op {
    let doc = rng.random_range(0..documents);
    *next_v += 1;
    let v = *next_v;
    match weights.index(rng) {
        0 => Op::Put { doc, v },
        1 => Op::PutStale { doc, v },
        2 => Op::Delete { doc },
        3 => Op::Merge { doc, v, fork: rng.random_range(0..3) > 0, twice: rng.random_range(0..3) == 0 },
        4 => {
            let edits = (0..rng.random_range(1..=10))
                .map(|_| {
                    *next_v += 1;
                    (rng.random_range(0..documents), *next_v)
                })
                .collect();
            Op::Bulk { edits }
        }
        5 => Op::Attach { doc, v, bytes: pick(rng, &[0, 1, 700, 5_000, 70_000]) },
        6 => Op::Read { doc },
        7 => Op::ReadTree { doc },
        8 => Op::List,
        9 => Op::Local { v },
        10 => Op::Compact,
        _ => Op::Changes,
    }
}

/// One run in five is quiet, so that plain answers are judged too.
fn faults(rng: &mut ChaCha8Rng) -> Vec<TimedFault> {
    if rng.random_range(0..5) == 0 {
        return Vec::new();
    }
    let kinds: Vec<u32> = (0..8).filter(|_| rng.random_range(0..2) == 0).collect();
    if kinds.is_empty() {
        return Vec::new();
    }
    let mut out: Vec<TimedFault> = (0..rng.random_range(1..=8))
        .map(|_| {
            let down_ms = rng.random_range(1..=2_000);
            let for_ms = rng.random_range(10..=4_000);
            let fault = match pick(rng, &kinds) {
                0 => Fault::Crash { down_ms },
                1 => Fault::PowerLoss { down_ms },
                2 => Fault::Fuse { ops: rng.random_range(1..=200), down_ms },
                3 => Fault::Partition { for_ms, answers_only: rng.random_range(0..2) == 0 },
                4 => Fault::Reset,
                5 => Fault::SlowDisk { factor: pick(rng, &[10, 100, 1_000]), for_ms },
                6 => Fault::DiskErrors { per_1000: pick(rng, &[2, 20, 200]), for_ms },
                _ => Fault::ClockJump { by_ms: rng.random_range(-100_000_000..=100_000_000) },
            };
            TimedFault { at_ms: rng.random_range(0..WORK_MS), fault }
        })
        .collect();
    out.sort_by_key(|f| f.at_ms);
    out
}

#[cfg(test)]
mod tests {
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
    fn quiet_runs_and_every_fault_are_in_the_mix() {
        let plans: Vec<Plan> = (0..300).map(Plan::from_seed).collect();
        assert!(plans.iter().any(|p| p.faults.is_empty()));
        let has = |f: fn(&Fault) -> bool| plans.iter().flat_map(|p| &p.faults).any(|t| f(&t.fault));
        assert!(has(|f| matches!(f, Fault::Crash { .. })) && has(|f| matches!(f, Fault::PowerLoss { .. })));
        assert!(has(|f| matches!(f, Fault::Fuse { .. })) && has(|f| matches!(f, Fault::Partition { .. })));
        assert!(has(|f| matches!(f, Fault::Reset)) && has(|f| matches!(f, Fault::SlowDisk { .. })));
        assert!(has(|f| matches!(f, Fault::ClockJump { .. })) && has(|f| matches!(f, Fault::DiskErrors { .. })));
    }
}
