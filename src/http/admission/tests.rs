//! Fairness, bounds, and clients that leave.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;

use super::queue::{Bounds, Full, Queue, RequestOwner};
use super::{Admission, AdmissionClass, Pass};
use crate::config::{Config, Setting};
use crate::observe::metrics::{Counter, Gauge, Histogram};
use crate::world::cost::Cost;
use crate::world::{Env, Instant, tokio_host};

fn bounds(turns: usize, stalled: usize, queue: usize) -> Bounds {
    Bounds { turns, stalled, queue, wait: Duration::from_secs(10) }
}

fn caller(client: u64, database: u64) -> RequestOwner {
    RequestOwner { client, database }
}

type Names = Queue<&'static str>;

fn begin(queue: &mut Names, caller: RequestOwner) -> Option<u64> {
    queue.try_begin(caller, &Arc::default(), at(0))
}

fn wait(queue: &mut Names, caller: RequestOwner, name: &'static str) -> Result<u64, Full> {
    queue.wait((caller, &Arc::default()), false, name, at(0))
}

fn at(ms: u64) -> Instant {
    Instant(Duration::from_millis(ms))
}

/// The grants of all that may start, in order.
fn start(queue: &mut Names, now: Instant) -> Vec<&'static str> {
    std::iter::from_fn(|| queue.start_next(now).map(|(_, grant)| grant)).collect()
}

#[test]
fn a_client_that_floods_leaves_others_their_turns() {
    let mut queue = Queue::new(bounds(8, 0, 100));
    let flood = caller(1, 1);
    let turns: Vec<u64> = std::iter::from_fn(|| begin(&mut queue, flood)).collect();
    assert_eq!(turns.len(), 7, "one is kept");
    for _ in 0..20 {
        wait(&mut queue, flood, "flood").unwrap();
    }
    let modest = begin(&mut queue, caller(2, 2));
    assert!(modest.is_some() && begin(&mut queue, caller(2, 2)).is_none());
    wait(&mut queue, caller(2, 2), "modest").unwrap();
    assert!(start(&mut queue, at(0)).is_empty());
    // The one that has less than its half is next, although others came before, and the kept turn stays.
    for id in &turns[..3] {
        queue.end(*id);
    }
    assert_eq!(start(&mut queue, at(0)), ["modest", "flood"]);
    assert_eq!(queue.counts(), (19, 7));
}

#[test]
fn databases_of_one_client_and_clients_of_one_database_are_served_in_turn() {
    let mut queue = Queue::new(bounds(1, 0, 100));
    let first = begin(&mut queue, caller(9, 9)).unwrap();
    for (client, database, name) in
        [(1, 1, "a1"), (1, 1, "a2"), (1, 1, "a3"), (1, 2, "b1"), (1, 2, "b2"), (2, 1, "c1"), (3, 3, "d1")]
    {
        wait(&mut queue, caller(client, database), name).unwrap();
    }
    let mut order = Vec::new();
    let mut turn = Some(first);
    while let Some(id) = turn.take() {
        queue.end(id);
        if let Some((id, name)) = queue.start_next(at(0)) {
            order.push(name);
            turn = Some(id);
        }
    }
    assert_eq!(order, ["a1", "b1", "c1", "d1", "a2", "b2", "a3"]);
    assert_eq!(queue.counts(), (0, 0));
}

