//! How far a migration is: what is done, what is expected, and when it ends at the rate of the last minute.

use std::collections::BTreeMap;

use crate::observe::told::{Rate, time_left};
use crate::world::Instant;
use crate::world::lock;
use crate::world::sync::Mutex;

/// Counts of all databases of a migration. Shared.
#[derive(Default)]
pub struct Totals(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    databases: u64,
    databases_done: u64,
    /// By database: changes that were expected and those that are done.
    changes: BTreeMap<String, (u64, u64)>,
    /// Sums over databases that are done.
    finished: u64,
    rate: Rate,
}

impl Counts {
    fn done(&self) -> u64 {
        self.finished + self.changes.values().map(|(_, done)| done).sum::<u64>()
    }

    fn left(&self) -> u64 {
        self.changes.values().map(|(expected, done)| expected.saturating_sub(*done)).sum()
    }
}

impl Totals {
    /// A database is to be carried over, of about so many changes.
    pub fn add(&self, name: &str, changes: u64) {
        let mut counts = lock(&self.0);
        counts.databases += 1;
        counts.changes.insert(name.to_owned(), (changes, 0));
    }

    /// The source told how many changes of a database are left, after those of an earlier run.
    pub fn estimate(&self, name: &str, changes: Option<u64>) {
        if let (Some(changes), Some(counts)) = (changes, lock(&self.0).changes.get_mut(name)) {
            counts.0 = changes;
        }
    }

    /// So many more changes of a database are on the target.
    pub fn done(&self, name: &str, changes: u64) {
        if let Some(counts) = lock(&self.0).changes.get_mut(name) {
            counts.1 += changes;
        }
    }

    /// A database is done.
    pub fn finish(&self, name: &str) {
        let mut counts = lock(&self.0);
        counts.databases_done += 1;
        if let Some((_, done)) = counts.changes.remove(name) {
            counts.finished += done;
        }
    }

    /// One line for people.
    pub fn line(&self, now: Instant) -> String {
        let mut counts = lock(&self.0);
        let (done, left) = (counts.done(), counts.left());
        let (databases, all) = (counts.databases_done, counts.databases);
        let rate = counts.rate.look(now, done);
        let eta = time_left(left, rate);
        format!("{databases} of {all} databases, {done} changes, {left} to go, {rate:.0} changes/s, {eta}")
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_rate_so_far() {
        let at = |s| Instant(Duration::from_secs(s));
        let totals = Totals::default();
        totals.add("a", 1000);
        totals.add("b", 500);
        assert_eq!(totals.line(at(0)), "0 of 2 databases, 0 changes, 1500 to go, 0 changes/s, time left unknown");
        totals.estimate("a", Some(900));
        totals.done("a", 100);
        let line = totals.line(at(1));
        assert_eq!(line, "0 of 2 databases, 100 changes, 1300 to go, 100 changes/s, 0:00:13 left");
        totals.finish("a");
        assert!(totals.line(at(2)).starts_with("1 of 2 databases, 100 changes, 500 to go"));
    }
}
