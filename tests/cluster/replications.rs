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
        assert_eq!(node.get("/_active_tasks").1.as_array().map(Vec::len), Some(6));
        let one = node.get("/_scheduler/docs/_replicator/r0").1;
        assert_eq!(one["node"].as_str(), owners.get("r0").map(String::as_str), "{one}");
    }
}

/// With one node less the others have all of them.
pub fn moved_to(nodes: [&Node; 2]) {
    let owners = all_run("the others take over", &nodes);
    assert!(owners.values().all(|owner| nodes.iter().any(|node| node.name == *owner)), "{owners:?}");
}
