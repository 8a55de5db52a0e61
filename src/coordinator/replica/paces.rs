//! How long other nodes take to answer reads of documents: reads ask a node that is much slower than others last.
//!
//! A node that is busy, or whose disk stalls, is up and in sync, and whatever waits for it is slow. What a node took
//! lately counts less with time, so that it is asked again soon; where it is slow still, that read is overtaken
//! (`limits::READ_OVERTAKE`) and the node passed over again. Primaries are not chosen by pace: two nodes that measure
//! differently would have edits decided in two places.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::limits;
use crate::world::buggify::sometimes;
use crate::world::sync::Mutex;
use crate::world::{Env, Instant, lock};

/// See the module head.
#[derive(Default)]
pub(in crate::coordinator) struct Paces {
    /// Whether a node may be slow: else nobody compares.
    is_some_slow: AtomicBool,
    // A blocking lock: held for operations on the map only.
    by_node: Mutex<BTreeMap<Arc<str>, Pace>>,
}

/// What one node takes.
#[derive(Clone, Copy)]
struct Pace {
    /// A moving average.
    mean: Duration,
    /// When it was noted.
    at: Instant,
}

impl Pace {
    /// The average, half of it for each [`limits::PACE_HALF_LIFE`] since.
    fn now(self, now: Instant) -> Duration {
        let halves = now.since(self.at).as_millis() / limits::PACE_HALF_LIFE.as_millis().max(1);
        self.mean / (1 << halves.min(31))
    }
}

/// A read of one node, from its begin on. Where it is dropped, another node was faster.
pub(in crate::coordinator) struct Timed<'p> {
    paces: &'p Paces,
    env: &'p Env,
    node: Option<&'p Arc<str>>,
    began: Instant,
}

impl Timed<'_> {
    /// The node answered, or refused: its pace counts only if it answered.
    pub fn ended(mut self, is_answered: bool) {
        if let Some(node) = self.node.take().filter(|_| is_answered) {
            let now = self.env.now();
            self.paces.note(node, now.since(self.began), now);
        }
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        if let Some(node) = self.node.take() {
            let now = self.env.now();
            let took = now.since(self.began);
            // It would have taken longer, so that less tells nothing.
            if took > self.paces.of(node, now) {
                self.paces.note(node, took, now);
            }
        }
    }
}

