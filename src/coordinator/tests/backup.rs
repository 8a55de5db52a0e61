//! Dumps, loads, snapshots and restores: what comes back is what went out, and nothing damaged does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use super::check::filled;
use super::cluster::Cluster;
use super::*;
use crate::coordinator::backup::{self, BackupError, Extent, LeftOut, Snapshot, dump, load, restore};
use crate::coordinator::{ReadOperations, RebalanceOperations, UploadOptions, WriteOperations, WriteOptions};
use crate::shard::Pace;
use crate::world::with_disk::with_disk;
use crate::world::{Disk, Entry, Env, File, OpenMode};

/// Adds to the snapshots in a folder.
async fn snapshot(env: &Env, database: &Arc<Database>, folder: &Path) -> Result<Snapshot, BackupError> {
    backup::snapshot(env, database, folder, Extent::Added).await
}

/// All that a client could see of a database: leaves with histories, bodies and attachments, local documents, purges.
async fn content(database: &Arc<Database>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for index in database.ranges() {
        let replica = database.replicas().own_shard(index).await.unwrap();
        for row in replica.changes(0, crate::storage::Direction::Forward, 10_000).await.unwrap().rows {
            let found = replica.fetch(vec![(row.id.clone(), Want::Leaves)]).await.unwrap().pop().flatten().unwrap();
            let mut text = String::new();
            for (rev, stored) in found.found {
                let stored = stored.unwrap();
                text += &format!("{:?} {} {:?}", found.tree.path_to(&rev), stored.deleted, stored.body);
                for attachment in &stored.attachments {
                    let mut reader = replica.blob_reader(attachment, crate::storage::ReadAs::Stored, None);
                    let mut bytes = Vec::new();
                    while let Some(piece) = reader.next().await.unwrap() {
                        bytes.extend_from_slice(&piece);
                    }
                    text += &format!("{attachment:?} {}", blake3::hash(&bytes).to_hex());
                }
            }
            out.insert(row.id.as_str().to_owned(), text);
        }
        for (name, local) in replica
            .local_list(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, crate::storage::Direction::Forward, 100)
            .await
            .unwrap()
        {
            out.insert(name.as_str().to_owned(), format!("{local:?}"));
        }
        for info in replica.purge_infos(0, 100).await.unwrap() {
            out.insert(format!("purge of {}", info.id.as_str()), format!("{:?}", info.revs));
        }
    }
    let times = (database.known.auto_purge(), database.known.expires_at());
    out.insert("settings".to_owned(), format!("{:?} {} {times:?}", database.security(), database.revs_limit()));
    out
}

/// Writes a document with an attachment of `size` bytes.
async fn attach(database: &Arc<Database>, name: &str, size: usize) {
    let bytes: Vec<u8> = (0..size).map(|n| (n * 31 + n / 97) as u8).collect();
    let options = UploadOptions { name: "a".into(), content_type: "image/png".into(), gzip: false, md5: None };
    let mut upload = database.attachments().upload(&id(name), options).await.unwrap();
    upload.write(Bytes::from(bytes)).await.unwrap();
    let text = r#"{"_attachments":{"a":{"follows":true,"content_type":"image/png","length":0}}}"#.to_owned();
    let text = text.replace("\"length\":0", &format!("\"length\":{size}"));
    let request = WriteRequest { id: id(name), draft: draft(&text), follows: vec![upload.finish().await.unwrap()] };
    database.writer().write_one(request, WriteOptions::default()).await.unwrap();
}

