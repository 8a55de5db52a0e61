//! What a hostile client can make a node hold: the program as a process of its own, whose memory is read from /proc.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::served::panics::Log;
use crate::served::{ADMIN, Answer, exchange, request};

/// Megabytes that a node may take above those that it takes at rest: all budgets together.
const GROWTH_MB: u64 = 900;

struct Program {
    child: Child,
    address: SocketAddr,
    _data: tempfile::TempDir,
    // Looked at when the process is gone.
    _log: Log,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It is gone already where the test is about that.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// A node with a database `d` that is open to anybody.
    fn start(settings: &[&str]) -> Program {
        let (data, log) = (tempfile::tempdir().expect("a directory"), Log::new());
        let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
        command.args(["serve", "--port", "0", "--set", "chttpd_auth/iterations=1", "--admin", ADMIN]);
        for setting in settings {
            command.args(["--set", setting]);
        }
        let command = command.arg("--data").arg(data.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.stderr(log.stdio()).spawn().expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.trim().trim_end_matches('/').parse().ok());
        let program = Program { child, address: address.unwrap_or_else(|| panic!("{line}")), _data: data, _log: log };
        program.must("PUT", "/d?q=1", "");
        program.must("PUT", "/d/_security", r#"{"admins":{"roles":[]},"members":{"roles":[]}}"#);
        program
    }

    fn ask(&self, who: &str, method: &str, target: &str, body: &str) -> Answer {
        exchange(self.address, &request(who, method, target, &[], body))
    }

    fn must(&self, method: &str, target: &str, body: &str) -> Answer {
        let answer = self.ask(ADMIN, method, target, body);
        assert!(answer.status < 300, "{method} {target}: {answer:?}");
        answer
    }

    /// Sends a zipped body as a stranger and does not wait for the answer.
    fn send_zipped(&self, target: &str, text: &str) -> TcpStream {
        let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
        zip.write_all(text.as_bytes()).expect("into memory");
        let body = zip.finish().expect("into memory");
        let mut stream = TcpStream::connect(self.address).expect("the node listens");
        stream.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).expect("the node reads");
        stream
    }

    /// The largest part of its memory that was resident so far, in megabytes.
    fn peak_mb(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
    }
}

fn status_of(mut stream: TcpStream) -> u16 {
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("the node answers");
    text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

#[test]
fn bodies_of_millions_of_tiny_values_take_no_gigabytes() {
    let node = Program::start(&[]);
    let rest = node.peak_mb();
    let many = |element: &str, count: usize| vec![element; count].join(",");
    for (target, text) in [
        ("/d/_bulk_docs", format!(r#"{{"docs":[{}]}}"#, many("{}", 3_900_000))),
        ("/d/_find", format!(r#"{{"selector":{{"$or":[{}]}}}}"#, many("{}", 2_000_000))),
        ("/d/_all_docs?limit=1", format!(r#"{{"keys":[{}]}}"#, many("1", 8_000_000))),
        ("/d/_revs_diff", format!(r#"{{"a":[{}]}}"#, many("\"1-a\"", 4_000_000))),
        ("/d/_bulk_get", format!(r#"{{"docs":[{}]}}"#, many("{}", 3_000_000))),
        ("/d/_index/_bulk_delete", format!(r#"{{"docids":[{}]}}"#, many("\"a\"", 2_000_000))),
    ] {
        assert_eq!(status_of(node.send_zipped(target, &text)), 413, "{target}");
        let grown = node.peak_mb() - rest;
        assert!(grown < GROWTH_MB, "{target}: {grown} MB");
    }
}

#[test]
fn a_long_bulk_request_is_written_whole_and_in_order() {
    let node = Program::start(&[]);
    let docs: Vec<String> = (0..5_000).map(|n| format!(r#"{{"_id":"{n:05}"}}"#)).collect();
    let body = format!(r#"{{"docs":[{},{{"_id":"00000"}}]}}"#, docs.join(","));
    let answer = node.must("POST", "/d/_bulk_docs", &body).json();
    let rows = answer.as_array().expect("rows");
    assert_eq!(rows.len(), 5_001);
    assert!(rows[..5_000].iter().enumerate().all(|(n, row)| row["id"] == format!("{n:05}") && row["ok"] == true));
    assert_eq!(rows[5_000]["error"], "conflict");
    assert_eq!(node.must("GET", "/d", "").json()["doc_count"], 5_000);
    // What is no document refuses all, wherever it stands.
    let fresh: Vec<String> = (0..5_000).map(|n| format!(r#"{{"_id":"x{n}"}}"#)).collect();
    let refused = node.ask("", "POST", "/d/_bulk_docs", &format!(r#"{{"docs":[{},7]}}"#, fresh.join(",")));
    assert_eq!((refused.status, refused.json()["reason"].as_str()), (400, Some("Document must be a JSON object")));
    assert_eq!(node.must("GET", "/d", "").json()["doc_count"], 5_000);
}

#[test]
fn bodies_that_were_announced_and_do_not_come_keep_nobody_from_writing() {
    let node = Program::start(&[]);
    let announce = |head: &str| {
        let mut stream = TcpStream::connect(node.address).expect("the node listens");
        let head = format!("POST /d/_find HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n{head}");
        stream.write_all(head.as_bytes()).expect("the node reads");
        stream
    };
    let large = (0..4).map(|_| announce("Content-Length: 60000000\r\n\r\n{"));
    let chunked = (0..80).map(|_| announce("Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"));
    let held: Vec<TcpStream> = large.chain(chunked).collect();
    node.must("POST", "/d", r#"{"a":1}"#);
    let login = node.ask("", "POST", "/_session", r#"{"name":"adm","password":"pass"}"#);
    assert_eq!(login.status, 200);
    // Nor do they stay for ever.
    assert_eq!(status_of_first(held.into_iter().next().expect("one")), 408);
}

fn status_of_first(mut stream: TcpStream) -> u16 {
    stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("the node answers");
    String::from_utf8_lossy(&head[9..]).parse().expect("a status")
}

#[test]
fn idle_connections_make_way_for_others() {
    let node = Program::start(&["chttpd/max_connections=40"]);
    let idle: Vec<TcpStream> =
        (0..60).map(|_| TcpStream::connect(node.address).expect("the kernel takes it")).collect();
    for _ in 0..10 {
        assert_eq!(node.ask("", "GET", "/_up", "").status, 200);
    }
    drop(idle);
}

#[test]
fn a_selector_has_so_many_terms_and_others_are_answered_while_it_is_looked_for() {
    let node = Program::start(&[]);
    let docs: Vec<String> = (0..1_000).map(|n| format!(r#"{{"n":{n}}}"#)).collect();
    node.must("POST", "/d/_bulk_docs", &format!(r#"{{"docs":[{}]}}"#, docs.join(",")));
    let find = |terms: usize| {
        let terms: Vec<String> = (0..terms).map(|n| format!(r#"{{"x":{n}}}"#)).collect();
        node.send_zipped("/d/_find", &format!(r#"{{"selector":{{"$or":[{}]}}}}"#, terms.join(",")))
    };
    assert_eq!(status_of(find(100_000)), 400);
    let slow = find(20_000);
    for _ in 0..10 {
        assert_eq!(node.ask("", "GET", "/_up", "").status, 200);
        assert_eq!(node.must("GET", "/d", "").json()["doc_count"], 1_000);
    }
    assert_eq!(status_of(slow), 200);
}
