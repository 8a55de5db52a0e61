//! Data directories of older formats are read; the commands that work on a directory, and snapshots of a running node.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use flate2::read::GzDecoder;
use tempfile::TempDir;

#[path = "served/panics.rs"]
mod panics;

/// Runs the program; answers exit status, standard output and standard error.
fn settee(args: &[&str]) -> (Option<i32>, Vec<u8>, String) {
    let ran = Command::new(env!("CARGO_BIN_EXE_settee")).args(args).output();
    let Output { status, stdout, stderr } = ran.expect("the program runs");
    (status.code(), stdout, String::from_utf8_lossy(&stderr).into_owned())
}

fn told(args: &[&str]) -> (Option<i32>, String) {
    let (status, out, errors) = settee(args);
    (status, String::from_utf8_lossy(&out).into_owned() + &errors)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// The data directory of format 1.
fn format_1() -> (TempDir, PathBuf) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/format-1");
    let dir = TempDir::new().expect("a directory");
    let data = dir.path().join("data");
    let blob = "blobs/0000000000000020/14/142bc28aac05abd77bf05a8ef5ad55af71a66975ea0fc6efb3153a5583680a44";
    let files = [
        ("store-0.redb.gz", "store/0.redb"),
        ("journal-0000000000000002.log.gz", "journal/0000000000000002.log"),
        ("blob.gz", blob),
    ];
    for (packed, place) in files {
        let path = data.join(place);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let mut bytes = Vec::new();
        let packed = fs::File::open(fixtures.join(packed)).expect("the fixture");
        GzDecoder::new(packed).read_to_end(&mut bytes).expect("gzip");
        fs::write(path, bytes).expect("a file");
    }
    fs::write(data.join("format"), "settee-format: 1\n").expect("a file");
    (dir, data)
}

