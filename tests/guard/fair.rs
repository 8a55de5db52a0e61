//! What one caller cannot take from others: script workers, the cluster port, the time of a stop.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::node::{ADMIN, Node};
use crate::served::ports::free_port;
use crate::served::request;

/// Was: for 50 s nobody's documents were validated, in no database.
#[test]
fn a_show_that_loops_a_hundred_times_stops_no_validation_of_another_database() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &["--set", "couchdb/os_process_timeout=20000"]);
    for (db, design) in [
        ("loops", r#"{"shows":{"s":"function() { for (;;) {} }"}}"#),
        ("other", r#"{"validate_doc_update":"function(doc) { if (doc.bad) throw({forbidden: 'bad'}); }"}"#),
    ] {
        node.must("PUT", &format!("/{db}"), "");
        node.must("PUT", &format!("/{db}/_design/d"), design);
    }
    let streams: Vec<TcpStream> = (0..100).map(|_| node.open("/loops/_design/d/_show/s")).collect();
    // The first of them has run for its time: all that were sent wait or run.
    let mut first = String::new();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = (&streams[0]).read_to_string(&mut first);
            is_over.store(true, Ordering::SeqCst);
        });
        let mut written = 0;
        while !is_over.load(Ordering::SeqCst) && written < 200 {
            node.must("PUT", &format!("/other/doc-{written}"), "{}");
            assert_eq!(node.ask(ADMIN, "PUT", "/other/bad", r#"{"bad":true}"#).status, 403);
            written += 1;
        }
        // One by one behind loops of twenty seconds each there would be a handful of them.
        assert!(written >= 20, "writes were validated while the functions ran: {written}");
        // Nobody waits for the rest of its time.
        streams[0].shutdown(Shutdown::Both).expect("closed");
    });
    drop(streams);
    node.end("-KILL");
}

/// Was: while two hundred silent connections lasted no member could come back.
#[test]
fn silent_connections_to_the_cluster_port_make_way_for_a_member() {
    let (one, two) = (TempDir::new().expect("a directory"), TempDir::new().expect("a directory"));
    let (first, second) = (free_port(), free_port());
    let names = ["--set", "cluster/suspect_ms=60000"];
    let start = |dir: &TempDir, name: &str, port: u16, more: &[&str]| {
        let port = port.to_string();
        let own = ["--node", name, "--cluster-port", &port, "--set", &format!("cluster/address=127.0.0.1:{port}")];
        Node::start(dir.path(), &[&own[..], &names, more].concat())
    };
    let a = start(&one, "a@127.0.0.1", first, &[]);
    let token = a.must("POST", "/_cluster/join_token", "{}").json()["token"].as_str().expect("a token").to_owned();
    let at = format!("127.0.0.1:{first}");
    let b = start(&two, "b@127.0.0.1", second, &["--join", &at, "--token", &token]);
    until("they are connected", || {
        a.must("GET", "/_membership", "").json()["all_nodes"].as_array().unwrap().len() == 2
    });
    b.end("-KILL");
    until("the member is gone", || {
        a.must("GET", "/_membership", "").json()["all_nodes"].as_array().unwrap().len() == 1
    });
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(&at).expect("a connection")).collect();
    let b = start(&two, "b@127.0.0.1", second, &[]);
    until("the member is back", || {
        b.must("GET", "/_membership", "").json()["all_nodes"].as_array().unwrap().len() == 2
    });
    drop(silent);
    b.end("-KILL");
    a.end("-KILL");
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(180);
    while !holds() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Was: ten seconds, and then cut in the middle of a chunk.
#[test]
fn open_feeds_end_with_their_last_line_when_the_node_stops() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    for db in ["/db", "/_global_changes"] {
        node.must("PUT", db, "");
    }
    node.must("PUT", "/db/a", "{}");
    let forms = [
        ("/db/_changes?feed=continuous&heartbeat=1000", "\"last_seq\":"),
        ("/db/_changes?feed=continuous&timeout=50000", "\"last_seq\":"),
        ("/db/_changes?feed=longpoll&since=now", "\"last_seq\":"),
        ("/db/_changes?feed=eventsource&heartbeat=1000", ""),
        ("/_db_updates?feed=continuous&timeout=50000", "\"last_seq\":"),
    ];
    let mut streams: Vec<TcpStream> = forms.iter().map(|(target, _)| node.open(target)).collect();
    // The head of each answer shows that its feed is open.
    let heads: Vec<Vec<u8>> = streams
        .iter_mut()
        .map(|stream| {
            let mut head = vec![0; 64];
            stream.read_exact(&mut head).expect("an answer");
            head
        })
        .collect();
    let ended = std::thread::scope(|scope| {
        let readers: Vec<_> = streams
            .iter_mut()
            .map(|stream| {
                scope.spawn(move || {
                    let mut rest = String::new();
                    stream.read_to_string(&mut rest).expect("text to its end");
                    rest
                })
            })
            .collect();
        let (status, log) = node.end("-TERM");
        assert_eq!(status, Some(0));
        assert!(!log.contains("cut off"), "{log}");
        readers.into_iter().map(|reader| reader.join().expect("read")).collect::<Vec<String>>()
    });
    for (((target, last), head), rest) in forms.iter().zip(heads).zip(ended) {
        let head = String::from_utf8_lossy(&head).into_owned();
        assert!(head.starts_with("HTTP/1.1 200"), "{target}: {head}");
        assert!(rest.contains(last) && rest.ends_with("0\r\n\r\n"), "{target}: {rest}");
    }
}

/// Was: others waited for eleven seconds, until all was written.
#[test]
fn others_are_answered_while_half_a_million_documents_are_written() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    node.must("PUT", "/many?q=1", "");
    node.must("PUT", "/other", "");
    let body = format!(r#"{{"docs":[{}]}}"#, vec!["{}"; 500_000].join(","));
    let mut writer = TcpStream::connect(node.address).expect("a connection");
    writer.write_all(&request(ADMIN, "POST", "/many/_bulk_docs", &[], &body)).expect("sent");
    let written = || node.must("GET", "/many", "").json()["doc_count"].as_u64().expect("a count");
    until("the first of them are written", || written() > 0);
    for n in 0..20 {
        node.must("PUT", &format!("/other/{n}"), "{}");
        node.must("GET", &format!("/other/{n}"), "");
        assert_eq!(node.ask("", "GET", "/_up", "").status, 200);
    }
    let written = written();
    assert!(written < 500_000, "all were written before others had sixty answers");
    drop(writer);
    node.end("-KILL");
}

/// Was: a hundred idle connections were the end, with twenty lines a second in the log.
#[test]
fn a_node_with_few_files_serves_others_beside_idle_connections_and_keeps_its_log_short() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start_with_files(dir.path(), 64);
    node.must("PUT", "/db?q=1", "");
    let begun = Instant::now();
    let idle: Vec<TcpStream> =
        (0..100).map(|_| TcpStream::connect(node.address).expect("the kernel takes it")).collect();
    for n in 0..30 {
        node.must("PUT", &format!("/db/{n}"), "{}");
        assert_eq!(node.ask("", "GET", "/_up", "").status, 200);
    }
    drop(idle);
    let (_, log) = node.end("-TERM");
    let (lines, most) = (log.lines().count(), 40 + 2 * begun.elapsed().as_secs() as usize);
    assert!(lines < most, "{lines} lines: {log}");
}
