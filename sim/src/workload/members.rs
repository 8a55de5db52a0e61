//! Who belongs to a cluster, while administrators take nodes in, empty others and send them away: of the voters
//! about maps everybody tells the same of each version; in the end all nodes agree on who they are, on who votes, and
//! with what was answered to those who asked for changes.
//!
//! Assumes that each node is taken in and sent away by one administrator, one change after the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::places::map_of;
use super::{Worker, broken};
use crate::client::{Answer, Client, NoAnswer};
use crate::model::Violation;
use crate::place::{cluster_address, node_name};
use crate::plan::WorldPlan;

/// How often a change is asked for, or looked for, [`PAUSE`] apart, before who asks gives up.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_secs(1);
/// A node is told to hand its replicas over again after so many looks: who was to see to it may have been restarted.
const AGAIN: u32 = 5;
/// How long it may take until all nodes agree, once all faults have ended and replicas have met.
const AGREEMENT: Duration = Duration::from_secs(60);

/// How a node says that too few of the voters are in reach, so that it changed nothing.
const NO_MAJORITY: &str = "no majority";

/// What is known of who belongs to the cluster.
#[derive(Default)]
pub(crate) struct Members {
    /// Whether a node does, as who changed that was told last; `None`: there was no answer.
    told: BTreeMap<u32, Option<bool>>,
    /// The voters about maps, by the version of their set, as they were told first.
    voters: BTreeMap<u64, BTreeSet<String>>,
}

impl Members {
    /// Of a cluster as it begins.
    pub(super) fn of(world: &WorldPlan) -> Members {
        let told = (0..world.nodes).map(|node| (node, Some(node < world.members()))).collect();
        Members { told, voters: BTreeMap::new() }
    }

    /// What is wrong with a set of members as what was answered goes.
    fn flaw(&self, members: &BTreeSet<String>) -> Option<String> {
        let differs = |(node, told): (&u32, &Option<bool>)| {
            let name = node_name(*node);
            told.filter(|told| members.contains(&name) != *told).map(|told| (name, told))
        };
        let (name, told) = self.told.iter().find_map(differs)?;
        Some(format!("{name} was {}", if told { "taken in" } else { "sent away" }))
    }

    /// Takes in who votes as a node tells it; an error is a set that contradicts what was told before.
    fn hear(&mut self, version: u64, names: &BTreeSet<String>) -> Result<(), String> {
        // Nothing was agreed on yet: each node counts those it knows.
        if version == 0 {
            return Ok(());
        }
        let known = self.voters.entry(version).or_insert_with(|| names.clone());
        match known == names {
            true => Ok(()),
            false => Err(format!("voters of version {version} are {names:?}, and were {known:?}")),
        }
    }
}

/// The cluster as one node tells of it.
struct Seen {
    members: BTreeSet<String>,
    connected: BTreeSet<String>,
    version: u64,
    voters: BTreeSet<String>,
}