async fn rich() -> (World, Arc<Coordinator>, Arc<Database>) {
    let (world, coordinator, database) = filled().await;
    attach(&database, "small", 100).await;
    attach(&database, "large", 300_000).await;
    for name in ["1-aa", "2-bb"] {
        let text = format!(r#"{{"_rev":"{name}","branch":"{name}"}}"#);
        let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
        database.writer().write_one(request("forked", &text), options).await.unwrap();
    }
    database.settings().set_revs_limit(77).await.unwrap();
    let (period, expires_at) = (Some("9_d".to_owned()), Some("ends".to_owned()));
    database.settings().set_retention(AutoPurge { period, expires_at }).await.unwrap();
    (world, coordinator, database)
}

async fn dumped(database: &Arc<Database>) -> Vec<u8> {
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
async fn every_name_that_leads_to_a_snapshot_is_durable_no_matter_who_wrote_its_objects() {
    let (world, _coordinator, database) = rich().await;
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("kept").join("daily");
    // The second one finds all objects and no list, as from an attempt that ended before it synced its directories.
    for _ in 0..2 {
        let disk = Arc::new(SyncsNoted { below: world.env.disk(), synced: Mutex::default() });
        let env = with_disk(&world.env, Arc::clone(&disk) as Arc<dyn Disk>);
        snapshot(&env, &database, &folder).await.unwrap();
        let mut used = BTreeSet::new();
        directories(above.path(), &mut used);
        let synced = disk.synced.lock().unwrap().clone();
        let forgotten: Vec<_> = used.difference(&synced).collect();
        assert!(forgotten.is_empty(), "{forgotten:?}");
        std::fs::remove_dir_all(folder.join("databases")).unwrap();
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
                    database.maintenance().purge(vec![(id(&format!("old {n:03}")), vec![gone])]).await.unwrap();
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

/// The list of a snapshot, as it stands in its file.
fn listed(folder: &std::path::Path, taken: &Snapshot) -> serde_json::Value {
    let text = std::fs::read_to_string(folder.join(&taken.file)).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

/// How many layers it has, of which each but the first was added by a later snapshot.
fn layers(folder: &std::path::Path, taken: &Snapshot) -> usize {
    listed(folder, taken)["layers"].as_array().unwrap().len()
}

/// Restores a snapshot under another name and answers what is in it.
async fn restored(
    (world, coordinator): (&World, &Arc<Coordinator>),
    folder: &std::path::Path,
    taken: &Snapshot,
    name: &str,
) -> BTreeMap<String, String> {
    let list = folder.join(&taken.file);
    restore(&world.env, coordinator, (folder, &list), Some(name)).await.unwrap();
    content(&coordinator.database(name).unwrap()).await
}

/// Another state of a document, whatever its revision was.
async fn change(database: &Arc<Database>, name: &str, text: &str) {
    let rev = rev_of(database, name).await;
    put(database, name, &format!(r#"{{"_rev":"{rev}","text":"{text}"}}"#)).await;
}

/// Which documents are changed by a round, spread as if at random.
fn some(count: usize, round: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |n| format!("doc-{:04}", (n * 7919 + round * 104_729 + n * n * 31) % MANY))
}

#[tokio::test]
async fn a_hundredth_that_changed_at_random_is_a_small_part_of_a_snapshot_until_it_is_time_for_a_whole_one() {
    let (world, coordinator, database) = database(2).await;
    let text = "x".repeat(300);
    let body = format!(r#"{{"text":"{text}"}}"#);
    let requests = (0..MANY).map(|n| request(&format!("doc-{n:04}"), &body)).collect();
    assert!(database.writer().write(requests, WriteOptions::default()).await.unwrap().iter().all(Result::is_ok));
    let folder = tempfile::tempdir().unwrap();
    let whole = snapshot(&world.env, &database, folder.path()).await.unwrap();
    let mut taken = Vec::new();
    for round in 0..5 {
        for name in some(MANY / 100, round) {
            change(&database, &name, &format!("{text}{round}")).await;
        }
        let done = snapshot(&world.env, &database, folder.path()).await.unwrap();
        assert!(done.written_bytes > 0 && done.written_bytes * 20 < whole.written_bytes, "{done:?} of {whole:?}");
        assert_eq!(layers(folder.path(), &done), 2 + round);
        taken.push((done, content(&database).await));
    }
    for (n, (done, expected)) in taken.iter().enumerate() {
        let back = restored((&world, &coordinator), folder.path(), done, &format!("back{n}")).await;
        assert_eq!(back, *expected, "{n}");
    }
    // Now two fifths: what was added is more than a third.
    for name in (0..MANY * 2 / 5).map(|n| format!("doc-{n:04}")) {
        change(&database, &name, &text).await;
    }
    let added = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &added), 7);
    let anew = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &anew), 1);
    assert!(anew.written_bytes * 2 > whole.written_bytes, "{anew:?}");
    assert_eq!(restored((&world, &coordinator), folder.path(), &anew, "anew").await, content(&database).await);
}

#[tokio::test]
async fn a_snapshot_is_a_whole_one_where_what_was_read_before_does_not_count_any_more() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let take = || snapshot(&world.env, &database, folder.path());
    take().await.unwrap();
    put(&database, "second", "{}").await;
    let second = take().await.unwrap();
    assert_eq!(layers(folder.path(), &second), 2);
    // A purge that no record tells of.
    for name in ["second", "doc 07"] {
        let rev = rev_of(&database, name).await;
        database.maintenance().purge(vec![(id(name), vec![rev])]).await.unwrap();
    }
    for replica in database.replicas().own_shards().await.unwrap() {
        replica.compact(0, Pace::new(&world.env, 1000)).await.unwrap();
    }
    let third = take().await.unwrap();
    assert_eq!(layers(folder.path(), &third), 1);
    assert_eq!(restored((&world, &coordinator), folder.path(), &third, "third").await, content(&database).await);
    // An object that somebody removed.
    let object = listed(folder.path(), &third)["layers"][0]["objects"][0]["name"].as_str().unwrap().to_owned();
    std::fs::remove_file(folder.path().join("objects").join(&object[..2]).join(&object)).unwrap();
    let fourth = take().await.unwrap();
    assert_eq!(layers(folder.path(), &fourth), 1);
    // A list that is damaged.
    std::fs::write(folder.path().join(&fourth.file), "{}").unwrap();
    put(&database, "fifth", "{}").await;
    let fifth = take().await.unwrap();
    assert_eq!(layers(folder.path(), &fifth), 1);
    assert_eq!(restored((&world, &coordinator), folder.path(), &fifth, "fifth").await, content(&database).await);
    // Another database of the name.
    drop(database);
    coordinator.delete_database("db").await.unwrap();
    coordinator.create_database("db", CreateOptions { q: Some(2), ..CreateOptions::default() }).await.unwrap();
    let other = coordinator.database("db").unwrap();
    for n in 0..60 {
        put(&other, &format!("other {n}"), "{}").await;
    }
    let sixth = snapshot(&world.env, &other, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &sixth), 1);
    assert_eq!(restored((&world, &coordinator), folder.path(), &sixth, "sixth").await, content(&other).await);
}

/// The disk of before a snapshot gives its positions to other changes.
#[tokio::test]
async fn a_snapshot_of_a_node_that_was_restored_adds_nothing_to_one_of_what_is_gone() {
    let world = World::open(tempfile::tempdir().unwrap(), Engine::Redb).await;
    let folder = tempfile::tempdir().unwrap();
    let coordinator = world.start().await;
    coordinator.create_database("db", CreateOptions { q: Some(1), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    for n in 0..40 {
        put(&database, &format!("stays {n}"), "{}").await;
    }
    let first = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &first), 1);
    let back = world.copy_of_data();
    put(&database, "lost", "{}").await;
    let second = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &second), 2);
    drop((database, coordinator, world));

    let world = World::open(back, Engine::Redb).await;
    let coordinator = world.start().await;
    let database = coordinator.database("db").unwrap();
    put(&database, "new", "{}").await;
    put(&database, "newer", "{}").await;
    let third = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &third), 1);
    assert_eq!(restored((&world, &coordinator), folder.path(), &third, "third").await, content(&database).await);
    // After a start in order the next one adds again.
    let next = world.copy_of_data();
    drop((database, coordinator, world));
    let world = World::open(next, Engine::Redb).await;
    let coordinator = world.start().await;
    let database = coordinator.database("db").unwrap();
    put(&database, "newest", "{}").await;
    let fourth = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!(layers(folder.path(), &fourth), 2);
    assert_eq!(restored((&world, &coordinator), folder.path(), &fourth, "fourth").await, content(&database).await);
}

