//! What copies of a range have forgotten, before one of them reads another (`shard/horizon.rs` has the rules).
//!
//! A copy that reads another one first forgets what it has written down of the rounds that are done there. A round that
//! it never wrote down was decided without it: it is an old one put back. Then it gives up the leaves that all lack who
//! know what was forgotten, but for what it stored since its start, and only then reads; until then nobody reads it.
//! All that it asks for afterwards is refused by a copy that has not forgotten the same, as after a restart on an older
//! disk.

use std::ops::Bound;

use crate::coordinator::database::Database;
use crate::coordinator::pull::{Pull, away};
use crate::coordinator::remote::RemoteCopy;
use crate::document::id::DocId;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Horizon, Proposal, ShardCopy, ShardError, Told, Tombstone, Want};
use crate::world::buggify::sometimes;

impl Pull<'_> {
    /// Brings this copy to where nothing that it takes in was forgotten by either; answers what the other one had
    /// forgotten.
    pub(super) async fn keep_horizon(&mut self) -> Result<Horizon, ShardError> {
        let Told { done: theirs, promised } = self.remote.forgotten().await?;
        let mut own = self.own.shard.forget(&theirs).await?;
        if !own.horizon.covers(&theirs) {
            self.give_up(&theirs).await?;
            own = self.own.shard.adopt(&theirs).await?;
        }
        // One that leaves forgets nothing any more. What it has written down it knows: nothing alive comes from there.
        let is_read = theirs.covers(&own.horizon) || self.leaves() && promised.covers(&own.horizon);
        if !is_read {
            return Err(away("the other copy is to forget first what was forgotten here"));
        }
        self.remote = self.remote.clone().behind(&theirs);
        self.rounds = own.rounds;
        Ok(theirs)
    }

    /// Notes that all of the other copy was taken in, which had forgotten `theirs` by then.
    pub(super) async fn note_taken(&self, theirs: &Horizon) -> Result<(), ShardError> {
        let layout = self.database.layout();
        // A copy that leaves is none of the others, and may still bring a tombstone.
        let is_moving = layout.placed.move_of(self.range).is_some();
        if is_moving || self.own.shard.state().await?.shadows == 0 {
            return Ok(());
        }
        let others = self.database.others_of(&layout, self.range).iter().map(ToString::to_string).collect();
        self.own.shard.note_taken(self.remote.node(), theirs, others).await
    }

    /// Drops the leaves of this copy that are lacked by all who forgot what this one missed, but those that it stored
    /// since it was opened: until then it was what was put back.
    async fn give_up(&self, missed: &Horizon) -> Result<(), ShardError> {
        let since = self.own.shard.opened_body();
        if since == 0 {
            // It was empty then: all that it has it was given by the others, or by clients.
            return Ok(());
        }
        let judges = self.who_knows(missed).await?;
        let name = &self.database.name;
        tracing::warn!(database = name, range = self.range, "a copy put back gives up what the others forgot since");
        sometimes("cluster: a copy put back gave up what the others had forgotten");
        let mut start = Bound::Unbounded;
        loop {
            let page = self.own.shard.digests(start, Bound::Unbounded, limits::PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(()) };
            start = Bound::Excluded(last.id.clone());
            let mut lacked = self.stored_until(since, page.into_iter().map(|found| found.id).collect()).await?;
            for judge in &judges {
                for page in lacked.chunks_mut(limits::DOCS_PER_FETCH) {
                    let wants = page.iter().map(|(id, _)| (id.clone(), Want::Tree)).collect();
                    for ((_, revs), fetched) in page.iter_mut().zip(judge.fetch(wants).await?) {
                        let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
                        revs.retain(|rev| tree.get(rev).is_none());
                    }
                }
            }
            let leaves: Vec<Tombstone> =
                lacked.into_iter().flat_map(|(id, revs)| revs.into_iter().map(move |rev| (id.clone(), rev))).collect();
            if !leaves.is_empty() {
                self.own.shard.give_up(leaves).await?;
            }
        }
    }

    /// The leaves of documents whose bodies have numbers up to `since`.
    async fn stored_until(&self, since: u64, ids: Vec<DocId>) -> Result<Vec<(DocId, Vec<Revision>)>, ShardError> {
        let wants = ids.iter().map(|id| (id.clone(), Want::Tree)).collect();
        let mut out = Vec::with_capacity(ids.len());
        for (id, fetched) in ids.into_iter().zip(self.own.shard.fetch(wants).await?) {
            let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
            let old = tree.leaves().into_iter().filter(|leaf| leaf.value.body <= since);
            out.push((id, old.map(|leaf| leaf.rev).collect()));
        }
        out.retain(|(_, revs): &(DocId, Vec<Revision>)| !revs.is_empty());
        Ok(out)
    }

    /// The other copies of the range that have forgotten `missed`. Those that missed it, too, are old ones themselves:
    /// what they hold says nothing.
    ///
    /// # Errors
    /// One that is away may hold what the others never had; one that has yet to forget it cannot tell.
    async fn who_knows(&self, missed: &Horizon) -> Result<Vec<RemoteCopy>, ShardError> {
        let (context, layout) = (&self.database.context, self.database.layout());
        let mut judges = Vec::new();
        for node in self.database.others_of(&layout, self.range).iter().filter(|node| !context.is_gone(node)) {
            if context.rank(node).is_none() {
                return Err(away("a copy put back waits for all others, to see what was forgotten since"));
            }
            let remote = RemoteCopy::new(&self.database.target, self.range, node).in_background();
            let told = remote.forgotten().await?;
            match told.done.covers(missed) {
                true => judges.push(remote.behind(missed)),
                false if told.promised.covers(missed) => {
                    return Err(away("a copy put back waits for another one to forget what was forgotten"));
                }
                false => {}
            }
        }
        match judges.is_empty() {
            true => Err(away("nobody who is there has forgotten what this copy missed")),
            false => Ok(judges),
        }
    }
}

impl Database {
    /// Refuses whoever asks for what a copy that has forgotten `horizon` holds, where that is not so here.
    pub(super) async fn check_horizon(&self, range: usize, horizon: &Horizon) -> Result<(), String> {
        let own = async {
            let layout = self.layout();
            if range >= layout.map.numbers() {
                return Err(ShardError::Moved);
            }
            self.own_copy_to_fill(&layout, range).await?.ok_or(ShardError::Moved)?.shard.told().await
        };
        let told = own.await.map_err(|error| error.to_string())?;
        match told.done.covers(horizon) {
            true => Ok(()),
            false => Err("the copy has not forgotten what the asking one has".to_owned()),
        }
    }

    /// Writes down what is to be forgotten, if this copy takes part: both nodes go by one map, nothing moves, and this
    /// node is in step.
    pub(super) async fn write_down(
        &self,
        range: usize,
        copy: &ShardCopy,
        version: u64,
        (by, proposal): (&str, Proposal<Tombstone>),
    ) -> Result<bool, ShardError> {
        let layout = self.layout();
        let takes_part = layout.placed.version == version
            && layout.placed.move_of(range).is_none()
            && self.context.own_state().in_sync
            && !self.has_heirs(range).await?;
        if takes_part { copy.propose(by, proposal).await } else { Ok(false) }
    }
}
