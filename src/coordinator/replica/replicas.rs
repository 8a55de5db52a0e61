//! The replicas of a range, and the order in which reads ask them.

use std::ops::Deref;
use std::sync::Arc;

use futures_util::future::try_join_all;

use crate::coordinator::replica::context;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_copy::{OwnCopy, RangeCopy, is_away};
use crate::coordinator::replica::remote::RemoteCopy;
use crate::coordinator::topology::error::MayHaveMoved;
use crate::coordinator::topology::events::EventKind;
use crate::limits;
use crate::shard::{OnChange, Owner, ShardCopy, ShardError, ShardId};
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

    /// How many copies a range has.
    pub(in crate::coordinator) fn copies_of(self, index: usize) -> usize {
        self.layout().placed.copies(index)
    }

    /// Whether this node holds the only copy of a range: nobody else is to be asked.
    pub(in crate::coordinator) fn is_alone(self, index: usize) -> bool {
        self.layout().is_alone(index)
    }

    /// This node's copy of a range, opened if it is not; `None` when it holds none.
    ///
    /// # Errors
    /// [`ShardError::Moved`] for a range that was split long ago.
    pub(in crate::coordinator) async fn own_copy(self, index: usize) -> Result<Option<OwnCopy>, ShardError> {
        self.own_copy_by(&self.layout(), index).await
    }

    /// As [`Replicas::own_copy`], by a layout that may be over: its copies refuse what is asked of them.
    ///
    /// # Errors
    /// [`ShardError::NotExecuted`], too, for a copy that is not filled yet (`rebuild`): it is as if it were away.
    pub(in crate::coordinator) async fn own_copy_by(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Option<OwnCopy>, ShardError> {
        match layout.placed.shard(index) {
            Some(shard) if self.context.status.rebuilds.is_filling(shard) => {
                Err(ShardError::NotExecuted("the copy is being rebuilt".to_owned()))
            }
            _ => self.own_copy_to_fill(layout, index).await,
        }
    }

    /// As [`Replicas::own_copy_by`], also one that is not filled yet.
    pub(in crate::coordinator) async fn own_copy_to_fill(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Option<OwnCopy>, ShardError> {
        let Some(shard) = layout.placed.shard(index) else {
            return if layout.map.is_live(index) { Ok(None) } else { Err(ShardError::Moved) };
        };
        let cell = layout.cell(index);
        let is_new = cell.get().is_none();
        let open = || async {
            let id = ShardId(shard);
            let shard = ShardCopy::open_with(&self.context.storage, id, self.owner_of(id, self.tell_updates())).await?;
            if self.known.tombstone_age(context::age(&self.context.config)).is_some() {
                shard.note_early();
            }
            OwnCopy::of(shard, &self.context.epochs).await
        };
        let copy = cell.get_or_try_init(open).await?.clone();
        // What ended it while it was being opened did not find it to close it.
        if self.is_gone() {
            copy.shard.close();
            return Err(ShardError::Dropped);
        }
        if is_new && self.layout().placed.shard(index) != Some(shard) {
            copy.shard.leave();
            return Err(ShardError::Moved);
        }
        Ok(Some(copy))
    }

    /// This database as the owner of a shard.
    pub(in crate::coordinator) fn owner_of(self, shard: ShardId, on_change: OnChange) -> Owner {
        let (known, node) = (Arc::clone(&self.known), Arc::clone(&self.context.node));
        let admits = Box::new(move |version| known.placed().admits(shard.0, version, &node));
        Owner { on_change, admits }
    }

    /// This node's copy of a range, for tools that work on the data of one node.
    pub(in crate::coordinator) async fn own_shard(self, index: usize) -> Result<ShardCopy, ShardError> {
        Ok(self.held_copy(index).await?.shard)
    }

    async fn held_copy(self, index: usize) -> Result<OwnCopy, ShardError> {
        let none = || ShardError::NoCopy { copies: self.copies_of(index) };
        self.own_copy(index).await?.ok_or_else(none)
    }

    /// As [`Replicas::own_shard`]; one that is so damaged that it cannot be opened as what is left of it.
    pub(in crate::coordinator) async fn own_shard_or_remains(self, index: usize) -> Result<ShardCopy, ShardError> {
        match self.own_shard(index).await {
            Err(ShardError::Storage(StorageError::Corrupt(_))) => {
                let shard = self.layout().placed.shard(index).ok_or(ShardError::Moved)?;
                Ok(ShardCopy::of_remains(&self.context.storage, ShardId(shard)))
            }
            opened => opened,
        }
    }

    /// This node's copies of all ranges, in ring order; fails where it holds none of one.
    pub(in crate::coordinator) async fn own_shards(self) -> Result<Vec<ShardCopy>, ShardError> {
        Ok(self.own_copies().await?.into_iter().map(|copy| copy.shard).collect())
    }

    /// As [`Replicas::own_shards`], with their epochs.
    pub(in crate::coordinator) async fn own_copies(self) -> Result<Vec<OwnCopy>, ShardError> {
        try_join_all(self.ranges().into_iter().map(|index| self.held_copy(index))).await
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

    /// A copy on a node, whether or not that can be reached. What is asked of it is counted by the layout.
    pub(in crate::coordinator) async fn copy_on(
        self,
        layout: &Layout,
        index: usize,
        node: &Arc<str>,
    ) -> Result<RangeCopy, ShardError> {
        let version = layout.placed.version;
        match *node == self.context.node {
            false => Ok(RangeCopy::Remote(RemoteCopy::new(&self.target, index, node).by_map(version))),
            true => match self.own_copy_by(layout, index).await? {
                Some(copy) => Ok(RangeCopy::Own(copy.by_map(version))),
                None => Err(ShardError::NotExecuted("this node holds no copy".to_owned())),
            },
        }
    }

    /// The copies of a range that can be asked now, in the order in which they become the primary: those that hold what
    /// the others hold first. They may be none.
    pub(in crate::coordinator) async fn primaries(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeCopy>, ShardError> {
        let mut nodes: Vec<(u8, Arc<str>)> = Vec::new();
        for node in layout.primaries(index, &self.context.node) {
            nodes.extend(self.context.rank(&node).map(|rank| (rank, node)));
        }
        nodes.sort_by_key(|(rank, _)| *rank);
        let mut out = Vec::with_capacity(nodes.len());
        for (_, node) in nodes {
            match self.copy_on(layout, index, &node).await {
                Ok(copy) => out.push(copy),
                Err(error) if is_away(&error) => tracing::debug!(%error, "a copy was left out"),
                Err(error) => return Err(error),
            }
        }
        Ok(out)
    }

    /// The copies of a range that can be asked now, in the order in which to read from them: this node's own first,
    /// unless it has been away and others have not; nodes that were slow lately are last. Of a handle with a floor
    /// those that hold what it stands for.
    pub(in crate::coordinator) async fn readers(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeCopy>, ShardError> {
        let copies = self.all_readers(layout, index).await?;
        Ok(self.admitted(layout, index, copies))
    }

    /// As [`Replicas::readers`], whatever the handle's reads are to show.
    pub(in crate::coordinator) async fn all_readers(
        self,
        layout: &Layout,
        index: usize,
    ) -> Result<Vec<RangeCopy>, ShardError> {
        if layout.is_alone(index) && !self.context.is_in_maintenance() {
            let own = self.own_copy_by(layout, index).await?;
            return Ok(own.map(|own| RangeCopy::Own(own.inline())).into_iter().collect());
        }
        let mut copies = self.primaries(layout, index).await?;
        let own = copies.iter().position(|copy| copy.node().is_none());
        if let Some(own) = own
            && (self.context.rank(&self.context.node) == Some(0) || !self.any_in_sync(index))
        {
            let copy = copies.remove(own);
            copies.insert(0, copy);
        }
        let is_own_first = copies.first().is_some_and(|copy| copy.node().is_none());
        self.context.paces.slow_last(self.context.env.now(), &mut copies[usize::from(is_own_first)..], |copy| {
            let node = copy.node();
            (self.context.rank(node.unwrap_or(&self.context.node)).unwrap_or(u8::MAX), node)
        });
        Ok(copies)
    }

    /// What [`Replicas::readers`] of some ranges comes to where this node holds the only copy of each and all are open:
    /// nobody is waited for then, and no future is needed for each. Else nothing.
    pub(in crate::coordinator) fn copies_at_hand(self, layout: &Layout, ranges: &[usize]) -> Option<Vec<OwnCopy>> {
        if self.is_gone() || self.context.is_in_maintenance() {
            return None;
        }
        let copy = |range: &usize| {
            let shard = layout.placed.shard(*range)?;
            let is_read = layout.is_alone(*range) && !self.context.status.rebuilds.is_filling(shard);
            layout.cell(*range).get().filter(|_| is_read).map(OwnCopy::inline)
        };
        ranges.iter().map(copy).collect()
    }

    fn any_in_sync(self, index: usize) -> bool {
        self.nodes_of(index).iter().any(|node| self.context.rank(node) == Some(0))
    }

    /// The copy of a range to read from.
    pub(in crate::coordinator) async fn copy_of(self, index: usize) -> Result<RangeCopy, ShardError> {
        let copies = self.readers(&self.layout(), index).await?;
        copies.into_iter().next().ok_or(ShardError::NoCopy { copies: self.copies_of(index) })
    }

    /// One copy of each range to read from, in ring order.
    pub(in crate::coordinator) async fn all_copies(self) -> Result<Vec<RangeCopy>, ShardError> {
        try_join_all(self.ranges().into_iter().map(|index| self.copy_of(index))).await
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

    /// Does something on one copy of a range, on the next one where a copy fails.
    pub(in crate::coordinator) async fn on_one<T, F>(
        self,
        index: usize,
        op: impl Fn(RangeCopy) -> F,
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

    async fn on_one_by<T, F>(self, layout: &Layout, index: usize, op: impl Fn(RangeCopy) -> F) -> Result<T, ShardError>
    where
        F: Future<Output = Result<T, ShardError>>,
    {
        let mut failed = ShardError::NoCopy { copies: layout.placed.copies(index) };
        let only = layout.is_alone(index);
        for copy in self.readers(layout, index).await? {
            let node = copy.node().cloned();
            match op(copy).await {
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

/// What to tell when no copy answered: a disk error of one of them tells most.
pub(in crate::coordinator) fn no_answer(before: ShardError, error: ShardError) -> ShardError {
    match (&before, &error) {
        (ShardError::Moved, _) => before,
        (ShardError::NoCopy { .. }, ShardError::NotExecuted(_) | ShardError::Indeterminate(_)) => before,
        (ShardError::NoCopy { .. }, _) => error,
        _ => before,
    }
}
