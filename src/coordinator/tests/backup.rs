//! Dumps, loads, snapshots and restores: what comes back is what went out, and nothing damaged does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bytes::Bytes;

use super::check::filled;
use super::*;
use crate::coordinator::backup::{self, BackupError, LeftOut, dump, load, restore, snapshot};
use crate::coordinator::{UploadOptions, WriteOptions};
use crate::world::with_disk::with_disk;
use crate::world::{Disk, Entry, File, OpenMode};

/// All that a client could see of a database: leaves with histories, bodies and attachments, local documents, purges.
async fn content(database: &Database) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for index in database.ranges() {
        let copy = database.own_shard(index).await.unwrap();
        for row in copy.changes(0, crate::storage::Direction::Forward, 10_000).await.unwrap().rows {
            let found = copy.fetch(vec![(row.id.clone(), Want::Leaves)]).await.unwrap().pop().flatten().unwrap();
            let mut text = String::new();
            for (rev, stored) in found.found {
                let stored = stored.unwrap();
                text += &format!("{:?} {} {:?}", found.tree.path_to(&rev), stored.deleted, stored.body);
                for attachment in &stored.attachments {
                    let mut reader = copy.blob_reader(attachment, crate::storage::ReadAs::Stored, None);
                    let mut bytes = Vec::new();
                    while let Some(piece) = reader.next().await.unwrap() {
                        bytes.extend_from_slice(&piece);
                    }
                    text += &format!("{attachment:?} {}", blake3::hash(&bytes).to_hex());
                }
            }
            out.insert(row.id.as_str().to_owned(), text);
        }
        for (name, local) in copy
            .local_list(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, crate::storage::Direction::Forward, 100)
            .await
            .unwrap()
        {
            out.insert(name.as_str().to_owned(), format!("{local:?}"));
        }
        for info in copy.purge_infos(0, 100).await.unwrap() {
            out.insert(format!("purge of {}", info.id.as_str()), format!("{:?}", info.revs));
        }
    }
    out.insert("settings".to_owned(), format!("{:?} {}", database.security(), database.revs_limit()));
    out
}

/// Writes a document with an attachment of `size` bytes.
async fn attach(database: &Database, name: &str, size: usize) {
    let bytes: Vec<u8> = (0..size).map(|n| (n * 31 + n / 97) as u8).collect();
    let options = UploadOptions { name: "a".into(), content_type: "image/png".into(), gzip: false, md5: None };
    let mut upload = database.upload(&id(name), options).await.unwrap();
    upload.write(Bytes::from(bytes)).await.unwrap();
    let text = r#"{"_attachments":{"a":{"follows":true,"content_type":"image/png","length":0}}}"#.to_owned();
    let text = text.replace("\"length\":0", &format!("\"length\":{size}"));
    let request = WriteRequest { id: id(name), draft: draft(&text), follows: vec![upload.finish().await.unwrap()] };
    database.write_one(request, WriteOptions::default()).await.unwrap();
}

async fn rich() -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = filled().await;
    attach(&database, "small", 100).await;
    attach(&database, "large", 300_000).await;
    for name in ["1-aa", "2-bb"] {
        let text = format!(r#"{{"_rev":"{name}","branch":"{name}"}}"#);
        let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
        database.write_one(request("forked", &text), options).await.unwrap();
    }
    database.set_revs_limit(77).await.unwrap();
    (world, coordinator, database)
}

async fn dumped(database: &Database) -> Vec<u8> {
    let mut out = Vec::new();
    let counts = dump(database, &mut out, &mut |_| {}).await.unwrap();
    assert_eq!(counts.skipped, 0);
    out
}

#[tokio::test]
async fn a_dump_that_is_loaded_under_another_name_is_the_same_database() {
    let (world, coordinator, database) = rich().await;
    let stream = dumped(&database).await;
    let (name, counts) = load(&coordinator, Some("again"), &mut stream.as_slice()).await.unwrap();
    assert_eq!((name.as_str(), counts.locals, counts.purges), ("again", 1, 1));
    let again = coordinator.database("again").unwrap();
    assert_eq!(content(&again).await, content(&database).await);
    assert_eq!(crate::coordinator::check(&world.storage).await.unwrap().findings, Vec::<String>::new());
    let taken = load(&coordinator, Some("again"), &mut stream.as_slice()).await;
    assert!(matches!(taken, Err(BackupError::Database(DatabaseError::Exists))));
}

