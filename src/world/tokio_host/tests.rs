//! Tests of the production host against the operating system itself.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::world::OpenMode;

/// Far beyond what any step here needs; only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn with_env<T, F: Future<Output = T>>(scenario: impl FnOnce(Env) -> F) -> T {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let env = env(runtime.handle().clone());
    runtime.block_on(scenario(env))
}

#[test]
fn streams_carry_bytes_and_half_close() {
    with_env(|env| async move {
        let mut door = env.host().listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let at = door.local_addr().unwrap();
        let server = env.spawn_with(async move {
            let (mut stream, _) = door.accept().await.unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).await.unwrap();
            stream.write_all(&all).await.unwrap();
            all.len()
        });
        let mut client = env.host().connect(at).await.unwrap();
        client.write_all(b"hello").await.unwrap();
        client.shutdown().await.unwrap();
        let mut back = Vec::new();
        client.read_to_end(&mut back).await.unwrap();
        assert_eq!(back, b"hello");
        assert_eq!(server.await, Some(5));
    });
}

#[test]
fn nobody_listens_is_refused() {
    with_env(|env| async move {
        let door = env.host().listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let at = door.local_addr().unwrap();
        drop(door);
        let error = env.host().connect(at).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn timers_and_tasks() {
    with_env(|env| async move {
        let before = env.now();
        env.sleep(Duration::from_millis(5)).await;
        assert!(env.now().since(before) >= Duration::from_millis(5));
        assert!(env.timeout(Duration::from_millis(1), std::future::pending::<()>()).await.is_err());
        let (tx, rx) = tokio::sync::oneshot::channel::<()>();
        let task = env.spawn(async move {
            let _held = tx;
            std::future::pending::<()>().await;
        });
        task.abort();
        assert!(rx.await.is_err(), "an aborted task drops what it holds");
        assert!(env.wall() > Duration::from_secs(1_700_000_000));
    });
}

#[test]
fn pools_do_not_share_threads_and_survive_panics() {
    with_env(|env| async move {
        let (release, gate) = mpsc::channel::<()>();
        let gate = Arc::new(std::sync::Mutex::new(gate));
        for _ in 0..2 {
            let gate = gate.clone();
            env.host().run_blocking(
                Pool::Journal,
                Box::new(move || {
                    let _ = gate.lock().unwrap().recv_timeout(PATIENCE);
                    panic!("a planned panic");
                }),
            );
        }
        let foreground = env.timeout(PATIENCE, env.blocking(Pool::Foreground, thread)).await.unwrap();
        assert!(foreground.starts_with("foreground-"), "{foreground}");
        drop(release);
        // Both journal threads panicked and still work: they may be poisoned, but not lost.
        for _ in 0..4 {
            let journal = env.timeout(PATIENCE, env.blocking(Pool::Journal, thread)).await.unwrap();
            assert!(journal.starts_with("journal-"), "{journal}");
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn threads_that_build_yield_the_processor() {
    let niceness = |env: Env, pool| async move {
        let worker = env.worker(pool, "one", 1 << 20);
        env.run_on(&*worker, || rustix::process::getpriority_process(None).expect("a priority")).await.expect("a job")
    };
    with_env(|env| async move {
        let of_pool = |pool| env.blocking(pool, || rustix::process::getpriority_process(None).expect("a priority"));
        assert!(niceness(env.clone(), Pool::Build).await >= 10 && of_pool(Pool::Build).await >= 10);
        // Their priority is theirs alone.
        let own = rustix::process::getpriority_process(None).expect("a priority");
        assert_eq!(niceness(env.clone(), Pool::Foreground).await, own);
        for pool in [Pool::Journal, Pool::Foreground, Pool::Background] {
            assert_eq!(of_pool(pool).await, own, "{pool:?}");
        }
    });
}

#[test]
fn random_bytes_differ() {
    with_env(|env| async move {
        assert_ne!(env.random_bytes::<32>(), env.random_bytes::<32>());
    });
}

#[test]
fn disk_keeps_content_and_names() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let disk = OsDisk;
    let sub = root.join("a/b");
    disk.create_dir_all(&sub).unwrap();
    disk.create_dir_all(&sub).unwrap();
    let path = sub.join("file");
    assert_eq!(disk.open(&path, OpenMode::Read).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(disk.open(&path, OpenMode::Write).unwrap_err().kind(), ErrorKind::NotFound);
    let file = disk.open(&path, OpenMode::CreateNew).unwrap();
    assert_eq!(disk.open(&path, OpenMode::CreateNew).unwrap_err().kind(), ErrorKind::AlreadyExists);
    file.write_at(3, b"abc").unwrap();
    file.sync().unwrap();
    assert_eq!(file.len().unwrap(), 6);
    let mut buffer = [9; 6];
    file.read_at(0, &mut buffer).unwrap();
    assert_eq!(&buffer, b"\0\0\0abc");
    assert_eq!(file.read_at(1, &mut buffer).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    file.set_len(4).unwrap();
    assert_eq!(disk.open(&path, OpenMode::Create).unwrap().len().unwrap(), 4);
    disk.sync_dir(&sub).unwrap();
    disk.rename(&path, &sub.join("other")).unwrap();
    assert!(!disk.exists(&path).unwrap());
    disk.create_dir_all(&sub.join("dir")).unwrap();
    let names: Vec<_> = disk.list(&sub).unwrap().into_iter().map(|e| (e.name, e.is_dir, e.len)).collect();
    assert_eq!(names, [("dir".to_string(), true, 0), ("other".to_string(), false, 4)]);
    disk.remove(&sub.join("other")).unwrap();
    assert_eq!(disk.remove(&sub.join("other")).unwrap_err().kind(), ErrorKind::NotFound);
    disk.remove_dir_all(&sub).unwrap();
    disk.remove_dir_all(&sub).unwrap();
    assert!(!disk.exists(&sub).unwrap());
}

#[test]
fn a_lock_is_exclusive_until_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let path: &Path = &dir.path().join("lock");
    let held = OsDisk.lock(path).unwrap();
    assert_eq!(OsDisk.lock(path).err().unwrap().kind(), ErrorKind::WouldBlock);
    drop(held);
    assert!(OsDisk.lock(path).is_ok());
}

fn thread() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

#[test]
fn a_inline_job_runs_where_it_is_asked_for_if_tasks_can_go_elsewhere() {
    let named = |env: Env| async move { (thread(), env.inline(thread).await) };
    let (own, ran_on) = with_env(|env| async move { env.spawn_with(named(env.clone())).await }).unwrap();
    assert_eq!(own, ran_on);
    let small = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_, ran_on) = small.block_on(named(env(small.handle().clone())));
    assert!(ran_on.starts_with("foreground-"), "{ran_on}");
}

#[test]
fn tasks_go_on_while_a_inline_job_waits() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let env = env(runtime.handle().clone());
    let ((begun, begins), (release, gate)) = (tokio::sync::oneshot::channel(), mpsc::channel());
    let own = env.clone();
    let waited = env.spawn_with(async move {
        own.inline(move || {
            begun.send(()).unwrap();
            super::super::waiting(|| gate.recv_timeout(PATIENCE))
        })
        .await
    });
    // Of the one thread that tasks have here.
    let other = env.spawn_with(async move {
        begins.await.unwrap();
        release.send(7).unwrap();
    });
    assert_eq!(runtime.block_on(waited), Some(Ok(7)));
    assert_eq!(runtime.block_on(other), Some(()));
}

#[test]
fn a_inline_job_reads_what_any_other_does() {
    let dir = tempfile::tempdir().unwrap();
    let file = OsDisk.open(&dir.path().join("file"), OpenMode::Create).unwrap();
    file.write_at(0, b"abcdef").unwrap();
    with_env(|env| async move {
        let read = move || {
            let (mut some, mut all) = ([0; 3], [0; 6]);
            file.read_at(2, &mut some).unwrap();
            (some, file.read_at(1, &mut all).unwrap_err().kind(), inline::is_here())
        };
        assert_eq!(env.inline(read).await, (*b"cde", ErrorKind::UnexpectedEof, true));
    });
}

#[test]
fn a_worker_that_panics_counts_a_failure_and_is_started_again() {
    with_env(|env| async move {
        let (lives, (done, ended)) = (Arc::new(AtomicUsize::new(0)), mpsc::channel());
        let of = Arc::clone(&lives);
        env.spawn_worker("planned", "nothing", move |worker| {
            let (life, done) = (of.fetch_add(1, Ordering::SeqCst), done.clone());
            async move {
                let _run = worker.begin();
                assert!(life > 0, "a planned panic");
                done.send(()).unwrap();
            }
        });
        env.blocking(Pool::Foreground, move || ended.recv_timeout(PATIENCE)).await.unwrap();
        assert_eq!(lives.load(Ordering::SeqCst), 2);
        let state = env.metrics().workers().states().pop().unwrap();
        assert_eq!(state.failures, 1);
        assert_eq!(state.last_error.as_deref(), Some("it panicked, and was started again"));
    });
}
