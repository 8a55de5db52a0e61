//! The recorded accounts of a cluster with nodes down, hung and returning, as one run of real processes.

use serde_json::{Value, json};

use super::{Node, names, see_each_other, set_up_three, until};

fn put(node: &Node, target: &str, body: Value) -> u16 {
    node.ask("PUT", target, &body).0
}

fn status(node: &Node, target: &str) -> u16 {
    node.get(target).0
}

fn delete(node: &Node, target: &str) -> u16 {
    node.ask("DELETE", target, &Value::Null).0
}

/// `account-quorums`: all nodes are there.
fn all_up(nodes: [&Node; 3]) {
    let [a, b, c] = nodes;
    assert_eq!(put(a, "/cdb?q=2&n=3", Value::Null), 201);
    assert_eq!(put(a, "/del1?q=2", Value::Null), 201);
    assert_eq!(b.get("/cdb").1["cluster"], json!({"q": 2, "n": 3, "w": 2, "r": 2}));
    assert_eq!(c.get("/cdb/_shards/a").1["nodes"].as_array().map(Vec::len), Some(3));
    let writes = [(a, "/cdb/a", 201), (b, "/cdb/b?w=3", 201), (c, "/cdb/c?w=1", 201), (b, "/cdb/d?w=9", 202)];
    for (node, target, expected) in writes {
        assert_eq!(put(node, target, json!({"v": 1})), expected, "{target}");
    }
    for node in nodes {
        assert_eq!(status(node, "/cdb/b?r=3"), 200);
        assert_eq!(status(node, "/cdb/a?r=9"), 200);
    }
    let view = json!({"views": {"v": {"map": "function(d){emit(d.v)}"}}});
    assert_eq!(put(a, "/cdb/_design/v?w=3", view), 201);
    let answer = c.get("/cdb/_design/v/_view/v");
    assert_eq!(answer.1["total_rows"], 4, "{answer:?}");
}

/// `account-one-down`.
fn one_down(a: &Node) {
    assert_eq!(put(a, "/cdb/one-1", json!({"v": 1})), 201);
    assert_eq!(put(a, "/cdb/one-2?w=3", json!({"v": 1})), 202);
    assert_eq!(put(a, "/cdb/one-1", json!({"v": 3})), 409);
    assert_eq!((status(a, "/cdb/a?r=3"), status(a, "/cdb/nope?r=3")), (200, 404));
    assert_eq!(put(a, "/cdb/_local/one", json!({"v": 1})), 201);
    assert_eq!(
        put(a, "/cdb/_security", json!({"admins": {"roles": ["_admin"]}, "members": {"roles": ["_admin"]}})),
        200
    );
    assert_eq!(put(a, "/cdb/_revs_limit", json!(999)), 200);
    assert_eq!(a.ask("POST", "/cdb/_purge", &json!({"a": ["9-f"]})).0, 201);
    assert_eq!(a.get("/cdb/_design/v/_view/v").1["total_rows"], 6);
    assert_eq!(put(a, "/newone?q=2&n=3", Value::Null), 201);
    assert_eq!(delete(a, "/del1"), 202);
}

/// `account-two-down`.
fn two_down(a: &Node) {
    assert_eq!(put(a, "/cdb/two-1", json!({"v": 1})), 202);
    assert_eq!(put(a, "/cdb/two-2?w=1", json!({"v": 1})), 201);
    assert_eq!(put(a, "/cdb/two-1", json!({"v": 3})), 409);
    let bulk = a.ask("POST", "/cdb/_bulk_docs", &json!({"docs": [{"_id": "two-5"}]}));
    assert_eq!((bulk.0, &bulk.1[0]["accepted"]), (202, &json!(true)));
    for target in ["/cdb/two-1?r=3", "/cdb/_all_docs", "/cdb/_changes", "/cdb/_design/v/_view/v", "/cdb", "/_up"] {
        assert_eq!(status(a, target), 200, "{target}");
    }
    let refused = a.ask("PUT", "/cdb/_security", &json!({}));
    assert_eq!((refused.0, &refused.1["reason"]), (500, &json!("no_majority")));
    assert_eq!((put(a, "/newtwo?q=2&n=3", Value::Null), put(a, "/newtwo", Value::Null)), (202, 412));
    assert_eq!(a.ask("POST", "/cdb/_purge", &json!({"a": ["9-f"]})).0, 202);
}

/// `account-nodes-return`: nothing has to be asked of the nodes that return.
fn returned(node: &Node) {
    for target in ["/cdb/one-1?r=1", "/cdb/two-1?r=1", "/cdb/two-5?r=1", "/cdb/_local/one", "/newone", "/newtwo"] {
        until(&format!("{} has {target}", node.name), || status(node, target) == 200);
    }
    until("a deleted database stays away", || status(node, "/del1") == 404);
    until("the limit is known", || node.get("/cdb/_revs_limit").1 == json!(999));
}

#[test]
fn nothing_is_lost_while_nodes_are_down_hang_and_return() {
    let [a, mut b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    all_up([&a, &b, &c]);
    c.kill();
    until("the dead node is missed", || a.membership().0 == names(&[&a, &b]));
    one_down(&a);
    b.kill();
    until("both are missed", || a.membership().0 == names(&[&a]));
    two_down(&a);
    b.run();
    c.run();
    see_each_other(&[&a, &b, &c]);
    returned(&b);
    returned(&c);

    // `account-one-suspended`: what needs the hung node waits for its suspicion once.
    c.signal("-STOP");
    assert_eq!(put(&a, "/cdb/hung-1", json!({"v": 1})), 201);
    assert_eq!((status(&a, "/cdb/a"), status(&a, "/cdb/_all_docs")), (200, 200));
    assert_eq!(put(&a, "/cdb/hung-2?w=3", json!({"v": 1})), 202);
    assert_eq!(status(&a, "/cdb/a?r=3"), 200);
    c.signal("-CONT");
    until("the node that woke has what it missed", || status(&c, "/cdb/hung-2?r=1") == 200);
    assert_eq!(a.get("/cdb/_all_docs").1["total_rows"], c.get("/cdb/_all_docs").1["total_rows"]);
}
