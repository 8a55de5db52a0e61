//! Whole runs: seeds that must hold every invariant, traces that must repeat, planted bugs that must be caught.
#![cfg(feature = "sim")]

use std::process::Command;

use settee_sim::plan::Plan;
use settee_sim::run::{BUGS, run_plan};

/// Seeds of an ordinary test run; `SETTEE_SIM_SEED=N` replays one instead.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=24;

#[test]
fn every_invariant_holds() {
    let one = std::env::var("SETTEE_SIM_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = one.map_or(SEEDS, |seed| seed..=seed);
    let mut failures = Vec::new();
    let mut acknowledged = 0;
    for seed in seeds {
        let report = run_plan(Plan::from_seed(seed), None);
        acknowledged += report.edits.0;
        if let Some(failure) = report.failure {
            failures.push(format!("seed {seed}: {failure}\n  settee-sim shrink {seed}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(acknowledged > 0, "nothing was written: nothing was tested");
}

/// Plans that once failed, named after what went wrong.
#[test]
fn regression_plans_hold() {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut paths: Vec<_> = std::fs::read_dir(dir).expect("plans").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a readable plan");
        let plan: Plan = serde_json::from_str(&text).expect("a plan");
        let failure = run_plan(plan, None).failure;
        assert_eq!(failure, None, "{}", path.display());
    }
}

/// The trace hash that a process of its own prints for a seed.
fn hash_of_a_process(seed: u64) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_settee-sim")).args(["replay", &seed.to_string()]).output();
    let text = String::from_utf8(output.expect("the simulator runs").stdout).expect("text");
    let line = text.lines().find_map(|l| l.strip_prefix("trace hash "));
    line.expect("a trace hash").to_owned()
}

#[test]
fn equal_seeds_have_equal_traces_in_one_process_and_in_two() {
    for seed in [3, 11] {
        let first = run_plan(Plan::from_seed(seed), None).trace_hash;
        let second = run_plan(Plan::from_seed(seed), None).trace_hash;
        assert_eq!(first, second, "seed {seed}, twice in this process");
        let here = format!("{first:016x}");
        assert_eq!(hash_of_a_process(seed), here, "seed {seed}, in another process");
        assert_eq!(hash_of_a_process(seed), here, "seed {seed}, in a third process");
    }
    let hashes: Vec<u64> = [3, 11].map(|seed| run_plan(Plan::from_seed(seed), None).trace_hash).into();
    assert_ne!(hashes[0], hashes[1]);
}

#[test]
fn planted_bugs_are_caught() {
    for bug in BUGS {
        let caught = (1..=100).find(|seed| run_plan(Plan::from_seed(*seed), Some(bug)).failure.is_some());
        assert!(caught.is_some(), "{bug:?} went unnoticed through 100 seeds");
    }
}
