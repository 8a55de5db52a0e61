//! Compaction: when it is due, and one range at a time.
//!
//! Bodies of revisions that are no leaves stay readable until compaction. It starts by itself for a range whose bytes
//! are a multiple of the live ones (`[smoosh.ratio_dbs] min_priority`) or that has many dead bytes (`[smoosh.slack_dbs]
//! min_priority`), as CouchDB's does; ranges below `min_size` are left alone. Each of the two has hours of the day
//! (`window.rs`). Looked at are the databases that are open: dead bytes come from writes, which open them. `[settee]
//! auto_compaction` turns it off, `compaction_mb_per_s` is the budget of all compaction. It removes records in place,
//! so that it needs no room for a second copy, and one that ends early has lost nothing.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::config::Config;
use crate::coordinator::rebalance::window::Window;
use crate::coordinator::rebalance::{Compaction, RebalanceOperations};
use crate::coordinator::replica::calls::Compact;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::sync_points;
use crate::coordinator::topology::error::SettingError;
use crate::limits;
use crate::observe::metrics::Counter;
use crate::observe::tasks::{Subject, TaskKind};
use crate::observe::workers::Worker;
use crate::shard::{self, Pace, ShardError, ShardInfo, ShardReplica};

/// When a range is due.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Thresholds {
    ratio: f64,
    ratio_bytes: u64,
    ratio_hours: Window,
    slack: u64,
    slack_bytes: u64,
    slack_hours: Window,
}

impl Thresholds {
    fn of(config: &Config) -> Thresholds {
        let ratio = config.get("smoosh.ratio_dbs", "min_priority").and_then(|text| text.trim().parse().ok());
        Thresholds {
            ratio: ratio.filter(|ratio: &f64| *ratio > 1.0).unwrap_or(limits::COMPACTION_RATIO),
            ratio_bytes: config.u64("smoosh.ratio_dbs", "min_size", limits::COMPACTION_MIN_BYTES),
            ratio_hours: Window::of(config, "smoosh.ratio_dbs"),
            slack: config.u64("smoosh.slack_dbs", "min_priority", limits::COMPACTION_SLACK_BYTES),
            slack_bytes: config.u64("smoosh.slack_dbs", "min_size", limits::COMPACTION_MIN_BYTES),
            slack_hours: Window::of(config, "smoosh.slack_dbs"),
        }
    }

    /// The hours in which a range of these sizes is to be compacted, if it is due for that and they are on at `wall`.
    fn due(&self, sizes: &shard::Sizes, wall: Duration) -> Option<Window> {
        let by_ratio = sizes.file as f64 >= self.ratio * sizes.active as f64 && sizes.file >= self.ratio_bytes;
        let by_slack = sizes.file - sizes.active >= self.slack && sizes.file >= self.slack_bytes;
        let due = [(by_ratio, self.ratio_hours), (by_slack, self.slack_hours)];
        let hours = due.into_iter().find(|(is_due, hours)| *is_due && hours.is_open(wall)).map(|(_, hours)| hours);
        hours.filter(|_| sizes.file > sizes.active)
    }
}

