//! A run as data: a seed expands to the node's options, timed client operations and timed faults before anything runs.
//!
//! A plan is saved as readable JSON, replayed to the same trace, and shrunk by leaving parts out. Operations name
//! documents and values only; which revision they build on is decided when they run, from what the client has seen, so
//! that a shorter plan still makes sense.

use std::collections::BTreeSet;
use std::ops::Range;

use serde::{Deserialize, Serialize};

mod cluster;
mod disks;
mod draw;
mod expiring;
mod fault;
mod forgotten;
mod governed;
mod meet;
mod op;
mod purges;
mod rest;
mod scene;
mod snapshots;
mod stage;
mod strike;
mod two_clusters;
mod unseen;

pub use fault::{Aim, ENDS_WRITES, FAULTS, Fault, HOSTILE, LIMPING, NO_ROOM, TimedFault};
pub use meet::Meetings;
pub use op::{FILTERS, FeedFilter, FeedMode, Filter, HOSTILE_WAYS, OPS, Op, TimedOp, WAYS, Way};
pub use rest::{PAD_BIT, PAD_UNIT};
pub use scene::{SCENES, Scene};

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
    /// From some moment on all draws are others: what is still the same then was decided before (`bisect`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<Reseed>,
    /// The run ends at this simulated millisecond, whatever is still to come: nobody waits for more (`shrink`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// A moment from which on all draws are others than the seed's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reseed {
    /// Simulated milliseconds from the start of the world.
    pub at_ms: u64,
    /// Which others.
    pub salt: u64,
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
    /// Replicas of each range where the nodes are one cluster; 0: they are not.
    #[serde(default)]
    pub n: u32,
    /// How many of a cluster's nodes, the last ones, do not belong to it at first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub outside: u32,
    /// Whether a read that too few replicas answer fails (`[cluster] strict_reads`).
    #[serde(default)]
    pub strict_reads: bool,
    /// Replicas that clients of a cluster ask to hold each write (`w`); `None`: they leave it to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub w: Option<u32>,
    /// Replicas that they ask to answer each read (`r`); `None`: they leave it to the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r: Option<u32>,
    /// Purges that databases of purged documents keep on record (`_purged_infos_limit`); `None`: as many as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub purges_kept: Option<u32>,
    /// The node of a cluster that stays broken when the others are well again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcast: Option<Outcast>,
    /// A second cluster, of nodes of its own, with which the first one replicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub far: Option<Far>,
    /// Milliseconds after which tombstones may be forgotten (`[settee] tombstone_days`); 0: never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tombstone_ms: u32,
    /// Bytes of a message between nodes at most; documents, attachments and requests have caps of the size that goes
    /// with it. 0: as many as usual.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub message_bytes: u32,
    /// Rows that a reduction reads in a step; 0: as many as usual.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step_rows: u32,
    /// Whether clients search by full-text indexes, beside the queries that they ask: they do in every drawn plan.
    #[serde(default, skip_serializing_if = "is_false")]
    pub searches: bool,
    /// Whether nodes speak TLS with each other and with their clients.
    #[serde(default, skip_serializing_if = "is_false")]
    pub tls: bool,
    /// Whether nodes that speak TLS with each other have no certificate files for that.
    #[serde(default, skip_serializing_if = "is_false")]
    pub self_made: bool,
}

/// A second cluster, and the way to it until the faults end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Far {
    /// Its nodes; they are counted on from those of the first one.
    pub nodes: u32,
    /// Mean one-way latency between the clusters in microseconds.
    pub latency_us: u64,
    /// Segments lost there and sent again, per 10,000.
    pub loss_per_10k: u32,
}

/// A node that stays broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcast {
    /// Which one.
    pub node: u32,
    /// What it has.
    pub how: Ailment,
}

/// How a node is broken that does not come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ailment {
    /// It hears nobody, and nobody hears it.
    Alone,
    /// It hears nobody; others hear it.
    Deaf,
    /// Nobody hears it; it hears others.
    Mute,
    /// Its process stands still, its connections stay open.
    StandsStill,
    /// It goes on with what its disk made of what was written to it.
    Spoiled,
}

impl WorldPlan {
    /// Bytes of a document, of an attachment and of a request at most; `None`: as many as usual.
    pub fn caps(&self) -> Option<(u32, u32, u32)> {
        (self.message_bytes > 0).then_some((self.message_bytes / 8, self.message_bytes / 2, self.message_bytes / 2))
    }

    /// How many replicas make a majority; 1 without a cluster.
    pub fn majority(&self) -> u32 {
        self.replicas() / 2 + 1
    }

    /// How many replicas each range has; 1 without a cluster.
    pub fn replicas(&self) -> u32 {
        self.n.min(self.members()).max(1)
    }

    /// How many nodes, the first ones, belong to the cluster at first.
    pub fn members(&self) -> u32 {
        self.nodes.saturating_sub(self.outside)
    }

