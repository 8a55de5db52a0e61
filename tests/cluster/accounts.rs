//! The recorded accounts of a cluster of CouchDB 3.5 with nodes down, hung, returning, in maintenance and removed
//! (`conformance/cases/cluster/account-*.json`), replayed one after the other on one cluster of real processes.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::{Node, names, see_each_other, set_up_three, until};

/// In the order in which they were recorded: each goes on where the one before ended.
const ACCOUNTS: [&str; 6] = ["quorums", "one-down", "two-down", "nodes-return", "one-suspended", "maintenance-removal"];

/// Where settee answers otherwise: what is asked, the status, and why.
const OURS: [(&str, u16, &str); 6] = [
    ("GET /cdb/a?r=x", 400, "what is no number is refused"),
    ("PUT /cdb/e?w=x", 400, "what is no number is refused"),
    ("PUT /cdb/_revs_limit", 200, "a majority is enough, as for the security object"),
    ("GET /newonetwo/_shards", 200, "every node knows the map"),
    ("GET /hdb/a?r=3", 200, "no read waits longer than the suspicion of a node"),
    ("GET /_all_dbs", 200, "the names are on every node"),
];
/// What has tests of its own.
const ELSEWHERE: [&str; 2] = ["/_reshard", "/_node/_local/_dbs/"];
/// Takes effect here: the revision need not be given.
const WITHOUT_REV: &str = "DELETE /_node/_local/_nodes/n3@127.0.0.1";

#[derive(Deserialize)]
struct Account {
    steps: Vec<Step>,
}

/// Something that is asked of a node, or happens.
#[derive(Deserialize)]
struct Step {
    #[serde(default)]
    on: String,
    #[serde(default, rename = "do")]
    asked: String,
    #[serde(default)]
    body: Value,
    response: Option<Answer>,
    event: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    status: u16,
}

/// The node that a name like `n2` means, counted from 0.
fn number(name: &str) -> usize {
    let number: usize = name.trim_start_matches('n').parse().unwrap_or_else(|_| panic!("{name} is no node"));
    number - 1
}

impl Step {
    fn ask(&self, nodes: &[Node; 3]) -> (u16, Value) {
        let (method, target) = self.asked.split_once(' ').expect("a method and a target");
        nodes[number(&self.on)].ask(method, target, &self.body)
    }

    /// The status that settee answers with.
    fn expected(&self) -> u16 {
        let ours = OURS.iter().find(|(asked, ..)| self.asked.starts_with(asked)).map(|(_, status, _)| *status);
        ours.unwrap_or_else(|| self.response.as_ref().expect("an answer").status)
    }

    /// Asks, until the answer is right if `patient`; tells what is wrong with it.
    fn run(&self, nodes: &[Node; 3], patient: bool) -> Option<String> {
        if patient {
            until(&self.asked, || self.ask(nodes).0 == self.expected());
            return None;
        }
        if self.asked.starts_with("PUT") && self.asked.ends_with("w=3") && self.expected() == 201 {
            self.wait_for_all_copies(nodes);
        }
        let mut answer = self.ask(nodes);
        // The only copies of the recorded databases with n=1 lay on the second node.
        while self.asked.starts_with("PUT") && self.asked.ends_with("n=1") && !self.is_on(nodes, 1) {
            let database = self.database();
            nodes[0].ask("DELETE", database, &Value::Null);
            answer = self.ask(nodes);
        }
        let wrong = || format!("{} {} = {}: {answer:?}", self.on, self.asked, self.expected());
        (answer.0 != self.expected()).then(wrong)
    }

    /// A node that comes out of maintenance counts again when it has caught up: other documents are written until then.
    fn wait_for_all_copies(&self, nodes: &[Node; 3]) {
        let tries = std::cell::Cell::new(0);
        until("all copies take a write", || {
            tries.set(tries.get() + 1);
            let target = format!("{}-before-{}?w=3", self.database(), tries.get());
            nodes[number(&self.on)].ask("PUT", &target, &serde_json::json!({})).0 == 201
        });
    }

    fn database(&self) -> &str {
        self.asked.split([' ', '?']).nth(1).expect("a target")
    }

    fn is_on(&self, nodes: &[Node; 3], place: usize) -> bool {
        nodes[0].get(&format!("{}/_shards", self.database())).1.to_string().contains(&nodes[place].name)
    }
}

/// What an account says of a node between the questions; words that tell when it was noted do nothing.
fn happens(event: &str, nodes: &mut [Node; 3]) {
    match event.split_once(' ') {
        Some(("kill", node)) => {
            nodes[number(node)].kill();
            let gone = nodes[number(node)].name.clone();
            until(event, || !nodes[0].membership().0.contains(&gone));
        }
        Some(("start", node)) => nodes[number(node)].run(),
        Some((node, what)) if what.starts_with("suspended") => nodes[number(node)].signal("-STOP"),
        _ => {}
    }
}

fn read(account: &str) -> Account {
    let cases = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance/cases/cluster");
    let text = std::fs::read(cases.join(format!("account-{account}.json"))).expect("an account");
    serde_json::from_slice(&text).expect("an account")
}

#[test]
fn a_cluster_answers_as_was_recorded_while_nodes_come_and_go() {
    let mut nodes = set_up_three();
    see_each_other(&[&nodes[0], &nodes[1], &nodes[2]]);
    let mut wrong: Vec<String> = Vec::new();
    for account in ACCOUNTS {
        for step in read(account).steps {
            if let Some(event) = &step.event {
                happens(event, &mut nodes);
                continue;
            }
            if account == "one-suspended" && step.on == "n3" {
                nodes[2].signal("-CONT");
                until("it is there again", || nodes[0].membership().0.contains(&nodes[2].name));
            }
            if step.asked == WITHOUT_REV || ELSEWHERE.iter().any(|place| step.asked.contains(place)) {
                continue;
            }
            // What takes its time: nodes that return, names that go.
            let patient = account == "nodes-return" && step.asked.starts_with("GET")
                || step.on == "n3" && step.asked.contains("/h1");
            wrong.extend(step.run(&nodes, patient).map(|wrong| format!("{account}: {wrong}")));
        }
        let [a, b, c] = &nodes;
        if [a, b, c].iter().all(|node| node.child.is_some()) {
            until("all are there", || a.membership().0 == names(&[a, b, c]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
