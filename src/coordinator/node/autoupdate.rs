//! Automatic update of views: a query then mostly finds its view up to date.
//!
//! Some time after an update of a database its views are brought up to date, a few databases at once, at a pace that
//! leaves the processor to requests. Design documents with `autoupdate: false` are skipped, all of them with `[settee]
//! autoupdate = false`.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use futures_util::future::join_all;
use tokio::sync::{Semaphore, watch};

use crate::coordinator::read::ReadOperations;
use crate::coordinator::read::view::ViewError;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::topology::events::EventKind;
use crate::document::json::Value;
use crate::index::Definition;
use crate::index::search::SearchDefinition;
use crate::limits;
use crate::observe::workers::Worker;

/// Databases whose views are behind.
#[derive(Default)]
struct Behind {
    waiting: BTreeSet<String>,
    running: BTreeSet<String>,
}

/// The updates of a node.
struct Updates {
    behind: Mutex<Behind>,
    /// Bounds those that run at once.
    free: Semaphore,
}

impl Updates {
    fn behind(&self) -> MutexGuard<'_, Behind> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the views of a database are behind; answers whether a task is to be started for it.
    fn add(&self, name: &str) -> bool {
        let mut behind = self.behind();
        behind.waiting.insert(name.to_owned());
        behind.running.insert(name.to_owned())
    }

    /// Whether the task of a database has more to do; it ends otherwise.
    fn goes_on(&self, name: &str) -> bool {
        let mut behind = self.behind();
        behind.waiting.remove(name) || !behind.running.remove(name)
    }
}

impl Coordinator {
    /// Starts the task that brings views up to date; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_views(self: &Arc<Self>) {
        let updates = Updates { behind: Mutex::default(), free: Semaphore::new(limits::AUTOUPDATE_AT_ONCE) };
        let (news, updates) = (self.watch_events(), Arc::new(updates));
        self.spawn_worker("autoupdate", "a change of a database", move |weak, worker| {
            keep_views(weak, worker, news.clone(), Arc::clone(&updates))
        });
    }

    /// Starts a task for a database, unless one runs: that one then goes on.
    fn bring_up_to_date(self: &Arc<Self>, name: &str, updates: &Arc<Updates>) {
        if !updates.add(name) {
            return;
        }
        let (weak, name, updates) = (Arc::downgrade(self), name.to_owned(), Arc::clone(updates));
        self.env().spawn(async move {
            // Fails only when it is closed, and nobody does that.
            let Ok(_permit) = updates.free.acquire().await else { return };
            while updates.goes_on(&name) {
                let Some(database) = weak.upgrade().and_then(|coordinator| coordinator.database(&name).ok()) else {
                    continue;
                };
                if let Err(error) = update_views(&database).await {
                    tracing::debug!(name, ?error, "views were not brought up to date");
                }
            }
        });
    }
}

async fn keep_views(
    weak: Weak<Coordinator>,
    worker: Arc<Worker>,
    mut news: watch::Receiver<u64>,
    updates: Arc<Updates>,
) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    let mut seen = 0;
    while news.changed().await.is_ok() {
        env.sleep(limits::AUTOUPDATE_PAUSE).await;
        let Some(coordinator) = weak.upgrade() else { return };
        if !coordinator.config().bool("settee", "autoupdate", true) {
            continue;
        }
        let _run = worker.begin();
        let (events, last) = coordinator.events(seen);
        seen = last;
        let updated = events.into_iter().filter(|event| event.kind == EventKind::Updated);
        for name in updated.map(|event| event.name) {
            coordinator.bring_up_to_date(&name, &updates);
        }
    }
}

/// Brings all views up to date but those of design documents that do not want it. A view that fails is left to
/// those who ask for it.
async fn update_views(database: &Arc<Database>) -> Result<(), ViewError> {
    for program in database.design_docs().programs().await?.iter() {
        if program.body().get("autoupdate").and_then(Value::as_bool) == Some(false) {
            continue;
        }
        for (name, definition) in Definition::all(program.body(), database.map().partitioned) {
            let view = database.queries().view_of(program, Arc::new(definition));
            let update = |range: usize| {
                let view = &view;
                async move {
                    match database.replicas().own_replica(range).await? {
                        Some(replica) => view.update_gently(range, &RangeReplica::Own(replica.clone())).await,
                        None => Ok(()),
                    }
                }
            };
            // One that is damaged or not filled yet is nothing to the others.
            let updated = join_all(database.ranges().into_iter().map(update)).await;
            if let Some(error) = updated.into_iter().find_map(Result::err) {
                tracing::debug!(database = database.name, view = name, %error, "a view was not brought up to date");
            }
        }
        let with_types = database.context.config.bool("nouveau", "enable", false);
        for (_, definition) in SearchDefinition::all(program.body(), database.map().partitioned) {
            if definition.is_typed() && !with_types {
                continue;
            }
            if let Some(search) = database.queries().search_of(program, Arc::new(definition)) {
                search.update_own_gently().await;
            }
        }
    }
    Ok(())
}
