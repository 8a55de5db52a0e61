//! The scene `disks`: one server, on which clients write all the time, while its process is killed within syncs of the
//! journal and power fails soon after it started again; while syncs of directories fail and power fails before others
//! succeed; while the disk has no room; while power fails within flushes; and while one store file is what it was some
//! time before. In one plan of three it is killed again and again, and cannot open files soon after it started. In one
//! of three clients search all the time, too, and power fails within commits, one of which is that of a search index.
//! A node that trusts what was not made durable, a file that is not the newest one, or room that is not there, or that
//! takes a file that it cannot open for one that is not there, shows it here. Plans at large have the same but for that
//! older file, more seldom and beside much else (`rest`).

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::draw::{Draw, KINDS, Weights, pick};
use super::fault::{Fault, TimedFault};
use super::op::TimedOp;
use super::stage::{Drawn, fault};
use super::types::WorldPlan;

/// Kinds of operations: those that write documents, shared and own ones, and those that read them.
const OPS_OF_CLIENTS: [usize; 13] = [0, 2, 3, 4, 5, 7, 8, 10, 15, 16, 18, 19, 20];
/// Those of them that are in every plan: single edits.
const ALWAYS: [usize; 2] = [0, 15];
/// Queries of own documents, with searches.
const QUERIES: usize = 21;
/// From one fault to the next, in milliseconds: what came of the one is seen before.
const EVERY_MS: u64 = 6_000;

/// The plan's world, clients and faults.
pub(super) fn drawn(mut rng: ChaCha8Rng, base: WorldPlan) -> Drawn {
    let searched = rng.random_range(0..3) == 0;
    let world = WorldPlan {
        q: pick(&mut rng, &[1, 2, 3]),
        documents: rng.random_range(4..=24),
        latency_us: pick(&mut rng, &[100, 500, 5_000]),
        // Small: names of files change all the time.
        flush_at_bytes: pick(&mut rng, &[1_000, 1_000, 10_000, 100_000]),
        disk_slow: pick(&mut rng, &[1, 1, 10]),
        turns: rng.random_range(0..2) == 0,
        nodes: 1,
        n: 0,
        strict_reads: false,
        purges_kept: None,
        ..base
    };
    let mut weights = vec![0; KINDS];
    for kind in OPS_OF_CLIENTS {
        weights[kind] = if rng.random_range(0..2) == 0 { 0 } else { rng.random_range(1..=5) };
    }
    for kind in ALWAYS {
        weights[kind] = 20;
    }
    if searched {
        weights[QUERIES] = 40;
    }
    let (weights, mut draw) = (Weights(weights), Draw { rng, world: &world, next_v: 1 });
    let clients: Vec<Vec<TimedOp>> = (0..draw.rng.random_range(3..=5)).map(|_| draw.client(&weights)).collect();
    let mut faults = faults(&mut draw.rng);
    let cuts = faults.iter().any(|timed| matches!(timed.fault, Fault::CutFlush { .. }));
    if searched {
        for nth in 0..6 {
            let (at_ms, down_ms) =
                (nth * EVERY_MS / 2 + draw.rng.random_range(500..2_500), draw.rng.random_range(1..=300));
            faults.push(fault(at_ms, 0, Fault::TornJournal { syncs: draw.rng.random_range(1..=12), down_ms }));
        }
    }
    if cuts {
        // Often, and where flushes are: what one of them loses is a group or two of one file.
        for nth in 0..8 {
            let (at_ms, down_ms) = (nth * 2_000 + draw.rng.random_range(500..2_000), draw.rng.random_range(1..=300));
            faults.push(fault(at_ms, 0, Fault::CutFlush { syncs: draw.rng.random_range(1..=2), down_ms }));
        }
    }
    for nth in 0..2 {
        let (at_ms, back_ms) =
            (nth * EVERY_MS + draw.rng.random_range(1_000..6_000), draw.rng.random_range(300..=3_000));
        faults.push(fault(at_ms, 0, Fault::OldFile { file: draw.rng.random_range(0..1_000), back_ms }));
    }
    if draw.rng.random_range(0..3) == 0 {
        faults.extend(starts_without_files(&mut draw.rng));
    }
    faults.sort_by_key(|timed| timed.at_ms);
    let world = if cuts { WorldPlan { flush_at_bytes: 1_000, q: 1, ..world } } else { world };
    (world, clients, faults)
}

