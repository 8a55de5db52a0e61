//! Views: rows that functions make of documents, kept in the order of their keys beside the documents.
//!
//! A [`ViewIndex`] is one view of one replica. Its rows live in the shard's part of the ordered store (`keys.rs`,
//! `record.rs`). `build.rs` follows the shard's sequence and writes rows and position in one batch, so that a crash
//! loses neither; `read.rs` reads pages of rows. Views are told apart by [`Signature`], the hash of everything that
//! their rows depend on: a change of one view of a design document leaves the rows of the others alone, and
//! `cleanup.rs` removes indexes that no design document names any more. The layers above provide the functions: see
//! [`Mapper`]. Views of one design document that have the same position are built together: each document is read, and
//! passed to JavaScript, once.
//!
//! The index of a declared selector (`selected.rs`) is built in the same way: its rows are changes.
//!
//! Promises: rows are those of documents as they were at the header's position or later; an index with sort keys of an
//! unknown version is rebuilt. Offsets and built-in reductions add up sums of blocks of rows (`sums.rs`, `groups.rs`),
//! some of which are stored beside the rows (`stored.rs`), and read the rest (`pass.rs`); counts use sparse offsets
//! inside blocks, too (`steps.rs`). An answer of several pages is of one state (`states.rs`).

mod build;
mod cleanup;
mod definition;
mod expiry;
mod groups;
mod keys;
pub mod mango;
mod mapper;
mod pass;
mod read;
mod record;
pub mod reduce;
pub mod search;
mod selected;
mod single_state;
mod states;
mod steps;
mod stored;
mod sums;
mod trust;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, RwLock};

use crate::document::collate::{Collation, Collator};
use crate::limits;
use crate::observe::tasks::Subject;
use crate::script::ScriptError;
use crate::shard::{ShardError, ShardId, ShardReplica};
use crate::world::sync::Mutex;
use crate::world::{Env, lock};
use states::HeldStates;
use sums::Sums;
use trust::Checked;

pub use definition::{Definition, JAVASCRIPT, Sees, Signature, declared, declares, design_signature};
pub use expiry::{End, Ended, ExpiryIndex};
pub use groups::{GroupBy, GroupPage, GroupPart, count_of, counted_rows_of, groups_of};
pub use keys::{KeyBound, KeySpan, Places, partition_prefix};
pub use mapper::{Mapped, Mapper, ScriptMapper};
pub use read::{RowPage, rows_of};
pub use record::{Header, Row, RowRef};
pub use reduce::{Grouping, InvalidValue, Partial, Reduce, Reduction};
pub use selected::{SelectedPage, SelectorMapper};
pub use states::{Hold, StateOf};

/// Why an index could not be built or read.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexError {
    /// The view's built-in reduce function does not take a value.
    Refused(InvalidValue),
    /// A map function failed as a whole; what throws for one document only drops that document's rows.
    Script(ScriptError),
    /// The replica could not be read or written.
    Shard(ShardError),
    /// The fields of a document have other types than in an index before, or no names: it cannot be indexed.
    Misfit(String),
    /// The state that the pages of an answer are of is not held any more.
    StateGone,
    /// So many states are held for other answers that none can be held for this one.
    StatesFull,
    /// The build ended without saying how: the node stops.
    Stopped,
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Refused(error) => f.write_str(&error.reason),
            IndexError::Script(error) => error.fmt(f),
            IndexError::Shard(error) => error.fmt(f),
            IndexError::Misfit(reason) => f.write_str(reason),
            IndexError::StateGone => f.write_str("the state of the index that was read is not there any more"),
            IndexError::StatesFull => f.write_str("too many reductions are being read"),
            IndexError::Stopped => f.write_str("the build of an index was stopped"),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<ScriptError> for IndexError {
    fn from(error: ScriptError) -> Self {
        IndexError::Script(error)
    }
}

impl From<ShardError> for IndexError {
    fn from(error: ShardError) -> Self {
        IndexError::Shard(error)
    }
}

/// What all users of one index on this node share.
#[derive(Default)]
struct Slot {
    /// Held by the one that writes rows: one build or removal at a time.
    writer: AsyncMutex<()>,
    /// Held for a commit of rows; by a query that has to keep them from changing until it has read them.
    commits: RwLock<()>,
    /// Builds that run or wait.
    builders: AtomicUsize,
    // Blocking locks: never held across an await.
    known: Mutex<Known>,
    sums: Mutex<Sums>,
    checked: Mutex<Option<Checked>>,
    /// Documents of the next batch, as the rows of those before let expect; 0: there was none.
    batch_docs: AtomicUsize,
}

