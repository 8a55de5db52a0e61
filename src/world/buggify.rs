//! Hooks of the simulator in the node's code: rare branches taken on purpose, points that runs must reach, planted
//! bugs.
//!
//! Without the feature `sim` every question is answered `false` and costs nothing. With it the answers belong to the
//! thread: a simulated world runs on one thread, [`enter`] opens it and [`leave`] tells which points were met. Outside
//! of a simulated world every answer is `false`.

use std::time::Duration;

/// A known bug in the node's code, for the simulator to find (those of the storage: `storage::planted`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Rows of a document that was deleted stay in its views.
    ViewRowStays,
    /// An index's position is committed before the rows that it stands for.
    IndexPositionFirst,
    /// A deleted document stays in full-text indexes.
    SearchHitStays,
    /// A full-text index's position is committed before the segment that it stands for.
    SearchPositionFirst,
    /// The stored sum of a block of rows stays when one of them changes.
    StoredSumStays,
    /// A reduction takes what is kept of its rows whatever changed since it began, and goes on where it was.
    ReductionOfTwoMoments,
    /// The pages of a reduction behind the first one are of what there is when they are read.
    HeldStatePassedOver,
    /// An index takes no notice of purges.
    PurgeNotIndexed,
    /// A feed leaves out the second range.
    FeedSkipsRange,
    /// A feed that ends at its limit gives the sequence of its round's end.
    FeedSeqAhead,
    /// A waiting feed is not told of changes.
    FeedMissesNews,
    /// What is noted as the position before a time is the position behind the first change of it.
    TimeNotedLate,
    /// A feed reads the documents of its rows from the replica that lags behind the rows the furthest.
    FeedJoinsLaggingReplica,
    /// A security object that was replaced stays in force until the next start.
    StaleSecurity,
    /// Validation functions are read once.
    StaleValidators,
    /// An edit of a revision that is no leaf makes a branch.
    ForkOnConflict,
    /// Results of a bulk request stand in another order.
    BulkOutOfOrder,
    /// Compaction drops the bodies of leaves, too.
    CompactLeaves,
    /// Compaction keeps the bodies that it is there to remove.
    CompactNothing,
    /// The replicator copies one missing revision of each document.
    ReplicateOneLeaf,
    /// The replicator records a position before the target has what lies before it.
    CheckpointEarly,
    /// The target of a replication lacks nothing of a document that it knows.
    DiffByDocument,
    /// A cookie's signature is not looked at.
    CookieUnsigned,
    /// A node does not take settings of a database from other nodes.
    SettingsNotAdopted,
    /// A session by cookie has no end.
    CookieNeverEnds,
    /// The end of a token is not looked at.
    TokenNeverEnds,
    /// The begin of a token is not looked at.
    TokenTooEarly,
    /// A read takes no notice of the token of a write.
    WriteTokenIgnored,
    /// A replication goes on after its document was deleted.
    JobOutlivesDocument,
    /// Every node of a cluster takes every replication for its own.
    OwnerTwice,
    /// A replication by a selector copies everything.
    SelectorForgotten,
    /// A feed that is resumed begins anew in its last range.
    FeedRewinds,
    /// The index of a declared selector is taken for complete though it is behind.
    SelectorIndexTrusted,
    /// The rows of several ranges are not merged by their order.
    RowsUnsorted,
    /// A bookmark leaves out what has the same key as the row before it.
    BookmarkSkips,
    /// A database that was deleted is there again after the next start.
    DeletionForgotten,
    /// A node goes on in its epoch at every start, whatever its disk lost.
    EpochIgnored,
    /// The same, and a replica that others have seen more of than it has gives the same positions out again.
    PositionReused,
    /// A reader of a replica that is gone begins anew on another one.
    NodeLossRewinds,
    /// A replica does not ask another one for its purges.
    PurgeNotSpread,
    /// A replica that applies another one leaves out deletions.
    TombstoneForgotten,
    /// A replica that looks for differences passes over the first part of what it compares.
    DigestSkipsLeaf,
    /// A write is answered when one replica fewer than asked for holds it.
    AckEarly,
    /// A replica that applies another one applies one leaf of each document.
    RepairDropsSibling,
    /// A conflict is told although the primary before may have stored the edit.
    LatePrimary,
    /// Replicas do not hear which ancestors went with a purged leaf.
    PurgedParentStays,
    /// An edit is stored though its revision was purged and nobody waits for it any more.
    LateEditStored,
    /// The documents of a database that lost its name are dropped.
    InstanceLosesSide,
    /// Calls by an older map are taken.
    StaleMapAccepted,
    /// A replica that moves leaves its place, and nobody takes it.
    MoveLosesCopy,
    /// A replica whose place was taken by another one goes on taking writes.
    OldOwnerWrites,
    /// A node of the version after this one takes no call without the field that it adds.
    AddedFieldRequired,
    /// Two nodes agree on the higher one of their versions.
    HigherVersionAgreed,
    /// A node that sees other members names the next voters without a majority of the present voters.
    SeatByMinority,
    /// A replica whose store file is damaged is never rebuilt.
    DamageStays,
    /// A setting that a request changed is what it was after the next start.
    SettingNotKept,
    /// A database that is deleted leaves no mark that it was.
    MarkForgotten,
    /// A revision that was made elsewhere is not shown to validation functions.
    MergeUnvalidated,
    /// Tombstones are forgotten where not all replicas could be asked.
    ForgetEarly,
    /// Documents expire by the clock of one node.
    ExpiryByOwnClock,
    /// A feed that is read backwards leaves out the last change of each range.
    DescendingLeavesOut,
    /// What adds data is taken though the disk has no room.
    RoomIgnored,
    /// What a process before this one wrote last into the journal is taken for durable.
    KilledTailTrusted,
    /// A store file that is older than the journal says is taken for the newest one.
    OlderFileTrusted,
    /// A sync of a directory that failed counts as done.
    FailedDirSyncTrusted,
    /// A store file that cannot be opened for want of descriptors counts as one that is not there.
    UnopenedFileAbsent,
    /// A flush that lacks descriptors ends the writes of the node.
    NoFilesEndsWrites,
    /// Writes go on while memory is full of what waits for its store file.
    FullMemoryIgnored,
    /// A node that took no part counts what it compared before.
    AbsenceForgotten,
    /// Memory within a budget is taken though none is left.
    MemoryIgnored,
    /// A share of a budget of memory that went with bytes is not given back.
    MemoryLeaks,
    /// A document that is larger than the node takes is taken.
    CapIgnored,
    /// Nodes that are to speak TLS with each other do not.
    PlainBetweenNodes,
    /// A merge of segments of a full-text index forgets which of their documents count no more.
    MergeForgetsDeletions,
}

