//! `settee-sim`: runs seeds, replays and shrinks a failing one, proves on planted bugs that the judges bite.
//!
//! Exit status 0 only when every invariant held (for `planted`: when every planted bug was caught).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand};
use settee_sim::plan::Plan;
use settee_sim::run::{BUGS, Report, run_plan};
use settee_sim::shrink::shrink;

#[derive(Parser)]
#[command(name = "settee-sim", about = "Runs settee nodes in a seeded world of faults")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds; the first failures are saved as plans.
    Run {
        /// How many seeds.
        #[arg(long, default_value_t = 100)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Seeds that run side by side.
        #[arg(long, default_value_t = 2)]
        jobs: u64,
    },
    /// Runs one seed, or a saved plan, and prints what happened.
    Replay {
        /// A number, or a path to a plan.
        what: String,
    },
    /// Finds a smaller plan that fails in the same way and saves it.
    Shrink {
        /// The failing seed, or a path to a plan.
        what: String,
    },
    /// Runs each planted bug until it is caught.
    Planted {
        /// Seeds to try for each bug.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
    },
    /// Runs seeds and prints what was exercised: operations, answers, faults.
    Report {
        /// How many seeds.
        #[arg(long, default_value_t = 50)]
        seeds: u64,
    },
}

fn main() -> ExitCode {
    let ok = match Arguments::parse().command {
        Command::Run { seeds, from, jobs } => run(from, seeds, jobs),
        Command::Replay { what } => replay(&what),
        Command::Shrink { what } => shrink_to_file(&what),
        Command::Planted { seeds } => planted(seeds),
        Command::Report { seeds } => report(seeds),
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Where failing plans are kept.
fn plan_path(name: &str) -> PathBuf {
    let dir = PathBuf::from("target/sim");
    // A missing directory shows when the plan is written.
    let _ = std::fs::create_dir_all(&dir);
    dir.join(name)
}

fn save(plan: &Plan, name: &str) -> String {
    let path = plan_path(name);
    match std::fs::write(&path, plan.to_json()) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("(not saved: {error})"),
    }
}

/// Runs `seeds` seeds on `jobs` threads and gives every report to `each`.
fn sweep(from: u64, seeds: u64, jobs: u64, each: impl Fn(Report) + Sync) {
    let next = AtomicU64::new(from);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    each(run_plan(Plan::from_seed(seed), None));
                }
            });
        }
    });
}

fn run(from: u64, seeds: u64, jobs: u64) -> bool {
    let started = Instant::now();
    let failures = Mutex::new(Vec::new());
    let totals = Mutex::new(Totals::default());
    sweep(from, seeds, jobs, |report| {
        totals.lock().expect("unpoisoned").add(&report);
        if let Some(failure) = &report.failure {
            let saved = save(&report.plan, &format!("seed-{}.json", report.plan.seed));
            println!("seed {} FAILED: {failure}", report.plan.seed);
            println!("  replay: settee-sim replay {}   plan: {saved}", report.plan.seed);
            println!("  shrink: settee-sim shrink {}", report.plan.seed);
            failures.lock().expect("unpoisoned").push(report.plan.seed);
        }
    });
    let mut failures = failures.into_inner().expect("unpoisoned");
    failures.sort_unstable();
    let totals = totals.into_inner().expect("unpoisoned");
    totals.print(started.elapsed().as_secs_f64());
    println!("{} passed, {} failed", seeds - failures.len() as u64, failures.len());
    failures.is_empty()
}

#[derive(Default)]
struct Totals {
    simulated_ms: u64,
    starts: u64,
    edits: (usize, usize, usize),
    answers: BTreeMap<&'static str, u64>,
    counters: BTreeMap<&'static str, u64>,
    hash: u64,
}

impl Totals {
    fn add(&mut self, report: &Report) {
        self.simulated_ms += report.simulated_ms;
        self.starts += report.starts;
        self.edits.0 += report.edits.0;
        self.edits.1 += report.edits.1;
        self.edits.2 += report.edits.2;
        for (kind, n) in &report.answers {
            *self.answers.entry(kind).or_default() += n;
        }
        for (kind, n) in &report.counters {
            *self.counters.entry(kind).or_default() += n;
        }
        // Addition, because seeds end in any order.
        self.hash = self.hash.wrapping_add(report.trace_hash);
    }

    fn print(&self, seconds: f64) {
        let simulated_s = self.simulated_ms / 1000;
        println!(
            "{simulated_s} simulated seconds in {seconds:.1} s, {} starts, edits: {} acknowledged, {} refused, {} unknown",
            self.starts, self.edits.0, self.edits.1, self.edits.2
        );
        println!("answers {:?}", self.answers);
        println!("counters {:?}", self.counters);
        println!("sum of trace hashes {:016x}", self.hash);
    }
}

/// A plan from a seed's number or a file.
fn plan_of(what: &str) -> Option<Plan> {
    if let Ok(seed) = what.parse() {
        return Some(Plan::from_seed(seed));
    }
    let text = std::fs::read_to_string(what).map_err(|e| eprintln!("{what}: {e}")).ok()?;
    serde_json::from_str(&text).map_err(|e| eprintln!("{what}: not a plan: {e}")).ok()
}

fn replay(what: &str) -> bool {
    let Some(plan) = plan_of(what) else { return false };
    println!("{}", plan.to_json());
    let report = run_plan(plan, None);
    println!("trace hash {:016x}", report.trace_hash);
    println!("answers {:?}, counters {:?}", report.answers, report.counters);
    match &report.failure {
        Some(failure) => println!("FAILED: {failure}"),
        None => println!("every invariant held"),
    }
    report.failure.is_none()
}

fn shrink_to_file(what: &str) -> bool {
    let Some(plan) = plan_of(what) else { return false };
    let Some(smaller) = shrink(&plan, None) else {
        println!("{what} does not fail");
        return true;
    };
    let saved = save(&smaller, &format!("shrunk-{}.json", plan.seed));
    println!("{} parts instead of {}: settee-sim replay {saved}", smaller.size(), plan.size());
    false
}

fn planted(seeds: u64) -> bool {
    let mut uncaught = 0;
    for bug in BUGS {
        let caught = (1..=seeds).find_map(|seed| {
            let report = run_plan(Plan::from_seed(seed), Some(bug));
            report.failure.map(|failure| (seed, failure))
        });
        match caught {
            Some((seed, failure)) => println!("{bug:?}: caught at seed {seed}: {failure}"),
            None => {
                println!("{bug:?}: NOT caught in {seeds} seeds");
                uncaught += 1;
            }
        }
    }
    println!("{} passed, {uncaught} failed", BUGS.len() - uncaught);
    uncaught == 0
}

fn report(seeds: u64) -> bool {
    let totals = Mutex::new(Totals::default());
    let failed = AtomicU64::new(0);
    let started = Instant::now();
    sweep(1, seeds, 2, |report| {
        failed.fetch_add(u64::from(report.failure.is_some()), Ordering::Relaxed);
        totals.lock().expect("unpoisoned").add(&report);
    });
    totals.into_inner().expect("unpoisoned").print(started.elapsed().as_secs_f64());
    failed.into_inner() == 0
}
