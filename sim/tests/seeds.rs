//! Whole runs: seeds that must hold every invariant, traces that must repeat, planted bugs that must be caught.
#![cfg(feature = "sim")]

use std::path::{Path, PathBuf};

use settee_sim::apart::{Leave, Summary, run_with};
use settee_sim::bugs::{BOARD, Entry, ShownBy};
use settee_sim::plan::{Plan, SCENES};
use settee_sim::totals::commit;

/// Seeds of an ordinary test run; `SETTEE_SIM_SEED=N` replays one instead.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=30;

/// The simulator of this build, or the optimised one that `scripts/test` names.
fn simulator() -> PathBuf {
    std::env::var_os("SETTEE_SIM").map_or_else(|| env!("CARGO_BIN_EXE_settee-sim").into(), PathBuf::from)
}

/// A run in a process of its own.
fn run(plan: &Plan, bug: Option<&str>) -> Summary {
    run_with(&simulator(), plan, bug, Leave::default()).expect("a summary")
}

/// Shrinks a failing plan; the path of what is left.
fn shrunk(seed: u64) -> String {
    let shrink = ["shrink", &seed.to_string()];
    let output = std::process::Command::new(simulator()).args(shrink).output();
    let text = String::from_utf8(output.expect("the simulator runs").stdout).expect("text");
    text.trim().to_owned()
}

#[test]
fn every_invariant_holds() {
    let one = std::env::var("SETTEE_SIM_SEED").ok().and_then(|text| text.parse().ok());
    let seeds = one.map_or(SEEDS, |seed| seed..=seed);
    let mut failures = Vec::new();
    let mut acknowledged = 0;
    for seed in seeds {
        let summary = run(&Plan::from_seed(seed), None);
        acknowledged += summary.edits.0;
        if let Some((invariant, what)) = summary.failure {
            let command = format!("SETTEE_SIM_SEED={seed} cargo test -p settee-sim --features sim --test seeds");
            let (commit, left) = (commit(), if failures.is_empty() { shrunk(seed) } else { String::new() });
            failures
                .push(format!("seed {seed} at commit {commit}: {invariant}: {what}\n  {command}\n  shrunk: {left}"));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(acknowledged > 0, "nothing was written: nothing was tested");
}

/// Plans that once failed, named after what went wrong.
#[test]
fn regression_plans_hold() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    let mut paths: Vec<_> = std::fs::read_dir(dir).expect("plans").map(|e| e.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let text = std::fs::read_to_string(&path).expect("a readable plan");
        let plan: Plan = serde_json::from_str(&text).expect("a plan");
        assert_eq!(run(&plan, None).failure, None, "{}", path.display());
    }
}

#[test]
fn equal_seeds_have_equal_traces() {
    let hashes = [3, 11, 40].map(|seed| {
        let plan = Plan::from_seed(seed);
        let first = run(&plan, None).trace_hash;
        assert_eq!(first, run(&plan, None).trace_hash, "seed {seed}");
        first
    });
    assert!(hashes[0] != hashes[1] && hashes[1] != hashes[2]);
}

/// Those of the board that a few seeds catch; `settee-sim planted` runs all.
const QUICK_BUGS: [&str; 10] = [
    "SkipFsync",
    "LoseSibling",
    "FeedSkipsRange",
    "ViewRowStays",
    "CheckpointFirst",
    "HalfBatch",
    "AcceptTornTail",
    "TokenNeverEnds",
    "FeedRewinds",
    "SelectorForgotten",
];

fn is_caught(entry: &Entry) {
    let name = entry.name();
    let caught = (1..=60).find_map(|seed| run(&entry.shown_by.plan(seed), Some(&name)).failure);
    let (invariant, what) = caught.unwrap_or_else(|| panic!("{name} went unnoticed through 60 seeds"));
    assert!(entry.caught_by.contains(&invariant.as_str()), "{name} was taken for {invariant}: {what}");
}

#[test]
fn planted_bugs_are_caught() {
    QUICK_BUGS.into_iter().for_each(|name| is_caught(Entry::named(name).expect("on the board")));
}

#[test]
fn scenes_hold_and_show_their_bugs() {
    for (name, scene) in SCENES {
        assert_eq!(run(&Plan::of_scene(scene, 1), None).failure, None, "{name}");
    }
    BOARD.iter().filter(|entry| matches!(entry.shown_by, ShownBy::Scene(_))).for_each(is_caught);
}
