//! One probe per behaviour of the simulated disk, the pools, the clocks and the lives of a node.
#![cfg(feature = "sim")]

use std::future::pending;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use settee::world::{Disk, OpenMode, Pool};
use settee_sim::world::{DiskFaults, SimNode, SimWorld, run_seed};

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn file() -> &'static Path {
    Path::new("/data/file")
}

fn dir() -> &'static Path {
    Path::new("/data")
}

fn lone(world: &SimWorld) -> SimNode {
    world.node("lone", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)))
}

fn read(disk: &dyn Disk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    file.read_at(0, &mut bytes).unwrap();
    bytes
}

/// A durable file with this content.
fn put(disk: &dyn Disk, path: &Path, content: &[u8]) {
    let file = disk.open(path, OpenMode::Create).unwrap();
    file.set_len(0).unwrap();
    file.write_at(0, content).unwrap();
    file.sync().unwrap();
    disk.sync_dir(path.parent().unwrap()).unwrap();
}

/// Runs `before`, cuts the power, and yields what `after` says, for many seeds.
fn over_power_loss<T: Send + 'static>(before: fn(&dyn Disk), after: fn(&dyn Disk) -> T) -> Vec<T> {
    let one = move |world: SimWorld| async move {
        let node = lone(&world);
        before(node.env().disk().as_ref());
        node.power_off();
        after(node.start().disk().as_ref())
    };
    (0..100).map(|seed| run_seed(seed, one).value).collect()
}

#[test]
fn synced_content_survives_and_unsynced_is_kept_lost_or_torn() {
    let states = over_power_loss(
        |disk| {
            put(disk, file(), &[1; 4096]);
            disk.open(file(), OpenMode::Write).unwrap().write_at(0, &[2; 4096]).unwrap();
        },
        |disk| {
            let bytes = read(disk, file());
            assert_eq!(bytes.len(), 4096);
            bytes.chunks(512).map(|sector| sector.iter().map(|b| u32::from(*b)).sum::<u32>()).collect::<Vec<_>>()
        },
    );
    assert!(states.iter().flatten().all(|sum| [512, 1024].contains(sum)), "sectors are whole");
    assert!(states.iter().any(|s| s.iter().all(|sum| *sum == 512)), "some lose all");
    assert!(states.iter().any(|s| s.iter().all(|sum| *sum == 1024)), "some keep all");
    assert!(states.iter().any(|s| s.contains(&512) && s.contains(&1024)), "some tear");
}

#[test]
fn unsynced_writes_do_not_survive_in_order_only() {
    let kept = over_power_loss(
        |disk| {
            put(disk, file(), &[0; 5120]);
            let file = disk.open(file(), OpenMode::Write).unwrap();
            for sector in 0..10 {
                file.write_at(sector * 512, &[1; 512]).unwrap();
            }
        },
        |disk| read(disk, file()).chunks(512).map(|sector| sector[0] == 1).collect::<Vec<_>>(),
    );
    let prefix = |kept: &Vec<bool>| kept.windows(2).all(|w| w[0] || !w[1]);
    assert!(kept.iter().any(|k| !prefix(k)), "a later write without an earlier one");
    assert!(kept.iter().filter(|k| prefix(k)).count() > 20, "and prefixes");
}

#[test]
fn an_unsynced_length_may_be_undone() {
    let lens = over_power_loss(
        |disk| {
            put(disk, file(), &[1; 100]);
            disk.open(file(), OpenMode::Write).unwrap().set_len(5000).unwrap();
        },
        |disk| read(disk, file()).len(),
    );
    assert!(lens.contains(&100) && lens.contains(&5000));
    let cut = over_power_loss(
        |disk| {
            put(disk, file(), &[1; 5000]);
            disk.open(file(), OpenMode::Write).unwrap().set_len(100).unwrap();
        },
        |disk| read(disk, file()).len(),
    );
    assert!(cut.contains(&100) && cut.contains(&5000));
}