#[tokio::test]
async fn a_snapshot_that_lacks_what_its_digest_counts_is_refused() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let first = snapshot(&world.env, &database, folder.path()).await.unwrap();
    let first = listed(folder.path(), &first);
    change(&database, "doc 07", "changed").await;
    let second = snapshot(&world.env, &database, folder.path()).await.unwrap();
    // The counts of both are the same.
    let mut forged = listed(folder.path(), &second);
    forged["layers"] = first["layers"].clone();
    let text = forged.to_string();
    let list = folder.path().join("forged.json");
    std::fs::write(&list, format!("{text}\n{}\n", blake3::hash(text.as_bytes()).to_hex())).unwrap();
    let done = restore(&world.env, &coordinator, (folder.path(), &list), Some("forged")).await;
    assert!(matches!(done, Err(BackupError::Damaged(_))), "{done:?}");
    assert!(!coordinator.has_database("forged"));
}

#[tokio::test]
async fn a_snapshot_of_format_1_can_be_restored_and_the_next_one_is_a_whole_one() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let taken = snapshot(&world.env, &database, folder.path()).await.unwrap();
    let mut list = listed(folder.path(), &taken);
    let names = |layer: &serde_json::Value| -> Vec<serde_json::Value> {
        layer["objects"].as_array().unwrap().iter().map(|object| object["name"].clone()).collect()
    };
    let base = names(&list["layers"][0]);
    for (name, value) in [("format", 1.into()), ("base", base.into()), ("tail", Vec::<u8>::new().into())] {
        list[name] = value;
    }
    list["gone"] = vec!["doc 07"].into();
    list["live"] = (list["live"].as_u64().unwrap() - 1).into();
    ["layers", "seq", "purged", "digest"].iter().for_each(|name| drop(list.as_object_mut().unwrap().remove(*name)));
    let text = list.to_string();
    let sealed = format!("{text}\n{}\n", blake3::hash(text.as_bytes()).to_hex());
    std::fs::write(folder.path().join(&taken.file), sealed).unwrap();
    let mut expected = content(&database).await;
    expected.remove("doc 07").unwrap();
    assert_eq!(restored((&world, &coordinator), folder.path(), &taken, "old").await, expected);
    let next = snapshot(&world.env, &database, folder.path()).await.unwrap();
    assert_eq!((layers(folder.path(), &next), next.written_bytes), (1, 0));
}

