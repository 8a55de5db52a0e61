//! Measures settee's storage beside plain redb: rates, latency of a commit, bytes and syncs per document.
//!
//! Run by `scripts/bench storage`. A document is three rows, as a shard keeps it: 300 bytes of body under its number,
//! 60 under its id, 60 under its sequence; ids are spread. `batch N`: one writer that commits N documents at a time.
//! `S stores`: 64 writers that commit one document at a time to S stores: shards for settee, whose committer groups
//! them, files for redb. Every commit is durable when it returns. Bytes are those of /proc/self/io; what still waits in
//! a memtable or in the page cache at the end is not in them, so that runs must be long enough for flushes.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use redb::TableDefinition;
use settee::storage::{Storage, StorageOptions};
use settee::world::{
    Abort, BoxFuture, BoxStream, Budget, Disk, Entry, Env, File, Host, Job, Listener, OpenMode, Pool, Worker,
    tokio_host,
};

/// Measure the storage.
#[derive(Parser)]
struct Args {
    /// Folder whose file system is measured [default: the temporary one]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4)]
    seconds: u64,
}

const WRITERS: u64 = 64;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("0");

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

/// The rows of a document; `n` counts all documents, so that no two are the same.
fn rows(store: u64, n: u64) -> Rows {
    let key = |kind: u8, rest: &[u8]| [&(100 + store).to_be_bytes()[..], &[kind], rest].concat();
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let id = format!("{mixed:016x}{n:016x}");
    let value = |len: usize| (0..len).map(|at| (mixed >> (at % 8 * 8)) as u8 ^ at as u8).collect::<Vec<u8>>();
    vec![
        (key(b'b', &n.to_be_bytes()), value(300)),
        (key(b'd', id.as_bytes()), value(60)),
        (key(b's', &n.to_be_bytes()), value(60)),
    ]
}

/// A store with its way to commit.
trait Target: Sync {
    /// Commits documents `from..from + count` to a store.
    fn commit(&self, store: u64, from: u64, count: u64);
    /// Syncs so far.
    fn syncs(&self) -> Option<u64>;
}

struct Settee {
    runtime: tokio::runtime::Runtime,
    storage: Storage,
    syncs: Arc<AtomicU64>,
}

impl Settee {
    fn open(dir: &Path) -> Settee {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let syncs = Arc::new(AtomicU64::new(0));
        let env = counting(&tokio_host::env(runtime.handle().clone()), &syncs);
        let storage = runtime.block_on(Storage::open(env, dir, StorageOptions::default())).expect("a data directory");
        Settee { runtime, storage, syncs }
    }
}

impl Target for Settee {
    fn commit(&self, store: u64, from: u64, count: u64) {
        let all: Rows = (from..from + count).flat_map(|n| rows(store, n)).collect();
        let committer = self.storage.committer().clone();
        let done = self.runtime.block_on(committer.submit(move |view| {
            all.into_iter().for_each(|(key, value)| view.put(key, value));
            Ok(Ok::<(), ()>(()))
        }));
        done.expect("a commit").expect("no refusal");
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.syncs.load(Ordering::Relaxed))
    }
}

struct Redb(Vec<redb::Database>);

impl Redb {
    fn open(dir: &Path, stores: u64) -> Redb {
        let cache = (64 << 20) / stores as usize;
        let open = |n| redb::Builder::new().set_cache_size(cache).create(dir.join(format!("{n}.redb")));
        Redb((0..stores).map(|n| open(n).expect("a file of redb")).collect())
    }
}

impl Target for Redb {
    fn commit(&self, store: u64, from: u64, count: u64) {
        let transaction = self.0[store as usize].begin_write().expect("a transaction");
        {
            let mut table = transaction.open_table(TABLE).expect("a table");
            for (key, value) in (from..from + count).flat_map(|n| rows(store, n)) {
                table.insert(key.as_slice(), value.as_slice()).expect("an insert");
            }
        }
        transaction.commit().expect("a commit");
    }

    fn syncs(&self) -> Option<u64> {
        None
    }
}