#[test]
fn names_are_certain_only_after_sync_dir() {
    let found = over_power_loss(
        |disk| {
            put(disk, Path::new("/data/old"), b"old");
            put(disk, Path::new("/data/doomed"), b"doomed");
            let file = disk.open(file(), OpenMode::CreateNew).unwrap();
            file.write_at(0, b"new").unwrap();
            file.sync().unwrap();
            disk.rename(Path::new("/data/old"), Path::new("/data/renamed")).unwrap();
            disk.remove(Path::new("/data/doomed")).unwrap();
        },
        |disk| disk.list(dir()).unwrap().into_iter().map(|entry| entry.name).collect::<Vec<_>>(),
    );
    assert!(found.iter().all(|names| names.contains(&"old".into()) != names.contains(&"renamed".into())));
    for (name, expected) in [("file", false), ("file", true), ("renamed", false), ("doomed", true), ("doomed", false)] {
        assert!(found.iter().any(|names| names.contains(&name.into()) == expected), "{name} {expected}");
    }
    let synced = over_power_loss(
        |disk| {
            put(disk, Path::new("/data/old"), b"old");
            disk.rename(Path::new("/data/old"), file()).unwrap();
            disk.sync_dir(dir()).unwrap();
        },
        |disk| read(disk, file()),
    );
    assert!(synced.iter().all(|bytes| bytes == b"old"));
}

#[test]
fn a_directory_must_be_synced_in_its_parent_and_moves_never_lose() {
    let found = over_power_loss(
        |disk| {
            disk.create_dir_all(Path::new("/data/a/b")).unwrap();
            put(disk, Path::new("/data/a/b/file"), b"x");
        },
        |disk| disk.exists(Path::new("/data/a/b/file")).unwrap(),
    );
    assert!(found.contains(&false), "syncing the last directory is not enough");
    let both = over_power_loss(
        |disk| {
            disk.create_dir_all(Path::new("/data/stage")).unwrap();
            disk.create_dir_all(Path::new("/data/final")).unwrap();
            disk.sync_dir(dir()).unwrap();
            put(disk, Path::new("/data/stage/file"), b"x");
            disk.rename(Path::new("/data/stage/file"), Path::new("/data/final/file")).unwrap();
        },
        |disk| {
            let there = |path| disk.exists(Path::new(path)).unwrap();
            (there("/data/stage/file"), there("/data/final/file"))
        },
    );
    assert!(both.iter().all(|(stage, last)| *stage || *last), "a file that was durable is somewhere");
    assert!(both.contains(&(false, true)) || both.contains(&(true, true)));
    assert!(both.contains(&(true, false)));
}

