//! Three nodes that speak TLS with each other by `[cluster] tls = true` alone: one that is there, one that joins by the
//! command line, one that runs and joins by a request. What goes to the first of them is recorded on its way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{ADMIN, Node, add, see_each_other, until};

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
    let port = a.args.iter().position(|arg| arg == "--cluster-port").expect("a port") + 1;
    to.store(a.args[port].parse().expect("a number"), Ordering::SeqCst);
    let b = with(&["--join".to_owned(), way.clone(), "--token".to_owned(), token(&a)], "n2");
    let c = with(&["--set".to_owned(), ADMIN.to_owned()], "n3");
    let ask = |token: &str| c.set_up(&json!({"action": "join_cluster", "address": way, "token": token}));
    let (status, refused) = ask("settee-join-no-token");
    assert_eq!((status, &refused["reason"]), (400, &json!("cannot join: that is no join token")));
    assert_eq!(c.state(), "cluster_disabled", "it stays what it was");
    assert_eq!(c.get("/_users").0, 200);
    let (status, answer) = ask(&token(&a));
    assert_eq!(status, 201, "{answer}");
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