/// Bytes that this process has had written to disks.
fn written() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// Runs writers for the time given and prints a line of the table.
fn measure(name: &str, target: &dyn Target, (writers, stores, batch): (u64, u64, u64), seconds: u64) {
    let next = AtomicU64::new(0);
    let (begun, before) = (Instant::now(), (written(), target.syncs()));
    let until = begun + Duration::from_secs(seconds);
    let write = |writer: u64| {
        let mut times = Vec::new();
        while Instant::now() < until {
            let from = next.fetch_add(batch, Ordering::Relaxed);
            let start = Instant::now();
            target.commit(writer % stores, from, batch);
            times.push(start.elapsed());
        }
        times
    };
    let mut times: Vec<Duration> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers).map(|writer| scope.spawn(move || write(writer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect()
    });
    let elapsed = begun.elapsed().as_secs_f64();
    times.sort_unstable();
    let documents = next.load(Ordering::Relaxed) as f64;
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let kb = (written() - before.0) as f64 / 1e3 / documents;
    let syncs = match (before.1, target.syncs()) {
        (Some(before), Some(after)) => format!("{:.3}", (after - before) as f64 / documents),
        _ => "-".to_owned(),
    };
    println!("| {name} | {:.0} | {:.2} | {:.2} | {kb:.2} | {syncs} |", documents / elapsed, at(0.5), at(0.99));
}

fn main() {
    let args = Args::parse();
    let parent = args.dir.unwrap_or_else(std::env::temp_dir);
    println!("| what | documents/s | p50 ms | p99 ms | KB written each | syncs each |\n|---|---|---|---|---|---|");
    let batches = [1, 10, 100, 1000].map(|batch| (format!("batch {batch}"), (1, 1, batch)));
    let spread = [1, 8, 200].map(|stores| (format!("{WRITERS} writers, {stores} stores"), (WRITERS, stores, 1)));
    for (name, shape) in batches.into_iter().chain(spread) {
        let fresh = |engine: &str| {
            let dir = parent.join(format!("settee-bench-{engine}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(&dir).expect("a folder");
            dir
        };
        let dir = fresh("settee");
        measure(&format!("settee, {name}"), &Settee::open(&dir), shape, args.seconds);
        let _ = std::fs::remove_dir_all(dir);
        let dir = fresh("redb");
        measure(&format!("redb, {name}"), &Redb::open(&dir, shape.1), shape, args.seconds);
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// The host of `env` with a disk that counts syncs.
fn counting(env: &Env, syncs: &Arc<AtomicU64>) -> Env {
    let disk = Arc::new(CountingDisk { below: env.disk(), syncs: Arc::clone(syncs) });
    Env::new(Arc::new(CountingHost { below: Arc::clone(env.host()), disk }))
}

struct CountingHost {
    below: Arc<dyn Host>,
    disk: Arc<CountingDisk>,
}

impl Host for CountingHost {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>> {
        self.below.connect(to)
    }
    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        self.below.listen(at)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.below.sleep(duration)
    }
    fn monotonic(&self) -> settee::world::Instant {
        self.below.monotonic()
    }
    fn wall(&self) -> Duration {
        self.below.wall()
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.below.spawn(task)
    }
    fn run_blocking(&self, pool: Pool, job: Job) {
        self.below.run_blocking(pool, job);
    }
    fn worker(&self, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
        self.below.worker(name, stack_bytes)
    }
    fn budget(&self, limit: Duration) -> Budget {
        self.below.budget(limit)
    }
    fn random(&self, buffer: &mut [u8]) {
        self.below.random(buffer);
    }
    fn disk(&self) -> Arc<dyn Disk> {
        Arc::clone(&self.disk) as Arc<dyn Disk>
    }
}

struct CountingDisk {
    below: Arc<dyn Disk>,
    syncs: Arc<AtomicU64>,
}

impl Disk for CountingDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(CountingFile { below: self.below.open(path, mode)?, syncs: Arc::clone(&self.syncs) }))
    }
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.below.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
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
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.below.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}

#[derive(Debug)]
struct CountingFile {
    below: Arc<dyn File>,
    syncs: Arc<AtomicU64>,
}

impl File for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.below.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        self.below.sync()
    }
}
