//! The secret of cookies is replaced on all nodes while clients work: nobody is logged out.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{LIMIT, Node, names, see_each_other, set_up_three, until};

/// What a session writes through one node is shown to it by any other one, or it is told that it cannot be; others are
/// shown what the node has.
#[test]
fn a_session_reads_what_it_wrote_through_another_node() {
    let [mut a, mut b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    for node in [&a, &b, &c] {
        let set = node.ask("PUT", "/_node/_local/_config/cluster/session_reads", &json!("true"));
        assert_eq!(set.0, 200, "{set:?}");
    }
    assert_eq!(a.ask("PUT", "/d?q=1&n=3", &Value::Null).0, 201);
    until("all nodes know the database", || [&b, &c].iter().all(|node| node.get("/d").0 == 200));
    let session = log_in(&a.at);
    // Only the first node has the document.
    b.kill();
    c.kill();
    let written = exchange(&a.at, "PUT", "/d/mine?w=1", &format!("Cookie: {session}"), "{}");
    let reads = written.split_once("SetteeReads=").map(|(_, rest)| rest.split(';').next().unwrap_or_default());
    let reads = reads.unwrap_or_else(|| panic!("no tokens: {written}"));
    a.kill();
    b.run();
    c.run();
    // The administrator's salt is that of the command line again.
    let session = log_in(&b.at);
    let both = format!("Cookie: {session}; SetteeReads={reads}");
    let list = |cookies: &str| exchange(&b.at, "GET", "/d/_all_docs", cookies, "");
    until("it serves without the first node", || list(&format!("Cookie: {session}")).contains("200 OK"));
    assert!(!list(&format!("Cookie: {session}")).contains("mine"), "it lacks the document");
    let refused = list(&both);
    assert!(refused.contains("503 Service") && refused.contains("token_not_met"), "{refused}");
    assert!(refused.contains("SetteeReads=;"), "the session goes on: {refused}");
    a.run();
    until("it shows the document", || {
        let shown = list(&both);
        assert!(!shown.contains("200 OK") || shown.contains("mine"), "{shown}");
        shown.contains("200 OK")
    });
}

/// A request without Basic credentials; the answer as it is, since cookies count by upper and lower case.
fn exchange(at: &str, method: &str, target: &str, header: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(at).expect("the node listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAccept: application/json\r\n{header}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(head.as_bytes()).expect("the node reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the node answers");
    text
}

/// The session cookie that an answer sets.
fn cookie_of(answer: &str) -> Option<String> {
    let (_, rest) = answer.split_once("AuthSession=")?;
    Some(format!("AuthSession={}", rest.split(';').next()?))
}

fn log_in(at: &str) -> String {
    let answer = exchange(at, "POST", "/_session", "X-None: 1", r#"{"name":"adm","password":"pass"}"#);
    cookie_of(&answer).unwrap_or_else(|| panic!("no session: {answer}"))
}

/// Whether a node knows the session; and the cookie that it renews it with.
fn holds(at: &str, cookie: &str) -> (bool, Option<String>) {
    let answer = exchange(at, "GET", "/_session", &format!("Cookie: {cookie}"), "");
    (answer.contains(r#""name":"adm""#), cookie_of(&answer))
}

/// Asks one node after the other with the cookie that came last, until the end.
fn poll(nodes: &[String], first: usize, ended: &AtomicBool, asked: &AtomicUsize) -> String {
    let mut cookie = log_in(&nodes[first]);
    let mut turn = first;
    while !ended.load(Ordering::Relaxed) {
        let (is_known, renewed) = holds(&nodes[turn % nodes.len()], &cookie);
        assert!(is_known, "logged out by node {} at turn {turn}", turn % nodes.len());
        cookie = renewed.unwrap_or(cookie);
        turn += 1;
        asked.fetch_add(1, Ordering::Relaxed);
    }
    cookie
}

fn setting(node: &Node, key: &str) -> Value {
    node.get(&format!("/_node/_local/_config/chttpd_auth/{key}")).1
}

/// Three rotations, from different nodes, with three clients at work.
fn rotate_with_clients(nodes: [&Node; 3]) -> Vec<String> {
    let addresses: Vec<String> = nodes.iter().map(|node| node.at.clone()).collect();
    let (ended, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (addresses, ended, asked) = (&addresses, &ended, &asked);
        let clients: Vec<_> = (0..3).map(|n| scope.spawn(move || poll(addresses, n, ended, asked))).collect();
        let more = || {
            let before = asked.load(Ordering::Relaxed);
            until("the clients go on", || {
                asked.load(Ordering::Relaxed) > before + 20 || clients.iter().any(|client| client.is_finished())
            });
        };
        let mut secrets = vec![setting(nodes[0], "secret")];
        for node in nodes {
            more();
            let (status, answer) = node.ask("POST", "/_cluster/rotate_secret", &Value::Null);
            assert_eq!((status, &answer["nodes"]), (200, &json!(names(&nodes))), "{answer}");
            let now = nodes.map(|node| setting(node, "secret"));
            assert!(now.iter().all(|secret| *secret == now[0]) && !secrets.contains(&now[0]), "{now:?}");
            secrets.push(now[0].clone());
        }
        more();
        ended.store(true, Ordering::Relaxed);
        clients.into_iter().map(|client| client.join().expect("it is never logged out")).collect()
    })
}

#[test]
fn a_new_secret_on_all_nodes_ends_no_session_and_the_end_of_the_former_ones_those_that_were_idle() {
    let [a, b, mut c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    let idle = log_in(&b.at);
    let used = rotate_with_clients([&a, &b, &c]);
    // One that was away all the time is renewed at once.
    let (is_known, renewed) = holds(&c.at, &idle);
    assert!(is_known && renewed.is_some_and(|renewed| holds(&a.at, &renewed) == (true, None)));
    let full = a.ask("POST", "/_cluster/rotate_secret", &Value::Null);
    assert_eq!((full.0, &full.1["error"]), (409, &json!("conflict")), "{full:?}");
    // A node that is away would come back with what it had.
    c.kill();
    until("the dead node is missed", || a.membership().0 == names(&[&a, &b]));
    for method in ["POST", "DELETE"] {
        let down = a.ask(method, "/_cluster/rotate_secret", &Value::Null);
        assert_eq!((down.0, &down.1["reason"]), (412, &json!("n3@127.0.0.1 is down")), "{down:?}");
    }
    c.run();
    see_each_other(&[&a, &b, &c]);
    // What was changed outlives the process; the administrator's salt does not, since that of the command line counts.
    for key in ["secret", "accepted_secrets"] {
        assert_eq!(setting(&c, key), setting(&a, key), "{key}");
    }
    assert!([&a, &b].iter().zip(&used).all(|(node, cookie)| holds(&node.at, cookie) == (true, None)));
    assert_eq!(b.ask("DELETE", "/_cluster/rotate_secret", &Value::Null), (200, json!({"ok": true})));
    assert_eq!(setting(&c, "accepted_secrets")["reason"], "unknown_config_value");
    for (node, cookie) in [&a, &b].iter().zip(&used) {
        assert_eq!(setting(node, "accepted_secrets")["reason"], "unknown_config_value");
        assert!(!holds(&node.at, &idle).0 && holds(&node.at, cookie).0);
    }
}

/// As a rotation leaves it that was broken off: one node has the new secret, and all accept both.
#[test]
fn a_rotation_that_was_broken_off_is_finished_by_asking_again() {
    let [a, b, c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    let step = |node: &Node, step: Value| a.ask("POST", &format!("/_node/{}/_rotate_secret", node.name), &step);
    for node in [&a, &b, &c] {
        assert_eq!(step(node, json!({"step": "accept", "secret": "half-way"})).0, 200);
    }
    let told = step(&b, json!({"step": "look"})).1;
    let digest = told["accepted"][0].clone();
    assert_eq!(step(&b, json!({"step": "use", "digest": digest})).0, 200);
    assert_eq!(setting(&b, "secret"), "half-way");
    // A drop that looked before `half-way` was accepted leaves it.
    let present = told["present"].clone();
    assert_eq!(step(&a, json!({"step": "drop", "digest": present, "former": ["other"]})).0, 200);
    assert_eq!(setting(&a, "accepted_secrets"), "half-way");
    let differ = a.ask("DELETE", "/_cluster/rotate_secret", &Value::Null);
    assert_eq!(differ.0, 409, "{differ:?}");
    let sessions = [&a, &b, &c].map(|node| log_in(&node.at));
    assert_eq!(c.ask("POST", "/_cluster/rotate_secret", &Value::Null).0, 200);
    for node in [&a, &b, &c] {
        assert_eq!(setting(node, "secret"), setting(&a, "secret"));
        assert!(sessions.iter().all(|session| holds(&node.at, session).0));
    }
    assert_eq!(a.ask("DELETE", "/_cluster/rotate_secret", &Value::Null).0, 200);
    assert!(sessions.iter().all(|session| !holds(&a.at, session).0));
}

/// A node that cannot write its configuration: a rotation ends there, and leaves nothing on the others.
#[test]
fn a_rotation_that_breaks_off_before_its_secret_is_used_takes_it_back() {
    let [a, b, c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    assert_eq!(a.ask("POST", "/_cluster/rotate_secret", &Value::Null).0, 200);
    let before = [&a, &b, &c].map(|node| (setting(node, "secret"), setting(node, "accepted_secrets")));
    let sessions = [&a, &b, &c].map(|node| log_in(&node.at));
    // What takes the place of the file is written beside it first.
    let obstacle = c.data.path().join("local.ini.new");
    std::fs::create_dir(&obstacle).expect("a folder");
    for _ in 0..4 {
        let (status, answer) = b.ask("POST", "/_cluster/rotate_secret", &Value::Null);
        assert!(status == 500 && answer["reason"].to_string().contains("No session has ended; ask again."), "{answer}");
        let now = [&a, &b, &c].map(|node| (setting(node, "secret"), setting(node, "accepted_secrets")));
        assert_eq!(now, before);
    }
    let (status, answer) = b.ask("DELETE", "/_cluster/rotate_secret", &Value::Null);
    assert!(status == 500 && !answer["reason"].to_string().contains("No session"), "{answer}");
    std::fs::remove_dir(&obstacle).expect("it is empty");
    assert_eq!(b.ask("POST", "/_cluster/rotate_secret", &Value::Null).0, 200);
    assert!([&a, &b, &c].iter().all(|node| sessions.iter().all(|session| holds(&node.at, session).0)));
}

/// A secret that has leaked: what was made with it is renewed by no node.
#[test]
fn a_secret_that_has_leaked_is_replaced_on_all_nodes_and_its_sessions_end() {
    let [a, b, c] = set_up_three();
    see_each_other(&[&a, &b, &c]);
    let older = log_in(&a.at);
    assert_eq!(a.ask("POST", "/_cluster/rotate_secret", &Value::Null).0, 200);
    let forged = log_in(&b.at);
    let wrong = a.ask("POST", "/_cluster/rotate_secret?end_sessions=x", &Value::Null);
    assert_eq!((wrong.0, &wrong.1["error"]), (400, &json!("query_parse_error")));
    let (status, answer) = c.ask("POST", "/_cluster/rotate_secret?end_sessions=true", &Value::Null);
    assert_eq!((status, &answer["nodes"]), (200, &json!(names(&[&a, &b, &c]))), "{answer}");
    let session = log_in(&b.at);
    for node in [&a, &b, &c] {
        assert_eq!(setting(node, "secret"), setting(&a, "secret"));
        assert_eq!(setting(node, "accepted_secrets")["reason"], "unknown_config_value");
        assert_eq!([&older, &forged].map(|cookie| holds(&node.at, cookie)), [(false, None), (false, None)]);
        assert!(holds(&node.at, &session).0);
    }
}
