//! Where the replicas of a cluster's ranges are, while operators move replicas, empty nodes and split ranges:
//! every client is told of ranges that tile the ring, each with enough replicas; in the end all nodes tell the same,
//! and nothing is still on its way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::{DB, PASSING, Worker, broken};
use crate::model::Violation;
use crate::place::node_name;
use crate::plan::WorldPlan;

/// Ranges that a database may have: with more of them a run gets slow, and shows nothing else.
const RANGES_MAX: usize = 12;
/// How long replicas may be on their way once all faults have ended.
const ARRIVAL: Duration = Duration::from_secs(120);
/// Between two looks at whether they are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of where replicas are.
#[derive(Default)]
pub(crate) struct Places {
    /// Replicas that each range was made with: no drain takes one away that is not somewhere else then.
    replicas: usize,
    /// Whether nothing goes wrong in the run: nobody who asks for a change may be left without an answer then.
    pub(crate) in_peace: bool,
    /// The maps as the first node of each cluster told them in the end.
    maps: BTreeMap<(Option<u32>, &'static str), Map>,
}

/// The nodes of each range, by its bounds.
pub(super) type Map = BTreeMap<String, Vec<String>>;

impl Places {
    /// Of a cluster.
    pub(super) fn of(world: &WorldPlan) -> Places {
        Places { replicas: world.replicas() as usize, ..Places::default() }
    }

    /// What is wrong with a map.
    fn flaw(&self, map: &Map) -> Option<String> {
        let mut next = 0;
        for (range, nodes) in map {
            let bound = |text: &str| u64::from_str_radix(text, 16).ok();
            match range.split_once('-').and_then(|(from, to)| Some((bound(from)?, bound(to)?))) {
                Some((from, to)) if from == next && to >= from => next = to + 1,
                _ => return Some(format!("{range} does not begin where the one before it ends")),
            }
            let distinct: BTreeSet<&String> = nodes.iter().collect();
            if distinct.len() < nodes.len() || nodes.len() < self.replicas {
                return Some(format!("{range} has its replicas on {nodes:?}"));
            }
        }
        (next != 1 << 32).then(|| "the ranges end before the ring does".to_owned())
    }
}

/// Whether an answer says of each replica that it is being split: where no job could be made CouchDB answers 500.
fn is_being_split(answer: &Value) -> bool {
    let jobs = answer.as_array().filter(|jobs| !jobs.is_empty());
    jobs.is_some_and(|jobs| jobs.iter().all(|job| job["error"] == "job_already_exists"))
}

fn database(passing: bool) -> &'static str {
    if passing { PASSING } else { DB }
}

pub(super) fn map_of(shards: &Value) -> Map {
    let nodes = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|node| Some(node.as_str()?.to_owned())).collect()
    };
    let ranges = shards.as_object().into_iter().flatten();
    ranges.map(|(range, list)| (range.clone(), nodes(list))).collect()
}

impl Worker {
    /// Asks where the replicas of a database are; `None`: no answer, or none of use.
    async fn map(&mut self, passing: bool) -> Result<Option<Map>, Violation> {
        let path = format!("/{}/_shards", database(passing));
        let Ok(answer) = self.call("GET", &path, &Value::Null).await else { return Ok(None) };
        if answer.status != 200 {
            return Ok(None);
        }
        let map = map_of(&answer.json()["shards"]);
        match self.locked(|s| s.together.places.flaw(&map)) {
            Some(flaw) => broken("I25", format!("{path}: {flaw}: {map:?}")),
            None => Ok(Some(map)),
        }
    }

