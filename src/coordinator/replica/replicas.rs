//! The replicas of a range, and the order in which reads ask them.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::replica::context;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::{OwnReplica, RangeReplica, is_away};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::topology::error::MayHaveMoved;
use crate::coordinator::topology::events::EventKind;
use crate::limits;
use crate::shard::{OnChange, Owner, ShardError, ShardId, ShardReplica};
use crate::storage::StorageError;

/// The replicas of the ranges of a database.
#[derive(Clone, Copy)]
pub struct Replicas<'d> {
    database: &'d Database,
}

impl Deref for Replicas<'_> {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.database
    }
}

impl Database {
    /// See [`Replicas`].
    pub(in crate::coordinator) fn replicas(&self) -> Replicas<'_> {
        Replicas { database: self }
    }
}

impl Replicas<'_> {
    /// The nodes that hold a range, in the order in which they become the primary: that of the map, begun elsewhere for
    /// each range, so that the work is spread.
    pub(in crate::coordinator) fn nodes_of(self, index: usize) -> Vec<Arc<str>> {
        self.layout().primaries(index, &self.context.node)
    }

    /// How many replicas a range has.
    pub(in crate::coordinator) fn replicas_of(self, index: usize) -> usize {
        self.layout().placed.replicas(index)
    }

    /// Whether this node holds the only replica of a range: nobody else is to be asked.
    pub(in crate::coordinator) fn is_alone(self, index: usize) -> bool {
        self.layout().is_alone(index)
    }

    /// This node's replica of a range, opened if it is not; `None` when it holds none.
    ///
    /// # Errors
    /// [`ShardError::Moved`] for a range that was split long ago.
    pub(in crate::coordinator) async fn own_replica(self, index: usize) -> Result<Option<OwnReplica>, ShardError> {
        self.own_replica_by(&self.layout(), index).await
    }

    /// As [`Replicas::own_replica`], by a layout that may be over: its replicas refuse what is asked of them.
    ///
    /// # Errors
    /// [`ShardError::NotExecuted`], too, for a replica that is not filled yet (`rebuild`): it is as if it were away.
    pub(in crate::coordinator) async fn own_replica_by(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Option<OwnReplica>, ShardError> {
        match layout.placed.shard(index) {
            Some(shard) if self.context.status.rebuilds.is_filling(shard) => {
                Err(ShardError::NotExecuted("the replica is being rebuilt".to_owned()))
            }
            _ => self.own_replica_to_fill(layout, index).await,
        }
    }

    /// As [`Replicas::own_replica_by`], also one that is not filled yet.
    pub(in crate::coordinator) async fn own_replica_to_fill(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Option<OwnReplica>, ShardError> {
        let Some(shard) = layout.placed.shard(index) else {
            return if layout.map.is_live(index) { Ok(None) } else { Err(ShardError::Moved) };
        };
        let cell = layout.cell(index);
        let is_new = cell.get().is_none();
        let open = || async {
            let id = ShardId(shard);
            let shard =
                ShardReplica::open_with(&self.context.storage, id, self.owner_of(id, self.tell_updates())).await?;
            if self.known.tombstone_age(context::age(&self.context.config)).is_some() {
                shard.note_early();
            }
            OwnReplica::of(shard, &self.context.epochs).await
        };
        let replica = cell.get_or_try_init(open).await?.clone();
        // What ended it while it was being opened did not find it to close it.
        if self.is_gone() {
            replica.shard.close();
            return Err(ShardError::Dropped);
        }
        if is_new && self.layout().placed.shard(index) != Some(shard) {
            replica.shard.leave();
            return Err(ShardError::Moved);
        }
        Ok(Some(replica))
    }

    /// This database as the owner of a shard.
    pub(in crate::coordinator) fn owner_of(self, shard: ShardId, on_change: OnChange) -> Owner {
        let (known, node) = (Arc::clone(&self.known), Arc::clone(&self.context.node));
        let admits = Box::new(move |version| known.placed().admits(shard.0, version, &node));
        Owner { on_change, admits }
    }

    /// This node's replica of a range, for tools that work on the data of one node.
    pub(in crate::coordinator) async fn own_shard(self, index: usize) -> Result<ShardReplica, ShardError> {
        Ok(self.held_replica(index).await?.shard)
    }

    async fn held_replica(self, index: usize) -> Result<OwnReplica, ShardError> {
        let none = || ShardError::NoReplica { replicas: self.replicas_of(index) };
        self.own_replica(index).await?.ok_or_else(none)
    }

    /// As [`Replicas::own_shard`]; one that is so damaged that it cannot be opened as what is left of it.
    pub(in crate::coordinator) async fn own_shard_or_remains(self, index: usize) -> Result<ShardReplica, ShardError> {
        match self.own_shard(index).await {
            Err(ShardError::Storage(StorageError::Corrupt(_))) => {
                let shard = self.layout().placed.shard(index).ok_or(ShardError::Moved)?;
                Ok(ShardReplica::of_remains(&self.context.storage, ShardId(shard)))
            }
            opened => opened,
        }
    }

    /// Whether this node is to hold a replica of every range.
    pub(in crate::coordinator) fn holds_every_range(self) -> bool {
        let (placed, own) = (&self.layout().placed, &self.context.node);
        self.ranges().into_iter().all(|index| placed.nodes(index, own).contains(own))
    }

    /// This node's replicas of all ranges, in ring order; fails where it holds none of one.
    pub(in crate::coordinator) async fn own_shards(self) -> Result<Vec<ShardReplica>, ShardError> {
        Ok(self.own_replicas().await?.into_iter().map(|replica| replica.shard).collect())
    }

    /// As [`Replicas::own_shards`], with their epochs.
    pub(in crate::coordinator) async fn own_replicas(self) -> Result<Vec<OwnReplica>, ShardError> {
        try_join_all(self.ranges().into_iter().map(|index| self.held_replica(index))).await
    }

    /// Adds an event for every change of a document, whether or not a reader waits; none behind that of the deletion.
    pub(in crate::coordinator) fn tell_updates(self) -> OnChange {
        let (name, context, gone) = (self.name.clone(), Arc::clone(&self.context), self.gone.clone());
        Box::new(move || {
            if !*gone.borrow() {
                context.events.add(&name, EventKind::Updated);
            }
        })
    }

    /// A replica on a node, whether or not that can be reached. What is asked of it is counted by the layout.
    pub(in crate::coordinator) async fn replica_on(
        self,
        layout: &Layout,
        index: usize,
        node: &Arc<str>,
    ) -> Result<RangeReplica, ShardError> {
        let version = layout.placed.version;
        match *node == self.context.node {
            false => Ok(RangeReplica::Remote(RemoteReplica::new(&self.target, index, node).by_map(version))),
            true => match self.own_replica_by(layout, index).await? {
                Some(replica) => Ok(RangeReplica::Own(replica.by_map(version))),
                None => Err(ShardError::NotExecuted("this node holds no replica".to_owned())),
            },
        }
    }

    /// The replicas of a range that can be asked now, in the order in which they become the primary: those that hold
    /// what the others hold first. They may be none.
    pub(in crate::coordinator) async fn primaries(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeReplica>, ShardError> {
        let mut nodes: Vec<(u8, Arc<str>)> = Vec::new();
        for node in layout.primaries(index, &self.context.node) {
            nodes.extend(self.context.rank(&node).map(|rank| (rank, node)));
        }
        nodes.sort_by_key(|(rank, _)| *rank);
        let mut out = Vec::with_capacity(nodes.len());
        for (_, node) in nodes {
            match self.replica_on(layout, index, &node).await {
                Ok(replica) => out.push(replica),
                Err(error) if is_away(&error) => tracing::debug!(%error, "a replica was left out"),
                Err(error) => return Err(error),
            }
        }
        Ok(out)
    }

    /// The replicas of a range that can be asked now, in the order in which to read from them: this node's own first,
    /// unless it has been away and others have not; nodes that were slow lately are last. Of a handle with a floor
    /// those that hold what it stands for.
    pub(in crate::coordinator) async fn readers(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeReplica>, ShardError> {
        let replicas = self.all_readers(layout, index).await?;
        Ok(self.admitted(layout, index, replicas))
    }

    /// As [`Replicas::readers`], whatever the handle's reads are to show.
    pub(in crate::coordinator) async fn all_readers(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeReplica>, ShardError> {
        if layout.is_alone(index) && !self.context.is_in_maintenance() {
            let own = self.own_replica_by(layout, index).await?;
            return Ok(own.map(|own| RangeReplica::Own(own.inline())).into_iter().collect());
        }
        let mut replicas = self.primaries(layout, index).await?;
        let own = replicas.iter().position(|replica| replica.node().is_none());
        if let Some(own) = own
            && (self.context.rank(&self.context.node) == Some(0) || !self.any_in_sync(index))
        {
            let replica = replicas.remove(own);
            replicas.insert(0, replica);
        }
        let is_own_first = replicas.first().is_some_and(|replica| replica.node().is_none());
        self.context.paces.slow_last(self.context.env.now(), &mut replicas[usize::from(is_own_first)..], |replica| {
            let node = replica.node();
            (self.context.rank(node.unwrap_or(&self.context.node)).unwrap_or(u8::MAX), node)
        });
        Ok(replicas)
    }

    /// What [`Replicas::readers`] of some ranges comes to where this node holds the only replica of each and all are
    /// open: nobody is waited for then, and no future is needed for each. Else nothing.
    pub(in crate::coordinator) fn replicas_at_hand(self, layout: &Layout, ranges: &[usize]) -> Option<Vec<OwnReplica>> {
        if self.is_gone() || self.context.is_in_maintenance() {
            return None;
        }
        let replica = |range: &usize| {
            let shard = layout.placed.shard(*range)?;
            let is_read = layout.is_alone(*range) && !self.context.status.rebuilds.is_filling(shard);
            layout.cell(*range).get().filter(|_| is_read).map(OwnReplica::inline)
        };
        ranges.iter().map(replica).collect()
    }

    fn any_in_sync(self, index: usize) -> bool {
        self.nodes_of(index).iter().any(|node| self.context.rank(node) == Some(0))
    }

    /// The replica of a range to read from.
    pub(in crate::coordinator) async fn replica_of(self, index: usize) -> Result<RangeReplica, ShardError> {
        let replicas = self.readers(&self.layout(), index).await?;
        replicas.into_iter().next().ok_or(ShardError::NoReplica { replicas: self.replicas_of(index) })
    }

    /// One replica of each range to read from, in ring order.
    pub(in crate::coordinator) async fn all_replicas(self) -> Result<Vec<RangeReplica>, ShardError> {
        try_join_all(self.ranges().into_iter().map(|index| self.replica_of(index))).await
    }

    /// Does something by the layout of this moment; where documents are elsewhere by then, anew by the next one.
    pub(in crate::coordinator) async fn by_layout<T, E, F>(self, op: impl Fn(Arc<Layout>) -> F) -> Result<T, E>
    where
        E: MayHaveMoved,
        F: Future<Output = Result<T, E>>,
    {
        for _ in 1..limits::MAP_ATTEMPTS {
            let layout = self.layout();
            match op(Arc::clone(&layout)).await {
                Err(error) if error.is_moved() => self.moved_from(&layout).await,
                done => return done,
            }
        }
        op(self.layout()).await
    }

    /// Does something on one replica of a range, on the next one where a replica fails.
    pub(in crate::coordinator) async fn on_one<T, F>(
        self,
        index: usize,
        op: impl Fn(RangeReplica) -> F,
    ) -> Result<T, ShardError>
    where
        F: Future<Output = Result<T, ShardError>>,
    {
        let layout = self.layout();
        match self.on_one_by(&layout, index, &op).await {
            Err(ShardError::Moved) => {
                self.moved_from(&layout).await;
                self.on_one_by(&self.layout(), index, &op).await
            }
            done => done,
        }
    }

    async fn on_one_by<T, F>(
        self,
        layout: &Layout,
        index: usize,
        op: impl Fn(RangeReplica) -> F,
    ) -> Result<T, ShardError>
    where
        F: Future<Output = Result<T, ShardError>>,
    {
        let mut failed = ShardError::NoReplica { replicas: layout.placed.replicas(index) };
        let only = layout.is_alone(index);
        for replica in self.readers(layout, index).await? {
            let node = replica.node().cloned();
            match op(replica).await {
                Err(ShardError::Moved) => failed = ShardError::Moved,
                Err(error) if is_away(&error) && !only => failed = no_answer(failed, error),
                done => {
                    if !only {
                        self.note_reader(index, node.as_ref());
                    }
                    return done;
                }
            }
        }
        Err(failed)
    }
}

/// What to tell when no replica answered: a disk error of one of them tells most.
pub(in crate::coordinator) fn no_answer(before: ShardError, error: ShardError) -> ShardError {
    match (&before, &error) {
        (ShardError::Moved, _) => before,
        (ShardError::NoReplica { .. }, ShardError::NotExecuted(_) | ShardError::Indeterminate(_)) => before,
        (ShardError::NoReplica { .. }, _) => error,
        _ => before,
    }
}
