//! Expiry: documents that say when they end are deleted then, where the database names the member that says it
//! (`expires_at` of `_auto_purge`).
//!
//! Of each range one node does it: the first in the order of primaries that is there and in sync. It keeps an index of
//! ends of its own replica, and looks every `limits::EXPIRY_PAUSE` at its first rows. What has ended by its own clock
//! and by those of a majority of the nodes that hold the range is deleted as a client would delete it: an edit on the
//! revision that said so, without a body. So a document that was changed meanwhile stays, the new revision depends on
//! nothing but the old one, and two nodes that do it at once, or two databases that replicate, make the same one.
//! Validation functions are not asked.
//!
//! A conflict that becomes the winner by that counts by what it says itself.
//!
//! Nothing here runs, is read or is sent of a database that names no member.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use futures_util::stream::{self, FuturesUnordered, StreamExt as _};

use crate::coordinator::anti_entropy::{DocumentExpiry, RepairOperations};
use crate::coordinator::replica::calls::{Expiring, ExpiryOf, Look};
use crate::coordinator::replica::catalogue::Coordinator;
use crate::coordinator::replica::layout::Layout;
use crate::coordinator::replica::range_replica::OwnReplica;
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::topology::caller::Caller;
use crate::coordinator::topology::error::WriteError;
use crate::coordinator::topology::quorum::majority;
use crate::coordinator::write::WriteOperations;
use crate::coordinator::write::edits::{Plan, WriteOptions};
use crate::document::draft::PreparedBody;
use crate::index::{Ended, ExpiryIndex};
use crate::limits;
use crate::observe::metrics::Counter;
use crate::observe::workers::Worker;
use crate::shard::{Edit, EditOp, ShardError};
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

impl Coordinator {
    /// Starts the task that deletes what has ended, once there is to be such; it ends with the coordinator.
    pub fn keep_expiring(self: &Arc<Self>) {
        let is_running = self.expires.load(Ordering::SeqCst);
        if !is_running && !self.expiring().is_empty() && !self.expires.swap(true, Ordering::SeqCst) {
            self.spawn_worker("document_expiry", "a pause", keep_expiring);
        }
    }
}

async fn keep_expiring(weak: Weak<Coordinator>, worker: Arc<Worker>) {
    let Some(env) = weak.upgrade().map(|coordinator| coordinator.env().clone()) else { return };
    while weak.strong_count() > 0 {
        let run = worker.begin();
        let is_all = expire(&weak).await;
        drop(run);
        if is_all {
            env.sleep(limits::EXPIRY_PAUSE).await;
        }
    }
}

/// Deletes what has ended in all databases; answers whether that was all, for now. Nobody keeps the coordinator while
/// this waits.
pub(in crate::coordinator) async fn expire(weak: &Weak<Coordinator>) -> bool {
    let names = weak.upgrade().map(|coordinator| coordinator.expiring()).unwrap_or_default();
    let database = |name: &str| weak.upgrade().and_then(|coordinator| coordinator.database(name).ok());
    let ranges = |name: String| {
        let ranges = database(&name).map(|database| database.ranges()).unwrap_or_default();
        ranges.into_iter().map(move |range| (name.clone(), range))
    };
    let one = |(name, range): (String, usize)| async move {
        let Some(database) = database(&name) else { return true };
        match database.expiry().expire_range(range).await {
            Ok(is_all) => is_all,
            Err(ShardError::Dropped | ShardError::Moved) => true,
            Err(error) => {
                tracing::info!(name, range, %error, "no document expires for now");
                true
            }
        }
    };
    let looks = stream::iter(names.into_iter().flat_map(ranges)).map(one).buffer_unordered(limits::EXPIRY_AT_ONCE);
    looks.fold(true, |all, is_all| async move { all && is_all }).await
}

