//! `settee import` and `settee export` between running nodes: everything is carried over, also by runs that are killed,
//! and what is not on the target is told.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

mod served;

use served::panics::Log;
use served::{ADMIN, Served};

/// Documents of the large database.
const DOCS: usize = 1500;

fn address(served: &Served) -> String {
    format!("http://{}", served.node.address())
}

/// `settee import` or `export` from one node to another.
fn command(word: &str, from: &Served, to: &Served, more: &[&str]) -> Command {
    command_from(word, &address(from), to, more)
}

fn command_from(word: &str, from: &str, to: &Served, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command.args([word, "--url", from, "--to", &address(to)]).args(more);
    command.env("SETTEE_SOURCE_LOGIN", ADMIN).env("SETTEE_TARGET_LOGIN", ADMIN);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs to the end; exit status, and both outputs together.
fn run(mut command: Command) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout) + &text(stderr))
}

fn whole(command: Command) -> String {
    let (status, told) = run(command);
    assert_eq!(status, Some(0), "{told}");
    told
}

/// Everything that a migration has to carry over.
fn fill(source: &Served) {
    source.must("PUT", "/large%2Fone", "");
    let docs: Vec<Value> = (0..DOCS).map(|n| json!({"_id": format!("doc{n:05}"), "type": "t", "n": n})).collect();
    let first = source.must("POST", "/large%2Fone/_bulk_docs", &json!({ "docs": docs }).to_string()).json();
    // Deleted ones, with a content of their own; and others with a second revision.
    let rows = first.as_array().expect("rows").iter().enumerate();
    let edits: Vec<Value> = rows
        .filter(|(n, _)| n % 3 != 0)
        .map(|(n, row)| json!({"_id": row["id"], "_rev": row["rev"], "type": "t", "n": -1, "_deleted": n % 3 == 1}))
        .collect();
    source.must("POST", "/large%2Fone/_bulk_docs", &json!({ "docs": edits }).to_string());
    conflicts(source);
    // Its validation function refuses all documents above.
    let refuses = "function (doc) { if (!doc.later) { throw {forbidden: 'too old'}; } }";
    let design = json!({"validate_doc_update": refuses, "views": {"v": {"map": "function (doc) { emit(doc.n); }"}}});
    source.must("PUT", "/large%2Fone/_design/app", &design.to_string());
    source.must("PUT", "/large%2Fone/_local/settings", r#"{"theme":"dark"}"#);
    let checkpoint = r#"{"session_id":"x","history":[]}"#;
    source.must("PUT", "/large%2Fone/_local/checkpoint", checkpoint);
    let security = r#"{"admins":{"names":["ann"],"roles":[]},"members":{"names":[],"roles":["staff"]}}"#;
    source.must("PUT", "/large%2Fone/_security", security);
    source.must("PUT", "/large%2Fone/_revs_limit", "77");
    source.must("PUT", "/large%2Fone/_auto_purge", r#"{"deleted_document_ttl":"9_day","expires_at":"ends"}"#);
    source.must("PUT", "/parts?partitioned=true", "");
    source.must("PUT", "/parts/p:1", "{}");
    source.must("PUT", "/empty", "");
    let user = r#"{"name":"ann","type":"user","roles":["staff"],"password":"secret"}"#;
    source.must("PUT", "/_users/org.couchdb.user:ann", user);
}

/// Conflicts, conflicts of deleted leaves, attachments of both kinds.
fn conflicts(source: &Served) {
    let mut docs = Vec::new();
    for n in 0..40 {
        for (hash, deleted) in [("aaaa", false), ("bbbb", n % 2 == 0), ("cccc", true)] {
            let rev = format!("3-{}{n:04}", hash.repeat(7));
            let ids = [&rev[2..], "dddddddddddddddddddddddddddddddd", "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee"];
            docs.push(json!({"_id": format!("conflict{n}"), "_rev": rev, "_deleted": deleted, "of": hash,
                "_revisions": {"start": 3, "ids": ids}}));
        }
    }
    source.must("POST", "/large%2Fone/_bulk_docs", &json!({"new_edits": false, "docs": docs}).to_string());
    for n in 0..30 {
        let text = "compressible ".repeat(50 + n);
        let attachments = json!({
            "a b/ü.txt": {"content_type": "text/plain", "data": base64(text.as_bytes())},
            "raw": {"content_type": "application/octet-stream", "data": base64(&vec![n as u8; 3000 * (n + 1)])},
        });
        source.must("PUT", &format!("/large%2Fone/att{n}"), &json!({"_attachments": attachments}).to_string());
    }
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// All leaves of a database with contents, histories and the bytes of attachments, by id, as this test reads them.
fn leaves(served: &Served, database: &str) -> Vec<Value> {
    let changes = served.must("GET", &format!("/{database}/_changes?style=all_docs"), "").json();
    let mut ids: Vec<String> = changes["results"].as_array().expect("rows").iter().map(id_of).collect();
    ids.sort();
    let unique = ids.len();
    ids.dedup();
    assert_eq!(ids.len(), unique, "each document has one row");
    let mut out = Vec::new();
    for ids in ids.chunks(200) {
        let docs: Vec<Value> = ids
            .iter()
            .flat_map(|id| {
                let row = changes["results"].as_array().expect("rows").iter().find(|row| id_of(row) == *id);
                let revs = row.expect("a row")["changes"].as_array().expect("leaves").clone();
                revs.into_iter().map(move |rev| json!({"id": id, "rev": rev["rev"]}))
            })
            .collect();
        let below = format!("/{database}/_bulk_get?revs=true&attachments=true");
        let found = served.must("POST", &below, &json!({ "docs": docs }).to_string()).json();
        for result in found["results"].as_array().expect("results") {
            out.push(result["docs"][0]["ok"].clone());
        }
    }
    assert!(out.iter().all(Value::is_object), "every leaf is read");
    out.sort_by_key(|doc| format!("{} {}", doc["_id"], doc["_rev"]));
    out
}

fn id_of(row: &Value) -> String {
    row["id"].as_str().expect("an id").to_owned()
}

fn same(source: &Served, target: &Served) {
    for database in ["large%2Fone", "parts", "empty"] {
        assert_eq!(leaves(source, database), leaves(target, database), "{database}");
        let info = |served: &Served| served.must("GET", &format!("/{database}"), "").json();
        for count in ["doc_count", "doc_del_count", "props"] {
            assert_eq!(info(source)[count], info(target)[count], "{database} {count}");
        }
    }
    for setting in ["_security", "_revs_limit"] {
        let value = |served: &Served| served.must("GET", &format!("/large%2Fone/{setting}"), "").json();
        assert_eq!(value(source), value(target), "{setting}");
    }
    let retention = |database: &str| {
        let told = target.must("GET", &format!("/{database}/_auto_purge"), "").json();
        (told["deleted_document_ttl"].clone(), told["expires_at"].clone())
    };
    assert_eq!(retention("large%2Fone"), (json!("9_day"), json!("ends")));
    assert_eq!(retention("parts"), (Value::Null, Value::Null));
    let session = target.ask("ann:secret", "GET", "/_session", "").json();
    assert_eq!(session["userCtx"]["roles"], json!(["staff"]), "the password of the source logs in");
}

/// The address of a node as an older server, which has no `_auto_purge`.
fn without_auto_purge(served: &Served) -> String {
    with_auto_purge_at(served, "/_none_purge ")
}

/// The address of a node whose `_auto_purge` is asked for at another path: it answers as at that one.
fn with_auto_purge_at(served: &Served, other: &'static str) -> String {
    let (listener, to) = (TcpListener::bind("127.0.0.1:0").expect("a port"), served.node.address());
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut server = TcpStream::connect(to).expect("the node listens");
            let (mut back, mut there) = (client.try_clone().expect("a handle"), server.try_clone().expect("a handle"));
            std::thread::spawn(move || std::io::copy(&mut there, &mut back));
            std::thread::spawn(move || {
                let mut bytes = [0; 1 << 16];
                while let Ok(count @ 1..) = client.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]).replace("/_auto_purge ", other);
                    if server.write_all(text.as_bytes()).is_err() {
                        return;
                    }
                }
                // The client has gone; the node may have closed its side before.
                let _ = server.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    address
}

/// A source that does not know the setting is no reason to carry nothing over.
#[test]
fn a_source_without_auto_purge_is_passed_over_silently() {
    let (source, target) = (Served::start(&[]), Served::start(&[]));
    source.must("PUT", "/d", "");
    source.must("PUT", "/d/doc", "{}");
    source.must("PUT", "/d/_revs_limit", "78");
    source.must("PUT", "/d/_auto_purge", r#"{"deleted_document_ttl":"9_day"}"#);
    let told = whole(command_from("import", &without_auto_purge(&source), &target, &["--db", "d"]));
    assert!(!told.contains("_auto_purge") && !told.contains("_none_purge"), "{told}");
    assert_eq!(target.must("GET", "/d/_revs_limit", "").json(), 78);
    assert_eq!(target.must("GET", "/d/_auto_purge", "").json()["deleted_document_ttl"], Value::Null);
    target.must("GET", "/d/doc", "");
    // As the server that it is, the setting comes with the next run, and once.
    whole(command("import", &source, &target, &["--db", "d"]));
    assert_eq!(target.must("GET", "/d/_auto_purge", "").json()["deleted_document_ttl"], "9_day");
    for served in [source, target] {
        served.runtime.block_on(served.node.stop());
    }
}

fn settings() -> [&'static str; 1] {
    // Validation of documents as large as those here does not matter; memory does not either.
    ["cluster/q=2"]
}

#[test]
fn a_migration_that_is_killed_ten_times_loses_nothing_and_writes_nothing_twice() {
    let (source, target) = (Served::start(&settings()), Served::start(&settings()));
    fill(&source);
    let more = ["--local", "documents", "--verify", "full", "--parallel", "2"];
    let mut cut = 0;
    for round in 0..10_u64 {
        let mut child = command("import", &source, &target, &more).spawn().expect("the program runs");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(60 + 90 * round) && child.try_wait().expect("a child").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
        cut += u32::from(child.try_wait().expect("a child").is_none());
        // It may have ended by itself just now.
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    // The first ones on every machine; on a fast one the later ones are done before.
    assert!(cut >= 2, "{cut} of 10 runs were killed on their way");
    let told = whole(command("import", &source, &target, &more));
    println!("{cut} of 10 runs were killed on their way\n{told}");
    assert!(told.contains(" 0 lacking"), "{told}");
    same(&source, &target);
    let local = |name: &str| target.ask(ADMIN, "GET", &format!("/large%2Fone/_local/{name}"), "").status;
    assert_eq!((local("settings"), local("checkpoint")), (200, 404), "checkpoints of replications stay");
    // Nothing is written to the source.
    let locals = source.must("GET", "/large%2Fone/_local_docs", "").json();
    assert_eq!(locals["rows"].as_array().map(Vec::len), Some(2), "{locals}");
    // Nothing is left to be done: a further run writes nothing.
    let again = whole(command("import", &source, &target, &more));
    assert!(again.contains("; 0 revisions written;"), "{again}");
    // And back, into a third node.
    let third = Served::start(&settings());
    let told = whole(command("export", &target, &third, &["--verify", "full"]));
    assert!(told.contains(" 0 lacking"), "{told}");
    same(&source, &third);
    for served in [source, target, third] {
        served.runtime.block_on(served.node.stop());
    }
}

#[test]
fn what_the_target_lost_is_found_and_what_it_refuses_is_told() {
    let (source, target) = (Served::start(&[]), Served::start(&[]));
    source.must("PUT", "/d", "");
    let docs: Vec<Value> = (0..20).map(|n| json!({"_id": format!("d{n}"), "bad": n == 7})).collect();
    let rows = source.must("POST", "/d/_bulk_docs", &json!({ "docs": docs }).to_string()).json();
    whole(command("import", &source, &target, &["--db", "d"]));
    // A document is lost behind the checkpoint, another one is edited on the target.
    target.must("POST", "/d/_purge", &json!({"d3": [rows[3]["rev"]]}).to_string());
    target.must("PUT", "/d/d4", &json!({"_rev": rows[4]["rev"], "edited": true}).to_string());
    let told = whole(command("import", &source, &target, &["--db", "d"]));
    assert!(told.contains("1 revisions written") && told.contains("19 equal, 1 newer on the target"), "{told}");
    assert_eq!(target.ask(ADMIN, "GET", "/d/d3", "").status, 200);
    // A design document of the target that refuses one of the documents.
    let other = Served::start(&[]);
    other.must("PUT", "/d", "");
    let refuses = "function (doc) { if (doc.bad) { throw {forbidden: 'no bad ones'}; } }";
    other.must("PUT", "/d/_design/x", &json!({ "validate_doc_update": refuses }).to_string());
    let (status, told) = run(command("import", &source, &other, &["--db", "d"]));
    assert_eq!(status, Some(1), "{told}");
    assert!(told.contains("refused: d7 forbidden: no bad ones") && told.contains("lacking: d7 1-"), "{told}");
    // The rest is there, and with the design document gone the next run ends well.
    let design = other.must("GET", "/d/_design/x", "").json();
    other.must("DELETE", &format!("/d/_design/x?rev={}", design["_rev"].as_str().expect("a revision")), "");
    whole(command("import", &source, &other, &["--db", "d"]));
    // A database that was made anew on the source is read from its start.
    source.must("DELETE", "/d", "");
    source.must("PUT", "/d", "");
    source.must("PUT", "/d/new", "{}");
    whole(command("import", &source, &other, &["--db", "d"]));
    assert_eq!(other.ask(ADMIN, "GET", "/d/new", "").status, 200);
    for served in [source, target, other] {
        served.runtime.block_on(served.node.stop());
    }
}

#[test]
fn wrong_addresses_credentials_and_names_are_told_in_one_line() {
    let served = Served::start(&[]);
    let at = address(&served);
    let tried = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
        command.arg("import").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("SETTEE_TARGET_LOGIN", ADMIN);
        run(command)
    };
    for (arguments, expected) in [
        (vec!["--url", "localhost:5984", "--to", &at], "expected http(s)://"),
        (vec!["--url", &at, "--to", &at], "You are not a server admin"),
        (vec!["--couchbackup", "/nowhere", "--to", &at], "--couchbackup needs one --db NAME"),
        (vec!["--couchbackup", "/nowhere", "--db", "d", "--to", &at], "/nowhere: No such file"),
    ] {
        let (status, told) = tried(&arguments);
        assert_eq!((status, told.trim().lines().count()), (Some(1), 1), "{arguments:?}: {told}");
        assert!(told.contains(expected), "{arguments:?}: {told}");
    }
    let with = format!("http://adm:pass@{}", served.node.address());
    let (status, told) = tried(&["--url", &with, "--to", &at, "--db", "nothing*"]);
    assert!(status == Some(1) && told.contains("no database of the source has such a name"), "{told}");
    served.runtime.block_on(served.node.stop());
}

/// Lines as couchbackup 2.11 writes them; `scripts/migrate` loads files that the program itself wrote.
#[test]
fn a_file_of_couchbackup_is_loaded_with_histories_and_goes_on_after_a_kill() {
    let target = Served::start(&[]);
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("d.backup");
    let mut text =
        "{\"name\":\"@cloudant/couchbackup\",\"version\":\"2.11.12\",\"mode\":\"full\",\"attachments\":true}\n"
            .to_owned();
    for batch in 0..40 {
        let doc = |n: usize| {
            let ids = [format!("{n:032x}"), "dddddddddddddddddddddddddddddddd".to_owned()];
            json!({"_id": format!("d{batch}-{n}"), "_rev": format!("2-{}", ids[0]), "x": "y".repeat(500),
                "_revisions": {"start": 2, "ids": ids},
                "_attachments": {"f": {"contentType": "a/b", "revpos": 1, "data": base64(b"bytes")}}})
        };
        text += &format!("{}\n", Value::Array((0..25).map(doc).collect()));
    }
    let refuses = "function () { throw {forbidden: 'too old'}; }";
    let design =
        json!([{"_id": "_design/x", "_rev": "1-cccccccccccccccccccccccccccccccc", "validate_doc_update": refuses}]);
    text = text.replacen(
        "\n",
        &format!("\n{design}\n[{{\"_id\":\"torn{{\"marker\":\"@cloudant/couchbackup:resume\"}}\n"),
        1,
    );
    std::fs::write(&file, text).expect("a file");
    let load = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
        command.args(["import", "--db", "d", "--to", &address(&target), "--couchbackup"]).arg(&file);
        command.env("SETTEE_TARGET_LOGIN", ADMIN).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    for round in 0..4 {
        let mut child = load().spawn().expect("the program runs");
        std::thread::sleep(Duration::from_millis(80 + 150 * round));
        // It may have ended by itself.
        let _ = child.kill();
        child.wait().expect("it ends");
    }
    let told = whole(load());
    assert!(told.contains("1001 leaves of 1001 documents compared, 0 lacking"), "{told}");
    assert!(told.contains("a torn line"), "{told}");
    assert_eq!(target.must("GET", "/d", "").json()["doc_count"], 1001);
    let one = target.must("GET", "/d/d39-24?revs=true&attachments=true", "").json();
    assert_eq!(one["_revisions"]["ids"].as_array().map(Vec::len), Some(2));
    assert_eq!(one["_attachments"]["f"]["data"], base64(b"bytes"));
    assert_eq!(one["_attachments"]["f"]["content_type"], "a/b");
    // A file that is broken in the middle is no backup.
    std::fs::write(&file, "{\"name\":\"c\",\"version\":\"2\",\"mode\":\"full\"}\n[{\"_id\":\n").expect("a file");
    let (status, told) = run(load());
    assert!(status == Some(1) && told.contains("line 2 is no JSON"), "{told}");
    target.runtime.block_on(target.node.stop());
}

#[test]
fn a_configuration_file_of_couchdb_is_translated_and_starts_a_node() {
    let folder = tempfile::tempdir().expect("a directory");
    let (ini, out) = (folder.path().join("local.ini"), folder.path().join("settee.ini"));
    let text = "[couchdb]\nsingle_node=true\n[chttpd]\nport = 0\n[compactions]\n_default = x\n[admins]\n\
        adm = -hashed-8ef45be353db515c2c0d6f36c564030f331be370,thesalt\n";
    std::fs::write(&ini, text).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command.args(["import", "--ini"]).arg(&ini).arg("--config").arg(&out);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let told = whole(command);
    assert!(told.contains("left out: [compactions] _default") && told.contains("3 options written"), "{told}");
    let mut node = Command::new(env!("CARGO_BIN_EXE_settee"));
    node.args(["serve", "--data"]).arg(folder.path().join("data")).arg("--config").arg(&out);
    // Looked at when the process is gone.
    let log = Log::new();
    let mut child = node.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log.stdio()).spawn().expect("it runs");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().expect("piped")));
    let ready = lines.by_ref().map_while(Result::ok).any(|line| line.contains(" is ready at http://"));
    // The process is this test's own.
    let _ = child.kill();
    child.wait().expect("it ends");
    assert!(ready);
}

/// A source that has the setting, and fails to tell it, is not one that has none.
#[test]
fn an_error_of_the_source_at_auto_purge_is_an_error_of_the_import() {
    let (source, target) = (Served::start(&[]), Served::start(&[]));
    source.must("PUT", "/d", "");
    source.must("PUT", "/d/_auto_purge", r#"{"deleted_document_ttl":"9_day"}"#);
    // The proxy spoils the credentials of that request: the lines of headers go on behind the first one.
    let refused = with_auto_purge_at(&source, "/_auto_purge HTTP/1.1\r\nAuthorization: Basic eDp4\r\nX-Rest: ");
    let (status, told) = run(command_from("import", &refused, &target, &["--db", "d"]));
    assert!(status != Some(0) && told.contains("/d/_auto_purge answered 401"), "{status:?} {told}");
    for served in [source, target] {
        served.runtime.block_on(served.node.stop());
    }
}
