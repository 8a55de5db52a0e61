//! Comparison of the replicas of two nodes, from coarse to fine: one digest over all databases of a page, then one
//! digest for each database, then one message for each replica, then digests of ever smaller ranges of ids.
//!
//! The asking node says how its replicas stand. The asked node knows what that should be, from its own replicas and
//! from how far it has applied those of the asking node; where both agree nothing more is sent. Digests cover the
//! leaves of documents (`shard/summary.rs`) and the stamps of local documents.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use futures_util::{FutureExt as _, StreamExt as _, stream};

use crate::coordinator::anti_entropy::{Pulls, RepairOperations};
use crate::coordinator::consensus::gossip::LearnError;
use crate::coordinator::replica::catalogue::{Coordinator, NamesQuery};
use crate::coordinator::replica::message::{IdRange, ReplicaPosition, StatusReport, SyncPoint, encode};
use crate::coordinator::replica::node_calls::CatalogueCall;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::sync_points;
use crate::document::id::DocId;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::{IdRangeSummary, ShardError, ShardReplica, SyncState};
use crate::world::BoxFuture;
use crate::world::buggify::{buggify, fewer};

/// Whose replicas a digest is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    /// This node's.
    Own,
    /// The other node's, as they must be when this one's hold the same.
    Theirs,
}

/// The digests of databases by their names.
type Digests = BTreeMap<String, [u8; 16]>;

/// All ids.
pub(in crate::coordinator) const ALL: IdRange = (Bound::Unbounded, Bound::Unbounded);

/// What a replica says of itself to `node`.
pub(in crate::coordinator) async fn status(replica: &OwnReplica, node: &str) -> Result<StatusReport, ShardError> {
    // First: what others have heard by then is behind no purge and no position that is told with it.
    let taken = sync_points::pulled(&replica.shard, node).await?;
    let heard = sync_points::heard(&replica.shard).await?;
    let SyncState { position, total, purge_seq, purge_floor, rounds, .. } = replica.shard.state().await?;
    Ok(StatusReport {
        replica_position: ReplicaPosition { position, ..replica.replica_position() },
        documents: total.documents(),
        digest: total.digest,
        locals: locals_digest(&replica.shard).await?,
        purge_seq,
        purge_floor,
        taken,
        soundness: None,
        rounds,
        heard: Some(heard),
    })
}

/// Cuts ranges of ids into parts of about as many documents.
pub(in crate::coordinator) async fn split(
    replica: &ShardReplica,
    ranges: Vec<IdRange>,
) -> Result<Vec<Vec<IdRangeSummary>>, ShardError> {
    let mut out = Vec::with_capacity(ranges.len());
    for (start, end) in ranges.into_iter().take(limits::SPLITS_PER_CALL) {
        let parts = if buggify("compare: replicas cut in two") { 2 } else { limits::SUMMARY_PARTS_MAX };
        out.push(replica.split(start, end, parts).await?);
    }
    Ok(out)
}

/// The digest of all local documents: the sum over each id and stamp, which tell the content.
pub(in crate::coordinator) async fn locals_digest(replica: &ShardReplica) -> Result<u128, ShardError> {
    let (mut sum, mut after): (u128, Bound<DocId>) = (0, Bound::Unbounded);
    loop {
        let page = replica.local_registers(after, limits::STEP_ROWS).await?;
        for (id, register) in &page {
            sum = sum.wrapping_add(u128::from_le_bytes(digest(&(id, register.stamp))));
        }
        match page.into_iter().last() {
            Some((last, _)) => after = Bound::Excluded(last),
            None => return Ok(sum),
        }
    }
}

fn digest(of: &impl serde::Serialize) -> [u8; 16] {
    let mut out = [0; 16];
    out.copy_from_slice(&blake3::hash(&encode(of)).as_bytes()[..16]);
    out
}

/// The digest of all databases of a page.
fn rolled_up(digests: &Digests) -> [u8; 16] {
    digest(digests)
}

/// The databases behind a name, up to another one.
pub(in crate::coordinator) fn names_between(
    after: &Option<String>,
    end: Option<String>,
    limit: Option<u64>,
) -> NamesQuery {
    // The least name behind another one.
    let start = after.as_ref().map(|after| format!("{after}\0"));
    NamesQuery { start, end, limit, ..NamesQuery::default() }
}

