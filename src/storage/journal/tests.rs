//! The journal on a real disk: what comes back after a restart, what is cut, what is reported.

use super::*;
use crate::storage::kv::Written;
use crate::storage::layout::FileId;

fn env() -> Env {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    crate::world::tokio_host::env(runtime.handle().clone())
}

fn batch(value: u64) -> Batch {
    let mut batch = Batch::new();
    batch.put(b"k".to_vec(), value.to_le_bytes().to_vec());
    batch
}

fn settled(position: Position) -> Notes {
    Notes::new(position, std::iter::empty())
}

/// Opens the journal and lists the groups that it hands on, but for its own notes.
fn open(dir: &Path, flushed: Position) -> Result<(Journal, Vec<(Position, Batch)>), StorageError> {
    let mut seen: Vec<(Position, Batch)> = Vec::new();
    let opening = Opening { notes: &settled(flushed), planted: Planted::none(), last: None, lost: None };
    let journal = Journal::open(&env(), dir, opening, &mut |position, key, value| {
        if crate::storage::reserved::shard_of(key) == u64::MAX {
            return;
        }
        if seen.last().is_none_or(|(last, _)| *last != position) {
            seen.push((position, Batch::new()));
        }
        let (_, batch) = seen.last_mut().unwrap();
        batch.set(key.to_vec(), value.map(|value| Written::Own(value.to_vec())));
    })?;
    Ok((journal, seen))
}

fn values(seen: &[(Position, Batch)]) -> Vec<Batch> {
    seen.iter().map(|(_, batch)| batch.clone()).collect()
}

/// The one file that holds frames.
fn written(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    files.max_by_key(|p| std::fs::metadata(p).unwrap().len()).unwrap()
}

#[test]
fn groups_come_back_in_order_and_positions_are_never_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, seen) = open(dir.path(), 0).unwrap();
    assert!(seen.is_empty());
    let first: Vec<Position> = (1..=3).map(|n| journal.append(&batch(n)).unwrap()).collect();
    drop(journal);
    let (mut journal, seen) = open(dir.path(), 0).unwrap();
    assert_eq!(values(&seen), [batch(1), batch(2), batch(3)]);
    assert!(journal.append(&batch(4)).unwrap() > first[2]);
    drop(journal);
    let (_, seen) = open(dir.path(), first[1]).unwrap();
    assert_eq!(values(&seen), [batch(3), batch(4)]);
}

#[test]
fn a_torn_last_group_is_cut_wherever_it_is_torn() {
    for cut in [4, 10, 30, 39] {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(dir.path(), 0).unwrap();
        journal.append(&batch(1)).unwrap();
        journal.append(&batch(2)).unwrap();
        let end = journal.at;
        drop(journal);
        let file = std::fs::OpenOptions::new().write(true).open(written(dir.path())).unwrap();
        file.set_len(end - cut).unwrap();
        let (mut journal, seen) = open(dir.path(), 0).unwrap();
        assert_eq!(values(&seen), [batch(1)]);
        journal.append(&batch(3)).unwrap();
        drop(journal);
        assert_eq!(values(&open(dir.path(), 0).unwrap().1), [batch(1), batch(3)]);
    }
}

#[test]
fn a_last_group_that_is_lost_is_told_however_it_was_damaged() {
    let torn = |damage: &dyn Fn(&mut Vec<u8>, usize)| {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = open(dir.path(), 0).unwrap();
        journal.append(&batch(1)).unwrap();
        let start = journal.at as usize;
        journal.append(&batch(2)).unwrap();
        drop(journal);
        let path = written(dir.path());
        let mut bytes = std::fs::read(&path).unwrap();
        damage(&mut bytes, start);
        std::fs::write(path, bytes).unwrap();
        let read = |each: &mut Replay<'_>| {
            recovery::read(env().disk().as_ref(), dir.path(), (0, Planted::none(), None), None, each).unwrap().torn_at
        };
        let mut groups = 0;
        let told = read(&mut |_, key, _| groups += usize::from(key == b"k"));
        assert!(read(&mut |_, _, _| {}).is_empty(), "told once");
        (groups, told.len())
    };
    assert_eq!(torn(&|_, _| {}), (2, 0));
    assert_eq!(torn(&|bytes, start| bytes[start + 30] ^= 1), (1, 1));
    assert_eq!(torn(&|bytes, start| bytes.truncate(start + 20)), (1, 1));
    // As if nothing had ever been written there.
    assert_eq!(torn(&|bytes, start| bytes[start..].fill(0)), (1, 1));
    assert_eq!(torn(&|bytes, start| bytes.truncate(start)), (1, 1));
    assert_eq!(torn(&|bytes, _| bytes.clear()), (0, 1));
}

#[test]
fn a_bad_group_before_a_good_one_is_damage_and_nothing_is_served() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    journal.append(&batch(1)).unwrap();
    journal.append(&batch(2)).unwrap();
    drop(journal);
    let path = written(dir.path());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[HEADER_BYTES + 30] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(matches!(open(dir.path(), 0), Err(StorageError::Corrupt(_))));
}