#[tokio::test]
async fn a_dump_that_was_cut_or_changed_is_refused_and_leaves_nothing() {
    let (_world, coordinator, database) = rich().await;
    let stream = dumped(&database).await;
    for part in 0..24 {
        let at = stream.len() * part / 24;
        let mut flipped = stream.clone();
        flipped[at] ^= 0x10;
        for bytes in [&stream[..at], &flipped] {
            let mut input = bytes;
            let loaded = load(&coordinator, Some("broken"), &mut input).await;
            assert!(matches!(loaded, Err(BackupError::Damaged(_))), "{at}: {loaded:?}");
            assert!(!coordinator.has_database("broken"));
        }
    }
}

#[tokio::test]
async fn a_second_snapshot_copies_only_what_changed_and_each_can_be_restored() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let first = snapshot(&world.env, &database, folder.path()).await.unwrap();
    let before = content(&database).await;
    put(&database, "later", "{}").await;
    let second = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert!(first.written_bytes > 300_000 && second.written_bytes < 20_000, "{first:?} {second:?}");
    let third = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!((third.written_bytes, third.counts), (0, second.counts));
    for (n, (list, expected)) in [(first.file, before), (second.file, content(&database).await)].into_iter().enumerate()
    {
        let name = format!("restored{n}");
        let list = folder.path().join(list);
        let done = restore(&world.env, &coordinator, (folder.path(), &list), Some(&name)).await.unwrap();
        assert_eq!(done.name, name);
        assert_eq!(content(&coordinator.database(&name).unwrap()).await, expected);
    }
    let latest = backup::latest(world.env.disk().as_ref(), folder.path(), "db").unwrap().unwrap();
    assert_eq!(latest, folder.path().join(third.file));
    assert_eq!(crate::coordinator::check(&world.storage).await.unwrap().findings, Vec::<String>::new());
}

/// A disk that writes down which directories were synced.
struct SyncsNoted {
    below: Arc<dyn Disk>,
    synced: Mutex<BTreeSet<PathBuf>>,
}

impl Disk for SyncsNoted {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.below.open(path, mode)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.below.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.remove_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.below.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.synced.lock().unwrap().insert(path.to_path_buf());
        self.below.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}

/// The directory and all below it.
fn directories(at: &Path, out: &mut BTreeSet<PathBuf>) {
    out.insert(at.to_path_buf());
    let entries = std::fs::read_dir(at).unwrap().map(Result::unwrap);
    entries.filter(|entry| entry.file_type().unwrap().is_dir()).for_each(|entry| directories(&entry.path(), out));
}

#[tokio::test]
async fn every_name_that_leads_to_a_snapshot_is_durable_whoever_wrote_its_objects() {
    let (world, _coordinator, database) = rich().await;
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("kept").join("daily");
    // The second one finds all objects there, as from an attempt that ended before it synced its directories.
    for _ in 0..2 {
        let disk = Arc::new(SyncsNoted { below: world.env.disk(), synced: Mutex::default() });
        let env = with_disk(&world.env, Arc::clone(&disk) as Arc<dyn Disk>);
        snapshot(&env, &database, &folder).await.unwrap();
        let mut used = BTreeSet::new();
        directories(above.path(), &mut used);
        let synced = disk.synced.lock().unwrap().clone();
        let forgotten: Vec<_> = used.difference(&synced).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
    }
}

