//! Reads that show at least the writes that a token names (`token`).
//!
//! Before such a read begins, the node looks for a replica of each range of the token that has the writes: one of those
//! that the token names, or one that has read one of them up to there (`sync_points`). It waits for such a replica for
//! a bounded time; a read that cannot include the writes fails and never shows less. The handle of the read then reads
//! those ranges from these replicas alone ([`Replicas::readers`]): documents, lists, views, queries and feeds. Reads
//! without a token cost nothing of this.

use std::sync::Arc;

use futures_util::future::join_all;

use crate::coordinator::replica::calls::Holds;
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica};
use crate::coordinator::replica::replicas::Replicas;
use crate::coordinator::replica::sync_points;
use crate::coordinator::replica::token::{self, HeldWrites, Mark, RangeWrites, WriteToken};
use crate::coordinator::topology::error::TokenError;
use crate::coordinator::topology::record;
use crate::coordinator::topology::shard_map::Range;
use crate::limits;
use crate::shard::ShardError;
use crate::world::buggify::{Mutation, mutated, sometimes};

/// The nodes whose replicas hold what a token names, for each of the ranges that it names.
#[derive(Debug)]
pub struct Floor {
    instance: String,
    ranges: Vec<(Range, Vec<Arc<str>>)>,
}

fn overlap(one: Range, other: Range) -> bool {
    one.begin <= other.end && other.begin <= one.end
}

impl Floor {
    /// Whether the replica of a range on a node may be read.
    pub(in crate::coordinator) fn admits(&self, range: Range, node: &Arc<str>) -> bool {
        self.ranges.iter().all(|(written, nodes)| !overlap(*written, range) || nodes.contains(node))
    }
}

impl Coordinator {
    /// What a token asks of reads of a database; `None`: nothing. Waits until there are replicas that hold it.
    ///
    /// # Errors
    /// There are none within `limits::TOKEN_WAIT`, or the database is another one than that of the token.
    pub async fn floor(&self, name: &str, token: &WriteToken) -> Result<Option<Arc<Floor>>, TokenError> {
        if !token.names(name) || mutated(Mutation::WriteTokenIgnored) {
            return Ok(None);
        }
        let (env, began) = (self.env(), self.env().now());
        loop {
            let failed = match self.try_floor(name, token).await {
                Ok(floor) => return Ok(floor),
                Err(failed) => failed,
            };
            if env.now().since(began) >= limits::TOKEN_WAIT {
                return Err(failed);
            }
            sometimes("token: a read waited for a replica that holds a write");
            env.sleep(limits::TOKEN_PAUSE).await;
        }
    }

    async fn try_floor(&self, name: &str, token: &WriteToken) -> Result<Option<Arc<Floor>>, TokenError> {
        let database = self.database(name).ok();
        if let Some(database) = &database
            && let Some(writes) = token.writes(name, database.instance())
        {
            return database
                .replicas()
                .holders_of(writes)
                .await
                .map(|floor| Some(Arc::new(floor)))
                .ok_or(TokenError::Behind);
        }
        // What was written to a database that was deleted is gone with it, and nothing older is shown.
        match self.were_deleted(name, token).await {
            true => Ok(None),
            false => Err(TokenError::OtherDatabase),
        }
    }

    /// Whether this node knows that the databases of a token were deleted.
    async fn were_deleted(&self, name: &str, token: &WriteToken) -> bool {
        if self.context().others().is_empty() {
            return true;
        }
        let prefix = record::tomb_key(name, "");
        let Ok(rows) = self.context().rows(&prefix).await else { return false };
        let hash =
            |key: &[u8]| key.strip_prefix(prefix.as_slice()).map(|rest| token::hash(&String::from_utf8_lossy(rest)));
        let deleted: Vec<u32> =
            rows.iter().filter(|(_, mark)| *mark == record::DELETED).filter_map(|(key, _)| hash(key)).collect();
        token.instances(name).all(|instance| deleted.contains(&instance))
    }
}

impl Database {
    /// The same database for reads that show at least what a floor stands for; of another instance as it is.
    pub fn above(self: &Arc<Self>, floor: &Arc<Floor>) -> Arc<Database> {
        match floor.instance == self.instance() {
            true => Arc::new(self.with_floor(Arc::clone(floor))),
            false => Arc::clone(self),
        }
    }

    pub(in crate::coordinator) fn token_of(&self, writes: impl IntoIterator<Item = RangeWrites>) -> Option<String> {
        WriteToken::of(&self.name, self.instance(), writes).text()
    }

    /// Which of the replicas of a range may be read.
    pub(in crate::coordinator) fn admitted(
        &self,
        layout: &Layout,
        index: usize,
        mut replicas: Vec<RangeReplica>,
    ) -> Vec<RangeReplica> {
        if let Some(floor) = &self.floor {
            let (range, own) = (layout.map.range(index), &self.context.node);
            replicas.retain(|replica| floor.admits(range, replica.node().unwrap_or(own)));
        }
        replicas
    }
}

