//! A node proves at its start that its files are all there, or says what is missing; `settee salvage` takes over the
//! rest.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::node::{Node, files, fill, refused, settee};

fn text(path: &Path) -> &str {
    path.to_str().expect("plain characters")
}

/// A stopped node's directory with databases in several store files and more than one journal segment.
fn stopped() -> TempDir {
    let dir = TempDir::new().expect("a directory");
    let args = ["--set", "settee/memory_mb=32"];
    for round in 0..2u32 {
        let node = Node::start(dir.path(), &args);
        for n in 0..6 {
            if round == 0 {
                node.must("PUT", &format!("/db{n}"), "");
            }
            fill(&node, &format!("db{n}"), round * 10_000, 3000);
        }
        // Flushes go on for a while behind the writes.
        let end = Instant::now() + Duration::from_secs(180);
        while round == 1 && listed(dir.path()).len() < 2 {
            assert!(Instant::now() < end, "several store files");
            std::thread::sleep(Duration::from_millis(20));
        }
        node.end("-TERM");
    }
    dir
}

/// The store files that hold something which the journal may not have. A flush that the stop cut short may have left
/// one more, of which nothing is needed.
fn listed(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(dir.join("store/files")).expect("the list");
    text.lines().filter(|line| line.ends_with(".redb")).map(str::to_owned).collect()
}

/// A copy of it: what is tried changes it.
fn copied(dir: &TempDir) -> TempDir {
    let copy = TempDir::new().expect("a directory");
    let done = Command::new("cp").args(["-a", &format!("{}/.", text(dir.path())), text(copy.path())]).status();
    assert!(done.expect("cp runs").success());
    copy
}

fn must_refuse(dir: &Path, words: &str) {
    let (status, told) = refused(dir, &[]);
    assert_eq!((status, told.lines().count()), (Some(3), 1), "{told}");
    for words in [words, "settee salvage", "docs/operations.md"] {
        assert!(told.contains(words), "{words}: {told}");
    }
}

