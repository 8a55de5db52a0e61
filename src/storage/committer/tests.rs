//! The committer over a store in memory that counts, and fails on demand.

use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use super::*;
use crate::storage::memory::MemoryStore;
use crate::storage::{KeyRange, View};
use crate::world::tokio_host;

/// Counts commits and fails them on demand.
#[derive(Default)]
struct Watched {
    store: MemoryStore,
    commits: AtomicUsize,
    broken: AtomicBool,
    /// No more files can be open.
    full: AtomicBool,
}

/// A shard whose jobs are refused.
const REFUSED: u64 = 7;

impl Store for Watched {
    fn view(&self) -> Result<Box<dyn View + '_>, StorageError> {
        self.store.view()
    }

    fn commit(&self, batch: &Batch) -> Result<(), StorageError> {
        if self.broken.load(Ordering::SeqCst) {
            return Err(StorageError::Io("no space".into()));
        }
        self.commits.fetch_add(1, Ordering::SeqCst);
        self.store.commit(batch)
    }

    fn prepare(&self) -> Result<(), StorageError> {
        if self.full.load(Ordering::SeqCst) { Err(no_files()) } else { Ok(()) }
    }

    fn refuses(&self, shard: u64) -> Option<StorageError> {
        (shard == REFUSED).then(damaged)
    }

    fn file_bytes(&self) -> u64 {
        0
    }
}

fn no_files() -> StorageError {
    StorageError::NoFiles("24".into())
}

fn damaged() -> StorageError {
    StorageError::Corrupt("a file".into())
}

fn start() -> (Arc<Watched>, Committer) {
    let env = tokio_host::env(tokio::runtime::Handle::current());
    let store = Arc::new(Watched::default());
    (Arc::clone(&store), Committer::start(&env, store))
}

/// Adds one to the number under `key`, which must not reach `limit`.
async fn count_up(
    committer: Committer,
    key: &'static [u8],
    limit: u8,
) -> Result<Result<u8, &'static str>, CommitError> {
    committer
        .submit(move |view| {
            let next = view.get(key)?.map_or(1, |v| v[0] + 1);
            view.put(key.to_vec(), vec![next]);
            Ok(if next < limit { Ok(next) } else { Err("limit") })
        })
        .await
}

#[tokio::test]
async fn jobs_see_those_before_them_and_share_commits() {
    let (store, committer) = start();
    let jobs = (0..100).map(|_| count_up(committer.clone(), b"n", 101));
    let mut done: Vec<u8> =
        futures_util::future::join_all(jobs).await.into_iter().map(|r| r.unwrap().unwrap()).collect();
    done.sort_unstable();
    assert_eq!(done, (1..=100).collect::<Vec<u8>>());
    let commits = store.commits.load(Ordering::SeqCst);
    assert!(commits < 100, "{commits} commits for 100 jobs");
}

#[tokio::test]
async fn a_job_that_decides_against_itself_leaves_nothing() {
    let (store, committer) = start();
    assert_eq!(count_up(committer.clone(), b"n", 1).await, Ok(Err("limit")));
    assert_eq!(store.commits.load(Ordering::SeqCst), 0);
    let damaged: Result<Result<(), ()>, _> = committer
        .submit(|view| {
            view.put(vec![1], vec![1]);
            Err(StorageError::Corrupt("x".into()))
        })
        .await;
    assert_eq!(damaged, Err(CommitError::Storage(StorageError::Corrupt("x".into()))));
    assert_eq!(count_up(committer.clone(), b"n", 9).await, Ok(Ok(1)));
    assert!(!committer.writes_stopped());
    let mut keys = 0;
    let all = KeyRange::prefix(b"");
    let mut visit = |_: &[u8], _: &[u8]| {
        keys += 1;
        std::ops::ControlFlow::Continue(())
    };
    store.view().unwrap().scan(&all, crate::storage::Direction::Forward, &mut visit).unwrap();
    assert_eq!(keys, 1);
}

#[tokio::test]
async fn a_queued_job_runs_although_nobody_waits_for_it() {
    let (_store, committer) = start();
    {
        let mut forgotten = Box::pin(count_up(committer.clone(), b"n", 9));
        // One poll puts it into the queue; then its caller goes away.
        assert!(futures_util::FutureExt::now_or_never(&mut forgotten).is_none());
    }
    assert_eq!(count_up(committer.clone(), b"n", 9).await, Ok(Ok(2)));
}

#[tokio::test]
async fn a_failed_commit_stops_all_writes_for_good() {
    let (store, committer) = start();
    store.broken.store(true, Ordering::SeqCst);
    assert_eq!(count_up(committer.clone(), b"n", 9).await, Err(CommitError::Unknown));
    assert!(committer.writes_stopped());
    store.broken.store(false, Ordering::SeqCst);
    assert_eq!(count_up(committer.clone(), b"n", 9).await, Err(CommitError::Stopped));
    assert_eq!(store.commits.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn too_many_open_files_refuse_what_is_queued_before_it_runs_and_stop_nothing() {
    let (store, committer) = start();
    store.full.store(true, Ordering::SeqCst);
    let (ran, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&ran);
    let refused: Result<Result<(), ()>, _> = committer
        .submit(move |_| {
            flag.store(true, Ordering::SeqCst);
            Ok(Ok(()))
        })
        .await;
    assert_eq!(refused, Err(CommitError::Storage(no_files())));
    assert!(!ran.load(Ordering::SeqCst) && !committer.writes_stopped());
    store.full.store(false, Ordering::SeqCst);
    // Nor does a job that cannot open what it reads.
    let flag = Arc::clone(&seen);
    let unread: Result<Result<(), ()>, _> = committer
        .submit(move |view| {
            view.put(vec![1], vec![1]);
            flag.store(true, Ordering::SeqCst);
            Err(no_files())
        })
        .await;
    assert_eq!(unread, Err(CommitError::Storage(no_files())));
    assert!(seen.load(Ordering::SeqCst) && !committer.writes_stopped());
    assert_eq!(count_up(committer.clone(), b"n", 9).await, Ok(Ok(1)));
}

#[tokio::test]
async fn a_refused_shard_has_its_own_jobs_refused_and_no_others() {
    let (_store, committer) = start();
    let put = |shard: u64| {
        let job = move |view: &mut WriteView<'_>| {
            view.put(vec![shard as u8], vec![1]);
            Ok(Ok::<u64, ()>(shard))
        };
        committer.submit_to(Some(shard), job)
    };
    let (refused, other) = tokio::join!(put(REFUSED), put(8));
    assert_eq!((refused, other), (Err(CommitError::Storage(damaged())), Ok(Ok(8))));
    assert_eq!(put(9).await, Ok(Ok(9)));
    assert!(!committer.writes_stopped());
}

#[tokio::test]
async fn hooks_run_after_the_commit_and_before_the_answer() {
    let (store, committer) = start();
    let order = Arc::new(Mutex::new(Vec::new()));
    let (seen, watched) = (Arc::clone(&order), Arc::clone(&store));
    let done: Result<Result<(), ()>, _> = committer
        .submit(move |view| {
            view.put(vec![1], vec![1]);
            view.after_commit(move || seen.lock().unwrap().push(watched.commits.load(Ordering::SeqCst)));
            Ok(Ok(()))
        })
        .await;
    assert_eq!(done, Ok(Ok(())));
    assert_eq!(*order.lock().unwrap(), vec![1]);
}