fn faults(rng: &mut ChaCha8Rng) -> Vec<TimedFault> {
    let mut out = Vec::new();
    for nth in 0..3 {
        let (at_ms, down_ms) = (nth * EVERY_MS + rng.random_range(500..3_000), rng.random_range(1..=500));
        match rng.random_range(0..4) {
            0 | 1 => {
                let journal = rng.random_range(0..4) > 0;
                let ops = rng.random_range(1..=if journal { 10 } else { 120 });
                let cut_ms = rng.random_range(1..=1_500);
                out.push(fault(at_ms, 0, Fault::KilledInJob { ops, down_ms, journal, cut_ms }));
            }
            2 => {
                let for_ms = rng.random_range(1_000..=3_500);
                out.push(fault(at_ms, 0, Fault::DirSyncErrors { per_1000: pick(rng, &[500, 1_000]), for_ms }));
                out.push(fault(at_ms + rng.random_range(300..=for_ms), 0, Fault::PowerLoss { down_ms }));
            }
            _ => out.push(fault(at_ms, 0, Fault::NoRoom { for_ms: rng.random_range(6_000..12_000) })),
        }
    }
    // In half of the plans power fails within flushes, too.
    let cuts = if rng.random_range(0..2) == 0 { 3 } else { 0 };
    for nth in 0..cuts {
        let (at_ms, down_ms) = (nth * EVERY_MS + rng.random_range(3_000..5_500), rng.random_range(1..=500));
        out.push(fault(at_ms, 0, Fault::CutFlush { syncs: rng.random_range(1..=3), down_ms }));
    }
    out.sort_by_key(|timed| timed.at_ms);
    out
}

/// Files cannot be opened soon after starts: store files are opened when they are first read.
fn starts_without_files(rng: &mut ChaCha8Rng) -> Vec<TimedFault> {
    let mut out = Vec::new();
    for nth in 0..6 {
        let (at_ms, down_ms) = (nth * EVERY_MS / 2 + rng.random_range(500..2_500), rng.random_range(1..=100));
        let from_ms = at_ms + down_ms + rng.random_range(0..200);
        let no_files = Fault::NoFiles { per_1000: pick(rng, &[50, 300, 1_000]), for_ms: rng.random_range(100..=1_500) };
        out.extend([fault(at_ms, 0, Fault::Crash { down_ms }), fault(from_ms, 0, no_files)]);
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{NO_ROOM, Plan, Scene};

    #[test]
    fn twenty_plans_have_all_of_these_faults_and_clients_that_write() {
        let plans: Vec<Plan> = (0..20).map(|number| Plan::of_scene(Scene::Disks, number)).collect();
        let names: BTreeSet<&str> =
            plans.iter().flat_map(|plan| &plan.faults).map(|timed| timed.fault.name()).collect();
        let kills = ["F9 crash", "F9 kill in a job", "F9 kill in a sync", "F10 cut in a flush"];
        let others = ["F10 power loss", "F10 torn journal", "F11 directory syncs", NO_ROOM, "F16 old store file"];
        let wanted = [&kills[..], &others, &["F13 no files"]].concat();
        assert_eq!(names, wanted.into_iter().collect());
        for plan in plans {
            let writes = plan.clients.iter().flatten().filter(|timed| matches!(timed.op.name(), "put" | "own put"));
            assert!(writes.count() > 5 && plan.world.clusters().is_empty(), "{}", plan.name());
        }
    }
}