impl DocumentExpiry<'_> {
    /// Deletes what has ended in a range, in bounded steps, if that is this node's to do; answers whether it was all.
    async fn expire_range(self, range: usize) -> Result<bool, ShardError> {
        let layout = self.layout();
        let is_mine = layout.map.is_live(range) && self.acting(&layout, range).as_ref() == Some(&self.context.node);
        let Some(member) = self.known.expires_at().filter(|_| is_mine) else { return Ok(true) };
        let Some(own) = self.replicas().own_replica_by(&layout, range).await? else { return Ok(true) };
        let (index, env) = (self.index(&own, range, &member), &self.context.env);
        for _ in 0..limits::EXPIRY_STEPS {
            let begun = env.now();
            // A first build may take hours, and goes on by itself: other databases do not wait for it.
            if index.is_building() && !index.is_ready().await? {
                return Ok(true);
            }
            match env.timeout(limits::EXPIRY_INDEX_WAIT, index.update()).await {
                Ok(done) => done?,
                Err(_) => return Ok(true),
            }
            let most = fewer("expiry: one document at a time", limits::EXPIRY_STEP_DOCS);
            let ended = index.first(self.clock_ms() / 1000, most).await?;
            if ended.is_empty() {
                return Ok(true);
            }
            // Each time: the setting may have changed on the others.
            let upto = self.passed(&layout, range, &member).await / 1000;
            // Nothing goes that is to stay by now.
            let due: Vec<Ended> = ended.into_iter().filter(|ended| ended.at <= upto).collect();
            if due.is_empty() || self.known.expires_at().as_ref() != Some(&member) || self.delete(due).await? == 0 {
                return Ok(true);
            }
            env.sleep(env.now().since(begun)).await;
        }
        Ok(false)
    }

    /// The index of ends on a replica of this node.
    fn index(self, own: &OwnReplica, range: usize, member: &Arc<str>) -> ExpiryIndex {
        let shard = own.in_background().shard;
        self.context.indexes.expiry(&shard, member, &self.name, self.map().range(range).to_string())
    }

    /// Deletes documents; answers how many were there as the index shows them.
    async fn delete(self, due: Vec<Ended>) -> Result<u64, ShardError> {
        let body = Arc::new(PreparedBody::new(&Default::default()));
        let revs_limit = self.revs_limit();
        let plan = |Ended { id, rev, .. }: Ended| {
            let op = EditOp::Interactive { parent: Some(rev) };
            let (body, attachments) = (Arc::clone(&body), Vec::new());
            Plan::edit(Edit { id, op, deleted: true, body, attachments, revs_limit }, None)
        };
        let options = WriteOptions { caller: Arc::new(Caller::expiry()), ..WriteOptions::default() };
        let outcomes = self.writer().apply(due.into_iter().map(plan).collect(), &options).await;
        let done = outcomes.iter().filter(|outcome| outcome.is_ok()).count() as u64;
        self.context.env.metrics().add(Counter::DocumentsExpired, done);
        for error in outcomes.into_iter().filter_map(Result::err) {
            match error {
                // It changed meanwhile.
                WriteError::Conflict => {}
                WriteError::Unavailable(error) if done == 0 => return Err(error),
                error => tracing::debug!(database = self.name, ?error, "a document that has ended stays for now"),
            }
        }
        if done > 0 {
            sometimes("expiry: documents were deleted");
        }
        Ok(done)
    }

    /// The node that deletes what ends in a range: the first primary that is there and holds what the others hold.
    pub(super) fn acting(self, layout: &Layout, range: usize) -> Option<Arc<str>> {
        let nodes = layout.primaries(range, &self.context.node);
        nodes.into_iter().find(|node| self.context.rank(node) == Some(0))
    }

    /// The wall clock of this node, in milliseconds since 1970.
    pub(super) fn clock_ms(self) -> u64 {
        u64::try_from(self.context.env.wall().as_millis()).unwrap_or(u64::MAX)
    }

    /// The time that the clock of this node and those of a majority of the nodes with replicas of a range have passed,
    /// in milliseconds; 0 where fewer tell theirs. One that knows another `member`, or none, does not count: a change
    /// of the setting is known to a majority before it is acknowledged.
    async fn passed(self, layout: &Layout, range: usize, member: &Arc<str>) -> u64 {
        let (me, own) = (&self.context.node, self.clock_ms());
        let nodes = layout.placed.nodes(range, me);
        let wanted = if mutated(Mutation::ExpiryByOwnClock) { 1 } else { majority(nodes.len() as u32) as usize };
        let ask = |node: &Arc<str>| {
            let remote = RemoteReplica::new(&self.target, range, node).in_background();
            async move { remote.ask(ExpiryOf { look: None, member: Some(member.to_string()) }).await }
        };
        let others = nodes.iter().filter(|node| *node != me && self.context.rank(node).is_some());
        let mut asks: FuturesUnordered<_> = others.map(ask).collect();
        let mut clocks = vec![own];
        loop {
            let passed = passed_by(&mut clocks, wanted);
            if passed >= own {
                return own;
            }
            match asks.next().await {
                Some(Ok(told)) if told.differs => {}
                Some(Ok(told)) => clocks.push(told.clock_ms),
                Some(Err(error)) => tracing::debug!(database = self.name, range, %error, "a clock is not known"),
                None => return passed,
            }
        }
    }

    /// Answers what another node asks of a replica here.
    pub(in crate::coordinator) async fn tell(
        self,
        range: usize,
        own: &OwnReplica,
        call: ExpiryOf,
    ) -> Result<Expiring, ShardError> {
        let mut out = Expiring { clock_ms: self.clock_ms(), ..Expiring::default() };
        let member = self.known.expires_at();
        out.differs = call.member.is_some_and(|asked| member.as_deref() != Some(&asked));
        let (Some(Look { upto, counts }), Some(member)) = (call.look, member) else { return Ok(out) };
        let index = self.index(own, range, &member);
        if counts && let Ok(done) = self.context.env.timeout(limits::EXPIRY_INDEX_WAIT, index.update()).await {
            done?;
        }
        (out.is_on, out.is_ready) = (true, index.is_ready().await?);
        out.next = index.first(limits::EXPIRY_LATEST_S, 1).await?.first().map(|ended| ended.at);
        if counts {
            (out.due, out.unreadable) = (index.count(upto).await?, index.unreadable().await?);
        }
        Ok(out)
    }
}

/// The time that as many clocks as are `wanted` have passed; 0 where there are fewer.
pub(super) fn passed_by(clocks: &mut [u64], wanted: usize) -> u64 {
    clocks.sort_unstable_by(|a, b| b.cmp(a));
    wanted.checked_sub(1).and_then(|at| clocks.get(at)).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_come_when_it_has_for_a_majority() {
        assert_eq!(passed_by(&mut [7], 1), 7);
        assert_eq!(passed_by(&mut [7, 3], 2), 3, "one that is ahead");
        assert_eq!(passed_by(&mut [3, 9, 7], 2), 7, "one that is ahead, and one that is behind");
        assert_eq!((passed_by(&mut [7], 2), passed_by(&mut [], 1)), (0, 0), "too few tell theirs");
    }
}