fn names(list: &Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

fn document(node: u32) -> String {
    format!("/_node/_local/_nodes/{}", node_name(node))
}

impl Worker {
    async fn rest(&self) {
        self.client.env().sleep(PAUSE).await;
    }

    /// A change of a node was answered, or was not.
    fn note(&self, node: u32, told: Option<bool>) {
        self.locked(|s| {
            s.together.members.told.insert(node, told);
            let counters = &mut s.history.coverage.counters;
            match told {
                Some(true) => *counters.entry("a node was taken in".to_owned()).or_default() += 1,
                Some(false) => *counters.entry("a node was sent away".to_owned()).or_default() += 1,
                None => {}
            }
        });
    }

    /// A change of a node was not made, for all that is known; what was refused was not.
    fn doubt(&self, node: u32, answer: &Result<Answer, NoAnswer>) {
        let is_refused = answer.as_ref().is_ok_and(|answer| {
            let reason = answer.json()["reason"].as_str().unwrap_or_default().to_owned();
            (400..500).contains(&answer.status) || answer.status == 503 && reason.ends_with(NO_MAJORITY)
        });
        if !is_refused {
            self.note(node, None);
        }
    }

    /// Takes a node in, as often as it takes until that is answered.
    pub(super) async fn add_node(&mut self, node: u32) -> Result<(), Violation> {
        let body = json!({ "address": cluster_address(node) });
        for _ in 0..TRIES {
            match self.call("PUT", &document(node), &body).await {
                // 409: by an attempt that was not answered.
                Ok(answer) if matches!(answer.status, 201 | 409) => {
                    self.note(node, Some(true));
                    return self.voters().await;
                }
                answer => self.doubt(node, &answer),
            }
            self.rest().await;
        }
        Ok(())
    }

    /// Has a node emptied, waits until it is, and sends it away.
    pub(super) async fn remove_node(&mut self, node: u32) -> Result<(), Violation> {
        for nth in 0..TRIES {
            if nth.is_multiple_of(AGAIN) {
                self.rebalance(Some(node)).await?;
            }
            self.rest().await;
            if self.is_emptied(&node_name(node)).await {
                return self.send_away(node).await;
            }
        }
        Ok(())
    }

    /// Whether a node has no replica of anything, and nothing is on its way, as far as this worker's node knows.
    async fn is_emptied(&mut self, name: &str) -> bool {
        let Ok(databases) = self.client.get("/_all_dbs").await else { return false };
        for database in names(&databases.json()) {
            match self.client.get(&format!("/{database}/_shards")).await {
                Ok(answer) if answer.status == 404 => {}
                Ok(answer) if answer.status == 200 => {
                    let map = map_of(&answer.json()["shards"]);
                    if map.values().flatten().any(|holder| holder == name) {
                        return false;
                    }
                }
                _ => return false,
            }
        }
        self.busy().await.is_none()
    }

    async fn send_away(&mut self, node: u32) -> Result<(), Violation> {
        let path = document(node);
        for _ in 0..TRIES {
            match self.call("GET", &path, &Value::Null).await {
                // By an attempt that was not answered.
                Ok(answer) if answer.status == 404 => {
                    self.note(node, Some(false));
                    return self.voters().await;
                }
                Ok(answer) if answer.status == 200 => {
                    let rev = answer.json()["_rev"].as_str().unwrap_or_default().to_owned();
                    match self.call("DELETE", &format!("{path}?rev={rev}"), &Value::Null).await {
                        Ok(answer) if answer.status == 200 => {
                            self.note(node, Some(false));
                            return self.voters().await;
                        }
                        answer => self.doubt(node, &answer),
                    }
                }
                _ => {}
            }
            self.rest().await;
        }
        Ok(())
    }

    /// Asks who votes about maps: of each version of them there is one set, whichever node is asked, and whenever.
    pub(super) async fn voters(&mut self) -> Result<(), Violation> {
        let Ok(answer) = self.call("GET", "/_cluster/voters", &Value::Null).await else { return Ok(()) };
        if answer.status != 200 {
            return Ok(());
        }
        let told = answer.json();
        self.hear(told["version"].as_u64().unwrap_or(0), &names(&told["nodes"]))
    }

    fn hear(&self, version: u64, voters: &BTreeSet<String>) -> Result<(), Violation> {
        let heard = self.locked(|s| s.together.members.hear(version, voters));
        heard.or_else(|wrong| broken("I25", format!("{}: {wrong}", self.name)))
    }

    /// The cluster as this worker's node tells of it; an error is an answer of no use.
    async fn seen(&mut self) -> Result<Seen, String> {
        let told = ask(&mut self.client, "/_membership").await?;
        let votes = ask(&mut self.client, "/_cluster/voters").await?;
        Ok(Seen {
            members: names(&told["cluster_nodes"]),
            connected: names(&told["all_nodes"]),
            version: votes["version"].as_u64().unwrap_or(0),
            voters: names(&votes["nodes"]),
        })
    }
}

/// What a node answers to a `GET`; an error is an answer of no use.
pub(super) async fn ask(client: &mut Client, path: &str) -> Result<Value, String> {
    match client.get(path).await {
        Ok(answer) if answer.status == 200 => Ok(answer.json()),
        other => Err(format!("GET {path}: {other:?}")),
    }
}

/// Looks whether a node is connected to all nodes of its cluster.
///
/// # Errors
/// What it answers instead.
pub(crate) async fn look_at_members(client: &mut Client, nodes: u32) -> Result<(), String> {
    let told = ask(client, "/_membership").await?;
    match ["all_nodes", "cluster_nodes"].iter().all(|field| names(&told[*field]).len() == nodes as usize) {
        true => Ok(()),
        false => Err(format!("GET /_membership: {told}")),
    }
}

/// Looks whether a node is connected to these nodes and to no other, and each answers a call of it: a connection that
/// broke without a word stands until it is missed.
///
/// # Errors
/// What it answers instead.
pub(crate) async fn look_at_connections(client: &mut Client, nodes: &[u32]) -> Result<(), String> {
    let told = ask(client, "/_membership").await?;
    let expected: BTreeSet<String> = nodes.iter().map(|node| node_name(*node)).collect();
    if names(&told["all_nodes"]) != expected {
        return Err(format!("GET /_membership: {told}"));
    }
    for name in &expected {
        ask(client, &format!("/_node/{name}/_versions")).await?;
    }
    Ok(())
}

/// At the end: waits until all nodes agree on who belongs to the cluster and on who votes; their numbers. `oracles`:
/// one at each node; `first`: a node that surely belongs to it.
///
/// # Errors
/// What they do not agree on in time, or what contradicts what was answered.
pub(crate) async fn check_members(oracles: &mut [Worker], first: usize) -> Result<Vec<u32>, Violation> {
    let env = oracles[first].client.env().clone();
    let started = env.now();
    loop {
        match look(oracles, first).await? {
            Ok(nodes) => return Ok(nodes),
            Err(wrong) if env.now().since(started) > AGREEMENT => {
                return broken("I25", format!("the nodes do not come to agree on who they are: {wrong}"));
            }
            Err(_) => env.sleep(PAUSE).await,
        }
    }
}

/// The numbers of the nodes, where all of them agree; else what they do not agree on yet.
async fn look(oracles: &mut [Worker], first: usize) -> Result<Result<Vec<u32>, String>, Violation> {
    let expected = match oracles[first].seen().await {
        Ok(seen) => seen,
        Err(wrong) => return Ok(Err(wrong)),
    };
    if let Some(flaw) = oracles[first].locked(|s| s.together.members.flaw(&expected.members)) {
        return Ok(Err(format!("{:?}, and {flaw}", expected.members)));
    }
    let mut nodes = Vec::new();
    for (node, oracle) in (0..).zip(oracles.iter_mut()).filter(|(node, _)| expected.members.contains(&node_name(*node)))
    {
        let seen = match oracle.seen().await {
            Ok(seen) => seen,
            Err(wrong) => return Ok(Err(wrong)),
        };
        oracle.hear(seen.version, &seen.voters)?;
        let agrees = seen.members == expected.members && seen.voters == expected.members;
        if !agrees || seen.version != expected.version || !seen.connected.is_superset(&expected.members) {
            let Seen { members, connected, version, voters } = seen;
            let told = format!("{members:?}, connected {connected:?}, voters {version} {voters:?}");
            return Ok(Err(format!("{}: {told}; the first one tells of {:?}", oracle.name, expected.members)));
        }
        nodes.push(node);
    }
    Ok(Ok(nodes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[u32]) -> BTreeSet<String> {
        nodes.iter().map(|node| node_name(*node)).collect()
    }

    #[test]
    fn members_are_those_who_were_taken_in_and_not_sent_away() {
        let mut members = Members { told: BTreeMap::from([(0, Some(true)), (1, Some(false))]), ..Members::default() };
        assert_eq!(members.flaw(&set(&[0])), None);
        assert!(members.flaw(&set(&[])).is_some_and(|flaw| flaw.contains("taken in")));
        assert!(members.flaw(&set(&[0, 1])).is_some_and(|flaw| flaw.contains("sent away")));
        members.told.insert(1, None);
        assert_eq!(members.flaw(&set(&[0, 1])), None, "nobody was told what became of it");
    }

    #[test]
    fn of_each_version_of_the_voters_there_is_one_set() {
        let mut members = Members::default();
        assert_eq!(members.hear(0, &set(&[0])).and(members.hear(0, &set(&[1]))), Ok(()), "not agreed on yet");
        assert_eq!(members.hear(1, &set(&[0, 1])).and(members.hear(2, &set(&[0, 1, 2]))), Ok(()));
        assert_eq!(members.hear(1, &set(&[0, 1])), Ok(()));
        assert!(members.hear(2, &set(&[0, 1, 3])).is_err());
    }
}
