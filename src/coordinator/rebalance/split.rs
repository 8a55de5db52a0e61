//! Split of this node's replica of a range in two.
//!
//! [`OwnReplicas::prepare`] fills two child shards beside the replica while it is read and written: all documents,
//! what changed meanwhile, the views, the local documents. [`OwnReplicas::divide`] ends the replica and puts the child
//! shards in its place, in one commit with the record of the database. Child shards that were begun are in the record,
//! so that a restart of the node only delays the split. The old replica can be read as long as a reader holds it; then
//! its shard is removed.
//!
//! Every node does this for its own replicas once the map of the database says so (`follow`); for a node that prepared
//! before, only the last step is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use crate::coordinator::read::ReadOperations;
use crate::coordinator::rebalance::{OwnReplicas, RebalanceOperations};
use crate::coordinator::replica::halves::Halves;
use crate::coordinator::replica::range_replica::{ORIGIN, OwnReplica, RangeReplica};
use crate::coordinator::topology::events::EventKind;
use crate::coordinator::topology::record::{self, Children, MapRecord};
use crate::document::id::DocId;
use crate::index::Definition;
use crate::limits;
use crate::observe::tasks::{Subject, TaskKind};
use crate::shard::{self, ShardError, ShardId, ShardReplica, Sorter};
use crate::storage::{ShardEngine, StorageError, WriteView};

