//! The data directory of a node: its lock and format, the ordered store, the committer, the blobs.
//!
//! ```text
//!   DIR/lock            held while the process runs
//!   DIR/format          "settee-format: 2", 3 where something was collected; a newer number is refused, an older one
//!                       is upgraded
//!   DIR/journal/*.log   what is committed and not yet in the store files, see journal/frame.rs
//!   DIR/store/*         the store files, see layout.rs
//!   DIR/blobs/..        see blob.rs
//!   DIR/quarantine/*    damaged store files that were replaced, each with a text, see quarantine.rs
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::vec;

use futures_util::future::join_all;
use tokio::sync::{Mutex, Semaphore, watch};

use super::blob::BlobStore;
use super::committer::Committer;
use super::damage::Damage;
use super::journal::Lost;
use super::kv::{Batch, Shrunk, StorageError, Store, View};
use super::layered::{LayeredOptions, LayeredStore};
use super::layout::{self, ShardEngine};
use super::manifest::MissingFiles;
use super::memory::MemoryStore;
use super::planted::Planted;
use super::reserve;
use super::room::Room;
use super::store_files::DiskStoreFiles;
use crate::limits;
use crate::world::{Disk, Env, OpenMode, Pool, path};

/// The version of everything below the data directory that this build writes.
const FORMAT: u64 = 2;
/// The version where tombstones are collected: builds that know nothing of that would take their records for damage.
const NEWEST: u64 = 3;
const FORMAT_KEY: &str = "settee-format: ";

/// Where the ordered store keeps what it is given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// In a journal and store files; of redb, but for databases that ask for another.
    #[default]
    Redb,
    /// Nothing survives a restart but blobs and the format file: for tests.
    Memory,
}

/// How to open a [`Storage`].
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions {
    /// Where the ordered store keeps its data.
    pub engine: Engine,
    /// Size of all page caches together in bytes.
    pub cache_bytes: usize,
    /// Bytes at which a memtable is flushed to its store file; the limits of all memtables and of the journal follow.
    pub flush_at_bytes: usize,
    /// Store files that small shards share: settled when the directory is made.
    pub common_files: u64,
    /// Bytes of a shard above which it gets a store file of its own.
    pub own_file_bytes: u64,
    /// What is done about store files that are missing.
    pub missing_files: MissingFiles,
    /// Bugs for the simulator to find.
    pub planted: Planted,
}

impl Default for StorageOptions {
    fn default() -> Self {
        StorageOptions {
            engine: Engine::default(),
            cache_bytes: 0,
            flush_at_bytes: limits::MEMTABLE_FLUSH_BYTES,
            common_files: limits::STORE_FILES_COMMON,
            own_file_bytes: limits::STORE_FILE_OWN_BYTES,
            missing_files: MissingFiles::Refuse,
            planted: Planted::none(),
        }
        .with_memory(limits::MEMORY_MB)
    }
}

impl StorageOptions {
    /// Divides a budget of memory, in MB: of 160 parts memtables get 64, page caches 48; what is left is for requests.
    #[must_use]
    pub fn with_memory(self, memory_mb: u64) -> Self {
        let part = (memory_mb.max(limits::MEMORY_MB_MIN) << 20) as usize / 160;
        let flush_at_bytes = part * 64 / limits::MEMTABLES_FLUSHES;
        StorageOptions { cache_bytes: part * 48, flush_at_bytes, ..self }
    }
}

/// Why a data directory could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// Another process uses the directory.
    Locked(PathBuf),
    /// Written by a newer settee; carries its format number.
    TooNew(u64),
    /// The disk or the engine failed.
    Storage(StorageError),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Locked(dir) => write!(f, "{}: another process uses this data directory", dir.display()),
            OpenError::TooNew(format) => {
                write!(f, "the data directory has format {format}, this settee knows up to {NEWEST}")
            }
            OpenError::Storage(error) => error.fmt(f),
        }
    }
}

impl OpenError {
    /// Whether something in the directory is damaged or missing.
    pub fn is_damage(&self) -> bool {
        matches!(self, OpenError::Storage(StorageError::Corrupt(_)))
    }
}

impl std::error::Error for OpenError {}

impl From<StorageError> for OpenError {
    fn from(error: StorageError) -> Self {
        OpenError::Storage(error)
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        OpenError::Storage(error.into())
    }
}

