//! Liveness: when the faults are over one node of a cluster stays broken, and the others, the core, must live without
//! it: take writes with a majority of the replicas, show what a majority was said to hold, and come to hold the same.
//! One whose stored bytes are wrong goes on beside them, and may answer as it can.
//!
//! Assumes three replicas of each range, none of them moved, and that only the broken node's disk was lost: then any
//! core has two. Where it fails the maps tell whether it could be expected at all; a core that lacks a majority
//! somewhere is counted and not checked.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use crate::client::Client;
use crate::faults::Scene;
use crate::history::Event;
use crate::model::{Edit, Outcome, Violation};
use crate::peace::{client, wait_until_up_or};
use crate::plan::{Ailment, Outcast};
use crate::workload::{DB, leaves, lock, outcome};

/// How long the core may take: a silent node is suspected after five seconds, and what changed is compared each 30.
const CONVERGES: Duration = Duration::from_secs(90);
/// Between two looks at it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Replicas that make a majority of three.
const MAJORITY: u32 = 2;
/// Values of documents that the oracle writes: no client's.
const VALUES_FROM: u64 = 1_000_000;

/// Breaks a node and checks the others.
///
/// # Errors
/// What the core does not do in time, and any answer that breaks a promise.
pub(crate) async fn check_core(scene: &Scene, outcast: Outcast) -> Result<(), Violation> {
    let world = &scene.world;
    let began = world.now();
    let numbers: Vec<u32> = (0..scene.keepers.len() as u32).filter(|node| *node != outcast.node).collect();
    break_down(scene, outcast);
    for node in &numbers {
        let restart = || {
            if let Some(keeper) = scene.keepers.get(*node as usize) {
                *lock(&scene.shared)
                    .history
                    .coverage
                    .counters
                    .entry("restarted for stopped writes".into())
                    .or_default() += 1;
                keeper.node.kill();
            }
        };
        wait_until_up_or(&scene.oracle, *node, restart).await?;
    }
    let mut core: Vec<(u32, Client)> = numbers.iter().map(|node| (*node, client(&scene.oracle, *node))).collect();
    for turn in 0.. {
        let wrong = look(scene, &mut core, turn).await?;
        let took = world.now() - began;
        match wrong {
            None => {
                note(scene, took, "the core lives");
                break;
            }
            Some(_) if took > CONVERGES && !has_majorities(&mut core, outcast).await => {
                note(scene, took, "a core without a majority");
                break;
            }
            Some(wrong) if took > CONVERGES => {
                let what = format!(
                    "without node {} ({:?}) the others do not come to agree: {wrong}",
                    outcast.node, outcast.how
                );
                return Err(Violation { invariant: "I28", what });
            }
            Some(_) => world.sleep(LOOK_EVERY).await,
        }
    }
    Ok(())
}

/// Makes a node what it is to stay.
fn break_down(scene: &Scene, outcast: Outcast) {
    let Some(keeper) = scene.keepers.get(outcast.node as usize) else { return };
    let (world, ip) = (&scene.world, keeper.node.ip());
    let others: Vec<_> = world.nodes().iter().map(|node| node.ip()).filter(|other| *other != ip).collect();
    match outcast.how {
        Ailment::Alone => world.isolate(ip),
        Ailment::Deaf => world.partition_one_way(&others, &[ip]),
        Ailment::Mute => world.partition_one_way(&[ip], &others),
        Ailment::StandsStill => keeper.node.pause(),
        Ailment::Spoiled => {}
    }
}

/// Writes down how long it took.
fn note(scene: &Scene, took: Duration, what: &str) {
    let mut shared = lock(&scene.shared);
    let (to_ms, took_ms) = (shared.now_ms(), took.as_millis() as u64);
    let counters = &mut shared.history.coverage.counters;
    *counters.entry(what.to_owned()).or_default() += 1;
    *counters.entry(format!("{what}: milliseconds in all")).or_default() += took_ms;
    let (lane, name, text) = ("oracle".to_owned(), "liveness".to_owned(), what.to_owned());
    let event = Event { lane, from_ms: to_ms - took_ms, to_ms, kind: "check", name, text, outcome: String::new() };
    shared.history.events.push(event);
}