/// Places where the node may take a rare turn that is always allowed: a batch of one, a wait, a cache passed over.
pub const SITES: &[&str] = &[
    "catalogue: idle handles closed early",
    "changes: a page of one row",
    "changes: a range read row by row",
    "commit: a group of one job",
    "commit: a pause before a group",
    "compare: replicas cut in two",
    "compare: databases one by one",
    "compare: documents told one by one",
    "design: validators read anew",
    "expiry: one document at a time",
    "find: a page of one row",
    "flush: a pause between freeze and flush",
    "forget: one tombstone at a time",
    "index: a batch of one document",
    "index: a reduction in many steps",
    "index: one purge at a time",
    "list: a range read row by row",
    "memtable: a part of one write is large",
    "pour: one document at a time",
    "pull: one document at a time",
    "pull: one purge at a time",
    "pull: room for one byte",
    "read: room for one byte",
    "remote: a message for each edit",
    "replicate: one revision at a time",
    "serve: an answer of one document",
    "shrink: a small file, too",
    "split: a page of one document",
    "view: a page of one row",
    "write: one edit in a step",
];

/// Caps that a run may draw small, the same for the whole of it: see [`capped`].
pub const CAPS: &[&str] = &[
    "cluster: bytes of a budget",
    "cluster: bytes of a message",
    "index: rows of a step of a reduction",
    "index: states that a node holds",
    "view: groups of a range read at once",
    "view: rows of a range read at once",
];

