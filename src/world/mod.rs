//! The seam to everything outside the program: clock, randomness, network, disk, tasks.
//!
//! All other code of the crate reaches the outside through an [`Env`]. Two hosts implement it: [`tokio_host`] for
//! production and the simulated host of the `settee-sim` crate. Both live in one test binary, hence dyn traits.
//!
//! Rules for callers: async code touches memory only; whatever may block (disk, password hashing, compression of large
//! data) is a bounded step given to [`Env::blocking`] with the pool class it belongs to, or to [`Env::inline`] where it
//! finds in memory what it needs as a rule. `select!` must be `biased`.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::try_join;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use crate::limits;
use crate::observe::metrics::Metrics;
use crate::observe::workers::Worker as BackgroundWorker;
use sync::{Mutex, MutexGuard};

pub mod buggify;
pub mod cost;
#[cfg(test)]
pub(crate) mod forgetful;
#[cfg(test)]
pub(crate) mod fuzz;
pub mod memory;
#[cfg(test)]
pub(crate) mod model;
pub mod scratch;
pub mod sync;
pub mod task;
pub mod tokio_host;
pub mod with_disk;

/// A boxed future that a host returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A bidirectional byte stream: a TCP connection, real or simulated.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// A boxed [`Stream`].
pub type BoxStream = Box<dyn Stream>;

/// A listening socket.
pub trait Listener: Send + 'static {
    /// Waits for the next connection; yields the stream and the peer's address.
    fn accept(&mut self) -> BoxFuture<'_, io::Result<(BoxStream, SocketAddr)>>;
    /// The address that it listens on, with the real port when 0 was asked for.
    fn local_addr(&self) -> io::Result<SocketAddr>;
}

/// A connection, or why there is none, with the place that it holds among those allowed at once.
pub type Arrival = (OwnedSemaphorePermit, io::Result<(BoxStream, SocketAddr)>);

/// Waits for a free place and a connection that takes it; `None` once `stopping` says so.
pub async fn next_connection(
    listener: &mut dyn Listener,
    places: &Arc<Semaphore>,
    stopping: &mut watch::Receiver<bool>,
) -> Option<Arrival> {
    let next = async {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        Some((place, listener.accept().await))
    };
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop) => None,
        arrival = next => arrival,
    }
}

/// Which threads run a blocking job, so that one stalled disk cannot hold all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pool {
    /// Commits and syncs.
    Journal,
    /// Reads that a client waits for, password checks.
    Foreground,
    /// Compaction, flushes, clean-up.
    Background,
    /// Builds of views: its threads yield the processor to all others. A lock that others wait for is to be held for a
    /// moment only there.
    Build,
}

/// A point on the node's monotonic clock, counted from an arbitrary origin of the host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub Duration);

impl Instant {
    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Ends a spawned task. Dropping the handle leaves the task running.
pub trait Abort: Send + Sync {
    /// Stops the task at its next await point.
    fn abort(&self);
}

/// Tells the waiting task that a blocking job is done and with what.
pub type Report = Box<dyn FnOnce() + Send>;

/// A blocking job. It yields its report instead of sending it, so that the simulator can let time pass (or the node
/// die) between an effect and the news of it.
pub type Job = Box<dyn FnOnce() -> Report + Send>;

/// A place of its own for work that takes long and keeps to itself, such as a script runtime. Dropping it lets queued
/// jobs finish.
pub trait Worker: Send + Sync + 'static {
    /// Queues a job. Jobs run one at a time, in the order given, each to its end.
    fn submit(&self, job: Job);
}

/// Asked again and again by work that cannot wait: true once its time is over.
pub type Budget = Box<dyn FnMut() -> bool + Send>;

/// A program that is spoken to in lines. Its calls block.
pub trait Process: Send + 'static {
    /// Sends a line; its end is added.
    fn send(&mut self, line: &[u8]) -> io::Result<()>;
    /// The next line that it writes, without its end; `TimedOut` after `limit`.
    fn receive(&mut self, limit: Duration) -> io::Result<Vec<u8>>;
}

