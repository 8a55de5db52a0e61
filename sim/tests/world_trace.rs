//! One seed, one history: twice in a process and in two processes.
#![cfg(feature = "sim")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use settee::world::{BoxStream, Env, OpenMode, Pool};
use settee_sim::world::{Run, SimNode, SimWorld, run_seed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 5984;
const CHILD_SEED: u64 = 4711;

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// Answers every number with a random one, after writing both to disk.
async fn server(env: Env) {
    let Ok(mut door) = env.host().listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).await else { return };
    while let Ok((mut stream, _)) = door.accept().await {
        let inner = env.clone();
        env.spawn(async move {
            while let Ok(number) = stream.read_u64().await {
                let (disk, answer) = (inner.disk(), inner.random_u64());
                let written = inner.blocking(Pool::Journal, move || {
                    let file = disk.open(Path::new("/data/log"), OpenMode::Create)?;
                    file.write_at(file.len()?, &number.to_le_bytes())?;
                    file.sync()
                });
                if written.await.is_err() || stream.write_u64(answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn exchange(env: &Env, to: SocketAddr) -> std::io::Result<u64> {
    let mut stream: BoxStream = env.host().connect(to).await?;
    let mut sum = 0u64;
    for _ in 0..5 {
        stream.write_u64(env.random_u64()).await?;
        sum = sum.wrapping_add(stream.read_u64().await?);
    }
    Ok(sum)
}

async fn client(env: Env, own: u8) -> u64 {
    let mut sum = 0u64;
    for round in 0..20 {
        let to = SocketAddr::new(ip(1 + (own + round) % 3), PORT);
        if let Ok(Ok(part)) = env.timeout(Duration::from_secs(2), exchange(&env, to)).await {
            sum = sum.wrapping_add(part);
        }
        env.sleep(Duration::from_millis(50)).await;
    }
    sum
}

async fn busy(world: SimWorld) -> u64 {
    let nodes: Vec<SimNode> = (1..=3).map(|n| world.node(&format!("n{n}"), ip(n))).collect();
    for node in &nodes {
        drop(node.spawn(server(node.env())));
    }
    let clients = world.node("clients", ip(9));
    let sums: Vec<_> = (0..4).map(|n| clients.spawn(client(clients.env(), n))).collect();
    world.sleep(Duration::from_secs(1)).await;
    world.partition(&[ip(1)], &[ip(2), ip(9)]);
    nodes[2].disk().set_fuse(Some(40));
    world.sleep(Duration::from_secs(3)).await;
    world.heal_all();
    nodes[1].kill();
    for node in &nodes {
        if !node.is_up() {
            node.start();
            drop(node.spawn(server(node.env())));
        }
    }
    let mut total = 0u64;
    for sum in sums {
        total = total.wrapping_add(sum.await.unwrap_or_default());
    }
    total
}

fn summary(run: &Run<u64>) -> String {
    format!("{:016x} {} {:016x} {:?}", run.trace_hash, run.events, run.value, run.virtual_time)
}

#[test]
fn a_seed_gives_one_history_and_another_seed_another() {
    let mut all = std::collections::BTreeSet::new();
    for seed in 0..8 {
        let (first, second) = (run_seed(seed, busy), run_seed(seed, busy));
        assert_eq!(summary(&first), summary(&second), "seed {seed}");
        assert_eq!(first.counters, second.counters);
        assert!(first.counters["net.data"] > 100 && first.counters["disk.sync"] > 50, "{:?}", first.counters);
        all.insert(first.trace_hash);
    }
    assert_eq!(all.len(), 8);
}

#[test]
#[ignore = "the child of another test"]
fn child_prints_its_history() {
    println!("history: {}", summary(&run_seed(CHILD_SEED, busy)));
}

#[test]
fn two_processes_see_the_same_history() {
    let child = || {
        let own = std::env::current_exe().unwrap();
        let out = Command::new(own).args(["--exact", "child_prints_its_history", "--ignored", "--nocapture"]).output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        let at = text.find("history: ").unwrap_or_else(|| panic!("no history in {text}"));
        text[at..].lines().next().unwrap_or_default().to_owned()
    };
    let here = format!("history: {}", summary(&run_seed(CHILD_SEED, busy)));
    assert_eq!(child(), here);
    assert_eq!(child(), here);
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn the_log_has_a_line_per_event_and_repeats() {
    let logged = || {
        let log = Shared::default();
        let inner = log.clone();
        let run = run_seed(3, |world| {
            world.log_to(inner);
            busy(world)
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        (run.events, text)
    };
    let (events, text) = logged();
    // The end of a run is logged after its events were counted.
    assert!(text.lines().count() as u64 >= events && events > 1000);
    assert_eq!(logged().1, text);
}
