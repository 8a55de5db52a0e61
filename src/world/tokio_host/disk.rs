//! The disk over `std::fs` with positioned IO. Errors are the operating system's, with the path added. What is made is
//! for the node's own user only: files hold password hashes, and documents that others may not read.

use std::fs::{self, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::inline;
use crate::world::{Disk, Entry, File, OpenMode, RealDir, reworded};

/// Access rights of files that are made.
const FILE_MODE: u32 = 0o600;
/// Access rights of directories that are made.
const DIR_MODE: u32 = 0o700;
/// What others than the owner may do.
const OF_OTHERS: u32 = 0o077;
/// A directory that all may write to, such as `/tmp`.
const STICKY: u32 = 0o1000;

/// [`Disk`] over the operating system's file system.
pub(super) struct OsDisk;

#[derive(Debug)]
struct OsFile(fs::File);

fn at<T>(path: &Path, result: io::Result<T>) -> io::Result<T> {
    result.map_err(|error| reworded(&error, format!("{}: {error}", path.display())))
}

impl Disk for OsDisk {
    fn is_real(&self) -> bool {
        true
    }

    fn real_dir(&self, path: &Path) -> io::Result<Option<RealDir>> {
        Ok(Some(RealDir { path: path.to_path_buf(), guard: Box::new(()) }))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match mode {
            OpenMode::Read => {}
            OpenMode::Write => drop(options.write(true)),
            OpenMode::Create => drop(options.write(true).create(true).truncate(false)),
            OpenMode::CreateNew => drop(options.write(true).create_new(true)),
        }
        let file = at(path, options.open(path))?;
        Ok(Arc::new(OsFile(file)))
    }

    fn create_like(&self, path: &Path, like: &Path) -> io::Result<Arc<dyn File>> {
        // What a crash left may be open to others: it goes first.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return at(path, Err(error)),
            _ => {}
        }
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(path);
        let file = at(path, opened)?;
        match fs::metadata(like) {
            Ok(meta) => at(path, file.set_permissions(meta.permissions()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return at(like, Err(error)),
        }
        Ok(Arc::new(OsFile(file)))
    }

    fn follow(&self, path: &Path) -> io::Result<PathBuf> {
        match fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(path.to_path_buf()),
            other => at(path, other),
        }
    }

    fn free_bytes(&self, path: &Path) -> io::Result<u64> {
        let found = at(path, rustix::fs::statvfs(path).map_err(io::Error::from))?;
        Ok(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        at(path, fs::DirBuilder::new().recursive(true).mode(DIR_MODE).create(path))
    }

    fn narrow(&self, path: &Path) -> io::Result<bool> {
        let meta = at(path, fs::symlink_metadata(path))?;
        let mode = meta.mode() & 0o7777;
        let is_ours = meta.is_file() || meta.is_dir() && mode & STICKY == 0;
        if !is_ours || mode & OF_OTHERS == 0 {
            return Ok(false);
        }
        at(path, fs::set_permissions(path, fs::Permissions::from_mode(mode & !OF_OTHERS)))?;
        Ok(true)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        at(from, fs::rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        at(path, fs::remove_file(path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => at(path, other),
        }
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in at(path, fs::read_dir(path))? {
            let entry = at(path, entry)?;
            let meta = match entry.metadata() {
                Ok(meta) => meta,
                // Removed since the directory was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return at(path, Err(error)),
            };
            let is_dir = meta.is_dir();
            let len = if is_dir { 0 } else { meta.len() };
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(Entry { name, is_dir, len });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        at(path, path.try_exists())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        at(path, fs::File::open(path).and_then(|dir| dir.sync_all()))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
        let file = at(path, opened)?;
        match file.try_lock() {
            Ok(()) => Ok(Box::new(file)),
            Err(TryLockError::WouldBlock) => {
                let text = format!("{}: locked by another process", path.display());
                Err(io::Error::new(io::ErrorKind::WouldBlock, text))
            }
            Err(TryLockError::Error(error)) => at(path, Err(error)),
        }
    }
}

impl OsFile {
    /// Fills `buffer` from what the system holds in memory; false where that is not all.
    #[cfg(target_os = "linux")]
    fn read_cached(&self, offset: u64, buffer: &mut [u8]) -> bool {
        let wanted = buffer.len();
        let mut parts = [io::IoSliceMut::new(buffer)];
        rustix::io::preadv2(&self.0, &mut parts, offset, rustix::io::ReadWriteFlags::NOWAIT)
            .is_ok_and(|read| read == wanted)
    }

    #[cfg(not(target_os = "linux"))]
    fn read_cached(&self, _offset: u64, _buffer: &mut [u8]) -> bool {
        false
    }
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        if inline::is_here() && self.read_cached(offset, buffer) {
            return Ok(());
        }
        inline::waiting(|| self.0.read_exact_at(buffer, offset))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write_all_at(data, offset)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}