/// What is not yet as it must be.
async fn look(scene: &Scene, core: &mut [(u32, Client)], turn: u64) -> Result<Option<String>, Violation> {
    for (node, client) in core.iter_mut() {
        if let Some(wrong) = write(scene, *node, client, turn).await? {
            return Ok(Some(wrong));
        }
    }
    let (documents, views) = {
        let shared = lock(&scene.shared);
        (shared.model.documents(), shared.views)
    };
    for doc in documents {
        let promised = lock(&scene.shared).model.promised(&doc, MAJORITY);
        let mut first = None;
        for (node, client) in core.iter_mut() {
            for r in ["", "&r=1"] {
                let path = format!("/{DB}/{doc}?open_revs=all&revs=true{r}");
                let found = match client.get(&path).await {
                    Ok(answer) if answer.status == 200 => leaves(&answer.json()),
                    Ok(answer) if answer.status == 404 => Vec::new(),
                    other => return Ok(Some(format!("node {node}: {path}: {other:?}"))),
                };
                {
                    let mut shared = lock(&scene.shared);
                    shared.shows_tree(&doc, &format!("node {node}"), &found);
                    shared.model.saw_tree(&doc, &found, &BTreeSet::new())?;
                }
                let shown: BTreeSet<&String> = found.iter().flat_map(|leaf| &leaf.path).collect();
                if let Some(rev) = promised.iter().find(|rev| !shown.contains(rev)) {
                    return Ok(Some(format!("node {node}: {path} lacks {rev}")));
                }
                let tops: BTreeSet<String> = found.iter().map(|leaf| leaf.path[0].clone()).collect();
                let known = first.get_or_insert_with(|| tops.clone());
                if *known != tops {
                    return Ok(Some(format!("node {node}: {path} shows {tops:?}, another {known:?}")));
                }
            }
        }
    }
    match core.first_mut().filter(|_| views) {
        Some((node, client)) => {
            let path = format!("/{DB}/_design/seen/_view/sum");
            let answer = client.get(&path).await;
            let serves = answer.as_ref().is_ok_and(|answer| answer.status == 200);
            Ok((!serves).then(|| format!("node {node}: {path}: {answer:?}")))
        }
        None => Ok(None),
    }
}

/// Writes a new document through a node: a majority must come to hold it.
async fn write(scene: &Scene, node: u32, client: &mut Client, turn: u64) -> Result<Option<String>, Violation> {
    let (doc, v) = (format!("doc-9{node}{turn:02}"), VALUES_FROM + 100 * turn + u64::from(node));
    let edit = Edit {
        doc: doc.clone(),
        parent: None,
        deleted: false,
        v: Some(v),
        blobs: Vec::new(),
        given: None,
        outcome: Outcome::Unknown,
    };
    let at = lock(&scene.shared).model.invoke(edit);
    let path = format!("/{DB}/{doc}");
    let answer = client.json("PUT", &path, &json!({ "v": v })).await;
    let came = outcome(&answer);
    let mut shared = lock(&scene.shared);
    shared.model.settle(at, came.clone())?;
    match (came, &answer) {
        (Outcome::Acknowledged(rev), Ok(answer)) if answer.status == 201 && answer.replicas >= MAJORITY => {
            shared.model.promise(&doc, &rev, answer.replicas);
            Ok(None)
        }
        _ => Ok(Some(format!("node {node}: PUT {path}: {answer:?}"))),
    }
}

/// Whether the core has a majority of the replicas of each range, as far as it knows.
async fn has_majorities(core: &mut [(u32, Client)], outcast: Outcast) -> bool {
    let Some((_, client)) = core.first_mut() else { return false };
    let Ok(answer) = client.get(&format!("/{DB}/_shards")).await else { return true };
    let own = crate::place::node_name(outcast.node);
    let in_core = |list: &Value| list.as_array().into_iter().flatten().filter(|node| **node != json!(own)).count();
    let shards = answer.json();
    shards["shards"].as_object().into_iter().flatten().all(|(_, list)| in_core(list) >= MAJORITY as usize)
}
