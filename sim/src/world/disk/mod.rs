//! The simulated disk of one machine: POSIX durability, seen at its worst.
//!
//! Unsynced writes survive a power loss per sector or up to a point, unsynced names may be lost, handles of an earlier
//! life only give errors. Faults: EIO, a full disk, failed syncs, a power cut after N operations, slowness, bit rot.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use settee::world::{Disk, Entry, File, OpenMode};

use super::core::{Core, lock};
use super::dice::Dice;
use super::trace::{hash_bytes, mix};

mod inode;
mod names;
pub(crate) mod placed;

use inode::Place;
pub use names::CrashReport;
use names::{FileRef, Image, Names, os};
use placed::Placed;

const EIO: i32 = 5;
const EBADF: i32 = 9;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EWOULDBLOCK: i32 = 11;

/// What goes wrong on a disk from now on. Probabilities are per operation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskFaults {
    /// EIO of a read.
    pub read_error: f64,
    /// EIO of a write or of a change of length; half of them take effect all the same.
    pub write_error: f64,
    /// EIO of a sync; what it should have written is lost for good.
    pub sync_error: f64,
    /// EIO of a sync of a directory; its names are no more durable than before.
    pub dir_sync_error: f64,
    /// A write below `/data/store` that never reaches the disk, though its sync succeeds.
    pub lost_write: f64,
    /// One that reaches the disk at another place of the file.
    pub misdirected_write: f64,
    /// EMFILE of an operation on names, opening and syncs of directories included.
    pub name_error: f64,
    /// Bytes that fit; `None` for no limit.
    pub capacity: Option<u64>,
    /// Bytes that the disk says are free, whatever still fits; `None` for more than anybody needs.
    pub free: Option<u64>,
    /// Every operation takes this many times as long (0 and 1 change nothing).
    pub slow: u32,
    /// The same for paths below a directory.
    pub slow_paths: Vec<(PathBuf, u32)>,
    /// Syncs do nothing and say that they did: the planted bug that every crash test must catch.
    pub syncs_lie: bool,
}

/// A saved disk, as a backup would hold it.
#[derive(Clone, Debug)]
pub struct DiskImage(Image);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync,
    Name,
}

impl Operation {
    /// Shortest and longest usual time.
    fn time(self) -> (Duration, Duration) {
        let micros = |low, high| (Duration::from_micros(low), Duration::from_micros(high));
        match self {
            Operation::Read => micros(5, 60),
            Operation::Write => micros(5, 40),
            Operation::Sync => micros(200, 1500),
            Operation::Name => micros(10, 80),
        }
    }
}

struct State {
    generation: u64,
    names: Names,
    dice: Dice,
    faults: DiskFaults,
    faults_set: u64,
    /// Operations left until the power is cut.
    fuse: Option<u64>,
    /// Operations left until the process is killed, within the job that does them.
    kill_fuse: Option<u64>,
    /// Syncs below a directory left until it is.
    kill_sync_fuse: Option<(PathBuf, u64)>,
    /// Syncs below a directory left until it is cut.
    sync_fuse: Option<(PathBuf, u64)>,
    /// Time that the operations since [`SimDisk::take_debt`] would have taken.
    debt: Duration,
    locks: BTreeSet<PathBuf>,
    /// Files of the operator, which the node only reads.
    placed: BTreeMap<PathBuf, &'static [u8]>,
}

/// The disk of a machine, for the scenario: it survives the lives of the node.
pub struct SimDisk {
    core: Arc<Core>,
    ip: IpAddr,
    state: Mutex<State>,
    on_power_cut: Mutex<Option<Action>>,
    on_kill: Mutex<Option<Action>>,
}

/// What a fuse that blew does to the machine.
type Action = Box<dyn Fn() + Send + Sync>;

/// The disk as one life of the node sees it.
struct Mount {
    disk: Arc<SimDisk>,
    generation: u64,
}

struct SimFile {
    disk: Arc<SimDisk>,
    generation: u64,
    path: PathBuf,
    inode: FileRef,
    writable: bool,
}

struct LockGuard {
    disk: Weak<SimDisk>,
    generation: u64,
    path: PathBuf,
}

fn gone() -> io::Error {
    io::Error::other("the machine lost power since this handle was opened")
}

