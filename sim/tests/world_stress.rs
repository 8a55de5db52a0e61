//! Streams under all faults of the network at once: what arrives is a prefix of what was sent, and after the faults
//! everything works again and nothing is left over.
#![cfg(feature = "sim")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use settee::world::{BoxStream, Env};
use settee_sim::world::{Dice, Link, SimNode, SimWorld, run_seed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 5984;
const NODES: u8 = 4;

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// Byte number `at` of every stream.
fn pattern(at: u64) -> u8 {
    (at.wrapping_mul(31) >> 3) as u8
}

#[derive(Default)]
struct Score {
    bytes: AtomicU64,
    ends: AtomicU64,
    errors: AtomicU64,
}

async fn check(mut stream: BoxStream, score: Arc<Score>) {
    let mut buffer = vec![0; 10_000];
    let mut at = 0;
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => {
                score.ends.fetch_add(1, Ordering::Relaxed);
                return;
            }
            Ok(count) => {
                for byte in &buffer[..count] {
                    assert_eq!(*byte, pattern(at), "byte {at}");
                    at += 1;
                }
                score.bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            Err(_) => {
                score.errors.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

async fn serve(env: Env, score: Arc<Score>) {
    let at = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT);
    let Ok(mut door) = env.host().listen(at).await else { return };
    while let Ok((stream, _)) = door.accept().await {
        env.spawn(check(stream, score.clone()));
    }
}

async fn send(env: &Env, to: IpAddr, bytes: u64) -> std::io::Result<()> {
    let mut stream = env.host().connect(SocketAddr::new(to, PORT)).await?;
    let mut at = 0;
    while at < bytes {
        let part: Vec<u8> = (at..bytes.min(at + 10_000)).map(pattern).collect();
        stream.write_all(&part).await?;
        at += part.len() as u64;
        env.sleep(Duration::from_millis(10)).await;
    }
    stream.shutdown().await
}

async fn chatter(env: Env, own: u8) {
    loop {
        let to = ip(1 + (own + env.random_u64() as u8 % (NODES - 1)) % NODES);
        let bytes = env.random_u64() % 150_000;
        let _ = env.timeout(Duration::from_secs(15), send(&env, to, bytes)).await;
        env.sleep(Duration::from_millis(10)).await;
    }
}

fn live(node: &SimNode, own: u8, score: &Arc<Score>) {
    drop(node.spawn(serve(node.env(), score.clone())));
    for _ in 0..3 {
        drop(node.spawn(chatter(node.env(), own)));
    }
}

fn disturb(world: &SimWorld, nodes: &[SimNode], dice: &mut Dice) {
    let a = &nodes[dice.below(nodes.len() as u64) as usize];
    let b = &nodes[dice.below(nodes.len() as u64) as usize];
    match dice.below(10) {
        0 => world.cut(a.ip(), b.ip()),
        1 => world.isolate(a.ip()),
        2 | 3 => world.heal_all(),
        4 => world.clog(a.ip(), b.ip(), Duration::from_millis(dice.below(5_000))),
        5 => drop(world.reset_between(a.ip(), b.ip())),
        6 => a.kill(),
        7 => a.power_off(),
        8 => world.set_link(
            a.ip(),
            b.ip(),
            Some(Link { loss: 0.1, reset_chance: 0.02, bandwidth: 2_000_000, ..Link::default() }),
        ),
        _ => a.pause(),
    }
}

async fn storm(world: SimWorld) -> (u64, u64, u64) {
    let score = Arc::new(Score::default());
    let nodes: Vec<SimNode> = (1..=NODES).map(|n| world.node(&format!("n{n}"), ip(n))).collect();
    for (own, node) in nodes.iter().enumerate() {
        live(node, own as u8 + 1, &score);
    }
    let mut dice = world.dice("storm");
    for _ in 0..40 {
        disturb(&world, &nodes, &mut dice);
        world.sleep(Duration::from_millis(dice.below(1_500))).await;
        for (own, node) in nodes.iter().enumerate() {
            if !node.is_up() && dice.chance(0.5) {
                node.start();
                live(node, own as u8 + 1, &score);
            }
            if dice.chance(0.3) {
                node.resume();
            }
        }
    }
    // Calm: fresh lives, all ways open. Old connections end by reset or time-out, new ones work.
    world.heal_all();
    for node in &nodes {
        node.kill();
        node.start();
        drop(node.spawn(serve(node.env(), score.clone())));
    }
    world.sleep(Duration::from_millis(10)).await;
    for from in &nodes {
        for to in &nodes {
            let (env, to) = (from.env(), to.ip());
            let sent = from.spawn(async move { env.timeout(Duration::from_secs(60), send(&env, to, 100_000)).await });
            assert!(matches!(sent.await, Some(Ok(Ok(())))), "the network is well again");
        }
    }
    world.sleep(Duration::from_secs(400)).await;
    assert_eq!(world.load().1, 0, "connections are forgotten");
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    (read(&score.bytes), read(&score.ends), read(&score.errors))
}

#[test]
fn streams_stay_whole_in_a_storm() {
    let mut met = std::collections::BTreeMap::new();
    for seed in 0..3 {
        let run = run_seed(seed, storm);
        let (bytes, ends, errors) = run.value;
        assert!(bytes > 300_000 && ends > 10, "seed {seed}: {bytes} bytes, {ends} ends, {errors} errors");
        for (name, times) in run.counters {
            *met.entry(name).or_insert(0) += times;
        }
    }
    let rare = ["net.reset", "net.reset_injected", "net.retransmission", "net.syn_lost"];
    let others = ["net.refused", "net.loss", "net.tail", "node.kill", "node.power_off", "node.pause"];
    for name in rare.iter().chain(&others) {
        assert!(met.contains_key(name), "{name} was never met: {met:?}");
    }
}
