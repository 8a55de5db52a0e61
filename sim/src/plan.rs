//! A run as data: a seed expands to the node's options, timed client operations and timed faults before anything runs.
//!
//! A plan is saved as readable JSON, replayed to the same trace, and shrunk by leaving parts out. Operations name
//! documents and values only; which revision they build on is decided when they run, from what the client has seen, so
//! that a shorter plan still makes sense.

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
mod types;
mod unseen;

pub use fault::{Aim, ENDS_WRITES, FAULTS, Fault, HOSTILE, LIMPING, NO_ROOM, TimedFault};
pub use meet::Meetings;
pub use op::{FILTERS, FeedFilter, FeedMode, Filter, HOSTILE_WAYS, OPS, Op, TimedOp, WAYS, Way};
pub use rest::{PAD_BIT, PAD_UNIT};
pub use scene::{SCENES, Scene};
pub use types::{Ailment, Far, Outcast, Plan, Reseed, WORK_MS, WorldPlan};