struct Inner {
    env: Env,
    store: Arc<dyn Store>,
    committer: Committer,
    blobs: BlobStore,
    damage: Damage,
    room: Arc<Room>,
    /// One permit for each read of a store file that may run at once, by [`Store::read_permit`].
    read_permits: Vec<Semaphore>,
    /// Others for builds of views: a caller that waits for one waits for threads of lower priority.
    build_lanes: Vec<Semaphore>,
    /// One file at a time is made smaller.
    shrinking: Semaphore,
    planted: Planted,
    dir: PathBuf,
    /// Whether the directory is marked with the newest format.
    newest: Mutex<bool>,
}

impl Inner {
    /// The slots for reads of a shard's store file.
    fn read_permit(&self, pool: Pool, shard: u64) -> &Semaphore {
        let read_permits = if pool == Pool::Build { &self.build_lanes } else { &self.read_permits };
        &read_permits[self.store.read_permit(shard) % limits::STORE_READ_LANES]
    }

    /// Runs steps until they have taken so long, at least one.
    fn run_steps<T, S>(&self, steps: &mut vec::IntoIter<(u64, S)>, limit: Option<Duration>) -> Vec<Ran<T, S>>
    where
        S: FnOnce(&dyn View) -> Result<T, StorageError>,
    {
        let (view, begun) = (self.store.view(), self.env.now());
        let is_over = || limit.is_some_and(|limit| self.env.now().since(begun) >= limit);
        let mut ran = Vec::with_capacity(steps.len());
        for (shard, step) in steps {
            ran.push(match (self.read_permit(Pool::Foreground, shard).try_acquire(), &view) {
                (Ok(_permit), Ok(view)) => Ok(step(view.as_ref())),
                (_, Err(error)) => Ok(Err(error.clone())),
                (Err(_), _) => Err((shard, step)),
            });
            if is_over() {
                break;
            }
        }
        ran
    }
}

/// The result of a step, or the step, where the shard's store file is busy.
type Ran<T, S> = Result<Result<T, StorageError>, (u64, S)>;

/// A store in memory that holds the directory's lock.
struct LockedStore {
    store: MemoryStore,
    /// Dropped after the store: fields go in this order.
    _lock: Box<dyn Send + Sync>,
}

impl Store for LockedStore {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.store.view()
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        self.store.commit(batch)
    }

    fn file_bytes(&self) -> u64 {
        self.store.file_bytes()
    }
}

/// An open data directory. A cheap handle; files and lock go with the last one, once the node's tasks have ended.
#[derive(Clone)]
pub struct Storage(Arc<Inner>);

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Storage")
    }
}

impl Storage {
    /// Opens `dir`, making it when it is missing, and starts the committer and the clean-up of blobs.
    pub async fn open(env: Env, dir: &Path, options: StorageOptions) -> Result<Storage, OpenError> {
        let disk = env.disk();
        let root = dir.to_path_buf();
        let files = env.clone();
        let store = env.blocking(Pool::Foreground, move || open_files(&files, &disk, &root, options)).await?;
        let committer = Committer::start(&env, Arc::clone(&store));
        let (damage, room) = (Damage::default(), Arc::new(Room::new(dir.to_path_buf())));
        let (shared, root) = (Arc::clone(&store), dir.join("blobs"));
        let blobs = BlobStore::start(&env, root, shared, damage.clone(), Arc::clone(&room));
        let read_permits = || (0..limits::STORE_READ_LANES).map(|_| Semaphore::new(limits::STORE_FILE_READS)).collect();
        let (read_permits, build_lanes) = (read_permits(), read_permits());
        let (planted, shrinking) = (options.planted, Semaphore::new(1));
        let (dir, newest) = (dir.to_path_buf(), Mutex::new(false));
        let inner = Inner {
            env,
            store,
            committer,
            blobs,
            damage,
            room,
            read_permits,
            build_lanes,
            shrinking,
            planted,
            dir,
            newest,
        };
        Ok(Storage(Arc::new(inner)))
    }

    /// Has builds refuse the data directory from now on that know nothing of what is collected; durable on return.
    pub async fn refuse_older(&self) -> Result<(), StorageError> {
        let mut newest = self.0.newest.lock().await;
        if !*newest {
            let (disk, dir) = (self.0.env.disk(), self.0.dir.clone());
            let mark = move || write_format(disk.as_ref(), &dir, NEWEST);
            self.0.env.blocking(Pool::Foreground, mark).await?;
            *newest = true;
        }
        Ok(())
    }

