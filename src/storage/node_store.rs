//! What a node opens: the data directory with its lock and format, the ordered store, the committer, the blobs.
//!
//! ```text
//!   DIR/lock            held while the process runs
//!   DIR/format          "settee-format: 2"; a newer number is refused, an older one is read
//!   DIR/journal/*.log   what is committed and not yet in the engine, see journal/frame.rs
//!   DIR/store/0.redb    the engine
//!   DIR/blobs/..        see blob.rs
//! ```

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::blob::BlobStore;
use super::committer::Committer;
use super::damage::Damage;
use super::kv::{Batch, StorageError, Store, View};
use super::layered::LayeredStore;
use super::memory::MemoryStore;
use super::planted::Planted;
use super::redb_store::RedbStore;
use super::room::Room;
use crate::limits;
use crate::world::{Disk, Env, OpenMode, Pool, path};

/// The version of everything below the data directory that this build writes.
const FORMAT: u64 = 2;
const FORMAT_KEY: &str = "settee-format: ";

/// Which ordered store to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// redb: the default.
    #[default]
    Redb,
    /// Nothing survives a restart but blobs and the format file: for tests.
    Memory,
}

/// How to open a [`Storage`].
#[derive(Clone, Copy, Debug)]
pub struct StorageOptions {
    /// The ordered store's engine.
    pub engine: Engine,
    /// Size of the page cache in bytes.
    pub cache_bytes: usize,
    /// Bytes at which a memtable is flushed to the engine.
    pub flush_at_bytes: usize,
    /// Bugs for the simulator to find.
    pub planted: Planted,
}

impl Default for StorageOptions {
    fn default() -> Self {
        StorageOptions {
            engine: Engine::default(),
            cache_bytes: limits::STORE_CACHE_BYTES,
            flush_at_bytes: limits::MEMTABLE_FLUSH_BYTES,
            planted: Planted::none(),
        }
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
                write!(f, "the data directory has format {format}, this settee knows up to {FORMAT}")
            }
            OpenError::Storage(error) => error.fmt(f),
        }
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
    planted: Planted,
}

/// An engine that holds the directory's lock. Tasks of a node that is going may hold the engine for a moment longer
/// than anybody else; a second process must not open the files before the last of them has let go.
struct LockedStore<S> {
    store: S,
    /// Dropped after the store: fields go in this order.
    _lock: Box<dyn Send + Sync>,
}

impl<S: Store> Store for LockedStore<S> {
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
        Ok(Storage(Arc::new(Inner { env, store, committer, blobs, damage, room, planted: options.planted })))
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

    /// Whether a disk error has stopped all writes of this node until it is restarted.
    pub fn writes_stopped(&self) -> bool {
        self.0.committer.writes_stopped() || self.0.store.has_failed()
    }

    /// Looks whether `reserve` bytes are free on the disk; with fewer there is no room from now on.
    pub async fn measure_room(&self, reserve: u64) {
        let (room, disk) = (Arc::clone(&self.0.room), self.0.env.disk());
        self.0.env.blocking(Pool::Background, move || room.measure(disk.as_ref(), reserve)).await;
    }

    /// Whether there is room for more; without it, what adds data is to be refused with [`StorageError::NoRoom`].
    pub fn has_room(&self) -> bool {
        self.0.room.is_left()
    }

    /// Bugs for the simulator to find.
    pub fn planted(&self) -> Planted {
        self.0.planted
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
    check_format(disk.as_ref(), dir)?;
    // Uploads that a crash cut off.
    disk.remove_dir_all(&path(dir, &["blobs", "tmp"]))?;
    let store: Arc<dyn Store> = match options.engine {
        Engine::Memory => Arc::new(LockedStore { store: MemoryStore::new(), _lock: lock }),
        Engine::Redb => {
            let journal = dir.join("journal");
            disk.create_dir_all(&dir.join("store"))?;
            disk.create_dir_all(&journal)?;
            disk.sync_dir(dir)?;
            let file = path(dir, &["store", "0.redb"]);
            let store = RedbStore::open(disk.as_ref(), &file, options.cache_bytes, options.planted)?;
            let engine = Arc::new(LockedStore { store, _lock: lock });
            let layered = Arc::new(LayeredStore::open(env, &journal, engine, options.flush_at_bytes, options.planted)?);
            layered.start_flushing(env);
            layered
        }
    };
    Ok(store)
}

/// Makes the way to `dir` durable: else a power loss could take a new data directory with all that was acknowledged.
fn sync_names_above(disk: &dyn Disk, dir: &Path) -> io::Result<()> {
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
            Some(format) if format <= FORMAT => kept = Some(format),
            Some(format) => return Err(OpenError::TooNew(format)),
            None => return Err(StorageError::Corrupt(format!("{} has no format number", name.display())).into()),
        }
    }
    if kept == Some(FORMAT) {
        return Ok(());
    }
    let temporary = dir.join("format.new");
    let file = disk.open(&temporary, OpenMode::Create)?;
    file.set_len(0)?;
    file.write_at(0, format!("{FORMAT_KEY}{FORMAT}\n").as_bytes())?;
    file.sync()?;
    disk.rename(&temporary, &name)?;
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

    #[tokio::test]
    async fn a_lock_that_cannot_be_made_is_not_another_process() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("lock")).unwrap();
        let opened = Storage::open(env(), dir.path(), StorageOptions::default()).await;
        assert!(matches!(opened, Err(OpenError::Storage(_))), "{opened:?}");
    }

    #[test]
    fn the_format_line_is_read_strictly() {
        assert_eq!(read_format(b"settee-format: 1\n"), Some(1));
        assert_eq!(read_format(b"settee-format: x\n"), None);
        assert_eq!(read_format(b""), None);
    }
}
