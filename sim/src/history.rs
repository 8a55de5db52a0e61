//! What happened in a run, for people: operations, faults and lives of nodes in time; and what was exercised at all.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::plan::LIMPING;

/// Something that took time on a lane of the timeline.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// A client's or a node's name.
    pub lane: String,
    /// Simulated milliseconds from the start of the world.
    pub from_ms: u64,
    /// End.
    pub to_ms: u64,
    /// `op`, `fault`, `life` or `check`.
    pub kind: &'static str,
    /// The operation's or the fault's name.
    pub name: String,
    /// All of it.
    pub text: String,
    /// What was answered.
    pub outcome: String,
}

/// How an operation may meet a fault: the fault began while it was under way, it began while the fault was felt, or it
/// began when the fault was over.
pub const PHASES: [&str; 3] = ["struck by", "begun under", "begun after"];
/// Stands for the fault where there was none yet.
pub const NO_FAULT: &str = "none";

/// What was exercised.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// How often each operation met each fault: one of [`PHASES`], fault, operation.
    pub matrix: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    /// Requests by endpoint and status (0 stands for no answer): all, and those that ended while a fault was felt.
    pub endpoints: BTreeMap<(String, u16), (u64, u64)>,
    /// Counts of all kinds: faults, behaviours of the world, turns and points of the node's code.
    pub counters: BTreeMap<String, u64>,
}

impl Coverage {
    /// The sum of the counters whose names have `part` in them.
    pub fn counted(&self, part: &str) -> u64 {
        self.counters.iter().filter(|(name, _)| name.contains(part)).map(|(_, count)| *count).sum()
    }
}

/// The record of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In order of their ends.
    pub events: Vec<Event>,
    /// See [`Coverage`].
    pub coverage: Coverage,
    /// Names of the faults that are felt now.
    active: Vec<&'static str>,
    /// How often each fault has begun.
    begun: BTreeMap<&'static str, u64>,
}

/// The faults of a run when an operation began.
#[derive(Clone, Debug)]
pub struct Before {
    active: BTreeSet<&'static str>,
    begun: BTreeMap<&'static str, u64>,
}

impl History {
    /// A fault begins.
    pub fn begins(&mut self, fault: &'static str) {
        self.active.push(fault);
        *self.begun.entry(fault).or_default() += 1;
        *self.coverage.counters.entry(format!("fault {fault}")).or_default() += 1;
    }

    /// Whether the fault has begun, and may be over.
    pub fn has_begun(&self, fault: &'static str) -> bool {
        self.begun.contains_key(fault)
    }

    /// Something that a run should meet happened.
    pub fn counts(&mut self, what: &str) {
        *self.coverage.counters.entry(what.to_owned()).or_default() += 1;
    }

    /// A fault is over.
    pub fn ends(&mut self, fault: &'static str) {
        if let Some(at) = self.active.iter().position(|f| *f == fault) {
            self.active.swap_remove(at);
        }
    }

    /// The faults that are felt now.
    pub fn active(&self) -> BTreeSet<&'static str> {
        self.active.iter().copied().collect()
    }

    /// Whether no fault is felt now. A directory that once stood still counts for good: what its disk was asked for
    /// meanwhile may take a minute longer than the fault (seed 1362).
    pub fn is_quiet(&self) -> bool {
        self.active.is_empty() && !self.has_begun(LIMPING)
    }

    /// How many faults there were, and how often a node went down or up: some are over at once, some strike later.
    pub fn disturbances(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.kind, "fault" | "life")).count()
    }

    /// An operation is about to begin.
    pub fn before(&self) -> Before {
        Before { active: self.active(), begun: self.begun.clone() }
    }

    /// An operation ended.
    pub fn operated(&mut self, op: &'static str, before: &Before) {
        let [struck, under, after] = PHASES;
        let met = |(fault, times): (&&'static str, &u64)| {
            let phase = match before.begun.get(fault) {
                Some(known) if known == times && before.active.contains(fault) => under,
                Some(known) if known == times => after,
                _ => struck,
            };
            (phase, *fault, op)
        };
        let none = self.begun.is_empty().then_some((under, NO_FAULT, op));
        for cell in self.begun.iter().map(met).chain(none) {
            *self.coverage.matrix.entry(cell).or_default() += 1;
        }
    }

    /// A request ended.
    pub fn requested(&mut self, method: &str, path: &str, status: u16) {
        let felt = u64::from(!self.active.is_empty());
        let (all, under) = self.coverage.endpoints.entry((endpoint(method, path), status)).or_default();
        (*all, *under) = (*all + 1, *under + felt);
    }
}