/// One step of a history between snapshots.
#[derive(Clone, Debug)]
enum Step {
    /// A leaf of a document: generation and hash, deleted.
    Leaf(u8, (u8, u8), bool),
    Attach(u8, u16),
    Purge(u8, usize),
    Local(u8),
    /// All records of purges go.
    Compact,
    Snapshot,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = (0_u8..60, (1_u8..4, 0_u8..4), prop::bool::weighted(0.2));
    let step = prop_oneof![
        30 => leaf.prop_map(|(doc, rev, deleted)| Step::Leaf(doc, rev, deleted)),
        3 => (0_u8..60, prop_oneof![Just(50_u16), Just(6000)]).prop_map(|(doc, size)| Step::Attach(doc, size)),
        6 => (0_u8..60, 0_usize..3).prop_map(|(doc, of)| Step::Purge(doc, of)),
        1 => (0_u8..3).prop_map(Step::Local),
        1 => Just(Step::Compact),
        6 => Just(Step::Snapshot),
    ];
    prop::collection::vec(step, 20..90)
}

async fn apply(world: &World, database: &Arc<Database>, step: &Step) {
    match step {
        Step::Leaf(doc, (generation, hash), deleted) => {
            let text = format!(r#"{{"_rev":"{generation}-{hash}","_deleted":{deleted},"n":{hash}}}"#);
            let options = WriteOptions { new_edits: false, ..WriteOptions::default() };
            database.writer().write_one(request(&format!("d{doc}"), &text), options).await.unwrap();
        }
        Step::Attach(doc, size) => {
            let name = format!("attached{doc}");
            if database.documents().fetch(&id(&name), Want::Winner).await.unwrap().is_none() {
                attach(database, &name, usize::from(*size)).await;
            }
        }
        Step::Purge(doc, of) => {
            for name in [format!("d{doc}"), format!("attached{doc}")] {
                let fetched = database.documents().fetch(&id(&name), Want::Leaves).await.unwrap();
                if let Some((rev, _)) = fetched.and_then(|fetched| fetched.found.into_iter().nth(*of)) {
                    database.maintenance().purge(vec![(id(&name), vec![rev])]).await.unwrap();
                }
            }
        }
        Step::Local(name) => {
            let request = request(&format!("_local/{name}"), "{}");
            drop(database.writer().write_one(request, WriteOptions::default()).await);
        }
        Step::Compact => {
            for replica in database.replicas().own_shards().await.unwrap() {
                replica.compact(1, Pace::new(&world.env, 1000)).await.unwrap();
            }
        }
        Step::Snapshot => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn each_snapshot_of_a_history_is_the_database_of_its_moment(q in 1_u32..4, steps in steps()) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let (world, coordinator, database) = database(q).await;
            let folder = tempfile::tempdir().unwrap();
            // So much that layers are added for a while.
            for n in 0..120 {
                put(&database, &format!("old {n}"), r#"{"some":"text of some length"}"#).await;
            }
            let mut taken = Vec::new();
            for step in steps.iter().chain([&Step::Snapshot]) {
                apply(&world, &database, step).await;
                if let Step::Snapshot = step {
                    let done = snapshot(&world.env, &database, folder.path()).await.unwrap();
                    taken.push((done.file.clone(), (done, content(&database).await)));
                }
            }
            assert!(taken.is_sorted_by(|(one, _), (next, _)| one < next));
            for (file, (done, expected)) in taken {
                let name = format!("back{}", file.replace(|c: char| !c.is_ascii_digit(), ""));
                assert_eq!(restored((&world, &coordinator), folder.path(), &done, &name).await, expected, "{file}");
            }
        });
    }
}

