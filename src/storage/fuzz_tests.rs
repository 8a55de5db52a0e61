//! Fuzz targets of files on the disk: a store file, a journal, the lists beside them. See `world::fuzz`.
//!
//! Inputs are lists of changes to a whole file (place, byte), since the files are larger than inputs are.

use std::path::Path;
use std::sync::Arc;

use super::kv::{Batch, Store, StoreFile};
use super::layout::FileId;
use super::planted::Planted;
use super::redb_store::RedbStore;
use super::{journal, manifest};
use crate::world::fuzz::Fuzz;
use crate::world::{Disk, Env, tokio_host};

const ROWS: u32 = 200;

fn env() -> Env {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio_host::env(runtime.handle().clone())
}

fn row(n: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key {n:04}").into_bytes(), vec![n as u8; 100])
}

/// A file with the changes of an input.
fn changed(whole: &[u8], input: &[u8]) -> Vec<u8> {
    let mut out = whole.to_vec();
    for change in input.chunks_exact(5) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let at = place % out.len().max(1);
        match change[4] {
            // Now and then the rest is missing, or a page is lost or doubled.
            250 => out.truncate(at),
            251 => out.truncate((at / 4096) * 4096),
            252 if at + 4096 <= out.len() => out[at..at + 4096].fill(0),
            253 if at >= 4096 && at + 4096 <= out.len() => out.copy_within(at - 4096..at, at),
            byte => {
                if let Some(there) = out.get_mut(at) {
                    *there = byte;
                }
            }
        }
    }
    out
}

/// Lists of changes to begin with: near the head, in the middle, near the end.
fn places(len: usize) -> Vec<Vec<u8>> {
    let change = |at: usize, byte: u8| [&(at as u32).to_le_bytes()[..], &[byte]].concat();
    vec![
        Vec::new(),
        change(10, 1),
        change(600, 7),
        change(len / 2, 0),
        change(len.saturating_sub(8), 250),
        [change(4100, 252), change(9000, 3)].concat(),
    ]
}

#[test]
fn fuzz_store_files_answer_what_was_written_or_an_error() {
    let (env, dir) = (env(), tempfile::tempdir().unwrap());
    let (disk, path): (Arc<dyn Disk>, _) = (env.disk(), dir.path().join("0.redb"));
    let open = |path: &Path| RedbStore::open(disk.as_ref(), path, 1 << 20, Planted::none());
    let store = open(&path).unwrap();
    let mut batch = Batch::new();
    (0..ROWS).map(row).for_each(|(key, value)| batch.put(key, value));
    store.commit(&batch).unwrap();
    drop(store);
    let whole = std::fs::read(&path).unwrap();
    Fuzz::new("store files", places(whole.len())).run(|input| {
        std::fs::write(&path, changed(&whole, input)).unwrap();
        let Ok(store) = open(&path) else { return };
        let Ok(view) = store.snapshot() else { return };
        for (key, value) in (0..ROWS).map(row) {
            if let Ok(Some(found)) = view.get(&key) {
                assert_eq!(found.to_vec(), value, "what is read is what was written");
            }
        }
    });
}

#[test]
fn fuzz_journals_are_replayed_or_refused() {
    journal::fuzz_recovery(&env(), changed, places);
}

#[test]
fn fuzz_lists_of_store_files() {
    let (env, dir) = (env(), tempfile::tempdir().unwrap());
    let files = [FileId::Common(3), FileId::Own(0x1_0000), FileId::Sled].into();
    manifest::write(env.disk().as_ref(), dir.path(), &files).unwrap();
    let path = dir.path().join("files");
    let good = std::fs::read(&path).unwrap();
    Fuzz::new("lists of store files", [good]).words(&["crc=", "\n", ".redb", "settee-files: 1\n", "c", "s"]).run(
        |bytes| {
            std::fs::write(&path, bytes).unwrap();
            if let Ok(Some(read)) = manifest::read(env.disk().as_ref(), dir.path()) {
                assert_eq!(read, files, "a list that is read is the one that was written");
            }
        },
    );
}
