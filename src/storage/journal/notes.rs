//! Notes about the store files at the start of each journal segment: the position that each of them holds durably.
//!
//! So a restart knows, without opening any file, which groups it may skip, and a missing segment is told from one that
//! was released. A file that holds less than what was ever noted of it is an older one (`held.rs`).

use std::collections::BTreeMap;
use std::path::Path;

use super::frame::{self, FRAME_HEAD_BYTES, HEADER_BYTES, Head, Header};
use super::{Position, path_of, recovery};
use crate::storage::held::{self, HeldFiles};
use crate::storage::kv::{Batch, StorageError};
use crate::storage::layout::FileId;
use crate::storage::reserved;
use crate::world::{Disk, File, OpenMode};

/// See the module head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::storage) struct Notes {
    /// Every file holds everything up to this position.
    pub settled: Position,
    files: BTreeMap<FileId, Position>,
    /// What each file that was ever flushed to holds at least.
    pub held: HeldFiles,
}

impl Notes {
    /// Notes that all files are settled up to `settled`, and some further.
    pub(in crate::storage) fn new(settled: Position, files: impl Iterator<Item = (FileId, Position)>) -> Notes {
        Notes { settled, files: files.collect(), held: HeldFiles::new() }
    }

    /// These notes with what each file holds.
    pub(in crate::storage) fn with_held(self, held: HeldFiles) -> Notes {
        Notes { held, ..self }
    }

    /// The position up to which a file is known to hold everything.
    pub(in crate::storage) fn position(&self, file: FileId) -> Position {
        self.files.get(&file).copied().unwrap_or(0).max(self.settled)
    }

    /// As a group of the journal.
    pub(super) fn batch(&self) -> Batch {
        let mut batch = Batch::new();
        batch.put(reserved::released_key(), self.settled.to_be_bytes().to_vec());
        for (file, position) in &self.files {
            batch.put(reserved::file_key(&file.name()), position.to_be_bytes().to_vec());
        }
        if !self.held.is_empty() {
            batch.put(reserved::held_key(), held::encode(&self.held));
        }
        batch
    }

    /// Takes in what a group notes; answers whether it is such a group.
    fn read(&mut self, batch: &Batch) -> Result<bool, StorageError> {
        let Some(settled) = batch.writes().get(&reserved::released_key()).and_then(Option::as_deref) else {
            return Ok(false);
        };
        self.settled = self.settled.max(reserved::number(settled)?);
        for (key, value) in batch.writes() {
            if let (Some(file), Some(value)) = (reserved::file_name(key).and_then(FileId::by_name), value) {
                let noted = self.files.entry(file).or_default();
                *noted = reserved::number(value)?.max(*noted);
            }
        }
        if let Some(files) = batch.writes().get(&reserved::held_key()).and_then(Option::as_deref) {
            for (file, held) in held::decode(files)? {
                let noted = self.held.entry(file).or_default();
                *noted = noted.later(held);
            }
        }
        Ok(true)
    }
}

/// The notes of all segments together, the latest counting; `None` when there are none.
pub(in crate::storage) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Notes>, StorageError> {
    let (mut notes, mut any) = (Notes::default(), false);
    for number in recovery::numbers(disk, dir)? {
        let file = disk.open(&path_of(dir, number), OpenMode::Read)?;
        if let Some(first) = first_group(file.as_ref(), number)? {
            any |= notes.read(&first)?;
        }
    }
    Ok(any.then_some(notes))
}

/// The first group of a segment. What is not whole is left to the recovery to decide.
fn first_group(file: &dyn File, number: u64) -> Result<Option<Batch>, StorageError> {
    let len = file.len()?;
    let mut head = [0; HEADER_BYTES + FRAME_HEAD_BYTES];
    if len < head.len() as u64 {
        return Ok(None);
    }
    file.read_at(0, &mut head)?;
    let Head::Whole(Header { number: found, salt, .. }) = Header::decode(&head[..HEADER_BYTES]) else {
        return Ok(None);
    };
    let Some(payload) = frame::payload_length(&head[HEADER_BYTES..]) else { return Ok(None) };
    let end = (head.len() + payload) as u64;
    if found != number || end > len {
        return Ok(None);
    }
    let mut bytes = vec![0; end as usize];
    file.read_at(0, &mut bytes)?;
    let Some(frame) = frame::frame_at(&bytes, salt, HEADER_BYTES) else { return Ok(None) };
    let batch = frame::decode(&bytes[frame.payload]);
    batch.map(Some).map_err(|e| StorageError::Corrupt(format!("journal segment {number:016x}: {e}")))
}