impl SimDisk {
    /// An empty disk with the durable directory `/data`.
    pub(crate) fn new(core: Arc<Core>, name: &str, ip: IpAddr) -> Arc<Self> {
        let names = Names::default();
        // Invariant: an empty tree takes any directory.
        names.create_dir_all(Path::new("/data")).expect("an empty tree");
        names.sync_all();
        let dice = Dice::new(core.seed, &format!("disk {name}"));
        let state = State {
            generation: 0,
            names,
            dice,
            faults: DiskFaults::default(),
            faults_set: 0,
            fuse: None,
            kill_fuse: None,
            kill_sync_fuse: None,
            sync_fuse: None,
            debt: Duration::ZERO,
            locks: BTreeSet::new(),
            placed: placed::keys(),
        };
        let (on_power_cut, on_kill) = (Mutex::default(), Mutex::default());
        Arc::new(SimDisk { core, ip, state: Mutex::new(state), on_power_cut, on_kill })
    }

    pub(crate) fn on_power_cut(&self, action: impl Fn() + Send + Sync + 'static) {
        *lock(&self.on_power_cut) = Some(Box::new(action));
    }

    pub(crate) fn on_kill(&self, action: impl Fn() + Send + Sync + 'static) {
        *lock(&self.on_kill) = Some(Box::new(action));
    }

    /// The view of the current life.
    pub(crate) fn mount(self: &Arc<Self>) -> Arc<dyn Disk> {
        Arc::new(Mount { disk: self.clone(), generation: lock(&self.state).generation })
    }

    /// Time that the operations since the last call would have taken.
    pub(crate) fn take_debt(&self) -> Duration {
        std::mem::take(&mut lock(&self.state).debt)
    }

    /// The process died, the machine did not: its handles end, what it wrote stays.
    pub(crate) fn end_life(&self) {
        let mut state = lock(&self.state);
        state.generation += 1;
        state.locks.clear();
        state.debt = Duration::ZERO;
        (state.kill_fuse, state.kill_sync_fuse) = (None, None);
    }

    /// Power is lost. Handles of the life before give errors from now on.
    pub fn crash(&self) -> CrashReport {
        let mut state = lock(&self.state);
        state.generation += 1;
        state.locks.clear();
        state.debt = Duration::ZERO;
        (state.fuse, state.sync_fuse) = (None, None);
        (state.kill_fuse, state.kill_sync_fuse) = (None, None);
        let State { names, dice, .. } = &mut *state;
        let report = names.crash(dice);
        drop(state);
        self.core.note(self.ip, "disk.crash", mix(mix(report.sectors_kept, report.sectors_lost), report.names_lost));
        let mut trace = self.core.trace();
        trace.count("disk.crash", 1);
        trace.count("disk.sectors_lost", report.sectors_lost);
        trace.count("disk.torn_writes", report.torn);
        trace.count("disk.names_lost", report.names_lost);
        report
    }

    /// Sets what goes wrong from now on.
    pub fn set_faults(&self, faults: DiskFaults) {
        let mut state = lock(&self.state);
        state.faults = faults;
        state.faults_set += 1;
    }

    /// How often [`SimDisk::set_faults`] was called: tells whether a fault came and went meanwhile.
    pub fn faults_set(&self) -> u64 {
        lock(&self.state).faults_set
    }

    /// What goes wrong now.
    pub fn faults(&self) -> DiskFaults {
        lock(&self.state).faults.clone()
    }

    /// Cuts the power of the machine at the operation number `operations` from now (1 is the next); `None` takes it
    /// back. That operation may or may not take effect.
    pub fn set_fuse(&self, operations: Option<u64>) {
        let mut state = lock(&self.state);
        state.fuse = operations;
        if operations.is_none() {
            state.sync_fuse = None;
            (state.kill_fuse, state.kill_sync_fuse) = (None, None);
        }
    }

    /// Kills the process at the operation number `operations` from now (1 is the next), in the midst of the job that
    /// does it: what was written before it stays, synced or not.
    pub fn set_kill_fuse(&self, operations: u64) {
        lock(&self.state).kill_fuse = Some(operations);
    }

    /// Kills the process within the sync number `syncs` of what is below `dir`: that makes nothing durable, and what it
    /// was to make durable stays as long as the machine has power.
    pub fn set_kill_in_sync(&self, dir: impl Into<PathBuf>, syncs: u64) {
        lock(&self.state).kill_sync_fuse = Some((dir.into(), syncs));
    }

