//! The directory tree: names as the process sees them and as they would be after a power loss.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex};

use super::super::core::lock;
use super::super::dice::Dice;
use super::inode::{Inode, Loss};

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;

pub(super) fn os(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

pub(super) type FileRef = Arc<Mutex<Inode>>;
type DirRef = Arc<Mutex<Dir>>;

#[derive(Clone, Debug)]
pub(super) enum Child {
    File(FileRef),
    Dir(DirRef),
}

/// A change of a directory that no `sync_dir` has covered.
#[derive(Clone, Debug)]
enum Change {
    Set(String, Child),
    Unset(String),
    Rename(String, String, Child),
    /// Moved to another directory: takes effect here only once it is certain there.
    MovedTo(String, DirRef, String, Child),
}

#[derive(Debug, Default)]
pub(super) struct Dir {
    live: BTreeMap<String, Child>,
    durable: BTreeMap<String, Child>,
    pending: Vec<Change>,
}

impl Child {
    fn is(&self, other: &Child) -> bool {
        match (self, other) {
            (Child::File(a), Child::File(b)) => Arc::ptr_eq(a, b),
            (Child::Dir(a), Child::Dir(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Dir {
    fn set(&mut self, name: &str, child: Child) {
        self.live.insert(name.to_owned(), child.clone());
        self.pending.push(Change::Set(name.to_owned(), child));
    }

    fn unset(&mut self, name: &str) {
        self.live.remove(name);
        self.pending.push(Change::Unset(name.to_owned()));
    }

    fn apply(&mut self, change: Change) {
        match change {
            Change::Set(name, child) => drop(self.durable.insert(name, child)),
            Change::Unset(name) => drop(self.durable.remove(&name)),
            Change::Rename(from, to, child) => {
                self.durable.remove(&from);
                self.durable.insert(to, child);
            }
            Change::MovedTo(name, _, _, _) => drop(self.durable.remove(&name)),
        }
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            if let Change::MovedTo(_, target, name, child) = &change {
                lock(target).durable.insert(name.clone(), child.clone());
            }
            self.apply(change);
        }
    }

    fn children(&self) -> Vec<Child> {
        self.live.values().cloned().collect()
    }

    fn bytes(&self) -> u64 {
        let size = |child: &Child| match child {
            Child::File(file) => lock(file).len() as u64,
            Child::Dir(dir) => lock(dir).bytes(),
        };
        self.live.values().map(size).sum()
    }
}

/// Power loss: keeps a part of the changes of a directory, then goes down the tree. No lock is held on the way down,
/// since a moved name may lead anywhere.
fn crash(at: &DirRef, dice: &mut Dice, report: &mut CrashReport) {
    let pending = std::mem::take(&mut lock(at).pending);
    let kept = dice.below(pending.len() as u64 + 1) as usize;
    for (index, change) in pending.into_iter().enumerate() {
        let arrived = match &change {
            Change::MovedTo(_, target, name, child) => {
                lock(target).durable.get(name).is_some_and(|there| there.is(child))
            }
            _ => true,
        };
        if index < kept && arrived {
            lock(at).apply(change);
        } else {
            report.names_lost += 1;
        }
    }
    let children = {
        let mut dir = lock(at);
        dir.live = dir.durable.clone();
        dir.children()
    };
    for child in children {
        match child {
            Child::File(file) => report.add(lock(&file).crash(dice)),
            Child::Dir(dir) => crash(&dir, dice, report),
        }
    }
}

/// What a power loss did to a disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct CrashReport {
    /// Directory changes that were undone.
    pub names_lost: u64,
    /// Unsynced sectors that survived.
    pub sectors_kept: u64,
    /// Unsynced sectors that were lost.
    pub sectors_lost: u64,
    /// Writes of which only a part survived.
    pub torn: u64,
}

impl CrashReport {
    fn add(&mut self, loss: Loss) {
        self.sectors_kept += loss.sectors_kept;
        self.sectors_lost += loss.sectors_lost;
        self.torn += loss.torn;
    }
}

/// A whole disk as files by path, for backups.
pub(super) type Image = BTreeMap<String, Option<Vec<u8>>>;

/// The tree.
#[derive(Debug, Default)]
pub(super) struct Names {
    root: DirRef,
}

/// The names of a path from the root.
fn parts(path: &Path) -> io::Result<Vec<String>> {
    let mut out = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => out.push(name.to_string_lossy().into_owned()),
            Component::RootDir | Component::CurDir => {}
            _ => return Err(os(EINVAL)),
        }
    }
    Ok(out)
}

impl Names {
    fn walk(&self, names: &[String]) -> io::Result<DirRef> {
        let mut at = self.root.clone();
        for name in names {
            let next = match lock(&at).live.get(name) {
                Some(Child::Dir(dir)) => dir.clone(),
                Some(Child::File(_)) => return Err(os(ENOTDIR)),
                None => return Err(os(ENOENT)),
            };
            at = next;
        }
        Ok(at)
    }

    fn parent(&self, path: &Path) -> io::Result<(DirRef, String)> {
        let mut names = parts(path)?;
        let last = names.pop().ok_or_else(|| os(EISDIR))?;
        Ok((self.walk(&names)?, last))
    }

    fn dir(&self, path: &Path) -> io::Result<DirRef> {
        self.walk(&parts(path)?)
    }

    pub(super) fn file(&self, path: &Path) -> io::Result<FileRef> {
        let (dir, name) = self.parent(path)?;
        match lock(&dir).live.get(&name) {
            Some(Child::File(file)) => Ok(file.clone()),
            Some(Child::Dir(_)) => Err(os(EISDIR)),
            None => Err(os(ENOENT)),
        }
    }

    /// Makes an empty file; `exclusive` wants it to be new.
    pub(super) fn create(&self, path: &Path, exclusive: bool) -> io::Result<FileRef> {
        match self.file(path) {
            Ok(_) if exclusive => Err(os(EEXIST)),
            Err(error) if error.raw_os_error() == Some(ENOENT) => {
                let (dir, name) = self.parent(path)?;
                let file = FileRef::default();
                lock(&dir).set(&name, Child::File(file.clone()));
                Ok(file)
            }
            other => other,
        }
    }

    pub(super) fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let mut at = self.root.clone();
        for name in parts(path)? {
            let found = lock(&at).live.get(&name).cloned();
            at = match found {
                Some(Child::Dir(dir)) => dir,
                Some(Child::File(_)) => return Err(os(ENOTDIR)),
                None => {
                    let dir = DirRef::default();
                    lock(&at).set(&name, Child::Dir(dir.clone()));
                    dir
                }
            };
        }
        Ok(())
    }

    pub(super) fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (source, old) = self.parent(from)?;
        let (target, new) = self.parent(to)?;
        let child = lock(&source).live.get(&old).cloned().ok_or_else(|| os(ENOENT))?;
        let over = lock(&target).live.get(&new).cloned();
        match (&child, &over) {
            (Child::File(_), Some(Child::Dir(_))) => return Err(os(EISDIR)),
            (Child::Dir(_), Some(Child::File(_))) => return Err(os(ENOTDIR)),
            _ => {}
        }
        if Arc::ptr_eq(&source, &target) {
            let mut dir = lock(&source);
            dir.live.remove(&old);
            dir.live.insert(new.clone(), child.clone());
            dir.pending.push(Change::Rename(old, new, child));
        } else {
            lock(&target).set(&new, child.clone());
            let mut dir = lock(&source);
            dir.live.remove(&old);
            dir.pending.push(Change::MovedTo(old, target.clone(), new, child));
        }
        Ok(())
    }

    pub(super) fn remove(&self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        let (dir, name) = self.parent(path)?;
        lock(&dir).unset(&name);
        Ok(())
    }

    pub(super) fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = match self.parent(path) {
            Err(error) if error.raw_os_error() == Some(ENOENT) => return Ok(()),
            other => other?,
        };
        let found = lock(&dir).live.get(&name).cloned();
        match found {
            None => Ok(()),
            Some(Child::File(_)) => Err(os(ENOTDIR)),
            Some(Child::Dir(_)) => {
                lock(&dir).unset(&name);
                Ok(())
            }
        }
    }

    /// Name, whether a directory, and size of each entry, by name.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, bool, u64)>> {
        let dir = self.dir(path)?;
        let dir = lock(&dir);
        let entry = |(name, child): (&String, &Child)| match child {
            Child::File(file) => (name.clone(), false, lock(file).len() as u64),
            Child::Dir(_) => (name.clone(), true, 0),
        };
        Ok(dir.live.iter().map(entry).collect())
    }

    pub(super) fn exists(&self, path: &Path) -> io::Result<bool> {
        let names = parts(path)?;
        let Some((last, above)) = names.split_last() else { return Ok(true) };
        match self.walk(above) {
            Ok(dir) => Ok(lock(&dir).live.contains_key(last)),
            Err(error) if error.raw_os_error() == Some(ENOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(super) fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let dir = self.dir(path)?;
        lock(&dir).sync();
        Ok(())
    }

    pub(super) fn bytes(&self) -> u64 {
        lock(&self.root).bytes()
    }

    pub(super) fn crash(&mut self, dice: &mut Dice) -> CrashReport {
        let mut report = CrashReport::default();
        crash(&self.root, dice, &mut report);
        report
    }

    /// Everything that the process sees; `None` for a directory.
    pub(super) fn image(&self) -> Image {
        fn add(dir: &Dir, prefix: &str, image: &mut Image) {
            for (name, child) in &dir.live {
                let path = format!("{prefix}/{name}");
                match child {
                    Child::File(file) => drop(image.insert(path, Some(lock(file).live().to_vec()))),
                    Child::Dir(dir) => {
                        add(&lock(dir), &path, image);
                        image.insert(path, None);
                    }
                }
            }
        }
        let mut image = Image::new();
        add(&lock(&self.root), "", &mut image);
        image
    }

    /// A tree with the content of an image, all of it durable.
    pub(super) fn from_image(image: &Image) -> io::Result<Self> {
        let names = Names::default();
        for (path, content) in image {
            let path = Path::new(path);
            match content {
                None => names.create_dir_all(path)?,
                Some(bytes) => {
                    names.create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
                    *lock(&*names.create(path, false)?) = Inode::of(bytes.clone());
                }
            }
        }
        names.sync_all();
        Ok(names)
    }

    /// Makes every name durable.
    pub(super) fn sync_all(&self) {
        fn go(at: &DirRef) {
            let children = {
                let mut dir = lock(at);
                dir.sync();
                dir.children()
            };
            for child in children {
                if let Child::Dir(below) = child {
                    go(&below);
                }
            }
        }
        go(&self.root);
    }
}