#[tokio::test]
async fn a_snapshot_taken_under_writes_is_one_state_that_the_database_was_in() {
    let (world, coordinator, database) = database(3).await;
    for n in 0..200 {
        put(&database, &format!("old {n:03}"), r#"{"v":0}"#).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let writer = {
        let database = Arc::clone(&database);
        async move {
            // Each write follows the one before: a state that has one has all before it.
            for n in 0..150 {
                put(&database, &format!("new {n:03}"), "{}").await;
                if n % 3 == 0 {
                    let gone = rev_of(&database, &format!("old {n:03}")).await;
                    database.purge(vec![(id(&format!("old {n:03}")), vec![gone])]).await.unwrap();
                }
            }
        }
    };
    let (taken, ()) = tokio::join!(snapshot(&world.env, &database, folder.path()), writer);
    let list = folder.path().join(taken.unwrap().file);
    restore(&world.env, &coordinator, (folder.path(), &list), Some("copy")).await.unwrap();
    let copy = content(&coordinator.database("copy").unwrap()).await;
    let there = |name: String| copy.contains_key(&name);
    let written = (0..150).take_while(|n| there(format!("new {n:03}"))).count();
    assert!((written..150).all(|n| !there(format!("new {n:03}"))), "a later write without an earlier one");
    for n in (0..150usize).filter(|n| n % 3 == 0) {
        let purged = !there(format!("old {n:03}"));
        assert!(if n + 1 < written { purged } else { n + 1 == written || !purged }, "purge {n} of {written}");
    }
}

async fn rev_of(database: &Database, name: &str) -> Revision {
    database.fetch(&id(name), Want::Winner).await.unwrap().unwrap().found[0].0.clone()
}

#[tokio::test]
async fn a_snapshot_with_a_damaged_or_missing_object_is_refused_and_leaves_nothing() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join(snapshot(&world.env, &database, folder.path()).await.unwrap().file);
    let mut files = vec![list.clone()];
    for dir in std::fs::read_dir(folder.path().join("objects")).unwrap() {
        files.extend(std::fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    assert!(files.len() >= 4);
    for file in files {
        let whole = std::fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for damaged in [Some(flipped), Some(whole[..whole.len() - 1].to_vec()), None] {
            match damaged {
                Some(bytes) => std::fs::write(&file, bytes).unwrap(),
                None => std::fs::remove_file(&file).unwrap(),
            }
            let done = restore(&world.env, &coordinator, (folder.path(), &list), Some("broken")).await;
            assert!(matches!(done, Err(BackupError::Damaged(_))), "{}: {done:?}", file.display());
            assert!(!coordinator.has_database("broken"));
        }
        std::fs::write(&file, whole).unwrap();
    }
}

const MANY: usize = 1200;

/// Many documents in one store file whose pages are read from the disk each time, and the file.
async fn on_disk() -> (World, Arc<Database>, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store/0.redb");
    let env = tokio_host::env(tokio::runtime::Handle::current());
    // With each commit all that came before is flushed.
    let options = StorageOptions { flush_at_bytes: 1, cache_bytes: 0, common_files: 1, ..StorageOptions::default() };
    let storage = Storage::open(env.clone(), dir.path(), options).await.unwrap();
    let world = World { env, storage, dir };
    let coordinator = world.start().await;
    coordinator.create_database("db", CreateOptions { q: Some(1), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let requests = (0..MANY).map(|n| request(&format!("doc-{n:04}"), r#"{"some":"text"}"#)).collect();
    let written = database.write(requests, WriteOptions::default()).await.unwrap();
    assert!(written.iter().all(Result::is_ok));
    put(&database, "_local/last", "{}").await;
    let is_there = || async { std::fs::read(&file).unwrap().windows(11).any(|window| window == b"_local/last") };
    super::cluster::eventually(is_there).await;
    (world, database, file)
}

/// Dumps a database; answers the stream, how many documents are in it, and what was left out.
async fn salvaged(database: &Database) -> (Vec<u8>, usize, Vec<LeftOut>) {
    let (mut out, mut left_out) = (Vec::new(), Vec::new());
    let counts = dump(database, &mut out, &mut |what| left_out.push(what)).await.unwrap();
    (out, counts.documents as usize, left_out)
}

#[tokio::test]
async fn a_dump_goes_on_behind_whatever_is_damaged_and_names_what_it_leaves_out() {
    let (_world, database, file) = on_disk().await;
    assert_eq!(salvaged(&database).await.1, MANY);
    let whole = std::fs::read(&file).unwrap();
    // Wherever an id stands: in documents, in rows of changes, in pages that lead to those.
    let places: Vec<usize> = (0..whole.len() - 4).filter(|at| &whole[*at..at + 4] == b"doc-").collect();
    let (mut named, mut complete) = (0, 0);
    for part in places.chunks(places.len().div_ceil(16)) {
        let mut damaged = whole.clone();
        damaged[part[part.len() / 2]] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let (_, documents, left_out) = salvaged(&database).await;
        let mut found = documents;
        for what in &left_out {
            found += match what {
                LeftOut::Document(_) => 1,
                LeftOut::Unnamed(0, Some(count)) => *count as usize,
                // The counters are gone, too.
                LeftOut::Unnamed(0, None) => MANY - found,
                LeftOut::Locals(0) | LeftOut::Purges(0) => 0,
                other => panic!("{other:?}"),
            };
        }
        assert_eq!(found, MANY, "{documents} {left_out:?}");
        named += usize::from(left_out.iter().any(|what| matches!(what, LeftOut::Document(_))));
        complete += usize::from(left_out.is_empty());
    }
    // Where rows of changes are damaged the documents are found by their ids.
    assert!(named >= 4 && complete >= 4, "{named} {complete}");
    let mut damaged = whole.clone();
    places.iter().step_by(500).for_each(|at| damaged[*at] ^= 1);
    std::fs::write(&file, damaged).unwrap();
    let (stream, documents, _) = salvaged(&database).await;
    let fresh = World::new().await;
    let (name, counts) = load(&fresh.start().await, None, &mut stream.as_slice()).await.unwrap();
    assert_eq!((name.as_str(), counts.documents as usize), ("db", documents));
}
