//! A run as data: a seed expands to the node's options, timed client operations and timed faults before anything runs.
//!
//! A plan is saved as readable JSON, replayed to the same trace, and shrunk by leaving parts out. Operations name
//! documents and values only; which revision they build on is decided when they run, from what the client has seen, so
//! that a shorter plan still makes sense.

use serde::{Deserialize, Serialize};

mod draw;

/// How long clients work, in simulated milliseconds; faults end with it.
pub const WORK_MS: u64 = 20_000;

/// What the seed decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Seeds the scheduler, the network's and the disk's draws, the node's randomness.
    pub seed: u64,
    /// The node and the world around it.
    pub world: WorldPlan,
    /// What each client does, in order.
    pub clients: Vec<Vec<TimedOp>>,
    /// What goes wrong, in order of time.
    pub faults: Vec<TimedFault>,
}

/// Options of the node and of the world, drawn once per run (swarm).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorldPlan {
    /// Ranges of the database.
    pub q: u32,
    /// Distinct document ids that clients use: few make conflicts likely.
    pub documents: u32,
    /// Mean one-way network latency in microseconds.
    pub latency_us: u64,
    /// Segments lost and sent again, per 10,000.
    pub loss_per_10k: u32,
    /// Every disk operation takes this many times its usual time.
    pub disk_slow: u32,
    /// Bytes at which the node's memtable is flushed: small ones flush all the time.
    pub flush_at_bytes: usize,
    /// Bytes of the engine's page cache.
    #[serde(default = "usual_cache")]
    pub cache_bytes: usize,
    /// Documents that each client has for itself.
    #[serde(default = "few")]
    pub own_documents: u32,
    /// Whether sites in the node's code take rare turns.
    #[serde(default)]
    pub turns: bool,
    /// F10 while the data directory is being made: power fails at this disk operation of the first start.
    #[serde(default)]
    pub first_start_cut: Option<u64>,
    /// Nodes. Without a cluster the second of two is a server of its own to which the first is replicated.
    #[serde(default = "one")]
    pub nodes: u32,
    /// Copies of each range where the nodes are one cluster; 0: they are not.
    #[serde(default)]
    pub n: u32,
}

fn usual_cache() -> usize {
    1 << 20
}

fn few() -> u32 {
    4
}

fn one() -> u32 {
    1
}

/// How a feed is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FeedMode {
    /// One answer.
    Normal,
    /// One answer, later if there is nothing yet.
    Longpoll,
    /// A line for each change, for a while.
    Continuous,
    /// The same as events of the browser's kind.
    EventSource,
}

/// A client operation and how long the client waits before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedOp {
    /// Pause before the operation, in milliseconds.
    pub after_ms: u64,
    /// The operation.
    pub op: Op,
}

