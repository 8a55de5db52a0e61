//! [`ShardReplica`], the handle of an open replica, and the two ways to its records: a read step, and a change in the
//! committer.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::watch;

use super::purge::RecentPurges;
use super::record::Header;
use super::split::Sorter;
use super::sweep;
use super::time_seq;
use super::transaction::Transaction;
use super::upgrade;
use super::{ShardError, ShardId, ShardInfo};
use crate::document::render::Attachment;
use crate::storage::planted::Planted;
use crate::storage::{
    BlobReader, BlobWriter, CommitError, KeyRange, ReadAs, StageMode, Storage, StorageError, View, WriteView,
};
use crate::world::Pool;
use crate::world::sync::Mutex;

/// The kind byte of the records of views, see `index/keys.rs`.
pub const VIEW_KIND: u8 = b'v';

/// Called with each commit that gave out sequences, once it is durable. It must not block.
pub type OnChange = Box<dyn Fn() + Send + Sync>;

/// Says of a version of the database's map whether writes whose replicas are counted by that map are taken now. Asked
/// in the committer, so that no such write is stored behind the map that forbids it. It must not block.
pub type Admits = Box<dyn Fn(u64) -> bool + Send + Sync>;

/// What the owner of a shard wants to hear of its replica, and what it decides.
pub struct Owner {
    /// See [`OnChange`].
    pub on_change: OnChange,
    /// See [`Admits`].
    pub admits: Admits,
}

impl Default for Owner {
    /// Hears nothing and takes every write.
    fn default() -> Owner {
        Owner { on_change: Box::new(|| {}), admits: Box::new(|_| true) }
    }
}

/// An open replica; a cheap handle. Open each shard once per node: its watch channel lives here.
#[derive(Clone)]
pub struct ShardReplica(pub(super) Arc<Inner>, Use);

/// What a handle is used for.
#[derive(Clone, Copy)]
struct Use {
    /// The threads of its reads.
    pool: Pool,
    /// The map by which its writes are counted; `None`: nobody counts them.
    by_map: Option<u64>,
    /// Whether it reads only what is not in the store file yet.
    unflushed: bool,
    /// Whether inline reads are tried on the thread of the caller.
    inline: bool,
}

pub(super) struct Inner {
    pub(super) storage: Storage,
    pub(super) shard: ShardId,
    committed: watch::Sender<u64>,
    /// Commits that changed a design document, since it was opened.
    design_commits: AtomicU64,
    /// The number of the last body when it was opened.
    opened_body: u64,
    /// Nodes whose replicas it has met since, see `tombstone_collection.rs`. A blocking lock: held for a look, never
    /// across an await.
    pub(super) compared: Mutex<BTreeSet<String>>,
    /// Whether it is noted what it applies from others, see `tombstone_collection.rs`.
    pub(super) is_early: AtomicBool,
    /// When the bin of `time_seq.rs` ends that is noted last, in seconds since the Unix epoch; 0: not looked at yet.
    pub(super) bin_ends: AtomicU64,
    /// What it was told to purge last. A blocking lock: held for a look, within a job of the committer.
    pub(super) purged: Mutex<RecentPurges>,
    owner: Owner,
    /// One of the states below.
    state: AtomicU8,
    /// Says which child shard gets a local document, too, while the replica is being split. A blocking lock: held to
    /// clone it.
    mirror: Mutex<Option<Sorter>>,
}

/// It is read and written.
const OPEN: u8 = 0;
/// Its documents are in its child shards: it can be read as it was then.
const SPLIT: u8 = 1;
/// Its documents are elsewhere: nothing more is done with it.
const LEFT: u8 = 2;
/// Its store file is damaged, and the shard was rebuilt: nothing more is done with it.
const REBUILDING: u8 = 3;
/// Its database is gone: nothing more is done with it.
const CLOSED: u8 = 4;

impl fmt::Debug for ShardReplica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardReplica({})", self.0.shard.0)
    }
}

/// Who refused to change records.
enum Refused<E> {
    /// The shard, which does not take them now.
    ByShard(ShardError),
    /// The work itself.
    ByWork(E),
}

impl ShardReplica {
    /// Opens a shard; one without any record is empty. Reads its header. One that an older settee wrote gets its
    /// summaries first, in bounded steps.
    pub async fn open(storage: &Storage, shard: ShardId) -> Result<ShardReplica, ShardError> {
        ShardReplica::open_with(storage, shard, Owner::default()).await
    }

