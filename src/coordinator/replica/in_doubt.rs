//! In-doubt edits: which nodes brought edits of which databases here lately. When such a node is lost, it may not have
//! brought the edit to the other replicas, which know nothing of it; the database is then compared with them.
//!
//! An entry is kept until the second [`InDoubt::rotate`] after the edit. By then the node that brings an edit to the
//! replicas is done, or has recorded itself that a replica missed it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Databases by the node that edits came from.
type Edited = BTreeMap<String, BTreeSet<String>>;

/// See the module head.
#[derive(Default)]
pub(in crate::coordinator) struct InDoubt {
    // A blocking lock: held for set operations only.
    edited: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    new: Edited,
    old: Edited,
}

impl InDoubt {
    /// Notes that `node` brought an edit.
    pub fn note(&self, node: &str, database: &str) {
        let mut edited = self.edited();
        match edited.new.get_mut(node) {
            Some(databases) if databases.contains(database) => {}
            Some(databases) => drop(databases.insert(database.to_owned())),
            None => drop(edited.new.insert(node.to_owned(), BTreeSet::from([database.to_owned()]))),
        }
    }

    /// Forgets what was noted before the last turn.
    pub fn rotate(&self) {
        let mut edited = self.edited();
        edited.old = std::mem::take(&mut edited.new);
    }

    /// The databases that a node brought edits of.
    pub fn take(&self, node: &str) -> BTreeSet<String> {
        let mut edited = self.edited();
        let mut databases = edited.new.remove(node).unwrap_or_default();
        databases.append(&mut edited.old.remove(node).unwrap_or_default());
        databases
    }

    fn edited(&self) -> MutexGuard<'_, Generations> {
        self.edited.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_lost_node_wrote_lately_is_doubted() {
        let in_doubt = InDoubt::default();
        ["b", "a", "a"].iter().for_each(|database| in_doubt.note("lost", database));
        in_doubt.note("other", "c");
        in_doubt.rotate();
        in_doubt.note("lost", "d");
        assert!(in_doubt.take("lost").iter().eq(["a", "b", "d"]));
        assert!(in_doubt.take("lost").is_empty());
        in_doubt.rotate();
        assert!(in_doubt.take("other").is_empty());
    }
}