impl Coordinator {
    /// The digests of the replicas of ranges that both this node and `node` hold.
    async fn digests(&self, node: &Arc<str>, whose: Whose, names: &[String]) -> Digests {
        let mut out = Digests::new();
        for name in names {
            let Ok(database) = self.database(name) else { continue };
            match database.pulls().digest_with(node, whose).await {
                Ok(Some(digest)) => drop(out.insert(name.clone(), digest)),
                // It is no replica of theirs, or was deleted meanwhile.
                Ok(None) | Err(ShardError::Dropped) => {}
                // It differs from what the other node says, so that the database is looked at by itself: it keeps no
                // other from being compared.
                Err(error) => {
                    tracing::info!(database = name, %error, "what the replicas of a database hold cannot be told");
                    out.insert(name.clone(), [whose as u8; 16]);
                }
            }
        }
        out
    }

    /// Answers [`CatalogueCall::RolledUp`].
    pub(in crate::coordinator) async fn replicas_rolled_up(
        &self,
        node: &str,
        after: Option<String>,
        limit: u64,
    ) -> ([u8; 16], Option<String>) {
        let limit = limit.clamp(1, limits::COMPARE_PAGE);
        let names = self.database_names(&names_between(&after, None, Some(limit)));
        let last = names.last().filter(|_| names.len() as u64 == limit).cloned();
        (rolled_up(&self.digests(&node.into(), Whose::Own, &names).await), last)
    }

    /// Answers [`CatalogueCall::Replicas`].
    pub(in crate::coordinator) async fn replicas_behind(
        &self,
        node: &str,
        after: Option<String>,
        last: Option<String>,
    ) -> Vec<(String, [u8; 16])> {
        let names = self.database_names(&names_between(&after, last, Some(limits::COMPARE_PAGE)));
        self.digests(&node.into(), Whose::Own, &names).await.into_iter().collect()
    }

    /// Applies what the replicas of another node have and those here lack, of all databases in which they differ.
    /// `thoroughly`: documents are compared even where all changes were applied.
    pub(in crate::coordinator) async fn catch_up_with(
        &self,
        node: &Arc<str>,
        thoroughly: bool,
    ) -> Result<(), LearnError> {
        let page = fewer("compare: databases one by one", limits::COMPARE_PAGE as usize) as u64;
        self.catch_up_by_pages(node, thoroughly, page).await
    }

    /// As [`Coordinator::catch_up_with`], so many databases at a time. One that fails keeps no other from being
    /// compared: the first failure is told at the end.
    pub(in crate::coordinator) async fn catch_up_by_pages(
        &self,
        node: &Arc<str>,
        thoroughly: bool,
        limit: u64,
    ) -> Result<(), LearnError> {
        let (mut after, mut done) = (None, Ok(()));
        let databases = self.count_databases() as u64;
        let task = self.env().begin_task(Subject::new(TaskKind::NodeSync, "").peer(node), Some(databases));
        loop {
            let call = CatalogueCall::RolledUp(after.clone(), limit);
            let (theirs, last): ([u8; 16], Option<String>) = self.ask_catalogue(node, &call).await?;
            let names = self.database_names(&names_between(&after, last.clone(), None));
            let (expected, mut compared) = (self.digests(node, Whose::Theirs, &names).await, names.len() as u64);
            if theirs != rolled_up(&expected) {
                let call = CatalogueCall::Replicas { after, last: last.clone() };
                let page: Vec<(String, [u8; 16])> = self.ask_catalogue(node, &call).await?;
                let differs = |(name, digest): &&(String, [u8; 16])| expected.get(name) != Some(digest);
                let differing: Vec<&String> = page.iter().filter(differs).map(|(name, _)| name).collect();
                if !thoroughly {
                    self.context().status.in_sync.differ(node, differing.iter().copied());
                }
                let mut pulls: Vec<BoxFuture<'_, Result<(), LearnError>>> = Vec::new();
                compared = compared.saturating_sub(differing.len() as u64);
                for name in differing {
                    let pull = self.pull_database(name, node, thoroughly);
                    pulls.push(Box::pin(pull.inspect(|_| task.add(1))));
                }
                let pulled: Vec<Result<(), LearnError>> =
                    stream::iter(pulls).buffer_unordered(limits::DATABASES_AT_ONCE).collect().await;
                done = done.and(pulled.into_iter().collect());
            }
            task.add(compared);
            match thoroughly {
                true => self.settle_what_is_idle(node, &names).await,
                false => self.context().status.in_sync.reached(node, last.as_ref().or(names.last())),
            }
            if last.is_none() {
                return done;
            }
            after = last;
        }
    }