    /// Cuts the power within the sync number `syncs` of files below `dir`: what it should make durable is half written.
    pub fn set_sync_fuse(&self, dir: impl Into<PathBuf>, syncs: u64) {
        lock(&self.state).sync_fuse = Some((dir.into(), syncs));
    }

    /// Flips a bit of a file at a seeded place; yields the offset, `None` for an empty file.
    pub fn rot(&self, path: &Path) -> io::Result<Option<u64>> {
        let mut state = lock(&self.state);
        let file = state.names.file(path)?;
        let len = lock(&file).len() as u64;
        if len == 0 {
            return Ok(None);
        }
        let (offset, bit) = (state.dice.below(len), state.dice.below(8) as u8);
        lock(&file).rot(offset as usize, bit);
        drop(state);
        self.core.note(self.ip, "disk.rot", offset);
        self.core.count("disk.rot");
        Ok(Some(offset))
    }

    /// All files below a directory with their sizes, by path, for scenarios that choose a victim.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let image = lock(&self.state).names.image();
        image.into_iter().filter_map(|(path, content)| content.map(|c| (PathBuf::from(path), c.len() as u64))).collect()
    }

    /// Whether a file has writes that no sync has covered.
    pub fn is_dirty(&self, path: &Path) -> io::Result<bool> {
        let file = lock(&self.state).names.file(path)?;
        let dirty = !lock(&file).is_clean();
        Ok(dirty)
    }

    /// A replica of everything that the process sees now.
    pub fn image(&self) -> DiskImage {
        DiskImage(lock(&self.state).names.image())
    }

    /// Puts a saved disk in place of this one (only while the node is down); all of it is durable.
    pub fn restore(&self, image: &DiskImage) -> io::Result<()> {
        let names = Names::from_image(&image.0)?;
        names.create_dir_all(Path::new("/data"))?;
        names.sync_all();
        let mut state = lock(&self.state);
        state.generation += 1;
        state.names = names;
        drop(state);
        self.core.note(self.ip, "disk.restore", image.0.len() as u64);
        self.core.count("disk.restore");
        Ok(())
    }

    /// Puts one file of a saved disk in its place (only while the node is down), durably; answers whether both disks
    /// have it, and it is another one then.
    pub fn restore_file(&self, path: &Path, image: &DiskImage) -> bool {
        let state = lock(&self.state);
        let (Ok(file), Some(Some(saved))) = (state.names.file(path), image.0.get(&*path.to_string_lossy())) else {
            return false;
        };
        let mut file = lock(&file);
        let is_other = file.live() != saved.as_slice();
        *file = inode::Inode::of(saved.clone());
        drop(file);
        drop(state);
        self.core.note(self.ip, "disk.restore-file", saved.len() as u64);
        self.core.count("disk.restore-file");
        is_other
    }

    /// Loses everything (only while the node is down).
    pub fn wipe(&self) -> io::Result<()> {
        self.restore(&DiskImage(Image::new()))
    }

    /// Does one operation of a handle: life, fuse, errors and time are seen to here.
    fn act<T>(
        &self,
        generation: u64,
        operation: Operation,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut state = lock(&self.state);
        if state.generation != generation {
            return Err(gone());
        }
        state.charge(operation, path);
        let is_sync = operation == Operation::Sync;
        let unsynced = is_sync && burn(&mut state.sync_fuse, path);
        let killed_unsynced = is_sync && burn(&mut state.kill_sync_fuse, path);
        let blown = state.burn_fuse() || unsynced;
        if blown {
            if unsynced {
                // The sync has begun: it is within its last write that the power fails.
                state.names.file(path).iter().for_each(|file| lock(file).tear());
            } else if state.dice.chance(0.5) {
                let _ = work(&mut state);
            }
            drop(state);
            self.core.note(self.ip, "disk.fuse", 0);
            self.core.count("disk.fuse");
            self.cut_power();
            return Err(gone());
        }
        if state.burn_kill_fuse() || killed_unsynced {
            if !killed_unsynced && state.dice.chance(0.5) {
                let _ = work(&mut state);
            }
            drop(state);
            self.core.note(self.ip, "disk.kill_fuse", 0);
            self.core.count("disk.kill_fuse");
            match &*lock(&self.on_kill) {
                Some(action) => action(),
                None => self.end_life(),
            }
            return Err(gone());
        }
        let chance = match operation {
            Operation::Read => state.faults.read_error,
            Operation::Write => state.faults.write_error,
            Operation::Name => state.faults.name_error,
            Operation::Sync => 0.0,
        };
        if state.dice.chance(chance) {
            if operation == Operation::Write && state.dice.chance(0.5) {
                let _ = work(&mut state);
            }
            drop(state);
            let (name, code) = if operation == Operation::Name { ("disk.emfile", EMFILE) } else { ("disk.eio", EIO) };
            self.core.count(name);
            return Err(os(code));
        }
        work(&mut state)
    }

    /// Where a write at `offset` of a file of `len` bytes really goes.
    fn stray(&self, path: &Path, offset: u64, len: u64) -> Place {
        let mut state = lock(&self.state);
        let (lost, elsewhere) = (state.faults.lost_write, state.faults.misdirected_write);
        if !path.starts_with("/data/store") || (lost <= 0.0 && elsewhere <= 0.0) {
            return Place::Right;
        }
        let place = if state.dice.chance(lost) {
            Place::Nowhere
        } else if state.dice.chance(elsewhere) {
            let other = state.dice.below(len.max(1)) & !511;
            if other == offset { Place::Right } else { Place::At(other as usize) }
        } else {
            Place::Right
        };
        drop(state);
        match place {
            Place::Right => {}
            Place::Nowhere => self.core.count("disk.lost_write"),
            Place::At(_) => self.core.count("disk.misdirected_write"),
        }
        place
    }

    fn cut_power(&self) {
        match &*lock(&self.on_power_cut) {
            Some(action) => action(),
            None => drop(self.crash()),
        }
    }

    fn note(&self, kind: &'static str, path: &Path, payload: u64) {
        let hash = hash_bytes(payload, path.as_os_str().as_encoded_bytes());
        self.core.note(self.ip, kind, hash);
        self.core.count(kind);
    }
}