impl Replicas<'_> {
    /// The nodes whose replicas hold writes, for each range that they are in; `None`: of one there is none that can be
    /// asked.
    async fn holders_of(self, writes: &[RangeWrites]) -> Option<Floor> {
        let layout = self.layout();
        let of_range = |index: &usize| {
            let (index, range, layout) = (*index, layout.map.range(*index), &layout);
            let wanted: Vec<HeldWrites> =
                writes.iter().filter(|written| overlap(written.range, range)).map(|w| w.held.clone()).collect();
            async move {
                match wanted.is_empty() {
                    true => Ok(None),
                    false => Ok(Some((range, self.nodes_that_hold(layout, index, wanted).await?))),
                }
            }
        };
        let found: Result<Vec<_>, ShardError> =
            join_all(layout.map.live().iter().map(of_range)).await.into_iter().collect();
        let ranges: Vec<_> = found.ok()?.into_iter().flatten().collect();
        let is_whole = ranges.iter().all(|(_, nodes)| !nodes.is_empty());
        is_whole.then(|| Floor { instance: self.instance().to_owned(), ranges })
    }

    /// The nodes whose replicas of a range hold all that is wanted: this one alone, if it would be read first.
    async fn nodes_that_hold(
        self,
        layout: &Layout,
        index: usize,
        wanted: Vec<HeldWrites>,
    ) -> Result<Vec<Arc<str>>, ShardError> {
        let (replicas, own) = (self.all_readers(layout, index).await?, &self.context.node);
        if let Some(RangeReplica::Own(replica)) = replicas.first()
            && self.holds(layout, index, replica, &wanted).await?
        {
            return Ok(vec![Arc::clone(own)]);
        }
        let wanted = &wanted;
        let ask = |replica: &RangeReplica| {
            let (replica, node) = (replica.clone(), Arc::clone(replica.node().unwrap_or(own)));
            async move {
                let holds = match &replica {
                    RangeReplica::Own(replica) => self.holds(layout, index, replica, wanted).await,
                    RangeReplica::Remote(replica) => replica.ask(Holds(wanted.clone())).await,
                };
                holds.is_ok_and(|holds| holds).then_some(node)
            }
        };
        let nodes = join_all(replicas.iter().map(ask)).await.into_iter().flatten().collect::<Vec<_>>();
        if !nodes.is_empty() {
            sometimes("token: a range was read elsewhere because its replica here lacked a write");
        }
        Ok(nodes)
    }

    /// Whether this node's replica of a range holds all that is wanted.
    pub(in crate::coordinator) async fn holds(
        self,
        layout: &Layout,
        index: usize,
        replica: &OwnReplica,
        wanted: &[HeldWrites],
    ) -> Result<bool, ShardError> {
        for held in wanted {
            let mut holds = held.marks.iter().any(|mark| replica.reached(mark));
            if !holds && !held.only {
                for node in layout.placed.nodes(index, &self.context.node).iter() {
                    holds |= *node != self.context.node && has_read(replica, node, &held.marks).await?;
                }
            }
            if !holds {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl OwnReplica {
    /// Whether this is the replica that a mark names, and has what that one had there.
    fn reached(&self, mark: &Mark) -> bool {
        let replica_position = self.replica_position();
        let resumed = self.epochs.resume(mark.epoch, mark.position);
        mark.shard == replica_position.shard
            && mark.position <= replica_position.position
            && resumed == Some(mark.position)
    }
}

/// Whether a replica here has read that of a node up to one of some marks, or further.
async fn has_read(replica: &OwnReplica, node: &str, marks: &[Mark]) -> Result<bool, ShardError> {
    let Some(point) = sync_points::pulled(&replica.shard, node).await? else { return Ok(false) };
    let is_before = |mark: &&Mark| mark.shard == point.from_shard && mark.position <= point.from;
    let marks: Vec<&Mark> = marks.iter().filter(is_before).collect();
    if marks.iter().any(|mark| mark.epoch == point.from_epoch) {
        return Ok(true);
    }
    if marks.is_empty() {
        return Ok(false);
    }
    let told = sync_points::epochs_of(&replica.shard, node).await?;
    Ok(marks.iter().any(|mark| lasted(&told, mark, point.from_epoch)))
}

/// Whether a replica that told these epochs had what a mark of one of them names in a later one, too: each of those
/// between began behind it.
fn lasted(told: &[(u64, u64)], mark: &Mark, later: u64) -> bool {
    let at = |wanted: u64| told.iter().position(|(epoch, _)| *epoch == wanted);
    match (at(mark.epoch), at(later)) {
        (Some(of), Some(later)) if of < later => told[of + 1..=later].iter().all(|(_, began)| *began >= mark.position),
        _ => false,
    }
}
