//! What is there after a round, held against what was answered in it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::cluster::Cluster;
use super::reads;
use super::text;
use super::writers::{Account, Written};
use crate::json::Value;

/// A promise after a round.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// It was kept.
    Kept(&'static str),
    /// It was not; examples.
    Broken(&'static str, Vec<String>),
    /// It could not be checked, and why.
    Unknown(&'static str, String),
}

/// A document on one node: its leaves, each with the path to its root, newest first, and what the winner says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct State {
    leaves: BTreeMap<String, Vec<String>>,
    /// Those of them that delete the document.
    deletions: BTreeSet<String>,
    /// Those with an attachment, and what it is to hold.
    attached: BTreeMap<String, String>,
    marks: BTreeSet<String>,
}

/// The documents of one node by id.
pub type States = BTreeMap<String, State>;

const STORED: &str = "a write that was answered 201 is kept on every node";
const ACCEPTED: &str = "a write that was answered 202 is kept, once all nodes are back";
const REFUSED: &str = "a write that was refused left nothing";
const SAME: &str = "all nodes hold the same";
const FEED: &str = "a feed that is resumed from its sequences on any node tells of every document";
const ONE_WINNER: &str = "of two writes built upon one revision at most one is answered 201";

/// Reads all nodes until they hold the same, at most for `limit`; what each holds then.
pub async fn settled(cluster: &Cluster, db: &str, limit: Duration) -> Result<Vec<States>, String> {
    let begun = Instant::now();
    loop {
        let mut states = Vec::new();
        for at in 0..cluster.nodes.len() {
            states.push(read(cluster, at, db).await);
        }
        let read: Result<Vec<States>, String> = states.into_iter().collect();
        let same = read.as_ref().is_ok_and(|all| all.windows(2).all(|pair| pair[0] == pair[1]));
        if same || begun.elapsed() > limit {
            return read;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// All documents as one node gives them, with all leaves and their paths.
async fn read(cluster: &Cluster, at: usize, db: &str) -> Result<States, String> {
    let (status, list) = cluster.ask(at, "GET", &format!("/{db}/_changes?style=all_docs"), None).await;
    if status != 200 {
        return Err(format!("node {}: GET _changes: {status}", cluster.nodes[at].name));
    }
    let ids: BTreeSet<String> =
        list.get("results").and_then(Value::as_array).unwrap_or_default().iter().map(|row| text(row, "/id")).collect();
    let mut states = States::new();
    for id in ids {
        let (status, leaves) = cluster.ask(at, "GET", &format!("/{db}/{id}?open_revs=all&revs=true&r=1"), None).await;
        if status != 200 {
            return Err(format!("node {}: GET {id}: {status}", cluster.nodes[at].name));
        }
        let mut state = State::default();
        for leaf in leaves.as_array().unwrap_or_default().iter().filter_map(|leaf| leaf.get("ok")) {
            state.leaves.insert(text(leaf, "/_rev"), path(leaf));
            if leaf.get("_deleted").is_some() {
                state.deletions.insert(text(leaf, "/_rev"));
            }
            if leaf.pointer("/_attachments/a").is_some() {
                state.attached.insert(text(leaf, "/_rev"), text(leaf, "/mark"));
            }
            state.marks.insert(text(leaf, "/mark"));
        }
        states.insert(id, state);
    }
    Ok(states)
}

/// The revisions from a leaf to its root.
fn path(leaf: &Value) -> Vec<String> {
    let start = leaf.pointer("/_revisions/start").and_then(Value::as_f64).unwrap_or_default() as usize;
    let ids = leaf.pointer("/_revisions/ids").and_then(Value::as_array).unwrap_or_default();
    ids.iter()
        .enumerate()
        .map(|(n, id)| format!("{}-{}", start.saturating_sub(n), id.as_str().unwrap_or_default()))
        .collect()
}

/// All findings of a round.
pub async fn check(
    cluster: &Cluster,
    db: &str,
    accounts: &[Account],
    states: Result<Vec<States>, String>,
    seen: &BTreeSet<String>,
) -> Vec<Finding> {
    let states = match states {
        Ok(states) => states,
        Err(why) => {
            return [STORED, ACCEPTED, REFUSED, SAME, ONE_WINNER, FEED]
                .map(|p| Finding::Unknown(p, why.clone()))
                .to_vec();
        }
    };
    let names: Vec<&str> = cluster.nodes.iter().map(|node| node.name.as_str()).collect();
    let writes: Vec<&Written> = accounts.iter().flat_map(|account| &account.writes).collect();
    let mut findings = findings(&names, &writes, &states);
    let there: BTreeSet<&String> = states.iter().flat_map(BTreeMap::keys).collect();
    let missed: Vec<String> =
        there.into_iter().filter(|id| !seen.contains(*id)).map(|id| format!("{db}/{id}")).collect();
    findings.push(told(FEED, missed));
    findings.extend(reads::check(cluster, db, &states[0]).await);
    findings
}

impl State {
    /// The revision that a GET shows, none where all leaves are deletions: the higher generation, then the higher hash.
    pub(super) fn winner(&self) -> Option<&str> {
        let order = |rev: &&String| {
            let (generation, hash) = rev.split_once('-').unwrap_or_default();
            (generation.parse::<u64>().unwrap_or_default(), hash.to_owned())
        };
        self.leaves.keys().filter(|rev| !self.deletions.contains(*rev)).max_by_key(order).map(String::as_str)
    }

    /// Leaves with an attachment, and what it is to hold.
    pub(super) fn attached(&self) -> &BTreeMap<String, String> {
        &self.attached
    }
}

/// The findings about writes and nodes.
fn findings(names: &[&str], writes: &[&Written], states: &[States]) -> Vec<Finding> {
    let holds = |state: &States, id: &str, rev: &str| {
        state.get(id).is_some_and(|s| s.leaves.values().any(|path| path.iter().any(|r| r == rev)))
    };
    let lost = |statuses: &[u16]| {
        let mut lost = Vec::new();
        for write in writes.iter().filter(|w| statuses.contains(&w.status) && !w.rev.is_empty()) {
            for (name, state) in names.iter().zip(states).filter(|(_, state)| !holds(state, &write.id, &write.rev)) {
                let has = state.get(&write.id).map(|s| s.leaves.keys().cloned().collect::<Vec<_>>().join(", "));
                let has = has.unwrap_or_else(|| "nothing".to_owned());
                lost.push(format!("{} {} ({}): node {name} holds {has}", write.id, write.rev, write.status));
            }
        }
        lost
    };
    let mut appeared = Vec::new();
    for write in writes.iter().filter(|w| (400..500).contains(&w.status)) {
        let marked = |state: &States| state.get(&write.id).is_some_and(|s| s.marks.contains(&write.mark));
        if let Some((name, _)) = names.iter().zip(states).find(|(_, state)| marked(state)) {
            appeared
                .push(format!("{} of {} was answered {} and is on node {name}", write.mark, write.id, write.status));
        }
    }
    let mut others = Vec::new();
    for (name, state) in names.iter().zip(states).skip(1) {
        let ids: BTreeSet<&String> = states[0].keys().chain(state.keys()).collect();
        let differ = ids.into_iter().filter(|id| states[0].get(*id) != state.get(*id));
        others.extend(differ.map(|id| format!("{id} is another on node {name} than on node {}", names[0])));
    }
    let mut built: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    // A document that is made anew after its deletion says no parent either.
    let is_told = |write: &Written| !write.parent.is_empty() || write.rev.starts_with("1-");
    for write in writes.iter().filter(|w| matches!(w.status, 200 | 201) && is_told(w)) {
        built.entry((&write.id, &write.parent)).or_default().push(&write.rev);
    }
    let twice = built.into_iter().filter(|(_, revs)| revs.len() > 1);
    let twice =
        twice.map(|((id, parent), revs)| format!("{id}: {} were built upon {parent:?}", revs.join(", "))).collect();
    vec![
        told(STORED, lost(&[200, 201])),
        told(ACCEPTED, lost(&[202])),
        told(REFUSED, appeared),
        told(SAME, others),
        told(ONE_WINNER, twice),
    ]
}

pub(super) fn told(promise: &'static str, examples: Vec<String>) -> Finding {
    if examples.is_empty() { Finding::Kept(promise) } else { Finding::Broken(promise, examples) }
}

#[cfg(test)]
mod tests {
    use super::{Finding, State, States, findings};
    use crate::faults::writers::Written;

    fn write(mark: &str, parent: &str, rev: &str, status: u16) -> Written {
        let [mark, parent, rev] = [mark, parent, rev].map(str::to_owned);
        Written { id: "a".to_owned(), mark, parent, rev, status }
    }

    fn state(leaf: &str, path: &[&str], mark: &str) -> States {
        let leaves = [(leaf.to_owned(), path.iter().map(|r| (*r).to_owned()).collect())].into();
        let marks = [mark.to_owned()].into();
        [("a".to_owned(), State { leaves, marks, ..State::default() })].into()
    }

    fn broken(writes: &[Written], states: &[States]) -> Vec<usize> {
        let writes: Vec<&Written> = writes.iter().collect();
        let found = findings(&["x", "y"], &writes, states);
        found.iter().enumerate().filter(|(_, f)| matches!(f, Finding::Broken(..))).map(|(n, _)| n).collect()
    }

    #[test]
    fn the_winner_is_live_of_the_highest_generation_and_then_hash() {
        let leaves = ["2-b", "10-a", "10-c", "11-d"].map(|rev| (rev.to_owned(), Vec::new())).into();
        let mut state = State { leaves, deletions: ["11-d".to_owned()].into(), ..State::default() };
        assert_eq!(state.winner(), Some("10-c"));
        state.deletions = state.leaves.keys().cloned().collect();
        assert_eq!(state.winner(), None);
    }

    #[test]
    fn each_promise_is_found_broken_where_it_is() {
        let grown = [write("1", "", "1-a", 201), write("2", "1-a", "2-b", 201)];
        let both = state("2-b", &["2-b", "1-a"], "2");
        assert_eq!(broken(&grown, &[both.clone(), both.clone()]), [0; 0]);
        let old = state("1-a", &["1-a"], "1");
        assert_eq!(broken(&grown, &[both.clone(), old.clone()]), [0, 3], "lost on one node");
        assert_eq!(broken(&[write("2", "1-a", "2-b", 202)], &[old.clone(), old.clone()]), [1]);
        assert_eq!(broken(&[write("1", "", "", 409)], &[old.clone(), old.clone()]), [2], "a refused write is there");
        assert_eq!(broken(&[write("1", "", "", 0)], &[old.clone(), old]), [0; 0], "an unknown one may be");
        let twice = [write("1", "", "1-a", 201), write("2", "", "1-c", 201)];
        assert!(broken(&twice, &[both.clone(), both]).contains(&4));
    }
}