impl Compaction<'_> {
    /// Starts to remove the bodies of revisions that are no leaves, in the background.
    pub async fn compact(self) -> Result<(), SettingError> {
        if self.is_gone() {
            return Err(SettingError::DatabaseGone);
        }
        let database = Arc::clone(self.database);
        self.context.env.spawn(async move {
            database.compaction().compact_elsewhere().await;
            database.compaction().compact_ranges(None).await;
        });
        Ok(())
    }

    /// Compacts all of its ranges.
    #[cfg(test)]
    pub(in crate::coordinator) async fn compact_all(self) -> Result<(), ShardError> {
        self.try_compact_ranges(None).await.map(|_| ())
    }

    /// Compacts its ranges here, or those that are due, one after the other; nothing when that is under way already.
    /// Answers how many it compacted.
    async fn compact_ranges(self, due: Option<Thresholds>) -> usize {
        // One compaction at a time is enough: a second one would find nothing to do.
        let running = self.compactions.fetch_add(1, Ordering::Relaxed);
        let done = if running == 0 { self.try_compact_ranges(due).await } else { Ok(0) };
        self.compactions.fetch_sub(1, Ordering::Relaxed);
        done.unwrap_or_else(|error| {
            if error != ShardError::Dropped {
                tracing::warn!(database = self.name, %error, "compaction ended early");
            }
            0
        })
    }

    async fn try_compact_ranges(self, due: Option<Thresholds>) -> Result<usize, ShardError> {
        let mut done = 0;
        for index in self.ranges() {
            match self.compact_range(index, due).await {
                Ok(is_done) => done += usize::from(is_done),
                Err(ShardError::Dropped) => return Err(ShardError::Dropped),
                // It is away or damaged: that is nothing to the others.
                Err(error) => tracing::warn!(database = self.name, range = index, %error, "a range is not compacted"),
            }
        }
        Ok(done)
    }

    /// Compacts this node's replica of a range if there is one and it is due; answers whether it did.
    async fn compact_range(self, index: usize, due: Option<Thresholds>) -> Result<bool, ShardError> {
        let Some(OwnReplica { shard: replica, .. }) = self.replicas().own_replica(index).await? else {
            return Ok(false);
        };
        let info = replica.info().await?;
        let hours = match due {
            None => None,
            Some(thresholds) => match thresholds.due(&info.sizes, self.context.env.wall()) {
                None => return Ok(false),
                hours => hours,
            },
        };
        let last_purge = self.last_dispensable_purge((index, &replica), &info).await?;
        self.compact_replica((index, &replica), &info, last_purge, hours).await
    }

    /// Compacts this node's replica of a range, whose log of purges loses its records up to `last_purge`. Where `hours`
    /// are strict it ends with them. Answers whether it came to the end.
    pub(in crate::coordinator) async fn compact_replica(
        self,
        (index, replica): (usize, &ShardReplica),
        info: &ShardInfo,
        last_purge: u64,
        hours: Option<Window>,
    ) -> Result<bool, ShardError> {
        let env = &self.context.env;
        let subject = Subject::new(TaskKind::DatabaseCompaction, &self.name).range(self.map().range(index));
        let task = env.begin_task(subject, Some(info.doc_count.saturating_add(info.doc_del_count)));
        let goes_on = |phase: &'static str, documents: u64| {
            task.step(phase, documents);
            hours.is_none_or(|hours| hours.lets_go_on(env.wall()))
        };
        let is_done = replica.compact_while(last_purge, self.compaction_pace(), &goes_on).await?;
        match is_done {
            true => env.metrics().count(Counter::ShardsCompacted),
            false => tracing::info!(database = self.name, range = index, "a compaction ends with its hours"),
        }
        Ok(is_done)
    }

    /// The last purge record (its position) that a replica need not keep. It keeps as many as the limit says, and all
    /// that another replica or its own child shards have not applied yet, for those would bring back what was purged.
    /// That holds for the replica of a node that was removed, too, until the range is moved off it: the node may be
    /// added again.
    pub(in crate::coordinator) async fn last_dispensable_purge(
        self,
        (index, replica): (usize, &ShardReplica),
        info: &ShardInfo,
    ) -> Result<u64, ShardError> {
        if self.children(index).await?.is_some() {
            return Ok(0);
        }
        let mut keep = self.purged_infos_limit();
        let others = self.replicas().nodes_of(index).into_iter().filter(|node| *node != self.context.node);
        for node in others {
            let lacks = info.purge_seq.saturating_sub(sync_points::purges_taken(replica, &node).await?);
            if lacks > keep {
                let (name, why) = (&self.name, "records of purges are kept until a replica has taken them in");
                tracing::info!(database = name, range = index, %node, records = lacks, "{why}");
                keep = lacks;
            }
        }
        Ok(info.purge_seq.saturating_sub(keep))
    }

    /// The budget of a compaction on this node.
    fn compaction_pace(self) -> Pace {
        let budget = self.context.config.u64("settee", "compaction_mb_per_s", limits::COMPACTION_MB_PER_S);
        Pace::new(&self.context.env, budget)
    }

    /// Has the other nodes begin to compact their replicas.
    async fn compact_elsewhere(self) {
        for index in self.ranges() {
            for replica in self.replicas().primaries(&self.layout(), index).await.unwrap_or_default() {
                if let RangeReplica::Remote(replica) = replica
                    && let Err(error) = replica.ask(Compact).await
                {
                    tracing::info!(%error, database = self.name, "a replica is not compacted");
                }
            }
        }
    }
}