    async fn pull_database(&self, name: &str, node: &Arc<str>, thoroughly: bool) -> Result<(), LearnError> {
        let Ok(database) = self.database(name) else { return Ok(()) };
        let pulled = database.pulls().pull_from(node, thoroughly).await;
        if let Err(error) = &pulled {
            tracing::info!(database = name, %node, %error, "the replicas of a database are not in sync yet");
        }
        let pulled = pulled.map_err(|error| LearnError::Database(name.to_owned(), error));
        if !thoroughly {
            let error = pulled.as_ref().err().map(|error| error as &dyn std::fmt::Display);
            self.context().status.in_sync.pulled(node, name, error);
        }
        pulled
    }
}

impl Coordinator {
    /// Reads replicas that hold the same where something is left to be noted: purges that the others have applied, and
    /// epochs that were not told. Of a database that nobody changes nothing else would lead there.
    async fn settle_what_is_idle(&self, node: &Arc<str>, names: &[String]) {
        for database in names.iter().filter_map(|name| self.database(name).ok()) {
            let done = match database.pulls().has_open_ends(node).await {
                Ok(true) => database.pulls().pull_from(node, false).await,
                open => open.map(drop),
            };
            if let Err(error) = done {
                tracing::debug!(database = database.name, %node, %error, "what others have applied is not noted yet");
            }
        }
    }
}

impl Pulls<'_> {
    /// Whether a replica here keeps purges on record that the one of a node may have applied, or lacks the epochs in
    /// which it has read that one.
    async fn has_open_ends(self, node: &Arc<str>) -> Result<bool, ShardError> {
        let layout = self.layout();
        for range in self.ranges().into_iter().filter(|range| self.replicas().nodes_of(*range).contains(node)) {
            let Some(replica) = self.replicas().own_replica_by(&layout, range).await? else { continue };
            let replica = replica.in_background().shard;
            let point = sync_points::pulled(&replica, node).await?.filter(|point| point.from > 0);
            let told = sync_points::epochs_of(&replica, node).await?;
            let is_told = |point: &SyncPoint| told.iter().any(|(epoch, _)| *epoch == point.from_epoch);
            let purges = replica.info().await?.purge_seq;
            if point.is_some_and(|point| !is_told(&point)) || sync_points::purges_taken(&replica, node).await? < purges
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// How this node's replica of a range stands. What it cannot say for damage, or while it is not filled yet, is left
    /// out where another node asks: that one looks closer then.
    async fn status_with(self, range: usize, node: &str, whose: Whose) -> Result<Option<StatusReport>, ShardError> {
        let layout = self.layout();
        let is_filling = layout.placed.shard(range).is_some_and(|shard| self.context.status.rebuilds.is_filling(shard));
        if is_filling && whose == Whose::Own {
            return Ok(None);
        }
        let told = async {
            match self.replicas().own_replica_to_fill(&layout, range).await? {
                Some(replica) => status(&replica.in_background(), node).await.map(Some),
                None => Ok(None),
            }
        };
        match told.await {
            Err(error) if whose == Whose::Own && error.is_damage_here() => Ok(None),
            told => told,
        }
    }

    /// The digest of the replicas of ranges that both this node and `node` hold; `None` when there are none.
    async fn digest_with(self, node: &Arc<str>, whose: Whose) -> Result<Option<[u8; 16]>, ShardError> {
        let mut ranges = Vec::new();
        for range in self.ranges() {
            if !self.replicas().nodes_of(range).contains(node) {
                continue;
            }
            let of_range = self.status_with(range, node, whose).await?;
            let Some(StatusReport { replica_position, digest, locals, purge_seq, taken, .. }) = of_range else {
                continue;
            };
            let (shard, epoch, purges) = match whose {
                Whose::Own => (replica_position.shard, replica_position.epoch_of(replica_position.position), purge_seq),
                Whose::Theirs => {
                    let SyncPoint { from_shard, from_epoch, purges, .. } = taken.unwrap_or_default();
                    (from_shard, from_epoch, purges)
                }
            };
            ranges.push((range, shard, epoch, purges, digest, locals));
        }
        Ok((!ranges.is_empty()).then(|| digest(&(self.instance(), ranges))))
    }
}
