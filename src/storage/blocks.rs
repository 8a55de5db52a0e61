//! A file in which every 4 KB carry a checksum, so that what the disk changed is never taken for what was written.
//!
//! ```text
//!   head    "settee-b" | version u32 | crc u32 | kind u32 | block bytes u32 = 4096 | zeros                512 bytes
//!   block   4,096 bytes | crc u32                                   the last one of a file may be shorter
//!   root    508 bytes | crc u32 | 3,588 zeros                       block 0 of a store: one sector, written whole
//! ```
//!
//! This is version 1: attachments, and stores that an older settee made; of those a write that the disk lost is not
//! found, since a block that stayed as it was fits its checksum. New stores are of version 2 (`store_blocks/mod.rs`).
//!
//! Numbers are little endian. The head's crc covers what follows it; a block's covers its number and its bytes, so that
//! a block in another's place is damage, too. Users see the blocks' bytes only, through [`File`]. A store's first block
//! is its engine's root, which is overwritten in place: it fits one sector with its crc, so that power loss leaves the
//! old one or the new one. All other blocks that a power loss tears are such as nobody refers to yet.
//!
//! Assumes one writer; writes that do not cover whole blocks read the rest of the block first.

use std::fmt;
use std::io;
use std::sync::Arc;

use crate::world::File;

/// Bytes of a block as users see it.
pub(super) const BLOCK_BYTES: usize = 4096;
/// Bytes of a block in the file.
const STORED_BYTES: usize = BLOCK_BYTES + CRC_BYTES;
const CRC_BYTES: usize = 4;
/// Bytes before the first block: one sector.
pub(super) const HEAD_BYTES: usize = 512;
/// What a store's root may hold: one sector without its crc.
const ROOT_BYTES: usize = 508;
pub(super) const MAGIC: &[u8; 8] = b"settee-b";
/// The version of the files that are read and written here.
const VERSION: u32 = 1;

/// What a block file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An engine's file: whole blocks, a root in the first.
    Store = 1,
    /// An attachment: written once, from its start to its end.
    Blob = 2,
}

/// Damage that reading a block found; travels in an [`io::Error`] of the kind `InvalidData`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DamagedBlock(pub u64);

impl fmt::Display for DamagedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {} does not fit its checksum", self.0)
    }
}

impl std::error::Error for DamagedBlock {}

pub(super) fn damaged(block: u64) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, DamagedBlock(block))
}

pub(super) fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

/// The head of a file.
pub(super) fn head(version: u32, kind: Kind) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..12].copy_from_slice(&version.to_le_bytes());
    head[16..20].copy_from_slice(&(kind as u32).to_le_bytes());
    head[20..24].copy_from_slice(&(BLOCK_BYTES as u32).to_le_bytes());
    let crc = crc32fast::hash(&head[16..]);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    head
}

/// The version of a file of `kind`; `InvalidData` when its head is not whole.
pub(super) fn version(file: &dyn File, kind: Kind) -> io::Result<u32> {
    let mut head = [0; HEAD_BYTES];
    file.read_at(0, &mut head)?;
    let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if !head.starts_with(MAGIC) || number(12) != crc32fast::hash(&head[16..]) {
        return Err(invalid("its head is damaged"));
    }
    if number(20) != BLOCK_BYTES as u32 {
        return Err(unknown_version());
    }
    if number(16) != kind as u32 {
        return Err(invalid("it is a file of another kind"));
    }
    Ok(number(8))
}

fn unknown_version() -> io::Error {
    invalid("its version is not known to this settee")
}

/// An open block file; see the module head.
#[derive(Debug)]
pub(super) struct BlockFile {
    file: Arc<dyn File>,
    kind: Kind,
}

impl BlockFile {
    /// Begins a block file in `file`, which must be empty. Nothing is synced.
    pub(super) fn create(file: Arc<dyn File>, kind: Kind) -> io::Result<BlockFile> {
        file.write_at(0, &head(VERSION, kind))?;
        Ok(BlockFile { file, kind })
    }

    /// Opens a block file of `kind`; `InvalidData` when its head is not whole, or of a version that is not known.
    pub(super) fn open(file: Arc<dyn File>, kind: Kind) -> io::Result<BlockFile> {
        match version(file.as_ref(), kind)? {
            VERSION => Ok(BlockFile { file, kind }),
            _ => Err(unknown_version()),
        }
    }

    /// Whether the file's length is one that this code leaves behind; a store holds whole blocks only.
    pub(super) fn has_whole_length(&self) -> io::Result<bool> {
        let rest = (self.file.len()?.saturating_sub(HEAD_BYTES as u64)) % STORED_BYTES as u64;
        Ok(match self.kind {
            Kind::Store => rest == 0,
            Kind::Blob => rest == 0 || rest > CRC_BYTES as u64,
        })
    }

    /// How many blocks there are, and the bytes in the last one.
    fn blocks(&self) -> io::Result<(u64, usize)> {
        let stored = self.file.len()?.saturating_sub(HEAD_BYTES as u64);
        let (full, rest) = (stored / STORED_BYTES as u64, (stored % STORED_BYTES as u64) as usize);
        Ok(match rest.saturating_sub(CRC_BYTES) {
            0 => (full, BLOCK_BYTES),
            tail => (full + 1, tail),
        })
    }

    /// The stored bytes of the blocks from `first` to `last`, not checked.
    fn read_stored(&self, first: u64, last: u64) -> io::Result<Vec<u8>> {
        let end = match self.kind {
            // Whole blocks only: a file that is too short for them says so itself, its length need not be asked for.
            Kind::Store => BLOCK_BYTES,
            Kind::Blob => match self.blocks()? {
                (count, _) if last >= count => return Err(io::ErrorKind::UnexpectedEof.into()),
                (count, tail) if last + 1 == count => tail,
                _ => BLOCK_BYTES,
            },
        };
        let mut stored = vec![0; (last - first) as usize * STORED_BYTES + end + CRC_BYTES];
        self.file.read_at(place(first), &mut stored)?;
        Ok(stored)
    }

