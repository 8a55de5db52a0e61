//! A disk that others fill up: reads go on, and a killed node starts again. The disk is a tmpfs, which only root can
//! mount; without that right the test says so and proves nothing.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::node::{ADMIN, Node, fill};

/// A mounted tmpfs, unmounted when it is dropped.
struct Small(TempDir);

impl Small {
    fn mount(mb: u32) -> Option<Small> {
        let dir = TempDir::new().expect("a directory");
        let options = ["-t", "tmpfs", "-o", &format!("size={mb}m"), "tmpfs"];
        match Command::new("mount").args(options).arg(dir.path()).output() {
            Ok(output) if output.status.success() => Some(Small(dir)),
            refused => {
                eprintln!("skipped: no tmpfs can be mounted here: {refused:?}");
                None
            }
        }
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all that is left.
    fn take_all(&self) {
        let mut hog = fs::OpenOptions::new().append(true).create(true).open(self.path().join("hog")).expect("opened");
        while hog.write_all(&[7; 4096]).is_ok() {}
        while hog.write_all(&[7]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Was: the node could not start until somebody freed space.
#[test]
fn a_node_that_was_killed_on_a_full_disk_starts_and_serves_reads() {
    let Some(disk) = Small::mount(128) else { return };
    let data = disk.path().join("data");
    let args = ["--set", "settee/memory_mb=32", "--set", "settee/disk_reserve_mb=64"];
    let node = Node::start(&data, &args);
    node.must("PUT", "/db", "");
    fill(&node, "db", 0, 1000);
    let end = Instant::now() + Duration::from_secs(180);
    while !data.join("reserve/start").exists() {
        assert!(Instant::now() < end, "room for a start is kept on a disk that is nearly full");
        std::thread::sleep(Duration::from_millis(20));
    }
    let reads = |node: &Node| {
        for target in ["/db/doc-000007", "/db/_all_docs?limit=3", "/db/_changes?limit=3", "/db"] {
            let answer = node.ask(ADMIN, "GET", target, "");
            assert_eq!(answer.status, 200, "{target}: {answer:?}");
        }
    };
    disk.take_all();
    reads(&node);
    node.end("-KILL");
    disk.take_all();
    let node = Node::start(&data, &args);
    reads(&node);
    assert_ne!(node.ask(ADMIN, "PUT", "/db/more", "{}").status, 201);
    node.end("-KILL");
    fs::remove_file(disk.path().join("hog")).expect("removed");
    let node = Node::start(&data, &args);
    assert_eq!(node.must("GET", "/db", "").json()["doc_count"], 1000);
    node.must("PUT", "/db/more", "{}");
    node.end("-TERM");
}