    /// The node's host.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// The way to write.
    pub fn committer(&self) -> &Committer {
        &self.0.committer
    }

    /// The attachments' files.
    pub fn blobs(&self) -> &BlobStore {
        &self.0.blobs
    }

    /// What of the data was found damaged so far.
    pub fn damage(&self) -> &Damage {
        &self.0.damage
    }

    /// What could not be read when the directory was opened with [`MissingFiles::TakeOver`].
    pub fn lost(&self) -> Vec<Lost> {
        self.0.store.lost()
    }

    /// Bytes that the page caches of open store files may take, and how many files are open.
    pub fn open_store_files(&self) -> (u64, u64) {
        self.0.store.open_store_files()
    }

    /// Whether a disk error has stopped all writes of this node until it is restarted.
    pub fn writes_stopped(&self) -> bool {
        self.0.committer.writes_stopped() || self.0.store.has_failed()
    }

    /// Looks whether `reserve` bytes are free on the disk; with fewer there is no room from now on. Answers the free
    /// bytes.
    pub async fn measure_room(&self, reserve: u64) -> u64 {
        let (room, disk) = (Arc::clone(&self.0.room), self.0.env.disk());
        self.0.env.blocking(Pool::Background, move || room.measure(disk.as_ref(), reserve)).await
    }

    /// Free bytes of the data directory's file system; `None` where that does not tell.
    pub async fn free_bytes(&self) -> Option<u64> {
        let (room, disk) = (Arc::clone(&self.0.room), self.0.env.disk());
        self.0.env.blocking(Pool::Foreground, move || room.free(disk.as_ref())).await
    }

    /// Whether there is room for more; without it, what adds data is to be refused with [`StorageError::NoRoom`].
    pub fn has_room(&self) -> bool {
        self.0.room.is_left()
    }

    /// Bugs for the simulator to find.
    pub fn planted(&self) -> Planted {
        self.0.planted
    }

    /// Gives the free space of a shard's file back to the system, if it is much and a moment without readers comes.
    pub async fn shrink(&self, shard: u64) -> Result<(), StorageError> {
        // Invariant: the semaphore is never closed; without a permit two files would be worked on.
        let _permit = self.0.shrinking.acquire().await.ok();
        let position = self.0.store.position();
        for _ in 0..limits::SHRINK_TRIES {
            let store = Arc::clone(&self.0.store);
            let tried = self.0.env.blocking(Pool::Background, move || store.shrink(shard, position)).await;
            if self.0.damage.noted(tried)? != Shrunk::Busy {
                return Ok(());
            }
            self.0.env.sleep(limits::SHRINK_PAUSE).await;
        }
        Ok(())
    }

    /// The shards whose own store files were found damaged, each with what was found first.
    pub fn damaged_shards(&self) -> BTreeMap<u64, String> {
        self.0.store.damaged_shards()
    }

    /// Changes when there is another such shard; `None`: there never is.
    pub fn damage_news(&self) -> Option<watch::Receiver<u64>> {
        self.0.store.damage_news()
    }

    /// Puts the own store file of a shard away, with a text beside it that says why, and with it what was not yet
    /// written to it. The shard is to be dropped next. Answers the file's new name below the data directory, `None`
    /// when there is no such file.
    pub async fn quarantine(&self, shard: u64, told: String) -> Result<Option<String>, StorageError> {
        let store = Arc::clone(&self.0.store);
        self.0.env.blocking(Pool::Background, move || store.quarantine(shard, &told)).await
    }

    /// Size of the ordered store's files in bytes. Blocks for a moment.
    pub fn file_bytes(&self) -> u64 {
        self.0.store.file_bytes()
    }