#[tokio::test]
async fn a_snapshot_is_behind_the_newest_one_although_the_clock_went_back() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    let (env, node) = (&world.env, || backup::snapshot_node(&world.env, &coordinator, folder.path(), Extent::Added));
    let ahead = |file: &str| {
        let (dir, name) = file.rsplit_once('/').unwrap();
        let time = name.strip_suffix(".json").unwrap().parse::<u64>().unwrap() + 3_600_000;
        let later = format!("{dir}/{time:015}.json");
        std::fs::rename(folder.path().join(file), folder.path().join(&later)).unwrap();
        (later, time)
    };
    // Taken an hour ahead, before the clock was set.
    let first = snapshot(env, &database, folder.path()).await.unwrap();
    let (_, time) = ahead(&first.file);
    put(&database, "later", "{}").await;
    let second = snapshot(env, &database, folder.path()).await.unwrap();
    let latest = backup::latest(env.disk().as_ref(), folder.path(), "db").unwrap().unwrap();
    assert_eq!(latest, folder.path().join(&second.file));
    assert_eq!(listed(folder.path(), &second)["taken_ms"], time + 1);
    assert_eq!(layers(folder.path(), &second), 2);
    assert_eq!(restored((&world, &coordinator), folder.path(), &second, "second").await, content(&database).await);
    coordinator.delete_database("second").await.unwrap();

    let (_, time) = ahead(&node().await.unwrap().file);
    let file = node().await.unwrap().file;
    let latest = backup::latest_of_node(env.disk().as_ref(), folder.path()).unwrap().unwrap();
    assert_eq!(latest, folder.path().join(&file));
    assert_eq!(file, format!("nodes/{:015}.json", time + 1));
}