/// All files below a directory with their content's hash, the lock left out.
fn state(dir: &Path) -> Vec<(PathBuf, blake3::Hash)> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            out.extend(state(&path));
        } else if path.file_name().is_some_and(|name| name != "lock") {
            let hash = blake3::hash(&fs::read(&path).expect("a file"));
            out.push((path, hash));
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

fn occurrences(haystack: &[u8], needle: &str) -> usize {
    haystack.windows(needle.len()).filter(|window| *window == needle.as_bytes()).count()
}

#[test]
fn a_directory_of_the_oldest_format_is_checked_and_dumped_without_being_changed() {
    let (_dir, data) = format_1();
    let before = state(&data);
    let (status, checked) = told(&["check", text(&data)]);
    assert_eq!(status, Some(0), "{checked}");
    assert!(checked.contains("4 databases, 19 shards, 32 documents") && checked.contains("0 problems"), "{checked}");
    let (status, stream, counts) = settee(&["dump", text(&data), "--db", "db"]);
    assert_eq!(status, Some(0), "{counts}");
    assert!(counts.contains("14 documents, 1 local documents, 1 purges"), "{counts}");
    for (what, times) in [
        ("\"id\":\"doc-", 11 + 1),
        ("\"again\":true", 1),
        ("\"deleted\":true", 1),
        ("\"side\":\"a\"", 1),
        ("\"side\":\"b\"", 1),
        ("\"in\":\"the journal\"", 1),
        ("a small attachment", 1),
        ("\"revs_limit\":77", 1),
        ("\"kept\":\"here\"", 1),
    ] {
        assert_eq!(occurrences(&stream, what), times, "{what}");
    }
    assert_eq!(state(&data), before);
}

#[test]
fn a_directory_of_the_oldest_format_takes_new_writes_and_stays_whole() {
    let (dir, data) = format_1();
    let stream = dir.path().join("stream");
    let (status, said) = told(&["dump", text(&data), "--db", "db", "--out", text(&stream)]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said) = told(&["load", text(&data), "--db", "copy", "--in", text(&stream)]);
    assert_eq!((status, said.trim()), (Some(0), "copy: 14 documents, 1 local documents, 1 purges"));
    let (status, checked) = told(&["check", text(&data)]);
    assert_eq!(status, Some(0), "{checked}");
    assert!(checked.contains("5 databases, 21 shards, 46 documents"), "{checked}");
    assert_ne!(fs::read_to_string(data.join("format")).expect("a file"), "settee-format: 1\n");
    let again = told(&["load", text(&data), "--db", "copy", "--in", text(&stream)]);
    assert_eq!(again, (Some(1), "settee: there is a database of that name\n".to_owned()));
    assert_eq!(settee(&["dump", text(&data), "--db", "copy"]).0, Some(0));
}

#[test]
fn check_tells_damage_and_what_is_no_data_directory_by_its_exit_status() {
    let (dir, data) = format_1();
    let (status, said) = told(&["check", text(dir.path())]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("is no data directory"), "{said}");
    let blob = state(&data.join("blobs"))[0].0.clone();
    let mut bytes = fs::read(&blob).expect("a file");
    bytes[4000] ^= 1;
    fs::write(&blob, bytes).expect("a file");
    let (status, said) = told(&["check", text(&data)]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("database \"db\"") && said.contains("attachment content 142bc28a"), "{said}");
    let (status, said) = told(&["dump", text(&data), "--db", "db", "--out", text(&dir.path().join("partial"))]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("left out, damaged: \"attached\"") && said.contains("13 documents"), "{said}");
    let fresh = dir.path().join("fresh");
    let (status, said) = told(&["load", text(&fresh), "--in", text(&dir.path().join("partial"))]);
    assert_eq!((status, said.trim()), (Some(0), "db: 13 documents, 1 local documents, 1 purges"));
}

/// `adm` with the password `pass`, quick to check.
const ADMIN: &str =
    "admins/adm=-pbkdf2:sha256-129be219469150ccc09b580c633cd7e0b4f6fcaf8aba9efa5106148af327985b,scripts,10";

/// A node; killed when dropped.
struct Node {
    child: std::process::Child,
    address: String,
    /// Looked at when the process is gone.
    _log: panics::Log,
}

impl Node {
    fn start(data: &Path, snapshots: &Path) -> Node {
        let folder = format!("settee/snapshot_dir={}", text(snapshots));
        // Small memtables: what is written gets into the store files soon.
        let small = "settee/memory_mb=32";
        let args = ["serve", "--data", text(data), "--port", "0", "--set", ADMIN, "--set", &folder, "--set", small];
        let log = panics::Log::new();
        let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
            .args(args)
            .stdout(Stdio::piped())
            .stderr(log.stdio())
            .spawn()
            .expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let (_, address) = line.trim().split_once("http://").expect("the line of readiness");
        let address = address.trim_end_matches('/').to_owned();
        Node { child, address, _log: log }
    }

    /// Status and body of an answer to the administrator.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YWRtOnBhc3M=\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let status = answer.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
        (status, answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned()))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_snapshot_of_a_running_node_is_restored_there_and_elsewhere() {
    let dir = TempDir::new().expect("a directory");
    let (data, snapshots) = (dir.path().join("data"), dir.path().join("snapshots"));
    let node = Node::start(&data, &snapshots);
    for (method, path, body) in
        [("PUT", "/db?q=2", ""), ("PUT", "/db/a", r#"{"n":1}"#), ("PUT", "/db/b", "{}"), ("PUT", "/db/_local/l", "{}")]
    {
        let (status, answer) = node.ask(method, path, body);
        assert_eq!(status, 201, "{path}: {answer}");
    }
    let (status, answer) = node.ask("POST", "/db/_snapshot", r#"{"path":"daily"}"#);
    assert!(status == 201 && answer.contains("\"documents\":2"), "{status} {answer}");
    for path in ["../daily", "/daily", "", "a/../../b"] {
        let (status, answer) = node.ask("POST", "/db/_snapshot", &format!(r#"{{"path":"{path}"}}"#));
        assert_eq!(status, 400, "{path}: {answer}");
    }
    let (status, answer) = node.ask("POST", "/db/_snapshot", r#"{"path":"daily","whole":true}"#);
    assert!(status == 201 && answer.contains("\"bytes_written\":0,"), "{status} {answer}");
    assert_eq!(node.ask("POST", "/db/_snapshot", r#"{"path":"daily","whole":1}"#).0, 400);
    let (status, answer) = node.ask("POST", "/again/_restore", r#"{"path":"daily","db":"db"}"#);
    assert_eq!(status, 201, "{answer}");
    let (_, answer) = node.ask("GET", "/again/a", "");
    assert!(answer.contains("\"n\":1"), "{answer}");
    assert_eq!(node.ask("POST", "/again/_restore", r#"{"path":"daily","db":"db"}"#).0, 412);
    assert_eq!(node.ask("POST", "/other/_restore", r#"{"path":"daily"}"#).0, 404);
    let (status, answer) = node.ask("POST", "/_node/_local/_snapshot", r#"{"path":"node"}"#);
    assert!(status == 201 && answer.contains("\"db_name\":\"again\""), "{status} {answer}");
    drop(node);
    let fresh = dir.path().join("fresh");
    let from = snapshots.join("daily");
    let restored = told(&["restore", text(&from), "--data", text(&fresh), "--db", "db", "--as", "new"]);
    assert!(restored.0 == Some(0) && restored.1.starts_with("new: 2 documents"), "{restored:?}");
    let (status, checked) = told(&["check", text(&fresh)]);
    assert!(status == Some(0) && checked.starts_with("1 databases, 2 shards, 2 documents"), "{checked}");
    let (status, said) = told(&["restore", text(&from), "--data", text(&fresh), "--db", "missing"]);
    assert!(status == Some(1) && said.contains("no snapshot of that database"), "{said}");
}

#[test]
fn a_snapshot_of_a_whole_node_is_restored_with_all_that_it_had() {
    let dir = TempDir::new().expect("a directory");
    let (data, snapshots) = (dir.path().join("data"), dir.path().join("snapshots"));
    let node = Node::start(&data, &snapshots);
    for (path, body) in [("/db?q=2", ""), ("/a%2Fb", ""), ("/db/x", r#"{"n":1}"#), ("/_users/org.couchdb.user:u", USER)]
    {
        let (status, answer) = node.ask("PUT", path, body);
        assert_eq!(status, 201, "{path}: {answer}");
    }
    let whole = r#"{"path":"whole"}"#;
    assert_eq!(node.ask("POST", "/_node/_local/_snapshot", whole).0, 201);
    assert_eq!(node.ask("DELETE", "/a%2Fb", "").0, 200);
    let (status, answer) = node.ask("POST", "/_node/_local/_snapshot", whole);
    assert!(status == 201 && answer.contains("\"file\":\"nodes/"), "{status} {answer}");
    drop(node);
    let (from, fresh) = (snapshots.join("whole"), dir.path().join("fresh"));
    let restore = ["restore", text(&from), "--data", text(&fresh), "--all"];
    let (status, said) = told(&restore);
    assert!(status == Some(0) && said.contains("db: 1 documents") && !said.contains("a/b"), "{said}");
    assert_eq!(told(&restore), (Some(1), "settee: there is a database of that name\n".to_owned()));
    assert!(told(&["check", text(&fresh)]).1.ends_with("0 problems\n"));
    let mut lists: Vec<_> =
        fs::read_dir(from.join("nodes")).expect("lists").map(|e| e.expect("a list").path()).collect();
    lists.sort();
    let earlier = dir.path().join("earlier");
    let (status, said) = told(&["restore", text(&lists[0]), "--data", text(&earlier), "--all"]);
    assert!(status == Some(0) && said.contains("a/b: 0 documents"), "{said}");
    let node = Node::start(&earlier, &snapshots);
    assert!(node.ask("GET", "/db/x", "").1.contains("\"n\":1"));
    assert!(node.ask("GET", "/_users/org.couchdb.user:u", "").1.contains("\"name\":\"u\""));
}

const USER: &str = r#"{"name":"u","roles":[],"type":"user"}"#;

/// Text that cannot be compressed.
fn noise(seed: usize, bytes: usize) -> String {
    let mut text = String::new();
    while text.len() < bytes {
        text.push_str(&blake3::hash(&[seed, text.len()].map(usize::to_le_bytes).concat()).to_hex());
    }
    text
}

const DOCUMENTS: usize = 600;

/// The first megabyte of a store file: what was written first is there.
fn beginning(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    fs::File::open(path).expect("a file").take(1 << 20).read_to_end(&mut bytes).expect("a file");
    bytes
}

/// A stopped data directory with a database `db` in a common store file, which is answered, and one of the engine sled.
fn flushed(dir: &Path) -> (PathBuf, PathBuf) {
    let data = dir.join("data");
    let node = Node::start(&data, dir);
    for (path, count) in [("/sled?q=1&engine=sled", 50), ("/db?q=1", DOCUMENTS)] {
        assert_eq!(node.ask("PUT", path, "").0, 201);
        let docs: Vec<String> =
            (0..count).map(|n| format!(r#"{{"_id":"doc-{n:04}","text":"{}"}}"#, noise(n, 80))).collect();
        let name = path.split('?').next().expect("a name");
        let (status, _) =
            node.ask("POST", &format!("{name}/_bulk_docs"), &format!(r#"{{"docs":[{}]}}"#, docs.join(",")));
        assert_eq!(status, 201);
    }
    assert_eq!(node.ask("PUT", "/filler?q=1", "").0, 201);
    for n in 0..64 {
        let body = format!(r#"{{"text":"{}"}}"#, noise(n, 1_000_000));
        assert_eq!(node.ask("PUT", &format!("/filler/{n}"), &body).0, 201);
        let files = fs::read_dir(data.join("store")).expect("a directory").map(|entry| entry.expect("a file").path());
        let last = format!("doc-{:04}", DOCUMENTS - 1);
        let home = files
            .filter(|path| path.extension().is_some_and(|e| e == "redb"))
            .find(|path| occurrences(&beginning(path), &last) > 0);
        if let (Some(home), true) = (home, data.join("store/sled/db").exists()) {
            return (data, home);
        }
    }
    panic!("the store files do not get what was written");
}

#[test]
fn what_sled_holds_is_checked_and_dumped_without_being_changed() {
    let dir = TempDir::new().expect("a directory");
    let (data, _) = flushed(dir.path());
    let before = state(&data);
    let (status, checked) = told(&["check", text(&data)]);
    assert!(status == Some(0) && checked.ends_with("; 0 problems\n"), "{checked}");
    let (status, stream, counts) = settee(&["dump", text(&data), "--db", "sled"]);
    assert!(status == Some(0) && counts.starts_with("50 documents"), "{counts}");
    assert_eq!(occurrences(&stream, "\"id\":\"doc-"), 50);
    assert_eq!(state(&data), before);
}

#[test]
fn damage_found_by_reads_is_counted_and_the_node_stays_up() {
    let dir = TempDir::new().expect("a directory");
    let (data, home) = flushed(dir.path());
    let (begun, mut bytes) = (beginning(&home), fs::read(&home).expect("a file"));
    let named = begun.windows(8).enumerate().filter(|(_, window)| *window == b"doc-0300");
    named.for_each(|(at, _)| bytes[at] ^= 1);
    fs::write(&home, bytes).expect("a file");
    let node = Node::start(&data, dir.path());
    let (status, answer) = node.ask("GET", "/db/doc-0300", "");
    assert!(status == 500 && answer.contains("file_corruption"), "{status} {answer}");
    assert_eq!(node.ask("GET", "/_up", "").0, 200);
    let (_, stats) = node.ask("GET", "/_node/_local/_stats/settee", "");
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    for name in ["damaged_reads", "damaged_places"] {
        assert!(stats[name]["value"].as_u64().is_some_and(|count| count > 0), "{name}: {stats}");
    }
}
