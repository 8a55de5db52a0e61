//! Shards of very different load over one journal and few store files, on the simulated disk: what each was promised
//! survives, in whatever order memtables are frozen and flushed, shards move into files of their own or are dropped,
//! files are made smaller, and segments of the journal are given up. Limits are tiny, so that all of this goes on all
//! the time (F9 to F14, F19, F23; I1, I26, I27). Where stored bytes become wrong an error is a right answer, wrong data
//! is not.
#![cfg(feature = "sim")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee::storage::planted::{Bug, Planted};
use settee::storage::{Direction, KeyRange, Storage, StorageError, StorageOptions, View};
use settee::world::{Env, buggify};
use settee_sim::world::{Dice, DiskFaults, Run, SimNode, SimWorld, run_seed};

/// Shards, and the longest pause of their writers in milliseconds: from one that is never idle to one that nearly is.
/// The first two are neighbours in one common file.
const SHARDS: [(u64, u64); 5] = [(16, 1), (17, 8), (24, 30), (33, 120), (300, 400)];
/// Takes part in the groups of all the others.
const MIRROR: u64 = 8;
/// Shards that are filled and dropped, each once.
const GOING: u64 = 4000;
const ROUNDS: u64 = 8;
const COMMITS: u64 = 40;
const ROWS: u64 = 3;
/// Simulated time in which a healthy disk must have taken all commits: a writer that waits for room is let go on.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the writer of a shard knows.
#[derive(Default)]
struct Known {
    attempted: AtomicU64,
    acknowledged: AtomicU64,
}

#[derive(Default)]
struct Model {
    shards: [Known; SHARDS.len()],
    /// How many shards were begun to be filled; their numbers are never used again.
    begun: AtomicU64,
    /// Those that are certainly gone.
    gone: Mutex<Vec<u64>>,
    /// Whether a store file is being made smaller.
    shrinking: AtomicBool,
}

#[derive(Clone)]
struct Scenario {
    options: StorageOptions,
    seed: u64,
    /// Stored bytes become wrong.
    damaged: bool,
}

impl Scenario {
    fn draw(dice: &mut Dice, seed: u64, planted: Planted) -> Scenario {
        let flush_at_bytes = [500, 2_000, 20_000][dice.below(3) as usize];
        let own_file_bytes = [flush_at_bytes as u64 / 2, 10_000, 1 << 30][dice.below(3) as usize];
        let (cache_bytes, common_files) = ([0, 64 << 10][dice.below(2) as usize], 1 + dice.below(2));
        let defaults = StorageOptions::default();
        let options = StorageOptions { flush_at_bytes, own_file_bytes, cache_bytes, common_files, planted, ..defaults };
        Scenario { options, seed, damaged: dice.below(5) == 0 }
    }
}

fn key(shard: u64, rest: &str) -> Vec<u8> {
    [shard.to_be_bytes().as_slice(), rest.as_bytes()].concat()
}

fn number(view: &dyn View, key: &[u8]) -> Result<u64, StorageError> {
    Ok(view.get(key)?.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default())))
}

fn size(number: u64, index: u64) -> usize {
    ((number * 37 + index * 101) % 400) as usize
}

/// Commit `number` to a shard: its head, some rows, every tenth row before removed, and the head in the mirror.
async fn commit(storage: &Storage, shard: u64, number: u64) -> bool {
    let done = storage.committer().submit_to(Some(shard), move |view| {
        view.put(key(shard, "head"), number.to_be_bytes().to_vec());
        view.put(key(MIRROR, &format!("{shard}")), number.to_be_bytes().to_vec());
        for index in 0..ROWS {
            view.put(key(shard, &format!("row {number:08} {index}")), vec![number as u8; size(number, index)]);
        }
        if number.is_multiple_of(10) {
            (0..ROWS).for_each(|index| view.delete(key(shard, &format!("row {:08} {index}", number - 5))));
        }
        Ok::<_, StorageError>(Ok::<_, ()>(()))
    });
    done.await == Ok(Ok(()))
}

