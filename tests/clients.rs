//! Stock clients against a real settee: `nano` and `pouchdb` from npm, in `tests/clients/*.mjs`.
//!
//! Starts the built program on a free loopback port with a directory of its own, installs the clients once
//! (`npm ci`, from the lock file), and runs each script with Node's own test runner.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

#[path = "served/panics.rs"]
mod panics;
#[path = "served/ports.rs"]
mod ports;

/// How long the node may take to say that it is ready: password hashing in a debug build on a busy machine.
const START_MAX: Duration = Duration::from_secs(180);
const WHAT_TO_INSTALL: &str = "the client tests need Node.js 20 or newer and npm on the PATH (Debian: nodejs npm)";

/// One installation at a time: the tests of this file share the folder of packages.
static INSTALLING: Mutex<()> = Mutex::new(());

/// A running node; killed when dropped.
struct Node {
    child: Child,
    url: String,
    data: tempfile::TempDir,
    /// Looked at when the process is gone.
    _log: panics::Log,
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> String {
    ports::free_port().to_string()
}

/// Starts a node and waits until it says where it listens.
fn start() -> Node {
    start_with(&["--admin", "adm:pass"])
}

/// Starts a cluster of two nodes; its URLs with a comma between.
fn start_cluster() -> ([Node; 2], String) {
    let port = free_port();
    let one = start_with(&["--admin", "adm:pass", "--node", "one@127.0.0.1", "--cluster-port", &port]);
    let token = Command::new(env!("CARGO_BIN_EXE_settee")).args(["token", "--data"]).arg(one.data.path()).output();
    let token = String::from_utf8(token.expect("it runs").stdout).expect("text");
    let (at, own) = (format!("127.0.0.1:{port}"), free_port());
    let joins = ["--join", &at, "--token", token.trim(), "--node", "two@127.0.0.1", "--cluster-port", &own];
    let two = start_with(&joins);
    let urls = format!("{},{}", one.url, two.url);
    ([one, two], urls)
}

/// [`start`] with other arguments.
fn start_with(arguments: &[&str]) -> Node {
    let data = tempfile::tempdir().expect("a temporary directory");
    let (free, log) = (free_port(), panics::Log::new());
    let mut child = Command::new(env!("CARGO_BIN_EXE_settee"))
        .args(["serve", "--bind", "127.0.0.1", "--port", &free, "--data"])
        .arg(data.path())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(log.stdio())
        .spawn()
        .expect("the built settee starts");
    let stdout = child.stdout.take().expect("a pipe");
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // Read to the end even when nobody listens any more: a full pipe would stop the node.
            let _ = tell.send(line);
        }
    });
    let node = Node { child, url: format!("http://adm:pass@127.0.0.1:{free}"), data, _log: log };
    loop {
        match told.recv_timeout(START_MAX) {
            Ok(line) if line.contains("is ready at") => return node,
            Ok(_) => {}
            Err(e) => panic!("the node did not say that it is ready: {e}"),
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("clients")
}

/// Runs a program in the clients' folder; its output is shown when it fails.
fn run(program: &str, arguments: &[&str], urls: [&str; 2]) {
    let spawned = Command::new(program)
        .args(arguments)
        .current_dir(folder())
        .env("SETTEE_URL", urls[0])
        .env("SETTEE_OTHER_URL", urls[1])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => panic!("{program} does not start ({e}): {WHAT_TO_INSTALL}"),
    };
    let mut errors = child.stderr.take().expect("a pipe");
    let stderr = std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).map(|_| text)
    });
    let mut output = String::new();
    child.stdout.take().expect("a pipe").read_to_string(&mut output).expect("text");
    let errors = stderr.join().expect("a reader").unwrap_or_default();
    let status = child.wait().expect("an exit status");
    assert!(status.success(), "{program} {} ended with {status}\n{output}\n{errors}", arguments.join(" "));
}

/// Installs what the lock file names, unless exactly that is there.
fn install() {
    let _one = INSTALLING.lock().unwrap_or_else(|broken| broken.into_inner());
    let written = |path: PathBuf| path.metadata().and_then(|m| m.modified()).ok();
    let installed = written(folder().join("node_modules").join(".package-lock.json"));
    if installed.is_none() || installed < written(folder().join("package-lock.json")) {
        run("npm", &["ci", "--no-audit", "--no-fund"], ["", ""]);
    }
}

fn play(script: &str) {
    install();
    let node = start();
    run("node", &["--test", "--test-reporter=spec", script], [&node.url, ""]);
}

#[test]
fn nano_does_its_daily_calls() {
    play("nano.mjs");
}

#[test]
fn pouchdb_works_over_http_and_replicates_both_ways() {
    play("pouchdb.mjs");
}

#[test]
fn pouchdb_keeps_in_step_with_two_nodes() {
    install();
    let (one, two) = (start(), start());
    for script in ["replication.mjs", "triangle.mjs"] {
        run("node", &["--test", "--test-reporter=spec", script], [&one.url, &two.url]);
    }
}

#[test]
fn two_clusters_and_pouchdb_come_to_the_same_leaves() {
    install();
    let ((_one, first), (_two, second)) = (start_cluster(), start_cluster());
    run("node", &["--test", "--test-reporter=spec", "triangle.mjs"], [&first, &second]);
}
