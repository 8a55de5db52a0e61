//! A scratch disk: writes stay in memory, over files that do not change.
//!
//! For tools that must open a node's data as the node itself does, recovery included, and leave no trace. Directories
//! are locked for real. All writes must fit in memory. Code that does not use the seam gets a copy of the files in the
//! system's temporary directory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::with_disk::with_disk;
use super::{Disk, Entry, Env, File, OpenMode, RealDir};
use crate::limits;

const PAGE: u64 = 4096;

/// The host of `env` with a disk on which nothing changes.
pub fn scratch(env: &Env) -> Env {
    let disk = Arc::new(ScratchDisk { below: env.disk(), env: env.clone(), names: Mutex::default() });
    with_disk(env, disk)
}

struct ScratchDisk {
    below: Arc<dyn Disk>,
    env: Env,
    names: Mutex<Names>,
}

/// A copy that goes with its user.
struct Copied {
    below: Arc<dyn Disk>,
    path: PathBuf,
}

impl Drop for Copied {
    fn drop(&mut self) {
        if let Err(error) = self.below.remove_dir_all(&self.path) {
            tracing::warn!(%error, "a copy of data stays behind");
        }
    }
}

/// Copies all files of a directory, as they are on the disk.
fn copy(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    disk.create_dir_all(to)?;
    for entry in disk.list(from)? {
        let (from, to) = (from.join(&entry.name), to.join(&entry.name));
        if entry.is_dir {
            copy(disk, &from, &to)?;
            continue;
        }
        let (source, target) = (disk.open(&from, OpenMode::Read)?, disk.open(&to, OpenMode::CreateNew)?);
        let (len, mut at) = (source.len()?, 0);
        while at < len {
            let mut bytes = vec![0; (len - at).min(limits::STEP_BYTES as u64) as usize];
            source.read_at(at, &mut bytes)?;
            target.write_at(at, &bytes)?;
            at += bytes.len() as u64;
        }
    }
    Ok(())
}

/// What differs from the disk below.
#[derive(Default)]
struct Names {
    /// Files that were opened, made or renamed; `None`: no longer there.
    files: BTreeMap<PathBuf, Option<Arc<ScratchFile>>>,
    dirs: BTreeSet<PathBuf>,
    /// Directories of which nothing that is below counts any more.
    gone: BTreeSet<PathBuf>,
}

impl Names {
    fn is_gone(&self, path: &Path) -> bool {
        path.ancestors().any(|above| self.gone.contains(above))
    }
}

impl ScratchDisk {
    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file at `path`, if there is one.
    fn find(&self, names: &mut Names, path: &Path) -> io::Result<Option<Arc<ScratchFile>>> {
        if let Some(known) = names.files.get(path) {
            return Ok(known.clone());
        }
        if names.is_gone(path) || !self.below.exists(path)? {
            return Ok(None);
        }
        let base = self.below.open(path, OpenMode::Read)?;
        let len = base.len()?;
        let written = Mutex::new(Written { pages: BTreeMap::new(), len, below: len });
        let file = Arc::new(ScratchFile { base: Some(base), written });
        names.files.insert(path.to_path_buf(), Some(Arc::clone(&file)));
        Ok(Some(file))
    }
}

