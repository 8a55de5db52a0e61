//! `settee-sim`: runs seeds, replays and shrinks a failing one, draws its timeline, proves on planted bugs that the
//! checks bite, and tells what was exercised.
//!
//! Exit status 0 only when every invariant held (for `planted`: when every planted bug was caught).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use clap::{Parser, Subcommand};
use settee_sim::apart::{self, Leave, Summary, summary_of};
use settee_sim::bisect::bisect;
use settee_sim::bugs::{BOARD, Entry, Plant, ShownBy};
use settee_sim::outer::{self, Outcome, Target};
use settee_sim::plan::{Plan, SCENES, Scene};
use settee_sim::planted::{Known, Trial, try_all};
use settee_sim::run::run_plan_logged;
use settee_sim::shrink::shrink;
use settee_sim::totals::{Totals, commit};
use settee_sim::{cases, pace, timeline, twice, weeks};

#[derive(Parser)]
#[command(name = "settee-sim", about = "Runs settee nodes in a seeded world of faults")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs many seeds; one in twenty a second time in a process of its own, whose events must be the same. The first
    /// failures are shrunk; all are saved as plans with a timeline.
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
        /// Leaves failures unshrunk.
        #[arg(long)]
        no_shrink: bool,
        /// Plans of one cluster of three to seven nodes.
        #[arg(long)]
        cluster: bool,
        /// Plans of the scene of that name.
        #[arg(long, conflicts_with = "cluster", value_parser = scene_named)]
        scene: Option<Scene>,
    },
    /// Runs one seed, or a saved plan, and prints what happened.
    Replay {
        /// A number (`c` before it: of a cluster; `twins-3`: of a scene), a path to a plan, or `-` for a plan on
        /// standard input.
        what: String,
        /// Plants this bug of the board.
        #[arg(long)]
        bug: Option<String>,
        /// Writes every event there.
        #[arg(long)]
        trace: Option<PathBuf>,
        /// Writes the timeline there.
        #[arg(long)]
        timeline: Option<PathBuf>,
        /// Prints what the nodes log, each line with its simulated milliseconds: `debug`, or levels by module such as
        /// `info,settee::coordinator::rebalance=debug`.
        #[arg(long)]
        log: Option<String>,
        /// Prints one line of JSON: what another process wants to know.
        #[arg(long)]
        summary: bool,
    },
    /// Finds a smaller plan that fails in the same way and saves it.
    Shrink {
        /// The failing seed, or a path to a plan.
        what: String,
        /// Plants this bug of the board.
        #[arg(long)]
        bug: Option<String>,
    },
    /// The outer ring: carries plans out against a real process, or a server of anybody's.
    Outer {
        /// Seeds, or paths to plans.
        #[arg(required = true)]
        what: Vec<String>,
        /// The program to start and to kill.
        #[arg(long, conflicts_with_all = ["url", "command"], required_unless_present_any = ["url", "command"])]
        binary: Option<PathBuf>,
        /// Another server's program, to start and to kill, `{port}` and `{data}` in its words; documents only.
        #[arg(long, conflicts_with = "url")]
        command: Option<String>,
        /// A server that runs already: ADDRESS:PORT; documents only.
        #[arg(long)]
        url: Option<SocketAddr>,
        /// Its administrator.
        #[arg(long, default_value = "adm")]
        user: String,
        /// The administrator's password.
        #[arg(long, default_value = "pass")]
        password: String,
        /// Of the process; the next one is the proxy's.
        #[arg(long, default_value_t = 5961)]
        port: u16,
    },
    /// Finds the moment after which a plan fails whatever is drawn: where the bug lies in time. Draws it.
    Bisect {
        /// The failing seed, or a path to a plan.
        what: String,
        /// Plants this bug of the board.
        #[arg(long)]
        bug: Option<String>,
    },
    /// Runs each planted bug until it is caught; prints the table of docs/simulation-planted.md.
    Planted {
        /// Seeds to try for each bug.
        #[arg(long, default_value_t = 200)]
        seeds: u64,
        /// Only this bug.
        #[arg(long)]
        bug: Option<String>,
        /// Bugs that are tried side by side.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Runs all seeds of each, to tell every invariant that names it.
        #[arg(long)]
        through: bool,
        /// Shrinks each plan that caught a bug, and tells the time that it took.
        #[arg(long)]
        shrink: bool,
        /// A file with the seeds that caught the bugs before: they are tried first.
        #[arg(long)]
        known: Option<PathBuf>,
        /// Writes the seeds that caught the bugs to this file.
        #[arg(long)]
        note: Option<PathBuf>,
    },
    /// Plays the conformance cases against simulated servers, with faults that no client may notice.
    Cases {
        /// How many seeds: some ten in a row play all cases.
        #[arg(long, default_value_t = 11)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Runs at a time.
        #[arg(long, default_value_t = 2)]
        jobs: u64,
        /// Against a cluster of three nodes.
        #[arg(long)]
        cluster: bool,
        /// Only cases whose chapter/name has this text, all of them with each seed.
        #[arg(long)]
        filter: Option<String>,
    },
    /// Runs simulated days of one node, load and silence, and looks each night whether anything grows.
    Weeks {
        /// How many days, at least four: the first nights are what the others are held against.
        #[arg(long, default_value_t = 14)]
        days: u64,
        /// The seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Measures how many seconds of a cluster under light traffic pass in one second of a core.
    Pace {
        /// Nodes of the cluster.
        #[arg(long, default_value_t = 5)]
        nodes: u32,
    },
    /// Runs seeds and prints what was exercised, and what was not: faults by operations, endpoints and answers, rare
    /// turns and points of the node's code.
    Report {
        /// How many seeds.
        #[arg(long, default_value_t = 50)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
    },
}

