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
    // It reads none of its copies, that of the users database neither.
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
        let mut line = String::new();
        out.read_line(&mut line).expect("a line");
        let address =
            line.trim().split_once(" is ready at http://").map(|(_, rest)| rest.trim_end_matches('/').to_owned());
        address.unwrap_or_else(|| panic!("no line of readiness: {line:?}"))
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
