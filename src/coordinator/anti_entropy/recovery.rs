//! Recovery of what a damaged replica alone may hold: it is written into the replica that takes its place, from where
//! the other replicas pull it.
//!
//! The new replica has heard of the purges of the others by then, so that nothing comes back that one of them has on
//! record. Where some purges are on no record any more, and the damaged replica may not have heard of them, its
//! documents are not recovered: a document that no other replica has may be a purged one.
//!
//! Where tombstones were collected, documents that another replica had applied before are left out: if they are not
//! there any more, they were collected. Where the range was split meanwhile, each child shard takes its own documents.
//!
//! The damaged shard is read twice: as a whole, and only what was not yet written to the file, since that part is whole
//! however much of the file is damaged.

use std::sync::Arc;

use crate::coordinator::anti_entropy::{RepairOperations, ReplicaRebuild};
use crate::coordinator::read::quorum_read::merge_of_stored;
use crate::coordinator::replica::blob_stream::{self, blobs_of};
use crate::coordinator::replica::calls::Status;
use crate::coordinator::replica::database::Database;
use crate::coordinator::replica::message::SyncPoint;
use crate::coordinator::replica::range_replica::{ORIGIN, OwnReplica, RangeReplica};
use crate::coordinator::replica::remote::RemoteReplica;
use crate::coordinator::replica::repair::{self, Origin};
use crate::coordinator::replica::sync_points;
use crate::document::id::DocId;
use crate::document::rev_tree::RevValue as _;
use crate::document::revision::Revision;
use crate::limits;
use crate::shard::{Edit, Fetched, ShardError, ShardReplica, Want};

/// What came of a recover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::coordinator) struct Recovered {
    /// Revisions that the other replicas lacked.
    pub taken: u64,
    /// What could not be read, or was not to be taken.
    pub lost: u64,
    /// The first of these, in words.
    pub told: Vec<String>,
}

impl Recovered {
    /// Adds what came of another half of the same replica.
    pub fn add(&mut self, other: Recovered) {
        self.taken += other.taken;
        self.lost += other.lost;
        let room = limits::SALVAGE_TOLD.saturating_sub(self.told.len());
        self.told.extend(other.told.into_iter().take(room));
    }

    fn lose(&mut self, what: String) {
        self.lost += 1;
        if self.told.len() < limits::SALVAGE_TOLD {
            self.told.push(what);
        }
    }

    /// What was read; where it is damaged `None`, which is noted.
    fn read<T>(&mut self, read: Result<T, ShardError>, what: impl FnOnce() -> String) -> Result<Option<T>, ShardError> {
        match read {
            Err(error) if error.is_damage_here() => {
                self.lose(what());
                Ok(None)
            }
            read => read.map(Some),
        }
    }
}

/// A recover under way.
struct Salvaging<'a> {
    database: &'a Arc<Database>,
    range: usize,
    /// What is read now, and the damaged replica in both ways of reading it.
    from: &'a ShardReplica,
    both: &'a [ShardReplica; 2],
    own: &'a OwnReplica,
    done: Recovered,
}

impl ReplicaRebuild<'_> {
    /// Brings what can be read of a damaged replica of a range into the one that takes its place, which has applied the
    /// others.
    pub(in crate::coordinator) async fn recover(
        self,
        range: usize,
        from: &ShardReplica,
        own: &OwnReplica,
    ) -> Result<Recovered, ShardError> {
        let both = [from.clone(), from.unflushed()];
        let done = Recovered::default();
        let mut salvaging = Salvaging { database: self.database, range, from, both: &both, own, done };
        let had_heard = salvaging.had_heard().await?;
        if !had_heard {
            salvaging.done.lose("documents: some that were purged meanwhile may be among them".to_owned());
        }
        let applied_upto = salvaging.applied_upto().await?;
        if applied_upto.is_none() {
            salvaging.done.lose("documents: some that were collected meanwhile may be among them".to_owned());
        }
        for from in &both {
            salvaging.from = from;
            salvaging.purges().await?;
            if let Some(applied_upto) = applied_upto.filter(|_| had_heard) {
                salvaging.documents(applied_upto).await?;
            }
            salvaging.locals().await?;
        }
        Ok(salvaging.done)
    }
}

