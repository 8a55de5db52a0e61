//! Open indexes: the pieces of segments that searches needed, cached within the budget of the node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use settee_search::segment::{Deleted, Part, Segment, SegmentError};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::SearchIndex;
use super::pieces::Pieces;
use super::record::{Keys, SearchHeader, SegmentInfo};
use crate::index::{IndexError, Signature};
use crate::limits;
use crate::shard::{ShardError, ShardId};
use crate::storage::{StorageError, View};
use crate::world::buggify::weigh;
use crate::world::sync::Mutex;
use crate::world::{Pool, lock};

/// A segment of which some is in memory.
#[derive(Clone)]
pub(super) struct Opened {
    pub info: SegmentInfo,
    pub pieces: Arc<Pieces>,
    segment: Segment,
    deleted: Arc<Deleted>,
}

impl Opened {
    pub fn part(&self) -> Part {
        Part { segment: self.segment.clone(), deleted: Arc::clone(&self.deleted) }
    }

    /// As if all of its documents counted.
    pub fn forget_deletions(&mut self) {
        self.deleted = Arc::default();
    }
}

/// An index as it stood at one time.
#[derive(Clone)]
pub(super) struct State {
    pub header: SearchHeader,
    pub segments: Arc<[Opened]>,
}

impl State {
    fn memory(&self) -> usize {
        self.segments.iter().map(|opened| opened.pieces.memory() + opened.segment.memory()).sum()
    }
}

/// Why a job on segments did not come to its end.
pub(super) enum Lost {
    /// A segment is not there any more: it was merged.
    Gone,
    /// It needs more of the segments than one job may hold.
    TooLarge,
    Failed(IndexError),
}

impl<E: Into<IndexError>> From<E> for Lost {
    fn from(error: E) -> Lost {
        Lost::Failed(error.into())
    }
}

/// What is open on a node, and the turns of its searches and merges.
pub(in crate::index) struct OpenIndexes {
    open: Mutex<Open>,
    bounds: Bounds,
    /// Turns of searches that need little memory.
    small: Semaphore,
    /// Those of searches that need much.
    large: Semaphore,
    merges: Semaphore,
}

/// What searches may take of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// Bytes of what is open.
    pub open: usize,
    /// Searches with a small share at once.
    pub at_once: usize,
    /// Bytes of a small share.
    pub small: usize,
    /// Bytes of a large share.
    pub large: usize,
}

impl Bounds {
    /// Of a node with so many MB of memory.
    pub(super) fn of(memory_mb: u64) -> Bounds {
        let memory_mb = memory_mb.clamp(limits::MEMORY_MB_MIN, u64::from(u32::MAX));
        let (least, most) = limits::SEARCHES_AT_ONCE;
        let turns = usize::try_from(memory_mb / limits::SEARCH_TURN_MB).unwrap_or(most);
        let memory = usize::try_from(memory_mb << 20).unwrap_or(usize::MAX);
        Bounds {
            open: memory / limits::SEARCH_MEMORY_PARTS * limits::SEARCH_OPEN_PARTS,
            at_once: turns.clamp(least, most),
            small: limits::SEARCH_SMALL_BYTES,
            large: limits::SEARCH_HELD_BYTES,
        }
    }

    /// Bytes that searches and merges read before they are counted.
    fn read_at_once(&self) -> usize {
        self.at_once * self.small + (limits::SEARCHES_LARGE + limits::SEARCH_MERGES) * self.large
    }
}

/// How much memory a job on segments may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    Small,
    Large,
}

#[derive(Default)]
struct Open {
    states: BTreeMap<(ShardId, Signature), Kept>,
    /// Counts uses.
    uses: u64,
    /// Counts commits.
    changes: u64,
}

struct Kept {
    state: State,
    /// Whether nothing was committed since.
    is_current: bool,
    used: u64,
}

impl OpenIndexes {
    /// Of a node with so many MB of memory.
    pub fn of(memory_mb: u64) -> OpenIndexes {
        OpenIndexes::new(Bounds::of(memory_mb))
    }

    /// Nothing is open yet.
    pub(super) fn new(bounds: Bounds) -> OpenIndexes {
        OpenIndexes {
            open: Mutex::default(),
            bounds,
            small: Semaphore::new(bounds.at_once),
            large: Semaphore::new(limits::SEARCHES_LARGE),
            merges: Semaphore::new(limits::SEARCH_MERGES),
        }
    }