#[test]
fn the_queue_is_bounded_and_no_client_has_all_of_it() {
    let mut queue = Queue::new(bounds(1, 0, 8));
    begin(&mut queue, caller(9, 9)).unwrap();
    for _ in 0..6 {
        wait(&mut queue, caller(1, 1), "").unwrap();
    }
    assert_eq!(wait(&mut queue, caller(1, 2), ""), Err(Full::Own), "in another database, too");
    for client in [2, 3] {
        wait(&mut queue, caller(client, 1), "").unwrap();
    }
    assert_eq!(wait(&mut queue, caller(4, 1), ""), Err(Full::All));
    // An answer that has begun goes on, ahead of the others of its caller.
    queue.wait((caller(1, 1), &Arc::default()), true, "page 1", at(0)).unwrap();
    queue.wait((caller(1, 1), &Arc::default()), true, "page 2", at(0)).unwrap();
    queue.bounds.turns = 100;
    let started = start(&mut queue, at(0));
    assert_eq!(started.iter().filter(|name| !name.is_empty()).collect::<Vec<_>>(), [&"page 1", &"page 2"]);
    assert_eq!((started.len(), started[0]), (10, "page 1"));
}

#[test]
fn a_request_that_makes_no_progress_makes_way_and_only_so_many_do() {
    let mut queue = Queue::new(bounds(2, 1, 8));
    let (scan, blocked) = (Arc::<Cost>::default(), Arc::<Cost>::default());
    queue.try_begin(caller(1, 1), &scan, at(0)).unwrap();
    let second = queue.try_begin(caller(2, 1), &blocked, at(0)).unwrap();
    for (client, name) in [(3, "third"), (4, "fourth")] {
        wait(&mut queue, caller(client, 1), name).unwrap();
    }
    assert!(start(&mut queue, at(499)).is_empty());
    scan.answered(1);
    assert_eq!(start(&mut queue, at(500)), ["third"]);
    assert!(start(&mut queue, at(5_000)).is_empty(), "one is stalled already");
    queue.end(second);
    assert!(start(&mut queue, at(5_499)).is_empty());
    // One of the other two takes its place.
    assert_eq!(start(&mut queue, at(5_500)), ["fourth"]);
    assert_eq!(queue.counts(), (0, 2));
}

/// The turn of `turn` ends, and the request that is next gets it.
fn next(queue: &mut Names, turn: &mut u64, now: u64) -> &'static str {
    assert!(queue.end(*turn));
    let (id, name) = queue.start_next(at(now)).unwrap();
    *turn = id;
    name
}

#[test]
fn once_a_client_gave_up_no_more_wait_than_are_served_in_time_and_the_latest_of_more_goes_first() {
    let mut queue = Queue::new(bounds(1, 0, 8));
    let mut turn = begin(&mut queue, caller(1, 1)).unwrap();
    let ids = ["a", "b", "c", "d", "e", "f"].map(|name| wait(&mut queue, caller(1, 1), name).unwrap());
    assert_eq!(next(&mut queue, &mut turn, 1_000), "a");
    assert!(!queue.leave(caller(1, 1), ids[0], Some(at(2_000))), "it has its turn");
    assert_eq!(next(&mut queue, &mut turn, 2_000), "b", "however long it waited");
    assert!(queue.leave(caller(1, 1), ids[2], Some(at(2_000))));
    assert!(!queue.leave(caller(1, 1), ids[2], Some(at(2_000))));
    assert_eq!(wait(&mut queue, caller(1, 1), "refused"), Err(Full::Own), "three seconds, of clients with two");
    assert!(wait(&mut queue, caller(1, 2), "of another database").is_ok());
    assert_eq!(next(&mut queue, &mut turn, 3_000), "f");
    queue.wait((caller(1, 1), &Arc::default()), true, "page", at(0)).unwrap();
    assert_eq!(next(&mut queue, &mut turn, 3_000), "of another database");
    assert_eq!(next(&mut queue, &mut turn, 3_000), "page", "an answer that has begun");
    assert_eq!(next(&mut queue, &mut turn, 4_000), "d", "two can be served in time");
    assert_eq!(next(&mut queue, &mut turn, 5_000), "e");
    assert_eq!(wait(&mut queue, caller(1, 1), "none waits any more").map(drop), Ok(()));
}