    fn is_root(&self, block: u64) -> bool {
        self.kind == Kind::Store && block == 0
    }

    /// The content of a block that is about to be overwritten in part; zeros where nothing was written yet.
    fn before(&self, block: u64) -> io::Result<Vec<u8>> {
        let (count, tail) = self.blocks()?;
        if block >= count {
            return Ok(Vec::new());
        }
        let size = if block + 1 == count { tail } else { BLOCK_BYTES };
        let mut stored = vec![0; size + CRC_BYTES];
        self.file.read_at(place(block), &mut stored)?;
        if stored.iter().all(|byte| *byte == 0) {
            stored.truncate(size);
            return Ok(stored);
        }
        checked(block, &stored).map(<[u8]>::to_vec).ok_or_else(|| damaged(block))
    }

    fn write_root(&self, offset: usize, data: &[u8]) -> io::Result<()> {
        if offset + data.len() > ROOT_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a store's root does not fit its sector"));
        }
        let mut sector = vec![0; ROOT_BYTES + CRC_BYTES];
        if offset > 0 || data.len() < ROOT_BYTES {
            let mut old = vec![0; STORED_BYTES];
            match self.file.read_at(place(0), &mut old) {
                Err(error) if error.kind() != io::ErrorKind::UnexpectedEof => return Err(error),
                Err(_) => {}
                Ok(()) => sector.copy_from_slice(&old[..ROOT_BYTES + CRC_BYTES]),
            }
        }
        sector[offset..offset + data.len()].copy_from_slice(data);
        let crc = checksum(0, &sector[..ROOT_BYTES]);
        sector[ROOT_BYTES..].copy_from_slice(&crc.to_le_bytes());
        self.file.write_at(place(0), &sector)
    }
}

/// Where a block begins in the file.
fn place(block: u64) -> u64 {
    HEAD_BYTES as u64 + block * STORED_BYTES as u64
}

/// The checksum of a block: of its number and its bytes.
pub(super) fn checksum(block: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// The bytes of a stored block; `None` when they do not fit their checksum.
fn checked(number: u64, stored: &[u8]) -> Option<&[u8]> {
    let (bytes, crc) = stored.split_last_chunk::<CRC_BYTES>()?;
    (u32::from_le_bytes(*crc) == checksum(number, bytes)).then_some(bytes)
}

/// As [`checked`] for a store's block 0.
fn root(stored: &[u8]) -> Option<&[u8]> {
    let (sector, rest) = stored.split_at_checked(ROOT_BYTES + CRC_BYTES)?;
    checked(0, sector)?;
    rest.iter().all(|byte| *byte == 0).then(|| &stored[..BLOCK_BYTES])
}

impl File for BlockFile {
    fn len(&self) -> io::Result<u64> {
        let (count, tail) = self.blocks()?;
        Ok((count * BLOCK_BYTES as u64).saturating_sub((BLOCK_BYTES - tail) as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(last) = buffer.len().checked_sub(1) else { return Ok(()) };
        let (first, last) = (offset / BLOCK_BYTES as u64, (offset + last as u64) / BLOCK_BYTES as u64);
        let stored = self.read_stored(first, last)?;
        let (mut skip, mut rest) = ((offset % BLOCK_BYTES as u64) as usize, buffer);
        for (number, block) in (first..=last).zip(stored.chunks(STORED_BYTES)) {
            let bytes = if self.is_root(number) { root(block) } else { checked(number, block) };
            let bytes = bytes.ok_or_else(|| damaged(number))?.get(skip..).unwrap_or_default();
            let (piece, later) = rest.split_at_mut(bytes.len().min(rest.len()));
            piece.copy_from_slice(&bytes[..piece.len()]);
            (skip, rest) = (0, later);
        }
        if rest.is_empty() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let Some(last) = data.len().checked_sub(1) else { return Ok(()) };
        let (mut block, last) = (offset / BLOCK_BYTES as u64, (offset + last as u64) / BLOCK_BYTES as u64);
        let mut from = (offset % BLOCK_BYTES as u64) as usize;
        if self.is_root(block) {
            return self.write_root(from, data);
        }
        let (start, mut rest) = (place(block), data);
        let mut out = Vec::with_capacity((last - block + 1) as usize * STORED_BYTES);
        while block <= last {
            let (piece, later) = rest.split_at((BLOCK_BYTES - from).min(rest.len()));
            let begin = out.len();
            if piece.len() < BLOCK_BYTES {
                let old = self.before(block)?;
                if old.len() < from {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "a write leaves a gap"));
                }
                out.extend_from_slice(&old[..from]);
                out.extend_from_slice(piece);
                out.extend_from_slice(old.get(from + piece.len()..).unwrap_or_default());
            } else {
                out.extend_from_slice(piece);
            }
            let crc = checksum(block, &out[begin..]);
            out.extend_from_slice(&crc.to_le_bytes());
            (rest, from, block) = (later, 0, block + 1);
        }
        self.file.write_at(start, &out)
    }

    /// Cuts or extends the file by whole blocks; new ones cannot be read before they are written.
    fn set_len(&self, len: u64) -> io::Result<()> {
        if !len.is_multiple_of(BLOCK_BYTES as u64) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a block file is cut between blocks only"));
        }
        self.file.set_len(place(len / BLOCK_BYTES as u64))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
pub(super) mod tests;
