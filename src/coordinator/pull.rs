//! Taking in what the copy of a range on another node has and this node's copy lacks.
//!
//! First the other copy says how it stands; where digests agree nothing more is asked. Else purges go first, so that
//! nothing comes back by what follows; then local documents; then documents: those that changed behind the position up
//! to which the other copy is known, or, where none is known, those that differ, found by digests of ever smaller
//! ranges of ids. Revisions that were purged here are not taken in, unless the other copy heard of that and has them
//! again.
//!
//! A copy that is an old one put back shows positions below those that other nodes have seen: it begins a new epoch. If
//! it missed purges whose records are gone, it may not be read by others until it has purged what they all lack.

use std::ops::Bound;
use std::sync::Arc;

use futures_util::{StreamExt as _, stream};

use crate::coordinator::compare::{self, ALL};
use crate::coordinator::database::Database;
use crate::coordinator::message::{ChangesCall, CopyStatus, IdRange, Soundness, Standing, SyncPoint};
use crate::coordinator::put_back::Removed;
use crate::coordinator::range_copy::{OwnCopy, RangeCopy};
use crate::coordinator::read_quorum::merge_of_stored;
use crate::coordinator::record::Move;
use crate::coordinator::remote::RemoteCopy;
use crate::coordinator::seq::SeqEntry;
use crate::coordinator::{put_back, repair, sync_points};
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{ChangeRow, CopyState, DocumentDigest, Edit, Fetched, Part, ShardError, Want};
use crate::storage::{Direction, StorageError};
use crate::world::buggify::{Mutation, fewer, mutated, sometimes};

impl Database {
    /// Takes in what the copies on a node have and those here lack, a few ranges at a time.
    pub(super) async fn pull_from(&self, node: &Arc<str>, thoroughly: bool) -> Result<(), ShardError> {
        let shared = self.ranges().into_iter().filter(|range| self.is_source(*range, node));
        let pull = |range| async move {
            match self.own_copy_to_fill(&self.layout(), range).await? {
                Some(own) => self.pull_range(range, own, node, thoroughly).await.map(drop),
                None => Ok(()),
            }
        };
        let done: Vec<Result<(), ShardError>> =
            stream::iter(shared.map(pull)).buffer_unordered(limits::PULLS_AT_ONCE).collect().await;
        // Each by itself: one that is damaged keeps no other from what it misses.
        match done.into_iter().find(Result::is_err).unwrap_or(Ok(())) {
            // It was deleted meanwhile.
            Err(ShardError::Dropped) => Ok(()),
            done => done,
        }
    }

    /// Whether a node has a copy of a range from which others may lack something: one that counts, or that leaves.
    fn is_source(&self, range: usize, node: &Arc<str>) -> bool {
        let layout = self.layout();
        let leaves = layout.placed.move_of(range).is_some_and(|moved| moved.from.as_deref() == Some(node));
        leaves || layout.placed.nodes(range, &self.context.node).contains(node)
    }

    /// Takes in all that the copy of a range on a node has now.
    pub(super) async fn pull_copy(&self, range: usize, node: &Arc<str>) -> Result<(), ShardError> {
        match self.pull_readable(range, node).await? {
            true => Ok(()),
            false => Err(away("the other copy cannot be read")),
        }
    }

    /// Takes in what the copy of a range on a node has; false where not all of that can be read.
    pub(super) async fn pull_readable(&self, range: usize, node: &Arc<str>) -> Result<bool, ShardError> {
        let own = self.own_copy_to_fill(&self.layout(), range).await?.ok_or(ShardError::Moved)?;
        self.pull_range(range, own, node, true).await
    }

