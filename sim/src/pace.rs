//! How fast the simulator is: a cluster under light traffic, in peace, and how many of its seconds pass in one.

use std::time::{Duration, Instant};

use crate::apart;
use crate::plan::{FeedMode, Op, Plan, TimedOp, WorldPlan};

/// How long the clients work, in simulated seconds.
const WORK_S: u64 = 600;
/// Clients, each of which does something once a second.
const CLIENTS: u64 = 2;
/// Documents that they use.
const DOCUMENTS: u32 = 20;

/// What passed in the world, and what it took.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Simulated time.
    pub simulated: Duration,
    /// Time of one core.
    pub took: Duration,
}

impl Pace {
    /// Simulated seconds per second.
    pub fn speed(&self) -> f64 {
        self.simulated.as_secs_f64() / self.took.as_secs_f64()
    }
}

/// Measures a cluster of so many nodes, with three replicas of each range.
///
/// # Errors
/// The promise that was broken, or the process that could not run.
pub fn measure(nodes: u32) -> Result<Pace, String> {
    let plan = plan(nodes);
    let started = Instant::now();
    let summary = apart::run(&plan, None)?;
    let took = started.elapsed();
    match summary.failure {
        Some((invariant, what)) => Err(format!("{invariant}: {what}")),
        None => Ok(Pace { simulated: Duration::from_millis(summary.simulated_ms), took }),
    }
}

fn plan(nodes: u32) -> Plan {
    let world = WorldPlan {
        message_bytes: 0,
        step_rows: 0,
        tls: false,
        self_made: false,
        q: 2,
        documents: DOCUMENTS,
        latency_us: 500,
        loss_per_10k: 0,
        disk_slow: 1,
        flush_at_bytes: 16 << 20,
        cache_bytes: 1 << 20,
        own_documents: 1,
        turns: false,
        first_start_cut: None,
        nodes,
        n: 3,
        outside: 0,
        strict_reads: false,
        w: None,
        r: None,
        purges_kept: None,
        outcast: None,
        far: None,
        tombstone_ms: 0,
        searches: false,
    };
    let client = |client: u64| {
        (0..WORK_S).map(move |second| TimedOp { after_ms: 1_000, op: op(CLIENTS * second + client) }).collect()
    };
    Plan {
        seed: 1,
        world,
        clients: (0..CLIENTS).map(client).collect(),
        faults: Vec::new(),
        reseed: None,
        until_ms: None,
    }
}

/// Two reads to each write, and now and then the changes.
fn op(nth: u64) -> Op {
    let doc = (nth / 2 % u64::from(DOCUMENTS)) as u32;
    match nth % 7 {
        0 | 1 => Op::Put { doc, v: nth + 1 },
        2..=5 => Op::Read { doc },
        _ => Op::Follow { mode: FeedMode::Normal, limit: None },
    }
}
