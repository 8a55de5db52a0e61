//! Locks of code that blocks: those of `std`. Under unit tests they are ones that a model checker schedules, too.
//!
//! The simulator runs one thread, so it never interleaves what two threads do to one table. A model (`model.rs`) runs
//! the production type in many such interleavings, which these locks make possible.

#[cfg(not(test))]
pub use std::sync::{Mutex, MutexGuard};

#[cfg(test)]
pub use super::model::{Mutex, MutexGuard};

/// A mistake that a model plants in the code that it checks, to show that it would find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// A handle on what was committed before a write is kept behind the end of that write.
    HandleOutlivesWrite,
    /// The idle files are closed without a look at who uses them.
    UsedFileClosed,
    /// A file's lock is let go before the file is closed.
    LockEndsBeforeClose,
    /// An upload is counted under one lock and pinned under the next.
    UploadCountedThenPinned,
    /// A blob's leases are looked at before its references, without their lock in between.
    LeasesNotLocked,
    /// A picture of memtables is taken for that of its file, whatever was flushed meanwhile.
    FileAheadOfMemtables,
    /// A memtable is restored from a backup whatever was moved out of it meanwhile.
    MovesNotSeen,
    /// Sums of blocks that were read from a store file are kept, though the file has newer ones since.
    SumsReadBeforeWrite,
    /// A reduction goes on whatever state of the rows its next step shows.
    StateNotSeen,
    /// A reduction notes the moment of a view after it was opened.
    MomentNotedLate,
}

/// Whether a model has planted that mistake: never outside of unit tests.
#[cfg(not(test))]
pub const fn mistaken(_mistake: Mistake) -> bool {
    false
}

#[cfg(test)]
pub use super::model::mistaken;