/// What a client may do. `doc` is an index below [`WorldPlan::documents`], `v` a value unique in the plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Op {
    /// `PUT` on the newest revision that this client has seen of the document (or none).
    Put {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `PUT` on the first revision that this client ever saw: mostly a conflict.
    PutStale {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `DELETE` of the newest revision seen.
    Delete {
        /// Document.
        doc: u32,
    },
    /// A replicated edit (`new_edits=false`) on the newest or first revision seen: makes siblings.
    Merge {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
        /// Build on the first revision seen and not on the newest one.
        fork: bool,
        /// Send it a second time at once (must change nothing).
        twice: bool,
    },
    /// `_bulk_docs` with one interactive edit per document.
    Bulk {
        /// Documents and values.
        edits: Vec<(u32, u64)>,
    },
    /// `PUT` of an attachment of `bytes` bytes derived from `v`.
    Attach {
        /// Document.
        doc: u32,
        /// Seeds the content.
        v: u64,
        /// Size in bytes.
        bytes: u32,
    },
    /// `GET` with `conflicts=true`.
    Read {
        /// Document.
        doc: u32,
    },
    /// `GET` with `open_revs=all&revs=true`: the whole tree.
    ReadTree {
        /// Document.
        doc: u32,
    },
    /// `GET _all_docs`.
    List,
    /// `GET _changes` since the last answer.
    Changes,
    /// `PUT` of the client's own local document.
    Local {
        /// Value of the body's `v`.
        v: u64,
    },
    /// `POST _compact`: must change no answer.
    Compact,
    /// Reads the feed on in some mode.
    Follow {
        /// How.
        mode: FeedMode,
        /// At most so many rows.
        limit: Option<u32>,
    },
    /// Waits at the end of the feed on a second connection while it writes: must be told.
    Tail {
        /// Document.
        doc: u32,
        /// Value of the body's `v`.
        v: u64,
    },
    /// `PUT` of a document that only this client writes.
    OwnPut {
        /// Document.
        doc: u32,
        /// From it follow all members.
        v: u64,
    },
    /// Its deletion.
    OwnDelete {
        /// Document.
        doc: u32,
    },
    /// `POST _purge` of its revision.
    OwnPurge {
        /// Document.
        doc: u32,
    },
    /// `_bulk_docs` over own documents.
    OwnBulk {
        /// Documents and values; value 0 deletes.
        edits: Vec<(u32, u64)>,
    },
    /// `GET`: must be what was written last.
    OwnRead {
        /// Document.
        doc: u32,
    },
    /// A view over own documents: must be the map of what was written last.
    OwnView {
        /// Which one.
        view: u32,
    },
    /// `_find` over own documents: must be the matching ones.
    OwnFind {
        /// Which selector.
        query: u32,
        /// A value in it.
        k: u64,
        /// Read in pages of two.
        paged: bool,
    },
    /// `_compact/{ddoc}` or `_view_cleanup`, and `_compact` of the database of own documents.
    OwnCompact {
        /// The views or the documents.
        views: bool,
    },
    /// Turns a validation function of this client's on or off.
    Strict {
        /// On.
        on: bool,
    },
    /// Writes what that function forbids.
    Marked {
        /// Makes the document's id.
        v: u64,
    },
    /// Makes a database of this client's own.
    DbCreate,
    /// Deletes it.
    DbDelete,
    /// Writes a document into it.
    DbWrite {
        /// Makes the document's id.
        v: u64,
    },
    /// Reads all of it.
    DbCheck,
    /// Opens or closes it for a user who is no administrator.
    Secure {
        /// Open to everybody.
        open: bool,
    },
    /// Reads it as that user.
    Enter,
    /// Opens a session by password.
    Login,
    /// Asks who one is, by the session's cookie or by a forged one.
    Whoami {
        /// Forged.
        forged: bool,
    },
    /// Copies the shared database to the second node, once.
    Replicate,
}

/// A fault and its time from the start of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimedFault {
    /// Simulated milliseconds from the start.
    pub at_ms: u64,
    /// The node that it happens to, counted from 0.
    #[serde(default)]
    pub node: u32,
    /// What happens.
    pub fault: Fault,
}