    /// Takes in what another copy has; false where not all of that can be read: nothing else is to be had there until
    /// it was made anew.
    async fn pull_range(
        &self,
        range: usize,
        own: OwnCopy,
        node: &Arc<str>,
        thoroughly: bool,
    ) -> Result<bool, ShardError> {
        let remote = RemoteCopy::new(&self.target, range, node).in_background();
        let (own, theirs) = (own.in_background(), remote.status().await?);
        if theirs.soundness == Some(Soundness::Unusable) {
            return Ok(false);
        }
        let known = sync_points::pulled(&own.shard, node).await?.unwrap_or_default();
        let own_range = RangeCopy::Own(own.clone());
        let docs = fewer("pull: one document at a time", limits::DOCS_PER_FETCH);
        let mut pull = Pull { database: self, range, own, own_range, remote, known, theirs, docs };
        match pull.run(thoroughly).await {
            Err(error @ ShardError::Storage(StorageError::CorruptThere(_)))
                if theirs.soundness == Some(Soundness::Damaged) =>
            {
                tracing::info!(database = self.name, range, %node, %error, "a damaged copy was taken in as far as it goes");
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }
}

/// What one of two copies may have missed for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missed {
    Nothing,
    Mine,
    Theirs,
}

/// One copy reading another.
struct Pull<'a> {
    database: &'a Database,
    range: usize,
    own: OwnCopy,
    own_range: RangeCopy,
    remote: RemoteCopy,
    /// How far this copy has taken in the other one before.
    known: SyncPoint,
    theirs: CopyStatus,
    /// Documents to ask for at a time.
    docs: usize,
}

/// Whether a copy that has taken in another one up to `point` misses purges that the other has no record of.
pub(super) fn misses(point: Option<SyncPoint>, other: (u64, u64), documents: u64) -> bool {
    let (shard, floor) = other;
    let taken = point.filter(|point| point.from_shard == shard).map_or(0, |point| point.purges);
    documents > 0 && taken < floor
}

