//! Documents at their largest size that a node missed while it was dead.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Node, names, see_each_other, set_up_three, until};

const DOCUMENTS: usize = 12;
/// Between two looks: a look stops the nodes from which the documents come.
const UNDISTURBED: Duration = Duration::from_secs(5);

/// What a node serves while the others hang.
fn served_alone(alone: &Node, others: [&Node; 2]) -> usize {
    others.iter().for_each(|node| node.signal("-STOP"));
    until("the others are missed", || alone.membership().0 == names(&[alone]));
    let rows = alone.get("/large/_all_docs").1["rows"].as_array().map_or(0, Vec::len);
    others.iter().for_each(|node| node.signal("-CONT"));
    rows
}

/// All were asked for in one call: the answer was beyond the largest message, for ever.
#[test]
fn large_documents_reach_a_node_that_was_dead() {
    let [a, b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    assert_eq!(a.ask("PUT", "/large?q=1&n=3", &Value::Null).0, 201);
    c.kill();
    let text = "0123456789abcdef".repeat(6_000_000 / 16);
    for n in 0..DOCUMENTS {
        let (status, answer) = [&a, &b][n % 2].ask("PUT", &format!("/large/d{n}"), &json!({"text": text, "n": n}));
        assert!([201, 202].contains(&status), "{status} {answer}");
    }
    c.run();
    until("the node has all of them", || {
        see_each_other(&[&a, &b, &c]);
        std::thread::sleep(UNDISTURBED);
        served_alone(&c, [&a, &b]) == DOCUMENTS
    });
    a.signal("-STOP");
    b.signal("-STOP");
    until("the others are missed", || c.membership().0 == names(&[&c]));
    let read = c.get("/large/d7").1;
    assert_eq!((read["n"].as_u64(), read["text"].as_str().map(str::len)), (Some(7), Some(text.len())));
}