impl Coordinator {
    /// How many open databases are being compacted on this node.
    pub fn compacting(&self) -> usize {
        self.handles().iter().filter(|database| database.compactions.load(Ordering::Relaxed) > 0).count()
    }

    /// Starts the task that compacts what is due; it ends with the coordinator.
    pub(in crate::coordinator) fn keep_compacting(self: &Arc<Self>) {
        self.spawn_worker("compaction", "a pause", keep_compacting);
    }

    /// Compacts those ranges of open databases that are due; answers how many.
    pub(in crate::coordinator) async fn compact_what_is_due(&self) -> usize {
        let config = self.config();
        if !config.bool("settee", "auto_compaction", true) {
            return 0;
        }
        let mut done = 0;
        for database in self.handles() {
            done += database.compaction().compact_ranges(Some(Thresholds::of(config))).await;
        }
        done
    }
}

async fn keep_compacting(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    loop {
        env.sleep(limits::COMPACTION_PAUSE).await;
        let Some(coordinator) = weak.upgrade() else { return };
        // Here, for they take no task of their own until somebody asks for it.
        coordinator.keep_collecting();
        coordinator.keep_expiring();
        let _run = worker.begin();
        coordinator.compact_what_is_due().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_due_by_ratio_or_by_slack_and_never_when_it_is_small() {
        let env = crate::world::tokio_host::env(
            tokio::runtime::Builder::new_current_thread().build().unwrap().handle().clone(),
        );
        let of = |settings: &[&str]| {
            let settings = settings.iter().map(|s| crate::config::Setting::parse(s).unwrap()).collect();
            Thresholds::of(&Config::in_memory(&env, settings))
        };
        let due = |thresholds: Thresholds, active: u64, file: u64| {
            thresholds.due(&shard::Sizes { active, external: active, file }, Duration::from_secs(3600)).is_some()
        };
        let (mb, default) = (1 << 20, of(&[]));
        assert!(due(default, 2 * mb, 4 * mb) && due(default, 0, 2 * mb));
        assert!(!due(default, 3 * mb, 4 * mb) && !due(default, 1, mb - 1) && !due(default, 4 * mb, 4 * mb));
        assert!(due(default, 10_000 * mb, 10_512 * mb) && !due(default, 10_000 * mb, 10_511 * mb));
        let eager = of(&["smoosh.ratio_dbs/min_priority=1.2", "smoosh.ratio_dbs/min_size=10"]);
        assert!(due(eager, 100, 120) && !due(eager, 100, 119));
        assert_eq!(of(&["smoosh.ratio_dbs/min_priority=x"]), default);
        let at_night = of(&["smoosh.ratio_dbs/from=22:00", "smoosh.ratio_dbs/to=01:00"]);
        assert!(!due(at_night, 0, 2 * mb), "it is 01:00");
        assert!(due(at_night, 10_000 * mb, 10_512 * mb), "the other rule has no hours");
        let later = of(&["smoosh.ratio_dbs/from=22:00", "smoosh.ratio_dbs/to=01:01"]);
        assert!(due(later, 0, 2 * mb));
    }
}