    /// As [`ShardReplica::open`], with an owner, who is told of every change also when the caller of the edit went
    /// away.
    pub async fn open_with(storage: &Storage, shard: ShardId, owner: Owner) -> Result<ShardReplica, ShardError> {
        upgrade::if_needed(storage, shard).await?;
        let header = storage.read(move |view| Header::read(view, shard)).await?;
        Ok(ShardReplica::over(storage, shard, owner, (header.update_seq, header.last_body)))
    }

    /// A shard of which not even the header can be read, for tools that bring what is left of it elsewhere: nothing is
    /// to be written to it, and nobody told of it.
    pub fn of_remains(storage: &Storage, shard: ShardId) -> ShardReplica {
        ShardReplica::over(storage, shard, Owner::default(), (0, 0))
    }

    fn over(storage: &Storage, shard: ShardId, owner: Owner, (update_seq, opened_body): (u64, u64)) -> ShardReplica {
        let (storage, committed) = (storage.clone(), watch::Sender::new(update_seq));
        let inner = Inner {
            storage,
            shard,
            committed,
            design_commits: AtomicU64::new(0),
            opened_body,
            compared: Mutex::default(),
            is_early: AtomicBool::new(false),
            bin_ends: AtomicU64::new(0),
            purged: Mutex::default(),
            owner,
            state: AtomicU8::new(OPEN),
            mirror: Mutex::default(),
        };
        let inner = Arc::new(inner);
        ShardReplica(inner, Use { pool: Pool::Foreground, by_map: None, unflushed: false, inline: false })
    }

    /// Its number.
    pub fn id(&self) -> ShardId {
        self.0.shard
    }

    /// The same replica for work that may wait: its reads run on the threads of the background.
    pub fn in_background(&self) -> ShardReplica {
        ShardReplica(Arc::clone(&self.0), Use { pool: Pool::Background, inline: false, ..self.1 })
    }

    /// The same replica for builds of views, which yield to all others.
    pub fn for_builds(&self) -> ShardReplica {
        ShardReplica(Arc::clone(&self.0), Use { pool: Pool::Build, inline: false, ..self.1 })
    }

    /// The same replica as far as it is not in the store file yet: what is left where that cannot be opened.
    pub fn unflushed(&self) -> ShardReplica {
        ShardReplica(Arc::clone(&self.0), Use { unflushed: true, inline: false, ..self.1 })
    }

    /// The same replica for somebody who has nothing else to do while it reads, such as to ask another replica: its
    /// inline reads run on his thread, where they need no disk.
    pub fn inline(&self) -> ShardReplica {
        ShardReplica(Arc::clone(&self.0), Use { inline: true, ..self.1 })
    }

    /// The same replica for writes that somebody counts by the map of that version: those are refused with
    /// [`ShardError::Moved`] once the owner does not admit that map any more, also when they are queued.
    pub fn by_map(&self, version: u64) -> ShardReplica {
        ShardReplica(Arc::clone(&self.0), Use { by_map: Some(version), ..self.1 })
    }

    /// The number of the last body that was stored before it was opened: those of revisions stored since are higher.
    pub fn opened_body(&self) -> u64 {
        self.0.opened_body
    }

    /// The bugs that the simulator planted in the node.
    pub fn planted(&self) -> Planted {
        self.0.storage.planted()
    }

    /// Refuses all further calls with [`ShardError::Dropped`], also edits that are queued but have not run: the
    /// database is gone.
    pub fn close(&self) {
        self.0.state.store(CLOSED, Ordering::SeqCst);
    }

    /// Refuses all further calls with [`ShardError::Moved`], as [`ShardReplica::close`]: the documents are elsewhere.
    pub fn leave(&self) {
        self.0.state.fetch_max(LEFT, Ordering::SeqCst);
    }

    /// Refuses all further calls with [`ShardError::NotExecuted`], as [`ShardReplica::close`]: another shard takes its
    /// place.
    pub fn quarantine(&self) {
        self.0.state.fetch_max(REBUILDING, Ordering::SeqCst);
    }

    /// Whether this handle is the only one and no edit of it is queued: only then may it be let go and opened again,
    /// since an edit tells its news to listeners of its own handle.
    pub fn is_idle(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn check_open(&self) -> Result<(), ShardError> {
        self.0.check(LEFT)
    }

    /// Refuses what adds data while the disk is nearly full.
    pub(super) fn check_room(&self) -> Result<(), ShardError> {
        if self.0.storage.has_room() { Ok(()) } else { Err(StorageError::NoRoom.into()) }
    }

    /// Runs one bounded read step on what is committed.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        step: impl FnOnce(&dyn View, ShardId) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        self.read_on(self.1.pool, step).await
    }