fn main() -> ExitCode {
    let ok = match Arguments::parse().command {
        Command::Run { seeds, from, jobs, no_shrink, cluster, scene } => {
            let shown_by = match scene {
                Some(scene) => ShownBy::Scene(scene),
                None if cluster => ShownBy::Clusters,
                None => ShownBy::Servers,
            };
            run((from, seeds, jobs), !no_shrink, shown_by)
        }
        Command::Replay { what, bug, trace, timeline, log, summary } => {
            log.iter().for_each(|levels| settee_sim::log::print(levels));
            replay(&what, bug.as_deref(), trace, timeline, summary)
        }
        Command::Shrink { what, bug } => shrink_to_file(&what, bug.as_deref()),
        Command::Outer { what, binary, command, url, user, password, port } => {
            let target = match (binary, command, url) {
                (Some(program), ..) => Some(Target::Binary(program)),
                (_, Some(line), _) => Some(Target::Command { line, user, password }),
                (.., Some(at)) => Some(Target::Server { at, user, password }),
                (None, None, None) => None,
            };
            target.is_some_and(|target| outside(&what, &target, port))
        }
        Command::Bisect { what, bug } => plan_of(&what).is_some_and(|plan| decide(&plan, bug_named(bug.as_deref()))),
        Command::Planted { seeds, bug, jobs, through, shrink, known, note } => {
            let trial = Trial { known: Known::new(), seeds, jobs, through, shrinks: shrink };
            planted(bug.as_deref(), trial, known.as_deref(), note.as_deref())
        }
        Command::Report { seeds, from } => report(from, seeds),
        Command::Cases { seeds, from, jobs, cluster, filter } => play_cases((from, seeds, jobs), cluster, filter),
        Command::Weeks { days, seed } => weeks(seed, days),
        Command::Pace { nodes } => tell_pace(nodes),
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The scene of that name.
fn scene_named(name: &str) -> Result<Scene, String> {
    let names = || SCENES.map(|(name, _)| name).join(", ");
    Scene::named(name).ok_or_else(|| format!("there are {}", names()))
}

/// Where failing plans and timelines are kept.
fn save(name: &str, text: &str) -> String {
    let dir = PathBuf::from("target/sim");
    // A missing directory shows when the file is written.
    let _ = std::fs::create_dir_all(&dir);
    let path = dir.join(name);
    match std::fs::write(&path, text) {
        Ok(()) => path.display().to_string(),
        Err(error) => format!("(not saved: {error})"),
    }
}

/// Runs `seeds` seeds, `jobs` at a time, and gives every summary to `each`.
fn sweep(
    (from, seeds, jobs): (u64, u64, u64),
    plan_of: impl Fn(u64) -> Plan + Sync,
    each: impl Fn(Plan, Summary) + Sync,
) {
    apart::each_seed((from, seeds, jobs), |seed| {
        let plan = plan_of(seed);
        let summary = summary_of(&plan, None);
        each(plan, summary);
    });
}

/// Every so manieth seed is run a second time.
const TWICE_ONE_IN: u64 = 20;
/// Failures that are shrunk in one go.
const SHRUNK_MAX: usize = 3;

fn run((from, seeds, jobs): (u64, u64, u64), shrinks: bool, shown_by: ShownBy) -> bool {
    let started = Instant::now();
    let failures = Mutex::new(Vec::new());
    let totals = Mutex::new(Totals::default());
    let plan_of = |seed| shown_by.plan(seed);
    sweep((from, seeds, jobs), plan_of, |plan, summary| {
        totals.lock().expect("unpoisoned").add(&summary);
        let (seed, name) = (plan.seed, plan.name());
        if let Some((invariant, what)) = &summary.failure {
            println!("seed {name} FAILED at commit {}: {invariant}: {what}", commit());
            let nth = {
                let mut failures = failures.lock().expect("unpoisoned");
                failures.push(seed);
                failures.len()
            };
            keep(&plan);
            if shrinks && nth <= SHRUNK_MAX {
                shrink_plan(&plan, None);
            }
        } else if seed.is_multiple_of(TWICE_ONE_IN) {
            match twice::same_again(&plan, &summary) {
                Ok(()) => totals.lock().expect("unpoisoned").twice += 1,
                Err(text) => {
                    println!("seed {name} DIFFERS the second time: {text}");
                    failures.lock().expect("unpoisoned").push(seed);
                }
            }
        }
    });
    let mut failures = failures.into_inner().expect("unpoisoned");
    failures.sort_unstable();
    let totals = totals.into_inner().expect("unpoisoned");
    totals.print(started.elapsed().as_secs_f64());
    println!("{} passed, {} failed", seeds - failures.len() as u64, failures.len());
    failures.is_empty()
}

/// Saves a failing plan and its timeline.
fn keep(plan: &Plan) {
    let saved = save(&format!("seed-{}.json", plan.name()), &plan.to_json());
    let page = PathBuf::from("target/sim").join(format!("seed-{}.html", plan.name()));
    let leave = Leave { timeline: Some(&page), ..Leave::default() };
    let drawn =
        std::env::current_exe().map_err(|e| e.to_string()).and_then(|own| apart::run_with(&own, plan, None, leave));
    println!("  replay: settee-sim replay {}   plan: {saved}", plan.name());
    match drawn {
        Ok(_) => println!("  timeline: {}", page.display()),
        Err(error) => println!("  no timeline: {error}"),
    }
}

/// A plan from a seed's number or a file.
fn plan_of(what: &str) -> Option<Plan> {
    if let Some(plan) = Plan::named(what) {
        return Some(plan);
    }
    let text = match what {
        "-" => std::io::read_to_string(std::io::stdin()),
        path => std::fs::read_to_string(path),
    };
    let text = text.map_err(|e| eprintln!("{what}: {e}")).ok()?;
    serde_json::from_str(&text).map_err(|e| eprintln!("{what}: not a plan: {e}")).ok()
}

/// The bug of that name; an unknown name ends the program.
fn bug_of(name: Option<&str>) -> Option<Plant> {
    name.map(|name| match Entry::named(name) {
        Some(entry) => entry.plant,
        None => {
            let names: Vec<String> = BOARD.iter().map(Entry::name).collect();
            eprintln!("no bug is called {name}; there are {}", names.join(", "));
            std::process::exit(2);
        }
    })
}

/// The name, if it is one of the board's.
fn bug_named(name: Option<&str>) -> Option<&str> {
    bug_of(name).and(name)
}

fn replay(what: &str, bug: Option<&str>, trace: Option<PathBuf>, page: Option<PathBuf>, brief: bool) -> bool {
    let Some(plan) = plan_of(what) else { return false };
    let report = run_plan_logged(plan, bug_of(bug), trace);
    if let Some(page) = page
        && let Err(error) = std::fs::write(&page, timeline::page(&report, None))
    {
        eprintln!("{}: {error}", page.display());
    }
    if brief {
        println!("{}", serde_json::to_string(&Summary::from(&report)).expect("plain data"));
        return report.failure.is_none();
    }
    println!("{}", report.plan.to_json());
    for event in &report.history.events {
        let outcome = event.outcome.trim_end().replace('\n', " | ");
        println!("{:>8} {:>8} {:<7} {} -> {outcome}", event.from_ms, event.to_ms, event.lane, event.text);
    }
    println!("trace hash {:016x}", report.trace_hash);
    println!("answers {:?}, counters {:?}", report.answers, report.history.coverage.counters);
    match &report.failure {
        Some(failure) => println!("FAILED: {failure}"),
        None => println!("every invariant held"),
    }
    report.failure.is_none()
}

fn shrink_to_file(what: &str, bug: Option<&str>) -> bool {
    let Some(plan) = plan_of(what) else { return false };
    if shrink_plan(&plan, bug_named(bug)) {
        return false;
    }
    println!("{what} does not fail");
    true
}

/// Saves a smaller plan; false when it does not fail.
fn shrink_plan(plan: &Plan, bug: Option<&str>) -> bool {
    let started = Instant::now();
    let Some(smaller) = shrink(plan, bug) else { return false };
    let saved = save(&format!("shrunk-{}.json", plan.name()), &smaller.to_json());
    let seconds = started.elapsed().as_secs_f64();
    println!("  {} parts instead of {} in {seconds:.0} s: settee-sim replay {saved}", smaller.size(), plan.size());
    decide(&smaller, bug);
    true
}

/// Tells when a plan's failure was decided, and draws it; false when it does not fail.
fn decide(plan: &Plan, bug: Option<&str>) -> bool {
    let Some(decided) = bisect(plan, bug) else { return false };
    println!("  {decided}");
    let report = run_plan_logged(plan.clone(), bug_of(bug), None);
    for event in report.history.events.iter().filter(|event| decided.meets(event.from_ms, event.to_ms)) {
        println!("    {:>8} {:>8} {:<7} {}", event.from_ms, event.to_ms, event.lane, event.text);
    }
    let name = format!("decided-{}.html", plan.name());
    println!("  timeline: {}", save(&name, &timeline::page(&report, Some(decided))));
    true
}

fn planted(only: Option<&str>, mut trial: Trial, known: Option<&Path>, note: Option<&Path>) -> bool {
    let plant = bug_of(only);
    let entries: Vec<&Entry> = match plant {
        Some(plant) => BOARD.iter().filter(|entry| entry.plant == plant).collect(),
        None => BOARD.iter().collect(),
    };
    if let Some(path) = known {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        match text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string())) {
            Ok(seeds) => trial.known = seeds,
            Err(error) => {
                eprintln!("{}: {error}", path.display());
                return false;
            }
        }
    }
    let (passed, seeds) = try_all(&entries, &trial);
    if let Some(path) = note
        && let Err(error) = std::fs::write(path, serde_json::to_string_pretty(&seeds).expect("plain data") + "\n")
    {
        eprintln!("{}: {error}", path.display());
        return false;
    }
    passed
}

