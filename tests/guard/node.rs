//! A real node process with its data directory, for tests that take something away from it.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::served::panics::Log;
use crate::served::{Answer, exchange, request};

/// The administrator of these nodes.
pub const ADMIN: &str = "adm:pass";

/// A running node; killed when dropped.
pub struct Node {
    pub child: Child,
    pub address: SocketAddr,
    /// Looked at when the process is gone.
    log: Log,
}

impl Drop for Node {
    fn drop(&mut self) {
        // It has ended already where the test ended it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `settee serve` over `data` with further arguments.
fn serve(data: &Path, args: &[&str]) -> Command {
    serve_by(Command::new(env!("CARGO_BIN_EXE_settee")), data, args)
}

/// The same where `command` begins what is run.
fn serve_by(mut command: Command, data: &Path, args: &[&str]) -> Command {
    command.args(["serve", "--port", "0", "--set", "chttpd_auth/iterations=10", "--admin", ADMIN, "--data"]);
    command.arg(data).args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the program to its end: exit status, standard output, standard error.
pub fn run(command: &mut Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    (status.code(), String::from_utf8_lossy(&stdout).into_owned(), String::from_utf8_lossy(&stderr).into_owned())
}

/// `settee` with arguments, run to its end.
pub fn settee(args: &[&str]) -> (Option<i32>, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_settee")).args(args).stdin(Stdio::null()))
}

/// What a node says that does not start.
pub fn refused(data: &Path, args: &[&str]) -> (Option<i32>, String) {
    let mut child = serve(data, args).spawn().expect("the program runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    if !line.is_empty() {
        child.kill().expect("it runs");
    }
    let out = child.wait_with_output().expect("it ends");
    assert_eq!(line, "", "it started");
    (out.status.code(), String::from_utf8_lossy(&out.stderr).into_owned())
}

impl Node {
    pub fn start(data: &Path, args: &[&str]) -> Node {
        Node::of(serve(data, args))
    }

    /// A node that may have so many files and connections open.
    pub fn start_with_files(data: &Path, most: u32) -> Node {
        let mut shell = Command::new("sh");
        let script = format!("ulimit -n {most}; exec \"$0\" \"$@\"");
        shell.args(["-c", &script, env!("CARGO_BIN_EXE_settee")]);
        Node::of(serve_by(shell, data, &[]))
    }

    fn of(mut command: Command) -> Node {
        let log = Log::new();
        let mut child = command.stderr(log.stdio()).spawn().expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        let address = line.split("http://").nth(1).and_then(|rest| rest.trim().trim_end_matches('/').parse().ok());
        let Some(address) = address else {
            child.wait().expect("the program ends");
            panic!("no line of readiness: {line:?} {}", log.text());
        };
        Node { child, address, log }
    }

    pub fn ask(&self, who: &str, method: &str, target: &str, body: &str) -> Answer {
        exchange(self.address, &request(who, method, target, &[], body))
    }

    /// An answer of the administrator that must be a success.
    pub fn must(&self, method: &str, target: &str, body: &str) -> Answer {
        let answer = self.ask(ADMIN, method, target, body);
        assert!((200..300).contains(&answer.status), "{method} {target}: {}", answer.body);
        answer
    }

    /// A connection on which a request was sent.
    pub fn open(&self, target: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.write_all(&request(ADMIN, "GET", target, &[], "")).expect("sent");
        stream
    }

    /// The largest part of its memory that was resident so far, in megabytes.
    pub fn peak_mb(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("it runs");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.split_whitespace().next().and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
    }

    /// Ends it with a signal; answers its exit status and its log.
    pub fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let status = self.child.wait().expect("the program ends");
        (status.code(), self.log.text())
    }
}

/// Writes `count` documents of 1 KB from number `from` on.
pub fn fill(node: &Node, db: &str, from: u32, count: u32) {
    for start in (from..from + count).step_by(500) {
        let docs: Vec<String> = (start..(start + 500).min(from + count))
            .map(|n| format!(r#"{{"_id":"doc-{n:06}","text":"{}"}}"#, format!("{n:x} ").repeat(200)))
            .collect();
        node.must("POST", &format!("/{db}/_bulk_docs"), &format!(r#"{{"docs":[{}]}}"#, docs.join(",")));
    }
}

/// The files of a folder of the data directory whose names end so, sorted.
pub fn files(data: &Path, folder: &str, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data.join(folder)).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    found.sort();
    found
}
