//! What may go wrong in a run: faults with their numbers, times and strengths.

use serde::{Deserialize, Serialize};

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
    /// It waits for an operation then; one that never comes leaves it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aim: Option<Aim>,
}

/// The operation that a fault strikes while it is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aim {
    /// The first one of this name that any client begins from the fault's time on.
    pub op: String,
    /// Simulated microseconds from that begin to the fault.
    pub after_us: u64,
}

/// What can happen to a node (numbers as in docs/simulation-faults.md).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Fault {
    /// F9: the process dies and starts again `down_ms` later; what it wrote stays.
    Crash {
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F9: the process is told to stop, ends in order and starts again `down_ms` later.
    Restart {
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
    /// F18: the node's wall clock runs wrong for a while and keeps what it gained.
    ClockDrift {
        /// Parts per million, either way.
        ppm: i64,
        /// Duration.
        for_ms: u64,
    },
    /// F18: the node's wall clock stands still.
    ClockStands {
        /// Duration.
        for_ms: u64,
    },
    /// F6: the ways between the node and its clients stop one by one and go on in another order; nothing is lost.
    Swizzle {
        /// Until the last one goes on.
        for_ms: u64,
    },
    /// F6: the ways between the node and some others stand still; nothing is lost.
    Clog {
        /// Those others, one bit for each node.
        group: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F12: a bit of a file flips.
    BitRot {
        /// Chooses the file.
        file: u32,
    },
    /// F12: many bits of a store file flip that holds a single shard.
    BitRotOwn {
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
    /// F11: syncs of directories fail now and then: names are no more durable than before.
    DirSyncErrors {
        /// Failures per 1,000.
        per_1000: u32,
        /// Duration.
        for_ms: u64,
    },
    /// F9: the process dies within a blocking job, between two of its disk operations; what it wrote stays.
    KilledInJob {
        /// Disk operations until then.
        ops: u64,
        /// Time until it starts again.
        down_ms: u64,
        /// Syncs of the journal are counted, instead of all operations: what was written last is not synced.
        #[serde(default)]
        journal: bool,
        /// Power fails so many milliseconds after that start; 0: it does not.
        #[serde(default)]
        cut_ms: u64,
    },
    /// F13: the disk says that nothing is free, before anything fails.
    NoRoom {
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
    /// F10: power fails within a sync of a store file: between a flush's rows and its position, or before both.
    CutFlush {
        /// Syncs of store files until the cut.
        syncs: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F9: a replication begins, and the node loses power within it.
    CutReplication {
        /// Requests to its source until the cut.
        after_asked: u64,
        /// Time until it starts again.
        down_ms: u64,
    },
    /// F25: what stands before the source of replications answers in its stead.
    PeerAnswers {
        /// With this status.
        status: u16,
        /// Duration.
        for_ms: u64,
    },
    /// F25: it lets through half of each answer.
    PeerCutsShort {
        /// Duration.
        for_ms: u64,
    },
    /// F25: it lets nothing through.
    PeerHangs {
        /// Duration.
        for_ms: u64,
    },
    /// F24: nodes one after the other, this one first, are restarted with the version after this one, whose messages
    /// have one more field, or go back to this one.
    Upgrade {
        /// How many.
        nodes: u32,
        /// To the later version.
        later: bool,
        /// Time from one node to the next.
        every_ms: u64,
        /// Time until each starts again.
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
        /// The copy was made after the process had ended in order; it starts again at once.
        #[serde(default)]
        stopped: bool,
    },
    /// F16: power fails, and one store file is what it was so long before. Where the node does not start with that, it
    /// gets the newer one again.
    OldFile {
        /// Chooses the file.
        file: u32,
        /// Milliseconds between the copy and its return.
        back_ms: u64,
    },
}

impl Fault {
    /// Its name in reports: its number and kind.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Crash { .. } => "F9 crash",
            Fault::Restart { .. } => "F9 restart in order",
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
            Fault::ClockDrift { .. } => "F18 clock drift",
            Fault::ClockStands { .. } => "F18 clock stands",
            Fault::Swizzle { .. } => "F6 swizzled clog",
            Fault::Clog { .. } => "F6 clog",
            Fault::BitRot { .. } | Fault::BitRotOwn { .. } => "F12 bit rot",
            Fault::LostWrites { misdirected: false, .. } => "F12 lost writes",
            Fault::LostWrites { .. } => "F12 misdirected writes",
            Fault::DirSyncErrors { .. } => "F11 directory syncs",
            Fault::KilledInJob { journal: true, .. } => "F9 kill in a sync",
            Fault::KilledInJob { .. } => "F9 kill in a job",
            Fault::NoRoom { .. } => NO_ROOM,
            Fault::DiskFull { .. } => "F13 disk full",
            Fault::NoFiles { .. } => "F13 no files",
            Fault::Limping { .. } => LIMPING,
            Fault::Pause { .. } => "F17 pause",
            Fault::CutCompaction { .. } => "F23 cut in a compaction",
            Fault::TornJournal { .. } => "F10 torn journal",
            Fault::CutFlush { .. } => "F10 cut in a flush",
            Fault::CutReplication { .. } => "F9 cut in a replication",
            Fault::PeerAnswers { .. } => "F25 peer refuses",
            Fault::PeerCutsShort { .. } => "F25 short answers",
            Fault::PeerHangs { .. } => "F25 peer hangs",
            Fault::Upgrade { .. } => "F24 rolling upgrade",
            Fault::DiskLost { .. } => "F15 disk lost",
            Fault::BackInTime { stopped: true, .. } => "F16 old copy put back",
            Fault::BackInTime { .. } => "F16 back in time",
            Fault::OldFile { .. } => "F16 old store file",
        }
    }

    /// How long it is felt, in milliseconds.
    pub fn lasts_ms(&self) -> u64 {
        match self {
            Fault::Crash { down_ms }
            | Fault::Restart { down_ms }
            | Fault::PowerLoss { down_ms }
            | Fault::Fuse { down_ms, .. }
            | Fault::KilledInJob { down_ms, .. }
            | Fault::CutCompaction { down_ms, .. }
            | Fault::TornJournal { down_ms, .. }
            | Fault::CutFlush { down_ms, .. }
            | Fault::CutReplication { down_ms, .. }
            | Fault::DiskLost { down_ms } => *down_ms,
            Fault::Partition { for_ms, .. }
            | Fault::SlowDisk { for_ms, .. }
            | Fault::DiskErrors { for_ms, .. }
            | Fault::DirSyncErrors { for_ms, .. }
            | Fault::NoRoom { for_ms }
            | Fault::Swizzle { for_ms }
            | Fault::Clog { for_ms, .. }
            | Fault::Split { for_ms, .. }
            | Fault::LostWrites { for_ms, .. }
            | Fault::DiskFull { for_ms, .. }
            | Fault::NoFiles { for_ms, .. }
            | Fault::Limping { for_ms, .. }
            | Fault::ClockDrift { for_ms, .. }
            | Fault::ClockStands { for_ms }
            | Fault::PeerAnswers { for_ms, .. }
            | Fault::PeerCutsShort { for_ms }
            | Fault::PeerHangs { for_ms }
            | Fault::Pause { for_ms } => *for_ms,
            Fault::Reset | Fault::ClockJump { .. } | Fault::BitRot { .. } | Fault::BitRotOwn { .. } => 1,
            Fault::BackInTime { back_ms, .. } | Fault::OldFile { back_ms, .. } => *back_ms,
            Fault::Upgrade { nodes, every_ms, .. } => u64::from(*nodes) * every_ms,
        }
    }

    /// Whether stored bytes are wrong from then on: an error is a right answer, wrong data is not.
    pub fn damages(&self) -> bool {
        matches!(self, Fault::BitRot { .. } | Fault::BitRotOwn { .. } | Fault::LostWrites { .. })
    }
}

/// Hostile code is a fault that clients bring.
pub const HOSTILE: &str = "F26 hostile code";
/// The name of [`Fault::Limping`], whose effects outlast it.
pub const LIMPING: &str = "F14 limping disk";

/// Names of faults that may end the writes of their node until its next start.
pub const ENDS_WRITES: [&str; 6] = [
    "F11 directory syncs",
    "F11 disk errors",
    "F12 bit rot",
    "F12 lost writes",
    "F12 misdirected writes",
    "F13 disk full",
];

/// The name of [`Fault::NoRoom`], under which what adds data is refused.
pub const NO_ROOM: &str = "F13 no room";

/// Names of all faults, for reports on what was never met.
pub const FAULTS: [&str; 40] = [
    "F6 clog",
    "F9 kill in a job",
    "F9 kill in a sync",
    "F11 directory syncs",
    NO_ROOM,
    "F2 answers lost",
    "F5 partition",
    "F5 split",
    "F5 one-way split",
    "F6 swizzled clog",
    "F7 reset",
    "F9 crash",
    "F9 restart in order",
    "F9 cut in a replication",
    "F10 torn journal",
    "F10 cut in a flush",
    "F10 power loss",
    "F10 cut in a commit",
    "F11 disk errors",
    "F12 bit rot",
    "F12 lost writes",
    "F12 misdirected writes",
    "F13 disk full",
    "F13 no files",
    "F14 slow disk",
    LIMPING,
    "F15 disk lost",
    "F16 back in time",
    "F16 old copy put back",
    "F16 old store file",
    "F17 pause",
    "F18 clock jump",
    "F18 clock drift",
    "F18 clock stands",
    "F24 rolling upgrade",
    "F25 peer refuses",
    "F25 short answers",
    "F25 peer hangs",
    HOSTILE,
    "F23 cut in a compaction",
];