impl Pull<'_> {
    async fn run(&mut self, thoroughly: bool) -> Result<(), ShardError> {
        let before = self.known;
        self.keep_epoch().await?;
        match self.missed(&self.own.shard.state().await?) {
            Missed::Nothing => {}
            Missed::Mine => {
                let (shard, floor) = (self.theirs.standing.shard, self.theirs.purge_floor);
                let removed = Removed { by: Arc::clone(self.remote.node()), shard, floor };
                put_back::purge_what_all_lack(self.database, self.range, &self.own, &removed).await?;
            }
            Missed::Theirs => return Err(away("a copy put back holds what was purged since and is to purge it first")),
        }
        let purges = self.pull_purges().await?;
        if self.is_known() && purges != self.known.purges {
            // Known at once, for the other copy may wait with what follows until this one has heard of its purges.
            self.known = self.note(self.known.from, purges, self.own.standing()).await?;
        }
        if compare::locals_digest(&self.own.shard).await? != self.theirs.locals {
            self.pull_locals().await?;
        }
        let mine = self.own.shard.state().await?;
        let mut to = Standing { position: mine.position, ..self.own.standing() };
        if mine.total.digest != self.theirs.digest {
            self.pull_documents(mine.total.documents(), purges).await?;
            if thoroughly && self.own.shard.state().await?.total.digest != self.remote.status().await?.digest {
                self.narrow().await?;
            }
            to = self.own.standing();
        }
        let reached = self.theirs.standing.position;
        let told_epochs = self.learn_epochs().await?;
        if !self.is_known() || (before.from, before.purges) != (reached, purges) {
            let point = self.note(reached, purges, to).await?;
            self.remote.set_sync_point(point).await?;
        }
        if told_epochs { self.confirm().await } else { Ok(()) }
    }

    /// Notes the epochs of the other copy, to tell it how far it was read should it be an old one put back one day;
    /// answers whether they are known. Not before what it has was taken in: until then those of the copy before count.
    async fn learn_epochs(&self) -> Result<bool, ShardError> {
        let node = self.remote.node();
        let known = sync_points::epochs_of(&self.own.shard, node).await?;
        if known.last().is_some_and(|(epoch, _)| *epoch == self.theirs.standing.epoch) {
            return Ok(true);
        }
        match self.remote.epochs().await {
            Ok(epochs) => sync_points::set_epochs(&self.own.shard, node, &epochs).await.map(|()| true),
            Err(error) => {
                tracing::debug!(database = self.database.name, %node, %error, "a copy did not tell its epochs");
                Ok(false)
            }
        }
    }

    /// Notes how many purges of this copy the other one had taken in at the position up to which it was read now. Their
    /// records may go: a copy of an earlier time that holds what was purged holds nothing else that was not read.
    async fn confirm(&self) -> Result<(), ShardError> {
        let taken = self.theirs.taken.filter(|taken| taken.from_shard == self.own.origin);
        let purges = taken.map_or(0, |taken| taken.purges);
        sync_points::set_purges_taken(&self.own.shard, self.remote.node(), purges).await
    }

    /// Whether what is known of the other copy is a position that it still has.
    fn is_known(&self) -> bool {
        let theirs = self.theirs.standing;
        (self.known.from_shard, self.known.from_epoch) == (theirs.shard, theirs.epoch_of(self.known.from))
    }

    /// Begins a new epoch when the other copy has seen positions of this one that it never reached.
    async fn keep_epoch(&self) -> Result<(), ShardError> {
        let (own, Some(seen)) = (self.own.standing(), self.theirs.taken) else { return Ok(()) };
        let is_own = (seen.from_shard, seen.from_epoch) == (own.shard, own.epoch);
        if !is_own || seen.from <= own.position || mutated(Mutation::PositionReused) {
            return Ok(());
        }
        let (range, name) = (self.range, &self.database.name);
        tracing::warn!(
            database = name,
            range,
            "a copy shows less than other nodes have seen of it: a new epoch begins"
        );
        sometimes("cluster: a copy began a new epoch for others had seen more of it");
        self.own.epochs.renew(&self.own.shard, &self.database.context.env, own.epoch).await
    }

    fn missed(&self, mine: &CopyState) -> Missed {
        let (own, theirs) = (self.own.standing(), self.theirs);
        // One that was empty when it was opened has everything from the others, who had heard of all purges.
        let old = if self.own.epochs.opened_at() == 0 { 0 } else { mine.total.documents() };
        let i_miss = misses(Some(self.known), (theirs.standing.shard, theirs.purge_floor), old);
        let they_miss = misses(theirs.taken, (own.shard, mine.purge_floor), theirs.documents);
        match (i_miss, they_miss) {
            (true, false) => Missed::Mine,
            (false, true) => Missed::Theirs,
            (false, false) => Missed::Nothing,
            // Nobody knows more than the other: nothing is lost on a guess.
            (true, true) => Missed::Nothing,
        }
    }

    async fn note(&self, reached: u64, purges: u64, to: Standing) -> Result<SyncPoint, ShardError> {
        let from = self.theirs.standing;
        let point = SyncPoint {
            from_shard: from.shard,
            from_epoch: from.epoch_of(reached),
            from: reached,
            purges,
            to_shard: to.shard,
            to_epoch: to.epoch_of(to.position),
            to: to.position,
        };
        sync_points::set_pulled(&self.own.shard, self.remote.node(), point).await?;
        Ok(point)
    }

    /// Purges here what was purged there behind what is known; answers up to where.
    async fn pull_purges(&self) -> Result<u64, ShardError> {
        let (mut since, until) = (if self.is_known() { self.known.purges } else { 0 }, self.theirs.purge_seq);
        if mutated(Mutation::PurgeNotSpread) {
            return Ok(until);
        }
        while since < until {
            let most = fewer("pull: one purge at a time", limits::STEP_ROWS);
            let page = self.remote.purge_infos(since, most).await?;
            let Some(last) = page.last() else { break };
            since = last.purge_seq;
            let here = repair::purged_here(&self.own.shard, 0, page.iter().map(|info| &info.id)).await?;
            let is_new = |id: &DocId, rev: &Revision| !here.contains(&(id.clone(), rev.clone()));
            let mut fresh: Vec<(DocId, Vec<Revision>)> = Vec::new();
            for info in page {
                let revs: Vec<Revision> = info.revs.into_iter().filter(|rev| is_new(&info.id, rev)).collect();
                if !revs.is_empty() {
                    fresh.push((info.id, revs));
                }
            }
            self.own.shard.purge(fresh).await?;
        }
        Ok(until)
    }

    async fn pull_locals(&self) -> Result<(), ShardError> {
        let mut after = Bound::Unbounded;
        loop {
            let page = self.remote.local_registers(after, limits::STEP_ROWS).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            after = Bound::Excluded(last.clone());
            let mut news = Vec::new();
            for (id, register) in page {
                let stamp = self.own.shard.local_register(&id).await?.map(|own| own.stamp);
                if stamp.is_none_or(|stamp| stamp < register.stamp) {
                    news.push((id, register));
                }
            }
            if !news.is_empty() {
                self.own.shard.local_merge(news).await?;
            }
        }
    }

    /// Takes in the documents that changed since the other copy was read last; those that differ, where it is not known
    /// when that was. A copy without any of its own takes in all.
    async fn pull_documents(&mut self, documents: u64, purges: u64) -> Result<(), ShardError> {
        let since = match self.is_known() {
            true => self.known.from,
            false => {
                let SyncPoint { from_shard: shard, from_epoch: epoch, from: position, .. } = self.known;
                let end = self.database.map().range(self.range).end;
                self.remote.resume(vec![SeqEntry { end, shard, epoch, position }]).await?
            }
        };
        match since == 0 && documents > 0 {
            true => self.narrow().await,
            false => self.pull_changes(since, purges).await,
        }
    }

    async fn pull_changes(&mut self, mut since: u64, purges: u64) -> Result<(), ShardError> {
        let Standing { epoch, position: until, .. } = self.theirs.standing;
        while since < until {
            let limit = limits::PAGE_ROWS as u64;
            let page = self.remote.changes(ChangesCall { since, direction: Direction::Forward, limit, epoch }).await?;
            self.pull_rows(&page.rows).await?;
            since = page.last_seq;
            self.note(since, purges, self.own.standing()).await?;
            if page.rows.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Takes in the documents in which the other copy differs.
    async fn narrow(&mut self) -> Result<(), ShardError> {
        sometimes("cluster: copies differed and were narrowed down");
        let mut open: Vec<IdRange> = vec![ALL];
        while !open.is_empty() {
            let asked = open.split_off(open.len().saturating_sub(limits::SPLITS_PER_CALL));
            for parts in self.remote.split(asked).await? {
                let is_whole = parts.len() == 1;
                for (n, part) in parts.into_iter().enumerate() {
                    let skipped = n == 0 && mutated(Mutation::DigestSkipsLeaf);
                    let documents = part.summary.documents();
                    if skipped || documents == 0 {
                        continue;
                    }
                    let Some(lacking) = self.lacks(&part).await? else { continue };
                    let range = (part.start, part.end);
                    let listed = fewer("compare: documents told one by one", limits::DIGESTS_LISTED as usize) as u64;
                    let is_thin = lacking >= documents.div_ceil(limits::DIGESTS_LISTED_SHARE);
                    match is_whole || is_thin || documents <= listed {
                        true => self.pull_listed(range).await?,
                        false => open.push(range),
                    }
                }
            }
        }
        Ok(())
    }

    /// By how many documents this copy has fewer in a part of the other; `None`: it holds the same there.
    async fn lacks(&self, part: &Part) -> Result<Option<u64>, ShardError> {
        let mine = self.own.shard.summary(part.start.clone(), part.end.clone()).await?;
        let (digest, documents) = (part.summary.digest, part.summary.documents());
        let is_same = (mine.digest, mine.documents()) == (digest, documents);
        Ok((!is_same).then(|| documents.saturating_sub(mine.documents())))
    }

    /// Takes in the documents of a range of ids.
    async fn pull_listed(&mut self, (mut start, end): IdRange) -> Result<(), ShardError> {
        let limit = limits::PAGE_ROWS;
        loop {
            let listed = self.remote.digests((start, end.clone()), limit).await?;
            let row = |found: DocumentDigest| ChangeRow { seq: found.local_seq, id: found.id, leaves: found.leaves };
            let rows: Vec<ChangeRow> = listed.into_iter().map(row).collect();
            self.pull_rows(&rows).await?;
            match rows.last() {
                Some(last) if rows.len() == limit => start = Bound::Excluded(last.id.clone()),
                _ => return Ok(()),
            }
        }
    }

    /// Takes in the leaves of documents that are not here.
    async fn pull_rows(&mut self, rows: &[ChangeRow]) -> Result<(), ShardError> {
        let wants = rows.iter().map(|row| (row.id.clone(), Want::Tree)).collect();
        let mut missing: Vec<(DocId, Want)> = Vec::new();
        for (row, fetched) in rows.iter().zip(self.own.shard.fetch(wants).await?) {
            let tree = fetched.map(|fetched| fetched.tree).unwrap_or_default();
            let has = |rev: &Revision| tree.get(rev).is_some_and(|data| data.is_some());
            let most = if mutated(Mutation::RepairDropsSibling) { 1 } else { usize::MAX };
            let theirs = row.leaves.iter().take(most).map(|(rev, _)| rev);
            let revs: Vec<Revision> = theirs.filter(|rev| !has(rev)).cloned().collect();
            if !revs.is_empty() {
                missing.push((row.id.clone(), Want::Revisions { revs, latest: false }));
            }
        }
        while !missing.is_empty() {
            let rest = missing.split_off(missing.len().min(self.docs));
            let ids: Vec<DocId> = missing.iter().map(|(id, _)| id.clone()).collect();
            let found = self.remote.fetch(missing).await?;
            self.merge(&ids, found).await?;
            missing = rest;
        }
        Ok(())
    }

    async fn merge(&mut self, ids: &[DocId], found: Vec<Option<Fetched>>) -> Result<(), ShardError> {
        let (mut edits, mut bytes): (Vec<Edit>, usize) = (Vec::new(), 0);
        for (id, fetched) in ids.iter().zip(found) {
            let Some(fetched) = fetched else { continue };
            for (rev, stored) in &fetched.found {
                // Changed meanwhile: the later change is read, too.
                let (Some(stored), Some(path)) = (stored, fetched.tree.path_to(rev)) else { continue };
                let deleted = fetched.tree.get(rev).flatten().is_some_and(|data| data.is_deleted());
                bytes += stored.body.len();
                edits.extend(merge_of_stored(id, path, deleted, stored, self.database.revs_limit()));
            }
        }
        // The next documents are about as large as these.
        self.docs = match bytes > limits::PULL_BYTES {
            true => (self.docs / 2).max(1),
            false => (self.docs * 2).min(limits::DOCS_PER_PULL),
        };
        if mutated(Mutation::TombstoneForgotten) {
            edits.retain(|edit| !edit.deleted);
        }
        let taken = self.theirs.taken.filter(|taken| taken.from_shard == self.own.origin);
        let heard = taken.map_or(0, |taken| taken.purges);
        let count = edits.len();
        let (is_unfilled, unread) = (self.is_unfilled(), self.is_unread().then(|| edits.clone()));
        let mut merged = repair::merge_missing(&self.own_range, edits, &self.remote, heard).await?;
        if let Some(edits) = unread.filter(|_| merged < count) {
            let numbers = (heard, self.theirs.purge_seq);
            merged = repair::merge_written_again(&self.own.shard, edits, &self.remote, numbers).await?;
        }
        // One that leaves purges nothing any more: what was purged here goes with it. To one that is not filled nobody
        // listens: the other copy hears of its purges, and does them, once it is.
        match merged == count || self.leaves() || is_unfilled {
            true => Ok(()),
            false => Err(away("the other copy holds what was purged here and is to purge it first")),
        }
    }

    fn is_unfilled(&self) -> bool {
        self.database.context.refills.is_filling(self.own.shard.id().0)
    }

    /// Whether the other copy does not read this one, so that it hears of no purge from here: it is not filled yet, or
    /// on its way.
    fn is_unread(&self) -> bool {
        let (layout, node) = (self.database.layout(), &self.database.context.node);
        let arrives = |moved: &Move| !moved.leaving && moved.to.as_deref() == Some(&**node);
        self.is_unfilled() || layout.placed.move_of(self.range).is_some_and(arrives)
    }

    /// Whether the place of the other copy was taken by another one.
    fn leaves(&self) -> bool {
        let layout = self.database.layout();
        let leaves = |moved: &Move| moved.leaving && moved.from.as_deref() == Some(&**self.remote.node());
        layout.placed.move_of(self.range).is_some_and(leaves)
    }
}

pub(super) fn away(why: &str) -> ShardError {
    ShardError::Away(why.to_owned())
}
