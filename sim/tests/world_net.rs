//! One probe per behaviour of the simulated network: what a user of TCP would see on a real one.
#![cfg(feature = "sim")]

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use settee::world::{BoxStream, Env};
use settee_sim::world::{Link, Options, SimNode, SimWorld, WINDOW, run_seed, run_seed_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PORT: u16 = 5984;

fn ip(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

fn at(last: u8) -> SocketAddr {
    SocketAddr::new(ip(last), PORT)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn pair(world: &SimWorld) -> (SimNode, SimNode) {
    (world.node("client", ip(1)), world.node("server", ip(2)))
}

/// Accepts for ever and gives each connection to `serve`.
fn serve<F: Future<Output = ()> + Send + 'static>(
    node: &SimNode,
    serve: impl Fn(Env, BoxStream) -> F + Send + Sync + 'static,
) {
    let env = node.env();
    drop(node.spawn(async move {
        let mut door = env.host().listen(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), PORT)).await.unwrap();
        loop {
            let (stream, _) = door.accept().await.unwrap();
            env.spawn(serve(env.clone(), stream));
        }
    }));
}

async fn echo(_: Env, mut stream: BoxStream) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        if stream.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    let _ = stream.shutdown().await;
}

async fn dial(env: &Env) -> BoxStream {
    env.host().connect(at(2)).await.unwrap()
}

async fn ask(stream: &mut BoxStream, text: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(text).await?;
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await?;
    Ok(back)
}

/// Two nodes, an echo server on the second, `client` on the first.
fn with_echo<F: Future<Output = ()> + Send + 'static>(
    seed: u64,
    client: impl FnOnce(SimWorld, Env, SimNode) -> F + Send + 'static,
) -> std::collections::BTreeMap<&'static str, u64> {
    run_seed(seed, move |world| async move {
        let (node, server) = pair(&world);
        serve(&server, echo);
        world.sleep(millis(2)).await;
        assert!(node.spawn(client(world.clone(), node.env(), server)).await.is_some());
    })
    .counters
}

#[test]
fn bytes_arrive_in_order_over_a_lossy_link() {
    let link = Link { loss: 0.2, tail_chance: 0.2, ..Link::default() };
    let run = run_seed_with(1, Options { link, ..Options::default() }, |world| async move {
        let (node, server) = pair(&world);
        serve(&server, echo);
        world.sleep(millis(2)).await;
        let env = node.env();
        node.spawn(async move {
            let mut stream = dial(&env).await;
            for round in 0..50u8 {
                let text = vec![round; 1000];
                assert_eq!(ask(&mut stream, &text).await.unwrap(), text);
            }
        })
        .await
    });
    assert!(run.value.is_some());
    assert!(run.counters["net.loss"] > 5, "{:?}", run.counters);
}

#[test]
fn latency_is_that_of_the_link_and_loopback_is_fast() {
    with_echo(2, |world, env, server| async move {
        let slow = Link { latency: (millis(100), millis(100)), ..Link::calm() };
        world.set_link(ip(1), ip(2), Some(slow));
        let mut stream = dial(&env).await;
        let before = env.now();
        ask(&mut stream, b"ping").await.unwrap();
        let there_and_back = env.now().since(before);
        assert!(there_and_back >= millis(100) && there_and_back < millis(300), "{there_and_back:?}");
        let local = server.env();
        let done = server.spawn(async move {
            let before = local.now();
            let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT);
            let mut stream = local.host().connect(here).await.unwrap();
            ask(&mut stream, b"ping").await.unwrap();
            local.now().since(before)
        });
        assert!(done.await.unwrap() < millis(10));
    });
}

#[test]
fn bandwidth_takes_its_time() {
    with_echo(3, |world, env, _| async move {
        world.set_link(ip(1), ip(2), Some(Link { bandwidth: 1_000_000, ..Link::calm() }));
        let mut stream = dial(&env).await;
        let before = env.now();
        let mut sent = 0;
        let mut back = vec![0; 100_000];
        while sent < 2_000_000 {
            stream.write_all(&vec![7; 100_000]).await.unwrap();
            stream.read_exact(&mut back).await.unwrap();
            sent += 100_000;
        }
        let time = env.now().since(before);
        assert!(time >= secs(2) && time < secs(3), "2 MB at 1 MB/s took {time:?}");
    });
}