    /// How many nodes there are in all.
    pub fn machines(&self) -> u32 {
        self.nodes + self.far.map_or(0, |far| far.nodes)
    }

    /// The nodes of each cluster at first; none where the nodes are servers of their own.
    pub fn clusters(&self) -> Vec<Range<u32>> {
        let near = (self.n > 0).then(|| 0..self.members());
        let far = self.far.map(|far| self.nodes..self.nodes + far.nodes);
        near.into_iter().chain(far).collect()
    }
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

fn is_false(switch: &bool) -> bool {
    !switch
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

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

    /// Whether a node of a cluster loses its disk, what it wrote last or some of it: only a majority of replicas keeps
    /// a write then.
    pub fn loses_disks(&self) -> bool {
        let loses =
            |fault: &Fault| matches!(fault, Fault::DiskLost { .. } | Fault::BackInTime { .. }) || fault.damages();
        self.world.n > 0 && self.faults.iter().any(|f| loses(&f.fault))
    }

    /// Whether somebody changes where replicas are.
    pub fn moves_replicas(&self) -> bool {
        let moves = |op: &Op| {
            matches!(op, Op::MoveReplica { .. } | Op::Rebalance { .. } | Op::SplitRange { .. } | Op::RemoveNode { .. })
        };
        self.clients.iter().flatten().any(|timed| moves(&timed.op))
    }

    /// Whether the clocks of some nodes go wrong.
    pub fn moves_clocks(&self) -> bool {
        let moves = |fault: &Fault| {
            matches!(fault, Fault::ClockJump { .. } | Fault::ClockDrift { .. } | Fault::ClockStands { .. })
        };
        self.faults.iter().any(|timed| moves(&timed.fault))
    }

    /// Whether nodes come to a cluster, or may leave it.
    pub fn changes_members(&self) -> bool {
        self.world.n > 0 && (self.world.outside > 0 || !self.leaving().is_empty())
    }

    /// The nodes that somebody sends away.
    fn leaving(&self) -> BTreeSet<u32> {
        let ops = self.clients.iter().flatten().map(|timed| &timed.op);
        ops.filter_map(|op| if let Op::RemoveNode { node } = op { Some(*node) } else { None }).collect()
    }

    /// The nodes of each cluster that belong to it from the begin to the end; none without one.
    pub fn stays(&self) -> Vec<Vec<u32>> {
        let leaving = self.leaving();
        let staying = |nodes: Range<u32>| -> Vec<u32> { nodes.filter(|node| !leaving.contains(node)).collect() };
        self.world.clusters().into_iter().map(staying).collect()
    }

    /// Whether somebody looks at the shared database through views and queries.
    pub fn has_views(&self) -> bool {
        let looks = |op: &Op| matches!(op, Op::View { .. } | Op::Find { .. } | Op::FollowChosen);
        self.clients.iter().flatten().any(|timed| looks(&timed.op))
    }

    /// Whether nothing goes wrong, and all nodes agree on who works.
    pub fn is_in_peace(&self) -> bool {
        self.faults.is_empty() && !self.has_maintenance()
    }

    /// Whether in the end each node is cut off and read alone: each has a replica of everything.
    pub fn cuts_off_at_the_end(&self) -> bool {
        let world = &self.world;
        let has_all = world.n == world.nodes && !self.moves_replicas() && !self.loses_disks();
        world.message_bytes > 0 && has_all && !world.strict_reads
    }

    /// Whether somebody reads the shared database's feed by filters.
    pub fn has_filters(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::FollowFiltered { .. }))
    }

    /// Whether somebody asks for groups of documents that are always there.
    pub fn has_groups(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Groups { .. } | Op::Shift { .. }))
    }

    /// Whether nodes are taken into maintenance.
    pub fn has_maintenance(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Maintain { .. }))
    }

    /// Whether somebody takes snapshots.
    pub fn takes_snapshots(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Snapshot { .. }))
    }

    /// Whether the secret of cookies changes: the nodes keep their configuration in a file then.
    pub fn changes_secrets(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::NewSecret))
    }

    /// Whether somebody writes documents that end.
    pub fn has_mortals(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Live { .. }))
    }

    /// Whether somebody makes rules for documents.
    pub fn has_rules(&self) -> bool {
        self.clients.iter().flatten().any(|timed| matches!(timed.op, Op::Rule { .. }))
    }

    /// Whether stored bytes become wrong.
    pub fn damages(&self) -> bool {
        self.faults.iter().any(|f| f.fault.damages())
    }

    /// The node of a cluster whose stored bytes become wrong.
    pub fn spoiled(&self) -> Option<u32> {
        self.world.outcast.filter(|outcast| outcast.how == Ailment::Spoiled).map(|outcast| outcast.node)
    }

    /// Whether files are damaged that the node is to replace.
    pub fn mends(&self) -> bool {
        self.world.n > 1 && self.faults.iter().any(|timed| matches!(timed.fault, Fault::BitRotOwn { .. }))
    }

    /// The plan as a readable file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a plan is plain data")
    }
}