/// Rare things that some run must have met.
pub const POINTS: &[&str] = &[
    "changes: a feed read the index of its selector",
    "changes: a feed waited",
    "changes: a feed went on in the halves of a range",
    "cluster: a call of the version before was taken",
    "cluster: a call was answered a second time",
    "cluster: a call was sent again",
    "cluster: a slow node was passed over",
    "cluster: a replica arrived at its new place",
    "cluster: a restored replica discarded what the others had collected",
    "cluster: a replica began a new epoch for others had seen more of it",
    "cluster: a damaged replica was rebuilt",
    "cluster: replicas differed and were narrowed down",
    "cluster: tombstones were forgotten",
    "cluster: tombstones were not old enough on another replica",
    "cluster: nodes of two versions greeted each other",
    "changes: rows went back to their range",
    "expiry: documents were deleted",
    "index: a build found that another was faster",
    "index: a build goes on with what changed since it began",
    "index: a reduction began anew because rows changed",
    "index: a state was held for the pages of an answer",
    "index: rows made anew because the purge log was cut",
    "index: rows of a purged document removed",
    "memtable: rows moved while a part was taken in",
    "replicate: a checkpoint was in conflict",
    "replicate: a session went on from a checkpoint",
    "search: pieces that a crash left were removed",
    "search: segments were merged",
    "shrink: a file was made smaller",
    "tls: a client's side shook hands",
    "tls: a server's side shook hands",
    "token: a range was read elsewhere because its replica here lacked a write",
    "token: a read waited for a replica that holds a write",
    "write: an edit came after the purge of its revision",
    "write: an edit whose revision was purged came after its caller had given it up",
    "write: sent anew because the range was split or moved",
    "write: validated again because the document changed",
];

#[cfg(feature = "sim")]
mod on {
    use std::cell::RefCell;
    use std::collections::{BTreeMap, BTreeSet};

    use super::Mutation;

    /// What a world met.
    #[derive(Clone, Debug, Default)]
    pub struct Met {
        /// How often each site was passed and turned.
        pub sites: BTreeMap<&'static str, (u64, u64)>,
        /// How often each point was reached.
        pub points: BTreeMap<&'static str, u64>,
        /// How many hundredths of what it may hold each thing held at most.
        pub held: BTreeMap<&'static str, u64>,
        /// The first thing that held more than it may.
        pub over: Option<String>,
        /// What is taken of each budget of memory on all nodes, in units of its own.
        pub taken: BTreeMap<&'static str, i64>,
    }

    struct State {
        seed: u64,
        draws: u64,
        turns: bool,
        mutation: Option<Mutation>,
        /// Names of the nodes that run the version after this one.
        later: BTreeSet<String>,
        /// Caps that are others than usual.
        caps: BTreeMap<&'static str, usize>,
        met: Met,
    }

    thread_local! {
        static STATE: RefCell<Option<State>> = const { RefCell::new(None) };
    }

    /// One site in four is active in a run, and turns one time in four.
    const ODDS: u64 = 4;

