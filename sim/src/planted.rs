//! Tries the bugs of the board: seeds until an invariant names each, and what else may be known of it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::apart::summary_of;
use crate::bugs::Entry;
use crate::shrink::shrink;

/// Seeds that caught bugs before, by bug and kind of plan.
pub type Known = BTreeMap<String, u64>;

/// How bugs are tried.
#[derive(Clone, Debug, Default)]
pub struct Trial {
    /// Seeds to try first. A change of the plans can make them worthless, so the others follow.
    pub known: Known,
    /// Seeds for each bug.
    pub seeds: u64,
    /// Bugs that are tried side by side.
    pub jobs: usize,
    /// Runs all seeds, to tell all invariants that name a bug.
    pub through: bool,
    /// Shrinks the plan that caught it.
    pub shrinks: bool,
}

/// A seed that caught a bug.
#[derive(Clone, Debug)]
struct Caught {
    seed: u64,
    invariant: String,
    text: String,
    seconds: f64,
}

/// What came of a bug.
struct Found {
    first: Option<Caught>,
    /// How often each invariant named it.
    named: BTreeMap<String, u64>,
    seconds: f64,
    /// Seconds to shrink, and the parts before and after.
    shrunk: Option<(f64, usize, usize)>,
}

/// The key of an entry in [`Known`].
fn key(entry: &Entry) -> String {
    format!("{} {}", entry.name(), entry.shown_by.kind())
}

/// Tries bugs and prints the table. Returns whether each was caught, and only by invariants that may name it, and the
/// seeds that caught them.
pub fn try_all(entries: &[&'static Entry], trial: &Trial) -> (bool, Known) {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..trial.jobs.max(1) {
            scope.spawn(|| {
                // By its place: a bug may be on the board for several sorts of plans.
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(entry) = entries.get(at) else { break };
                    let result = try_one(entry, trial);
                    tell(entry, &result);
                    found.lock().expect("unpoisoned").insert(at, result);
                }
            });
        }
    });
    let found = found.into_inner().expect("unpoisoned");
    println!("| bug | what it does | caught by | seeds it took | seconds | shrunk |\n|---|---|---|---|---|---|");
    let rows = entries.iter().enumerate().filter_map(|(at, entry)| Some((*entry, found.get(&at)?)));
    let passed = rows.filter(|(entry, result)| print_row(entry, result)).count();
    let mut times: Vec<f64> = found.values().filter_map(|f| f.shrunk.map(|(seconds, ..)| seconds)).collect();
    times.sort_by(f64::total_cmp);
    if let Some(median) = times.get(times.len() / 2) {
        println!("from a red seed to a shrunk plan: {median:.0} s (median), {:.0} s at most", times[times.len() - 1]);
    }
    println!("{passed} passed, {} failed", entries.len() - passed);
    let seeds =
        entries.iter().enumerate().filter_map(|(at, entry)| Some((key(entry), found.get(&at)?.first.as_ref()?.seed)));
    (passed == entries.len(), seeds.collect())
}

fn try_one(entry: &Entry, trial: &Trial) -> Found {
    let (started, name) = (Instant::now(), entry.name());
    let mut found = Found { first: None, named: BTreeMap::new(), seconds: 0.0, shrunk: None };
    let known = trial.known.get(&key(entry)).copied();
    for seed in known.into_iter().chain((1..=trial.seeds).filter(|seed| Some(*seed) != known)) {
        let Some((invariant, text)) = summary_of(&entry.shown_by.plan(seed), Some(&name)).failure else { continue };
        *found.named.entry(invariant.clone()).or_default() += 1;
        let seconds = started.elapsed().as_secs_f64();
        found.first.get_or_insert(Caught { seed, invariant, text, seconds });
        if !trial.through {
            break;
        }
    }
    found.seconds = found.first.as_ref().map_or(started.elapsed().as_secs_f64(), |first| first.seconds);
    if let Some(first) = found.first.as_ref().filter(|_| trial.shrinks) {
        let (started, plan) = (Instant::now(), entry.shown_by.plan(first.seed));
        found.shrunk =
            shrink(&plan, Some(&name)).map(|smaller| (started.elapsed().as_secs_f64(), plan.size(), smaller.size()));
    }
    found
}

impl Found {
    /// Invariants that named the bug and may not.
    fn strangers(&self, entry: &Entry) -> Vec<&str> {
        self.named.keys().map(String::as_str).filter(|name| !entry.caught_by.contains(name)).collect()
    }
}

/// Says at once what came of a bug, on standard error.
fn tell(entry: &Entry, result: &Found) {
    let name = entry.name();
    match &result.first {
        Some(Caught { seed, invariant, text, .. }) => {
            eprintln!("{name} at seed {}: {invariant}: {text}", entry.shown_by.plan(*seed).name());
        }
        None => eprintln!("{name}: not caught"),
    }
    if result.named.values().sum::<u64>() > 1 {
        eprintln!("  all: {:?}", result.named);
    }
    if let Some((seconds, before, after)) = result.shrunk {
        eprintln!("  {after} parts instead of {before} in {seconds:.0} s");
    }
}

/// A row of the table; whether the bug was caught as it must be.
fn print_row(entry: &Entry, result: &Found) -> bool {
    let (name, what, seconds) = (entry.name(), entry.what, result.seconds);
    let Some(first) = &result.first else {
        println!("| `{name}` | {what} | NOT caught | - | {seconds:.0} | - |");
        return false;
    };
    let strangers = result.strangers(entry);
    let note = if strangers.is_empty() { String::new() } else { format!(" UNEXPECTED {}", strangers.join(", ")) };
    let shrunk = result
        .shrunk
        .map_or("-".to_owned(), |(took, before, after)| format!("{before} to {after} parts in {took:.0} s"));
    let seed = entry.shown_by.told(first.seed);
    println!("| `{name}` | {what} | {}{note} | {seed} | {seconds:.0} | {shrunk} |", first.invariant);
    strangers.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bugs::BOARD;

    #[test]
    fn an_invariant_that_was_not_expected_makes_a_bug_fail() {
        let entry = BOARD.iter().find(|entry| entry.caught_by == ["I18"]).expect("one of the queries");
        let found = |invariant: &str| {
            let first = Caught { seed: 1, invariant: invariant.into(), text: String::new(), seconds: 0.0 };
            Found { first: Some(first), named: BTreeMap::from([(invariant.into(), 1)]), seconds: 0.0, shrunk: None }
        };
        assert!(print_row(entry, &found("I18")));
        assert!(!print_row(entry, &found("I1")));
        assert!(!print_row(entry, &Found { first: None, named: BTreeMap::new(), ..found("I18") }));
    }
}