/// What can happen to a node (numbers as in docs/simulation.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// F9: the process dies and starts again `down_ms` later; what it wrote stays.
    Crash {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F10: power loss: unsynced sectors and directory entries are lost, kept or torn.
    PowerLoss {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F10 in the middle of a commit: power fails after `ops` more disk operations.
    Fuse {
        /// Disk operations until the cut.
        ops: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F5: the node and its clients do not hear each other.
    Partition {
        /// Duration.
        for_ms: u64,
        /// Only the answers are lost (F2).
        answers_only: bool,
    },
    /// F7: every open connection is reset.
    Reset,
    /// F5 between nodes: one group does not reach the others; clients reach all.
    Split {
        /// The group, one bit for each node.
        group: u32,
        /// The others still reach the group.
        one_way: bool,
        /// Duration.
        for_ms: u64,
    },
    /// F14: the disk is slow by a factor.
    SlowDisk {
        /// Factor.
        factor: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F11, F13: syncs and writes fail now and then; what a failed sync should have written is lost.
    DiskErrors {
        /// Failures per 1,000 operations.
        per_1000: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F18: the node's wall clock jumps.
    ClockJump {
        /// Milliseconds, either way.
        by_ms: i64,
    },
    /// F6: the ways between the node and its clients stop one by one and go on in another order; nothing is lost.
    Swizzle {
        /// Until the last one goes on.
        for_ms: u64,
    },
    /// F12: a bit of a file flips.
    BitRot {
        /// Chooses the file.
        file: u32,
    },
    /// F12: some writes of a while reach the disk at another place, or nowhere; their syncs succeed.
    LostWrites {
        /// Per 1,000 writes.
        per_1000: u32,
        /// They are written elsewhere in the file.
        misdirected: bool,
        /// Duration.
        for_ms: u64,
    },
    /// F13: the disk is full.
    DiskFull {
        /// Bytes that still fit.
        spare: u64,
        /// Duration.
        for_ms: u64,
    },
    /// F13: files cannot be opened, as when the process has too many.
    NoFiles {
        /// Per 1,000 operations on names.
        per_1000: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F14: one directory stands still, the others do not.
    Limping {
        /// The engine's files, else the journal's.
        store: bool,
        /// Duration.
        for_ms: u64,
    },
    /// F17: the process stands still and goes on with what it believed.
    Pause {
        /// Duration.
        for_ms: u64,
    },
    /// F23: a compaction begins, and power fails within it.
    CutCompaction {
        /// Disk operations until the cut.
        ops: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F10: power fails within a sync of the journal: its last frame is half written.
    TornJournal {
        /// Syncs of the journal until the cut.
        syncs: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F9: a replication begins, and the node loses power within it.
    CutReplication {
        /// Milliseconds from its begin.
        after_ms: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F15: the disk is lost, the node comes back empty.
    DiskLost {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F16: the node comes back with the disk that it had so long before.
    BackInTime {
        /// Milliseconds between the copy and its return.
        back_ms: u64,
    },
}

impl Fault {
    /// Its name in reports: its number and kind.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "F9 crash",
            Fault::PowerLoss { .. } => "F10 power loss",
            Fault::Fuse { .. } => "F10 cut in a commit",
            Fault::Partition { answers_only: true, .. } => "F2 answers lost",
            Fault::Partition { .. } => "F5 partition",
            Fault::Split { one_way: true, .. } => "F5 one-way split",
            Fault::Split { .. } => "F5 split",
            Fault::Reset => "F7 reset",
            Fault::SlowDisk { .. } => "F14 slow disk",
            Fault::DiskErrors { .. } => "F11 disk errors",
            Fault::ClockJump { .. } => "F18 clock jump",
            Fault::Swizzle { .. } => "F6 swizzled clog",
            Fault::BitRot { .. } => "F12 bit rot",
            Fault::LostWrites { misdirected: false, .. } => "F12 lost writes",
            Fault::LostWrites { .. } => "F12 misdirected writes",
            Fault::DiskFull { .. } => "F13 disk full",
            Fault::NoFiles { .. } => "F13 no files",
            Fault::Limping { .. } => "F14 limping disk",
            Fault::Pause { .. } => "F17 pause",
            Fault::CutCompaction { .. } => "F23 cut in a compaction",
            Fault::TornJournal { .. } => "F10 torn journal",
            Fault::CutReplication { .. } => "F9 cut in a replication",
            Fault::DiskLost { .. } => "F15 disk lost",
            Fault::BackInTime { .. } => "F16 back in time",
        }
    }

    /// How long it is felt, in milliseconds.
    pub fn lasts_ms(&self) -> u64 {
        match self {
            Fault::Crash { down_ms }
            | Fault::PowerLoss { down_ms }
            | Fault::Fuse { down_ms, .. }
            | Fault::CutCompaction { down_ms, .. }
            | Fault::TornJournal { down_ms, .. }
            | Fault::CutReplication { down_ms, .. }
            | Fault::DiskLost { down_ms } => *down_ms,
            Fault::Partition { for_ms, .. }
            | Fault::SlowDisk { for_ms, .. }
            | Fault::DiskErrors { for_ms, .. }
            | Fault::Swizzle { for_ms }
            | Fault::Split { for_ms, .. }
            | Fault::LostWrites { for_ms, .. }
            | Fault::DiskFull { for_ms, .. }
            | Fault::NoFiles { for_ms, .. }
            | Fault::Limping { for_ms, .. }
            | Fault::Pause { for_ms } => *for_ms,
            Fault::Reset | Fault::ClockJump { .. } | Fault::BitRot { .. } => 1,
            Fault::BackInTime { back_ms } => *back_ms,
        }
    }

    /// Whether stored bytes are wrong from then on: an error is a right answer, wrong data is not.
    pub fn damages(&self) -> bool {
        matches!(self, Fault::BitRot { .. } | Fault::LostWrites { .. })
    }
}

impl Op {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Put { .. } => "put",
            Op::PutStale { .. } => "put stale",
            Op::Delete { .. } => "delete",
            Op::Merge { .. } => "merge",
            Op::Bulk { .. } => "bulk",
            Op::Attach { .. } => "attach",
            Op::Read { .. } => "read",
            Op::ReadTree { .. } => "read tree",
            Op::List => "list",
            Op::Changes => "changes",
            Op::Local { .. } => "local",
            Op::Compact => "compact",
            Op::Follow { mode: FeedMode::Normal, .. } => "feed",
            Op::Follow { mode: FeedMode::Longpoll, .. } => "feed longpoll",
            Op::Follow { mode: FeedMode::Continuous, .. } => "feed continuous",
            Op::Follow { mode: FeedMode::EventSource, .. } => "feed eventsource",
            Op::Tail { .. } => "tail",
            Op::OwnPut { .. } => "own put",
            Op::OwnDelete { .. } => "own delete",
            Op::OwnPurge { .. } => "own purge",
            Op::OwnBulk { .. } => "own bulk",
            Op::OwnRead { .. } => "own read",
            Op::OwnView { .. } => "own view",
            Op::OwnFind { .. } => "own find",
            Op::OwnCompact { .. } => "own compact",
            Op::Strict { .. } => "strict",
            Op::Marked { .. } => "marked",
            Op::DbCreate => "db create",
            Op::DbDelete => "db delete",
            Op::DbWrite { .. } => "db write",
            Op::DbCheck => "db check",
            Op::Secure { .. } => "secure",
            Op::Enter => "enter",
            Op::Login => "login",
            Op::Whoami { .. } => "whoami",
            Op::Replicate => "replicate",
        }
    }
}

/// Names of all operations and of all faults, for reports on what was never met.
pub const OPS: [&str; 36] = [
    "put",
    "put stale",
    "delete",
    "merge",
    "bulk",
    "attach",
    "read",
    "read tree",
    "list",
    "changes",
    "local",
    "compact",
    "feed",
    "feed longpoll",
    "feed continuous",
    "feed eventsource",
    "tail",
    "own put",
    "own delete",
    "own purge",
    "own bulk",
    "own read",
    "own view",
    "own find",
    "own compact",
    "strict",
    "marked",
    "db create",
    "db delete",
    "db write",
    "db check",
    "secure",
    "enter",
    "login",
    "whoami",
    "replicate",
];
/// See [`OPS`].
pub const FAULTS: [&str; 24] = [
    "F2 answers lost",
    "F5 partition",
    "F5 split",
    "F5 one-way split",
    "F6 swizzled clog",
    "F7 reset",
    "F9 crash",
    "F9 cut in a replication",
    "F10 torn journal",
    "F10 power loss",
    "F10 cut in a commit",
    "F11 disk errors",
    "F12 bit rot",
    "F12 lost writes",
    "F12 misdirected writes",
    "F13 disk full",
    "F13 no files",
    "F14 slow disk",
    "F14 limping disk",
    "F15 disk lost",
    "F16 back in time",
    "F17 pause",
    "F18 clock jump",
    "F23 cut in a compaction",
];

impl Plan {
    /// How many operations and faults the plan has: the measure that shrinking makes smaller.
    pub fn size(&self) -> usize {
        self.clients.iter().map(Vec::len).sum::<usize>() + self.faults.len()
    }

    /// Brings the documents that operations name below the plan's number of documents.
    pub fn fold_documents(&mut self) {
        let documents = self.world.documents.max(1);
        for timed in self.clients.iter_mut().flatten() {
            match &mut timed.op {
                Op::Put { doc, .. }
                | Op::PutStale { doc, .. }
                | Op::Delete { doc }
                | Op::Merge { doc, .. }
                | Op::Attach { doc, .. }
                | Op::Read { doc }
                | Op::ReadTree { doc }
                | Op::Tail { doc, .. } => *doc %= documents,
                Op::Bulk { edits } => edits.iter_mut().for_each(|(doc, _)| *doc %= documents),
                _ => {}
            }
        }
    }

    /// The seed's name: its number, behind a `c` for a plan of one cluster.
    pub fn name(&self) -> String {
        format!("{}{}", if self.world.n > 0 { "c" } else { "" }, self.seed)
    }

    /// The plan of a seed's name.
    pub fn named(name: &str) -> Option<Plan> {
        match name.strip_prefix('c') {
            Some(seed) => seed.parse().ok().map(Plan::cluster_from_seed),
            None => name.parse().ok().map(Plan::from_seed),
        }
    }

    /// Whether stored bytes become wrong.
    pub fn damages(&self) -> bool {
        self.faults.iter().any(|f| f.fault.damages())
    }

    /// The plan as a readable file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan is plain data")
    }
}
