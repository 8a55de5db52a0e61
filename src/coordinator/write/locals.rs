//! Local documents: registers without history. Of two versions the one with the higher stamp counts on all replicas.

use std::sync::Arc;

use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::RangeReplica;
use crate::coordinator::replica::replicas::no_answer;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::quorum::{Tally, Written};
use crate::coordinator::write::spread::held_by_primary;
use crate::coordinator::write::{Locals, WriteOperations};
use crate::document::id::DocId;
use crate::shard::{LocalDocument, LocalRegister, ShardError, Stamp};

impl Locals<'_> {
    /// Sets or removes a local document: on the first replica that answers, which gives the stamp, then on the others.
    pub(in crate::coordinator) async fn set_local(
        self,
        id: &DocId,
        document: Option<LocalDocument>,
        w: Option<u32>,
    ) -> Result<(Written, u32), WriteError> {
        let set = |layout: Arc<Layout>| {
            let document = document.clone();
            async move { self.try_set_local(&layout, id, document, w).await }
        };
        self.replicas().by_layout(set).await
    }

    async fn try_set_local(
        self,
        layout: &Layout,
        id: &DocId,
        document: Option<LocalDocument>,
        w: Option<u32>,
    ) -> Result<(Written, u32), WriteError> {
        let range = layout.map.index_of(id);
        let (replicas, by) = (layout.writers(range, &self.context.node).len(), self.context.tag);
        let mut failed = WriteError::Unavailable(ShardError::NoReplica { replicas });
        for replica in self.replicas().primaries(layout, range).await? {
            let is_in_doubt = matches!(failed, WriteError::Unknown);
            match replica.local_set(id, document.clone(), by, replicas > 1).await {
                Ok(_) if replicas == 1 => return Ok((held_by_primary(layout, range, w), 1)),
                Ok(stamp) => {
                    let first = replica.node().unwrap_or(&self.context.node).clone();
                    let register = LocalRegister { stamp, document };
                    return self.spread_local(layout, first, (id, register), w).await;
                }
                Err(error @ (ShardError::Dropped | ShardError::Moved)) if !is_in_doubt => return Err(error.into()),
                Err(ShardError::Indeterminate(_)) => failed = WriteError::Unknown,
                Err(error) => {
                    tracing::debug!(%error, "a replica was passed over");
                    failed = match failed {
                        WriteError::Unavailable(before) => no_answer(before, error).into(),
                        unknown => unknown,
                    };
                }
            }
        }
        Err(failed)
    }

    /// Applies a register of another database: of the two the one with the higher stamp stays. Answers how far it got,
    /// and how many replicas hold it or a later one.
    pub(in crate::coordinator) async fn merge_local(
        self,
        id: &DocId,
        register: LocalRegister,
    ) -> (Option<Written>, u32) {
        let layout = self.layout();
        let range = layout.map.index_of(id);
        let mut tally = layout.tally(range, None);
        self.send_local((&layout, range), None, (id, &register), &mut tally).await;
        (tally.written(), tally.held())
    }

    /// Sends a register to the replicas that do not have it yet. Where one has a higher stamp (the first was behind),
    /// it goes to all of them again with one above that.
    async fn spread_local(
        self,
        layout: &Layout,
        first: Arc<str>,
        (id, register): (&DocId, LocalRegister),
        w: Option<u32>,
    ) -> Result<(Written, u32), WriteError> {
        let range = layout.map.index_of(id);
        let mut register = register;
        let mut first = Some(first);
        loop {
            let mut tally = layout.tally(range, w);
            if first.is_some() {
                tally.done();
            }
            let highest = self.send_local((layout, range), first.take(), (id, &register), &mut tally).await;
            if highest <= register.stamp {
                return Ok((tally.written().ok_or(WriteError::Unknown)?, tally.held()));
            }
            register.stamp.counter = highest.counter + 1;
        }
    }

    /// Answers the highest stamp that was met.
    async fn send_local(
        self,
        at: (&Layout, usize),
        first: Option<Arc<str>>,
        (id, register): (&DocId, &LocalRegister),
        tally: &mut Tally,
    ) -> Stamp {
        let merge = |replica: RangeReplica| {
            let registers = vec![(id.clone(), register.clone())];
            async move { replica.local_merge(registers).await }
        };
        let others = self.writer().on_others(at, first.as_ref(), merge, |_: &Vec<Stamp>| true).await;
        let mut highest = register.stamp;
        others.count(tally, |stamps| highest = stamps.into_iter().fold(highest, Stamp::max)).await;
        highest
    }
}