    /// As [`ShardReplica::read`], on the threads of `pool`.
    pub(super) async fn read_on<T: Send + 'static>(
        &self,
        pool: Pool,
        step: impl FnOnce(&dyn View, ShardId) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        self.check_open()?;
        let shard = self.0.shard;
        Ok(match self.1.unflushed {
            true => self.0.storage.read_unflushed_on(pool, move |view| step(view, shard)).await?,
            false => self.0.storage.read_shard_on(pool, shard.0, move |view| step(view, shard)).await?,
        })
    }

    /// As [`ShardReplica::read`] for a step that reads a few records, see [`Storage::read_inline`].
    pub(super) async fn read_inline<T: Send + 'static>(
        &self,
        step: impl FnOnce(&dyn View, ShardId) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        if !self.1.inline {
            return self.read(step).await;
        }
        self.check_open()?;
        let shard = self.0.shard;
        Ok(self.0.storage.read_inline(shard.0, move |view| step(view, shard)).await?)
    }

    /// Runs `work` in the committer; durable on return. Listeners hear of new sequences only then.
    pub(super) async fn change<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_, '_>, Planted) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        let inner = Arc::clone(&self.0);
        let planted = self.0.storage.planted();
        let salt = self.0.storage.env().random_u64();
        self.write(move |view| {
            let mut transaction = Transaction::new(view, inner.shard, inner.storage.blobs(), planted)?;
            let before = transaction.header.update_seq;
            let done = work(&mut transaction, planted)?;
            let changed_design = transaction.changed_design;
            let seq = transaction.finish(salt)?;
            assert!(seq >= before, "sequences only grow");
            if seq > before {
                time_seq::note(view, &inner, (before, seq))?;
                view.after_commit(move || {
                    if changed_design {
                        inner.design_commits.fetch_add(1, Ordering::SeqCst);
                    }
                    inner.announce(seq);
                });
            }
            Ok(done)
        })
        .await
    }

    /// Runs `work` in the committer without a shard header.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteView<'_>) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        self.check_open()?;
        let inner = Arc::clone(&self.0);
        let by_map = self.1.by_map;
        let job = move |view: &mut WriteView<'_>| match inner.check_admits(by_map) {
            Ok(()) => work(view).map(Ok),
            Err(error) => Ok(Err(error)),
        };
        let outcome = self.0.storage.committer().submit_to(Some(self.0.shard.0), job).await;
        if let Err(CommitError::Storage(StorageError::Corrupt(what))) = &outcome {
            self.0.storage.damage().note(what);
        }
        outcome?
    }

    /// Runs one bounded step on the records that other layers keep in the shard: for indexes.
    pub async fn read_records<T: Send + 'static>(
        &self,
        pool: Pool,
        step: impl FnOnce(&dyn View, ShardId) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        self.read_on(pool, step).await
    }

    /// What the shard is stored in, for who holds something of it.
    pub fn storage(&self) -> Storage {
        self.0.storage.clone()
    }

    /// As [`ShardReplica::read_records`], of what `step` holds of them: see [`View::lasting`].
    pub async fn read_held<T: Send + 'static>(
        &self,
        step: impl FnOnce(ShardId) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<T, ShardError> {
        self.check_open()?;
        let shard = self.id();
        Ok(self.0.storage.read_lasting(shard.0, move || step(shard)).await?)
    }

    /// As [`ShardReplica::read_records`] for short steps on several replicas of this node, see
    /// [`Storage::read_shards`].
    pub async fn read_records_of<T, S>(steps: Vec<(ShardReplica, S)>, inline: bool) -> Vec<Result<T, ShardError>>
    where
        T: Send + 'static,
        S: FnOnce(&dyn View, ShardId) -> Result<T, StorageError> + Send + 'static,
    {
        let Some((ShardReplica(first, _), _)) = steps.first() else { return Vec::new() };
        let storage = first.storage.clone();
        let inline = inline && steps.iter().all(|(replica, _)| replica.1.inline);
        let (mut open, mut states) = (Vec::with_capacity(steps.len()), Vec::with_capacity(steps.len()));
        for (replica, step) in steps {
            let state = replica.check_open();
            if state.is_ok() {
                let shard = replica.id();
                open.push((shard.0, move |view: &dyn View| step(view, shard)));
            }
            states.push(state);
        }
        let mut read = storage.read_shards(open, inline).await.into_iter();
        let answer = |state: Result<(), ShardError>| {
            state?;
            // Invariant: each step has one result.
            Ok(read.next().expect("a result for each step")?)
        };
        states.into_iter().map(answer).collect()
    }

    /// Changes such records in the committer; durable on return. With an inner error nothing is written. Refused with
    /// [`StorageError::NoRoom`] while the disk is nearly full.
    pub async fn write_records<T: Send + 'static, E: Send + 'static>(
        &self,
        work: impl FnOnce(&mut WriteView<'_>) -> Result<Result<T, E>, StorageError> + Send + 'static,
    ) -> Result<Result<T, E>, ShardError> {
        self.check_open()?;
        self.check_room()?;
        let inner = Arc::clone(&self.0);
        let job = move |view: &mut WriteView<'_>| {
            if let Err(error) = inner.check(LEFT) {
                return Ok(Err(Refused::ByShard(error)));
            }
            work(view).map(|done| done.map_err(Refused::ByWork))
        };
        match self.0.storage.committer().submit_to(Some(self.0.shard.0), job).await? {
            Ok(done) => Ok(Ok(done)),
            Err(Refused::ByWork(error)) => Ok(Err(error)),
            Err(Refused::ByShard(error)) => Err(error),
        }
    }

    /// Removes such records, a bounded number per commit, from the first on, until a round finds none; how many.
    pub async fn remove_records(&self, range: KeyRange) -> Result<usize, ShardError> {
        assert!(range.start.get(8) == Some(&VIEW_KIND), "only records of upper layers are removed by range");
        let mut all = 0;
        loop {
            self.check_open()?;
            let removed = sweep::round(&self.0.storage, range.clone()).await?;
            if removed == 0 {
                return Ok(all);
            }
            all += removed;
        }
    }

    /// The counters.
    pub async fn info(&self) -> Result<ShardInfo, ShardError> {
        Ok(self.read_inline(Header::read).await?.info())
    }

    /// [`ShardReplica::info`] of several replicas of this node, read in one job.
    pub async fn infos(replicas: Vec<ShardReplica>) -> Vec<Result<ShardInfo, ShardError>> {
        let read = |view: &dyn View, shard: ShardId| Header::read(view, shard).map(|header| header.info());
        ShardReplica::read_records_of(replicas.into_iter().map(|replica| (replica, read)).collect(), true).await
    }

    /// The last committed sequence; changes only after the commit is durable.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.0.committed.subscribe()
    }

    /// Changes with each commit that changes a design document: before it is acknowledged, after it can be read.
    pub fn design_version(&self) -> u64 {
        self.0.design_commits.load(Ordering::SeqCst)
    }

    /// Starts the upload of an attachment.
    pub fn stage(&self, mode: StageMode) -> BlobWriter {
        self.0.storage.blobs().writer(self.0.shard.0, mode)
    }

    /// Reads an attachment; `range` = first byte and the one behind the last. It must be `None` when stored gzip is
    /// read as plain bytes.
    pub fn blob_reader(&self, attachment: &Attachment, read: ReadAs, range: Option<(u64, u64)>) -> BlobReader {
        self.0.storage.blobs().reader(self.0.shard.0, attachment, read, range)
    }
}

