//! Bugs that the simulator plants to show that its checks can fail. Only the feature `sim` makes them possible.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// The store's sync does nothing: acknowledged writes may be lost by a power failure.
    SkipFsync,
    /// A merge into a document with conflicts drops its worst leaf.
    LoseSibling,
    /// A flush makes its position durable before its rows: a power failure between the two loses them.
    CheckpointFirst,
    /// A journal segment goes when its writes are handed to a flush, not when the flush is durable.
    DropSegmentEarly,
    /// Recovery takes what it can read of a torn last group for a group.
    AcceptTornTail,
    /// Every eighth snapshot of a reader shows half of the last group.
    HalfBatch,
    /// A document that is deleted is not taken out of counts and digests.
    SummaryNotUpdated,
    /// A block of a store is not held against its checksum: what the disk kept of an older one is served.
    TrustStaleBlock,
    /// `$ne` narrows the range of an index, as if it were `$lt`: queries miss documents.
    RangeNarrowedOnNe,
    /// An index keeps the rows of the revision before: a query finds documents by what they were.
    StaleIndexRow,
}

/// The set of planted bugs; empty in every build for users.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted(#[cfg(feature = "sim")] u32);

impl Planted {
    /// No bug.
    pub fn none() -> Self {
        Planted::default()
    }

    /// This set and `bug`.
    #[cfg(feature = "sim")]
    #[must_use]
    pub fn with(self, bug: Bug) -> Self {
        Planted(self.0 | 1 << bug as u8)
    }

    /// Whether `bug` is planted.
    #[cfg(feature = "sim")]
    pub fn has(self, bug: Bug) -> bool {
        self.0 & (1 << bug as u8) != 0
    }

    /// Whether `bug` is planted: never.
    #[cfg(not(feature = "sim"))]
    pub fn has(self, _bug: Bug) -> bool {
        false
    }
}
