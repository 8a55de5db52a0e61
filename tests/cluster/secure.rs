//! Three nodes that speak TLS with each other by `[cluster] tls = true` alone: one that is there, one that joins by the
//! command line, one that runs and joins by a request. What goes to the first of them is recorded on its way.
//! Joins that fail.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{ADMIN, Node, add, refused, see_each_other, until};

type Recorded = Arc<Mutex<Vec<u8>>>;

fn copy(mut from: TcpStream, mut to: TcpStream, recorded: &Recorded) {
    let mut buffer = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        recorded.lock().expect("no panic").extend_from_slice(&buffer[..n]);
        if to.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
    // The other side may be gone already.
    let _ = to.shutdown(Shutdown::Write);
}

/// Passes connections on to the loopback port in `to` and records what goes either way; the address, and what was
/// recorded.
fn recorder(to: Arc<AtomicU16>) -> (String, Recorded) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("an address").to_string();
    let recorded = Recorded::default();
    let all = Arc::clone(&recorded);
    std::thread::spawn(move || {
        for here in listener.incoming().flatten() {
            let Ok(there) = TcpStream::connect(("127.0.0.1", to.load(Ordering::SeqCst))) else { continue };
            let (Ok(back), Ok(forth)) = (here.try_clone(), there.try_clone()) else { continue };
            let (one, other) = (Arc::clone(&all), Arc::clone(&all));
            std::thread::spawn(move || copy(here, there, &one));
            std::thread::spawn(move || copy(forth, back, &other));
        }
    });
    (at, recorded)
}

fn has(recorded: &Recorded, text: &str) -> bool {
    recorded.lock().expect("no panic").windows(text.len()).any(|bytes| bytes == text.as_bytes())
}

fn token(node: &Node) -> String {
    let (status, issued) = node.ask("POST", "/_cluster/join_token", &json!({}));
    assert_eq!(status, 201, "{issued}");
    issued["token"].as_str().expect("a token").to_owned()
}

fn cluster_port(node: &Node) -> String {
    let at = node.args.iter().position(|arg| arg == "--cluster-port").expect("a port") + 1;
    node.args[at].clone()
}

/// Three nodes with these settings beside, the first of which is reached by way of a recorder.
fn joined(settings: &[&str]) -> ([Node; 3], Recorded) {
    let to = Arc::new(AtomicU16::new(0));
    let (way, recorded) = recorder(Arc::clone(&to));
    let with = |more: &[String], name: &str| {
        let all: Vec<&str> = more.iter().map(String::as_str).chain(settings.iter().copied()).collect();
        Node::start(name, &all)
    };
    let first = ["--set", ADMIN, "--set", &format!("cluster/address={way}")].map(str::to_owned);
    let a = with(&first, "n1");
    to.store(cluster_port(&a).parse().expect("a number"), Ordering::SeqCst);
    let b = with(&["--join".to_owned(), way.clone(), "--token".to_owned(), token(&a)], "n2");
    let c = with(&["--set".to_owned(), ADMIN.to_owned()], "n3");
    let ask = |token: &str| c.set_up(&json!({"action": "join_cluster", "address": way, "token": token}));
    let (status, refused) = ask("settee-join-no-token");
    assert_eq!((status, &refused["reason"]), (400, &json!("cannot join: that is no join token")));
    assert_eq!(c.state(), "cluster_disabled", "it stays what it was");
    assert_eq!(c.get("/_users").0, 200);
    for (setting, value) in [("admins/own", "a password"), ("chttpd_auth/accepted_secrets", "of this node alone")] {
        assert_eq!(c.ask("PUT", &format!("/_node/_local/_config/{setting}"), &json!(value)).0, 200);
    }
    let (status, answer) = ask(&token(&a));
    assert_eq!(status, 201, "{answer}");
    assert_eq!(c.get("/_node/_local/_config/admins"), a.get("/_node/_local/_config/admins"));
    assert_eq!(c.get("/_node/_local/_config/chttpd_auth/accepted_secrets").1["reason"], "unknown_config_value");
    see_each_other(&[&a, &b, &c]);
    let (status, again) = ask(&token(&a));
    assert_eq!((status, &again["reason"]), (400, &json!("cannot join: this node belongs to another cluster already")));
    ([a, b, c], recorded)
}