#[test]
fn handles_of_an_ended_life_only_give_errors() {
    run_seed(1, |world| async move {
        let node = lone(&world);
        for power in [true, false] {
            let disk = node.env().disk();
            let file = disk.open(file(), OpenMode::Create).unwrap();
            let _lock = disk.lock(Path::new("/data/lock")).unwrap();
            assert_eq!(disk.lock(Path::new("/data/lock")).err().unwrap().kind(), ErrorKind::WouldBlock);
            if power {
                node.power_off();
            } else {
                node.kill();
            }
            let new = node.start().disk();
            assert!(file.write_at(0, b"ghost").is_err());
            assert!(file.sync().is_err());
            assert!(file.len().is_err());
            assert!(disk.list(dir()).is_err());
            assert!(new.lock(Path::new("/data/lock")).is_ok(), "locks end with the life");
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_that_it_wrote() {
    for seed in 0..20 {
        run_seed(seed, |world| async move {
            let node = lone(&world);
            let disk = node.env().disk();
            disk.open(file(), OpenMode::Create).unwrap().write_at(0, b"unsynced").unwrap();
            node.kill();
            assert_eq!(read(node.start().disk().as_ref(), file()), b"unsynced");
        });
    }
}

#[test]
fn errors_come_with_their_probability() {
    let run = run_seed(2, |world| async move {
        let node = lone(&world);
        let disk = node.env().disk();
        put(disk.as_ref(), file(), &[1; 10]);
        let file = disk.open(file(), OpenMode::Write).unwrap();
        node.disk().set_faults(DiskFaults { read_error: 0.5, write_error: 0.5, ..DiskFaults::default() });
        let mut failed = (0, 0);
        for _ in 0..100 {
            failed.0 += u32::from(file.read_at(0, &mut [0; 10]).is_err());
            failed.1 += u32::from(file.write_at(0, &[2; 10]).is_err());
        }
        assert!((25..75).contains(&failed.0) && (25..75).contains(&failed.1), "{failed:?}");
        node.disk().set_faults(DiskFaults::default());
        file.read_at(0, &mut [0; 10]).unwrap();
    });
    assert!(run.counters["disk.eio"] > 50);
}

#[test]
fn a_failed_sync_loses_what_it_should_have_written() {
    run_seed(3, |world| async move {
        let node = lone(&world);
        let disk = node.env().disk();
        put(disk.as_ref(), file(), &[1; 10]);
        let handle = disk.open(file(), OpenMode::Write).unwrap();
        handle.write_at(0, &[2; 10]).unwrap();
        node.disk().set_faults(DiskFaults { sync_error: 1.0, ..DiskFaults::default() });
        assert!(handle.sync().is_err());
        node.disk().set_faults(DiskFaults::default());
        handle.sync().unwrap();
        assert_eq!(read(disk.as_ref(), file()), [2; 10], "the page cache still has it");
        node.power_off();
        assert_eq!(read(node.start().disk().as_ref(), file()), [1; 10]);
    });
}

#[test]
fn lying_syncs_lose_acknowledged_data() {
    let lost = (0..30).filter(|seed| {
        let run = run_seed(*seed, |world| async move {
            let node = lone(&world);
            let disk = node.env().disk();
            put(disk.as_ref(), file(), &[1; 10]);
            node.disk().set_faults(DiskFaults { syncs_lie: true, ..DiskFaults::default() });
            put(disk.as_ref(), file(), &[2; 10]);
            assert!(node.disk().is_dirty(file()).unwrap());
            node.power_off();
            read(node.start().disk().as_ref(), file()) != [2; 10]
        });
        run.value
    });
    assert!(lost.count() > 5);
}

#[test]
fn a_full_disk_says_so_and_has_room_after_a_removal() {
    run_seed(4, |world| async move {
        let node = lone(&world);
        let disk = node.env().disk();
        node.disk().set_faults(DiskFaults { capacity: Some(1000), ..DiskFaults::default() });
        put(disk.as_ref(), Path::new("/data/other"), &[1; 600]);
        let file = disk.open(file(), OpenMode::Create).unwrap();
        assert_eq!(file.write_at(0, &[1; 500]).unwrap_err().kind(), ErrorKind::StorageFull);
        assert_eq!(file.set_len(500).unwrap_err().kind(), ErrorKind::StorageFull);
        file.write_at(0, &[1; 400]).unwrap();
        file.write_at(0, &[2; 400]).unwrap();
        disk.remove(Path::new("/data/other")).unwrap();
        file.write_at(400, &[1; 500]).unwrap();
    });
}

#[test]
fn a_fuse_cuts_the_power_in_the_middle_of_a_job() {
    let run = run_seed(5, |world| async move {
        let node = lone(&world);
        let env = node.env();
        node.disk().set_fuse(Some(5));
        let (disk, done) = (env.disk(), Arc::new(AtomicUsize::new(0)));
        let counter = done.clone();
        let reported = node.spawn(async move {
            env.blocking(Pool::Journal, move || {
                let file = disk.open(file(), OpenMode::Create).unwrap();
                while file.write_at(0, b"x").is_ok() {
                    counter.fetch_add(1, Ordering::Relaxed);
                }
            })
            .await;
        });
        node.down().await;
        assert!(reported.await.is_none(), "nobody hears of the job");
        assert_eq!(done.load(Ordering::Relaxed), 3, "open and three writes, then the fuse");
        assert!(!node.is_up());
        node.start();
        assert_eq!(node.lives(), 2);
    });
    assert_eq!(run.counters["disk.fuse"], 1);
}

#[test]
fn a_process_is_killed_within_a_job_and_what_it_wrote_stays() {
    let kept = (0..40).filter(|seed| {
        let run = run_seed(*seed, |world| async move {
            let node = lone(&world);
            let env = node.env();
            put(env.disk().as_ref(), file(), &[1; 10]);
            // Opening counts, too: the second write is the one.
            node.disk().set_kill_fuse(3);
            let disk = env.disk();
            let job = node.spawn(async move {
                env.blocking(Pool::Foreground, move || {
                    let file = disk.open(file(), OpenMode::Write).unwrap();
                    file.write_at(0, &[2; 5]).unwrap();
                    assert!(file.write_at(5, &[2; 5]).is_err() && file.sync().is_err());
                })
                .await;
            });
            assert_eq!(job.await, None);
            assert!(!node.is_up());
            let left = read(node.start().disk().as_ref(), file());
            assert_eq!(left[..5], [2; 5], "nothing of it was synced, and the machine runs on");
            left[5..] == [2; 5]
        });
        run.value
    });
    let kept = kept.count();
    assert!((5..35).contains(&kept), "{kept}");
}

#[test]
fn what_a_process_killed_within_a_sync_wrote_is_read_until_the_power_fails() {
    let lost = (0..40).filter(|seed| {
        let run = run_seed(*seed, |world| async move {
            let node = lone(&world);
            let env = node.env();
            put(env.disk().as_ref(), file(), &[1; 10]);
            node.disk().set_kill_in_sync("/data", 1);
            let disk = env.disk();
            let job = node.spawn(async move {
                env.blocking(Pool::Foreground, move || {
                    let file = disk.open(file(), OpenMode::Write).unwrap();
                    file.write_at(0, &[2; 10]).unwrap();
                    assert!(file.sync().is_err());
                })
                .await;
            });
            assert_eq!(job.await, None);
            assert_eq!(read(node.start().disk().as_ref(), file()), [2; 10]);
            node.power_off();
            read(node.start().disk().as_ref(), file()) != [2; 10]
        });
        run.value
    });
    assert!(lost.count() > 5);
}

#[test]
fn a_directory_that_could_not_be_synced_has_its_names_in_memory_alone() {
    let lost = (0..40).filter(|seed| {
        let run = run_seed(*seed, |world| async move {
            let node = lone(&world);
            let disk = node.env().disk();
            node.disk().set_faults(DiskFaults { dir_sync_error: 1.0, free: Some(7), ..DiskFaults::default() });
            assert_eq!(disk.free_bytes(dir()).unwrap(), 7);
            disk.open(file(), OpenMode::Create).unwrap().sync().unwrap();
            assert!(disk.sync_dir(dir()).is_err() && disk.exists(file()).unwrap());
            node.disk().set_faults(DiskFaults::default());
            assert_eq!(disk.free_bytes(dir()).unwrap(), u64::MAX);
            node.power_off();
            !node.start().disk().exists(file()).unwrap()
        });
        run.value
    });
    let lost = lost.count();
    assert!((5..40).contains(&lost), "{lost}");
}

#[test]
fn a_slow_disk_is_slow_and_only_below_its_path() {
    run_seed(6, |world| async move {
        let node = lone(&world);
        let slow = vec![(Path::new("/data/slow").to_path_buf(), 1000)];
        node.disk().set_faults(DiskFaults { slow_paths: slow, ..DiskFaults::default() });
        let env = node.env();
        let (fast, slow) = node
            .spawn(async move {
                let mut times = Vec::new();
                for path in ["/data/fast", "/data/slow"] {
                    let (disk, before) = (env.disk(), env.now());
                    env.blocking(Pool::Journal, move || put(disk.as_ref(), Path::new(path), b"x")).await;
                    times.push(env.now().since(before));
                }
                (times[0], times[1])
            })
            .await
            .unwrap();
        assert!(fast < millis(20) && slow > millis(200), "{fast:?} {slow:?}");
    });
}

#[test]
fn rot_flips_one_bit_that_stays() {
    run_seed(7, |world| async move {
        let node = lone(&world);
        put(node.env().disk().as_ref(), file(), &[0; 100]);
        let offset = node.disk().rot(file()).unwrap().unwrap() as usize;
        for _ in 0..2 {
            let bytes = read(node.env().disk().as_ref(), file());
            assert_eq!(bytes[offset].count_ones(), 1);
            assert_eq!(bytes.iter().map(|b| b.count_ones()).sum::<u32>(), 1);
            node.power_off();
            node.start();
        }
    });
}

#[test]
fn a_disk_can_be_lost_and_come_back_from_a_backup() {
    run_seed(8, |world| async move {
        let node = lone(&world);
        put(node.env().disk().as_ref(), file(), b"one");
        let backup = node.disk().image();
        put(node.env().disk().as_ref(), file(), b"two");
        node.power_off();
        node.disk().wipe().unwrap();
        assert!(!node.start().disk().exists(file()).unwrap());
        node.power_off();
        node.disk().restore(&backup).unwrap();
        assert_eq!(read(node.start().disk().as_ref(), file()), b"one");
        assert_eq!(node.disk().files(), [(file().to_path_buf(), 3)]);
    });
}

#[test]
fn jobs_of_a_dead_node_never_run_and_done_ones_may_go_unheard() {
    let (mut never, mut unheard, mut heard) = (0, 0, 0);
    for seed in 0..60 {
        let (ran, told) = run_seed(seed, |world| async move {
            let node = lone(&world);
            let env = node.env();
            let (ran, told) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (inner_ran, inner_told) = (ran.clone(), told.clone());
            drop(node.spawn(async move {
                let disk = env.disk();
                env.blocking(Pool::Journal, move || {
                    put(disk.as_ref(), file(), b"x");
                    inner_ran.store(1, Ordering::Relaxed);
                })
                .await;
                inner_told.store(1, Ordering::Relaxed);
                pending::<()>().await;
            }));
            world.sleep(millis(world.dice("kill").below(6))).await;
            node.kill();
            let at_death = (ran.load(Ordering::Relaxed), told.load(Ordering::Relaxed));
            world.sleep(secs(5)).await;
            assert_eq!(at_death, (ran.load(Ordering::Relaxed), told.load(Ordering::Relaxed)), "the dead do nothing");
            at_death
        })
        .value;
        match (ran, told) {
            (0, 0) => never += 1,
            (1, 0) => unheard += 1,
            (1, 1) => heard += 1,
            other => panic!("told of a job that did not run: {other:?}"),
        }
    }
    assert!(never > 0 && unheard > 0 && heard > 0, "{never} {unheard} {heard}");
}

#[test]
fn a_stalled_pool_does_not_hold_the_others() {
    run_seed(9, |world| async move {
        let node = lone(&world);
        let slow = vec![(file().to_path_buf(), 1_000_000)];
        node.disk().set_faults(DiskFaults { slow_paths: slow, ..DiskFaults::default() });
        let env = node.env();
        for _ in 0..4 {
            let (env, disk) = (env.clone(), env.disk());
            drop(node.spawn(async move {
                env.blocking(Pool::Journal, move || put(disk.as_ref(), file(), b"x")).await;
            }));
        }
        let fast = env.clone();
        let time = node.spawn(async move {
            fast.sleep(millis(100)).await;
            let before = fast.now();
            fast.blocking(Pool::Foreground, || ()).await;
            let foreground = fast.now().since(before);
            let journal = fast.timeout(secs(10), fast.blocking(Pool::Journal, || ())).await;
            (foreground, journal.is_err())
        });
        let (foreground, stuck) = time.await.unwrap();
        assert!(foreground < millis(10) && stuck, "{foreground:?} {stuck}");
    });
}

#[test]
fn clocks_are_wrong_each_in_its_way() {
    run_seed(10, |world| async move {
        let right = lone(&world);
        let wrong = world.node("wrong", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(right.env().wall(), wrong.env().wall());
        wrong.jump_clock(-3_600_000);
        assert_eq!(right.wall() - wrong.wall(), secs(3600));
        wrong.jump_clock(3_600_000);
        wrong.set_clock_drift(100_000);
        world.sleep(secs(100)).await;
        let ahead = wrong.wall() - right.wall();
        assert!(ahead >= secs(10) && ahead < secs(11), "{ahead:?}");
        wrong.freeze_clock(true);
        let frozen = wrong.wall();
        world.sleep(secs(1)).await;
        assert_eq!(wrong.wall(), frozen);
        assert!(wrong.env().now() > settee::world::Instant(Duration::ZERO));
    });
}

#[test]
fn random_bytes_differ_by_node_and_life_and_repeat_by_seed() {
    let draw = |seed| {
        run_seed(seed, |world| async move {
            let (a, b) = (lone(&world), world.node("b", IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))));
            let first = (a.env().random_u64(), b.env().random_u64());
            a.kill();
            (first.0, first.1, a.start().random_u64())
        })
        .value
    };
    let (a, b, again) = draw(11);
    assert!(a != b && a != again && b != again);
    assert_eq!(draw(11), (a, b, again));
    assert_ne!(draw(12).0, a);
}

#[test]
fn a_paused_node_does_nothing_and_goes_on_later() {
    run_seed(12, |world| async move {
        let node = lone(&world);
        let env = node.env();
        let ticks = Arc::new(AtomicUsize::new(0));
        let counter = ticks.clone();
        drop(node.spawn(async move {
            loop {
                env.sleep(millis(100)).await;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        }));
        world.sleep(secs(1)).await;
        node.pause();
        let before = ticks.load(Ordering::Relaxed);
        world.sleep(secs(10)).await;
        assert_eq!(ticks.load(Ordering::Relaxed), before);
        node.resume();
        world.sleep(secs(1)).await;
        assert!(ticks.load(Ordering::Relaxed) > before + 5);
        node.pause();
        node.kill();
        world.sleep(secs(1)).await;
        assert!(!node.is_up());
    });
}