impl State {
    fn charge(&mut self, operation: Operation, path: &Path) {
        let (low, high) = operation.time();
        let mut factor = self.faults.slow.max(1);
        for (below, slow) in &self.faults.slow_paths {
            if path.starts_with(below) {
                factor = factor.max(*slow);
            }
        }
        let time = self.dice.between(low, high);
        self.debt = self.debt.saturating_add(time.saturating_mul(factor));
    }

    fn burn_fuse(&mut self) -> bool {
        match &mut self.fuse {
            Some(0 | 1) => {
                self.fuse = None;
                true
            }
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    fn burn_kill_fuse(&mut self) -> bool {
        let left = self.kill_fuse.map(|left| left.saturating_sub(1));
        self.kill_fuse = left.filter(|left| *left > 0);
        left == Some(0)
    }

    fn check_space(&self, more: u64) -> io::Result<()> {
        match self.faults.capacity {
            Some(capacity) if more > 0 && self.names.bytes() + more > capacity => Err(os(ENOSPC)),
            _ => Ok(()),
        }
    }
}

/// Burns a fuse that counts what happens below a directory.
fn burn(fuse: &mut Option<(PathBuf, u64)>, path: &Path) -> bool {
    match fuse {
        Some((dir, left)) if path.starts_with(&*dir) => {
            *left = left.saturating_sub(1);
            *left == 0
        }
        _ => false,
    }
}

impl Mount {
    fn act<T>(
        &self,
        operation: Operation,
        path: &Path,
        work: impl FnOnce(&mut State) -> io::Result<T>,
    ) -> io::Result<T> {
        self.disk.act(self.generation, operation, path, work)
    }

    fn name_changed(&self, kind: &'static str, path: &Path, done: io::Result<()>) -> io::Result<()> {
        if done.is_ok() {
            self.disk.note(kind, path, 0);
        }
        done
    }
}

impl Disk for Mount {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        if let (Some(content), OpenMode::Read) = (lock(&self.disk.state).placed.get(path), mode) {
            return Ok(Arc::new(Placed(content)));
        }
        let inode = self.act(Operation::Name, path, |state| match mode {
            OpenMode::Read | OpenMode::Write => state.names.file(path),
            OpenMode::Create => state.names.create(path, false),
            OpenMode::CreateNew => state.names.create(path, true),
        })?;
        self.disk.note("disk.open", path, 0);
        Ok(Arc::new(SimFile {
            disk: self.disk.clone(),
            generation: self.generation,
            path: path.to_owned(),
            inode,
            writable: mode != OpenMode::Read,
        }))
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let done = self.act(Operation::Name, path, |state| state.names.create_dir_all(path));
        self.name_changed("disk.create_dir", path, done)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let done = self.act(Operation::Name, from, |state| state.names.rename(from, to));
        self.name_changed("disk.rename", from, done)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let done = self.act(Operation::Name, path, |state| state.names.remove(path));
        self.name_changed("disk.remove", path, done)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let done = self.act(Operation::Name, path, |state| state.names.remove_dir_all(path));
        self.name_changed("disk.remove_dir", path, done)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let rows = self.act(Operation::Name, path, |state| state.names.list(path))?;
        Ok(rows.into_iter().map(|(name, is_dir, len)| Entry { name, is_dir, len }).collect())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.act(Operation::Name, path, |state| state.names.exists(path))
    }

    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(lock(&self.disk.state).faults.free.unwrap_or(u64::MAX))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let done = self.act(Operation::Sync, path, |state| {
            // A directory is opened to be synced.
            let unopened = state.faults.name_error;
            if state.dice.chance(unopened) {
                self.disk.core.count("disk.emfile");
                return Err(os(EMFILE));
            }
            let chance = state.faults.dir_sync_error;
            match (state.dice.chance(chance), state.faults.syncs_lie) {
                (true, _) => Err(os(EIO)),
                (false, true) => Ok(()),
                (false, false) => state.names.sync_dir(path),
            }
        });
        if done.as_ref().is_err_and(|error| error.raw_os_error() == Some(EIO)) {
            self.disk.core.count("disk.dir_sync_failed");
        }
        self.name_changed("disk.sync_dir", path, done)
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.act(Operation::Name, path, |state| {
            state.names.create(path, false)?;
            if state.locks.insert(path.to_owned()) { Ok(()) } else { Err(os(EWOULDBLOCK)) }
        })?;
        Ok(Box::new(LockGuard { disk: Arc::downgrade(&self.disk), generation: self.generation, path: path.to_owned() }))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(disk) = self.disk.upgrade() {
            let mut state = lock(&disk.state);
            if state.generation == self.generation {
                state.locks.remove(&self.path);
            }
        }
    }
}

