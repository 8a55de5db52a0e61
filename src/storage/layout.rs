//! Which store file a shard lives in, and the names of those files.
//!
//! ```text
//!   DIR/store/layout              "settee-layout: 2 common=8 old=0 crc=HHHHHHHH": written before any store file
//!   DIR/store/N.redb              common files: small shards, by their numbers
//!   DIR/store/sHHHHHHHHHHHHHHHH.redb   the file of one shard that is above 16 MB
//!   DIR/store/sled/               all shards of databases with the engine sled
//! ```
//!
//! A shard's engine is part of its number, so no table says where 800,000 shards are: only those with a file of their
//! own are listed, by the directory itself. A database's eight shards share a file: one flush takes them together.
//! `old`: shards below this number are in file 0, where format 1 had everything. `crc`: the CRC-32 of the text before
//! it, since a wrong number would look for shards where they are not; version 1 had none and is written anew with one.

use std::path::Path;

use super::kv::StorageError;
use crate::world::{Disk, OpenMode};

/// What of a shard's number stands for its engine; numbers are given out far below.
const ENGINE_SHIFT: u32 = 48;
/// Neighbours in number that share a common file: the shards of a database of the default size.
const NEIGHBOURS_SHIFT: u32 = 3;
/// The name of the file that holds it.
pub(super) const NAME: &str = "layout";
const HEAD: &str = "settee-layout: 2 ";
/// That of layouts without a checksum.
const OLD_HEAD: &str = "settee-layout: 1 ";

/// The engine of a database's shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShardEngine {
    /// redb: the default.
    #[default]
    Redb,
    /// sled: the alternative; see docs/operations.md for its weaknesses.
    Sled,
}

impl ShardEngine {
    /// The engine of that name; `couch` is what clients of CouchDB call the default.
    pub fn by_name(name: &str) -> Option<ShardEngine> {
        match name {
            "couch" | "redb" => Some(ShardEngine::Redb),
            "sled" => Some(ShardEngine::Sled),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            ShardEngine::Redb => "redb",
            ShardEngine::Sled => "sled",
        }
    }

    /// The number of a shard of this engine, made of one that was never given out before.
    pub fn shard(self, number: u64) -> u64 {
        assert!(number < 1 << ENGINE_SHIFT, "shard numbers are given out one by one");
        number | (self as u64) << ENGINE_SHIFT
    }
}

/// Names a store file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FileId {
    /// One of those that small shards share.
    Common(u64),
    /// The file of one shard.
    Own(u64),
    /// What sled keeps.
    Sled,
}

impl FileId {
    /// The name below `DIR/store`.
    pub(super) fn name(self) -> String {
        match self {
            FileId::Common(number) => format!("{number}.redb"),
            FileId::Own(shard) => format!("s{shard:016x}.redb"),
            FileId::Sled => "sled".to_owned(),
        }
    }

    /// The file of that name.
    pub(super) fn by_name(name: &str) -> Option<FileId> {
        let id = match name.strip_suffix(".redb") {
            None => (name == "sled").then_some(FileId::Sled),
            Some(rest) => match rest.strip_prefix('s') {
                Some(shard) => u64::from_str_radix(shard, 16).ok().map(FileId::Own),
                None => rest.parse().ok().map(FileId::Common),
            },
        };
        id.filter(|id| id.name() == name)
    }
}

/// See the module head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// How many common files there are.
    pub common: u64,
    /// Shards below this number are in file 0.
    pub old: u64,
}

impl Layout {
    /// The file of a shard that has none of its own.
    pub(super) fn shared_home(self, shard: u64) -> FileId {
        if shard >> ENGINE_SHIFT == ShardEngine::Sled as u64 {
            FileId::Sled
        } else if shard < self.old {
            FileId::Common(0)
        } else {
            FileId::Common((shard >> NEIGHBOURS_SHIFT) % self.common)
        }
    }

