//! Sums over many runs, and the report of what they exercised.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use settee::world::buggify::{POINTS, SITES};

use crate::apart::Summary;
use crate::cases;
use crate::history::{NO_FAULT, PHASES};
use crate::plan::{FAULTS, Meetings, OPS, Plan};

/// See the module head.
#[derive(Default)]
pub struct Totals {
    runs: u64,
    simulated_ms: u64,
    starts: u64,
    edits: (usize, usize, usize),
    answers: BTreeMap<String, u64>,
    matrix: BTreeMap<(String, String, String), u64>,
    endpoints: BTreeMap<(String, u16), (u64, u64)>,
    counters: BTreeMap<String, u64>,
    /// How many plans have a fault and an operation.
    together: BTreeMap<(&'static str, &'static str), u64>,
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
        for (phase, fault, op, n) in &run.matrix {
            *self.matrix.entry((phase.clone(), fault.clone(), op.clone())).or_default() += n;
        }
        for (endpoint, status, all, under) in &run.endpoints {
            let sums = self.endpoints.entry((endpoint.clone(), *status)).or_default();
            *sums = (sums.0 + all, sums.1 + under);
        }
        for (name, n) in &run.counters {
            *self.counters.entry(name.clone()).or_default() += n;
        }
        self.success[(run.success() / 10) as usize] += 1;
        self.barren += u64::from(run.edits.0 == 0);
    }

    /// Notes what a plan that runs has together.
    pub fn has(&mut self, plan: &Plan) {
        let ops: BTreeSet<&str> = plan.clients.iter().flatten().map(|timed| timed.op.name()).collect();
        let faults: BTreeSet<&str> = plan.faults.iter().map(|timed| timed.fault.name()).collect();
        for fault in faults {
            ops.iter().for_each(|op| *self.together.entry((fault, *op)).or_default() += 1);
        }
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
        self.print_matrix();
        self.print_endpoints();
        println!("\nrare turns of the node's code:");
        let unturned = self.print_counts("site", SITES);
        println!("points reached:");
        let unreached = self.print_counts("point", POINTS);
        println!("\nthe world's counters:");
        let own = |name: &str| ["site ", "point ", "fault "].iter().any(|p| name.starts_with(p));
        for (name, n) in self.counters.iter().filter(|(name, _)| !own(name)) {
            println!("  {name}: {n}");
        }
        println!("\nnever turned: {}\nnever reached: {}", listed(&unturned), listed(&unreached));
    }

    fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).copied().unwrap_or(0)
    }

    /// Faults by operations, each cell by [`PHASES`]; then the zeros.
    fn print_matrix(&self) {
        println!("\nin each cell: operations {} the fault", PHASES.join(" / "));
        println!("| fault | times | {} |\n|---|---|{}", OPS.join(" | "), "---|".repeat(OPS.len()));
        let cell = |phase: &str, fault: &str, op: &str| {
            self.matrix.get(&(phase.to_owned(), fault.to_owned(), op.to_owned())).copied().unwrap_or(0)
        };
        for fault in FAULTS.into_iter().chain([NO_FAULT]) {
            let cells = |op: &&str| PHASES.map(|phase| cell(phase, fault, op).to_string()).join("/");
            let cells: Vec<String> = OPS.iter().map(cells).collect();
            println!("| {fault} | {} | {} |", self.counter(&format!("fault {fault}")), cells.join(" | "));
        }
        self.print_zeros(cell);
    }

    /// The cells that are zero: those that should not be, then those that no plan can fill, with the reason.
    fn print_zeros(&self, cell: impl Fn(&str, &str, &str) -> u64) {
        let meetings = Meetings::of_all_plans();
        let (mut zeros, mut possible, mut undrawn) = (0, 0, 0);
        let mut apart: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for phase in PHASES {
            for fault in FAULTS {
                let (mut never, mut without) = (Vec::new(), Vec::new());
                for op in OPS.into_iter().filter(|op| cell(phase, fault, op) == 0) {
                    match meetings.apart(phase == PHASES[1], fault, op) {
                        Some(why) => drop(apart.entry(why).or_default().entry(fault).or_default().insert(op)),
                        None => match self.together.get(&(fault, op)) {
                            Some(plans) => never.push(format!("{op} ({plans})")),
                            None => without.push(op),
                        },
                    }
                }
                let there = OPS.iter().filter(|op| meetings.apart(phase == PHASES[1], fault, op).is_none()).count();
                (zeros, possible) = (zeros + never.len() + without.len(), possible + there);
                undrawn += without.len();
                if !never.is_empty() {
                    println!("never {phase} {fault}, though plans have both: {}", never.join(", "));
                }
                if !without.is_empty() {
                    let without = if without.len() == there { "anything".to_owned() } else { listed(&without) };
                    println!("never {phase} {fault}, as no plan of these has both: {without}");
                }
            }
        }
        println!("\ncells that cannot be:");
        for (why, faults) in &apart {
            println!("  {why}:");
            faults
                .iter()
                .for_each(|(fault, ops)| println!("    {fault}: {}", listed(&ops.iter().copied().collect::<Vec<_>>())));
        }
        let all = PHASES.len() * FAULTS.len() * OPS.len();
        println!(
            "{zeros} of {possible} cells are zero, {undrawn} of them of what no plan of these has together; {} others \
             cannot be",
            all - possible
        );
    }

    /// Endpoints with their answers, and those that no fault ever met.
    fn print_endpoints(&self) {
        println!("\nendpoints: answers (0: none came), how often, and how often while a fault was felt:");
        let mut by_endpoint: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let mut under_fault: BTreeMap<&str, u64> = BTreeMap::new();
        let mut by_status: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
        for ((endpoint, status), (all, under)) in &self.endpoints {
            by_endpoint.entry(endpoint).or_default().push(format!("{status}: {all} ({under})"));
            *under_fault.entry(endpoint).or_default() += under;
            let sums = by_status.entry(*status).or_default();
            *sums = (sums.0 + all, sums.1 + under);
        }
        for (endpoint, answers) in by_endpoint {
            println!("  {endpoint} {}", answers.join(", "));
        }
        let answers: Vec<String> = by_status.iter().map(|(status, n)| format!("{status}: {} ({})", n.0, n.1)).collect();
        println!("all of them: {}", answers.join(", "));
        let calm: Vec<String> =
            by_status.iter().filter(|(_, n)| n.1 == 0).map(|(status, _)| status.to_string()).collect();
        let calm: Vec<&str> = calm.iter().map(String::as_str).collect();
        println!("answers never given while a fault was felt: {}", listed(&calm));
        let never: Vec<&str> = under_fault.into_iter().filter(|(_, n)| *n == 0).map(|(endpoint, _)| endpoint).collect();
        println!("never asked while a fault was felt: {}", listed(&never));
        match cases::endpoints() {
            Ok(all) => {
                let asked: BTreeSet<&String> = self.endpoints.keys().map(|(endpoint, _)| endpoint).collect();
                let left: Vec<&str> = all.iter().filter(|name| !asked.contains(name)).map(String::as_str).collect();
                println!("asked by `cases` alone, {} endpoints: {}", left.len(), listed(&left));
            }
            Err(told) => println!("the cases cannot be read: {told}"),
        }
    }

    /// Prints how often each name was counted; answers those that never were.
    fn print_counts(&self, kind: &str, names: &[&'static str]) -> Vec<&'static str> {
        names.iter().for_each(|name| println!("  {name}: {}", self.counter(&format!("{kind} {name}"))));
        names.iter().copied().filter(|name| self.counter(&format!("{kind} {name}")) == 0).collect()
    }
}

fn listed(names: &[&str]) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
}

/// The commit that runs, for seeds mean nothing without it.
pub fn commit() -> String {
    let asked = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = asked.ok().and_then(|output| String::from_utf8(output.stdout).ok());
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".into())
}
