//! Requests and commands at the edge of what is meant.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::node::{ADMIN, Node, files, settee};
use crate::served::{Served, exchange, exchange_raw, request};

/// Was: accepted, each server in a row with its own opinion.
#[test]
fn two_hosts_and_codings_that_are_not_undone_are_refused() {
    let served = Served::start(&[]);
    let send = |head: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{head}\r\n");
        exchange(served.node.address(), request.as_bytes())
    };
    assert_eq!(send("").status, 200);
    let answer = send("Host: there\r\n");
    assert_eq!((answer.status, &answer.json()["reason"]), (400, &"more than one Host header".into()));
    let without = exchange(served.node.address(), b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert_eq!((without.status, &without.json()["reason"]), (400, &"a request of HTTP/1.1 has a Host header".into()));
    assert_eq!(exchange(served.node.address(), b"GET / HTTP/1.0\r\n\r\n").status, 200);
    // Nothing behind such a request is answered.
    let hidden = b"GET / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: here\r\n\r\n";
    let raw = exchange_raw(served.node.address(), hidden);
    assert_eq!(raw.matches("HTTP/1.1 ").count(), 1, "{raw}");
    assert_eq!(send("Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n").status, 501);
}

/// Was: `invalid UTF-8 JSON`.
#[test]
fn an_integer_that_is_too_large_is_called_so() {
    let served = Served::start(&[]);
    served.must("PUT", "/db", "");
    let put = |text: String| served.send("adm:pass", "PUT", "/db/doc", &[], &text);
    let nine = |count| "9".repeat(count);
    for text in [nine(1000), format!("-{}", nine(1000)), format!("[\"\\\"\",{}]", nine(309))] {
        let answer = put(format!("{{\"n\":{text}}}"));
        let reason = "JSON has an integer beyond the range of a double";
        assert_eq!((answer.status, answer.json()["reason"].as_str()), (400, Some(reason)), "{answer:?}");
    }
    for other in
        [format!("{{\"{}\"", nine(1000)), format!("{{\"n\":0.{}", nine(1000)), format!("{{\"n\":{}", nine(300))]
    {
        assert_eq!(put(other).json()["reason"], "invalid UTF-8 JSON");
    }
    assert_eq!(put(format!("{{\"n\":{}}}", nine(308))).status, 201);
}

/// Was: 500, and lines of the client's choice in the log.
#[test]
fn a_snapshot_path_with_control_characters_is_refused() {
    let dir = TempDir::new().expect("a directory");
    let setting = format!("settee/snapshot_dir={}", dir.path().display());
    let served = Served::start(&[&setting]);
    served.must("PUT", "/db", "");
    for path in [r"a\u0000b", r"a\nb"] {
        let headers = ["Content-Type: application/json"];
        let answer = served.send("adm:pass", "POST", "/db/_snapshot", &headers, &format!(r#"{{"path":"{path}"}}"#));
        assert_eq!(answer.status, 400, "{answer:?}");
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain characters")
}

/// Was: `NotFound`, and that there is no data directory.
#[test]
fn what_tools_cannot_do_is_told_in_words() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    node.must("PUT", "/db", "");
    node.end("-TERM");
    let (_, _, told) = settee(&["dump", text(dir.path()), "--db", "none"]);
    assert!(told.contains("there is no database of that name"), "{told}");
    fs::remove_file(dir.path().join("format")).expect("removed");
    let (status, told, _) = settee(&["check", text(dir.path())]);
    assert!(status == Some(1) && told.contains("the file format is missing"), "{told}");
}

/// Was: 200, and a connection that was cut.
#[test]
fn a_damaged_attachment_is_an_error_and_no_answer_that_breaks_off() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    node.must("PUT", "/db", "");
    let put = request(ADMIN, "PUT", "/db/doc/file", &["Content-Type: image/png"], &"attached ".repeat(10_000));
    assert_eq!(exchange(node.address, &put).status, 201);
    let mut folders = vec![dir.path().join("blobs")];
    let mut blobs: Vec<PathBuf> = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() { folders.push(path) } else { blobs.push(path) }
        }
    }
    assert_eq!(blobs.len(), 1, "{blobs:?}");
    let file = fs::OpenOptions::new().write(true).open(&blobs[0]).expect("opened");
    file.write_all_at(b"damage", 600).expect("written");
    let answer = node.ask(ADMIN, "GET", "/db/doc/file", "");
    assert!(answer.status == 500 && answer.body.contains("is damaged"), "{answer:?}");
    assert!(!files(dir.path(), "journal", ".log").is_empty());
    node.end("-KILL");
}