/// Is told what a preparation does now, by CouchDB's names of the steps.
pub(in crate::coordinator) type Note<'n> = &'n (dyn Fn(&'static str) + Send + Sync);

impl OwnReplicas<'_> {
    /// Fills the child shards of this node's replica of a range; the second call for a range waits for the first.
    pub(in crate::coordinator) async fn prepare(self, range: usize, note: Note<'_>) -> Result<Halves, ShardError> {
        let cell = Arc::clone(self.halves().entry(range).or_default());
        let prepare = || async {
            let own = self.replicas().own_replica(range).await?.ok_or(ShardError::Moved)?;
            let halves = self.halves_of((range, &cell), &own).await?;
            self.unless_abandoned(range, &cell, || own.shard.mirror_locals(Some(Arc::clone(&halves.sorter))))?;
            let subject = Subject::new(TaskKind::Resharding, &self.name).range(self.map().range(range));
            let task = self.context.env.begin_task(subject, Some(own.replica_position().position));
            let note = |step: &'static str| {
                task.phase(step);
                note(step);
            };
            note("initial_copy");
            halves.fill(&own, Some(&task)).await?;
            note("topoff1");
            halves.fill(&own, Some(&task)).await?;
            note("build_indices");
            self.build_views(range, &halves).await;
            note("topoff2");
            halves.fill(&own, Some(&task)).await?;
            note("copy_local_docs");
            own.shard.leave_locals(&halves.shards()).await?;
            Ok(halves)
        };
        cell.get_or_try_init(prepare).await.cloned()
    }

    /// Opens the child shards of a replica; new ones are in the record on return.
    async fn halves_of(
        self,
        (range, cell): (usize, &Arc<OnceCell<Halves>>),
        own: &OwnReplica,
    ) -> Result<Halves, ShardError> {
        let numbers = self.children_of(range, cell).await?;
        let in_place = Arc::new(AtomicBool::new(false));
        let mut replicas = Vec::with_capacity(numbers.len());
        for number in numbers {
            let (id, tell, in_place) = (ShardId(number), self.replicas().tell_updates(), Arc::clone(&in_place));
            let tell = Box::new(move || {
                if in_place.load(Ordering::Relaxed) {
                    tell();
                }
            });
            let shard = ShardReplica::open_with(&self.context.storage, id, self.replicas().owner_of(id, tell)).await?;
            shard.meta_put(ORIGIN, Some(own.origin.to_be_bytes().to_vec())).await?;
            replicas.push(OwnReplica { shard, epochs: Arc::clone(&own.epochs), origin: own.origin });
        }
        let map = self.map();
        // Invariant: a range of one hash is never split.
        let [first, _] = map.range(range).halves().expect("a range that can be split");
        let sorter: Sorter = Arc::new(move |id: &DocId| {
            let half = usize::from(!first.contains(map.hash(id)));
            ShardId(numbers[half])
        });
        // Invariant: there are two numbers.
        let replicas = replicas.try_into().map_err(|_| ShardError::Moved)?;
        Ok(Halves { replicas, sorter, in_place })
    }

    /// The shards of a range's child shards, as the record has them or new ones.
    async fn children_of(self, range: usize, cell: &Arc<OnceCell<Halves>>) -> Result<[u64; 2], ShardError> {
        let engine = self.known.engine.as_deref().and_then(ShardEngine::by_name).unwrap_or_default();
        let fresh = shard::allocate_in(&self.context.storage, engine, 2).await?;
        let fresh = Children { range: range as u32, shards: [fresh[0].0, fresh[1].0] };
        let (database, cell) = (Arc::clone(self.database), Arc::clone(cell));
        self.write_record(move |record, _| {
            database.own_replicas().unless_abandoned(range, &cell, || {})?;
            if record.splits.contains(&fresh.range) {
                return Err(ShardError::Moved);
            }
            let begun = record.children.iter().find(|children| children.range == fresh.range).copied();
            if begun.is_none() {
                record.children.push(fresh);
            }
            Ok(begun.unwrap_or(fresh).shards)
        })
        .await
    }

    /// Does a step of a preparation, unless that was given up meanwhile.
    fn unless_abandoned(
        self,
        range: usize,
        cell: &Arc<OnceCell<Halves>>,
        step: impl FnOnce(),
    ) -> Result<(), ShardError> {
        let halves = self.halves();
        match halves.get(&range) {
            Some(current) if Arc::ptr_eq(current, cell) => {
                step();
                Ok(())
            }
            _ => Err(ShardError::Moved),
        }
    }

    /// Builds the views on the child shards, so that queries do not wait for that later. One that fails is built when
    /// somebody asks for it.
    async fn build_views(self, range: usize, halves: &Halves) {
        let programs = match self.design_docs().programs().await {
            Ok(programs) => programs,
            Err(error) => return tracing::info!(database = self.name, ?error, "views are split later"),
        };
        for program in programs.iter() {
            for (name, definition) in Definition::all(program.body(), self.known.partitioned) {
                let view = self.queries().view_of(program, Arc::new(definition));
                for replica in &halves.replicas {
                    if let Err(error) = view.update_gently(range, &RangeReplica::Own(replica.clone())).await {
                        tracing::info!(database = self.name, view = name, %error, "a view is split later");
                    }
                }
            }
        }
    }

    /// Ends this node's replica of a range and puts its child shards in its place. The record then says what `places`
    /// says.
    pub(in crate::coordinator) async fn divide(self, range: usize, places: &MapRecord) -> Result<(), ShardError> {
        let halves = self.prepare(range, &|_| {}).await?;
        let own = self.replicas().own_replica(range).await?.ok_or(ShardError::Moved)?;
        loop {
            halves.fill(&own, None).await?;
            let record = self.record_of_split(range, &halves, places.clone());
            match own.shard.hand_over(halves.shards(), Arc::clone(&halves.sorter), record).await {
                Ok(true) => break,
                // An attachment came in the last moment, or a lot of documents.
                Ok(false) | Err(ShardError::NotExecuted(_)) => {}
                Err(error) => return Err(error),
            }
        }
        self.halves().remove(&range);
        let database = Arc::clone(self.database);
        self.context.env.spawn(async move { database.own_replicas().let_go(range, limits::SPLIT_GRACE).await });
        Ok(())
    }

    /// What the commit of a split writes beside the documents.
    fn record_of_split(
        self,
        range: usize,
        halves: &Halves,
        places: MapRecord,
    ) -> impl FnOnce(&mut WriteView<'_>) -> Result<Result<(), ShardError>, StorageError> + Send + 'static {
        let (database, halves) = (Arc::clone(self.database), halves.clone());
        move |view: &mut WriteView<'_>| {
            let mut record = match database.stored_record(view)? {
                Ok(record) => record,
                Err(error) => return Ok(Err(error)),
            };
            let children = Children { range: range as u32, shards: halves.shards().map(|shard| shard.id().0) };
            // Others would be shards that are being dropped.
            let Some(at) = record.children.iter().position(|begun| *begun == children) else {
                return Ok(Err(ShardError::Moved));
            };
            record.children.remove(at);
            record.shards.extend(children.shards);
            record.set_places(places);
            view.put(record::key(&database.name), record.encode());
            view.after_commit(move || {
                database.known.place(record);
                halves.in_place.store(true, Ordering::Relaxed);
                database.lay_out(halves.replicas.into_iter().map(|replica| (replica.shard.id().0, replica)).collect());
                database.context.events.add(&database.name, EventKind::Updated);
            });
            Ok(Ok(()))
        }
    }

    /// Gives up the child shards of a range, unless it is divided by then. Should the map say later that it is, others
    /// are filled.
    pub(in crate::coordinator) async fn abandon(self, range: usize) -> Result<(), ShardError> {
        // A map that is being followed has its child shards.
        let _alone = self.following.lock().await;
        if self.map().is_live(range) { self.discard_children(range).await } else { Ok(()) }
    }

    /// As [`OwnReplicas::abandon`], of a range that is not divided, by the one that follows a map.
    pub(in crate::coordinator) async fn discard_children(self, range: usize) -> Result<(), ShardError> {
        // One that is not open mirrors nothing, and may be damaged.
        let own = self.layout().cell(range).get().cloned();
        let halves = {
            let mut halves = self.halves();
            own.iter().for_each(|own| own.shard.mirror_locals(None));
            halves.remove(&range)
        };
        self.write_record(move |record, view| {
            let given_up = record.children.extract_if(.., |children| children.range as usize == range);
            given_up
                .flat_map(|children| children.shards)
                .for_each(|shard| view.put(record::drop_key(shard), Vec::new()));
            Ok(())
        })
        .await?;
        let halves = halves.as_ref().and_then(|cell| cell.get());
        halves.into_iter().flat_map(|halves| &halves.replicas).for_each(|replica| replica.shard.leave());
        self.context.drop_shards().await;
        Ok(())
    }

    /// Drops the shard of a range that was split, once `grace` is over and nobody reads it any more.
    pub(in crate::coordinator) async fn let_go(self, range: usize, grace: std::time::Duration) {
        let env = self.context.env.clone();
        let mut waited = std::time::Duration::ZERO;
        while waited < grace || waited < limits::SPLIT_GRACE_MAX && !self.is_unread(range) {
            env.sleep(limits::SPLIT_LOOK).await;
            waited += limits::SPLIT_LOOK;
        }
        let replica = self.layout().cell(range).get().cloned();
        let done = self.write_record(move |record, view| {
            let shard = std::mem::take(&mut record.shards[range]);
            if shard != 0 {
                view.put(record::drop_key(shard), Vec::new());
            }
            Ok(())
        });
        match done.await {
            Ok(()) => {
                replica.iter().for_each(|replica| replica.shard.leave());
                self.context.drop_shards().await;
            }
            Err(ShardError::Dropped) => {}
            Err(error) => tracing::warn!(database = self.name, %error, "the shard of a split range stays for now"),
        }
    }

    fn is_unread(self, range: usize) -> bool {
        self.layout().cell(range).get().is_none_or(|replica| replica.shard.is_idle())
    }
}