impl Disk for ScratchDisk {
    fn real_dir(&self, path: &Path) -> io::Result<Option<RealDir>> {
        if !self.below.is_real() {
            return Ok(None);
        }
        let to = std::env::temp_dir().join(format!("settee-{:016x}", self.env.random_u64()));
        // Nobody else may read it, wherever it lies.
        DirBuilder::new().mode(0o700).create(&to)?;
        let guard = Box::new(Copied { below: Arc::clone(&self.below), path: to.clone() });
        if self.below.exists(path)? {
            copy(self.below.as_ref(), path, &to)?;
        }
        Ok(Some(RealDir { path: to, guard }))
    }

    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let mut names = self.names();
        match (self.find(&mut names, path)?, mode) {
            (Some(_), OpenMode::CreateNew) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(file),
            (None, OpenMode::Read | OpenMode::Write) => Err(io::ErrorKind::NotFound.into()),
            (None, OpenMode::Create | OpenMode::CreateNew) => {
                let file = Arc::new(ScratchFile { base: None, written: Mutex::default() });
                names.files.insert(path.to_path_buf(), Some(Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.names().dirs.extend(path.ancestors().map(Path::to_path_buf));
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut names = self.names();
        let file = self.find(&mut names, from)?.ok_or(io::ErrorKind::NotFound)?;
        names.files.insert(from.to_path_buf(), None);
        names.files.insert(to.to_path_buf(), Some(file));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names();
        self.find(&mut names, path)?.ok_or(io::ErrorKind::NotFound)?;
        names.files.insert(path.to_path_buf(), None);
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut names = self.names();
        names.files.retain(|file, _| !file.starts_with(path));
        names.dirs.retain(|dir| !dir.starts_with(path));
        names.gone.insert(path.to_path_buf());
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let names = self.names();
        let mut found: BTreeMap<String, Entry> = BTreeMap::new();
        if !names.is_gone(path) && self.below.exists(path)? {
            found.extend(self.below.list(path)?.into_iter().map(|entry| (entry.name.clone(), entry)));
        } else if !names.dirs.contains(path) {
            return Err(io::ErrorKind::NotFound.into());
        }
        found.retain(|name, _| !names.gone.contains(&path.join(name)));
        let name_in = |child: &Path| {
            let name = child.file_name()?.to_string_lossy().into_owned();
            (child.parent() == Some(path)).then_some(name)
        };
        for name in names.dirs.iter().filter_map(|dir| name_in(dir)) {
            found.entry(name.clone()).or_insert(Entry { name, is_dir: true, len: 0 });
        }
        for (child, file) in &names.files {
            match (name_in(child), file) {
                (Some(name), Some(file)) => {
                    found.insert(name.clone(), Entry { name, is_dir: false, len: file.len()? });
                }
                (Some(name), None) => drop(found.remove(&name)),
                (None, _) => {}
            }
        }
        Ok(found.into_values().collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = self.names();
        match names.files.get(path) {
            Some(known) => Ok(known.is_some()),
            None => Ok(names.dirs.contains(path) || (!names.is_gone(path) && self.below.exists(path)?)),
        }
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}

/// A file as it is below, with what was written since on top.
#[derive(Debug)]
struct ScratchFile {
    base: Option<Arc<dyn File>>,
    written: Mutex<Written>,
}

#[derive(Debug, Default)]
struct Written {
    pages: BTreeMap<u64, Vec<u8>>,
    len: u64,
    /// How much of the file below still counts.
    below: u64,
}

impl ScratchFile {
    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file below; zeros behind its end.
    fn read_below(&self, below: u64, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let there = below.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let (front, rest) = buffer.split_at_mut(there);
        rest.fill(0);
        match &self.base {
            Some(base) if !front.is_empty() => base.read_at(offset, front),
            _ => Ok(()),
        }
    }
}

/// The parts of `len` bytes from `offset` on: page, place within it, place within the bytes, length.
fn pages(offset: u64, len: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done as u64;
        let within = (at % PAGE) as usize;
        let size = (PAGE as usize - within).min(len - done);
        done += size;
        (size > 0).then_some((at / PAGE, within, done - size, size))
    })
}

impl File for ScratchFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.written().len)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let written = self.written();
        if offset + buffer.len() as u64 > written.len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if written.pages.is_empty() {
            return self.read_below(written.below, offset, buffer);
        }
        for (page, within, at, size) in pages(offset, buffer.len()) {
            let out = &mut buffer[at..at + size];
            match written.pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[within..within + size]),
                None => self.read_below(written.below, page * PAGE + within as u64, out)?,
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut written = self.written();
        for (page, within, at, size) in pages(offset, data.len()) {
            if !written.pages.contains_key(&page) {
                let mut bytes = vec![0; PAGE as usize];
                self.read_below(written.below, page * PAGE, &mut bytes)?;
                written.pages.insert(page, bytes);
            }
            if let Some(bytes) = written.pages.get_mut(&page) {
                bytes[within..within + size].copy_from_slice(&data[at..at + size]);
            }
        }
        written.len = written.len.max(offset + data.len() as u64);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.written();
        written.below = written.below.min(len);
        written.pages.split_off(&len.div_ceil(PAGE));
        if let Some(last) = written.pages.get_mut(&(len / PAGE)) {
            last[(len % PAGE) as usize..].fill(0);
        }
        written.len = len;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_changes_below() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let real = crate::world::tokio_host::env(runtime.handle().clone());
        let dir = tempfile::tempdir().unwrap();
        let (kept, made) = (dir.path().join("kept"), dir.path().join("made"));
        std::fs::write(&kept, vec![7; 10_000]).unwrap();
        let disk = scratch(&real).disk();

        let file = disk.open(&kept, OpenMode::Write).unwrap();
        file.write_at(5000, b"other").unwrap();
        file.set_len(5003).unwrap();
        file.write_at(5010, b"z").unwrap();
        let mut out = [1; 13];
        file.read_at(4998, &mut out).unwrap();
        assert_eq!(&out, b"\x07\x07oth\0\0\0\0\0\0\0z");
        assert_eq!(file.len().unwrap(), 5011);
        assert!(file.read_at(5000, &mut [0; 12]).is_err());

        disk.open(&made, OpenMode::CreateNew).unwrap().write_at(0, b"new").unwrap();
        disk.rename(&made, &dir.path().join("named")).unwrap();
        disk.create_dir_all(&dir.path().join("a/b")).unwrap();
        let names = |disk: &dyn Disk| -> Vec<String> {
            disk.list(dir.path()).unwrap().into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names(disk.as_ref()), ["a", "kept", "named"]);
        disk.remove(&kept).unwrap();
        assert!(!disk.exists(&kept).unwrap() && disk.open(&kept, OpenMode::Read).is_err());

        assert_eq!(names(real.disk().as_ref()), ["kept"]);
        assert_eq!(std::fs::read(&kept).unwrap(), vec![7; 10_000]);
    }
}
