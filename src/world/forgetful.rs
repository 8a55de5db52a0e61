//! A disk for tests that loses names at a power failure. The content of files stays, and so do names that were removed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sync::Mutex;
use super::{Disk, Entry, File, OpenMode, lock};

/// A disk of which [`Forgetful::lose_power`] takes the names that were given since their directory was synced.
pub(crate) struct Forgetful {
    below: Arc<dyn Disk>,
    unsynced: Mutex<Vec<PathBuf>>,
}

impl Forgetful {
    /// Over a disk of which it takes nothing yet.
    pub(crate) fn over(below: Arc<dyn Disk>) -> Arc<Forgetful> {
        Arc::new(Forgetful { below, unsynced: Mutex::default() })
    }

    /// Removes those names.
    pub(crate) fn lose_power(&self) -> io::Result<()> {
        lock(&self.unsynced).drain(..).try_for_each(|path| self.below.remove(&path))
    }
}

impl Disk for Forgetful {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.below.open(path, mode)
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        lock(&self.unsynced).push(to.to_path_buf());
        self.below.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.below.remove(path)
    }
    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.remove_dir_all(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.below.list(path)
    }
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.below.exists(path)
    }
    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        lock(&self.unsynced).retain(|name| name.parent() != Some(path));
        self.below.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}
