//! Data directories of older formats are read, and the commands that work on a directory: check, dump, load.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::read::GzDecoder;
use tempfile::TempDir;

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