/// A file that takes writes, and whose syncs fail.
#[derive(Debug)]
struct Unsynced(Arc<dyn File>);

impl File for Unsynced {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, data)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::Error::other("the drive is gone"))
    }
}

#[test]
fn a_flush_that_ends_after_a_failed_sync_does_not_keep_the_node_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    let first = journal.append(&batch(1)).unwrap();
    journal.file = Arc::new(Unsynced(Arc::clone(&journal.file)));
    assert!(journal.append(&batch(2)).is_err());
    // The second group is readable: a segment that follows the first one only would contradict it.
    assert!(journal.rotate(&settled(first)).is_err() && journal.append(&batch(3)).is_err());
    drop(journal);
    assert_eq!(values(&open(dir.path(), 0).unwrap().1), [batch(1), batch(2)]);
}

#[test]
fn a_missing_segment_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    journal.append(&batch(1)).unwrap();
    journal.rotate(&settled(0)).unwrap();
    journal.append(&batch(2)).unwrap();
    let first = path_of(dir.path(), journal.segments[0].number);
    drop(journal);
    let kept = std::fs::read(&first).unwrap();
    std::fs::remove_file(&first).unwrap();
    assert!(matches!(open(dir.path(), 0), Err(StorageError::Corrupt(_))));
    std::fs::write(&first, kept).unwrap();
    assert_eq!(values(&open(dir.path(), 0).unwrap().1), [batch(1), batch(2)]);
}

#[test]
fn released_segments_are_overwritten_and_their_old_groups_do_not_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    let mut flushed = 0;
    for round in 0..6 {
        for n in 0..5 {
            flushed = journal.append(&batch(round * 10 + n)).unwrap();
        }
        journal.rotate(&settled(flushed)).unwrap();
    }
    assert!(std::fs::read_dir(dir.path()).unwrap().count() <= 2 + limits::JOURNAL_SPARE_SEGMENTS);
    journal.append(&batch(99)).unwrap();
    drop(journal);
    assert_eq!(values(&open(dir.path(), flushed).unwrap().1), [batch(99)]);
}

#[test]
fn a_store_that_is_ahead_of_its_journal_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    let position = journal.append(&batch(1)).unwrap();
    drop(journal);
    assert!(matches!(open(dir.path(), position + 5), Err(StorageError::Corrupt(_))));
}

#[test]
fn a_damaged_header_of_the_newest_segment_is_damage_and_a_blank_file_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    journal.append(&batch(1)).unwrap();
    drop(journal);
    // What a crash leaves of a segment that was to begin.
    std::fs::write(path_of(dir.path(), 99), [0; 64]).unwrap();
    assert_eq!(values(&open(dir.path(), 0).unwrap().1), [batch(1)]);
    let newest = path_of(dir.path(), 100);
    let whole = std::fs::read(&newest).unwrap();
    let damage: [fn(&mut Vec<u8>); 3] =
        [|bytes| bytes[20] ^= 1, |bytes| bytes[..HEADER_BYTES].fill(0), |bytes| bytes.fill(0)];
    for damage in damage {
        let mut bytes = whole.clone();
        damage(&mut bytes);
        std::fs::write(&newest, bytes).unwrap();
        assert!(matches!(open(dir.path(), 0), Err(StorageError::Corrupt(_))));
    }
}

#[test]
fn a_document_that_looks_like_frames_does_not_keep_the_node_from_starting() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    let forged = (0..8).flat_map(|shift| {
        let mut bytes = vec![0; shift];
        bytes.extend(frame::encode(0, 1 << 60, &Batch::new()).iter().flat_map(|piece| piece.bytes().to_vec()));
        bytes
    });
    let mut hostile = Batch::new();
    hostile.put(b"k".to_vec(), forged.collect());
    journal.append(&batch(1)).unwrap();
    journal.append(&hostile).unwrap();
    let end = journal.at;
    drop(journal);
    let file = std::fs::OpenOptions::new().write(true).open(written(dir.path())).unwrap();
    file.set_len(end - 20).unwrap();
    assert_eq!(values(&open(dir.path(), 0).unwrap().1), [batch(1)]);
}

#[test]
fn notes_come_back_with_the_highest_positions_of_all_segments() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = open(dir.path(), 0).unwrap();
    let file = FileId::Common(3);
    let last = journal.append(&batch(1)).unwrap();
    journal.rotate(&Notes::new(0, [(file, last)].into_iter())).unwrap();
    journal.rotate(&Notes::new(last, std::iter::empty())).unwrap();
    drop(journal);
    let notes = read_notes(env().disk().as_ref(), dir.path()).unwrap().unwrap();
    assert_eq!((notes.settled, notes.position(file), notes.position(FileId::Sled)), (last, last, last));
    assert_eq!(read_notes(env().disk().as_ref(), tempfile::tempdir().unwrap().path()).unwrap(), None);
}
