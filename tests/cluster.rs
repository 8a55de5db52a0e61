//! A cluster of real processes, as its operator sees it: set-up over HTTP, members, a node that dies, one that hangs,
//! one that joins by a token.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

#[path = "cluster/accounts.rs"]
mod accounts;
#[path = "served/answer.rs"]
mod answer;
#[path = "served/panics.rs"]
mod panics;
#[path = "served/ports.rs"]
mod ports;
#[path = "cluster/replications.rs"]
mod replications;
#[path = "cluster/reshard.rs"]
mod reshard;
#[path = "cluster/search.rs"]
mod search;
#[path = "cluster/secure.rs"]
mod secure;
#[path = "cluster/sessions.rs"]
mod sessions;
#[path = "cluster/sizes.rs"]
mod sizes;
#[path = "cluster/stood_still.rs"]
mod stood_still;

use ports::free_port;

/// `adm`, `pass`, with few rounds: what is tested is not PBKDF2.
const ADMIN: &str =
    "admins/adm=-pbkdf2:sha256-129be219469150ccc09b580c633cd7e0b4f6fcaf8aba9efa5106148af327985b,scripts,10";
const CREDENTIALS: &str = "YWRtOnBhc3M=";
/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

struct Node {
    name: String,
    data: TempDir,
    args: Vec<String>,
    child: Option<Child>,
    /// `host:port` of its HTTP.
    at: String,
    /// Of all its processes; dropped when the last one is gone.
    log: panics::Log,
}

impl Node {
    fn start(name: &str, more: &[&str]) -> Node {
        let mut node = Node::new(name, more);
        node.run();
        node
    }

    /// A node that does not run yet.
    fn new(name: &str, more: &[&str]) -> Node {
        let data = TempDir::new().expect("a directory");
        let mut args: Vec<String> = vec!["serve".into(), "--data".into(), data.path().to_str().expect("text").into()];
        args.extend(["--node".to_owned(), format!("{name}@127.0.0.1"), "--port".to_owned(), free_port().to_string()]);
        args.extend(["--cluster-port".to_owned(), free_port().to_string()]);
        for setting in ["cluster/heartbeat_ms=100", "cluster/suspect_ms=4000", "chttpd_auth/iterations=10"] {
            args.extend(["--set".to_owned(), setting.to_owned()]);
        }
        args.extend(more.iter().map(|text| (*text).to_owned()));
        Node { name: format!("{name}@127.0.0.1"), data, args, child: None, at: String::new(), log: panics::Log::new() }
    }