#[test]
fn a_client_that_waited_for_a_moment_or_less_than_another_tells_nothing_of_the_patience_of_others() {
    let mut queue = Queue::new(bounds(1, 0, 8));
    let mut turn = begin(&mut queue, caller(1, 1)).unwrap();
    for (name, came) in [("a", 0), ("b", 0), ("c", 2_000), ("d", 3_000), ("e", 3_000), ("f", 3_000)] {
        queue.wait((caller(1, 1), &Arc::default()), false, name, at(came)).unwrap();
    }
    assert_eq!([1_000, 2_000].map(|now| next(&mut queue, &mut turn, now)), ["a", "b"]);
    queue.give_up(caller(1, 1), at(2_500), at(4_000));
    queue.give_up(caller(1, 1), at(3_500), at(4_000));
    queue.give_up(caller(1, 1), at(1_500), at(2_499));
    assert_eq!(next(&mut queue, &mut turn, 4_000), "c");
    queue.give_up(caller(1, 1), at(2_500), at(4_000));
    assert_eq!(next(&mut queue, &mut turn, 4_000), "f", "one gave up while its request worked");
}

/// 400 answers a second, ten times as many requests, clients that give up after two seconds: once the first of them
/// did, nobody waits in vain. What cannot be served in time is refused.
#[test]
fn clients_that_give_up_do_not_keep_others_from_their_answers() {
    let mut queue: Queue<usize> = Queue::new(bounds(8, 0, 2_048));
    let mut working = std::collections::VecDeque::new();
    let mut waiting = std::collections::VecDeque::new();
    let (mut in_time, mut served, mut given_up) = (0, 0, 0);
    for step in 0..4_000 * 10 {
        let now = step / 4;
        let came = usize::try_from(now).unwrap();
        match queue.try_begin(caller(1, 1), &Arc::default(), at(now)) {
            Some(id) => working.push_back(id),
            None => {
                let id = queue.wait((caller(1, 1), &Arc::default()), false, came, at(now));
                waiting.extend(id.map(|id| (now, id)));
            }
        }
        while let Some((came, id)) = waiting.front().copied()
            && came + 2_000 <= now
        {
            waiting.pop_front();
            given_up += usize::from(queue.leave(caller(1, 1), id, Some(at(now))) && now > 5_000);
        }
        if step % 10 == 0
            && let Some(id) = working.pop_front()
        {
            queue.end(id);
        }
        while let Some((id, came_at)) = queue.start_next(at(now)) {
            working.push_back(id);
            if now > 5_000 {
                served += 1;
                in_time += usize::from(came - came_at < 1_100);
            }
        }
    }
    assert!(served > 1_900 && in_time * 100 > served * 99, "{in_time} of {served}");
    assert_eq!(given_up, 0);
}

/// Each of 500 connections sends its next request when it has its answer, and each second another client gives up
/// sooner than it could be served: nobody else waits longer than a round takes.
#[test]
fn clients_that_send_after_each_answer_are_all_served_although_others_give_up() {
    let mut queue: Queue<usize> = Queue::new(bounds(8, 0, 2_048));
    let mut came = vec![0; 500];
    let mut working = std::collections::VecDeque::new();
    for connection in 0..came.len() {
        match queue.try_begin(caller(1, 1), &Arc::default(), at(0)) {
            Some(id) => working.push_back((id, connection)),
            None => {
                queue.wait((caller(1, 1), &Arc::default()), false, connection, at(0)).unwrap();
            }
        }
    }
    let (mut longest, mut impatient) = (0, None);
    for now in (10..60_000).step_by(10) {
        if now % 1_000 == 0 {
            impatient = queue.wait((caller(1, 1), &Arc::default()), false, usize::MAX, at(now)).ok();
        }
        if now % 2_000 == 1_500 {
            impatient.take().map(|id| queue.leave(caller(1, 1), id, Some(at(now))));
        }
        let (id, connection) = working.pop_front().unwrap();
        queue.end(id);
        if let Some(came) = came.get_mut(connection) {
            queue.wait((caller(1, 1), &Arc::default()), false, connection, at(now)).unwrap();
            *came = now;
        }
        while let Some((id, connection)) = queue.start_next(at(now)) {
            longest = longest.max(came.get(connection).map_or(0, |came| now - came));
            working.push_back((id, connection));
        }
    }
    assert!((4_000..6_000).contains(&longest), "{longest} ms");
}

