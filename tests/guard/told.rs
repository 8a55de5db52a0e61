//! What an operator finds in the log, and which settings a node refuses.

use std::time::Instant;

use tempfile::TempDir;

use crate::node::{ADMIN, Node, refused};

/// Was: no line about a request at any level, none about a failed login.
#[test]
fn requests_and_failed_logins_are_in_the_log() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &["--set", "log/requests=info"]);
    node.must("PUT", "/db", "");
    node.ask(ADMIN, "GET", "/db/none?secret=Sesame", "");
    let begun = Instant::now();
    for n in 0..30 {
        assert_eq!(node.ask(&format!("guess{n}:wrong-Sesame"), "GET", "/db", "").status, 401);
    }
    let (_, log) = node.end("-TERM");
    let line = log.lines().find(|line| line.contains("/db/none")).unwrap_or_else(|| panic!("{log}"));
    for part in ["request", "method=\"GET\"", "status=404", "ms=", "user=\"adm\"", "peer=127.0.0.1:", "id=\""] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let failed = log.lines().filter(|line| line.contains("a login failed")).count();
    // Ten in each ten seconds.
    let most = 10 * (begun.elapsed().as_secs() / 10 + 2) as usize;
    assert!((1..=most.min(29)).contains(&failed), "{failed}");
    assert!(log.contains("name=\"guess0\" peer=\"127.0.0.1\""), "{log}");
    assert!(!log.contains("Sesame"), "{log}");
}

/// Was: nothing told what administrators change.
#[test]
fn what_administrators_change_is_in_the_log_and_no_value_of_it() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    node.must("PUT", "/db", "");
    node.must("PUT", "/_node/_local/_config/fuzz/key", "\"Sesame\"");
    node.must("PUT", "/db/doc", "{}");
    node.must("POST", "/db/_bulk_docs", r#"{"docs":[{"_id":"_design/one"},{"_id":"x"},{"_id":"_design/two"}]}"#);
    // It is there already.
    node.must("POST", "/db/_bulk_docs", r#"{"docs":[{"_id":"_design/one"}]}"#);
    node.must("GET", "/_node/_local/_config", "");
    assert_eq!(node.ask("who:wrong", "PUT", "/other", "").status, 401);
    let (_, log) = node.end("-TERM");
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("audit")).collect();
    assert_eq!(lines.len(), 4, "{log}");
    for (line, design) in lines[2..].iter().zip(["one", "two"]) {
        let path = format!("method=\"POST\" path=\"/db/_design/{design}\" status=201 user=\"adm\"");
        assert!(line.contains(&path), "{line}");
    }
    for part in
        ["path=\"/_node/_local/_config/fuzz/key\"", "method=\"PUT\"", "status=200", "user=\"adm\"", "peer=127.0.0.1:"]
    {
        assert!(lines[1].contains(part), "{part}: {}", lines[1]);
    }
    assert!(!log.contains("Sesame"), "{log}");
}

/// Was: taken without a word; `require_valid_user=yes` left the door open.
#[test]
fn values_that_no_option_takes_are_refused_at_the_start_and_in_requests() {
    let dir = TempDir::new().expect("a directory");
    for setting in [
        "log/level=bogus",
        "settee/memory_mb=-5",
        "settee/disk_reserve_mb=8",
        "couchdb/max_document_size=banana",
        "chttpd/require_valid_user=True",
        "chttpd/require_valid_user=yes",
    ] {
        let (status, told) = refused(dir.path(), &["--set", setting]);
        let (option, value) = setting.split_once('=').expect("an option");
        let (section, key) = option.split_once('/').expect("a section");
        assert_eq!(status, Some(1), "{told}");
        assert!(told.contains(&format!("[{section}] {key} = {value}: expected")), "{told}");
    }
    let node = Node::start(dir.path(), &["--set", "nothing/known=1"]);
    for (option, value) in [("chttpd/require_valid_user", "yes"), ("couchdb/max_document_size", "-1")] {
        let answer = node.ask(ADMIN, "PUT", &format!("/_node/_local/_config/{option}"), &format!("\"{value}\""));
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!(answer.json()["error"], "bad_request");
    }
    std::fs::write(dir.path().join("local.ini"), "[chttpd]\nrequire_valid_user = yes\n").expect("written");
    assert_eq!(node.ask(ADMIN, "POST", "/_node/_local/_config/_reload", "").status, 400);
    let (_, log) = node.end("-TERM");
    assert!(log.contains("[nothing] known"), "{log}");
}
