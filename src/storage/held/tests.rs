//! An older store file that was restored is found, whatever else of the directory is as it was; and no crash makes a
//! file look older than it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::storage::kv::{Batch, Store};
use crate::storage::layered::{LayeredOptions, LayeredStore};
use crate::storage::planted::Planted;
use crate::world::forgetful::Forgetful;
use crate::world::with_disk::with_disk;
use crate::world::{Disk, Env};

/// A shard that stays small, and one that gets a file of its own. They share a common file before.
const STAYS: u64 = 16;
const GROWS: u64 = 17;
const COMMON: FileId = FileId::Common(0);
const OWN: FileId = FileId::Own(GROWS);

fn env() -> Env {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone())
}

fn files_of(disk: &Arc<dyn Disk>, dir: &Path, missing_files: MissingFiles) -> Result<DiskStoreFiles, StorageError> {
    let (store, settings) = (dir.join("store"), (1, missing_files));
    disk.create_dir_all(&store)?;
    DiskStoreFiles::open(Arc::clone(disk), store, settings, 1 << 20, Planted::none(), Box::new(()))
}

/// Opens what is in `dir`; a memtable is flushed with each commit.
fn open_on(env: &Env, dir: &Path, missing_files: MissingFiles) -> Result<LayeredStore, StorageError> {
    let store_files = files_of(&env.disk(), dir, missing_files)?;
    let options = LayeredOptions { flush_at_bytes: 1, own_file_bytes: 2_000, missing_files, planted: Planted::none() };
    LayeredStore::open(env, &dir.join("journal"), Arc::new(store_files), options)
}

fn open(dir: &Path, missing_files: MissingFiles) -> Result<LayeredStore, StorageError> {
    open_on(&env(), dir, missing_files)
}

fn key(shard: u64, rest: u8) -> Vec<u8> {
    [shard.to_be_bytes().as_slice(), &[rest]].concat()
}

fn commit(store: &LayeredStore, shard: u64, rest: u8) {
    let mut batch = Batch::new();
    batch.put(key(shard, rest), vec![rest; 200]);
    store.commit(&batch).unwrap();
}

/// Commits, and flushes as the flusher does.
fn write(store: &LayeredStore, shard: u64, rest: u8) {
    commit(store, shard, rest);
    loop {
        // Not in the condition: the tables would stay locked.
        let Some(file) = store.tables().next_flush() else { return };
        assert!(!store.flush(file) && !store.has_failed());
    }
}

fn has(store: &LayeredStore, shard: u64, rests: std::ops::Range<u8>) -> bool {
    let view = store.view().unwrap();
    rests.into_iter().all(|rest| view.get(&key(shard, rest)).unwrap() == Some(vec![rest; 200]))
}

fn path(dir: &Path, file: FileId) -> PathBuf {
    dir.join("store").join(file.name())
}

/// A directory in which `OWN` and `COMMON` have been flushed to since they were as they are answered, and the journal
/// has nothing of that any more.
fn stopped(dir: &Path) -> [(FileId, Vec<u8>); 2] {
    let store = open(dir, MissingFiles::Refuse).unwrap();
    (0..5).for_each(|rest| write(&store, STAYS, rest));
    (0..40).for_each(|rest| write(&store, GROWS, rest));
    assert_eq!(store.tables().home(GROWS), OWN);
    drop(store);
    let before = [COMMON, OWN].map(|file| (file, fs::read(path(dir, file)).unwrap()));
    let store = open(dir, MissingFiles::Refuse).unwrap();
    (40..50).for_each(|rest| write(&store, GROWS, rest));
    (5..10).for_each(|rest| write(&store, STAYS, rest));
    store.checkpoint_now().unwrap();
    before
}