/// Runs with admission where one query works at once and two wait, for 50 ms.
fn with_admission<F: Future<Output = ()>>(test: impl FnOnce(Env, Arc<Admission>, Config) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let env = tokio_host::env(runtime.handle().clone());
    let settings = ["queries=1", "queue=4", "wait_ms=50"].map(|s| Setting::parse(&format!("admission/{s}")).unwrap());
    let config = Config::in_memory(&env, settings.to_vec());
    let admission = Admission::new(&env, &config);
    runtime.block_on(test(env, admission, config));
}

fn pass(admission: &Arc<Admission>, client: u64) -> Pass {
    Pass {
        admission: Arc::clone(admission),
        class: AdmissionClass::Queries,
        caller: caller(client, 1),
        cost: Arc::default(),
    }
}

#[test]
fn who_has_no_turn_in_time_is_told_to_come_back_and_who_has_many_places_has_less() {
    with_admission(|env, admission, _| async move {
        let turn = pass(&admission, 1).turn().await.ok().unwrap();
        let late = pass(&admission, 1).turn().await.err().unwrap();
        assert_eq!((late.status.as_u16(), late.headers[0].1.to_str().unwrap()), (503, "1"));
        let own = pass(&admission, 1);
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(own.turn())).collect();
        assert!(waiting.iter_mut().all(|turn| turn.now_or_never_by_ref().is_none()));
        assert_eq!(env.metrics().level(Gauge::QueriesWaiting), 3);
        let beyond = own.turn().await.err().unwrap();
        assert_eq!((beyond.status.as_u16(), &*beyond.error), (429, "too_many_requests"));
        // Other classes have turns of their own.
        let read = Pass { class: AdmissionClass::Documents, ..pass(&admission, 1) };
        assert!(read.turn().now_or_never().is_some());
        drop(waiting);
        assert_eq!(env.metrics().level(Gauge::QueriesWaiting), 0);
        drop(turn);
        assert!(pass(&admission, 1).turn().now_or_never().is_some());
        let metrics = env.metrics();
        assert_eq!((metrics.counted(Counter::QueriesWaited), metrics.counted(Counter::QueriesRefused)), (4, 2));
        assert_eq!(metrics.distribution(Histogram::AdmissionWait).n(), 0);
    });
}

#[test]
fn a_client_that_left_is_out_of_the_queue_and_its_turn_goes_to_the_next() {
    with_admission(|_, admission, config| async move {
        let turn = pass(&admission, 1).turn().await.ok().unwrap();
        let (first, second) = (pass(&admission, 2), pass(&admission, 3));
        let (mut gone, mut next) = (Box::pin(first.turn()), Box::pin(second.turn()));
        assert!(gone.now_or_never_by_ref().is_none() && next.now_or_never_by_ref().is_none());
        // It is given a turn that it does not take any more.
        drop(turn);
        drop(gone);
        let turn = next.await.ok().unwrap();
        let mut page = Box::pin(first.go_on());
        assert!(page.now_or_never_by_ref().is_none());
        // Limits that are changed count from the next request on.
        config.set(("admission", "queries"), "3", false).await.unwrap();
        assert!(second.turn().await.is_ok());
        drop(turn);
        assert!(page.await.is_some(), "no page is refused");
    });
}

/// Polls once, and again later.
trait PolledOnce: Future + Unpin + Sized {
    fn now_or_never_by_ref(&mut self) -> Option<Self::Output> {
        self.now_or_never()
    }
}

impl<F: Future + Unpin> PolledOnce for F {}
