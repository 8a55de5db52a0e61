//! Replica status: one table of what this node knows about its replicas in relation to those of other nodes.
//!
//! The node as a whole is in sync or not ([`InSync`]). A database has an entry while one of its replicas here lags, is
//! to be filled, or goes by an older map than another node. Nodes that brought edits lately, and replicas that are
//! being rebuilt, have tables of their own beside it. Everything is in memory: after a start a node compares itself
//! with all others anyway. `_system` shows the counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::coordinator::replica::in_doubt::InDoubt;
use crate::coordinator::replica::in_sync::InSync;
use crate::coordinator::replica::node_calls::NodeState;
use crate::coordinator::replica::rebuilds::Rebuilds;

/// See the module head.
pub(in crate::coordinator) struct ReplicaStatus {
    /// Whether this node's replicas hold what the others held when it last met them.
    pub in_sync: InSync,
    /// Edits that other nodes brought here lately.
    pub in_doubt: InDoubt,
    /// Replicas of this node that are being rebuilt.
    pub rebuilds: Rebuilds,
    /// The state that each other node told last. A blocking lock: held for map operations only.
    states: Mutex<BTreeMap<Arc<str>, NodeState>>,
    /// The databases of which a replica here is not as it should be. A blocking lock, as above.
    databases: Mutex<Databases>,
    /// Tells that a replica lags.
    pub missing: Notify,
    /// Tells that another node knows a later map.
    pub outdated: Notify,
    /// Tells that a database is superseded.
    pub superseded: Notify,
}

#[derive(Default)]
struct Databases {
    by_name: BTreeMap<String, DatabaseStatus>,
    /// How many of them wait to be compared because a replica lags.
    waiting: usize,
    /// How many of them are to be filled: asked for with every read.
    unfilled: usize,
}

/// The status of one database.
#[derive(Default)]
struct DatabaseStatus {
    /// A replica missed something, and the database waits to be compared; the value: whether other nodes are to be
    /// told.
    lagging: Option<bool>,
    /// It is being compared because a replica missed something.
    is_compared: bool,
    /// How often the replicas here began anew in the place of others: until they are filled they may lack what was
    /// acknowledged (`superseded`).
    unfilled: u64,
    /// The nodes that know a later map.
    stale: BTreeSet<Arc<str>>,
}

impl DatabaseStatus {
    fn is_clean(&self) -> bool {
        !self.is_lagging() && self.unfilled == 0 && self.stale.is_empty()
    }

    fn is_lagging(&self) -> bool {
        self.lagging.is_some() || self.is_compared
    }
}

/// Counts of a [`ReplicaStatus`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplicaCounts {
    /// Whether the node is in sync, as it tells other nodes.
    pub in_sync: bool,
    /// Databases of which a replica missed something, until they were compared.
    pub lagging: u64,
    /// Databases whose replicas are to be filled.
    pub unfilled: u64,
    /// Databases whose map another node knows better.
    pub outdated_maps: u64,
    /// Replicas that are being rebuilt.
    pub rebuilding: u64,
}

impl ReplicaStatus {
    /// That of a node that starts; `is_alone`: it has no others to be in sync with.
    pub fn new(is_alone: bool) -> ReplicaStatus {
        ReplicaStatus {
            in_sync: InSync::new(is_alone),
            in_doubt: InDoubt::default(),
            rebuilds: Rebuilds::default(),
            states: Mutex::default(),
            databases: Mutex::default(),
            missing: Notify::new(),
            outdated: Notify::new(),
            superseded: Notify::new(),
        }
    }

    fn databases(&self) -> MutexGuard<'_, Databases> {
        self.databases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the entries of all databases, and drops those that say nothing any more.
    fn sweep<T>(&self, mut change: impl FnMut(&String, &mut DatabaseStatus) -> Option<T>) -> Vec<(String, T)> {
        let (mut taken, mut databases) = (Vec::new(), self.databases());
        databases.by_name.retain(|name, status| {
            taken.extend(change(name, status).map(|value| (name.clone(), value)));
            !status.is_clean()
        });
        databases.waiting = databases.by_name.values().filter(|status| status.lagging.is_some()).count();
        databases.unfilled = databases.by_name.values().filter(|status| status.unfilled > 0).count();
        taken
    }

    /// Whether the replicas of some database are to be filled, or one that was rebuilt may lack something.
    pub fn lacks_something(&self) -> bool {
        self.databases().unfilled > 0 || self.rebuilds.any_late()
    }

    /// Databases whose replicas here are to be filled, and how often these began anew.
    pub fn unfilled(&self) -> BTreeMap<String, u64> {
        let databases = self.databases();
        let unfilled = databases.by_name.iter().filter(|(_, status)| status.unfilled > 0);
        unfilled.map(|(name, status)| (name.clone(), status.unfilled)).collect()
    }

