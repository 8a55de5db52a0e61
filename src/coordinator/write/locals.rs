//! Local documents: registers without history. Of two versions the one with the higher stamp counts on all replicas.

use std::sync::Arc;

use crate::coordinator::read::copies::no_answer;
use crate::coordinator::replica::calls::LocalMerge;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_copy::RangeCopy;
use crate::coordinator::topology::error::{ReadError, WriteError};
use crate::coordinator::topology::quorum::{Tally, Written, copies_to_ask};
use crate::coordinator::write::spread::held_by_primary;
use crate::document::id::DocId;
use crate::shard::{LocalDocument, LocalRegister, ShardError, Stamp};

impl RangeCopy {
    async fn local_set(
        &self,
        id: &DocId,
        document: Option<LocalDocument>,
        by: u64,
        mark: bool,
    ) -> Result<Stamp, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.local_set(id, document, by, mark).await,
            RangeCopy::Remote(copy) => copy.local_set(id, document, by).await,
        }
    }

    pub(in crate::coordinator) async fn local_merge(
        &self,
        registers: Vec<(DocId, LocalRegister)>,
    ) -> Result<Vec<Stamp>, ShardError> {
        match self {
            RangeCopy::Own(copy) => copy.shard.local_merge(registers).await,
            RangeCopy::Remote(copy) => copy.ask(LocalMerge(registers)).await,
        }
    }
}

impl Database {
    /// Sets or removes a local document: on the first copy that answers, which gives the stamp, then on the others.
    pub(in crate::coordinator) async fn set_local(
        &self,
        id: &DocId,
        document: Option<LocalDocument>,
        w: Option<u32>,
    ) -> Result<(Written, u32), WriteError> {
        let set = |layout: Arc<Layout>| {
            let document = document.clone();
            async move { self.try_set_local(&layout, id, document, w).await }
        };
        self.by_layout(set).await
    }

    async fn try_set_local(
        &self,
        layout: &Layout,
        id: &DocId,
        document: Option<LocalDocument>,
        w: Option<u32>,
    ) -> Result<(Written, u32), WriteError> {
        let range = layout.map.index_of(id);
        let (copies, by) = (layout.writers(range, &self.context.node).len(), self.context.tag);
        let mut failed = WriteError::Unavailable(ShardError::NoCopy { copies });
        for copy in self.primaries(layout, range).await? {
            let is_in_doubt = matches!(failed, WriteError::Unknown);
            match copy.local_set(id, document.clone(), by, copies > 1).await {
                Ok(_) if copies == 1 => return Ok((held_by_primary(layout, range, w), 1)),
                Ok(stamp) => {
                    let first = copy.node().unwrap_or(&self.context.node).clone();
                    let register = LocalRegister { stamp, document };
                    return self.spread_local(layout, first, (id, register), w).await;
                }
                Err(error @ (ShardError::Dropped | ShardError::Moved)) if !is_in_doubt => return Err(error.into()),
                Err(ShardError::Indeterminate(_)) => failed = WriteError::Unknown,
                Err(error) => {
                    tracing::debug!(%error, "a copy was passed over");
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
    /// and how many copies hold it or a later one.
    pub(in crate::coordinator) async fn merge_local(
        &self,
        id: &DocId,
        register: LocalRegister,
    ) -> (Option<Written>, u32) {
        let layout = self.layout();
        let range = layout.map.index_of(id);
        let mut tally = layout.tally(range, None);
        self.send_local((&layout, range), None, (id, &register), &mut tally).await;
        (tally.written(), tally.held())
    }

    /// Sends a register to the copies that do not have it yet. Where one has a higher stamp (the first was behind), it
    /// goes to all of them again with one above that.
    async fn spread_local(
        &self,
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
        &self,
        at: (&Layout, usize),
        first: Option<Arc<str>>,
        (id, register): (&DocId, &LocalRegister),
        tally: &mut Tally,
    ) -> Stamp {
        let merge = |copy: RangeCopy| {
            let registers = vec![(id.clone(), register.clone())];
            async move { copy.local_merge(registers).await }
        };
        let others = self.on_others(at, first.as_ref(), merge, |_: &Vec<Stamp>| true).await;
        let mut highest = register.stamp;
        others.count(tally, |stamps| highest = stamps.into_iter().fold(highest, Stamp::max)).await;
        highest
    }

    /// Reads a local document from `r` copies: the one with the highest stamp. Copies that had another get it.
    pub(in crate::coordinator) async fn get_local_by(
        &self,
        layout: &Layout,
        id: &DocId,
        r: Option<u32>,
    ) -> Result<Option<LocalDocument>, ReadError> {
        let range = layout.map.index_of(id);
        let copies = self.all_readers(layout, range).await?;
        let ask = copies_to_ask(r, layout.placed.copies(range));
        let mut found: Vec<(RangeCopy, Option<LocalRegister>)> = Vec::new();
        let mut failed = ShardError::NoCopy { copies: layout.placed.copies(range) };
        for copy in copies {
            if found.len() == ask {
                break;
            }
            match copy.local(id).await {
                Ok(register) => found.push((copy, register)),
                Err(error @ (ShardError::Dropped | ShardError::Moved)) => return Err(error.into()),
                Err(error) => failed = crate::coordinator::read::copies::no_answer(failed, error),
            }
        }
        if found.is_empty() {
            return Err(failed.into());
        }
        self.check_quorum(found.len(), ask)?;
        let best = found.iter().filter_map(|(_, register)| register.as_ref()).max_by_key(|register| register.stamp);
        let Some(best) = best.cloned() else { return Ok(None) };
        let stamp = |register: &Option<LocalRegister>| register.as_ref().map(|register| register.stamp);
        let behind: Vec<RangeCopy> =
            found.into_iter().filter(|(_, own)| stamp(own) != Some(best.stamp)).map(|(copy, _)| copy).collect();
        for copy in behind {
            let registers = vec![(id.clone(), best.clone())];
            self.context.env.spawn(async move {
                if let Err(error) = copy.local_merge(registers).await {
                    tracing::debug!(%error, "a local document was not repaired");
                }
            });
        }
        Ok(best.document)
    }
}