/// Writes through the second node and reads through the third; what was written.
fn written_and_read([a, b, c]: &[Node; 3]) -> String {
    let marker = "a text that nobody else says";
    assert_eq!(b.ask("PUT", "/hidden?q=2&n=3", &Value::Null).0, 201);
    let (status, answer) = b.ask("PUT", "/hidden/doc", &json!({"text": marker}));
    assert_eq!(status, 201, "{answer}");
    until("the third node has it", || c.get("/hidden/doc").1["text"] == json!(marker));
    until("the first node has it", || a.get("/hidden/doc").1["text"] == json!(marker));
    marker.to_owned()
}

#[test]
fn the_switch_alone_encrypts_what_three_nodes_tell_each_other() {
    let (nodes, recorded) = joined(&["--set", "cluster/tls=true"]);
    let marker = written_and_read(&nodes);
    let [a, b, c] = &nodes;
    assert_eq!(recorded.lock().expect("no panic").first(), Some(&22), "a handshake of TLS");
    for text in [marker.as_str(), &a.name, &b.name, "hidden"] {
        assert!(!has(&recorded, text), "{text}");
    }
    let (status, answer) = a.set_up(&add(c));
    let reason = answer["reason"].as_str().unwrap_or_default();
    assert!(status == 400 && reason.contains("have it join"), "{answer}");
}

/// That the recorder sees what there is to see.
#[test]
fn without_it_others_read_what_nodes_tell_each_other() {
    let (nodes, recorded) = joined(&[]);
    let marker = written_and_read(&nodes);
    assert!(has(&recorded, &marker) && has(&recorded, "hidden"));
}

/// A node that has no cluster port when it starts, and is told afterwards which one it is to have.
fn without_port(name: &str) -> (Node, String) {
    let mut node = Node::new(name, &["--set", ADMIN]);
    let port = cluster_port(&node);
    node.args.retain(|arg| *arg != port && arg != "--cluster-port");
    node.run();
    assert_eq!(node.ask("PUT", "/_node/_local/_config/cluster/port", &json!(port)).0, 200);
    (node, port)
}

#[test]
fn a_join_that_fails_leaves_the_node_as_it_was() {
    let a = Node::start("n1", &["--set", ADMIN]);
    let way = format!("127.0.0.1:{}", cluster_port(&a));
    let (mut b, port) = without_port("n2");
    let security = json!({"members": {"names": ["of the operator"]}});
    assert_eq!(b.ask("PUT", "/_replicator/_security", &security).0, 200);
    let before = b.get("/_replicator/_security");
    let ask =
        |node: &Node, token: &str| node.set_up(&json!({"action": "join_cluster", "address": way, "token": token}));
    refused(ask(&b, "settee-join-no-token"), 400, "cannot join: that is no join token");
    let mut forged = token(&a);
    let last = if forged.pop() == Some('0') { '1' } else { '0' };
    forged.push(last);
    let (status, answer) = ask(&b, &forged);
    let reason = answer["reason"].as_str().unwrap_or_default();
    assert!(status == 400 && reason.starts_with("cannot join: "), "{answer}");
    let needed = "`address` and `token` must be strings that are not empty.";
    refused(b.set_up(&json!({"action": "join_cluster", "address": way})), 400, needed);
    refused(b.set_up(&json!({"action": "join_cluster", "token": token(&a)})), 400, needed);
    assert_eq!((b.state(), b.get("/_replicator/_security")), (json!("cluster_disabled"), before));
    TcpListener::bind(format!("127.0.0.1:{port}")).expect("the port is closed");
    assert_eq!(b.ask("DELETE", "/_node/_local/_config/cluster/port", &Value::Null).0, 200);
    let file = std::fs::read_to_string(b.data.path().join("local.ini")).expect("a file");
    let of_cluster = file.split("[cluster]").nth(1).and_then(|rest| rest.split("\n[").next()).unwrap_or_default();
    assert!(!of_cluster.contains("secret"), "{file}");

    // The same node joins at a later start.
    b.kill();
    b.args.extend(["--join".to_owned(), way.clone(), "--token".to_owned(), token(&a)]);
    b.args.extend(["--cluster-port".to_owned(), port]);
    b.run();
    see_each_other(&[&a, &b]);
    // One without a port opens it for the join.
    let (c, _) = without_port("n3");
    let (status, answer) = ask(&c, &token(&a));
    assert_eq!(status, 201, "{answer}");
    see_each_other(&[&a, &b, &c]);
}