/// What a host must give. Implemented twice: tokio and the simulator.
pub trait Host: Send + Sync + 'static {
    /// Opens a connection. May hang as long as a real one would: callers bring a timeout.
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>>;
    /// The addresses of a host name, best first. An address as text, brackets left out, is its own; the default knows
    /// no names but `localhost`.
    fn resolve(&self, host: &str, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        let found = literal_address(host, port).ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "unknown host"));
        Box::pin(async move { found.map(|address| vec![address]) })
    }
    /// Starts to listen.
    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>>;
    /// Completes after `duration` of monotonic time. Dropping the future cancels the timer.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
    /// Lets tasks that are ready have their turn before the one that waits for this, as far as the host knows them.
    /// The default knows none.
    fn others_first(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
    /// The monotonic clock.
    fn monotonic(&self) -> Instant;
    /// The wall clock as time since the Unix epoch; it may jump and be wrong.
    fn wall(&self) -> Duration;
    /// Runs a task to its end, or until the node stops.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort>;
    /// Runs a blocking job on the threads of `pool`, then its report.
    fn run_blocking(&self, pool: Pool, job: Job);
    /// Runs a short job at once on the thread that asks, where that may hold up its other tasks for a moment, and else
    /// not at all: what may take long is to be done as [`waiting`]. The default, and so the simulator, runs none:
    /// the caller has to wait and other tasks run in between, which is the harder case.
    fn run_here(&self, _job: &mut dyn FnMut()) {}
    /// A worker with that much stack: a thread of that name in production, an inline actor in the simulator. One of
    /// [`Pool::Build`] yields the processor to all others.
    fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker>;
    /// Bounds work that cannot wait: by the clock in production, by the number of questions in the simulator.
    fn budget(&self, limit: Duration) -> Budget;
    /// Fills `buffer` with random bytes fit for secrets (seeded in the simulator).
    fn random(&self, buffer: &mut [u8]);
    /// Whether all randomness has to come from [`Host::random`], so that a run can be repeated.
    fn is_seeded(&self) -> bool {
        false
    }
    /// Starts a program of its own: the first word names it, the others are its arguments. Ended when it is dropped.
    /// Hosts without such programs refuse.
    fn process(&self, _command: &[String]) -> io::Result<Box<dyn Process>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The program that this process runs, to start more of it. Hosts without programs refuse.
    fn own_program(&self) -> io::Result<String> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// The disk.
    fn disk(&self) -> Arc<dyn Disk>;
    /// Processors of the machine.
    fn cores(&self) -> usize {
        2
    }
    /// What the process takes of the machine; zeros where nobody knows. Blocks.
    fn usage(&self) -> Usage {
        Usage::default()
    }
}

/// What a process takes of its machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now, in bytes.
    pub memory_bytes: u64,
    /// Most resident memory so far, in bytes.
    pub memory_peak_bytes: u64,
    /// Open files and sockets.
    pub open_files: u64,
    /// Threads.
    pub threads: u64,
    /// Switches of threads so far.
    pub context_switches: u64,
    /// Bytes read so far, from files and sockets.
    pub read_bytes: u64,
    /// Bytes written so far, to files and sockets.
    pub written_bytes: u64,
}

/// The address that a host text names without being looked up.
pub fn literal_address(host: &str, port: u16) -> Option<SocketAddr> {
    let ip =
        if host.eq_ignore_ascii_case("localhost") { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { host.parse().ok()? };
    Some(SocketAddr::new(ip, port))
}

/// How [`Disk::open`] treats a file that is missing or present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Must exist; read only.
    Read,
    /// Must exist; read and write.
    Write,
    /// Read and write; made if missing, content kept if present.
    Create,
    /// Read and write; must not exist.
    CreateNew,
}

/// What is known of a directory entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last path component.
    pub name: String,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Size in bytes (0 for directories).
    pub len: u64,
}

/// A directory for code that does not use the seam, see [`Disk::real_dir`].
pub struct RealDir {
    /// Where it is.
    pub path: PathBuf,
    /// What it lasts as long as.
    pub guard: Box<dyn Send + Sync>,
}

/// A file system. All calls block: make them inside [`Env::blocking`].
///
/// Durability is that of POSIX: file content survives power loss after [`File::sync`], a name (created, renamed or
/// removed) after [`Disk::sync_dir`] of its directory. Errors are the operating system's.
pub trait Disk: Send + Sync + 'static {
    /// Whether paths are those of the operating system, so that code that does not use this seam finds its files there.
    fn is_real(&self) -> bool {
        false
    }
    /// The directory `path` for code that does not use this seam and may change what is in it; `None` where there is no
    /// such thing.
    fn real_dir(&self, _path: &Path) -> io::Result<Option<RealDir>> {
        Ok(None)
    }
    /// Opens a file.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>>;
    /// Makes an empty file in place of any at `path`, with the access rights of `like` where that exists, else for its
    /// owner alone. For copies that take the place of their original.
    fn create_like(&self, path: &Path, _like: &Path) -> io::Result<Arc<dyn File>> {
        let file = self.open(path, OpenMode::Create)?;
        file.set_len(0)?;
        Ok(file)
    }
    /// The file that `path` stands for, with symbolic links followed; `path` itself when nothing is there.
    fn follow(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_path_buf())
    }
    /// Takes all access rights from others than the owner of a file or directory; answers whether they had any. A
    /// symbolic link, and a directory that all may write to, stay as they are.
    fn narrow(&self, _path: &Path) -> io::Result<bool> {
        Ok(false)
    }
    /// Makes a directory and its parents; fine if it is there.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Renames a file over whatever is at `to`.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a directory with all that is in it; fine if it is missing.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;
    /// Lists a directory, sorted by name.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Whether something is at `path`.
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Bytes that may still be written to the file system of `path`. The default is one that never fills up.
    fn free_bytes(&self, _path: &Path) -> io::Result<u64> {
        Ok(u64::MAX)
    }
    /// Makes the directory's entries durable.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Takes an exclusive lock on `path` (made if missing) that lasts as long as the returned guard, or as the process.
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>>;
}