/// The head of a shard; complains about anything but whole commits up to it.
async fn head(storage: &Storage, shard: u64) -> Result<Result<u64, String>, StorageError> {
    let read = move |view: &dyn View| {
        let head = number(view, &key(shard, "head"))?;
        let mut rows = Vec::new();
        view.scan(&KeyRange::prefix(&key(shard, "row ")), Direction::Forward, &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        })?;
        Ok((head, rows))
    };
    let (head, rows) = storage.read(read).await?;
    let stays = |number: &u64| !(number % 10 == 5 && number + 5 <= head);
    let row =
        |number: u64, index| (key(shard, &format!("row {number:08} {index}")), vec![number as u8; size(number, index)]);
    let expected: Vec<_> =
        (1..=head).filter(stays).flat_map(|number| (0..ROWS).map(move |index| row(number, index))).collect();
    if rows == expected {
        return Ok(Ok(head));
    }
    Ok(Err(format!("shard {shard}: {} rows and not {} for head {head}", rows.len(), expected.len())))
}

/// Checks all shards of a store that nobody writes to. Inner errors are breaches.
async fn oracle(storage: &Storage, model: &Model) -> Result<Result<(), String>, StorageError> {
    for ((shard, _), known) in SHARDS.into_iter().zip(&model.shards) {
        let head = match head(storage, shard).await? {
            Ok(head) => head,
            Err(breach) => return Ok(Err(breach)),
        };
        let (least, most) = (known.acknowledged.load(Relaxed), known.attempted.load(Relaxed));
        if head < least || head > most {
            return Ok(Err(format!("shard {shard}: head {head}, acknowledged {least}, attempted {most}")));
        }
        let mirror = storage.read(move |view| number(view, &key(MIRROR, &format!("{shard}")))).await?;
        if mirror != head {
            return Ok(Err(format!("shard {shard}: half of a group: head {head}, in the mirror {mirror}")));
        }
        // What was found is committed, whether it was acknowledged or not.
        known.acknowledged.store(head, Relaxed);
    }
    let gone = model.gone.lock().unwrap().clone();
    for shard in gone {
        let range = KeyRange::prefix(&shard.to_be_bytes());
        if storage.read(move |view| view.first(&range, Direction::Forward)).await?.is_some() {
            return Ok(Err(format!("shard {shard} was dropped and is back")));
        }
    }
    Ok(Ok(()))
}

/// Writes one shard until its commits are done or one fails; a breach that a reader saw on the way.
async fn write(storage: Storage, which: usize, model: Arc<Model>, mut dice: Dice) -> Result<(), String> {
    let ((shard, pause_ms), known) = (SHARDS[which], &model.shards[which]);
    let from = known.acknowledged.load(Relaxed);
    for number in from + 1..=from + COMMITS {
        known.attempted.store(number, Relaxed);
        if !commit(&storage, shard, number).await {
            return Ok(());
        }
        known.acknowledged.store(number, Relaxed);
        if dice.chance(0.3) {
            match head(&storage, shard).await {
                Ok(Ok(seen)) if seen != number => return Err(format!("shard {shard}: read {seen} behind {number}")),
                Ok(seen) => drop(seen?),
                Err(_) => return Ok(()),
            }
        }
        storage.env().sleep(Duration::from_millis(dice.below(pause_ms + 1))).await;
    }
    Ok(())
}

/// Fills shards and drops them, one after the other.
async fn fill_and_drop(storage: Storage, model: Arc<Model>, mut dice: Dice) -> Result<(), String> {
    for _ in 0..8 {
        // In all common files, one after the other.
        let shard = GOING + 8 * model.begun.fetch_add(1, Relaxed);
        for number in 1..=dice.below(12) {
            if !commit(&storage, shard, number).await {
                return Ok(());
            }
        }
        let clear = storage.committer().submit(move |view| {
            view.clear_shard(shard);
            Ok::<_, StorageError>(Ok::<_, ()>(()))
        });
        if clear.await != Ok(Ok(())) {
            return Ok(());
        }
        model.gone.lock().unwrap().push(shard);
        storage.env().sleep(Duration::from_millis(dice.below(60))).await;
    }
    Ok(())
}