/// Carries plans out in the outer ring; whether every invariant held.
fn outside(what: &[String], target: &Target, port: u16) -> bool {
    let mut failed = 0;
    for name in what {
        let Some(plan) = plan_of(name) else { return false };
        match outer::run(&plan, target, (port, port + 1)) {
            Ok(Outcome { failure, edits, faults }) => {
                let outcome = failure.as_ref().map_or("every invariant held".to_owned(), ToString::to_string);
                println!("{name}: {outcome}; edits {edits:?}, faults {} of {}", faults.0, faults.0 + faults.1);
                failed += usize::from(failure.is_some());
            }
            Err(error) => {
                println!("{name}: not carried out: {error}");
                failed += 1;
            }
        }
    }
    println!("{} passed, {failed} failed", what.len() - failed);
    failed == 0
}

/// Plays cases with each seed; whether all were answered as in peace. Several seeds have a process each.
fn play_cases((from, seeds, jobs): (u64, u64, u64), cluster: bool, filter: Option<String>) -> bool {
    if seeds == 1 {
        let outcome = cases::run(from, cluster, filter.as_deref());
        match &outcome {
            Ok(outcome) => println!("seed {from}: {outcome}"),
            Err(error) => println!("seed {from} FAILED: {error}"),
        }
        return outcome.is_ok_and(|outcome| outcome.is_good());
    }
    let failed = AtomicU64::new(0);
    apart::each_seed((from, seeds, jobs), |seed| {
        let seed = seed.to_string();
        let options = ["cases", "--seeds", "1", "--from", &seed].into_iter().chain(cluster.then_some("--cluster"));
        let given = filter.iter().flat_map(|text| ["--filter", text.as_str()]);
        let passed = apart::say(&options.chain(given).collect::<Vec<_>>());
        failed.fetch_add(u64::from(!passed), Ordering::Relaxed);
    });
    let failed = failed.into_inner();
    println!("{} passed, {failed} failed", seeds - failed);
    failed == 0
}

