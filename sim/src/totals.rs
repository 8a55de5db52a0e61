//! Sums over many runs, and the report of what they exercised.

use std::collections::BTreeMap;
use std::process::Command;

use settee::world::buggify::{POINTS, SITES};

use crate::apart::Summary;
use crate::plan::{FAULTS, OPS};

/// See the module head.
#[derive(Default)]
pub struct Totals {
    runs: u64,
    simulated_ms: u64,
    starts: u64,
    edits: (usize, usize, usize),
    answers: BTreeMap<String, u64>,
    matrix: BTreeMap<(String, String), u64>,
    endpoints: BTreeMap<(String, u16), u64>,
    counters: BTreeMap<String, u64>,
    /// Runs by the tenth of their requests that served.
    success: [u64; 11],
    /// Runs in which nothing was acknowledged: they tested nothing.
    barren: u64,
    /// Runs that were the same in a second process.
    pub twice: u64,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, run: &Summary) {
        self.runs += 1;
        self.simulated_ms += run.simulated_ms;
        self.starts += run.starts;
        self.edits.0 += run.edits.0;
        self.edits.1 += run.edits.1;
        self.edits.2 += run.edits.2;
        for (kind, n) in &run.answers {
            *self.answers.entry(kind.clone()).or_default() += n;
        }
        for (fault, op, n) in &run.matrix {
            *self.matrix.entry((fault.clone(), op.clone())).or_default() += n;
        }
        for (endpoint, status, n) in &run.endpoints {
            *self.endpoints.entry((endpoint.clone(), *status)).or_default() += n;
        }
        for (name, n) in &run.counters {
            *self.counters.entry(name.clone()).or_default() += n;
        }
        self.success[(run.success() / 10) as usize] += 1;
        self.barren += u64::from(run.edits.0 == 0);
    }

    /// Prints the sums of `seconds` of work.
    pub fn print(&self, seconds: f64) {
        let simulated_s = self.simulated_ms / 1000;
        println!(
            "{simulated_s} simulated seconds in {seconds:.1} s, {} starts, edits: {} acknowledged, {} refused, {} unknown",
            self.starts, self.edits.0, self.edits.1, self.edits.2
        );
        println!("answers {:?}", self.answers);
        println!("runs by tenths of served requests {:?}, without an acknowledged edit {}", self.success, self.barren);
        println!("{} runs, {} of them repeated event by event", self.runs, self.twice);
    }

    /// Prints what was exercised, and what never was.
    pub fn print_coverage(&self) {
        println!("\n| fault | runs' times | {} |", OPS.join(" | "));
        println!("|---|---|{}", "---|".repeat(OPS.len()));
        let counter = |name: String| self.counters.get(&name).copied().unwrap_or(0);
        let mut zero = Vec::new();
        for fault in FAULTS.into_iter().chain(["none"]) {
            let cell = |op: &&'static str| self.matrix.get(&(fault.to_owned(), (*op).to_owned())).copied().unwrap_or(0);
            let cells: Vec<u64> = OPS.iter().map(cell).collect();
            zero.extend(OPS.iter().zip(&cells).filter(|(_, n)| **n == 0).map(|(op, _)| format!("{fault} x {op}")));
            let cells: Vec<String> = cells.iter().map(u64::to_string).collect();
            println!("| {fault} | {} | {} |", counter(format!("fault {fault}")), cells.join(" | "));
        }
        println!("\nnever met: {}", if zero.is_empty() { "nothing".to_owned() } else { zero.join(", ") });
        println!("\nendpoints and answers (0: none came):");
        for ((endpoint, status), n) in &self.endpoints {
            println!("  {endpoint} {status}: {n}");
        }
        println!("\nrare turns of the node's code:");
        for site in SITES {
            println!("  {site}: {}", counter(format!("site {site}")));
        }
        println!("points reached:");
        for point in POINTS {
            println!("  {point}: {}", counter(format!("point {point}")));
        }
        println!("\nthe world's counters:");
        let own = |name: &str| ["site ", "point ", "fault "].iter().any(|p| name.starts_with(p));
        for (name, n) in self.counters.iter().filter(|(name, _)| !own(name)) {
            println!("  {name}: {n}");
        }
    }
}

/// The commit that runs, for seeds mean nothing without it.
pub fn commit() -> String {
    let asked = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}