/// The operating system's error that no more files can be open, with its text.
#[derive(Debug)]
struct NoFiles(String);

impl std::fmt::Display for NoFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NoFiles {}

/// Numbers of that error on Unix: no more files of the system, of the process (ENFILE, EMFILE).
const NO_FILES: [i32; 2] = [23, 24];

/// Whether a call failed because no more files can be open. Only calls that open something fail so (of those of
/// [`Disk`]: `open`, `list`, `sync_dir`, `lock` and what is made of them), and they have done nothing then: above all,
/// no sync was tried.
pub fn lacks_files(error: &io::Error) -> bool {
    cfg!(unix) && error.raw_os_error().is_some_and(|code| NO_FILES.contains(&code))
        || error.get_ref().is_some_and(|inner| inner.is::<NoFiles>())
}

/// An error of the operating system in other words, which [`lacks_files`] tells as before.
pub fn reworded(error: &io::Error, text: String) -> io::Error {
    match lacks_files(error) {
        true => io::Error::new(error.kind(), NoFiles(text)),
        false => io::Error::new(error.kind(), text),
    }
}

/// An open file. All calls block.
pub trait File: Send + Sync + std::fmt::Debug + 'static {
    /// Size in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether the file has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
    /// Fills `buffer` from `offset`; `UnexpectedEof` when the file ends before.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
    /// Writes all of `data` at `offset`, growing the file as needed.
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts or extends (with zeros) the file.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Makes content and size durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
}

/// The handle through which all code reaches its host. Cheap to clone.
#[derive(Clone)]
pub struct Env {
    host: Arc<dyn Host>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Env {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Env")
    }
}

