//! Manifest: the list of the store files of a data directory. It tells a file that was removed from one that never
//! existed.
//!
//! ```text
//!   DIR/store/files    "settee-files: 1", the name of each store file on a line, "crc=HHHHHHHH" of all before it
//! ```
//!
//! A file is listed after its name is durable, and before anything counts that only this file holds; it is taken off
//! the list before it is removed. So at every moment, a crash included, each listed file exists. The list is replaced
//! as a whole.

use std::collections::BTreeSet;
use std::path::Path;

use super::kv::StorageError;
use super::layout::FileId;
use crate::world::{Disk, OpenMode};

const NAME: &str = "files";
const HEAD: &str = "settee-files: 1\n";

/// What is done about store files that are listed and missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingFiles {
    /// The directory is not opened.
    #[default]
    Refuse,
    /// The file of a single shard counts as damaged: a cluster rebuilds it from the other replicas. Else as `Refuse`.
    Rebuild,
    /// Each counts as damaged, and what of the journal cannot be read is left out and told: for tools that take over
    /// what is whole.
    TakeOver,
}

/// The names, as they stand in memory.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// A name has come or gone since the directory was synced.
    pub unsynced: bool,
    /// Files that are being removed.
    pub leaving: BTreeSet<FileId>,
    /// Files that are listed, missing, and not released.
    pub missing: BTreeSet<FileId>,
}

/// Reads the list of a directory; `None` where there is none.
pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<BTreeSet<FileId>>, StorageError> {
    let path = dir.join(NAME);
    if !disk.exists(&path)? {
        return Ok(None);
    }
    let file = disk.open(&path, OpenMode::Read)?;
    let mut text = vec![0; file.len()? as usize];
    file.read_at(0, &mut text)?;
    let listed = std::str::from_utf8(&text).ok().and_then(parse);
    listed.map(Some).ok_or_else(|| StorageError::Corrupt(format!("{} makes no sense", path.display())))
}

/// Writes the list, all of it or nothing; durable on return.
pub(super) fn write(disk: &dyn Disk, dir: &Path, files: &BTreeSet<FileId>) -> Result<(), StorageError> {
    let temporary = dir.join(format!("{NAME}.new"));
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(0, text_of(files).as_bytes())?;
    file.sync()?;
    disk.rename(&temporary, &dir.join(NAME))?;
    Ok(disk.sync_dir(dir)?)
}

fn text_of(files: &BTreeSet<FileId>) -> String {
    let mut text = HEAD.to_owned();
    files.iter().for_each(|file| text.extend([file.name().as_str(), "\n"]));
    format!("{text}crc={:08x}\n", crc32fast::hash(text.as_bytes()))
}

fn parse(text: &str) -> Option<BTreeSet<FileId>> {
    let (listed, crc) = text.rsplit_once("crc=")?;
    if crc != format!("{:08x}\n", crc32fast::hash(listed.as_bytes())) {
        return None;
    }
    listed.strip_prefix(HEAD)?.lines().map(FileId::by_name).collect()
}

/// The names of files for people.
pub(super) fn told<'f>(files: impl IntoIterator<Item = &'f FileId>) -> String {
    files.into_iter().map(|file| format!("store/{}", file.name())).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read_as_it_was_written_and_no_flipped_bit_passes() {
        let files: BTreeSet<FileId> = [FileId::Common(3), FileId::Own(0x1_0000), FileId::Sled].into();
        let text = text_of(&files);
        assert_eq!(parse(&text), Some(files));
        assert_eq!(parse(&text_of(&BTreeSet::new())), Some(BTreeSet::new()));
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(std::str::from_utf8(&bytes).ok().and_then(parse), None, "bit {bit}");
        }
    }
}