    fn mixed(mut z: u64) -> u64 {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn hash(seed: u64, text: &str) -> u64 {
        text.bytes().fold(mixed(seed), |hash, byte| mixed(hash ^ u64::from(byte)))
    }

    /// Opens this thread's world; `turns` lets sites turn.
    pub fn enter(seed: u64, turns: bool, mutation: Option<Mutation>) {
        let (later, caps, met) = (BTreeSet::new(), BTreeMap::new(), Met::default());
        let state = State { seed, draws: 0, turns, mutation, later, caps, met };
        STATE.with(|s| *s.borrow_mut() = Some(state));
    }

    /// Closes it.
    pub fn leave() -> Met {
        STATE.with(|s| s.borrow_mut().take()).map(|state| state.met).unwrap_or_default()
    }

    /// From now on this thread's sites turn at other times.
    pub fn reseed(salt: u64) {
        STATE.with(|s| {
            if let Some(state) = &mut *s.borrow_mut() {
                state.draws = state.draws.wrapping_add(salt << 32);
            }
        });
    }

    /// From its next start on the node of that name runs the version after this one, or this one again.
    pub fn upgrade(node: &str, later: bool) {
        STATE.with(|s| match &mut *s.borrow_mut() {
            Some(state) if later => drop(state.later.insert(node.to_owned())),
            Some(state) => drop(state.later.remove(node)),
            None => {}
        });
    }

    /// From now on a cap of [`super::CAPS`] is another one than usual.
    pub fn cap(name: &'static str, most: usize) {
        debug_assert!(super::CAPS.contains(&name), "{name} is on the list");
        STATE.with(|s| {
            if let Some(state) = &mut *s.borrow_mut() {
                state.caps.insert(name, most);
            }
        });
    }

    pub(super) fn capped(name: &'static str, usual: usize) -> usize {
        debug_assert!(super::CAPS.contains(&name), "{name} is on the list");
        STATE.with(|s| s.borrow().as_ref().and_then(|state| state.caps.get(name).copied()).unwrap_or(usual))
    }

    pub(super) fn is_later(node: &str) -> bool {
        STATE.with(|s| s.borrow().as_ref().is_some_and(|state| state.later.contains(node)))
    }

    pub(super) fn turn(site: &'static str) -> bool {
        debug_assert!(super::SITES.contains(&site), "{site} is on the list");
        STATE.with(|s| {
            let mut state = s.borrow_mut();
            let Some(state) = &mut *state else { return false };
            let active = state.turns && hash(state.seed, site).is_multiple_of(ODDS);
            state.draws += u64::from(active);
            let turned = active && mixed(state.seed ^ state.draws.rotate_left(32)).is_multiple_of(ODDS);
            let (passed, turns) = state.met.sites.entry(site).or_default();
            *passed += 1;
            *turns += u64::from(turned);
            turned
        })
    }

    pub(super) fn reach(point: &'static str) {
        debug_assert!(super::POINTS.contains(&point), "{point} is on the list");
        STATE.with(|s| {
            if let Some(state) = &mut *s.borrow_mut() {
                *state.met.points.entry(point).or_default() += 1;
            }
        });
    }

    pub(super) fn weigh(what: &'static str, bytes: usize, most: usize) {
        STATE.with(|s| {
            let mut state = s.borrow_mut();
            let Some(state) = &mut *state else { return };
            let share = (bytes as u64).saturating_mul(100) / (most as u64).max(1);
            let held = state.met.held.entry(what).or_default();
            *held = share.max(*held);
            if bytes > most {
                state.met.over.get_or_insert_with(|| format!("{what}: {bytes} bytes are held, {most} are the most"));
            }
        });
    }

    pub(super) fn takes(what: &'static str, units: i64) {
        STATE.with(|s| {
            if let Ok(mut state) = s.try_borrow_mut()
                && let Some(state) = &mut *state
            {
                *state.met.taken.entry(what).or_default() += units;
            }
        });
    }

    /// What is taken of each budget of memory on all nodes together, in units of its own.
    pub fn taken() -> BTreeMap<&'static str, i64> {
        STATE.with(|s| s.borrow().as_ref().map(|state| state.met.taken.clone()).unwrap_or_default())
    }

    pub(super) fn mutated(mutation: Mutation) -> bool {
        STATE.with(|s| s.borrow().as_ref().is_some_and(|state| state.mutation == Some(mutation)))
    }
}