/// A deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl Env {
    /// Wraps a host.
    pub fn new(host: Arc<dyn Host>) -> Self {
        Env { host, metrics: Arc::default() }
    }

    /// What the node counts of itself.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The host itself, for calls that need no typing.
    pub fn host(&self) -> &Arc<dyn Host> {
        &self.host
    }

    /// See [`Host::monotonic`].
    pub fn now(&self) -> Instant {
        self.host.monotonic()
    }

    /// See [`Host::wall`].
    pub fn wall(&self) -> Duration {
        self.host.wall()
    }

    /// See [`Host::disk`].
    pub fn disk(&self) -> Arc<dyn Disk> {
        self.host.disk()
    }

    /// See [`Host::sleep`].
    pub async fn sleep(&self, duration: Duration) {
        self.host.sleep(duration).await;
    }

    /// See [`Host::others_first`].
    pub async fn others_first(&self) {
        self.host.others_first().await;
    }

    /// Runs `future` for at most `limit`; the future is dropped when the time is over. No asynchronous function: that
    /// would have room for it twice, as what it was given and as what it waits for.
    pub fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
        // The first that ends fails both.
        let done = future.map(|out| Err::<Infallible, _>(Ok(out)));
        let over = self.host.sleep(limit).map(|()| Err::<Infallible, _>(Err(Elapsed)));
        try_join(done, over).map(|ended| match ended {
            Err(ended) => ended,
            Ok((never, _)) => match never {},
        })
    }

    /// Starts a task that nobody waits for.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Box<dyn Abort> {
        self.host.spawn(Box::pin(task))
    }

    /// Starts a background worker: a task that runs as long as the node does, with an entry in the registry of workers.
    /// `waits_for` says in a few words which event or pause a run of it waits for. A panic ends a run, which counts as
    /// failed; the task is then made anew after a pause: a node without one of its workers would go wrong in silence.
    pub fn spawn_worker<F>(
        &self,
        name: &'static str,
        waits_for: &'static str,
        task: impl Fn(Arc<BackgroundWorker>) -> F + Send + 'static,
    ) -> Box<dyn Abort>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (env, worker) = (self.clone(), self.metrics.workers().enter(name, waits_for));
        self.spawn(async move {
            while AssertUnwindSafe(task(Arc::clone(&worker))).catch_unwind().await.is_err() {
                worker.failed(&"it panicked, and was started again");
                env.sleep(limits::WORKER_RESTART_PAUSE).await;
            }
        })
    }

    /// Starts a task and returns its result later; `None` when it was aborted or panicked.
    pub fn spawn_with<T, F>(&self, task: F) -> impl Future<Output = Option<T>> + Send + 'static + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (tx, rx) = oneshot::channel();
        self.host.spawn(Box::pin(async move {
            let _ = tx.send(task.await);
        }));
        async move { rx.await.ok() }
    }

    /// Runs a blocking job to its end, also when the returned future is dropped.
    ///
    /// # Panics
    /// When the job panicked: a bug of ours that must not be taken for an answer.
    pub async fn blocking<T: Send + 'static>(&self, pool: Pool, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (tx, rx) = oneshot::channel();
        let job: Job = Box::new(move || {
            let value = job();
            Box::new(move || {
                let _ = tx.send(value);
            })
        });
        let begun = self.now();
        self.host.run_blocking(pool, job);
        let outcome = rx.await;
        cost::step(self.now().since(begun));
        match outcome {
            Ok(value) => value,
            Err(_) => panic!("a blocking job panicked or its node stopped"),
        }
    }

    /// As [`Env::blocking`] in the foreground, for a job that most often takes less than to hand it to another thread;
    /// what of it may take long is done as [`waiting`].
    pub async fn inline<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        match self.here(job) {
            Ok(done) => done,
            Err(job) => self.blocking(Pool::Foreground, job).await,
        }
    }

    /// Runs a job by [`Host::run_here`]; gives it back where that runs none.
    pub fn here<T, J: FnOnce() -> T>(&self, job: J) -> Result<T, J> {
        let (mut job, mut done) = (Some(job), None);
        self.host.run_here(&mut || done = job.take().map(|job| job()));
        // Invariant: only who runs the job takes it.
        done.ok_or_else(|| job.expect("a job that did not run"))
    }

    /// See [`Host::worker`].
    pub fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
        self.host.worker(pool, name, stack_bytes)
    }

    /// See [`Host::budget`].
    pub fn budget(&self, limit: Duration) -> Budget {
        self.host.budget(limit)
    }

    /// Runs a job on a worker to its end, also when the returned future is dropped; `None` when it panicked.
    pub async fn run_on<T: Send + 'static>(
        &self,
        worker: &dyn Worker,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (tx, rx) = oneshot::channel();
        worker.submit(Box::new(move || {
            let value = job();
            Box::new(move || {
                let _ = tx.send(value);
            })
        }));
        rx.await.ok()
    }

    /// Random bytes.
    pub fn random_bytes<const N: usize>(&self) -> [u8; N] {
        let mut out = [0; N];
        self.host.random(&mut out);
        out
    }

    /// A random number.
    pub fn random_u64(&self) -> u64 {
        u64::from_le_bytes(self.random_bytes())
    }
}

/// Does what may take long: a job that runs in the midst of its thread's tasks ([`Host::run_here`]) has these go to
/// another thread first.
pub fn waiting<T>(work: impl FnOnce() -> T) -> T {
    tokio_host::inline::waiting(work)
}

/// Whether this thread is on its way out of a panic.
pub fn is_panicking() -> bool {
    std::thread::panicking()
}

/// The lock, [`waiting`] for it if somebody keeps it; one whose holder panicked as it was left.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    for _ in 0..limits::LOCK_TRIES {
        match mutex.try_lock() {
            Ok(locked) => return locked,
            Err(TryLockError::Poisoned(locked)) => return locked.into_inner(),
            Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
        }
    }
    waiting(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads a small file whole.
///
/// # Errors
/// The system's, and one for a file of more than `limit_bytes`.
pub fn read_whole(disk: &dyn Disk, path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let file = disk.open(path, OpenMode::Read)?;
    let len = file.len()?;
    if len > limit_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("larger than {limit_bytes} bytes")));
    }
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}

/// Joins `parts` to a path under `root`.
pub fn path(root: &Path, parts: &[&str]) -> PathBuf {
    let mut out = root.to_path_buf();
    out.extend(parts);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_limit_on_a_future_has_room_for_it_once() {
        let env = tokio_host::env(tokio::runtime::Handle::current());
        let large = async {
            let held = [1_u8; 4096];
            std::future::ready(()).await;
            held.iter().map(|one| usize::from(*one)).sum::<usize>()
        };
        let limited = env.timeout(Duration::from_secs(60), large);
        assert!(size_of_val(&limited) < 4096 + 512, "{} bytes", size_of_val(&limited));
        assert_eq!(limited.await.ok(), Some(4096));
        let never = env.timeout(Duration::from_millis(1), std::future::pending::<()>());
        assert!(never.await.is_err());
    }
}
