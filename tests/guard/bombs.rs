//! Replications from a source that sends more than anybody could hold.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use crate::node::{ADMIN, Node};

/// Megabytes that fifteen replications may take together.
const GROWTH_MB: u64 = 900;
/// Empty objects in a body that is zipped: 3 bytes of text, and some hundred of memory where it is made values.
const VALUES: usize = 40_000_000;
/// Zipped bodies that were sent.
static SENT: AtomicUsize = AtomicUsize::new(0);
const ROW: &str = r#"{"seq":1,"id":"d","changes":[{"rev":"1-a"}]},"#;

/// Zipped JSON with one member, a list of so many empty objects.
fn zipped(member: &str) -> Vec<u8> {
    let mut zip = GzEncoder::new(Vec::new(), Compression::fast());
    let piece = "{},".repeat(10_000);
    write!(zip, "{{\"{member}\":[").expect("into memory");
    (0..VALUES / 10_000).for_each(|_| zip.write_all(piece.as_bytes()).expect("into memory"));
    zip.write_all(b"{}]}").expect("into memory");
    zip.finish().expect("into memory")
}

/// A server whose databases are named by what they send.
fn source() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let bomb = Arc::new(zipped("results"));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let bomb = Arc::clone(&bomb);
            // The other side may end a connection when it has had enough.
            std::thread::spawn(move || drop(serve(stream, &bomb)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, bomb: &[u8]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    loop {
        let (mut line, mut length) = (String::new(), 0);
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split([' ', '?']).map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap_or(0);
            }
        }
        reader.read_exact(&mut vec![0; length])?;
        let (kind, below) = path.trim_start_matches('/').split_once('/').unwrap_or((&path[1..], ""));
        answer(&mut stream, bomb, (kind, &method, below))?;
    }
}

/// Sends what a database of this kind answers.
fn answer(stream: &mut TcpStream, bomb: &[u8], asked: (&str, &str, &str)) -> std::io::Result<()> {
    let head =
        |status: u16, more: &str| format!("HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\n{more}\r\n");
    let sized = |status, body: &str| format!("{}{body}", head(status, &format!("Content-Length: {}\r\n", body.len())));
    match asked {
        ("zipped", "GET", "")
        | ("zipped-changes", "GET", "_changes")
        | ("zipped-docs", "POST", "_bulk_get")
        | ("zipped-docs", "GET", "d") => {
            let length = format!("Content-Encoding: gzip\r\nContent-Length: {}\r\n", bomb.len());
            SENT.fetch_add(1, Ordering::SeqCst);
            stream.write_all(head(200, &length).as_bytes())?;
            stream.write_all(bomb)
        }
        ("endless", "GET", "_changes") => {
            let rows = ROW.repeat(1_000);
            stream.write_all(format!("{}{{\"results\":[", head(200, "Connection: close\r\n")).as_bytes())?;
            loop {
                stream.write_all(rows.as_bytes())?;
            }
        }
        ("huge-row", "GET", "_changes") => {
            let revs = vec![r#"{"rev":"1-a"}"#; 5_000_000].join(",");
            let body = format!(r#"{{"results":[{{"seq":1,"id":"d","changes":[{revs}]}}],"last_seq":1,"pending":0}}"#);
            stream.write_all(sized(200, &body).as_bytes())
        }
        // The replication keeps its checkpoints here.
        (_, "PUT", _) => stream.write_all(sized(201, r#"{"ok":true,"rev":"0-1"}"#).as_bytes()),
        (_, "GET", "") => stream.write_all(sized(200, r#"{"db_name":"db","instance_start_time":"0"}"#).as_bytes()),
        (_, "GET", "_changes") => {
            let row = ROW.trim_end_matches(',');
            let body = format!(r#"{{"results":[{row}],"last_seq":1,"pending":0}}"#);
            stream.write_all(sized(200, &body).as_bytes())
        }
        _ => stream.write_all(sized(404, r#"{"error":"not_found","reason":"missing"}"#).as_bytes()),
    }
}

/// Was: 1.1 GB.
#[test]
fn replications_from_a_source_that_sends_bombs_end_with_an_error_in_bounded_memory() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    let (source, rest) = (source(), node.peak_mb());
    std::thread::scope(|scope| {
        for kind in ["zipped", "zipped-changes", "zipped-docs", "endless", "huge-row"] {
            for n in 0..3 {
                let node = &node;
                scope.spawn(move || {
                    let order = format!(
                        r#"{{"source":"http://{source}/{kind}","target":"{kind}-{n}","create_target":true,"retries_per_request":0}}"#
                    );
                    let answer = node.ask(ADMIN, "POST", "/_replicate", &order);
                    // A document that is too large is told among those that were refused.
                    let is_refused = || answer.json()["history"][0]["doc_write_failures"] == 1;
                    assert!(answer.status >= 400 || is_refused(), "{kind}: {answer:?}");
                    println!("{kind}: {} {}", answer.status, answer.body.trim());
                });
            }
        }
    });
    let grown = node.peak_mb() - rest;
    let sent = SENT.load(Ordering::SeqCst);
    println!("{grown} MB, {sent} zipped bodies");
    assert!(sent >= 9, "{sent} zipped bodies");
    assert!(grown < GROWTH_MB, "{grown} MB");
    node.must("PUT", "/after", "");
}