impl SimFile {
    fn change(&self, kind: &'static str, end: u64, payload: u64, work: impl FnOnce(&FileRef)) -> io::Result<()> {
        if !self.writable {
            return Err(os(EBADF));
        }
        self.disk.act(self.generation, Operation::Write, &self.path, |state| {
            let len = lock(&self.inode).len() as u64;
            state.check_space(end.saturating_sub(len)).inspect_err(|_| self.disk.core.count("disk.full"))?;
            work(&self.inode);
            Ok(())
        })?;
        self.disk.note(kind, &self.path, payload);
        Ok(())
    }
}

impl std::fmt::Debug for SimFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl File for SimFile {
    fn len(&self) -> io::Result<u64> {
        self.disk.act(self.generation, Operation::Read, &self.path, |_| Ok(lock(&self.inode).len() as u64))
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let found = self
            .disk
            .act(self.generation, Operation::Read, &self.path, |_| Ok(lock(&self.inode).read(offset, buffer)))?;
        if found { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let end = offset + data.len() as u64;
        let hash = hash_bytes(offset, data);
        let place = self.disk.stray(&self.path, offset, lock(&self.inode).len() as u64);
        self.change("disk.write", end, hash, |inode| lock(inode).write_to(offset as usize, data, place))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change("disk.set_len", len, len, |inode| lock(inode).set_len(len as usize))
    }

    fn sync(&self) -> io::Result<()> {
        let failed = self.disk.act(self.generation, Operation::Sync, &self.path, |state| {
            let chance = state.faults.sync_error;
            let failed = state.dice.chance(chance);
            let mut inode = lock(&self.inode);
            match (failed, state.faults.syncs_lie) {
                (true, _) => inode.fail_sync(),
                (false, true) => {}
                (false, false) => inode.sync(),
            }
            Ok(failed)
        })?;
        self.disk.note("disk.sync", &self.path, u64::from(failed));
        if failed {
            self.disk.core.count("disk.sync_failed");
            return Err(os(EIO));
        }
        Ok(())
    }
}
