//! Pages of one answer while rows change: all are of the state of the first one, or fail.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::sync::watch;

use super::*;
use crate::limits;
use crate::observe::metrics::Gauge;
use crate::world::{Abort, BoxStream, Budget, Disk, Host, Instant, Job, Listener, Pool, Worker};

/// The production host, with a clock that the test moves.
struct ByHand {
    below: Env,
    moved: watch::Sender<Duration>,
}

impl ByHand {
    fn new() -> Arc<ByHand> {
        let below = tokio_host::env(tokio::runtime::Handle::current());
        Arc::new(ByHand { below, moved: watch::Sender::new(Duration::ZERO) })
    }

    fn pass(&self, time: Duration) {
        self.moved.send_modify(|moved| *moved += time);
    }

    /// Waits until so many wait for time to pass. Where a state is held, one of them is the task that looks for those
    /// whose time is over.
    async fn sleeps(&self, count: usize) {
        while self.moved.receiver_count() < count {
            tokio::task::yield_now().await;
        }
    }
}

impl Host for ByHand {
    fn connect(&self, to: SocketAddr) -> BoxFuture<'static, io::Result<BoxStream>> {
        self.below.host().connect(to)
    }
    fn listen(&self, at: SocketAddr) -> BoxFuture<'static, io::Result<Box<dyn Listener>>> {
        self.below.host().listen(at)
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let (mut moved, until) = (self.moved.subscribe(), *self.moved.borrow() + duration);
        Box::pin(async move { drop(moved.wait_for(|moved| *moved >= until).await) })
    }
    fn monotonic(&self) -> Instant {
        Instant(*self.moved.borrow())
    }
    fn wall(&self) -> Duration {
        self.below.wall()
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> Box<dyn Abort> {
        self.below.host().spawn(task)
    }
    fn run_blocking(&self, pool: Pool, job: Job) {
        self.below.host().run_blocking(pool, job);
    }
    fn worker(&self, pool: Pool, name: &str, stack_bytes: usize) -> Arc<dyn Worker> {
        self.below.worker(pool, name, stack_bytes)
    }
    fn budget(&self, limit: Duration) -> Budget {
        self.below.budget(limit)
    }
    fn random(&self, buffer: &mut [u8]) {
        self.below.host().random(buffer);
    }
    fn disk(&self) -> Arc<dyn Disk> {
        self.below.disk()
    }
}

/// An index of documents with ten keys, each with the number 1, and who writes to it.
struct Written {
    host: Arc<ByHand>,
    env: Env,
    replica: ShardReplica,
    index: ViewIndex,
    revs: Vec<Revision>,
    _dir: tempfile::TempDir,
}

const KEYS: usize = 10;
/// Documents: each is in all groups.
const DOCS: usize = 4;

impl Written {
    /// Of `engine`, where so many states may be held.
    async fn new(engine: Engine, most: usize) -> Written {
        let (dir, host) = (tempfile::tempdir().unwrap(), ByHand::new());
        let env = Env::new(Arc::clone(&host) as Arc<dyn Host>);
        let storage = storage(&dir, engine).await;
        let replica = ShardReplica::open(&storage, ShardId(20)).await.unwrap();
        let indexes = Indexes { states: Arc::new(HeldStates::with(&env, most)), ..Indexes::new(storage.env()) };
        let index = indexes.view(&replica, &definition("a"), &(Arc::new(Keys) as Arc<dyn Mapper>), Subject::default());
        let mut written = Written { host, env, replica, index, revs: Vec::new(), _dir: dir };
        for n in 0..DOCS {
            let rev = put(&written.replica, &format!("d{n}"), &body(1), None, false).await;
            written.revs.push(rev);
        }
        written.index.update().await.unwrap();
        written
    }

    /// Gives all documents another number, in the index, too.
    async fn write(&mut self, value: u64) {
        for (n, rev) in self.revs.iter_mut().enumerate() {
            *rev = put(&self.replica, &format!("d{n}"), &body(value), Some(rev.clone()), false).await;
        }
        self.index.update().await.unwrap();
    }

    async fn page(&self, rest: VecDeque<Places>, of: StateOf) -> Result<GroupPage, IndexError> {
        let by = GroupBy { grouping: Grouping::Exact, reduce: Reduce::Sum, direction: Direction::Forward, prefix: 0 };
        self.index.groups(&by, rest, 3, of).await
    }