/// Makes store files smaller while others write.
async fn shrink(storage: Storage, model: Arc<Model>, mut dice: Dice) -> Result<(), String> {
    for _ in 0..20 {
        storage.env().sleep(Duration::from_millis(dice.below(200))).await;
        let (shard, _) = SHARDS[dice.below(SHARDS.len() as u64) as usize];
        model.shrinking.store(true, Relaxed);
        let done = storage.shrink(shard).await;
        model.shrinking.store(false, Relaxed);
        if done.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// One life: open, check, write until all is done or something fails. `healthy`: nothing may fail.
async fn live(env: Env, scenario: Scenario, model: Arc<Model>, healthy: bool) -> Result<(), String> {
    let opened = Storage::open(env.clone(), Path::new("/data"), scenario.options).await;
    let storage = match opened {
        Ok(storage) => storage,
        // Errors of the disk are no breach; the next life tries again.
        Err(error) if healthy => return Err(format!("a healthy disk does not open: {error}")),
        Err(_) => return Ok(()),
    };
    match oracle(&storage, &model).await {
        Ok(report) => report?,
        Err(error) if healthy => return Err(format!("a healthy disk cannot be read: {error}")),
        Err(_) => return Ok(()),
    }
    let dice = |label: String| Dice::new(scenario.seed ^ env.random_u64(), &label);
    let (told, mut done) = tokio::sync::mpsc::channel(SHARDS.len() + 2);
    for which in 0..SHARDS.len() {
        let (told, writer) = (told.clone(), write(storage.clone(), which, model.clone(), dice(format!("{which}"))));
        env.spawn(async move { drop(told.send(writer.await).await) });
    }
    let (tell, shrinker) = (told.clone(), shrink(storage.clone(), model.clone(), dice("shrink".to_owned())));
    env.spawn(async move { drop(tell.send(shrinker.await).await) });
    let dropper = fill_and_drop(storage.clone(), model.clone(), dice("drop".to_owned()));
    env.spawn(async move { drop(told.send(dropper.await).await) });
    while let Some(written) = done.recv().await {
        written?;
    }
    match oracle(&storage, &model).await {
        Ok(report) => report,
        Err(_) => Ok(()),
    }
}

/// What goes wrong in one life, and its name.
fn misfortune(node: &SimNode, dice: &mut Dice) -> (&'static str, DiskFaults) {
    let usual = DiskFaults::default();
    match dice.below(7) {
        0 | 1 => {
            node.disk().set_fuse(Some(1 + dice.below(400)));
            ("F10 cut at an operation", usual)
        }
        6 => {
            // Within a sync of the journal: its last frame is half written.
            node.disk().set_sync_fuse("/data/journal", 1 + dice.below(60));
            ("F10 torn journal", usual)
        }
        2 => ("F14 limping store", DiskFaults { slow_paths: vec![(PathBuf::from("/data/store"), 200)], ..usual }),
        3 => ("F11 disk errors", DiskFaults { read_error: 0.0005, write_error: 0.001, sync_error: 0.003, ..usual }),
        4 => {
            let used: u64 = node.disk().files().iter().map(|(_, bytes)| bytes).sum();
            ("F13 disk full", DiskFaults { capacity: Some(used + dice.below(400_000)), ..usual })
        }
        _ => ("F10 power loss", usual),
    }
}

/// What becomes of stored bytes in one life, and its name.
fn damage(node: &SimNode, dice: &mut Dice) -> (&'static str, DiskFaults) {
    let usual = DiskFaults::default();
    match dice.below(3) {
        0 => ("F12 lost writes", DiskFaults { lost_write: 0.02, ..usual }),
        1 => ("F12 misdirected writes", DiskFaults { misdirected_write: 0.02, ..usual }),
        _ => {
            let files = node.disk().files();
            let files: Vec<_> =
                files.iter().filter(|(path, len)| path.starts_with("/data/store") && *len > 0).collect();
            if let Some((path, _)) = files.get(dice.below(files.len().max(1) as u64) as usize) {
                // It was listed just now, and nothing ran in between.
                let _ = node.disk().rot(path);
            }
            ("F12 bit rot", usual)
        }
    }
}

async fn torture(world: SimWorld, planted: Planted) -> Result<u64, String> {
    buggify::enter(world.seed(), true, None);
    let done = torment(&world, planted).await;
    let met = buggify::leave();
    met.points.keys().for_each(|point| world.count(point));
    done
}

async fn torment(world: &SimWorld, planted: Planted) -> Result<u64, String> {
    let node: SimNode = world.node("store", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let mut dice = world.dice("shards");
    let scenario = Scenario::draw(&mut dice, world.seed(), planted);
    if scenario.options.cache_bytes == 0 || scenario.options.flush_at_bytes < 1_000 {
        world.count("F19 tiny limits");
    }
    let model = Arc::new(Model::default());
    let begin = |healthy| {
        let (report, mut outcome) = tokio::sync::mpsc::channel(1);
        let life = node.spawn(live(node.env(), scenario.clone(), model.clone(), healthy));
        madsim::task::spawn(async move { drop(report.send(life.await).await) });
        move || outcome.try_recv().ok()
    };
    for _ in 0..ROUNDS {
        let (name, faults) = match scenario.damaged && dice.chance(0.5) {
            true => damage(&node, &mut dice),
            false => misfortune(&node, &mut dice),
        };
        world.count(name);
        node.disk().set_faults(faults);
        let mut outcome = begin(false);
        world.sleep(Duration::from_millis(dice.below(3_000))).await;
        if let Some(Some(report)) = outcome() {
            report?;
        }
        if node.is_up() {
            if dice.chance(0.7) { node.power_off() } else { node.kill() }
        }
        world.sleep(Duration::from_millis(5)).await;
        if model.shrinking.swap(false, Relaxed) {
            world.count("F23 cut while a file was made smaller");
        }
        node.disk().set_fuse(None);
        node.disk().set_faults(DiskFaults::default());
        node.start();
    }
    let mut outcome = begin(!scenario.damaged);
    let until = world.now() + PATIENCE;
    loop {
        match outcome() {
            Some(report) => break report.unwrap_or(Ok(()))?,
            None if world.now() > until => return Err("a writer waits for ever".to_owned()),
            None => world.sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(model.shards.iter().map(|known| known.acknowledged.load(Relaxed)).sum())
}

fn run(seed: u64, planted: Planted) -> Run<Result<u64, String>> {
    run_seed(seed, move |world| torture(world, planted))
}

/// What must be met within the seeds of an ordinary run.
const MET: [&str; 11] = [
    "F10 cut at an operation",
    "F10 power loss",
    "F10 torn journal",
    "F11 disk errors",
    "F12 bit rot",
    "F12 lost writes",
    "F12 misdirected writes",
    "F13 disk full",
    "F14 limping store",
    "F19 tiny limits",
    "F23 cut while a file was made smaller",
];

/// Seeds of an ordinary run.
const SEEDS: u64 = 20;
/// Within so many seeds each planted bug is to be caught.
const SEEDS_OF_A_BUG: u64 = 100;

/// `SETTEE_SIM_SEEDS=N` runs so many, `SETTEE_SIM_SEED=S` that one alone; with both it is N from S on.
fn seeds() -> std::ops::Range<u64> {
    let asked = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (asked("SETTEE_SIM_SEED"), asked("SETTEE_SIM_SEEDS"));
    let from = first.unwrap_or(0);
    from..from + count.unwrap_or(if first.is_some() { 1 } else { SEEDS })
}

#[test]
fn uneven_and_idle_shards_keep_what_was_acknowledged() {
    let (mut commits, mut counters) = (0, BTreeMap::new());
    for seed in seeds() {
        let run = run(seed, Planted::none());
        // An engine may panic over bytes that became wrong.
        let damaged = run.counters.keys().any(|name| name.starts_with("F12"));
        assert!(damaged || run.panics == 0, "seed {seed}: {} panics were caught", run.panics);
        commits += run.value.unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        run.counters.iter().for_each(|(name, n)| *counters.entry(*name).or_insert(0) += n);
    }
    println!("{commits} commits");
    counters.iter().for_each(|(name, n)| println!("  {name}: {n}"));
    let met = |name: &str| counters.get(name).copied().unwrap_or(0);
    if seeds().count() as u64 >= SEEDS {
        assert!(commits > 1000 && met("disk.fuse") > 10 && met("disk.torn_writes") > 10, "{counters:?}");
        assert_eq!(MET.into_iter().find(|name| met(name) == 0), None, "never met");
    }
}

#[test]
fn the_planted_bugs_of_the_storage_are_caught() {
    // redb may also panic over what it finds.
    let caught = |bug, seed| {
        let run = move || run(seed, Planted::none().with(bug)).value;
        std::panic::catch_unwind(run).map_or(true, |report| report.is_err())
    };
    let bugs = [
        Bug::SkipFsync,
        Bug::CheckpointFirst,
        Bug::DropSegmentEarly,
        Bug::AcceptTornTail,
        Bug::HalfBatch,
        Bug::TrustStaleBlock,
    ];
    for bug in bugs {
        let first = (0..SEEDS_OF_A_BUG).find(|seed| caught(bug, *seed));
        println!("{bug:?}: caught with {first:?}");
        assert!(first.is_some(), "{bug:?} is not caught in {SEEDS_OF_A_BUG} seeds");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let hash = |seed| run(seed, Planted::none()).trace_hash;
    assert_eq!(hash(3), hash(3));
}