/// Was: the node started without a word, and its lists lacked what the files held.
#[test]
fn a_node_whose_files_were_removed_says_which_and_does_not_start() {
    let dir = stopped();
    let stores = listed(dir.path());
    assert!(stores.len() >= 2, "{stores:?}");
    for name in &stores {
        let copy = copied(&dir);
        fs::remove_file(copy.path().join("store").join(name)).expect("removed");
        must_refuse(copy.path(), &format!("store/{name}"));
    }
    let segments = files(dir.path(), "journal", ".log");
    let last = segments.last().expect("a segment").file_name().expect("a name").to_owned();
    type Removal = (&'static str, Box<dyn Fn(&Path)>);
    let removals: Vec<Removal> = vec![
        ("journal", Box::new(|dir| fs::remove_dir_all(dir.join("journal")).expect("removed"))),
        ("journal segment", Box::new(move |dir| fs::remove_file(dir.join("journal").join(&last)).expect("removed"))),
        ("store", Box::new(|dir| fs::remove_dir_all(dir.join("store")).expect("removed"))),
        ("store/layout", Box::new(|dir| fs::remove_file(dir.join("store/layout")).expect("removed"))),
        ("store/files", Box::new(|dir| fs::remove_file(dir.join("store/files")).expect("removed"))),
        ("format", Box::new(|dir| fs::remove_file(dir.join("format")).expect("removed"))),
    ];
    for (words, remove) in removals {
        let copy = copied(&dir);
        remove(copy.path());
        must_refuse(copy.path(), words);
    }
    // Nothing was removed: it starts, and so does an empty directory.
    let node = Node::start(dir.path(), &[]);
    assert_eq!(node.must("GET", "/db3", "").json()["doc_count"], 6000);
    node.end("-TERM");
    let empty = TempDir::new().expect("a directory");
    Node::start(empty.path(), &[]).end("-TERM");
}

/// Was: the node started without a word, and acknowledged documents were missing.
#[test]
fn a_node_in_which_an_older_store_file_was_put_says_which_and_does_not_start() {
    let dir = stopped();
    let before = copied(&dir);
    let is_as_before = |name: &String| {
        let read = |dir: &Path| fs::read(dir.join("store").join(name)).expect("read");
        read(dir.path()) == read(before.path())
    };
    let node = Node::start(dir.path(), &["--set", "settee/memory_mb=32"]);
    let (mut rounds, mut since) = (0, 0);
    // Behind a flush some more, until the journal has begun a segment.
    while since < 3 {
        (0..6).for_each(|n| fill(&node, &format!("db{n}"), 20_000 + rounds * 3000, 3000));
        rounds += 1;
        since += u32::from(!listed(before.path()).iter().all(is_as_before));
        assert!(rounds < 30, "nothing is flushed");
    }
    node.end("-TERM");
    let mut refused = 0;
    for name in listed(before.path()) {
        let (file, older) = (dir.path().join("store").join(&name), before.path().join("store").join(&name));
        let newer = fs::read(&file).expect("read");
        fs::copy(&older, &file).expect("copied");
        let (status, told, errors) = settee(&["check", text(dir.path())]);
        let words = format!("store/{name} is older than what was written to it");
        // One that was not flushed to, or not noted before the stop, is whole: the journal has the rest.
        if format!("{told}{errors}").contains(&words) {
            assert_ne!(status, Some(0), "{told}{errors}");
            must_refuse(dir.path(), &words);
            assert_eq!(fs::read(&file).expect("read"), fs::read(&older).expect("read"), "nothing was changed");
            let new = TempDir::new().expect("a directory");
            let (status, told, errors) = settee(&["salvage", text(dir.path()), "--to", text(new.path())]);
            assert_eq!(status, Some(1), "{told}{errors}");
            assert!(told.contains(&format!("lost: {words}")), "{told}{errors}");
            refused += 1;
        }
        fs::write(&file, newer).expect("written");
    }
    assert!(refused >= 1, "none was flushed to");
    let node = Node::start(dir.path(), &[]);
    (0..6).for_each(|n| assert_eq!(node.must("GET", &format!("/db{n}"), "").json()["doc_count"], 6000 + 3000 * rounds));
    node.end("-TERM");
}

/// Was: no command could read anything of such a directory.
#[test]
fn one_flipped_byte_in_the_journal_costs_the_documents_that_are_named_and_no_other() {
    let dir = TempDir::new().expect("a directory");
    let node = Node::start(dir.path(), &[]);
    node.must("PUT", "/db", "");
    for n in 0..50 {
        node.must("PUT", &format!("/db/doc-{n}"), &format!(r#"{{"n":{n},"text":"value of document {n}"}}"#));
    }
    node.must("PUT", "/db/_local/note", r#"{"a":1}"#);
    node.end("-KILL");
    let mut hit = None;
    for path in files(dir.path(), "journal", ".log") {
        let mut bytes = fs::read(&path).expect("read");
        let word = b"value of document 17";
        if let Some(at) = bytes.windows(word.len()).position(|window| window == word) {
            bytes[at] ^= 1;
            fs::write(&path, bytes).expect("written");
            hit = Some(path);
        }
    }
    assert!(hit.is_some(), "the document is in the journal");
    must_refuse(dir.path(), "damaged between positions");
    let before = snapshot_of(dir.path());
    let new = TempDir::new().expect("a directory");
    let (status, told, errors) = settee(&["salvage", text(dir.path()), "--to", text(new.path())]);
    assert_eq!(status, Some(1), "{told}{errors}");
    assert!(told.contains("may be missing: database \"db\", document \"doc-17\""), "{told}{errors}");
    assert_eq!(snapshot_of(dir.path()), before, "the original is as it was");
    let node = Node::start(new.path(), &[]);
    for n in (0..50).filter(|n| *n != 17) {
        let doc = node.must("GET", &format!("/db/doc-{n}"), "").json();
        assert_eq!(doc["text"], format!("value of document {n}"));
    }
    assert_eq!(node.must("GET", "/db/_local/note", "").json()["a"], 1);
    node.end("-TERM");
}

#[test]
fn what_is_whole_is_taken_over_when_a_store_file_or_the_journal_is_gone() {
    let dir = stopped();
    let name = listed(dir.path()).pop().expect("a store file");
    fs::remove_file(dir.path().join("store").join(&name)).expect("removed");
    let new = TempDir::new().expect("a directory");
    let (status, told, errors) = settee(&["salvage", text(dir.path()), "--to", text(new.path())]);
    assert_eq!(status, Some(1), "{told}{errors}");
    assert!(told.contains(&format!("lost: store/{name} is missing")), "{told}");
    let node = Node::start(new.path(), &[]);
    let whole = (0..6).filter(|n| {
        let answer = node.ask("adm:pass", "GET", &format!("/db{n}"), "");
        answer.status == 200 && answer.json()["doc_count"] == 6000
    });
    assert!(whole.count() >= 1, "{told}");
    node.end("-TERM");
    let (status, _, errors) = settee(&["salvage", text(dir.path()), "--to", text(new.path())]);
    assert!(status == Some(1) && errors.contains("is not empty"), "{errors}");
}

/// Names, sizes and contents.
fn snapshot_of(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.push((text(&path).to_owned(), fs::read(&path).expect("read"))),
            }
        }
    }
    found.sort();
    found
}

/// Was: 0644 and 0755, with password hashes in the clear.
#[test]
fn nobody_else_reads_the_data_directory_also_one_that_was_open_before() {
    let above = TempDir::new().expect("a directory");
    let dir = above.path().join("data");
    let node = Node::start(&dir, &[]);
    node.must("PUT", "/db", "");
    let blob = "x".repeat(20_000);
    node.must("PUT", "/db/doc/file", &blob);
    assert_eq!(open_to_others(&dir), Vec::<String>::new());
    node.end("-TERM");
    let opened = Command::new("chmod").args(["-R", "go+rX", text(&dir)]).status().expect("chmod runs");
    assert!(opened.success());
    let node = Node::start(&dir, &[]);
    let wide: Vec<String> = open_to_others(&dir).into_iter().filter(|path| !path.contains("/blobs/")).collect();
    assert_eq!(wide, Vec::<String>::new(), "blobs lie behind a directory that is closed");
    assert_eq!(fs::metadata(&dir).expect("there").permissions().mode() & 0o777, 0o700);
    let (_, log) = node.end("-TERM");
    assert!(log.contains("could be read by others"), "{log}");
}

/// Files and directories that others than the owner have any right to.
fn open_to_others(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut paths = vec![dir.to_path_buf()];
    while let Some(path) = paths.pop() {
        if fs::metadata(&path).expect("there").permissions().mode() & 0o077 != 0 {
            found.push(text(&path).to_owned());
        }
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).expect("a folder").map(|entry| entry.expect("an entry").path()));
        }
    }
    found
}
