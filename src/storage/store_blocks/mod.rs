//! An engine's file, in which a block and its checksum are two writes: the disk may lose, misplace or change any single
//! write, and nothing old or foreign is taken for what was written.
//!
//! ```text
//!   page     head 512 bytes (blocks.rs; version 2) | second copy of the root 512 | zeros                         4,096
//!   group    8 sectors of sums 4,096 | their second copies 4,096 | 1,000 blocks of 4,096                     4,104,192
//!   sums     125 times crc u32, one for each block | times written u64 | crc u32                                   512
//!   root     500 bytes | times written u64 | crc u32                      first copy: where block 0 begins         512
//! ```
//!
//! Numbers are little endian. A block's crc covers its number and its bytes; the sum of a block that was never written
//! is zero and fits nothing. Block 0 is the engine's root, overwritten in place: it has no sum but is a sector kept
//! twice, like those of the sums (`twin.rs`), whose own number is 2^64 - 1. The last group of a file may be cut between
//! its blocks.
//!
//! Assumes one writer, that reads and writes whole blocks and never overwrites one that a durable root reaches
//! (`sums.rs` says why); threads that read may write blocks for it that it has no memory for. Promises: a block that
//! was written and synced reads as it was written, or as damage. Sums cost a commit two pages for each group that it
//! touches.
//!
//! The engine's root names two commits and tells which of them counts (redb's "god byte"). While that is one of two
//! phases, a root of which the same one counts may go to the file at any time. Each other root goes there with the
//! next sync, behind the blocks and sums that were written before: the engine does not sync these first (commits of
//! one phase), since it finds out by checksums of its own which commit came to its end. A block that does not fit its
//! sum would end that search.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use super::blocks::{self, BLOCK_BYTES, BlockFile, Kind, checksum, damaged, invalid};
use super::planted::{Bug, Planted};
use crate::limits;
use crate::world::File;
use crate::world::sync::{Mutex, MutexGuard};

mod sums;
mod twin;

use sums::Sums;
use twin::{CONTENT_BYTES, Loaded, SECTOR_BYTES, Twin};

/// The version in the head.
const VERSION: u32 = 2;
const PAGE: u64 = BLOCK_BYTES as u64;
const SUMS_PER_SECTOR: u64 = CONTENT_BYTES as u64 / 4;
const GROUP_SECTORS: u64 = PAGE / SECTOR_BYTES as u64;
const GROUP_BLOCKS: u64 = GROUP_SECTORS * SUMS_PER_SECTOR;
/// Pages of sums before the blocks of a group.
const SUM_PAGES: u64 = 2;
const GROUP_PAGES: u64 = SUM_PAGES + GROUP_BLOCKS;
/// What the root is as a sector.
const ROOT: u64 = u64::MAX;
/// Where the root tells which of its commits counts.
const GOD_BYTE: usize = 9;
/// Which of them, and whether that is one of two phases.
const PRIMARY: u8 = 1;
const TWO_PHASES: u8 = 4;

/// An open store file; see the module head.
#[derive(Debug)]
pub(super) struct StoreBlocks {
    file: Arc<dyn File>,
    planted: Planted,
    root: Mutex<Root>,
    /// Whether a block was written since the last sync.
    is_unsynced: AtomicBool,
    /// How often the root was written by the last sync.
    durable_root_writes: AtomicU64,
    sums: Sums,
}

/// The engine's root.
#[derive(Debug)]
struct Root {
    sector: Twin,
    /// Whether the file is to get it with the next sync.
    is_due: bool,
}

/// An engine's block file.
pub(super) enum Opened {
    /// As they are made now.
    Now(Arc<StoreBlocks>),
    /// Of version 1.
    Old(Arc<BlockFile>),
}