/// The endpoint of a request: names of databases, documents and so on are replaced by what they are.
pub fn endpoint(method: &str, path: &str) -> String {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut out = format!("{method} ");
    let (mut own, mut design) = (false, false);
    for (depth, part) in path.split('/').skip(1).enumerate() {
        let name = match (depth, part) {
            (_, "") => "",
            (_, part) if part.starts_with('_') && !own => part,
            (0, _) => "{db}",
            (1, _) => "{doc}",
            (_, part) if design && part.starts_with('_') => part,
            (2, _) if design => "{name}",
            (2, _) if part.starts_with('_') => part,
            (2, _) => "{attachment}",
            _ => "{name}",
        };
        own |= name == "{doc}";
        design |= name == "_design" || name == "_local";
        out.push('/');
        out.push_str(name);
    }
    let shown = ["feed", "new_edits", "open_revs", "w", "r"];
    let given = query.split('&').filter(|pair| shown.iter().any(|name| pair.starts_with(&format!("{name}="))));
    let hidden = |pair| match pair {
        _ if str::contains(pair, '[') => "open_revs={list}",
        _ if pair.starts_with("w=") => "w={n}",
        _ if pair.starts_with("r=") => "r={n}",
        pair => pair,
    };
    let given: Vec<&str> = given.map(hidden).collect();
    if !given.is_empty() {
        out.push('?');
        out.push_str(&given.join("&"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_struck_by_a_fault_or_begins_under_or_after_it() {
        let mut history = History::default();
        let quiet = history.before();
        history.operated("put", &quiet);
        history.begins("F7 reset");
        history.operated("put", &quiet);
        let under = history.before();
        history.operated("put", &under);
        history.ends("F7 reset");
        let after = history.before();
        history.operated("put", &after);
        let cells: Vec<(&str, &str, u64)> = history.coverage.matrix.iter().map(|((p, f, _), n)| (*p, *f, *n)).collect();
        let [struck, under, after] = PHASES;
        let expected = [(after, "F7 reset", 1), (under, "F7 reset", 1), (under, NO_FAULT, 1), (struck, "F7 reset", 1)];
        assert_eq!(cells, expected);
    }

    #[test]
    fn endpoints_hide_names_and_keep_what_matters() {
        let cases = [
            ("/sim/doc-01?rev=1-a", "GET /{db}/{doc}"),
            ("/sim/doc-01?open_revs=all&revs=true", "GET /{db}/{doc}?open_revs=all"),
            ("/sim/doc-01?open_revs=[%221-a%22]", "GET /{db}/{doc}?open_revs={list}"),
            ("/sim/doc-01?conflicts=true&r=2", "GET /{db}/{doc}?r={n}"),
            ("/sim/_changes?feed=longpoll&since=7", "GET /{db}/_changes?feed=longpoll"),
            ("/own/_design/sim/_view/a", "GET /{db}/_design/{name}/_view/{name}"),
            ("/sim/doc-01/f1", "GET /{db}/{doc}/{attachment}"),
            ("/sim/_local/c1", "GET /{db}/_local/{name}"),
            ("/_session", "GET /_session"),
        ];
        for (path, expected) in cases {
            assert_eq!(endpoint("GET", path), expected);
        }
    }
}