/// Simulated days; whether nothing grew.
fn weeks(seed: u64, days: u64) -> bool {
    let started = Instant::now();
    match weeks::run(seed, days) {
        Ok(nights) => {
            nights.iter().enumerate().for_each(|(day, held)| println!("night {day}: {held:?}"));
            println!("{days} days in {:.1} s: nothing grows", started.elapsed().as_secs_f64());
            true
        }
        Err(text) => {
            println!("FAILED: I29: {text}");
            false
        }
    }
}

fn tell_pace(nodes: u32) -> bool {
    match pace::measure(nodes) {
        Ok(measured) => {
            let (simulated, took) = (measured.simulated.as_secs(), measured.took.as_secs_f64());
            let speed = measured.speed();
            println!("{nodes} nodes, light traffic: {simulated} s in {took:.1} s of a core, {speed:.0} a second");
            true
        }
        Err(text) => {
            println!("FAILED: {text}");
            false
        }
    }
}

fn report(from: u64, seeds: u64) -> bool {
    let totals = Mutex::new(Totals::default());
    let failed = AtomicU64::new(0);
    let started = Instant::now();
    // Some faults and operations are those of a cluster, or of a scene.
    let plan_of = |seed: u64| match seed % 10 {
        0 | 5 => Plan::cluster_from_seed(seed),
        3 | 8 => Plan::of_scene(SCENES[(seed / 5) as usize % SCENES.len()].1, seed),
        _ => Plan::from_seed(seed),
    };
    (from..from + seeds).for_each(|seed| totals.lock().expect("unpoisoned").has(&plan_of(seed)));
    sweep((from, seeds, 2), plan_of, |_, summary| {
        failed.fetch_add(u64::from(summary.failure.is_some()), Ordering::Relaxed);
        totals.lock().expect("unpoisoned").add(&summary);
    });
    let totals = totals.into_inner().expect("unpoisoned");
    totals.print(started.elapsed().as_secs_f64());
    totals.print_coverage();
    failed.into_inner() == 0
}