#[cfg(feature = "sim")]
pub use on::{Met, cap, enter, leave, reseed, taken, upgrade};

/// Whether to take the rare turn at one of [`SITES`].
#[cfg(feature = "sim")]
pub fn buggify(site: &'static str) -> bool {
    on::turn(site)
}

/// Whether to take the rare turn at one of [`SITES`]: never.
#[cfg(not(feature = "sim"))]
pub fn buggify(_site: &'static str) -> bool {
    false
}

/// Counts that one of [`POINTS`] was reached.
#[cfg(feature = "sim")]
pub fn sometimes(point: &'static str) {
    on::reach(point);
}

/// Counts that one of [`POINTS`] was reached: nowhere.
#[cfg(not(feature = "sim"))]
pub fn sometimes(_point: &'static str) {}

/// Notes how many bytes something holds: more than `most` make a simulated run a failed one.
#[cfg(feature = "sim")]
pub fn weigh(what: &'static str, bytes: usize, most: usize) {
    on::weigh(what, bytes, most);
}

/// Notes how many bytes something holds: nowhere.
#[cfg(not(feature = "sim"))]
pub fn weigh(_what: &'static str, _bytes: usize, _most: usize) {}

/// Notes that so many units of a budget of memory are taken, or given back.
#[cfg(feature = "sim")]
pub fn takes(what: &'static str, units: i64) {
    on::takes(what, units);
}

/// Notes that so many units of a budget of memory are taken, or given back: nowhere.
#[cfg(not(feature = "sim"))]
pub fn takes(_what: &'static str, _units: i64) {}

/// Whether a known bug is planted.
#[cfg(feature = "sim")]
pub fn mutated(mutation: Mutation) -> bool {
    on::mutated(mutation)
}

/// Whether a known bug is planted: never.
#[cfg(not(feature = "sim"))]
pub fn mutated(_mutation: Mutation) -> bool {
    false
}

/// Whether the node of that name runs the version after this one, whose messages have one more field.
#[cfg(feature = "sim")]
pub fn is_later(node: &str) -> bool {
    on::is_later(node)
}

/// Whether the node of that name runs the version after this one: never.
#[cfg(not(feature = "sim"))]
pub fn is_later(_node: &str) -> bool {
    false
}

/// The cap of that name of [`CAPS`] in this run, `usual` where it is not drawn.
#[cfg(feature = "sim")]
pub fn capped(name: &'static str, usual: usize) -> usize {
    on::capped(name, usual)
}

/// The cap of that name of [`CAPS`]: `usual`.
#[cfg(not(feature = "sim"))]
pub fn capped(_name: &'static str, usual: usize) -> usize {
    usual
}

/// A wait that a site may take.
pub const PAUSE: Duration = Duration::from_millis(20);

/// `usual`, or 1 at a site that turns.
pub fn fewer(site: &'static str, usual: usize) -> usize {
    if buggify(site) { 1 } else { usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_turns_outside_of_a_simulated_world() {
        assert!((0..100).all(|_| !buggify(SITES[0])) && !mutated(Mutation::ViewRowStays));
        assert_eq!(fewer(SITES[0], 7), 7);
    }

    #[cfg(feature = "sim")]
    #[test]
    fn a_world_turns_some_sites_sometimes_and_tells() {
        let mut active = 0;
        for seed in 0..200 {
            enter(seed, true, Some(Mutation::FeedSeqAhead));
            let turned = (0..100).filter(|_| buggify(SITES[0])).count();
            assert!(turned == 0 || (5..60).contains(&turned), "{turned}");
            assert!(mutated(Mutation::FeedSeqAhead) && !mutated(Mutation::ViewRowStays));
            active += usize::from(turned > 0);
            assert_eq!(leave().sites[SITES[0]], (100, turned as u64));
        }
        assert!((20..80).contains(&active), "{active}");
    }
}
