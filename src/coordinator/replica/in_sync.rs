//! Whether this node's copies hold what those of the other nodes hold.
//!
//! They do once the node has compared itself (`sync`) with every node that is up. A comparison that began before the
//! node last took no part counts for nothing, however late it ends: the other nodes may have gone on without this one.
//! A node takes no part in maintenance mode, while its connection to another node is lost (as far as that node is
//! concerned), and while its process stands still for about as long as other nodes wait for a sign of life. It cannot
//! see the last one while it lasts: so what it knows holds until a moment only, which each look at the others
//! ([`InSync::look`]) puts off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::world::Instant;
use crate::world::buggify::{Mutation, mutated};

/// The end of what needs no other look.
const FOR_GOOD: u64 = u64::MAX;

fn in_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(FOR_GOOD - 1)
}

/// See the module head.
pub(in crate::coordinator) struct InSync {
    flag: AtomicBool,
    /// Whether the node has met all others that were up, or had none to meet, since it started.
    was: AtomicBool,
    /// Until when the flag counts without another look, in milliseconds.
    until_ms: AtomicU64,
    // A blocking lock: held for map operations only.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The nodes that this one has compared itself with.
    compared: BTreeSet<Arc<str>>,
    /// How often this node took no part.
    absences: u64,
    /// How often the connection to a node was lost.
    losses: BTreeMap<Arc<str>, u64>,
}

/// When a comparison with a node began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coordinator) struct Begun {
    absences: u64,
    losses: u64,
}

impl State {
    fn now(&self, node: &Arc<str>) -> Begun {
        Begun { absences: self.absences, losses: self.losses.get(node).copied().unwrap_or_default() }
    }
}

impl InSync {
    /// At the start of a node; one that is alone is in sync.
    pub fn new(is_alone: bool) -> InSync {
        let (flag, was) = (AtomicBool::new(is_alone), AtomicBool::new(false));
        InSync { flag, was, until_ms: AtomicU64::new(FOR_GOOD), state: Mutex::default() }
    }

    /// Whether it is.
    pub fn is(&self, now: Instant) -> bool {
        self.flag.load(Ordering::Relaxed) && in_ms(now.0) < self.until_ms.load(Ordering::Relaxed)
    }

    /// Whether it was at some time since the node started: it has met the cluster, or is one by itself.
    pub fn was_ever(&self) -> bool {
        self.was.load(Ordering::Relaxed)
    }

    /// Notes that there is nobody to meet, and that the configuration names nobody either.
    pub fn is_all_there_is(&self) {
        self.was.store(true, Ordering::Relaxed);
    }

    /// Says that the node looked at the others, and when it is to look again at the latest; `None`: it is alone.
    pub fn look(&self, now: Instant, patience: Option<Duration>) {
        let until_ms = patience.map_or(FOR_GOOD, |patience| in_ms(now.0 + patience));
        self.until_ms.store(until_ms, Ordering::Relaxed);
    }

    /// The others may go on without this node, which those still connected would tell it.
    pub fn suspend(&self) {
        self.flag.store(false, Ordering::Relaxed);
    }

    /// This node took no part: what it compared before does not count any more.
    pub fn was_absent(&self) {
        let mut state = self.state();
        state.absences += 1;
        if !mutated(Mutation::AbsenceForgotten) {
            state.compared.clear();
        }
        self.flag.store(false, Ordering::Relaxed);
    }

    /// The connection to a node is lost.
    pub fn lose(&self, node: &Arc<str>) {
        let mut state = self.state();
        state.compared.remove(node);
        *state.losses.entry(Arc::clone(node)).or_default() += 1;
    }

    /// A comparison with a node begins.
    pub fn begin(&self, node: &Arc<str>) -> Begun {
        self.state().now(node)
    }

    /// Everything was pulled from a node, in a comparison that began then; `up`: the other nodes that are up. True when
    /// this makes the node in sync.
    pub fn ended(&self, node: &Arc<str>, begun: Begun, up: &[Arc<str>]) -> bool {
        let mut state = self.state();
        if state.now(node) != begun {
            return false;
        }
        state.compared.insert(Arc::clone(node));
        let has_met_all = up.iter().all(|node| state.compared.contains(node));
        self.was.fetch_or(has_met_all, Ordering::Relaxed);
        has_met_all && !self.flag.swap(true, Ordering::Relaxed)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant(Duration::ZERO);

    fn nodes() -> Vec<Arc<str>> {
        vec!["a@h".into(), "b@h".into()]
    }

    fn compare_all(in_sync: &InSync) -> Vec<bool> {
        let up = nodes();
        up.iter().map(|node| in_sync.ended(node, in_sync.begin(node), &up)).collect()
    }

    #[test]
    fn a_node_that_took_no_part_compares_itself_with_every_other_node_again() {
        let in_sync = InSync::new(false);
        assert!(!in_sync.was_ever());
        assert_eq!((compare_all(&in_sync), in_sync.is(NOW)), (vec![false, true], true));
        in_sync.was_absent();
        assert!(!in_sync.is(NOW) && in_sync.was_ever());
        assert_eq!((compare_all(&in_sync), in_sync.is(NOW)), (vec![false, true], true));
    }

    #[test]
    fn a_comparison_that_began_before_the_node_took_no_part_or_the_other_was_lost_does_not_count() {
        let (in_sync, up) = (InSync::new(false), nodes());
        let begun: Vec<Begun> = up.iter().map(|node| in_sync.begin(node)).collect();
        in_sync.was_absent();
        assert!(up.iter().zip(&begun).all(|(node, begun)| !in_sync.ended(node, *begun, &up)) && !in_sync.is(NOW));
        let begun: Vec<Begun> = up.iter().map(|node| in_sync.begin(node)).collect();
        in_sync.lose(&up[0]);
        assert!(!in_sync.ended(&up[0], begun[0], &up) && !in_sync.ended(&up[1], begun[1], &up));
        assert!(in_sync.ended(&up[0], in_sync.begin(&up[0]), &up));
    }

    #[test]
    fn a_process_that_stood_still_is_not_in_sync_before_it_has_looked_at_the_others() {
        let in_sync = InSync::new(true);
        // It may be alone because its disk is new and it has yet to hear of the others.
        assert!(!in_sync.was_ever());
        in_sync.look(NOW, Some(Duration::from_secs(3)));
        assert!(in_sync.is(Instant(Duration::from_secs(2))) && !in_sync.is(Instant(Duration::from_secs(3))));
        in_sync.look(NOW, None);
        assert!(in_sync.is(Instant(Duration::from_secs(300))));
    }
}