impl Inner {
    /// Fails from the state `until` on.
    pub(super) fn check(&self, until: u8) -> Result<(), ShardError> {
        match self.state.load(Ordering::SeqCst) {
            CLOSED => Err(ShardError::Dropped),
            REBUILDING => Err(ShardError::NotExecuted("the replica is damaged and is being rebuilt".to_owned())),
            state if state >= until => Err(ShardError::Moved),
            _ => Ok(()),
        }
    }

    /// Whether it takes edits.
    pub(super) fn check_writable(&self) -> Result<(), ShardError> {
        self.check(SPLIT)
    }

    /// As [`Inner::check_writable`], for a write that is counted by a map.
    fn check_admits(&self, by_map: Option<u64>) -> Result<(), ShardError> {
        self.check_writable()?;
        match by_map {
            Some(version) if !(self.owner.admits)(version) => Err(ShardError::Moved),
            _ => Ok(()),
        }
    }

    /// Refuses all further writes with [`ShardError::Moved`]. Called within a committer job: those behind it see it.
    pub(super) fn end_writes(&self) {
        self.state.fetch_max(SPLIT, Ordering::SeqCst);
    }

    pub(super) fn set_mirror(&self, sorter: Option<Sorter>) {
        *self.mirror.lock().unwrap_or_else(PoisonError::into_inner) = sorter;
    }

    pub(super) fn mirror(&self) -> Option<Sorter> {
        self.mirror.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Moves the last sequence on without telling anybody of news.
    pub(super) fn stand_at(&self, seq: u64) {
        self.committed.send_replace(seq);
    }

    fn announce(&self, seq: u64) {
        self.committed.send_if_modified(|last| {
            let newer = seq > *last;
            *last = seq.max(*last);
            newer
        });
        // Afterwards: who hears of it and reads the feed finds the change there.
        (self.owner.on_change)();
    }
}