#[test]
fn a_reader_that_does_not_read_stops_the_writer() {
    run_seed(4, |world| async move {
        let (node, server) = pair(&world);
        serve(&server, |env, mut stream| async move {
            env.sleep(secs(10)).await;
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            assert_eq!(all.len(), 1_000_000);
        });
        world.sleep(millis(2)).await;
        let env = node.env();
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = sent.clone();
        let writer = node.spawn(async move {
            let mut stream = dial(&env).await;
            for _ in 0..1000 {
                stream.write_all(&[1; 1000]).await.unwrap();
                counter.fetch_add(1000, Ordering::Relaxed);
            }
            stream.shutdown().await.unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.unwrap();
        });
        world.sleep(secs(5)).await;
        let stuck = sent.load(Ordering::Relaxed);
        assert!(stuck <= WINDOW && stuck > WINDOW - 1000, "{stuck} bytes went into a window of {WINDOW}");
        assert!(writer.await.is_some());
        assert_eq!(sent.load(Ordering::Relaxed), 1_000_000);
    });
}

#[test]
fn shutdown_closes_one_way_only() {
    with_echo(5, |_, env, _| async move {
        let mut stream = dial(&env).await;
        stream.write_all(b"last words").await.unwrap();
        stream.shutdown().await.unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"last words");
        assert_eq!(stream.write(b"more").await.unwrap_err().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn nobody_listens_is_refused_at_once() {
    with_echo(6, |_, env, _| async move {
        let before = env.now();
        let error = env.host().connect(SocketAddr::new(ip(2), 1)).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        assert!(env.now().since(before) < secs(1));
    });
}

#[test]
fn connecting_into_a_cut_hangs_and_then_times_out() {
    for one_way in [None, Some(true), Some(false)] {
        let counters = with_echo(7, move |world, env, _| async move {
            match one_way {
                None => world.isolate(ip(2)),
                Some(true) => world.cut(ip(1), ip(2)),
                Some(false) => world.cut(ip(2), ip(1)),
            }
            let before = env.now();
            let short = env.timeout(secs(100), env.host().connect(at(2))).await;
            assert!(short.is_err(), "it hangs");
            let error = env.host().connect(at(2)).await.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let time = env.now().since(before) - secs(100);
            assert!(time > secs(120) && time < secs(135), "{time:?}");
        });
        assert!(counters["net.syn_lost"] >= 7);
    }
}

#[test]
fn connecting_to_a_dead_machine_hangs_until_it_is_back() {
    with_echo(8, |world, env, server| async move {
        server.power_off();
        let there = env.clone();
        let attempt = env.spawn_with(async move { there.host().connect(at(2)).await.map(drop) });
        world.sleep(secs(5)).await;
        server.start();
        serve(&server, echo);
        let before = env.now();
        assert!(attempt.await.unwrap().is_ok(), "a later SYN gets through");
        assert!(env.now().since(before) < secs(5));
    });
}

#[test]
fn a_healed_cut_loses_nothing_of_an_open_connection() {
    with_echo(9, |world, env, _| async move {
        let mut stream = dial(&env).await;
        ask(&mut stream, b"before").await.unwrap();
        world.partition(&[ip(1)], &[ip(2)]);
        let asked = env.timeout(secs(20), ask(&mut stream, b"during")).await;
        assert!(asked.is_err(), "silence");
        world.heal_all();
        let mut back = [0; 6];
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"during");
    });
}

#[test]
fn an_asymmetric_cut_delivers_one_way_and_times_the_sender_out() {
    run_seed(10, |world| async move {
        let (node, server) = pair(&world);
        let got = Arc::new(AtomicUsize::new(0));
        let counter = got.clone();
        serve(&server, move |_, mut stream| {
            let counter = counter.clone();
            async move {
                let mut buffer = [0; 100];
                while let Ok(count @ 1..) = stream.read(&mut buffer).await {
                    counter.fetch_add(count, Ordering::Relaxed);
                }
            }
        });
        world.sleep(millis(2)).await;
        let env = node.env();
        let inner = world.clone();
        let error = node.spawn(async move {
            let mut stream = dial(&env).await;
            inner.sleep(secs(1)).await;
            inner.cut(ip(2), ip(1));
            stream.write_all(b"hello").await.unwrap();
            let before = env.now();
            let error = stream.read(&mut [0; 1]).await.unwrap_err();
            (error.kind(), env.now().since(before))
        });
        let (kind, time) = error.await.unwrap();
        assert_eq!(got.load(Ordering::Relaxed), 5, "the data got through");
        assert_eq!(kind, ErrorKind::TimedOut, "the acknowledgement did not");
        assert!(time >= secs(120) && time < secs(200), "{time:?}");
    });
}

#[test]
fn a_peer_that_died_behind_a_cut_is_silent_then_resets_when_it_is_back() {
    with_echo(11, |world, env, server| async move {
        let mut writer = dial(&env).await;
        let mut reader = dial(&env).await;
        ask(&mut writer, b"x").await.unwrap();
        ask(&mut reader, b"x").await.unwrap();
        world.isolate(ip(2));
        server.power_off();
        world.heal_all();
        let heard = env.timeout(secs(30), writer.read(&mut [0; 1])).await;
        assert!(heard.is_err(), "no end and no error comes from the dead");
        writer.write_all(b"are you there?").await.unwrap();
        assert!(env.timeout(secs(30), writer.read(&mut [0; 1])).await.is_err(), "still silent");
        server.start();
        let error = env.timeout(secs(60), writer.read(&mut [0; 1])).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let half_open = env.timeout(secs(600), reader.read(&mut [0; 1])).await;
        assert!(half_open.is_err(), "who only reads never learns");
    });
}

#[test]
fn a_peer_that_stays_dead_times_the_writer_out() {
    with_echo(12, |_, env, server| async move {
        let mut stream = dial(&env).await;
        ask(&mut stream, b"x").await.unwrap();
        server.power_off();
        stream.write_all(b"hello?").await.unwrap();
        let before = env.now();
        let error = stream.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let time = env.now().since(before);
        assert!(time >= secs(120) && time < secs(200), "{time:?}");
        assert_eq!(stream.write(b"more").await.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn a_killed_process_ends_its_connections_and_refuses_new_ones() {
    with_echo(13, |_, env, server| async move {
        let mut stream = dial(&env).await;
        ask(&mut stream, b"x").await.unwrap();
        server.kill();
        let end = env.timeout(secs(5), stream.read(&mut [0; 1])).await.unwrap();
        assert_eq!(end.unwrap(), 0, "its kernel closes the socket");
        stream.write_all(b"x").await.unwrap();
        let error = env.timeout(secs(5), stream.read(&mut [0; 1])).await.unwrap();
        assert!(error.is_ok_and(|n| n == 0), "the end of the stream stays the end");
        env.sleep(secs(1)).await;
        assert_eq!(stream.write(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        let error = env.host().connect(at(2)).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_reset_in_the_middle_hits_both_ends() {
    run_seed(14, |world| async move {
        let (node, server) = pair(&world);
        let (told, hear) = tokio::sync::oneshot::channel();
        let told = Arc::new(std::sync::Mutex::new(Some(told)));
        serve(&server, move |_, mut stream| {
            let told = told.clone();
            async move {
                let mut buffer = vec![0; 1000];
                let error = loop {
                    match stream.read(&mut buffer).await {
                        Ok(0) => break None,
                        Ok(_) => {}
                        Err(error) => break Some(error.kind()),
                    }
                };
                if let Some(told) = told.lock().unwrap().take() {
                    let _ = told.send(error);
                }
            }
        });
        world.sleep(millis(2)).await;
        let env = node.env();
        let there = world.clone();
        let client = node.spawn(async move {
            let mut stream = dial(&env).await;
            loop {
                if let Err(error) = stream.write_all(&[1; 500]).await {
                    break error.kind();
                }
                env.sleep(millis(1)).await;
            }
        });
        world.sleep(millis(50)).await;
        assert_eq!(there.reset_between(ip(1), ip(2)), 1);
        assert_eq!(client.await, Some(ErrorKind::ConnectionReset));
        assert_eq!(hear.await.unwrap(), Some(ErrorKind::ConnectionReset));
    });
}

#[test]
fn links_can_reset_by_chance() {
    let counters = with_echo(15, |world, env, _| async move {
        world.set_link(ip(1), ip(2), Some(Link { reset_chance: 0.2, ..Link::calm() }));
        let mut resets = 0;
        for _ in 0..20 {
            let mut stream = dial(&env).await;
            for _ in 0..5 {
                if let Err(error) = ask(&mut stream, b"ping").await {
                    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                    resets += 1;
                    break;
                }
            }
        }
        assert!((5..20).contains(&resets), "{resets}");
    });
    assert!(counters["net.reset_injected"] >= 5);
}

#[test]
fn closing_with_unread_data_resets() {
    run_seed(16, |world| async move {
        let (node, server) = pair(&world);
        serve(&server, |env, stream| async move {
            env.sleep(secs(1)).await;
            drop(stream);
        });
        world.sleep(millis(2)).await;
        let env = node.env();
        let kind = node.spawn(async move {
            let mut stream = dial(&env).await;
            stream.write_all(b"never read").await.unwrap();
            stream.read(&mut [0; 1]).await.unwrap_err().kind()
        });
        assert_eq!(kind.await, Some(ErrorKind::ConnectionReset));
    });
}

#[test]
fn a_clog_delays_and_a_slow_link_is_slow() {
    with_echo(17, |world, env, _| async move {
        let mut stream = dial(&env).await;
        world.clog(ip(1), ip(2), secs(3));
        let before = env.now();
        ask(&mut stream, b"late").await.unwrap();
        let time = env.now().since(before);
        assert!(time >= secs(3) && time < secs(4), "{time:?}");
        world.set_link(ip(2), ip(1), Some(Link::calm().slowed(1000)));
        let before = env.now();
        ask(&mut stream, b"slow").await.unwrap();
        assert!(env.now().since(before) >= millis(100));
    });
}

#[test]
fn a_full_backlog_lets_callers_wait() {
    run_seed(18, |world| async move {
        let (node, server) = pair(&world);
        let door = server.env();
        drop(server.spawn(async move {
            let mut listener = door.host().listen(at(2)).await.unwrap();
            let same = door.host().listen(at(2)).await.err().unwrap();
            assert_eq!(same.kind(), ErrorKind::AddrInUse);
            assert_eq!(listener.local_addr().unwrap(), at(2));
            door.sleep(secs(10)).await;
            let mut kept = Vec::new();
            loop {
                kept.push(listener.accept().await.unwrap());
            }
        }));
        world.sleep(millis(2)).await;
        let env = node.env();
        let opened = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let (env, opened) = (env.clone(), opened.clone());
            drop(node.spawn(async move {
                let _stream = env.host().connect(at(2)).await.unwrap();
                opened.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }));
            world.sleep(millis(20)).await;
        }
        assert_eq!(opened.load(Ordering::Relaxed), 128);
        world.sleep(secs(30)).await;
        assert_eq!(opened.load(Ordering::Relaxed), 200);
    });
}

#[test]
fn sleeps_are_cancelled_and_leave_nothing_behind() {
    run_seed(19, |world| async move {
        let node = world.node("lone", ip(1));
        let env = node.env();
        node.spawn(async move {
            for _ in 0..10_000 {
                let _ = env.timeout(secs(3600), env.sleep(millis(1))).await;
            }
        })
        .await
        .unwrap();
        assert!(world.load().0 <= 1, "{:?}", world.load());
        assert!(world.now() < secs(60));
    });
}

#[test]
fn ended_connections_leave_nothing_behind() {
    with_echo(20, |world, env, _| async move {
        for _ in 0..100 {
            let mut stream = dial(&env).await;
            ask(&mut stream, b"ping").await.unwrap();
        }
        world.sleep(secs(5)).await;
        assert_eq!(world.load().1, 0);
    });
}