    async fn first(&self) -> GroupPage {
        self.page([Places::all(b"")].into(), first(self.env.random_u64())).await.unwrap()
    }

    fn held(&self) -> u64 {
        self.env.metrics().level(Gauge::StatesHeld)
    }
}

/// Of an answer that is read to its end.
fn first(number: u64) -> StateOf {
    StateOf::First(Hold { number, more: false, enough: false })
}

fn body(value: u64) -> String {
    let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
    format!(r#"{{"keys":[{}],"n":{value}}}"#, keys.join(","))
}

fn sums(page: GroupPage) -> Vec<String> {
    page.groups.into_iter().map(|group| String::from_utf8(group.sum.finish().to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn groups_of_all_pages_are_of_the_state_of_the_first_one_whatever_is_written_between_them() {
    for engine in [Engine::Memory, Engine::Redb] {
        let mut written = Written::new(engine, 8).await;
        let (mut page, mut found) = (written.first().await, Vec::new());
        let number = page.held.expect("more pages follow");
        for value in 2.. {
            let rest = std::mem::take(&mut page.rest);
            found.extend(sums(page));
            if rest.is_empty() {
                break;
            }
            written.write(value).await;
            // Another query keeps sums of blocks of the state that there is now.
            let now = written.page([Places::all(b"")].into(), StateOf::Now).await.unwrap();
            assert_eq!(sums(now), vec![(DOCS as u64 * value).to_string(); 3]);
            page = written.page(rest, StateOf::Held(number)).await.unwrap();
        }
        assert_eq!(found, vec![DOCS.to_string(); KEYS], "{engine:?}");
        // What the older state was read of is nowhere in what is kept.
        let now = written.page([Places::all(b"")].into(), StateOf::Now).await.unwrap();
        assert_eq!(sums(now), vec![(DOCS * 4).to_string(); 3]);
        assert_eq!(written.held(), 1);
        written.index.release(number);
        assert_eq!(written.held(), 0);
    }
}

#[tokio::test]
async fn rows_of_all_pages_are_of_the_state_of_the_first_one() {
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut written = Written::new(Engine::Redb, 8).await;
        let mut page = written.index.rows([Places::all(b"")].into(), direction, 7, first(1)).await.unwrap();
        let (number, mut found) = (page.held.expect("more pages follow"), Vec::new());
        for value in 2.. {
            found.extend(page.rows.iter().map(|row| String::from_utf8(row.value.to_vec()).unwrap()));
            if page.rest.is_empty() {
                break;
            }
            written.write(value).await;
            page = written.index.rows(page.rest, direction, 7, StateOf::Held(number)).await.unwrap();
        }
        assert_eq!(found, vec!["1"; DOCS * KEYS]);
    }
}

#[tokio::test]
async fn a_state_is_held_where_a_page_may_follow_and_nowhere_else() {
    let written = Written::new(Engine::Memory, 8).await;
    let all = || VecDeque::from([Places::all(b"")]);
    let held = async |more: bool, enough: bool, limit: usize| {
        let by = GroupBy { grouping: Grouping::Exact, reduce: Reduce::Count, direction: Direction::Forward, prefix: 0 };
        written
            .index
            .groups(&by, all(), limit, StateOf::First(Hold { number: written.env.random_u64(), more, enough }))
            .await
            .unwrap()
            .held
            .is_some()
    };
    assert!(held(false, false, 3).await && held(true, false, KEYS).await && held(true, true, KEYS + 1).await);
    assert!(!held(false, false, KEYS + 1).await && !held(false, true, 3).await && !held(true, true, 3).await);
    assert!(written.page(all(), StateOf::Now).await.unwrap().held.is_none());
    assert_eq!(written.held(), 3);
}

#[tokio::test]
async fn who_finds_no_room_waits_until_a_state_is_given_back_and_is_refused_in_the_end() {
    let written = Written::new(Engine::Memory, 2).await;
    let (one, _two) = (written.first().await, written.first().await);
    let release = async {
        written.host.sleeps(2).await;
        assert_eq!(written.held(), 2);
        written.index.release(one.held.unwrap());
    };
    let (third, ()) = tokio::join!(written.first(), release);
    assert!(third.held.is_some() && written.held() == 2);
    let time = async {
        written.host.sleeps(2).await;
        written.host.pass(limits::HELD_STATE_WAIT);
    };
    let (refused, ()) = tokio::join!(written.page([Places::all(b"")].into(), first(7)), time);
    assert_eq!(refused.unwrap_err(), IndexError::StatesFull);
    assert_eq!(written.held(), 2);
}

/// All of them read their page again whenever there was room for one.
#[tokio::test]
async fn who_has_waited_for_room_has_a_place_of_its_own_and_the_others_wait_on() {
    let written = Arc::new(Written::new(Engine::Memory, 1).await);
    let mut last = written.first().await.held.unwrap();
    let ask = |written: Arc<Written>| tokio::spawn(async move { written.first().await.held.unwrap() });
    let mut others: Vec<_> = (0..4).map(|_| ask(Arc::clone(&written))).collect();
    // One of those that sleep looks for states whose time is over.
    written.host.sleeps(5).await;
    others.remove(1).abort();
    for left in (0..3).rev() {
        written.index.release(last);
        let (held, _, waiting) = select_all(others).await;
        (last, others) = (held.unwrap(), waiting);
        written.host.sleeps(left + 1).await;
        assert_eq!((others.len(), written.held(), written.index.states.reserved()), (left, 1, 0));
    }
}

#[tokio::test]
async fn a_state_that_nobody_reads_is_given_up_and_one_that_is_read_in_the_end() {
    let written = Written::new(Engine::Memory, 8).await;
    let (idle, read) = (written.first().await, written.first().await);
    let (idle_number, number) = (idle.held.unwrap(), read.held.unwrap());
    let page = |number: u64| written.page(read.rest.clone(), StateOf::Held(number));
    // The task that looks for those whose time is over has begun.
    written.host.sleeps(1).await;
    let step = limits::HELD_STATE_IDLE * 2 / 3;
    written.host.pass(step);
    assert_eq!(sums(page(number).await.unwrap()), vec!["4"; 3]);
    written.host.pass(step);
    assert_eq!(page(idle_number).await.unwrap_err(), IndexError::StateGone);
    page(number).await.unwrap();
    // The task that looks for them ends it without anybody asking.
    while written.held() > 1 {
        tokio::task::yield_now().await;
    }
    let mut passed = step * 2;
    while passed + step < limits::HELD_STATE_TOTAL {
        page(number).await.unwrap();
        written.host.pass(step);
        passed += step;
    }
    written.host.pass(step);
    assert_eq!(page(number).await.unwrap_err(), IndexError::StateGone);
    while written.held() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(page(number + 1).await.unwrap_err(), IndexError::StateGone, "of a number that never was");
}

#[tokio::test]
async fn states_are_given_up_for_a_disk_without_room_unless_they_are_young() {
    let written = Written::new(Engine::Memory, 8).await;
    let old = written.first().await;
    written.host.pass(limits::HELD_STATE_SCARCE);
    let young = written.first().await;
    written.index.states.give_up_for_room();
    let page = |page: GroupPage| written.page(page.rest, StateOf::Held(page.held.unwrap()));
    assert_eq!(page(old).await.unwrap_err(), IndexError::StateGone);
    page(young).await.unwrap();
}

/// Its rows are what they were, though it has no index any more.
#[tokio::test]
async fn an_index_that_is_removed_leaves_what_is_held_of_it() {
    let written = Written::new(Engine::Redb, 8).await;
    let page = written.first().await;
    let indexes = Indexes::new(&written.env);
    indexes.clean_up(&written.replica, &BTreeSet::new()).await.unwrap();
    let next = written.page(page.rest, StateOf::Held(page.held.unwrap())).await.unwrap();
    assert_eq!(sums(next), vec!["4"; 3]);
}

#[tokio::test]
async fn a_number_that_was_given_back_or_is_held_takes_no_state() {
    let mut written = Written::new(Engine::Memory, 8).await;
    let all = || VecDeque::from([Places::all(b"")]);
    // Its asker went while the first page was read.
    written.index.release(5);
    assert_eq!(written.page(all(), first(5)).await.unwrap_err(), IndexError::StateGone);
    assert_eq!(written.held(), 0);
    let page = written.page(all(), first(6)).await.unwrap();
    written.write(2).await;
    // The same call, a second time.
    assert_eq!(written.page(all(), first(6)).await.unwrap_err(), IndexError::StateGone);
    assert_eq!(sums(written.page(page.rest, StateOf::Held(6)).await.unwrap()), vec!["4"; 3]);
}
