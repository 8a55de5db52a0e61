//! Whether this node's replicas hold what those of the other nodes hold.
//!
//! They do once the node has compared itself (`sync`) with every node that is up. A comparison that began before the
//! node last took no part counts for nothing, however late it ends: the other nodes may have gone on without this one.
//! A node takes no part in maintenance mode, while its connection to another node is lost (as far as that node is
//! concerned), and while its process stands still for about as long as other nodes wait for a sign of life. It cannot
//! see the last one while it lasts: so what it knows holds until a moment only, which each look at the others
//! ([`InSync::look`]) puts off.
//!
//! How far the comparison with each node is, and why the last one failed, is kept for operators ([`InSync::pending`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::limits;
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
    /// The comparisons with nodes that this one has yet to be compared with; at most one for each member.
    pending: BTreeMap<Arc<str>, Pending>,
}

/// How far the comparison with a node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::coordinator) struct Pending {
    /// The last database of the last page that was compared; `None`: the first page is yet to be.
    pub after: Option<String>,
    /// Databases up to there, or of the page behind it, that differ and were not pulled yet: at most
    /// `limits::NOT_COMPARED_DATABASES`.
    pub differing: BTreeSet<String>,
    /// Why the last try failed.
    pub last_error: Option<String>,
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

    /// A try to compare all databases with a node begins.
    pub fn tries(&self, node: &Arc<str>) {
        let mut state = self.state();
        let last_error = state.pending.remove(node).and_then(|pending| pending.last_error);
        state.pending.insert(Arc::clone(node), Pending { last_error, ..Pending::default() });
    }

    /// These databases differ from those of a node, and are to be pulled.
    pub fn differ<'a>(&self, node: &Arc<str>, databases: impl IntoIterator<Item = &'a String>) {
        self.change(node, |pending| {
            let room = limits::NOT_COMPARED_DATABASES.saturating_sub(pending.differing.len());
            pending.differing.extend(databases.into_iter().take(room).cloned());
        });
    }

    /// A database was pulled from a node, or that failed: other databases follow before the try ends.
    pub fn pulled(&self, node: &Arc<str>, database: &str, error: Option<&dyn Display>) {
        self.change(node, |pending| match error {
            None => drop(pending.differing.remove(database)),
            Some(error) => pending.last_error = Some(error.to_string()),
        });
    }

    /// All databases up to this one were compared with those of a node; `None`: those behind the last one, too.
    pub fn reached(&self, node: &Arc<str>, database: Option<&String>) {
        self.change(node, |pending| pending.after = database.cloned().or(pending.after.take()));
    }

    /// A try to compare all databases with a node failed.
    pub fn failed(&self, node: &Arc<str>, error: &dyn Display) {
        self.change(node, |pending| pending.last_error = Some(error.to_string()));
    }

    fn change<T>(&self, node: &Arc<str>, change: impl FnOnce(&mut Pending) -> T) {
        self.state().pending.get_mut(node).map(change);
    }

    /// Those of some nodes that this one was not compared with yet, and how far the comparison is.
    pub fn pending(&self, nodes: Vec<Arc<str>>) -> Vec<(Arc<str>, Pending)> {
        let state = self.state();
        let left = nodes.into_iter().filter(|node| !state.compared.contains(node));
        left.map(|node| (Arc::clone(&node), state.pending.get(&node).cloned().unwrap_or_default())).collect()
    }

    /// This node took no part: what it compared before does not count any more.
    pub fn was_absent(&self) {
        let mut state = self.state();
        state.absences += 1;
        if !mutated(Mutation::AbsenceForgotten) {
            state.compared.clear();
        }
        state.pending.clear();
        self.flag.store(false, Ordering::Relaxed);
    }

    /// The connection to a node is lost.
    pub fn lose(&self, node: &Arc<str>) {
        let mut state = self.state();
        state.compared.remove(node);
        state.pending.remove(node);
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
        state.pending.remove(node);
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
    fn a_comparison_tells_how_far_it_is_and_why_it_failed() {
        let (in_sync, up) = (InSync::new(false), nodes());
        let pending = || in_sync.pending(up.clone()).into_iter().map(|(_, pending)| pending).collect::<Vec<_>>();
        assert_eq!(pending(), [Pending::default(), Pending::default()]);
        let begun = in_sync.begin(&up[0]);
        in_sync.tries(&up[0]);
        in_sync.differ(&up[0], &["a".to_owned(), "b".to_owned()]);
        in_sync.pulled(&up[0], "a", None);
        in_sync.pulled(&up[0], "b", Some(&"b: the disk is full"));
        in_sync.reached(&up[0], Some(&"c".to_owned()));
        assert_eq!(pending().remove(0).last_error.as_deref(), Some("b: the disk is full"), "before the try ends");
        in_sync.failed(&up[0], &"b: the disk is full");
        let told = pending().remove(0);
        let differing = BTreeSet::from(["b".to_owned()]);
        assert_eq!((told.after.as_deref(), told.differing), (Some("c"), differing));
        in_sync.tries(&up[0]);
        let told = pending().remove(0);
        assert_eq!((told.after, told.differing.len()), (None, 0));
        assert_eq!(told.last_error.as_deref(), Some("b: the disk is full"), "the next try has not ended yet");
        in_sync.failed(&up[0], &"no answer");
        assert_eq!(pending().remove(0).last_error.as_deref(), Some("no answer"));
        in_sync.failed(&up[1], &"no answer");
        assert_eq!(pending().remove(1), Pending::default(), "no try has begun");
        assert!(!in_sync.ended(&up[0], begun, &up));
        assert_eq!(in_sync.pending(up.clone()), [(up[1].clone(), Pending::default())]);
        in_sync.tries(&up[1]);
        in_sync.failed(&up[1], &"no answer");
        in_sync.was_absent();
        assert_eq!(pending(), [Pending::default(), Pending::default()]);
    }

    #[test]
    fn names_of_databases_that_differ_are_bounded() {
        let (in_sync, node) = (InSync::new(false), nodes().remove(0));
        in_sync.tries(&node);
        let names: Vec<String> = (0..limits::NOT_COMPARED_DATABASES + 10).map(|n| format!("d{n:04}")).collect();
        in_sync.differ(&node, &names[..5]);
        in_sync.differ(&node, &names[5..]);
        let told = in_sync.pending(vec![node]).remove(0).1;
        assert!(told.differing.iter().eq(&names[..limits::NOT_COMPARED_DATABASES]));
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
