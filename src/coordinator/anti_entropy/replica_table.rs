//! How each replica of a database stands beside the others of its range: one table, made by asking the nodes that hold
//! them. `docs/lagging.md` says what brings a replica from one state to the next. Nothing is changed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};

use crate::coordinator::anti_entropy::{Pulls, RepairOperations};
use crate::coordinator::replica::calls::Status;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::message::{Soundness, StatusReport};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::limits;
use crate::shard::ShardError;
use crate::world::Instant;

/// The replicas of a range, in the order in which their nodes become the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeReplicas {
    /// The range, `00000000-1fffffff`.
    pub range: String,
    /// Those that count, then one that a move fills.
    pub replicas: Vec<ReplicaRow>,
}

/// A replica as it was when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaRow {
    /// The node that holds it.
    pub node: String,
    /// See [`ReplicaState`].
    pub state: ReplicaState,
    /// Why it did not answer.
    pub error: Option<String>,
    /// What it holds; `None`: it did not say.
    pub holds: Option<Holds>,
}

/// What keeps a replica from being like the others: the first of these that holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Its node is not in reach.
    Away,
    /// Its node is in maintenance mode, or its writes have stopped.
    Maintenance,
    /// It did not answer.
    Silent,
    /// It is damaged, or rebuilt and not filled yet: nothing of it is read.
    Rebuilding,
    /// Its store file is damaged; what can be read of it is read.
    Damaged,
    /// It moves to its node, and does not count yet.
    Moving,
    /// Its node was absent and has yet to be compared with others: it may lack what was written meanwhile.
    NotInSync,
    /// It does not hold what the first replica in sync holds. While documents are written that is so for moments.
    Differs,
    /// It holds what the others hold.
    InSync,
}

impl ReplicaState {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            ReplicaState::Away => "away",
            ReplicaState::Maintenance => "maintenance",
            ReplicaState::Silent => "silent",
            ReplicaState::Rebuilding => "rebuilding",
            ReplicaState::Damaged => "damaged",
            ReplicaState::Moving => "moving",
            ReplicaState::NotInSync => "not_in_sync",
            ReplicaState::Differs => "differs",
            ReplicaState::InSync => "in_sync",
        }
    }
}

/// What a replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holds {
    /// Documents, deleted ones included.
    pub documents: u64,
    /// The number of its last change, of its own count.
    pub position: u64,
    /// The number of its last purge, of its own count.
    pub purge_seq: u64,
    /// What tells documents and local documents of two replicas apart.
    digests: (u128, u128),
}

impl Pulls<'_> {
    /// See the module head: all ranges, in ring order. Who has not answered within `limits::STATUS_PATIENCE_MS` of the
    /// beginning is not waited for.
    pub async fn replica_table(self) -> Vec<RangeReplicas> {
        let (layout, begun) = (self.layout(), self.context.env.now());
        let one = |range: usize| {
            let layout = Arc::clone(&layout);
            async move { self.replicas_of(&layout, range, begun).await }
        };
        let ranges = layout.map.live().to_vec();
        stream::iter(ranges.into_iter().map(one)).buffered(limits::RANGES_AT_ONCE).collect().await
    }

    async fn replicas_of(self, layout: &Layout, range: usize, begun: Instant) -> RangeReplicas {
        let counting = layout.primaries(range, &self.context.node).len();
        let nodes = layout.writers(range, &self.context.node);
        let told = join_all(nodes.iter().map(|node| self.told_by(layout, range, node, begun))).await;
        let row = |(at, (node, told)): (usize, (&Arc<str>, Result<StatusReport, ShardError>))| {
            let state = self.state_of(node, told.as_ref().ok(), at >= counting);
            let is_told = !matches!(state, ReplicaState::Away | ReplicaState::Silent | ReplicaState::Rebuilding);
            let (error, holds) = match told {
                Ok(status) => (None, is_told.then(|| Holds::of(&status))),
                Err(error) => ((state == ReplicaState::Silent).then(|| error.to_string()), None),
            };
            ReplicaRow { node: node.to_string(), state, error, holds }
        };
        let mut replicas: Vec<ReplicaRow> = nodes.iter().zip(told).enumerate().map(row).collect();
        let first = replicas.iter().find(|row| row.state == ReplicaState::InSync).and_then(|row| row.holds);
        for row in &mut replicas {
            if row.state == ReplicaState::InSync && row.holds.map(|own| own.digests) != first.map(|own| own.digests) {
                row.state = ReplicaState::Differs;
            }
        }
        RangeReplicas { range: layout.map.range(range).to_string(), replicas }
    }

    /// The state of a replica, not compared with the others yet.
    fn state_of(self, node: &Arc<str>, told: Option<&StatusReport>, is_moving: bool) -> ReplicaState {
        let rank = self.context.rank(node);
        match told.map(|status| status.soundness) {
            _ if !self.context.is_there(node) => ReplicaState::Away,
            _ if rank.is_none() => ReplicaState::Maintenance,
            None => ReplicaState::Silent,
            Some(Some(Soundness::Unusable)) => ReplicaState::Rebuilding,
            Some(Some(Soundness::Damaged)) => ReplicaState::Damaged,
            _ if is_moving => ReplicaState::Moving,
            _ if rank != Some(0) => ReplicaState::NotInSync,
            _ => ReplicaState::InSync,
        }
    }

    /// What a replica says of itself, soon or not at all.
    async fn told_by(
        self,
        layout: &Layout,
        range: usize,
        node: &Arc<str>,
        begun: Instant,
    ) -> Result<StatusReport, ShardError> {
        let (env, patience) = (&self.context.env, Duration::from_millis(limits::STATUS_PATIENCE_MS));
        let told = async {
            if *node == self.context.node {
                return self.replica_rebuild().told_status(layout, range, node).await;
            }
            if !self.context.is_there(node) {
                return Err(ShardError::NotExecuted("its node is not in reach".to_owned()));
            }
            let remote = RemoteReplica::new(&self.target, range, node).by_map(layout.placed.version).in_background();
            remote.ask(Status).await
        };
        let silent = |_| ShardError::NotExecuted(format!("no answer within {patience:?}"));
        env.timeout(patience.saturating_sub(env.now().since(begun)), told).await.map_err(silent)?
    }
}

impl Holds {
    fn of(status: &StatusReport) -> Holds {
        Holds {
            documents: status.documents,
            position: status.replica_position.position,
            purge_seq: status.purge_seq,
            digests: (status.digest, status.locals),
        }
    }
}
