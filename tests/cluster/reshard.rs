//! Ranges that are split and copies that move between real processes under writes, one of them killed meanwhile.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Node, see_each_other, set_up_three, until};

/// Writes documents and answers the ids of those that were taken.
fn write(nodes: [&Node; 2], prefix: &str, count: usize) -> Vec<String> {
    let mut taken = Vec::new();
    for n in 0..count {
        let id = format!("{prefix}-{n}");
        let (status, answer) = nodes[n % 2].ask("PUT", &format!("/live/{id}"), &json!({"n": n}));
        assert!([201, 202, 503].contains(&status), "{id}: {status} {answer}");
        if status < 300 {
            taken.push(id);
        }
    }
    taken
}

fn ranges(node: &Node) -> usize {
    node.get("/live/_shards").1["shards"].as_object().map_or(0, serde_json::Map::len)
}

fn changed_since(node: &Node, since: &Value) -> BTreeSet<String> {
    let since = since.as_str().expect("a sequence");
    let rows = node.get(&format!("/live/_changes?since={since}")).1["results"].clone();
    let ids = rows.as_array().expect("rows").iter().map(|row| row["id"].as_str().expect("an id").to_owned());
    ids.collect()
}

fn all_completed(node: &Node) -> bool {
    let jobs = node.get("/_reshard/jobs").1["jobs"].clone();
    let jobs = jobs.as_array().expect("jobs");
    jobs.len() == 2 && jobs.iter().all(|job| job["job_state"] == "completed")
}

#[test]
fn splits_and_moves_lose_nothing_while_a_node_is_killed() {
    let [a, b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    assert_eq!(a.ask("PUT", "/live?q=1&n=2", &Value::Null).0, 201);
    let before = write([&a, &b], "before", 40);
    let since = b.get("/live").1["update_seq"].clone();
    let jobs = b.ask("POST", "/_reshard/jobs", &json!({"type": "split", "db": "live"}));
    assert_eq!((jobs.0, jobs.1.as_array().map(Vec::len)), (201, Some(2)), "{jobs:?}");
    let mut after = write([&a, &b], "split", 60);
    until("the jobs are done", || all_completed(&a));
    for node in [&a, &b, &c] {
        until("the range is split everywhere", || ranges(node) == 2);
    }

    let drain = json!({"drain": ["n1@127.0.0.1"], "databases": ["live"], "dry_run": true});
    let planned =
        |node: &Node| node.ask("POST", "/_cluster/rebalance", &drain).1["moves"].as_array().map_or(99, Vec::len);
    let begun = b.ask("POST", "/_cluster/rebalance", &json!({"drain": ["n1@127.0.0.1"], "databases": ["live"]}));
    assert_eq!((begun.0, &begun.1["dry_run"]), (202, &json!(false)));
    c.kill();
    after.extend(write([&a, &b], "killed", 40));
    c.run();
    see_each_other(&[&a, &b, &c]);
    until("nothing is left to move", || planned(&b) == 0 && b.get("/_cluster/rebalance").1["moves"] == json!([]));
    after.extend(write([&a, &b], "moved", 20));

    let map = a.get("/_node/_local/_dbs/live").1;
    assert_eq!(map["by_node"].get("n1@127.0.0.1"), None, "{map}");
    for node in [&a, &b, &c] {
        // Those answered with 503 may be there, too.
        let count = |node: &Node| node.get("/live").1["doc_count"].as_u64().unwrap_or(0);
        until("the documents are there", || count(node) >= (before.len() + after.len()) as u64);
        for id in before.iter().chain(&after) {
            assert_eq!(node.get(&format!("/live/{id}")).0, 200, "{id} on {}", node.name);
        }
        let seen = changed_since(node, &since);
        assert!(after.iter().all(|id| seen.contains(id)), "{} hides changes", node.name);
    }

    until("the request is over", || c.get("/_cluster/rebalance").1["requests"] == json!([]));
    assert_eq!(c.ask("DELETE", "/_cluster/rebalance", &json!({})), (200, json!({"ok": true, "ended": []})));

    // A document of `_dbs` is edited with its revision: a copy goes back.
    let mut wanted = map.clone();
    let range = wanted["by_range"].as_object().and_then(|ranges| ranges.keys().next()).expect("a range").clone();
    wanted["by_range"][&range] = json!(["n1@127.0.0.1", "n2@127.0.0.1"]);
    assert_eq!(a.ask("PUT", "/_node/_local/_dbs/live", &json!({"by_range": wanted["by_range"]})).0, 409);
    assert_eq!(a.ask("PUT", "/_node/_local/_dbs/live", &wanted).0, 201);
    let held = |node: &Node| node.get("/live/_shards").1["shards"][&range].clone();
    until("the copy came back", || held(&b).to_string().contains("n1@") && !held(&b).to_string().contains("n3@"));
}