    /// Runs one bounded step (at most `limits::STEP_ROWS` rows or `limits::STEP_BYTES` bytes) on a view of what is
    /// committed; the view ends with the step.
    pub async fn read<T: Send + 'static>(
        &self,
        step: impl FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        self.read_on(Pool::Foreground, step).await
    }

    /// As [`Storage::read`], on the threads of `pool`.
    pub async fn read_on<T: Send + 'static>(
        &self,
        pool: Pool,
        step: impl FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let store = Arc::clone(&self.0.store);
        let read = self.0.env.blocking(pool, move || step(store.view()?.as_ref())).await;
        self.0.damage.noted(read)
    }

    /// As [`Storage::read_on`], of what is not in any store file yet alone.
    pub async fn read_unflushed_on<T: Send + 'static>(
        &self,
        pool: Pool,
        step: impl FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let store = Arc::clone(&self.0.store);
        self.0.env.blocking(pool, move || step(store.unflushed_view()?.as_ref())).await
    }

    /// As [`Storage::read_on`], for a step that reads one shard: a stalled store file holds a few threads and not all.
    pub async fn read_shard_on<T: Send + 'static>(
        &self,
        pool: Pool,
        shard: u64,
        step: impl FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        // Invariant: the semaphores are never closed; without a permit the read would only be less fair.
        let _permit = self.0.read_permit(pool, shard).acquire().await.ok();
        self.read_on(pool, step).await
    }

    /// Runs one bounded step on a view of a shard that is held, with the same fairness as [`Storage::read_shard_on`].
    pub async fn read_lasting<T: Send + 'static>(
        &self,
        shard: u64,
        step: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        // Invariant: as above.
        let _permit = self.0.read_permit(Pool::Foreground, shard).acquire().await.ok();
        let read = self.0.env.blocking(Pool::Foreground, step).await;
        self.0.damage.noted(read)
    }

    /// As [`Storage::read_shard_on`] in the foreground, for a step that most often takes less than to hand it to
    /// another thread: see [`Env::inline`].
    pub async fn read_inline<T: Send + 'static>(
        &self,
        shard: u64,
        step: impl FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, StorageError> {
        // Invariant: as above.
        let _permit = self.0.read_permit(Pool::Foreground, shard).acquire().await.ok();
        let store = Arc::clone(&self.0.store);
        let read = self.0.env.inline(move || step(store.view()?.as_ref())).await;
        self.0.damage.noted(read)
    }

    /// As [`Storage::read_shard_on`] in the foreground for short steps on several shards, which run one after the other
    /// on one thread: to hand each to a thread of its own would cost more than they do. Where they are `inline`, this
    /// is done as by [`Storage::read_inline`], until they have taken longer than that after all. One whose store file
    /// is busy runs by itself afterwards. Results stand in the order of the steps.
    pub async fn read_shards<T, S>(&self, steps: Vec<(u64, S)>, inline: bool) -> Vec<Result<T, StorageError>>
    where
        T: Send + 'static,
        S: FnOnce(&dyn View) -> Result<T, StorageError> + Send + 'static,
    {
        let (mut done, mut steps) = (Vec::with_capacity(steps.len()), steps.into_iter());
        if inline {
            self.0.env.here(|| done.extend(self.0.run_steps(&mut steps, Some(limits::INLINE_READS)))).ok();
        }
        if steps.len() > 0 {
            let inner = Arc::clone(&self.0);
            done.extend(self.0.env.blocking(Pool::Foreground, move || inner.run_steps(&mut steps, None)).await);
        }
        let (mut reads, mut busy) = (Vec::with_capacity(done.len()), Vec::new());
        for ran in done {
            match ran {
                Ok(read) => reads.push(Some(self.0.damage.noted(read))),
                Err((shard, step)) => {
                    reads.push(None);
                    busy.push(self.read_shard_on(Pool::Foreground, shard, step));
                }
            }
        }
        let mut late = join_all(busy).await.into_iter();
        // Invariant: each step that did not run with the others has one result here.
        reads.into_iter().map(|read| read.or_else(|| late.next()).expect("a result for each step")).collect()
    }

    /// Whether this node can keep databases with that engine.
    pub fn has_engine(&self, engine: ShardEngine) -> bool {
        match engine {
            ShardEngine::Redb => true,
            // It goes past the seam to the disk, so only where that is the operating system's.
            ShardEngine::Sled => cfg!(feature = "sled") && self.0.env.disk().is_real(),
        }
    }
}

