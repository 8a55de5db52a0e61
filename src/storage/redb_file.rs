//! redb's file: over checksummed blocks, with damage contained to the pages that it hit.
//!
//! redb trusts its pages, and after one failed read it refuses all others until it is opened again. So a reader sees a
//! page whose blocks do not fit their checksums as a leaf with one pair whose key is empty. No key of settee is empty:
//! a scan that meets the pair, or a lookup that finds it beside its key, reports that something is missing there
//! (`redb_store.rs`). Such a page must not be written back; a store with damage takes no more commits.
//!
//! While a store is opened, written or closed, damage is an error, because the engine must not continue on incomplete
//! records.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use redb::StorageBackend;

use super::blocks::{BLOCK_BYTES, invalid};
use super::kv::StorageError;
use super::planted::Planted;
use super::store_blocks::{self, Opened, StoreBlocks};
use crate::world::sync::Mutex;
use crate::world::{Disk, File, OpenMode};

/// How redb's files began before they had checksums: format 1 of docs/storage-format.md.
const PLAIN_MAGIC: &[u8; 4] = b"redb";
/// A leaf page with one pair, key and value empty: type, pad, pairs u16, end of key u32, end of value u32.
const MISSING_LEAF: [u8; 12] = [1, 0, 1, 0, 12, 0, 0, 0, 12, 0, 0, 0];

/// State of a store's file that readers through redb share.
#[derive(Debug)]
pub(super) struct Pages {
    file: Arc<dyn File>,
    /// The file, where it is of the version that is made now.
    blocks: Option<Arc<StoreBlocks>>,
    name: String,
    /// Whether damage is shown as missing pages instead of failing the read.
    contain: AtomicBool,
    any_damage: AtomicBool,
    damaged: Mutex<BTreeSet<u64>>,
}

impl Pages {
    /// Begins a new file at `path`, which must not exist.
    pub(super) fn create(disk: &dyn Disk, path: &Path) -> Result<Arc<Pages>, StorageError> {
        let file = StoreBlocks::create(disk.open(path, OpenMode::CreateNew)?)?;
        Ok(Pages::of_blocks(Opened::Now(Arc::new(file)), path))
    }

    /// Opens the file at `path`, of any format.
    pub(super) fn open(disk: &dyn Disk, path: &Path, planted: Planted) -> Result<Arc<Pages>, StorageError> {
        let refused = |error: io::Error| match is_damage(&error) {
            true => StorageError::Corrupt(format!("{}: {error}", path.display())),
            false => error.into(),
        };
        let file = disk.open(path, OpenMode::Write)?;
        let mut magic = [0; PLAIN_MAGIC.len()];
        if file.len()? < BLOCK_BYTES as u64 {
            return Err(refused(invalid("the file is cut short")));
        }
        file.read_at(0, &mut magic)?;
        if &magic == PLAIN_MAGIC {
            return Ok(Pages::new(file, path));
        }
        Ok(Pages::of_blocks(store_blocks::open(file, planted).map_err(refused)?, path))
    }

    /// Over a block file.
    pub(super) fn of_blocks(file: Opened, path: &Path) -> Arc<Pages> {
        match file {
            Opened::Now(blocks) => Pages::over(Arc::<StoreBlocks>::clone(&blocks), Some(blocks), path),
            Opened::Old(file) => Pages::over(file, None, path),
        }
    }

    /// Over a file of another form.
    pub(super) fn new(file: Arc<dyn File>, path: &Path) -> Arc<Pages> {
        Pages::over(file, None, path)
    }

    fn over(file: Arc<dyn File>, blocks: Option<Arc<StoreBlocks>>, path: &Path) -> Arc<Pages> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let (contain, any_damage) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Pages { file, blocks, name, contain, any_damage, damaged: Mutex::default() })
    }

    /// How often the root was written, durably; 0 where the file does not tell.
    pub(super) fn root_writes(&self) -> u64 {
        self.blocks.as_ref().map_or(0, |blocks| blocks.root_writes())
    }

    /// From now on damage is contained, or an error.
    pub(super) fn contain(&self, contain: bool) {
        self.contain.store(contain, Ordering::SeqCst);
    }

    /// The file below.
    pub(super) fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// Whether something was read that is damaged.
    pub(super) fn has_damage(&self) -> bool {
        self.any_damage.load(Ordering::SeqCst)
    }

    /// What a caller is told who would need what is damaged.
    pub(super) fn damage(&self) -> StorageError {
        let damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        let first = damaged.first().map_or_else(String::new, |block| format!(", the first is {block}"));
        StorageError::Corrupt(format!("store file {}: damaged blocks: {}{first}", self.name, damaged.len()))
    }

    /// Remembers that `block`, or the engine's use of it, was found damaged; told in the log once.
    pub(super) fn note(&self, block: u64, what: &dyn std::fmt::Display) {
        let new = self.damaged.lock().unwrap_or_else(PoisonError::into_inner).insert(block);
        self.any_damage.store(true, Ordering::SeqCst);
        if new {
            tracing::error!(file = self.name, block, "damaged data: {what}; what needs it is refused");
        }
    }
}

/// [`Pages`] as redb's backend.
#[derive(Debug)]
pub(super) struct RedbFile {
    pub(super) pages: Arc<Pages>,
    /// Set once another engine has taken over: this one must not touch the file again, not even to close it.
    pub(super) replaced: Arc<AtomicBool>,
}

impl RedbFile {
    fn file(&self) -> io::Result<&dyn File> {
        match self.replaced.load(Ordering::SeqCst) {
            true => Err(io::Error::other("the store was started again")),
            false => Ok(self.pages.file.as_ref()),
        }
    }
}

impl StorageBackend for RedbFile {
    fn len(&self) -> io::Result<u64> {
        self.file()?.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match self.file()?.read_at(offset, out) {
            Err(error) if is_damage(&error) => {
                self.pages.note(offset / BLOCK_BYTES as u64, &error);
                if !self.pages.contain.load(Ordering::SeqCst) || out.len() < BLOCK_BYTES {
                    return Err(error);
                }
                out.fill(0);
                out[..MISSING_LEAF.len()].copy_from_slice(&MISSING_LEAF);
                Ok(())
            }
            other => other,
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file()?.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file()?.sync()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file()?.write_at(offset, data)
    }
}

/// Whether the bytes are not what was written, or are not there; a disk that fails is something else.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}