/// Opens an engine's block file, of any version; `InvalidData` when its head, its root or its length cannot be.
pub(super) fn open(file: Arc<dyn File>, planted: Planted) -> io::Result<Opened> {
    let cut = || invalid("its length is not one of whole blocks: the file is cut short");
    if blocks::version(file.as_ref(), Kind::Store)? != VERSION {
        let old = BlockFile::open(file, Kind::Store)?;
        return if old.has_whole_length()? { Ok(Opened::Old(Arc::new(old))) } else { Err(cut()) };
    }
    let len = file.len()?;
    if len % PAGE != 0 || end_of(blocks_in(len)) != len {
        return Err(cut());
    }
    let Loaded { sector: root, behind } = Twin::load(file.as_ref(), ROOT, root_places())?;
    if root.is_blank() {
        return Err(damaged(0));
    }
    if let Some(copy) = behind {
        // At once: what the older root does not reach may be in no journal any more.
        file.write_at(root_places()[copy as usize], &root.encoded())?;
        file.sync()?;
    }
    Ok(Opened::Now(Arc::new(StoreBlocks::new(file, planted, root))))
}

/// How often the root of the closed file was written; `None` for a file of another version, or whose root is damaged.
pub(super) fn root_writes_of(file: &dyn File) -> io::Result<Option<u64>> {
    let is_of_now = blocks::version(file, Kind::Store)? == VERSION;
    is_of_now.then(|| Twin::load(file, ROOT, root_places()).map(|root| root.sector.times())).transpose()
}

impl StoreBlocks {
    /// Begins a store in `file`, which must be empty. Nothing is synced.
    pub(super) fn create(file: Arc<dyn File>) -> io::Result<StoreBlocks> {
        let mut page = [0; BLOCK_BYTES];
        page[..blocks::HEAD_BYTES].copy_from_slice(&blocks::head(VERSION, Kind::Store));
        file.write_at(0, &page)?;
        Ok(StoreBlocks::new(file, Planted::none(), Twin::blank(ROOT)))
    }

    fn new(file: Arc<dyn File>, planted: Planted, root: Twin) -> StoreBlocks {
        let durable_root_writes = AtomicU64::new(root.times());
        let (root, sums) = (Root { sector: root, is_due: false }, Sums::new(limits::SUM_SECTORS_HELD));
        let is_unsynced = AtomicBool::new(false);
        StoreBlocks { file, planted, root: Mutex::new(root), is_unsynced, durable_root_writes, sums }
    }

    /// How often the root was written and synced, or read when the file was opened. It only grows.
    pub(super) fn root_writes(&self) -> u64 {
        self.durable_root_writes.load(Ordering::SeqCst)
    }

    fn root(&self) -> MutexGuard<'_, Root> {
        self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_root(&self, from: usize, buffer: &mut [u8]) -> io::Result<()> {
        if from + buffer.len() > BLOCK_BYTES {
            return Err(misuse("the root is read alone"));
        }
        buffer.fill(0);
        let root = self.root();
        let found = root.sector.content.get(from..).unwrap_or_default();
        let len = found.len().min(buffer.len());
        buffer[..len].copy_from_slice(&found[..len]);
        Ok(())
    }

    fn write_root(&self, from: usize, data: &[u8]) -> io::Result<()> {
        if from != 0 || data.len() > CONTENT_BYTES {
            return Err(misuse("a store's root is written from its start and fits a sector"));
        }
        let mut root = self.root();
        let (old, new) = (root.sector.content[GOD_BYTE], data.get(GOD_BYTE).copied().unwrap_or_default());
        root.is_due |= old & TWO_PHASES == 0 || (old ^ new) & PRIMARY != 0;
        root.sector.content[..data.len()].copy_from_slice(data);
        root.sector.change();
        if root.is_due { Ok(()) } else { root.write(self.file.as_ref()) }
    }

    fn sync_file(&self) -> io::Result<()> {
        // Before it is synced: what is written meanwhile is for the next one.
        let was_unsynced = self.is_unsynced.swap(false, Ordering::SeqCst);
        let synced = if self.planted.has(Bug::SkipFsync) { Ok(()) } else { self.file.sync() };
        if synced.is_err() {
            self.is_unsynced.fetch_or(was_unsynced, Ordering::SeqCst);
        }
        synced
    }
}

impl Root {
    fn write(&mut self, file: &dyn File) -> io::Result<()> {
        root_places().into_iter().try_for_each(|place| file.write_at(place, &self.sector.encoded()))?;
        self.is_due = false;
        Ok(())
    }
}