/// What is known of an index without reading it: all its writers are of this node and say so here.
#[derive(Clone, Copy, Default)]
struct Known {
    header: Option<Header>,
    /// The shard's sequence up to which it is known to be complete, purges included.
    complete_at: u64,
    /// Which design document's views are known not to fail, and up to which of the shard's sequences.
    trusted: Option<([u8; 32], u64)>,
    /// Counts removals: what was read before one does not count.
    removals: u64,
    /// Whether it is built by itself: a function failed when it was built beside others.
    alone: bool,
}

impl Slot {
    fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn sums<T>(&self, work: impl FnOnce(&mut Sums) -> T) -> T {
        work(&mut lock(&self.sums))
    }

    /// The index is being removed, or was.
    fn forget(&self) {
        self.sums(Sums::clear);
        let kept = |known: &Known| Known { removals: known.removals + 1, alone: known.alone, ..Known::default() };
        self.change(|known| *known = kept(known));
    }
}

type Slots = BTreeMap<(ShardId, Signature), Arc<Slot>>;

/// The indexes of a node. Cheap to clone.
#[derive(Clone)]
pub struct Indexes {
    env: Env,
    collator: Collator,
    // A blocking lock: held for map operations only, never across an await.
    slots: Arc<Mutex<Slots>>,
    /// Full-text indexes of which something is in memory.
    open: Arc<search::OpenIndexes>,
    states: Arc<HeldStates>,
}

impl fmt::Debug for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Indexes")
    }
}

impl Indexes {
    /// Without any index yet, of a node with as much memory as by default.
    pub fn new(env: &Env) -> Indexes {
        Indexes::with_memory(env, limits::MEMORY_MB)
    }

    /// Without any index yet, of a node with so many MB of memory.
    pub fn with_memory(env: &Env, memory_mb: u64) -> Indexes {
        Indexes {
            env: env.clone(),
            collator: Collator::new(),
            slots: Arc::default(),
            open: Arc::new(search::OpenIndexes::of(memory_mb)),
            states: Arc::new(HeldStates::new(env)),
        }
    }

    /// The disk is nearly full: gives up what is held for answers and keeps space from being used again.
    pub fn give_up_for_room(&self) {
        self.states.give_up_for_room();
    }

    /// Bytes of full-text indexes that are kept in memory.
    pub fn open_search_bytes(&self) -> u64 {
        self.open.memory() as u64
    }

    /// The collator of keys in an order.
    pub fn collator(&self, collation: Collation) -> Collator {
        self.collator.with(collation)
    }

    /// A view on a replica; `subject`: what its builds are in the list of tasks. Touches memory only.
    pub fn view(
        &self,
        replica: &ShardReplica,
        definition: &Arc<Definition>,
        mapper: &Arc<dyn Mapper>,
        subject: Subject,
    ) -> ViewIndex {
        ViewIndex {
            subject: Arc::new(subject),
            env: self.env.clone(),
            replica: replica.clone(),
            definition: Arc::clone(definition),
            mapper: Arc::clone(mapper),
            collator: self.collator(definition.collation),
            slot: self.slot(replica.id(), definition.signature),
            states: Arc::clone(&self.states),
            others: Arc::default(),
        }
    }

    fn slot(&self, shard: ShardId, signature: Signature) -> Arc<Slot> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = slots.get(&(shard, signature)) {
            return Arc::clone(slot);
        }
        if slots.len() >= limits::INDEXES_REMEMBERED {
            slots.retain(|_, slot| Arc::strong_count(slot) > 1);
        }
        let slot = Arc::new(Slot::default());
        slots.insert((shard, signature), Arc::clone(&slot));
        slot
    }
}

/// One view on one replica. Cheap to clone.
#[derive(Clone)]
pub struct ViewIndex {
    env: Env,
    replica: ShardReplica,
    definition: Arc<Definition>,
    mapper: Arc<dyn Mapper>,
    collator: Collator,
    slot: Arc<Slot>,
    states: Arc<HeldStates>,
    /// What its builds are in the list of tasks.
    subject: Arc<Subject>,
    /// Those that its builds fill along with it, where they can.
    others: Arc<[ViewIndex]>,
}

impl fmt::Debug for ViewIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ViewIndex({:?}, {:?})", self.replica, self.definition.signature)
    }
}

impl ViewIndex {
    /// The same with other views of the same replica and design document, which its builds fill along with it where
    /// they stand at the same position. A failure of theirs is none of its own.
    pub fn beside(self, others: Vec<ViewIndex>) -> ViewIndex {
        ViewIndex { others: others.into(), ..self }
    }

    /// Whether it is known to cover all that is committed.
    pub fn is_current(&self) -> bool {
        self.slot.known().complete_at >= self.committed()
    }

    /// Whether it is being built.
    pub fn is_building(&self) -> bool {
        self.slot.builders.load(Ordering::Relaxed) > 0
    }
}

#[cfg(test)]
mod fuzz_tests;
#[cfg(test)]
mod tests;