/// The snapshot of all databases failed where a range of one had left the node just after that was looked at.
#[tokio::test]
async fn a_snapshot_of_a_node_leaves_out_a_database_whose_range_has_just_left() {
    let (world, coordinator, database) = database(2).await;
    put(&database, "a", "{}").await;
    coordinator.create_database("other", CreateOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    // The map is as before, so that the first look finds nothing.
    database.own_replicas().let_go(database.ranges()[0], Duration::ZERO).await;
    assert!(database.replicas().holds_every_range());
    let taken = backup::snapshot_node(&world.env, &coordinator, folder.path(), Extent::Added).await.unwrap();
    assert_eq!(taken.left_out, ["db"]);
    assert!(taken.databases.iter().any(|(name, _)| name == "other"), "{taken:?}");
    let own = snapshot(&world.env, &database, folder.path()).await;
    assert!(matches!(&own, Err(BackupError::Elsewhere(name)) if name == "db"), "{own:?}");
}

/// That too few nodes are there was told as damage of the snapshot.
#[tokio::test]
async fn a_restore_without_a_majority_says_so_and_leaves_nothing() {
    let cluster = Cluster::new(3).await;
    cluster.create(0, 1, 3).await.unwrap();
    let (env, coordinator) = (cluster.nodes[0].world.env.clone(), &cluster.nodes[0].coordinator);
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join(snapshot(&env, &cluster.db(0), folder.path()).await.unwrap().file);
    cluster.cut(&[1, 2]);
    let done = restore(&env, coordinator, (folder.path(), &list), Some("copy")).await;
    assert!(matches!(&done, Err(BackupError::NoMajority(name)) if name == "copy"), "{done:?}");
    assert!(coordinator.database("copy").is_err());
}

/// Attachments that go with their documents while they are read were told as damage.
#[tokio::test]
async fn what_is_purged_while_a_snapshot_is_taken_is_no_damage() {
    let (world, coordinator, database) = database(1).await;
    for n in 0..40 {
        attach(&database, &format!("doc {n:02}"), if n % 4 == 0 { 6000 + n } else { 100 + n }).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let writer = {
        let database = Arc::clone(&database);
        async move {
            // The last that is read goes first.
            for n in (0..40).rev() {
                let name = format!("doc {n:02}");
                let gone = rev_of(&database, &name).await;
                database.maintenance().purge(vec![(id(&name), vec![gone])]).await.unwrap();
            }
        }
    };
    let (taken, ()) = tokio::join!(snapshot(&world.env, &database, folder.path()), writer);
    let taken = taken.unwrap();
    assert_eq!(world.storage.damage().refused(), 0);
    restored((&world, &coordinator), folder.path(), &taken, "back").await;
    let given_up = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(given_up.into_iter().all(|name| !name.to_string_lossy().starts_with("new-")));
}

#[tokio::test]
async fn a_whole_snapshot_mends_what_one_that_adds_trusts() {
    let (world, coordinator, database) = rich().await;
    let folder = tempfile::tempdir().unwrap();
    snapshot(&world.env, &database, folder.path()).await.unwrap();
    let mut objects = Vec::new();
    for dir in std::fs::read_dir(folder.path().join("objects")).unwrap() {
        objects.extend(std::fs::read_dir(dir.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()));
    }
    let large = objects.iter().find(|path| std::fs::metadata(path).unwrap().len() == 300_000).unwrap().clone();
    put(&database, "later", "{}").await;
    for missing in [true, false] {
        match missing {
            true => std::fs::remove_file(&large).unwrap(),
            false => objects.iter().for_each(|path| {
                let mut bytes = std::fs::read(path).unwrap();
                bytes[7] ^= 1;
                std::fs::write(path, bytes).unwrap();
            }),
        }
        let added = snapshot(&world.env, &database, folder.path()).await.unwrap();
        assert!(layers(folder.path(), &added) > 1 || !missing);
        let list = folder.path().join(&added.file);
        let broken = restore(&world.env, &coordinator, (folder.path(), &list), Some("broken")).await;
        assert!(matches!(broken, Err(BackupError::Damaged(_))), "{broken:?}");
        let whole = backup::snapshot(&world.env, &database, folder.path(), Extent::Whole).await.unwrap();
        assert_eq!(layers(folder.path(), &whole), 1);
        assert!(whole.written_bytes >= 300_000, "{whole:?}");
        let name = format!("back{missing}");
        assert_eq!(restored((&world, &coordinator), folder.path(), &whole, &name).await, content(&database).await);
        let again = backup::snapshot(&world.env, &database, folder.path(), Extent::Whole).await.unwrap();
        assert_eq!((again.written_bytes, layers(folder.path(), &again)), (0, 1));
    }
}

async fn rev_of(database: &Arc<Database>, name: &str) -> Revision {
    database.documents().fetch(&id(name), Want::Winner).await.unwrap().unwrap().found[0].0.clone()
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

/// Many documents in one store file whose pages are read from the disk each time, and the file. Nothing is flushed to
/// it any more.
async fn on_disk() -> (World, Arc<Database>, std::path::PathBuf) {
    let rare = StorageOptions { cache_bytes: 0, common_files: 1, ..StorageOptions::default() };
    // With each commit all that came before is flushed.
    let options = StorageOptions { flush_at_bytes: 1, ..rare };
    let world = World::open_with(tempfile::tempdir().unwrap(), options).await;
    let file = world.dir.path().join("store/0.redb");
    let coordinator = world.start().await;
    coordinator.create_database("db", CreateOptions { q: Some(1), ..CreateOptions::default() }).await.unwrap();
    let database = coordinator.database("db").unwrap();
    let requests = (0..MANY).map(|n| request(&format!("doc-{n:04}"), r#"{"some":"text"}"#)).collect();
    let written = database.writer().write(requests, WriteOptions::default()).await.unwrap();
    assert!(written.iter().all(Result::is_ok));
    put(&database, "_local/last", "{}").await;
    let is_there = || async { std::fs::read(&file).unwrap().windows(11).any(|window| window == b"_local/last") };
    super::cluster::eventually(is_there).await;
    let world = World::open_with(world.copy_of_data(), rare).await;
    let database = world.start().await.database("db").unwrap();
    let file = world.dir.path().join("store/0.redb");
    (world, database, file)
}

/// Dumps a database; answers the stream, how many documents are in it, and what was left out.
async fn recovered(database: &Arc<Database>) -> (Vec<u8>, usize, Vec<LeftOut>) {
    let (mut out, mut left_out) = (Vec::new(), Vec::new());
    let counts = dump(database, &mut out, &mut |what| left_out.push(what)).await.unwrap();
    (out, counts.documents as usize, left_out)
}

#[tokio::test]
async fn a_dump_goes_on_behind_whatever_is_damaged_and_names_what_it_leaves_out() {
    let (_world, database, file) = on_disk().await;
    assert_eq!(recovered(&database).await.1, MANY);
    let whole = std::fs::read(&file).unwrap();
    // Wherever an id stands: in documents, in rows of changes, in pages that lead to those.
    let places: Vec<usize> = (0..whole.len() - 4).filter(|at| &whole[*at..at + 4] == b"doc-").collect();
    let (mut named, mut complete) = (0, 0);
    for part in places.chunks(places.len().div_ceil(16)) {
        let mut damaged = whole.clone();
        damaged[part[part.len() / 2]] ^= 1;
        std::fs::write(&file, damaged).unwrap();
        let (_, documents, left_out) = recovered(&database).await;
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
    let (stream, documents, _) = recovered(&database).await;
    let fresh = World::new().await;
    let (name, counts) = load(&fresh.start().await, None, &mut stream.as_slice()).await.unwrap();
    assert_eq!((name.as_str(), counts.documents as usize), ("db", documents));
}