    /// Bytes that a job may read, and hold beside them.
    pub(super) fn bytes(&self, share: Share) -> usize {
        match share {
            Share::Small => self.bounds.small,
            Share::Large => self.bounds.large,
        }
    }

    /// Waits for the turn of a merge, as for that of a search.
    pub(super) async fn merge_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.merges.acquire().await.ok()
    }

    /// Waits for the turn of a search. Closed never; then it goes on without one.
    pub(super) async fn turn(&self, share: Share) -> Option<SemaphorePermit<'_>> {
        match share {
            Share::Small => self.small.acquire().await.ok(),
            Share::Large => self.large.acquire().await.ok(),
        }
    }

    fn get(&self, key: (ShardId, Signature)) -> Option<(State, bool)> {
        let mut open = lock(&self.open);
        open.uses += 1;
        let used = open.uses;
        let kept = open.states.get_mut(&key)?;
        kept.used = used;
        Some((kept.state.clone(), kept.is_current))
    }

    /// Keeps a state that was read when there were so many commits, and of all states those that were used last.
    fn keep(&self, key: (ShardId, Signature), state: State, changes: u64) {
        let mut open = lock(&self.open);
        open.uses += 1;
        let (used, is_current) = (open.uses, open.changes == changes);
        open.states.insert(key, Kept { state, is_current, used });
        open.shrink(&self.bounds);
    }

    /// An index changes: what is kept of it helps to open it again.
    pub fn note_change(&self, key: (ShardId, Signature)) {
        let mut open = lock(&self.open);
        open.changes += 1;
        if let Some(kept) = open.states.get_mut(&key) {
            kept.is_current = false;
        }
    }

    /// An index is removed.
    pub fn forget(&self, key: (ShardId, Signature)) {
        let mut open = lock(&self.open);
        open.changes += 1;
        open.states.remove(&key);
    }

    /// Whether something of an index is kept.
    #[cfg(test)]
    pub(super) fn is_open(&self, key: (ShardId, Signature)) -> bool {
        lock(&self.open).states.contains_key(&key)
    }

    /// Bytes that are kept.
    pub fn memory(&self) -> usize {
        lock(&self.open).states.values().map(|kept| kept.state.memory()).sum()
    }

    /// Commits so far.
    fn changes(&self) -> u64 {
        lock(&self.open).changes
    }
}

impl Open {
    /// Gives up what was used longest ago, until no more is left than may be open.
    fn shrink(&mut self, bounds: &Bounds) {
        let most = bounds.open;
        let sizes: BTreeMap<_, _> = self.states.iter().map(|(key, kept)| (*key, kept.state.memory())).collect();
        let mut sum: usize = sizes.values().sum();
        weigh("memory of open search indexes", sum, most + bounds.read_at_once());
        while sum > most {
            let Some(oldest) = self.states.iter().min_by_key(|(_, kept)| kept.used).map(|(key, _)| *key) else {
                return;
            };
            sum -= sizes.get(&oldest).copied().unwrap_or_default();
            self.states.remove(&oldest);
        }
    }
}

impl SearchIndex {
    pub(super) fn cache_key(&self) -> (ShardId, Signature) {
        (self.replica.id(), self.definition.signature)
    }

    /// The index as it is stored now, read on threads of a pool.
    pub(super) async fn state(&self, pool: Pool) -> Result<State, Lost> {
        // Before all that is read: what is removed meanwhile is not kept, and not used again.
        let (removals, changes) = (self.slot.known().removals, self.open.changes());
        let kept = self.open.get(self.cache_key());
        if let Some((state, true)) = kept {
            return Ok(state);
        }
        let keys = Keys(self.replica.id(), self.definition.signature);
        let read = move |view: &dyn View, _| {
            let header = view.get(&keys.header())?.map(|bytes| SearchHeader::decode(&bytes)).transpose()?;
            let header = header.flatten().unwrap_or_default();
            let mut deleted = Vec::with_capacity(header.segments.len());
            for segment in &header.segments {
                let bytes = if segment.deleted > 0 { view.get(&keys.deleted(segment.id))? } else { None };
                deleted.push(bytes.map(|bytes| Deleted::parse(&bytes)).transpose().map_err(corrupt)?);
            }
            Ok((header, deleted))
        };
        let (header, deleted) = self.replica.read_records(pool, read).await?;
        let known: BTreeMap<u64, Opened> = kept
            .filter(|_| self.slot.known().removals == removals)
            .into_iter()
            .flat_map(|(state, _)| state.segments.to_vec())
            .map(|opened| (opened.info.id, opened))
            .collect();
        let mut segments = Vec::with_capacity(header.segments.len());
        for (info, deleted) in header.segments.iter().zip(deleted) {
            let deleted = Arc::new(deleted.unwrap_or_default());
            segments.push(match known.get(&info.id).filter(|opened| opened.info.bytes == info.bytes) {
                Some(opened) => Opened { info: *info, deleted, ..opened.clone() },
                None => self.open_segment(pool, *info, deleted).await?,
            });
        }
        let state = State { header, segments: segments.into() };
        if self.slot.known().removals == removals {
            self.open.keep(self.cache_key(), state.clone(), changes);
        }
        Ok(state)
    }

