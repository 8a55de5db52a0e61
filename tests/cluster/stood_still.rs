//! A node whose process stood still, as on a machine that was suspended: it meets everybody again before it counts.

use serde_json::{Value, json};

use super::{Node, names, see_each_other, set_up_three, until};

const DOCUMENTS: usize = 50;

/// How many documents of the database a node has while the others hang.
fn held_alone(alone: &Node, others: [&Node; 2]) -> usize {
    others.iter().for_each(|node| node.signal("-STOP"));
    until("the others are missed", || alone.membership().0 == names(&[alone]));
    let rows = alone.get("/still/_all_docs").1["rows"].as_array().map_or(0, Vec::len);
    others.iter().for_each(|node| node.signal("-CONT"));
    rows
}

/// It cannot see that it stood still while it does, and what it had compared before does not count any more.
#[test]
fn a_node_that_stood_still_meets_everybody_again() {
    let [a, b, c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    assert_eq!(a.ask("PUT", "/still?q=2&n=3", &Value::Null).0, 201);
    let write = |node: &Node, name: &str| node.ask("PUT", &format!("/still/{name}"), &json!({}));
    assert_eq!(write(&c, "before").0, 201);
    c.signal("-STOP");
    until("the node is missed", || a.membership().0 == names(&[&a, &b]) && b.membership().0 == names(&[&a, &b]));
    for n in 0..DOCUMENTS {
        let (status, answer) = write([&a, &b][n % 2], &format!("d{n}"));
        assert!([201, 202].contains(&status), "{status} {answer}");
    }
    c.signal("-CONT");
    see_each_other(&[&a, &b, &c]);
    // The node may not have heard of these yet, and leaves them to the others until it has.
    for n in 0..DOCUMENTS {
        let (status, answer) = write(&c, &format!("d{n}"));
        assert_eq!((status, &answer["error"]), (409, &json!("conflict")), "{answer}");
    }
    until("the node has all of them", || {
        see_each_other(&[&a, &b, &c]);
        held_alone(&c, [&a, &b]) == DOCUMENTS + 1
    });
}