    /// Notes that the replicas of a database here began anew: this node is not in sync until they are filled.
    pub fn begins_anew(&self, database: &str) {
        let mut databases = self.databases();
        let status = databases.by_name.entry(database.to_owned()).or_default();
        status.unfilled += 1;
        let is_new = status.unfilled == 1;
        databases.unfilled += usize::from(is_new);
    }

    /// Notes that the replicas of a database here hold what others hold, unless they began anew once more than `began`
    /// times.
    pub fn is_filled(&self, database: &str, began: u64) {
        let mut databases = self.databases();
        let Some(status) = databases.by_name.get_mut(database) else { return };
        if status.unfilled != began || began == 0 {
            return;
        }
        status.unfilled = 0;
        let is_clean = status.is_clean();
        databases.unfilled -= 1;
        if is_clean {
            databases.by_name.remove(database);
        }
    }

    /// Notes that a replica of a database missed something; `tell`: other nodes are to be told.
    pub fn note_lagging(&self, database: &str, tell: bool) {
        let mut databases = self.databases();
        let status = databases.by_name.entry(database.to_owned()).or_default();
        let is_new = status.lagging.is_none();
        *status.lagging.get_or_insert(false) |= tell;
        if is_new {
            databases.waiting += 1;
            if databases.waiting == 1 {
                self.missing.notify_one();
            }
        }
    }

    /// The names of databases of which a replica missed something and that were not compared since.
    pub fn lagging_names(&self) -> Vec<String> {
        self.databases().by_name.iter().filter(|(_, of)| of.is_lagging()).map(|(name, _)| name.clone()).collect()
    }

    /// Takes the databases of which a replica missed something: they are compared now. They count as lagging until
    /// [`ReplicaStatus::end_round`].
    pub fn take_lagging(&self) -> BTreeMap<String, bool> {
        let taken = self.sweep(|_, status| {
            status.is_compared |= status.lagging.is_some();
            status.lagging.take()
        });
        taken.into_iter().collect()
    }

    /// Notes that the databases taken last were compared; those that lag again stay.
    pub fn end_round(&self) {
        self.sweep(|_, status| {
            status.is_compared = false;
            None::<()>
        });
    }

    /// Whether databases wait to be compared because a replica missed something.
    pub fn any_waits(&self) -> bool {
        self.databases().waiting > 0
    }

    /// Notes that a node knows a later map of a database.
    pub fn note_stale(&self, database: &str, node: &str) {
        self.databases().by_name.entry(database.to_owned()).or_default().stale.insert(node.into());
        self.outdated.notify_one();
    }

    /// Takes the databases whose maps are to be learned, and from which nodes.
    pub fn take_stale(&self) -> BTreeSet<(String, Arc<str>)> {
        let taken = self.sweep(|_, of| (!of.stale.is_empty()).then(|| std::mem::take(&mut of.stale)));
        taken.into_iter().flat_map(|(name, nodes)| nodes.into_iter().map(move |node| (name.clone(), node))).collect()
    }

    /// The states that other nodes told last.
    pub fn states(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, NodeState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The counts; `in_sync`: as the node tells others.
    pub fn counts(&self, in_sync: bool) -> ReplicaCounts {
        let databases = self.databases();
        let count = |is: fn(&DatabaseStatus) -> bool| databases.by_name.values().filter(|of| is(of)).count() as u64;
        ReplicaCounts {
            in_sync,
            lagging: count(DatabaseStatus::is_lagging),
            unfilled: databases.unfilled as u64,
            outdated_maps: count(|of| !of.stale.is_empty()),
            rebuilding: self.rebuilds.change(|filling| filling.len() as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_stays_as_long_as_it_says_something() {
        let status = ReplicaStatus::new(true);
        status.note_lagging("a", false);
        status.note_lagging("a", true);
        status.note_lagging("b", false);
        status.begins_anew("a");
        status.begins_anew("a");
        status.note_stale("c", "n2");
        let counts = status.counts(true);
        assert_eq!((counts.lagging, counts.unfilled, counts.outdated_maps, counts.rebuilding), (2, 1, 1, 0));
        assert_eq!(status.take_lagging(), BTreeMap::from([("a".to_owned(), true), ("b".to_owned(), false)]));
        assert!(status.take_lagging().is_empty() && !status.any_waits());
        status.note_lagging("b", true);
        assert_eq!((status.lagging_names(), status.counts(true).lagging), (vec!["a".to_owned(), "b".to_owned()], 2));
        status.end_round();
        assert_eq!((status.lagging_names(), status.counts(true).lagging), (vec!["b".to_owned()], 1));
        assert_eq!(status.take_lagging(), BTreeMap::from([("b".to_owned(), true)]), "it lagged again meanwhile");
        status.end_round();
        status.is_filled("a", 1);
        assert_eq!(status.unfilled(), BTreeMap::from([("a".to_owned(), 2)]), "they began anew once more");
        assert!(status.lacks_something());
        status.is_filled("a", 2);
        assert_eq!(status.take_stale(), BTreeSet::from([("c".to_owned(), Arc::from("n2"))]));
        assert!(!status.lacks_something() && status.databases().by_name.is_empty());
    }
}
