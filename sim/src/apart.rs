//! Runs in processes of their own. Whatever a process keeps from one run to the next (tokio seeds the order in which it
//! wakes waiters from a counter of threads) is then the same each time, so that a plan alone decides a run.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::run::Report;

/// What a run tells another process.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Summary {
    /// The number of the broken invariant, and what is wrong.
    pub failure: Option<(String, String)>,
    /// The hash over all events; none when the run panicked.
    pub trace_hash: String,
    /// Virtual time in milliseconds.
    pub simulated_ms: u64,
    /// Lives of all nodes.
    pub starts: u64,
    /// Edits acknowledged, refused, unknown.
    pub edits: (usize, usize, usize),
    /// Answers by kind.
    pub answers: BTreeMap<String, u64>,
    /// How they met, fault, operation, how often.
    pub matrix: Vec<(String, String, String, u64)>,
    /// Endpoint, status, how often, and how often while a fault was felt.
    pub endpoints: Vec<(String, u16, u64, u64)>,
    /// Counters of all kinds.
    pub counters: BTreeMap<String, u64>,
}

impl From<&Report> for Summary {
    fn from(report: &Report) -> Summary {
        let coverage = &report.history.coverage;
        let met = |((phase, fault, op), n): (&(&str, &str, &str), &u64)| {
            ((*phase).to_owned(), (*fault).to_owned(), (*op).to_owned(), *n)
        };
        let asked = |((endpoint, status), (all, under)): (&(String, u16), &(u64, u64))| {
            (endpoint.clone(), *status, *all, *under)
        };
        Summary {
            failure: report.failure.as_ref().map(|f| (f.invariant.to_owned(), f.what.clone())),
            trace_hash: format!("{:016x}", report.trace_hash),
            simulated_ms: report.simulated_ms,
            starts: report.starts,
            edits: report.edits,
            answers: report.answers.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect(),
            matrix: coverage.matrix.iter().map(met).collect(),
            endpoints: coverage.endpoints.iter().map(asked).collect(),
            counters: coverage.counters.clone(),
        }
    }
}

impl Summary {
    /// Answers that served, of all requests, in percent.
    pub fn success(&self) -> u64 {
        let all: u64 = self.answers.values().sum();
        self.answers.get("2xx").copied().unwrap_or(0) * 100 / all.max(1)
    }
}

/// What else a run is to leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leave<'a> {
    /// Every event, one per line.
    pub trace: Option<&'a Path>,
    /// The page that shows it.
    pub timeline: Option<&'a Path>,
}

/// Carries a plan out in another process of this program (or of `program`), with a bug planted if one is named.
///
/// # Errors
/// When the process cannot be run or says nothing that makes sense.
pub fn run_with(program: &Path, plan: &Plan, bug: Option<&str>, leave: Leave<'_>) -> Result<Summary, String> {
    let mut command = Command::new(program);
    command.args(["replay", "--summary", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(bug) = bug {
        command.args(["--bug", bug]);
    }
    for (option, path) in [("--trace", leave.trace), ("--timeline", leave.timeline)] {
        if let Some(path) = path {
            command.arg(option).arg(path);
        }
    }
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", program.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(plan.to_json().as_bytes()).map_err(|e| e.to_string())?;
    }
    let output = child.wait_with_output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).map_err(|e| format!("seed {}: {}: {e}: {text}", plan.seed, output.status))
}

/// [`run_with`] this program.
///
/// # Errors
/// As there.
pub fn run(plan: &Plan, bug: Option<&str>) -> Result<Summary, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    run_with(&program, plan, bug, Leave::default())
}

/// [`run`]; a process that ended without a summary counts as a panic.
pub fn summary_of(plan: &Plan, bug: Option<&str>) -> Summary {
    let lost = |text| Summary { failure: Some(("P".into(), text)), ..Summary::default() };
    run(plan, bug).unwrap_or_else(lost)
}

/// Calls `each` with `seeds` seeds, `jobs` at a time.
pub fn each_seed((from, seeds, jobs): (u64, u64, u64), each: impl Fn(u64) + Sync) {
    let next = AtomicU64::new(from);
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        return;
                    }
                    each(seed);
                }
            });
        }
    });
}

/// Lines of what a process complained of that are shown when it failed without a word.
const COMPLAINT_LINES: usize = 12;

/// Runs this program with other arguments and prints what it says; whether it succeeded.
pub fn say(arguments: &[&str]) -> bool {
    let ran = std::env::current_exe().and_then(|own| Command::new(own).args(arguments).output());
    match ran {
        Ok(output) => {
            print!("{}", String::from_utf8_lossy(&output.stdout));
            if output.stdout.is_empty() {
                let complaint = String::from_utf8_lossy(&output.stderr);
                let lines: Vec<&str> = complaint.lines().collect();
                let end = lines[lines.len().saturating_sub(COMPLAINT_LINES)..].join("\n");
                println!("{}: {}: {end}", arguments.join(" "), output.status);
            }
            output.status.success()
        }
        Err(error) => {
            println!("{}: {error}", arguments.join(" "));
            false
        }
    }
}
