//! Documents of replications: each belongs to one node, all nodes tell of all of them, and those of a node that died go
//! on elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Node, until};

const COUNT: usize = 6;

/// The documents whose replications run, with the node of each.
fn running(node: &Node) -> BTreeMap<String, String> {
    let told = node.get("/_scheduler/docs").1;
    let docs = told["docs"].as_array().cloned().unwrap_or_default();
    let text = |doc: &Value, name: &str| doc[name].as_str().unwrap_or_default().to_owned();
    let running = docs.iter().filter(|doc| doc["state"] == "running");
    running.map(|doc| (text(doc, "doc_id"), text(doc, "node"))).collect()
}

/// Waits until all nodes tell that all of them run, on the same nodes.
fn all_run(what: &str, nodes: &[&Node]) -> BTreeMap<String, String> {
    until(what, || {
        let told: BTreeSet<_> = nodes.iter().map(|node| running(node)).collect();
        told.len() == 1 && told.first().is_some_and(|docs| docs.len() == COUNT)
    });
    running(nodes[0])
}

/// Each of some documents runs on one node, and every node knows.
pub fn are_shared(nodes: [&Node; 3]) {
    let [first, second, third] = nodes;
    assert_eq!(first.ask("PUT", "/src", &Value::Null).0, 201);
    for n in 0..COUNT {
        let doc = json!({"source": "src", "target": format!("dst{n}"), "create_target": true, "continuous": true});
        assert_eq!(first.ask("PUT", &format!("/_replicator/r{n}"), &doc).0, 201);
    }
    let owners = all_run("all run, and all nodes tell so", &nodes);
    assert!(owners.values().collect::<BTreeSet<_>>().len() > 1, "shared: {owners:?}");
    for node in [first, second, third] {
        let jobs = node.get("/_scheduler/jobs?limit=100").1;
        assert_eq!((jobs["total_rows"].as_u64(), jobs["jobs"].as_array().map(Vec::len)), (Some(6), Some(6)), "{jobs}");
        let id = jobs["jobs"][0]["id"].as_str().unwrap_or_default().replace('+', "%2B");
        assert_eq!(node.get(&format!("/_scheduler/jobs/{id}")).1["doc_id"], jobs["jobs"][0]["doc_id"]);
        let tasks = node.get("/_active_tasks").1;
        let replications = tasks.as_array().into_iter().flatten().filter(|task| task["type"] == "replication");
        assert_eq!(replications.count(), 6, "{tasks}");
        let one = node.get("/_scheduler/docs/_replicator/r0").1;
        assert_eq!(one["node"].as_str(), owners.get("r0").map(String::as_str), "{one}");
    }
}

/// One that no document asked for runs on one node, whichever of them were asked, and any of them cancels it.
pub fn run_once_and_are_cancelled_from_anywhere(nodes: [&Node; 3]) {
    let order =
        |n: usize| json!({"source": "src", "target": format!("own{n}"), "create_target": true, "continuous": true});
    let started: Vec<Value> = (0..COUNT)
        .map(|n| {
            let told = nodes.map(|node| node.ask("POST", "/_replicate", &order(n)));
            assert!(told[0].0 == 202 && told.iter().all(|answer| *answer == told[0]), "{told:?}");
            told[0].1["_local_id"].clone()
        })
        .collect();
    let listed = |node: &Node| {
        let jobs = node.get("/_scheduler/jobs?limit=100").1["jobs"].as_array().cloned().unwrap_or_default();
        let own = jobs.into_iter().filter(|job| job["doc_id"].is_null());
        own.map(|job| (job["id"].clone(), job["node"].clone())).collect::<Vec<_>>()
    };
    let told = listed(nodes[1]);
    let owners: BTreeSet<String> = told.iter().map(|(_, node)| node.to_string()).collect();
    assert!(told.len() == COUNT && owners.len() > 1, "each once, shared: {told:?}");
    for (n, id) in started.iter().enumerate() {
        let node = nodes[n % nodes.len()];
        let mut by = if n < COUNT / 2 { order(n) } else { json!({ "replication_id": id }) };
        by["cancel"] = json!(true);
        assert_eq!(node.ask("POST", "/_replicate", &by), (200, json!({"ok": true, "_local_id": id})));
        assert_eq!(node.ask("POST", "/_replicate", &by).0, 404);
    }
    until("none is listed", || nodes.iter().all(|node| listed(node).is_empty()));
    let once = json!({"source": "src", "target": "once", "create_target": true});
    for node in nodes {
        assert_eq!(node.ask("POST", "/_replicate", &once).0, 200);
    }
}

/// With one node less the others have all of them.
pub fn moved_to(nodes: [&Node; 2]) {
    let owners = all_run("the others take over", &nodes);
    assert!(owners.values().all(|owner| nodes.iter().any(|node| node.name == *owner)), "{owners:?}");
}