#[test]
fn an_older_file_is_refused_at_the_start_and_the_newer_one_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    for (file, before) in stopped(dir.path()) {
        let path = path(dir.path(), file);
        let newer = fs::read(&path).unwrap();
        fs::write(&path, &before).unwrap();
        let refused = open(dir.path(), MissingFiles::Refuse).err();
        let Some(StorageError::Corrupt(told)) = refused else { panic!("{refused:?}") };
        assert!(told.contains(&format!("store/{} is older", file.name())), "{told}");
        assert_eq!(fs::read(&path).unwrap(), before, "nothing was changed");
        fs::write(&path, &newer).unwrap();
        let store = open(dir.path(), MissingFiles::Refuse).unwrap();
        assert!(has(&store, STAYS, 0..10) && has(&store, GROWS, 0..50));
    }
}

#[test]
fn an_older_file_of_a_single_shard_counts_as_damaged_where_such_files_are_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let [(_, common), (_, own)] = stopped(dir.path());
    fs::write(path(dir.path(), OWN), own).unwrap();
    for _ in 0..2 {
        let store = open(dir.path(), MissingFiles::Rebuild).unwrap();
        assert_eq!(store.damaged_shards().into_keys().collect::<Vec<_>>(), [GROWS]);
        assert!(has(&store, STAYS, 0..10));
        assert!(matches!(store.view().unwrap().get(&key(GROWS, 0)), Err(StorageError::Corrupt(_))));
    }
    let store = open(dir.path(), MissingFiles::Rebuild).unwrap();
    assert_eq!(store.quarantine(GROWS, "why"), Ok(Some(format!("quarantine/{}", OWN.name()))));
    drop(store);
    let store = open(dir.path(), MissingFiles::Refuse).unwrap();
    assert!(has(&store, STAYS, 0..10), "what was put away is not held against what it held");
    drop(store);
    fs::write(path(dir.path(), COMMON), common).unwrap();
    assert!(open(dir.path(), MissingFiles::Rebuild).is_err(), "it holds many shards");
}

#[test]
fn what_an_older_file_has_is_taken_over_and_it_is_told_that_the_rest_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    for (file, before) in stopped(dir.path()) {
        fs::write(path(dir.path(), file), before).unwrap();
    }
    let store = open(dir.path(), MissingFiles::TakeOver).unwrap();
    let told: Vec<String> = store.lost().into_iter().map(|lost| lost.what).collect();
    for file in [COMMON, OWN] {
        let begin = format!("store/{} is older", file.name());
        assert_eq!(told.iter().filter(|told| told.starts_with(&begin)).count(), 1, "{told:?}");
    }
    assert!(has(&store, STAYS, 0..5) && has(&store, GROWS, 0..40));
}

#[test]
fn all_store_files_or_the_journal_of_an_earlier_time_are_refused() {
    for folder in ["store", "journal"] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), MissingFiles::Refuse).unwrap();
        (0..5).for_each(|rest| write(&store, STAYS, rest));
        drop(store);
        let before: Vec<(PathBuf, Vec<u8>)> = fs::read_dir(dir.path().join(folder))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        let store = open(dir.path(), MissingFiles::Refuse).unwrap();
        (5..10).for_each(|rest| write(&store, STAYS, rest));
        drop(store);
        fs::remove_dir_all(dir.path().join(folder)).unwrap();
        fs::create_dir(dir.path().join(folder)).unwrap();
        before.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        let refused = open(dir.path(), MissingFiles::Refuse).err();
        assert!(matches!(refused, Some(StorageError::Corrupt(_))), "{folder}: {refused:?}");
    }
}

#[test]
fn a_file_at_which_the_start_did_not_look_is_refused_when_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    drop(stopped(dir.path()));
    let disk = env().disk();
    let held_by = |file| files_of(&disk, dir.path(), MissingFiles::Refuse).unwrap().held_by(file);
    let held = held_by(COMMON);
    let no_root_writes = Held { root_writes: 0, ..held };
    for (least, is_refused) in [
        (held, false),
        (Held::default(), false),
        (no_root_writes, false),
        (Held { position: held.position + 1, ..no_root_writes }, true),
    ] {
        let store_files = files_of(&disk, dir.path(), MissingFiles::Refuse).unwrap();
        let known = HeldFiles::from([(COMMON, least)]);
        assert_eq!(store_files.hold_against(&known, MissingFiles::Refuse), Ok(Older::new()));
        let (opened, made) = (store_files.open(COMMON), store_files.make(COMMON));
        assert_eq!((opened.is_err(), made.is_err()), (is_refused, is_refused), "{least:?}");
    }
}