    /// Asks for a change. It may be refused, for somebody else was first.
    async fn order(&mut self, method: &str, path: &str, wanted: &Value) -> Result<(), Violation> {
        match self.call(method, path, wanted).await {
            Ok(answer) if answer.status < 500 || is_being_split(&answer.json()) => Ok(()),
            answer if self.locked(|s| s.together.places.in_peace) => {
                broken("I28", format!("{method} {path} in peace: {answer:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Brings a replica of a range to a node that has none, by an edit of the map's document.
    pub(super) async fn move_replica(&mut self, passing: bool, range: u32, to: u32) -> Result<(), Violation> {
        let path = format!("/_node/_local/_dbs/{}", database(passing));
        let Ok(answer) = self.call("GET", &path, &Value::Null).await else { return Ok(()) };
        let mut document = answer.json();
        let mut map = map_of(&document["by_range"]);
        let (count, to) = (map.len().max(1), node_name(to));
        if let Some(nodes) = map.values_mut().nth(range as usize % count).filter(|nodes| !nodes.contains(&to)) {
            nodes[0] = to;
            document["by_range"] = json!(map);
            self.order("PUT", &path, &document).await?;
        }
        self.map(passing).await.map(drop)
    }

    /// Has the load evened out, or a node emptied.
    pub(super) async fn rebalance(&mut self, drain: Option<u32>) -> Result<(), Violation> {
        let drain: Vec<String> = drain.into_iter().map(node_name).collect();
        self.order("POST", "/_cluster/rebalance", &json!({ "drain": drain })).await?;
        self.map(false).await?;
        self.map(true).await.map(drop)
    }

    /// Splits a range in two.
    pub(super) async fn split_range(&mut self, passing: bool, range: u32) -> Result<(), Violation> {
        let Some(map) = self.map(passing).await?.filter(|map| map.len() < RANGES_MAX) else { return Ok(()) };
        let Some(range) = map.keys().nth(range as usize % map.len().max(1)) else { return Ok(()) };
        let wanted = json!({ "type": "split", "db": database(passing), "range": range });
        self.order("POST", "/_reshard/jobs", &wanted).await?;
        self.map(passing).await.map(drop)
    }

    /// At the end: nothing is on its way any more, and this node tells the same maps as the first one.
    pub async fn check_places(&mut self) -> Result<(), Violation> {
        let env = self.client.env().clone();
        let started = env.now();
        while let Some(busy) = self.busy().await {
            if env.now().since(started) > ARRIVAL {
                return broken("I28", format!("{}: {busy} after all faults", self.name));
            }
            env.sleep(LOOK_EVERY).await;
        }
        let failed = self.client.get("/_reshard").await.map(|answer| answer.json()["failed"].clone());
        if self.locked(|s| s.together.places.in_peace) && !matches!(&failed, Ok(count) if *count == json!(0)) {
            return broken("I25", format!("{}: splits failed in peace: {failed:?}", self.name));
        }
        let (lane, cluster) = (self.name.clone(), self.cluster().first().copied());
        for passing in [false, true] {
            let name = database(passing);
            let Some(map) = self.map(passing).await? else {
                return broken("I28", format!("{lane}: /{name}/_shards does not answer after all faults"));
            };
            let first =
                self.locked(|s| s.together.places.maps.entry((cluster, name)).or_insert_with(|| map.clone()).clone());
            if first != map {
                return broken("I25", format!("{name}: {lane} tells of {map:?}, the first node of {first:?}"));
            }
        }
        Ok(())
    }

    /// What is on its way as far as this node knows.
    pub(super) async fn busy(&mut self) -> Option<String> {
        let moves = self.client.get("/_cluster/rebalance").await.map(|answer| answer.json()["moves"].clone());
        let jobs = self.client.get("/_reshard").await.map(|answer| answer.json());
        match (moves, jobs) {
            (Ok(moves), Ok(jobs)) if moves == json!([]) && jobs["running"] == json!(0) => None,
            (moves, jobs) => Some(format!("moves {moves:?}, jobs {jobs:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_tile_the_ring_and_have_their_replicas() {
        let places = Places { replicas: 2, ..Places::default() };
        let map = |ranges: &[(&str, &[&str])]| -> Map {
            let nodes = |list: &[&str]| list.iter().map(|node| (*node).to_owned()).collect();
            ranges.iter().map(|(range, list)| ((*range).to_owned(), nodes(list))).collect()
        };
        let (low, high) = ("00000000-7fffffff", "80000000-ffffffff");
        assert_eq!(places.flaw(&map(&[(low, &["a", "b"]), (high, &["b", "c"])])), None);
        let flawed: [&[(&str, &[&str])]; 4] = [
            &[(low, &["a", "b"])],
            &[(low, &["a", "b"]), ("90000000-ffffffff", &["a", "b"])],
            &[(low, &["a", "b"]), (high, &["a"])],
            &[(low, &["a", "a"]), (high, &["a", "b"])],
        ];
        assert!(flawed.iter().all(|ranges| places.flaw(&map(ranges)).is_some()));
    }
}