impl Paces {
    /// A read of a node begins; `None`: of this node, which is not measured.
    pub fn time<'p>(&'p self, env: &'p Env, node: Option<&'p Arc<str>>) -> Timed<'p> {
        Timed { paces: self, env, node, began: env.now() }
    }

    fn note(&self, node: &Arc<str>, took: Duration, now: Instant) {
        let mut by_node = lock(&self.by_node);
        let before = by_node.get(node).map_or(Duration::ZERO, |pace| pace.now(now));
        let mean = before - before / limits::PACE_SAMPLES + took / limits::PACE_SAMPLES;
        match by_node.get_mut(node) {
            Some(pace) => *pace = Pace { mean, at: now },
            None => drop(by_node.insert(Arc::clone(node), Pace { mean, at: now })),
        }
        if mean > limits::PACE_SLOW {
            self.is_some_slow.store(true, Ordering::Relaxed);
        }
    }

    fn of(&self, node: &Arc<str>, now: Instant) -> Duration {
        lock(&self.by_node).get(node).map_or(Duration::ZERO, |pace| pace.now(now))
    }

    /// Puts the nodes that are much slower than the fastest other one of the list last, by `rank` first: the order is
    /// kept otherwise. `node`: where an item is, `None` for this node.
    pub fn slow_last<T>(&self, now: Instant, items: &mut [T], key: impl Fn(&T) -> (u8, Option<&Arc<str>>)) {
        if !self.is_some_slow.load(Ordering::Relaxed) {
            return;
        }
        let by_node = lock(&self.by_node);
        let pace = |node: &Arc<str>| by_node.get(node).map_or(Duration::ZERO, |pace| pace.now(now));
        if by_node.values().all(|pace| pace.now(now) <= limits::PACE_SLOW) {
            self.is_some_slow.store(false, Ordering::Relaxed);
            return;
        }
        // What was measured last, however long ago: a far node that nobody asks is far still. One that was never asked
        // may be the fastest.
        let measured = |node: &Arc<str>| by_node.get(node).map_or(Duration::ZERO, |pace| pace.mean);
        let fastest = items.iter().filter_map(|item| key(item).1).map(measured).min().unwrap_or_default();
        let limit = limits::PACE_SLOW.max(fastest * limits::PACE_TIMES_SLOWER);
        items.sort_by_key(|item| {
            let (rank, node) = key(item);
            let is_slow = node.is_some_and(|node| pace(node) > limit);
            if is_slow {
                sometimes("cluster: a slow node was passed over");
            }
            (rank, is_slow)
        });
    }

    /// Forgets a node whose connection is lost.
    pub fn forget(&self, node: &str) {
        lock(&self.by_node).remove(node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(Duration::from_millis(ms))
    }

    fn node(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    /// The order in which replicas on a and b, of these ranks, and one here are asked.
    fn order(paces: &Paces, now: u64, ranks: [u8; 2]) -> Vec<&'static str> {
        let mut items = [("here", 0, None), ("a", ranks[0], Some(node("a"))), ("b", ranks[1], Some(node("b")))];
        paces.slow_last(at(now), &mut items, |(_, rank, node)| (*rank, node.as_ref()));
        items.map(|(name, ..)| name).to_vec()
    }

    #[test]
    fn a_node_that_was_overtaken_once_is_asked_last_for_a_while() {
        let paces = Paces::default();
        for now in 0..100 {
            paces.note(&node("a"), Duration::from_millis(1), at(now));
            paces.note(&node("b"), Duration::from_millis(1), at(now));
        }
        assert_eq!(order(&paces, 100, [0, 0]), ["here", "a", "b"]);
        paces.note(&node("a"), limits::READ_OVERTAKE, at(100));
        assert_eq!(order(&paces, 100, [0, 0]), ["here", "b", "a"]);
        assert_eq!(order(&paces, 100, [0, 1]), ["here", "a", "b"], "one that is in sync is asked before");
        let later = 100 + u64::try_from(limits::PACE_HALF_LIFE.as_millis()).unwrap();
        assert_eq!(order(&paces, later, [0, 0]), ["here", "a", "b"], "it is tried again");
    }

    #[test]
    fn nodes_that_are_all_far_away_are_not_slow() {
        let paces = Paces::default();
        for now in 0..100 {
            paces.note(&node("a"), Duration::from_millis(90), at(now));
            paces.note(&node("b"), Duration::from_millis(60), at(now));
        }
        assert_eq!(order(&paces, 100, [0, 0]), ["here", "a", "b"]);
        for now in 100..200 {
            paces.note(&node("b"), Duration::from_millis(5), at(now));
        }
        assert_eq!(order(&paces, 200, [0, 0]), ["here", "b", "a"]);
        paces.forget("a");
        assert_eq!(order(&paces, 200, [0, 0]), ["here", "a", "b"]);
    }

    #[test]
    fn a_read_that_was_left_counts_where_it_took_longer_than_that_node_does() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let env = crate::world::tokio_host::env(runtime.handle().clone());
        let (paces, a) = (Paces::default(), node("a"));
        paces.note(&a, Duration::from_secs(3_600), env.now());
        let before = paces.of(&a, env.now());
        drop(paces.time(&env, Some(&a)));
        paces.time(&env, Some(&a)).ended(false);
        assert!(paces.of(&a, env.now()) >= before / 2);
        assert_eq!(lock(&paces.by_node)[&a].mean, before);
        paces.time(&env, Some(&a)).ended(true);
        assert!(lock(&paces.by_node)[&a].mean < before);
        paces.time(&env, None).ended(true);
        assert_eq!(lock(&paces.by_node).len(), 1);
    }
}