fn open_files(
    env: &Env,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    options: StorageOptions,
) -> Result<Arc<dyn Store>, OpenError> {
    disk.create_dir_all(dir)?;
    sync_names_above(disk.as_ref(), dir)?;
    let lock = disk.lock(&dir.join("lock")).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Locked(dir.to_path_buf()),
        _ => error.into(),
    })?;
    narrow(disk.as_ref(), dir);
    reserve::release_for_start(disk.as_ref(), dir);
    if options.missing_files != MissingFiles::TakeOver {
        check_whole(disk.as_ref(), dir)?;
    }
    check_format(disk.as_ref(), dir)?;
    // Uploads that a crash cut off.
    disk.remove_dir_all(&path(dir, &["blobs", "tmp"]))?;
    if options.engine == Engine::Memory {
        return Ok(Arc::new(LockedStore { store: MemoryStore::new(), _lock: lock }));
    }
    let (journal, files) = (dir.join("journal"), dir.join("store"));
    disk.create_dir_all(&files)?;
    disk.create_dir_all(&journal)?;
    disk.sync_dir(dir)?;
    let StorageOptions { cache_bytes, flush_at_bytes, common_files, own_file_bytes, missing_files, planted, .. } =
        options;
    let new_or_missing = (common_files, missing_files);
    let store_files =
        Arc::new(DiskStoreFiles::open(Arc::clone(disk), files, new_or_missing, cache_bytes, planted, lock)?);
    let layered = LayeredOptions { flush_at_bytes, own_file_bytes, missing_files, planted };
    let layered = Arc::new(LayeredStore::open(env, &journal, store_files, layered)?);
    layered.start_flushing(env);
    Ok(layered)
}

/// Takes access rights from others that an older settee, or a copy, left on the files of the data directory. What lies
/// deeper is behind directories that are narrowed here.
fn narrow(disk: &dyn Disk, dir: &Path) {
    let folders = ["", "journal", "store", "blobs", "quarantine"].map(|folder| dir.join(folder));
    let is_there = |folder: &PathBuf| disk.exists(folder).unwrap_or(false);
    let (mut narrowed, mut kept) = (0, None);
    for folder in folders.iter().filter(|folder| is_there(folder)) {
        let entries = disk.list(folder).unwrap_or_default();
        let files = entries.iter().filter(|entry| !entry.is_dir).map(|entry| folder.join(&entry.name));
        for path in files.chain([folder.clone()]) {
            match disk.narrow(&path) {
                Ok(was_wider) => narrowed += usize::from(was_wider),
                // Another user's, such as a mount point.
                Err(error) => kept = Some(error),
            }
        }
    }
    if narrowed > 0 {
        tracing::warn!(
            narrowed,
            "files of the data directory could be read by others than their owner, and cannot now"
        );
    }
    if let Some(error) = kept {
        tracing::warn!(%error, "files of the data directory may be read by others than their owner");
    }
}

/// Refuses a directory that somebody has removed parts of: the files are made in the order `format`, `store/layout`,
/// journal segments, store files and attachments. So what comes later proves what comes before, in every moment of a
/// first start, too. What of the journal and of the store files is missing is found when they are opened.
fn check_whole(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let holds = |folder: &str, is_meant: &dyn Fn(&str) -> bool| {
        let folder = dir.join(folder);
        let entries = if disk.exists(&folder)? { disk.list(&folder)? } else { Vec::new() };
        Ok::<bool, io::Error>(entries.iter().any(|entry| is_meant(&entry.name)))
    };
    let has_layout = disk.exists(&path(dir, &["store", layout::NAME]))?;
    // Format 1 had no layout, and all shards in this file.
    let has_first = disk.exists(&path(dir, &["store", "0.redb"]))?;
    let has_data = holds("journal", &|name| name.ends_with(".log"))? || holds("blobs", &|name| name != "tmp")?;
    let has_lists = holds("store", &|name| name == "files" || name == "journal-end")?;
    if !has_layout && (has_lists || !has_first && has_data) {
        return Err(StorageError::Corrupt("store/layout, or all of store, is missing".into()).into());
    }
    let has_store = holds("store", &|name| name.ends_with(".redb") || name == "sled")?;
    if has_layout && has_store && !holds("journal", &|name| name.ends_with(".log"))? {
        return Err(StorageError::Corrupt("the journal is missing, with all that no store file has".into()).into());
    }
    if !disk.exists(&dir.join("format"))? && (has_layout || has_first) {
        return Err(StorageError::Corrupt("the file format is missing".into()).into());
    }
    Ok(())
}

/// Makes the way to `dir` durable: else a power loss could take a new directory with all that was acknowledged.
///
/// # Errors
/// Those of the disk.
pub fn sync_names_above(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
    for above in dir.ancestors().skip(1) {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        match disk.sync_dir(above) {
            // A directory that we may not even open is not one that we made.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            other => other?,
        }
    }
    Ok(())
}