impl Salvaging<'_> {
    /// Whether a document belongs to the range: the damaged replica may be one of a range that was split since.
    fn is_ours(&self, id: &DocId) -> bool {
        let map = self.database.map();
        map.range(self.range).contains(map.hash(id))
    }

    /// The number by which others know the damaged replica.
    async fn origin(&self) -> Result<u64, ShardError> {
        for from in self.both {
            match from.meta_get(ORIGIN).await {
                Err(error) if error.is_damage_here() => {}
                origin => {
                    let bytes = origin?.and_then(|bytes| bytes.try_into().ok());
                    return Ok(bytes.map_or(from.id().0, u64::from_be_bytes));
                }
            }
        }
        Ok(self.from.id().0)
    }

    /// Purges that some other replica has not applied.
    async fn purges(&mut self) -> Result<(), ShardError> {
        let (mut since, origin) = (u64::MAX, self.origin().await?);
        let nodes = self.database.replica_rebuild().others_of(&self.database.layout(), self.range);
        // One that was removed hears of nothing more: it would have all purges done again.
        for node in nodes.into_iter().filter(|node| !self.database.context.is_gone(node)) {
            let mut known = None;
            for from in self.both {
                match sync_points::purges_taken(from, &node).await {
                    Err(error) if error.is_damage_here() => {}
                    taken => known = known.max(Some(taken?)),
                }
            }
            // What it has applied since this replica last read it is known to itself only.
            let remote = RemoteReplica::new(&self.database.target, self.range, &node).in_background();
            let taken = remote.ask(Status).await?.taken.filter(|taken| taken.from_shard == origin);
            let known = known.max(taken.map(|taken| taken.purges));
            let Some(known) = known else {
                self.done.lose(format!("purges: how many {node} has applied"));
                return Ok(());
            };
            since = since.min(known);
        }
        loop {
            let page = self.from.purges_to_tell(since, limits::STEP_ROWS).await;
            let Some(page) = self.done.read(page, || "a part of the record of purges".to_owned())? else {
                return Ok(());
            };
            let Some(last) = page.last() else { return Ok(()) };
            since = last.purge_seq;
            let here = repair::purged_here(&self.own.shard, 0, page.iter().map(|info| &info.id)).await?;
            let is_new = |id: &DocId, rev: &Revision| !here.contains(&(id.clone(), rev.clone()));
            let mut fresh: Vec<(DocId, Vec<Revision>)> = Vec::new();
            for info in page.into_iter().filter(|info| self.is_ours(&info.id)) {
                let revs: Vec<Revision> = info.revs.into_iter().filter(|rev| is_new(&info.id, rev)).collect();
                if !revs.is_empty() {
                    fresh.push((info.id, revs));
                }
            }
            if !fresh.is_empty() {
                self.own.shard.purge(fresh).await?;
            }
        }
    }

    /// Whether the damaged replica had heard of all purges that the others have no record of.
    async fn had_heard(&self) -> Result<bool, ShardError> {
        for node in self.database.replica_rebuild().others_of(&self.database.layout(), self.range) {
            if self.database.context.is_gone(&node) {
                continue;
            }
            let remote = RemoteReplica::new(&self.database.target, self.range, &node).in_background();
            let status = remote.ask(Status).await?;
            if status.purge_floor == 0 {
                continue;
            }
            let mut points = Vec::new();
            for from in self.both {
                match sync_points::pulled(from, &node).await {
                    Err(error) if error.is_damage_here() => {}
                    point => points.extend(point?),
                }
            }
            let had = |point: &SyncPoint| {
                point.from_shard == status.replica_position.shard && point.purges >= status.purge_floor
            };
            if !points.iter().any(had) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The sequence up to which some other replica has applied the damaged one; 0 where nothing was ever collected,
    /// `None` where nobody knows.
    async fn applied_upto(&self) -> Result<Option<u64>, ShardError> {
        if self.own.shard.state().await?.rounds == 0 {
            return Ok(Some(0));
        }
        let (origin, mut upto) = (self.origin().await?, None);
        for node in self.database.replica_rebuild().others_of(&self.database.layout(), self.range) {
            if self.database.context.is_gone(&node) {
                continue;
            }
            let status =
                RemoteReplica::new(&self.database.target, self.range, &node).in_background().ask(Status).await?;
            let point = status.taken.filter(|point| point.from_shard == origin);
            upto = upto.max(point.map(|point| point.from));
        }
        Ok(upto)
    }

    /// Those behind a sequence.
    async fn documents(&mut self, behind: u64) -> Result<(), ShardError> {
        let (from, mut gaps) = (self.from, 0);
        let mut documents = from.recover_documents();
        while let Some(rows) = documents.next().await? {
            let count = rows.len();
            let rows: Vec<(u64, DocId)> = rows.into_iter().flatten().collect();
            gaps += count - rows.len();
            let is_asked = |(seq, id): &(u64, DocId)| *seq > behind && self.is_ours(id);
            let ids: Vec<DocId> = rows.into_iter().filter(is_asked).map(|(_, id)| id).collect();
            for ids in ids.chunks(limits::DOCS_PER_PULL) {
                self.page(ids).await?;
            }
        }
        if gaps > 0 { self.name_unread().await } else { Ok(()) }
    }

    /// Notes the documents of which there is a row of changes and nothing else that can be read.
    async fn name_unread(&mut self) -> Result<(), ShardError> {
        let before = self.done.lost;
        let from = self.from;
        let mut changes = from.recover_changes();
        while let Some(rows) = changes.next().await? {
            for row in rows {
                let Some((_, id)) = row else {
                    self.done.lose("a part of the list of changes".to_owned());
                    continue;
                };
                if !self.is_ours(&id) {
                    continue;
                }
                match from.fetch(vec![(id.clone(), Want::Tree)]).await {
                    Err(error) if error.is_damage_here() => {
                        let mine = self.own.shard.fetch(vec![(id.clone(), Want::Tree)]).await?;
                        let others =
                            if mine.iter().any(Option::is_some) { "another replica has it" } else { "nobody has it" };
                        self.done.lose(format!("document {id}: {others}"));
                    }
                    fetched => drop(fetched?),
                }
            }
        }
        if self.done.lost == before {
            self.done.lose("a part of the documents, which no row of changes names".to_owned());
        }
        Ok(())
    }

    async fn page(&mut self, ids: &[DocId]) -> Result<(), ShardError> {
        let wants = || ids.iter().map(|id| (id.clone(), Want::Tree)).collect::<Vec<_>>();
        let theirs = match self.from.fetch(wants()).await {
            Err(error) if error.is_damage_here() => self.one_by_one(ids).await?,
            fetched => fetched?,
        };
        let mine = self.own.shard.fetch(wants()).await?;
        for ((id, theirs), mine) in ids.iter().zip(theirs).zip(mine) {
            let Some(theirs) = theirs else { continue };
            let tree = mine.map(|fetched| fetched.tree).unwrap_or_default();
            for leaf in theirs.tree.leaves() {
                if tree.get(&leaf.rev).is_none() {
                    self.leaf(id, &leaf.rev).await?;
                }
            }
        }
        Ok(())
    }

    async fn one_by_one(&mut self, ids: &[DocId]) -> Result<Vec<Option<Fetched>>, ShardError> {
        let mut out = Vec::with_capacity(ids.len());
        for id in ids {
            let fetched = self.from.fetch(vec![(id.clone(), Want::Tree)]).await;
            let fetched = self.done.read(fetched, || format!("document {id}"))?;
            out.push(fetched.and_then(|mut fetched| fetched.pop().flatten()));
        }
        Ok(out)
    }

    /// Applies a leaf that no other replica has, unless it was purged there.
    async fn leaf(&mut self, id: &DocId, rev: &Revision) -> Result<(), ShardError> {
        let lost = || format!("document {id}, revision {rev}");
        let want = Want::Revisions { revs: vec![rev.clone()], latest: false };
        let fetched = self.from.fetch(vec![(id.clone(), want)]).await;
        let Some(mut fetched) = self.done.read(fetched, lost)? else { return Ok(()) };
        let Some(edit) = fetched.pop().flatten().and_then(|fetched| self.edit_of(id, rev, &fetched)) else {
            self.done.lose(lost());
            return Ok(());
        };
        let (edits, mut holds) = ([edit], Vec::new());
        for attachment in blobs_of(&edits) {
            let carried = blob_stream::carry(self.from, &self.own.shard, attachment).await;
            match self.done.read(carried, || format!("{}, its attachment {}", lost(), attachment.name))? {
                Some(hold) => holds.push(hold),
                None => return Ok(()),
            }
        }
        let source = RemoteReplica::new(&self.database.target, self.range, &self.database.context.node);
        let merged =
            repair::merge_missing(&RangeReplica::Own(self.own.clone()), edits.to_vec(), &source, Origin::Anew).await?;
        self.done.taken += merged as u64;
        drop(holds);
        Ok(())
    }

    fn edit_of(&self, id: &DocId, rev: &Revision, fetched: &Fetched) -> Option<Edit> {
        let (path, data) = (fetched.tree.path_to(rev)?, fetched.tree.get(rev).flatten()?);
        let (_, stored) = fetched.found.iter().find(|(found, _)| found == rev)?;
        merge_of_stored(id, path, data.is_deleted(), stored.as_ref()?, self.database.revs_limit())
    }

    async fn locals(&mut self) -> Result<(), ShardError> {
        let from = self.from;
        let mut registers = from.recover_locals();
        while let Some(rows) = registers.next().await? {
            let mut news = Vec::new();
            for row in rows {
                let Some((id, register)) = row else {
                    self.done.lose("a part of the local documents".to_owned());
                    continue;
                };
                if !self.is_ours(&id) {
                    continue;
                }
                let stamp = self.own.shard.local_register(&id).await?.map(|own| own.stamp);
                if stamp.is_none_or(|stamp| stamp < register.stamp) {
                    news.push((id, register));
                }
            }
            if !news.is_empty() {
                self.done.taken += news.len() as u64;
                self.own.shard.local_merge(news).await?;
            }
        }
        Ok(())
    }
}
