//! The storage layer over the simulated disk: what was acknowledged survives, commits are whole, whatever happens.
#![cfg(feature = "sim")]

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use settee::storage::{Direction, KeyRange, Storage, StorageError, StorageOptions};
use settee::world::Env;
use settee_sim::world::{DiskFaults, Run, SimNode, SimWorld, run_seed};

const ROUNDS: u64 = 8;
const COMMITS: u64 = 30;
const ROWS: u64 = 5;

/// What the clients of the store know.
#[derive(Default)]
struct Model {
    attempted: AtomicU64,
    acknowledged: AtomicU64,
}

fn options() -> StorageOptions {
    // Small memtables, so that flushes and changes of the journal file happen all the time.
    StorageOptions { cache_bytes: 1 << 20, flush_at_bytes: 20_000, ..StorageOptions::default() }
}

fn row(commit: u64, index: u64) -> Vec<u8> {
    format!("row {commit:08} {index}").into_bytes()
}

/// Commit number `number`: a head with the number and some rows of it, padded to be torn.
async fn commit(storage: &Storage, number: u64) -> bool {
    let done = storage.committer().submit(move |view| {
        view.put(b"head".to_vec(), number.to_be_bytes().to_vec());
        for index in 0..ROWS {
            view.put(row(number, index), vec![number as u8; 700]);
        }
        Ok::<_, StorageError>(Ok::<_, ()>(()))
    });
    done.await == Ok(Ok(()))
}

/// The number of the last commit in the store; complains about anything but whole commits up to it.
async fn oracle(storage: &Storage) -> Result<u64, String> {
    let found = storage.read(|view| {
        let head = view.get(b"head")?.map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap_or_default()));
        let mut rows = Vec::new();
        let mut bad = 0;
        view.scan(&KeyRange::prefix(b"row "), Direction::Forward, &mut |key, value| {
            rows.push(key.to_vec());
            bad += u64::from(value.len() != 700);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok((head, rows, bad))
    });
    let (head, rows, bad) = found.await.map_err(|error| error.to_string())?;
    let expected: Vec<_> = (1..=head).flat_map(|number| (0..ROWS).map(move |index| row(number, index))).collect();
    if rows == expected && bad == 0 { Ok(head) } else { Err(format!("{} rows for head {head}, {bad} bad", rows.len())) }
}

/// One life: open, check, write until the commits are done or the power goes.
async fn live(env: Env, model: Arc<Model>) -> Result<(), String> {
    let Ok(storage) = Storage::open(env.clone(), Path::new("/data/node"), options()).await else {
        // Errors of the disk are no breach; the next life tries again.
        return Ok(());
    };
    let head = match oracle(&storage).await {
        Ok(head) => head,
        Err(text) if text.contains("rows for head") => return Err(text),
        Err(_) => return Ok(()),
    };
    let (acknowledged, attempted) =
        (model.acknowledged.load(Ordering::Relaxed), model.attempted.load(Ordering::Relaxed));
    if head < acknowledged || head > attempted {
        return Err(format!("head {head}, acknowledged {acknowledged}, attempted {attempted}"));
    }
    // What was found is committed, whether it was acknowledged or not.
    model.acknowledged.store(head, Ordering::Relaxed);
    for number in head + 1..=head + COMMITS {
        model.attempted.store(number, Ordering::Relaxed);
        if !commit(&storage, number).await {
            return Ok(());
        }
        model.acknowledged.store(number, Ordering::Relaxed);
    }
    Ok(())
}

async fn torture(world: SimWorld, faults: DiskFaults) -> Result<u64, String> {
    let node: SimNode = world.node("store", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let mut dice = world.dice("torture");
    let model = Arc::new(Model::default());
    node.disk().set_faults(faults);
    for _ in 0..ROUNDS {
        if dice.chance(0.8) {
            node.disk().set_fuse(Some(1 + dice.below(250)));
        }
        let life = node.spawn(live(node.env(), model.clone()));
        if let Some(outcome) = life.await {
            outcome?;
            match dice.below(2) {
                0 => node.power_off(),
                _ => node.kill(),
            }
        }
        world.sleep(Duration::from_millis(5)).await;
        assert!(!node.is_up());
        node.disk().set_fuse(None);
        node.start();
    }
    let faults = DiskFaults { syncs_lie: node.disk().faults().syncs_lie, ..DiskFaults::default() };
    node.disk().set_faults(faults);
    node.spawn(live(node.env(), model.clone())).await.unwrap_or(Ok(()))?;
    Ok(model.acknowledged.load(Ordering::Relaxed))
}

fn run(seed: u64, faults: &DiskFaults) -> Run<Result<u64, String>> {
    let faults = faults.clone();
    run_seed(seed, |world| torture(world, faults))
}

#[test]
fn acknowledged_commits_survive_power_loss_whole() {
    let (mut commits, mut fuses, mut torn) = (0, 0, 0);
    for seed in 0..25 {
        let run = run(seed, &DiskFaults::default());
        assert_eq!(run.panics, 0, "seed {seed}: panics were caught");
        commits += run.value.unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        fuses += run.counters.get("disk.fuse").copied().unwrap_or_default();
        torn += run.counters.get("disk.torn_writes").copied().unwrap_or_default();
    }
    assert!(commits > 500 && fuses > 50 && torn > 10, "{commits} {fuses} {torn}");
}

#[test]
fn acknowledged_commits_survive_disk_errors_too() {
    let faults = DiskFaults { read_error: 0.001, write_error: 0.002, sync_error: 0.005, ..DiskFaults::default() };
    let mut errors = 0;
    for seed in 100..115 {
        let run = run(seed, &faults);
        assert_eq!(run.panics, 0, "seed {seed}: panics were caught");
        run.value.unwrap_or_else(|text| panic!("seed {seed}: {text}"));
        errors += run.counters.get("disk.eio").copied().unwrap_or_default();
        errors += run.counters.get("disk.sync_failed").copied().unwrap_or_default();
    }
    assert!(errors > 10, "{errors}");
}

#[test]
fn a_disk_whose_syncs_lie_is_found_out() {
    let faults = DiskFaults { syncs_lie: true, ..DiskFaults::default() };
    // redb may also panic over what it finds.
    let found = |seed| std::panic::catch_unwind(|| run(seed, &faults).value).is_ok_and(|outcome| outcome.is_err());
    assert!((200..215).filter(|seed| found(*seed)).count() > 0, "the oracle must be able to find a loss");
}

#[test]
fn the_same_seed_gives_the_same_disk_history() {
    let hash = |seed| run(seed, &DiskFaults::default()).trace_hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}