/// Refuses a directory of a newer settee; marks a new one, and an older one, with this build's format: what is written
/// from now on an older settee cannot read.
fn check_format(disk: &dyn Disk, dir: &Path) -> Result<(), OpenError> {
    let name = dir.join("format");
    let mut kept = None;
    if disk.exists(&name)? {
        let file = disk.open(&name, OpenMode::Read)?;
        let mut text = vec![0; file.len()?.min(64) as usize];
        file.read_at(0, &mut text)?;
        match read_format(&text) {
            Some(format) if format <= NEWEST => kept = Some(format),
            Some(format) => return Err(OpenError::TooNew(format)),
            None => return Err(StorageError::Corrupt(format!("{} has no format number", name.display())).into()),
        }
    }
    if kept.is_some_and(|kept| kept >= FORMAT) {
        return Ok(());
    }
    Ok(write_format(disk, dir, FORMAT)?)
}

/// Durable on return.
fn write_format(disk: &dyn Disk, dir: &Path, format: u64) -> Result<(), StorageError> {
    let temporary = dir.join("format.new");
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(0, format!("{FORMAT_KEY}{format}\n").as_bytes())?;
    file.sync()?;
    disk.rename(&temporary, &dir.join("format"))?;
    Ok(disk.sync_dir(dir)?)
}

