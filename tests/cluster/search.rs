//! Full-text searches on real processes: every node answers all that was acknowledged, also where a replica moved away
//! and where a node comes back behind the others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Node, names, see_each_other, set_up_three, until};

const PLAIN: &str = "function (doc) { index('default', 'apple ' + doc.n); index('n', doc.n, {store: true}); }";
const TYPED: &str =
    "function (doc) { index('text', 'default', 'apple ' + doc.n); index('double', 'n', doc.n, {store: true}); }";

/// Writes documents through two nodes; ids of those that were acknowledged.
fn write(nodes: [&Node; 2], numbers: std::ops::Range<u64>) -> BTreeSet<String> {
    let mut taken = BTreeSet::new();
    for n in numbers {
        let id = format!("d{n:03}");
        let (status, answer) = nodes[(n % 2) as usize].ask("PUT", &format!("/text/{id}"), &json!({"n": n}));
        assert!([201, 202].contains(&status), "{id}: {status} {answer}");
        taken.insert(id);
    }
    taken
}

/// The ids that pages of a search of either form give, one after the other; each once.
fn found(node: &Node, form: &str) -> BTreeSet<String> {
    let (rows, sort) = if form == "_search" { ("rows", "\"n<number>\"") } else { ("hits", "\"n\"") };
    let (mut all, mut bookmark, mut last) = (BTreeSet::new(), Value::Null, -1.0);
    loop {
        let mut body = json!({"q": "apple", "limit": 40, "sort": sort.trim_matches('"')});
        if !bookmark.is_null() {
            body["bookmark"] = bookmark;
        }
        let (status, page) = node.ask("POST", &format!("/text/_design/s/{form}/i"), &body);
        assert_eq!(status, 200, "{form} on {}: {page}", node.name);
        let page_rows = page[rows].as_array().expect("rows").clone();
        for row in &page_rows {
            let n = row["fields"]["n"].as_f64().expect("a number");
            assert!(n > last, "{form} on {}: {n} behind {last}", node.name);
            last = n;
            assert!(all.insert(row["id"].as_str().expect("an id").to_owned()), "{form}: {row} twice");
        }
        if page_rows.is_empty() {
            return all;
        }
        bookmark = page["bookmark"].clone();
    }
}

fn all_find(nodes: &[&Node], expected: &BTreeSet<String>) {
    for node in nodes {
        for form in ["_search", "_nouveau"] {
            assert_eq!(&found(node, form), expected, "{form} on {}", node.name);
        }
    }
}

#[test]
fn searches_find_all_that_was_acknowledged_behind_moves_and_returns() {
    let [a, b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    for node in [&a, &b, &c] {
        let switch = "/_node/_local/_config/nouveau/enable";
        assert_eq!(node.ask("PUT", switch, &json!("true")).0, 200);
    }
    assert_eq!(a.ask("PUT", "/text?q=4&n=2", &Value::Null).0, 201);
    let design = json!({"indexes": {"i": {"index": PLAIN}}, "nouveau": {"i": {"index": TYPED}}});
    assert_eq!(a.ask("PUT", "/text/_design/s", &design).0, 201);
    let mut all = write([&a, &b], 0..60);
    all_find(&[&a, &b, &c], &all);

    // A node is away while others are written, updated and deleted, and searches go on without it.
    c.kill();
    for node in [&a, &b] {
        until("the node is missed", || node.membership().0 == names(&[&a, &b]));
    }
    all.extend(write([&a, &b], 60..120));
    for n in (0..60).step_by(3) {
        let id = format!("d{n:03}");
        let rev = a.get(&format!("/text/{id}")).1["_rev"].as_str().expect("a revision").to_owned();
        let status = b.ask("DELETE", &format!("/text/{id}?rev={rev}"), &Value::Null).0;
        assert!([200, 202].contains(&status), "{status}");
        all.remove(&id);
    }
    all_find(&[&a, &b], &all);
    c.run();
    see_each_other(&[&a, &b, &c]);
    all_find(&[&a, &b, &c], &all);

    // Replicas move to the others; their indexes are built where they come to.
    let drain = json!({"drain": ["n1@127.0.0.1"], "databases": ["text"]});
    assert_eq!(b.ask("POST", "/_cluster/rebalance", &drain).0, 202);
    all.extend(write([&b, &c], 120..140));
    let held = || b.get("/text/_shards").1["shards"].to_string().contains("n1@");
    until("the replicas moved", || !held() && b.get("/_cluster/rebalance").1["moves"] == json!([]));
    all_find(&[&a, &b, &c], &all);
}