/// Where a block begins in the file.
pub(super) fn place(block: u64) -> u64 {
    PAGE * (1 + block / GROUP_BLOCKS * GROUP_PAGES + SUM_PAGES + block % GROUP_BLOCKS)
}

/// Where the copies of the sector of sums with that number are.
fn sector_places(number: u64) -> [u64; 2] {
    let page = 1 + number / GROUP_SECTORS * GROUP_PAGES;
    [page, page + 1].map(|page| PAGE * page + number % GROUP_SECTORS * SECTOR_BYTES as u64)
}

fn root_places() -> [u64; 2] {
    [place(0), blocks::HEAD_BYTES as u64]
}

/// The length of a file of so many blocks.
fn end_of(blocks: u64) -> u64 {
    blocks.checked_sub(1).map_or(PAGE, |last| place(last) + PAGE)
}

/// How many blocks a file of that length holds.
fn blocks_in(len: u64) -> u64 {
    let pages = (len / PAGE).saturating_sub(1);
    pages / GROUP_PAGES * GROUP_BLOCKS + (pages % GROUP_PAGES).saturating_sub(SUM_PAGES)
}

/// What the sector with that number is for.
fn name_of(sector: u64) -> String {
    match sector {
        ROOT => "the root".to_owned(),
        _ => format!("the sums of blocks {} to {}", sector * SUMS_PER_SECTOR, (sector + 1) * SUMS_PER_SECTOR - 1),
    }
}

fn misuse(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text.to_owned())
}

/// The first of the whole blocks that `len` bytes from `offset` on are.
fn whole_blocks(offset: u64, len: usize) -> io::Result<u64> {
    match offset.is_multiple_of(PAGE) && len.is_multiple_of(BLOCK_BYTES) {
        true => Ok(offset / PAGE),
        false => Err(misuse("a store is read and written by whole blocks")),
    }
}

/// The pieces of `len` bytes from block `first` on that lie together: where in the file, and which of the bytes.
fn pieces(first: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let block = first + (from / BLOCK_BYTES) as u64;
        let end = len.min(from + (GROUP_BLOCKS - block % GROUP_BLOCKS) as usize * BLOCK_BYTES);
        let piece = (place(block), from..end);
        from = end;
        (!piece.1.is_empty()).then_some(piece)
    })
}

impl File for StoreBlocks {
    fn len(&self) -> io::Result<u64> {
        Ok(blocks_in(self.file.len()?) * PAGE)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if offset < PAGE {
            return self.read_root(offset as usize, buffer);
        }
        let first = whole_blocks(offset, buffer.len())?;
        for (place, range) in pieces(first, buffer.len()) {
            self.file.read_at(place, &mut buffer[range])?;
        }
        for (block, bytes) in (first..).zip(buffer.chunks(BLOCK_BYTES)) {
            let sum = self.sums.get(self.file.as_ref(), block)?;
            if sum != checksum(block, bytes) && !self.planted.has(Bug::TrustStaleBlock) {
                return Err(damaged(block));
            }
        }
        Ok(())
    }

    /// A failure may leave some of the blocks written.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < PAGE {
            return self.write_root(offset as usize, data);
        }
        let first = whole_blocks(offset, data.len())?;
        self.is_unsynced.store(true, Ordering::SeqCst);
        for (place, range) in pieces(first, data.len()) {
            self.file.write_at(place, &data[range])?;
        }
        for (block, bytes) in (first..).zip(data.chunks(BLOCK_BYTES)) {
            let sum = checksum(block, bytes);
            self.sums.set(self.file.as_ref(), block, sum)?;
        }
        Ok(())
    }

    /// Cuts or extends the file by whole blocks; new ones cannot be read before they are written.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let blocks = whole_blocks(len, 0)?;
        self.sums.cut(blocks);
        self.file.set_len(end_of(blocks))
    }

    fn sync(&self) -> io::Result<()> {
        self.sums.write(self.file.as_ref())?;
        if self.root().is_due {
            if self.is_unsynced.load(Ordering::SeqCst) {
                self.sync_file()?;
            }
            self.root().write(self.file.as_ref())?;
        }
        let root_writes = self.root().sector.times();
        self.sync_file()?;
        self.durable_root_writes.fetch_max(root_writes, Ordering::SeqCst);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads_tests;