    async fn open_segment(&self, pool: Pool, info: SegmentInfo, deleted: Arc<Deleted>) -> Result<Opened, Lost> {
        let pieces = Arc::new(Pieces::new(info.bytes, limits::SEARCH_PIECE_BYTES));
        loop {
            let source = Arc::clone(&pieces);
            let opened = self.env.blocking(pool, move || Segment::open(source)).await;
            if self.read_missing(pool, info, &pieces).await? {
                continue;
            }
            let segment = opened.map_err(|error| Lost::from(damaged(error)))?;
            return Ok(Opened { info, pieces, segment, deleted });
        }
    }

    /// Reads the pieces that a job lacked; whether it lacked any.
    async fn read_missing(&self, pool: Pool, info: SegmentInfo, pieces: &Arc<Pieces>) -> Result<bool, Lost> {
        let missing: BTreeSet<u32> = pieces.take_missing();
        if missing.is_empty() {
            return Ok(false);
        }
        let keys = Keys(self.replica.id(), self.definition.signature);
        let mut missing: Vec<u32> = missing.into_iter().collect();
        while !missing.is_empty() {
            let some: Vec<u32> = missing.drain(..missing.len().min(PIECES_PER_READ)).collect();
            let into = Arc::clone(pieces);
            let read = move |view: &dyn View, _| {
                for piece in some {
                    match view.get(&keys.piece(info.id, piece))? {
                        Some(bytes) => into.put(piece, bytes.into()),
                        None => return Ok(false),
                    }
                }
                Ok(true)
            };
            if !self.replica.read_records(pool, read).await? {
                return Err(Lost::Gone);
            }
        }
        Ok(true)
    }

    /// Runs a job on segments, again and again until it lacks nothing of them, and reads no more than its share.
    pub(super) async fn on_segments<T, J>(
        &self,
        pool: Pool,
        share: Share,
        segments: &[Opened],
        job: J,
    ) -> Result<T, Lost>
    where
        T: Send + 'static,
        J: Fn(&[Part]) -> T + Send + Sync + 'static,
    {
        let memory = || segments.iter().map(|opened| opened.pieces.memory()).sum::<usize>();
        // What others have read counts for the node, not for this search.
        let begun_with = memory();
        let (job, parts) = (Arc::new(job), segments.iter().map(Opened::part).collect::<Arc<[Part]>>());
        loop {
            let refused = || segments.iter().map(|opened| opened.pieces.refused()).sum::<u64>();
            let before = refused();
            let (job, parts) = (Arc::clone(&job), Arc::clone(&parts));
            let done = self.env.blocking(pool, move || job(&parts)).await;
            let lacked = refused() != before;
            for opened in segments {
                self.read_missing(pool, opened.info, &opened.pieces).await?;
            }
            if !lacked {
                return Ok(done);
            }
            if memory().saturating_sub(begun_with) > self.open.bytes(share) {
                return Err(Lost::TooLarge);
            }
        }
    }

    /// Counts what a search read anew: what was not used for long goes.
    pub(super) fn weigh_open(&self) {
        lock(&self.open.open).shrink(&self.open.bounds);
    }
}

/// Pieces that one step of reading takes.
const PIECES_PER_READ: usize = 4;

pub(super) fn damaged(error: SegmentError) -> ShardError {
    ShardError::Storage(corrupt(error))
}

pub(super) fn corrupt(error: SegmentError) -> StorageError {
    StorageError::Corrupt(error.to_string())
}