fn read_format(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.strip_prefix(FORMAT_KEY)?.trim_end().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Env {
        crate::world::tokio_host::env(tokio::runtime::Handle::current())
    }

    #[tokio::test]
    async fn a_directory_of_a_newer_settee_and_one_in_use_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(env(), dir.path(), StorageOptions::default()).await.unwrap();
        let second = Storage::open(env(), dir.path(), StorageOptions::default()).await;
        assert!(matches!(second, Err(OpenError::Locked(_))), "{second:?}");
        drop(storage);
        let other = tempfile::tempdir().unwrap();
        std::fs::write(other.path().join("format"), "settee-format: 99\n").unwrap();
        let newer = Storage::open(env(), other.path(), StorageOptions::default()).await;
        assert!(matches!(newer, Err(OpenError::TooNew(99))), "{newer:?}");
    }

    #[test]
    fn inline_reads_go_to_a_thread_for_reads_once_they_have_taken_long() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().to_path_buf();
        let open = async move { Storage::open(env(), &root, StorageOptions::default()).await };
        let storage = runtime.block_on(runtime.spawn(open)).unwrap().unwrap();
        let step = |n: u64| {
            let env = storage.env().clone();
            let read = move |_: &dyn View| {
                let begun = env.now();
                while n == 1 && env.now().since(begun) < limits::INLINE_READS {}
                Ok(std::thread::current().name().unwrap_or_default().starts_with("foreground-"))
            };
            (n, read)
        };
        let pooled = |inline| {
            let (storage, steps) = (storage.clone(), (1..5).map(step).collect());
            // A task of its own, which has not held up others yet.
            let read = runtime.spawn(async move { storage.read_shards(steps, inline).await });
            runtime.block_on(read).unwrap().into_iter().collect::<Result<Vec<bool>, _>>().unwrap()
        };
        assert_eq!((pooled(true), pooled(false)), (vec![false, true, true, true], vec![true; 4]));
        let (own, one) = (storage.clone(), step(2).1);
        let read = runtime.spawn(async move { own.read_inline(2, one).await });
        assert_eq!(runtime.block_on(read).unwrap(), Ok(false));
    }

    /// A directory as format 1 had it: one plain redb file with its position, one journal segment without notes.
    fn directory_of_format_1(dir: &Path) {
        let key = |shard: u64, rest: u8| [shard.to_be_bytes().as_slice(), &[rest]].concat();
        std::fs::create_dir_all(dir.join("store")).unwrap();
        std::fs::create_dir_all(dir.join("journal")).unwrap();
        std::fs::write(dir.join("format"), "settee-format: 1\n").unwrap();
        let file = redb::Database::create(path(dir, &["store", "0.redb"])).unwrap();
        let transaction = file.begin_write().unwrap();
        {
            let table = redb::TableDefinition::<&[u8], &[u8]>::new("0");
            let mut table = transaction.open_table(table).unwrap();
            table.insert(key(16, 1).as_slice(), b"in the file".as_slice()).unwrap();
            table.insert(key(25, 1).as_slice(), b"in the file".as_slice()).unwrap();
            table.insert([0xff; 9].as_slice(), 2u64.to_be_bytes().as_slice()).unwrap();
        }
        transaction.commit().unwrap();
        let mut segment = Vec::new();
        segment.extend(b"settee-j");
        segment.extend(1u32.to_le_bytes());
        let head: Vec<u8> = [7u64, 2, 3, 99].iter().flat_map(|n| n.to_le_bytes()).collect();
        segment.extend(crc32fast::hash(&head).to_le_bytes());
        segment.extend(head);
        // One group at position 3: shard 25 changed, shard 40 new.
        let (mut frame, mut payload) = (Vec::new(), vec![2]);
        for (shard, value) in [(25, b"replayed"), (40, b"replayed")] {
            payload.push(9);
            payload.extend(key(shard, 1));
            payload.extend([1, 8]);
            payload.extend(value);
        }
        frame.extend([99u32.to_le_bytes().as_slice(), &3u64.to_le_bytes(), &payload].concat());
        let crc = crc32fast::hash(&[99u64.to_le_bytes().as_slice(), &frame].concat());
        segment.extend(b"sttf");
        segment.extend((payload.len() as u32).to_le_bytes());
        segment.extend(crc.to_le_bytes());
        segment.extend(frame);
        segment.resize(segment.len().next_multiple_of(8), 0);
        std::fs::write(path(dir, &["journal", "0000000000000007.log"]), segment).unwrap();
    }

    #[tokio::test]
    async fn a_directory_of_format_1_opens_and_goes_on_under_the_new_layout() {
        let dir = tempfile::tempdir().unwrap();
        directory_of_format_1(dir.path());
        let key = |shard: u64, rest: u8| [shard.to_be_bytes().as_slice(), &[rest]].concat();
        for start in 0..3u8 {
            let options = StorageOptions { flush_at_bytes: 1, ..StorageOptions::default() };
            let storage = loop {
                match Storage::open(env(), dir.path(), options).await {
                    // Tasks of the storage before may hold the directory for a moment longer.
                    Err(OpenError::Locked(_)) => tokio::task::yield_now().await,
                    other => break other.unwrap(),
                }
            };
            let read = move |view: &dyn View| {
                [(16, 1), (25, 1), (40, 1)].into_iter().map(|(shard, rest)| view.get(&key(shard, rest))).collect()
            };
            let found: Vec<Option<Vec<u8>>> = storage.read(read).await.unwrap();
            let text: Vec<_> =
                found.iter().map(|v| String::from_utf8_lossy(v.as_deref().unwrap()).into_owned()).collect();
            assert_eq!(text, ["in the file", "replayed", "replayed"]);
            let (caches, files) = storage.open_store_files();
            assert!(caches > 0 && files > 0, "the file that was read is open");
            let write = move |view: &mut crate::storage::WriteView<'_>| {
                view.put(key(16, 9), vec![start]);
                view.put(key(48, 9), vec![start]);
                Ok(Ok::<(), ()>(()))
            };
            storage.committer().submit(write).await.unwrap().unwrap();
        }
        assert_eq!(std::fs::read_to_string(dir.path().join("format")).unwrap(), "settee-format: 2\n");
        let layout = std::fs::read_to_string(path(dir.path(), &["store", "layout"])).unwrap();
        assert!(layout.starts_with("settee-layout: 2 common=8 old=26 crc="), "{layout}");
    }

    #[tokio::test]
    async fn a_lock_that_cannot_be_made_is_not_another_process() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lock")).unwrap();
        let opened = Storage::open(env(), dir.path(), StorageOptions::default()).await;
        assert!(matches!(opened, Err(OpenError::Storage(_))), "{opened:?}");
    }

    #[tokio::test]
    async fn a_directory_in_which_something_was_collected_has_a_later_format_for_good() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let storage = loop {
                match Storage::open(env(), dir.path(), StorageOptions::default()).await {
                    // A task of the one before may hold it for a moment longer.
                    Err(OpenError::Locked(_)) => env().sleep(std::time::Duration::from_millis(10)).await,
                    opened => break opened.unwrap(),
                }
            };
            storage.refuse_older().await.unwrap();
            storage.refuse_older().await.unwrap();
            drop(storage);
            assert_eq!(std::fs::read_to_string(dir.path().join("format")).unwrap(), "settee-format: 3\n");
        }
    }

    #[test]
    fn the_format_line_is_read_strictly() {
        assert_eq!(read_format(b"settee-format: 1\n"), Some(1));
        assert_eq!(read_format(b"settee-format: x\n"), None);
        assert_eq!(read_format(b""), None);
    }
}