#[test]
fn a_power_loss_between_commits_flushes_and_notes_makes_no_file_look_older_than_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let env = env();
    let disk = Forgetful::over(env.disk());
    let env = with_disk(&env, Arc::<Forgetful>::clone(&disk));
    for round in 0..60 {
        let store = open_on(&env, dir.path(), MissingFiles::Refuse).unwrap();
        assert!(has(&store, STAYS, 0..round) && has(&store, GROWS, 0..round), "{round}");
        match round % 3 {
            0 => [STAYS, GROWS].into_iter().for_each(|shard| commit(&store, shard, round)),
            _ => [STAYS, GROWS].into_iter().for_each(|shard| write(&store, shard, round)),
        }
        if round % 3 == 2 {
            store.checkpoint_now().unwrap();
        }
        drop(store);
        if round % 4 < 3 {
            disk.lose_power().unwrap();
        }
    }
}

#[test]
fn a_crash_between_a_flush_and_its_note_is_no_alarm_and_an_older_file_is_filled_from_the_journal_then() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), MissingFiles::Refuse).unwrap();
    (0..5).for_each(|rest| write(&store, STAYS, rest));
    drop(store);
    let older = fs::read(path(dir.path(), COMMON)).unwrap();
    let mut journal = journal_of(dir.path());
    let store = open(dir.path(), MissingFiles::Refuse).unwrap();
    commit(&store, STAYS, 5);
    for (path, bytes) in journal_of(dir.path()) {
        // Of one that is used again there is what it was.
        journal.entry(path).or_insert(bytes);
    }
    write(&store, GROWS, 0);
    drop(store);
    let newer = fs::read(path(dir.path(), COMMON)).unwrap();
    assert_ne!(newer, older);
    for file in [newer, older] {
        // As if the process had died behind the flush: of the journal there is what there was before it.
        journal_of(dir.path()).into_keys().for_each(|path| fs::remove_file(path).unwrap());
        journal.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        fs::remove_file(dir.path().join("store/journal-end")).unwrap();
        fs::write(path(dir.path(), COMMON), file).unwrap();
        let store = open(dir.path(), MissingFiles::Refuse).unwrap();
        assert!(has(&store, STAYS, 0..6));
    }
}

fn journal_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir.join("journal")).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

#[test]
fn the_record_of_a_file_goes_with_the_file() {
    let dir = tempfile::tempdir().unwrap();
    drop(stopped(dir.path()));
    let store = open(dir.path(), MissingFiles::Refuse).unwrap();
    assert!(store.tables().notes(0).held.contains_key(&OWN));
    let mut clear = Batch::new();
    clear.clear_shard(GROWS);
    store.commit(&clear).unwrap();
    write(&store, STAYS, 0);
    assert!(!path(dir.path(), OWN).exists() && !store.tables().notes(0).held.contains_key(&OWN));
    drop(store);
    let store = open(dir.path(), MissingFiles::Refuse).unwrap();
    assert!(!store.tables().notes(0).held.contains_key(&OWN), "an older segment has it still");
}

#[test]
fn the_record_is_read_as_it_was_written_and_what_a_later_settee_adds_is_passed_over() {
    let held = |n| Held { position: n << 40, root_writes: n };
    let files = HeldFiles::from([(COMMON, held(1)), (OWN, held(300)), (FileId::Sled, held(0))]);
    let mut bytes = encode(&files);
    assert_eq!(decode(&bytes), Ok(files.clone()));
    bytes.extend([9, 1, 2, 3]);
    assert_eq!(decode(&bytes), Ok(files));
    bytes.pop();
    assert!(matches!(decode(&bytes), Err(StorageError::Corrupt(_))));
    assert_eq!(decode(&[]), Ok(HeldFiles::new()));
}
