//! The fuzz target of a journal that a restart reads. See `storage::fuzz_tests`.

use super::*;
use crate::world::fuzz::Fuzz;

fn open(env: &Env, dir: &Path, each: &mut Replay<'_>) -> Result<Journal, StorageError> {
    let notes = Notes::new(0, std::iter::empty());
    Journal::open(env, dir, Opening { notes: &notes, planted: Planted::none(), last: None, lost: None }, each)
}

/// A changed segment is refused, or replayed up to where it is cut; no other row comes out of it.
pub(in crate::storage) fn fuzz_recovery(
    env: &Env,
    changed: impl Fn(&[u8], &[u8]) -> Vec<u8>,
    places: impl Fn(usize) -> Vec<Vec<u8>>,
) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal = open(env, dir.path(), &mut |_, _, _| {}).unwrap();
    for n in 0..20_u64 {
        let mut batch = Batch::new();
        batch.put(format!("key {n:03}").into_bytes(), vec![n as u8; 200]);
        journal.append(&batch).unwrap();
    }
    drop(journal);
    let files = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let path = files.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let mut whole = std::fs::read(&path).unwrap();
    let used = whole.iter().rposition(|byte| *byte != 0).unwrap_or_default() + 4096;
    whole.truncate(used);
    Fuzz::new("journals", places(used)).run(|input| {
        let copy = tempfile::tempdir().unwrap();
        std::fs::write(copy.path().join(path.file_name().unwrap()), changed(&whole, input)).unwrap();
        // Either answer is right.
        let _ = open(env, copy.path(), &mut |_, key, value| {
            let number = std::str::from_utf8(key).ok().and_then(|key| key.strip_prefix("key ")?.parse::<u64>().ok());
            if let (Some(number), Some(value)) = (number, value) {
                assert_eq!(value, vec![number as u8; 200], "a row is the one that was written");
            }
        });
    });
}
