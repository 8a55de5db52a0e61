//! The program as its operator sees it: what it refuses, with which words and exit status, and how it starts and stops.

use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

#[path = "served/panics.rs"]
mod panics;

/// An administrator whose hash is quick to check: `adm`, `pass` is not meant to be used.
const READY_ADMIN: &str = "admins/adm=-hashed-8ef45be353db515c2c0d6f36c564030f331be370,thesalt";

fn settee(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_settee"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = settee(args).output().expect("the program runs");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// Starts a node on a free port and waits for its line; answers the line's URL without scheme and slash.
fn start(args: &[&str]) -> (Child, String) {
    let mut child = settee(args).spawn().expect("the program runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    let Some((_, address)) = line.trim().split_once(" is ready at http://") else {
        let mut told = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut told).expect("text");
        panic!("no line of readiness: {line:?} {told:?}");
    };
    let address = address.trim_end_matches('/').to_owned();
    (child, address)
}

fn stop(child: Child, signal: &str) -> (Option<i32>, String) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success());
    let out = child.wait_with_output().expect("the program ends");
    let log = String::from_utf8_lossy(&out.stderr).into_owned();
    panics::none_in(&log);
    (out.status.code(), log)
}

#[test]
fn the_version_is_told() {
    let (status, told, _) = run(&["--version"]);
    assert_eq!((status, told.trim()), (Some(0), concat!("settee ", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn without_an_administrator_it_says_how_to_make_one() {
    let dir = TempDir::new().expect("a directory");
    let (status, _, told) = run(&["serve", "--data", text(dir.path()), "--port", "0"]);
    assert_eq!((status, told.lines().count()), (Some(1), 1), "{told}");
    assert!(
        told.contains("--admin NAME:PASSWORD") && told.contains("[admins] in ") && told.contains("local.ini"),
        "{told}"
    );
}

#[test]
fn what_cannot_work_is_told_in_one_line() {
    let dir = TempDir::new().expect("a directory");
    let data = dir.path().join("data");
    let file = dir.path().join("file");
    std::fs::write(&file, "not a directory").expect("written");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let missing = dir.path().join("missing.ini");
    let cases: [(&[&str], &str); 4] = [
        (&["--data", text(&data), "--set", READY_ADMIN, "--port", &port], "cannot listen on 127.0.0.1:"),
        (&["--data", text(&file), "--set", READY_ADMIN], "data directory"),
        (&["--data", text(&data), "--config", text(&missing)], "missing.ini"),
        (&["--data", text(&data), "--set", READY_ADMIN, "--bind", "nowhere"], "`nowhere` is no IP address"),
    ];
    for (args, words) in cases {
        let (status, _, told) = run(&[&["serve"], args].concat());
        assert_eq!((status, told.lines().count()), (Some(1), 1), "{args:?}: {told}");
        assert!(told.starts_with("settee: ") && told.contains(words), "{args:?}: {told}");
    }
}

#[test]
fn a_push_without_credentials_is_refused() {
    let mut command = settee(&["push", "snapshots", "s3://bucket/prefix", "--endpoint", "http://127.0.0.1:1"]);
    let Output { status, stderr, .. } = command.env_remove("AWS_ACCESS_KEY_ID").output().expect("the program runs");
    let told = String::from_utf8_lossy(&stderr);
    assert_eq!((status.code(), told.lines().count()), (Some(1), 1), "{told}");
    assert!(told.contains("AWS_ACCESS_KEY_ID") && told.contains("AWS_SECRET_ACCESS_KEY"), "{told}");
}

#[test]
fn it_serves_until_it_is_told_to_stop() {
    for signal in ["-TERM", "-INT"] {
        let dir = TempDir::new().expect("a directory");
        let (child, address) = start(&["serve", "--data", text(dir.path()), "--port", "0", "--set", READY_ADMIN]);
        TcpStream::connect(&address).expect("a connection");
        let (status, told) = stop(child, signal);
        assert_eq!(status, Some(0), "{told}");
        assert!(TcpStream::connect(&address).is_err(), "nothing listens any more");
    }
}

#[test]
fn a_node_in_maintenance_starts_again() {
    let dir = TempDir::new().expect("a directory");
    let args = ["serve", "--data", text(dir.path()), "--port", "0", "--set", READY_ADMIN];
    let (child, _) = start(&args);
    assert_eq!(stop(child, "-TERM").0, Some(0));
    // It reads none of its replicas, that of the users database neither.
    let (child, _) = start(&[&args[..], &["--set", "couchdb/maintenance_mode=true"]].concat());
    assert_eq!(stop(child, "-TERM").0, Some(0));
}

#[test]
fn the_administrator_of_the_flag_is_stored_hashed_and_once() {
    let dir = TempDir::new().expect("a directory");
    let config = dir.path().join("my.ini");
    std::fs::write(&config, "; mine\n[chttpd_auth]\niterations = 1000\n").expect("written");
    let data = dir.path().join("data");
    let args =
        ["serve", "--data", text(&data), "--config", text(&config), "--port", "0", "--admin", "adm:some:password"];
    let mut texts = Vec::new();
    for args in [&args[..], &args[..], &args[..args.len() - 2]] {
        let (child, _) = start(args);
        assert_eq!(stop(child, "-TERM").0, Some(0));
        texts.push(std::fs::read_to_string(&config).expect("text"));
    }
    assert!(texts[0].starts_with("; mine\n") && texts[0].contains("\n[admins]\nadm = -pbkdf2:sha256-"), "{}", texts[0]);
    assert!(!texts[0].contains("some:password"));
    assert!(texts.iter().all(|t| *t == texts[0]), "a restart leaves the file alone");
}

#[test]
fn a_restart_asked_for_by_http_starts_the_program_anew_in_its_process() {
    let dir = TempDir::new().expect("a directory");
    let data = dir.path().join("data");
    let args = ["serve", "--data", text(&data), "--port", "0", "--set", READY_ADMIN, "--set", "log/level=info"];
    let mut child = settee(&args).spawn().expect("the program runs");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut ready = || {
        // Lines about the run before stand between.
        loop {
            let mut line = String::new();
            assert!(out.read_line(&mut line).expect("a line") > 0, "no line of readiness");
            if let Some((_, rest)) = line.trim().split_once(" is ready at http://") {
                return rest.trim_end_matches('/').to_owned();
            }
        }
    };
    let ask = |address: &str, request: &str| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        // adm:oldie
        let head = "Host: here\r\nConnection: close\r\nAuthorization: Basic YWRtOm9sZGll\r\nContent-Length: 0\r\n\r\n";
        std::io::Write::write_all(&mut stream, format!("{request} HTTP/1.1\r\n{head}").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_else(|| panic!("{answer}"))
    };
    let first = ready();
    assert_eq!(ask(&first, "PUT /kept"), 201);
    assert_eq!(ask(&first, "POST /_node/_local/_restart"), 200);
    let second = ready();
    assert_eq!(ask(&second, "GET /kept"), 200);
    assert_eq!(stop(child, "-TERM").0, Some(0));
}

#[test]
fn the_log_is_json_lines_with_levels_by_module_and_the_cost_of_slow_requests() {
    let data = TempDir::new().expect("a directory");
    let settings = ["--set", READY_ADMIN, "--set", "log/format=json", "--set", "log/level=error"];
    let levels = ["--set", "log/levels=slow_request=warn,request=info", "--set", "log/slow_request_ms=1"];
    let place = ["serve", "--data", text(data.path()), "--port", "0", "--set", "log/requests=info"];
    let (child, address) = start(&[&place[..], &settings, &levels].concat());
    let ask = |method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(&address).expect("the node listens");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nAuthorization: Basic YWRtOm9sZGll\r\n"
        );
        let more = format!("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        std::io::Write::write_all(&mut stream, (head + &more).as_bytes()).expect("the node reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the node answers");
        assert!(answer.starts_with(b"HTTP/1.1 20"), "{}", String::from_utf8_lossy(&answer));
    };
    ask("PUT", "/d", "");
    let docs: Vec<String> = (0..2000).map(|n| format!("{{\"_id\":\"{n}\"}}")).collect();
    ask("POST", "/d/_bulk_docs", &format!("{{\"docs\":[{}]}}", docs.join(",")));
    ask("GET", "/d/_all_docs?include_docs=true", "");
    let (status, log) = stop(child, "-TERM");
    assert_eq!(status, Some(0), "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect();
    let of = |target: &str, path: &str| {
        let found = lines.iter().find(|line| line["target"] == target && line["path"] == path);
        found.unwrap_or_else(|| panic!("no line of {target} about {path}: {log}")).clone()
    };
    assert_eq!(of("request", "/d/_all_docs")["level"], "info");
    let slow = of("slow_request", "/d/_all_docs");
    assert_eq!((&slow["level"], &slow["user"], &slow["endpoint"]), (&"warn".into(), &"adm".into(), &"all_docs".into()));
    assert!(slow["rows"].as_u64() >= Some(2000) && slow["ranges"].as_u64() >= Some(8), "{slow}");
    assert!(slow["bytes"].as_u64() > Some(100_000) && slow["ms"].as_f64() >= Some(1.0), "{slow}");
    assert!(lines.iter().all(|line| line["target"] != "settee::node" || line["level"] == "error"), "{log}");
}

#[test]
fn a_machine_is_looked_at_with_documented_exit_codes() {
    let data = TempDir::new().expect("a directory");
    let (status, told, _) = run(&["doctor", "--data", text(data.path())]);
    assert_eq!(status, Some(2), "{told}");
    assert!(told.contains("bad: configuration: there is no administrator"), "{told}");
    let ini = data.path().join("local.ini");
    let setting = READY_ADMIN.split_once('/').expect("a section").1.replacen('=', " = ", 1);
    std::fs::write(&ini, format!("[admins]\n{setting}\n[chttpd]\nport = 0\n[cluster]\nport = 0\n")).expect("a file");
    let (_, told, _) = run(&["doctor", "--data", text(data.path())]);
    for check in [
        "ok: configuration",
        "clock",
        "open files",
        "memory",
        "ok: port of clients",
        "file system",
        "disk room",
        "syncs",
    ] {
        assert!(told.contains(check), "{check}: {told}");
    }
    // The file that syncs were measured with is gone.
    assert_eq!(std::fs::read_dir(data.path()).expect("a directory").count(), 1);
    let settings = ["serve", "--data", text(data.path()), "--port", "0"];
    let (child, address) = start(&settings);
    let url = format!("http://{address}");
    assert_eq!(run(&["doctor", "--up", &url]).0, Some(0));
    stop(child, "-TERM");
    assert_eq!(run(&["doctor", "--up", &url]).0, Some(1));
    assert_eq!(run(&["doctor", "--up", "nowhere"]).0, Some(1));
}

#[test]
fn manual_pages_and_completions_name_every_command() {
    let folder = TempDir::new().expect("a directory");
    assert_eq!(run(&["man", "--dir", text(folder.path())]).0, Some(0));
    let commands = "serve import export push pull doctor check dump load restore salvage token";
    for command in commands.split(' ') {
        let page = folder.path().join(format!("settee-{command}.1"));
        assert!(std::fs::read_to_string(&page).expect("a page").contains("settee"), "{command}");
        for shell in ["bash", "zsh", "fish"] {
            let (status, told, _) = run(&["completions", shell]);
            assert!(status == Some(0) && told.contains(command), "{shell} {command}");
        }
    }
    assert!(!folder.path().join("settee-script-host.1").exists(), "what only a node starts has no page");
}
