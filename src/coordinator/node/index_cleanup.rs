//! Automatic removal of indexes that no design document names any more, as `_view_cleanup` does it.
//!
//! Each node looks at its open databases now and then: one whose design documents changed, and have not since the look
//! before, is cleaned up, and so is one where that is a day ago. Each node cleans up its own replicas, one database
//! after the other. `[smoosh] cleanup_channels` without `index_cleanup` turns it off, `[smoosh.index_cleanup]` has its
//! hours, as in CouchDB.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::coordinator::read::ReadOperations;
use crate::coordinator::rebalance::window::Window;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::limits;
use crate::observe::workers::Worker;
use crate::world::Instant;

/// The channel of `[smoosh] cleanup_channels`.
const CHANNEL: &str = "index_cleanup";

/// What a node remembers of its databases from look to look.
#[derive(Default)]
pub(in crate::coordinator) struct IndexCleanup(BTreeMap<String, Seen>);

struct Seen {
    /// Changes with each commit of a design document.
    version: u64,
    /// Whether there was one since the last clean-up.
    is_changed: bool,
    cleaned: Instant,
}

impl IndexCleanup {
    /// Notes the version of the design documents of a database (by its instance); whether it is to be cleaned up now.
    /// It is until that is done ([`IndexCleanup::done`]). `may_begin`: whether anything is.
    fn look(&mut self, instance: &str, version: u64, (now, may_begin): (Instant, bool)) -> bool {
        let new = || Seen { version: 0, is_changed: false, cleaned: now };
        let seen = self.0.entry(instance.to_owned()).or_insert_with(new);
        if seen.version != version {
            (seen.version, seen.is_changed) = (version, true);
            return false;
        }
        may_begin && (seen.is_changed || now.since(seen.cleaned) >= limits::INDEX_CLEANUP_PERIOD)
    }

    /// A database was cleaned up.
    fn done(&mut self, instance: &str, now: Instant) {
        if let Some(seen) = self.0.get_mut(instance) {
            (seen.is_changed, seen.cleaned) = (false, now);
        }
    }

    /// Forgets databases that are not open, where more are remembered than are to be.
    fn shrink(&mut self, open: &[Arc<Database>]) {
        if self.0.len() > limits::INDEX_CLEANUP_REMEMBERED {
            let open: BTreeSet<&str> = open.iter().map(|database| database.instance()).collect();
            self.0.retain(|instance, _| open.contains(instance.as_str()));
        }
    }
}

/// A number that changes with each commit of a design document, as far as replicas here are open.
fn design_version(database: &Arc<Database>) -> u64 {
    let layout = database.layout();
    let open = database.ranges().into_iter().filter_map(|range| layout.cell(range).get().cloned());
    open.fold(0, |sum, own| sum.wrapping_add(own.shard.design_version()))
}

impl Coordinator {
    /// Starts the task that removes indexes which nothing names; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_cleaning_up(self: &Arc<Self>) {
        self.spawn_worker(CHANNEL, "a pause", keep_cleaning_up);
    }

    /// Cleans up the open databases where that is due; answers those where it failed, with why.
    pub(in crate::coordinator) async fn clean_up_indexes(
        &self,
        cleanup: &mut IndexCleanup,
        now: Instant,
    ) -> Vec<(String, String)> {
        let (config, mut failed) = (self.config(), Vec::new());
        let is_on = config.list("smoosh", "cleanup_channels", CHANNEL).iter().any(|channel| channel == CHANNEL);
        let may_begin = is_on && Window::of(config, "smoosh.index_cleanup").is_open(self.env().wall());
        let databases = self.handles();
        cleanup.shrink(&databases);
        for database in databases {
            if !cleanup.look(database.instance(), design_version(&database), (now, may_begin)) {
                continue;
            }
            match database.queries().clean_up_own_views().await {
                Ok(()) => cleanup.done(database.instance(), now),
                Err(_) if database.is_gone() => {}
                Err(error) => {
                    tracing::info!(database = database.name, ?error, "indexes are not cleaned up");
                    failed.push((database.name.clone(), format!("{error:?}")));
                }
            }
        }
        failed
    }
}

async fn keep_cleaning_up(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    let mut cleanup = IndexCleanup::default();
    loop {
        env.sleep(limits::INDEX_CLEANUP_PAUSE).await;
        let Some(coordinator) = weak.upgrade() else { return };
        let _run = worker.begin();
        for (name, why) in coordinator.clean_up_indexes(&mut cleanup, env.now()).await {
            worker.failed(&format_args!("{name}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_database_is_due_once_its_design_documents_have_settled_and_daily() {
        let mut cleanup = IndexCleanup::default();
        let at = |hours: u64| Instant(Duration::from_secs(hours * 3600));
        let mut look = |version, hours| {
            let is_due = cleanup.look("i", version, (at(hours), true));
            if is_due {
                cleanup.done("i", at(hours));
            }
            is_due
        };
        assert!(!look(0, 0) && !look(0, 1), "nothing changed");
        assert!(!look(1, 2), "a change");
        assert!(!look(2, 3), "another one");
        assert!(look(2, 4) && !look(2, 5), "none since the last look: once");
        assert!(!look(2, 27) && look(2, 28) && !look(2, 29), "a day later");
        assert!(!cleanup.look("i", 3, (at(30), false)) && !cleanup.look("i", 3, (at(31), false)), "it is not the time");
        assert!(cleanup.look("i", 3, (at(32), true)), "it is remembered");
        assert!(cleanup.look("i", 3, (at(33), true)), "and tried again until it is done");
    }
}