    /// Starts the process and waits for its line.
    fn run(&mut self) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(self.log.stdio())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let (_, at) = line.trim().split_once(" is ready at http://").expect("a line of readiness");
        self.at = at.trim_end_matches('/').to_owned();
        self.child = Some(child);
    }

    fn port(&self) -> u16 {
        self.at.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port")
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().expect("kill runs").success());
    }

    fn ask(&self, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.at).expect("the node listens");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let head = format!(
            "{method} {target} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAuthorization: Basic {CREDENTIALS}\r\n\
             Accept: application/json\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.at,
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("the node reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the node answers");
        let answer = answer::parse(&text);
        (answer.status, serde_json::from_str(&answer.body).unwrap_or(Value::Null))
    }

    fn get(&self, target: &str) -> (u16, Value) {
        self.ask("GET", target, &Value::Null)
    }

    fn set_up(&self, action: &Value) -> (u16, Value) {
        self.ask("POST", "/_cluster_setup", action)
    }

    fn state(&self) -> Value {
        self.get("/_cluster_setup").1["state"].clone()
    }

    fn membership(&self) -> (Vec<String>, Vec<String>) {
        let found = self.get("/_membership").1;
        let names = |field: &str| serde_json::from_value(found[field].clone()).expect("names");
        (names("all_nodes"), names("cluster_nodes"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn names(nodes: &[&Node]) -> Vec<String> {
    nodes.iter().map(|node| node.name.clone()).collect()
}

fn see_each_other(nodes: &[&Node]) {
    for node in nodes {
        until(&format!("{} sees all", node.name), || node.membership() == (names(nodes), names(nodes)));
    }
}

fn enable() -> Value {
    json!({"action": "enable_cluster", "bind_address": "127.1", "username": "adm", "password": "pass", "node_count": 3})
}

fn add(node: &Node) -> Value {
    json!({"action": "add_node", "host": "127.0.0.1", "port": node.port(), "username": "adm", "password": "pass"})
}

fn refused(answer: (u16, Value), status: u16, reason: &str) {
    assert_eq!((answer.0, answer.1["reason"].as_str()), (status, Some(reason)), "{answer:?}");
}

/// Three nodes on their own become a cluster; what does not fit is refused on the way.
fn set_up_three() -> [Node; 3] {
    let [a, b, c] = ["n1", "n2", "n3"].map(|name| Node::start(name, &["--set", ADMIN]));
    assert_eq!(a.state(), "cluster_disabled");
    refused(a.set_up(&add(&b)), 400, "Cluster is not enabled.");
    for node in [&a, &b, &c] {
        assert_eq!(node.set_up(&enable()).0, 201);
        assert_eq!(node.state(), "cluster_enabled");
        refused(node.set_up(&enable()), 400, "Cluster is already enabled");
    }
    let mut wrong = add(&b);
    wrong["port"] = json!(1);
    refused(a.set_up(&wrong), 400, "Add node failed. Invalid Host and/or Port.");
    let mut wrong = add(&b);
    wrong["password"] = json!("bad");
    assert_eq!(a.set_up(&wrong).0, 400);
    let mut wrong = add(&b);
    wrong["name"] = json!("other");
    refused(a.set_up(&wrong), 400, "Add node failed. The other node answers: It is called n2@127.0.0.1.");
    assert_eq!((a.membership().1, b.membership().1), (names(&[&a]), names(&[&b])), "nothing was added");
    let mut named = add(&b);
    named["name"] = json!("n2");
    assert_eq!(a.set_up(&named), (201, json!({"ok": true})));
    refused(a.set_up(&named), 409, "Document update conflict.");
    assert_eq!(a.membership().1, names(&[&a, &b]));
    assert_eq!(a.set_up(&add(&c)).0, 201);
    let accepted = "/_node/_local/_config/chttpd_auth/accepted_secrets";
    assert_eq!(b.ask("PUT", accepted, &json!("of this node alone")).0, 200);
    assert_eq!(a.set_up(&json!({"action": "finish_cluster"})), (201, json!({"ok": true})));
    assert_eq!(b.get(accepted).1["reason"], "unknown_config_value");
    assert_eq!(a.state(), "cluster_finished");
    refused(a.set_up(&json!({"action": "finish_cluster"})), 400, "Cluster is already finished");
    [a, b, c]
}

#[test]
fn three_nodes_are_set_up_and_one_dies_hangs_and_returns() {
    let [a, b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    for setting in ["couchdb/uuid", "chttpd_auth/secret", "admins/adm"] {
        let value = |node: &Node| node.get(&format!("/_node/_local/_config/{setting}"));
        assert_eq!((value(&b), value(&c)), (value(&a), value(&a)), "{setting}");
    }
    assert_eq!(a.get("/").1["uuid"], c.get("/").1["uuid"]);

    // The resources of a node are there on every node, and secrets nowhere.
    let put = a.ask("PUT", "/_node/n3@127.0.0.1/_config/section/key", &json!("a value"));
    assert_eq!(put, (200, json!("")));
    assert_eq!(c.get("/_node/_local/_config/section/key"), (200, json!("a value")));
    assert_eq!(b.get("/_node/n3@127.0.0.1/_config/section"), (200, json!({"key": "a value"})));
    assert_eq!(b.get("/_node/n3@127.0.0.1"), (200, json!({"name": "n3@127.0.0.1"})));
    assert_eq!(b.get("/_node/n3@127.0.0.1/_config/nothing/here").0, 404);
    assert_eq!(b.get("/_node/n3@127.0.0.1/_config/cluster/secret").0, 404);
    assert!(!a.get("/_node/_local/_config").1.to_string().contains("join_token"));
    assert_eq!(a.get("/_node/_local/_config/cluster").1.get("secret"), None);
    refused(a.get("/_node/nope@127.0.0.1/_versions"), 404, "no such node: nope@127.0.0.1");

    replications::are_shared([&a, &b, &c]);
    replications::run_once_and_are_cancelled_from_anywhere([&a, &b, &c]);
    c.kill();
    for node in [&a, &b] {
        until("the dead node is missed", || node.membership() == (names(&[&a, &b]), names(&[&a, &b, &c])));
    }
    let down = a.get("/_node/n3@127.0.0.1/_versions");
    assert_eq!(down.1["error"], "nodedown");
    refused(down, 412, "n3@127.0.0.1 is down");
    replications::moved_to([&a, &b]);
    c.run();
    see_each_other(&[&a, &b, &c]);

    b.signal("-STOP");
    until("the hung node is missed", || a.membership().0 == names(&[&a, &c]));
    b.signal("-CONT");
    see_each_other(&[&a, &b, &c]);
}

#[test]
fn a_removal_by_force_that_was_broken_off_is_finished_by_asking_again() {
    let [a, mut b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    b.kill();
    c.kill();
    until("both are missed", || a.membership().0 == names(&[&a]));
    let remove =
        |node: &Node, query: &str| a.ask("DELETE", &format!("/_node/_local/_nodes/{}{query}", node.name), &Value::Null);
    assert_eq!(remove(&b, "").0, 503);
    let forced = remove(&b, "?force=true");
    assert_eq!(forced.0, 200);
    // Whoever asks again cannot know how far it got.
    assert_eq!(remove(&b, "?force=true"), forced);
    assert_eq!(remove(&b, "").0, 404);
    assert_eq!(remove(&c, "?force=true").0, 200);
    assert_eq!(remove(&c, "?force=true").0, 404, "a majority of those who vote is there, and decided so");
}

#[test]
fn nodes_that_know_each_other_from_seeds_give_a_replication_one_id() {
    let secret = ["--set", ADMIN, "--set", "cluster/secret=0123456789abcdef"];
    let a = Node::start("n1", &secret);
    let at = a.args.iter().position(|arg| arg == "--cluster-port").expect("a port") + 1;
    let seed = format!("cluster/seeds=n1@127.0.0.1=127.0.0.1:{}", a.args[at]);
    let b = Node::start("n2", &[&secret[..], &["--set", &seed]].concat());
    see_each_other(&[&a, &b]);
    until("one uuid", || a.get("/").1["uuid"] == b.get("/").1["uuid"]);
    assert_eq!(a.ask("PUT", "/src", &Value::Null).0, 201);
    let order = json!({"source": "src", "target": "dst", "create_target": true, "continuous": true});
    let [first, second] = [&a, &b].map(|node| {
        // Of this node, whichever it belongs to.
        let (status, started) = node.ask("POST", "/_node/_local/_replicate", &order);
        assert_eq!(status, 202, "{started}");
        started["_local_id"].clone()
    });
    assert_eq!(first, second);
}

#[test]
fn a_node_joins_by_a_token_of_the_command_line_and_members_are_documents() {
    let a = Node::start("n1", &["--set", ADMIN]);
    let data = a.data.path().to_str().expect("text");
    let token = Command::new(env!("CARGO_BIN_EXE_settee")).args(["token", "--data", data]).output().expect("it runs");
    let token = String::from_utf8(token.stdout).expect("text");
    let issued = a.ask("POST", "/_cluster/join_token", &json!({}));
    assert_eq!((issued.0, issued.1["expires_in"].as_u64()), (201, Some(3600)));
    let address = issued.1["address"].as_str().expect("an address").to_owned();
    let b = Node::start("n2", &["--join", &address, "--token", token.trim()]);
    see_each_other(&[&a, &b]);
    assert_eq!(b.get("/_node/_local/_config/admins"), a.get("/_node/_local/_config/admins"));

    // The first node made its system databases alone.
    let replicas = || a.get("/_users").1["cluster"]["n"].clone();
    until("the accounts have a replica on each node", || replicas() == json!(2));

    // Members are documents with the revisions of CouchDB.
    let (first, second) = ("1-967a00dff5e02add41819138abb3284d", "2-eec205a9d413992850a6e32678485900");
    let ghost = "/_node/_local/_nodes/ghost@127.0.0.1";
    assert_eq!(a.ask("PUT", ghost, &json!({})), (201, json!({"ok": true, "id": "ghost@127.0.0.1", "rev": first})));
    refused(a.ask("PUT", ghost, &json!({})), 409, "Document update conflict.");
    until("the ghost is known", || b.membership().1.len() == 3);
    let voters = |node: &Node| node.get("/_cluster/voters").1["nodes"].as_array().map(Vec::len);
    until("who never joined does not vote", || [&a, &b].iter().all(|node| voters(node) == Some(2)));
    assert_eq!(b.get(ghost), (200, json!({"_id": "ghost@127.0.0.1", "_rev": first})));
    let all = b.get("/_node/_local/_nodes/_all_docs").1;
    assert_eq!((all["total_rows"].as_u64(), &all["rows"][0]["value"]), (Some(3), &json!({"rev": first})));
    refused(b.ask("DELETE", &format!("{ghost}?rev=1-x"), &Value::Null), 409, "Document update conflict.");
    let gone = b.ask("DELETE", &format!("{ghost}?rev={first}"), &Value::Null);
    assert_eq!(gone, (200, json!({"ok": true, "id": "ghost@127.0.0.1", "rev": second})));
    until("the ghost is gone", || a.membership().1.len() == 2);
    assert_eq!((voters(&a), voters(&b)), (Some(2), Some(2)));
    refused(a.get(ghost), 404, "deleted");
    let again = a.ask("PUT", ghost, &Value::Null);
    assert_eq!(again.1["rev"], "3-5570e8bbb34412db757c2df4bfa1099b");
    refused(a.get("/_node/ghost@127.0.0.1/_versions"), 412, "ghost@127.0.0.1 is down");
}
