//! A panic in a node fails the test that started the node, although the node itself goes on.

use std::fs::File;
use std::panic;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

static INSTALLED: Once = Once::new();
static OF_NODES: AtomicU64 = AtomicU64::new(0);

/// Panics of the threads of nodes within this process, for as long as it is held.
#[allow(dead_code, reason = "some tests start nodes as processes only")]
pub struct NoPanics(());

#[allow(dead_code, reason = "some tests start nodes as processes only")]
impl NoPanics {
    pub fn watch() -> NoPanics {
        INSTALLED.call_once(|| {
            let report = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                // A test's own thread has the name of its function, one that it starts has none.
                let is_of_a_node = thread::current().name().is_some_and(|name| !name.contains(['_', ':']));
                OF_NODES.fetch_add(u64::from(is_of_a_node), Ordering::Relaxed);
                report(panic);
            }));
        });
        NoPanics(())
    }
}

impl Drop for NoPanics {
    fn drop(&mut self) {
        if !thread::panicking() {
            assert_eq!(OF_NODES.load(Ordering::Relaxed), 0, "panics in nodes, see above");
        }
    }
}

/// The log of a node that is a process: shown when the test fails, and a failure when it tells of a panic.
#[allow(dead_code, reason = "some tests start nodes within their process only")]
pub struct Log {
    path: PathBuf,
    _folder: tempfile::TempDir,
}

#[allow(dead_code, reason = "some tests start nodes within their process only")]
impl Log {
    pub fn new() -> Log {
        let folder = tempfile::tempdir().expect("a directory");
        Log { path: folder.path().join("log"), _folder: folder }
    }

    /// All that was written so far.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.path).unwrap_or_default()).into_owned()
    }

    /// Where a process of the node may write; it adds to what an earlier one wrote. A file and no pipe: nobody reads
    /// while the node runs, and a pipe that is full would stop it.
    pub fn stdio(&self) -> Stdio {
        File::options().create(true).append(true).open(&self.path).expect("a log").into()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let text = self.text();
        if thread::panicking() {
            eprintln!("{text}");
        } else {
            none_in(&text);
        }
    }
}

/// Fails where a log tells of a panic.
pub fn none_in(log: &str) {
    assert!(!log.contains("panicked at"), "a panic in a node: {log}");
}
