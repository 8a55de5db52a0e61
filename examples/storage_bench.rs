//! Measures settee's storage beside plain redb and sled: rates, latency of a commit, bytes and syncs per document; and
//! what readers feel while the disk of one shard stands still.
//!
//! Run by `scripts/bench storage`. A document is three rows, as a shard keeps it: 300 bytes of body under its number,
//! 60 under its id, 60 under its sequence; ids are spread. `batch N`: one writer that commits N documents at a time.
//! `S stores`: 64 writers that commit one document at a time to S stores: shards for settee, whose committer groups
//! them, files for redb, trees for sled, whose flush does not even reach the drive. Every other commit is durable when
//! it returns. Bytes are those of /proc/self/io; what still waits in a memtable or in the page cache at the end is not in
//! them, so that runs must be long enough for flushes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use redb::TableDefinition;
use settee::storage::{Storage, StorageOptions};
use settee::world::with_disk::with_disk;
use settee::world::{Disk, Entry, File, OpenMode, tokio_host, waiting};

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
    watch: Arc<Watch>,
}

impl Settee {
    fn open(dir: &Path) -> Settee {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        let watch = Arc::new(Watch::default());
        let env = tokio_host::env(runtime.handle().clone());
        let env = with_disk(&env, Arc::new(WatchedDisk { below: env.disk(), watch: Arc::clone(&watch) }));
        let storage = runtime.block_on(Storage::open(env, dir, StorageOptions::default())).expect("a data directory");
        Settee { runtime, storage, watch }
    }

    /// Reads the body of document `n` of a store, as a GET does.
    fn read(&self, store: u64, n: u64) {
        let (key, _) = rows(store, n).swap_remove(0);
        let storage = self.storage.clone();
        let read =
            self.runtime.spawn(async move { storage.read_inline(100 + store, move |view| view.get(&key)).await });
        let found = self.runtime.block_on(read).expect("a task").expect("a read");
        assert!(found.is_some(), "document {n} of store {store}");
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
        Some(self.watch.syncs.load(Ordering::Relaxed))
    }
}

#[cfg(feature = "sled")]
struct Sled(sled::Db, Vec<sled::Tree>);

#[cfg(feature = "sled")]
impl Sled {
    fn open(dir: &Path, stores: u64) -> Sled {
        let db = sled::Config::new().path(dir).cache_capacity(64 << 20).flush_every_ms(None).open().expect("sled");
        let trees = (0..stores).map(|n| db.open_tree(n.to_be_bytes()).expect("a tree")).collect();
        Sled(db, trees)
    }
}

#[cfg(feature = "sled")]
impl Target for Sled {
    fn commit(&self, store: u64, from: u64, count: u64) {
        let mut batch = sled::Batch::default();
        for (key, value) in (from..from + count).flat_map(|n| rows(store, n)) {
            batch.insert(key, value);
        }
        self.1[store as usize].apply_batch(batch).expect("a batch");
        self.0.flush().expect("a flush");
    }

    fn syncs(&self) -> Option<u64> {
        None
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
        #[cfg(feature = "sled")]
        {
            let dir = fresh("sled");
            measure(&format!("sled, {name}"), &Sled::open(&dir, shape.1), shape, args.seconds);
            let _ = std::fs::remove_dir_all(dir);
        }
    }
    let dir = parent.join(format!("settee-bench-stall-{}", std::process::id()));
    stall(&dir);
    let _ = std::fs::remove_dir_all(dir);
}

/// Documents of each of two stores: enough for a file of their own.
const STALL_DOCUMENTS: u64 = 90_000;
/// Documents that are read again and again, so that they are cached.
const STALL_CACHED: u64 = 500;
const STALL: Duration = Duration::from_secs(5);

/// What readers feel while every disk operation on the file of one shard stands still, as writers fill it and others read
/// what of it is in no cache.
fn stall(dir: &Path) {
    let settee = Settee::open(dir);
    for from in (0..STALL_DOCUMENTS).step_by(100) {
        settee.commit(0, from, 100);
        settee.commit(8, from, 100);
    }
    let reads = |name: &str, store: u64, of: u64, time: Duration| {
        let (until, mut times) = (Instant::now() + time, Vec::new());
        for n in (0..).map(|n: u64| n.wrapping_mul(7919) % of).take_while(|_| Instant::now() < until) {
            let start = Instant::now();
            settee.read(store, n);
            times.push(start.elapsed());
        }
        times.sort_unstable();
        let ms = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        println!("| {name} | {} | {:.3} | {:.3} | {:.1} |", times.len(), ms(0.5), ms(0.99), ms(1.0));
    };
    println!("\n| reads, one after the other | how many | p50 ms | p99 ms | longest ms |\n|---|---|---|---|---|");
    let files = ["cached, of the shard that will stall", "any, of another shard"];
    let shapes = [(files[0], 0, STALL_CACHED), (files[1], 8, STALL_DOCUMENTS)];
    shapes.iter().for_each(|(name, store, of)| reads(&format!("in peace: {name}"), *store, *of, STALL));
    let own = format!("s{:016x}.redb", 100);
    assert!(dir.join("store").join(&own).exists(), "the shard has outgrown its common file");
    std::thread::scope(|scope| {
        settee.watch.stall(Some(own));
        let (settee, reads) = (&settee, &reads);
        scope.spawn(|| (0..300).for_each(|n| settee.commit(0, STALL_DOCUMENTS + n * 100, 100)));
        (0..4).for_each(|n| drop(scope.spawn(move || settee.read(0, STALL_DOCUMENTS / 2 + n * 997))));
        for (name, store, of) in shapes {
            scope.spawn(move || reads(&format!("while its disk stalls: {name}"), store, of, STALL));
        }
        std::thread::sleep(STALL);
        settee.watch.stall(None);
    });
}

/// What goes to the disk: how many syncs, and a file on which everything waits.
#[derive(Debug, Default)]
struct Watch {
    syncs: AtomicU64,
    stalled: Mutex<Option<String>>,
    released: Condvar,
}

impl Watch {
    fn stall(&self, name: Option<String>) {
        *self.stalled.lock().expect("no panic") = name;
        self.released.notify_all();
    }

    fn pass(&self, name: &str) {
        let is_stalled = |stalled: &mut Option<String>| stalled.as_deref() == Some(name);
        let mut stalled = self.stalled.lock().expect("no panic");
        if is_stalled(&mut stalled) {
            waiting(|| drop(self.released.wait_while(stalled, is_stalled).expect("no panic")));
        }
    }
}

struct WatchedDisk {
    below: Arc<dyn Disk>,
    watch: Arc<Watch>,
}

impl Disk for WatchedDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Arc::new(WatchedFile { below: self.below.open(path, mode)?, name, watch: Arc::clone(&self.watch) }))
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
        self.watch.syncs.fetch_add(1, Ordering::Relaxed);
        self.below.sync_dir(path)
    }
    fn lock(&self, path: &Path) -> io::Result<Box<dyn Send + Sync>> {
        self.below.lock(path)
    }
}

#[derive(Debug)]
struct WatchedFile {
    below: Arc<dyn File>,
    name: String,
    watch: Arc<Watch>,
}

impl File for WatchedFile {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.watch.pass(&self.name);
        self.below.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.watch.pass(&self.name);
        self.below.write_at(offset, data)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }
    fn sync(&self) -> io::Result<()> {
        self.watch.syncs.fetch_add(1, Ordering::Relaxed);
        self.watch.pass(&self.name);
        self.below.sync()
    }
}