    /// Reads the layout of `dir`; `None` when there is none yet. One without a checksum gets one.
    pub(super) fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Layout>, StorageError> {
        let path = dir.join(NAME);
        if !disk.exists(&path)? {
            return Ok(None);
        }
        let file = disk.open(&path, OpenMode::Read)?;
        let mut text = vec![0; file.len()?.min(256) as usize];
        file.read_at(0, &mut text)?;
        let layout = std::str::from_utf8(&text).ok().and_then(parse);
        let layout = layout.ok_or_else(|| StorageError::Corrupt(format!("{} makes no sense", path.display())))?;
        if text.starts_with(OLD_HEAD.as_bytes()) {
            layout.write(disk, dir)?;
        }
        Ok(Some(layout))
    }

    /// Writes the layout of a directory, all of it or nothing; durable on return.
    pub(super) fn write(self, disk: &dyn Disk, dir: &Path) -> Result<(), StorageError> {
        let temporary = dir.join("layout.new");
        let file = disk.open(&temporary, OpenMode::Create)?;
        file.set_len(0)?;
        file.write_at(0, self.text().as_bytes())?;
        file.sync()?;
        disk.rename(&temporary, &dir.join(NAME))?;
        Ok(disk.sync_dir(dir)?)
    }

    fn text(self) -> String {
        let text = format!("{HEAD}common={} old={}", self.common, self.old);
        format!("{text} crc={:08x}\n", crc32fast::hash(text.as_bytes()))
    }
}

fn parse(text: &str) -> Option<Layout> {
    let line = text.strip_suffix('\n')?;
    let numbers = match line.rsplit_once(" crc=") {
        Some((checked, crc)) if crc == format!("{:08x}", crc32fast::hash(checked.as_bytes())) => {
            checked.strip_prefix(HEAD)?
        }
        Some(_) => return None,
        None => line.strip_prefix(OLD_HEAD)?,
    };
    let (common, old) = numbers.split_once(' ')?;
    let common = common.strip_prefix("common=")?.parse().ok().filter(|n| *n > 0)?;
    Some(Layout { common, old: old.strip_prefix("old=")?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_read_as_they_were_made_and_no_others_are() {
        for id in [FileId::Common(0), FileId::Common(7), FileId::Own(0x1_0000), FileId::Sled] {
            assert_eq!(FileId::by_name(&id.name()), Some(id));
        }
        for name in ["layout", "00.redb", "s1.redb", "0.new", "s0000000000000010.new", "sled2"] {
            assert_eq!(FileId::by_name(name), None, "{name}");
        }
    }

    #[test]
    fn shards_of_a_database_share_a_file_and_old_shards_stay_where_they_are() {
        let layout = Layout { common: 8, old: 40 };
        assert_eq!(layout.shared_home(39), FileId::Common(0));
        assert_eq!(layout.shared_home(40), layout.shared_home(47));
        assert_ne!(layout.shared_home(40), layout.shared_home(48));
        assert_eq!(layout.shared_home(ShardEngine::Sled.shard(20)), FileId::Sled);
        assert_eq!(ShardEngine::Redb.shard(20), 20);
    }

    #[test]
    fn the_layout_is_read_strictly() {
        assert_eq!(parse("settee-layout: 1 common=8 old=0\n"), Some(Layout { common: 8, old: 0 }));
        for text in ["", "settee-layout: 1 common=0 old=0\n", "settee-layout: 1 common=8 old=0", "settee-layout: 2 x\n"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_layout_without_a_checksum_gets_one_when_it_is_read() {
        let (runtime, dir) =
            (tokio::runtime::Builder::new_current_thread().build().unwrap(), tempfile::tempdir().unwrap());
        let disk = crate::world::tokio_host::env(runtime.handle().clone()).disk();
        std::fs::write(dir.path().join(NAME), "settee-layout: 1 common=5 old=40\n").unwrap();
        let layout = Layout { common: 5, old: 40 };
        for _ in 0..2 {
            assert_eq!(Layout::read(disk.as_ref(), dir.path()).unwrap(), Some(layout));
            assert_eq!(std::fs::read_to_string(dir.path().join(NAME)).unwrap(), layout.text());
        }
    }

    #[test]
    fn a_bit_that_flips_in_the_layout_is_found() {
        let layout = Layout { common: 8, old: 40 };
        let text = layout.text();
        assert_eq!(parse(&text), Some(layout));
        for bit in 0..text.len() * 8 {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(std::str::from_utf8(&bytes).ok().and_then(parse), None, "bit {bit}");
        }
    }
}
