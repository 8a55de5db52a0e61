//! Recent events of databases, for `_db_updates`: the last event of each, in memory.
//!
//! A later event of a database replaces its earlier one, so the list holds at most one per database; of deleted
//! databases it keeps the last `limits::DELETED_DATABASE_EVENTS`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::limits;

/// A change of the set of databases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseEvent {
    /// Position in the node's list of events, from 1.
    pub seq: u64,
    /// The database's name.
    pub name: String,
    /// What happened.
    pub kind: EventKind,
}

/// What happened to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was made.
    Created,
    /// It was removed.
    Deleted,
    /// A document in it changed.
    Updated,
}

#[derive(Default)]
struct List {
    by_seq: BTreeMap<u64, (String, EventKind)>,
    by_name: BTreeMap<String, u64>,
    deleted: VecDeque<(u64, String)>,
    last: u64,
}

/// The list; see the module head.
pub(in crate::coordinator) struct Events {
    // A blocking lock: held for a few map operations, never across an await.
    list: Mutex<List>,
    news: watch::Sender<u64>,
}

impl Events {
    pub fn new() -> Events {
        Events { list: Mutex::default(), news: watch::Sender::new(0) }
    }

    /// Adds an event in place of the database's last one.
    pub fn add(&self, name: &str, kind: EventKind) {
        let mut list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        list.last += 1;
        let seq = list.last;
        if let Some(before) = list.by_name.insert(name.to_owned(), seq) {
            list.by_seq.remove(&before);
        }
        list.by_seq.insert(seq, (name.to_owned(), kind));
        if kind == EventKind::Deleted {
            list.deleted.push_back((seq, name.to_owned()));
        }
        if list.deleted.len() > limits::DELETED_DATABASE_EVENTS {
            list.forget_oldest_deletion();
        }
        self.news.send_replace(seq);
    }

    /// The events after `since`, oldest first, and the position of the last one.
    pub fn after(&self, since: u64) -> (Vec<DatabaseEvent>, u64) {
        let list = self.list.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = list.by_seq.range(since.saturating_add(1)..);
        let event = |(seq, (name, kind)): (&u64, &(String, EventKind))| DatabaseEvent {
            seq: *seq,
            name: name.clone(),
            kind: *kind,
        };
        (rows.map(event).collect(), list.last)
    }

    /// Tells the position of the last event.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.news.subscribe()
    }
}

impl List {
    fn forget_oldest_deletion(&mut self) {
        let Some((seq, name)) = self.deleted.pop_front() else { return };
        // The name may have been made again since.
        if self.by_name.get(&name) == Some(&seq) {
            self.by_name.remove(&name);
            self.by_seq.remove(&seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(events: &Events, since: u64) -> Vec<(u64, String, EventKind)> {
        events.after(since).0.into_iter().map(|e| (e.seq, e.name, e.kind)).collect()
    }

    #[test]
    fn the_last_event_of_each_database_is_told() {
        let events = Events::new();
        events.add("a", EventKind::Created);
        events.add("b", EventKind::Created);
        events.add("a", EventKind::Updated);
        let of = |seq, name: &str, kind| (seq, name.to_owned(), kind);
        assert_eq!(shown(&events, 0), [of(2, "b", EventKind::Created), of(3, "a", EventKind::Updated)]);
        assert_eq!(shown(&events, 2), [of(3, "a", EventKind::Updated)]);
        assert_eq!(*events.watch().borrow(), 3);
    }

    #[test]
    fn deletions_are_forgotten_after_a_while() {
        let events = Events::new();
        for n in 0..limits::DELETED_DATABASE_EVENTS + 5 {
            events.add(&format!("d{n}"), EventKind::Deleted);
        }
        let rows = shown(&events, 0);
        assert_eq!(rows.len(), limits::DELETED_DATABASE_EVENTS);
        assert_eq!(rows[0].1, "d5");
    }
}
